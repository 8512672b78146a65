"""Reading a reply by its plan: regions, headers, calls.

Written as if the whole reply were there; `yield from` waits for more of it where it is not. Each marker that may come
next has a tag, and a tag has a method: `ON_TEXT` and `ON_REASONING` are the tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence

from turnwise.replies.events import REASONING, TEXT
from turnwise.replies.grammar import JsonCall, RawCall
from turnwise.replies.parser.ambiguity import WINDOW, likely, says_call, weak
from turnwise.replies.parser.arguments import Done
from turnwise.replies.parser.buffer import Call, Steps, Stream
from turnwise.replies.parser.compiled_grammar import (
    SIGNS,
    Item,
    Layout,
    Plan,
    blank,
    tag_like,
    trail,
)
from turnwise.replies.parser.json_calls import JsonCalls
from turnwise.replies.parser.matcher import Found

NAME = 256  # characters of a name
HEADER = 512  # characters of a header
OPENERS = ("section", "call", "bare")
BRACKETS = "}]) \t\r\n"  # what models write too often at the end of a call
SKIPPED = 16  # of them
NAMELESS = frozenset("{}[]()\"',<>")  # what no name holds


class Reading(JsonCalls):
    """One reply."""

    def __init__(
        self, stream: Stream, plan: Plan, types: Mapping[str, Mapping[str, frozenset[str]]]
    ) -> None:
        super().__init__(stream, plan, types)
        self.state = TEXT
        self.prompting = True  # the prompt is being read
        self.prompted = True  # the reasoning was opened by the prompt
        self.opened = False  # the content has an opener, and no closer yet
        reasoning = plan.grammar.reasoning
        if reasoning is not None and reasoning.close and not reasoning.open:
            self.state = REASONING

    def run(self) -> Steps:
        yield
        content = self.plan.grammar.content.open
        if self.state == TEXT and not content.core:
            yield from self.stream.trail(content.text)
        while True:
            if self.state == REASONING:
                watch = self.plan.prompted if self.prompted else self.plan.reasoning
                found = yield from self.stream.until(watch, self.stream.thinking, REASONING)
                table = ON_REASONING
            else:
                if self.stream.fresh and (yield from self.unmarked()):
                    continue
                watch = self.plan.opened if self.opened else self.plan.text
                found = yield from self.stream.until(watch, self.stream.text, TEXT)
                table = ON_TEXT
            if found is None:
                return
            tag, _, place = found.tag.partition(" ")
            layout, _, number = place.partition(".")
            if place:
                self.layout = self.plan.layouts[int(layout)]
            if tag in OPENERS:
                if not (yield from self.believed(found, int(number or 0))):
                    continue
                found = self.here(found)
            self.opened = tag == "content"
            yield from table[tag](self, found, int(number or 0))

    def believed(self, found: Found, number: int) -> Done:
        """Whether an opener is one: signs alone are, if a call follows them; else they are text."""
        stream, size, layout = self.stream, found.end - found.start, self.layout
        due = (
            layout.openers[number + 1 :]
            if found.tag.startswith("call")
            else layout.section[1:] + layout.openers
        )
        while weak(stream.spelling.plain(stream.buffer[stream.position : stream.position + size])):
            verdict = self.likely(layout, size, due)
            if verdict is False:  # a marker may begin within it
                _, spaces = yield from stream.ahead()
                stream.text(stream.consume(min(spaces, size) or 1, TEXT))
            if verdict is not None:
                return verdict
            yield
        return True

    def likely(self, layout: Layout, skipped: int = 0, due: Sequence[str] = ()) -> bool | None:
        """Whether a call follows behind so many characters; None: not known yet."""
        stream = self.stream
        start = stream.position + skipped
        ahead = stream.spelling.plain(stream.buffer[start : start + WINDOW])
        if isinstance(layout.calls.call, JsonCall) and layout.bare:
            return says_call("{" + ahead, layout.calls.call, self.types, stream.ended)
        content = self.plan.grammar.content.open.core
        if not skipped and content and ahead.lstrip().startswith(content):
            return False
        return likely(ahead, layout, self.types, stream.ended, due)

    def here(self, found: Found) -> Found:
        """A marker that is next, where it stands after waiting."""
        return Found(
            found.tag, self.stream.position, self.stream.position + found.end - found.start
        )

    def take(self, found: Found) -> Steps:
        """A marker and the white space behind it."""
        text = self.stream.mark(found)
        yield from self.stream.trail(self.plan.trails.get(text.strip(), ""))

    # -- regions

    def on_stop(self, found: Found, number: int) -> Steps:
        self.blank()
        yield from self.stopped(self.stream.spelling.plain(self.stream.mark(found).strip()))

    def blank(self) -> None:
        """A reply of nothing but white space: that is its content."""
        stream = self.stream
        if stream.gap and not (stream.content.tell() or stream.thought.tell() or stream.calls):
            text = "".join(stream.gap)
            stream.boundary()
            stream.fresh = False
            stream.rename(TEXT, len(text))
            stream.text(text)

    def on_start(self, found: Found, number: int) -> Steps:
        yield from self.take(found)
        self.state = TEXT
        self.stream.boundary()

    def on_answer(self, found: Found, number: int) -> Steps:
        """The reasoning ends, and with it comes the white space that the content starts with."""
        yield from self.on_start(found, number)
        content = self.plan.grammar.content.open
        if not content.core:
            yield from self.stream.trail(content.text)

    def on_closer(self, found: Found, number: int) -> Steps:
        if self.broken:
            self.stream.text(self.stream.consume(found.end - self.stream.position, TEXT))
            return
        yield from self.on_end(found, number)

    def on_end(self, found: Found, number: int) -> Steps:
        yield from self.take(found)
        self.stream.boundary()

    def on_stray(self, found: Found, number: int) -> Steps:
        self.stream.gap.clear()
        yield from self.take(found)

    def on_reasoning(self, found: Found, number: int) -> Steps:
        yield from self.take(found)
        self.state, self.prompted = REASONING, self.prompting
        self.stream.boundary()

    def on_again(self, found: Found, number: int) -> Steps:
        """An opener where reasoning is open already: the model repeats what the prompt said."""
        if self.stream.fresh:
            yield from self.on_stray(found, number)
        else:
            self.stream.thinking(self.stream.consume(found.end - self.stream.position, REASONING))

    def on_early(self, found: Found, number: int) -> Steps:
        """A call in the middle of reasoning."""
        self.state = TEXT
        self.stream.boundary()
        yield from ON_TEXT[found.tag.partition(" ")[0]](self, found, number)

    # -- headers

    def unmarked(self) -> Generator[None, None, bool]:
        """At the start of a region: a call without a marker, or a header that starts with its recipient."""
        stream, channels = self.stream, self.plan.channels
        if any(layout.bare for layout in self.plan.layouts):
            char, spaces = yield from stream.ahead()
            number = self.plan.bare(char)
            if number is not None:
                self.layout = self.plan.layouts[number]
                self.space(spaces)
                stream.open_call()
                yield from self.row(bare=True)
                return True
        for layout in self.plan.unopened:
            if (yield from self.named_first(layout)):
                self.layout = layout
                stream.open_call()
                yield from self.call(0)
                return True
        if channels is not None and channels.stem:
            ahead, spaces = yield from stream.ahead(len(channels.stem))
            if ahead == channels.stem:
                self.space(spaces)
                yield from self.header()
                return True
        return False

    def named_first(self, layout: Layout) -> Done:
        """Whether a region begins with the name of a call, in a layout where nothing stands before it."""
        while (verdict := self.likely(layout)) is None:
            yield
        return verdict

    def space(self, size: int) -> None:
        """White space before what may still turn out to be text."""
        if size:
            self.stream.text(self.stream.consume(size, "space"))

    def on_header(self, found: Found, number: int) -> Steps:
        yield from self.header()

    def header(self) -> Steps:
        stream, plan, channels = self.stream, self.plan, self.plan.channels
        self.layout = next((layout for layout in plan.layouts if layout.openers), self.layout)
        assert channels is not None
        words: list[str] = []
        stream.open_call()
        found = yield from stream.until(plan.header, words.append, "marker", limit=HEADER)
        if found is None or found.tag != "body":
            self.unread(ended=found is None and stream.ended)
            return
        stream.mark(found)
        header = stream.spelling.plain("".join(words))
        channel = header.rpartition(channels.before)[2].split()[:1]
        recipient = (
            header.partition(channels.stem)[2].partition("<")[0].split()[:1]
            if channels.stem
            else []
        )
        offered = channels.recipient[len(channels.stem) :]
        if (
            channel == [channels.content]
            or not recipient
            or recipient == channel == [channels.reasoning]
        ):
            stream.held = None
            stream.boundary()
            self.state = REASONING if channel == [channels.reasoning] else TEXT
            self.prompted = self.prompting
        elif recipient[0].startswith(offered):
            behind = [
                at for at, item in enumerate(self.layout.items) if channels.behind in item.text
            ]
            slots = {"name": recipient[0][len(offered) :]}
            if not (yield from self.tagged(at=behind[0] + 1 if behind else 1, known=slots)):
                self.unread(ended=stream.ended)
        else:
            yield from self.other_recipient(recipient[0])

    def other_recipient(self, name: str) -> Steps:
        stream = self.stream
        stream.held = None
        yield from stream.until(self.plan.over, lambda text: None, "raw")
        stream.attempts.append(("recipient", stream.begin[0], stream.at, name, None))
        stream.boundary()

    # -- calls

    def on_section(self, found: Found, number: int) -> Steps:
        stream, layout = self.stream, self.layout
        stream.open_call()
        stream.mark(found)
        if (yield from self.another()):
            return
        for text in layout.section[1:]:
            yield from stream.eat_spaced(self.plan.variants.of(text))
        if not layout.openers:
            yield from self.row()
            return
        for at, text in enumerate(layout.openers):
            if (at == 0 or tag_like(text)) and (
                yield from stream.eat_spaced(self.plan.variants.of(text))
            ):
                yield from self.call(at)
                return
        self.unread(ended=stream.ended and stream.position == len(stream.buffer))

    def on_call(self, found: Found, number: int) -> Steps:
        self.stream.open_call()
        self.stream.mark(found)
        if number or not (yield from self.another()):
            yield from self.call(number)

    def on_bare(self, found: Found, number: int) -> Steps:
        """A call without a marker behind content."""
        self.stream.open_call()
        yield from self.row(bare=True)

    def another(self) -> Done:
        """Behind a marker that several layouts start with: whether another one was meant, and read."""
        if len(self.plan.layouts) == 1:
            return False
        char, _ = yield from self.stream.ahead()
        layout = self.plan.fitting(self.layout, char) if char else self.layout
        if layout is self.layout:
            return False
        self.layout = layout
        yield from self.call(0) if layout.openers else self.row()
        return True

    def call(self, number: int) -> Steps:
        """A call behind its opener, or behind a later part of it."""
        layout = self.layout
        for text in layout.openers[number + 1 :]:
            yield from self.stream.eat_spaced(self.plan.variants.of(text))
        if isinstance(layout.calls.call, JsonCall):
            yield from self.row()
        elif isinstance(layout.calls.call, RawCall):
            yield from self.raw(layout.calls.call)
        elif not (yield from self.tagged()):
            self.unread(ended=self.stream.ended)

    def raw(self, spec: RawCall) -> Steps:
        """A call whose text is its one argument."""
        stream = self.stream
        call = self.start(spec.name)
        texts: list[str] = []
        yield from stream.spaces()
        if spec.fenced:
            found = yield from stream.until(self.layout.end(), texts.append, "arguments")
            text = unfenced(stream.spelling.plain("".join(texts)))
            if found is None:
                stream.end_call(call, "unterminated")
                return
            stream.argue(call, json.dumps({spec.argument: text}, ensure_ascii=False))
        else:
            stream.argue(call, f'{{"{spec.argument}": "')
            found = yield from stream.until(self.layout.end(), stream.argue_text, "arguments")
            if found is None:
                stream.end_call(call, "unterminated")
                return
            stream.argue(call, '"}')
        yield from self.finish(call, None)

    def unread(self, ended: bool) -> None:
        """A call without a name: text, unless the reply ended before the name could come."""
        stream = self.stream
        if ended:
            stream.consume(len(stream.buffer) - stream.position, "raw")
            stream.attempts.append(("unterminated", stream.begin[0], stream.at, None, None))
            stream.rename("raw", stream.at - stream.begin[0])
            stream.held = None
        else:
            stream.abandon()
            self.broken = True

    def row(self, bare: bool = False) -> Steps:
        """Calls one behind the other, with nothing but brackets and commas between them."""
        stream, spec = self.stream, self.layout.calls
        listed, closed = self.layout.listed and not bare, False
        while True:
            char, spaces = yield from stream.ahead()
            starts = (
                char == "{" if isinstance(spec.call, JsonCall) else char.isalpha() or char == "_"
            )
            if starts and stream.held is None and not listed and (yield from self.marked(char)):
                break
            if starts:
                stream.consume(spaces, "space")
                if stream.held is None:
                    stream.open_call()
                read = (
                    self.object(spec.call, bare)
                    if isinstance(spec.call, JsonCall)
                    else self.tagged(bare)
                )
                if not (yield from read):
                    break
            elif stream.held is None and self.layout.openers and not listed:
                break  # each call has an opener of its own
            elif char and (
                char in ",;"
                or (char == "[" and stream.held is not None and not listed)
                or (char == "]" and listed)
            ):
                closed = char == "]"
                listed = not closed and (listed or char == "[")
                stream.consume(spaces, "space")
                stream.consume(1, "marker")
            elif stream.held is not None or not (yield from self.separated()):
                break
        if stream.held is None:
            yield from self.section_over(closed)
            return
        ended = stream.ended and stream.position >= len(stream.buffer)
        if bare and not ended:
            stream.abandon(record=False)
        else:
            self.unread(ended=ended)

    def separated(self) -> Done:
        """Whether what stands between calls comes next, and is taken."""
        between = self.layout.calls.between.text
        return bool(between.strip()) and (
            yield from self.stream.eat_spaced(self.plan.variants.of(between))
        )

    def marked(self, char: str) -> Done:
        """Whether a marker comes next that starts with this character, as another call might."""
        ends = (form for text in self.layout.ends for form in self.plan.variants.of(text))
        forms = [form for form in (*self.plan.text.tags, *ends) if form.lstrip().startswith(char)]
        return bool(forms) and bool((yield from self.stream.coming(forms))[0])

    def section_over(self, closed: bool) -> Steps:
        """What ends a section whose calls have no openers; `closed`: the bracket of its list was taken already."""
        last = ""
        for text in self.layout.ends if not self.layout.openers else ():
            due = text.strip().removeprefix("]") if closed else text
            if due.strip() and not (yield from self.stream.eat_spaced(self.plan.variants.of(due))):
                return
            last, closed = text, False
        yield from self.stream.trail(trail(last))

    def tagged(
        self, bare: bool = False, at: int = 0, known: Mapping[str, str] | None = None
    ) -> Generator[None, None, bool]:
        """A call whose parts stand between markers; False if no name can be read."""
        stream, items = self.stream, self.layout.items
        slots: dict[str, str] = dict(known or {})
        begin = len(stream.held or ())
        call: Call | None = None
        kept = "{}"  # arguments that stand before the name
        self.stray, self.depth = False, 0
        while at < len(items):
            item = items[at]
            at += 1
            if item.slot == "arguments":
                if "name" not in slots and Item(slot="name") in items[at:]:
                    early = yield from self.kept_arguments()
                    if early is None:
                        return False
                    kept = early
                    continue
                native = "".join((stream.held or ())[begin:])
                call = self.named(slots, native, bare, later=Item(slot="id") in items[at:])
                if call is None:
                    return False
                if not (yield from self.arguments(call)):
                    return True
            elif item.slot:
                start = stream.at
                behind = yield from self.slot(at - 1, slots)
                if behind is None:
                    return call is not None and self.unended(call, start)
                at = behind
            elif item.text.strip() and (
                yield from stream.eat_spaced(self.plan.variants.of(item.text))
            ):
                yield from stream.trail(trail(item.text))
        if call is None:
            stray, call = self.stray, self.named(slots, "", bare)
            if call is None:
                return False
            stream.argue(call, kept)
            self.stray = stray
        yield from self.finish(call, slots.get("id"))
        return True

    def slot(self, at: int, slots: dict[str, str]) -> Generator[None, None, int | None]:
        """Read item `at`, a name or an id. The number of the item behind it; None if it does not end."""
        stream, items = self.stream, self.layout.items
        texts: list[str] = []
        yield from stream.spaces()
        start, slot = stream.at, items[at].slot
        span = "name" if slot in ("name", "echo") else "id"
        found = yield from stream.until(self.layout.due(at), texts.append, span, limit=NAME)
        if found is None:
            return None
        text = stream.spelling.plain("".join(texts)).strip()
        if slot == "echo" and text not in slots.values():
            self.strays(start)
        slots.setdefault(slot, text)
        kind, _, number = found.tag.partition(" ")
        behind = int(number) if number else len(items)
        if kind == "mark":
            stream.mark(found)
            yield from stream.trail(trail(items[behind - 1].text))
        return behind

    def unended(self, call: Call, start: int) -> bool:
        """A call that does not end as it should: from `start` on it cannot be read."""
        stream = self.stream
        ended = stream.ended
        stream.consume(len(stream.buffer) - stream.position if ended else 0, "raw")
        if stream.at > start:
            stream.rename("raw", stream.at - start)
        stream.end_call(call, "unterminated" if ended else "malformed")
        return True

    def named(
        self, slots: Mapping[str, str], native: str, bare: bool, later: bool = False
    ) -> Call | None:
        """The call, once its name is read; None if there is no name."""
        id = slots.get("id") or None
        name = slots.get("name")
        if name is None and id is not None:
            name = id.rpartition(":")[0] or id
            name = name.rpartition(".")[2]
        if not name or not NAMELESS.isdisjoint(name) or any(char.isspace() for char in name):
            return None
        if bare and not self.offered(name):
            return None
        return self.start(name, id or self.native(slots, native), later)

    def native(self, slots: Mapping[str, str], text: str) -> str | None:
        """An id that is made of the name and a number: `functions.NAME:0`."""
        if not slots.get("index"):
            return None
        openers = self.layout.openers
        prefix = openers[-1].strip() if len(openers) > 1 and not tag_like(openers[-1]) else ""
        core = f"{slots['name']}{self.between}{slots['index']}"
        return (
            prefix + core
            if self.between and not any(char in SIGNS.replace(":", "") for char in core)
            else None
        )

    @property
    def between(self) -> str:
        """The marker between a name and the index behind it."""
        items = self.layout.items
        for at in range(len(items) - 2):
            if items[at].slot == "name" and items[at + 2].slot == "index":
                return items[at + 1].text
        return ""

    def finish(self, call: Call, id: str | None) -> Steps:
        """What stands behind the arguments."""
        status = "complete" if self.offered(call.name) else "unknown"
        last = blank(self.layout.calls.each.close)
        for text in self.layout.closers:
            if (yield from self.closer(text)):
                last = text
            elif tag_like(text):
                status = "unclosed"
        status = "malformed" if self.stray else status
        self.stream.end_call(call, status, id or self.stream.invented(call.index))
        if last.strip() in self.plan.grammar.stops:
            yield from self.stopped(last.strip())
        elif not (yield from self.passed()):
            yield from self.stream.trail(trail(last))

    def closer(self, text: str) -> Done:
        """Whether this closer follows, and is taken."""
        forms = self.plan.variants.of(text)
        if not (yield from self.stream.eat_spaced(forms)):
            return (
                tag_like(text)
                and (yield from self.skipped(forms))
                and (yield from self.stream.eat_spaced(forms))
            )
        return True

    def skipped(self, closers: tuple[str, ...]) -> Done:
        """Whether a closer follows behind brackets too many, which are skipped: no part of the call, and no text."""
        stream, cores = self.stream, tuple(form.strip() for form in closers)
        size = SKIPPED + max(map(len, cores))
        while True:
            ahead = stream.buffer[stream.position : stream.position + size]
            body = ahead.lstrip(BRACKETS)
            if body.startswith(cores):
                stream.consume(len(ahead) - len(body), "raw")
                self.stray = True
                return True
            if (
                stream.ended
                or len(ahead) == size
                or not any(core.startswith(body) for core in cores)
            ):
                return False
            yield

    def passed(self) -> Done:
        """Behind a call: whether there is something that separates it from the next one, or ends the section."""
        stream, plan, layout = self.stream, self.plan, self.layout
        due = {
            form.strip(): text
            for text in reversed(layout.behind)
            for form in plan.variants.of(text)
        }
        if not due:
            return False
        others = (
            *plan.grammar.stops,
            *plan.grammar.starts,
            *layout.section[:1],
            *layout.openers[:1],
        )
        core, spaces = yield from stream.coming([*due, *filter(str.strip, others)])
        if core not in due or core in plan.grammar.stops:
            return False
        stream.consume(spaces, "space")
        stream.consume(len(core), "marker")
        rest = layout.ends[1:] if due[core] in layout.ends[:1] else []
        for text in rest:
            yield from stream.eat_spaced(plan.variants.of(text))
        yield from stream.trail(trail((due[core], *rest)[-1]))
        return True

    def stopped(self, text: str) -> Steps:
        self.stream.halt(text)
        again = yield from self.stream.until(self.plan.resume, lambda text: None, "rest")
        if again is not None:
            yield from self.on_start(again, 0)


def unfenced(text: str) -> str:
    """Code without the fence around it."""
    core = text.strip()
    if not core.startswith("```"):
        return text
    first, _, rest = core.partition("\n")
    return rest.removesuffix("```").removesuffix("\n") if len(first) < NAME else text


On = Callable[[Reading, Found, int], Steps]

ON_TEXT: Mapping[str, On] = {
    "bare": Reading.on_bare,
    "section": Reading.on_section,
    "call": Reading.on_call,
    "reasoning": Reading.on_reasoning,
    "content": Reading.on_start,
    "start": Reading.on_start,
    "stop": Reading.on_stop,
    "unreasoning": Reading.on_stray,
    "closer": Reading.on_closer,
    "end": Reading.on_end,
    "header": Reading.on_header,
}
ON_REASONING: Mapping[str, On] = {
    "unreasoning": Reading.on_answer,
    "reasoning": Reading.on_again,
    "content": Reading.on_start,
    "start": Reading.on_start,
    "stop": Reading.on_stop,
    "section": Reading.on_early,
    "call": Reading.on_early,
}
