"""T3: tools, calls and results, in the forms in which clients send them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from turnwise.analysis.conversations import Probe, make_tool
from turnwise.analysis.probe_chats import ARGUMENTS, TOOL_NAME, TOOLS
from turnwise.engine.provenance.rendering import Rendering
from turnwise.errors import TurnwiseError
from turnwise.evidence.checks.catalogue import Check
from turnwise.evidence.checks.findings import Place, Symptom
from turnwise.evidence.checks.subject import Subject, describe_failure
from turnwise.evidence.checks.symptoms import report_forms, show_from

ARGUMENTS_FIX = "Test it: `arguments if arguments is string else arguments | tojson`."


def check_string_arguments(subject: Subject) -> Iterator[Symptom]:
    """Arguments that are JSON text are written in quotes, or refused.

    ## What it does
    Renders a tool call whose arguments are JSON text, as OpenAI's clients send them, and compares it with the same call
    with a mapping; white space does not count.

    ## Why it matters
    A text that goes through `tojson` once more becomes `"{\\"city\\": \\"Oslo\\"}"`, and the model imitates it from
    then on. A template that walks over the items of a mapping fails.

    ## How to fix
    `{{ arguments if arguments is string else arguments | tojson }}`. turnwise parses the text by itself (`normalise`).
    """
    yield from report_forms(subject, "string-arguments", ARGUMENTS_FIX)


def check_mapping_arguments(subject: Subject) -> Iterator[Symptom]:
    """Arguments that are a mapping are written in another way than JSON text, or refused.

    ## What it does
    Renders a tool call whose arguments are a mapping, as transformers documents it, where the template takes JSON text.

    ## Why it matters
    Servers parse the arguments before they render, because most templates want a mapping; this one fails there, or
    writes Python's form of it.

    ## How to fix
    `{{ arguments if arguments is string else arguments | tojson }}`. turnwise writes the text by itself (`normalise`).
    """
    yield from report_forms(subject, "mapping-arguments", ARGUMENTS_FIX)


def check_several_calls(subject: Subject) -> Iterator[Symptom]:
    """The second of two calls in a message, or its result, is refused or dropped.

    ## What it does
    Renders a message with two calls and their results.

    ## Why it matters
    Models that call several tools at once are served with such histories. A template that writes the first call only,
    or forgets the separator, teaches the model something that no parser reads.

    ## How to fix
    Loop over `message.tool_calls`, and write what separates two calls.
    """
    fix = "Loop over message.tool_calls, and write what separates two calls."
    yield from report_forms(subject, "several-calls", fix)


def check_calls_read_back(subject: Subject) -> Iterator[Symptom]:
    """Calls that the template writes cannot be parsed.

    ## What it does
    Parses the turn that the template writes for one call and for two, with the grammar that is derived from it, and
    compares names and arguments.

    ## Why it matters
    What the model reads in its history is what it will write. If a call cannot be told from the text around it there,
    servers will not find it in replies either.

    ## How to fix
    Delimit calls by markers, and write arguments as JSON.
    """
    if not subject.writes_calls or subject.input_format.shape.single:
        return
    for given in (ARGUMENTS[:1], ARGUMENTS):
        probe = subject.chat(subject.user(), subject.call(*given), tools=TOOLS)
        yield from _find_open_brace(subject, probe)
        before = subject.chat(subject.user(), tools=TOOLS, prompt=True)
        text, prompt = subject.text_of(probe), subject.text_of(before)
        if text is None or prompt is None or not text.startswith(prompt):
            continue
        try:
            parsed = subject.template.parse(text[len(prompt) :], prompt)
        except TurnwiseError:
            continue
        calls = [_read_call(call) for call in parsed.get("tool_calls") or ()]
        if calls != [(TOOL_NAME, arguments) for arguments in given]:
            count = "two calls" if len(given) > 1 else "a call"
            yield Symptom(
                f"{count} cannot be parsed from the turn that the template writes",
                "Delimit each call by markers, and write its arguments as JSON.",
                subject.places.of_field(probe, "messages", len(probe.messages) - 1, "tool_calls"),
                probe,
                f"writes: {show_from(text, len(prompt) + 30)}",
            )
            return


def _find_open_brace(subject: Subject, probe: Probe) -> Iterator[Symptom]:
    """Yield a symptom if the template opens a brace of JSON and does not close it, or the other way round."""
    outcome = subject.run(probe)
    last = len(probe.messages) - 1
    depth = end = start = 0
    for text, origin in outcome.pieces if isinstance(outcome, Rendering) else ():
        start += len(text)
        if origin.message == last:
            depth += text.count("{") - text.count("}")
            end = start if origin.path is not None else end
    if depth:
        yield Symptom(
            f"a call has {abs(depth)} {'opening' if depth > 0 else 'closing'} brace too many",
            "Write as many closing braces as opening ones.",
            subject.places.at(probe, end),
            probe,
            f"writes: {show_from(subject.text_of(probe) or '', end)}",
        )


def _read_call(call: Any) -> tuple[str, Any]:
    function = call.get("function", {})
    try:
        return function.get("name"), json.loads(function.get("arguments") or "null")
    except ValueError:
        return function.get("name"), None


def check_tools_not_resent(subject: Subject) -> Iterator[Symptom]:
    """A conversation with calls fails where the tools are not given again.

    ## What it does
    Renders a conversation with a call and its result without `tools`, and compares what is written of the messages.

    ## Why it matters
    Summaries, titles and evaluations are made of a finished conversation, and nobody sends the tools with it.

    ## How to fix
    Do not make the writing of calls depend on `tools`.
    """
    fix = "Do not make the writing of calls and results depend on tools."
    yield from report_forms(subject, "tools-not-resent", fix)


def check_text_beside_call(subject: Subject) -> Iterator[Symptom]:
    """The text beside a tool call is dropped.

    ## What it does
    Renders an assistant message with a text and a tool call.

    ## Why it matters
    "Let me look that up" is part of the conversation; trained without it, the model unlearns to say it, and a reader
    of the prompt does not see what was said.

    ## How to fix
    Write the content of a message before its calls.
    """
    fix = "Write the content of a message before its calls."
    yield from report_forms(subject, "text-beside-call", fix)


def check_tools_written(subject: Subject) -> Iterator[Symptom]:
    """Tools, or calls of them, are dropped.

    ## What it does
    Renders a user message with tools, a call, and a result. A template that writes neither tools nor calls is one for
    text alone, which is no defect: `template.capabilities` says so.

    ## Why it matters
    A model that is not shown the tools cannot call them; one that does not see its calls and their results calls
    again. The request succeeds all the same.

    ## How to fix
    Write the tools, or refuse them with `raise_exception`.
    """
    fix = "Write the tools, the calls and their results, or refuse them with raise_exception."
    yield from report_forms(subject, "tools-dropped", fix)


UNIONS: dict[str, Any] = {
    "a type that is a list": {"harbour": {"type": ["string", "null"]}},
    "anyOf": {"harbour": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
    "no type": {"harbour": {"description": "The harbour"}},
    "an enum": {"unit": {"type": "string", "enum": ["m", "ft"]}},
    "a nested object": {"place": {"type": "object", "properties": {"harbour": {"type": "string"}}}},
    "a list of objects": {
        "places": {
            "type": "array",
            "items": {"type": "object", "properties": {"n": {"type": "integer"}}},
        }
    },
    "$ref": {"harbour": {"$ref": "#/$defs/Harbour"}},
}


def check_schemas(subject: Subject) -> Iterator[Symptom]:
    """A tool whose schema has a union, no type or no parameters makes the template fail.

    ## What it does
    Renders tools with schemas that libraries generate: `"type": ["string", "null"]`, `anyOf`, `$ref`, nested objects,
    no description, no parameters.

    ## Why it matters
    Templates that write schemas in a language of their own walk over them, and fail or never end on what their author
    did not think of. Pydantic writes `anyOf` for every optional field.

    ## How to fix
    Write `tool | tojson`, or test each key before it is used.
    """
    if "tools" in subject.lost(subject.chat(subject.user(), tools=TOOLS)):
        return
    if subject.text_of(subject.chat(subject.user(), tools=TOOLS)) is None:
        return
    tools = {what: make_tool(TOOL_NAME, **properties) for what, properties in UNIONS.items()}
    bare = make_tool(TOOL_NAME)
    del bare["function"]["parameters"]
    tools["no parameters"] = bare
    undescribed = make_tool(TOOL_NAME, harbour={"type": "string"})
    del undescribed["function"]["description"]
    tools["no description"] = undescribed
    seen: set[Place | None] = set()
    for what, tool in tools.items():
        probe = subject.chat(subject.user(), tools=[tool])
        outcome = subject.run(probe)
        if isinstance(outcome, Rendering):
            continue
        place = subject.places.of_error(outcome)
        if place not in seen:
            seen.add(place)
            yield Symptom(
                f"a tool whose schema has {what}: the template {describe_failure(outcome)}",
                "Write tools with tojson, or test each key of a schema before it is used.",
                place,
                probe,
            )


def check_python_values(subject: Subject) -> Iterator[Symptom]:
    """Tools or arguments are written as Python values: `True`, `None`, single quotes.

    ## What it does
    Renders a tool with a default of `true` and a call with a list, a truth value and null, and looks for Python's form
    of them in what the template writes. Formats in which a call is Python code are not meant.

    ## Why it matters
    The model reads `{'type': 'string'}` where it was trained on JSON, and writes it back; no JSON parser takes it.

    ## How to fix
    Put `| tojson` behind every value that is not a text.
    """
    fix = "Put `| tojson` behind every value that is not a text."
    yield from report_forms(subject, "python-values", fix)


def check_result_names(subject: Subject) -> Iterator[Symptom]:
    """A tool result without a name is refused.

    ## What it does
    Renders a result that has `tool_call_id` and no `name`, as OpenAI's clients send it.

    ## Why it matters
    The name is not part of OpenAI's format. A template that needs it fails in the second round of every agent.

    ## How to fix
    Look for the call with the same id in the messages before, or write the result without a name.
    """
    fix = "Look for the call with the same id, or write the result without a name."
    yield from report_forms(subject, "result-without-name", fix)


def check_call_ids(subject: Subject) -> Iterator[Symptom]:
    """Calls whose ids are OpenAI's are refused.

    ## What it does
    Renders a call and its result with an id as OpenAI makes them, longer than nine characters, and without an id.

    ## Why it matters
    Templates that want exactly nine letters and digits refuse every conversation that began with another model.

    ## How to fix
    Write the id as it is, or cut it. turnwise gives calls ids that fit by itself (`normalise`).
    """
    fix = "Write the id as it is, or cut it to the length that the model knows."
    yield from report_forms(subject, "call-ids", fix)


CHECKS = (
    Check("T301", "string-arguments", "error", check_string_arguments),
    Check("T302", "mapping-arguments", "error", check_mapping_arguments),
    Check("T303", "several-calls", "error", check_several_calls),
    Check("T304", "calls-not-parsed", "error", check_calls_read_back, sent_by="agents"),
    Check("T305", "tools-not-resent", "error", check_tools_not_resent),
    Check("T306", "text-beside-call", "error", check_text_beside_call),
    Check("T307", "tools-dropped", "error", check_tools_written),
    Check("T308", "tool-schemas", "error", check_schemas, sent_by="tools"),
    Check("T309", "python-values", "error", check_python_values),
    Check("T310", "result-without-name", "error", check_result_names),
    Check("T311", "call-ids", "error", check_call_ids),
)
