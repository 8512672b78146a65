"""XTuner's PROMPT_TEMPLATE dicts: SYSTEM, INSTRUCTION, SUFFIX, SUFFIX_AS_EOS, SEP, STOP_WORDS.

INSTRUCTION holds the user's turn *and* the assistant's opening in one string, and the dict does not say where the one
ends; so a user turn is always written with the opening, whatever `add_generation_prompt` says. The reply, SUFFIX and
(unless SUFFIX_AS_EOS) `eos_token` are what the model learns; SEP is not. `{round}` counts from 1, `{bot_name}` is an
option.

By default the template follows XTuner's documentation: one system text, first; SEP between rounds and not after the
last (`trailing_sep=True` adds it); `bos_token` once; what the format has no place for is refused. With `exact` it
does what the code does: a system text before any round; SEP after the last; `bos_token` again after every
`eos_token`; leading assistant turns and an unanswered user turn dropped (the latter kept with
`add_generation_prompt`); users in a row joined without a seam; a reply with `loss` false not learnt. A SYSTEM that
lacks `{system}` is refused in both.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turnwise.dialects.translation import Translation
from turnwise.dialects.turns import (
    Slot,
    Text,
    Turns,
    format_string,
    literal,
    renamed,
    sum_of,
    with_slots,
)
from turnwise.errors import SourceError, did_you_mean, short_repr

KINDS = {
    "SYSTEM": (str, "a text with {system}"),
    "INSTRUCTION": (str, "a text with {input}"),
    "SUFFIX": (str, "a text"),
    "SUFFIX_AS_EOS": (bool, "true or false"),
    "SEP": (str, "a text"),
    "STOP_WORDS": (list, "a list of texts"),
}
KEYS = tuple(KINDS)
DEFAULTS = {"SYSTEM": "", "SUFFIX": "", "SUFFIX_AS_EOS": False, "SEP": "", "STOP_WORDS": []}
BOT_NAME = "BOT"
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True, slots=True)
class XtunerSpec:
    """A checked dict. `system` is None where there is no SYSTEM."""

    instruction: Text
    system: Text | None
    suffix: str
    suffix_as_eos: bool
    sep: str
    stop_words: tuple[str, ...]

    @classmethod
    def of(cls, source: Any) -> XtunerSpec:
        given = checked(mapping(source))
        system, instruction = given.get("SYSTEM", ""), given["INSTRUCTION"]
        return cls(
            holding("input", instruction, "INSTRUCTION"),
            holding("system", system, "SYSTEM") if system else None,
            given.get("SUFFIX", ""),
            given.get("SUFFIX_AS_EOS", False),
            given.get("SEP", ""),
            tuple(given.get("STOP_WORDS", ())),
        )

    @property
    def slots(self) -> set[str]:
        return {
            part.name
            for part in (*self.instruction, *(self.system or ()))
            if isinstance(part, Slot)
        }


def knows(source: Any) -> bool:
    """Whether this is a dict of this dialect, or the text of one."""
    if isinstance(source, Mapping):
        return any(key in source for key in ("INSTRUCTION", "SUFFIX_AS_EOS", "STOP_WORDS"))
    if not isinstance(source, str) or "INSTRUCTION" not in source:
        return False
    try:
        return knows(spelled(source))
    except UNREADABLE:
        return (
            source.lstrip()[:1] == "{" and source.lstrip()[1:].lstrip()[:13] == '"INSTRUCTION"'
        )  # `mapping` says why


def read(source: Any, exact: bool = False, system: str | None = None) -> Translation:
    """The dict as Jinja. `system` is a text (of SYSTEM_TEMPLATE, say) for conversations that bring none."""
    spec = XtunerSpec.of(source)
    options = (
        {"bot_name": BOT_NAME} if "bot_name" in spec.slots or "{bot_name}" in (system or "") else {}
    )
    standard = (
        None if system is None else with_slots(system, ("bot_name", "round"), "the system text")
    )
    if standard is not None and spec.system is None:
        raise SourceError("a system text was given, but the template has no SYSTEM to put it in")
    facts = {"template": dict(mapping(source)), "suffix_as_eos": spec.suffix_as_eos}
    jinja = exact_jinja(spec, standard) if exact else plain_jinja(spec, standard)
    return Translation(jinja, stops=spec.stop_words, options=options, facts=facts)


def prompt_jinja(source: Any) -> str:
    """One round up to its reply, as Jinja over the variables `system`, `input`, `round` and `bot_name`."""
    spec = XtunerSpec.of(source)
    values = {name: name for name in ("system", "input", "bot_name")} | {"round": "round | string"}
    return f"{{%- if system %}}{system_tag(spec, values)}{{%- endif %}}{{{{- {sum_of(spec.instruction, values)} }}}}"


def system_tag(spec: XtunerSpec, values: Mapping[str, str]) -> str:
    return f"{{{{- {sum_of(spec.system, values) if spec.system else f'raise_exception({literal(ROUNDS)})'} }}}}"


def turns(source: Any) -> Turns:
    """The dict as turns; the opening is inside of `user`."""
    spec = XtunerSpec.of(source)
    return Turns(
        user=renamed(spec.instruction, {"input": "text"}),
        closing=spec.suffix,
        eos=not spec.suffix_as_eos,
        between=spec.sep,
        system=None if spec.system is None else renamed(spec.system, {"system": "text"}),
        stops=spec.stop_words,
    )


def write(source: Translation | Turns) -> dict[str, Any]:
    """The dict: the one that was read, or the shortest that says of these turns what a dict can say.

    It has no place for a text before everything, for a system text of its own, for one in the user's turn and for
    rounds counted from 0; and before a reply there is nothing but the opening.
    """
    if isinstance(source, Translation):
        if "template" not in source.facts or not knows(source.facts["template"]):
            raise SourceError(
                "this was not read from an XTuner dict", hint="Write it from its Turns."
            )
        return dict(source.facts["template"])
    names = {"round": "round", "index": "round", "bot_name": "bot_name"}
    said = {
        "SYSTEM": format_string(source.system or (), {**names, "text": "system"}),
        "INSTRUCTION": format_string((*source.user, source.opening), {**names, "text": "input"}),
        "SUFFIX": source.closing,
        "SUFFIX_AS_EOS": not source.eos,
        "SEP": source.between,
        "STOP_WORDS": list(source.stops),
    }
    return {key: value for key, value in said.items() if value != DEFAULTS.get(key)}


def mapping(source: Any) -> Mapping[str, Any]:
    """The dict itself, or the dict that a text spells: JSON, `{...}` or `name = dict(...)`."""
    if isinstance(source, Mapping):
        return source
    if not isinstance(source, str):
        raise SourceError(f"an XTuner template is a dict or its text, not {type(source).__name__}")
    try:
        return spelled(source)
    except UNREADABLE:
        hint = "Accepted: a JSON object, a Python dict, or dict(INSTRUCTION='...', ...) with nothing to compute in it."
        raise SourceError(
            f"this text is not an XTuner dict: {short_repr(source)}", hint=hint
        ) from None


def spelled(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    (statement,) = ast.parse(text.strip().rstrip(",")).body
    value = getattr(statement, "value", None)
    if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "dict" and not value.args:
        return {str(word.arg): ast.literal_eval(word.value) for word in value.keywords}
    found = ast.literal_eval(value) if isinstance(value, ast.Dict) else None
    if not isinstance(found, dict):
        raise ValueError("not a dict")
    return found


def checked(source: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that are given; an error names the first that cannot be."""
    for key, value in source.items():
        if key not in KINDS:
            raise SourceError(
                f"unknown key {short_repr(key)}", hint=did_you_mean(str(key), KINDS, "Keys")
            )
        kind, words = KINDS[key]
        right = isinstance(value, (list, tuple) if kind is list else kind)
        if value is not None and not right:
            raise SourceError(f"{key} is {words}, not {short_repr(value)}")
    given = {key: value for key, value in source.items() if value is not None}
    if "INSTRUCTION" not in given:
        raise SourceError(
            "the key INSTRUCTION is missing", hint=f"Found: {', '.join(source) or 'no keys'}."
        )
    for word in given.get("STOP_WORDS", ()):
        if not isinstance(word, str):
            raise SourceError(f"STOP_WORDS is a list of texts; it holds {short_repr(word)}")
    return given


def holding(name: str, text: str, key: str) -> Text:
    found = with_slots(text, (name, "round", "bot_name"), key)
    if Slot(name) not in found:
        raise SourceError(f"{key} has no {{{name}}}: the text would be lost, in {short_repr(text)}")
    return found


def plain_jinja(spec: XtunerSpec, standard: Text | None) -> str:
    """As documented."""
    counts = "round" in spec.slots
    values = {"input": "message.content", "system": "message.content", "bot_name": "bot_name"}
    if counts:
        values["round"] = "turn.round | string"
    lines = ["{%- set turn = namespace(round=0) %}"] if counts else []
    lines.append("{{- bos_token }}")
    if standard is not None and spec.system is not None:
        lines += [
            "{%- if not messages or messages[0].role != 'system' %}",
            f"    {{{{- {sum_of(spec.system, first_round(values, standard))} }}}}",
            "{%- endif %}",
        ]
    lines.append("{%- for message in messages %}")
    branch = "if"
    if spec.system is not None:
        lines += [
            "    {%- if message.role == 'system' and loop.first %}",
            f"        {{{{- {sum_of(spec.system, values | {'round': literal('1')})} if message.content }}}}",
        ]
        branch = "elif"
    lines.append(
        f"    {{%- {branch} message.role == 'user' and (loop.last or loop.nextitem.role == 'assistant') %}}"
    )
    if counts:
        lines.append("        {%- set turn.round = turn.round + 1 %}")
    lines += [
        f"        {{{{- {sum_of(spec.instruction, values)} }}}}",
        "    {%- elif message.role == 'assistant' and not message.tool_calls"
        " and not loop.first and loop.previtem.role == 'user' %}",
        f"        {{%- generation %}}{reply(spec)}{{%- endgeneration %}}",
        *between(spec),
        "    {%- else %}",
        f"        {{{{- raise_exception({literal(PLACES if spec.system else ROUNDS)}) }}}}",
        "    {%- endif %}",
        "{%- endfor %}",
    ]
    return "\n".join(lines)


ROUNDS = (
    "this template takes user and assistant messages in turn, no system message and no tool calls"
)
PLACES = (
    "this template takes one system message at most, first, then user and assistant messages in turn, "
    "no tool calls"
)


def first_round(values: Mapping[str, str], standard: Text) -> dict[str, str]:
    """Values for a system text that stands in the template itself."""
    known = {**values, "round": literal("1")}
    return {**known, "system": sum_of(standard, known)}


def reply(spec: XtunerSpec) -> str:
    # the sum with an empty text has its use: it refuses content that is null or a list
    return f"{{{{- message.content + {literal(spec.suffix)} }}}}" + (
        "" if spec.suffix_as_eos else "{{- eos_token }}"
    )


def between(spec: XtunerSpec) -> list[str]:
    if not spec.sep:
        return []
    return [
        f"        {{%- if not loop.last or trailing_sep %}}{{{{- {literal(spec.sep)} }}}}{{%- endif %}}"
    ]


def exact_jinja(spec: XtunerSpec, standard: Text | None) -> str:
    """As the code does it: rounds are collected, and written when their answer comes."""
    values = {
        "input": "turn.input",
        "system": "turn.system",
        "round": "turn.round | string",
        "bot_name": "bot_name",
    }
    # a tokenizer's bos_token opens the first round, and each that follows an eos_token
    bos = (
        "{%- if turn.round == 1 %}{{- bos_token }}{%- endif %}"
        if spec.suffix_as_eos
        else "{{- bos_token }}"
    )
    prompt = [
        "{%- set turn.round = turn.round + 1 %}",
        bos,
        f"{{%- if turn.system %}}{system_tag(spec, values)}{{%- endif %}}",
        f"{{{{- {sum_of(spec.instruction, values)} }}}}",
    ]
    start = (
        sum_of(standard, {"round": literal("1"), "bot_name": "bot_name"})
        if standard is not None
        else "''"
    )
    spoken = "message.loss | lower == 'true' if message.loss is string else message.loss"
    learnt = f"message.loss is not defined or ({spoken})"
    lines = [
        f"{{%- set turn = namespace(system={start}, input='', round=0, begun=false) %}}",
        "{%- for message in messages %}",
        "    {%- if message.role == 'system' %}",
        "        {%- set turn.system = message.content %}{%- set turn.begun = true %}",
        "    {%- elif message.role == 'user' %}",
        "        {%- set turn.input = turn.input + message.content %}{%- set turn.begun = true %}",
        "    {%- elif message.role != 'assistant' %}",
        "        {{- raise_exception('XTuner knows the roles system, user and assistant only') }}",
        "    {%- elif turn.begun %}",
        *(f"        {line}" for line in prompt),
        f"        {{%- if {learnt} %}}",
        f"            {{%- generation %}}{reply(spec)}{{%- endgeneration %}}",
        f"        {{%- else %}}{reply(spec)}",
        "        {%- endif %}",
        *([f"        {{{{- {literal(spec.sep)} }}}}"] if spec.sep else []),
        "        {%- set turn.system = '' %}{%- set turn.input = '' %}",
        "    {%- endif %}",
        "{%- endfor %}",
        "{%- if add_generation_prompt and (turn.input or turn.system) %}",
        *(f"    {line}" for line in prompt),
        "{%- endif %}",
    ]
    return "\n".join(lines)
