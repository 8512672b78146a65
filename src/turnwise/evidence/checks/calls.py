"""T3: tools, calls and results, in the forms in which clients send them."""

from __future__ import annotations

import json
from typing import Any

from turnwise.analysis.conversations import name_values
from turnwise.analysis.probe_chats import ARGUMENTS, ASKED_AGAIN, TOOL_NAME, TOOLS
from turnwise.engine.provenance.rendering import Rendering
from turnwise.errors import TurnwiseError
from turnwise.evidence.checks.catalogue import Check
from turnwise.evidence.checks.findings import Symptom, Symptoms
from turnwise.evidence.checks.subject import Subject, describe_failure
from turnwise.evidence.checks.symptoms import report_failure, show_written


def check_calls_read_back(subject: Subject) -> Symptoms:
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
    several = [ARGUMENTS] if subject.forms.is_written("parallel calls") else []  # T303 otherwise
    for given in (ARGUMENTS[:1], *several):
        probe = subject.chat(subject.user(), subject.call(*given), tools=TOOLS)
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
                show_written(text, len(prompt) + 30),
            )
            return


def _read_call(call: Any) -> tuple[str, Any]:
    function = call.get("function", {})
    try:
        return function.get("name"), json.loads(function.get("arguments") or "null")
    except ValueError:
        return function.get("name"), None


def check_schemas(subject: Subject) -> Symptoms:
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
    (functions,) = name_values("odd schemas")
    for what, changes in functions.items():
        function = {**TOOLS[0]["function"], **changes}
        kept = {name: value for name, value in function.items() if value is not None}
        probe = subject.chat(subject.user(), tools=[{"type": "function", "function": kept}])
        outcome = subject.run(probe)
        if isinstance(outcome, Rendering):
            continue
        yield Symptom(
            f"a tool whose schema has {what}: the template {describe_failure(outcome)}",
            "Write tools with tojson, or test each key of a schema before it is used.",
            subject.places.of_error(outcome),
            probe,
        )


def check_null_calls(subject: Subject) -> Symptoms:
    """A reply whose tool_calls are null makes the template fail.

    ## What it does
    Renders a reply with `"tool_calls": null`, as clients send it that dump the answer of a server with all its keys.

    ## Why it matters
    The key is there, so a test such as `"tool_calls" in message` or `message.tool_calls is defined` is true, and the
    loop over null fails: in the second round of every chat that has nothing to do with tools.

    ## How to fix
    Test the value: `{%- if message.tool_calls %}`. turnwise drops such keys by itself (`normalise`).
    """
    reply = subject.reply(tool_calls=None)
    chat = (subject.user(), subject.reply(), subject.user(ASKED_AGAIN))
    if subject.writes_calls and subject.text_of(subject.chat(*chat)) is not None:
        probe = subject.chat(chat[0], reply, chat[2])
        fix = "Test the value: `{% if message.tool_calls %}`."
        yield from report_failure(subject, probe, "a reply with null tool_calls", fix, [reply])


CHECKS = (
    Check("T304", "calls-not-parsed", "error", check_calls_read_back, sent_by="agents"),
    Check("T312", "null-calls", "error", check_null_calls, sent_by="agents"),
    Check("T308", "tool-schemas", "error", check_schemas, sent_by="tools"),
)
