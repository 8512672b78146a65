"""T4: a conversation that grows. History that is rewritten, turns that are not closed, the generation prompt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from turnwise.analysis.conversations import LATER, MessageDict, Probe
from turnwise.analysis.growing_conversations import (
    KINDS,
    NEXT_RESULT,
    REPLY,
    Growth,
    distinct_growths,
)
from turnwise.analysis.probe_chats import (
    ASKED_AGAIN,
    SAID,
    THOUGHT,
)
from turnwise.analysis.profiles import SEVERITIES
from turnwise.analysis.rewrites import common_length
from turnwise.engine.provenance.rendering import Origin, Rendering
from turnwise.evidence.checks.catalogue import Check
from turnwise.evidence.checks.findings import Place, Symptom, Symptoms
from turnwise.evidence.checks.subject import Subject
from turnwise.evidence.checks.symptoms import show_from, show_written
from turnwise.evidence.prefix_stability import StabilityRow, StabilitySearch
from turnwise.messages import REASONING_KEYS
from turnwise.replies.input_format import IN_PARTS

CLOCK, PROMPT = "strftime_now", "add_generation_prompt"
NOT_SENT = (REPLY, NEXT_RESULT)  # T402 is about replies; between two results nobody asks a model
SPACES = " \t"
REASONING_MARK = "<think"  # whether to reason is left to the model


def check_history(subject: Subject) -> Symptoms:
    """A longer conversation changes what was written of its beginning.

    ## What it does
    Renders conversations before and after a message is appended, one for each sequence of messages that people send.
    What was written of the messages must be the beginning of what is written later: the question of `turnwise
    stability`, which asks it of four times as many conversations. Text after the last message is the matter of T407.

    ## Why it matters
    Servers keep the computed prefix of a prompt. A template that takes reasoning out of earlier turns, or moves the
    system text, makes them compute it again in every turn, and the model reads a history that it never produced.

    ## How to fix
    Write a message in the same way whatever follows it; offer an option that keeps reasoning. Train such a template
    with `template.examples`, which conditions every turn on what serving sends.
    """
    proved = "assistant" if subject.facts.appends else None  # what comes after it changes nothing
    growths = [
        growth
        for growth in distinct_growths()
        if growth.kind not in NOT_SENT
        and {one["role"] for one in growth.probe.messages[:-1]} != {"system"}  # rules alone
        and growth.probe.messages[-2]["role"] != proved
    ]
    causes: dict[Place | None, list[StabilityRow]] = {}
    for row in StabilitySearch(subject.renderer, _keeps_messages).measure(growths).rows:
        if row.witness is not None:
            causes.setdefault(_place_of_rewrite(subject, row), []).append(row)
    for place, rows in causes.items():
        witness = rows[0].witness
        assert witness is not None
        what = " or ".join(KINDS[row.kind] for row in rows)
        options = dict.fromkeys(
            f"{name}={value!r}" for row in rows for name, value in row.stable_with
        )
        fix = "Write a message in the same way whatever follows it."
        if options:
            fix = f"Render with {' or '.join(options)}, which keeps history as it was; or: {fix}"
        yield Symptom(
            f"{what} changes what was written of earlier messages",
            fix,
            place,
            witness.probe,
            f"writes: {witness.rewrite.show_change()}",
        )


def _keeps_messages(before: Rendering, after: Rendering) -> bool:
    """Whether a longer rendering begins with the messages of a shorter one; what follows these is no part of them."""
    return after.text.startswith(before.text) or after.text.startswith(
        before.text[: _find_tail(before)]
    )


def _find_tail(rendering: Rendering) -> int:
    """Return the end of the last message."""
    spans = rendering.spans(lambda origin: origin.message is not None)
    return spans[-1][1] if spans else len(rendering.text)


def _place_of_rewrite(subject: Subject, row: StabilityRow) -> Place | None:
    """Return the condition that decided, else what wrote the text before it changed."""
    assert row.witness is not None
    probe, rewrite = row.witness.probe, row.witness.rewrite
    if rewrite.decision is not None:
        name = subject.places.program_name(probe)
        return subject.places.by_position(rewrite.decision.line, rewrite.decision.column, name)
    return subject.places.at(Growth(row.kind, probe).shorter, rewrite.at)


def check_prompt_is_prefix(subject: Subject) -> Symptoms:
    """The prompt that is served is not the beginning of the finished turn.

    ## What it does
    Renders a prompt, and the same conversation with a reply: a text, and a text with reasoning. One of them must begin
    with the prompt.

    ## Why it matters
    What is trained is then not what is served: the model never saw a reply after this generation prompt. And every
    turn makes the server compute the end of the last one again.

    ## How to fix
    Open an assistant's turn in history as the generation prompt does, with what the prompt prefills (`<think>`).
    """
    prompt = subject.text_of(subject.chat(subject.user(), prompt=True))
    replies = [subject.reply(), *_thoughtful_replies(subject)]
    finished = [subject.chat(subject.user(), reply) for reply in replies]
    texts = [text for text in map(subject.text_of, finished) if text is not None]
    if prompt is None or not texts or any(text.startswith(prompt) for text in texts):
        return
    probe = finished[0] if subject.text_of(finished[0]) is not None else finished[-1]
    text = subject.text_of(probe) or ""
    index = common_length(text, prompt)
    asked = subject.chat(subject.user(), prompt=True)
    place = subject.places.at(asked, min(index, len(prompt) - 1), caller=True)
    outcome = subject.run(probe)
    is_before = isinstance(outcome, Rendering) and not any(
        start <= index < end for start, end in outcome.spans(message=len(probe.messages) - 1)
    )
    opening = subject.facts.generation_prompt
    is_usual = "assistant" in opening and opening.replace("assistant", "user") in text
    if is_before or is_usual:
        # the turn before it is written otherwise, as soon as a reply follows; or the prompt opens as other turns do
        place = subject.places.at(probe, index, caller=True)
    yield Symptom(
        f"the prompt ends with {show_from(prompt, len(prompt))}, and no finished turn begins so",
        "Open an assistant's turn in history as the generation prompt does.",
        place,
        probe,
        show_written(text, index),
    )


def _thoughtful_replies(subject: Subject) -> Iterator[MessageDict]:
    key = subject.input_format.reasoning
    if key != IN_PARTS:
        yield subject.reply(**{key if key in REASONING_KEYS else REASONING_KEYS[0]: THOUGHT})


def check_last_turn(subject: Subject) -> Symptoms:
    """The reply that ends a conversation is not closed by a stop token.

    ## What it does
    Renders a conversation that ends with a reply, and looks for a stop after it.

    ## Why it matters
    Data of one round each then never trains a stop, and the tuned model does not end its replies.

    ## How to fix
    Write the stop token after every reply, also after the last. turnwise adds it to samples by itself (`add_stop`).
    """
    probe = subject.chat(subject.user(), subject.reply())
    outcome = subject.run(probe)
    stops = subject.facts.stops_for(subject.tokens)
    if not isinstance(outcome, Rendering) or not stops or subject.lost(probe):
        return
    last = len(probe.messages) - 1
    written = outcome.spans(partial(_is_text_of, last))
    tail = outcome.text[written[-1][1] if written else 0 :]
    tokens = {**subject.renderer.options, **subject.tokens}
    bos = tokens.get("bos_token")
    if bos and bos != tokens.get("eos_token") and tail.lstrip().startswith(bos):
        yield Symptom(
            f"a reply ends with {bos}, the token that begins a text",
            "Write the stop token after every reply.",
            subject.places.of_field(probe, "messages", last, "content", caller=True),
            probe,
        )
    if any(stop in tail for stop in stops):
        return
    yield Symptom(
        f"the last reply ends with {tail!r}, without any of the stops {', '.join(stops[:3])}",
        "Write the stop token after every reply, also after the last.",
        subject.places.of_field(probe, "messages", last, "content", caller=True),
        probe,
    )


def check_clock(subject: Subject) -> Symptoms:
    """The prompt depends on the day.

    ## What it does
    Renders the same conversation at two times, without tools and with them.

    ## Why it matters
    The prefix that servers keep is lost at midnight, and a test that compares prompts fails tomorrow. A model that was
    trained with a date may need it.

    ## How to fix
    Take the date as an option, so that the caller decides.
    """
    for tools in (None, subject.tools):
        probe = subject.chat(subject.user(), tools=tools)
        later = replace(probe, now=LATER)
        text, other = subject.text_of(probe), subject.text_of(later)
        if text is not None and other is not None and text != other:
            break
    else:
        return
    index = common_length(other, text)
    yield Symptom(
        "the prompt depends on the time at which it is rendered",
        "Take the date as an option.",
        subject.places.of_variable(CLOCK) or subject.places.at(later, index),
        later,
        show_written(other, index),
    )


def check_generation_prompt(subject: Subject) -> Symptoms:
    """The generation prompt is not the whole opening of an assistant's turn, or is written without being asked for.

    ## What it does
    Compares a prompt with finished turns, with tools and without: the opening that all of them share up to the first
    character of a reply must be at the end of the prompt already, newline included. A space before the reply is left to
    the model, whose tokens begin with it. After the last reply of a finished conversation, nothing may follow: no
    generation prompt (a warning), and no end of text that is gone once messages are appended (a note).

    ## Why it matters
    A model that is served without the opening of its turn has to write it itself; often it writes another turn of the
    user.

    ## How to fix
    End with `{%- if add_generation_prompt %}` and the text that opens an assistant's turn.
    """
    user, calls = subject.user(), subject.takes_calls
    chats = [([user], None), ([user], subject.tools)][: 1 + calls]
    for messages, tools in chats:
        asked = subject.chat(*messages, tools=tools, prompt=True)
        closed, prompt = (
            subject.text_of(replace(asked, add_generation_prompt=False)),
            subject.text_of(asked),
        )
        if closed is None or prompt is None or not prompt.startswith(closed):
            continue
        probe, opening = _find_shared_opening(subject, closed, tools)
        written = prompt[len(closed) :]
        missing = opening[len(written) :] if opening.startswith(written) else ""
        missing, reasons, _ = missing.partition(REASONING_MARK)
        is_prompt = bool(written) or not subject.facts.generation_prompt
        if not missing.strip(None if reasons else SPACES) or not is_prompt:
            continue
        what = f"ends with {written!r}" if written else "adds nothing"
        place = subject.places.at(asked, len(prompt) - 1, caller=True)
        if not written:
            found = subject.places.at(probe, len(closed + opening) - len(opening.lstrip()))
            place = subject.places.of_variable(PROMPT) or found
        yield Symptom(
            f"the generation prompt {what}, and every reply begins after {opening!r}",
            "End with `{% if add_generation_prompt %}` and the whole text that opens an assistant's turn.",
            place,
            asked,
            show_written(prompt, len(prompt)),
            None if missing.strip() else "warning",
        )
        return
    yield from _find_missing_prompts(subject)
    yield from _find_tails(subject)


def _find_tails(subject: Subject) -> Symptoms:
    """Yield a symptom if something is written after the last reply of a finished conversation."""
    probe = subject.chat(subject.user(), subject.reply())
    outcome, closed = subject.run(probe), subject.text_of(subject.chat(subject.user())) or ""
    if not isinstance(outcome, Rendering):
        return
    start = _find_tail(outcome)
    tail = outcome.text[start:].strip()
    if not tail:
        return
    what = "an end of text is written at the end of a conversation without a generation prompt"
    fix, severity = "Write it after every reply, or not at all.", SEVERITIES[2]
    if closed.rstrip().endswith(tail) and outcome.text.startswith(closed):
        what = "the generation prompt is written also without add_generation_prompt"
        severity = SEVERITIES[1]
        fix = "Write it inside of `{% if add_generation_prompt %}`."
    yield Symptom(
        f"{what}: {tail!r}",
        fix,
        subject.places.at(probe, start),
        probe,
        show_written(outcome.text, start),
        severity,
    )


def _find_missing_prompts(subject: Subject) -> Symptoms:
    """Yield a symptom if a longer conversation has no generation prompt at its end, and a short one has."""
    texts = {subject.text_of(subject.chat(subject.user(), prompt=asked)) for asked in (False, True)}
    for chat, tools in _list_prompted_chats(subject) if len(texts) > 1 else ():
        asked = subject.chat(*chat, tools=tools, prompt=True)
        prompt = subject.text_of(asked)
        closed = subject.text_of(replace(asked, add_generation_prompt=False))
        finished = subject.text_of(subject.chat(*chat, subject.reply(), tools=tools)) or ""
        if closed is None or prompt is None or not finished.startswith(closed):
            continue
        opening, said, _ = finished[len(closed) :].partition(SAID)
        is_lost = prompt == closed or not prompt.startswith(closed)
        if is_lost and said and any(map(str.isalpha, opening)):
            what = "is missing" if prompt == closed else "is not at the end"
            yield Symptom(
                f"after a message of the role {chat[-1]['role']}, the generation prompt {what}",
                "End with `{% if add_generation_prompt %}`, whatever the last message is.",
                subject.places.of_variable(PROMPT),
                asked,
                show_written(prompt, len(prompt)),
            )
            return


def _list_prompted_chats(subject: Subject) -> Iterator[tuple[list[MessageDict], list[Any] | None]]:
    """Yield messages after which a model is asked, with their tools."""
    user = subject.user()
    yield [*[user, subject.reply()] * 3, user], None
    if subject.takes_calls:
        yield [user, subject.call(), subject.result()], subject.tools


def _find_shared_opening(
    subject: Subject, closed: str, tools: list[Any] | None
) -> tuple[Probe, str]:
    """Return the opening of a reply that all finished turns share, and the conversation with that reply.

    It is empty if the openings differ, as those of a reply with reasoning and of one without may do.
    """
    user, again = subject.user(), subject.user(ASKED_AGAIN)
    turns = [[subject.reply()], [subject.reply(), again]]
    turns += [[reply] for reply in _thoughtful_replies(subject)]
    turns += [[subject.call()]] if subject.takes_calls else []
    openings, texts = [], []
    for turn in turns:
        probe = subject.chat(user, *turn, tools=tools)
        outcome = subject.run(probe)
        if not isinstance(outcome, Rendering) or not outcome.text.startswith(closed):
            return probe, ""
        index = len(probe.messages) - len(turn)
        spans = outcome.spans(partial(_is_text_of, index))
        if spans:
            openings.append((probe, outcome.text[len(closed) : spans[0][0]]))
        texts.append(outcome.text[len(closed) :])
    probe, opening = min(openings, key=lambda one: len(one[1]), default=(probe, ""))
    is_shared = bool(opening) and all(text.startswith(opening) for text in texts)
    return probe, opening if is_shared else ""


def _is_text_of(message: int, origin: Origin) -> bool:
    path = origin.path
    return path is not None and path[:2] == ("messages", message) and path[2:3] != ("role",)


CHECKS = (
    Check("T401", "history-rewritten", "note", check_history),
    Check("T402", "prompt-not-prefix", "error", check_prompt_is_prefix, sent_by="training"),
    Check("T404", "last-turn-open", "error", check_last_turn, sent_by="training"),
    Check("T406", "clock", "note", check_clock),
    Check("T407", "generation-prompt", "error", check_generation_prompt),
)
