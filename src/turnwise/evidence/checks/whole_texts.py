"""T70: provenance of texts. Each is written once, whole, unchanged, and escaped where it is a string of JSON.

Conversations are rendered whose texts have quotes, several lines, capitals and white space or punctuation at their
ends, and are longer than a template has a reason to cut. The pieces of a rendering show what became of each field: a
*run* is text that was written from it without a break.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from turnwise.analysis.conversations import MessageDict, Probe, make_message, make_tool
from turnwise.analysis.losses import list_scalars
from turnwise.analysis.probe_chats import DOCUMENTS, TOOL_NAME
from turnwise.analysis.profiles import Severity
from turnwise.analysis.template_constants import TemplateConstants
from turnwise.engine.provenance.rendering import Origin, Rendering
from turnwise.errors import short_repr
from turnwise.evidence.checks.catalogue import Check
from turnwise.evidence.checks.findings import Place, Symptom, Symptoms
from turnwise.evidence.checks.subject import Subject
from turnwise.evidence.checks.symptoms import report_failure, show_written
from turnwise.messages import REASONING_KEYS, JsonMapping, JsonObject, Path

LONG = "The table of the harbour has one row for each hour of the day. " * 9
QUOTED = 'The "high" water\nof a Harbour'
OPENING = re.compile(r"<([a-z][\w:]*)>\s*$")
JSON_OBJECT = re.compile(r'\{\s*"\w+"\s*:')
JSON_LIST = re.compile(r"\[\s*$")
IN_JSON = re.compile(r'[:,\[{]\s*"$')  # the text before a string of JSON
CLOSING, THINKING = "</think>", "the reasoning inside of the content of"
CHANGES: dict[str, tuple[str, str, Severity]] = {
    "escaped": ("is written as JSON, in quotes", "Write it as it is.", "note"),
    "repeated": ("is written more than once", "Write it once.", "error"),
    "cut": ("is cut", "Write all of it.", "error"),
    "changed": ("is changed", "Write it as it is.", "error"),
    "open": ("is not closed", "Write the closing tag after it.", "error"),
    "lost": ("is not written in some conversations", "Write it in every conversation.", "error"),
}
TRIMMED = {
    "assistant": "a reply that is sent back is not what the model wrote, so its prefix is computed again",
    "tool": "a table or a file that a tool returns loses the indentation or the newline there",
}
"""What follows if white space at the ends of a text is removed, by role."""
MIXED = "that of other texts is kept"
MEDIA = ("image", "image_url", "video")
TEXT_FIELDS = ("content", "text", *REASONING_KEYS)
TOOL_FIELDS: tuple[Path, ...] = (
    ("function", "name"),
    ("function", "description"),
    ("function", "parameters", "properties", "harbour", "description"),
)


class Run(NamedTuple):
    """Text that was written from one field without a break."""

    start: int
    text: str


def make_text(word: str, edge: str = "  ") -> str:
    """Return a text that shows what is done to it; `edge` is at both ends."""
    return f"{edge}{word}: \"Low\" & 'high'?\n\n\tA  <b>:\n{LONG}{word}.{edge}"


def list_chats(subject: Subject) -> Iterator[Probe]:
    """Yield conversations without tools and with them."""
    rounds = [
        message
        for number, edge in (("one", "  "), ("two", "."))
        for message in (
            subject.user(make_text(f"Question {number}", edge)),
            subject.reply(make_text(f"Answer {number}", edge)),
        )
    ]
    last = subject.user(make_text("Question three"))
    system = [subject.system(make_text("Rules"))] if subject.forms.is_written("system") else []
    yield subject.chat(*rounds, last)
    yield subject.chat(subject.user(LONG * 9), subject.reply(LONG * 9), last)
    if system:
        yield subject.chat(*system, *rounds, last)
    yield from _list_other_contents(subject)
    if subject.forms.is_written("documents"):
        yield replace(subject.chat(rounds[0]), documents=DOCUMENTS)
    tools = None
    if subject.tools is not None:
        tools = [_make_tool(TOOL_NAME), _make_tool("depth")]
        yield subject.chat(*rounds[:3], tools=tools)
    if not subject.takes_calls:
        if subject.forms.is_written("tool result"):
            yield subject.chat(rounds[0], subject.result(make_text("Found")), *rounds[1:])
    else:
        said = make_text("Aside") if subject.forms.is_written("text beside a call") else None
        given = [{"harbour": f'{LONG}\nl\'"Île"'}, {"harbour": "Calais"}]
        count = 2 if subject.forms.is_written("parallel calls") else 1
        call = subject.call(*given[:count], content=said)
        results = [subject.result(make_text(f"Found {n}"), n) for n in range(count)]
        yield subject.chat(*system, rounds[0], call, *results, *rounds[1:], tools=tools)
        thought, options = _make_reasoning(subject)
        running = {**subject.call(*given[:count]), **thought}
        chat = (*system, *rounds[:2], last, running, *results)
        yield subject.chat(*chat, tools=tools, options=options)


def _make_reasoning(subject: Subject) -> tuple[dict[str, str], JsonMapping]:
    """Return the reasoning of a call as the template reads it, and the options under which it is written."""
    key = subject.input_format.reasoning
    if key not in REASONING_KEYS or not subject.forms.is_written("reasoning beside a call"):
        return {}, {}
    return {key: make_text("Thought", ".")}, subject.forms.reasoning_options


def _make_tool(name: str) -> JsonObject:
    tool = make_tool(name, harbour={"type": "string", "description": QUOTED})
    tool["function"]["description"] = QUOTED
    return tool


def _list_other_contents(subject: Subject) -> Iterator[Probe]:
    """Yield a conversation with contents in the form that is not the usual one: two parts, or a text."""
    text = make_text("Question four", ".")
    is_text = isinstance(subject.user()["content"], str)
    form = "user content as two parts" if is_text else "user content as text"
    content: Any = text
    if is_text:
        content = [{"type": "text", "text": one} for one in (text, make_text("More", "."))]
    if subject.forms.is_written(form):
        other = make_message("user", content)
        yield subject.chat(other, subject.reply(), subject.user(text))
    for medium in MEDIA:
        row = subject.forms.find(medium)
        if row is not None and row.verdict == "written":
            yield row.probe


def list_renderings(subject: Subject) -> list[tuple[Probe, Rendering]]:
    """Return the conversations that the template accepts, with their renderings; several checks read them."""
    if not subject.renderings:
        outcomes = [(probe, subject.run(probe)) for probe in list_chats(subject)]
        subject.renderings += [(one, got) for one, got in outcomes if isinstance(got, Rendering)]
    return subject.renderings


def list_runs(rendering: Rendering, path: Path) -> list[Run]:
    """Return the texts that were written from a field."""
    spans = rendering.spans(partial(is_of, path=path))
    return [Run(start, rendering.text[start:end]) for start, end in spans]


def is_of(origin: Origin, path: Path) -> bool:
    """Whether a piece is text of a field, or computed from it."""
    if origin.path is not None:
        return origin.path[: len(path)] == path and not origin.key
    return origin.kind == "computed" and any(one[: len(path)] == path for one in origin.sources)


def list_text_fields(message: MessageDict) -> Iterator[tuple[Path, str]]:
    """Yield the paths in a message of texts that a template writes whole: content, its parts, reasoning, arguments."""
    for path, value in list_scalars(message, ()):
        if value and (path[-1] in TEXT_FIELDS or "arguments" in path[:-1]):
            yield path, value


class TextChange(NamedTuple):
    """What became of a text that is not written as it is."""

    kind: str
    what: str
    probe: Probe
    message: int
    run: Run | None


def _list_changes(probe: Probe, rendering: Rendering) -> Iterator[TextChange]:
    for index, message in enumerate(probe.messages):
        for path, value in list_text_fields(message):
            runs = list_runs(rendering, ("messages", index, *path))
            kind, run = judge_runs(rendering, runs, value)
            field = "an argument" if "arguments" in path else "the text"
            field = "the reasoning" if path[0] in REASONING_KEYS else field
            if kind:
                what = f"{field} of a message of the role {message['role']}"
                yield TextChange(kind, what, probe, index, run)


def check_whole_texts(subject: Subject) -> Symptoms:
    """A text is lost in some conversations, cut, changed or written twice.

    ## What it does
    Renders conversations with and without tools whose texts have white space at their ends, quotes, capitals and
    several lines, and compares what was written from each content, argument and reasoning with it. A text that is
    escaped for JSON is whole; white space at its ends is the matter of T705. A reply whose content holds its
    reasoning (`<think>...</think>`) must keep what follows it; reasoning under a key that the template reads must be
    written in the last reply, and beside the calls of the round that is going on.

    ## Why it matters
    The model reads something else than the user wrote: half of a long text, another spelling, the system text twice.

    ## How to fix
    Write `message.content` as it is, once.
    """
    changes = [one for chat in list_renderings(subject) for one in _list_changes(*chat)]
    yield from _check_reasoning(subject, changes)
    kinds: dict[str, dict[str, TextChange]] = {}
    for change in changes:
        # what is lost of other messages is the matter of the table of forms
        message = change.probe.messages[change.message]
        is_form = message["role"] not in ("user", "assistant")
        is_form = is_form or ("tool_calls" in message and "the text" in change.what)
        if change.kind in CHANGES and (change.kind != "lost" or not is_form):
            kinds.setdefault(change.kind, {}).setdefault(change.what, change)
    for kind, found in kinds.items():
        first = next(iter(found.values()))
        what, fix, severity = CHANGES[kind]
        names = [name.removeprefix("the text of a message of the role ") for name in found]
        smallest = replace(first.probe, messages=first.probe.messages[: first.message + 1])
        probe = first.probe if kind == "lost" else smallest
        written = subject.text_of(first.probe) or ""
        output = show_written(written, first.run.start) if first.run else ""
        yield Symptom(
            f"{first.what}{''.join(f', {name}' for name in names[1:])} {what}",
            fix,
            _place_change(subject, first, written),
            probe,
            output,
            _grade(first, severity),
        )


def check_trimmed_ends(subject: Subject) -> Symptoms:
    """White space at an end of some texts is removed.

    ## What it does
    Renders texts that begin and end with white space, and compares what was written of them. A template without tools
    that trims all texts is not reported: that is its format.

    ## Why it matters
    A reply that a client sends back is then not what the model wrote, so a server computes its prefix again; a file or
    a table that a tool returns loses the indentation of its first line, or its last newline.

    ## How to fix
    Write `message.content` as it is, without `trim` or `strip`.
    """
    found: dict[str, TextChange] = {}
    is_kept = False  # some text keeps the white space at its ends
    for probe, rendering in list_renderings(subject):
        trimmed = [one for one in _list_changes(probe, rendering) if one.kind == "trimmed"]
        for change in trimmed:
            if change.what.startswith("the text"):
                found.setdefault(probe.messages[change.message]["role"], change)
        others = {*range(len(probe.messages))}.difference(one.message for one in trimmed)
        is_kept |= any(_has_spaces_around(probe.messages[index]) for index in others)
    has_tools = subject.forms.is_written("tools")
    for role, change in found.items():
        if not is_kept and not (has_tools and role in TRIMMED):
            continue  # all texts are trimmed: this is the format
        assert change.run is not None
        text, run = subject.text_of(change.probe) or "", change.run
        is_begun, is_ended = run.text[0].isspace(), run.text[-1].isspace()
        end = "end" if is_begun else "beginning" if is_ended else "beginning and end"
        yield Symptom(
            f"{change.what} is written without the white space at its {end}: {TRIMMED.get(role, MIXED)}",
            "Write it as it is, without trim or strip.",
            subject.places.at(change.probe, run.start, caller=True),
            replace(change.probe, messages=change.probe.messages[: change.message + 1]),
            show_written(text, run.start + (len(run.text) if is_begun else 0)),
        )


def _has_spaces_around(message: JsonObject) -> bool:
    content = message.get("content")
    if not isinstance(content, str) or message["role"] == "tool":
        return False  # results have a form of their own
    return content != content.strip()


def _grade(change: TextChange, severity: Severity) -> Severity:
    """Return the severity of a change: what templates do with reasoning is often meant."""
    if change.kind == "lost" and change.what.startswith("the reasoning"):
        return "warning"
    return "note" if THINKING in change.what and change.kind != "lost" else severity


def _place_change(subject: Subject, change: TextChange, written: str) -> Place | None:
    probe, places = change.probe, subject.places
    if change.run is None:
        given = [key for key in REASONING_KEYS if key in probe.messages[change.message]]
        field = given[0] if given and "reasoning" in change.what else "content"
        return places.of_decision(probe, "messages", change.message, field)
    start = change.run.start
    before = places.at(probe, written.find(change.run.text))
    is_numbered = before is not None and "[0]" in before.source_line
    if change.kind == "repeated" and is_numbered and before != places.at(probe, start):
        return before  # read by its number, and once more in the loop
    # arguments are written by loops in macros
    return places.at(probe, start, "argument" not in change.what)


def _check_reasoning(subject: Subject, changes: list[TextChange]) -> Symptoms:
    """Add what becomes of reasoning in the last reply, and of an answer after reasoning inside of the content."""
    texts = subject.renderer.texts
    read = {
        key for text in texts for key in TemplateConstants.read(text).children.get("messages", ())
    }
    thought, answer = make_text("Thought", "."), make_text("Answer", ".")
    for key in REASONING_KEYS:
        if key in read and isinstance(subject.user()["content"], str):
            options = subject.forms.reasoning_options
            probe = subject.chat(
                subject.user(), subject.reply(answer, **{key: thought}), options=options
            )
            outcome = subject.run(probe)
            if isinstance(outcome, Rendering):
                changes += _list_changes(probe, outcome)
                before, _, after = outcome.text.partition(thought)
                opened = OPENING.search(before)
                if opened is not None and f"</{opened[1]}>" not in after:
                    last = len(probe.messages) - 1
                    run = Run(len(before), "")
                    changes.append(TextChange("open", "reasoning", probe, last, run))
            else:
                yield from report_failure(subject, probe, "a reply with reasoning", "Test the key.")
    if any(CLOSING in text for text in texts) and isinstance(subject.user()["content"], str):
        inline = subject.reply(f"<think>\n{thought}\n{CLOSING}\n\n{answer}")
        probe = subject.chat(subject.user(), inline)
        outcome = subject.run(probe)
        last = len(probe.messages) - 1
        if isinstance(outcome, Rendering):
            written = "".join(run.text for run in list_runs(outcome, ("messages", last, "content")))
            what = f"the answer after {THINKING} an assistant"
            if answer not in written:
                start = outcome.text.find(written[:20])
                changes.append(TextChange("lost", what, probe, last, Run(max(start, 0), "")))
            elif outcome.text[outcome.spans(message=last)[0][0] :].count(CLOSING) > 1:
                start = outcome.text.rindex(CLOSING)
                what = f"{CLOSING} of {THINKING} an assistant"
                changes.append(TextChange("repeated", what, probe, last, Run(start, "")))


def judge_runs(rendering: Rendering, runs: Sequence[Run], value: str) -> tuple[str, Run | None]:
    """Return what became of a text, and where; an empty word if it is written once, whole and unchanged."""
    if not runs:
        return "lost", None
    forms = _spell(value)
    escaped = forms - {value}
    known = forms.union(*map(_spell, (value.strip(), value.lstrip(), value.rstrip())))
    whole = [run for run in runs if run.text in known]
    if len(whole) > 1:
        return "repeated", whole[1]
    if not whole:
        kind = _judge_joined("".join(run.text for run in runs), known)
        return kind, runs[0] if kind else None
    run = whole[0]
    if run.text in escaped:
        before = rendering.text[max(0, run.start - 8) : run.start]
        is_quoted = before.endswith('"') and not IN_JSON.search(before)
        return ("escaped", run) if is_quoted else ("", None)
    return ("trimmed", run) if run.text not in forms else ("", None)


def _spell(text: str) -> set[str]:
    """Return a text as it is, and as a string of JSON."""
    return {text, *(json.dumps(text, ensure_ascii=one)[1:-1] for one in (True, False))}


def _judge_joined(joined: str, known: set[str]) -> str:
    """Return what became of a text that was written with breaks."""
    if joined in known:
        return ""
    if any(form and joined == form * (len(joined) // len(form)) for form in known):
        return "repeated"
    return "cut" if any(joined.strip() in form for form in known) else "changed"


def check_json(subject: Subject) -> Symptoms:
    """What the template begins as JSON is none.

    ## What it does
    Renders tools, documents, calls and results whose texts have quotes and several lines. Wherever the template itself
    begins a JSON object (`{"name": `) around them, it must be one.

    ## Why it matters
    `"description": "The "high" water"` is no JSON, nor is an object without its last brace. The model learns to write
    it so, and no parser reads that.

    ## How to fix
    Write values with `tojson`, which adds the quotes: `{{ tool.description | tojson }}`.
    """
    for probe, rendering in list_renderings(subject):
        end = 0
        for text, origin in rendering.pieces:
            start, end = end, end + len(text)
            for begun in JSON_OBJECT.finditer(text) if origin.kind == "template" else ():
                first = start + begun.start()
                listed = JSON_LIST.search(rendering.text, 0, first)
                first = listed.start() if listed else first
                try:
                    json.JSONDecoder().raw_decode(rendering.text, first)
                except json.JSONDecodeError as error:
                    if error.pos <= end:
                        continue  # an example, `{"name": <name>`, ends in the same text
                    yield Symptom(
                        f"what begins with {short_repr(begun[0])} is not JSON: {error.msg}",
                        "Write values with tojson, which adds the quotes, and close what is opened.",
                        subject.places.at(probe, error.pos),
                        probe,
                        show_written(rendering.text, error.pos),
                        None if subject.profile.name else "warning",
                    )


def check_equal_items(subject: Subject) -> Symptoms:
    """A tool, a call or a result is written with less than another.

    ## What it does
    Renders two tools that differ in their names alone, calls with a text beside them and without, and their results, in
    a finished round and in the one that is going on, and compares which fields are written of each. Of a tool, its name
    and the descriptions must be written.

    ## Why it matters
    A model that does not see the second tool cannot call it; one that reads the id of the first call twice learns that.

    ## How to fix
    Loop over all of them, and write each from its own fields.
    """
    items: dict[str, list[tuple[Probe, Path, set[Path]]]] = {}
    for probe, rendering in list_renderings(subject):
        paths = {
            path
            for _, origin in rendering.pieces
            for path in ((origin.path,) if origin.path else origin.sources)
        }
        for owner, item in _list_items(probe):
            fields = {path[len(item) :] for path in paths if path[: len(item)] == item}
            items.setdefault(owner, []).append((probe, item, fields))
    for owner, found in items.items():
        needed = set().union(*(fields for _, _, fields in found))
        needed |= set(TOOL_FIELDS if owner == "tool" and needed else ())
        for probe, item, fields in found:
            if needed - fields:
                name = min(needed - fields, key=str)
                what = f"{'.'.join(map(str, name))} of a {owner} is not written"
                if not fields and item[0] == "messages":
                    what = f"a {owner} is not written in some conversations"
                yield Symptom(
                    what,
                    "Loop over all of them, and write each from its own fields.",
                    _place_field(
                        subject, probe, [one for other, one, _ in found if other is probe], name
                    ),
                    probe,
                )
                break


def _place_field(subject: Subject, probe: Probe, items: Sequence[Path], name: Path) -> Place | None:
    """Return where a field of one item is written, else where the items are, or what decides that they are not."""
    find = partial(subject.places.of_field, probe)
    for one in items:
        place = find(*one, *name) or find(*one, "content", caller=True) or find(*one)
        if place is not None:
            return place
    return subject.places.of_decision(probe, *items[0]) if items[0][0] == "messages" else None


def _list_items(probe: Probe) -> Iterator[tuple[str, Path]]:
    """Yield what a conversation may have several of, and the path of each."""
    for index in range(len(probe.tools or ())):
        yield "tool", ("tools", index)
    for index, message in enumerate(probe.messages):
        for number in range(len(message.get("tool_calls", ()))):
            yield "call", ("messages", index, "tool_calls", number)
        if message["role"] == "tool":
            yield "result", ("messages", index)


CHECKS = (
    Check("T701", "text-not-whole", "error", check_whole_texts),
    Check("T702", "unescaped-json", "error", check_json),
    Check("T704", "unequal-items", "error", check_equal_items, sent_by="tools"),
    Check("T705", "trimmed-ends", "note", check_trimmed_ends),
)
