"""What a session keeps for a trainer: log-probabilities, spans, segments, copies, ids of calls. The laws over random
trajectories are in `test_trajectories.py`."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import corpus
import turnwise
from chatml import CHATML, user
from corpus import needs_corpus
from turnwise.errors import MessageError, TokenizerError, Unstable
from turnwise.tokens.reply_tokens import find_token_ends
from turnwise.tokens.session import Session
from turnwise.tokens.tokenizers import Tokenizer, tokenizer
from vocabularies import law

pytestmark = pytest.mark.filterwarnings("ignore::turnwise.errors.TurnwiseWarning")

CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "it"}}\n</tool_call><|im_end|>'
FORGETFUL = CHATML.replace("{{ m.content }}", "{{ m.content.split('</think>')[-1] }}")
THOUGHT = "<think>hm</think>yes<|im_end|>"


@pytest.fixture(scope="module")
def small() -> Tokenizer:
    return tokenizer("turnwise")


def start_session(source: str = CHATML) -> Session:
    session = turnwise.compile(source).session("turnwise")
    session.prompt([user("hi")])
    return session


# -- log-probabilities and spans


@pytest.mark.parametrize("given", [[-0.5, None, -2], (-0.5, None, -2.0), None])
def test_log_probabilities_are_kept_beside_the_ids(small: Tokenizer, given: Any) -> None:
    session = start_session()
    start = len(session.ids)
    reply = [*small.encode("ab")[:2], session.stop_token_ids[0]]
    reply = (reply * 2)[-3:]
    session.add_reply(reply, logprobs=given)
    expected = [None] * 3 if given is None else [-0.5, None, -2.0]
    assert session.logprobs == [None] * start + expected
    session.extend([user("more")])
    assert session.logprobs[start : start + 3] == expected
    assert len(session.logprobs) == len(session.ids)
    assert set(session.logprobs[start + 3 :]) == {None}


class Tensor:
    """As an array or a tensor is."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def tolist(self) -> list[Any]:
        return self.values


def test_log_probabilities_may_be_an_array() -> None:
    session = start_session()
    session.add_reply(Tensor([5, 6]), logprobs=Tensor([-1.0, -2.0]))  # type: ignore[arg-type]
    assert session.logprobs[-2:] == [-1.0, -2.0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([-1.0], "1 log-probabilities for 2 ids"),
        ([-1.0] * 3, "3 log-probabilities for 2 ids"),
        (-1.0, "a list with one number for each id, not -1.0"),
        ("ab", "a list with one number for each id"),
        ([-1.0, "x"], "logprobs\\[1\\]: a log-probability is a number or None, not 'x'"),
        ([True, -1.0], "logprobs\\[0\\]: a log-probability is a number"),
        ({1: 2, 3: 4}, "a list with one number for each id"),
    ],
)
def test_log_probabilities_that_do_not_fit(given: Any, words: str) -> None:
    session = start_session()
    before = list(session.ids)
    with pytest.raises(MessageError, match=words):
        session.add_reply([5, 6], logprobs=given)
    assert session.ids == before and not session.sampled and len(session.messages) == 1
    with pytest.raises(MessageError, match="given as text"):
        session.add_reply("yes", logprobs=[-1.0])
    session.add_reply([5, 6])


def test_a_reply_is_finished_by_a_stop_only(small: Tokenizer) -> None:
    stop = small.id("<|im_end|>")
    for reply, finished in (
        ([*small.encode("yes"), stop], True),
        (small.encode("yes"), False),
        (small.encode("yes<|im_end|>"), False),  # spelled, and not the token
        ("yes<|im_end|>", True),
        ([stop, 5], False),
        ([], False),
    ):
        session = start_session()
        start = len(session.ids)
        session.add_reply(reply)
        assert session.sampled == [(start, len(session.ids), 1, finished)]


# -- segments


def test_what_was_sampled_before_a_rewriting_is_in_a_segment(small: Tokenizer) -> None:
    session = start_session(FORGETFUL)
    for number in range(3):
        reply = small.whole(THOUGHT)
        session.add_reply(reply, logprobs=[-1.0] * len(reply))
        before = session.segments[-1]
        sent = session.extend([user(f"more {number}")], history="rewrite")
        assert session.ids == sent and not any(session.mask) and session.sampled == []
        assert len(session.segments) == number + 2
        assert session.segments[-2] is before and session.segments[-1].ids == sent
        assert [label for label in before.labels if label != -100] == reply
        assert [number for number in before.logprobs if number is not None] == [-1.0] * len(reply)
        assert len(before.messages) == 2 + 2 * number
    assert sum(sum(segment.mask) for segment in session.segments) == 3 * len(reply)
    other = session.fork()
    other.prompt([user("again")])
    assert len(other.segments) == 1 and len(session.segments) == 4


def test_a_segment_that_cannot_be_rewritten_stays() -> None:
    picky = FORGETFUL.replace(
        "{% for m in messages %}",
        "{% for m in messages %}{% if 'no' in m.content %}{{ raise_exception('no') }}{% endif %}",
        1,
    )
    session = start_session(picky)
    session.add_reply(THOUGHT)
    ids = list(session.ids)
    with pytest.raises(turnwise.TurnwiseError, match="no"):
        session.extend([user("no")], history="rewrite")
    assert session.ids == ids and len(session.segments) == 1
    assert session.extend([user("yes")], history="rewrite")


# -- owners


def list_owned(session: Session) -> list[tuple[str, str | None]]:
    """The text of sampled tokens by their field."""
    joined: list[tuple[str, str | None]] = []
    for id, owner, sampled in zip(session.ids, session.owners, session.mask, strict=True):
        if not sampled:
            continue
        text = session.tokenizer.decode([id])
        name = owner.field and owner.field.partition(".")[2]
        if joined and joined[-1][1] == name:
            text = joined.pop()[0] + text
        joined.append((text, name))
    return joined


@pytest.mark.parametrize("ended", [False, True], ids=["pending", "extended"])
def test_owners_of_a_reply_are_its_fields(ended: bool) -> None:
    session = turnwise.load("qwen3").session("turnwise")
    session.prompt([user("hi")])
    session.add_reply("<think>\nHm.\n</think>\n\nI look.\n" + CALL)
    if ended:
        session.extend([{"role": "tool", "content": "a cat"}])
    assert list_owned(session) == [
        ("<think>\n", None),
        ("Hm.", "reasoning_content"),
        ("\n</think>\n\n", None),
        ("I look.", "content"),
        ('\n<tool_call>\n{"name": "', None),
        ("look", "tool_calls[0].function.name"),
        ('", "arguments": {"', None),
        ("at", "tool_calls[0].function.arguments.at"),
        ('": "', None),
        ("it", "tool_calls[0].function.arguments.at"),
        ('"}}\n</tool_call><|im_end|>', None),
    ]


@pytest.mark.parametrize("ended", [False, True], ids=["pending", "kept"])
def test_owners_of_a_reply_that_the_template_would_write_otherwise(ended: bool) -> None:
    session = turnwise.load("deepseek-r1-distill").session("turnwise")
    session.prompt([user("hi")])
    session.add_reply("Hm.\n</think>\n\nYes.<｜end▁of▁sentence｜>")
    if ended:
        session.extend([user("bye")], history="keep")
    fields = [name for _, name in list_owned(session)]
    assert fields[:3] == ["reasoning_content", None, "content"]
    assert session.owners[0].message is None and len(session.owners) == len(session.ids)


def test_ids_of_the_caller_have_no_owners(small: Tokenizer) -> None:
    session = start_session()
    session.replace_ids([5, 6, 7])
    session.add_reply("yes<|im_end|>")
    session.extend([user("more")])
    assert session.ids[:3] == [5, 6, 7]
    assert [owner[:3] for owner in session.owners[:3]] == [(0, None, None)] * 3
    assert len(session.owners) == len(session.ids)
    with pytest.raises(TokenizerError):
        session.replace_ids([10**9])


@law(100)
@given(
    st.lists(st.integers(0, 7999) | st.integers(0, 300), max_size=20), st.sampled_from([[], [7]])
)
def test_ends_of_any_ids(ids: list[int], before: list[int]) -> None:
    """They never fall, are within the text, and where the ids spell whole characters they are those of the prefix."""
    own = tokenizer("turnwise")
    ends = find_token_ends(own, before, ids)
    assert len(ends) == len(ids) and ends == sorted(ends)
    whole = own.decode([*before, *ids])
    skipped = len(own.decode(before))
    if "\ufffd" not in whole:
        texts = [own.decode([*before, *ids[: count + 1]]) for count in range(len(ids))]
        expected = [len(text.rstrip("\ufffd")) - skipped for text in texts]
        assert ends == expected


# -- copies


def test_shallow_copies_go_their_own_ways_too() -> None:
    session = start_session()
    session.add_reply("Aye.<|im_end|>")
    other = copy.copy(session)
    other.extend([user("Again.")])
    assert len(other.ids) > len(session.ids) and len(session.messages) == 2


def test_stops_have_one_order() -> None:
    session, template = start_session(), turnwise.compile(CHATML)
    assert session.stop_token_ids == list(template.stops("turnwise").ids)


def test_deep_copies_go_their_own_ways() -> None:
    session = start_session()
    session.add_reply("yes<|im_end|>")
    other = copy.deepcopy(session)
    assert other.tokenizer is session.tokenizer
    other.messages[0]["content"] = "changed"  # type: ignore[index]
    assert session.messages[0]["content"] == "hi"
    assert session.extend([user("a")]) == copy.deepcopy(session).ids
    assert other.sampled == session.sampled and len(other.ids) < len(session.ids)


SCRIPT = """
import pickle, sys
session = pickle.load(open(sys.argv[1], "rb"))
session.extend([{"role": "tool", "content": "a cat"}])
session.add_reply("A cat.<|im_end|>")
found = session.ids, session.labels, session.mask, session.owners, session.logprobs, session.messages
pickle.dump((found, session), open(sys.argv[1], "wb"))
"""


@needs_corpus
@pytest.mark.parametrize("name", ["turnwise", "mistral_v0_1", "an object"])
def test_another_process_goes_on(
    name: str, tmp_path: Path, tokenizers: Callable[[str], Tokenizer]
) -> None:
    source: Any = name
    if name == "an object":
        library = pytest.importorskip("tokenizers")
        source = library.Tokenizer.from_file(str(tokenizer_file()))
    elif name != "turnwise":
        source = tokenizers(name)
    session = turnwise.load("qwen3").session(source, tools=[])
    session.prompt([user("hi")])
    reply = session.tokenizer.whole(CALL)
    session.add_reply(reply, logprobs=[-0.5] * len(reply))
    file = tmp_path / "session"
    file.write_bytes(pickle.dumps(session))
    environment = {**os.environ, "PYTHONPATH": str(corpus.ROOT / "src")}
    subprocess.run([sys.executable, "-c", SCRIPT, file], env=environment, check=True)
    found, returned = pickle.loads(file.read_bytes())
    session.extend([{"role": "tool", "content": "a cat"}])
    session.add_reply("A cat.<|im_end|>")
    assert found == tuple(
        getattr(session, name)
        for name in ("ids", "labels", "mask", "owners", "logprobs", "messages")
    )
    assert returned.extend([user("b")]) == session.extend([user("b")])


def tokenizer_file() -> Path:
    return corpus.ROOT / "src" / "turnwise" / "tokens" / "data" / "tokenizer.json"


@pytest.mark.parametrize("history", ["same", "keep"])
def test_the_size_of_a_pickle_is_linear(history: str) -> None:
    session = start_session(CHATML if history == "same" else FORGETFUL)
    sizes = [len(pickle.dumps(session))]
    for number in range(32):
        session.add_reply(f"<think>hm {number}</think>{'yes ' * 50}{number}<|im_end|>")
        session.extend([user(f"{'more ' * 50}{number}")], history)
        sizes.append(len(pickle.dumps(session)))
    assert session.diverged == (history == "keep")
    assert sizes[32] - sizes[16] < 1.5 * (sizes[16] - sizes[0])


# -- calls and errors


def test_calls_of_two_turns_have_different_ids() -> None:
    session = turnwise.load("qwen2.5").session("turnwise")
    session.prompt([user("hi")])
    for _ in range(4):
        session.add_reply(CALL)
        id = session.messages[-1]["tool_calls"][0]["id"]
        session.extend([{"role": "tool", "tool_call_id": id, "content": "nothing"}])
    ids = [call["id"] for one in session.messages for call in one.get("tool_calls") or ()]
    assert len(set(ids)) == 4 and all(len(id) == 9 and id.isalnum() for id in ids)


@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        ("<think>\nI look", "<tool_call>x", ("<think>\nI look", "<tool_call>x")),
        ("so <|im_x|>", "so <|im_y|>", ("<|im_x|>", "<|im_y|>")),
        ("a <b> word", "a <b> work", ("word", "work")),
        ("<b>x", "<b>y", ("x", "y")),
        ("one 1", "one 2", ("1", "2")),
    ],
)
def test_a_difference_is_shown_from_the_start_of_a_marker(
    one: str, other: str, shown: tuple[str, str]
) -> None:
    changing = CHATML.replace(
        "{{ m.content }}",
        f"{{{{ {other!r} if m.content == {one!r} and not loop.last else m.content }}}}",
    )
    session = start_session(changing)
    session.add_reply(one + "<|im_end|>")
    with pytest.raises(Unstable) as caught:
        session.extend([user("more")])
    assert caught.value.before.startswith(shown[0]) and caught.value.now.startswith(shown[1])
