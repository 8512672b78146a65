"""Convert every entry to every dialect that can be written, and print how many can be: the table of the documentation.

    python scripts/conversion_table.py [--refused] [NAME ...]

What an error offers to leave out is left out, until the entry is converted or nothing is offered. `--refused` also
lists the entries that are not converted, with the reason. NAMEs choose entries. Takes minutes for all of them.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The folders must be on the path before they are imported from (E402).
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "support")]

import turnwise  # noqa: E402
from target_texts import TARGETS, Converted, convert_losing  # noqa: E402
from turnwise.registry import entries  # noqa: E402


def convert_all(names: list[str], dialect: str) -> dict[str, Converted]:
    """Convert the entries that are not written in this dialect already."""
    results = {}
    for name in names:
        if entries()[name].dialect != dialect:
            results[name] = convert_losing(turnwise.load(name), dialect)
    return results


def describe(dialect: str, results: dict[str, Converted]) -> str:
    """Return the row of a dialect."""
    converted = [result for result in results.values() if result.error is None]
    whole = sum(not result.without for result in converted)
    losses: Counter[str] = Counter()
    for result in converted:
        # An option is named by itself: all of them count as one kind.
        losses.update(
            {name if " " in name or name in KINDS else "options" for name in result.without}
        )
    listed = ", ".join(f"{name} {count}" for name, count in losses.most_common())
    return f"| {dialect} | {len(converted)} of {len(results)} | {whole} | {listed} |"


KINDS = ("tools", "reasoning", "images", "audio", "documents", "names", "options")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--refused", action="store_true")
    arguments = parser.parse_args()
    names = arguments.names or list(entries())
    refused = []
    print("| to | converted | with nothing left out | left out where converted |")
    print("|---|---|---|---|")
    for dialect in TARGETS:
        results = convert_all(names, dialect)
        print(describe(dialect, results), flush=True)
        for name, result in results.items():
            if result.error is not None:
                refused.append(f"{name}: {result.error.message}")
    if arguments.refused:
        print(*refused, sep="\n")


if __name__ == "__main__":
    main()
