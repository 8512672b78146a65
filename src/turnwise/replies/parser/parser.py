"""One streaming parser for all grammars.

    parser = Parser(grammar, prompt=prompt, tools=tools)
    for chunk in reply:
        events = parser.feed(chunk)
    message = parser.close()

It starts with the end of the prompt, from where the assistant's turn begins: a reasoning block that
the prompt opened is open, one that it also closed is closed, and a text that was begun there is
part of the message (`prefill`). After that every chunk is parsed once. Held back is what may still
become a marker in the current state, and the whitespace that would belong to it. No event is ever
retracted, so cutting a reply differently changes nothing but the sizes of the events.

Nothing raises on what a model wrote. A call whose name cannot be read is content; a call whose
arguments cannot be read keeps them as they were written; both are listed in `attempts`. So is a
call whose arguments are JSON but no object: it is `malformed`. Only `null` is tolerated, as no
arguments.

What the caller gives is checked: a reply is text or ids from its first chunk to its last, and
nothing follows that.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from io import StringIO
from typing import Any, get_args, get_type_hints

from turnwise.errors import MessageError, TokenizerError, TurnwiseError, did_you_mean, short_repr
from turnwise.messages import prepared_tools
from turnwise.replies.call_ids import CallIds, IdMaker, to_call_ids
from turnwise.replies.events import (
    CUT,
    MARKER_STATUSES,
    Attempt,
    Event,
    FinishReason,
    Message,
    Span,
)
from turnwise.replies.grammar_parts import GrammarParts
from turnwise.replies.parser.buffer import ParseBuffer
from turnwise.replies.parser.compiled_grammar import ALL_TOLERANCES, CompiledGrammar
from turnwise.replies.parser.detokenizer import IncrementalDetokenizer
from turnwise.replies.parser.markers import collect_texts
from turnwise.replies.parser.message_builder import (
    CallsInReasoning,
    CutCalls,
    MessageBuilder,
    ReasoningState,
    ReplyPolicy,
    Strip,
    UndeclaredTools,
)
from turnwise.replies.parser.prefill import prefill_of, prompt_text
from turnwise.replies.parser.reply import ReplyParser
from turnwise.replies.parser.state import ParserState
from turnwise.replies.parser.tool_schema import read_tool_types
from turnwise.schema import check_name
from turnwise.token_ids import to_token_ids

__all__ = ["ALL_TOLERANCES", "Parser"]

_ONE_KIND_HINT = "a parser reads one reply, of text or of ids: use a new parser"
_CLOSED_HINT = "another reply has another parser: template.parser()"
_RENDER_HINT = "render it first: template.render(messages, add_generation_prompt=True)"
_CACHE_SIZE = 64  # compiled grammars
_OPEN_STATUSES = ("unterminated", CUT)  # with which a reply breaks off
POLICIES = {name: get_args(choices) for name, choices in get_type_hints(ReplyPolicy).items()}


class Parser:
    """Parses one reply. The first chunk decides what it is made of: text, or token ids if there is a tokenizer.

    Args:
        grammar: The grammar of the reply: `template.grammar`.
        prompt: What was sent: a rendering, its text, an encoded conversation, or token ids.
        tools: The tools that were offered; their schemas decide the types of arguments.
        tokenizer: The tokenizer of a reply of token ids.
        tolerances: The names of tolerances that are on (`TOLERANCES`); all by default.
        call_ids: Makes the ids of calls that the model wrote without one: the text before each id, a function of the
            name of the tool and the number of the call, or a `CallIds`, which is kept for a whole conversation.
        undeclared_tools: What becomes of a call of a tool that is not among `tools`: "keep" it, with the status
            `unknown`, or "refuse" it: its text is content, with the status `undeclared`.
        reasoning: Whether reasoning is open where the reply begins: "auto" reads that from the prompt; "assume" is for
            a prompt that opened it out of sight. A prompt that shows that it is closed counts more.
        calls_in_reasoning: What becomes of a call before the end of the reasoning: "read" it unless it is only
            mentioned, within a sentence or before prose; read "all", or leave all there as "text". What follows such a
            call is reasoning up to its closer.
        cut_calls: What becomes of a call within which the reply ends: "keep" what was written of it, or "drop" it, so
            that a call is only emitted when it is whole; "drop_broken" also drops those that are `malformed`. The
            attempt has its status in all cases.
        strip: Which white space of the content is removed: "never" any, that between content and "calls", or "all" at
            the ends of the content and of the reasoning.

    Raises:
        TurnwiseError: if an argument is of another kind.

    Example:
        >>> import turnwise
        >>> parser = Parser(turnwise.load("qwen3").grammar)
        >>> [event.text for event in parser.feed("Hello")]
        ['Hello']
        >>> parser.close()["content"]
        'Hello'
    """

    def __init__(
        self,
        grammar: GrammarParts,
        prompt: Any = None,
        tools: Any = None,
        *,
        tokenizer: Any = None,
        tolerances: Iterable[str] = ALL_TOLERANCES,
        call_ids: str | IdMaker | CallIds | None = None,
        undeclared_tools: UndeclaredTools = "keep",
        reasoning: ReasoningState = "auto",
        calls_in_reasoning: CallsInReasoning = "read",
        cut_calls: CutCalls = "keep",
        strip: Strip = "never",
    ) -> None:
        _check_arguments(grammar, prompt)
        choices = (undeclared_tools, reasoning, calls_in_reasoning, cut_calls, strip)
        self._policy = _read_policy(choices, tools, grammar)
        self.grammar = grammar
        self.prefill: list[Event] = []  # events of the part of the message that the prompt holds
        self._tokenizer = tokenizer
        is_usual = tolerances is ALL_TOLERANCES
        self._tolerances = ALL_TOLERANCES if is_usual else _check_tolerances(tolerances)
        self._tools = read_tool_types(prepared_tools(tools).plain)
        text = None if prompt is None else prompt_text(prompt, tokenizer)
        self.prefill_text = prefill_of(grammar, text)
        before_reply = (text or "").removesuffix(self.prefill_text)
        self._has_prompt = prompt is not None
        if reasoning == "assume":
            self._open_reasoning()
        self._call_ids = to_call_ids(call_ids, before_reply)
        self._message: Message | None = None
        self._reads_whole = self._lacks_opener = False
        # Only the first chunk shows whether the reply is text or ids, and the prefill can be asked for before it. So
        # the parser starts as one of text; if the first chunk is ids, it starts again (`_decode`).
        self._start(None)

    def _start(self, tokenizer: Any) -> None:
        """Parse the prefill, and wait for a reply of text, or of the ids of `tokenizer`."""
        grammar = _compile_grammar(self.grammar, self._tolerances, tokenizer)
        self._detokenizer = grammar.detokenizer.fork()
        self._raw = StringIO()  # the prefill and the reply, masked
        self._builder = MessageBuilder(self._detokenizer, self._call_ids, self._policy)
        self._buffer = ParseBuffer(self._builder)
        self._state = ParserState(grammar, self._tools, self._buffer, self._builder, self._policy)
        self._state.reads_whole = self._reads_whole and not self._lacks_opener
        reply_parser = ReplyParser(self._state)
        self._steps = reply_parser.run()
        self._fast_path = next(self._steps)
        prefill = self._detokenizer.mask_specials(self.prefill_text)
        self._reply_start = len(prefill)
        if prefill:
            self._advance(prefill)
            # White space after the last marker of a prompt is the template's, and no part of the reply.
            rest = self._buffer.text[self._buffer.position :]
            if self._builder.at_region_start and not rest.strip():
                self._builder.leading_space.clear()  # it belongs to a marker
                self._buffer.consume_rest("space")
            self._builder.keep_trailing_space()
            if self.grammar.reasoning is None and self.grammar.content.open.core:
                self._builder.hold_prompt_marker()
            self.prefill = self._builder.events.take()
        reply_parser.finish_prefill(is_assumed=not self._has_prompt)
        self._state.lacks_opener = self._lacks_opener
        self._is_fresh = True
        self._reads_text = False  # the last chunk was text, so the next one may be

    def _open_reasoning(self) -> None:
        """Let the prefill open reasoning, unless the prompt shows a region."""
        region = self.grammar.reasoning
        opener = "" if region is None else region.open.core
        if not self._has_prompt:
            self.prefill_text = opener
        elif not opener or opener not in self.prefill_text:
            self.prefill_text = opener + self.prefill_text

    # -- what has been parsed so far

    @property
    def in_reasoning(self) -> bool:
        """Whether reasoning is open."""
        return self._state.in_reasoning

    @property
    def content(self) -> str:
        """The content so far."""
        return self._builder.content.getvalue()

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return self._builder.reasoning.getvalue()

    @property
    def text(self) -> str:
        """The prefill and the reply so far, as text."""
        return self._detokenizer.unmask(self._raw.getvalue())

    # -- input

    def feed(self, chunk: str | int | Sequence[int]) -> list[Event]:
        """Parse the next part of the reply.

        Args:
            chunk: Text, one token id, or several.

        Returns:
            The events that are certain now. None of them is ever retracted.

        Raises:
            TurnwiseError: if the reply was closed.
            TokenizerError: if this is neither text nor ids, or not what the reply began with.
        """
        text = chunk if self._reads_text and isinstance(chunk, str) else self._to_text(chunk)
        if not text:
            return []
        events = None if self._fast_path is None else self._fast_path(text)
        if events is None:
            self._advance(text)
            return self._builder.events.take()
        self._raw.write(text)
        return events

    def _to_text(self, chunk: Any) -> str:
        """Return a chunk as text: it must be what the reply consists of, and the reply must be open."""
        if not isinstance(chunk, str):
            return self._decode(chunk)
        if chunk:
            self._check_open(chunk)
        if chunk and self._detokenizer.tokenizer is not None:
            raise TokenizerError(
                f"this reply began with token ids; it cannot continue with text: {short_repr(chunk)}",
                hint=_ONE_KIND_HINT,
            )
        self._reads_text = bool(chunk)
        return chunk

    def _decode(self, chunk: Any) -> str:
        ids = to_token_ids(chunk, "a reply must be text or token ids", allow_one=True)
        if not ids:
            return ""
        self._check_open(ids)
        if self._tokenizer is None:
            raise TokenizerError(
                "token ids can only be read with a tokenizer", hint="give the parser `tokenizer=`"
            )
        if self._is_fresh:
            self._start(self._tokenizer)
        if self._detokenizer.tokenizer is None:
            raise TokenizerError(
                f"this reply began with text; it cannot continue with token ids: {short_repr(ids)}",
                hint=_ONE_KIND_HINT,
            )
        # Even if they are no whole character yet, the reply consists of ids from now on.
        self._is_fresh = False
        return self._detokenizer.decode(ids)

    def _check_open(self, chunk: Any) -> None:
        if self._message is not None:
            raise TurnwiseError(
                f"this reply was closed; it cannot continue with {short_repr(chunk)}",
                hint=_CLOSED_HINT,
            )

    def _advance(self, text: str) -> None:
        self._is_fresh = False
        self._raw.write(text)
        self._buffer.append(text)
        self._fast_path = next(self._steps, None)

    def read(self, reply: str | Sequence[int]) -> Message:
        """Parse a whole reply: `feed` and `close`, with all events in the message.

        Text before a closer of reasoning that has no opener is reasoning. A stream cannot take back such content.
        """
        self._reads_whole = self._state.reads_whole = True
        events = self.feed(reply)
        message = self.close()
        if self._state.found_unopened:
            self._lacks_opener, self._message = True, None
            self._open_reasoning()
            self._start(self._detokenizer.tokenizer)
            events = self.feed(reply)
            message = self.close()
        message.events = (*events, *message.events)
        return message

    async def stream(
        self, source: AsyncIterable[str | int | Sequence[int]]
    ) -> AsyncIterator[Event]:
        """Yield the events of a reply that comes from an engine in chunks, to the last; `close` has the message then.

        Args:
            source: the chunks, each as `feed` accepts them.

        Raises:
            TurnwiseError: see `feed`.

        Example:
            >>> import asyncio, turnwise
            >>> async def sample():
            ...     yield "Aye, "
            ...     yield "sailor.<|im_end|>"
            >>> async def read(parser):
            ...     return [event.text async for event in parser.stream(sample())]
            >>> asyncio.run(read(turnwise.load("chatml").parser()))
            ['Aye, ', 'sailor.', '<|im_end|>']
        """
        async for chunk in source:
            for event in self.feed(chunk):
                yield event
        for event in self.close().events:
            yield event

    # -- output

    def close(self) -> Message:
        """End the reply.

        Returns:
            The message. What was held back until now is in its `events`.
        """
        if self._message is None:
            self._reads_text = False
            rest = self._detokenizer.flush()
            if rest:
                self._advance(rest)
            self._buffer.ended = True
            self._advance("")
            self._builder.keep_held_space()
            self._buffer.consume_rest("raw")
            self._message = self._build_message(self._builder.events.take())
        return self._message

    def _build_message(self, events: list[Event]) -> Message:
        builder = self._builder
        has_content = bool(self.content) or not builder.calls
        message = Message(role="assistant", content=self.content if has_content else None)
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if builder.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments.getvalue()},
                    **call.fields,
                }
                for call in builder.calls
            ]
        message.stop, message.events = builder.stop, tuple(events)
        message.finish_reason = self._finish_reason()
        self._locate(message)
        return message

    def _finish_reason(self) -> FinishReason:
        """Return why the reply ended, as far as its text shows: a caller may have removed the stop."""
        builder = self._builder
        is_open = bool(builder.attempts) and builder.attempts[-1].status in _OPEN_STATUSES
        if builder.stop is None and (is_open or self.in_reasoning):
            return "length"
        return "tool_calls" if builder.calls else "stop"

    def _locate(self, message: Message) -> None:
        """Add spans and attempts, in characters of the unmasked reply."""
        builder = self._builder
        to_unmasked = self._detokenizer.offset_mapper(self._raw.getvalue())
        reply_start = to_unmasked(self._reply_start)

        def to_reply(offset: int) -> int:
            """Return an offset in the reply; what is in the prefill is at 0."""
            return max(0, to_unmasked(offset) - reply_start)

        spans: list[Span] = []
        offsets = [to_reply(start) for _, start in builder.spans] + [to_reply(builder.position)]
        for number, (kind, _) in enumerate(builder.spans):
            start, end = offsets[number : number + 2]
            if start == end:
                continue
            if spans and spans[-1].kind == kind:
                start = spans.pop().start
            spans.append(Span(kind, start, end))
        message.spans = tuple(spans)

        text = self.text[reply_start:]
        attempts: list[Attempt] = []
        for record in builder.attempts:
            start, end = to_reply(record.start), to_reply(record.end)
            if start == end and record.status in MARKER_STATUSES:
                continue  # it is in the prompt
            raw = text[start:end]
            attempts.append(Attempt(record.status, start, end, raw, record.name, record.call))
        message.attempts = tuple(attempts)


_compiled: dict[tuple[int, int, frozenset[str]], tuple[GrammarParts, Any, CompiledGrammar]] = {}


def _compile_grammar(
    grammar: GrammarParts, tolerances: frozenset[str], tokenizer: Any
) -> CompiledGrammar:
    """Compile a grammar for text, or for the ids of a tokenizer, once.

    Grammars and tokenizers are not hashable, so the cache is keyed by their identity. They are kept with the result, so
    that no other object can get the same `id`.
    """
    key = id(grammar), id(tokenizer), tolerances
    entry = _compiled.get(key)
    if entry is None:
        if len(_compiled) >= _CACHE_SIZE:
            _compiled.clear()
        texts = () if tokenizer is None else collect_texts(grammar)
        detokenizer = IncrementalDetokenizer(tokenizer, texts)
        entry = grammar, tokenizer, CompiledGrammar(grammar, tolerances, detokenizer)
        _compiled[key] = entry
    return entry[2]


def _check_arguments(grammar: Any, prompt: Any) -> None:
    """Refuse a template in place of a grammar, and a conversation in place of a prompt."""
    if not isinstance(grammar, GrammarParts):
        hint = "the parser of a template is template.parser(), its grammar template.grammar"
        raise TurnwiseError(f"a parser needs a grammar, not {short_repr(grammar)}", hint=hint)
    if isinstance(prompt, list | tuple) and isinstance(next(iter(prompt), None), Mapping):
        raise MessageError(
            "a prompt is the text or ids that were sent, not a list of messages",
            path="prompt",
            hint=_RENDER_HINT,
        )


def _read_policy(choices: tuple[Any, ...], tools: Any, grammar: GrammarParts) -> ReplyPolicy:
    """Return the policy of these choices, in the order of its fields."""
    for (name, known), choice in zip(POLICIES.items(), choices, strict=True):
        check_name(choice, known, f"{name} is", "there are", TurnwiseError)
    policy = ReplyPolicy(*choices)
    if policy.undeclared_tools == "refuse" and tools is None:
        raise TurnwiseError(
            'undeclared_tools="refuse" needs the tools that are declared', hint="give `tools=` too"
        )
    if policy.reasoning == "assume" and grammar.reasoning is None:
        raise TurnwiseError(
            'reasoning="assume" needs a template with reasoning, and this one has none',
            hint='leave `reasoning` out, or declare its markers: declared={"reasoning": [...]}',
        )
    return policy


def _check_tolerances(names: Iterable[str]) -> frozenset[str]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TurnwiseError(
            f"tolerances must be a set of names, not {short_repr(names)}",
            hint=did_you_mean("", ALL_TOLERANCES, "there are"),
        )
    tolerances = list(names)
    for name in tolerances:
        known = sorted(ALL_TOLERANCES)
        check_name(name, known, "unknown tolerance", "there are", TurnwiseError)
    return frozenset(tolerances)
