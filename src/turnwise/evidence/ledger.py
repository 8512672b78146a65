"""`CacheLedger`: what the prompts of an agent's trace cost a server that reuses common beginnings.

Every request of a trace is encoded as the prompt that serving would send. A server has computed the prompts before it
and the replies to them, and reuses as many tokens as the new prompt has in common with one of these:

    tokens      of this prompt
    reused      of them, which an earlier prompt with its reply begins with
    computed    the rest
    lost        tokens of the request before it and of its reply that were computed and are not reused

`lost` is what a stable template and an unchanged history would not have to compute again. A turn that lost something
has a cause: the *request* changed what it had sent before (its path is named), or the *template* wrote the same
messages differently (`analysis/rewrites.py`: message, field and line of the template).

A trace has no tokens of replies. The reply to a request is the assistant message with which the next one goes on; its
tokens are those that the template writes for it as the last message, if they follow the prompt.

The same prompts are encoded with each option that makes the template more stable (`turnwise.stability`), so the totals
tell what it would save.

Costs: linear in the tokens of all prompts. Only the last `KEPT_PROMPTS` are kept, as agents take turns.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from turnwise.analysis.rewrites import Rewrite, common_length, find_rewrite
from turnwise.errors import MessageError, TurnwiseError, TurnwiseWarning
from turnwise.evidence.prefix_stability import stability
from turnwise.messages import format_path
from turnwise.shapes import conversation
from turnwise.template import Template
from turnwise.tokens import tokenizers
from turnwise.tokens.encoded import Encoded

KEPT_PROMPTS = 8
MAX_TRIED_OPTIONS = 6
ENVELOPES = ("body", "request")  # under which logs keep a request
FIRST, APPENDED, TEMPLATE, REQUEST, NEW = "first", "appended", "template", "request", "new"
CAUSES = {
    FIRST: "the first prompt",
    APPENDED: "only appended to",
    TEMPLATE: "the template changed earlier text",
    REQUEST: "the request changed what was sent before",
    NEW: "another conversation",
}


class TraceLine(NamedTuple):
    """A line of a trace: its number and the value in it, or what is wrong with it."""

    number: int
    value: Any
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace: the messages and arguments of the prompt, and the line it is from."""

    line: int
    messages: list[Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TraceProblem:
    """A line that is no request, or whose prompt cannot be made."""

    line: int
    problem: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.problem}"


@dataclass(frozen=True, slots=True)
class LedgerTurn:
    """What one prompt costs.

    Attributes:
        line: The line of the trace.
        tokens: The number of its tokens.
        reused: How many of them an earlier prompt begins with.
        lost: How many tokens of the request before it are computed again.
        cause: "first", "appended", "template", "request" or "new".
        previous: The line of the request that it goes on with; None if there is none.
        changed: Where the cause is the request: the path of what it changed.
        rewrite: Where the cause is the template: what it wrote differently.
    """

    line: int
    tokens: int
    reused: int
    lost: int
    cause: str
    previous: int | None = None
    changed: str | None = None
    rewrite: Rewrite | None = None

    @property
    def computed(self) -> int:
        """The tokens that are not reused."""
        return self.tokens - self.reused

    def __str__(self) -> str:
        counts = f"{self.tokens} tokens, {self.reused} reused, {self.computed} computed"
        reason = CAUSES[self.cause]
        if self.rewrite is not None:
            reason = str(self.rewrite)
        elif self.changed is not None:
            reason = f"{reason}: {self.changed}"
        lost = f", {self.lost} lost" if self.lost else ""
        return f"line {self.line}: {counts}{lost}: {reason}"


@dataclass
class OptionCost:
    """The tokens that are computed if an option of the template has a value."""

    name: str
    value: Any
    computed: int = 0


@dataclass
class LedgerTotals:
    """Sums over the prompts of a trace.

    Attributes:
        turns: The number of prompts.
        tokens, reused, lost: The sums of their counts.
        lost_by: The lost tokens for each cause.
        problems: The number of lines that were left out.
        options: The options that were tried, with the computed tokens.
    """

    turns: int = 0
    tokens: int = 0
    reused: int = 0
    lost: int = 0
    lost_by: dict[str, int] = field(default_factory=dict)
    problems: int = 0
    options: list[OptionCost] = field(default_factory=list)

    @property
    def computed(self) -> int:
        """The tokens that were not reused."""
        return self.tokens - self.reused

    def saved_with(self, option: OptionCost) -> int:
        """Return how many tokens less would be computed with an option; negative if more."""
        return self.computed - option.computed

    def __str__(self) -> str:
        lines = [
            f"{self.turns} prompts, {self.tokens} tokens: {self.reused} reused, {self.computed} computed",
            f"{self.lost} tokens were lost, that is computed again",
        ]
        lines += [f"  {count} because {CAUSES[cause]}" for cause, count in self.lost_by.items()]
        for option in self.options:
            saved = self.saved_with(option)
            how = f"would save {saved}" if saved >= 0 else f"would cost {-saved} more"
            lines.append(f"{option.name}={option.value!r} {how} tokens")
        if self.problems:
            left_out = "1 line was" if self.problems == 1 else f"{self.problems} lines were"
            lines.append(f"{left_out} left out")
        return "\n".join(lines)


def read_trace(lines: Iterable[TraceLine]) -> Iterator[TraceRequest | TraceProblem]:
    """Yield the requests of a trace.

    Each line is a request (`messages`, `tools`, also under `body` or `request`), or a message. The messages of a trace
    that is one conversation, in one line or in many, are sent one turn after another: there is a request before
    each assistant message. An assistant message at the end of a request is the reply to it.

    Args:
        lines: The lines of the trace.
    """
    grown: list[Any] = []
    waiting: TraceRequest | None = None  # the first request, until it is known whether it is alone
    count, last = 0, 0
    for line in lines:
        last = line.number
        if line.problem is None and isinstance(line.value, Mapping) and "role" in line.value:
            if line.value["role"] == "assistant" and grown:
                yield TraceRequest(last, [*grown])
            grown.append(line.value)
            continue
        found = _read_line(line)
        if isinstance(found, TraceProblem):
            yield found
            continue
        count += 1
        if count == 1:
            waiting = found
            continue
        if waiting is not None:
            yield _without_reply(waiting)
            waiting = None
        yield _without_reply(found)
    if waiting is not None:
        yield from _replay(waiting)
    if grown and _role_of(grown[-1]) != "assistant":
        yield TraceRequest(last, grown)


def _read_line(line: TraceLine) -> TraceRequest | TraceProblem:
    if line.problem is not None:
        return TraceProblem(line.number, line.problem)
    value = line.value
    for name in ENVELOPES:
        if (
            isinstance(value, Mapping)
            and "messages" not in value
            and isinstance(value.get(name), Mapping)
        ):
            value = value[name]
    try:
        arguments = conversation(value).arguments
    except MessageError as error:
        return TraceProblem(line.number, error.message)
    messages = arguments.pop("messages")
    if isinstance(value, str) or not messages:
        return TraceProblem(line.number, "a request has messages, and this line has none")
    for name in ("add_generation_prompt", "continue_final_message"):
        arguments.pop(name, None)
    return TraceRequest(line.number, messages, arguments)


def _role_of(message: Any) -> Any:
    return message.get("role") if isinstance(message, Mapping) else None


def _without_reply(request: TraceRequest) -> TraceRequest:
    messages = request.messages
    if len(messages) > 1 and _role_of(messages[-1]) == "assistant":
        return TraceRequest(request.line, messages[:-1], request.arguments)
    return request


def _replay(request: TraceRequest) -> Iterator[TraceRequest]:
    """Yield the requests that a conversation was made with."""
    for end, message in enumerate(request.messages):
        if end and _role_of(message) == "assistant":
            yield TraceRequest(request.line, request.messages[:end], request.arguments)
    if request.messages and _role_of(request.messages[-1]) != "assistant":
        yield request


class KeptPrompt(NamedTuple):
    """A request, with the ids that a server has computed for it: its prompt, and the reply once that is known."""

    request: TraceRequest
    encoded: Encoded


class PromptCache:
    """The last prompts of a trace with their replies.

    Args:
        encode: Encodes messages, with or without a generation prompt.
    """

    def __init__(self, encode: Callable[[TraceRequest, bool], Encoded]) -> None:
        self._encode = encode
        self._kept: list[KeptPrompt] = []

    def add(self, request: TraceRequest) -> tuple[Encoded, int, KeptPrompt | None]:
        """Add a request; return its prompt, how many of its tokens are reused, and the request it goes on with."""
        encoded = self._encode(request, True)
        previous = self._find_previous(request)
        ids = encoded.input_ids
        reused = max((common_length(kept.encoded.input_ids, ids) for kept in self._kept), default=0)
        self._kept.append(KeptPrompt(request, encoded))
        del self._kept[:-KEPT_PROMPTS]
        return encoded, reused, previous

    def _find_previous(self, request: TraceRequest) -> KeptPrompt | None:
        """Return the request with the most messages in common, if a user's is among them; its reply is added to it."""
        counts = [_count_shared(kept.request, request) for kept in self._kept]
        shared = max(counts, default=0)
        if all(_role_of(message) != "user" for message in request.messages[:shared]):
            return None
        index = len(counts) - 1 - counts[::-1].index(shared)
        previous = self._kept[index]
        is_whole = shared == len(previous.request.messages) < len(request.messages)
        if is_whole and _role_of(request.messages[shared]) == "assistant":
            messages = request.messages[: shared + 1]
            finished = self._encode(replace(previous.request, messages=messages), False)
            prompt = previous.encoded.input_ids
            if common_length(finished.input_ids, prompt) == len(prompt):
                self._kept[index] = previous = KeptPrompt(previous.request, finished)
        return previous


class CacheLedger:
    """Adds up what the prompts of a trace cost.

    Args:
        template: The template that the server uses.
        tokenizer: Its tokenizer: an object, a file, a folder or a model id.
        now: The time of all prompts, for templates that ask for it.
        options: Options of the template that the server sets.
        try_options: Options to try, as `(name, value)`; by default those that make the template more stable.

    Example:
        >>> import turnwise
        >>> from turnwise.evidence import CacheLedger, TraceLine
        >>> chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
        >>> more = [*chat, {"role": "user", "content": "Bye"}]
        >>> ledger = CacheLedger(turnwise.load("chatml"), "turnwise")
        >>> [turn.lost for turn in ledger.add_trace([TraceLine(1, {"messages": more})])]
        [0, 0]
        >>> ledger.totals.turns
        2
    """

    def __init__(
        self,
        template: Template,
        tokenizer: Any,
        now: datetime | None = None,
        options: Mapping[str, Any] | None = None,
        try_options: Iterable[tuple[str, Any]] | None = None,
    ) -> None:
        self._template = template
        self._tokenizer = tokenizers.tokenizer(tokenizer)
        self._now = now
        self._options = dict(options or {})
        if try_options is None:
            found = stability(template).options
            try_options = [pair for pair in found if pair[0] not in self._options]
        tried = [OptionCost(*pair) for pair in try_options]
        self.totals = LedgerTotals(options=tried[:MAX_TRIED_OPTIONS])
        self._cache = PromptCache(partial(self._encode, {}))
        self._caches = [
            PromptCache(partial(self._encode, {option.name: option.value}))
            for option in self.totals.options
        ]

    def add_trace(self, lines: Iterable[TraceLine]) -> Iterator[LedgerTurn | TraceProblem]:
        """Yield what each prompt of a trace costs, and the lines that are none; `totals` grows with it."""
        for request in read_trace(lines):
            if isinstance(request, TraceProblem):
                self.totals.problems += 1
                yield request
            else:
                yield self.add(request)

    def add(self, request: TraceRequest) -> LedgerTurn | TraceProblem:
        """Return what the prompt of one request costs; a problem if it cannot be made."""
        try:
            turn = self._compare(request, *self._cache.add(request))
            for option, cache in zip(self.totals.options, self._caches, strict=True):
                encoded, reused, _ = cache.add(request)
                option.computed += len(encoded.input_ids) - reused
        except TurnwiseError as error:
            self.totals.problems += 1
            return TraceProblem(request.line, error.message)
        totals = self.totals
        totals.turns += 1
        totals.tokens += turn.tokens
        totals.reused += turn.reused
        totals.lost += turn.lost
        if turn.lost:
            totals.lost_by[turn.cause] = totals.lost_by.get(turn.cause, 0) + turn.lost
        return turn

    def _encode(
        self, options: Mapping[str, Any], request: TraceRequest, is_prompt: bool
    ) -> Encoded:
        arguments = {**request.arguments, **self._options, **options}
        with warnings.catch_warnings():
            # They are about training, and would come again with every prompt.
            warnings.simplefilter("ignore", TurnwiseWarning)
            return self._template.encode(
                request.messages,
                self._tokenizer,
                now=self._now,
                add_generation_prompt=is_prompt,
                add_stop=False,
                **arguments,
            )

    def _compare(
        self, request: TraceRequest, encoded: Encoded, reused: int, previous: KeptPrompt | None
    ) -> LedgerTurn:
        line, tokens = request.line, len(encoded.input_ids)
        if previous is None:
            return LedgerTurn(line, tokens, reused, 0, NEW if self.totals.turns else FIRST)
        place = previous.request.line
        lost = max(0, len(previous.encoded.input_ids) - reused)
        changed = _find_change(previous.request, request)
        if changed is not None:
            return LedgerTurn(line, tokens, reused, lost, REQUEST, place, changed)
        if not lost:
            return LedgerTurn(line, tokens, reused, 0, APPENDED, place)
        rewrite = find_rewrite(
            self._template.renderer,
            previous.encoded.rendering,
            encoded.rendering,
            request.arguments.get("tools") is not None,
        )
        # Without a rewrite, the text was only appended to, and a token was merged with what follows it.
        cause = APPENDED if rewrite is None else TEMPLATE
        return LedgerTurn(line, tokens, reused, lost, cause, place, None, rewrite)


def _count_shared(earlier: TraceRequest, later: TraceRequest) -> int:
    """Return how many messages two requests have in common at their beginning."""
    return common_length(earlier.messages, later.messages)


def _find_change(earlier: TraceRequest, later: TraceRequest) -> str | None:
    """Return the path of the first thing that a request changed of an earlier one; None if it only goes on."""
    shared = _count_shared(earlier, later)
    if shared < len(earlier.messages):
        path: tuple[Any, ...] = ("messages", shared)
        if shared < len(later.messages):
            path = _first_difference(earlier.messages[shared], later.messages[shared], path)
        return format_path(path)
    for name in {**earlier.arguments, **later.arguments}:
        before, after = earlier.arguments.get(name), later.arguments.get(name)
        if before != after:
            return format_path(_first_difference(before, after, (name,)))
    return None


def _first_difference(before: Any, after: Any, path: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the path of the first value that differs between two values that are not equal."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in {**before, **after}:
            if before.get(key) != after.get(key):
                return _first_difference(before.get(key), after.get(key), (*path, str(key)))
    elif isinstance(before, list) and isinstance(after, list):
        index = common_length(before, after)
        if index < min(len(before), len(after)):
            return _first_difference(before[index], after[index], (*path, index))
    return path
