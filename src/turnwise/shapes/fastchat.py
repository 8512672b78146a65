"""FastChat's `[[role, text], ...]`, bare or in the mapping that its `Conversation.dict()` gives.

A role is called what its template calls it. With `roles` that is known; without, the usual names are, whatever their
case and punctuation. Written is always the mapping, with FastChat's default names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.errors import MessageError, did_you_mean, short_repr
from turnwise.shapes.row import (
    Conversation,
    Row,
    beside,
    is_list,
    kind_of,
    made,
    maybe,
    plain_text,
    role_name,
    said,
    system_first,
    turns_of,
)

NAMES = {
    **dict.fromkeys(
        ("user", "human", "imstartuser", "gpt4correctuser", "instruction", "prompter", "问"), "user"
    ),
    **dict.fromkeys(
        ("assistant", "gpt", "imstartassistant", "gpt4correctassistant", "response", "答"),
        "assistant",
    ),
    **dict.fromkeys(("model", "bot", "ai"), "assistant"),
    **dict.fromkeys(("system", "imstartsystem"), "system"),
}
ROLES = ("USER", "ASSISTANT")


def knows(row: Any) -> bool:
    """One name of a role is enough: a wrong name beside it should be an error, not a question of PaddleNLP's."""
    if not is_list(row):
        return kind_of(row) == "fastchat"
    return any(is_list(pair) and len(pair) == 2 and _is_name(pair[0]) for pair in row)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) < 40 and _letters(value) in NAMES


def read(row: Any) -> Conversation:
    """Pairs of a role's name and a text, bare or in the mapping that `Conversation.dict()` gives."""
    column, pairs = (
        ("messages", row) if is_list(row) else turns_of(row, "fastchat", "FastChat data")
    )
    whole: Mapping[str, Any] = {} if is_list(row) else row
    roles = whole.get("roles") or ()
    if not is_list(roles) or not all(isinstance(name, str) for name in roles) or len(roles) == 1:
        raise MessageError(
            f"are the names of the user and the assistant, not {short_repr(roles)}", path="roles"
        )
    system, options = maybe(whole, "system_message"), {}
    messages = [said("system", system)] if system else []
    for index, pair in enumerate(pairs):
        if not is_list(pair) or len(pair) != 2 or not isinstance(pair[0], str):
            raise MessageError(
                f"is [role, text], not {short_repr(pair)}", path=f"{column}[{index}]"
            )
        role = _role(pair[0], index, roles, column)
        if pair[1] is None and role == "assistant" and index == len(pairs) - 1:
            options["add_generation_prompt"] = True  # a turn that is still to be written
        else:
            messages.append(said(role, _content(pair[1], f"{column}[{index}][1]")))
    return made("fastchat", whole, (column, "roles", "system_message"), messages, options)


def _role(name: str, index: int, roles: Sequence[str], column: str) -> str:
    if name in roles[:2]:
        # some templates call both of them the same
        number = index % 2 if roles[0] == roles[1] else roles.index(name)
        return ("user", "assistant")[number]
    role = NAMES.get(_letters(name))
    if role is None:
        hint = did_you_mean(_letters(name), NAMES, "Known without `roles`")
        pairs = " For PaddleNLP's rounds: shape='paddlenlp'." if not roles else ""
        raise MessageError(
            f"nobody is called {short_repr(name)}",
            path=f"{column}[{index}][0]",
            hint=f"{hint}{pairs}",
        )
    return role


def _letters(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


def _content(value: Any, path: str) -> Any:
    if isinstance(value, str):
        return value
    pair = is_list(value) and len(value) == 2 and isinstance(value[0], str) and is_list(value[1])
    if not pair or not all(isinstance(image, str) for image in value[1]):
        hint = "null stands for the assistant's last text only." if value is None else None
        raise MessageError(
            f"is text or (text, [address of an image]), not {short_repr(value)}",
            path=path,
            hint=hint,
        )
    images = [{"type": "image_url", "image_url": {"url": image}} for image in value[1]]
    return [{"type": "text", "text": value[0]}, *images]


def write(conversation: Conversation) -> Row:
    system, messages = system_first(conversation.messages)
    row = beside(conversation)
    names = dict(zip(("user", "assistant"), ROLES, strict=True))
    pairs: list[list[Any]] = [
        [role_name(message, index, "fastchat", names), _with_images(message, index)]
        for index, message in enumerate(messages, 1 if system else 0)
    ]
    if row.get("add_generation_prompt") is True:
        pairs.append([ROLES[1], None])
        del row["add_generation_prompt"]
    return {**row, "system_message": system, "roles": list(ROLES), "messages": pairs}


def _with_images(message: Row, index: int) -> Any:
    """Text, or `[text, images]` for parts that are one text and then images."""
    content = message.get("content")
    if (
        not isinstance(content, list)
        or not content
        or not all(isinstance(part, Mapping) for part in content)
    ):
        return plain_text(message, index, "fastchat")
    images = [part.get("image_url") for part in content[1:]]
    urls = [image.get("url") if isinstance(image, Mapping) else None for image in images]
    if not isinstance(content[0].get("text"), str) or not all(isinstance(url, str) for url in urls):
        problem = "fastchat data has one text, then addresses of images"
        raise MessageError(problem, path=f"messages[{index}].content")
    return [content[0]["text"], urls]
