"""How arguments are written, and one reader for all of it.

JSON, Python's literals and the dialects with marks around strings and bare keys differ in little: what may stand around
a string, whether a key needs quotes, the words for true and nothing, the sign between key and value. `SYNTAXES` holds
these differences; `Reader` reads them all, piece by piece, and writes JSON as it goes. What is JSON already goes
through as it stands, white space included. A word or a number is written when it is over, a string at once.

Values between tags are texts. What they become is decided by the schema of the tool (`typed`): a declared string stays
as it is, down to the last space; a declared number, boolean, object or list is converted if the text is one. If nothing
is declared there is one rule: a text that is JSON as it stands, and no string, is that value; all else is text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any
from urllib.parse import unquote

LOOK = 200  # characters behind a quote that tell whether it ends a string
DEPTH = 64  # containers within containers
TOKEN = 400  # characters of a number; a longer one is text

WORDS = {
    "true": "true",
    "True": "true",
    "false": "false",
    "False": "false",
    "null": "null",
    "None": "null",
}
CLOSERS = {"{": "}", "[": "]", "(": ")"}
NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)
SPACE = re.compile(r"\s+")
STRANGE = re.compile(r"[^\S \t\n\r]")  # white space that JSON does not know
HEX = frozenset("0123456789abcdefABCDEF")
SIMPLE_ESCAPES = frozenset('bfnrt"\\/')


def escape(text: str) -> str:
    """`text` as the inside of a JSON string."""
    return encode_basestring(text)[1:-1]


@dataclass(frozen=True, slots=True)
class Syntax:
    """What one way of writing values allows."""

    word: re.Pattern[str] = re.compile(r"[\w.+\-]+")  # a bare word as a value
    key: re.Pattern[str] = re.compile(r"[\w.$\-]+")  # a bare word as a key
    texts: bool = False  # a bare word that is no other value is a text
    sets: bool = False  # `{1, 2}` is a list


SYNTAXES: Mapping[str, Syntax] = {
    "json": Syntax(),
    "python": Syntax(sets=True),
    "quoted": Syntax(word=re.compile(r"[^,\]})]+"), key=re.compile(r"[^\s:=,\]})]+"), texts=True),
}


@dataclass(frozen=True, slots=True, eq=False)
class Quote:
    """How one kind of string ends, and what can go through it as it stands."""

    close: str
    run: re.Pattern[str]
    escapes: bool


def quote(close: str, escapes: bool) -> Quote:
    run = re.compile(r"[^" + re.escape('"\\' + close[0]) + r"\x00-\x1f\ud800-\udfff]+")
    return Quote(close, run, escapes)


QUOTES = {'"': quote('"', True), "'": quote("'", True)}

VALUE, STRING, WORD, KEY, COLON, AFTER = range(6)
WAIT = -1  # a step's answer when it cannot go on without more text


class Reader:
    """One value, or the members of one object up to `closer`; `take()` is its JSON, as far as it is certain."""

    __slots__ = (
        "brace", "closers", "control", "done", "failed", "follows", "is_key", "key", "last", "marks", "objects", "out",
        "quote", "separators", "state", "syntax", "tied", "types", "word",
    )  # fmt: skip

    def __init__(
        self,
        syntax: str = "json",
        *,
        marks: tuple[str, str] | None = None,
        closer: str | None = None,
        types: Mapping[str, frozenset[str]] | None = None,
        follows: frozenset[str] | None = None,
        separator: str = ",",
        control: bool = False,
    ) -> None:
        self.control = (
            control  # control tokens are spelled with halves of surrogate pairs, and are no text
        )
        self.separators = (",", separator or ",")  # what stands between two members
        self.syntax = SYNTAXES[syntax]
        self.follows = follows  # what may stand behind the whole; None: every quote ends a string
        self.last = False  # no more text will come
        self.marks = {marks[0]: quote(marks[1], False)} if marks else {}
        self.closers = [closer] if closer else []
        self.objects = [True] if closer else []
        self.types = types
        self.state = KEY if closer else VALUE
        self.out: list[str] = ["{"] if closer else []
        self.done = False
        self.failed: str | None = None
        self.quote = QUOTES['"']
        self.brace: int | None = (
            None  # where in `out` a brace stands of which it is not known yet what it opens
        )
        self.tied = ""  # a comma that is written only if something follows
        self.word: list[str] = []
        self.is_key = False
        self.key: list[str] | None = None  # the last key at the top, if types are asked for

    def read(self, text: str, at: int) -> int:
        """Read on from `at`; up to where. What is left needs more text, unless the value is done or has failed."""
        size = len(text)
        while at < size and not self.done and self.failed is None:
            went = STEPS[self.state](self, text, at)
            if went == WAIT:
                break
            at = went
        return at

    def take(self) -> str:
        """What was written since the last time."""
        if self.brace is not None:
            text = "".join(self.out[: self.brace])
            del self.out[: self.brace]
            self.brace = 0
            return text
        text = "".join(self.out)
        self.out.clear()
        return text

    def fail(self, reason: str) -> int:
        self.brace = None
        self.untie()
        self.failed = reason
        return WAIT

    def put(self, text: str) -> None:
        self.out.append(text)
        if self.is_key and self.key is not None:
            self.key.append(text)

    # -- steps: each reads from `at` and says up to where, or WAIT

    def value(self, text: str, at: int) -> int:
        char = text[at]
        if char.isspace():
            return self.space(text, at)
        if char in CLOSERS:
            return self.open(char, at)
        if self.closers and char == self.closers[-1]:
            return self.close(at)
        if (went := self.string_start(text, at, is_key=False)) is not None:
            return went
        return self.word_start(text, at, self.syntax.word, is_key=False)

    def member(self, text: str, at: int) -> int:
        char = text[at]
        if char.isspace():
            return self.space(text, at)
        if char == self.closers[-1]:
            return self.close(at)
        self.key = [] if self.types is not None and len(self.closers) == 1 else None
        if (went := self.string_start(text, at, is_key=True)) is not None:
            return went
        return self.word_start(text, at, self.syntax.key, is_key=True)

    def space(self, text: str, at: int) -> int:
        match = SPACE.match(text, at)
        end = match.end() if match else at
        written = STRANGE.sub(
            " ", text[at:end]
        )  # one by one, so that it does not matter where a text is cut
        if self.tied:
            self.tied += written
        else:
            self.out.append(written)
        return end

    def untie(self) -> None:
        if self.tied:
            self.out.append(self.tied)
            self.tied = ""

    def open(self, char: str, at: int) -> int:
        if len(self.closers) >= DEPTH:
            return self.fail("too deep")
        self.untie()
        self.closers.append(CLOSERS[char])
        self.objects.append(char == "{")
        if char == "{" and self.syntax.sets and self.brace is None:
            self.brace = len(self.out)
        self.out.append("{" if char == "{" else "[")
        self.state = KEY if char == "{" else VALUE
        return at + 1

    def close(self, at: int) -> int:
        self.brace = None
        self.out.append(self.tied[1:])  # without the comma that nothing followed
        self.tied = ""
        self.closers.pop()
        self.out.append("}" if self.objects.pop() else "]")
        self.over()
        return at + 1

    def over(self) -> None:
        """A value has ended."""
        self.state = AFTER
        self.done = not self.closers

    def after(self, text: str, at: int) -> int:
        char = text[at]
        if char.isspace():
            return self.space(text, at)
        if char in self.separators:
            self.tied = ","
            self.state = KEY if self.objects[-1] else VALUE
            return at + 1
        if char == self.closers[-1]:
            return self.close(at)
        return self.fail("no comma and no end where one is due")

    def colon(self, text: str, at: int) -> int:
        char = text[at]
        if char.isspace():
            return self.space(text, at)
        if self.brace is not None and char in ",}":
            return self.set_found(at)
        if char not in ":=":
            return self.fail("a key without a value")
        self.brace = None
        self.out.append(":" if char == ":" else ": ")
        self.state = VALUE
        return at + 1

    def set_found(self, at: int) -> int:
        """What was read as the first key is the first element of a Python set."""
        assert self.brace is not None
        self.out[self.brace] = "["
        self.brace, self.objects[-1] = None, False
        self.state = AFTER
        return at

    def string_start(self, text: str, at: int, is_key: bool) -> int | None:
        for mark, kind in self.marks.items():
            if text.startswith(mark, at):
                return self.begin_string(kind, at + len(mark), is_key)
            if mark.startswith(text[at : at + len(mark)]):
                return WAIT
        if text[at] in QUOTES:
            return self.begin_string(QUOTES[text[at]], at + 1, is_key)
        return None

    def begin_string(self, kind: Quote, at: int, is_key: bool) -> int:
        self.untie()
        self.quote, self.is_key = kind, is_key
        self.state = STRING
        self.out.append('"')
        return at

    def string(self, text: str, at: int) -> int:
        match = self.quote.run.match(text, at)
        if match:
            self.put(match.group())
            return match.end()
        char = text[at]
        if char == self.quote.close[0]:
            if text.startswith(self.quote.close, at):
                inner = self.follows is not None and not self.is_key and self.inner(text, at + 1)
                if inner is None:
                    return WAIT
                if inner:
                    self.put(escape(char))
                    return at + 1
                self.out.append('"')
                if self.is_key:
                    self.is_key, self.state = False, COLON
                else:
                    self.over()
                return at + len(self.quote.close)
            if self.quote.close.startswith(text[at : at + len(self.quote.close)]):
                return WAIT
        if char == "\\" and self.quote.escapes:
            return self.escaped(text, at)
        if self.control and "\ud800" <= char <= "\udfff":
            return self.fail("a control token within a text")
        self.put(escape(char))
        return at + 1

    def inner(self, text: str, at: int) -> bool | None:
        """Whether a quote before `at` is part of its string, for what follows it fits no end; None: not known yet.

        Behind the end stand closers of what is open, then a comma; behind the last closer, what may follow the whole.
        """
        window = text[at : at + LOOK]
        depth, where = len(self.closers), 0
        while True:
            rest = window[where:].lstrip()
            if not rest:
                return False if self.last or len(window) == LOOK else None
            if depth == 0:
                return bool(self.follows) and rest[0] not in (self.follows or ())
            if rest[0] == ",":
                return (
                    self.keyless(rest[1:], len(window) == LOOK)
                    if depth == 1 and depth == len(self.closers)
                    else False
                )
            if rest[0] != self.closers[depth - 1]:
                return True
            where = len(window) - len(rest) + 1
            depth -= 1

    def keyless(self, rest: str, full: bool) -> bool | None:
        """Whether no key follows a comma; None: not known yet."""
        body = rest.lstrip()
        match = self.syntax.key.match(body)
        behind = body[match.end() :].lstrip() if match else body
        if not behind:
            return False if self.last or full else None
        return behind[0] not in "=:" if match else behind[0] != self.closers[0]

    def escaped(self, text: str, at: int) -> int:
        follows = text[at + 1 : at + 2]
        if not follows:
            return WAIT
        digits = {"u": 4, "x": 2, "U": 8}.get(follows, 0)
        code = text[at + 2 : at + 2 + digits]
        if digits and len(code) < digits and HEX.issuperset(code):
            return WAIT
        if digits and HEX.issuperset(code) and (digits < 8 or int(code, 16) <= 0x10FFFF):
            self.put(f"\\u{code:0>4}" if digits < 8 else json.dumps(chr(int(code, 16)))[1:-1])
            return at + 2 + digits
        if follows in SIMPLE_ESCAPES:
            self.put("\\" + follows)
        elif follows == "'":
            self.put("'")
        else:
            self.put("\\\\" + escape(follows))  # no escape at all: the backslash means itself
        return at + 2

    def word_start(self, text: str, at: int, pattern: re.Pattern[str], is_key: bool) -> int:
        if not pattern.match(text, at):
            return self.fail("no value where one is due")
        self.untie()
        self.is_key = is_key
        self.state = WORD
        return at

    def bare(self, text: str, at: int) -> int:
        pattern = self.syntax.key if self.is_key else self.syntax.word
        match = pattern.match(text, at)
        if match:
            self.word.append(match.group())
            return match.end()
        word = "".join(self.word)
        self.word.clear()
        if self.is_key:
            self.out.append('"')
            self.put(escape(word) + '"')
            self.is_key, self.state = False, COLON
            return at
        core = word.rstrip()
        written = self.written(core)
        if written is None:
            self.out.append(word)
            return self.fail("a word that is no value")
        self.out += (written, STRANGE.sub(" ", word[len(core) :]))
        self.over()
        return at

    def written(self, word: str) -> str | None:
        """A bare word as JSON."""
        if self.key is not None and self.types is not None and len(self.closers) == 1:
            types = self.types.get("".join(self.key).rstrip('"'))
            if types == TEXT_ONLY:
                return f'"{escape(word)}"'
        value = scalar(word)
        return f'"{escape(word)}"' if value is None and self.syntax.texts else value


STEPS = {
    VALUE: Reader.value,
    STRING: Reader.string,
    WORD: Reader.bare,
    KEY: Reader.member,
    COLON: Reader.colon,
    AFTER: Reader.after,
}


def scalar(word: str) -> str | None:
    """A word or number as JSON, however it was spelled; None if it is neither."""
    if word in WORDS:
        return WORDS[word]
    if len(word) > TOKEN:
        return None
    if NUMBER.fullmatch(word):
        return word
    if word[:1] in "+-.0123456789":
        try:  # not as JSON spells it: +5, .5, 5., 07, 1_000
            number = float(word)
            whole = int(word) if word.lstrip("+-").replace("_", "").isdigit() else None
        except ValueError:
            return None
        return str(whole) if whole is not None else (repr(number) if number - number == 0 else None)
    return None


def as_json(text: str, syntax: str = "json") -> str | None:
    """A whole text as JSON if it is a value, however it was spelled."""
    reader = Reader(syntax)
    at = reader.read(text, 0)
    if reader.state == WORD and at == len(text):
        reader.read(" ,", 0)
    return reader.take().strip() if reader.done and not text[at:].strip() else None


# -- types

TEXT_ONLY = frozenset({"string"})
NO_TYPES: frozenset[str] = frozenset()
KINDS = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
}
PARTS = 256  # schemas that are looked at for one type: behind a `$ref`, in an `anyOf`
MADE_OF = ("anyOf", "oneOf", "allOf")


def parts_of(schema: Any, root: Any) -> Iterator[Mapping[str, Any]]:
    """The schema and those that it is made of, each once; `root` is where a `$ref` points into."""
    waiting, seen = [schema], set[int]()
    while waiting and len(seen) < PARTS:
        one = waiting.pop()
        if isinstance(one, Mapping) and id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [inner for key in MADE_OF for inner in listed(one.get(key))]
            waiting += [
                pointed(root, pointer) for pointer in [one.get("$ref")] if isinstance(pointer, str)
            ]


def types_of(schema: Any, root: Any = None) -> frozenset[str]:
    """The types that a schema allows; empty if it does not say."""
    found: set[str] = set()
    nullable = False
    for part in parts_of(schema, root):
        named = part.get("type")
        types = {
            x
            for x in (named if isinstance(named, (list, tuple)) else [named])
            if isinstance(x, str)
        }
        values = [*listed(part.get("enum")), *([part["const"]] if "const" in part else [])]
        found |= types or {KINDS.get(type(x), "null") for x in values}
        nullable = nullable or part.get("nullable") is True
    return frozenset(found | {"null"} if nullable and found else found)


def listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def pointed(root: Any, pointer: str) -> Any:
    """What a `$ref` means within its own document; None if it points elsewhere, or at nothing."""
    if not pointer.startswith("#"):
        return None
    found = root
    for step in pointer.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        members = dict(zip(map(str, range(PARTS)), listed(found), strict=False))
        found = (found if isinstance(found, Mapping) else members).get(name)
    return found


Types = Mapping[str, Mapping[str, frozenset[str]]]


class Fields(dict[str, frozenset[str]]):
    """The types of a tool's parameters; `rest` are those of parameters that it does not name."""

    rest = NO_TYPES

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key, self.rest or default)

    def __bool__(self) -> bool:
        return bool(len(self) or self.rest)


def fields_of(schema: Any) -> Fields:
    """What a tool says of its parameters, wherever in its schema."""
    found = Fields()
    for part in parts_of(schema, schema):
        properties = part.get("properties")
        for key, value in (properties if isinstance(properties, Mapping) else {}).items():
            found[str(key)] = found.setdefault(str(key), NO_TYPES) | types_of(value, schema)
        found.rest |= types_of(part.get("additionalProperties"), schema)
    return found


def declared(tools: Any) -> dict[str, Fields]:
    """Of each tool by its name: the types of its parameters. Whatever is no tool is passed over."""
    found: dict[str, Fields] = {}
    for tool in tools or ():
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            found[function["name"]] = fields_of(
                function.get("parameters", function.get("input_schema"))
            )
    return found


def _word(text: str, wanted: str) -> str | None:
    word = WORDS.get(text.strip()) or WORDS.get(text.strip().lower())
    return word if word in wanted.split() else None


def _number(text: str) -> str | None:
    value = scalar(text.strip())
    return value if value is not None and value not in WORDS else None


def _container(text: str, bracket: str) -> str | None:
    return as_json(text) if text.lstrip()[:1] in bracket.split() else None


CONVERTERS: Mapping[str, Callable[[str], str | None]] = {
    "null": lambda text: _word(text, "null"),
    "boolean": lambda text: _word(text, "true false"),
    "integer": _number,
    "number": _number,
    "array": lambda text: _container(text, "[ ("),
    "object": lambda text: _container(text, "{"),
}


def typed(text: str, types: frozenset[str]) -> str:
    """A text between tags as JSON, by the types declared for it."""
    if not types:
        value = undeclared(text)
        return value if value is not None else f'"{escape(text)}"'
    for name, convert in CONVERTERS.items():
        if name in types and (value := convert(text)) is not None:
            return value
    return f'"{escape(text)}"'


def undeclared(text: str) -> str | None:
    """JSON that is no string, spelled as JSON spells it; None if the text is anything else."""
    core = text.strip()
    if core[:1] in "{[":
        try:
            json.loads(core) if len(core) and core.count("[") + core.count("{") < 10_000 else None
        except (ValueError, RecursionError):
            return None
        return as_json(core)
    return (
        core
        if core in ("true", "false", "null") or (len(core) <= TOKEN and NUMBER.fullmatch(core))
        else None
    )


def may_be_other(char: str) -> bool:
    """Whether an undeclared text that starts so may be anything but text."""
    return char in "{[-0123456789tfn"
