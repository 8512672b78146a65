"""Build training examples in which every trained turn follows exactly the prompt that serving would have sent.

One rendering of a conversation is enough if the template only ever appends. Many do not: Qwen3 drops the reasoning of
earlier turns once a new question comes, gpt-oss ends its last turn with another token than the others. A turn trained
inside the finished conversation would then follow a prompt that no server sends. So each turn is checked on its own: a
rendering may be used for a turn only if it begins with the served prompt and then with the turn as it is written at the
end of its own conversation.

Turns are taken from the last one back: the rendering up to a turn also trains every earlier turn that it contains
unchanged; the turns that are left need examples of their own. So the number of examples is the smallest.

A turn that diverges from its generation prompt (DeepSeek-R1 opens with `<think>` and leaves the reasoning out of
history) is written after the prompt as the model would write it, with the reply grammar.
"""

from __future__ import annotations

from dataclasses import replace

from turnwise.engine.provenance.rendering import append_reply
from turnwise.errors import TemplateError, TurnwiseError
from turnwise.replies.codec import ReplyCodec
from turnwise.tokens.attribution import ASSISTANT_ROLES
from turnwise.tokens.boundaries import Turn, Untrained
from turnwise.tokens.encode import EncodeRequest, encode_once, find_specials, find_turns
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.loss import weight_of
from turnwise.tokens.text_encoder import encoder_for


def examples(request: EncodeRequest, codec: ReplyCodec) -> tuple[list[Encoded], list[Untrained]]:
    """Return the examples, shortest first, and the turns that no example can train, with the reasons."""
    remaining = _find_trained_messages(request)
    if not remaining:
        request.render(request.messages)  # raises what is wrong with the conversation
    prompts = _PromptTexts(request)
    samples: list[Encoded] = []
    untrained: list[Untrained] = []
    while remaining:
        last = remaining.pop()
        try:
            sample = encode_once(replace(request, messages=request.messages[: last + 1]))
        except TemplateError as error:
            if last + 1 == len(request.messages):
                raise
            reason = f"the template refuses the conversation up to it: {error.message}"
            untrained.append(Untrained(last, reason))
            continue
        problem = _find_problem(sample, last, prompts)
        if problem is None:
            trained = [
                turn
                for turn in sample.turns
                if turn.message == last
                or (turn.message in remaining and prompts.is_unchanged(sample, turn))
            ]
            covered = {turn.message for turn in trained}
            remaining = [index for index in remaining if index not in covered]
            samples.append(sample.restrict_to(trained))
            continue
        if problem.diverges:
            try:
                samples.append(_encode_written_reply(request, codec, last))
                continue
            except TurnwiseError as error:
                problem = problem._replace(reason=f"{problem.reason}; {error.message}")
        untrained.append(problem)
    return samples[::-1], untrained[::-1]


def _find_trained_messages(request: EncodeRequest) -> list[int]:
    """Return the indices of the assistant messages that are to be trained."""
    indices = [
        index
        for index, message in enumerate(request.messages)
        if message.get("role") in ASSISTANT_ROLES and weight_of(request.messages, index)
    ]
    return indices[-1:] if request.train_on == "last" else indices


def _find_problem(sample: Encoded, index: int, prompts: _PromptTexts) -> Untrained | None:
    """Return why the message at `index` cannot be trained in this sample, None if it can."""
    for turn in sample.turns:
        if turn.message == index:
            reason = prompts.explain_mismatch(sample, turn)
            return Untrained(index, reason, diverges=True) if reason else None
    for untrained in sample.untrained:
        if untrained.message == index:
            return untrained
    return Untrained(index, "its place is not known")


class _PromptTexts:
    """The prompts that serving would send before each message, rendered once."""

    def __init__(self, request: EncodeRequest) -> None:
        self.request = request
        self.texts: dict[int, str] = {}

    def explain_mismatch(self, sample: Encoded, turn: Turn) -> str:
        """Return why a turn does not follow the prompt that serving would have sent; empty if it does."""
        index = turn.message
        if index not in self.texts:
            try:
                prompt = self.request.render_prompt(self.request.messages[:index])
            except TurnwiseError as error:
                return f"the template refuses the prompt before it: {error.message}"
            self.texts[index] = prompt.text
        if sample.text[: turn.start] != self.texts[index]:
            return "the finished conversation does not begin with the prompt before it"
        return ""

    def is_unchanged(self, sample: Encoded, turn: Turn) -> bool:
        """Return whether a turn is written here as at the end of its own conversation, after the same prompt."""
        if self.explain_mismatch(sample, turn):
            return False
        try:
            own = self.request.render(self.request.messages[: turn.message + 1])
        except TemplateError:
            return False
        return own.text[: turn.end] == sample.text[: turn.end]


def _encode_written_reply(request: EncodeRequest, codec: ReplyCodec, index: int) -> Encoded:
    """Encode the prompt before a message, followed by the message as a model would write it."""
    before, messages = request.messages[:index], request.messages[: index + 1]
    prompt = request.render_prompt(before)
    parts = codec.write(request.messages[index], prompt)
    rendering = append_reply(prompt, parts, index)
    specials = find_specials(request, rendering, messages)
    earlier_turns, _ = find_turns(request, prompt, before, specials)
    start, end = len(prompt.text), len(rendering.text)
    seams = [*(turn.start for turn in earlier_turns), start]
    ids, spans = encoder_for(request.tokenizer).encode_spans(
        rendering.text, specials.matches, seams
    )
    stop = end
    if parts and parts[-1][1] is None:
        stop -= len(parts[-1][0])  # the last part is a marker
    turn = Turn(index, start, end, stop)
    weights = [weight_of(messages, place) for place in range(len(messages))]
    return Encoded(rendering, request.tokenizer, ids, spans, [turn], (), weights, request.train_on)
