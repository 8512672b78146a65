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
    fill_marks,
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

CHAT = """\
{%- macro text(content) %}{%- if content is string %}{{- content }}\
{%- else %}{%- for part in content %}{%- if part.type == 'text' %}{{- part.text }}{%- endif %}{%- endfor %}\
{%- endif %}{%- endmacro %}
@tools@
@no_system@
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {{- @system@ }}
    {%- elif message.role == 'developer' %}
        {{- @developer@ }}
    {%- elif message.role == 'user' %}
        {{- @user@ }}
    {%- elif message.role == 'tool' %}
        {{- @result@ }}
    {%- elif message.role == 'assistant' %}
        {%- set said %}{{- text(message.content) }}{%- for call in message.tool_calls or [] %}
            {%- if message.content or not loop.first %}{{- '\\n' }}{%- endif %}
            {{- '<tool_call>\\n{"name": ' + call.function.name | tojson + ', "arguments": ' + \
(call.function.arguments if call.function.arguments is string else @arguments@) + '}\\n</tool_call>' }}
        {%- endfor %}{%- endset %}
        {%- set thought %}{%- if loop.last and message.thinking is defined and message.thinking is not none %}\
{{- @thinking@ }}{%- endif %}{%- endset %}
        {%- if @is_trained@ %}
            {%- generation %}{{- thought }}{{- @trained@ }}{%- endgeneration %}
        {%- else %}
            {{- thought }}{{- @assistant@ }}
        {%- endif %}
@separator@
    {%- elif message.role == 'pretrain' %}
        {%- generation %}{{- text(message.content) }}{%- endgeneration %}
    {%- else %}
        {{- raise_exception('this template does not know the role ' ~ message.role) }}
    {%- endif %}
{%- endfor %}"""
TOOLS = """\
{%- set listed %}{%- for tool in tools or [] %}{{- '\\n' }}{{- (tool if tool.type == 'function' else\
 {'type': 'function', 'function': tool}) | tojson }}{%- endfor %}{%- endset %}
{%- set offer = @tool_prompt@ if tools else '' %}"""
NO_TOOLS = (
    "{%- if tools %}{{- raise_exception('this template has no tool_prompt text') }}{%- endif %}"
)
NO_SYSTEM = (
    "{%- if messages and messages[0].role != 'system'@has_offer@ %}{{- @default@ }}{%- endif %}"
)
IS_TRAINED = "message.loss is not defined or message.loss is none or message.loss"
IS_LAST_TRAINED = f"({IS_TRAINED}) and (loop.last or messages[-1].role != 'assistant')"


def knows(source: Any) -> bool:
    """Return True for a mapping with texts for user and assistant, and stop words."""
    source = object_in(source)
    return isinstance(source, Mapping) and {"stop_words", "user", "assistant"} <= set(source)


def read(source: Any, exact: bool = False) -> Translation:
    """Translate the mapping, or its JSON, to Jinja."""
    mapping = to_mapping(source, "an XTuner v1 template")
    fields = check_table(mapping, RULES, required=["user", "assistant"], skip_nulls=True)
    return Translation(
        _write_jinja(fields, exact),
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


def _write_jinja(fields: Fields, exact: bool) -> str:
    has_tools = "tool_prompt" in fields
    default = tool_prompt = ""
    if "default_system" in fields:
        default = _write_default_system(fields["default_system"])
    if has_tools:
        text = _parse_text(fields, "tool_prompt", "tool_text")
        tool_prompt = concatenate(text, {"tool_text": "listed"})
    separator = ""
    if fields.get("sep"):
        separator = "        {{- @sep@ }}"
        if not exact:
            separator = "        {%- if not loop.last or trailing_sep %}{{- @sep@ }}{%- endif %}"
    blocks = {
        "tools": TOOLS if has_tools else NO_TOOLS,
        "no_system": NO_SYSTEM if has_tools or default else "",
        "has_offer": "" if default else " and tools",
        "separator": separator,
        "is_trained": IS_LAST_TRAINED if fields.get("only_last_assistant_loss") else IS_TRAINED,
    }
    refusal = "raise_exception('arguments must be JSON text')"
    content = "text(message.content)"
    offer = " + (offer if loop.first else '')" if has_tools else ""
    parts = {
        "tool_prompt": tool_prompt,
        "default": _wrap(
            fields, "system", " + ".join(filter(None, (default, "offer" if has_tools else "")))
        ),
        "system": _wrap(fields, "system", content + offer),
        "developer": _wrap(fields, "developer", content),
        "user": _wrap(fields, "user", content),
        "result": _wrap(fields, "tool_extractor", content),
        "arguments": refusal if exact else "call.function.arguments | tojson",
        "thinking": _wrap(fields, "thinking", "message.thinking"),
        "trained": _write_trained_text(fields, exact),
        "assistant": _wrap(fields, "assistant", "said"),
        "sep": literal(fields.get("sep", "")),
    }
    return fill_marks(CHAT, parts, blocks)


def _write_default_system(text: str) -> str:
    """Return an expression for the default system text; `{date}` is the date, which XTuner computes."""
    first, *rest = text.split("{date}")
    check_slots(len(rest), "default_system")
    parts: list[str | Slot] = [first]
    for piece in rest:
        parts += [Slot("date"), piece]
    return concatenate(tuple(part for part in parts if part), {"date": "strftime_now('%Y-%m-%d')"})


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
