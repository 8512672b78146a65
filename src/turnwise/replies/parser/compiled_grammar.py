"""A grammar compiled to matchers, one for each state of the parser.

    state                                   what is matched
    content                                 openers of any region or call, distinctive closers,
                                            starts and stops
    delimited content (has an opener)       the same, and its closer, distinctive or not
    reasoning                               its closer, openers of calls, starts and stops
    prompted reasoning (the prompt's)       the same, and the opener of content
    channel header, body of a message       see below
    after a stop                            the start of another message

A marker that looks like a tag is matched anywhere in its state; a bracket or a word only where it
must come next.

Some grammars write reasoning and content with the same markers around a different word
(`<|channel|>analysis<|message|>`, `<|channel|>final<|message|>`). Then the text between two such
markers is a channel header, and is parsed as one (`ChannelHeaderFormat`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import chain
from os.path import commonprefix
from typing import NamedTuple

from turnwise.replies.grammar_parts import (
    Calls,
    GrammarParts,
    JsonCall,
    Marker,
    Pairs,
    RawCall,
    Region,
    TaggedCall,
)
from turnwise.replies.parser.call_format import CallFormat, starts_list_of_names
from turnwise.replies.parser.detokenizer import NO_TOKENIZER, IncrementalDetokenizer
from turnwise.replies.parser.markers import (
    LABEL,
    MarkerKind,
    MarkerTag,
    MarkerVariants,
    TaggedText,
    collect_texts,
    common_tag_suffix,
    cut_last_word,
    is_tag_like,
    remove_start,
    split_tags,
    tag_all,
    trailing_space,
    whitespace_only,
)

# What is tolerated, by name. `Parser(tolerances=...)` accepts the names of those that are on; all are by default.
TaggedTexts = list[TaggedText]
TOLERANCES = {
    "section": "calls without the section around them",
    "call": "a call that starts with a later marker than its first",
    "reasoning": (
        "a call ends reasoning that is open; the content's own opener ends the reasoning that the prompt opened"
    ),
    "bare": (
        "JSON or a Python call at the start of the content is a call if the grammar writes calls without markers;"
        " after content, JSON that starts with a name and then arguments"
    ),
    "closers": "a closer of a call or of content where nothing is open is no text, but `unopened`",
    "strings": "arguments that are a JSON text within a string",
    "shapes": (
        "JSON with name and arguments, Python calls or tags (`<function=`, `<invoke name=`) between the tags of a call"
        " that is written otherwise"
    ),
    "unwrap": "one argument named like `arguments` that holds the declared ones",
    "headers": "the words of a header in another order",
    "quotes": "a quote within a Python text that is not escaped, if what follows it fits no end of the text",
    "blanks": "blanks within a tag that are missing, or too many",
    "attributes": "a name within a tag that has other quotes, or none",
    "suffixes": "tags without the word after a colon with which all tags end",
}
ALL_TOLERANCES = frozenset(TOLERANCES)

# Keys that models use in place of each other.
ARGUMENT_KEYS = ("arguments", "parameters", "args", "params", "input")
NAME_KEYS = ("name", "tool_name", "function")

LIST_LOOKAHEAD = 8  # characters that tell lists of calls apart: a bracket, and what is in it
SHAPE_LOOKAHEAD = 64  # and that tell any shapes apart: a tag, or a name and a bracket
_MIN_CHANNEL_HEADER_START = 3  # characters before the word of a channel header, and after it
_MIN_CHANNEL_HEADER_END = 4


_PYTHON_VALUE = Region(Marker("="))
_PYTHON_PAIRS = Pairs(
    string=_PYTHON_VALUE,
    other=_PYTHON_VALUE,
    between=Marker(", "),
    values="python",
    scalars="python",
    strings="python",
)


def _tagged_shape(opener: str, key: str, end: str, closer: str) -> Calls:
    """Return calls with arguments between tags: a tag with the name, and one with each key around its value."""
    value = Region(Marker(f"{end}\n"), Marker("\n</parameter>\n"))
    pairs = Pairs(key=Marker(key), string=value, other=value)
    call = TaggedCall(("name", Marker(f"{end}\n"), "arguments"), pairs)
    return Calls(call, each=Region(Marker(opener), Marker(closer)))


# The shapes in which models write calls, whatever shape their template has: each is read between any outer tags.
_SHAPES = (
    Calls(JsonCall()),
    Calls(
        TaggedCall(("name", Marker("("), "arguments"), _PYTHON_PAIRS),
        section=Region(Marker("["), Marker("]")),
        each=Region(close=Marker(")")),
        between=Marker(", "),
    ),
    _tagged_shape("<function=", "<parameter=", ">", "</function>"),
    _tagged_shape('<invoke name="', '<parameter name="', '">', "</invoke>"),
)


def _other_shapes(calls: Calls) -> list[Calls]:
    """Return calls in other shapes between the outer tags of these; none if there are no such tags."""
    openers = split_tags(calls.section.open.text) or split_tags(calls.each.open.text)
    closers = split_tags(calls.section.close.text) or split_tags(calls.each.close.text)
    if isinstance(calls.call, RawCall) or not openers or not closers:
        return []
    if isinstance(calls.call, TaggedCall) and calls.call.parts[:1] == ("arguments",):
        return []  # an object is what follows the tag in any case
    is_list = openers[0].rstrip().endswith(">[") and closers[0].lstrip().startswith("]")
    opener, closer = openers[0].rstrip().removesuffix("["), closers[-1].lstrip().removeprefix("]")
    if not is_tag_like(opener) or not is_tag_like(closer) or not opener.endswith(">"):
        return []
    written = calls.section.open.text + calls.each.open.text
    has_bracket = written.partition(opener)[2].lstrip().startswith(("{", "["))
    if isinstance(calls.call, TaggedCall) and has_bracket and not is_list:
        return []  # its own brackets would be taken for those of another shape
    return [
        replace(
            shape,
            section=Region(
                Marker(opener + shape.section.open.text), Marker(shape.section.close.text + closer)
            ),
        )
        for shape in _SHAPES
    ]


class ChannelHeaderFormat(NamedTuple):
    """The form of channel headers such as `<|channel|>analysis<|message|>`."""

    start: str  # before the word: `<|channel|>`
    end: str  # after it: `<|message|>`
    reasoning: str  # the word for reasoning: `analysis`
    content: str  # the word for content: `final`
    recipient_prefix: str  # before the name of a tool: `to=functions.`
    recipient_key: str  # before any recipient: `to=`

    def read(self, text: str) -> tuple[str, str]:
        """Return the channel and the recipient in a header, which may be in any order; "" for one that is missing."""
        channel = _first_word(text.rpartition(self.start)[2])
        after_key = text.partition(self.recipient_key)[2] if self.recipient_key else ""
        return channel, _first_word(after_key.partition("<")[0])  # up to a tag


def _first_word(text: str) -> str:
    return "".join(text.split(maxsplit=1)[:1])


class CompiledGrammar:
    """What the parser looks up while it reads. It does not change, so that parsers can share it."""

    def __init__(
        self,
        grammar: GrammarParts,
        tolerances: frozenset[str] = ALL_TOLERANCES,
        detokenizer: IncrementalDetokenizer = NO_TOKENIZER,
    ) -> None:
        self.grammar = grammar
        self.tolerances = tolerances
        self.detokenizer = detokenizer
        suffix = common_tag_suffix(collect_texts(grammar))
        self.variants = MarkerVariants(detokenizer, tolerances, suffix)
        ways = [calls for calls in (grammar.calls, *grammar.more) if calls is not None]
        shapes = [shape for calls in ways for shape in _other_shapes(calls)]
        self.call_formats = [
            CallFormat(calls, number, grammar.starts, grammar.stops, self.variants)
            for number, calls in enumerate(ways + (shapes if "shapes" in tolerances else []))
        ]
        # The other shapes start with the same tags, and have no markers of their own outside of them.
        self.own_formats = self.call_formats[: len(ways)]
        self._join_ambiguous_openers()
        self.formats_without_opener = [
            format for format in self.call_formats if format.starts_with_name
        ]
        self.channel_header_format = self._find_channel_header_format()
        self.trailing_spaces: dict[str, str] = {}  # of each marker around regions
        self.markers_after_row = lru_cache(self._markers_after_row)
        self._build_matchers()

    def _join_ambiguous_openers(self) -> None:
        """Join the first two tags of formats that start with the same tag and go on with different ones."""
        formats = [
            format
            for format in self.call_formats
            if not format.section_openers and len(format.openers) > 1
        ]
        second_tags: dict[str, set[str]] = {}
        for format in formats:
            first, second = format.openers[:2]
            second_tags.setdefault(first, set()).add(second)
        for format in formats:
            if len(second_tags[format.openers[0]]) > 1:
                format.openers[:2] = ["".join(format.openers[:2])]

    def _find_channel_header_format(self) -> ChannelHeaderFormat | None:
        grammar = self.grammar
        if grammar.reasoning is None or "headers" not in self.tolerances:
            return None
        reasoning = remove_start(grammar.reasoning.open.text, grammar.starts).strip()
        content = remove_start(grammar.content.open.text, grammar.starts).strip()
        start = cut_last_word(commonprefix([reasoning, content]))
        end = cut_last_word(commonprefix([reasoning[::-1], content[::-1]]))[::-1]
        if len(start) < _MIN_CHANNEL_HEADER_START or len(end) < _MIN_CHANNEL_HEADER_END:
            return None
        words = [text[len(start) : len(text) - len(end)] for text in (reasoning, content)]
        if not all(word.isalnum() for word in words):
            return None
        openers = [format.openers[0].strip() for format in self.call_formats if format.openers]
        prefix = openers[0] if openers and "<" not in openers[0] else ""
        recipient_key = prefix[: prefix.rfind("=") + 1]
        return ChannelHeaderFormat(
            start, end, words[0], words[1], prefix if recipient_key else "", recipient_key
        )

    # -- formats of calls

    @cached_property
    def bare_lookahead(self) -> int:
        """How many characters tell the formats of calls without a marker apart; 0 if there are none."""
        formats = [format for format in self.call_formats if format.bare_starts]
        if not formats or "bare" not in self.tolerances:
            return 0
        return LIST_LOOKAHEAD if len(formats) > 1 else 1

    def find_bare_format(self, text: str) -> CallFormat | None:
        """Return the format of a call without a marker that starts with this text."""
        first = text[:1]
        candidates = [
            format for format in self.call_formats if first and first in format.bare_starts
        ]
        for format in candidates:
            # In a list there is an object, or the name of a function.
            if isinstance(format.calls.call, JsonCall) != starts_list_of_names(text):
                return format
        return candidates[0] if candidates else None

    def choose_format(self, format: CallFormat, text: str) -> CallFormat:
        """Return the format that goes on with `text`, of those that start with the same marker as `format`."""
        candidates = [format]
        if format.first_marker:
            candidates += [
                other for other in self.call_formats if other.first_marker == format.first_marker
            ]
        for candidate in candidates:
            if candidate.continues_with(text):
                return candidate
        return format

    def _markers_after_row(self, format: CallFormat, char: str) -> list[str]:
        """Return the markers that may follow a row of calls and start with `char`."""
        markers = list(self.content_matcher.tags)
        for text in format.section_closers:
            markers += self.variants.spellings(text)
        return [marker for marker in markers if marker.lstrip().startswith(char)]

    # -- matchers

    def _build_matchers(self) -> None:
        grammar = self.grammar
        openers = self._opener_markers()
        stops = self._stop_markers()
        starts = tag_all(grammar.starts, MarkerKind.MESSAGE_START)
        content_text = remove_start(grammar.content.open.text, grammar.starts)
        content_open = tag_all([content_text], MarkerKind.CONTENT_OPEN)
        content_close = tag_all([grammar.content.close.text], MarkerKind.CONTENT_CLOSE)
        closers = self._closer_markers(content_close) if "closers" in self.tolerances else []
        reasoning_open: TaggedTexts = []
        reasoning_close: TaggedTexts = []
        if grammar.reasoning is not None:
            open_text = remove_start(grammar.reasoning.open.text, grammar.starts)
            reasoning_open = tag_all([open_text], MarkerKind.REASONING_OPEN)
            unlabelled = self._remove_label(open_text)
            if unlabelled:
                reasoning_open.append((unlabelled, MarkerTag(MarkerKind.REASONING_OPEN, index=1)))
            reasoning_close = tag_all([grammar.reasoning.close.text], MarkerKind.REASONING_CLOSE)
        formats = [self.channel_header_format] if self.channel_header_format is not None else []
        header = tag_all([format.start for format in formats], MarkerKind.CHANNEL_HEADER)
        header_end = tag_all([format.end for format in formats], MarkerKind.CHANNEL_HEADER_END)
        call_open: TaggedTexts = []
        early_content: TaggedTexts = []
        if "reasoning" in self.tolerances:
            call_open = [marker for marker in openers if is_tag_like(marker[0])]
            openers_of_reasoning = [text.strip() for text, _ in reasoning_open]
            if is_tag_like(content_text) and content_text.strip() not in openers_of_reasoning:
                early_content = content_open

        # Of equal markers the first one counts, so the order matters.
        in_content = openers + reasoning_open + content_open + starts + stops
        in_content += reasoning_close + closers + header
        in_content += tag_all(grammar.specials, MarkerKind.SPECIAL)
        self.specials = frozenset(map(self.detokenizer.mask_specials, grammar.specials))
        openers_as_read = (self.variants.spellings(text.strip()) for text, _ in openers)
        self.before_calls = (*self.specials, *chain.from_iterable(openers_as_read))
        matcher = self.variants.matcher
        self.content_matcher = matcher(in_content)
        self.delimited_content_matcher = matcher(in_content + content_close)
        in_reasoning = stops + starts + reasoning_open[:1]
        self.reasoning_close_matcher = matcher(reasoning_close)
        self.reasoning_matcher = matcher(reasoning_close + call_open + in_reasoning)
        self.prompted_reasoning_matcher = matcher(
            reasoning_close + call_open + early_content + in_reasoning
        )
        self.restart_matcher = matcher(starts)
        self.body_end_matcher = matcher(reasoning_close + call_open + closers + stops + starts)
        self.channel_header_matcher = matcher(header_end + stops)
        around_regions = openers + content_open + reasoning_open + starts
        around_regions += reasoning_close + closers + content_close
        for text, _ in around_regions:
            for form in self.variants.spellings(text.strip()):
                self.trailing_spaces.setdefault(form, trailing_space(text))

    def _remove_label(self, opener: str) -> str:
        """Return the opener of reasoning without its label (`<|channel>thought`), if nothing else starts like that."""
        core = opener.strip()
        tag = LABEL.sub("", core)
        if tag == core or self.channel_header_format is not None or not is_tag_like(tag):
            return ""
        for text in map(str.strip, collect_texts(self.grammar)):
            if text.startswith(tag) and not text.startswith(core):
                return ""
        return tag

    def names_channel(self, word: str) -> bool:
        """Return whether a grammar with channel headers has this channel."""
        return bool(word) and any(word in text for text in collect_texts(self.grammar))

    def _stop_markers(self) -> TaggedTexts:
        """Return the stops; of a stop that consists of several tags also the last tag alone."""
        lead = whitespace_only(self.grammar.content.close)
        texts = [lead + stop for stop in self.grammar.stops]
        tags = map(split_tags, self.grammar.stops)
        return tag_all([*texts, *(parts[-1] for parts in tags if len(parts) > 1)], MarkerKind.STOP)

    def _opener_markers(self) -> TaggedTexts:
        """Return what calls start with, with the whitespace that the template writes before it."""
        markers: TaggedTexts = []
        for format in self.own_formats:
            calls = format.calls
            lead = whitespace_only(calls.lead) + whitespace_only(calls.section.open)
            openers = format.opening_markers()
            if "call" in self.tolerances:
                openers += format.later_markers()
            openers = [marker for marker in openers if self._is_opener(marker)]
            if "section" not in self.tolerances and format.section_openers:
                openers = openers[:1]
            markers += [(lead + text, tag) for text, tag in openers]
        return markers

    def _is_opener(self, marker: TaggedText) -> bool:
        text, tag = marker
        if tag.kind is MarkerKind.BARE_CALL and "bare" not in self.tolerances:
            return False
        # A recipient is part of a channel header, and the opener of content may come before a call.
        prefix = self.channel_header_format.recipient_prefix if self.channel_header_format else ""
        opener = remove_start(self.grammar.content.open.text, self.grammar.starts).strip()
        return text.strip() not in (prefix or None, opener or None)

    def _closer_markers(self, content_close: TaggedTexts) -> TaggedTexts:
        """Return the distinctive closers: a reply may hold one where nothing is open."""
        texts: list[str] = []
        for format in self.own_formats:
            texts += (*format.closers, *format.section_closers)
            # Several tags that are written as one marker are one closer; a bracket before them is part of a call.
            for text in (format.calls.each.close.text, format.calls.section.close.text):
                if text.strip()[:1] not in ")]}" and all(map(is_tag_like, split_tags(text))):
                    texts.append(text)
        for stop in self.grammar.stops:
            texts += split_tags(stop)[:-1]
        markers = content_close + tag_all(texts, MarkerKind.CALL_CLOSE)
        return [marker for marker in markers if is_tag_like(marker[0])]
