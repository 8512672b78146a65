"""The replies of one template, in both directions: a message is read from a reply, and written as one.

    codec.read(reply, prompt)      text or ids of a reply -> message in the form that the template accepts
    codec.write(message, prompt)   message -> reply as the model would write it, in parts
    codec.to_input(messages)       messages that `parse` returned -> the form that the template accepts

What is needed for it (the grammar, the input format) is derived from the template when it is first used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.renderer import Renderer
from turnwise.errors import MessageError, warn_caller
from turnwise.messages import REASONING_KEYS, JsonMapping
from turnwise.replies.known_models import find_by_tokens, find_declaration

if TYPE_CHECKING:
    from turnwise.analysis.facts import Facts
    from turnwise.replies.events import Message
    from turnwise.replies.grammar import Grammar
    from turnwise.replies.input_format import InputFormat
    from turnwise.replies.parser.parser import Parser

SPAN_FIELDS = {
    "marker": None,
    "space": None,
    "reasoning": REASONING_KEYS[0],
    "name": "tool_calls",
    "arguments": "tool_calls",
}
"""The field of a message that a span of a reply belongs to; the content, if it is not listed here."""

CALLS_HINT = 'declare how they are written: declared={"calls": {...}}'
MAX_SHARED = 64  # codecs that were unpickled, and tokenizers, that are kept
NUMBER = re.compile(r"\d")
FieldTexts = list[tuple[str, str | None]]  # texts of a reply, each with its field


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
        declaration: JsonMapping | None = None,
    ) -> None:
        self.renderer = renderer
        self.stops = stops
        self.declaration = declaration

    @cached_property
    def facts(self) -> Facts:
        """What is known about the template by probing it."""
        from turnwise.analysis.facts import Facts

        declared = self.declaration or find_declaration(self.renderer.text, self.renderer.name)
        return Facts(self.renderer, self.stops, (declared or {}).get("stops", ()))

    @cached_property
    def grammar(self) -> Grammar:
        """How replies to the template look: derived from it, completed by the declaration."""
        from turnwise.replies.declared import complete_grammar
        from turnwise.replies.derive import derive

        derived, renderer = derive(self.facts), self.renderer
        return complete_grammar(derived, renderer.text, renderer.name, self.declaration)

    @cached_property
    def input_format(self) -> InputFormat:
        """The form in which the template accepts assistant messages."""
        from turnwise.replies.input_format import detect_input_format

        return detect_input_format(self.facts)

    def parser(
        self,
        prompt: Any,
        tools: Any,
        tokenizer: Any,
        declared: JsonMapping | None = None,
        **more: Any,
    ) -> Parser:
        """Return a parser for one reply; `declared` adds to the grammar, `more` is for `Parser`."""
        from turnwise.replies.parser import Parser

        grammar = self._grammar_for(tokenizer, declared)
        return Parser(grammar, prompt, tools, tokenizer=tokenizer, **more)

    def warn_without_calls(self, tools: Any, tokenizer: Any, declared: JsonMapping | None) -> None:
        """Warn a caller whose tools cannot be called: nothing shows how calls are written."""
        if not tools or self._grammar_for(tokenizer, None).calls is not None:
            return
        given = declared if isinstance(declared, Mapping) else {}
        if "calls" not in (*given, *given.get("without", ())) and "more" not in given:
            name = self.renderer.name
            warn_caller(f"{name}: no calls are read, as the template shows none; {CALLS_HINT}")

    def _grammar_for(self, tokenizer: Any, declared: JsonMapping | None) -> Grammar:
        """Return the grammar with what a tokenizer shows and with a caller's declaration."""
        grammar = self.grammar if tokenizer is None else self._complete_by_tokens(tokenizer)
        if declared is None:
            return grammar
        from turnwise.replies.declared import merge_declaration

        return merge_declaration(grammar, declared, "declared")

    def _complete_by_tokens(self, tokenizer: Any) -> Grammar:
        """Return the grammar with the stops that a tokenizer names, and with its special tokens that no marker has.

        A template may be silent about the calls that its model knows: if nothing is declared for it, the special tokens
        show which of the known models it is for.
        """
        known = self._grammars.get(id(tokenizer))
        if known is not None:
            return known[1]
        from turnwise.replies.declared import fill_gaps
        from turnwise.replies.parser.markers import collect_texts

        special = {text for text, token in tokenizer.added.items() if token.special}
        grammar, name = self.grammar, self.renderer.name
        if not (self.declaration or find_declaration(self.renderer.text, name)):
            grammar = fill_gaps(grammar, find_by_tokens(special) or {}, name, ("calls", "more"))
        stops = dict.fromkeys((*grammar.stops, *self.facts.stops_for(tokenizer.named)))
        grammar = replace(grammar, stops=tuple(stops))
        written = "\0".join(collect_texts(grammar))
        # Tokens with a number are reserved, and there may be thousands of them.
        unnamed = [text for text in special if text not in written and not NUMBER.search(text)]
        grammar = replace(grammar, specials=tuple(sorted(unnamed)))
        if len(self._grammars) >= MAX_SHARED:
            self._grammars.clear()
        self._grammars[id(tokenizer)] = tokenizer, grammar
        return grammar

    @cached_property
    def _grammars(self) -> dict[int, tuple[Any, Grammar]]:
        """The grammar by the id of a tokenizer; parsers of one grammar share its compiled form."""
        return {}

    def read(
        self,
        reply: str | Sequence[int],
        prompt: str | None,
        tools: Any,
        tokenizer: Any,
        messages: Iterable[Any] = (),
    ) -> JsonMapping | None:
        """Parse a reply to a message in the input format; None if the grammar has no content.

        Its calls get ids that are not those of calls in `messages`, the conversation so far.
        """
        if "content" not in self.grammar.sources:
            return None
        from turnwise.replies.call_ids import CallIds, find_call_ids
        from turnwise.replies.parser.prefill import prefill_of

        before_reply = (prompt or "").removesuffix(prefill_of(self.grammar, prompt))
        call_ids = CallIds(before_reply, find_call_ids(messages))
        parsed = self.parser(prompt, tools, tokenizer, call_ids=call_ids).read(reply)
        return self.input_format.to_message(parsed)

    def to_input(self, messages: Any) -> Any:
        """Return the messages with those that `parse` returned in the form that the template accepts."""
        from turnwise.replies.events import Message

        if not isinstance(messages, (list, tuple)) or Message not in map(type, messages):
            return messages
        to_message = self.input_format.to_message
        return [to_message(one) if type(one) is Message else one for one in messages]

    def write(self, message: JsonMapping, prompt: Rendering, tokenizer: Any = None) -> FieldTexts:
        """Write a message as the model would after this prompt; a tokenizer may name its stop.

        Returns:
            The reply in parts: a text and the field of the message that it belongs to, None for a marker.

        Raises:
            MessageError: the reply would not be parsed back to the message.
        """
        if "content" not in self.grammar.sources:
            raise MessageError("the template writes no reply that could be learned from")
        from turnwise.replies.events import messages_equal
        from turnwise.replies.write import write

        text = write(self._grammar_for(tokenizer, None), message, prompt)
        parsed = self.parser(prompt, None, tokenizer).read(text)
        if not messages_equal(parsed, message):
            raise MessageError(
                "a reply written by the derived grammar would not be read as this message"
            )
        return _split_by_field(text, parsed)

    def split(self, reply: str, prompt: str, tools: Any, tokenizer: Any) -> FieldTexts:
        """Return a reply in parts: a text and the field of the message that it belongs to, None for a marker."""
        if "content" not in self.grammar.sources:
            return [(reply, None)]
        fields = {REASONING_KEYS[0]: self.input_format.reasoning}
        parts = _split_by_field(reply, self.parser(prompt, tools, tokenizer).read(reply))
        return [(text, fields.get(str(name), name)) for text, name in parts]

    def __reduce__(self) -> tuple[Any, ...]:
        return _share_codec, (self.renderer, tuple(self.stops), self.declaration)


def _split_by_field(text: str, message: Message) -> FieldTexts:
    return [
        (text[span.start : span.end], SPAN_FIELDS.get(span.kind, "content"))
        for span in message.spans
    ]


_shared: dict[tuple[Any, ...], ReplyCodec] = {}


def _share_codec(
    renderer: Renderer, stops: tuple[str, ...], declaration: JsonMapping | None
) -> ReplyCodec:
    """Unpickle a codec: thousands of sessions of one template derive its grammar once."""
    key = renderer, renderer.name, stops, repr(declaration)
    codec = _shared.get(key)
    if codec is None:
        if len(_shared) >= MAX_SHARED:
            _shared.clear()
        codec = _shared.setdefault(key, ReplyCodec(renderer, stops, declaration))
    return codec
