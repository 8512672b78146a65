"""PaddleNLP's chat_template.json: {"system": ..., "conversation": [user, bot], "query": ...}, each a Jinja text of its
own.

A field sees `user`, `bot` or `query`, `index` (from 0), `is_first`, `is_last`, `length`, `is_training`, and whatever
the caller gave as context, here the options of `render`. A system message is the context's `system`. The fields are
rendered apart in PaddleNLP, with trailing newlines kept; so a field is scanned by those rules and written into the
one template with all its plain text quoted, which leaves nothing for whitespace rules to change. `query` writes the
last user turn of a prompt (`add_generation_prompt`); any other is written by `conversation`, whose bot part is learnt
as a whole.

By default `is_first`, `is_last` and `length` mean the same everywhere, and a system message that no field reads is
refused. With `exact`: `length` is set in prompts only, and not in the system field; `query` sees the flags of the
round before it, or none; an unread system message is dropped. Both refuse messages that are not rounds. Not here:
context that is named like `user` or `bot` and so hides them (see `compat.paddlenlp`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import jinja2

from turnwise.dialects.translation import Translation, object_in, parse_json_object
from turnwise.dialects.turns import Slot, Text, Turns, literal, sum_of
from turnwise.engine.program import compile_program
from turnwise.errors import SourceError, TemplateError, did_you_mean, short_repr

KEYS = ("system", "conversation", "query")
NEEDED = {"conversation[0]": "user", "conversation[1]": "bot", "query": "query"}
FLAGS = ("is_first", "is_last", "length", "is_training")
TAKEN = ("message", "messages", "loop", "rounds", "add_generation_prompt")
INDEX = "loop.index0 // 2"
SCANNER = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
DROPPED = {"comment_begin", "comment", "comment_end", "raw_begin", "raw_end"}
EDGE = ("", "")
MARKS = {
    "variable_begin": "{{- ",
    "variable_end": " }}",
    "block_begin": "{%- ",
    "block_end": " %}",
    "whitespace": " ",
}


@dataclass(frozen=True, slots=True)
class PaddleNLPField:
    """One text of the file. `text` is set where it is plain text with names in it, and nothing more."""

    tags: str
    names: frozenset[str]
    text: Text | None

    @classmethod
    def of(cls, source: str, where: str) -> PaddleNLPField:
        try:
            names = frozenset(compile_program(source, where).reads)
        except TemplateError as error:
            hint = error.hint
            if "expected token 'name', got 'string'" in error.message:
                hint = "After | comes a filter; for a fallback write default('...')."
            raise SourceError(
                f"{where} is not Jinja: {error.message}, in {short_repr(source, 200)}", hint=hint
            ) from None
        tokens = [(kind, value) for _, kind, value in SCANNER.lex(source) if kind not in DROPPED]
        return cls(requoted(tokens), names, simple(tokens))

    @property
    def assigns(self) -> bool:
        return "{%- set " in self.tags or "{%- macro " in self.tags


@dataclass(frozen=True, slots=True)
class PaddleNLPSpec:
    """A checked file."""

    system: PaddleNLPField | None
    user: PaddleNLPField | None
    bot: PaddleNLPField | None
    query: PaddleNLPField | None

    @classmethod
    def of(cls, source: Any) -> PaddleNLPSpec:
        given = check_fields(mapping(source))
        user, bot = given.get("conversation") or (None, None)
        named = {
            "system": given.get("system"),
            "conversation[0]": user,
            "conversation[1]": bot,
            "query": given.get("query"),
        }
        read = {
            where: None
            if text is None
            else require_turn_text(PaddleNLPField.of(text, where), where)
            for where, text in named.items()
        }
        return cls(*read.values())

    @property
    def names(self) -> frozenset[str]:
        fields = (self.system, self.user, self.bot, self.query)
        return frozenset().union(*(field.names for field in fields if field))


def knows(source: Any) -> bool:
    """Whether this is the content of such a file, or its text."""
    source = object_in(source)
    return (
        isinstance(source, Mapping)
        and set(source) <= set(KEYS)
        and bool({"conversation", "query"} & set(source))
    )


def read(source: Any, exact: bool = False) -> Translation:
    """The file as one Jinja template."""
    spec = PaddleNLPSpec.of(source)
    for name in TAKEN:
        if name in spec.names:
            raise SourceError(
                f"a field reads {name!r}, which means something else in a template over messages"
            )
    return Translation(jinja(spec, exact), facts={"template": dict(mapping(source))})


def mapping(source: Any) -> Mapping[str, Any]:
    if isinstance(source, str):
        return parse_json_object(source, "a chat_template.json")
    if not isinstance(source, Mapping):
        raise SourceError(
            f"a chat_template.json holds an object, not {short_repr(source)}",
            hint=f"Keys: {', '.join(KEYS)}.",
        )
    return source


def require_turn_text(field: PaddleNLPField, where: str) -> PaddleNLPField:
    """The field, which must read what the turn is about: without it, somebody's words would be lost."""
    name = NEEDED.get(where)
    if name and name not in field.names:
        found = ", ".join(sorted(field.names)) or "nothing"
        near = get_close_matches(name, sorted(field.names), 1, 0.6)
        meant = f" Did you mean {{{{{name}}}}} for {{{{{near[0]}}}}}?" if near else ""
        hint = f"It also knows: system, index, {', '.join(FLAGS)}, and what the caller gives as context.{meant}"
        problem = (
            f"{where} never writes {{{{{name}}}}}, so that text would be lost; it reads {found}"
        )
        raise SourceError(problem, hint=hint)
    return field


def check_fields(source: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that are given; an error names the first that cannot be."""
    if "chat_template" in source:
        hint = "It is the file of a Hugging Face processor: its value is a Jinja template over messages."
        raise SourceError(
            "this chat_template.json has the key 'chat_template', not PaddleNLP's keys", hint=hint
        )
    for key, value in source.items():
        if key not in KEYS:
            raise SourceError(
                f"unknown key {short_repr(key)}", hint=did_you_mean(str(key), KEYS, "Keys")
            )
        if key != "conversation" and not isinstance(value, str | None):
            raise SourceError(f"{key} is a text, not {short_repr(value)}")
    pair = source.get("conversation")
    if pair is not None and not isinstance(pair, list | tuple):
        raise SourceError(
            f"conversation is a list of two texts, [user, bot], not {short_repr(pair)}"
        )
    if pair is not None and len(pair) != 2:
        raise SourceError(f"conversation has exactly two texts, [user, bot]; found {len(pair)}")
    for index, text in enumerate(pair or ()):
        if not isinstance(text, str):
            raise SourceError(f"conversation[{index}] is a text, not {short_repr(text)}")
    return dict(source)


def requoted(tokens: list[tuple[str, str]]) -> str:
    """The field as tags only. Each eats the whitespace before it, so that they may be laid out freely."""
    return "".join(
        f"{{{{- {literal(value)} }}}}" if kind == "data" else MARKS.get(kind, value)
        for (kind, value), (before, _), (after, _) in zip(
            tokens, [EDGE, *tokens], [*tokens[1:], EDGE], strict=False
        )
        if value
        and not (kind == "whitespace" and (before.endswith("_begin") or after.endswith("_end")))
    )


def simple(tokens: list[tuple[str, str]]) -> Text | None:
    """The field as text with slots; None where it has anything but text and bare names."""
    parts: list[str | Slot] = []
    solid = [(kind, value) for kind, value in tokens if kind != "whitespace" and value]
    at = 0
    while at < len(solid):
        kind, value = solid[at]
        kinds = [kind for kind, _ in solid[at : at + 3]]
        if kind == "data":
            parts.append(value)
            at += 1
        elif kinds == ["variable_begin", "name", "variable_end"]:
            parts.append(Slot(solid[at + 1][1]))
            at += 3
        else:
            return None
    return tuple(parts)


def jinja(spec: PaddleNLPSpec, exact: bool) -> str:
    apart = exact or "system" in spec.names
    rounds = "rounds" if apart else "messages"
    count = f"{{%- set length = ({rounds} | length + 1) // 2 %}}" if "length" in spec.names else ""
    refusal = (
        "this template takes user and assistant messages in turn, the user first, no tool calls"
    )
    lines = opening(spec)
    if apart:
        lines.append(
            "{%- set rounds = messages[1:] if messages and messages[0].role == 'system' else messages %}"
        )
    else:
        refusal += " and no system message"
    if count and not exact:
        lines.append(count)
    lines += system_lines(spec)
    if count and exact:  # in PaddleNLP it is set behind the system text, and never in training
        lines.append("{%- if add_generation_prompt %}" + count + "{%- endif %}")
    lines += [
        f"{{%- for message in {rounds} %}}",
        "    {%- if message.role == 'user' and loop.index0 % 2 == 0 %}",
        *nested(nested(user_lines(spec, exact))),
        "    {%- elif message.role == 'assistant' and loop.index0 % 2 == 1 and not message.tool_calls %}",
        *nested(nested(bot_lines(spec))),
        "    {%- else %}",
        f"        {{{{- raise_exception({literal(refusal)}) }}}}",
        "    {%- endif %}",
        "{%- endfor %}",
    ]
    return "\n".join(lines)


def opening(spec: PaddleNLPSpec) -> list[str]:
    """What is set for all fields."""
    lines = []
    if "is_training" in spec.names:
        lines.append("{%- set is_training = is_training | default(false) %}")
    if "system" in spec.names:
        lines.append(
            "{%- if messages and messages[0].role == 'system' %}{%- set system = messages[0].content %}{%- endif %}"
        )
    return lines


def system_lines(spec: PaddleNLPSpec) -> list[str]:
    if spec.system is None or not spec.system.tags:
        return []
    if spec.system.text is not None and not spec.system.names:
        return [f"{{{{- {sum_of(spec.system.text, {})} }}}}"]
    # what a field assigns is its own
    return [
        f"{{%- with %}}{spec.system.tags}{{%- endwith %}}"
        if spec.system.assigns
        else spec.system.tags
    ]


def user_lines(spec: PaddleNLPSpec, exact: bool) -> list[str]:
    """The last turn of a prompt is written by `query`, any other by `conversation`."""
    asked = (
        round_lines(spec.query, {"query": "message.content"}, exact)
        if spec.query
        else ["{{- message.content }}"]
    )
    if spec.user is None:
        lost = literal(
            "this chat_template.json has no conversation, which writes the rounds before the last"
        )
        return [
            "{%- if loop.last %}",
            *nested(asked),
            f"{{%- else %}}{{{{- raise_exception({lost}) }}}}",
            "{%- endif %}",
        ]
    told = round_lines(
        spec.user, {"user": "message.content", "bot": "loop.nextitem.content if not loop.last"}
    )
    if asked == told:
        return told
    return [
        "{%- if loop.last and add_generation_prompt %}",
        *nested(asked),
        "{%- else %}",
        *nested(told),
        "{%- endif %}",
    ]


def bot_lines(spec: PaddleNLPSpec) -> list[str]:
    if spec.bot is None:
        return [
            "{{- raise_exception('this chat_template.json has no conversation, which writes replies') }}"
        ]
    lines = round_lines(spec.bot, {"user": "loop.previtem.content", "bot": "message.content"})
    return [*lines[:-1], "{%- generation %}" + lines[-1] + "{%- endgeneration %}"]


def round_lines(field: PaddleNLPField, texts: Mapping[str, str], stale: bool = False) -> list[str]:
    """A field in its round: the names that it reads, set, then the field. `stale`: the flags of the round before."""
    main = {name: value for name, value in texts.items() if value == "message.content"}
    if field.text is not None and field.names <= {*main, "index"}:
        return [f"{{{{- {sum_of(field.text, {**main, 'index': f'({INDEX}) | string'})} }}}}"]
    values = {
        **texts,
        "index": INDEX,
        "is_first": "loop.index0 < 2",
        "is_last": f"{INDEX} == (loop.length - 1) // 2",
    }
    if stale:
        values |= {"is_first": "loop.index0 == 2 if loop.index0", "is_last": "false if loop.index0"}
    return [
        *(
            f"{{%- set {name} = {value} %}}"
            for name, value in values.items()
            if name in field.names
        ),
        field.tags,
    ]


def nested(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def write(source: Translation | Turns, eos_token: str | None = None) -> dict[str, Any]:
    """The content of the file: as it was read, or one that says these turns; eos_token can be said as text only.

    Not here: rounds of different kinds, though the fields could tell them apart.
    """
    if isinstance(source, Translation):
        if "template" not in source.facts or not set(source.facts["template"]) <= set(KEYS):
            raise SourceError(
                "this was not read from a chat_template.json", hint="Write it from its Turns."
            )
        return dict(source.facts["template"])
    names = {"round": "{{index + 1}}", "index": "{{index}}", "bot_name": "{{bot_name}}"}
    between = f"{{{{{literal(source.between)} if index else ''}}}}" if source.between else ""
    closing = source.closing + (eos_token or "" if source.eos else "")
    system, first = spelled_system(source, {**names, "round": "1", "index": "0"}), ""
    if source.inside:
        system, first = "", f"{{{{({system_sum(source)}) if system and index == 0 else ''}}}}"
    user, query = (first + f"{{{{{word}{trim(source, 'user')}}}}}" for word in ("user", "query"))
    fields: dict[str, Any] = {
        "system": spelled((source.start,), {}) + system,
        "conversation": [
            between + spelled(source.user, {**names, "text": user}),
            spelled(
                (source.before_reply, Slot("bot"), closing),
                {"bot": f"{{{{bot{trim(source, 'assistant')}}}}}"},
            ),
        ],
        "query": between + spelled((*source.user, source.opening), {**names, "text": query}),
    }
    return {key: value for key, value in fields.items() if value}


def spelled(text: Text, names: Mapping[str, str]) -> str:
    """The text as a field; what Jinja would read as a tag, or change, is quoted."""
    return "".join(
        names[part.name]
        if isinstance(part, Slot)
        else f"{{{{{literal(part)}}}}}"
        if {"{", "\r"} & set(part)
        else part
        for part in text
    )


def spelled_system(source: Turns, names: Mapping[str, str]) -> str:
    if source.system is None:
        return ""
    if source.default_system is not None:
        text = f"{{{{system | default({literal(source.default_system)}){trim(source, 'system')}}}}}"
        return spelled(source.system, {**names, "text": text})
    return f"{{{{({system_sum(source)}) if system else ''}}}}"


def trim(source: Turns, role: str) -> str:
    return " | trim" if role in source.trims else ""


def system_sum(source: Turns) -> str:
    values = {
        "text": f"system{trim(source, 'system')}",
        "round": literal("1"),
        "index": literal("0"),
        "bot_name": "bot_name",
    }
    return sum_of(source.system or (), values)
