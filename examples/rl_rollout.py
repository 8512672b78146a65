"""A rollout for reinforcement learning: the trainer sees exactly the tokens that were sampled.

    python examples/rl_rollout.py

The task is to say a number between the two that the environment names. The "policy" guesses at random; put your engine
in its place. Every trajectory is a list of ids with a mask of what was sampled, and its ids only ever grow: nothing is
decoded and encoded again, so a trainer's log-probabilities belong to the same tokens.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import turnwise

ROUNDS, LOWEST, HIGHEST = 4, 0, 99


@dataclass(frozen=True)
class Trajectory:
    """What a trainer needs of one rollout."""

    ids: list[int]
    mask: list[int]
    logprobs: list[float | None]
    reward: float


def main() -> None:
    for seed in range(3):
        trajectory = roll_out(random.Random(seed))
        sampled, size = sum(trajectory.mask), len(trajectory.ids)
        print(f"{size} ids, {sampled} of them sampled, reward {trajectory.reward}")


def roll_out(policy: random.Random) -> Trajectory:
    """Play one game."""
    session = turnwise.load("chatml").session("turnwise")
    secret = policy.randint(LOWEST, HIGHEST)
    ids = session.prompt([{"role": "user", "content": "Guess a number from 0 to 99."}])
    reward = 0.0
    for last in (False,) * (ROUNDS - 1) + (True,):
        guess = policy.randint(LOWEST, HIGHEST)
        sampled = [*session.tokenizer.encode(f"{guess}"), session.stop_token_ids[0]]
        session.add_reply(sampled, logprobs=[-1.0] * len(sampled))
        reward = 1.0 - abs(guess - secret) / HIGHEST
        if last or guess == secret:
            break
        before = ids
        ids = session.extend(
            [{"role": "user", "content": "Higher." if guess < secret else "Lower."}]
        )
        assert ids[: len(before)] == before  # the prefix never changes
    return Trajectory(session.ids, session.mask, session.logprobs, round(reward, 2))


if __name__ == "__main__":
    main()
