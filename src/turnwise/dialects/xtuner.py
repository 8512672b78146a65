r"""XTuner's PROMPT_TEMPLATE dicts.

    {
        "SYSTEM": "<|im_start|>system\n{system}<|im_end|>\n",
        "INSTRUCTION": "<|im_start|>user\n{input}<|im_end|>\n<|im_start|>assistant\n",
        "SUFFIX": "<|im_end|>",
        "SUFFIX_AS_EOS": True,
        "SEP": "\n",
        "STOP_WORDS": ["<|im_end|>"],
    }

INSTRUCTION is the user turn *and* the generation prompt in one string, and nothing tells where the
one ends; so a user turn is always written with the generation prompt, whatever
`add_generation_prompt` is. The reply, SUFFIX and (unless SUFFIX_AS_EOS) `eos_token` are trained;
SEP is not. `{round}` counts from 1, `{bot_name}` is an option.

By default the template follows XTuner's documentation: one system text, first; SEP between rounds
and not after the last (`trailing_sep=True` adds it); `bos_token` once; everything else is refused.
With `exact` it does what the code does: a system text before any round; SEP after the last;
`bos_token` again after every `eos_token`; leading assistant turns and an unanswered user turn
dropped (the latter kept with `add_generation_prompt`); consecutive users joined without a
separator; a reply with `loss` false not trained. A SYSTEM without `{system}` is refused in both.

The rewrite of XTuner has another format, see `xtuner_v1.py`; XTuner's own function names are in
`compat/xtuner.py`.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from turnwise.dialects.translation import Translation
from turnwise.dialects.turns import (
    Slot,
    Text,
    Turns,
    concatenate,
    fill_marks,
    literal,
    parse_format_string,
    to_format_string,
)
from turnwise.errors import SourceError, short_repr
from turnwise.messages import JsonMapping, JsonObject
from turnwise.schema import BOOLEAN, STRING, STRINGS, check_table

RULES = {
    "SYSTEM": STRING,
    "INSTRUCTION": STRING,
    "SUFFIX": STRING,
    "SUFFIX_AS_EOS": BOOLEAN,
    "SEP": STRING,
    "STOP_WORDS": STRINGS,
}
KEYS = tuple(RULES)
DEFAULTS = {"SYSTEM": "", "SUFFIX": "", "SUFFIX_AS_EOS": False, "SEP": "", "STOP_WORDS": []}
BOT_NAME = "BOT"
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True, slots=True)
class XtunerSpec:
    """A checked dict; `system` is None if there is no SYSTEM."""

    instruction: Text
    system: Text | None
    suffix: str
    suffix_as_eos: bool
    sep: str
    stop_words: tuple[str, ...]

    @classmethod
    def of(cls, source: Any) -> XtunerSpec:
        """Check a dict, or the text of one."""
        given = check_table(to_dict(source), RULES, required=["INSTRUCTION"], skip_nulls=True)
        fields: JsonObject = DEFAULTS | given
        system = fields["SYSTEM"]
        return cls(
            instruction=_parse_text(fields["INSTRUCTION"], "INSTRUCTION", "input"),
            system=_parse_text(system, "SYSTEM", "system") if system else None,
            suffix=fields["SUFFIX"],
            suffix_as_eos=fields["SUFFIX_AS_EOS"],
            sep=fields["SEP"],
            stop_words=tuple(fields["STOP_WORDS"]),
        )

    @property
    def slots(self) -> set[str]:
        """The names of all placeholders."""
        parts = (*self.instruction, *(self.system or ()))
        return {part.name for part in parts if isinstance(part, Slot)}


def _parse_text(text: str, key: str, slot: str) -> Text:
    """Parse a format string that must contain the placeholder `slot`."""
    parts = parse_format_string(text, (slot, "round", "bot_name"), key)
    if Slot(slot) not in parts:
        raise SourceError(f"{key} has no {{{slot}}}: the text would be lost, in {short_repr(text)}")
    return parts


def knows(source: Any) -> bool:
    """Return True for a dict of this dialect, or the text of one."""
    if isinstance(source, Mapping):
        return any(key in source for key in ("INSTRUCTION", "SUFFIX_AS_EOS", "STOP_WORDS"))
    if not isinstance(source, str) or "INSTRUCTION" not in source:
        return False
    try:
        return knows(_parse_dict(source))
    except UNREADABLE:
        # It looks like one of ours, so `read` will tell what is wrong with it.
        start = source.lstrip()
        return start[:1] == "{" and start[1:].lstrip().startswith('"INSTRUCTION"')


def read(source: Any, exact: bool = False, system: str | None = None) -> Translation:
    """Translate a dict to Jinja.

    Args:
        source: the dict, or its text.
        exact: do what XTuner's code does, not what its documentation says.
        system: a default system text, for example one of SYSTEM_TEMPLATE.
    """
    spec = XtunerSpec.of(source)
    options = {}
    if "bot_name" in spec.slots or "{bot_name}" in (system or ""):
        options["bot_name"] = BOT_NAME
    default = None
    if system is not None:
        default = parse_format_string(system, ("bot_name", "round"), "the system text")
        if spec.system is None:
            raise SourceError("a system text was given, but the template has no SYSTEM for it")
    facts = {"template": dict(to_dict(source)), "suffix_as_eos": spec.suffix_as_eos}
    jinja = _write_exact_jinja(spec, default) if exact else _write_jinja(spec, default)
    return Translation(jinja, stops=spec.stop_words, options=options, facts=facts)


def write_prompt_jinja(source: Any) -> str:
    """Return the Jinja of one round up to its reply.

    Its variables are `system`, `input`, `round` and `bot_name`.
    """
    spec = XtunerSpec.of(source)
    values = {name: name for name in ("system", "input", "bot_name")} | {"round": "round | string"}
    instruction = concatenate(spec.instruction, values)
    return f"{{%- if system %}}{_write_system(spec, values)}{{%- endif %}}{{{{- {instruction} }}}}"


def _write_system(spec: XtunerSpec, values: Mapping[str, str]) -> str:
    if spec.system:
        return f"{{{{- {concatenate(spec.system, values)} }}}}"
    return f"{{{{- raise_exception({literal(NO_SYSTEM_REFUSAL)}) }}}}"


def write(turns: Turns, eos_token: str | None = None) -> list[JsonObject]:
    """Return dicts for these turns, the shortest first.

    XTuner inserts the bos token at the start, and again after each eos token that it inserts. So the
    first dict leaves eos_token to XTuner; if bos_token must not follow it, the second has the text of
    eos_token in SUFFIX.

    Not expressed: a text before everything, a default system text, a system text in the user turn,
    rounds counted from 0, a text before replies that is not the generation prompt.

    Args:
        turns: what the template writes.
        eos_token: the text of the token that ends a reply, if one does.
    """
    first, *rest = turns.user
    if turns.has_bos_in_user:
        # The bos token of every round but the first is then the end of what separates them.
        user = (str(first).removeprefix(turns.bos), *rest)
        turns = replace(turns, user=user, separator=turns.separator + turns.bos)
    sources = []
    if turns.eos:
        # XTuner inserts both tokens.
        sources.append(
            _write_source(replace(turns, separator=turns.separator.removesuffix(turns.bos)))
        )
        turns = replace(turns, reply_suffix=turns.reply_suffix + (eos_token or ""), eos=False)
        if not eos_token:
            return sources
    return [*sources, _write_source(turns)]


def _write_source(turns: Turns) -> JsonObject:
    """Return the shortest dict."""
    names = {"round": "round", "index": "round", "bot_name": "bot_name"}
    instruction = (*turns.user, turns.generation_prompt)
    fields = {
        "SYSTEM": to_format_string(turns.system or (), {**names, "text": "system"}),
        "INSTRUCTION": to_format_string(instruction, {**names, "text": "input"}),
        "SUFFIX": turns.reply_suffix,
        "SUFFIX_AS_EOS": not turns.eos,
        "SEP": turns.separator,
        "STOP_WORDS": list(turns.stops),
    }
    return {key: value for key, value in fields.items() if value != DEFAULTS.get(key)}


def to_dict(source: Any) -> JsonMapping:
    """Return the dict itself, or the dict that a text spells: JSON, `{...}` or `name = dict(...)`."""
    if isinstance(source, Mapping):
        return source
    if not isinstance(source, str):
        kind = type(source).__name__
        raise SourceError(f"an XTuner template must be a dict or its text, not {kind}")
    try:
        return _parse_dict(source)
    except UNREADABLE:
        hint = (
            "Accepted: a JSON object, a Python dict, or dict(INSTRUCTION='...', ...) of constants."
        )
        raise SourceError(
            f"this text is not an XTuner dict: {short_repr(source)}", hint=hint
        ) from None


def _parse_dict(text: str) -> JsonObject:
    """Parse JSON or Python; nothing is evaluated. Raises one of UNREADABLE."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, dict):
        return value
    (statement,) = ast.parse(text.strip().rstrip(",")).body
    node = getattr(statement, "value", None)
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "dict" and not node.args:
        return {str(word.arg): ast.literal_eval(word.value) for word in node.keywords}
    if not isinstance(node, ast.Dict):
        raise ValueError("not a dict")
    found: JsonObject = ast.literal_eval(node)
    return found


# -- Jinja -----------------------------------------------------------------------------------------

NO_SYSTEM_REFUSAL = (
    "this template takes user and assistant messages in turn, no system message and no tool calls"
)
REFUSAL = (
    "this template takes one system message at most, first, then user and assistant messages in turn, "
    "no tool calls"
)


CHAT = """\
@count@
{{- bos_token }}
@default_system@
{%- for message in messages %}
@system_turn@
    {%- @branch@ message.role == 'user' and (loop.last or loop.nextitem.role == 'assistant') %}
@next_round@
        {{- @instruction@ }}
    {%- elif message.role == 'assistant' and not message.tool_calls and not loop.first \
and loop.previtem.role == 'user' %}
        {%- generation %}@reply@{%- endgeneration %}
@separator@
    {%- else %}
        {{- raise_exception(@refusal@) }}
    {%- endif %}
{%- endfor %}"""
DEFAULT_SYSTEM = """\
{%- if not messages or messages[0].role != 'system' %}
    {{- @default@ }}
{%- endif %}"""
SYSTEM_TURN = """\
    {%- if message.role == 'system' and loop.first %}
        {{- @system@ if message.content }}"""
SEPARATOR = "        {%- if not loop.last or trailing_sep %}{{- @sep@ }}{%- endif %}"


def _write_jinja(spec: XtunerSpec, default: Text | None) -> str:
    """Return the Jinja that follows XTuner's documentation."""
    counts_rounds = "round" in spec.slots
    values = {"input": "message.content", "system": "message.content", "bot_name": "bot_name"}
    values["round"] = "turn.round | string"
    # A system text is always in the first round.
    first_round = values | {"round": literal("1")}
    system = spec.system or ()
    has_system = spec.system is not None
    blocks = {
        "count": "{%- set turn = namespace(round=0) %}" if counts_rounds else "",
        "default_system": DEFAULT_SYSTEM if default is not None and has_system else "",
        "system_turn": SYSTEM_TURN if has_system else "",
        "branch": "elif" if has_system else "if",
        "next_round": "        {%- set turn.round = turn.round + 1 %}" if counts_rounds else "",
        "separator": SEPARATOR if spec.sep else "",
    }
    default_text = concatenate(default or (), first_round)
    texts = {
        "default": concatenate(system, first_round | {"system": default_text}),
        "system": concatenate(system, first_round),
        "instruction": concatenate(spec.instruction, values),
        "reply": _write_reply(spec),
        "sep": literal(spec.sep),
        "refusal": literal(REFUSAL if has_system else NO_SYSTEM_REFUSAL),
    }
    return fill_marks(CHAT, texts, blocks)


def _write_reply(spec: XtunerSpec) -> str:
    # Adding even an empty text has its use: it refuses content that is null or a list.
    reply = f"{{{{- message.content + {literal(spec.suffix)} }}}}"
    return reply if spec.suffix_as_eos else reply + "{{- eos_token }}"


EXACT_CHAT = """\
{%- set turn = namespace(system=@default@, input='', round=0, begun=false) %}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {%- set turn.system = message.content %}{%- set turn.begun = true %}
    {%- elif message.role == 'user' %}
        {%- set turn.input = turn.input + message.content %}{%- set turn.begun = true %}
    {%- elif message.role != 'assistant' %}
        {{- raise_exception('XTuner knows the roles system, user and assistant only') }}
    {%- elif turn.begun %}
@prompt@
        {%- if message.loss is not defined or \
(message.loss | lower == 'true' if message.loss is string else message.loss) %}
            {%- generation %}@reply@{%- endgeneration %}
        {%- else %}@reply@
        {%- endif %}
@separator@
        {%- set turn.system = '' %}{%- set turn.input = '' %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt and messages and messages[-1].role in ['system', 'user'] %}
@prompt@
{%- endif %}"""
# A tokenizer's bos_token opens the first round, and each that follows an eos_token.
BOS = "{{- bos_token }}"
PROMPT = """\
        {%- set turn.round = turn.round + 1 %}
        @bos@
        {%- if turn.system %}@system@{%- endif %}
        {{- @instruction@ }}"""


def _write_exact_jinja(spec: XtunerSpec, default: Text | None) -> str:
    """Return the Jinja of what XTuner's code does.

    A round is collected in `turn`, and written when its answer comes.
    """
    values = {
        "input": "turn.input",
        "system": "turn.system",
        "round": "turn.round | string",
        "bot_name": "bot_name",
    }
    system = "''"
    if default is not None:
        system = concatenate(default, {"round": literal("1"), "bot_name": "bot_name"})
    blocks = {
        "prompt": PROMPT,
        "bos": BOS if not spec.suffix_as_eos else f"{{%- if turn.round == 1 %}}{BOS}{{%- endif %}}",
        "separator": "        {{- @sep@ }}" if spec.sep else "",
    }
    texts = {
        "default": system,
        "system": _write_system(spec, values),
        "instruction": concatenate(spec.instruction, values),
        "reply": _write_reply(spec),
        "sep": literal(spec.sep),
    }
    return fill_marks(EXACT_CHAT, texts, blocks)
