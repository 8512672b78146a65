"""T1: who speaks, and where. Roles that are refused or dropped, and system messages in places that agents put them."""

from __future__ import annotations

from collections.abc import Iterator

from turnwise.evidence.checks.catalogue import Check
from turnwise.evidence.checks.findings import Symptom
from turnwise.evidence.checks.subject import Subject
from turnwise.evidence.checks.symptoms import report_failure, report_first_form, report_forms

WRITE_LATE = "Write a system message where it stands, with the same markers as the first, instead of raising an error."


def check_user_message(subject: Subject) -> Iterator[Symptom]:
    """A user message alone is refused.

    ## What it does
    Renders one user message with a generation prompt, as text and as a part, with and without a system message
    and tools.

    ## Why it matters
    A template that refuses the simplest conversation is of no use to anybody; mostly a variable has no value or a
    filter is not known.

    ## How to fix
    Follow the error. Read variables with a default: `{{ date_string | default("") }}`.
    """
    if subject.facts.is_accepting:
        return
    fix = "Follow the error; read variables that may be missing with a default."
    yield from report_failure(
        subject, subject.chat(subject.user(), prompt=True), "a user message", fix
    )


def check_late_system(subject: Subject) -> Iterator[Symptom]:
    """A system message behind other messages is refused or dropped.

    ## What it does
    Renders a conversation whose system message comes after a user and an assistant. Asked only if a system message at
    the beginning is written.

    ## Why it matters
    Agents send system text in the middle of a conversation: reminders, changed rules, summaries. "System message must
    be at the beginning" ends such a session; a template that drops the text lets the model run without it.

    ## How to fix
    Write the message where it stands, with the markers of the first one. System texts that are collected before the
    loop make a server compute the whole prompt again with each new one. turnwise puts late texts into a turn of the
    user by itself (`late_system`).
    """
    yield from report_forms(subject, "late-system", WRITE_LATE)


def check_second_system(subject: Subject) -> Iterator[Symptom]:
    """One of two system messages is refused or dropped.

    ## What it does
    Renders two system messages and a user message. Asked only if one system message is written.

    ## Why it matters
    Frameworks put a message of their own before that of the application. A refusal ends the request; a dropped text is
    worse, since nobody notices.

    ## How to fix
    Write every system message, or join their texts. turnwise joins them by itself (`normalise`).
    """
    yield from report_forms(subject, "second-system", WRITE_LATE)


def check_system(subject: Subject) -> Iterator[Symptom]:
    """A system message at the beginning is refused or dropped.

    ## What it does
    Renders a system and a user message.

    ## Why it matters
    A model without a system role may refuse the message; then clients know, and can put the text into the first user
    message. A template that drops the text without a word takes the application's rules away.

    ## How to fix
    Write the text before that of the first user message, or raise an error with `raise_exception`.
    """
    fix = "Write its text, at least before that of the first user message, or refuse it with raise_exception."
    yield from report_forms(subject, "system-message", fix)


def check_system_with_tools(subject: Subject) -> Iterator[Symptom]:
    """A system message is dropped where there are tools, or where the conversation goes on.

    ## What it does
    Renders a conversation with a system message that is written, once with tools and once with an answer and another
    question behind it.

    ## Why it matters
    Templates that write a tool prompt of their own instead of the system message, or the system message only while the
    last message is a user's, lose the application's rules in the middle of a conversation.

    ## How to fix
    Write the text of the system message in every case; a tool prompt belongs beside it.
    """
    fix = "Write the system text in every case; a tool prompt belongs beside it."
    yield from report_first_form(subject, "system-lost-later", fix)


def check_developer(subject: Subject) -> Iterator[Symptom]:
    """A developer message is refused or dropped.

    ## What it does
    Renders a message with the role `developer`, which OpenAI's newer clients send instead of `system`.

    ## Why it matters
    The text has the rules of the application. Most templates drop it without a word.

    ## How to fix
    Treat `developer` as `system`: `{%- if message.role in ("system", "developer") %}`. turnwise does so by itself.
    """
    yield from report_forms(subject, "developer-role", "Treat the role developer as system.")


def check_same_role_twice(subject: Subject) -> Iterator[Symptom]:
    """One of two user messages in a row is refused or dropped.

    ## What it does
    Renders two user messages in a row.

    ## Why it matters
    People send a second message before the answer, and clients add one with a reminder. Some models were trained with
    strict alternation and say so; a dropped message is an error.

    ## How to fix
    Write each message as a turn of its own, or join their texts.
    """
    fix = "Write each message as a turn of its own, or join their texts."
    yield from report_forms(subject, "two-users", fix)


CHECKS = (
    Check("T101", "user-message", "error", check_user_message, reads_source=True),
    Check("T102", "late-system", "error", check_late_system),
    Check("T103", "second-system", "error", check_second_system),
    Check("T104", "system-message", "error", check_system),
    Check("T105", "system-lost-later", "error", check_system_with_tools),
    Check("T106", "developer-role", "error", check_developer),
    Check("T108", "two-users", "error", check_same_role_twice),
)
