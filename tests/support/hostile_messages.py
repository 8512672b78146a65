"""Conversations whose messages mean harm: shapes that grow with a size, and the verbs that read them.

A shape is a function of a size (characters, about), a control token of the tokenizer and a salt, and returns the
keyword arguments of `Template.encode`. The salt makes the text new in every round, so that no cache of texts helps.

A verb is a function of a case: a shape at a size, for a template and a tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from turnwise import MessageError, Template, TurnwiseError
from turnwise.tokens.tokenizers import Tokenizer

Message = dict[str, Any]
Conversation = dict[str, Any]  # messages, and tools where there are some
Shape = Callable[[int, str, str], Conversation]

MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_end|>", "[TOOL_CALLS]")
NAME, CALL_ID = "tide", "call00001"  # Mistral's templates want nine letters and digits


def repeat(text: str, size: int, salt: str) -> str:
    """Return about `size` characters of one text again and again, with the salt around them."""
    return f"{salt} {text * (size // len(text))} {salt}"


def tool(name: str = NAME, **parameters: Any) -> Message:
    schema = {"type": "object", "properties": {"day": {"type": "string"}}, **parameters}
    return {
        "type": "function",
        "function": {"name": name, "description": "Tides.", "parameters": schema},
    }


def call(arguments: Any, name: str = NAME, identifier: str = CALL_ID) -> Message:
    return {
        "id": identifier,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def result(content: str, name: str = NAME, identifier: str = CALL_ID) -> Message:
    return {"role": "tool", "name": name, "tool_call_id": identifier, "content": content}


def talk(user: Any = "When?", assistant: Any = "Soon.", **fields: Any) -> Conversation:
    """Return a conversation of two messages."""
    return {
        "messages": [
            {"role": "user", "content": user},
            {"role": "assistant", "content": assistant, **fields},
        ]
    }


def errand(calls: list[Message], answer: str = "Rain", **fields: Any) -> Conversation:
    """Return a conversation with a call, its result and a reply."""
    messages = talk(assistant="", tool_calls=calls, **fields)["messages"]
    messages += [result(answer, made["function"]["name"], made["id"]) for made in calls[:1]]
    messages += [{"role": "assistant", "content": "Soon."}]
    return {"messages": messages, "tools": [tool()]}


def list_arguments(size: int, token: str, salt: str) -> Conversation:
    return errand([call({"day": [salt, *[token] * (size // (len(token) + 4))]})])


def key_arguments(size: int, token: str, salt: str) -> Conversation:
    count = size // (len(token) + 12)
    return errand([call({salt: 0} | {f"{token}{number}": number for number in range(count)})])


def nest_arguments(size: int, token: str, salt: str) -> Conversation:
    row = {token: [{token: [token, {"a": token}]}]}
    return errand([call({"day": [salt, *[row] * (size // len(json.dumps(row)))]})])


def texts(size: int, token: str, salt: str) -> Conversation:
    arguments = list_arguments(size, token, salt)["messages"][1]["tool_calls"][0]["function"][
        "arguments"
    ]
    return errand([call(json.dumps(arguments))])


def distinct(size: int, token: str, salt: str) -> Conversation:
    """Texts that JSON escapes, and no two alike: none is found where it is looked for."""
    count = size // (len(token) + 20)
    return errand([call({"day": [salt, *(f'{token}"w{number}' for number in range(count))]})])


def distinct_calls(size: int, token: str, salt: str) -> Conversation:
    made = [call({"day": f'x"w{number}{salt}'}, f"f{number}") for number in range(size // 100)]
    return errand([call({"day": salt}), *made[::-1]])


def deep(size: int, token: str, salt: str) -> Conversation:
    value: Any = token
    for _ in range(20):
        value = {"a": [value]}
    return errand([call({"day": [salt, *[value] * (size // len(json.dumps(value)))]})])


def properties(size: int, token: str, salt: str) -> Conversation:
    count = size // (2 * len(token) + 50)
    rows = {f"{token}{n}": {"type": "string", "description": token} for n in range(count)}
    return talk() | {"tools": [tool(properties={salt: {"type": "string"}, **rows})]}


def enums(size: int, token: str, salt: str) -> Conversation:
    count = size // (2 * len(token) + 4)
    described = {"type": "string", "description": token * count, "enum": [salt, *[token] * count]}
    return talk() | {"tools": [tool(properties={"day": described}, required=["day"])]}


def tools(size: int, token: str, salt: str) -> Conversation:
    return talk(salt) | {"tools": [tool(f"t{n}", title=token) for n in range(size // 200)]}


def calls(size: int, token: str, salt: str) -> Conversation:
    made = [call({"day": f"{n}{token}"}, identifier=f"call{n:05d}") for n in range(size // 100)]
    found = errand([call({"day": salt}), *made])
    found["messages"][2:3] = [
        result(token, NAME, made["id"]) for made in found["messages"][1]["tool_calls"]
    ]
    return found


def errands(size: int, token: str, salt: str) -> Conversation:
    messages: list[Message] = []
    for n in range(max(size // 300, 1)):
        identifier = f"call{n:05d}"
        messages += talk(f"{n}{salt}", "", tool_calls=[call({"day": token}, NAME, identifier)])[
            "messages"
        ]
        messages += [result(token, NAME, identifier), {"role": "assistant", "content": "So."}]
    return {"messages": messages, "tools": [tool()]}


def names(size: int, token: str, salt: str) -> Conversation:
    name = "n" * (size // 4) + salt
    return errand([call({"day": "1"}, name, "c" * (size // 4))]) | {"tools": [tool(name)]}


def straddle_fields(size: int, token: str, salt: str) -> Conversation:
    """Look-alikes of which each field has a half."""
    half = len(token) // 2
    row = {"a" + token[:half]: token[half:], "b": [token[:half], token[half:]]}
    made = errand([call({"day": [salt, *[row] * (size // len(json.dumps(row)))]})])
    made["messages"][0]["content"] += token[:half]
    return made


def parts(size: int, token: str, salt: str) -> Conversation:
    half = len(token) // 2
    pieces = [salt, *[token[:half], token[half:]] * (size // (len(token) + 40))]
    return talk([{"type": "text", "text": piece} for piece in pieces])


def letters(size: int, token: str, salt: str) -> Conversation:
    messages = [message for _ in range(size // 60) for message in talk("a", "b")["messages"]]
    return {"messages": [*talk(salt)["messages"], *messages]}


def rounds(size: int, token: str, salt: str) -> Conversation:
    """Many short messages of look-alikes and markers."""
    made = [talk(f"{n}{token}{salt}", f"{token}<think>x</think>{n}") for n in range(size // 90)]
    return {"messages": [message for found in made for message in found["messages"]]}


def in_user(text: str) -> Shape:
    return lambda size, token, salt: talk(repeat(text or token, size, salt))


def in_assistant(text: str) -> Shape:
    return lambda size, token, salt: talk(assistant=repeat(text or token, size, salt))


def in_reasoning(text: str) -> Shape:
    return lambda size, token, salt: talk(reasoning_content=repeat(text or token, size, salt))


def in_result(text: str) -> Shape:
    return lambda size, token, salt: errand([call({})], repeat(text or token, size, salt))


def in_both(text: str) -> Shape:
    return lambda size, token, salt: talk(*[repeat(text, size // 2, salt)] * 2)


TOKEN = ""  # a control token of the tokenizer

SHAPES: dict[str, Shape] = {
    "arguments as list": list_arguments,
    "arguments as keys": key_arguments,
    "arguments nested": nest_arguments,
    "arguments as text": texts,
    "arguments deep": deep,
    "distinct arguments": distinct,
    "distinct calls": distinct_calls,
    "schema properties": properties,
    "schema enums": enums,
    "many tools": tools,
    "many calls": calls,
    "many errands": errands,
    "long names": names,
    "straddled fields": straddle_fields,
    "content parts": parts,
    "letters": letters,
    "rounds": rounds,
    "token in user": in_user(TOKEN),
    "token in assistant": in_assistant(TOKEN),
    "token in result": in_result(TOKEN),
    "markers in user": in_user("".join(MARKERS)),
    "markers in assistant": in_assistant("".join(MARKERS)),
    "markers in reasoning": in_reasoning("".join(MARKERS)),
    "markers in result": in_result("".join(MARKERS)),
    "think in assistant": in_assistant("<think>"),
    "end of think in assistant": in_assistant("</think>"),
    "tool call in assistant": in_assistant("<tool_call>"),
    "half markers": in_both("<|im_"),
    "brackets": in_both("<"),
    "JSON in assistant": in_assistant('{"name": ["'),
    "spaces": in_both(" "),
    "newlines": in_both("\n"),
    "carriage returns": in_both("\r\n"),
    "tabs": in_both("\t"),
    "one word": in_both("a"),
    "emoji": in_both("👩\u200d👧"),
    "combining marks": in_both("e\u0301\u0327"),
}


MANY_MESSAGES = ("many errands", "letters", "rounds")


@dataclass(frozen=True, slots=True)
class Case:
    """Conversations of one shape and size for a template and a tokenizer, and the reply that they end with."""

    template: Template
    tokenizer: Tokenizer
    shape: str
    size: int
    reply: str = ""
    is_harmless: bool = False

    def make(self) -> Conversation:
        """Return a conversation with text that no other has; a harmless one has a word for each control token."""
        token = control_token(self.tokenizer)
        token = "w" * len(token) if self.is_harmless else token
        return SHAPES[self.shape](self.size, token, f"s{next(SALTS)}")


SALTS = count()


def control_token(tokenizer: Tokenizer) -> str:
    """Return the control token that messages spell: one that ends turns, where there is one."""
    known = [text for text, token in tokenizer.added.items() if token.control and token.special]
    usual = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "</s>")
    return next((text for text in usual if text in known), known[0])


def make_case(template: Template, tokenizer: Tokenizer, shape: str, size: int) -> Case:
    """Return a case, with the text after the first prompt as its reply.

    Raises:
        TurnwiseError: the template does not take such messages.
    """
    case = Case(template, tokenizer, shape, size)
    conversation = case.make()
    messages, offered = conversation["messages"], conversation.get("tools")
    last = 1 + next(n for n, message in enumerate(messages) if message["role"] == "assistant")
    before = template.render(messages[: last - 1], offered, add_generation_prompt=True).text
    whole = template.render(messages[:last], offered).text
    reply = whole.removeprefix(before)
    return replace(case, reply=reply)


def encode(case: Case) -> object:
    return case.template.encode(**case.make(), tokenizer=case.tokenizer).input_ids


def label(case: Case) -> object:
    return case.template.encode(**case.make(), tokenizer=case.tokenizer).labels


def label_content(case: Case) -> object:
    return case.template.encode(**case.make(), tokenizer=case.tokenizer, train_on="content").labels


def find_owners(case: Case) -> object:
    return case.template.encode(**case.make(), tokenizer=case.tokenizer).owners


def truncate(case: Case, overflow: str = "truncate") -> object:
    """Ask for about half of what there is."""
    try:
        return case.template.encode(
            **case.make(),
            tokenizer=case.tokenizer,
            max_length=max(case.size // 8, 64),
            overflow=overflow,
        ).labels
    except MessageError as error:  # nothing fits
        return error


def drop_rounds(case: Case) -> object:
    return truncate(case, "drop_rounds")


def extend_session(case: Case) -> object:
    conversation = case.make()
    messages = conversation["messages"]
    last = max(n for n, message in enumerate(messages) if message["role"] == "assistant")
    session = case.template.session(case.tokenizer, conversation.get("tools"))
    try:
        session.prompt(messages[:last])
        session.add_reply(case.reply)
        session.extend([{"role": "user", "content": "And then?"}])
    except TurnwiseError as error:  # a template that rewrites history
        return error
    return session.labels


def make_examples(case: Case) -> object:
    found = case.template.examples(**case.make(), tokenizer=case.tokenizer)
    assert all(sample.labels for sample in found)
    return found


def parse(case: Case) -> object:
    return case.template.parse(case.reply, tools=case.make().get("tools"))


def stream(case: Case) -> object:
    parser = case.template.parser(tools=case.make().get("tools"))
    for character in case.reply:
        parser.feed(character)
    return parser.close()


VERBS: dict[str, Callable[[Case], object]] = {
    "encode": encode,
    "labels": label,
    "content labels": label_content,
    "owners": find_owners,
    "truncate": truncate,
    "drop rounds": drop_rounds,
    "session": extend_session,
    "examples": make_examples,
    "parse": parse,
    "stream": stream,
}


def count_characters(case: Case, verb: str, returned: Any) -> int:
    """Return how much a verb had to read, or to write if that may be more."""
    if verb == "examples":
        return sum(len(sample.text) for sample in returned)
    if verb in ("parse", "stream"):
        return case.size + len(case.reply)
    return case.size
