"""Reading the arguments of a call, whatever their syntax.

    JSON        `{"a": 1}`, also within a string
    members     `a=1, b='x')`, `{a:1,b:<|"|>x<|"|>}`: up to a bracket
    pairs       `<arg=a>1</arg>`: each between tags
    lines       `a: 1`: each up to the end of its line

Where pairs or lines are due and there is other text, the text is kept (`raw`), the call is malformed, and reading goes
on: the arguments that can be read stay.

The limits: a text without quotes ends with the first closer that stands in it; of values in lines each is one line; a
literal whose quote never comes takes along the rest of the reply.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from turnwise.replies.grammar import Pairs
from turnwise.replies.parser.buffer import Call, Stream
from turnwise.replies.parser.compiled_grammar import Plan, common, keyed, pieces, tag_like, unworded
from turnwise.replies.parser.matcher import Found, Watch
from turnwise.replies.parser.values import (
    NO_TYPES,
    SYNTAXES,
    TEXT_ONLY,
    WORDS,
    Reader,
    as_json,
    escape,
    may_be_other,
    typed,
)
from turnwise.replies.parser.xml_values import LIST_ONLY, OBJECT_ONLY, Strange, elements, nesting

WRAPPERS = ("arguments", "parameters", "properties", "input")
KEYS = 256  # characters of a key
TYPE_WORDS = (
    *("string", "integer", "number", "boolean", "array", "object", "null", "true", "false", "json"),
    *("str", "int", "float", "bool", "list", "dict"),
)  # by which models say the type of a value, whichever of them the template writes
CLOSING = "} \t\r\n"
LITERALS = frozenset("\"'[{(")  # what has an end of its own
NOTHING = {"null": "{}"}  # arguments that mean an empty object
NULLS = frozenset(word[0] for word, value in WORDS.items() if value in NOTHING)

ENDS = ("close", "key", "over", "line")  # of a value
EMPTY = {LIST_ONLY: "[]", OBJECT_ONLY: "{}"}  # what nothing at all is, where values hold values

Written = Generator[None, None, tuple[str, Found | None]]  # a text, and what ended it
Done = Generator[None, None, bool]  # whether the arguments were read to their end


class Arguments:
    """The arguments of calls."""

    def __init__(
        self, stream: Stream, plan: Plan, types: Mapping[str, Mapping[str, frozenset[str]]]
    ) -> None:
        self.stream = stream
        self.plan = plan
        self.types = types
        self.layout = plan.layouts[0] if plan.layouts else plan.nowhere()
        self.lost = False  # the last value could not be read
        self.partial = ""  # what there was of it
        self.stray = False  # the call holds text that is no part of it
        self.depth = 0  # of the objects around the arguments

    def arguments(self, call: Call) -> Done:
        if self.layout.pairs is None:
            return self.bare_arguments(call)
        if self.layout.lines:
            return self.lines(call, self.layout.pairs)
        if self.layout.members:
            return self.members(call, self.layout.pairs)
        return self.tags(call, self.layout.pairs)

    def reader(self, syntax: str = "json", **more: Any) -> Reader:
        return Reader(syntax, control=bool(self.stream.spelling.signs), **more)

    # -- JSON

    def value(self, span: str) -> Generator[None, None, Any]:
        """A whole JSON value; None, and `lost`, if there is none."""
        text = yield from self.text_of(self.reader(), span)
        self.lost = text is None
        try:
            return None if text is None else json.loads(text)
        except (ValueError, RecursionError):
            self.lost = True
            return None

    def text_of(self, reader: Reader, span: str) -> Generator[None, None, str | None]:
        stream = self.stream
        texts: list[str] = []
        while True:
            stream.consume(reader.read(stream.buffer, stream.position) - stream.position, span)
            texts.append(reader.take())
            if reader.done:
                return "".join(texts)
            if reader.failed is not None or stream.ended:
                self.partial = "".join(texts)
                return None
            yield

    def kept_arguments(self) -> Generator[None, None, str | None]:
        """Arguments that stand before the name: JSON, kept until there is a call to say them of."""
        text = yield from self.text_of(self.reader(), "arguments")
        return NOTHING.get(text, unquoted(text)) if text is not None else None

    def json_arguments(self, call: Call) -> Done:
        stream = self.stream
        char = yield from stream.peek()
        if char == '"' and "strings" in self.plan.tolerances:
            text = yield from self.text_of(self.reader(), "arguments")
            if text is None:
                return self.broke_off(call)
            stream.argue(call, unquoted(text))
            return True
        if char and char in NULLS:
            return (yield from self.no_arguments(call))
        return (yield from self.stream_of(call, self.reader()))

    def no_arguments(self, call: Call) -> Done:
        """A word where an object is due: nothing at all is an empty object."""
        text = yield from self.text_of(self.reader(), "arguments")
        if text is None:
            self.stream.argue(call, self.partial)
            if self.stream.ended and self.stream.position == len(self.stream.buffer):
                return self.broke_off(call)
            yield from self.as_written(call)
            return False
        self.stream.argue(call, NOTHING.get(text, text))
        return True

    def stream_of(self, call: Call, reader: Reader) -> Done:
        """A value that is said while it is read."""
        stream = self.stream
        while True:
            at = stream.position
            reader.last = stream.ended
            stream.consume(reader.read(stream.buffer, at) - at, "arguments")
            if reader.out:
                stream.argue(call, reader.take())
            if reader.done:
                return True
            if reader.failed is not None:
                yield from self.as_written(call)
                return False
            if stream.ended:
                return self.broke_off(call)
            yield

    def broke_off(self, call: Call) -> bool:
        """The reply ended within the arguments."""
        stream = self.stream
        stream.consume(len(stream.buffer) - stream.position, "arguments")
        stream.end_call(call, "unterminated")
        return False

    def as_written(self, call: Call) -> Generator[None, None, None]:
        """What cannot be read stands in the arguments as it is, up to the end of the call.

        The last braces are those of the object that is the call, unless the arguments need them.
        """
        stream, own, braces = self.stream, unclosed(call.arguments.getvalue()), list[str]()

        def into(text: str) -> None:
            core = text.rstrip(CLOSING)
            if core:
                stream.argue(call, "".join(braces) + core)
                braces.clear()
            braces.append(text[len(core) :])

        yield from stream.until(self.layout.end(), into, "arguments")
        last = "".join(braces)
        at = len(last)
        for _ in range(min(self.depth, last.count("}") - own)):
            at = last.rindex("}", 0, at)
        stream.argue(call, last[:at])
        if at < len(last):
            stream.rename("marker", len(last) - at)
        stream.end_call(call, "malformed")

    def bare_arguments(self, call: Call) -> Done:
        """JSON between markers; nothing at all is an empty object."""
        stream = self.stream
        char = yield from stream.spaces()
        if char and char in '{["':
            return (yield from self.json_arguments(call))
        texts: list[str] = []
        watch = self.layout.end()
        yield from stream.until(watch, texts.append, "arguments")
        text = stream.spelling.plain("".join(texts))
        if text.strip() and WORDS.get(text.strip()) not in NOTHING:
            stream.argue(call, text)
            stream.end_call(call, "malformed")
            return False
        if stream.ended and stream.position == len(stream.buffer):
            stream.end_call(call, "unterminated")
            return False
        stream.argue(call, "{}")
        return True

    # -- members in brackets

    def members(self, call: Call, pairs: Pairs) -> Done:
        opened = pairs.string.open.text.removeprefix(pairs.other.open.text).strip()
        marks: tuple[str, str] | None = None
        if opened and pairs.string.close.core and pairs.strings == "raw":
            marks = (
                self.plan.spelling.spell(opened),
                self.plan.spelling.spell(pairs.string.close.core),
            )
        types = self.types.get(call.name)
        syntax = "quoted" if marks is not None and pairs.values != "python" else pairs.values
        follows = (
            self.layout.follows if syntax == "python" and "quotes" in self.plan.tolerances else None
        )
        reader = self.reader(
            syntax,
            marks=marks,
            closer=self.layout.members,
            types=types,
            follows=follows,
            separator=pairs.between.core,
        )
        return self.stream_of(call, reader)

    # -- pairs between tags

    def tags(self, call: Call, pairs: Pairs) -> Done:
        stream = self.stream
        between, first, seen = self.layout.pair(), True, set[str]()
        while True:
            found = yield from self.nothing(between, pairs.between.core)
            if found is None:
                return self.broke_off(call)
            if found.tag != "key":
                break
            stream.mark(found)
            yield from stream.trail(pairs.key.trail)
            key, kind = yield from self.key(pairs)
            if key is None:
                if stream.ended:
                    return self.broke_off(call)
                yield from self.as_written(call)
                return False
            if not (yield from self.pair(call, pairs, key, kind, first)):
                return self.broke_off(call)
            self.stray = self.stray or key in seen
            seen.add(key)
            first = False
        stream.argue(call, "{}" if first else "}")
        return True

    def nothing(self, watch: Watch, due: str = "") -> Generator[None, None, Found | None]:
        """Up to a marker, where only white space is due, or one sign. Any other text is kept, but not as a part."""
        stream, texts = self.stream, list[str]()
        found = yield from stream.until(watch, texts.append, "raw")
        text = "".join(texts)
        if stream.spelling.plain(text).strip() in ("", due):
            stream.rename("space", len(text))
        else:
            self.stray = True
        return found

    def strays(self, start: int) -> None:
        """What stands in the reply from `start` on is no part of the call."""
        self.stream.rename("raw", self.stream.at - start)
        self.stray = True

    # -- pairs in lines

    def lines(self, call: Call, pairs: Pairs) -> Done:
        stream, open, first = self.stream, pairs.string.open, True
        while (yield from stream.spaces()) and not (yield from self.over()):
            start = stream.at
            key, found = yield from self.line(open.text)
            if found is None:
                return self.broke_off(call)
            if found.tag != ("open" if open.core else "line"):
                self.strays(start)
                continue
            stream.consume(found.end - stream.position, "marker" if open.core else "space")
            yield from stream.trail(open.trail if open.core else "")
            value, found = yield from self.written(pairs, self.layout.line(""))
            if found is None and self.layout.closed:
                return self.broke_off(call)
            types = self.types.get(call.name, {}).get(key.strip(), NO_TYPES)
            literal = pairs.strings != "raw" and value.lstrip()[:1] in ("'", '"')
            lead = ("{" if first else ", ") + f'"{escape(key.strip())}": '
            said = self.converted(pairs, value, "", types, key) if literal else typed(value, types)
            stream.argue(call, lead + said)
            first = False
        if self.layout.closed and stream.ended and stream.position == len(stream.buffer):
            return self.broke_off(call)
        stream.argue(call, "{}" if first else "}")
        return True

    def line(self, text: str) -> Generator[None, None, tuple[str, Found | None]]:
        """Up to this text, the end of the line or the end of the call."""
        texts: list[str] = []
        found = yield from self.stream.until(self.layout.line(text), texts.append, "arguments")
        return self.stream.spelling.plain("".join(texts)), found

    def over(self) -> Done:
        """Whether the end of the call is next."""
        forms = [form for text, _ in self.layout.after() for form in self.plan.variants.of(text)]
        return bool(forms) and bool((yield from self.stream.coming(forms))[0])

    def key(self, pairs: Pairs) -> Generator[None, None, tuple[str | None, str]]:
        """A key and the kind of its value: "string", "other", or "" where the markers do not say."""
        stream, watch = self.stream, self.plan.watch
        opens = {"other": pairs.other.open.text, "string": pairs.string.open.text}
        opens.update((kind, region.open.text) for kind, region in pairs.typed)
        cores = {text.strip() for text in opens.values()}
        texts: list[str] = []
        before, behind = affixes(sorted(cores))
        parts = pieces(before) or [before]
        found = yield from stream.until(
            watch([(parts[0], "open")]), texts.append, "arguments", limit=KEYS
        )
        if found is None:
            return None, ""
        stream.mark(found)
        for text in parts[1:]:
            if not (yield from stream.eat_spaced(self.plan.variants.of(text))) and stream.ended:
                return None, ""
        kind = ""
        if len(cores) > 1:
            start, words = stream.at, list[str]()
            found = yield from stream.until(
                watch([(behind, "open")]), words.append, "marker", limit=KEYS
            )
            if found is None:
                return None, ""
            word = stream.spelling.plain("".join(words))
            kind = next(
                (kind for kind, text in opens.items() if text.strip() == before + word + behind), ""
            )
            if not kind and word.strip() not in TYPE_WORDS:
                self.strays(start)
            kind = kind or "other"
            stream.mark(found)
        yield from stream.trail(pairs.string.open.trail)
        return stream.spelling.plain("".join(texts)).strip().strip("\"'"), kind

    def pair(self, call: Call, pairs: Pairs, key: str, kind: str, first: bool) -> Done:
        """One argument."""
        stream = self.stream
        offered = self.types.get(call.name)
        types = (offered or {}).get(key, NO_TYPES)
        lead = ("{" if first else ", ") + f'"{escape(key)}": '
        close = self.close(pairs, key)
        wrapped = (
            first
            and key in WRAPPERS
            and offered
            and key not in offered
            and "unwrap" in self.plan.tolerances
        )
        if not wrapped:
            stream.argue(call, lead)
        if pairs.wrap.open and (
            yield from stream.eat(self.plan.spelling.spell(pairs.wrap.open.core))
        ):
            return (yield from self.wrapped_text(call, pairs, close))
        if pairs.strings == "raw" and not wrapped and (yield from self.is_text(kind, types)):
            return (yield from self.streamed_text(call, pairs, close))
        text, found = yield from self.written(pairs, close)
        if found is None:
            return False
        self.closed(found)
        inner = unwrapped(text, offered or {}) if wrapped else None
        value = inner if inner is not None else self.converted(pairs, text, kind, types, key)
        stream.argue(
            call, "{" + inner[1:-1] if inner is not None else (lead if wrapped else "") + value
        )
        return True

    def written(self, pairs: Pairs, close: Watch) -> Written:
        """A value up to its closer; a closer within the quotes of a literal is none."""
        stream, texts = self.stream, list[str]()
        char = yield from stream.peek()
        reader = self.reader(pairs.strings if pairs.strings in SYNTAXES else "json")
        while (
            pairs.strings != "raw"
            and char in LITERALS
            and not (reader.done or reader.failed or stream.ended)
        ):
            went = reader.read(stream.buffer, stream.position)
            texts.append(stream.consume(went - stream.position, "arguments"))
            if not (reader.done or reader.failed):
                yield
        if nesting(pairs):
            found = yield from self.counted(close, texts, self.plan.spelling.spell(pairs.key.core))
        else:
            found = yield from self.up_to(close, texts.append)
        return stream.spelling.plain("".join(texts)), found

    def counted(
        self, close: Watch, texts: list[str], core: str
    ) -> Generator[None, None, Found | None]:
        """A value that may hold elements: those of its own name are counted, for each has an end."""
        depth, holds = 0, None
        while True:
            found = yield from self.up_to(close, texts.append, ("again", *ENDS))
            if found is None or (found.tag != "again" and not depth):
                return found
            if holds is None:
                said = "".join(texts).lstrip()
                holds = not said or said.startswith(core)
            depth += (1 if found.tag == "again" else -1) if holds else 0
            texts.append(self.stream.consume(found.end - found.start, "arguments"))

    def close(self, pairs: Pairs, key: str) -> Watch:
        """What ends a value; and what cannot be part of one unless a closer is missing, or the text quotes it."""
        texts = [
            pairs.string.close.text,
            pairs.other.close.text,
            *(region.close.text for _, region in pairs.typed),
        ]
        closes = [(keyed(text, key), "close") for text in dict.fromkeys(texts) if text.strip()]
        if not closes:
            return self.layout.pair()
        own = [
            *self.layout.closers[:1],
            *self.layout.openers[:1],
            *([] if nesting(pairs) else [pairs.key.text]),
        ]
        same = [(pairs.key.core + key + pairs.string.open.core, "again")] if nesting(pairs) else []
        return self.plan.watch([*closes, *same, *((text, "own") for text in own if tag_like(text))])

    def closed(self, found: Found) -> None:
        """Take the closer of a value; where values have none, what follows is not theirs."""
        if found.tag == "close":
            self.stream.mark(found)

    def up_to(
        self,
        close: Watch,
        into: Callable[[str], object],
        ends: Sequence[str] = ENDS,
    ) -> Generator[None, None, Found | None]:
        """The text of a value. With markers of the call in it, it may be more than one value: the call is malformed."""
        stream = self.stream
        while True:
            found = yield from stream.until(close, into, "arguments")
            if found is None or found.tag in ends:
                return found
            self.stray = self.stray or found.tag == "own"
            into(stream.consume(found.end - found.start, "arguments"))

    def is_text(self, kind: str, types: frozenset[str]) -> Done:
        """Whether a value is text whatever stands in it, so that it can be said at once."""
        if kind == "string":
            return not types or "string" in types
        if kind == "" and types == TEXT_ONLY:
            return True
        if kind or types:
            return False
        char, _ = yield from self.stream.ahead()
        if char == "" or may_be_other(char):
            return False
        pairs = self.layout.pairs
        assert pairs is not None
        if pairs.scalars == "python" and char in "TFN":
            return False
        return not (nesting(pairs) and self.plan.spelling.spell(pairs.key.core).startswith(char))

    def streamed_text(self, call: Call, pairs: Pairs, close: Watch) -> Done:
        stream = self.stream
        stream.argue(call, '"')
        found = yield from self.up_to(close, stream.argue_text)
        if found is None:
            return False
        self.closed(found)
        stream.argue(call, '"')
        return True

    def wrapped_text(self, call: Call, pairs: Pairs, close: Watch) -> Done:
        """Text with a wrapper of its own, within which the closer means nothing."""
        inner = self.plan.watch([(pairs.wrap.close.core, "close")])
        if not (yield from self.streamed_text(call, pairs, inner)):
            return False
        found = yield from self.nothing(close)
        if found is None:
            return False
        self.stream.mark(found)
        return True

    def converted(self, pairs: Pairs, text: str, kind: str, types: frozenset[str], key: str) -> str:
        if nesting(pairs) and (found := self.nested(text, pairs, types)) is not None:
            return found
        if pairs.strings != "raw" or (kind not in ("", "string") and not types):
            value = as_json(text)
            return value if value is not None else f'"{escape(text)}"'
        if not types and "python" in (pairs.scalars, pairs.values):
            return python_typed(text)
        return typed(text, types)

    def nested(self, text: str, pairs: Pairs, types: frozenset[str]) -> str | None:
        """Values within a value; None if there are none."""
        if not text.strip():
            return EMPTY.get(types)
        if not text.lstrip().startswith(pairs.key.core):
            return None
        try:
            value, whole = elements(text, pairs, types)
        except Strange:
            self.stray = True
            return None
        self.stray = self.stray or not whole
        return None if value is None else json.dumps(value, ensure_ascii=False)


def unclosed(text: str) -> int:
    """How many braces are open at the end of what was read of some JSON."""
    outside = text.replace("\\\\", "").replace('\\"', "").split('"')[::2]
    return sum(part.count("{") - part.count("}") for part in outside)


def python_typed(text: str) -> str:
    """A text of which nothing is declared, where other values are written as Python writes them."""
    core = text.strip()
    value = as_json(core, "python") if core[:1] in ("[", "{", "(") else WORDS.get(core)
    return value if value is not None else typed(text, NO_TYPES)


def unquoted(text: str) -> str:
    """Arguments that are a JSON text within a string; as they are if they are not."""
    if text.lstrip().startswith('"'):
        try:
            inner = json.loads(text)
        except ValueError:
            return text
        return as_json(inner) or text
    return text


def unwrapped(text: str, offered: Mapping[str, Any]) -> str | None:
    """The object that was put into one argument, if all its keys are arguments of the tool."""
    value = as_json(text)
    try:
        members = json.loads(value) if value is not None else None
    except (ValueError, RecursionError):
        return None
    return (
        value
        if isinstance(members, dict) and members and all(key in offered for key in members)
        else None
    )


def affixes(texts: list[str]) -> tuple[str, str]:
    """What texts have in common at their start and at their end, without overlapping, and up to whole words."""
    if len(texts) < 2:
        return texts[0], ""
    before, behind = texts[0], texts[0][::-1]
    for text in texts[1:]:
        before, behind = common(before, text), common(behind, text[::-1])
    return unworded(before) or before, (unworded(behind) or behind)[::-1]
