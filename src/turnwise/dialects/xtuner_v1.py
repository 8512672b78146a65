r"""The templates of XTuner's rewrite (v1): one text per role, with tools and reasoning.

    {
        "system": "<|im_start|>system\n{system}<|im_end|>\n",
        "user": "<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n",
        "assistant": "{assistant}<|im_end|>",
        "sep": "\n",
        "stop_words": ["<|im_end|>"],
    }

`system`, `developer`, `user`, `assistant`, `thinking` and `tool_extractor` wrap a message; `user`
and `tool_extractor` end with the generation prompt, so a prompt is the same with and without
`add_generation_prompt`. `tool_prompt` is appended to the system text. The whole assistant message
without `sep` is trained; with `only_last_assistant_loss`, if the conversation ends with a reply,
only that one. `loss_assistant_format_mapping` changes the text of replies that are trained.

By default `sep` is not written after the last message (`trailing_sep=True` adds it), the mapping
changes the template's own text and not the reply's, and arguments of tool calls may be objects.
With `exact`: `sep` after every reply, the mapping applied to the reply too, arguments only as JSON
text. Both refuse tools without a `tool_prompt`, and reasoning without `thinking`. JSON arguments
are written as they are; XTuner parses and serialises them again, which differs where they are
spaced otherwise. Images and videos are dropped, as in XTuner.

This dialect can be read, not written. The older dicts are in `xtuner.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwise.dialects.translation import Translation, object_in, to_mapping
from turnwise.dialects.turns import (
    Slot,
    Text,
    check_slots,
    concatenate,
    literal,
    parse_format_string,
)
from turnwise.errors import SourceError, short_repr
from turnwise.schema import ANYTHING, BOOLEAN, STRING, STRINGS, ValueRule, check_table

STRING_KEYS = (
    "system",
    "developer",
    "user",
    "assistant",
    "thinking",
    "tool_extractor",
    "tool_prompt",
    "sep",
    "default_system",
    "image_context_token",
    "video_context_token",
    "image_start_token",
    "image_end_token",
)


def _maps_strings(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(text, str) for text in (*value.keys(), *value.values())
    )


RULES = {
    **dict.fromkeys(STRING_KEYS, STRING),
    "stop_words": STRINGS,
    "only_last_assistant_loss": BOOLEAN,
    "loss_assistant_format_mapping": ValueRule("a mapping of strings to strings", _maps_strings),
    "image_token_index": ANYTHING,
}
KEYS = tuple(RULES)
MAX_TRAINED_TEXT = 100_000  # characters

Fields = Mapping[str, Any]

TEXT_MACRO = (
    "{%- macro text(content) %}{%- if content is string %}{{- content }}"
    "{%- else %}{%- for part in content %}{%- if part.type == 'text' %}{{- part.text }}{%- endif %}{%- endfor %}"
    "{%- endif %}{%- endmacro %}"
)
TOOL_LIST = (
    "{%- set listed %}{%- for tool in tools or [] %}{{- '\\n' }}{{- (tool if tool.type == 'function' else"
    " {'type': 'function', 'function': tool}) | tojson }}{%- endfor %}{%- endset %}"
)
NO_TOOLS = (
    "{%- if tools %}{{- raise_exception('this template has no tool_prompt text') }}{%- endif %}"
)


def knows(source: Any) -> bool:
    """Return True for a mapping with texts for user and assistant, and stop words."""
    source = object_in(source)
    return isinstance(source, Mapping) and {"stop_words", "user", "assistant"} <= set(source)


def read(source: Any, exact: bool = False) -> Translation:
    """Translate the mapping, or its JSON, to Jinja."""
    mapping = to_mapping(source, "an XTuner v1 template")
    fields = check_table(mapping, RULES, required=["user", "assistant"], skip_nulls=True)
    return Translation(
        "\n".join(_write_lines(fields, exact)),
        stops=tuple(fields.get("stop_words", ())),
        facts={"template": dict(mapping)},
    )


def _wrap(fields: Fields, key: str, text: str) -> str:
    """Return an expression for the text of `key` around `text`; it refuses if there is no such key."""
    if key not in fields:
        return f"raise_exception({literal(f'this template has no {key} text')})"
    return concatenate(_parse_text(fields, key, key), {key: text})


def _parse_text(fields: Fields, key: str, slot: str) -> Text:
    parts = parse_format_string(fields[key], (slot,), key)
    if Slot(slot) not in parts:
        raise SourceError(f"{key} has no {{{slot}}}, in {short_repr(fields[key])}")
    return parts


def _write_lines(fields: Fields, exact: bool) -> list[str]:
    start, system_addition = _write_system_start(fields)
    separator = []
    if fields.get("sep"):
        written = f"{{{{- {literal(fields['sep'])} }}}}"
        if not exact:
            written = f"{{%- if not loop.last or trailing_sep %}}{written}{{%- endif %}}"
        separator = [f"        {written}"]
    return [
        TEXT_MACRO,
        *start,
        "{%- for message in messages %}",
        "    {%- if message.role == 'system' %}",
        f"        {{{{- {_wrap(fields, 'system', f'text(message.content){system_addition}')} }}}}",
        "    {%- elif message.role == 'developer' %}",
        f"        {{{{- {_wrap(fields, 'developer', 'text(message.content)')} }}}}",
        "    {%- elif message.role == 'user' %}",
        f"        {{{{- {_wrap(fields, 'user', 'text(message.content)')} }}}}",
        "    {%- elif message.role == 'tool' %}",
        f"        {{{{- {_wrap(fields, 'tool_extractor', 'text(message.content)')} }}}}",
        "    {%- elif message.role == 'assistant' %}",
        *_write_reply(fields, exact),
        *separator,
        "    {%- elif message.role == 'pretrain' %}",
        "        {%- generation %}{{- text(message.content) }}{%- endgeneration %}",
        "    {%- else %}",
        "        {{- raise_exception('this template does not know the role ' ~ message.role) }}",
        "    {%- endif %}",
        "{%- endfor %}",
    ]


def _write_system_start(fields: Fields) -> tuple[list[str], str]:
    """Return the lines for a conversation without a system message.

    The second value is what is added to the text of a system message.
    """
    default = None
    if "default_system" in fields:
        default = _write_default_system(fields["default_system"])
    no_system = "{%- if messages and messages[0].role != 'system'"
    if "tool_prompt" in fields:
        prompt = concatenate(
            _parse_text(fields, "tool_prompt", "tool_text"), {"tool_text": "listed"}
        )
        text, condition = "offer", " and tools"
        if default:
            text, condition = f"{default} + offer", ""
        lines = [
            TOOL_LIST,
            f"{{%- set offer = {prompt} if tools else '' %}}",
            f"{no_system}{condition} %}}{{{{- {_wrap(fields, 'system', text)} }}}}{{%- endif %}}",
        ]
        return lines, " + (offer if loop.first else '')"
    lines = [NO_TOOLS]
    if default:
        lines.append(f"{no_system} %}}{{{{- {_wrap(fields, 'system', default)} }}}}{{%- endif %}}")
    return lines, ""


def _write_default_system(text: str) -> str:
    """Return an expression for the default system text; `{date}` is the date, which XTuner computes."""
    first, *rest = text.split("{date}")
    check_slots(len(rest), "default_system")
    parts: list[str | Slot] = [first]
    for piece in rest:
        parts += [Slot("date"), piece]
    return concatenate(tuple(part for part in parts if part), {"date": "strftime_now('%Y-%m-%d')"})


def _write_reply(fields: Fields, exact: bool) -> list[str]:
    is_trained = "message.loss is not defined or message.loss is none or message.loss"
    if fields.get("only_last_assistant_loss"):
        is_last = "loop.last or messages[-1].role != 'assistant'"
        is_trained = f"({is_trained}) and ({is_last})"
    arguments = "call.function.arguments"
    otherwise = f"{arguments} | tojson"
    if exact:
        otherwise = "raise_exception('arguments must be JSON text')"
    return [
        "        {%- set said %}{{- text(message.content) }}{%- for call in message.tool_calls or [] %}",
        "            {%- if message.content or not loop.first %}{{- '\\n' }}{%- endif %}",
        "            {{- '<tool_call>\\n{\"name\": ' + call.function.name | tojson + ', \"arguments\": ' + "
        f"({arguments} if {arguments} is string else {otherwise}) + '}}\\n</tool_call>' }}}}",
        "        {%- endfor %}{%- endset %}",
        "        {%- set thought %}{%- if loop.last and message.thinking is defined and message.thinking is not none %}"
        f"{{{{- {_wrap(fields, 'thinking', 'message.thinking')} }}}}{{%- endif %}}{{%- endset %}}",
        f"        {{%- if {is_trained} %}}",
        "            {%- generation %}{{- thought }}"
        f"{{{{- {_write_trained_text(fields, exact)} }}}}{{%- endgeneration %}}",
        "        {%- else %}",
        f"            {{{{- thought }}}}{{{{- {_wrap(fields, 'assistant', 'said')} }}}}",
        "        {%- endif %}",
    ]


def _replace(text: str, old: str, new: str) -> str:
    """Replace a text; each replacement may double what the one before has written, so the size is limited."""
    if len(text) + text.count(old) * (len(new) - len(old)) > MAX_TRAINED_TEXT:
        problem = "loss_assistant_format_mapping makes more than"
        raise SourceError(f"{problem} {MAX_TRAINED_TEXT:,} characters of the assistant's text")
    return text.replace(old, new)


def _write_trained_text(fields: Fields, exact: bool) -> str:
    """Return an expression for an assistant's text that is trained."""
    replacements: Mapping[str, str] = fields.get("loss_assistant_format_mapping", {})
    check_slots(len(replacements), "loss_assistant_format_mapping", "replacements")
    if exact and replacements:
        rules = [f" | replace({literal(a)}, {literal(b)})" for a, b in replacements.items()]
        return f"({_wrap(fields, 'assistant', 'said')}){''.join(rules)}"
    text = fields["assistant"]
    for old, new in replacements.items():
        text = _replace(text, old, new)
    return _wrap({"assistant": text}, "assistant", "said")
