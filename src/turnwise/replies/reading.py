"""Reading a reply by its plan: regions, headers, calls.

Written as if the whole reply were there; `yield from` waits for more of it where it is not. Each marker that may come
next has a tag, and a tag has a method: `ON_TEXT` and `ON_REASONING` are the tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping

from turnwise.replies.arguments import Done
from turnwise.replies.events import ARGUMENTS, REASONING, TEXT
from turnwise.replies.grammar import JsonCall, RawCall
from turnwise.replies.jsoncalls import JsonCalls
from turnwise.replies.machine import Call, Steps, Stream
from turnwise.replies.plan import SIGNS, Plan, tag_like, trail
from turnwise.replies.watch import Found

NAME = 256  # characters of a name
HEADER = 512  # characters of a header
NAMELESS = frozenset("{}[]()\"',<>")  # what no name holds


class Reading(JsonCalls):
    """One reply."""

    def __init__(self, stream: Stream, plan: Plan, types: Mapping[str, Mapping[str, frozenset[str]]]) -> None:
        super().__init__(stream, plan, types)
        self.state = TEXT
        self.prompting = True  # the prompt is being read
        self.prompted = True  # the reasoning was opened by the prompt
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
                found = yield from self.stream.until(watch, self.stream.thinking, REASONING, REASONING)
                table = ON_REASONING
            else:
                if self.stream.fresh and (yield from self.unmarked()):
                    continue
                found = yield from self.stream.until(self.plan.text, self.stream.text, TEXT, TEXT)
                table = ON_TEXT
            if found is None:
                return
            tag, _, place = found.tag.partition(" ")
            layout, _, number = place.partition(".")
            if place:
                self.layout = self.plan.layouts[int(layout)]
            yield from table[tag](self, found, int(number or 0))

    def take(self, found: Found) -> Steps:
        """A marker and the white space behind it."""
        text = self.stream.mark(found)
        yield from self.stream.trail(self.plan.trails.get(text.strip(), ""))

    # -- regions

    def on_stop(self, found: Found, number: int) -> Steps:
        yield from self.stopped(self.stream.spelling.plain(self.stream.mark(found).strip()))

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
        yield from self.take(found)

    def on_reasoning(self, found: Found, number: int) -> Steps:
        yield from self.take(found)
        self.state, self.prompted = REASONING, self.prompting
        self.stream.boundary()

    def on_again(self, found: Found, number: int) -> Steps:
        """An opener where reasoning is open already: the model repeats what the prompt said."""
        if self.stream.fresh:
            yield from self.take(found)
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
            layout = self.plan.bare(char)
            if layout is not None:
                self.layout = self.plan.layouts[layout]
                stream.consume(spaces, "space")
                stream.open_call()
                yield from self.row(bare=True)
                return True
        if channels is not None and channels.stem:
            ahead, spaces = yield from stream.ahead(len(channels.stem))
            if ahead == channels.stem:
                stream.consume(spaces, "space")
                yield from self.header()
                return True
        return False

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
        recipient = header.partition(channels.stem)[2].partition("<")[0].split()[:1] if channels.stem else []
        offered = channels.recipient[len(channels.stem) :]
        if channel == [channels.content] or not recipient or recipient == channel == [channels.reasoning]:
            stream.held = None
            stream.boundary()
            self.state = REASONING if channel == [channels.reasoning] else TEXT
            self.prompted = self.prompting
        elif recipient[0].startswith(offered):
            behind = [at for at, item in enumerate(self.layout.items) if channels.behind in item.text]
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
            if (at == 0 or tag_like(text)) and (yield from stream.eat_spaced(self.plan.variants.of(text))):
                yield from self.call(at)
                return
        self.unread(ended=stream.ended and stream.position == len(stream.buffer))

    def on_call(self, found: Found, number: int) -> Steps:
        self.stream.open_call()
        self.stream.mark(found)
        if number or not (yield from self.another()):
            yield from self.call(number)

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
            found = yield from stream.until(self.layout.end(), stream.argue_text, "arguments", ARGUMENTS)
            if found is None:
                stream.end_call(call, "unterminated")
                return
            stream.argue(call, '"}')
        yield from self.finish(call, None)

    def unread(self, ended: bool) -> None:
        """A call without a name: text, unless the reply ended before the name could come."""
        stream = self.stream
        if ended:
            stream.attempts.append(("unterminated", stream.begin[0], stream.at, None, None))
            stream.rename("raw", stream.at - stream.begin[0])
            stream.held = None
        else:
            stream.abandon()
            self.broken = True

    def row(self, bare: bool = False) -> Steps:
        """Calls one behind the other, with nothing but brackets and commas between them."""
        stream, spec = self.stream, self.layout.calls
        listed = self.layout.listed and not bare
        while True:
            char, spaces = yield from stream.ahead()
            starts = char == "{" if isinstance(spec.call, JsonCall) else char.isalpha() or char == "_"
            if starts:
                stream.consume(spaces, "space")
                if stream.held is None:
                    stream.open_call()
                read = self.object(spec.call, bare) if isinstance(spec.call, JsonCall) else self.tagged(bare)
                if not (yield from read):
                    break
            elif stream.held is None and self.layout.openers and not listed:
                break  # each call has an opener of its own
            elif char and (
                char in ",;" or (char == "[" and stream.held is not None and not listed) or (char == "]" and listed)
            ):
                listed = char != "]" and (listed or char == "[")
                stream.consume(spaces, "space")
                stream.consume(1, "marker")
            else:
                break
        if stream.held is not None:
            ended = stream.ended and stream.position >= len(stream.buffer)
            if bare and not ended:
                stream.abandon(record=False)
            else:
                self.unread(ended=ended)

    def tagged(
        self, bare: bool = False, at: int = 0, known: Mapping[str, str] | None = None
    ) -> Generator[None, None, bool]:
        """A call whose parts stand between markers; False if no name can be read."""
        stream, items = self.stream, self.layout.items
        slots: dict[str, str] = dict(known or {})
        begin = len(stream.held or ())
        call: Call | None = None
        while at < len(items):
            item = items[at]
            at += 1
            if item.slot == "arguments":
                native = "".join((stream.held or ())[begin:])
                call = self.named(slots, native, bare)
                if call is None:
                    return False
                if not (yield from self.arguments(call)):
                    return True
            elif item.slot:
                texts: list[str] = []
                span = "name" if item.slot == "name" else "id"
                found = yield from stream.until(self.layout.due(at - 1), texts.append, span, limit=NAME)
                if found is None:
                    return False
                slots.setdefault(item.slot, stream.spelling.plain("".join(texts)).strip())
                kind, _, number = found.tag.partition(" ")
                at = int(number) if number else len(items)
                if kind == "mark":
                    stream.mark(found)
                    yield from stream.trail(trail(items[at - 1].text))
            elif item.text.strip() and (yield from stream.eat_spaced(self.plan.variants.of(item.text))):
                yield from stream.trail(trail(item.text))
        if call is None:
            call = self.named(slots, "", bare)
            if call is None:
                return False
            stream.argue(call, "{}")
        yield from self.finish(call, None)
        return True

    def named(self, slots: Mapping[str, str], native: str, bare: bool) -> Call | None:
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
        return self.start(name, id or self.native(slots, native))

    def native(self, slots: Mapping[str, str], text: str) -> str | None:
        """An id that is made of the name and a number: `functions.NAME:0`."""
        if not slots.get("index"):
            return None
        openers = self.layout.openers
        prefix = openers[-1].strip() if len(openers) > 1 and not tag_like(openers[-1]) else ""
        core = f"{slots['name']}{self.between}{slots['index']}"
        return prefix + core if self.between and not any(char in SIGNS.replace(":", "") for char in core) else None

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
        last = ""
        for text in self.layout.closers:
            if (yield from self.stream.eat_spaced(self.plan.variants.of(text))):
                last = text.strip()
            elif tag_like(text):
                status = "unclosed"
        self.stream.end_call(call, status, id or f"call_{call.index}")
        if last in self.plan.grammar.stops:
            yield from self.stopped(last)
        else:
            yield from self.passed()

    def passed(self) -> Steps:
        """Behind a call: what separates it from the next one, or ends the section."""
        stream, plan, layout = self.stream, self.plan, self.layout
        due = {form.strip(): text for text in reversed(layout.behind) for form in plan.variants.of(text)}
        if not due:
            return
        others = (*plan.grammar.stops, *plan.grammar.starts, *layout.section[:1], *layout.openers[:1])
        core, spaces = yield from stream.coming([*due, *filter(str.strip, others)])
        if core not in due or core in plan.grammar.stops:
            return
        stream.consume(spaces, "space")
        stream.consume(len(core), "marker")
        rest = layout.ends[1:] if due[core] in layout.ends[:1] else []
        for text in rest:
            yield from stream.eat_spaced(plan.variants.of(text))
        yield from stream.trail(trail((due[core], *rest)[-1]))

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
