"""Grammars in transformers' words: its own parser reads with them what the writer writes, for the whole corpus."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

import corpus
import reply_vectors as replyvectors
import turnwise
from corpus import needs_corpus
from loaded import load_entry
from parsing import parse
from reply_grammars import EXAMPLES, GRAMMARS, Example
from reply_messages import MESSAGES, TOOLS
from turnwise.replies.grammar import Grammar
from turnwise.replies.parser.prefill import assistant_header
from turnwise.replies.write import write

SAID = 230  # of the corpus' templates, at least
AGREED = 0.9  # of the vectors with calls that we read without a tolerance, where all ways of calls can be exported
HELLO = [{"role": "user", "content": "Hi"}]
REASONS = (
    "a call begins without a marker",
    "arguments are Python literals",
    "the name of a call is the key of its arguments",
    "the name of a call is part of its id",
    "calls are written in more than one way",
    "a list of calls begins without a marker",
    "a call is a bare text",
    "content ends with a marker and begins without one",
)


@cache
def theirs() -> Any:
    return pytest.importorskip("transformers.utils.chat_parsing")


def essence(message: Any) -> dict[str, Any]:
    """What a message says: no empty fields, no ids, arguments as data."""
    found = {key: message[key] for key in ("content", "reasoning_content") if message.get(key)}
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    calls = [(one["name"], as_data(one["arguments"])) for one in functions]
    return found | ({"calls": calls} if calls else {})


def as_data(arguments: Any) -> Any:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


def export_or_none(grammar: Grammar) -> dict[str, Any] | None:
    """The export, or None with a reason that is known."""
    try:
        return grammar.to_response_template(partly=True)
    except turnwise.TurnwiseError as error:
        assert any(reason in error.message for reason in REASONS), error.message
        return None


def fits(grammar: Grammar, message: dict[str, Any]) -> bool:
    if "tool_calls" in message and grammar.calls is None:
        return False
    return "reasoning_content" not in message or grammar.reasoning is not None


@pytest.mark.law
@needs_corpus
@pytest.mark.parametrize("name", corpus.load_published())
def test_transformers_reads_what_we_write(name: str) -> None:
    template = replyvectors.template(name)
    grammar = template.grammar
    exported = export_or_none(grammar)
    if exported is None:
        pytest.skip("cannot be exported")  # for one of REASONS: `export_or_none` checks that
    for label, message in MESSAGES.items():
        tools = TOOLS if "tool_calls" in message else None
        try:
            prompt = str(
                template.render(HELLO, tools=tools, add_generation_prompt=True, now=corpus.NOW)
            )
        except turnwise.TurnwiseError:
            continue
        if not fits(grammar, message):
            continue
        reply = write(grammar, message, prompt)
        expected = essence(message)
        if prompt.rstrip().endswith(closers(grammar)):
            expected.pop("reasoning_content", None)
        found = essence(theirs().parse_response(reply, exported, prefix=prompt, tools=TOOLS))
        assert found == expected, (label, reply)


def closers(grammar: Grammar) -> tuple[str, ...]:
    """With these a prompt says that there shall be no reasoning: its end, or the beginning of content."""
    ended = grammar.reasoning.close.core if grammar.reasoning is not None else ""
    return tuple(filter(None, (ended, grammar.content.open.core)))


@pytest.mark.law
@needs_corpus
def test_most_can_be_exported() -> None:
    assert (
        sum(
            export_or_none(replyvectors.grammar(name)) is not None
            for name in corpus.load_published()
        )
        >= SAID
    )


@pytest.mark.law(6)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.grammar)
def test_grammars_written_by_hand(example: Example) -> None:
    grammar = GRAMMARS[example.grammar]
    exported = export_or_none(grammar)
    if exported is None:
        pytest.skip("cannot be exported")  # for one of REASONS: `export_or_none` checks that
    ours = parse(grammar, example.reply, grammar.opening, TOOLS)
    strict = parse(grammar, example.reply, grammar.opening, TOOLS, tolerances=frozenset())
    if essence(strict) != essence(ours):
        pytest.skip(
            "a tolerance, which is ours alone"
        )  # without it we do not read the example either
    found = theirs().parse_response(example.reply, exported, prefix=grammar.opening, tools=TOOLS)
    assert essence(found) == essence(ours)


@pytest.mark.law
@needs_corpus
def test_parser_vectors(sample: Any) -> None:
    """Where both can be asked, transformers mostly says what we say."""
    asked, failed = 0, []
    rows = list(replyvectors.rows())
    taken = sample(rows, 100)
    for row in taken:
        name = replyvectors.template_name(row)
        exported = export_or_none(replyvectors.grammar(name)) if name else None
        settings = row["reasoning"] or {}
        if (
            name is None
            or exported is None
            or replyvectors.grammar(name).more
            or settings.get("reasoning_format") == "none"
        ):
            continue
        tool = row.get("layer") == "tool"  # its parser is called where the reasoning is over
        prompt = (
            assistant_header(replyvectors.grammar(name))
            if tool
            else replyvectors.render_row(row, name)
        )
        ours = replyvectors.template(name).parse(row["input"], prompt, row.get("tools"))
        strict = parse(
            replyvectors.grammar(name),
            row["input"],
            prompt,
            row.get("tools"),
            tolerances=frozenset(),
        )
        if essence(strict) != essence(ours):
            continue  # what is forgiven is ours alone
        if (
            not prompt
            or not ours.get("tool_calls")
            or any(one.status != "complete" for one in ours.attempts)
        ):
            continue
        asked += 1
        try:
            answer = theirs().parse_response(
                row["input"], exported, prefix=str(prompt), tools=row.get("tools")
            )
        except ValueError:
            answer = {}
        if essence(answer).get("calls") != essence(ours).get("calls"):
            failed.append(row["id"])
    assert asked > 30 or len(taken) < len(rows)
    assert len(failed) <= max(1, (1 - AGREED) * asked), (asked, failed)


def test_a_chunk_at_a_time() -> None:
    template = load_entry("qwen3")
    prompt = str(template.render(HELLO, add_generation_prompt=True))
    reply = write(template.grammar, MESSAGES["reasoning and call"], prompt)
    parser = theirs().ResponseParser(
        template.grammar.to_response_template(), prefix=prompt, tools=TOOLS
    )
    for letter in reply:
        parser.feed(letter)
    assert essence(parser.finalize()[0]) == essence(MESSAGES["reasoning and call"])


def test_it_is_plain_data() -> None:
    exported = load_entry("qwen3").grammar.to_response_template()
    assert json.loads(json.dumps(exported)) == exported


def test_several_ways_are_refused_unless_one_will_do() -> None:
    grammar = load_entry("internlm2-tools").grammar
    with pytest.raises(turnwise.TurnwiseError, match="more than one way") as caught:
        grammar.to_response_template()
    assert "partly=True" in (caught.value.hint or "")
    assert "tool_calls" in grammar.to_response_template(partly=True)["fields"]


def test_a_reason_is_given() -> None:
    with pytest.raises(turnwise.TurnwiseError, match="begins without a marker"):
        load_entry("llama-3.1").grammar.to_response_template(partly=True)
