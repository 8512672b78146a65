"""FastChat: a Conversation, given as the dict of its thirteen fields, becomes Jinja.

    {
        "name": "vicuna_v1.1",
        "system_message": "A chat between a curious user and an assistant.",
        "roles": ["USER", "ASSISTANT"],
        "sep_style": "ADD_COLON_TWO",
        "sep": " ",
        "sep2": "</s>",
    }

The system message is the last one given, else the template's own; the other messages are turns; an
open assistant turn is what `add_generation_prompt` writes. Examples (`messages`) are written out as
text. Each separator style is a row of `fastchat_styles.py` (which also lists all files about
FastChat); the Jinja is written by `fastchat_jinja.py`.

A turn whose content is null is open. With `exact`, so is one whose content is empty, separators and
tags go by the parity of a message's number, and the recorded oddities hold: YUAN2 strips characters
from the end, CLLM keeps two messages, GEMMA drops the system message, images go where FastChat puts
them. Without it, separators and tags go by role, an empty message is a message, and the three
styles are mended: only the last `<n>` goes, all messages stay, and the system text leads the first
user turn. If a style begins with a bos token, `bos_token` decides (pass "" if the tokenizer adds
one); `image_placeholder` is written for an image.

Limits: roles other than system, user and assistant are refused, and so are tool calls: the format
has no place for them. Content that FastChat would print as a Python tuple (images in CHATGLM) is
refused with `exact`. FastChat defines the loss for ADD_COLON_TWO only (the answer with the
separator after it); other styles are trained in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from turnwise.dialects.fastchat_jinja import parse_system_template, translate_spec
from turnwise.dialects.fastchat_styles import FastChatSpec, SeparatorStyle
from turnwise.dialects.translation import Translation, copy_source, parse_json_object
from turnwise.errors import SourceError, did_you_mean, short_repr
from turnwise.schema import (
    ANYTHING,
    COUNT,
    NUMBER,
    STRING,
    ValueRule,
    check_table,
    list_of,
    or_null,
)

KEYS = tuple(item.name for item in fields(FastChatSpec))


class InvalidStyle(SourceError, ValueError):
    """A separator style that is none of the 23; FastChat raises a ValueError for it."""


def knows(source: Any) -> bool:
    """Return True for a Conversation: a dict, its JSON, or an object with the fields."""
    if isinstance(source, str):
        return source.lstrip().startswith("{") and '"sep_style"' in source
    if isinstance(source, Mapping):
        return "sep_style" in source and ("roles" in source or "name" in source)
    return hasattr(source, "sep_style") and hasattr(source, "roles")


def read(source: Any, exact: bool = False) -> Translation:
    """Translate a Conversation: a dict, its JSON, or an object with the fields."""
    spec = parse_spec(source)
    facts = spec.to_dict() | {"doubts": _find_doubts(spec)}
    if not isinstance(source, str | Mapping):
        # The object goes on to hold its conversation; a dict or a text is kept by the caller.
        original = copy_source(dict(_get_fields(source)))
        facts["template"] = original | {"sep_style": spec.sep_style.name}
    stops = (spec.stop_str,) if isinstance(spec.stop_str, str) else tuple(spec.stop_str or ())
    return Translation(
        jinja=translate_spec(spec, exact),
        stops=stops,
        stop_ids=tuple(spec.stop_token_ids or ()),
        facts=facts,
    )


# -- checking --------------------------------------------------------------------------------------


def _is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2


def _is_content(value: Any) -> bool:
    """A text, null for an open turn, or a text with its images."""
    if value is None or isinstance(value, str):
        return True
    return _is_pair(value) and isinstance(value[0], str) and isinstance(value[1], list | tuple)


def _is_message(value: Any) -> bool:
    return _is_pair(value) and isinstance(value[0], str) and _is_content(value[1])


def _is_stop(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(isinstance(stop, str) for stop in value)
    return value is None or isinstance(value, str)


def _are_roles(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) >= 2


MESSAGE_RULE = ValueRule("[role, text], [role, [text, images]] or [role, null]", _is_message)
RULES = {
    "name": STRING,
    "system_template": STRING,
    "system_message": STRING,
    "system_message_vision": STRING,
    "roles": ValueRule("a list of two strings or more", _are_roles, item=STRING),
    "messages": or_null(list_of(MESSAGE_RULE, "a list of messages")),
    "offset": COUNT,
    "sep_style": ANYTHING,  # checked by `_parse_style`
    "sep": or_null(STRING),
    "sep2": or_null(STRING),
    "stop_str": ValueRule("a string, a list of strings, or null", _is_stop),
    "stop_token_ids": or_null(list_of(COUNT, "a list of token ids")),
    "max_image_size_mb": or_null(NUMBER),
}


def parse_spec(source: Any) -> FastChatSpec:
    """Check the fields of a Conversation.

    Raises:
        SourceError: names the field, what it holds and what is accepted.
    """
    if isinstance(source, FastChatSpec):
        return source
    given = check_table(_get_fields(source), RULES, required=["name"])
    given["sep_style"] = _parse_style(given.get("sep_style", FastChatSpec("").sep_style))
    if "roles" in given:
        given["roles"] = tuple(given["roles"])
    given["messages"] = tuple(tuple(message) for message in given.get("messages") or ())
    spec = FastChatSpec(**given)
    for key in spec.style.required:
        if getattr(spec, key) is None:
            problem = f"the style {spec.sep_style.name} needs {key}, which is null"
            raise SourceError(problem, hint=f"Set {key} to a string.")
    parse_system_template(spec)  # raises if it is malformed
    return spec


def _get_fields(source: Any) -> Mapping[Any, Any]:
    if isinstance(source, str):
        return parse_json_object(source, "a FastChat template")
    if isinstance(source, Mapping):
        return source
    given = {key: getattr(source, key) for key in KEYS if hasattr(source, key)}
    if "sep_style" not in given:
        hint = f"It has the fields {', '.join(KEYS)}."
        raise SourceError(f"not a FastChat template: {short_repr(source)}", hint=hint)
    return given


def _parse_style(value: Any) -> SeparatorStyle:
    """Return a separator style by its name, its number, or a member of another enumeration."""
    names = SeparatorStyle.__members__
    key = getattr(value, "name", value)
    if isinstance(key, str) and key in names:
        return names[key]
    if isinstance(key, int) and not isinstance(key, bool) and 1 <= key <= len(names):
        return SeparatorStyle(key)
    hint = did_you_mean(key if isinstance(key, str) else "", names, "sep_style is one of")
    raise InvalidStyle(f"Invalid style: {short_repr(key)}", hint=hint)


def _find_doubts(spec: FastChatSpec) -> tuple[str, ...]:
    """List what looks wrong although it can be read."""
    if spec.sep_style is not SeparatorStyle.CHATML or spec.sep_text != "<|im_end|>":
        return ()
    openers = {"roles[0]": spec.roles[0], "roles[1]": spec.roles[1]}
    if spec.system_message:
        openers["system_template"] = spec.system_template
    return tuple(
        f"{key} does not write <|im_start|>, which <|im_end|> closes"
        for key, text in openers.items()
        if "<|im_start|>" not in text
    )
