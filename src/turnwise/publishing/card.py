"""The capability card of a model: a page for those who serve it, train on it, or send messages to it."""

from __future__ import annotations

from collections.abc import Iterator

from turnwise.publishing.golden import GOLDEN_FILE
from turnwise.publishing.model_folder import ModelFolder

CARD_FILE = "CHAT_TEMPLATE.md"
MEANINGS = {
    "written": "yes",
    "dropped": "no: it is left out without a word",
    "refused": "no: the template raises an error",
    "changed": "in part, or not as in its usual form",
    "garbled": "no: it is printed as a value of Python or JSON",
}


def write_card(folder: ModelFolder) -> str:
    """Return the card as Markdown; everything in it was measured on the template."""
    return "\n".join(_write_lines(folder)) + "\n"


def _write_lines(folder: ModelFolder) -> Iterator[str]:
    template = folder.template
    yield "# Chat template\n"
    yield "Measured by turnwise on the template of this folder, not written by hand.\n"
    yield "## Replies end with\n"
    stops = template.stops(folder.tokenizer)
    ids = dict(zip(stops, (folder.tokenizer.id(stop) for stop in stops), strict=True))
    yield from (f"* `{stop}`" + ("" if id is None else f", token {id}") for stop, id in ids.items())
    yield "\n## What the template takes\n"
    yield "| input | written? | detail |\n|---|---|---|"
    for row in template.capabilities.rows:
        yield f"| {row.name} | {MEANINGS[row.verdict]} | {_quote(row.evidence)} |"
    yield "\n## What a reply looks like\n"
    yield f"```text\n{template.grammar}\n```\n"
    yield "## When the conversation grows\n"
    yield f"```text\n{template.stability}\n```\n"
    yield "## Test it\n"
    yield f"`{GOLDEN_FILE}` has renderings, ids and parsed replies. This command exits with 1 if one of them differs:\n"
    yield "```console\n$ pip install turnwise\n$ turnwise release . --verify\n```"


def _quote(text: str) -> str:
    """Return a text in a cell of a table, as code."""
    shown = text.replace("\n", "\\n").replace("|", "\\|").replace("`", "'")
    return f"`{shown}`" if shown else ""
