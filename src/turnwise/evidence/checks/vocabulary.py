"""T5: control tokens. Stops that nobody wrote or nobody knows, a doubled bos token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from turnwise.analysis.conversations import Probe
from turnwise.analysis.probe_chats import ASKED_AGAIN
from turnwise.analysis.stops import CONTROL_TOKEN
from turnwise.engine.provenance.rendering import Rendering
from turnwise.evidence.checks.catalogue import Check
from turnwise.evidence.checks.findings import Place, Symptom, Symptoms
from turnwise.evidence.checks.frames import list_frames
from turnwise.evidence.checks.subject import Subject
from turnwise.evidence.checks.symptoms import show_written
from turnwise.evidence.checks.whole_texts import list_renderings
from turnwise.tokens.markers import tokenize_markers
from turnwise.tokens.stop_ids import find_token_id

BOS = "bos_token"
MAX_NAMED = 3  # tokens that a sentence lists


def check_stop_written(subject: Subject) -> Symptoms:
    """Nothing ends a reply.

    ## What it does
    Looks for a control token after the replies of a conversation. A template whose user turns are closed by a token of
    their own must close replies, too; others may end a reply by opening the next turn.

    ## Why it matters
    A model that is trained with such a template does not learn to stop, and a server does not know where a reply ends.

    ## How to fix
    Write a stop token after every reply: `{{ message.content + eos_token }}`.
    """
    probe = subject.chat(subject.user(), subject.reply(), subject.user(ASKED_AGAIN))
    reply = len(probe.messages) - 2
    outcome = subject.run(probe)
    frames = list_frames(probe, outcome) if isinstance(outcome, Rendering) else ()
    closed = {frame.message for frame in frames if CONTROL_TOKEN.search(frame.closing)}
    if not subject.facts.lacks_stop(subject.tokens) and (
        reply in closed or reply - 1 not in closed
    ):
        return
    place = subject.places.of_field(probe, "messages", reply, "content", caller=True)
    fix = "Write a stop token after every reply."
    yield Symptom("no control token follows a reply", fix, place, probe)


def check_stop_declared(subject: Subject) -> Symptoms:
    """The token that ends replies is not among the stops that the model's files declare.

    ## What it does
    Compares what the template writes after a reply with the `eos_token_id` of `generation_config.json`, or with the
    stops of a registry entry.

    ## Why it matters
    The server generates on after the end of the reply, until the length is used up.

    ## How to fix
    Add the token to `eos_token_id`, which may be a list.
    """
    facts = subject.facts
    named = subject.tokenizer.named if subject.tokenizer is not None else {}
    written = [stop for stop in facts.derived_stops if CONTROL_TOKEN.fullmatch(stop)]
    declared = facts.declared_stops
    if not declared or not facts.reply_stops or not written:
        return
    known = (*declared, *named.values(), *subject.renderer.options.values())
    missing = [stop for stop in facts.reply_stops if "unnamed:" not in stop and stop not in known]
    if len(missing) == len(facts.reply_stops):
        probe = subject.chat(subject.user(), subject.reply())
        yield Symptom(
            f"replies end with {missing[0]}, and the declared stops are {', '.join(declared)}",
            "Add the token to eos_token_id of generation_config.json.",
            _find_last(subject, probe, missing[0]),
            probe,
        )


def check_stop_is_token(subject: Subject) -> Symptoms:
    """The stop is not one token of the tokenizer.

    ## What it does
    Asks the tokenizer for the ids of what the template writes after a reply. Needs a tokenizer.

    ## Why it matters
    Servers stop at ids. A stop that is several tokens is found in text, too late or never, and was not trained as one.

    ## How to fix
    Add the stop to the vocabulary and train it, or use a token that is there.
    """
    tokenizer = subject.tokenizer
    if tokenizer is None:
        return
    stops = subject.facts.stops_for(tokenizer.named)
    wrong = [stop for stop in stops if find_token_id(stop, tokenizer) is None]
    written = [stop for stop in wrong if stop in subject.facts.stops_as_written]
    for stop in written[:1]:
        probe = subject.chat(subject.user(), subject.reply())
        yield Symptom(
            f"the stop {stop} is {len(tokenizer.whole(stop))} tokens of {tokenizer.name}",
            "Add it to the vocabulary as a special token and train it, or write a token that is there.",
            _find_last(subject, probe, stop),
            probe,
        )


def _find_last(subject: Subject, probe: Probe, text: str) -> Place | None:
    """Return the place that wrote a text the last time."""
    index = (subject.text_of(probe) or "").rfind(text)
    return subject.places.at(probe, index) if index >= 0 else None


def check_markers_are_tokens(subject: Subject) -> Symptoms:
    """A marker of the template is not one token of the tokenizer.

    ## What it does
    Asks the tokenizer for the ids of every marker that the template writes around messages. Needs a tokenizer.

    ## Why it matters
    The model was not trained with this marker: mostly the template belongs to another model.

    ## How to fix
    Take the template of the model, or add the markers to the vocabulary and train them.
    """
    if subject.tokenizer is None:
        return
    found = tokenize_markers(subject.facts, subject.tokenizer)
    missing = [marker.text for marker in found if marker.missing and not marker.stop]
    if missing:
        place = next(
            (
                subject.places.by_position(marker.origin.line, marker.origin.column or 1)
                for marker in subject.facts.markers_for(subject.tokenizer.named)
                if marker.text == missing[0] and marker.origin.line
            ),
            None,
        )
        yield Symptom(
            f"not one token of {subject.tokenizer.name}: {', '.join(missing[:MAX_NAMED])}",
            "Take the template of the model, or add the markers to the vocabulary and train them.",
            place,
        )


def check_double_bos(subject: Subject) -> Symptoms:
    """The bos token is written twice at the beginning.

    ## What it does
    Renders a conversation and looks at its first characters.

    ## Why it matters
    A model never saw two bos tokens, and answers worse. Tokenizers that add one themselves add a third.

    ## How to fix
    Write the bos token once, before the loop over messages.
    """
    bos: Any = subject.renderer.options.get(BOS) or subject.tokens.get(BOS)
    for probe, rendering in list_renderings(subject) if isinstance(bos, str) and bos else ():
        if rendering.text.startswith(bos + bos):
            yield Symptom(
                "the bos token is written twice at the beginning",
                "Write it once, before the loop over messages.",
                subject.places.at(probe, len(bos)),
                replace(probe, messages=probe.messages[:2]),
                show_written(rendering.text, 0),
            )
            return


CHECKS = (
    Check("T501", "no-stop", "error", check_stop_written, sent_by="training"),
    Check("T502", "stop-not-declared", "error", check_stop_declared),
    Check("T503", "stop-not-a-token", "error", check_stop_is_token),
    Check("T504", "markers-not-tokens", "warning", check_markers_are_tokens),
    Check("T505", "double-bos", "error", check_double_bos),
)
