"""FastChat's `[[role, text], ...]`, bare or in the mapping that its `Conversation.dict()` returns.

Role names depend on the template. The mapping gives them as `roles`; otherwise the usual names are known, in any case
and with any punctuation. Rows are always written as a mapping, with FastChat's default names.

All files about FastChat are listed in `dialects/fastchat_styles.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.errors import MessageError, did_you_mean, short_repr
from turnwise.messages import JsonMapping
from turnwise.shapes.row import (
    ParsedRow,
    Row,
    build_row,
    extra_columns,
    find_turns,
    guess_turn_shape,
    is_list,
    make_message,
    optional_text,
    require_text_content,
    split_system,
    translate_role,
)

USER_NAMES = ("user", "human", "imstartuser", "gpt4correctuser", "instruction", "prompter", "问")
ASSISTANT_NAMES = (
    *("assistant", "gpt", "imstartassistant", "gpt4correctassistant", "response", "答"),
    *("model", "bot", "ai"),
)
KNOWN_ROLES = {
    **dict.fromkeys(USER_NAMES, "user"),
    **dict.fromkeys(ASSISTANT_NAMES, "assistant"),
    **dict.fromkeys(("system", "imstartsystem"), "system"),
}
DEFAULT_NAMES = {"user": "USER", "assistant": "ASSISTANT"}
MAX_ROLE_LENGTH = 40


def is_fastchat_row(row: Any) -> bool:
    """Return True if a pair begins with a known role; a wrong role beside it is then an error, not a question."""
    if not is_list(row):
        return guess_turn_shape(row) == "fastchat"
    return any(is_list(pair) and len(pair) == 2 and _is_role_name(pair[0]) for pair in row)


def _is_role_name(value: Any) -> bool:
    if not isinstance(value, str) or len(value) >= MAX_ROLE_LENGTH:
        return False
    return _letters(value) in KNOWN_ROLES


def _letters(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


def read(row: Any) -> ParsedRow:
    """Read pairs of a role's name and a text, bare or in a mapping."""
    columns: JsonMapping = {} if is_list(row) else row
    if is_list(row):
        column, pairs = "messages", row
    else:
        column, pairs = find_turns(row, "fastchat", "FastChat data")
    roles = _read_roles(columns)
    messages = []
    options = {}
    if system := optional_text(columns, "system_message"):
        messages.append(make_message("system", system))
    for index, pair in enumerate(pairs):
        path = f"{column}[{index}]"
        if not is_list(pair) or len(pair) != 2 or not isinstance(pair[0], str):
            raise MessageError(f"must be [role, text], not {short_repr(pair)}", path=path)
        name, content = pair
        role = _read_role(name, index, roles, f"{path}[0]")
        is_last = index == len(pairs) - 1
        if content is None and role == "assistant" and is_last:
            options["add_generation_prompt"] = True  # FastChat's open turn
        else:
            messages.append(make_message(role, _read_content(content, f"{path}[1]")))
    return build_row("fastchat", columns, (column, "roles", "system_message"), messages, options)


def _read_roles(columns: JsonMapping) -> Sequence[str]:
    roles: Sequence[str] = columns.get("roles") or ()
    are_texts = is_list(roles) and all(isinstance(name, str) for name in roles)
    if not are_texts or len(roles) == 1:
        raise MessageError(
            f"must be the names of the user and the assistant, not {short_repr(roles)}",
            path="roles",
        )
    return roles


def _read_role(name: str, index: int, roles: Sequence[str], path: str) -> str:
    if name in roles[:2]:
        # Some templates have one name for both; then the turns alternate.
        number = index % 2 if roles[0] == roles[1] else roles.index(name)
        return "assistant" if number else "user"
    role = KNOWN_ROLES.get(_letters(name))
    if role is None:
        hint = did_you_mean(_letters(name), KNOWN_ROLES, "Known without `roles`") or ""
        if not roles:
            hint += " For PaddleNLP's rounds: shape='paddlenlp'."
        raise MessageError(f"unknown role {short_repr(name)}", path=path, hint=hint)
    return role


def _read_content(value: Any, path: str) -> Any:
    if isinstance(value, str):
        return value
    is_pair = is_list(value) and len(value) == 2
    if not is_pair or not isinstance(value[0], str) or not _are_texts(value[1]):
        hint = "null is accepted for the assistant's last text only." if value is None else None
        raise MessageError(
            f"must be text or (text, [address of an image]), not {short_repr(value)}",
            path=path,
            hint=hint,
        )
    images = [{"type": "image_url", "image_url": {"url": image}} for image in value[1]]
    return [{"type": "text", "text": value[0]}, *images]


def _are_texts(values: Any) -> bool:
    return is_list(values) and all(isinstance(value, str) for value in values)


def write(row: ParsedRow) -> Row:
    """Write a mapping with FastChat's default role names."""
    system, messages = split_system(row.messages)
    columns = extra_columns(row)
    pairs: list[list[Any]] = []
    for index, message in enumerate(messages, len(row.messages) - len(messages)):
        name = translate_role(message, index, "fastchat", DEFAULT_NAMES)
        pairs.append([name, _write_content(message, index)])
    if columns.get("add_generation_prompt") is True:
        pairs.append([DEFAULT_NAMES["assistant"], None])
        del columns["add_generation_prompt"]
    columns |= {"system_message": system, "roles": list(DEFAULT_NAMES.values()), "messages": pairs}
    return columns


def _write_content(message: Row, index: int) -> Any:
    """Return text, or `[text, images]` for parts that are one text and then images."""
    parts = message.get("content")
    if not isinstance(parts, list) or not parts or not all(isinstance(p, Mapping) for p in parts):
        return require_text_content(message, index, "fastchat")
    text = parts[0].get("text")
    urls = [_image_url(part) for part in parts[1:]]
    if not isinstance(text, str) or not _are_texts(urls):
        raise MessageError(
            "fastchat data has one text, then addresses of images",
            path=f"messages[{index}].content",
        )
    return [text, urls]


def _image_url(part: JsonMapping) -> Any:
    image = part.get("image_url")
    return image.get("url") if isinstance(image, Mapping) else None
