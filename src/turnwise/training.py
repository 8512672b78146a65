"""Build training examples in which every trained turn follows exactly the prompt that serving would have sent.

One rendering of a conversation is enough if the template only ever appends. Many do not: Qwen3 drops the reasoning of
earlier turns once a new question comes, gpt-oss ends its last turn with another token than the others. A turn trained
inside the finished conversation would then follow a prompt that no server sends. So each turn is checked on its own: a
rendering may be used for a turn only if it begins with the served prompt and then with the turn as it is written at the
end of its own conversation.

Turns are taken from the last one back: the rendering up to a turn also trains every earlier turn that it contains
unchanged; the turns that are left need examples of their own. So the number of examples is the smallest.

A turn that diverges from its generation prompt (DeepSeek-R1 opens with `<think>` and leaves the reasoning out of
history) is written after the prompt as the model would write it, with the reply grammar. So is a turn at which the
template lets no conversation end; failing that, it is trained where it is history. Such text is never the template's,
so that each such reply is named in `rewritten`.

With `max_length`, an example holds as many of the rounds up to its last turn as fit. Turns in rounds that it lacks
remain for other examples. No turn is lost: each is trained in exactly one example, or named with the reason.

Cost: for each turn its prompt and the conversation that ends with it are rendered once, and every example is rendered
and encoded once. Where the source of a template proves that it only appends (`Facts.appends`), only one prompt of each
kind is rendered, and `examples` costs as much as `encode`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from os.path import commonprefix
from typing import Any, NamedTuple

from turnwise.engine.provenance.rendering import Rendering, append_reply
from turnwise.engine.runtime.limits import raise_if_call_ended
from turnwise.errors import MessageError, TemplateError, TurnwiseError, short_repr, warn_caller
from turnwise.messages.roles import ASSISTANT_ROLES
from turnwise.normalisation.normalised import Normalised
from turnwise.notebook import show_html
from turnwise.replies.codec import ReplyCodec
from turnwise.tokens.boundaries import Turn, Untrained
from turnwise.tokens.encode import (
    EncodeRequest,
    encode_once,
    encode_turns,
    find_specials,
    find_turns,
    trains_stops,
)
from turnwise.tokens.encoded import (
    Encoded,
    Rewritten,
    note_changes,
    renumber_turns,
    restrict_to,
)
from turnwise.tokens.label_report import find_label_problems, report_problems
from turnwise.tokens.loss import weight_of
from turnwise.tokens.truncation import (
    cut_last_turn,
    encode_newest_rounds,
    explain_too_long,
    split_rounds,
    too_long,
)


class Examples(list[Encoded]):
    """The training examples of one conversation.

    Attributes:
        untrained: the turns that no example trains, with the reasons.

    Example:
        >>> chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Aye."}]
        >>> samples = turnwise.load("chatml").examples(chat, "turnwise")
        >>> len(samples), samples.untrained
        (1, ())
    """

    untrained: tuple[Untrained, ...]
    _warnings: tuple[str, ...] = ()

    def __init__(self, samples: Sequence[Encoded], untrained: Sequence[Untrained] = ()) -> None:
        super().__init__(samples)
        self.untrained = tuple(untrained)

    def _repr_html_(self) -> str:
        return show_html("examples", self)

    @property
    def incomplete(self) -> tuple[Untrained, ...]:
        """The turns that are trained, but not to their stop, with the reasons."""
        return tuple(turn for sample in self for turn in sample.incomplete)

    @property
    def rewritten(self) -> tuple[Rewritten, ...]:
        """The replies that are trained in another text than the template's, with the reasons."""
        return tuple(one for sample in self for one in sample.rewritten)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was warned of, in order; each sample has it too."""
        return self._warnings

    @warnings.setter
    def warnings(self, texts: tuple[str, ...]) -> None:
        self._warnings = texts
        for sample in self:
            sample.warnings = texts


def find_longest(found: Examples) -> tuple[Rendering | None, Sequence[int]]:
    """Return the rendering of the sample with the most messages, and their indices."""
    sample = max(found, key=lambda one: len(one.kept), default=None)
    return (None, ()) if sample is None else (sample.rendering, sample.kept)


def join_stages(
    stages: Sequence[tuple[Normalised, EncodeRequest, Examples]], name: str, strict: bool
) -> Examples:
    """Return the examples of all stages of a conversation, and report what is not trained as it should be.

    Args:
        stages: each as it was given to the template, encoded, and found.
        name: the template, for warnings.
        strict: raise an error instead of a warning.
    """
    if not any(message.get("role") in ASSISTANT_ROLES for message in stages[-1][0].messages):
        problem = f"{name}: no message has the role assistant, so nothing is trained"
        if strict:
            raise MessageError(problem, path="messages")
        warn_caller(problem)
    joined = Examples([])
    problems = []
    for given, request, found in stages:
        flaws = [flaw for one in found for flaw in find_label_problems(request, one)]
        untrained = renumber_turns(found.untrained, given.positions)
        problems += [*untrained, *renumber_turns(flaws, given.positions)]
        for one in found:
            note_changes(one, given.changes, given.positions)
        joined += found
        joined.untrained += (*untrained,)
    report_problems(name, problems, strict)
    if joined.rewritten:
        listed = ", ".join(f"messages[{one.message}]" for one in joined.rewritten)
        warn_caller(
            f"{name}: trained as the model would write it, where the template writes another text: {listed}. "
            "`rewritten` shows both"
        )
    return joined


class _Sample(NamedTuple):
    """A sample, and the messages that it trains."""

    encoded: Encoded
    trained: set[int]


def examples(request: EncodeRequest, codec: ReplyCodec, first: int = 0) -> Examples:
    """Return the examples, shortest first, and the turns that no example can train, with the reasons.

    Args:
        request: the conversation, and how it is encoded.
        codec: writes replies where the template does not.
        first: the first message that may be trained.

    Raises:
        TemplateError: the template refuses the conversation.
        MessageError: an example is too long, and `overflow` is "refuse".
    """
    remaining = [index for index in _find_trained_messages(request) if index >= first]
    if not remaining:
        request.render(request.messages)  # raises what is wrong with the conversation
    builder = _ExampleBuilder(request, codec)
    samples: list[_Sample] = []
    untrained: list[Untrained] = []
    while remaining:
        last = remaining.pop()
        sample = builder.build(last)
        if isinstance(sample, Untrained):
            if not builder.add_to_longer_sample(samples, last):
                untrained.append(sample)
            continue
        sample.trained.update(builder.find_unchanged(sample.encoded, remaining))
        remaining = [index for index in remaining if index not in sample.trained]
        samples.append(sample)
    restricted = [restrict_to(sample.encoded, sample.trained) for sample in samples]
    return Examples(restricted[::-1], untrained[::-1])


def _find_trained_messages(request: EncodeRequest) -> list[int]:
    """Return the indices of the assistant messages that are to be trained."""
    indices = [
        index
        for index, message in enumerate(request.messages)
        if message.get("role") in ASSISTANT_ROLES and weight_of(request.messages, index)
    ]
    return indices[-1:] if request.train_on == "last" else indices


class _ExampleBuilder:
    """Builds the samples of one conversation; the prompt before each turn is rendered once for all of them."""

    def __init__(self, request: EncodeRequest, codec: ReplyCodec) -> None:
        self.final_request = request._replace(prompts={})
        # Only the final message is continued, not every message with which an example ends.
        arguments = {**request.arguments, "continue_final_message": False}
        self.request = self.final_request._replace(arguments=arguments)
        self.codec = codec
        self._rounds: int | None = None  # of the last sample that was shortened
        # Kinds of prompts with which samples begin.
        self._proven_prompts: set[tuple[Any, ...]] = set()
        # By the number of messages that were dropped and the turn's message.
        self._prompts: dict[tuple[int, int], str | TurnwiseError] = {}
        self._finished: dict[tuple[int, int], str | None] = {}

    def build(self, last: int) -> _Sample | Untrained:
        """Return a sample that ends with a message and trains it, or why there is none."""
        is_final = last + 1 == len(self.request.messages)
        base = self.final_request if is_final else self.request
        request = base._replace(messages=base.messages[: last + 1])
        found: Encoded | Untrained | None = None
        try:
            found = self._encode_fitting(request, encode_once)
            problem = found if isinstance(found, Untrained) else self._find_problem(found, last)
        except TemplateError as error:
            raise_if_call_ended(error)
            if is_final:
                raise
            reason = f"the template refuses the conversation up to it: {error.message}"
            problem = Untrained(last, reason, diverges=True)
        if problem is None:
            assert isinstance(found, Encoded)
            return _Sample(found, {last})
        if not problem.diverges:
            return problem
        if isinstance(found, Encoded):
            self._finished[_count_dropped(found), last] = found.rendering.text
        try:
            written = self._encode_fitting(request, partial(_encode_written_reply, self.codec))
        except TurnwiseError as error:
            raise_if_call_ended(error)
            return problem._replace(reason=f"{problem.reason}; {error.message}")
        if isinstance(written, Untrained):
            return written
        written.rewritten = tuple(self._find_rewritten(written, problem.reason))
        return _Sample(written, {last})

    def _find_rewritten(self, sample: Encoded, why: str) -> Iterator[Rewritten]:
        """Yield the last message of a sample, if the template does not write what is trained of it."""
        turn = sample.turns[-1]
        trained = sample.text[turn.start : turn.end]
        finished = self._finished_conversation(sample, turn)
        if finished is None:
            is_written = trained in self._write_whole()
        else:
            is_written = finished.rstrip().endswith(trained.rstrip())
        if is_written:
            return
        own = "the template refuses the conversation that ends with it"
        if finished is not None:
            shared = len(commonprefix([finished, sample.text[: turn.start]]))
            own = f"the template writes {short_repr(finished[shared:])}"
        yield Rewritten(turn.message, f"{short_repr(trained)} is trained, {own}", why)

    def _encode_fitting(
        self, request: EncodeRequest, encode_whole: Callable[[EncodeRequest], Encoded]
    ) -> Encoded | Untrained:
        """Encode the newest rounds that fit `max_length`, so that at least a part of the last message is in them."""
        encoded = encode_newest_rounds(request, encode_whole, self._rounds)
        limit, last = request.max_length, len(request.messages) - 1
        if limit is None:
            return encoded
        if len(encoded.kept) <= last:
            self._rounds = len(split_rounds([request.messages[i] for i in encoded.kept])[0])
        if len(encoded) <= limit:
            return encoded
        if request.overflow == "refuse":
            raise too_long(encoded, request)
        if request.overflow == "truncate":
            cut = cut_last_turn(encoded, limit)
            if cut is not None and cut.turns[-1].message == last:
                return cut
        return Untrained(last, ": ".join(explain_too_long(encoded, request)))

    def _find_problem(self, sample: Encoded, index: int) -> Untrained | None:
        """Return why a message cannot be trained in this sample, None if it can."""
        for turn in sample.turns:
            # A message may be several turns: the prompt ends before the first.
            if turn.message == index:
                reason = self._explain_mismatch(sample, turn) or self._explain_stop(sample, index)
                return Untrained(index, reason, diverges=True) if reason else None
        for untrained in sample.untrained:
            if untrained.message == index:
                return untrained
        return Untrained(index, "its place is not known")

    def _explain_stop(self, sample: Encoded, index: int) -> str:
        """Return why a sample does not end with the stop of its last message; empty if it does, or need not."""
        last, is_final = sample.turns[-1], index + 1 == len(self.request.messages)
        request = self.final_request if is_final else self.request
        if last.message != index or sample.incomplete or not trains_stops(request):
            return ""
        stop = sample.text[last.stop : last.end]
        return (
            "" if stop in self.request.stops else "the template writes text after it, and no stop"
        )

    def find_unchanged(self, sample: Encoded, messages: Sequence[int]) -> list[int]:
        """Return those of the messages that a sample may train: written as at the end of their own conversations.

        The prompts of a sample without its oldest rounds are of use for no other sample, so the search for them ends
        at the first turn that has changed.
        """
        wanted = set(messages)
        turns: dict[
            int, Turn
        ] = {}  # from the start of a message's first turn to the end of its last one
        for turn in sample.turns:
            if turn.message in wanted:
                first = turns.setdefault(turn.message, turn)
                turns[turn.message] = turn._replace(start=first.start)
        is_shortened = _count_dropped(sample) > 0
        unchanged = []
        for turn in reversed(turns.values()):
            if self._is_unchanged(sample, turn):
                unchanged.append(turn.message)
            elif is_shortened:
                break
        return unchanged

    def add_to_longer_sample(self, samples: Sequence[_Sample], message: int) -> bool:
        """Train a message in a sample in which it is history, if the template lets no conversation end with it."""
        for sample in samples:
            for turn in sample.encoded.turns:
                if turn.message == message and self._is_only_history(sample.encoded, turn):
                    sample.trained.add(message)
                    return True
        return False

    def _explain_mismatch(self, sample: Encoded, turn: Turn) -> str:
        """Return why a turn does not follow the prompt that serving would have sent; empty if it does."""
        kind = self._kind_of_prompt(turn.message) if self.request.appends else ()
        if kind in self._proven_prompts:
            return ""
        prompt = self._prompt_before(sample, turn)
        if isinstance(prompt, TurnwiseError):
            return f"the template refuses the prompt before it: {prompt.message}"
        if len(prompt) != turn.start or not sample.text.startswith(prompt):
            return "the finished conversation does not begin with the prompt before it"
        if self.request.appends:
            self._proven_prompts.add(kind)
        return ""

    def _kind_of_prompt(self, index: int) -> tuple[Any, ...]:
        """Return what tells apart the prompts of a template that appends and has one generation prompt."""
        before = self.request.messages[index - 1] if index else {}
        names = ("content", "tool_calls")
        return (before.get("role"), *(bool(before.get(name)) for name in names))

    def _is_unchanged(self, sample: Encoded, turn: Turn) -> bool:
        """Return whether a turn is written here as at the end of its own conversation, after the same prompt.

        The turn itself is compared before the text that leads to it: mostly it is what differs, and it is short.
        """
        text = sample.text
        stop = text[turn.stop : turn.end]
        if stop not in self.request.stops and trains_stops(self.request):
            return False  # nothing ends it here; to a sample that ends with it the stop is added
        if self.request.appends:
            return not self._explain_mismatch(sample, turn)
        finished = self._finished_conversation(sample, turn)
        if finished is None:
            return False
        if not finished.startswith(text[turn.start : turn.end], turn.start):
            # The stop opens the next turn here, and is added to a sample that ends with this one.
            if stop not in (self.request.final_stops or ()):
                return False
            if finished[turn.start :].rstrip() != text[turn.start : turn.stop].rstrip():
                return False
        is_after_prompt = not self._explain_mismatch(sample, turn)
        return is_after_prompt and finished.startswith(text[: turn.start])

    def _is_only_history(self, sample: Encoded, turn: Turn) -> bool:
        """Return whether a turn follows the served prompt, and the template refuses conversations that it ends."""
        if self._explain_mismatch(sample, turn):
            return False
        return self._finished_conversation(sample, turn) is None

    def _prompt_before(self, sample: Encoded, turn: Turn) -> str | TurnwiseError:
        """Return the prompt that serving would send before a turn, for the rounds that the sample has."""
        key = _count_dropped(sample), turn.message
        if key not in self._prompts:
            before = [self.request.messages[i] for i in sample.kept if i < turn.message]
            try:
                self._prompts[key] = self.request.render_prompt(before).text
            except TurnwiseError as error:
                raise_if_call_ended(error)
                self._prompts[key] = error
        return self._prompts[key]

    def _write_whole(self) -> str:
        """Return the whole conversation, in which every other turn is history; empty if the template refuses it."""
        try:
            return self.request.render(self.request.messages).text
        except TemplateError as error:
            raise_if_call_ended(error)
            return ""

    def _finished_conversation(self, sample: Encoded, turn: Turn) -> str | None:
        """Return the conversation that ends with a turn; None if the template refuses it."""
        key = _count_dropped(sample), turn.message
        if key not in self._finished:
            messages = [self.request.messages[i] for i in sample.kept if i <= turn.message]
            try:
                self._finished[key] = self.request.render(messages).text
            except TemplateError as error:
                raise_if_call_ended(error)
                self._finished[key] = None
        return self._finished[key]


def _count_dropped(sample: Encoded) -> int:
    """Return the number of messages that `max_length` dropped; it tells apart samples that begin differently."""
    return int(sample.kept[-1]) + 1 - len(sample.kept) if len(sample.kept) else 0


def _encode_written_reply(codec: ReplyCodec, request: EncodeRequest) -> Encoded:
    """Encode the prompt before the last message, followed by the message as a model would write it."""
    messages, index = request.messages, len(request.messages) - 1
    if request.train_on == "marked":
        raise MessageError("a reply that the grammar writes has no {% generation %} blocks")
    before = messages[:index]
    prompt = request.render_prompt(before)
    parts = codec.write(messages[index], prompt, request.tokenizer)
    rendering = append_reply(prompt, parts, index)
    specials = find_specials(request, rendering, messages)
    history, _ = find_turns(request, prompt, before, specials)
    start, end = len(prompt.text), len(rendering.text)
    stops = (*request.stops, *codec.grammar.stops)
    stop_lengths = [len(stop) for stop in stops if rendering.text.endswith(stop, start)]
    turn = Turn(index, start, end, end - max(stop_lengths, default=0))
    return encode_turns(request, rendering, specials, [turn], (), history)
