"""Say which turns of an encoded conversation are not trained as they should be, and why.

A turn should be trained from the model's first character to its stop, with everything that its message holds. Where
that is not so, training goes on silently and the model learns the wrong thing: to leave its reasoning out, or
never to stop. So each such turn is named, with the reason. What a policy leaves out on purpose is no problem, nor is a
message of weight 0. Prompts have no labels worth a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from turnwise.errors import MessageError, short_repr, warn_caller
from turnwise.tokens.boundaries import Turn, Untrained
from turnwise.tokens.encode import EncodeRequest
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.loss import STOP_POLICIES, TRAINED_FIELDS, weight_of

REMEDY = "Try `examples`: it trains each turn as it is written when it is the last"


def find_label_problems(request: EncodeRequest, encoded: Encoded) -> list[Untrained]:
    """Return the turns that are not trained, not whole, or without a stop; with the reasons, in order."""
    arguments, policy = request.arguments, request.train_on
    if arguments.get("add_generation_prompt") or arguments.get("continue_final_message"):
        return []
    if not isinstance(policy, str) or policy not in TRAINED_FIELDS:
        return []
    problems = [*encoded.untrained, *encoded.incomplete, *_find_flawed_turns(request, encoded)]
    if not problems:
        return []
    trained = [turn.message for turn in encoded.turns]
    last = max(trained + [problem.message for problem in problems])
    return sorted(
        problem
        for problem in problems
        if weight_of(request.messages, problem.message)
        and (policy != "last" or problem.message == last)
    )


def _find_flawed_turns(request: EncodeRequest, encoded: Encoded) -> Iterator[Untrained]:
    """Yield the turns that are trained, but not whole or without a stop."""
    cut = {turn.message for turn in encoded.incomplete}
    text, last_message = encoded.text, encoded.kept[-1] if encoded.kept else None
    for turn in encoded.turns:
        if turn.message in cut:
            continue
        is_last = turn.message == last_message
        reasons = list(_find_reasons(request, text, turn, is_last))
        if reasons:
            yield Untrained(turn.message, "; ".join(reasons), diverges=not is_last)


def _find_reasons(request: EncodeRequest, text: str, turn: Turn, is_last: bool) -> Iterator[str]:
    """Yield what is wrong with a turn under the policy of a request."""
    policy = str(request.train_on)
    missing = [name for name in turn.missing if name in TRAINED_FIELDS[policy]]
    if missing:
        yield f"the template does not write its {' and '.join(missing)}, or not all of it"
    stop = text[turn.stop : turn.end]
    if policy not in STOP_POLICIES or stop in request.stops:
        return
    if stop:
        yield f"it ends with {short_repr(stop)}, which is not one of the stops"
    elif not (is_last and request.final_stops is None):
        yield "no stop ends it"


def report_problems(
    name: str, problems: Sequence[Untrained], strict: bool, remedy: str = ""
) -> None:
    """Warn of turns that are not trained as they should be, with the remedy if it helps; `strict` raises an error."""
    if not problems:
        return
    listed = "; ".join(map(str, problems))
    if remedy and any(problem.diverges for problem in problems):
        listed += f". {remedy}"
    description = f"{name}: not every turn is trained as it should be: {listed}"
    if strict:
        raise MessageError(description, path=f"messages[{problems[0].message}]")
    warn_caller(description)
