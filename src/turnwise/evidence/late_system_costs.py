"""What each place of late system texts costs: the tokens that a server computes again, though it had computed them.

A made-up agent gets a reminder with every turn. Each prompt is encoded with every policy of `late_system` and compared
with the one before. Ids that both begin with are reused, the others of the earlier prompt are lost, but for those of
its generation prompt.

    in_place   refused: System message must be at the beginning.
    user       0 of 61, the default
    front      49 of 61
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from os.path import commonprefix
from typing import Any, NamedTuple

from turnwise.analysis.conversations import NOW, make_message
from turnwise.errors import TurnwiseError, WarningLog
from turnwise.normalisation.normalised import LATE_SYSTEM, LateSystem
from turnwise.template import Template

ROUNDS = (
    ("Tide at Brest?", "High water at noon.", "Two files changed."),
    ("And at Calais?", "An hour later.", "The list of tasks is empty."),
    ("And at Dover?", "At two.", "Answer in one sentence."),
    ("Thanks.", "You are welcome.", "The session ends soon."),
)


class LateSystemCost(NamedTuple):
    """What one policy costs.

    Attributes:
        policy: where late system texts are put.
        lost: the tokens that were computed for a prompt and are not the beginning of the next one.
        computed: the tokens of all prompts but the last.
        error: why the template does not write the texts there; empty if it does.
        is_default: whether this is done if no policy is given.
    """

    policy: LateSystem
    lost: int = 0
    computed: int = 0
    error: str = ""
    is_default: bool = False

    def __str__(self) -> str:
        cost = f"refused: {self.error}" if self.error else f"{self.lost} of {self.computed}"
        return f"{self.policy:<10} {cost}{', the default' if self.is_default else ''}"


def measure_late_system(template: Template, tokenizer: Any) -> tuple[LateSystemCost, ...]:
    """Return what each policy costs in a growing conversation.

    Args:
        template: the template.
        tokenizer: as for `Template.encode`.
    """
    chats = list(_grow_chats())
    with WarningLog(is_quiet=True):
        try:
            default = _encode_all(template, tokenizer, chats, None)
        except TurnwiseError:
            return ()  # the template takes no such conversation
        return tuple(_measure(template, tokenizer, chats, name, default) for name in LATE_SYSTEM)


def _grow_chats() -> Iterator[list[Any]]:
    chat = [make_message("system", "Answer briefly.")]
    for asked, said, noted in ROUNDS:
        chat.append(make_message("user", asked))
        yield list(chat)
        chat += [make_message("assistant", said), make_message("system", noted)]


def _measure(
    template: Template,
    tokenizer: Any,
    chats: Sequence[Any],
    policy: LateSystem,
    default: Sequence[tuple[list[int], int]],
) -> LateSystemCost:
    try:
        prompts = _encode_all(template, tokenizer, chats, policy)
    except TurnwiseError as error:
        return LateSystemCost(policy, error=error.message)
    lost = sum(
        end - min(end, len(commonprefix([ids, after])))
        for (ids, end), (after, _) in pairwise(prompts)
    )
    computed = sum(end for _, end in prompts[:-1])
    return LateSystemCost(policy, lost, computed, is_default=prompts == default)


def _encode_all(
    template: Template, tokenizer: Any, chats: Sequence[Any], policy: LateSystem | None
) -> list[tuple[list[int], int]]:
    """Return the ids of each prompt, and how many of them are before its generation prompt."""
    prompts = []
    for chat in chats:
        template.render(chat, now=NOW, late_system=policy, strict=True)
        whole, opened = (
            template.encode(
                chat,
                tokenizer,
                now=NOW,
                late_system=policy,
                add_stop=False,
                add_generation_prompt=is_prompt,
            ).input_ids
            for is_prompt in (False, True)
        )
        prompts.append((opened, len(commonprefix([whole, opened]))))
    return prompts
