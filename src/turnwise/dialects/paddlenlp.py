r"""PaddleNLP's chat_template.json: three fields, each a Jinja text of its own.

    {
        "system": "You are helpful.\n",
        "conversation": ["Question: {{user}}\n", "Answer: {{bot}}\n"],
        "query": "Question: {{query}}\nAnswer:",
    }

A field reads `user`, `bot` or `query`, `index` (from 0), `is_first`, `is_last`, `length`,
`is_training`, and the caller's context, here the options of `render`. A system message is the
context's `system`. PaddleNLP renders each field apart, with trailing newlines kept; so a field is
tokenized by those rules and written into the one template with all its plain text quoted, which
leaves nothing for white space rules to change. `query` writes the last user turn of a prompt
(`add_generation_prompt`); any other is written by `conversation`, whose bot part is trained as a
whole.

By default `is_first`, `is_last` and `length` mean the same everywhere, and a system message that no
field reads is refused. With `exact`: `length` is set in prompts only, and not in the system field;
`query` sees the flags of the previous round, or none; an unread system message is dropped. Both
refuse messages that are not rounds. Not supported: context with the names `user` or `bot`, which
hides the messages (see `compat/paddlenlp.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import jinja2

from turnwise.dialects.translation import Translation, object_in, to_mapping
from turnwise.dialects.turns import Slot, Text, Turns, check_slots, concatenate, fill_marks, literal
from turnwise.engine.program import compile_program
from turnwise.errors import SourceError, TemplateError, short_repr
from turnwise.messages import JsonObject
from turnwise.schema import STRING, check_table, list_of, or_null

RULES = {
    "system": or_null(STRING),
    "conversation": or_null(list_of(STRING, "a list of two strings, [user, bot],", length=2)),
    "query": or_null(STRING),
}
KEYS = tuple(RULES)
# The variable that a field must read: without it, a message would be lost.
REQUIRED_VARIABLES = {"conversation[0]": "user", "conversation[1]": "bot", "query": "query"}
FLAGS = ("is_first", "is_last", "length", "is_training")
RESERVED = ("message", "messages", "loop", "rounds", "add_generation_prompt")
ROUND_INDEX = "loop.index0 // 2"
TOKENIZER = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
DROPPED_TOKENS = {"comment_begin", "comment", "comment_end", "raw_begin", "raw_end"}
TAGS = {
    "variable_begin": "{{- ",
    "variable_end": " }}",
    "block_begin": "{%- ",
    "block_end": " %}",
    "whitespace": " ",
}
NO_CONVERSATION = "this chat_template.json has no conversation, which writes "

Tokens = list[tuple[str, str]]  # kind and text


@dataclass(frozen=True, slots=True)
class PaddleNLPField:
    """One Jinja text of the file."""

    tags: str
    variables: frozenset[str]
    text: Text | None  # the field as text with slots, if it has nothing but text and variables
    # Variables that are written, `{{name}}`, and never tested or changed.
    written_names: frozenset[str]

    @classmethod
    def of(cls, source: str, where: str) -> PaddleNLPField:
        """Parse a field; `where` names it in errors."""
        check_slots(source.count("{{") + source.count("{%"), where, "tags")
        try:
            variables = frozenset(compile_program(source, where).reads)
        except TemplateError as error:
            hint = error.hint
            if "expected token 'name', got 'string'" in error.message:
                hint = "After | comes a filter; for a fallback write default('...')."
            problem = f"{where} is not Jinja: {error.message}, in {short_repr(source, 200)}"
            raise SourceError(problem, hint=hint) from None
        tokens = [
            (kind, text)
            for _, kind, text in TOKENIZER.lex(source)
            if text and kind not in DROPPED_TOKENS
        ]
        text, names, other_names = _parse_text(tokens)
        written = frozenset(names - other_names) & variables
        return cls(_quote_text(tokens), variables, text, written)

    @property
    def has_assignments(self) -> bool:
        """True if the field sets a variable or defines a macro."""
        return "{%- set " in self.tags or "{%- macro " in self.tags


@dataclass(frozen=True, slots=True)
class PaddleNLPSpec:
    """The checked fields of a file."""

    system: PaddleNLPField | None
    user: PaddleNLPField | None
    bot: PaddleNLPField | None
    query: PaddleNLPField | None

    @classmethod
    def of(cls, source: Any) -> PaddleNLPSpec:
        """Check the content of a file."""
        given = check_fields(source)
        user, bot = given.get("conversation") or (None, None)
        return cls(
            system=_parse_field(given.get("system"), "system"),
            user=_parse_field(user, "conversation[0]"),
            bot=_parse_field(bot, "conversation[1]"),
            query=_parse_field(given.get("query"), "query"),
        )

    @property
    def variables(self) -> frozenset[str]:
        """The variables that any field reads."""
        fields = (self.system, self.user, self.bot, self.query)
        return frozenset().union(*(field.variables for field in fields if field))


def check_fields(source: Any) -> JsonObject:
    """Return the keys and values of a file, which may be given as JSON text."""
    mapping = to_mapping(source, "a chat_template.json")
    if "chat_template" in mapping:
        problem = "this chat_template.json has the key 'chat_template', not PaddleNLP's keys"
        hint = "It is the file of a Hugging Face processor: load its value as a Jinja template."
        raise SourceError(problem, hint=hint)
    return check_table(mapping, RULES)


def _parse_field(source: str | None, where: str) -> PaddleNLPField | None:
    return None if source is None else parse_field(source, where)


def parse_field(source: str, where: str) -> PaddleNLPField:
    """Parse a field, and check that it writes the message that it is for."""
    field = PaddleNLPField.of(source, where)
    name = REQUIRED_VARIABLES.get(where)
    if name and name not in field.variables:
        reads = sorted(field.variables)
        hint = f"It may also read: system, index, {', '.join(FLAGS)}, and the caller's context."
        near = get_close_matches(name, reads, 1, 0.6)
        if near:
            hint += f" Did you mean {{{{{name}}}}} for {{{{{near[0]}}}}}?"
        problem = f"{where} never writes {{{{{name}}}}}, so that text would be lost"
        raise SourceError(f"{problem}; it reads {', '.join(reads) or 'nothing'}", hint=hint)
    return field


def _quote_text(tokens: Tokens) -> str:
    """Return the field as tags only, which may be laid out freely: each removes the space before it."""
    parts = []
    previous_kind = ""
    for index, (kind, text) in enumerate(tokens):
        next_kind = tokens[index + 1][0] if index + 1 < len(tokens) else ""
        if kind == "data":
            parts.append(f"{{{{- {literal(text)} }}}}")
        elif kind == "whitespace" and (
            previous_kind.endswith("_begin") or next_kind.endswith("_end")
        ):
            pass  # the tag brings its own
        else:
            parts.append(TAGS.get(kind, text))
        previous_kind = kind
    return "".join(parts)


def _parse_text(tokens: Tokens) -> tuple[Text | None, set[str], set[str]]:
    """Return the field as text with slots, if it has nothing but text and bare names, and its names.

    The names are those in `{{name}}`, and those anywhere else: a test or a filter may give a default.
    """
    parts: list[str | Slot] = []
    others: set[str] = set()
    solid = [token for token in tokens if token[0] != "whitespace"]
    is_simple = True
    for index, (kind, text) in enumerate(solid):
        around = [kind for kind, _ in solid[max(index - 1, 0) : index + 2]]
        if kind == "data":
            parts.append(text)
        elif around == ["variable_begin", "name", "variable_end"]:
            parts.append(Slot(text))
        elif kind not in ("variable_begin", "variable_end"):
            is_simple = False
            if kind == "name":
                others.add(text)
    names = {part.name for part in parts if isinstance(part, Slot)}
    return tuple(parts) if is_simple else None, names, others


def knows(source: Any) -> bool:
    """Return True for the content of such a file, or its text."""
    source = object_in(source)
    return (
        isinstance(source, Mapping)
        and set(source) <= set(KEYS)
        and bool({"conversation", "query"} & set(source))
    )


def read(source: Any, exact: bool = False) -> Translation:
    """Translate the file to one Jinja template."""
    spec = PaddleNLPSpec.of(source)
    for name in RESERVED:
        if name in spec.variables:
            problem = f"a field reads {name!r}, which means something else in a template"
            raise SourceError(f"{problem} over messages")
    facts = {"template": dict(to_mapping(source, "a chat_template.json"))}
    return Translation(_write_jinja(spec, exact), facts=facts)


# -- Jinja -----------------------------------------------------------------------------------------


CHAT = """\
@is_training@
@system_variable@
@rounds@
@length@
@system@
@prompt_length@
{%- for message in @turns@ %}
    {%- if message.role == 'user' and loop.index0 % 2 == 0 %}
@user@
    {%- elif message.role == 'assistant' and loop.index0 % 2 == 1 and not message.tool_calls %}
@bot@
    {%- else %}
        {{- raise_exception(@refusal@) }}
    {%- endif %}
{%- endfor %}"""
IS_TRAINING = "{%- set is_training = is_training | default(false) %}"
SYSTEM = "{%- if messages and messages[0].role == 'system' %}{%- set system = messages[0].content %}{%- endif %}"
ROUNDS = (
    "{%- set rounds = messages[1:] if messages and messages[0].role == 'system' else messages %}"
)
LENGTH = "{%- set length = (@turns@ | length + 1) // 2 %}"
# PaddleNLP sets it after the system text, and never in training.
PROMPT_LENGTH = f"{{%- if add_generation_prompt %}}{LENGTH}{{%- endif %}}"
REFUSAL = "this template takes user and assistant messages in turn, the user first, no tool calls"


def _write_jinja(spec: PaddleNLPSpec, exact: bool) -> str:
    has_system = exact or "system" in spec.variables
    has_length = "length" in spec.variables
    blocks = {
        "is_training": IS_TRAINING if "is_training" in spec.variables else "",
        "system_variable": SYSTEM if "system" in spec.variables else "",
        "rounds": ROUNDS if has_system else "",
        "length": LENGTH if has_length and not exact else "",
        "prompt_length": PROMPT_LENGTH if has_length and exact else "",
        "turns": "rounds" if has_system else "messages",
    }
    parts = {
        "system": "\n".join(_write_system(spec)),
        "user": "\n".join(_indent(_indent(_write_user(spec, exact)))),
        "bot": "\n".join(_indent(_indent(_write_bot(spec)))),
        "refusal": literal(REFUSAL if has_system else f"{REFUSAL} and no system message"),
    }
    return fill_marks(CHAT, parts, blocks)


def _write_system(spec: PaddleNLPSpec) -> list[str]:
    field = spec.system
    if field is None or not field.tags:
        return []
    if field.text is not None and not field.variables:
        return [f"{{{{- {concatenate(field.text, {})} }}}}"]
    # What a field assigns must not be seen by the others.
    return [f"{{%- with %}}{field.tags}{{%- endwith %}}" if field.has_assignments else field.tags]


def _write_user(spec: PaddleNLPSpec, exact: bool) -> list[str]:
    """The last turn of a prompt is written by `query`, any other by `conversation`."""
    query = ["{{- message.content }}"]
    if spec.query:
        query = _write_round(spec.query, {"query": "message.content"}, stale_flags=exact)
    if spec.user is None:
        refusal = literal(NO_CONVERSATION + "the rounds before the last")
        return [
            "{%- if loop.last %}",
            *_indent(query),
            f"{{%- else %}}{{{{- raise_exception({refusal}) }}}}",
            "{%- endif %}",
        ]
    texts = {"user": "message.content", "bot": "loop.nextitem.content if not loop.last"}
    user = _write_round(spec.user, texts)
    if query == user:
        return user
    return [
        "{%- if loop.last and add_generation_prompt %}",
        *_indent(query),
        "{%- else %}",
        *_indent(user),
        "{%- endif %}",
    ]


def _write_bot(spec: PaddleNLPSpec) -> list[str]:
    if spec.bot is None:
        return [f"{{{{- raise_exception({literal(NO_CONVERSATION + 'replies')}) }}}}"]
    lines = _write_round(spec.bot, {"user": "loop.previtem.content", "bot": "message.content"})
    return [*lines[:-1], "{%- generation %}" + lines[-1] + "{%- endgeneration %}"]


def _write_round(
    field: PaddleNLPField, texts: Mapping[str, str], stale_flags: bool = False
) -> list[str]:
    """Write a field in its round, after the variables that it reads.

    Args:
        field: the field.
        texts: the variables that are messages, and the expressions for them.
        stale_flags: `is_first` and `is_last` are those of the previous round.
    """
    own = {name: value for name, value in texts.items() if value == "message.content"}
    if field.text is not None and field.variables <= {*own, "index"}:
        values = own | {"index": f"({ROUND_INDEX}) | string"}
        return [f"{{{{- {concatenate(field.text, values)} }}}}"]
    values = {
        **texts,
        "index": ROUND_INDEX,
        "is_first": "loop.index0 < 2",
        "is_last": f"{ROUND_INDEX} == (loop.length - 1) // 2",
    }
    if stale_flags:
        values |= {"is_first": "loop.index0 == 2 if loop.index0", "is_last": "false if loop.index0"}
    read = [name for name in values if name in field.variables]
    return [*(f"{{%- set {name} = {values[name]} %}}" for name in read), field.tags]


def _indent(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


# -- writing turns ---------------------------------------------------------------------------------


def write(turns: Turns, eos_token: str | None = None) -> list[JsonObject]:
    """Return the content of the file for these turns; eos_token can only be given as its text.

    A template that trims a user's text does so before or after a system text is joined to it: there is one for each.
    Not expressed: first rounds of another kind, though the fields could tell them apart.
    """
    fields = [_write_fields(turns, eos_token, trims_joined=False)]
    if turns.system_in_user and "user" in turns.trimmed_roles:
        fields.append(_write_fields(turns, eos_token, trims_joined=True))
    return fields


def _write_fields(turns: Turns, eos_token: str | None, trims_joined: bool) -> JsonObject:
    names = {"round": "{{index + 1}}", "index": "{{index}}", "bot_name": "{{bot_name}}"}
    separator = ""
    if turns.separator:
        separator = f"{{{{{literal(turns.separator)} if index else ''}}}}"
    system = _write_system_field(turns, {**names, "round": "1", "index": "0"})
    trim = _trim(turns, "user")
    user, query = f"user{trim}", f"query{trim}"
    if turns.system_in_user or turns.system_in_last_user:
        system = ""
        # A query is always the last turn; its own flags are those of the round before.
        in_user, in_query = (
            ("is_last", "true") if turns.system_in_last_user else ("index == 0",) * 2
        )
        text = f"(({_concatenate_system(turns)}) if system and {{}} else '') ~ "
        if trims_joined:
            user, query = "user", "query"
        user, query = text.replace("{}", in_user) + user, text.replace("{}", in_query) + query
        if trims_joined:
            user, query = f"({user}){trim}", f"({query}){trim}"
    fields: JsonObject = {
        "system": _write_text((turns.prefix,), {}) + system,
        "conversation": [
            separator + _write_text(turns.user, {**names, "text": f"{{{{{user}}}}}"}),
            _write_reply(turns, eos_token),
        ],
        "query": separator
        + _write_text(
            (*turns.user, turns.generation_prompt), {**names, "text": f"{{{{{query}}}}}"}
        ),
    }
    return {key: value for key, value in fields.items() if value}


def _write_reply(turns: Turns, eos_token: str | None) -> str:
    """Return the field of replies, of which the last may start and end otherwise."""
    reply_suffix = turns.reply_suffix
    if turns.eos:
        reply_suffix += eos_token or ""
    before: str | Slot = turns.before_reply
    last = ""
    slots = {"bot": f"{{{{bot{_trim(turns, 'assistant')}}}}}"}
    if turns.last_prefix is not None:
        before = Slot("before")
        start, last_start = literal(turns.before_reply), literal(turns.last_prefix)
        slots["before"] = f"{{{{{last_start} if is_last else {start}}}}}"
    if turns.last_suffix.strip():
        last = f"{{{{{literal(turns.last_suffix)} if is_last else ''}}}}"
    return _write_text((before, Slot("bot"), reply_suffix), slots) + last


def _write_text(text: Text, slots: Mapping[str, str]) -> str:
    """Return the text as a field; what Jinja would take for a tag, or change, is quoted."""
    parts = []
    for part in text:
        if isinstance(part, Slot):
            parts.append(slots[part.name])
        elif "{" in part or "\r" in part:
            parts.append(f"{{{{{literal(part)}}}}}")
        else:
            parts.append(part)
    return "".join(parts)


def _write_system_field(turns: Turns, slots: Mapping[str, str]) -> str:
    if turns.system is None:
        return ""
    if turns.default_system is None:
        return f"{{{{({_concatenate_system(turns)}) if system else ''}}}}"
    default = literal(turns.default_system)
    text = f"{{{{system | default({default}){_trim(turns, 'system')}}}}}"
    return _write_text(turns.system, {**slots, "text": text})


def _concatenate_system(turns: Turns) -> str:
    values = {
        "text": f"system{_trim(turns, 'system')}",
        "round": literal("1"),
        "index": literal("0"),
        "bot_name": "bot_name",
    }
    return concatenate(turns.system or (), values)


def _trim(turns: Turns, role: str) -> str:
    return " | trim" if role in turns.trimmed_roles else ""
