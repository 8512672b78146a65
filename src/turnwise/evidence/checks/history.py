"""T4: a conversation that grows. History that is rewritten, turns that are not closed, the generation prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from jinja2 import nodes

from turnwise.analysis.conversations import LATER, MessageDict, Probe
from turnwise.analysis.growing_conversations import (
    KINDS,
    NEXT_RESULT,
    REPLY,
    Growth,
    distinct_growths,
)
from turnwise.analysis.markers import find_markers
from turnwise.analysis.probe_chats import (
    ARGUMENTS,
    ASKED_AGAIN,
    FOUND_NEXT,
    SAID,
    SAID_NEXT,
    THOUGHT,
    TOOLS,
)
from turnwise.engine.compiler.syntax import parse, unpack_position
from turnwise.engine.provenance.rendering import Origin, Rendering
from turnwise.evidence.checks.catalogue import Check
from turnwise.evidence.checks.findings import Place, Symptom
from turnwise.evidence.checks.subject import Subject
from turnwise.evidence.checks.symptoms import first_difference, show_from
from turnwise.evidence.prefix_stability import StabilityRow, StabilitySearch
from turnwise.messages import REASONING_KEYS
from turnwise.replies.input_format import IN_PARTS

CLOCK, PROMPT = "strftime_now", "add_generation_prompt"
NOT_SENT = (REPLY, NEXT_RESULT)  # T402 is about replies; between two results nobody asks a model
ROUNDS = 4  # of the conversation for which costs are told
SPACES = " \t"
REASONING_MARK = "<think"  # whether to reason is left to the model
TURNS = 4  # of the conversation from which markers are learned


def check_history(subject: Subject) -> Iterator[Symptom]:
    """A longer conversation changes what was written of its beginning.

    ## What it does
    Renders conversations before and after a message is appended, one for each sequence of messages that people send.
    What was written must be the beginning of what is written later: the question of `turnwise stability`, which asks it
    of four times as many conversations. The cost is what a server computes again in each turn of four rounds.

    ## Why it matters
    Servers keep the computed prefix of a prompt. A template that takes reasoning out of earlier turns, or moves the
    system text, makes them compute it again in every turn, and the model reads a history that it never produced.

    ## How to fix
    Write a message in the same way whatever follows it; offer an option that keeps reasoning. Train such a template
    with `template.examples`, which conditions every turn on what serving sends.
    """
    growths = [growth for growth in distinct_growths() if growth.kind not in NOT_SENT]
    causes: dict[Place | None, list[StabilityRow]] = {}
    for row in StabilitySearch(subject.renderer).measure(growths).rows:
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
            f"{what} changes what was written of earlier messages{_measure_cost(subject, witness.probe)}",
            fix,
            place,
            witness.probe,
            f"writes: {witness.rewrite.show_change()}",
        )


def _place_of_rewrite(subject: Subject, row: StabilityRow) -> Place | None:
    """Return the condition that decided, else what wrote the text before it changed."""
    assert row.witness is not None
    probe, rewrite = row.witness.probe, row.witness.rewrite
    if rewrite.decision is not None:
        name = subject.places.program_name(probe)
        return subject.places.by_position(rewrite.decision.line, rewrite.decision.column, name)
    return subject.places.at(Growth(row.kind, probe).shorter, rewrite.at)


def _committed_text(rendering: Rendering, message: int) -> str:
    """Return a rendering up to the end of the last field of a message: what follows may still change."""
    end = start = 0
    for piece in rendering.pieces:
        start += len(piece.text)
        path = piece.origin.path
        if path is not None and path[:2] == ("messages", message) and path[2:3] != ("role",):
            end = start
    return rendering.text[:end]


def _measure_cost(subject: Subject, probe: Probe) -> str:
    """Return in words what a server computes again in each turn: it has kept the prompt and the reply."""
    messages, tools = probe.messages, probe.tools
    head = [message for message in messages if message["role"] == "system"]
    body = [message for message in messages if message["role"] != "system"]
    if len(body) > 1 and body[-1]["role"] == body[0]["role"]:
        body = body[:-1]  # it is the first of the next round
    chat = body * ROUNDS
    replies = [n for n, message in enumerate(chat) if message["role"] == "assistant"]
    lost = []
    for end, following in zip(replies, replies[1:], strict=False):
        done = subject.chat(*head, *chat[: end + 1], tools=tools)
        outcome = subject.run(done)
        text = subject.text_of(subject.chat(*head, *chat[:following], tools=tools, prompt=True))
        if isinstance(outcome, Rendering) and text is not None:
            kept = _committed_text(outcome, len(done.messages) - 1)
            lost.append(kept[first_difference(kept, text) :])
    if not lost:
        return ""
    unit, counts = "characters", [len(text) for text in lost]
    if subject.tokenizer is not None:
        unit, counts = "tokens", [len(subject.tokenizer.whole(text)) for text in lost]
    mean = round(sum(counts) / len(counts))
    return f"; {mean} {unit} per turn are computed again in {ROUNDS} rounds" if mean else ""


def check_prompt_is_prefix(subject: Subject) -> Iterator[Symptom]:
    """The prompt that is served is not the beginning of the finished turn.

    ## What it does
    Renders a prompt, and the same conversation with a reply: a text, and a text with reasoning. One of them must begin
    with the prompt.

    ## Why it matters
    What is trained is then not what is served: the model never saw a reply behind this generation prompt. And every
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
    index = first_difference(text, prompt)
    asked = subject.chat(subject.user(), prompt=True)
    place = subject.places.at(asked, min(index, len(prompt) - 1), caller=True)
    outcome = subject.run(probe)
    if isinstance(outcome, Rendering) and _message_at(outcome, index) != len(probe.messages) - 1:
        # the turn before it is written otherwise, as soon as a reply follows
        place = subject.places.at(probe, index, caller=True)
    yield Symptom(
        f"the prompt ends with {show_from(prompt, len(prompt))}, and no finished turn begins so",
        "Open an assistant's turn in history as the generation prompt does.",
        place,
        probe,
        f"writes: {show_from(text, index)}",
    )


def _message_at(rendering: Rendering, index: int) -> int | None:
    """Return the message that was being written at a character."""
    start = 0
    for text, origin in rendering.pieces:
        start += len(text)
        if index < start:
            return origin.message
    return None


def _thoughtful_replies(subject: Subject) -> Iterator[MessageDict]:
    key = subject.input_format.reasoning
    if key != IN_PARTS:
        yield subject.reply(**{key if key in REASONING_KEYS else REASONING_KEYS[0]: THOUGHT})


def check_markers_balance(subject: Subject) -> Iterator[Symptom]:
    """A marker that opens a turn is not closed, or closed twice.

    ## What it does
    Learns from a plain conversation which marker opens turns and which closes them, and looks at conversations with
    calls, results, reasoning and further users: the two must alternate. Only what the template wrote counts.

    ## Why it matters
    A turn that is not closed runs into the next one; the model learns to go on where it should stop.

    ## How to fix
    Write the closing marker once in every branch that writes the opening one.
    """
    plain = subject.run(
        subject.chat(subject.user(), subject.reply(), subject.user(), subject.reply())
    )
    if not isinstance(plain, Rendering):
        return
    stops = set(subject.facts.stops_for(subject.tokens))
    pairs = _learn_pairs(_marker_sequence(plain), stops)
    seen: set[Place | None] = set()
    for probe in _marker_chats(subject) if pairs else ():
        outcome = subject.run(probe)
        sequence = _marker_sequence(outcome) if isinstance(outcome, Rendering) else []
        for opening, closing in pairs if sequence else ():
            text = subject.text_of(probe) or ""
            index = _first_imbalance(sequence, (opening, closing), stops, len(text))
            place = (
                subject.places.at(probe, min(index, len(text) - 1)) if index is not None else None
            )
            if index is None or place in seen:
                continue
            seen.add(place)
            yield Symptom(
                f"the markers {opening} and {closing} do not alternate",
                "Write the closing marker once in every branch that writes the opening one.",
                place,
                probe,
                f"writes: {show_from(text, index)}",
            )


def _marker_chats(subject: Subject) -> Iterator[Probe]:
    user, again, reply = subject.user(), subject.user(ASKED_AGAIN), subject.reply()
    yield subject.chat(user, again, reply)
    yield subject.chat(user, reply, user, reply)
    system = [subject.system()] if subject.takes_system else []
    yield subject.chat(*system, user, reply, again)
    yield from (subject.chat(user, one, again) for one in _thoughtful_replies(subject))
    if subject.takes_calls:
        call, result = subject.call(), subject.result()
        both = subject.call(*ARGUMENTS)
        beside = subject.call(content=SAID_NEXT)
        results = [result, subject.result(FOUND_NEXT, 1)]
        for chat in (
            [user, call, result, reply],
            [user, call, result],
            [*system, user, beside, result, reply, again],
            [user, both, *results, reply],
            [user, call, result, call, result, reply],
            [user, call, result, again],
        ):
            yield subject.chat(*chat, tools=TOOLS)


def _marker_sequence(rendering: Rendering) -> list[tuple[str, int]]:
    """Return the markers that the template wrote, with their places in the text."""
    own = {marker.text for marker in find_markers(rendering)}
    fields = rendering.spans(
        lambda origin: origin.path is not None and origin.path[-1] != "role" and not origin.key
    )
    found = []
    for marker in own:
        for match in re.finditer(re.escape(marker), rendering.text):
            if not any(start <= match.start() < end for start, end in fields):
                found.append((marker, match.start()))
    return sorted(found, key=lambda one: one[1])


def _learn_pairs(sequence: list[tuple[str, int]], stops: set[str]) -> list[tuple[str, str]]:
    """Return the pair of markers that open and close each of four turns, or more; a stop closes."""
    names = [name for name, _ in sequence]
    known = list(dict.fromkeys(names))
    for opening in known:
        for closing in known[known.index(opening) + 1 :]:
            order = [name for name in names if name in (opening, closing)]
            # a text of the template before the first turn may be what is wrong
            turns = order[len(order) % 2 :]
            is_pair = turns == [opening, closing] * (len(turns) // 2)
            if is_pair and len(turns) >= 2 * TURNS and closing in stops:
                return [(opening, closing)]
    return []


def _first_imbalance(
    sequence: list[tuple[str, int]], pair: tuple[str, str], stops: set[str], end: int
) -> int | None:
    """Return where a turn is opened while one is open, or closed while none is; None if that never happens.

    Another stop may end a turn (`<|eom_id|>`) or only a part of it: behind one, both markers are fine.
    """
    opening, closing = pair
    is_open: bool | None = False  # None: not known
    for name, index in sequence:
        if name == opening:
            if is_open:
                return max(index - 1, 0)  # what was written last should have closed it
            is_open = True
        elif name == closing:
            if is_open is False:
                return index
            is_open = False
        elif name in stops and is_open:
            is_open = None
    return end if is_open else None


def check_last_turn(subject: Subject) -> Iterator[Symptom]:
    """The reply that ends a conversation is not closed by a stop token.

    ## What it does
    Renders a conversation that ends with a reply, and looks for a stop behind it.

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
    tail = outcome.text[len(_committed_text(outcome, last)) :]
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


def check_clock(subject: Subject) -> Iterator[Symptom]:
    """The prompt depends on the day.

    ## What it does
    Renders the same conversation at two times, without tools and with them.

    ## Why it matters
    The prefix that servers keep is lost at midnight, and a test that compares prompts fails tomorrow. A model that was
    trained with a date may need it.

    ## How to fix
    Take the date as an option, so that the caller decides.
    """
    for probe in (subject.plain, *([subject.tool_round()] if subject.tools else [])):
        later = replace(probe, now=LATER)
        text, other = subject.text_of(probe), subject.text_of(later)
        if text is not None and other is not None and text != other:
            break
    else:
        return
    index = first_difference(other, text)
    program = subject.renderer.program
    names = parse(program.text, program.name).find_all(nodes.Name)
    asked = [name.lineno for name in names if name.name == CLOCK]
    place = subject.places.by_position(*unpack_position(asked[0])) if len(asked) == 1 else None
    yield Symptom(
        "the prompt depends on the time at which it is rendered",
        "Take the date as an option.",
        place or subject.places.at(later, index),
        subject.smallest(later, lambda one: _depends_on_time(subject, one)),
        f"writes: {show_from(other, index)}",
    )


def _depends_on_time(subject: Subject, probe: Probe) -> bool:
    texts = [subject.text_of(replace(probe, now=now)) for now in (LATER, Probe("", []).now)]
    return None not in texts and texts[0] != texts[1]


def check_generation_prompt(subject: Subject) -> Iterator[Symptom]:
    """The generation prompt is not the whole opening of an assistant's turn.

    ## What it does
    Compares a prompt with finished turns, with tools and without: the opening that all of them share up to the first
    character of a reply must be at the end of the prompt already, newline included. A space before the reply is left to
    the model, whose tokens begin with it.

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
        is_prompt = bool(written) or not subject.facts.generation_prompt
        if not missing.strip(SPACES) or REASONING_MARK in missing or not is_prompt:
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
            f"writes: {show_from(prompt, len(prompt))}",
        )
        return
    yield from _find_missing_prompts(subject)


def _find_missing_prompts(subject: Subject) -> Iterator[Symptom]:
    """Yield a symptom if a longer conversation has no generation prompt at its end, and a short one has."""
    user, reply = subject.user(), subject.reply()
    chats = [[user, reply, subject.user(ASKED_AGAIN)]]
    chats += [[user, subject.call(), subject.result()]] if subject.takes_calls else []
    chats += [[subject.system()]] if subject.takes_system else []
    texts = [subject.text_of(subject.chat(user, prompt=asked)) for asked in (False, True)]
    for chat in chats if texts[0] != texts[1] else ():
        tools = subject.tools if len(chat) > 1 and chat[1] != reply else None
        asked = subject.chat(*chat, tools=tools, prompt=True)
        prompt = subject.text_of(asked)
        closed = subject.text_of(replace(asked, add_generation_prompt=False))
        finished = subject.text_of(subject.chat(*chat, reply, tools=tools))
        if closed is None or prompt is None or finished is None:
            continue
        opening, said, _ = finished[len(closed) :].partition(SAID)
        is_opened = finished.startswith(closed) and said and any(map(str.isalpha, opening))
        if is_opened and (prompt == closed or not prompt.startswith(closed)):
            what = "is missing" if prompt == closed else "is not at the end"
            yield Symptom(
                f"after a message of the role {chat[-1]['role']}, the generation prompt {what}",
                "End with `{% if add_generation_prompt %}`, whatever the last message is.",
                subject.places.of_variable(PROMPT),
                asked,
                f"writes: {show_from(prompt, len(prompt))}",
                "note" if chat[-1]["role"] == "system" else None,
            )
            return


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
    probe, opening = min(openings, key=lambda one: len(one[1]), default=(subject.plain, ""))
    is_shared = bool(opening) and all(text.startswith(opening) for text in texts)
    return probe, opening if is_shared else ""


def _is_text_of(message: int, origin: Origin) -> bool:
    path = origin.path
    return path is not None and path[:2] == ("messages", message) and path[2:3] != ("role",)


def check_trailing_space(subject: Subject) -> Iterator[Symptom]:
    """The generation prompt ends with a space.

    ## What it does
    Looks at the last character of a prompt.

    ## Why it matters
    Most tokenizers put the space before a word into its token. Behind a prompt that ends with a space the model has to
    begin with a word without one, which it rarely saw.

    ## How to fix
    Leave the space out of the generation prompt, and out of the opening of finished turns.
    """
    probe = subject.chat(subject.user(), prompt=True)
    text = subject.text_of(probe)
    if text and text[-1] in SPACES and subject.facts.generation_prompt[-1:] in SPACES:
        yield Symptom(
            "the generation prompt ends with a space",
            "Leave the space out.",
            subject.places.at(probe, len(text) - 1),
            probe,
            f"writes: {show_from(text, len(text))}",
        )


CHECKS = (
    Check("T401", "history-rewritten", "note", check_history),
    Check("T402", "prompt-not-prefix", "error", check_prompt_is_prefix, sent_by="training"),
    Check("T403", "unbalanced-markers", "error", check_markers_balance),
    Check("T404", "last-turn-open", "error", check_last_turn, sent_by="training"),
    Check("T406", "clock", "note", check_clock),
    Check("T407", "generation-prompt", "error", check_generation_prompt),
    Check("T408", "trailing-space", "note", check_trailing_space),
)
