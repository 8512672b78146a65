r"""LLaMA-Factory's templates: one list of slots per kind of turn.

    {
        "format_user": ["<|im_start|>user\n{{content}}<|im_end|>\n<|im_start|>assistant\n"],
        "format_assistant": ["{{content}}<|im_end|>\n"],
        "format_system": ["<|im_start|>system\n{{content}}<|im_end|>\n"],
        "format_prefix": [["bos_token"]],
        "stop_words": ["<|im_end|>"],
        "tool_format": "qwen",
    }

The source is the arguments of `register_template`, as a mapping or its JSON. A slot is text with
`{{content}}` (and `{{idx}}`, the number of the round), a token by name (`{"eos_token"}` in Python,
`["eos_token"]` in JSON) or a token by its text (`{"token": "<|user|>"}`). `format_user` and
`format_observation` end with the generation prompt, so what remains of an assistant turn is exactly
what is trained: that is our `{% generation %}` block. A template also has a class, which says where
the system text goes (`Llama2Template`: into the first user turn) and whether every reply starts
with reasoning (`ReasoningTemplate`), and a tool format (`llamafactory_tools.toml`).

Without `exact`, the generation prompt is told from the end of the user turn by comparing it with
the ends of system and assistant turns, so `add_generation_prompt` has a meaning;
`reasoning_content` is written; tool calls are closed where the original forgets to. With `exact`,
the slots are taken whole, as in the original: the generation prompt follows every user turn.

Not supported: the media plugins (placeholders of images are tokens, not template text), the
end-of-text token that `efficient_eos` adds once after a whole training sample (kept as a fact), and
the texts that LLaMA-Factory's OpenAI converter adds to system prompts.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from turnwise.dialects.translation import Translation, object_in, to_mapping
from turnwise.dialects.turns import TOKEN_MARKS, Slot, Text, Turns, check_slots, fill_marks, literal
from turnwise.errors import SourceError, did_you_mean, short_repr
from turnwise.messages import JsonMapping, JsonObject
from turnwise.schema import (
    ANYTHING,
    BOOLEAN,
    STRING,
    STRINGS,
    check,
    check_table,
    list_of,
    one_of,
)

SLOT_KEYS = (
    "format_user",
    "format_assistant",
    "format_system",
    "format_function",
    "format_observation",
    "format_prefix",
)
CLASSES = (
    "Template",
    "Llama2Template",
    "ReasoningTemplate",
    "Glm47ReasoningTemplate",
    "MossVLTemplate",
)
RULES = {
    **dict.fromkeys(SLOT_KEYS, ANYTHING),  # checked by `_parse_slots`
    "default_system": STRING,
    "name": STRING,
    "stop_words": STRINGS,
    "thought_words": list_of(STRING, "a list of two strings", length=2),
    "tool_call_words": STRINGS,
    "efficient_eos": BOOLEAN,
    "replace_eos": BOOLEAN,
    "replace_jinja_template": BOOLEAN,
    "enable_thinking": BOOLEAN,
    "preserve_thinking": BOOLEAN,
    "format_tools": ANYTHING,
    "tool_format": ANYTHING,
    "template_class": ANYTHING,
    "mm_plugin": ANYTHING,
}
KEYS = tuple(RULES)
FACTS = (
    "efficient_eos",
    "replace_eos",
    "replace_jinja_template",
    "enable_thinking",
    "preserve_thinking",
    "mm_plugin",
    "name",
    "tool_call_words",
)
THOUGHT_WORDS = ("<think>\n", "\n</think>\n\n")
TOKENS = ("bos_token", "eos_token")

# Between results of one turn, whatever the template's own tags.
RESULT_SEPARATOR = "\n</tool_response>\n<tool_response>\n"
PLACEHOLDER = re.compile(r"(\{\{(?:content|idx)\}\})")
TOKENS_BY_MARK = {mark: name for name, mark in TOKEN_MARKS.items()}
PLACEHOLDER_OR_MARK = re.compile(f"{PLACEHOLDER.pattern[:-1]}|{'|'.join(TOKENS_BY_MARK)})")

FORMATS: Mapping[str, Mapping[str, str]] = tomllib.loads(
    files("turnwise.dialects").joinpath("llamafactory_tools.toml").read_text(encoding="utf-8")
)
"""The tool formats, by their names."""

Item = tuple[str, str]
"""A part of a slot: ("text", text), ("token", name), ("content", ""), ("idx", "")."""
Items = tuple[Item, ...]

CONTENT: Item = ("content", "")
INDEX: Item = ("idx", "")
EOS: Item = ("token", "eos_token")


@dataclass(frozen=True, slots=True)
class LlamaFactorySpec:
    """The checked arguments, with defaults filled in."""

    slots: Mapping[str, Items]
    tools: Items | None  # a text of the template's own around the JSON of the tools
    tool_format: str
    call_format: str
    kind: str
    default_system: str
    stop_words: tuple[str, ...]
    thought_words: tuple[str, str]
    facts: JsonMapping

    @property
    def reasons(self) -> bool:
        """True if every reply starts with reasoning."""
        return self.kind.endswith("ReasoningTemplate")


def knows(source: Any) -> bool:
    """Return True for a mapping, or its JSON, with a `format_...` list of slots."""
    source = object_in(source)
    if isinstance(source, str):  # invalid JSON: `read` will tell what is wrong with it
        return bool(re.match(r'\s*\{\s*"format_', source))
    return isinstance(source, Mapping) and any(
        key in source for key in (*SLOT_KEYS, "format_tools")
    )


def read(source: Any, exact: bool = False) -> Translation:
    """Translate the arguments of `register_template`, given as a mapping or its JSON."""
    spec = _parse_spec(source, exact)
    options = {}
    if spec.reasons and spec.facts.get("enable_thinking") is False:
        options["enable_thinking"] = False
    jinja = LlamaFactoryJinjaWriter(spec, exact).write()
    return Translation(jinja, stops=spec.stop_words, options=options, facts=spec.facts)


# -- parsing ---------------------------------------------------------------------------------------


def _parse_spec(source: Any, exact: bool) -> LlamaFactorySpec:
    mapping = to_mapping(source, "a LLaMA-Factory template")
    given = check_table(mapping, RULES, skip_nulls=True)
    stop_words = tuple(given.get("stop_words", ()))
    slots = _parse_all_slots(given, exact)
    if given.get("replace_eos"):
        if not stop_words:
            raise SourceError("replace_eos uses the first of stop_words, which is empty")
        stop: Item = ("text", stop_words[0])
        for key, items in slots.items():
            slots[key] = tuple(stop if item == EOS else item for item in items)
    tools = given.get("format_tools")
    tool_format, call_format = _find_tool_formats(given, exact)
    has_own_tools = tools is not None and _format_name(tools) is None
    opened, closed = given.get("thought_words", THOUGHT_WORDS)
    return LlamaFactorySpec(
        slots=slots,
        tools=_parse_slots("format_tools", tools, exact) if has_own_tools else None,
        tool_format=tool_format,
        call_format=call_format,
        kind=_check_choice(given.get("template_class") or "Template", CLASSES, "template_class"),
        default_system=given.get("default_system", ""),
        stop_words=stop_words,
        thought_words=(opened, closed),
        facts={key: mapping[key] for key in FACTS if key in mapping},
    )


def _parse_all_slots(given: JsonMapping, exact: bool) -> dict[str, Items]:
    slots = {key: _parse_slots(key, given[key], exact) for key in SLOT_KEYS if key in given}
    # Tool results are written like user messages, and calls like replies, unless slots are given.
    slots.setdefault("format_observation", slots.get("format_user", (CONTENT,)))
    slots.setdefault("format_user", (CONTENT,))
    slots.setdefault("format_system", (CONTENT,))
    reply = (CONTENT,) if given.get("efficient_eos") else (CONTENT, EOS)
    slots.setdefault("format_assistant", reply)
    slots.setdefault("format_function", slots["format_assistant"])
    slots.setdefault("format_prefix", ())
    return slots


def _check_choice(value: Any, choices: Sequence[str], key: str) -> str:
    """Return the name of a choice, which may be given as a class."""
    name = value.__name__ if isinstance(value, type) else value
    return str(check(name, one_of(choices), key))


def _find_tool_formats(given: JsonMapping, exact: bool) -> tuple[str, str]:
    common = given.get("tool_format")
    tool_format = _format_name(given.get("format_tools")) or common
    call_format = _format_name(given.get("format_function")) or common
    if not exact:
        # The original uses "default" for the calls of a template that has a format for tools only.
        call_format = call_format or tool_format
    known = tuple(FORMATS)
    return (
        _check_choice(tool_format or "default", known, "tool_format"),
        _check_choice(call_format or "default", known, "tool_format"),
    )


def _format_name(formatter: Any) -> Any:
    """Return the tool format that a formatter, or its mapping, names; None if it has slots."""
    if isinstance(formatter, Mapping):
        return formatter.get("tool_format")
    return getattr(formatter, "tool_format", None)


def _parse_slots(key: str, given: Any, exact: bool) -> Items:
    """Parse a list of slots; a formatter object, or its mapping, is asked for its slots."""
    if isinstance(given, Mapping) and "token" not in given:
        given = given.get("slots")
    given = getattr(given, "slots", given)
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, Sequence):
        raise SourceError(f"{key} must be a list of slots, not {short_repr(given)}")
    items: list[Item] = []
    for index, slot in enumerate(given):
        items += _parse_slot(f"{key}[{index}]", slot, exact)
    check_slots(len(items), key, "slots")
    has_content = CONTENT in items
    if has_content and key == "format_prefix":
        raise SourceError(f"{key} must not contain {{{{content}}}}: {short_repr(list(given))}")
    if not has_content and key != "format_prefix":
        text = "".join(text for kind, text in items if kind == "text")
        names = re.findall(r"\{\{\s*+(\w*+)\s*+\}\}", text)
        hint = did_you_mean(names[0], ("content", "idx"), "Slots") if names else None
        problem = f"{key} must contain {{{{content}}}}: {short_repr(list(given))}"
        raise SourceError(problem, hint=hint)
    return tuple(items)


def _parse_slot(path: str, slot: Any, exact: bool) -> list[Item]:
    if isinstance(slot, str):
        pieces = [piece for piece in PLACEHOLDER.split(slot) if piece]
        return [
            (piece[2:-2], "") if PLACEHOLDER.fullmatch(piece) else ("text", piece)
            for piece in pieces
        ]
    if isinstance(slot, Mapping) and set(slot) == {"token"} and isinstance(slot["token"], str):
        return [("text", slot["token"])]
    if isinstance(slot, Set | list | tuple) and len(slot) == 1:
        (name,) = slot
        if name in TOKENS:
            return [("token", name)]
        if exact:
            return []  # the original ignores a set with any other text in it
        raise SourceError(
            f"{path}: unknown token {short_repr(name)}; LLaMA-Factory would write nothing",
            hint='Known: bos_token, eos_token. A token by its text is {"token": text}.',
        )
    accepted = 'a string, ["bos_token"], ["eos_token"] or {"token": text}'
    raise SourceError(f"{path} must be {accepted}, not {short_repr(slot)}")


# -- writing turns ---------------------------------------------------------------------------------


def write(turns: Turns) -> JsonObject:
    """Return the arguments of `register_template` for these turns.

    A list within the slots names a special token. A reply is written after the generation prompt, so
    the text before replies can only extend it. An empty default system text cannot be expressed.
    """
    before_reply = ""
    if turns.before_reply.startswith(turns.generation_prompt):
        before_reply = turns.before_reply.removeprefix(turns.generation_prompt)
    eos = TOKEN_MARKS["eos_token"] if turns.eos else ""
    after_reply = turns.reply_suffix + eos + turns.separator
    arguments = {
        "format_prefix": _write_slots((turns.prefix,)),
        "format_system": None if turns.system is None else _write_slots(turns.system),
        "format_user": _write_slots((*turns.user, turns.generation_prompt)),
        "format_assistant": _write_slots((before_reply, Slot("text"), after_reply)),
        "default_system": turns.default_system,
        "stop_words": list(turns.stops),
        "template_class": "Llama2Template" if turns.system_in_user else None,
    }
    return {key: value for key, value in arguments.items() if value}


def _write_slots(text: Text) -> list[Any]:
    """Return a text as slots, with special tokens by name."""
    slots: list[Any] = [""]
    for part in text:
        if isinstance(part, Slot):
            slots[-1] += "{{content}}" if part.name == "text" else "{{idx}}"
            continue
        for piece in PLACEHOLDER_OR_MARK.split(part):
            if PLACEHOLDER.fullmatch(piece):
                # Text that looks like a placeholder: cut in two, it is none.
                slots[-1] += piece[:2]
                slots.append(piece[2:])
            elif piece in TOKENS_BY_MARK:
                slots += [[TOKENS_BY_MARK[piece]], ""]
            else:
                slots[-1] += piece
    return [slot for slot in slots if slot]


# -- Jinja -----------------------------------------------------------------------------------------


def _split_at_content(items: Items) -> tuple[Items, Items]:
    at = items.index(CONTENT)
    return items[:at], items[at + 1 :]


def _split_characters(items: Items) -> Items:
    """Return one item per character, so that texts that were cut differently can be compared."""
    found: list[Item] = []
    for kind, text in items:
        found += [(kind, character) for character in text] if kind == "text" else [(kind, text)]
    return tuple(found)


def _join_texts(items: Items) -> Items:
    found: list[Item] = []
    for kind, text in items:
        if kind == "text" and found and found[-1][0] == "text":
            found[-1] = ("text", found[-1][1] + text)
        else:
            found.append((kind, text))
    return tuple(found)


class LlamaFactoryJinjaWriter:
    """Writes the Jinja of one template: the parts of `CHAT`."""

    def __init__(self, spec: LlamaFactorySpec, exact: bool) -> None:
        self.spec = spec
        self.exact = exact
        self.system_in_user = spec.kind == "Llama2Template"
        self.generation_prompt = () if exact else self._find_generation_prompt()
        has_index = INDEX in spec.slots["format_user"]
        self.counts_rounds = has_index or (exact and not self.system_in_user)

    def write(self) -> str:
        """Return the whole template: first the blocks that it has, then their texts, which are looked at once."""
        spec, slots = self.spec, self.spec.slots
        has_end = bool(self.generation_prompt) or spec.reasons
        has_late_system = not self.exact and not self.system_in_user
        blocks = {
            "without_reasoning": WITHOUT_REASONING if spec.reasons else "",
            "count": "{%- set ns = namespace(round=0) -%}" if self.counts_rounds else "",
            "system_turn": INTRO if self.system_in_user else SYSTEM_TURN,
            "start_reply": REASONING if spec.reasons else "@prompt@\n{%- generation -%}",
            "next_round": "{%- set ns.round = ns.round + 1 -%}" if self.counts_rounds else "",
            "late_system": LATE_SYSTEM if has_late_system else "",
            "end": END if has_end else "",
            "end_thought": END_THOUGHT if spec.reasons else "",
            "given_thought": "" if self.exact else GIVEN_THOUGHT,
        }
        opened, closed = spec.thought_words
        is_bare = spec.kind == "Glm47ReasoningTemplate"
        texts = {
            "tools": self._write_tools(),
            "calls": self._write_calls(),
            "is_system": "== 'system'" if self.exact else "in ['system', 'developer']",
            "prefix": self._print(slots["format_prefix"]),
            "system": self._write_system(),
            "user": self._write_user(),
            "prompt": self._print(self.generation_prompt),
            "call": self._print(
                slots["format_function"], "content ~ call_text(message.tool_calls)"
            ),
            "reply": self._print(slots["format_assistant"], "content"),
            "late": self._print(slots["format_system"], "message.content"),
            "empty_thought": literal(closed if is_bare else opened + closed),
            "open_mark": literal(opened.strip()),
            "close_mark": literal(closed.strip()),
            "open": literal(opened),
            "close": literal(closed),
            "default": literal(spec.default_system),
            **self._write_result(),
        }
        return fill_marks(CHAT, texts, blocks) + "\n"

    def _find_generation_prompt(self) -> Items:
        """Return the end of the user slots without what ends other turns too."""

        def after_content(key: str) -> Items:
            return _split_characters(_split_at_content(self.spec.slots[key])[1])

        # "<|im_end|>\n<|im_start|>assistant\n": the first part also ends the other turns.
        turn_ends = [after_content("format_assistant")]
        if not self.system_in_user:
            turn_ends.append(after_content("format_system"))
        after_user = after_content("format_user")
        shared = [len(end) for end in turn_ends if after_user[: len(end)] == end]
        prompt = after_user[max(shared, default=0) :]
        # It must also end a tool result, for a reply follows both.
        after_result = after_content("format_observation")
        if prompt and after_result[-len(prompt) :] == prompt:
            return prompt
        return ()

    def _expression(self, items: Items, content: str) -> str:
        """Return items as one Jinja expression; empty if they write nothing."""
        index = literal("{{idx}}") if self.exact else "ns.round"
        values = {"content": content, "idx": index}
        parts = []
        for kind, text in _join_texts(items):
            parts.append(literal(text) if kind == "text" else values.get(kind, text))
        return " ~ ".join(filter(None, parts))

    def _print(self, items: Items, content: str = "") -> str:
        expression = self._expression(items, content)
        return f"{{{{- {expression} -}}}}" if expression else ""

    def _without_generation_prompt(self, key: str) -> Items:
        items = self.spec.slots[key]
        length = len(self.generation_prompt)
        if not length:
            return items
        before, after = _split_at_content(items)
        return (*before, CONTENT, *_join_texts(_split_characters(after)[:-length]))

    def _write_tools(self) -> str:
        if self.spec.tools is not None:
            return self._print(self.spec.tools, "tools | tojson")
        return FORMATS[self.spec.tool_format]["tools"]

    def _write_calls(self) -> str:
        call_format = FORMATS[self.spec.call_format]
        calls = call_format["calls"]
        return call_format.get("exact_calls", calls) if self.exact else calls

    def _write_system(self) -> str:
        tools = "(tool_text() if tools else '')"
        if self.spec.kind == "MossVLTemplate":
            tools = "((tool_text() if system else tool_text().lstrip('\\n')) if tools else '')"
        return self._expression(self.spec.slots["format_system"], f"system ~ {tools}")

    def _write_user(self) -> str:
        content = "message.content"
        if self.system_in_user:
            content = "(intro if loop.first else '') ~ message.content"
        items = self._without_generation_prompt("format_user")
        if not (self.exact and self.counts_rounds):
            return self._print(items, content)
        # The original fills in the number of the round last, so it also finds {{idx}} in a user's text.
        index = literal("{{idx}}")
        return f"{{{{- ({self._expression(items, content)}) | replace({index}, ns.round | string, 1) -}}}}"

    def _write_result(self) -> dict[str, str]:
        """Write a tool result; consecutive ones are joined by what closes one and opens the next."""
        before, after = _split_at_content(self._without_generation_prompt("format_observation"))
        separator = RESULT_SEPARATOR if self.exact else "\n"
        if not self.exact:
            # "<tool_response>" before a result and its closing tag after it: repeat both.
            tag = re.search(r"<(\w+)>\n?$", "".join(text for _, text in before))
            if tag:
                closing = re.match(rf"\n?</{tag[1]}>", "".join(text for _, text in after))
                separator = f"{closing[0]}\n{tag[0]}" if closing else separator
        return {
            "before": self._print(before),
            "after": self._print(after),
            "separator": literal(separator),
        }


CHAT = """\
@without_reasoning@
{%- macro tool_text() -%}
@tools@
{%- endmacro -%}
{%- macro call_text(calls) -%}
@calls@
{%- endmacro -%}
{%- set leads = messages and messages[0].role @is_system@ -%}
{%- set system = (messages[0].content if leads) or @default@ -%}
{%- set chat = messages[1:] if leads else messages -%}
@count@
@prefix@
@system_turn@
{%- for message in chat -%}
{%- if message.role == 'user' -%}
@user@
{%- elif message.role in ['tool', 'function', 'observation'] -%}
{%- if not (loop.previtem and loop.previtem.role in ['tool', 'function', 'observation']) -%}
@before@
{%- endif -%}
{{- message.content -}}
{%- if loop.nextitem and loop.nextitem.role in ['tool', 'function', 'observation'] -%}
{{- @separator@ -}}
{%- else -%}
@after@
{%- endif -%}
{%- elif message.role == 'assistant' -%}
{%- set content = message.content or '' -%}
@start_reply@
{%- if message.tool_calls -%}
@call@
{%- else -%}
@reply@
{%- endif -%}
{%- endgeneration -%}
@next_round@
@late_system@
{%- else -%}
{{- raise_exception('no slot for the role ' ~ message.role) -}}
{%- endif -%}
{%- endfor -%}
@end@
"""
INTRO = "{%- set intro = @system@ if system or tools else '' -%}"
SYSTEM_TURN = "{%- if system or tools -%}\n{{- @system@ -}}\n{%- endif -%}"
LATE_SYSTEM = "{%- elif message.role == 'system' -%}\n@late@"
GIVEN_THOUGHT = """\
{%- if message.reasoning_content -%}
{%- set content = @open@ ~ message.reasoning_content ~ @close@ ~ content -%}
{%- endif -%}"""
# Empty reasoning is added to a reply without any: trained if thinking is on, else in the prompt.
REASONING = """\
@given_thought@
{%- set past = discarding_history_cot and not loop.last -%}
{%- if past or thinking_off -%}
{%- set content = without_thought(content) -%}
{%- endif -%}
{%- set thought = '' if past or @open_mark@ in content or @close_mark@ in content else @empty_thought@ -%}
@prompt@
{%- if thinking_off -%}
{{- thought -}}
{%- set thought = '' -%}
{%- endif -%}
{%- generation -%}
{{- thought -}}"""
END_THOUGHT = "{%- if thinking_off -%}\n{{- @empty_thought@ -}}\n{%- endif -%}"
END = "{%- if add_generation_prompt -%}\n@prompt@\n@end_thought@\n{%- endif -%}"
WITHOUT_REASONING = """\
{%- set thinking_off = enable_thinking is defined and not enable_thinking -%}
{%- macro without_thought(text) -%}
{%- set ns = namespace(kept=text.split(@open@)[0], held='') -%}
{%- for part in text.split(@open@)[1:] -%}
{%- set ns.held = ns.held ~ @open@ ~ part -%}
{%- if @close@ in part -%}
{%- set ns.kept = ns.kept ~ part.split(@close@)[1:] | join(@close@) -%}
{%- set ns.held = '' -%}
{%- endif -%}
{%- endfor -%}
{{- (ns.kept ~ ns.held).lstrip('\\n') -}}
{%- endmacro -%}"""
