"""Prober: renders probe conversations and returns the part that the template wrote for one message.

Every field of a probe is a *sentinel*, a word that no template writes (`Zcontentq`), so a field is found by its
sentinel wherever it is rendered:

    prober.turn({"content": "Zcontentq"}).text        '<|im_start|>assistant\\nZcontentq<|im_end|>\\n'
    prober.generation_prompt().text                   '<|im_start|>assistant\\n'

Templates are particular about their input: arguments as a mapping or as JSON text, content that is empty or null,
text in parts, a system message first, a message that is rendered only when another follows. Such choices are
`ProbeSettings`. A prober never changes: `with_settings` returns another one, which shares the results.

Special tokens that have no text yet (a template file alone does not name its `eos_token`) are rendered as
*placeholders* that look like control tokens, so the places where they are written are seen all the same. Placeholders
never leave the analysis: `replace_placeholders` puts in the text of the token once a tokenizer names it, else nothing.

A rendering that is far longer than any of a published template is dropped: taking it apart would cost too much.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import unescape
from itertools import product
from typing import Any, NamedTuple

from turnwise.analysis.conversations import (
    NOW,
    STANDARD_VARIABLES,
    MessageDict,
    make_message,
    make_tool,
    option_names,
)
from turnwise.analysis.segment import EMPTY, Segment, common_prefix, leading_space
from turnwise.engine.option_names import SPECIAL_TOKENS
from turnwise.engine.provenance.rendering import Piece, Rendering
from turnwise.engine.renderer import Renderer
from turnwise.engine.runtime.limits import raise_if_call_ended
from turnwise.errors import TemplateLimitError, TurnwiseError
from turnwise.messages import REASONING_KEYS, JsonMapping, JsonObject

# Sentinels
SYSTEM, USER, NEXT_USER, RESULT = "Zsystemq", "Zuserq", "Zagainq", "Zresultq"
CONTENT, REASONING = "Zcontentq", "Zreasonq"
NAMES = ("zfuna", "zfunb")
IDS = ("zid0aaaa1", "zid0bbbb2")  # nine letters and digits, as some templates demand
# A string, a number, a string: only then can the end of a string, the end of a number and a separator be told apart.
ARGUMENTS: tuple[JsonObject, ...] = (
    {"zkeya": "zvala", "zkeyb": 90417, "zkeyc": "zvalc"},
    {"zkeyd": "zvald", "zkeye": 80351, "zkeyf": "zvalf"},
)
DOCUMENTS = [{"title": "Ztitleq", "text": "Ztextq"}]
SENTINELS = (
    *(SYSTEM, USER, NEXT_USER, RESULT, CONTENT, REASONING),
    *NAMES,
    *IDS,
    *DOCUMENTS[0].values(),
)

_TYPES = {str: "string", int: "integer"}
TOOLS = [
    make_tool(name, **{key: {"type": _TYPES[type(value)]} for key, value in arguments.items()})
    for name, arguments in zip(NAMES, ARGUMENTS, strict=True)
]
RESULTS = [
    {"role": "tool", "content": RESULT, "tool_call_id": id, "name": name}
    for id, name in zip(IDS, NAMES, strict=True)
]

# Characters; many times what the longest rendering of 265 published templates has.
MAX_RENDERING_LENGTH, MAX_TURN_LENGTH = 120_000, 4_500
REASONING_FIELDS = (*REASONING_KEYS, "tool_plan", "thought")  # where templates look for reasoning
_REASONING_WORDS = ("think", "thought", "reason")  # in the names of options that turn reasoning on
REASONING_VALUES: tuple[Any, ...] = (True, False, "thinking", "high")
_BUILT_IN = ("strftime_now", "raise_exception")  # names that every rendering has
IN_PARTS = "content"  # the key of reasoning that is a part of the content, beside the text
ABSENT = object()
EMPTY_CONTENTS = ("", None, ABSENT)  # of a message that has only tool calls
_ESCAPED_QUOTE = "&#34;"

_PLACEHOLDER = "<|unnamed:{}|>"
PLACEHOLDER_PATTERN = re.compile(r"<\|unnamed:(\w+)\|>")


def replace_placeholders(text: str, tokens: Mapping[str, str] | None = None) -> str:
    """Return the text with the special tokens that `tokens` names, and without those that nobody names."""
    named = tokens or {}
    return PLACEHOLDER_PATTERN.sub(lambda match: named.get(match[1]) or "", text)


def mentions(renderer: Renderer, word: str) -> bool:
    """Return whether the source of a template contains a word."""
    return any(word in text for text in renderer.texts)


class CallShape(NamedTuple):
    """The form in which a template takes tool calls."""

    content: Any = ""  # of a message that has only calls
    as_text: bool = False  # arguments are JSON text
    bare: bool = False  # name and arguments are keys of the call itself, not of its `function`
    single: bool = False  # the message has one call, under `function_call`


class ProbeSettings(NamedTuple):
    """What a template needs so that it renders a probe."""

    parts: bool = False  # content is a list of parts
    system_first: bool = False
    tools: bool = True
    fill_variables: bool = False  # its other variables are given, as ""
    documents: bool = False
    user_follows: bool = False  # a message is rendered only if a user's follows
    results_follow: bool = False  # a tool call is rendered only if its result follows
    trimmed: bool = False  # white space before a turn does not belong to it

    def trim(self, segment: Segment) -> Segment:
        """Return a segment without the white space that does not belong to it."""
        return segment.slice(leading_space(segment.text)) if self.trimmed else segment


class ProbeCache:
    """The results that all probers of one template share."""

    def __init__(self) -> None:
        self.turns: dict[tuple[ProbeSettings, str], Segment | None] = {}
        self.prefixes: dict[tuple[ProbeSettings, str], str | None] = {}
        self.too_long = False  # a rendering was too long to be looked at

    def is_too_long(self, rendering: Rendering) -> bool:
        """Whether a rendering is too long to be looked at; if so, that is remembered."""
        if len(rendering.text) <= MAX_RENDERING_LENGTH:
            return False
        self.too_long = True
        return True


class Prober:
    """Renders probes for one template, with one choice of settings."""

    def __init__(
        self,
        renderer: Renderer,
        settings: ProbeSettings | None = None,
        cache: ProbeCache | None = None,
    ) -> None:
        self.renderer = renderer
        self.settings = settings or ProbeSettings()
        self.cache = cache or ProbeCache()
        own = renderer.options
        self.placeholders = {
            name: _PLACEHOLDER.format(name)
            for name in renderer.variables
            if name in SPECIAL_TOKENS and not own.get(name)
        }
        # A value marked `|safe` escapes what is added to it, and no model writes that.
        self._unescape = not mentions(renderer, _ESCAPED_QUOTE)

    def with_settings(self, **changes: bool) -> Prober:
        """Return a prober with other settings."""
        return Prober(self.renderer, self.settings._replace(**changes), self.cache)

    def alone(self) -> Prober:
        """Return a prober that shares nothing with others, for a question with a text that anybody may have written.

        There is no end of such questions, so they spend none of what the probes of a template may cost together.
        """
        return Prober(self.renderer.with_allowance(None), self.settings)

    def find_accepted(self) -> Prober | None:
        """Return a prober with settings that the template accepts; None if it refuses every user message.

        Preferably the content of an assistant message is rendered too.

        Raises:
            TemplateLimitError: the template goes over its budgets for a user message.
        """
        first = None
        for user_follows, parts in product((False, True), repeat=2):
            accepted = self.with_settings(user_follows=user_follows, parts=parts)._find_accepted()
            if accepted is None:
                continue
            first = first or accepted
            turn = accepted.turn({"content": accepted.as_content(CONTENT)})
            if turn is not None and CONTENT in turn.text:
                return accepted
        return first

    def _find_accepted(self) -> Prober | None:
        """Return a prober with accepted settings; preferably with tools."""
        names = ("system_first", "tools", "fill_variables")
        for values in product((False, True), (True, False), (False, True)):
            prober = self.with_settings(**dict(zip(names, values, strict=True)))
            if prober._is_accepted():
                return prober
        return None

    def _is_accepted(self) -> bool:
        """Whether the template renders one user message with these settings.

        Raises:
            TemplateLimitError: it costs too much, so nothing else is asked.
        """
        try:
            rendering = self._render([self.user()], {"add_generation_prompt": True})
        except TemplateLimitError:
            raise
        except TurnwiseError:
            return False
        # A template for texts may drop parts, which is no form that it accepts.
        is_dropped = self.settings.parts and USER.lower() not in rendering.text.lower()
        return not is_dropped and not self.cache.is_too_long(rendering)

    def reasoning_options(self, values: Sequence[Any] = (True, False)) -> Iterator[JsonObject]:
        """Values of the options that may turn reasoning on or off."""
        for name in option_names(self.renderer.variables):
            if any(word in name for word in _REASONING_WORDS):
                yield from ({name: value} for value in values)

    # Messages

    def as_content(self, text: str) -> Any:
        """Return a text as the template takes content."""
        return [{"type": "text", "text": text}] if self.settings.parts else text

    def user(self, text: str = USER) -> MessageDict:
        """Return a user message."""
        return make_message("user", self.as_content(text))

    def reply(self, text: str = CONTENT) -> MessageDict:
        """Return an assistant message that has only content."""
        return make_message("assistant", self.as_content(text))

    def call(
        self,
        shape: CallShape,
        *arguments: Any,
        content: str | None = None,
        names: Sequence[str] = NAMES,
        ids: Sequence[str] = IDS,
        **fields: Any,
    ) -> MessageDict:
        """Return the fields of an assistant message with one tool call for each of the arguments."""
        value = shape.content if content is None else self.as_content(content)
        message = fields if value is ABSENT else {"content": value, **fields}
        calls: list[JsonObject] = []
        for name, id, given in zip(names, ids, arguments, strict=False):
            text = json.dumps(given, ensure_ascii=False) if shape.as_text else given
            function = {"name": name, "arguments": text}
            if shape.single:
                return {**message, "function_call": function}
            wrapped = function if shape.bare else {"type": "function", "function": function}
            calls.append({"id": id, **wrapped})
        return {**message, "tool_calls": calls}

    def preamble(self) -> list[MessageDict]:
        """Return the messages that the template wants before a user's."""
        return (
            [make_message("system", self.as_content(SYSTEM))] if self.settings.system_first else []
        )

    def _required_followers(self, message: JsonMapping) -> list[MessageDict]:
        """Return the messages that must follow so that this one is rendered."""
        if self.settings.results_follow and "tool_calls" in message:
            count = len(message["tool_calls"])
            return [{**result, "content": self.as_content(RESULT)} for result in RESULTS[:count]]
        return [self.user(NEXT_USER)] if self.settings.user_follows else []

    # Renderings

    def render(self, messages: Sequence[JsonMapping], /, **arguments: Any) -> Rendering | None:
        """Render a conversation; None if the template refuses it, or writes too much.

        Raises:
            TemplateLimitError: all probes together have cost too much.
        """
        try:
            rendering = self._render(messages, arguments)
        except TurnwiseError as error:
            raise_if_call_ended(error)
            return None
        return None if self.cache.is_too_long(rendering) else rendering

    def refusal(self, messages: Sequence[JsonMapping]) -> str | None:
        """Return the template's error message for a conversation; None if it is rendered."""
        try:
            self._render(messages, {})
        except TurnwiseError as error:
            raise_if_call_ended(error)
            return error.message
        return None

    def _render(self, messages: Sequence[JsonMapping], arguments: JsonMapping) -> Rendering:
        given = {**self._arguments(), **arguments, "now": NOW}
        return self.renderer.render([*self.preamble(), *messages], **given)

    def _arguments(self) -> JsonObject:
        settings = self.settings
        arguments: JsonObject = {}
        if settings.fill_variables:
            known = {*STANDARD_VARIABLES, *_BUILT_IN}
            arguments.update({name: "" for name in self.renderer.variables if name not in known})
        arguments.update(self.placeholders)
        if settings.tools:
            arguments["tools"] = TOOLS
        if settings.documents:
            arguments["documents"] = DOCUMENTS
        return arguments

    def generation_prompt(self, /, **options: Any) -> Segment | None:
        """Return what `add_generation_prompt` adds to a conversation; None if the template refuses it."""
        closed = self.render([self.user()], **options)
        opened = self.render([self.user()], add_generation_prompt=True, **options)
        if opened is None:
            return None
        if closed is None:
            # The template raises an error for a conversation that ends with a user and is no prompt.
            prompt = self.after_user(opened)
        elif closed.text == opened.text:
            # GLM-Edge writes `<|assistant|>` after the last message, asked for or not; Mistral has no prompt.
            prompt = self._unconditional_prompt(opened, **options)
        elif opened.text.startswith(closed.text):
            # Qwen and most others: `if add_generation_prompt`, `<|im_start|>assistant\n`.
            prompt = self._segment_from(opened, len(closed.text))
        else:
            # Phi-3: a conversation ends with `<|assistant|>` or with `<|endoftext|>`. What both have after the user's
            # text is the end of the user's turn.
            prompt = self.after_user(opened)
            if prompt is not None:
                prompt = prompt.slice(common_prefix(prompt, self.after_user(closed) or EMPTY))
        return prompt and self.settings.trim(prompt)

    def _unconditional_prompt(self, opened: Rendering, /, **options: Any) -> Segment:
        """Return the generation prompt of a template that writes it after every last message, asked for or not."""
        message = self.reply()
        finished = self.render(
            [self.user(), message, *self._required_followers(message)], **options
        )
        if finished is None or USER not in finished.text or USER not in opened.text:
            return EMPTY  # the template refuses a reply, or renders no text of users
        tail = self._segment_from(opened)
        if finished.text.startswith(opened.text):
            # The turn of a reply begins with the same text. GLM-Edge: `<|assistant|>` comes once more after the reply,
            # so it is the prompt. Mistral: `[/INST]` does not, so it is the end of the user's turn.
            ends = [end for _, end, origin in tail.origin_spans if origin.message is not None]
            prompt = tail.slice(max(ends, default=0))
            return prompt if prompt.core and finished.text.endswith(prompt.text) else EMPTY
        # YandexGPT: only the end of a conversation is ` Ассистент:[SEP]`, a turn begins with ` Ассистент:`. The user's
        # turn ends where that of the reply begins; without a reply, the prompt is what follows that end.
        whole = self._segment_from(finished)
        user_end = whole.text[: _start_of_message(whole, len(self.preamble()) + 1)].strip()
        start = tail.text.find(user_end)
        if tail.text[: max(start, 0)].strip():
            return EMPTY  # the last user's turn is written in another way than earlier ones
        return tail.slice(start + len(user_end))

    def turn(
        self, message: JsonMapping, /, *following: JsonMapping, **options: Any
    ) -> Segment | None:
        """Return what the template writes for an assistant message after a user's, and for those that follow."""
        probe = json.dumps([message, following, options], sort_keys=True, default=str)
        cache_key = (self.settings._replace(trimmed=False), probe)
        if cache_key not in self.cache.turns:
            self.cache.turns[cache_key] = self._find_turn(message, following, options)
        turn = self.cache.turns[cache_key]
        return turn and self.settings.trim(turn)

    def _find_turn(
        self,
        message: JsonMapping,
        following: Sequence[JsonMapping],
        options: JsonObject,
    ) -> Segment | None:
        required = [] if following else self._required_followers(message)
        messages = [self.user(), {"role": "assistant", **message}, *following, *required]
        rendering = self.render(messages, **options)
        if rendering is None:
            return None
        index = len(self.preamble()) + 1
        prefix = self._text_before(**options)
        if prefix is not None and rendering.text.startswith(prefix):
            turn = self._segment_from(rendering, len(prefix))
        elif USER in rendering.text:
            turn = self._segment_from(rendering)
            turn = turn.slice(_start_of_message(turn, index))
        else:
            return None
        if required:
            turn = turn.slice(0, _start_of_message(turn, index + 1) or None)
        if len(turn) > MAX_TURN_LENGTH:
            self.cache.too_long = True
            return None
        return turn

    def _text_before(self, /, **options: Any) -> str | None:
        """Return the conversation before the assistant message."""
        key = (self.settings, str(options))
        if key not in self.cache.prefixes:
            rendering = self.render([self.user()], **options)
            self.cache.prefixes[key] = rendering.text if rendering is not None else None
        return self.cache.prefixes[key]

    def after_result(self, shape: CallShape, /, **options: Any) -> Segment:
        """Return the end of a prompt whose last message is a tool result, after the text of the result."""
        call = {"role": "assistant", **self.call(shape, ARGUMENTS[0])}
        messages = [self.user(), call, RESULTS[0]]
        prompt = self.render(messages, add_generation_prompt=True, **options)
        if prompt is None or RESULT not in prompt.text:
            return EMPTY
        whole = self._segment_from(prompt, 0)
        return whole.slice(whole.text.index(RESULT) + len(RESULT))

    def after_user(self, rendering: Rendering) -> Segment | None:
        if USER not in rendering.text:
            return None
        return self._segment_from(rendering)

    def _segment_from(self, rendering: Rendering, start: int | None = None) -> Segment:
        """Return a rendering from a character on, by default from the end of the last text of a user.

        Pieces before it are not computed, since tool lists are long.
        """
        if start is None:
            start = rendering.text.rfind(USER) + len(USER)
        pieces: list[Piece] = []
        table = rendering.piece_table
        for index in range(table.index_at(start), len(table.texts)):
            position = table.starts[index]
            message, generation, _ = table.where(index)
            for fragment, leaf in table.split(index):
                rest = fragment[max(start - position, 0) :]
                position += len(fragment)
                if rest:
                    _append(pieces, rest, rendering.origin(leaf, message, generation))
        if self._unescape and _ESCAPED_QUOTE in rendering.text:
            pieces = [Piece(unescape(text), origin) for text, origin in pieces]
        return Segment.from_pieces(pieces)


def _append(pieces: list[Piece], text: str, origin: Any) -> None:
    """Add a piece; one of the same origin as the last is joined to it."""
    if pieces and pieces[-1].origin == origin:
        text = pieces.pop().text + text
    pieces.append(Piece(text, origin))


def _start_of_message(segment: Segment, message: int) -> int:
    """Return where a message begins, 0 if it is not seen."""
    for start, _, origin in segment.origin_spans:
        if origin.message == message:
            return start
    return 0
