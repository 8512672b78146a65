r"""`turnwise explain`: what a template reads, and the markers it writes.

The variables come from the program. The markers are read off renderings of a few conversations made up for it, whose
own text has nothing that looks like one: whatever looks like a marker there was written by the template, or is one of
the special tokens it was given. Looks like: `<|...|>`, `<...>`, `[INST]`, `<<SYS>>`. A marker made of plain words
("### Instruction:") is not seen, nor one that these conversations do not reach.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from turnwise.cli import inputs, output
from turnwise.cli.render import ColourOption, JsonOption, PickOption, TemplateArgument
from turnwise.engine.rendering import Rendering
from turnwise.errors import TurnwiseError, printable
from turnwise.template import Template

# What a conversation fills; everything else that a template reads is an option.
GIVEN = ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message")

MARKER = re.compile(
    r"<\|[^\s|<>]{1,60}\|>|<｜[^\s<>]{1,60}｜>|<{1,2}/?[A-Za-z][\w.:-]{0,60}>{1,2}|\[/?[A-Za-z_]{0,20}[A-Z]{3}[A-Z_]{0,20}\]"
)

INDEX = re.compile(r"\[\d+\]")

TOOL = {"type": "function", "function": {"name": "find", "description": "d", "parameters": {"type": "object"}}}
CALL = {"id": "call00001", "type": "function", "function": {"name": "find", "arguments": {"what": "w"}}}
TALK = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "v"}]
PROBES: tuple[dict[str, Any], ...] = (
    {"messages": [{"role": "system", "content": "s"}, *TALK], "add_generation_prompt": True},
    {"messages": TALK, "add_generation_prompt": True},
    {
        "messages": [
            TALK[0],
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call00001", "name": "find", "content": "r"},
            {"role": "assistant", "content": "a", "reasoning_content": "t"},
        ],
        "tools": [TOOL],
    },
    {"messages": [TALK[0], {"role": "assistant", "content": "a", "reasoning_content": "t"}]},
)


def explain(
    template: TemplateArgument,
    program: Annotated[bool, typer.Option("--program", help="Also print the compiled program.")] = False,
    pick: PickOption = None,
    as_json: JsonOption = False,
    colour: ColourOption = None,
) -> None:
    """Say what a template reads and writes."""
    loaded = inputs.template_of(template, pick)
    facts = explained(loaded)
    if program:
        facts["program"] = loaded.program.python
    if as_json:
        output.write_json(facts)
        return
    output.write_rich(Group(*sections(facts)), output.coloured(colour))
    if program:
        output.write(printable(loaded.program.python, 10**9) + "\n")


def explained(template: Template) -> dict[str, Any]:
    markers, refusals = probed(template)
    return {
        "name": template.name,
        "reads": [name for name in template.variables if name in GIVEN],
        "options": {name: template.options.get(name) for name in template.variables if name not in GIVEN},
        "unread": sorted(template.options.keys() - set(template.variables)),
        "named": sorted(template.named),
        "markers": markers,
        "refusals": refusals,
    }


def probed(template: Template) -> tuple[list[dict[str, Any]], list[str]]:
    """Markers with the place that wrote them first, and what the template said to probes it did not take."""
    markers: dict[str, dict[str, Any]] = {}
    refusals = []
    for probe in PROBES:
        try:
            rendering = template.render(**probe)
        except TurnwiseError as error:
            refusals.append(error.message)
            continue
        for marker in markers_in(rendering):
            markers.setdefault(marker["text"], marker)
    return list(markers.values()), list(dict.fromkeys(refusals))


def markers_in(rendering: Rendering) -> list[dict[str, Any]]:
    pieces = rendering.pieces
    starts = list(accumulate((len(piece.text) for piece in pieces), initial=0))
    found = []
    for match in MARKER.finditer(rendering.text):
        first, last = (bisect_right(starts, at) - 1 for at in (match.start(), match.end() - 1))
        origins = [piece.origin for piece in pieces[first : last + 1]]
        fields = list(dict.fromkeys(INDEX.sub("[*]", origin.field) for origin in origins if origin.field))
        place = {"line": origins[0].line, "column": origins[0].column, "fields": fields}
        found.append({"text": match.group(), **place})
    return found


def sections(facts: dict[str, Any]) -> list[Table | Text]:
    rows: list[tuple[str, list[str]]] = [
        ("reads", [", ".join(facts["reads"])]),
        ("options", [name if value is None else f"{name} = {value!r}" for name, value in facts["options"].items()]),
        ("not read", [", ".join(facts["unread"])]),
        ("templates", [", ".join(["default", *facts["named"]]) if facts["named"] else ""]),
        ("markers", [marker_line(marker) for marker in facts["markers"]]),
        ("refuses", facts["refusals"]),
    ]
    table = Table.grid(padding=(0, 2))
    for heading, lines in rows:
        for number, line in enumerate(filter(None, lines)):
            table.add_row(Text("" if number else heading, "dim"), Text(printable(line)))
    return [Text(printable(facts["name"]), "bold"), table]


def marker_line(marker: dict[str, Any]) -> str:
    place = f"{marker['line']}:{marker['column']}" if marker["line"] else "given"
    inside = f"  with {', '.join(marker['fields'])} in it" if marker["fields"] else ""
    return f"{marker['text']:<24} {place}{inside}"
