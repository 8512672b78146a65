"""The forms in which clients send a conversation: each with its probe, its plain form, and the check that reports it.

Content may be a text, a list of parts, null or missing; arguments are a mapping or JSON text; a system message comes
first, twice or late. A *form* is one such way of saying something. Its *plain form* says the same in the way that
templates accept. `form_table.py` asks a template for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from turnwise.analysis.conversations import make_message, make_tool
from turnwise.analysis.probe_chats import (
    ARGUMENTS,
    ASKED_AGAIN,
    FOUND_NEXT,
    MORE_RULES,
    SAID,
    SAID_NEXT,
    TOOL_NAME,
    TOOLS,
    FormQuestion,
    ProbeChats,
)

OPENAI_ID = "call_8Zf3a9c27d4bQx10"  # as OpenAI's clients make them
ODD_VALUES = {"nearby": True, "limit": None, "ports": ["Brest", "Calais"]}
DOCUMENTS = [{"title": "Tide table", "text": "High water at Brest: 7.1 metres"}]
CONTENT_ROLES = ("user", "system", "assistant", "tool")

MakeQuestion = Callable[[ProbeChats], FormQuestion | None]


@dataclass(frozen=True)
class Form:
    """A form of input.

    Attributes:
        name: how it is called in the table.
        what: the same in a sentence, such as "a system message behind other messages".
        make: returns the conversation that has it; None if the template's calls have no such form.
        check: the name of the check that reports it; empty for what a template may do without.
        plain: returns the same conversation in its plain form.
        plainly: how the plain form is called, if the text must be the same.
        compared: what must be the same: the "text", its "words" (any white space between them), or its "letters".
        needs: other forms, one of which must be written.
        any_notation: whether it is written in Python's notation, too; then another form asks for the notation.
        must_not_fail: whether an error that the template does not state is a defect, whatever is written.
        otherwise: returns another conversation that has the form, if it is not written in the first.
        with_tools: whether the conversation has tools, unless the caller decides.
        reasons: whether it is asked with the options that turn reasoning on.
    """

    name: str
    what: str
    make: MakeQuestion
    check: str = ""
    plain: MakeQuestion | None = None
    plainly: str = ""
    compared: Literal["text", "words", "letters"] = "words"
    needs: tuple[str, ...] = ()
    any_notation: bool = False
    must_not_fail: bool = False
    otherwise: MakeQuestion | None = None
    with_tools: bool = False
    reasons: bool = False


# Roles


def _ask_late_system(chats: ProbeChats) -> FormQuestion:
    late = chats.system(MORE_RULES)
    return chats.ask(chats.user(), chats.reply(), late, chats.user(ASKED_AGAIN), about=[late])


def _ask_second_system(chats: ProbeChats) -> FormQuestion:
    systems = [chats.system(), chats.system(MORE_RULES)]
    return chats.ask(*systems, chats.user(), about=systems)


def _ask_system(
    chats: ProbeChats,
    role: str = "system",
    following: int = 0,
    tools: Sequence[Any] | None = None,
) -> FormQuestion:
    """Return a system message and a user's, with none to two messages after it; without a role, the user's alone."""
    system = {**chats.system(), "role": role}
    rest = [chats.user(), chats.reply(), chats.user(ASKED_AGAIN)][: following + 1]
    return chats.ask(*([system] if role else []), *rest, about=[system], tools=tools)


def _ask_users(chats: ProbeChats, number: int) -> FormQuestion:
    users = [chats.user(), chats.user(ASKED_AGAIN)]
    return chats.ask(*users, about=[users[number]])


def _ask_assistants(chats: ProbeChats) -> FormQuestion:
    replies = [chats.reply(), chats.reply(SAID_NEXT)]
    return chats.ask(chats.user(), *replies, chats.user(ASKED_AGAIN), about=replies)


def _ask_first_reply(chats: ProbeChats) -> FormQuestion:
    reply = chats.reply()
    return chats.ask(reply, chats.user(), about=[reply])


def _list_role_forms() -> Iterator[Form]:
    yield Form("system", "a system message at the beginning", _ask_system, "system-message")
    for where, following, tools in (
        ("with tools", 0, TOOLS),
        ("before an answer", 1, None),
        ("in the second round", 2, None),
    ):
        yield Form(
            *(f"system {where}", f"{where}, a system message"),
            partial(_ask_system, following=following, tools=tools),
            "system-lost-later",
            plain=partial(_ask_system, role="", following=following, tools=tools),
            needs=("system",),
        )
    yield Form(
        *("system late", "a system message behind other messages", _ask_late_system),
        check="late-system",
        needs=("system",),
    )
    yield Form(
        *("system twice", "one of two system messages", _ask_second_system),
        check="second-system",
        needs=("system",),
    )
    yield Form(
        "developer",
        "a developer message",
        partial(_ask_system, role="developer"),
        "developer-role",
    )
    for name, what, number in (
        ("users in a row", "a second user message in a row", 1),
        ("users in a row, the first", "the first of two user messages in a row", 0),
    ):
        yield Form(
            *(name, what, partial(_ask_users, number=number), "two-users"),
            plain=partial(_ask_system, role=""),
        )
    yield Form("assistants in a row", "a second reply in a row", _ask_assistants)
    yield Form("assistant first", "a reply before all other messages", _ask_first_reply)


# Content

NO_CONTENT = object()


def make_content_form(role: str, kind: str) -> Form:
    """Return the form of a content of any role: as "text", or in "parts"."""
    is_result = role == "tool"
    shown = "a result" if is_result else f"content of the role {role}"
    as_text = _ask_content(role, SAID)
    if kind == "text":
        return Form(f"{role} content as text", f"{shown} as a text", as_text, with_tools=is_result)
    return Form(
        f"{role} content as parts",
        f"{shown} in parts",
        _ask_content(role, [{"type": "text", "text": SAID}]),
        "content-parts",
        plain=as_text,
        plainly="the same text",
        compared="text",
        with_tools=is_result,
    )


def make_part_form(kind: str, needs: tuple[str, ...] = ()) -> Form:
    """Return the form of a media part of this `type` before the text of a user."""
    part = {"type": kind, kind: {"url": "cat.png"} if kind.endswith("_url") else "cat.png"}
    parts = [part, {"type": "text", "text": SAID}]
    check = "media-dropped" if needs else ""
    what = f"a part of the type {kind}"
    return Form(kind, what, partial(_ask_part, parts=parts), check, needs=needs)


def _ask_part(chats: ProbeChats, parts: list[Any]) -> FormQuestion:
    probe, paths = chats.ask_content(make_message("user", parts))
    return FormQuestion(probe, tuple((*path, 0) for path in paths))


def _ask_content(role: str, content: Any) -> MakeQuestion:
    def ask(chats: ProbeChats) -> FormQuestion:
        message = make_message(role, content)
        if content is NO_CONTENT:
            del message["content"]
        return chats.ask_content(message)

    return ask


def _ask_call_content(*content: Any) -> MakeQuestion:
    """Return what asks for a call and its result, with a content in the place of the template's own, or without one."""

    def ask(chats: ProbeChats) -> FormQuestion:
        own = chats.call()
        call = {key: value for key, value in own.items() if key != "content"}
        if content:
            call["content"] = content[0]
        return chats.ask(chats.user(), call, chats.result(), about=[call], tools=chats.tools)

    return ask


def _list_content_forms() -> Iterator[Form]:
    for role in CONTENT_ROLES:
        yield make_content_form(role, "text")
        yield make_content_form(role, "parts")
    two = [{"type": "text", "text": text} for text in (SAID, SAID_NEXT)]
    one = [{"type": "text", "text": f"{SAID}\n{SAID_NEXT}"}]
    yield Form(
        *("user content as two parts", "content of the role user in two parts"),
        *(_ask_content("user", two), "content-parts"),
        plain=_ask_content("user", one),
    )
    empty = "an empty text"
    yield Form("empty content", f"{empty} of an assistant", _ask_content("assistant", ""))
    for name, check, content in (
        ("null", "null-content", None),
        ("absent", "absent-content", NO_CONTENT),
    ):
        what = "null content" if content is None else "no content key"
        yield Form(
            *(f"{name} content beside a call", f"{what} beside a tool call"),
            *(_ask_call_content(*([None] if content is None else [])), check),
            plain=_ask_own_call,
            plainly="a call without text",
            needs=("call without text",),
        )
        yield Form(
            *(f"{name} content", f"{what} of an assistant", _ask_content("assistant", content)),
            check,
            plain=_ask_content("assistant", ""),
            plainly=empty,
            needs=("call without text",) if content is NO_CONTENT else (),
        )
    for role in ("user", "system", "tool"):
        shown = "a result" if role == "tool" else f"a {role} message"
        yield Form(
            *(f"null {role} content", f"null content of {shown}"),
            *(_ask_content(role, None), "null-content"),
            plain=_ask_content(role, ""),
            needs=(f"{role} content as text",),
            with_tools=role == "tool",
        )
    yield make_part_form("image", ("image_url",))
    yield make_part_form("image_url", ("image",))
    yield make_part_form("video")
    yield make_part_form("audio")


# Calls


def _ask_own_call(chats: ProbeChats) -> FormQuestion:
    return chats.ask(chats.user(), chats.call(), chats.result(), tools=chats.tools)


def _ask_call(**changes: Any) -> MakeQuestion:
    """Return what asks for a call at the end of a conversation with tools."""

    def ask(chats: ProbeChats) -> FormQuestion:
        call = chats.call(**changes)
        field = "function_call" if "function_call" in call else "tool_calls"
        return chats.ask(chats.user(), call, about=[call], field=field, tools=chats.tools)

    return ask


def _ask_text_beside_call(chats: ProbeChats) -> FormQuestion:
    call = chats.call(content=SAID_NEXT)
    return chats.ask(chats.user(), call, about=[call], tools=chats.tools)


def _ask_round(
    chats: ProbeChats, field: str = "tool_calls", with_tools: bool = True
) -> FormQuestion:
    """Return a call, its result and an answer; about the call or, for the field "content", about the result."""
    call, result = chats.call(), chats.result()
    if field == "tool_calls" and "function_call" in call:
        field = "function_call"
    about = result if field == "content" else call
    tools = chats.tools if with_tools else None
    chat = (chats.user(), call, result, chats.reply())
    return chats.ask(*chat, about=[about], field=field, tools=tools)


def _ask_parallel_calls(field: str) -> MakeQuestion:
    def ask(chats: ProbeChats) -> FormQuestion | None:
        if chats.input_format.shape.single:
            return None
        calls = chats.call(*ARGUMENTS)
        results = [chats.result(), chats.result(FOUND_NEXT, 1)]
        about = [calls] if field == "tool_calls" else results
        return chats.ask(chats.user(), calls, *results, about=about, field=field, tools=chats.tools)

    return ask


def _ask_nameless_result(chats: ProbeChats) -> FormQuestion:
    result = chats.result()
    del result["name"]
    chat = (chats.user(), chats.call(), result, chats.reply())
    return chats.ask(*chat, about=[result], tools=chats.tools)


def _ask_long_id(chats: ProbeChats) -> FormQuestion | None:
    if chats.input_format.shape.single:
        return None
    call, result = chats.call(), {**chats.result(), "tool_call_id": OPENAI_ID}
    for one in call["tool_calls"]:
        one["id"] = OPENAI_ID
    chat = (chats.user(), call, result, chats.reply())
    return chats.ask(*chat, about=[result], tools=chats.tools)


def _ask_tools(*tools: Any) -> MakeQuestion:
    def ask(chats: ProbeChats) -> FormQuestion:
        return FormQuestion(chats.chat(chats.user(), tools=tools or TOOLS), (("tools",),))

    return ask


def _ask_python_values(chats: ProbeChats) -> FormQuestion | None:
    if chats.input_format.shape.as_text:
        return None  # the values are in a text
    call = chats.call(ODD_VALUES)
    field = "function_call" if "function_call" in call else "tool_calls"
    return chats.ask(chats.user(), call, about=[call], field=field, tools=chats.tools)


def _list_call_forms() -> Iterator[Form]:
    called, shown = ("call without text",), ("tools",)
    yield Form(
        "tools",
        "tools",
        _ask_tools(),
        "tools-dropped",
        needs=called,
        any_notation=True,
        must_not_fail=True,
    )
    yield Form(
        *("call without text", "a tool call", _ask_call(), "tools-dropped"),
        needs=shown,
        any_notation=True,
        otherwise=_ask_round,
    )
    yield Form(
        *("tool result", "the result of a call"),
        *(partial(_ask_round, field="content"), "tools-dropped"),
        needs=(*called, *shown),
    )
    yield Form(
        *("text beside a call", "the text beside a tool call", _ask_text_beside_call),
        check="text-beside-call",
        needs=called,
    )
    for name, what, field in (
        ("parallel calls", "the second of two calls", "tool_calls"),
        ("results of parallel calls", "the result of one of two calls", "content"),
    ):
        yield Form(
            *(name, what, _ask_parallel_calls(field), "several-calls"),
            plain=_ask_round,
            needs=("tool result",),
        )
    for name, what, as_text in (
        ("arguments as mapping", "arguments that are a mapping", False),
        ("arguments as text", "arguments that are JSON text", True),
    ):
        yield Form(
            *(name, what, _ask_call(as_text=as_text)),
            "string-arguments" if as_text else "mapping-arguments",
            plain=_ask_call(),
            plainly="a mapping" if as_text else "JSON text",
            compared="letters",
            needs=called,
        )
    for name, field in (("calls", "tool_calls"), ("results", "content")):
        what = "a call in the history, without tools" + (", the result" * (field == "content"))
        yield Form(
            f"{name} without tools",
            what,
            partial(_ask_round, field=field, with_tools=False),
            "tools-not-resent",
            plain=partial(_ask_round, field=field),
        )
    yield Form(
        *("result without a name", "a tool result without a name", _ask_nameless_result),
        check="result-without-name",
        plain=partial(_ask_round, field="content"),
    )
    yield Form(
        *("call with a long id", f"a call with the id {OPENAI_ID}", _ask_long_id, "call-ids"),
        plain=partial(_ask_round, field="content"),
    )
    boolean = make_tool(TOOL_NAME, nearby={"type": "boolean", "default": True})
    yield Form(
        *("tool with a boolean", "a tool", _ask_tools(boolean), "python-values"),
        needs=shown,
    )
    yield Form(
        *("arguments of other types", "an argument", _ask_python_values, "python-values"),
        needs=called,
    )


# Reasoning


def ask_reasoning(*content: Any, with_tools: bool = False, with_call: bool = False) -> MakeQuestion:
    def ask(chats: ProbeChats) -> FormQuestion:
        message = chats.call() if with_call else chats.reply()
        if content:
            message = {**message, "content": content[0]}
        message = chats.with_reasoning(message)
        more = [chats.result()] if with_call else []
        return chats.ask(
            *(chats.user(), message, *more),
            about=[message],
            field=chats.reasoning_key,
            tools=chats.tools if with_tools else None,
        )

    return ask


def _list_reasoning_forms() -> Iterator[Form]:
    usual = ask_reasoning()
    yield Form("reasoning", "reasoning", usual)
    for word, content in (("null", None), ("empty", "")):
        yield Form(
            *(f"reasoning with {word} content", f"reasoning with {word} content"),
            *(ask_reasoning(content), "reasoning-alone"),
            plain=usual,
            needs=("empty content",) if content == "" else (),
        )
    yield Form(
        *("reasoning beside a call", "reasoning beside a tool call"),
        *(ask_reasoning(with_tools=True, with_call=True), "reasoning-beside-call"),
        plain=ask_reasoning(with_tools=True),
        needs=("tool result",),
        reasons=True,
    )


def _ask_documents(chats: ProbeChats) -> FormQuestion:
    return FormQuestion(replace(chats.chat(chats.user()), documents=DOCUMENTS), (("documents",),))


FORMS: dict[str, Form] = {
    form.name: form
    for form in (
        *_list_role_forms(),
        *_list_content_forms(),
        *_list_call_forms(),
        *_list_reasoning_forms(),
        Form("documents", "documents", _ask_documents),
    )
}
