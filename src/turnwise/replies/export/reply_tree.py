"""A grammar and the tools of a request as a constraint: which replies may be written.

    reply     = reasoning?  content?  calls?  stop?         tool choice "auto"
    reply     = reasoning?  content?  calls   stop?         "required", or the name of a tool
    reply     = reasoning?  content?  stop?                 "none": the prompt has tools, and no call may begin

Three rules make a constraint sound, so that whatever it accepts is parsed to calls that fit the tools:

* Free text ends where a call begins: it cannot contain any text that the parser takes for the beginning of a call, so a
  call that does not fit the tools cannot be written as content either.
* Where calls have no distinctive marker (a bare JSON object, `[f(x=1)]`), the trigger is the beginning of a call
  itself, and content cannot begin with such a bracket.
* The stop is allowed and not demanded: engines take the stop token themselves.

What the prompt already contains of the reply decides how it begins: reasoning that it opened has to be closed first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from turnwise.errors import MessageError, TurnwiseError, did_you_mean, short_repr
from turnwise.replies.export.call_nodes import CallNodes
from turnwise.replies.export.constraint_tree import (
    NOTHING,
    ConstraintTree,
    FreeTextNode,
    JsonNode,
    LiteralNode,
    Node,
    RepeatNode,
    ToolSignature,
    drop_head,
    literal_head,
    make_choice,
    make_optional,
    make_sequence,
)
from turnwise.replies.export.own_reply import PROBE_TOOL, check_own_reply
from turnwise.replies.export.schema_reader import read_signatures, read_value_type
from turnwise.replies.grammar_parts import (
    KEY,
    NOT_READ_BACK,
    UNQUOTED,
    Calls,
    GrammarParts,
    JsonCall,
    RawCall,
    Region,
    TaggedCall,
)
from turnwise.replies.parser.compiled_grammar import CompiledGrammar
from turnwise.replies.parser.markers import PUNCTUATION, collect_texts, is_tag_like, split_tags
from turnwise.replies.parser.parser import Parser

__all__ = ["ReplyOptions", "build_reply_tree"]

REQUIRED, NONE = "required", "none"
CHOICES = ("auto", REQUIRED, NONE)
QUOTED_WORD = re.compile(r'\W*"\w+"')  # the beginning of a JSON object, up to its first key


class ReplyOptions(NamedTuple):
    """What a request asks of the reply."""

    choice: str = "auto"
    reasoning: bool | None = None
    parallel: bool = True
    content: Mapping[str, Any] | None = None
    prompt: Any = None


def build_reply_tree(grammar: GrammarParts, tools: Any, options: ReplyOptions) -> ConstraintTree:
    """Return what replies may be.

    Raises:
        MessageError: the tools, the choice or the content's schema are not valid.
        TurnwiseError: the template shows no calls, or writes them in a way that no grammar can follow.
    """
    formats = [calls for calls in (grammar.calls, *grammar.more) if calls is not None]
    written = [calls for calls in formats if not isinstance(calls.call, RawCall)]
    if not written:
        raise TurnwiseError(
            "the template shows no tool calls, so there is no syntax for a grammar of calls",
            hint="If its model writes calls, declare how: docs/replies.md, Declarations.",
        )
    unsound = (NOT_READ_BACK, f"calls: {UNQUOTED}")
    lost = next((note for note in grammar.unreached if note.startswith(unsound)), None)
    if lost is not None:
        hint = "Declare how calls are written: docs/replies.md, Declarations."
        raise TurnwiseError(
            f"replies by this grammar would not be read as calls ({lost})", hint=hint
        )
    if options.reasoning not in (None, True, False):
        hint = "None, True and False are accepted."
        raise MessageError(f"reasoning is {short_repr(options.reasoning)}", hint=hint)
    signatures = choose_tools(read_signatures(tools, written[0].sorts_keys), options.choice)
    builder = _ReplyBuilder(grammar, written[0], signatures, options)
    # What the check says depends on the prompt only as far as that holds the beginning of the reply.
    key = id(grammar), builder.prefill
    if _checked.get(key) is not grammar:
        probe = read_signatures([PROBE_TOOL], written[0].sorts_keys)
        asked = ReplyOptions(REQUIRED, prompt=options.prompt)
        own = _ReplyBuilder(grammar, written[0], probe, asked).build()
        check_own_reply(grammar, own, options.prompt)
        if len(_checked) >= _MAX_CHECKED:
            _checked.clear()
        _checked[key] = grammar
    return builder.build()


_MAX_CHECKED = 64
_checked: dict[tuple[int, str], GrammarParts] = {}  # grammars that write what their exports accept


def choose_tools(signatures: list[ToolSignature], choice: Any) -> list[ToolSignature]:
    """Return the tools that a tool choice allows."""
    if choice in CHOICES:
        return signatures
    chosen = [tool for tool in signatures if tool.name == choice]
    if not chosen:
        names = [*CHOICES, *(tool.name for tool in signatures)]
        hint = did_you_mean(choice if isinstance(choice, str) else "", names, "Accepted")
        raise MessageError(f"choice is {short_repr(choice)}", hint=hint)
    return chosen


class _ReplyBuilder:
    def __init__(
        self,
        grammar: GrammarParts,
        calls: Calls,
        tools: list[ToolSignature],
        options: ReplyOptions,
    ) -> None:
        self._grammar = grammar
        self._calls = calls
        self._tools = tools
        self._options = options
        self._stops = tuple(dict.fromkeys(stop.strip() for stop in grammar.stops if stop.strip()))
        self._start_text = grammar.starts[0] if grammar.starts else ""
        self._tree = ConstraintTree(stops=self._stops)
        for tool in tools:
            self._tree.definitions.update(tool.definitions)
        self._prompted = Parser(grammar, options.prompt)
        self._openers = self._find_openers()
        self._triggers = {tool.name: "" for tool in tools}
        self._may_answer = options.choice in ("auto", NONE)  # without a call
        self._may_call = options.choice != NONE

    @property
    def prefill(self) -> str:
        """The beginning of the reply that the prompt has."""
        return self._prompted.prefill_text

    def build(self) -> ConstraintTree:
        """Return the tree."""
        tree = self._tree
        nodes = CallNodes(tree, self._calls, self._ends_of_calls())
        each = {tool.name: nodes.make(tool) for tool in self._tools}
        prefix = self._calls.section.open.text
        if isinstance(self._calls.call, JsonCall) and self._calls.call.listed:
            prefix += self._calls.call.around[0]
        firsts = {name: make_sequence(prefix, node) for name, node in each.items()}
        self._triggers = self._find_triggers(firsts)
        tail = self._more_calls(make_choice(each.values()))
        tree.triggers = tuple(dict.fromkeys(self._triggers.values()))
        tree.markers = tuple(self._collect_markers())
        whole = make_choice(_without_leading_space(node) for node in firsts.values())
        tree.calls = make_sequence(whole, tail)
        body = self._body(firsts, tail)
        openings = self._openings()
        if len(openings) > 1:
            body = tree.add_rule("body", body)
        tree.start = make_choice(make_sequence(opening, body) for opening in openings)
        return tree

    # -- what the parser takes for the beginning of a call

    def _find_openers(self) -> tuple[str, ...]:
        texts: list[str] = []
        for format in CompiledGrammar(self._grammar).own_formats:
            markers = [*format.opening_markers(), *format.later_markers()]
            texts += [text.strip() for text, _ in markers]
        return tuple(dict.fromkeys(text for text in texts if text.strip(PUNCTUATION)))

    def _ends_of_calls(self) -> tuple[str, ...]:
        """Return the texts that a value without escapes cannot contain."""
        closers = split_tags(self._calls.each.close.text + self._calls.section.close.text)
        last = [text.strip() for text in closers[-1:] if is_tag_like(text)]
        openers = [text for text in self._openers if is_tag_like(text)]
        return tuple(dict.fromkeys((*last, *openers[:1], *self._stops)))

    def _find_triggers(self, firsts: Mapping[str, Node]) -> dict[str, str]:
        """Return the text with which a call of each tool begins: a marker, or as much as tells it from content."""
        found: dict[str, str] = {}
        for name, node in firsts.items():
            head = literal_head(node).lstrip()
            marker = next((text for text in self._openers if head.startswith(text)), "")
            quoted = QUOTED_WORD.match(head)
            if marker:
                found[name] = marker
            elif quoted and isinstance(self._calls.call, JsonCall):
                found[name] = quoted.group()
            else:
                found[name] = head[: head.find(name) + len(name) + 1]
            # A stop that is the beginning of a call is decided by what follows it.
            for stop in self._stops:
                if found[name].startswith(stop):
                    found[name] = stop
        return found

    def _excluded(self) -> tuple[str, ...]:
        triggers = dict.fromkeys(self._triggers.values())
        texts = [*triggers, *self._stops, *self._openers]
        texts += [match.group() for text in triggers if (match := re.search(r'"\w+"', text))]
        if self._grammar.reasoning is not None and self._options.reasoning is not False:
            region = self._grammar.reasoning
            texts += [region.open.core, region.close.core]
        texts = [text for text in dict.fromkeys(texts) if text]
        # One that begins with another, or is an inner part of a trigger, would never be decided.
        return tuple(
            text
            for text in texts
            if not any(text != other and text.startswith(other) for other in texts)
            and not any(text in trigger[:-1] and text != trigger for trigger in triggers)
        )

    def _collect_markers(self) -> list[str]:
        grammar = self._grammar
        parts = (grammar.content, self._calls, grammar.reasoning, grammar.starts, self._stops)
        tags = [tag.strip() for text in collect_texts(parts) for tag in split_tags(text)]
        return list(dict.fromkeys(tag for tag in tags if is_tag_like(tag) and KEY not in tag))

    # -- calls

    def _more_calls(self, call: Node) -> Node:
        calls = self._calls
        separator, end = calls.between.text + self._start_text, calls.section.close.text
        if isinstance(calls.call, JsonCall) and calls.call.listed:
            _, separator, bracket = calls.call.around
            end = bracket + end
        more: Node = NOTHING
        if self._options.parallel:
            more = RepeatNode(make_sequence(separator, call))
        return self._tree.add_rule("more", make_sequence(more, end, self._finish()))

    def _finish(self) -> Node:
        if self._calls.content_after and self._options.content is None:
            return make_choice(self._free_texts())
        # Some templates write a line break before the stop, which none of the parts of a call shows.
        return make_sequence(make_optional(LiteralNode("\n")), self._stop())

    # -- content

    def _free_texts(self) -> list[FreeTextNode]:
        excluded = self._excluded()
        stops = [stop for stop in self._stops if stop in excluded]
        brackets = self._bare_brackets()
        return [FreeTextNode(stop, excluded, not_first=brackets) for stop in ("", *stops)]

    def _bare_brackets(self) -> str:
        """Return the characters with which content cannot begin, for a call without a marker does."""
        triggers = self._triggers.values()
        if any(trigger in self._openers for trigger in triggers):
            return ""
        return "".join(sorted({trigger[0] for trigger in triggers if trigger[0] in "{[("}))

    def _body(self, firsts: Mapping[str, Node], tail: Node) -> Node:
        if self._options.content is not None:
            return self._json_body(self._tree.calls)
        if self._grammar.content.open.core:
            return self._marked_body(firsts, tail)
        options = self._content_and_calls(firsts, tail) if self._may_call else []
        if self._may_answer:
            triggers = self._triggers.values() if self._may_call else ()
            options += [text for text in self._free_texts() if text.ending not in triggers]
        return make_choice(options)

    def _content_and_calls(self, firsts: Mapping[str, Node], tail: Node) -> list[Node]:
        """Return free text up to each trigger, and the calls that begin with it."""
        calls = self._calls
        is_marked = bool(calls.section.open.core or calls.each.open.core)
        options: list[Node] = []
        for trigger in dict.fromkeys(self._triggers.values()):
            rests = [
                drop_head(_without_leading_space(node), trigger)
                for name, node in firsts.items()
                if self._triggers[name] == trigger
            ]
            follows = make_sequence(make_choice(rests), tail)
            if self._may_answer and trigger in self._stops:
                follows = make_optional(follows)
            text: Node = FreeTextNode(trigger, self._excluded(), not_first=self._bare_brackets())
            if isinstance(calls.call, TaggedCall) and not is_marked:
                # A name is one of a call only where the reply begins.
                text = make_sequence(RepeatNode(LiteralNode("\n"), 0, 2), trigger)
            options.append(make_sequence(text, follows))
        return options

    def _json_body(self, calls: Node) -> Node:
        if not self._may_answer:
            return calls
        assert self._options.content is not None
        value, definitions = read_value_type(self._options.content, "content")
        self._tree.definitions.update(definitions)
        region = self._grammar.content
        content = make_sequence(region.open.text.lstrip(), JsonNode(value), region.close.text)
        answer = make_sequence(content, self._stop())
        return make_choice([answer, calls]) if self._may_call else answer

    def _marked_body(self, firsts: Mapping[str, Node], tail: Node) -> Node:
        region, excluded = self._grammar.content, self._excluded()
        calls = make_sequence(make_choice(firsts.values()), tail)
        opener = region.open.text
        if self._prompted.prefill_text.rstrip().endswith(region.open.core):
            opener = ""
        # What is between content and calls, of which the first marker ends the content.
        join = self._calls.lead.text + self._start_text
        core = region.close.core or join.strip()
        ending = region.close.leading_space + core
        without = (*([core] if core else []), *(text for text in excluded if text not in ending))
        content = make_sequence(opener, FreeTextNode(ending, without))
        options: list[Node] = [calls]
        if not self._grammar.opening:
            options.append(make_sequence(opener, calls))  # it is the header of any reply
        if core:
            rest = region.close.trailing_space + join if region.close.core else join
            options.append(make_sequence(content, rest.rpartition(core)[2], calls))
        else:
            following = self._content_and_calls(firsts, tail)
            options += [make_sequence(opener, one) for one in following]
        options = options if self._may_call else []
        if self._may_answer:
            options += [self._marked_answer(opener, content, core), self._stop()]
        return make_choice(options)

    def _marked_answer(self, opener: str, content: Node, core: str) -> Node:
        """Return content that is all of a reply; `core` begins what could follow it."""
        region, excluded = self._grammar.content, self._excluded()
        if region.close.core:
            return make_sequence(content, region.close.trailing_space, self._stop())
        stops = ("", *(stop for stop in self._stops if stop in excluded))
        without = (*excluded, *([core] if core else []))
        return make_sequence(opener, make_choice(FreeTextNode(stop, without) for stop in stops))

    def _stop(self) -> Node:
        return make_optional(make_choice(map(LiteralNode, self._stops))) if self._stops else NOTHING

    # -- reasoning

    def _openings(self) -> list[Node]:
        region, wanted = self._grammar.reasoning, self._options.reasoning
        if region is None or wanted is False or not region.close.core:
            return [NOTHING]
        prefill = self._prompted.prefill_text.rstrip()
        if prefill.endswith(region.close.core):
            return [NOTHING]
        closed = self._reasoning_text(region)
        if self._prompted.in_reasoning or (region.open.core and prefill.endswith(region.open.core)):
            return [closed]
        openings: list[Node] = []
        if region.open.core:
            # Two texts rather than an optional blank: engines split a text into the longest pieces.
            spellings = (region.open.leading_space + region.open.core, region.open.core)
            openers = make_choice(map(LiteralNode, dict.fromkeys(spellings)))
            openings.append(make_sequence(openers, closed))
        return openings if wanted else [*openings, *self._without_reasoning(region)]

    def _reasoning_text(self, region: Region) -> Node:
        """Return reasoning that is open, up to what follows it."""
        core, space = region.close.core, region.close.trailing_space
        excluded = [*self._stops, *(text for text in self._openers if is_tag_like(text))]
        without = tuple(text for text in dict.fromkeys((core, *excluded)) if text not in core[:-1])
        needs_space = self._grammar.content.open.core or self._options.content is not None
        after = make_optional(LiteralNode(space)) if needs_space and space else NOTHING
        return make_sequence(FreeTextNode(core, without), after, self._start_text)

    def _without_reasoning(self, region: Region) -> list[Node]:
        """Return what is written instead of reasoning, and nothing."""
        empty = self._grammar.empty.removeprefix(self._prompted.prefill_text).strip()
        if empty and not empty.startswith(region.open.core or "\0"):
            return [LiteralNode(empty), NOTHING]
        return [NOTHING]


def _without_leading_space(node: Node) -> Node:
    head = literal_head(node)
    return drop_head(node, head[: len(head) - len(head.lstrip())])
