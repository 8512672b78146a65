"""Build the encode requests of one template.

A request holds everything that decides how a conversation is encoded. Some of it is learned from the template once and
shared by all requests: what is wrong with it and a tokenizer together, where turns begin and end under given options,
whether it needs special tokens that have no value. So the first request is slow: the facts of the template are found
with 15 to 30 probe renderings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from turnwise.analysis.facts import Facts
from turnwise.analysis.unnamed_tokens import (
    describe_unnamed_tokens,
    find_unnamed_tokens,
    needs_tokens,
)
from turnwise.engine.compiler.history_proof import analyse_prompts
from turnwise.engine.option_names import RENDER_ARGUMENTS, REQUEST_FACTS, SPECIAL_TOKENS
from turnwise.engine.renderer import SCALARS
from turnwise.errors import MessageError, TokenizerError, note_warning, short_repr, warn_caller
from turnwise.messages import (
    InputReader,
    JsonMapping,
    JsonObject,
    PreparedTools,
    ReadMessages,
    prepared_tools,
)
from turnwise.sized_cache import SizedTable, make_digest
from turnwise.tokens.boundaries import TurnCache
from turnwise.tokens.encode import PROBE_TIME, EncodeRequest
from turnwise.tokens.loss import TrainOn, check_policy
from turnwise.tokens.markers import find_problems
from turnwise.tokens.text_encoder import encoder_for
from turnwise.tokens.tokenizers import tokenizer as load_tokenizer
from turnwise.tokens.tokenizers.protocol import Tokenizer
from turnwise.tokens.truncation import check_limit

TURN_CACHE_BYTES = 2_000
MAX_TURN_CACHE_BYTES = 160_000  # of all: one for each set of options
PROBED_ARGUMENTS = ("tools", "documents")
NOT_OPTIONS = {*RENDER_ARGUMENTS} - {*REQUEST_FACTS}  # a template may read what a request asks
SHARED_TYPES = {*SCALARS, datetime, PreparedTools}  # of arguments that nobody changes later


class _TokenizerFit(NamedTuple):
    """What is known about the template under one tokenizer."""

    problems: tuple[str, ...]
    special_tokens: JsonObject  # that the template reads and has no value for
    stops: frozenset[str]
    final_stops: tuple[str, str]  # of a reply that ends a conversation, and of a call


class RequestBuilder:
    """Builds requests, and remembers what it learned about the template.

    Args:
        facts: what is known about the template; its renderer renders the requests.
        is_quiet: whether to warn of nothing. Filters of warnings belong to all threads of a process, so a
            caller who wants none does not set them.
    """

    def __init__(self, facts: Facts, is_quiet: bool = False) -> None:
        self.facts = facts
        self.is_quiet = is_quiet
        self.renderer = facts.renderer
        self._unnamed = find_unnamed_tokens(self.renderer, {})
        self._fits: WeakKeyDictionary[Tokenizer, _TokenizerFit] = WeakKeyDictionary()
        self._turn_caches: SizedTable[TurnCache] = SizedTable(MAX_TURN_CACHE_BYTES)
        self._needs_tokens: SizedTable[bool] = SizedTable(MAX_TURN_CACHE_BYTES)
        self._last: tuple[Any, EncodeRequest] | None = None  # and for which arguments it was

    def build(
        self,
        messages: Any,
        tokenizer: Any,
        train_on: TrainOn,
        arguments: JsonMapping,
        read: ReadMessages | None = None,
        **more: Any,
    ) -> EncodeRequest:
        """Build a request. Most are like the last one, but for the conversation and the time.

        Args:
            messages: the conversation.
            tokenizer: the tokenizer.
            train_on: the loss policy.
            arguments: those of `render`.
            read: the messages as a renderer takes them, if they were read already.
            more: those of `encode`: `max_length`, `overflow`, `trust`, `compatible`, `add_stop`.

        Raises:
            MessageError: an argument is malformed.
            TokenizerError: with `strict`, the template and the tokenizer do not fit together.
        """
        known = load_tokenizer(tokenizer)
        values = (train_on, *arguments.values(), *more.values())
        kinds = [*map(type, values)]  # first, so that values of other types are not compared
        key = kinds, known, (*arguments, *more), values
        last = self._last  # read once: other threads may replace it
        if last is None or last[0] != key:
            request, is_silent = self._make_request(known, train_on, arguments, **more)
            if is_silent and SHARED_TYPES.issuperset(kinds):
                self._last = key, request
        else:
            request = last[1]
        if type(messages) is not list or not {dict}.issuperset(map(type, messages)):
            messages = InputReader().read_messages(messages)
        # One time for all prompts.
        given = {**request.arguments, "now": arguments.get("now") or datetime.now()}
        both = None if read is None else (messages, read)
        return request._replace(messages=messages, arguments=given, read=both)

    def _make_request(
        self,
        tokenizer: Tokenizer,
        train_on: TrainOn,
        arguments: JsonMapping,
        max_length: int | None = None,
        overflow: str = "drop_rounds",
        trust: Mapping[str, str] | None = None,
        compatible: bool = False,
        add_stop: bool = True,
    ) -> tuple[EncodeRequest, bool]:
        """Return a request without messages and time, and whether there was nothing to warn of."""
        check_limit(max_length, overflow)
        if not isinstance(add_stop, bool):
            raise MessageError(f"add_stop is True or False, not {add_stop!r}", path="add_stop")
        given = dict(arguments)
        if given.get("tools") is not None:
            given["tools"] = prepared_tools(given["tools"])  # once for all prompts
        if not compatible:
            for name in SPECIAL_TOKENS:
                _check_special_token(given.get(name), name, tokenizer)
        fit = self._check_tokenizer(tokenizer, given.pop("strict", False))
        normalise = given.pop("normalise", True)
        given.pop("late_system", None)
        given = fit.special_tokens | given
        empty = self._empty_tokens(given) if normalise else {}
        given |= empty
        request = EncodeRequest(
            messages=[],
            tokenizer=tokenizer,
            renderer=self.renderer,
            arguments=given,
            turn_cache=self._turn_cache_for(given),
            stops=fit.stops,
            final_stops=fit.final_stops if add_stop else None,
            train_on=check_policy(train_on, self.renderer.text),
            trust=trust,
            compatible=compatible,
            max_length=max_length,
            overflow=overflow,
            appends=self.facts.appends,
        )
        return request, not (fit.problems or empty)

    def _check_tokenizer(self, tokenizer: Tokenizer, strict: bool) -> _TokenizerFit:
        """Warn once about what is wrong with the template and this tokenizer together, or raise an error.

        The first call asks for the facts of the template, which renders the probe conversations.
        """
        fit = self._fits.get(tokenizer)
        if fit is None:
            fit = self._fits[tokenizer] = _TokenizerFit(
                tuple(find_problems(self.facts, tokenizer)),
                {name: text for name, text in tokenizer.named.items() if name in self._unnamed},
                frozenset(self.facts.stops_for(tokenizer.named)),
                (
                    self.facts.final_stop_for(tokenizer.named),
                    self.facts.final_stop_for(tokenizer.named, after_call=True),
                ),
            )
            tell: Callable[[str], object] = warn_caller
        else:
            tell = note_warning
        if fit.problems and strict:
            raise TokenizerError(f"{self.renderer.name}: {fit.problems[0]}")
        for problem in () if self.is_quiet else fit.problems:
            tell(f"{self.renderer.name}: {problem}")
        return fit

    def _empty_tokens(self, arguments: JsonMapping) -> dict[str, str]:
        """Return special tokens without a value as empty texts, if the template fails without them."""
        names = [name for name in self._unnamed if name not in arguments]
        if not names:
            return {}
        # The time is not in the key, so it is the same for all.
        known = {**arguments, "now": PROBE_TIME}
        key = make_digest(sorted((_identify_tools(known) | {"now": None}).items()))
        needed = self._needs_tokens.find(key)
        if needed is None:
            needed = needs_tokens(self.renderer.with_reduced_limits(), known, names)
            self._needs_tokens.keep(key, needed, len(key))
        if not needed:
            return {}
        if not self.is_quiet:
            warn_caller(describe_unnamed_tokens(self.renderer, names))
        return dict.fromkeys(names, "")

    def _turn_cache_for(self, arguments: JsonMapping) -> TurnCache:
        """Return what is known about turns under these options, tools and documents, if the template reads them."""
        variables = self.renderer.variables
        read = [
            # As plain data: others may hide what differs.
            (name, value if type(value) in SCALARS else InputReader().to_plain(value, name))
            for name, value in arguments.items()
            if name in variables and name not in NOT_OPTIONS
        ]
        known = _identify_tools(arguments)
        probed = [(name, known.get(name)) for name in PROBED_ARGUMENTS if name in variables]
        has_tools = arguments.get("tools") is not None  # then another template may be taken
        key = make_digest((has_tools, probed, sorted(read, key=itemgetter(0))))
        cache = self._turn_caches.find(key)
        if cache is None:
            cache = TurnCache(analyse_prompts(*self.renderer.texts))
            self._turn_caches.keep(key, cache, TURN_CACHE_BYTES)
        return cache

    def __reduce__(self) -> tuple[Any, ...]:
        return RequestBuilder, (self.facts, self.is_quiet)


def _identify_tools(arguments: JsonMapping) -> JsonObject:
    """Return arguments with what tells their tools from others."""
    tools = arguments.get("tools")
    return dict(arguments) if tools is None else {**arguments, "tools": tools.key or tools.plain}


def _check_special_token(text: Any, name: str, tokenizer: Tokenizer) -> None:
    """Refuse a special token that spells more than one token: a caller could write whole turns with it.

    Raises:
        MessageError: the text has control tokens in it, and is not just one.
    """
    if not isinstance(text, str) or text in tokenizer.added:
        return
    matches = encoder_for(tokenizer).matcher.find(text)
    if any(match.token.control for match in matches):
        raise MessageError(
            f"{short_repr(text)} is not one token of {tokenizer.name}",
            path=name,
            hint="a special token is one token; other text belongs into the template or a message",
        )
