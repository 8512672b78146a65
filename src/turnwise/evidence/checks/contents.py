"""T2: what a message is made of. Null content, content in parts, reasoning, values of Python in the prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from turnwise.analysis.conversations import MessageDict, Probe, make_message
from turnwise.analysis.prober import REASONING_VALUES
from turnwise.engine.provenance.rendering import Rendering
from turnwise.evidence.checks.catalogue import Check
from turnwise.evidence.checks.findings import Severity, Symptom
from turnwise.evidence.checks.subject import ASKED_AGAIN, FOUND, SAID, THOUGHT, TOOLS, Subject
from turnwise.evidence.checks.symptoms import (
    first_difference,
    report_failure,
    report_loss,
    show_from,
)
from turnwise.messages import REASONING_KEYS
from turnwise.replies.input_format import IN_PARTS

EMPTY_FIX = "Read it with a default: `message.content or ''`, and test it before string methods."
PARTS_FIX = (
    "Write the text of each part: `{%- for part in message.content %}{{ part.text }}{%- endfor %}` where the content "
    "is not a string."
)
REPR_OF_PART = re.compile(r"""['"](?:type|text)['"]\s*:""")  # of a content that was printed whole


def check_null_content(subject: Subject) -> Iterator[Symptom]:
    """Null content is refused, or written as the word "None".

    ## What it does
    Renders an assistant message with `"content": null`, beside a tool call if the template writes calls, and compares
    it with the same message with an empty text, or in the form in which the template writes the call.

    ## Why it matters
    Every OpenAI client sends null beside a tool call. A template that calls a string method on it fails in the second
    round of every agent; one that prints it teaches the model to say "None".

    ## How to fix
    `{%- set content = message.content or "" %}`, and use `content` from there on. turnwise gives the template an empty
    text by itself (`normalise`).
    """
    yield from _compare_empty(subject, {"content": None}, "null content", "error")


def check_absent_content(subject: Subject) -> Iterator[Symptom]:
    """A message without a content key is refused, or written with an undefined value.

    ## What it does
    Renders a tool call whose message has no key `content`, and compares it with one that has an empty text.

    ## Why it matters
    The key is optional beside tool calls, and SDKs that leave out null values leave it out.

    ## How to fix
    `{%- set content = message.content or "" %}`: an undefined value is false, too.
    """
    if subject.writes_calls:
        # Servers add the key before they render, so this is no error.
        yield from _compare_empty(subject, {}, "no content key", "warning")


def _compare_empty(
    subject: Subject, content: dict[str, Any], what: str, beside_a_call: Severity
) -> Iterator[Symptom]:
    """Yield what is wrong with a message that has no content, beside a call and alone."""
    calls: list[tuple[Probe, Probe, str, Severity]] = []
    if subject.writes_calls:
        # The template's own form of no text beside a call is null for some, an empty text for most.
        own = subject.call()
        call = {key: value for key, value in own.items() if key != "content"}
        rounds = [
            subject.chat(subject.user(), message, subject.result(), tools=TOOLS)
            for message in ({**call, **content}, own)
        ]
        calls.append((rounds[0], rounds[1], f"{what} beside a tool call", beside_a_call))
    plain = [
        subject.chat(subject.user(), {"role": "assistant", **form}, subject.user(ASKED_AGAIN))
        for form in (content, {"content": ""})
    ]
    calls.append((plain[0], plain[1], f"{what} of an assistant", "warning"))
    for probe, expected, title, severity in calls:
        found = list(_compare_with(subject, probe, expected, title, EMPTY_FIX))
        if found:
            yield found[0]._replace(severity=severity)
            return


def _compare_with(
    subject: Subject, probe: Probe, expected: Probe, what: str, fix: str
) -> Iterator[Symptom]:
    """Yield a symptom if a conversation fails, or is written in another way than its plain form, which works."""
    wanted = subject.text_of(expected)
    if wanted is None:
        return
    text = subject.text_of(probe)
    if text is None:
        yield from report_failure(subject, probe, what, fix)
    elif text.split() != wanted.split():
        index = first_difference(text, wanted)
        place = subject.places.at(probe, index)
        writes = f"writes: {show_from(text, index)}"
        message = f"{what} is not written as an empty text is"
        yield Symptom(message, fix, place, probe, writes)


def check_reasoning_alone(subject: Subject) -> Iterator[Symptom]:
    """A message with reasoning and no content fails, or loses its reasoning.

    ## What it does
    Renders an assistant message with reasoning whose content is null, then empty; asked only if the template writes the
    reasoning of the same message with a text.

    ## Why it matters
    A reply that was cut while the model was thinking has reasoning only, and so have many replies with tool calls.

    ## How to fix
    Test the content before string methods, and write the reasoning whether or not there is content.
    """
    key = subject.input_format.reasoning
    if key == IN_PARTS:
        return
    key = key if key in REASONING_KEYS else REASONING_KEYS[0]
    usual = subject.chat(subject.user(), subject.reply(**{key: THOUGHT}))
    if not subject.works(usual):
        return
    empty_works = subject.text_of(subject.chat(subject.user(), subject.reply(""))) is not None
    for content in (None, ""):
        message = make_message("assistant", content, **{key: THOUGHT})
        probe = subject.chat(subject.user(), message)
        what = f"reasoning with {'null' if content is None else 'empty'} content"
        if content is None or empty_works:
            found = list(report_failure(subject, probe, what, EMPTY_FIX))
            yield from found
            if found:
                return
        fix = "Write the reasoning whether or not there is content."
        yield from report_loss(subject, probe, message, key, what, fix, severity="warning")


def check_parts(subject: Subject) -> Iterator[Symptom]:
    """Content in parts fails, is dropped, or is written as a Python list.

    ## What it does
    Renders user, system and assistant messages and tool results whose content is `[{"type": "text", "text": ...}]`, and
    compares them with the same texts as strings.

    ## Why it matters
    Half of the clients send parts. Most servers join text parts before they render; a template that is used without
    such a server fails, and one that prints the list puts `[{'type': 'text'` into the prompt.

    ## How to fix
    `{%- if message.content is string %}` write it, else write the text of each part. turnwise joins text parts by
    itself (`normalise`).
    """
    if subject.facts.prober.settings.parts:
        return
    for role, text in (("user", SAID), ("system", SAID), ("assistant", SAID), ("tool", FOUND)):
        message = make_message(role, [{"type": "text", "text": text}])
        probes = [_chat_with(subject, one) for one in (message, make_message(role, text))]
        if probes[0] is None or probes[1] is None or not subject.works(probes[1]):
            continue
        yield from _report_parts(subject, probes[0], probes[1], role)


def _chat_with(subject: Subject, message: MessageDict) -> Probe | None:
    """Return a conversation with a message where one of its role usually stands."""
    role = message["role"]
    if role == "user":
        return subject.chat(message)
    if role == "system":
        return subject.chat(message, subject.user())
    if role == "assistant":
        return subject.chat(subject.user(), message, subject.user(ASKED_AGAIN))
    if not subject.takes_calls:
        return None
    result = {**subject.result(), **message}
    return subject.chat(subject.user(), subject.call(), result, tools=TOOLS)


def _report_parts(subject: Subject, probe: Probe, expected: Probe, role: str) -> Iterator[Symptom]:
    what = f"content of the role {role} in parts" if role != "tool" else "a result in parts"
    outcome = subject.run(probe)
    if not isinstance(outcome, Rendering):
        for symptom in report_failure(subject, probe, what, PARTS_FIX):
            yield symptom._replace(severity="warning")
        return
    wanted = subject.text_of(expected) or ""
    if outcome.text.split() == wanted.split():
        return
    index = first_difference(outcome.text, wanted)
    is_repr = REPR_OF_PART.search(outcome.text[index : index + 40])
    how = "is written as a Python list" if is_repr else "is not written as the same text would be"
    places = [
        subject.places.of_field(probe, "messages", number, "content")
        for number, message in enumerate(probe.messages)
        if isinstance(message.get("content"), list)
    ]
    place = next(filter(None, places), None) or subject.places.at(probe, index)
    if subject.lost(probe):
        how = "is dropped without a word"
        place = subject.places.branches.find_decision(probe, expected) or place
    yield Symptom(
        f"{what} {how}", PARTS_FIX, place, probe, f"writes: {show_from(outcome.text, index)}"
    )


def check_reasoning_beside_call(subject: Subject) -> Iterator[Symptom]:
    """Reasoning beside a tool call is dropped, though it is written beside a text.

    ## What it does
    Renders a call with reasoning and its result, in the round that is not finished, where every model that reasons
    between calls needs it.

    ## Why it matters
    A model that was trained to reason between its calls reads a history without its reasons, and starts again.

    ## How to fix
    Write the reasoning of every assistant message behind the last user message, with calls or without.
    """
    key = subject.input_format.reasoning
    if key == IN_PARTS or not subject.takes_calls:
        return
    usual = subject.chat(subject.user(), subject.reply(**{key: THOUGHT}), tools=TOOLS)
    for options in ({}, *subject.facts.prober.reasoning_options(REASONING_VALUES)):
        chosen = replace(usual, options={**usual.options, **options})
        if not subject.works(chosen):
            continue
        call = {**subject.call(), key: THOUGHT}
        probe = subject.chat(subject.user(), call, subject.result(), tools=TOOLS, options=options)
        fix = "Write the reasoning of messages with calls, too."
        yield from report_loss(subject, probe, call, key, "reasoning beside a tool call", fix)
        return


def check_media(subject: Subject) -> Iterator[Symptom]:
    """An image in a message gets no placeholder, in one of two forms.

    ## What it does
    Renders a user message with a text and an image: `image_url`, as OpenAI's clients send it, and `image`, as
    transformers documents it. Reported if one of them is written and the other is not: a template for text alone has
    no defect.

    ## Why it matters
    The question is answered without the picture, and nobody is told. A template that knows `image` and not `image_url`
    drops the pictures of every OpenAI client.

    ## How to fix
    Write the placeholder for both types.
    """
    dropped: list[tuple[str, Probe, Rendering]] = []
    writes_images = False
    for kind, value in (("image", "cat.png"), ("image_url", {"url": "cat.png"})):
        parts = [{"type": kind, kind: value}, {"type": "text", "text": SAID}]
        probe = subject.chat(make_message("user", parts))
        outcome = subject.run(probe)
        if not isinstance(outcome, Rendering):
            continue
        if all(media.written for media in outcome.media):
            writes_images = True
        else:
            dropped.append((kind, probe, outcome))
    for kind, probe, outcome in dropped if writes_images else ():
        yield Symptom(
            f"a part of the type {kind} is dropped without a word",
            "Write a placeholder for it, or refuse it with raise_exception.",
            subject.places.of_field(probe, "messages", len(probe.messages) - 1, "content"),
            probe,
            f"writes: {show_from(outcome.text, len(outcome.text))}",
        )


CHECKS = (
    Check("T201", "null-content", "error", check_null_content),
    Check("T202", "absent-content", "warning", check_absent_content),
    Check("T203", "reasoning-alone", "error", check_reasoning_alone),
    Check("T204", "content-parts", "error", check_parts),
    Check("T205", "reasoning-beside-call", "warning", check_reasoning_beside_call),
    Check("T206", "media-dropped", "warning", check_media),
)
