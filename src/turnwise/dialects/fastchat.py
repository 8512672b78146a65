"""FastChat: a Conversation object, as the dict of its thirteen fields, becomes Jinja.

What FastChat does in a loop of its own per separator style is here one loop for all, filled from a row of `STYLES`.
The system message is the last one given, else the template's own; the other messages are turns; an open assistant turn
is what `add_generation_prompt` writes. Examples that the template brings along are written out as text.

A turn whose content is null is open, in both readings. With `exact`, so is one whose content is empty (C23), separators
and tags go by the parity of a message's number, and the rows' recorded oddities hold: YUAN2 strips characters from the
end, CLLM keeps two messages, GEMMA drops the system message, images go where the original puts them. Without it,
separators and tags go by role, an empty message is a message, and the three rows are mended: only the last `<n>` goes,
all messages stay, and the system text leads the first user turn. Where a style begins with a bos token, `bos_token`
decides (pass "" when the tokenizer adds one); `image_placeholder` is what stands for an image.

Limits: roles other than system, user and assistant are refused, and so are tool calls: the format has no place for
them. Content that FastChat would print as a Python tuple (images in CHATGLM) is refused with `exact`. FastChat defines
the loss for ADD_COLON_TWO alone (the answer with the separator behind it); other styles are marked in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from string import Formatter
from typing import Any

from turnwise.dialects.fastchat_styles import (
    ALWAYS,
    MESSAGE,
    NEVER,
    STYLES,
    SeparatorStyle,
    Spelling,
    StyleRow,
    TurnPosition,
)
from turnwise.dialects.translation import Translation, copy_source, parse_json_object
from turnwise.dialects.turns import literal
from turnwise.errors import SourceError, did_you_mean, short_repr

IMAGE_PLACEHOLDER = "$$<image>$$"
REFUSED = "a FastChat template has no place for this message: "
TURNS = "messages | rejectattr('role', 'equalto', 'system') | list"
SYSTEM = (
    "messages | selectattr('role', 'equalto', 'system') | map(attribute='content') | list | last"
)


class InvalidStyle(SourceError, ValueError):
    """A separator style that is none of the 23; FastChat raises a ValueError for it."""


@dataclass(frozen=True, slots=True)
class FastChatSpec:
    """The thirteen fields, checked."""

    name: str
    system_template: str = "{system_message}"
    system_message: str = ""
    system_message_vision: str = ""
    roles: tuple[str, ...] = ("USER", "ASSISTANT")
    messages: tuple[Any, ...] = ()
    offset: int = 0
    sep_style: SeparatorStyle = SeparatorStyle.ADD_COLON_SINGLE
    sep: str | None = "\n"
    sep2: str | None = None
    stop_str: Any = None
    stop_token_ids: Any = None
    max_image_size_mb: float | None = None

    @property
    def one(self) -> str:
        return self.sep or ""

    @property
    def two(self) -> str:
        return self.sep2 or ""

    @property
    def style(self) -> StyleRow:
        return STYLES[self.sep_style]

    def facts(self) -> dict[str, Any]:
        return {**asdict(self), "sep_style": self.sep_style.name, "doubts": doubts(self)}


FIELDS = KEYS = tuple(item.name for item in fields(FastChatSpec))


def knows(source: Any) -> bool:
    """Whether this is a Conversation, told by its fields."""
    if isinstance(source, str):
        return source.lstrip().startswith("{") and '"sep_style"' in source
    if isinstance(source, Mapping):
        return "sep_style" in source and ("roles" in source or "name" in source)
    return hasattr(source, "sep_style") and hasattr(source, "roles")


def read(source: Any, exact: bool = False) -> Translation:
    """The Jinja and the facts of a Conversation: a dict, its JSON, or an object with the fields."""
    form = parse_spec(source)
    stops = (form.stop_str,) if isinstance(form.stop_str, str) else tuple(form.stop_str or ())
    return Translation(
        jinja=translate_spec(form, exact),
        stops=stops,
        stop_ids=tuple(form.stop_token_ids or ()),
        facts={**form.facts(), **held(source, form)},
    )


def held(source: Any, form: FastChatSpec) -> dict[str, Any]:
    """The fields of an object, which goes on to hold its conversation; a dict or a text is kept as it is."""
    if isinstance(source, (str, Mapping)):
        return {}
    return {
        "template": {**copy_source(dict(given_fields(source))), "sep_style": form.sep_style.name}
    }


# -- checking --------------------------------------------------------------------------------------------------------


def parse_spec(source: Any) -> FastChatSpec:
    """The fields of a source; an error names the field, what it holds and what is accepted."""
    if isinstance(source, FastChatSpec):
        return source
    given = dict(given_fields(source))
    unknown = [key for key in given if key not in FIELDS]
    if unknown:
        key = str(unknown[0])
        raise SourceError(
            f"a FastChat template has no field {key!r}",
            hint=did_you_mean(key, FIELDS, "The fields are"),
        )
    if "name" not in given:
        raise SourceError(
            "a FastChat template needs the field 'name'",
            hint="It has: " + ", ".join(map(str, given)),
        )
    for key, value in given.items():
        accepted, fits = KINDS[key]
        if not fits(value):
            raise SourceError(
                f"{key} of the FastChat template is {short_repr(value)}",
                hint=f"It must be {accepted}.",
            )
    given["sep_style"] = style_of(given.get("sep_style", SeparatorStyle.ADD_COLON_SINGLE))
    given["roles"] = tuple(given.get("roles", ("USER", "ASSISTANT")))
    given["messages"] = tuple(tuple(message) for message in given.get("messages") or ())
    form = FastChatSpec(**given)
    check_separators(form)
    system_parts(form)
    return form


def given_fields(source: Any) -> Mapping[Any, Any]:
    if isinstance(source, str):
        source = parse_json_object(source, "a FastChat template")
    if isinstance(source, Mapping):
        return source
    found = {key: getattr(source, key) for key in FIELDS if hasattr(source, key)}
    if "sep_style" not in found:
        raise SourceError(
            f"not a FastChat template: {short_repr(source)}",
            hint=f"It has the fields {', '.join(FIELDS)}.",
        )
    return found


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def list_of(fits: Callable[[Any], bool], least: int = 0) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, (list, tuple)) and len(value) >= least and all(map(fits, value))
    )


def optional(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


def is_content(value: Any) -> bool:
    """Text, nothing yet, or a text with its images."""
    pair = isinstance(value, (list, tuple)) and len(value) == 2
    return (
        value is None
        or is_text(value)
        or (pair and is_text(value[0]) and isinstance(value[1], (list, tuple)))
    )


def is_message(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) == 2
        and is_text(value[0])
        and is_content(value[1])
    )


TEXT = ("text", is_text)
SEPARATOR = ("text or null", optional(is_text))
KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "name": TEXT,
    "system_template": TEXT,
    "system_message": TEXT,
    "system_message_vision": TEXT,
    "roles": ("two texts or more", list_of(is_text, 2)),
    "messages": (
        "a list of [role, text], [role, [text, images]] or [role, null]",
        optional(list_of(is_message)),
    ),
    "offset": ("a whole number", is_whole),
    "sep_style": ("the name of a separator style", lambda value: True),  # style_of says more
    "sep": SEPARATOR,
    "sep2": SEPARATOR,
    "stop_str": (
        "text, a list of texts, or null",
        optional(lambda value: is_text(value) or list_of(is_text)(value)),
    ),
    "stop_token_ids": ("a list of token ids, or null", optional(list_of(is_whole))),
    "max_image_size_mb": ("a number, or null", optional(is_number)),
}


def style_of(value: Any) -> SeparatorStyle:
    """A separator style from its name, its number or a member of anybody's enumeration."""
    names = SeparatorStyle.__members__
    found = getattr(value, "name", value)
    if isinstance(found, str) and found in names:
        return names[found]
    if isinstance(found, int) and not isinstance(found, bool) and 1 <= found <= len(names):
        return SeparatorStyle(found)
    hint = did_you_mean(found, names, "The styles are") if isinstance(found, str) else None
    raise InvalidStyle(
        f"Invalid style: {short_repr(found)}",
        hint=hint or f"sep_style is one of {', '.join(names)}.",
    )


def check_separators(form: FastChatSpec) -> None:
    for key in form.style.needs:
        if getattr(form, key) is None:
            raise SourceError(
                f"the style {form.sep_style.name} needs {key}, and it is null",
                hint="Give it a text.",
            )


def system_parts(form: FastChatSpec) -> list[str | None]:
    """`system_template` cut at its slots: texts, and None where the system message goes."""
    parts: list[str | None] = []
    try:
        for text, field, spec, conversion in Formatter().parse(form.system_template):
            parts += [text] if text else []
            if field is None:
                continue
            if field != "system_message" or spec or conversion:
                slot = (
                    "{"
                    + field
                    + (f"!{conversion}" if conversion else "")
                    + (f":{spec}" if spec else "")
                    + "}"
                )
                raise SourceError(
                    f"system_template has the slot {slot}",
                    hint="The only slot is {system_message}.",
                )
            parts.append(None)
    except ValueError as error:
        raise SourceError(
            f"system_template is {short_repr(form.system_template)}: {error}"
        ) from None
    return parts


def doubts(form: FastChatSpec) -> tuple[str, ...]:
    """What looks wrong although it can be read; for the checks."""
    found = []
    parts = [(f"roles[{index}]", form.roles[index]) for index in (0, 1)]
    if form.system_message:
        parts.append(("system_template", form.system_template))
    if form.sep_style is SeparatorStyle.CHATML and form.one == "<|im_end|>":
        found += [
            f"{key} does not write <|im_start|>, which <|im_end|> closes"
            for key, text in parts
            if "<|im_start|>" not in text
        ]
    return tuple(found)


# -- writing Jinja ---------------------------------------------------------------------------------------------------


class JinjaExpression(str):
    """A Jinja expression among texts."""


Term = str | JinjaExpression


def joined(*terms: Term) -> str:
    """The terms as one Jinja expression, neighbouring texts in one literal."""
    parts: list[Term] = []
    for term in terms:
        if parts and type(term) is str and type(parts[-1]) is str:
            parts[-1] += term
        elif term:
            parts.append(term)
    return " + ".join(
        part if isinstance(part, JinjaExpression) else literal(part) for part in parts
    )


def system_terms(form: FastChatSpec, given: bool) -> list[Term]:
    """The system prompt of a conversation whose system message has text, or has none."""
    style = form.style
    parts: list[Term] = [
        JinjaExpression("system") if part is None else part for part in system_parts(form)
    ]
    prompt = any(given if isinstance(part, JinjaExpression) else part for part in parts)
    if {ALWAYS: True, MESSAGE: given, NEVER: False}.get(style.system, prompt):
        return [*parts, style.system_after(form)]
    return [] if given else [style.no_system]


def output(*terms: Term) -> list[str]:
    """The line that writes the terms, if there is anything to write."""
    expression = joined(*terms)
    return [f"{{{{- {expression} -}}}}"] if expression else []


def indented(lines: Sequence[str]) -> list[str]:
    return ["    " + line for line in lines]


def translate_spec(form: FastChatSpec, exact: bool, others: Mapping[str, str] | None = None) -> str:
    """The Jinja of a template. `others` are further roles of messages and the texts written for them."""
    return "\n".join(FastChatJinjaWriter(form, exact, others or {}).lines()) + "\n"


class FastChatJinjaWriter:
    """One translation; the methods go from the whole to its parts."""

    def __init__(self, form: FastChatSpec, exact: bool, others: Mapping[str, str]) -> None:
        self.form, self.exact, self.style = form, exact, form.style
        # what a message's role is called, and what is written for it
        self.roles = {"user": form.roles[0], "assistant": form.roles[1], **others}
        self.shift = len(form.messages)  # numbers begin after the examples
        self.parity = exact and self.depends_on_parity()
        self.merged = not exact and self.style.system == NEVER

    def lines(self) -> list[str]:
        body = [*self.opening(), *self.examples(), *self.loop(), *self.prompt()]
        if self.exact and self.style.strip:
            stripped = JinjaExpression(f"whole.rstrip({literal(self.style.strip)})")
            body = [
                "{%- set whole -%}",
                *body,
                "{%- endset -%}",
                *output(stripped, self.style.end(self.form)),
            ]
        else:
            body += output(self.style.end(self.form))
        return [*self.macro(), *self.settings(), *body]

    def macro(self) -> list[str]:
        """`text(content)`: a text, or the parts of one with its images before it."""
        other = literal(REFUSED + "a part of type ")
        image = f"image_placeholder | default({literal(IMAGE_PLACEHOLDER)})"
        if self.exact and self.style.images != "before":
            image = (
                "''"
                if self.style.images == "dropped"
                else f"raise_exception({literal(REFUSED + 'an image')})"
            )
        return [
            "{%- macro text(content) -%}",
            "    {%- if content is string -%}",
            "        {{- content -}}",
            "    {%- else -%}",
            "        {%- for part in content if part.type != 'text' -%}",
            "            {%- if part.type not in ['image', 'image_url'] -%}",
            f"                {{{{- raise_exception({other} + part.type) -}}}}",
            "            {%- endif -%}",
            f"            {{{{- {image} -}}}}",
            "        {%- endfor -%}",
            r"        {{- content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('\n') -}}",
            "    {%- endif -%}",
            "{%- endmacro -%}",
        ]

    def settings(self) -> list[str]:
        """What is known before the text begins: the system message, the turns, the round."""
        form, default, lines = self.form, literal(self.form.system_message), []
        if form.system_message_vision and not self.exact:
            default = f"{literal(form.system_message_vision)} if seen.images else {default}"
            lines += [
                "{%- set seen = namespace(images=false) -%}",
                "{%- for message in messages if message.content is sequence and message.content is not string -%}",
                "    {%- for part in message.content if part.type in ['image', 'image_url'] -%}",
                "        {%- set seen.images = true -%}",
                "    {%- endfor -%}",
                "{%- endfor -%}",
            ]
        if self.style.system != NEVER or self.merged:
            lines += [f"{{%- set system = text({SYSTEM} | default({default})) -%}}"]
        if self.merged:
            lines += ["{%- set waiting = namespace(system=system) -%}"]
        if self.exact:
            lines += [f"{{%- set turns = {TURNS} -%}}"]
            if self.style.keep:  # the open turn is one of those kept
                lines += [
                    f"{{%- set turns = turns[(1 if add_generation_prompt else 0) - {self.style.keep}:] -%}}"
                ]
        elif self.style.rounds:
            start = self.style.rounds(form) + sum(
                role == form.roles[0] for role, _ in form.messages
            )
            lines += [f"{{%- set count = namespace(round={start}) -%}}"]
        return lines

    def opening(self) -> list[str]:
        """The bos token and the system prompt."""
        style, form = self.style, self.form
        lines = []
        if style.bos is not None:
            lines += output(
                style.bos
                if self.exact
                else JinjaExpression(f"bos_token | default({literal(style.bos)})")
            )
        given, none = (output(*system_terms(form, given)) for given in (True, False))
        if given == none or (given == output(JinjaExpression("system")) and not none):
            return lines + given
        otherwise = ["{%- else -%}", *indented(none)] if none else []
        return [*lines, "{%- if system -%}", *indented(given), *otherwise, "{%- endif -%}"]

    def examples(self) -> list[str]:
        """The messages that the template brings along, written out."""
        lines = []
        first = self.style.rounds(self.form) if self.style.rounds else 0
        for number, (role, content) in enumerate(self.form.messages):
            even = number % 2 == 0
            if (
                not self.exact
                and role in self.form.roles[:2]
                and self.form.roles[0] != self.form.roles[1]
            ):
                even = role == self.form.roles[0]
            place = TurnPosition(role, even, number == 0)
            label = (
                f"[Round {number // 2 + first}]{self.form.one}"
                if self.style.rounds and even
                else ""
            )
            if content is None or (self.exact and content == ""):
                lines += output(label, self.pending(self.form, place))
                continue
            text, images = (content, ()) if isinstance(content, str) else content
            marks = (
                ""
                if self.exact and self.style.images == "dropped"
                else IMAGE_PLACEHOLDER * len(images)
            )
            inner = (
                JinjaExpression(literal(marks + text) + self.style.text)
                if self.style.text
                else marks + text
            )
            after = self.style.after(self.form, place) + self.style.gap(self.form, place)
            lines += output(label, self.style.before(self.form, place), inner, after)
        return lines

    def loop(self) -> list[str]:
        """One turn for each message that is not the system's."""
        over = (
            "message in turns" if self.exact else "message in messages if message.role != 'system'"
        )
        empty = "not message.content" if self.exact else "message.content is none"
        refused = (
            f"message.role not in [{', '.join(map(literal, self.roles))}] or message.tool_calls"
        )
        lines = [
            f"{{%- if {refused} -%}}",
            f"    {{{{- raise_exception({literal(REFUSED)} + message.role) -}}}}",
        ]
        lines += ["{%- endif -%}"]
        if self.parity:
            lines += [f"{{%- set even = {number('loop.index0', self.shift)} is even -%}}"]
        lines += self.round()
        opened = [f"{literal(key)}: {self.opened(key)}" for key in self.roles]
        lines += [f"{{%- if {empty} -%}}", f"    {{{{- {{{', '.join(opened)}}}[message.role] -}}}}"]
        for key, text in self.roles.items():
            lines += [
                f"{{%- elif message.role == {literal(key)} -%}}",
                *indented(self.turn(key, text)),
            ]
        lines += ["{%- endif -%}"]
        return [f"{{%- for {over} -%}}", *indented(lines), "{%- endfor -%}"]

    def turn(self, key: str, role: str) -> list[str]:
        """A message of one role. What an assistant writes is marked, the separator that ends it included."""
        before, after, gap = (
            self.chosen(spelling, role, key)
            for spelling in (self.style.before, self.style.after, self.style.gap)
        )
        text = JinjaExpression("text(message.content)" + self.style.text)
        if key == "assistant" and not (self.exact and self.style.strip):
            marked = ["{%- generation -%}", *indented(output(text, after)), "{%- endgeneration -%}"]
            return [*output(before), *marked, *output(gap)]
        if self.merged and key == "user":
            led = JinjaExpression(r"(waiting.system + '\n\n' if waiting.system else '')")
            return [*output(before, led, text, after, gap), "{%- set waiting.system = '' -%}"]
        return output(before, text, after, gap)

    def round(self) -> list[str]:
        """The label of a round, before each turn that begins one."""
        if not self.style.rounds:
            return []
        if not self.exact:
            label = output("[Round ", JinjaExpression("count.round | string"), f"]{self.form.one}")
            counted = "{%- set count.round = count.round + 1 -%}"
            return [
                "{%- if message.role == 'user' -%}",
                *indented([*label, counted]),
                "{%- endif -%}",
            ]
        return ["{%- if even -%}", *indented(self.label("loop.index0")), "{%- endif -%}"]

    def label(self, place: str) -> list[str]:
        assert self.style.rounds is not None
        shown_number = (
            f"({number(place, self.shift)} // 2 + {self.style.rounds(self.form)}) | string"
        )
        return output("[Round ", JinjaExpression(shown_number), f"]{self.form.one}")

    def prompt(self) -> list[str]:
        """The open turn of the assistant."""
        lines = []
        opened = self.chosen(self.pending, self.roles["assistant"], "assistant")
        if self.parity and (self.style.rounds or isinstance(opened, JinjaExpression)):
            lines += [f"{{%- set even = {number('turns | length', self.shift)} is even -%}}"]
        if self.parity and self.style.rounds:
            lines += ["{%- if even -%}", *indented(self.label("turns | length")), "{%- endif -%}"]
        written = output(opened)
        if not lines and not written:
            return []
        return ["{%- if add_generation_prompt -%}", *indented([*lines, *written]), "{%- endif -%}"]

    # -- what depends on the place

    @property
    def pending(self) -> Spelling:
        return self.style.pending or self.style.before

    def depends_on_parity(self) -> bool:
        spelled = (self.style.before, self.style.after, self.style.gap, self.pending)
        places = [
            (TurnPosition(role, True), TurnPosition(role, False)) for role in self.roles.values()
        ]
        differs = any(
            spelling(self.form, a) != spelling(self.form, b)
            for spelling in spelled
            for a, b in places
        )
        return differs or self.style.rounds is not None

    def opened(self, key: str) -> str:
        """An open turn, as an expression."""
        return joined(self.chosen(self.pending, self.roles[key], key)) or "''"

    def chosen(self, spelling: Spelling, role: str, key: str) -> Term:
        """What a row says for a role, wherever its message may stand: a text, or a choice made while rendering."""
        flags: dict[str, bool] = {"first": False, "last": False}
        free = [] if self.shift or spelling is self.pending else [("first", "loop.first")]
        if self.exact:
            free.insert(0, ("even", "even"))
        else:
            flags["even"] = key != "assistant"
            free.append(("last", "loop.last"))
        return self.choice(spelling, role, flags, free)

    def choice(
        self, spelling: Spelling, role: str, flags: dict[str, bool], free: list[tuple[str, str]]
    ) -> Term:
        if not free:
            return spelling(self.form, TurnPosition(role, **flags))
        (name, test), rest = free[0], free[1:]
        yes, no = (
            self.choice(spelling, role, {**flags, name: value}, rest) for value in (True, False)
        )
        if yes == no and type(yes) is type(no):
            return yes
        written = [
            term if isinstance(term, JinjaExpression) else literal(term) for term in (yes, no)
        ]
        return JinjaExpression(f"({written[0]} if {test} else {written[1]})")


def number(place: str, shift: int) -> str:
    """The number of a message, examples counted."""
    return f"({place} + {shift})" if shift else f"({place})" if " " in place else place
