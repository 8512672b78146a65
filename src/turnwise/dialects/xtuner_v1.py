"""The templates of XTuner's rewrite (v1): one text per role, with tools and thinking.

`system`, `developer`, `user`, `assistant`, `thinking` and `tool_extractor` wrap a message; `user` and
`tool_extractor` end with the assistant's opening, so a prompt is written the same with and without
`add_generation_prompt`. `tool_prompt` is put behind the system text. What the model learns is the whole assistant
message without `sep`; where `only_last_assistant_loss` is set and the conversation ends with a reply, only that one.
`loss_assistant_format_mapping` changes the text of replies that are learnt.

By default `sep` is not written after the last message (`trailing_sep=True` adds it), the mapping touches the
template's own text and not the reply's, and arguments of calls may be objects. With `exact`: `sep` after every reply,
the mapping applied to the reply too, arguments only as JSON text. Both refuse tools where there is no `tool_prompt`,
and thinking where there is no `thinking`. JSON arguments are written as they are spelled; XTuner parses and spells
them anew, which differs where they are spaced otherwise. Images and videos are dropped, as XTuner does at this point.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwise.dialects.translation import Translation, object_in, parse_json_object
from turnwise.dialects.turns import Slot, Text, literal, sum_of, with_slots
from turnwise.errors import SourceError, did_you_mean, short_repr

WRAPS = ("system", "developer", "user", "assistant", "thinking", "tool_extractor")
SWITCHES = ("only_last_assistant_loss",)
PLAIN = (
    "sep",
    "default_system",
    "image_context_token",
    "video_context_token",
    "image_start_token",
    "image_end_token",
)
KEYS = (
    *WRAPS,
    "tool_prompt",
    "stop_words",
    *SWITCHES,
    "loss_assistant_format_mapping",
    *PLAIN,
    "image_token_index",
)

TEXT = (
    "{%- macro text(content) %}{%- if content is string %}{{- content }}"
    "{%- else %}{%- for part in content %}{%- if part.type == 'text' %}{{- part.text }}{%- endif %}{%- endfor %}"
    "{%- endif %}{%- endmacro %}"
)


def knows(source: Any) -> bool:
    source = object_in(source)
    return (
        isinstance(source, Mapping)
        and "stop_words" in source
        and {"user", "assistant"} <= set(source)
    )


def read(source: Any, exact: bool = False) -> Translation:
    """The mapping as Jinja."""
    source = (
        parse_json_object(source, "an XTuner v1 template") if isinstance(source, str) else source
    )
    given = checked(source)
    for role in ("user", "assistant"):
        if role not in given:
            raise SourceError(
                f"the key {role!r} is missing: without it no conversation can be written"
            )
    facts = {"template": dict(source)}
    return Translation(
        "\n".join(lines(given, exact)), stops=tuple(given.get("stop_words", ())), facts=facts
    )


def write(source: Translation) -> dict[str, Any]:
    """The mapping that was read."""
    return dict(source.facts["template"])


def checked(source: Any) -> dict[str, Any]:
    if not isinstance(source, Mapping):
        raise SourceError(f"an XTuner v1 template is a mapping, not {short_repr(source)}")
    given = {key: value for key, value in source.items() if value is not None}
    for key, value in given.items():
        if key not in KEYS:
            raise SourceError(
                f"unknown key {short_repr(key)}", hint=did_you_mean(str(key), KEYS, "Keys")
            )
        if key in (*WRAPS, *PLAIN, "tool_prompt") and not isinstance(value, str):
            raise SourceError(f"{key} is a text, not {short_repr(value)}")
        if key in SWITCHES and not isinstance(value, bool):
            raise SourceError(f"{key} is true or false, not {short_repr(value)}")
        if key == "stop_words" and not (
            isinstance(value, list | tuple) and all(isinstance(word, str) for word in value)
        ):
            raise SourceError(f"stop_words is a list of texts, not {short_repr(value)}")
        if key == "loss_assistant_format_mapping" and not isinstance(value, Mapping):
            raise SourceError(f"{key} is a mapping of text to text, not {short_repr(value)}")
    return given


def wrap(given: Mapping[str, Any], key: str, text: str, slot: str | None = None) -> str:
    """An expression for this key's text around `text`; without the key, one that refuses."""
    slot = slot or key
    if key not in given:
        return f"raise_exception({literal(f'this template has no {key} text')})"
    return sum_of(held(given[key], slot, key), {slot: text})


def held(template: str, slot: str, key: str) -> Text:
    found = with_slots(template, (slot,), key)
    if Slot(slot) not in found:
        raise SourceError(f"{key} has no {{{slot}}}, in {short_repr(template)}")
    return found


def lines(given: Mapping[str, Any], exact: bool) -> list[str]:
    start, addition = system_start(given)
    sep = literal(given.get("sep", "")) if given.get("sep") else None
    after = (
        f"{{{{- {sep} }}}}"
        if exact
        else f"{{%- if not loop.last or trailing_sep %}}{{{{- {sep} }}}}{{%- endif %}}"
    )
    return [
        TEXT,
        *start,
        "{%- for message in messages %}",
        "    {%- if message.role == 'system' %}",
        f"        {{{{- {wrap(given, 'system', f'text(message.content){addition}')} }}}}",
        "    {%- elif message.role == 'developer' %}",
        f"        {{{{- {wrap(given, 'developer', 'text(message.content)')} }}}}",
        "    {%- elif message.role == 'user' %}",
        f"        {{{{- {wrap(given, 'user', 'text(message.content)')} }}}}",
        "    {%- elif message.role == 'tool' %}",
        f"        {{{{- {wrap(given, 'tool_extractor', 'text(message.content)')} }}}}",
        "    {%- elif message.role == 'assistant' %}",
        *reply(given, exact),
        *([f"        {after}"] if sep else []),
        "    {%- elif message.role == 'pretrain' %}",
        "        {%- generation %}{{- text(message.content) }}{%- endgeneration %}",
        "    {%- else %}",
        "        {{- raise_exception('this template does not know the role ' ~ message.role) }}",
        "    {%- endif %}",
        "{%- endfor %}",
    ]


def system_start(given: Mapping[str, Any]) -> tuple[list[str], str]:
    """The lines for a conversation without a system message, and what is added to the text of one that has it."""
    found: list[str] = []
    default = dated(given["default_system"]) if "default_system" in given else None
    missing = "{%- if messages and messages[0].role != 'system'"
    if "tool_prompt" in given:
        prompt = sum_of(
            held(given["tool_prompt"], "tool_text", "tool_prompt"), {"tool_text": "listed"}
        )
        found += [
            "{%- set listed %}{%- for tool in tools or [] %}{{- '\\n' }}{{- (tool if tool.type == 'function' else"
            " {'type': 'function', 'function': tool}) | tojson }}{%- endfor %}{%- endset %}",
            f"{{%- set offer = {prompt} if tools else '' %}}",
        ]
        text, condition = (f"{default} + offer", "") if default else ("offer", " and tools")
        found.append(
            f"{missing}{condition} %}}{{{{- {wrap(given, 'system', text)} }}}}{{%- endif %}}"
        )
        return found, " + (offer if loop.first else '')"
    found.append(
        "{%- if tools %}{{- raise_exception('this template has no tool_prompt text') }}{%- endif %}"
    )
    if default:
        found.append(f"{missing} %}}{{{{- {wrap(given, 'system', default)} }}}}{{%- endif %}}")
    return found, ""


def dated(text: str) -> str:
    """The default system text; XTuner computes the date in it, which our data file writes as `{date}`."""
    parts = [part for piece in text.split("{date}") for part in (piece, Slot("date"))][:-1]
    return sum_of(tuple(part for part in parts if part), {"date": "strftime_now('%Y-%m-%d')"})


def reply(given: Mapping[str, Any], exact: bool) -> list[str]:
    loud = "message.loss is not defined or message.loss is none or message.loss"
    last = "loop.last or messages[-1].role != 'assistant'"
    learnt = f"({loud}) and ({last})" if given.get("only_last_assistant_loss") else loud
    arguments = "call.function.arguments"
    if exact:
        spelled = f"{arguments} if {arguments} is string else raise_exception('arguments must be JSON text')"
    else:
        spelled = f"{arguments} if {arguments} is string else {arguments} | tojson"
    changed = dict(given.get("loss_assistant_format_mapping", {}))
    return [
        "        {%- set said %}{{- text(message.content) }}{%- for call in message.tool_calls or [] %}",
        "            {%- if message.content or not loop.first %}{{- '\\n' }}{%- endif %}",
        "            {{- '<tool_call>\\n{\"name\": ' + call.function.name | tojson + ', \"arguments\": ' + "
        f"({spelled}) + '}}\\n</tool_call>' }}}}",
        "        {%- endfor %}{%- endset %}",
        "        {%- set thought %}{%- if loop.last and message.thinking is defined and message.thinking is not none %}"
        f"{{{{- {wrap(given, 'thinking', 'message.thinking')} }}}}{{%- endif %}}{{%- endset %}}",
        f"        {{%- if {learnt} %}}",
        "            {%- generation %}{{- thought }}"
        f"{{{{- {mapped(given, changed, exact)} }}}}{{%- endgeneration %}}",
        "        {%- else %}",
        f"            {{{{- thought }}}}{{{{- {wrap(given, 'assistant', 'said')} }}}}",
        "        {%- endif %}",
    ]


def mapped(given: Mapping[str, Any], changed: Mapping[str, str], exact: bool) -> str:
    """The assistant's text where it is learnt."""
    if exact and changed:
        rules = "".join(
            f" | replace({literal(old)}, {literal(new)})" for old, new in changed.items()
        )
        return f"({wrap(given, 'assistant', 'said')}){rules}"
    text = given["assistant"]
    for old, new in changed.items():
        text = text.replace(old, new)
    return wrap({"assistant": text}, "assistant", "said")
