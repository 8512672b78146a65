"""The replies of one template, in both directions: a message is read from a reply, and written as one.

    codec.read(reply, prompt)      text or ids of a reply -> message in the form that the template accepts
    codec.write(message, prompt)   message -> reply as the model would write it, in parts
    codec.to_input(messages)       messages that `parse` returned -> the form that the template accepts

What is needed for it (the grammar, the input format) is derived from the template when it is first used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from turnwise.analysis.facts import Facts
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.renderer import Renderer
from turnwise.errors import MessageError, warn_caller
from turnwise.messages import REASONING_KEYS
from turnwise.replies.call_ids import CallIds, collect_call_ids
from turnwise.replies.declared import complete_grammar, find_declaration, merge_declaration
from turnwise.replies.derive import derive
from turnwise.replies.events import Message, messages_equal
from turnwise.replies.grammar import Grammar
from turnwise.replies.input_format import InputFormat, detect_input_format
from turnwise.replies.parser.parser import Parser, parse
from turnwise.replies.parser.prefill import prompt_before_reply
from turnwise.replies.write import write

SPAN_FIELDS = {
    "marker": None,
    "space": None,
    "reasoning": REASONING_KEYS[0],
    "name": "tool_calls",
    "arguments": "tool_calls",
}
"""The field of a message that a span of a reply belongs to; the content, if it is not listed here."""

CALLS_HINT = 'declare how they are written: declared={"calls": {...}}'
MAX_SHARED = 64  # codecs that were unpickled and are kept


class ReplyCodec:
    """Reads and writes the replies of one template.

    Args:
        renderer: the template.
        stops: the stops that the template's source names.
        declaration: what the template's registry entry declares about its replies, see `declared.py`.
    """

    def __init__(
        self,
        renderer: Renderer,
        stops: Sequence[str] = (),
        declaration: Mapping[str, Any] | None = None,
    ) -> None:
        self.renderer = renderer
        self.stops = stops
        self.declaration = declaration

    @cached_property
    def facts(self) -> Facts:
        """What is known about the template by probing it."""
        declared = self.declaration or find_declaration(self.renderer.text, self.renderer.name)
        return Facts(self.renderer, self.stops, (declared or {}).get("stops", ()))

    @cached_property
    def grammar(self) -> Grammar:
        """How replies to the template look: derived from it, completed by the declaration."""
        derived, renderer = derive(self.facts), self.renderer
        return complete_grammar(derived, renderer.text, renderer.name, self.declaration)

    @cached_property
    def input_format(self) -> InputFormat:
        """The form in which the template accepts assistant messages."""
        return detect_input_format(self.facts)

    def parser(
        self,
        prompt: Any,
        tools: Any,
        tokenizer: Any,
        declared: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Parser:
        """Return a parser for one reply; `declared` adds to the grammar, `more` is for `Parser`."""
        grammar = self._grammar_for(tokenizer, declared)
        return Parser(grammar, prompt, tools, tokenizer=tokenizer, **more)

    def warn_without_calls(self, tools: Any, declared: Mapping[str, Any] | None) -> None:
        """Warn a caller whose tools cannot be called: nothing shows how calls are written."""
        if not tools or self.grammar.calls is not None:
            return
        given = declared if isinstance(declared, Mapping) else {}
        if "calls" not in (*given, *given.get("without", ())) and "more" not in given:
            name = self.renderer.name
            warn_caller(f"{name}: no calls are read, as the template shows none; {CALLS_HINT}")

    def parse(
        self,
        reply: str | Sequence[int],
        prompt: Any = None,
        tools: Any = None,
        tokenizer: Any = None,
        declared: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Message:
        """Parse a whole reply; `more` is for `Parser`."""
        return self.parser(prompt, tools, tokenizer, declared, **more).read(reply)

    def _grammar_for(self, tokenizer: Any, declared: Mapping[str, Any] | None) -> Grammar:
        """Return the grammar with the stops that a tokenizer names and with a caller's declaration."""
        stops = self.facts.stops_for(tokenizer.named) if tokenizer is not None else ()
        new_stops = tuple(stop for stop in stops if stop not in self.grammar.stops)
        grammar = self._grammars.get(new_stops)
        if grammar is None:
            all_stops = (*self.grammar.stops, *new_stops)
            grammar = self._grammars[new_stops] = replace(self.grammar, stops=all_stops)
        return grammar if declared is None else merge_declaration(grammar, declared, "declared")

    @cached_property
    def _grammars(self) -> dict[tuple[str, ...], Grammar]:
        """The grammar by the stops that are added to it; parsers of one grammar share its compiled form."""
        return {(): self.grammar}

    def read(
        self,
        reply: str | Sequence[int],
        prompt: str | None,
        tools: Any,
        tokenizer: Any,
        messages: Iterable[Any] = (),
    ) -> Mapping[str, Any] | None:
        """Parse a reply to a message in the input format; None if the grammar has no content.

        Its calls get ids that are not those of calls in `messages`, the conversation so far.
        """
        if "content" not in self.grammar.sources:
            return None
        used = collect_call_ids(messages)
        call_ids = CallIds(prompt_before_reply(self.grammar, prompt), used)
        parsed = self.parse(reply, prompt, tools, tokenizer, call_ids=call_ids)
        return self.input_format.to_message(parsed)

    def to_input(self, messages: Any) -> Any:
        """Return the messages with those that `parse` returned in the form that the template accepts."""
        if not isinstance(messages, (list, tuple)) or Message not in map(type, messages):
            return messages
        to_message = self.input_format.to_message
        return [to_message(one) if type(one) is Message else one for one in messages]

    def write(
        self, message: Mapping[str, Any], prompt: Rendering, tokenizer: Any = None
    ) -> list[tuple[str, str | None]]:
        """Write a message as the model would after this prompt; a tokenizer may name its stop.

        Returns:
            The reply in parts: a text and the field of the message that it belongs to, None for a marker.

        Raises:
            MessageError: the reply would not be parsed back to the message.
        """
        if "content" not in self.grammar.sources:
            raise MessageError("the template writes no reply that could be learned from")
        grammar = self._grammar_for(tokenizer, None)
        text = write(grammar, message, prompt)
        parsed = parse(grammar, text, prompt)
        if not messages_equal(parsed, message):
            raise MessageError(
                "a reply written by the derived grammar would not be read as this message"
            )
        return _split_by_field(text, parsed)

    def split(
        self, reply: str, prompt: str, tools: Any, tokenizer: Any
    ) -> list[tuple[str, str | None]]:
        """Return a reply in parts: a text and the field of the message that it belongs to, None for a marker."""
        if "content" not in self.grammar.sources:
            return [(reply, None)]
        fields = {REASONING_KEYS[0]: self.input_format.reasoning}
        parts = _split_by_field(reply, self.parse(reply, prompt, tools, tokenizer))
        return [(text, fields.get(str(name), name)) for text, name in parts]

    def __reduce__(self) -> tuple[Any, ...]:
        return _share_codec, (self.renderer, tuple(self.stops), self.declaration)


def _split_by_field(text: str, message: Message) -> list[tuple[str, str | None]]:
    return [
        (text[span.start : span.end], SPAN_FIELDS.get(span.kind, "content"))
        for span in message.spans
    ]


_shared: dict[tuple[Any, ...], ReplyCodec] = {}


def _share_codec(
    renderer: Renderer, stops: tuple[str, ...], declaration: Mapping[str, Any] | None
) -> ReplyCodec:
    """Unpickle a codec: thousands of sessions of one template derive its grammar once."""
    key = renderer, renderer.name, stops, repr(declaration)
    codec = _shared.get(key)
    if codec is None:
        if len(_shared) >= MAX_SHARED:
            _shared.clear()
        codec = _shared.setdefault(key, ReplyCodec(renderer, stops, declaration))
    return codec
