"""The forms in which clients send a conversation, read from `forms.toml`.

Content may be a text, a list of parts, null or missing; arguments are a mapping or JSON text; a system message comes
first, twice or late. A *form* is one such way of saying something. Its *plain form* says the same in the way that
templates accept. `form_table.py` asks a template for all of them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from turnwise.messages import JsonObject

Audience = Literal["chat", "tools", "agents", "vision", "training", "rarely"]
CONTENT_ROLES = ("user", "system", "assistant", "tool")
# Where a message of each role usually stands; those of other roles are results of a call.
CONTENT_CHATS = {
    "user": "user:{}*",
    "system": "system:{}* user",
    "developer": "developer:{}* user",
    "assistant": "user reply:{}* again",
}
RESULT_CHAT = "user call other:{}*"


@dataclass(frozen=True)
class Form:
    """A form of input.

    Attributes:
        name: how it is called in the table.
        what: the same in a sentence, such as "a system message after other messages".
        chat: the conversation that has it, in the words of `ProbeChats.ask`.
        about: which field of the messages with a star: "content", the first "part" of it, "calls" or "reasoning"; or
            the "tools" or "documents" of the conversation.
        word: the role of a message `other`, or the type of a part `media`.
        tools: the tools of the conversation: none, the "usual" ones unless the template refuses them, "always" these,
            or one with a "boolean".
        check: the name of the check that reports it; empty for what a template may do without.
        plain: the same conversation in its plain form.
        plain_tools: the tools of that, if they are others.
        plainly: how the plain form is called, if the text must be the same.
        compared: what must be the same: the "text", its "words" (any white space between them), or its "letters".
        needs: other forms, one of which must be written.
        any_notation: whether it is written in Python's notation, too; then another form asks for the notation.
        must_not_fail: whether an error that the template does not state is a defect, whatever is written.
        otherwise: another conversation that has the form, if it is not written in the first.
        reasons: whether it is asked with the options that turn reasoning on.
        sent_by: whose clients send it (`profiles.py`).
        converted: whether servers bring it into its plain form before they render.
    """

    name: str
    what: str
    chat: str
    about: Literal["content", "part", "calls", "reasoning", "tools", "documents"] = "content"
    word: str = ""
    tools: Literal["", "usual", "always", "boolean"] = ""
    check: str = ""
    plain: str = ""
    plain_tools: Literal["", "usual"] = ""
    plainly: str = ""
    compared: Literal["text", "words", "letters"] = "words"
    needs: tuple[str, ...] = ()
    any_notation: bool = False
    must_not_fail: bool = False
    otherwise: str = ""
    reasons: bool = False
    sent_by: Audience = "chat"
    converted: bool = False


@cache
def load_forms() -> dict[str, Form]:
    """Return the forms by their names, in the order of the table."""
    text = files("turnwise.analysis").joinpath("forms.toml").read_text(encoding="utf-8")
    rows: list[JsonObject] = tomllib.loads(text)["form"]
    return {form.name: form for form in (*map(_read_form, rows), *_list_content_forms())}


def _read_form(row: JsonObject) -> Form:
    return Form(**{**row, "needs": tuple(row.get("needs", ()))})


def _list_content_forms() -> Iterator[Form]:
    for role in CONTENT_ROLES:
        yield make_content_form(role, "text")
        yield make_content_form(role, "parts")


def make_content_form(role: str, kind: str) -> Form:
    """Return the form of a content of any role: as "text", or in "parts"."""
    shown = "a result" if role == "tool" else f"content of the role {role}"
    chat = CONTENT_CHATS.get(role, RESULT_CHAT)
    tools: Literal["", "usual"] = "usual" if role == "tool" else ""
    if kind == "text":
        name, what = f"{role} content as text", f"{shown} as a text"
        return Form(name, what, chat.format("text"), word=role, tools=tools)
    return Form(
        f"{role} content as parts",
        f"{shown} in parts",
        chat.format("parts"),
        word=role,
        tools=tools,
        check="content-parts",
        plain=chat.format("text"),
        plainly="the same text",
        compared="text",
        sent_by="agents" if role == "tool" else "chat",
        converted=True,
    )


def make_part_form(kind: str) -> Form:
    """Return the form of a media part of this `type` before the text of a user."""
    return Form(kind, f"a part of the type {kind}", "user:media*", "part", kind)
