"""Examples: the fewest samples in which every trained turn stands behind exactly what serving would have sent.

One rendering of a conversation is enough if the template only ever appends. Many do not: Qwen3 drops the reasoning of
earlier turns once a new question comes, gpt-oss ends its last turn with another token than the others. There a turn
that is trained inside the finished conversation stands behind a prompt that no server sends. So each turn is looked
at on its own: the prompt that serving would have sent, and the turn as it stands right behind it. A longer rendering
may stand for the turn only if it begins with both.

Where a finished turn does not continue its own opening (DeepSeek-R1 opens with `<think>`, and leaves the thinking out
of history), the turn is written behind the prompt as the model itself would write it.

Turns are gathered from the last one back: the rendering up to a turn takes along every earlier turn that it holds
unchanged; what is left over starts a sample of its own.
"""

from __future__ import annotations

from dataclasses import replace

from turnwise.errors import TemplateError, TurnwiseError
from turnwise.tokens.attribution import SPEAKERS
from turnwise.tokens.boundaries import Turn, Untrained
from turnwise.tokens.encode import Ask, answered_by, encoded
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.loss import weight_of


def examples(ask: Ask) -> tuple[list[Encoded], list[Untrained]]:
    """The samples, shortest first; and the turns that no sample can hold, with the reasons."""
    wanted = [
        index
        for index, message in enumerate(ask.messages)
        if message.get("role") in SPEAKERS and weight_of(ask.messages, index)
    ]
    if ask.train_on == "last":
        wanted = wanted[-1:]
    if not wanted:
        ask.render(ask.messages)  # says what is wrong with them, if anything is
    samples: list[Encoded] = []
    untrained: list[Untrained] = []
    left = dict.fromkeys(wanted)
    served: dict[int, str] = {}
    while left:
        last = max(left)
        del left[last]
        try:
            sample = encoded(replace(ask, messages=ask.messages[: last + 1]))
        except TemplateError as error:
            if last + 1 == len(ask.messages):
                raise
            untrained.append(
                Untrained(last, f"the template refuses the conversation up to it: {error.message}")
            )
            continue
        turn = next((one for one in sample.turns if one.message == last), None)
        lost = next((one for one in sample.untrained if one.message == last), None)
        if turn is not None:
            reason = behind(ask, sample, turn, last, served)
            lost = Untrained(last, reason, departs=True) if reason else None
        if turn is None or lost is not None:
            written = behind_prompt(ask, lost or Untrained(last, "its place is not known"))
            if isinstance(written, Encoded):
                samples.append(written)
            else:
                untrained.append(written)
            continue
        holds = [
            one
            for one in sample.turns
            if one == turn or (one.message in left and alone(ask, sample, one, served))
        ]
        for held in holds:
            left.pop(held.message, None)
        samples.append(sample.narrowed(holds))
    return samples[::-1], untrained[::-1]


def behind_prompt(ask: Ask, lost: Untrained) -> Encoded | Untrained:
    """A turn that departs from its opening, written as the model would; any other stays lost."""
    if not lost.departs:
        return lost
    try:
        return answered_by(ask, lost.message)
    except TurnwiseError as error:
        return lost._replace(reason=f"{lost.reason}; {error.message}")


def behind(ask: Ask, sample: Encoded, turn: Turn, index: int, served: dict[int, str]) -> str:
    """Why the turn does not stand behind the prompt that serving would have sent; empty if it does."""
    prompt = served.get(index)
    if prompt is None:
        try:
            prompt = served[index] = ask.prompt(ask.messages[:index]).text
        except TurnwiseError as error:
            return f"the template refuses the prompt before it: {error.message}"
    if sample.text[: turn.start] != prompt:
        return "the finished conversation does not begin with the prompt before it"
    return ""


def alone(ask: Ask, sample: Encoded, turn: Turn, served: dict[int, str]) -> bool:
    """Whether the turn stands here as it does at the end of its own conversation, behind the same prompt."""
    if behind(ask, sample, turn, turn.message, served):
        return False
    try:
        own = ask.render(ask.messages[: turn.message + 1]).text
    except TemplateError:
        return False
    return own[: turn.end] == sample.text[: turn.end]
