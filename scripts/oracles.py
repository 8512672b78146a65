"""Write docs/oracles.md: each entry that has an oracle against its maker's encoder, on random conversations.

    python scripts/oracles.py                        all whose encoder can be run here
    python scripts/oracles.py --count 2000           so many random conversations each
    python scripts/oracles.py --encoders FOLDER      with makers' files (encoding_dsv32.py), which are run locked

The packages are those of the extra `test`; openai-harmony reads its vocabulary from TIKTOKEN_ENCODINGS_BASE.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace
from datetime import date
from pathlib import Path

import turnwise
from turnwise.analysis.conversations import Probe
from turnwise.errors import SourceError
from turnwise.evidence.conform import DECLINED, EngineComparison, is_wire_probe, wire_request
from turnwise.oracles import Oracle, find_oracle

PAGE = Path(__file__).resolve().parent.parent / "docs" / "oracles.md"
HEAD = """# Entries and their makers' encoders

Written by `make oracles` on {day}: what each entry writes against what the encoder of the model's maker writes, on the
fixed conversations of `conform` and {count} random ones. *Compared* are those that both write. What the encoder refuses
by rules about requests (a call without its result, an effort that the model has not) is counted apart.

| entry | encoder | version | compared | equal | share | refused by both | by the encoder alone |
|---|---|---|---:|---:|---:|---:|---:|
"""
REASONS = """
## Differences, and why

{rows}

* Late system texts are given to template and encoder where they stand (`late_system="in_place"`).
* Numbers such as 1e+30 in the arguments of calls are left out: libraries in Rust spell them 1e30.
* Texts of the developer go to DeepSeek V4, Mistral and Kimi K3 as system texts.
* The file of DeepSeek V3.2 writes results in the order that they have; `render` puts them into the order of their
  calls, as the maker's later encoders do. Only conversations in which they are in order are compared.
* The files of DeepSeek V3.2 and Kimi K3 themselves could not be read here. The first is vLLM's copy, with the blank
  lines of the maker's fixtures put back; the second a transcript, without images, of a copy that derives from the
  maker's. The hash is that of the file that was run.
* Kimi K3's encoder orders results by their calls also where another message stands between; `render` only directly
  after the calls.
* A reasoning under another name than `reasoning_content` is renamed by `render`, and is not asked for.
"""


def measure(name: str, oracle: Oracle, count: int) -> tuple[str, list[str]]:
    """Return the row of an entry, and the rows of its differences."""
    comparison = EngineComparison(oracle, turnwise.load(name))
    outcomes: Counter[str | None] = Counter()
    differences = []
    for probe in comparison.list_probes(seed=1, count=count):
        if oracle.name.endswith(".py"):
            probe = fit_to_file(probe, oracle.name)
            if probe is None or not is_wire_probe(probe, False):
                continue
        outcome = comparison.compare(probe)
        outcomes[outcome] += 1
        if outcome in ("text", "ids", "refusal"):
            found = comparison.describe(comparison.shrink(probe, outcome), outcome)
            roles = ", ".join(message["role"] for message in wire_request(found.probe)["messages"])
            ours, theirs = (text[found.at :][:40] for text in (found.expected, found.got))
            differences.append(f"* `{name}` on {roles}: `{ours!r}`, the encoder `{theirs!r}`")
    equal, refused, declined = outcomes[""], outcomes[None], outcomes[DECLINED]
    compared = sum(outcomes.values()) - refused - declined
    share = f"{equal / compared:.2%}" if compared else "-"
    source = oracle.package or oracle.name
    cells = (
        f"`{name}`",
        source,
        oracle.version,
        f"{compared:,}",
        f"{equal:,}",
        share,
        f"{refused:,}",
        f"{declined:,}",
    )
    return f"| {' | '.join(cells)} |\n", differences


def fit_to_file(probe: Probe, name: str) -> Probe | None:
    """Return a conversation as a maker's file expects it from its caller; None if it is not for it."""
    results = [m["tool_call_id"] for m in probe.messages if m["role"] == "tool"]
    if name == "encoding_dsv32.py":
        return probe if results == sorted(results) else None
    messages = [{**m, "role": "system"} if m["role"] == "developer" else m for m in probe.messages]
    return replace(probe, messages=messages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=3600)
    parser.add_argument("--encoders", type=Path, help="a folder with makers' files")
    wanted = parser.parse_args()
    rows, differences = [], []
    for name, entry in turnwise.entries().items():
        if not entry.oracle:
            continue
        place = entry.oracle
        if place.endswith(".py"):
            if wanted.encoders is None or not (wanted.encoders / place).exists():
                continue
            place = wanted.encoders / place
        try:
            oracle = find_oracle(place, trust_encoder=True)
        except SourceError as error:
            print(f"{name}: {error.message}")
            continue
        row, found = measure(name, oracle, wanted.count)
        print(row, end="", flush=True)
        rows.append(row)
        differences += found
    reasons = REASONS.format(rows="\n".join(differences) or "There are none.")
    PAGE.write_text(
        HEAD.format(day=date.today(), count=f"{wanted.count:,}") + "".join(rows) + reasons,
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
