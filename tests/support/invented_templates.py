"""Invented templates: random, but like published ones.

A template is drawn from a seed: how its markers look, what stands around turns, reasoning, content and calls, and in
which of the known ways (`LAYOUTS`) calls are written. Messages for it are drawn too: texts with quotes, newlines,
brackets and whatever else may stand in a value.

What a format cannot say is not drawn: a text that holds the very marker it ends with, content that holds a marker.
`Invented.clear` and `Invented.sayable` tell which texts are left.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from turnwise.analysis.conversations import make_tool

Pair = tuple[str, str]

# How a marker looks: its opening and its closing form.
LOOKS: dict[str, Callable[[str], Pair]] = {
    "bars": lambda word: (f"<|{word}|>", f"<|/{word}|>"),
    "bars begin": lambda word: (f"<|{word}_begin|>", f"<|{word}_end|>"),
    "half bars": lambda word: (f"<|{word}>", f"<{word}|>"),
    "tags": lambda word: (f"<{word}>", f"</{word}>"),
    "spaces": lambda word: (f"<my:{word}>", f"</my:{word}>"),
    "square": lambda word: (f"[{word.upper()}]", f"[/{word.upper()}]"),
    "wide": lambda word: (f"<｜{word}▁begin｜>", f"<｜{word}▁end｜>"),
    "braces": lambda word: (f"{{{{{word}}}}}", f"{{{{/{word}}}}}"),
    "hashes": lambda word: (f"### {word.title()}:", f"### End {word}"),
    "colons": lambda word: (f"{word.upper()}:", f"END_{word.upper()}:"),
    "quotes": lambda word: (f"«{word}»", f"«/{word}»"),
    "signs": lambda word: (f"§{word}§", f"§§{word}§§"),
    "stars": lambda word: (f"**{word}**", f"**/{word}**"),
    "brackets": lambda word: (f"【{word}】", f"【/{word}】"),
}
ROLES = ("assistant", "model", "bot", "ai")
THOUGHTS = ("think", "reasoning", "thought", "inner")
SECTIONS = ("tools", "actions", "calls_section", "tool_calls")
CALLS = ("call", "tool_call", "function_call", "invoke", "action")
ARGUMENTS = ("args", "with", "input_json", "parameters")
KEYS = ("param", "parameter", "arg", "field")
NAMED = ("name", "tool_name", "function", "tool")
GIVEN = ("arguments", "parameters", "args", "input")
# The name within the opener of a call, and sometimes in its closer.
OPENERS = (
    ("<function={}>", "</function>"),
    ('<invoke name="{}">', "</invoke>"),
    ("<|fn:{}|>", "<|/fn|>"),
    ("[CALL {}]", "[/CALL]"),
    ("<{}>", "</{}>"),
    ("<tool:{}>", "</tool:{}>"),
    ("@{} ", ""),
    ("→ {}: ", " ←"),
    ("call {} with ", "."),
    (">>>{}\n", ""),
)
SIGNS = (
    ("@@", "@@"),
    ("```tools\n", "\n```"),
    ("<<<", ">>>"),
    ("---\n", "\n---"),
)  # around all calls
BRACKETS = (("((", "))"), ("[[", "]]"), ("{{{", "}}}"), ("((", ""), ("[", "]"))
ACTIONS = (
    ("Action: ", "Action Input: "),
    ("Tool: ", "Input: "),
    ("CALL ", "WITH "),
    ("✿FUNCTION✿: ", "✿ARGS✿: "),
)
# How a pair is written: before the key, between key and value, after the value. `{}` is the kind, or the key again.
SHAPES: dict[str, Callable[[str], tuple[str, str, str]]] = {
    "equals": lambda word: (f"<{word}=", ">", f"</{word}>"),
    "attribute": lambda word: (f'<{word} name="', '">', f"</{word}>"),
    "key and value": lambda word: (
        f"<{word}_key>",
        f"</{word}_key><{word}_value>",
        f"</{word}_value>",
    ),
    "bars": lambda word: (f"<|{word}|>", "<|is|>", f"<|/{word}|>"),
    "square": lambda word: (f"[{word.upper()}:", "]", f"[/{word.upper()}]"),
    "echo": lambda word: ("<", ">", "</{}>"),
    "kind": lambda word: (f'<{word} key="', '" type="{}">', f"</{word}>"),
    "quotes": lambda word: ("«", "» ", f" «/{word}»"),
}
KINDS = (
    "'string' if v is string else 'json'",
    "'string' if v is string else 'boolean' if v is boolean else 'number' if v is number else 'json'",
)

TOOLS = [
    make_tool(
        "look",
        city={"type": "string"},
        days={"type": "integer"},
        rate={"type": "number"},
        deep={"type": "boolean"},
        tags={"type": "array"},
        where={"type": "object"},
        maybe={"type": ["integer", "null"]},
    ),
    make_tool("plan_trip", note={"type": "string"}, who={"type": "string"}, n={"type": "integer"}),
    make_tool("now"),
]
TEXTS = (
    *(
        "Oslo",
        "São Paulo ☀",
        'say "so"',
        "it's",
        "one\ntwo\n\nthree",
        "<b>bold</b>",
        "a < b > c",
        "日本",
        "",
        " edges ",
    ),
    *(
        '{"a": 1}',
        "[1, 2]",
        "12",
        "1.50",
        "true",
        "null",
        "\nlines\n",
        "a, b=c; d",
        "C:\\dir\\new",
        "f(x='y')",
        "</",
    ),
    *("```py\nx\n```", "key: value", "{}", "'", '"', "))", "}}}"),
)
VALUES: dict[str, tuple[Any, ...]] = {
    "string": TEXTS,
    "integer": (0, -7, 12, 10**12),
    "number": (2.5, -0.125, 3.0, 7),
    "boolean": (True, False),
    "array": ([], [1, 2], ["a", 'b "c"'], [{"k": [None, True]}], ["x, y", "]"]),
    "object": ({}, {"a": 1}, {"a": {"b": ["c"]}}, {"q": 'x "y"\n{z}', "n": None}),
    "null": (None,),
}
SAID = (
    *(
        "Hello there.",
        "One\n\nTwo",
        "5 < 6 and 7 > 3",
        'He said "so": {a} [b].',
        "a | b * c # d",
        "日本 ☀ — ok",
    ),
    *("Let me see:", "f(x) = {x}", "((a)) [[b]] {{{c}}}", "<b>bold</b> </b>"),
)


@dataclass
class Invented:
    """A template, how its calls are written, and what its texts may not hold."""

    seed: int
    layout: str = ""
    text: str = ""
    traits: set[str] = field(default_factory=set)
    marks: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)  # what ends a text value that is written as it is

    def clear(self, value: Any) -> bool:
        """Whether the texts in a value can be written so that they can be read again."""
        if isinstance(value, str):
            return all((value + mark).find(mark) == len(value) for mark in self.raw)
        inner = (
            value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        )
        return all(map(self.clear, inner))

    def sayable(self, text: str) -> bool:
        """The same of content and reasoning."""
        return not any(mark.strip() in text for mark in self.marks if len(mark.strip("()[]{} \n")))


class Draw:
    """Choices, and the template that they make."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.made = Invented(seed)
        self.look = self.pick(tuple(LOOKS))
        self.lined = self.chance(0.5)
        self.used: set[str] = set()

    def pick(self, of: Sequence[Any]) -> Any:
        return self.random.choice(of)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def trait(self, name: str, share: float) -> bool:
        """Whether the template has this, which is written down."""
        has = self.chance(share)
        self.made.traits |= {name} if has else set()
        return has

    def mark(self, words: Sequence[str]) -> Pair:
        """An opening and a closing marker that the template has not used yet."""
        word = self.pick([word for word in words if word not in self.used])
        self.used.add(word)
        return self.note(*LOOKS[self.pick(tuple(LOOKS)) if self.chance(0.15) else self.look](word))

    def note(self, *texts: str) -> Any:
        """Texts of the template that no content may hold."""
        self.made.marks += texts
        return texts

    def line(self) -> str:
        """A newline, where this template likes them."""
        return "\n" if self.lined and self.chance(0.8) else ""

    def block(self, words: Sequence[str]) -> Pair:
        """Markers around something, with the white space that belongs to them."""
        opens, closes = self.mark(words)
        inner = self.line()
        return opens + inner, inner + closes + self.line()


def text(*texts: str) -> str:
    """A text of the template: as it stands, or as an expression."""
    whole = "".join(texts)
    plain = whole == whole.strip() and not any(sign in whole for sign in "{}#")
    return whole if plain else "{{ " + json.dumps(whole, ensure_ascii=False) + " }}"


def invent(seed: int) -> Invented:
    draw = Draw(seed)
    made, role = draw.made, draw.pick(ROLES)
    look, line = LOOKS[draw.look], draw.line()
    header = draw.pick([look("{}")[0], look("start")[0] + "{}", "{}: "])
    own, others = (header.replace("{}", name).replace("{Role}", name) for name in (role, "user"))
    stop = draw.pick([look("{}")[1].replace("{}", role), look("end_turn")[0], "</s>"]) + draw.line()
    draw.note(own, others, stop)
    opened, thought = thoughts(draw)
    around = draw.block(("answer", "response")) if draw.trait("content wrapped", 0.2) else ("", "")
    content = (
        "{% if m.content %}" + text(around[0]) + "{{ m.content }}" + text(around[1]) + "{% endif %}"
    )
    made.layout = draw.pick(tuple(LAYOUTS))
    calls = LAYOUTS[made.layout](draw)
    reply = thought + (calls + content if draw.trait("content last", 0.05) else content + calls)
    start, end = text(own, line), "" if draw.trait("no stop", 0.05) else text(stop)
    if draw.trait("calls are messages", 0.05):
        between = "{% if m.content or m.reasoning_content %}" + end + start + "{% endif %}"
        reply = thought + content + "{% if m.tool_calls %}" + between + calls + "{% endif %}"
    made.text = (
        "{% for m in messages %}{% if m.role == 'assistant' %}" + start + reply + end
        + "{% else %}" + text(others, line) + "{{ m.content }}" + end + "{% endif %}{% endfor %}"
        + "{% if add_generation_prompt %}" + start + text(opened) + "{% endif %}"
    )  # fmt: skip
    return made


def thoughts(draw: Draw) -> Pair:
    """Reasoning: what a prompt writes of it, and the part of the template."""
    if not draw.trait("reasoning", 0.6):
        return "", ""
    opens, closes = draw.block(THOUGHTS)
    inner = text(opens) + "{{ m.reasoning_content or '' }}" + text(closes)
    if draw.trait("opened by the prompt", 0.2):
        return opens, inner
    return "", "{% if m.reasoning_content %}" + inner + "{% endif %}"


# -- layouts: the part of the template that writes calls

NAME = "{{ c.function.name }}"
JSON = "{{ c.function.arguments | tojson }}"
VALUE = "{{ v if v is string else v | tojson }}"


def several(before: str, call: str, separator: str, after: str) -> str:
    """All calls of a message."""
    return (
        "{% if m.tool_calls %}" + text(before) + "{% for c in m.tool_calls %}" + call
        + "{% if not loop.last %}" + text(separator) + "{% endif %}{% endfor %}" + text(after) + "{% endif %}"
    )  # fmt: skip


def around(draw: Draw, call: str, each: Pair, separators: Sequence[str] = ("", "\n")) -> str:
    """Calls one after the other, each between its markers, with or without a section around them."""
    section = draw.block(SECTIONS) if draw.chance(0.5) or not each[0].strip() else ("", "")
    if draw.trait("section of signs", 0.05):
        section = draw.note(*draw.pick(SIGNS))
    lead, separator = draw.pick(["", "\n", "\n\n"]), draw.pick(separators)
    return several(lead + section[0], text(each[0]) + call + text(each[1]), separator, section[1])


def members(draw: Draw) -> str:
    """The members of a JSON object that is a call."""
    if draw.chance(0.15):
        return "{{ c.function | tojson }}"
    given = (
        JSON.replace("tojson", "tojson | tojson") if draw.trait("arguments as text", 0.1) else JSON
    )
    parts = [
        f'"{draw.pick(NAMED)}": {{{{ c.function.name | tojson }}}}',
        f'"{draw.pick(GIVEN)}": {given}',
    ]
    if draw.chance(0.2):
        parts.reverse()
    if draw.trait("ids", 0.3):
        parts.insert(
            draw.pick([0, 1, 2]), f'"{draw.pick(["id", "call_id"])}": {{{{ c.id | tojson }}}}'
        )
    if draw.chance(0.15):
        parts.insert(0, '"type": "function"')
    gap = "\n  " if draw.chance(0.15) else ""
    return text("{" + gap) + text("," + (gap or " ")).join(parts) + text(gap[:1] + "}")


def json_object(draw: Draw) -> str:
    return around(draw, members(draw), draw.block(CALLS))


def json_lines(draw: Draw) -> str:
    """One object per line within a section."""
    return around(draw, members(draw), ("", ""), ("\n",))


def json_list(draw: Draw) -> str:
    opens, closes = draw.block(SECTIONS)
    return several(opens + "[", members(draw), ", ", "]" + closes)


def json_message(draw: Draw) -> str:
    """The calls as the message holds them."""
    opens, closes = draw.block(SECTIONS)
    given = "" if draw.trait("ids", 0.6) else " | map(attribute='function') | list"
    calls = "{{ m.tool_calls" + given + " | tojson }}"
    return "{% if m.tool_calls %}" + text(opens) + calls + text(closes) + "{% endif %}"


def name_as_key(draw: Draw) -> str:
    item = text("{") + "{{ c.function.name | tojson }}: " + JSON + text("}")
    if draw.chance(0.5):
        return around(draw, item, draw.block(CALLS))
    opens, closes = draw.block(SECTIONS)
    return several(opens + "[", item, ", ", "]" + closes)


def name_and_json(draw: Draw) -> str:
    opens, closes = draw.block(CALLS)
    middle = draw.pick(["\n", " ", "\n```json\n", ": "])
    if draw.chance(0.8):
        middle = draw.mark(ARGUMENTS)[0] + draw.line()
    extra = draw.pick(["", "", "id before", "id between", "id after", "index"])
    mark = text(draw.mark(("id", "number", "call_id"))[0])
    shown = "{{ loop.index0 }}" if extra == "index" else "{{ c.id }}"
    name = shown + mark + NAME if extra == "id before" else NAME + mark + shown
    given, fence = text(middle) + JSON, text("\n```" * ("`" in middle))
    draw.trait("ids", extra[:2] == "id")
    if extra in ("", "id after"):
        return around(draw, NAME + given + fence + (mark + shown if extra else ""), (opens, closes))
    return around(draw, name + given + fence, (opens, closes))


def name_in_opener(draw: Draw) -> str:
    opens, closes = draw.pick(OPENERS)
    before, _, after = opens.partition("{}")
    shut, _, again = closes.partition("{}")
    draw.note(before, shut)
    call = NAME + text(after, draw.line()) + JSON
    if again:
        return around(draw, call + text(draw.line(), shut) + NAME, (before, again))
    return around(draw, call, (before, draw.line() + closes))


def brackets(draw: Draw) -> str:
    """Openers of nothing but brackets."""
    call = NAME + text(draw.pick([" ", ": ", "»", "|"])) + JSON
    return around(draw, call, draw.note(*draw.pick(BRACKETS)))


def draw_tagged(draw: Draw) -> str:
    shape = draw.pick(tuple(SHAPES))
    draw.made.traits.add(f"pairs: {shape}")
    key, is_, over = SHAPES[shape](draw.pick(KEYS))
    inner, gap, value = draw.line(), draw.line(), VALUE
    shut, _, again = over.partition("{}")
    draw.note(key, shut)
    if draw.trait("texts quoted", 0.2):
        value = "{{ v | tojson }}"
    else:
        draw.made.raw += [inner + shut, shut]
    before, _, kind = is_.partition("{}")
    middle = (
        text(before) + "{{ " + draw.pick(KINDS) + " }}" + text(kind, inner)
        if kind
        else text(is_, inner)
    )
    closing = text(inner, shut) + ("{{ k }}" + again if again else "")
    pair = text(key) + "{{ k }}" + middle + value + closing + text(gap)
    pairs = "{% for k, v in c.function.arguments | items %}" + pair + "{% endfor %}"
    own = draw.mark(CALLS)[0] + "{}" + draw.mark(ARGUMENTS)[0], draw.mark(("over", "done"))[0]
    opens, closes = draw.pick([*OPENERS[:4], own])
    before, _, after = opens.partition("{}")
    draw.note(before, closes)
    each = draw.block(CALLS) if draw.chance(0.4) else ("", "")
    return around(
        draw,
        NAME + text(after, draw.line()) + pairs,
        (each[0] + before, closes + draw.line() + each[1]),
    )


def pythonic(draw: Draw) -> str:
    value = draw.pick(["{{ v | tojson }}", "{{ '%r' | format(v) }}"])
    pairs = (
        "{% for k, v in c.function.arguments | items %}{{ k }}="
        + value
        + "{{ ', ' if not loop.last }}{% endfor %}"
    )
    opens, closes = draw.block(SECTIONS)
    left, right = ("[", "]") if draw.chance(0.7) else ("", "")
    return several(opens + left, NAME + "(" + pairs + ")", draw.pick([", ", "\n"]), right + closes)


MACRO = (
    "{%- macro say(v) -%}{%- if v is string -%}{{ QUOTE }}{{ v }}{{ QUOTE }}{%- elif v is mapping -%}{{ '{' }}"
    "{%- for a, b in v.items() -%}{{ a }}:{{ say(b) }}{% if not loop.last %},{% endif %}{%- endfor -%}{{ '}' }}"
    "{%- elif v is iterable -%}[{%- for b in v -%}{{ say(b) }}{% if not loop.last %},{% endif %}{%- endfor -%}]"
    "{%- else -%}{{ v | tojson }}{%- endif -%}{%- endmacro -%}"
)


def custom_object(draw: Draw) -> str:
    """Keys without quotes, texts between marks of their own."""
    mark = draw.pick(['<|"|>', "<escape>", "<q>", "§"])
    draw.made.raw.append(mark)
    pairs = "{% for k, v in c.function.arguments | items %}{{ k }}:{{ say(v) }}{{ ',' if not loop.last }}{% endfor %}"
    call = draw.pick(["call:", ""]) + NAME + text("{") + pairs + text("}")
    return MACRO.replace("QUOTE", json.dumps(mark)) + around(draw, call, draw.block(CALLS), ("",))


def action(draw: Draw) -> str:
    """Lines that begin with a word."""
    do, given = draw.note(*draw.pick(ACTIONS))
    return around(draw, NAME + text("\n", given) + JSON, (do, draw.pick(["", "\n"])), ("\n",))


LAYOUTS: dict[str, Callable[[Draw], str]] = {
    "JSON object": json_object,
    "JSON lines": json_lines,
    "JSON list": json_list,
    "JSON message": json_message,
    "name as key": name_as_key,
    "name and JSON": name_and_json,
    "name in the opener": name_in_opener,
    "brackets": brackets,
    "tagged": draw_tagged,
    "pythonic": pythonic,
    "custom object": custom_object,
    "action": action,
}


# -- messages


def messages(made: Invented, count: int) -> Iterator[dict[str, Any]]:
    """Assistant messages that this template can say."""
    random = Random(made.seed + 1)
    contents = [one for one in (*SAID, *cut_markers(made.marks)) if made.sayable(one)]
    for number in range(count):
        message: dict[str, Any] = {
            "role": "assistant",
            "content": random.choice(contents) if number % 2 else "",
        }
        if "reasoning" in made.traits and random.random() < 0.6:
            message["reasoning_content"] = random.choice(contents)
        size = random.choice((0, 1, 1, 2, 3)) if message["content"] else 1 + number % 3
        if size:
            message["tool_calls"] = [call(made, random, at) for at in range(size)]
        yield message


def cut_markers(marks: Sequence[str]) -> Iterator[str]:
    """Texts that hold the beginning of a marker, up to the sign that ends its first tag."""
    for mark in marks:
        core = mark.strip()
        ends = [at for at, sign in enumerate(core) if sign in ">]】»:" and at]
        if start := core[: min(ends, default=len(core) - 1)]:
            yield f"a {start} b"


def call(made: Invented, random: Random, number: int) -> dict[str, Any]:
    chosen = random.choice(TOOLS)["function"]
    properties = chosen["parameters"]["properties"]
    arguments = {}
    for name in random.sample(sorted(properties), random.randint(0, len(properties))):
        kinds = properties[name]["type"]
        kind = random.choice(kinds) if isinstance(kinds, list) else kinds
        values = (*VALUES[kind], *(cut_markers(made.raw) if kind == "string" else ()))
        arguments[name] = random.choice([value for value in values if made.clear(value)])
    return {
        "id": f"abcd{number}efgh",
        "type": "function",
        "function": {"name": chosen["name"], "arguments": arguments},
    }
