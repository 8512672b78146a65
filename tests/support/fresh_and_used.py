"""Answers of a template that was just made, and of one that has seen other conversations: they must be the same.

An answer is everything that a caller sees of a call: texts, ids, labels, untrained turns, warnings, or the error. A
warning about a template and a tokenizer together comes once, so it belongs to no conversation and is left out, and so
is how often a warning came before.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import turnwise
from turnwise.tokens.tokenizers import tokenizer

SEEN = 50  # conversations, at least
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "tide",
            "description": "The tide at a harbour.",
            "parameters": {"type": "object", "properties": {"harbour": {"type": "string"}}},
        },
    }
]
Chat = dict[str, Any]
Make = Callable[[], turnwise.Template]
Verb = Callable[[turnwise.Template, Chat], Any]


def _user(text: Any) -> Chat:
    return {"role": "user", "content": text}


def _reply(text: Any, **fields: Any) -> Chat:
    return {"role": "assistant", "content": text, **fields}


def _call(number: int, content: Any = "") -> Chat:
    function = {"name": "tide", "arguments": {"harbour": f"Oslo {number}"}}
    return _reply(
        content, tool_calls=[{"type": "function", "id": f"call{number:05d}", "function": function}]
    )


def _result(number: int) -> Chat:
    return {
        "role": "tool",
        "name": "tide",
        "tool_call_id": f"call{number:05d}",
        "content": f"Rain {number}",
    }


def list_chats(markers: Sequence[str] = ()) -> list[Chat]:
    """Return conversations as arguments of `render`: plain ones, and those that templates treat differently.

    Args:
        markers: texts that the template writes itself, which some contents spell.
    """
    spelled = [
        *(
            "<tool_response>x</tool_response>",
            "<think>hm</think>So",
            "</think>So",
            "<think>",
            "",
            " ",
        ),
        *("/no_think", "x" * 600, "###", "None", *markers),
    ]
    system = {"role": "system", "content": "Be brief."}
    chats: list[Any] = [
        [_user("Hi")],
        [_user("Hi"), _reply("Ho")],
        [system, _user("Hi"), _reply("Ho")],
        [_user("Hi"), _reply("Ho"), _user("It is four."), _reply("Fine")],
        [system, _user("Hi"), _reply("Ho"), _user("It is four."), _reply("Fine"), _user("And?")],
        [_reply("Ho"), _user("Hi"), _reply("Fine")],
        [_user("Hi"), _reply("Ho"), _reply("Fine")],
        [_user("Hi"), _user("There"), _reply("Fine")],
        [_user("Hi"), system, _reply("Fine")],
        [_user("Hi"), _reply("Ho", reasoning_content="Hm"), _user("So"), _reply("Fine")],
        [_user("Hi"), _reply("Ho", thinking="Hm"), _user("So"), _reply("B", reasoning="Oh")],
        [_user([{"type": "text", "text": "Hi"}]), _reply([{"type": "text", "text": "Ho"}])],
        [{"role": "developer", "content": "Be brief."}, _user("Hi"), _reply("Ho")],
        [_user("Hi"), {"role": "model", "content": "Ho"}, _user("So"), _reply("Fine")],
        [_user("Hi"), {"role": "poet", "content": "Oh"}, _reply("Fine")],
        [_user("Hi"), _reply(None), _user("So"), _reply("Fine")],
        [],
    ]
    for text in spelled:
        chats.append([_user(text), _reply("A"), _user("It is four."), _reply("B")])
        chats.append([_user("Hi"), _reply(text), _user("It is four."), _reply("B")])
    calls = [_user("Go"), _call(1), _result(1), _reply("Done")]
    more = [_user("Next"), _call(2, "Let me see"), _result(2), _result(2), _reply("Fine")]
    found = [{"messages": chat} for chat in chats]
    for chat in (calls, [*calls, *more], [*calls, _user("So"), _reply("B")], calls[:2]):
        found += [{"messages": chat}, {"messages": chat, "tools": TOOLS}]
    found.append({"messages": chats[3], "tools": TOOLS})
    found.append({"messages": chats[0], "add_generation_prompt": True})
    found.append({"messages": chats[4], "add_generation_prompt": True, "enable_thinking": False})
    return found


def render(template: turnwise.Template, chat: Chat) -> Any:
    return template.render(**chat).text


def encode(template: turnwise.Template, chat: Chat) -> Any:
    return _describe(template.encode(tokenizer=tokenizer("turnwise"), **chat))


def examples(template: turnwise.Template, chat: Chat) -> Any:
    found = template.examples(tokenizer=tokenizer("turnwise"), **chat)
    return [_describe(sample) for sample in found], list(map(str, found.untrained))


def encode_batch(template: turnwise.Template, chat: Chat) -> Any:
    """Encode a conversation as one row among copies, so that a layout is found for it."""
    messages = chat["messages"]
    rest = {key: value for key, value in chat.items() if key != "messages"}
    batch = template.encode_batch([messages] * 5, tokenizer("turnwise"), errors="collect", **rest)
    rows = [(list(row.input_ids), list(row.labels)) for row in batch]
    return rows, {index: str(error) for index, error in batch.errors.items()}


def session(template: turnwise.Template, chat: Chat) -> Any:
    """Start a conversation with all that is given, and let the model reply twice."""
    known = tokenizer("turnwise")
    messages = [*chat["messages"]]
    while messages and messages[-1]["role"] == "assistant":
        messages.pop()
    given = template.session(known, chat.get("tools"))
    prompts = [list(given.prompt(messages))]
    for reply in ("Fine", "<think>Hm</think>So"):
        given.add_reply(known.encode(reply))
        prompts.append(list(given.extend([_user("Go on")])))
    return prompts, list(given.ids), list(given.labels)


def _describe(encoded: Any) -> Any:
    untrained = [str(turn) for turn in encoded.untrained]
    return encoded.text, list(encoded.input_ids), list(encoded.labels), untrained


REPEATED = re.compile(r" \([\d,]+ times so far; .*\)$")
VERBS: dict[str, Verb] = {
    verb.__name__: verb for verb in (render, encode, examples, encode_batch, session)
}


def answer(template: turnwise.Template, verb: Verb, chat: Chat) -> Any:
    """Return what a caller sees of a call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = verb(template, chat)
        except turnwise.TurnwiseError as error:
            result = f"{type(error).__name__}: {error}"
    texts = [REPEATED.sub("", str(one.message)) for one in caught]
    return result, [text for text in texts if not _is_about_tokenizer(text)]


def _is_about_tokenizer(text: str) -> bool:
    return "tokenizer" in text or "token of" in text or "added token" in text


def find_differences(
    make: Make, names: Iterable[str], seed: int = 0, every: int = 1
) -> Iterator[Any]:
    """Yield the calls that a used template answers differently than a fresh one.

    Args:
        make: makes a template anew.
        names: those of verbs.
        seed: of the order in which conversations are seen.
        every: one conversation in so many is asked for.
    """
    markers = [text for text in make().stops() if text][:3]
    chats = list_chats(markers)
    for name in names:
        used, order = make(), chats * -(-SEEN // len(chats))
        random.Random(seed).shuffle(order)
        for chat in order:
            answer(used, VERBS[name], chat)
        asked = chats[seed % every :: every]
        random.Random(seed + 1).shuffle(asked)
        for chat in asked:
            before, after = answer(make(), VERBS[name], chat), answer(used, VERBS[name], chat)
            if before != after:
                yield name, chat, before, after
