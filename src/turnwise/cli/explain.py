"""`turnwise explain`: what a template reads, the control tokens it writes, and how replies to it are parsed.

The variables come from the compiled program; generation prompt, stops, markers and refusals are the template's facts
(`analysis/facts.py`); the table of replies is its grammar, which has an origin for each marker. A marker made of plain
words ("### Instruction:") is not listed, nor one that no probe reaches.
"""

from __future__ import annotations

from turnwise.analysis.conversations import STANDARD_VARIABLES
from turnwise.cli import inputs, output
from turnwise.errors import TurnwiseError, printable
from turnwise.messages import JsonObject
from turnwise.registry.published import identify
from turnwise.template import Template

HEADING_WIDTH = 11
MAX_COLUMN_WIDTH = 48
HISTORY = {True: "is only appended to", False: "may be rewritten: train with examples, not encode"}


def explain(
    template: str,
    program: bool = False,
    pick: str | None = None,
    as_json: bool = False,
) -> None:
    """Say what a template reads and writes.

    Example: turnwise explain qwen3

    Options:
        program: Also print the compiled program.
    """
    loaded = inputs.load_template(template, pick)
    explanation = explain_template(loaded)
    if program:
        explanation["program"] = loaded.program.python
    if as_json:
        markers = [
            {
                "text": marker.text,
                **output.select_fields(marker.origin, "line", "column"),
                "fields": list(marker.fields),
            }
            for marker in explanation["markers"]
        ]
        output.write_json({**explanation, "markers": markers})
        return
    output.write_lines(format_lines(explanation))
    if program:
        output.write(printable(loaded.program.python, 10**9) + "\n")


def explain_template(template: Template) -> JsonObject:
    """Return everything that is known about a template, by topic."""
    facts, variables, options = template.facts, template.variables, template.options
    rows: list[dict[str, str]] = []
    unreached = list(facts.notes)
    refusals = dict(facts.refusals)
    try:
        rows = [row._asdict() for row in template.grammar.rows()]
        unreached += template.grammar.unreached
    except TurnwiseError as error:
        refusals["replies"] = error.message
    published = identify(template.text)
    return {
        "name": template.name,
        "published": published.describe() if published else None,
        "reads": [name for name in variables if name in STANDARD_VARIABLES],
        "options": {
            name: options.get(name) for name in variables if name not in STANDARD_VARIABLES
        },
        "unread": sorted(options.keys() - set(variables)),
        "named": sorted(template.renderer.named),
        "generation_prompt": facts.generation_prompt,
        "appends": facts.appends,
        "stops": list(facts.stops),
        "markers": facts.markers,
        "replies": rows,
        "unreached": unreached,
        "refusals": refusals,
    }


def format_lines(explanation: JsonObject) -> list[output.Line]:
    """Return the explanation as lines with a heading before each group."""
    named, options = explanation["named"], explanation["options"]
    groups: dict[str, list[str]] = {
        "published": [explanation["published"] or ""],
        "reads": [", ".join(explanation["reads"])],
        "options": [
            name if value is None else f"{name} = {value!r}" for name, value in options.items()
        ],
        "not read": [", ".join(explanation["unread"])],
        "templates": [", ".join(["default", *named]) if named else ""],
        "history": [HISTORY[explanation["appends"]]],
        "markers": [str(marker) for marker in explanation["markers"]],
        "replies": format_replies(explanation["replies"]),
        "not seen": explanation["unreached"],
        "refuses": [f"{probe}: {text}" for probe, text in explanation["refusals"].items()],
    }
    lines: list[output.Line] = [[(printable(explanation["name"]), "bold")]]
    for heading, entries in groups.items():
        for entry in filter(None, entries):
            lines.append([(f"{heading:<{HEADING_WIDTH}}", "dim"), printable(entry)])
            heading = ""
    return lines


def format_replies(rows: list[dict[str, str]]) -> list[str]:
    """Return part, text and origin of each row in columns."""
    part, text = (
        min(MAX_COLUMN_WIDTH, max((len(row[key]) for row in rows), default=0))
        for key in ("part", "text")
    )
    return [
        f"{row['part']:<{part}}  {row['text']:<{text}}  {row['origin']}".rstrip() for row in rows
    ]
