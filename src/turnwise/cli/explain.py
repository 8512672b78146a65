r"""`turnwise explain`: what a template reads, the markers it writes, and how replies to it are read.

The variables come from the program. The markers are read off renderings of a few conversations made up for it, whose
own text has nothing that looks like one: whatever looks like a marker there was written by the template, or is one of
the special tokens it was given. Looks like: `<|...|>`, `<...>`, `[INST]`, `<<SYS>>`. A marker made of plain words
("### Instruction:") is not seen, nor one that these conversations do not reach. The table of replies is the template's
grammar, which has an origin for each marker.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate
from typing import Annotated, Any

import typer
from rich.text import Text

from turnwise.analysis.stops import MARKER
from turnwise.cli import inputs, output
from turnwise.cli.render import ColourOption, JsonOption, PickOption, TemplateArgument
from turnwise.engine.provenance.rendering import Rendering
from turnwise.errors import TurnwiseError, printable
from turnwise.template import Template

# What a conversation fills; everything else that a template reads is an option.
GIVEN = ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message")

INDEX = re.compile(r"\[\d+\]")

TOOL = {
    "type": "function",
    "function": {"name": "find", "description": "d", "parameters": {"type": "object"}},
}
USER, ANSWER = {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}


def calling(content: str | None, arguments: Any) -> dict[str, Any]:
    call = {
        "id": "call00001",
        "type": "function",
        "function": {"name": "find", "arguments": arguments},
    }
    asked = {"role": "assistant", "content": content, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "call00001", "name": "find", "content": "r"}
    return {"messages": [USER, asked, result, ANSWER], "tools": [TOOL]}


PROBES: dict[str, dict[str, Any]] = {
    "one message": {"messages": [USER], "add_generation_prompt": True},
    "turns": {"messages": [USER, ANSWER, USER], "add_generation_prompt": True},
    "a system message": {"messages": [{"role": "system", "content": "s"}, USER, ANSWER]},
    "reasoning": {"messages": [USER, {**ANSWER, "reasoning_content": "t"}]},
    "calls": calling("", {"what": "w"}),
    "calls, content null": calling(None, {"what": "w"}),
    "calls, arguments as text": calling("", '{"what": "w"}'),
    "calls, arguments as text, content null": calling(None, '{"what": "w"}'),
}


def explain(
    template: TemplateArgument,
    program: Annotated[
        bool, typer.Option("--program", help="Also print the compiled program.")
    ] = False,
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
    output.write_lines(lines_of(facts), output.coloured(colour))
    if program:
        output.write(printable(loaded.program.python, 10**9) + "\n")


def explained(template: Template) -> dict[str, Any]:
    markers, refusals = probed(template)
    rows, unreached = replies(template, refusals)
    return {
        "name": template.name,
        "reads": [name for name in template.variables if name in GIVEN],
        "options": {
            name: template.options.get(name) for name in template.variables if name not in GIVEN
        },
        "unread": sorted(template.options.keys() - set(template.variables)),
        "named": sorted(template.renderer.named),
        "markers": markers,
        "replies": rows,
        "unreached": unreached,
        "refusals": refusals,
    }


def replies(template: Template, refusals: dict[str, str]) -> tuple[list[dict[str, str]], list[str]]:
    """The grammar of replies as a table, and what no probe reached."""
    try:
        grammar = template.grammar
    except TurnwiseError as error:
        refusals["replies"] = error.message
        return [], []
    rows = [{"part": part, "text": text, "origin": origin} for part, text, origin in grammar.rows()]
    return rows, list(grammar.unreached)


def probed(template: Template) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Markers with the place that wrote them first, and what the template said to probes it did not take."""
    # A file alone does not say its special tokens; many templates would stop there.
    blank: dict[str, Any] = {
        name: ""
        for name in template.variables
        if name.endswith("_token") and name not in template.options
    }
    markers: dict[str, dict[str, Any]] = {}
    refusals = {}
    for probe, arguments in PROBES.items():
        try:
            rendering = template.render(**arguments, **blank)
        except TurnwiseError as error:
            refusals[probe] = error.message
            continue
        for marker in markers_in(rendering):
            markers.setdefault(marker["text"], marker)
    return list(markers.values()), refusals


def markers_in(rendering: Rendering) -> list[dict[str, Any]]:
    pieces = rendering.pieces
    starts = list(accumulate((len(piece.text) for piece in pieces), initial=0))
    found = []
    for match in MARKER.finditer(rendering.text):
        first, last = (bisect_right(starts, at) - 1 for at in (match.start(), match.end() - 1))
        origins = [piece.origin for piece in pieces[first : last + 1]]
        fields = list(
            dict.fromkeys(INDEX.sub("[*]", origin.field) for origin in origins if origin.field)
        )
        place = {"line": origins[0].line, "column": origins[0].column, "fields": fields}
        found.append({"text": match.group(), **place})
    return found


def lines_of(facts: dict[str, Any]) -> list[Text]:
    rows: dict[str, list[str]] = {
        "reads": [", ".join(facts["reads"])],
        "options": [
            name if value is None else f"{name} = {value!r}"
            for name, value in facts["options"].items()
        ],
        "not read": [", ".join(facts["unread"])],
        "templates": [", ".join(["default", *facts["named"]]) if facts["named"] else ""],
        "markers": [marker_line(marker) for marker in facts["markers"]],
        "replies": reply_lines(facts["replies"]),
        "not seen": facts["unreached"],
        "refuses": [f"{probe}: {said}" for probe, said in facts["refusals"].items()],
    }
    lines = [Text(printable(facts["name"]), "bold")]
    for heading, entries in rows.items():
        for number, entry in enumerate(filter(None, entries)):
            lines.append(
                Text.assemble((f"{'' if number else heading:<11}", "dim"), printable(entry))
            )
    return lines


def reply_lines(rows: list[dict[str, str]]) -> list[str]:
    """Part, text and origin, one below the other."""
    wide = {
        key: min(48, max((len(row[key]) for row in rows), default=0)) for key in ("part", "text")
    }
    return [
        f"{row['part']:<{wide['part']}}  {row['text']:<{wide['text']}}  {row['origin']}".rstrip()
        for row in rows
    ]


def marker_line(marker: dict[str, Any]) -> str:
    fields = ", ".join(marker["fields"])
    if not marker["line"]:
        return f"{marker['text']:<24} {fields}"
    return f"{marker['text']:<24} {marker['line']}:{marker['column']}" + (
        f" with {fields} in it" if fields else ""
    )
