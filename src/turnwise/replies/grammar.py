"""Grammar: how a template writes an assistant's reply, and so how a reply is parsed.

A grammar is data (`grammar_parts.py`). It is derived from a template (`derive/`), or declared in a registry entry
(`declared.py`), or both; printed, it is a table in which every marker has its origin:

    opening          '<|im_start|>assistant\\n'
    reasoning open   '<think>\\n'                template 41:53
    reasoning close  '\\n</think>\\n\\n'           template 41:53
    stop             '<|im_end|>'
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from turnwise.messages import JsonMapping, JsonObject, Tools
from turnwise.notebook import show_html
from turnwise.replies.grammar_parts import (
    KEY,
    Calls,
    GrammarParts,
    JsonCall,
    Marker,
    Pairs,
    RawCall,
    Region,
    TaggedCall,
)

if TYPE_CHECKING:
    from turnwise.replies.export.gbnf import GbnfGrammar
    from turnwise.replies.export.response_template import ProfileName


class TableRow(NamedTuple):
    """One line of a printed grammar."""

    part: str
    text: str
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Grammar(GrammarParts):
    """How replies to one template look.

    Attributes:
        opening: the generation prompt, the text with which a prompt ends.
        reopening: the generation prompt after a tool result, where the turn continues without its header; if no turn
            has a header, what ends a user's turn.
        reasoning: the markers of the reasoning; None if the template shows none.
        content: the markers of the content, mostly empty.
        calls: how tool calls are written; None if the template shows none.
        more: other ways in which calls may be written.
        stops: the texts that end a reply.
        empty: the text written instead of the reasoning if there is none, such as `<think></think>`.
        starts: the texts that may begin another message of the same reply, such as `<|start|>assistant`.
        specials: the special tokens of a tokenizer that no marker has: beside a call they are no content.
        unreached: notes on what no rendering of the template shows.
        sources: for each part, how it became known: "derived", "declared", "searched" or "named".

    Example:
        >>> import turnwise
        >>> grammar = turnwise.load("qwen3").grammar
        >>> grammar.reasoning.open.text, grammar.stops
        ('<think>\\n', ('<|im_end|>', '<|endoftext|>'))
    """

    def __str__(self) -> str:
        """Return a table of all parts, their texts and origins."""
        rows = list(self.rows())
        part_width = max(len(row.part) for row in rows)
        text_width = max(len(row.text) for row in rows)
        lines = []
        for part, text, origin in rows:
            lines.append(f"{part:{part_width}}  {text:{text_width}}  {origin}".rstrip())
        lines += [f"not reached: {note}" for note in self.unreached]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return show_html("grammar", self)

    def rows(self) -> Iterator[TableRow]:
        """Yield the part, text and origin of everything that the grammar has."""
        yield TableRow("opening", repr(self.opening))
        if self.reopening:
            last = "result" if self.opening else "user"
            yield TableRow(f"after a {last}", repr(self.reopening))
        if self.reasoning is not None:
            yield from _region_rows("reasoning", self.reasoning)
        yield from _region_rows("content", self.content)
        for calls in (self.calls, *self.more):
            if calls is not None:
                yield from _calls_rows(calls)
        yield from (TableRow("start", repr(text)) for text in self.starts)
        yield from (TableRow("stop", repr(text)) for text in self.stops)

    def to_response_template(
        self, *, profile: ProfileName = "transformers", partly: bool = False
    ) -> JsonObject:
        """Return the grammar as a `response_template` of transformers.

        Args:
            profile: "transformers", or "serving" for vLLM and SGLang: the field of the reasoning is called `thinking`,
                and delimiters are plain texts where they can be.
            partly: where calls may be written in several ways, export the first way only instead of failing.

        Returns:
            A dict that can be saved as JSON and given to transformers' response parser.

        Raises:
            TurnwiseError: the format cannot express this grammar; the message has the reason.

        Example:
            >>> import turnwise
            >>> turnwise.load("qwen3").grammar.to_response_template()["start_anchor"]
            '<|im_start|>assistant\\n'
        """
        from turnwise.replies.export.response_template import to_response_template

        return to_response_template(self, partly, profile)

    def to_structural_tag(
        self,
        tools: Tools,
        choice: str = "auto",
        *,
        reasoning: bool | None = None,
        parallel: bool = True,
        content: JsonMapping | None = None,
        prompt: Any = None,
    ) -> JsonObject:
        """Return which replies may be written, as a structural tag for xgrammar, vLLM and SGLang.

        Calls have the syntax of the template, and arguments that fit the schemas of the tools.

        Args:
            tools: the tools that may be called, in OpenAI's shape.
            choice: "auto", "required", "none", or the name of the only tool that may be called. With "none", tools stay
                in the prompt and no call can begin.
            reasoning: None: as the template and the prompt have it; True: required; False: none, for engines that
                begin a constraint after the reasoning.
            parallel: accept several calls in one reply.
            content: a JSON schema that the content must fit; None: content is free text.
            prompt: the prompt that is sent: what it contains of the reply is not written again. By default the
                grammar's opening is assumed.

        Returns:
            A dict that can be saved as JSON.

        Raises:
            MessageError: the tools, the choice or a schema are not valid.
            TurnwiseError: the template shows no calls, or writes them in a way that cannot be expressed.

        Example:
            >>> import turnwise
            >>> tide = {"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}
            >>> turnwise.load("qwen3").grammar.to_structural_tag([tide])["type"]
            'structural_tag'
        """
        from turnwise.replies.export.structural_tag import to_structural_tag

        return to_structural_tag(
            self._build_tree(tools, choice, reasoning, parallel, content, prompt)
        )

    def to_lark(
        self,
        tools: Tools,
        choice: str = "auto",
        *,
        reasoning: bool | None = None,
        parallel: bool = True,
        content: JsonMapping | None = None,
        prompt: Any = None,
        special_tokens: Mapping[str, int] | None = None,
    ) -> str:
        """Return which replies may be written, as a Lark grammar for llguidance.

        Args:
            tools: see `to_structural_tag`, as for the arguments that are not listed here.
            special_tokens: the ids of the tokenizer's special tokens, by their texts: llguidance reads a special
                token as a token, never as text. Without them, markers are text.

        Example:
            >>> import turnwise
            >>> tide = {"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}
            >>> "%json" in turnwise.load("qwen3").grammar.to_lark([tide], "required")
            True
        """
        from turnwise.replies.export.lark import to_lark

        tree = self._build_tree(tools, choice, reasoning, parallel, content, prompt)
        return to_lark(tree, special_tokens)

    def to_gbnf(
        self,
        tools: Tools,
        choice: str = "auto",
        *,
        reasoning: bool | None = None,
        parallel: bool = True,
        content: JsonMapping | None = None,
        prompt: Any = None,
    ) -> GbnfGrammar:
        """Return which replies may be written, as GBNF for llama.cpp.

        With the choice "auto", and content that is free text, the grammar is that of the calls alone, which llama.cpp
        starts at one of the triggers (`grammar_lazy`). Otherwise it is that of the whole reply, and has no triggers.

        Args:
            tools: see `to_structural_tag`, as for all other arguments.

        Returns:
            A named tuple: grammar, triggers, preserved_tokens.

        Example:
            >>> import turnwise
            >>> tide = {"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}
            >>> turnwise.load("qwen3").grammar.to_gbnf([tide]).triggers
            ('<tool_call>',)
        """
        from turnwise.replies.export.gbnf import to_gbnf

        is_lazy = choice == "auto" and content is None
        tree = self._build_tree(tools, choice, reasoning, parallel, content, prompt)
        return to_gbnf(tree, is_lazy)

    def _build_tree(self, tools: Tools, *options: Any) -> Any:
        # The exports are the largest part of this package; whoever renders or parses does not wait for them.
        from turnwise.replies.export.reply_tree import ReplyOptions, build_reply_tree

        return build_reply_tree(self, tools, ReplyOptions(*options))


def _marker_rows(part: str, marker: Marker) -> Iterator[TableRow]:
    """Yield the row of a marker that is not empty, with a readable word in the place of the key."""
    if marker:
        yield TableRow(part, repr(marker.text.replace(KEY, "KEY")), marker.origin)


def _region_rows(part: str, region: Region) -> Iterator[TableRow]:
    yield from _marker_rows(f"{part} open", region.open)
    yield from _marker_rows(f"{part} close", region.close)


def _calls_rows(calls: Calls) -> Iterator[TableRow]:
    yield from _region_rows("calls", calls.section)
    yield from _region_rows("call", calls.each)
    yield from _marker_rows("between calls", calls.between)
    call = calls.call
    if isinstance(call, RawCall):
        yield TableRow("call", f"{call.name}({call.argument}=TEXT)")
        return
    if isinstance(call, JsonCall):
        yield TableRow("call", _describe_json_call(call))
    for part in call.parts:
        if isinstance(part, str):
            yield TableRow("", part.upper())
        else:
            yield TableRow("", repr(part.text), part.origin)
    if isinstance(call, TaggedCall) and call.pairs is not None:
        yield from _pairs_rows(call.pairs)


def _describe_json_call(call: JsonCall) -> str:
    name = "NAME: " if call.name is None else f"{call.name}, "
    listed = "list of " if call.listed else ""
    inside = f" in {call.inside}" if call.inside else ""
    return f"JSON {listed}{{{name}{call.arguments}}}{inside}"


def _pairs_rows(pairs: Pairs) -> Iterator[TableRow]:
    yield from _marker_rows("key open", pairs.key)
    yield from _region_rows(f"text value ({pairs.strings})", pairs.string)
    yield from _region_rows(f"other value ({pairs.values})", pairs.other)
    for kind, region in pairs.typed:
        yield from _region_rows(f"{kind} value", region)
    yield from _region_rows("text with markup", pairs.wrap)
    yield from _marker_rows("between pairs", pairs.between)
