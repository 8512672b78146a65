"""Ask the eight invariants of reply parsers of every template with calls or reasoning, and write the page about it.

    python scripts/replies_conformance.py                     the table, and docs/replies-conformance.md
    python scripts/replies_conformance.py --replies 40        fewer replies for each template
    python scripts/replies_conformance.py --fixtures FOLDER   also the fixtures of ai-dynamo/frontend-crates, a checkout

Templates are the entries of the registry and, where it is at hand, those of the corpus. The exit code is 1 if an
invariant does not hold. Fixtures are other software's expectations: they are counted, and those that differ are listed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
# The folders must be on the path before they are imported from (E402).
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "support")]

import corpus  # noqa: E402
import turnwise  # noqa: E402
from published_templates import grammar_of  # noqa: E402
from reply_invariants import (  # noqa: E402
    EXCEPTIONS,
    INVARIANTS,
    REPLIES,
    Verdict,
    assemble,
    cut_in_chunks,
    judge,
)
from turnwise.errors import TurnwiseError  # noqa: E402
from turnwise.replies.grammar import Grammar  # noqa: E402
from turnwise.replies.parser.parser import Parser  # noqa: E402

PAGE = ROOT / "docs" / "replies-conformance.md"
TEXT = """# Conformance of replies

Written by the script of `make replies-conformance` on {day}. Each template with calls or reasoning was asked about
{replies} replies: what its grammar writes for messages with nested values and text of many scripts, one of these cut
after every token, and others broken in 20 ways. Each was parsed whole and in chunks of 1, 2, 3, 7 and random sizes. A
cell has the number of violations; {asked:,} questions were asked.

The first six invariants are those of the public suite of ai-dynamo/frontend-crates, which has fixtures of its own:
`make replies-conformance FIXTURES=folder` runs them from a checkout.

| invariant | holds if |
|---|---|
| order | reasoning, content and calls come in the order of the reply, as the message that was written has them |
| no leak | no tag that opens or closes something is text, unless it is named in `attempts` |
| chunk invariance | the message, its spans, its attempts and its events are the same for every chunking |
| stream = batch | a stream gives the same as the whole reply, unless a closer of reasoning has no opener |
| argument fidelity | the arguments are those that were written, with their types and their order |
| coalescing | no event is empty, no two neighbours are of one kind, and all events together are the message |
| recovery | nothing raises, spans cover the reply, and no character is lost, however the reply is cut or broken |
| bounds | what is held back does not grow with the reply |

A grammar that states in `unreached` that calls are not read back is asked about replies without calls. Left out:
{left_out}.

{table}
"""
FINISH = "‹finish›"  # the last chunk of a fixture, which is no text
# The template that writes what a family of the fixtures is about: an entry, or one of the corpus.
FAMILIES = {
    "deepseek_v4": "llamacpp-deepseek-ai-DeepSeek-V4",
    "deepseek_v41": "llamacpp-deepseek-ai-DeepSeek-V4-Flash-0731",
    "gemma4": "gemma-4",
    "glm47": "glm-4.7",
    "kimi_k2": "kimi-k2-thinking",
    "kimi_k3": "llamacpp-Kimi-K3",
    "muse_glimmer": "vllm-tool_chat_template_muse_glimmer",
    "qwen3": "qwen3.5",
}


class Row(NamedTuple):
    """A line of the table."""

    templates: int
    broken: Counter[str]


class Answer(NamedTuple):
    """What a template was asked, and the invariants that did not hold; None if it has neither calls nor reasoning."""

    family: str
    asked: int
    broken: Counter[str]
    examples: list[str]


def find_templates() -> Iterator[tuple[str, str]]:
    """Yield the family and the name of each template."""
    for name, entry in turnwise.entries().items():
        yield entry.family or "other", name
    for name, published in corpus.load_published().items():
        yield f"corpus: {published.facts['family']}", name


def ask_one(family: str, name: str, replies: int) -> Answer | None:
    """Ask one template."""
    if name in EXCEPTIONS:
        return Answer(family, 0, Counter(), [f"{name}: left out: {EXCEPTIONS[name]}"])
    warnings.simplefilter("ignore", turnwise.TurnwiseWarning)
    try:
        is_entry = name in turnwise.entries()
        grammar = turnwise.load(name).grammar if is_entry else grammar_of(name)
    except TurnwiseError as error:
        return Answer(family, 0, Counter(), [f"{name}: left out: {error}"])
    if grammar.calls is None and grammar.reasoning is None:
        return None
    verdict = judge_once(grammar, replies)
    examples = [
        f"{name}: {invariant}: {reply[:200]!r} {what[:200]}"
        for invariant, reply, what in verdict.broken[:3]
    ]
    broken = Counter(one[0] for one in verdict.broken)
    return Answer(family, verdict.asked.total(), broken, examples)


def judge_once(grammar: Grammar, replies: int) -> Verdict:
    """Judge a grammar; many templates have the same one, but for the places that its markers have in them."""
    key = ORIGIN.sub("", repr(replace(grammar, sources={})))
    if key not in _verdicts:
        _verdicts[key] = judge(grammar, 1, replies)
    return _verdicts[key]


ORIGIN = re.compile(r"origin='[^']*'")
_verdicts: dict[str, Verdict] = {}


def ask_all(replies: int, processes: int) -> tuple[dict[str, Row], int]:
    """Return the rows of the table, and how many questions were asked."""
    rows: dict[str, Row] = {}
    asked = 0
    families, names = zip(*find_templates(), strict=True)
    with ProcessPoolExecutor(processes) as pool:
        for answer in pool.map(ask_one, families, names, [replies] * len(names), chunksize=4):
            if answer is None:
                continue
            print(*answer.examples, sep="\n", end="\n" if answer.examples else "", flush=True)
            asked += answer.asked
            before = rows.get(answer.family, Row(0, Counter()))
            has_asked = bool(answer.asked)
            rows[answer.family] = Row(before.templates + has_asked, before.broken + answer.broken)
    return rows, asked


def write_table(rows: dict[str, Row]) -> str:
    """Return the table in Markdown, one line for each family and one for all."""
    lines = [
        f"| family | templates | {' | '.join(INVARIANTS)} |",
        "|---|---|" + "---|" * len(INVARIANTS),
    ]
    total = Row(0, Counter())
    for family, row in sorted(rows.items()):
        lines.append(_write_row(family, row))
        total = Row(total.templates + row.templates, total.broken + row.broken)
    return "\n".join([*lines, _write_row("**all**", total)])


def _write_row(family: str, row: Row) -> str:
    cells = " | ".join(str(row.broken[invariant]) for invariant in INVARIANTS)
    return f"| {family} | {row.templates} | {cells} |"


# -- fixtures


def run_fixtures(folder: Path) -> Iterator[tuple[str, Counter[str], list[str]]]:
    """Yield each family of the fixtures, how many cases have which outcome, and the ids of those that differ."""
    import yaml

    known = corpus.load_published()
    pattern = "conformance/fixtures-unified-v2/families/*/inputs_and_golden.yaml"
    for path in sorted(folder.glob(pattern)):
        family = path.parent.name
        name = FAMILIES.get(family, "")
        if name not in known and name not in turnwise.entries():
            yield family, Counter({"no template": 1}), []
            continue
        grammar = grammar_of(name) if name in known else turnwise.load(name).grammar
        cases = yaml.safe_load(path.read_text(encoding="utf-8"))["cases"]
        outcomes: Counter[str] = Counter()
        differing = []
        for case in cases.values():
            outcome = run_case(grammar, case)
            outcomes[outcome] += 1
            if outcome == "differs":
                differing.append(str(case["display_id"]))
        yield family, outcomes, differing


def run_case(grammar: Grammar, case: dict[str, Any]) -> str:
    """Return whether a case is met: "equal" or "differs", in the chunks of the case and one character at a time.

    Constrained JSON instead of the model's own format is a mode of the server, and left out.
    """
    request = case["request"]
    if case.get("lifecycle") != "active" or request["init"]["tool_output_mode"] != "Native":
        return "left out"
    state = "assume" if request["init"]["starting_state"] == "Reasoning" else "auto"
    tools = [{"type": "function", "function": tool} for tool in request["tools"]]
    expected = [_read_golden(part) for part in case["golden"]["assembled"]]
    given = [chunk["delta_text"] for chunk in request["chunks"]]
    for chunks in ([text for text in given if text != FINISH], cut_in_chunks(request["input"], 1)):
        parser = Parser(grammar, "", tools, reasoning=state, cut_calls="drop")
        events = [event for chunk in chunks for event in parser.feed(chunk)]
        found = assemble([*events, *parser.close().events])
        if [_read_found(part) for part in found] != expected:
            return "differs"
    return "equal"


def _read_golden(part: dict[str, Any]) -> tuple[str, str]:
    if part["kind"] == "tool_call":
        return f"call {part['name']}", json.dumps(part["arguments"], sort_keys=True)
    return part["kind"], part["text"]


def _read_found(part: tuple[str, str]) -> tuple[str, str]:
    kind, text = part
    if not kind.startswith("call "):
        return kind, text
    try:
        return kind, json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return kind, text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--replies", type=int, default=REPLIES, help="for each template")
    parser.add_argument("--processes", type=int, default=2, help="that share the templates")
    parser.add_argument("--fixtures", type=Path, help="a checkout of ai-dynamo/frontend-crates")
    arguments = parser.parse_args()
    if arguments.fixtures is not None:
        for family, outcomes, differing in run_fixtures(arguments.fixtures):
            print(f"{family}: {dict(outcomes)} {' '.join(differing)}")
    rows, asked = ask_all(arguments.replies, arguments.processes)
    table = write_table(rows)
    print(table)
    text = TEXT.format(
        day=date.today().isoformat(),
        replies=arguments.replies,
        asked=asked,
        table=table,
        left_out="; ".join(f"`{name}` ({reason})" for name, reason in EXCEPTIONS.items()),
    )
    PAGE.write_text(text, encoding="utf-8")
    return int(any(row.broken for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
