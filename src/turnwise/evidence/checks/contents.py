"""T2: what a message is made of. Null content, content in parts, reasoning, values of Python in the prompt."""

from __future__ import annotations

from collections.abc import Iterator

from turnwise.evidence.checks.catalogue import Check
from turnwise.evidence.checks.findings import Symptom
from turnwise.evidence.checks.subject import Subject
from turnwise.evidence.checks.symptoms import report_first_form, report_forms

EMPTY_FIX = "Read it with a default: `message.content or ''`, and test it before string methods."
PARTS_FIX = (
    "Write the text of each part: `{%- for part in message.content %}{{ part.text }}{%- endfor %}` where the content "
    "is not a string."
)


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
    yield from report_first_form(subject, "null-content", EMPTY_FIX)


def check_absent_content(subject: Subject) -> Iterator[Symptom]:
    """A message without a content key is refused, or written with an undefined value.

    ## What it does
    Renders a tool call whose message has no key `content`, and compares it with one that has an empty text.

    ## Why it matters
    The key is optional beside tool calls, and SDKs that leave out null values leave it out.

    ## How to fix
    `{%- set content = message.content or "" %}`: an undefined value is false, too.
    """
    yield from report_first_form(subject, "absent-content", EMPTY_FIX)


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
    fix = "Write the reasoning whether or not there is content, and test content before string methods."
    yield from report_first_form(subject, "reasoning-alone", fix)


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
    yield from report_first_form(subject, "content-parts", PARTS_FIX)


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
    fix = "Write the reasoning of messages with calls, too."
    yield from report_forms(subject, "reasoning-beside-call", fix)


def check_media(subject: Subject) -> Iterator[Symptom]:
    """An image in a message gets no placeholder, in one of two forms.

    ## What it does
    Renders a user message with a text and an image: `image_url`, as OpenAI's clients send it, and `image`, as
    transformers documents it. Reported if one of them is written and the other is dropped, printed or refused: a
    template for text alone has no defect.

    ## Why it matters
    The question is answered without the picture, and nobody is told. A template that knows `image` and not `image_url`
    drops the pictures of every OpenAI client.

    ## How to fix
    Write the placeholder for both types.
    """
    fix = "Write a placeholder for it, or refuse it with raise_exception."
    yield from report_forms(subject, "media-dropped", fix)


CHECKS = (
    Check("T201", "null-content", "error", check_null_content),
    Check("T202", "absent-content", "error", check_absent_content),
    Check("T203", "reasoning-alone", "error", check_reasoning_alone),
    Check("T204", "content-parts", "error", check_parts),
    Check("T205", "reasoning-beside-call", "error", check_reasoning_beside_call),
    Check("T206", "media-dropped", "error", check_media),
)
