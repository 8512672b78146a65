"""LLaMA-Factory's templates: one list of slots per kind of turn.

A slot is text with `{{content}}` (and `{{idx}}`, the number of the round), a token by name (`{"eos_token"}` in
Python, `["eos_token"]` in JSON) or a token by its text (`{"token": "<|user|>"}`). `format_user` and
`format_observation` end with the assistant's opening, so that what remains of an assistant turn is exactly what is
learnt: that is our `{% generation %}` block. Beside the slots a template has a class, which says where the system
text goes (`Llama2Template`: into the first user turn) and whether every reply opens with a thought
(`ReasoningTemplate`), and a tool format (see `llamafactory_tools`).

Without `exact`, the opening is told apart from the end of the user's turn by what the system and assistant slots end
with, so `add_generation_prompt` means something; reasoning in a field of its own is written; the tools' texts are
closed where the original forgets to. With `exact`, the slots are taken whole, as the original does: the opening
follows every user turn.

Not here: the media plugins (placeholders of images are tokens, not template text), the end-of-text token that
`efficient_eos` adds once behind a whole training sample (a fact of the translation), and the texts that its OpenAI
converter adds to system prompts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from turnwise.dialects.llamafactory_tools import FORMATS
from turnwise.dialects.translation import Translation, object_in, parse_json_object
from turnwise.dialects.turns import TOKEN_MARKS, Slot, Text, Turns, literal
from turnwise.errors import SourceError, did_you_mean, short_repr

SLOTS = (
    "format_user",
    "format_assistant",
    "format_system",
    "format_function",
    "format_observation",
    "format_prefix",
)
TEXTS = {"default_system": "", "name": ""}
LISTS = {"stop_words": (), "thought_words": ("<think>\n", "\n</think>\n\n"), "tool_call_words": ()}
FLAGS = {
    "efficient_eos": False,
    "replace_eos": False,
    "replace_jinja_template": False,
    "enable_thinking": True,
    "preserve_thinking": False,
}
OTHERS = ("format_tools", "tool_format", "template_class", "mm_plugin")
KEYS = (*SLOTS, *TEXTS, *LISTS, *FLAGS, *OTHERS)
CLASSES = (
    "Template",
    "Llama2Template",
    "ReasoningTemplate",
    "Glm47ReasoningTemplate",
    "MossVLTemplate",
)
TOKENS = ("bos_token", "eos_token")

RESULTS = "\n</tool_response>\n<tool_response>\n"  # between results of one turn, whatever the template's own tags
PLACEHOLDER = re.compile(r"(\{\{(?:content|idx)\}\})")
NAMED = {mark: name for name, mark in TOKEN_MARKS.items()}
SPECIAL = re.compile(f"{PLACEHOLDER.pattern[:-1]}|{'|'.join(NAMED)})")

Item = tuple[str, str]
"""What a slot is made of: ("text", text), ("token", name), ("content", ""), ("idx", "")."""


@dataclass(frozen=True, slots=True)
class LlamaFactorySpec:
    """A template as data, defaults fill_slots in."""

    slots: Mapping[str, tuple[Item, ...]]
    tools: tuple[Item, ...] | None  # a text of the template's own around the JSON of the tools
    tool_format: str
    call_format: str
    kind: str
    default_system: str
    stop_words: tuple[str, ...]
    thought_words: tuple[str, str]
    facts: Mapping[str, Any]

    @property
    def reasons(self) -> bool:
        return self.kind.endswith("ReasoningTemplate")


def knows(source: Any) -> bool:
    """Whether this looks like one of these templates: a mapping (or its JSON) with a `format_...` list of slots."""
    source = object_in(source)
    if isinstance(source, str):  # `mapping` says what is wrong with its JSON
        return bool(re.match(r'\s*\{\s*"format_', source))
    return isinstance(source, Mapping) and any(key in source for key in (*SLOTS, "format_tools"))


def read(source: Any, exact: bool = False) -> Translation:
    """The template of a `register_template` call, given as a mapping of its arguments, or as the JSON of one."""
    spec = parse(source, exact)
    options = (
        {"enable_thinking": False}
        if spec.reasons and spec.facts.get("enable_thinking") is False
        else {}
    )
    return Translation(
        LlamaFactoryJinjaWriter(spec, exact).written(),
        stops=spec.stop_words,
        options=options,
        facts=spec.facts,
    )


def parse(source: Any, exact: bool = False) -> LlamaFactorySpec:
    """The arguments, checked."""
    given = mapping(source)
    for key in given:
        if key not in KEYS:
            hint = did_you_mean(str(key), KEYS, "It has")
            raise SourceError(f"a LLaMA-Factory template has no {short_repr(key)}", hint=hint)
    eos: tuple[Item, ...] = () if flag(given, "efficient_eos") else (("token", "eos_token"),)
    content: tuple[Item, ...] = (("content", ""),)
    slots = {key: slots_of(key, given[key], exact) for key in SLOTS if given.get(key) is not None}
    slots.setdefault("format_observation", slots.get("format_user", content))
    slots.setdefault("format_user", content)
    slots.setdefault("format_system", content)
    slots.setdefault("format_assistant", (*content, *eos))
    slots.setdefault("format_function", slots["format_assistant"])
    slots.setdefault("format_prefix", ())
    stops = words(given, "stop_words")
    if flag(given, "replace_eos"):
        if not stops:
            raise SourceError("'replace_eos' takes the first of 'stop_words', and there is none")
        slots = {key: replaced(items, stops[0]) for key, items in slots.items()}
    tool_format, call_format, tools = tool_formats(given, exact)
    thoughts = words(given, "thought_words")
    if len(thoughts) != 2:
        raise SourceError(
            f"'thought_words' are two texts, not {len(thoughts)}: {short_repr(list(thoughts))}"
        )
    facts = {
        key: given[key] for key in (*FLAGS, "mm_plugin", "name", "tool_call_words") if key in given
    }
    return LlamaFactorySpec(
        slots=slots,
        tools=tools,
        tool_format=tool_format,
        call_format=call_format,
        kind=choice(given.get("template_class") or "Template", CLASSES, "template_class"),
        default_system=text_of(given, "default_system"),
        stop_words=stops,
        thought_words=(thoughts[0], thoughts[1]),
        facts=facts,
    )


def mapping(source: Any) -> Mapping[str, Any]:
    if isinstance(source, str):
        return parse_json_object(source, "a LLaMA-Factory template")
    if not isinstance(source, Mapping):
        raise SourceError(f"a LLaMA-Factory template is a mapping, not {type(source).__name__}")
    return source


def flag(given: Mapping[str, Any], key: str) -> bool:
    value = given.get(key, FLAGS[key])
    if value is not None and not isinstance(value, bool):
        raise SourceError(f"{key!r} is true or false, not {short_repr(value)}")
    return bool(value)


def text_of(given: Mapping[str, Any], key: str) -> str:
    value = given.get(key) or ""
    if not isinstance(value, str):
        raise SourceError(f"{key!r} is a text, not {short_repr(value)}")
    return value


def words(given: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = given.get(key)
    value = LISTS[key] if value is None else value
    if (
        isinstance(value, str)
        or not isinstance(value, Sequence)
        or not all(isinstance(word, str) for word in value)
    ):
        raise SourceError(f"{key!r} is a list of texts, not {short_repr(value)}")
    return tuple(value)


def choice(value: Any, known: Sequence[str], key: str) -> str:
    name = value.__name__ if isinstance(value, type) else value
    if name not in known:
        raise SourceError(
            f"{key!r} has no {short_repr(name)}", hint=did_you_mean(str(name), known, "Known")
        )
    return str(name)


def tool_formats(given: Mapping[str, Any], exact: bool) -> tuple[str, str, tuple[Item, ...] | None]:
    """The names of the formats of tools and of calls; and the template's own slots around the tools, if it has some."""
    tools, function, common = (
        given.get("format_tools"),
        given.get("format_function"),
        given.get("tool_format"),
    )
    tool_name = named_format(tools) or common
    # the original falls back to "default" for the calls of a template that names a format for its tools alone
    call_name = named_format(function) or common or (None if exact else tool_name)
    own = (
        slots_of("format_tools", tools, exact)
        if tools is not None and named_format(tools) is None
        else None
    )
    tool_name, call_name = (
        choice(n or "default", tuple(FORMATS), "tool_format") for n in (tool_name, call_name)
    )
    return tool_name, call_name, own


def named_format(formatter: Any) -> str | None:
    if isinstance(formatter, Mapping):
        return formatter.get("tool_format")
    return getattr(formatter, "tool_format", None)


def slots_of(key: str, given: Any, exact: bool) -> tuple[Item, ...]:
    """Slots as a list of texts and tokens; a formatter object, or its mapping, is asked for its slots."""
    if isinstance(given, Mapping) and "token" not in given:
        given = given.get("slots")
    given = getattr(given, "slots", given)
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, Sequence):
        raise SourceError(f"{key!r} is a list of slots, not {short_repr(given)}")
    items = [
        item
        for index, slot in enumerate(given)
        for item in items_of(f"{key}[{index}]", slot, exact)
    ]
    has_content = ("content", "") in items
    if has_content == (key == "format_prefix"):
        problem = "no place for {{content}}" if has_content else "no {{content}}"
        words = re.findall(
            r"\{\{\s*(\w*)\s*\}\}", "".join(text for kind, text in items if kind == "text")
        )
        hint = (
            did_you_mean(words[0], ("content", "idx"), "Slots")
            if words and not has_content
            else None
        )
        raise SourceError(f"{key!r} has {problem}: {short_repr(list(given))}", hint=hint)
    return tuple(items)


def items_of(place: str, slot: Any, exact: bool) -> list[Item]:
    if isinstance(slot, str):
        pieces = [piece for piece in PLACEHOLDER.split(slot) if piece]
        return [
            (piece[2:-2], "") if PLACEHOLDER.fullmatch(piece) else ("text", piece)
            for piece in pieces
        ]
    if isinstance(slot, Mapping) and set(slot) == {"token"} and isinstance(slot["token"], str):
        return [("text", slot["token"])]
    if isinstance(slot, (Set, list, tuple)) and len(slot) == 1:
        (name,) = slot
        if name in TOKENS:
            return [("token", name)]
        if exact:
            return []  # a set with any other text in it is passed over by the original
        raise SourceError(
            f"{place} names no token: {short_repr(name)}; LLaMA-Factory writes nothing for it",
            hint='Known: bos_token, eos_token. A token by its text is {"token": text}.',
        )
    raise SourceError(
        f'{place} is a text, ["bos_token"], ["eos_token"] or {{"token": text}}, not {short_repr(slot)}'
    )


def replaced(items: tuple[Item, ...], stop: str) -> tuple[Item, ...]:
    return tuple(("text", stop) if item == ("token", "eos_token") else item for item in items)


def split(items: tuple[Item, ...]) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """What stands before and behind the content."""
    at = items.index(("content", ""))
    return items[:at], items[at + 1 :]


def single(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """One item per character, so that texts that were cut differently compare."""
    return tuple(
        (kind, piece) for kind, text in items for piece in (text if kind == "text" else [text])
    )


def write(turns: Turns) -> dict[str, Any]:
    """The arguments of `register_template` for these turns; a list within the slots names a token of the tokenizer.

    A reply is written behind the opening, so what stands before one must begin with it. A default system text that is
    empty is none.
    """
    ahead = turns.before_reply
    ahead = (
        ahead.removeprefix(turns.generation_prompt)
        if ahead.startswith(turns.generation_prompt)
        else ""
    )
    ending = turns.reply_suffix + (TOKEN_MARKS["eos_token"] if turns.eos else "") + turns.separator
    given = {
        "format_prefix": slots((turns.prefix,)),
        "format_system": None if turns.system is None else slots(turns.system),
        "format_user": slots((*turns.user, turns.generation_prompt)),
        "format_assistant": slots((ahead, Slot("text"), ending)),
        "default_system": turns.default_system,
        "stop_words": list(turns.stops),
        "template_class": "Llama2Template" if turns.system_in_user else None,
    }
    return {key: value for key, value in given.items() if value}


def slots(text: Text) -> list[Any]:
    """A text with its holes as LLaMA-Factory has them, and its tokens by name.

    Text that looks like a hole is cut in two, which hides it.
    """
    holes = {"text": "{{content}}", "index": "{{idx}}"}
    found: list[Any] = [""]
    for part in text:
        if isinstance(part, Slot):
            found[-1] += holes.get(part.name, "{{idx}}")
            continue
        for piece in SPECIAL.split(part):
            if PLACEHOLDER.fullmatch(piece):
                found[-1] += piece[:2]
                found.append(piece[2:])
            elif piece in NAMED:
                found += [[NAMED[piece]], ""]
            else:
                found[-1] += piece
    return [slot for slot in found if slot]


class LlamaFactoryJinjaWriter:
    """The Jinja of one template."""

    def __init__(self, spec: LlamaFactorySpec, exact: bool) -> None:
        self.spec = spec
        self.exact = exact
        self.fused = spec.kind == "Llama2Template"
        self.opening = () if exact else self.found_opening()
        idx = ("idx", "") in spec.slots["format_user"]
        self.counted = idx or (exact and not self.fused)

    def found_opening(self) -> tuple[Item, ...]:
        """What opens the assistant's turn: the end of the user's slots, without what ends other turns too."""
        slots = self.spec.slots
        endings = [single(split(slots["format_assistant"])[1])]
        endings += [] if self.fused else [single(split(slots["format_system"])[1])]
        after, results = (
            single(split(slots[key])[1]) for key in ("format_user", "format_observation")
        )
        shared = max((len(end) for end in endings if after[: len(end)] == end), default=0)
        opening = after[shared:]
        return opening if opening and results[-len(opening) :] == opening else ()

    def written(self) -> str:
        blocks = [self.heading(), self.system(), self.loop(), self.ending()]
        return "\n".join(line for block in blocks for line in block) + "\n"

    # what the blocks are made of

    def said(self, items: tuple[Item, ...], content: str = "") -> str:
        """Items as one Jinja expression, empty where they say nothing."""
        named = {"content": content, "idx": literal("{{idx}}") if self.exact else "ns.round"}
        parts = (
            literal(text) if kind == "text" else named.get(kind, text)
            for kind, text in joined(items)
        )
        return " ~ ".join(filter(None, parts))

    def print(self, items: tuple[Item, ...], content: str = "") -> list[str]:
        said = self.said(items, content)
        return [f"{{{{- {said} -}}}}"] if said else []

    def closed(self, key: str) -> tuple[Item, ...]:
        """The slots of a user's or tool's turn, without the assistant's opening."""
        items = self.spec.slots[key]
        length = len(self.opening)
        if not length:
            return items
        before, after = split(items)
        return (*before, ("content", ""), *joined(single(after)[:-length]))

    def heading(self) -> list[str]:
        spec = self.spec
        lines = []
        if spec.reasons:
            lines += BARE.format(
                open=literal(spec.thought_words[0]), close=literal(spec.thought_words[1])
            ).splitlines()
        tools = FORMATS[spec.tool_format].tools
        if spec.tools is not None:
            tools = "\n".join(self.print(spec.tools, "tools | tojson"))
        calls = FORMATS[spec.call_format].exact if self.exact else FORMATS[spec.call_format].calls
        lines += ["{%- macro tool_text() -%}", *tools.splitlines(), "{%- endmacro -%}"]
        lines += ["{%- macro call_text(calls) -%}", *calls.splitlines(), "{%- endmacro -%}"]
        return lines

    def system(self) -> list[str]:
        spec = self.spec
        first = "messages and messages[0].role " + (
            "== 'system'" if self.exact else "in ['system', 'developer']"
        )
        lines = [
            f"{{%- set leads = {first} -%}}",
            f"{{%- set system = (messages[0].content if leads) or {literal(spec.default_system)} -%}}",
            "{%- set chat = messages[1:] if leads else messages -%}",
        ]
        lines += ["{%- set ns = namespace(round=0) -%}"] if self.counted else []
        told = "(tool_text() if tools else '')"
        if spec.kind == "MossVLTemplate":
            told = "((tool_text() if system else tool_text().lstrip('\\n')) if tools else '')"
        lines += self.print(spec.slots["format_prefix"])
        items = spec.slots["format_system"]
        if self.fused:
            text = self.said(items, f"system ~ {told}")
            return [*lines, f"{{%- set intro = {text} if system or tools else '' -%}}"]
        return [
            *lines,
            "{%- if system or tools -%}",
            *self.print(items, f"system ~ {told}"),
            "{%- endif -%}",
        ]

    def loop(self) -> list[str]:
        content = (
            "(intro if loop.first else '') ~ message.content" if self.fused else "message.content"
        )
        lines = [
            "{%- for message in chat -%}",
            "{%- if message.role == 'user' -%}",
            *self.user(content),
            "{%- elif message.role in ['tool', 'function', 'observation'] -%}",
            *self.results(),
            "{%- elif message.role == 'assistant' -%}",
            *self.assistant(),
        ]
        if not self.exact and not self.fused:
            lines += ["{%- elif message.role == 'system' -%}"]
            lines += self.print(self.spec.slots["format_system"], "message.content")
        lines += [
            "{%- else -%}",
            "{{- raise_exception('no slot for the role ' ~ message.role) -}}",
            "{%- endif -%}",
        ]
        return [*lines, "{%- endfor -%}"]

    def user(self, content: str) -> list[str]:
        items = self.closed("format_user")
        if not (self.exact and self.counted):
            return self.print(items, content)
        # the original fills in the number of the round after the content, so it also finds {{idx}} in a user's words
        return [
            f"{{{{- ({self.said(items, content)}) | replace({literal('{{idx}}')}, ns.round | string, 1) -}}}}"
        ]

    def results(self) -> list[str]:
        """Results of one turn are joined into one; between them stands what closes one and opens the next."""
        before, after = split(self.closed("format_observation"))
        between = RESULTS if self.exact else "\n"
        tag = re.search(r"<(\w+)>\n?$", "".join(text for _, text in before))
        closing = re.match(rf"\n?</{tag[1]}>", "".join(text for _, text in after)) if tag else None
        if tag and closing and not self.exact:
            between = f"{closing[0]}\n{tag[0]}"
        results = "['tool', 'function', 'observation']"
        return [
            f"{{%- if not (loop.previtem and loop.previtem.role in {results}) -%}}",
            *self.print(before),
            "{%- endif -%}",
            "{{- message.content -}}",
            f"{{%- if loop.nextitem and loop.nextitem.role in {results} -%}}",
            f"{{{{- {literal(between)} -}}}}",
            "{%- else -%}",
            *self.print(after),
            "{%- endif -%}",
        ]

    def assistant(self) -> list[str]:
        slots = self.spec.slots
        lines = ["{%- set content = message.content or '' -%}"]
        lines += self.thoughts() if self.spec.reasons else self.print(self.opening)
        lines += ["{%- generation -%}"]
        lines += ["{{- thought -}}"] if self.spec.reasons else []
        lines += [
            "{%- if message.tool_calls -%}",
            *self.print(slots["format_function"], "content ~ call_text(message.tool_calls)"),
            "{%- else -%}",
            *self.print(slots["format_assistant"], "content"),
            "{%- endif -%}",
            "{%- endgeneration -%}",
        ]
        return [*lines, "{%- set ns.round = ns.round + 1 -%}"] if self.counted else lines

    @property
    def no_thought(self) -> str:
        opened, closed = self.spec.thought_words
        return literal(closed if self.spec.kind == "Glm47ReasoningTemplate" else opened + closed)

    def thoughts(self) -> list[str]:
        """A reply without a thought gets an empty one: learnt when thinking is on, else part of the prompt."""
        opened, closed = (literal(word.strip()) for word in self.spec.thought_words)
        lines = []
        if not self.exact:
            left, right = map(literal, self.spec.thought_words)
            lines += [
                "{%- if message.reasoning_content -%}",
                f"{{%- set content = {left} ~ message.reasoning_content ~ {right} ~ content -%}}",
                "{%- endif -%}",
            ]
        return [
            *lines,
            "{%- set past = discarding_history_cot and not loop.last -%}",
            "{%- if past or thinking_off -%}",
            "{%- set content = without_thought(content) -%}",
            "{%- endif -%}",
            f"{{%- set thought = '' if past or {opened} in content or {closed} in content else {self.no_thought} -%}}",
            *self.print(self.opening),
            "{%- if thinking_off -%}",
            "{{- thought -}}",
            "{%- set thought = '' -%}",
            "{%- endif -%}",
        ]

    def ending(self) -> list[str]:
        lines = self.print(self.opening)
        if self.spec.reasons:
            lines += ["{%- if thinking_off -%}", f"{{{{- {self.no_thought} -}}}}", "{%- endif -%}"]
        return ["{%- if add_generation_prompt -%}", *lines, "{%- endif -%}"] if lines else []


def joined(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Characters back to texts."""
    found: list[Item] = []
    for kind, text in items:
        if kind == "text" and found and found[-1][0] == "text":
            found[-1] = ("text", found[-1][1] + text)
        else:
            found.append((kind, text))
    return tuple(found)


BARE = """\
{{%- set thinking_off = enable_thinking is defined and not enable_thinking -%}}
{{%- macro without_thought(text) -%}}
{{%- set ns = namespace(kept=text.split({open})[0], held='') -%}}
{{%- for part in text.split({open})[1:] -%}}
{{%- set ns.held = ns.held ~ {open} ~ part -%}}
{{%- if {close} in part -%}}
{{%- set ns.kept = ns.kept ~ part.split({close})[1:] | join({close}) -%}}
{{%- set ns.held = '' -%}}
{{%- endif -%}}
{{%- endfor -%}}
{{{{- (ns.kept ~ ns.held).lstrip('\\n') -}}}}
{{%- endmacro -%}}"""
