"""Encoding: the ids that transformers gives, what is known of each of them, and conversations that are too long.

Two laws hold everything together. With `compatible=True` the ids are those of transformers, whatever the content. By
default they are the same except for two reasons, and every difference is shown to have one of them: a message spelled a
control token who may not write it (`defused`), or the joint encoding merges characters over the end of an assistant's
opening, or of its stop, which no served model can do (a *seam*).
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, product
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import corpus
import oracle
import turnwise
from turnwise.analysis.conversations import Probe, conversations
from turnwise.tokens.boundaries import find_seams
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.tokenizers import Tokenizer
from turnwise.tokens.tokenizers import tokenizer as load
from turnwise.tokens.truncation import split_rounds

pytestmark = [
    corpus.needs_corpus,
    pytest.mark.filterwarnings("ignore::turnwise.errors.TurnwiseWarning"),
]

Tokenizers = Callable[[str], Tokenizer]

# Formats that differ in where they put white space, bos and turn ends, each tried with every tokenizer.
TEMPLATES = (
    "npm-qwen3",
    "npm-llama3_1",
    "npm-deepseek_v3",
    "npm-internlm2",
    "llamacpp-google-gemma-2-2b-it",
    "mistralcommon-v1",
    "chujie-vicuna",
    "trl-phi3",
)
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@cache
def template(name: str, tokens: bool = False) -> turnwise.Template:
    """A published template; with the bos and eos of its golden rows, or else with those of the tokenizer."""
    found = corpus.load_published()[name]
    return turnwise.compile(
        found.text, "jinja", name=name, options=found.options if tokens else None
    )


@cache
def peer(name: str) -> Any:
    """The tokenizer as transformers has it, without the guesses of its Auto classes."""
    from transformers import PreTrainedTokenizerFast

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PreTrainedTokenizerFast.from_pretrained(str(corpus.tokenizer_folder(name)))


def alternate_turns(*texts: str, system: str | None = None) -> list[dict[str, str]]:
    """Users and assistants in turn."""
    chat = [
        {"role": ("user", "assistant")[index % 2], "content": text}
        for index, text in enumerate(texts)
    ]
    return [{"role": "system", "content": system}, *chat] if system is not None else chat


def merged_seams(encoded: Encoded, name: str) -> list[int]:
    """Where turns begin or end inside a token of the joint encoding, by the offsets of the reference library."""
    spans = peer(name)(encoded.text, add_special_tokens=False, return_offsets_mapping=True)[
        "offset_mapping"
    ]
    return [
        seam
        for seam in find_seams(encoded.turns, encoded.text)
        if any(start < seam < end for start, end in spans)
    ]


def why_different(ours: Encoded, name: str) -> str:
    """The reason why these ids are not those of one joint encoding; empty if there is none."""
    return "defused" if ours.defused else "seam" if merged_seams(ours, name) else ""


# ---- the golden rows ----


def golden() -> Iterator[tuple[corpus.TokenRow, dict[str, Any]]]:
    for row in corpus.token_rows():
        chat = corpus.chats()[row.chat]
        known = {"add_generation_prompt": row.opening, "now": corpus.NOW, "normalise": False}
        yield row, {**chat.arguments, **known}


@pytest.mark.law
def test_ids_are_those_of_the_golden_rows(tokenizers: Tokenizers, sample: Any) -> None:
    count: Counter[str] = Counter()
    rows = list(golden())
    taken = sample(rows, 120)
    for row, arguments in taken:
        chat, used, tokenizer = (
            corpus.chats()[row.chat],
            template(row.template, True),
            tokenizers(row.tokenizer),
        )
        if row.ids is None:
            with pytest.raises(turnwise.TurnwiseError):
                used.encode(chat.messages, tokenizer, **arguments)
            count["refused"] += 1
            continue
        theirs = used.encode(chat.messages, tokenizer, compatible=True, **arguments)
        ours = used.encode(chat.messages, tokenizer, **arguments)
        assert theirs.input_ids == row.ids, (row, "compatible")
        reason = "" if ours.input_ids == row.ids else why_different(ours, row.tokenizer)
        assert ours.input_ids == row.ids or reason, row
        count[reason or "same"] += 1
    assert count == GOLDEN or len(taken) < len(rows)


# No row of the corpus meets a merged seam: its replies do not begin with white space.
GOLDEN = {"same": 276, "defused": 21, "refused": 5}


# ---- transformers itself ----

WORDS = st.text(max_size=12) | st.sampled_from(
    [
        "Hello",
        " a",
        "\n",
        "\n\n",
        " ",
        "漢字",
        "é",
        "e\u0301",
        "😀",
        "<|im_end|>",
        "<s>",
        "</s>",
        "<think>",
        "[INST]",
    ]
    + [
        "<｜User｜>",
        "<|eot_id|>",
        "<end_of_turn>",
        "▁",
        "\t",
        "don't",
        "1234",
        "\u3000",
        "```py\n",
        "\r\n",
    ]
)
TEXTS = st.lists(WORDS, max_size=6).map("".join)


@st.composite
def chats(draw: st.DrawFn) -> tuple[list[dict[str, str]], bool]:
    """A conversation that every format takes, or nearly; and whether it is to be opened."""
    chat = alternate_turns(
        *draw(st.lists(TEXTS, min_size=1, max_size=4)), system=draw(st.none() | TEXTS)
    )
    return chat, draw(st.booleans())


def both(
    name: str, used: str, tokenizer: Tokenizer, messages: list[dict[str, Any]], **arguments: Any
) -> tuple[Encoded, list[int]] | None:
    """Our encoding and the ids of transformers; None if both refuse the conversation."""
    tools, documents = arguments.pop("tools", None), arguments.pop("documents", None)
    known = {"tools": tools, "documents": documents, **arguments}
    try:
        with oracle.clock(corpus.NOW):
            theirs = peer(name).apply_chat_template(
                messages,
                chat_template=template(used).text,
                tokenize=True,
                return_dict=False,
                **known,
            )
    except Exception:  # anything at all may leave the reference: then it gives no ids
        theirs = None
    try:
        ours = template(used).encode(
            messages, tokenizer, compatible=True, now=corpus.NOW, normalise=False, **known
        )
    except turnwise.TurnwiseError:
        assert theirs is None, (name, used, messages)
        return None
    # What we take and transformers does not is a matter of rendering, and of its own tests.
    return None if theirs is None else (ours, theirs)


def agree(
    name: str, used: str, tokenizer: Tokenizer, messages: list[dict[str, Any]], **arguments: Any
) -> str:
    found = both(name, used, tokenizer, messages, **arguments)
    if found is None:
        return "refused"
    ours, theirs = found
    assert ours.input_ids == theirs, (name, used, messages)
    assert "".join(ours.tokens) == ours.text
    default = template(used).encode(
        messages, tokenizer, now=corpus.NOW, add_stop=False, normalise=False, **arguments
    )
    if default.input_ids == theirs:
        return "same"
    reason = why_different(default, name)
    assert reason, (name, used, messages)
    return reason


@pytest.mark.law(3)
@pytest.mark.parametrize("name", corpus.TOKENIZERS)
def test_generated_conversations_agree_with_transformers(
    name: str, tokenizers: Tokenizers, sample: Any
) -> None:
    tokenizer = tokenizers(name)

    @settings(max_examples=len(sample(range(60))), suppress_health_check=list(HealthCheck))
    @given(chats(), st.sampled_from(TEMPLATES))
    def law(drawn: tuple[list[dict[str, str]], bool], used: str) -> None:
        messages, opening = drawn
        agree(name, used, tokenizer, messages, add_generation_prompt=opening)

    law()


@pytest.mark.law(2)
@pytest.mark.parametrize("name", corpus.TOKENIZERS)
def test_probes_agree_with_transformers(name: str, tokenizers: Tokenizers) -> None:
    """Tools, calls, reasoning, parts: whatever templates tell apart."""
    count: Counter[str] = Counter()
    for index, probe in enumerate(conversations()):
        used = TEMPLATES[index % len(TEMPLATES)]
        count[agree(name, used, tokenizers(name), probe.messages, **to_arguments(probe))] += 1
    assert (count["same"], count["defused"], count["seam"]) == PROBED[name]


# Conversations with the same ids by default; with a look-alike in them; with a reply that merges into its opening,
# which is one that begins with white space after an opening that ends with it (or a word after a space).
PROBED = {
    "qwen2_5": (71, 2, 6),
    "qwen3": (70, 3, 6),
    "llama3": (102, 0, 6),
    "deepseek_v3": (102, 0, 6),
    "gemma2": (95, 2, 11),
    "internlm2": (95, 2, 11),
    "mistral_v0_1": (96, 2, 10),
}


@pytest.mark.slow
@pytest.mark.parametrize("number", range(7))
def test_every_template_agrees_with_transformers(number: int, tokenizers: Tokenizers) -> None:
    """Each template with one of the tokenizers, on every probe, with and without the opening."""
    name = corpus.TOKENIZERS[number]
    count: Counter[str] = Counter()
    for used in list(corpus.load_published())[number :: len(corpus.TOKENIZERS)]:
        for index, probe in enumerate(conversations()):
            arguments = to_arguments(probe) | {"add_generation_prompt": bool(index % 2)}
            count[agree(name, used, tokenizers(name), probe.messages, **arguments)] += 1
    assert count["same"] > 2500 > 10 * count["defused"], count


def to_arguments(probe: Probe) -> dict[str, Any]:
    return {
        "tools": probe.tools,
        "documents": probe.documents,
        "add_generation_prompt": probe.add_generation_prompt,
    }


# ---- what is known of each token ----


@pytest.mark.law(3)
@pytest.mark.parametrize("name", corpus.TOKENIZERS)
def test_tokens_and_owners_follow_the_text(name: str, tokenizers: Tokenizers, sample: Any) -> None:
    for used, chat in sample(product(TEMPLATES, corpus.chats().values()), 40):
        try:
            found = template(used).encode(
                chat.messages, tokenizers(name), now=corpus.NOW, **chat.arguments
            )
        except turnwise.TurnwiseError:
            continue
        check_owners(found, (name, used, chat.id))


def check_owners(found: Encoded, case: tuple[str, ...]) -> None:
    """Each token is owned by the piece that it begins in."""
    pieces = found.rendering.pieces
    borders = list(accumulate((len(piece.text) for piece in pieces), initial=0))
    starts = [0, *found.ends][:-1]
    assert "".join(found.tokens) == found.text
    assert len(found.owners) == len(found.tokens) == len(found.input_ids) == len(found)
    assert found.attention_mask == [1] * len(found)
    assert found.ends == sorted(found.ends)
    for start, owner in zip(starts, found.owners, strict=True):
        if start >= borders[-1]:  # the stop that was added
            assert found.added_stop, case
            assert owner[:3] == (len(pieces) - 1, found.kept[-1], None), case
            continue
        assert borders[owner.piece] <= start < borders[owner.piece + 1], case
        origin = pieces[owner.piece].origin
        # A rendering numbers the messages that it has, owners those of the caller.
        message, field = origin.message, origin.field
        if message is not None:
            message = found.kept[message]
        if field is not None and field.startswith("messages["):
            number = origin.path[1]
            field = field.replace(f"[{number}]", f"[{found.kept[number]}]", 1)
        assert (owner.message, owner.field) == (message, field), case


def test_control_tokens_are_listed_and_look_alikes_are_named(tokenizers: Tokenizers) -> None:
    chat = alternate_turns("a<|im_end|>b", "One")
    found = turnwise.compile(CHATML).encode(chat, tokenizers("qwen3"))
    assert [found.tokens[index] for index in found.control] == ["<|im_start|>", "<|im_end|>"] * 2
    assert [found.text[start:end] for start, end in found.defused] == ["<|im_end|>"]
    forged = turnwise.compile(CHATML).encode(chat, tokenizers("qwen3"), compatible=True)
    assert len(forged.control) == 5 and not forged.defused


def test_arrays_have_one_shape(tokenizers: Tokenizers) -> None:
    found = turnwise.compile(CHATML).encode(alternate_turns("First", "One"), tokenizers("qwen3"))
    arrays = pytest.importorskip("numpy") and found.numpy()
    assert set(arrays) == {"input_ids", "attention_mask", "labels", "weights"}
    assert {array.shape for array in arrays.values()} == {(len(found),)}
    assert {name: array.dtype.name for name, array in arrays.items()} == {
        "input_ids": "int64",
        "attention_mask": "int64",
        "labels": "int64",
        "weights": "float32",
    }
    assert (
        arrays["input_ids"].tolist() == found.input_ids
        and arrays["labels"].tolist() == found.labels
    )
    assert found.lists() == {
        name: arrays[name].tolist() for name in ("input_ids", "attention_mask", "labels")
    }


def test_missing_torch_is_reported(tokenizers: Tokenizers) -> None:
    found = turnwise.compile(CHATML).encode(alternate_turns("First", "One"), tokenizers("qwen3"))
    try:
        import torch  # noqa: F401
    except ImportError:
        with pytest.raises(turnwise.TurnwiseError, match="torch is not installed"):
            found.torch()
    else:
        assert found.torch()["input_ids"].tolist() == found.input_ids


@pytest.mark.law
def test_the_same_question_has_the_same_answer(tokenizers: Tokenizers, sample: Any) -> None:
    """In another order, on a template and a tokenizer that have learned nothing yet."""
    names = sample([chat.id for chat in corpus.chats().values()])
    first = [
        answer(template(used), name, tokenizers("qwen3"))
        for used in TEMPLATES[:3]
        for name in names
    ]
    fresh = [turnwise.compile(template(used).text, "jinja", name=used) for used in TEMPLATES[:3]]
    tokenizer = load(corpus.tokenizer_folder("qwen3"), backend="tokenizers")
    again = [answer(used, name, tokenizer) for used in fresh[::-1] for name in names[::-1]]
    assert first == again[::-1]


def answer(used: turnwise.Template, name: str, tokenizer: Tokenizer) -> Any:
    chat = corpus.chats()[name]
    try:
        found = used.encode(chat.messages, tokenizer, now=corpus.NOW, **chat.arguments)
    except turnwise.TurnwiseError as error:
        return str(error)
    return found.input_ids, found.labels, found.turns, found.untrained


# ---- too long ----


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    texts=st.lists(
        st.sampled_from(["a", "some words", "a longer text, of ten words, more or less"]),
        max_size=13,
    ),
    systems=st.integers(0, 2),
    limit=st.integers(1, 140),
    used=st.sampled_from(["chatml", "npm-qwen3", "npm-internlm2"]),
)
def test_long_conversations_lose_their_oldest_rounds(
    tokenizers: Tokenizers, texts: list[str], systems: int, limit: int, used: str
) -> None:
    tokenizer, known = (
        tokenizers("qwen3"),
        turnwise.compile(CHATML) if used == "chatml" else template(used),
    )
    chat = [
        *({"role": "system", "content": "Rules"} for _ in range(systems)),
        *alternate_turns("Q", *texts),
    ]
    arguments = {"now": corpus.NOW, "add_generation_prompt": True}
    try:
        found = known.encode(chat, tokenizer, max_length=limit, **arguments)
    except turnwise.MessageError as error:
        assert "more than max_length" in str(error)
        last = max(index for index, message in enumerate(chat) if message["role"] == "user")
        least = [*chat[:systems], *chat[last:]]
        assert len(known.encode(least, tokenizer, **arguments)) > limit
        return
    assert len(found) <= limit
    dropped = len(chat) - len(found.kept)
    assert [*found.kept] == [*range(systems), *range(systems + dropped, len(chat))], (
        "system kept, the newest kept"
    )
    assert chat[found.kept[systems]]["role"] == "user", "whole rounds"
    kept = [chat[index] for index in found.kept]
    assert found.input_ids == known.encode(kept, tokenizer, **arguments).input_ids
    assert {owner.message for owner in found.owners if owner.field == "content"} <= set(found.kept)
    if dropped:  # not one round more than needed
        before = max(
            index for index in range(systems, systems + dropped) if chat[index]["role"] == "user"
        )
        more = [*chat[:systems], *chat[before:]]
        assert len(known.encode(more, tokenizer, **arguments)) > limit


def test_rounds_end_before_a_user_who_answers_somebody() -> None:
    roles = [
        "system",
        "developer",
        "user",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert split_rounds([{"role": role} for role in roles]) == ([[2, 3, 4, 5, 6], [7, 8]], [0, 1])


def test_labels_of_a_shortened_conversation_are_those_of_its_rest(tokenizers: Tokenizers) -> None:
    used, tokenizer = turnwise.compile(CHATML), tokenizers("qwen3")
    chat = [
        *alternate_turns("one", "two", "three", "four"),
        {"role": "assistant", "content": "five", "weight": 0.5},
    ]
    whole = used.encode(chat, tokenizer)
    found = used.encode(chat, tokenizer, max_length=len(whole) - 1)
    assert [*found.kept] == [2, 3, 4]
    rest = used.encode(chat[2:], tokenizer)
    assert (found.labels, found.weights) == (rest.labels, rest.weights)
    assert 0.5 in found.weights


# ---- trust and errors ----


def control(found: Encoded) -> list[str]:
    return [found.tokens[index] for index in found.control]


def test_a_trusted_system_may_write_control_tokens(tokenizers: Tokenizers) -> None:
    used, tokenizer = turnwise.compile(CHATML), tokenizers("qwen3")
    chat = alternate_turns("a<|im_end|>", system="b<|im_end|><think>")
    assert len(used.encode(chat, tokenizer).control) == 4
    trusted = used.encode(chat, tokenizer, trust={"system": "all"})
    assert control(trusted) == [
        "<|im_start|>",
        "<|im_end|>",
        "<think>",
        "<|im_end|>",
        "<|im_start|>",
        "<|im_end|>",
    ]
    words = used.encode(chat, tokenizer, trust={"system": "words"})
    assert control(words) == ["<|im_start|>", "<think>", "<|im_end|>", "<|im_start|>", "<|im_end|>"]


def test_assistants_may_be_trusted_less(tokenizers: Tokenizers) -> None:
    used, tokenizer, chat = (
        turnwise.compile(CHATML),
        tokenizers("qwen3"),
        alternate_turns("a", "<think>b"),
    )
    assert "<think>" in control(used.encode(chat, tokenizer))
    assert "<think>" not in control(used.encode(chat, tokenizer, trust={"assistant": "none"}))


ERRORS = {
    "trust is no mapping": ({"trust": ["system"]}, "trust must be a mapping"),
    "trust has no such level": ({"trust": {"system": "full"}}, "unknown trust level 'full'"),
    "a level is a text": ({"trust": {"system": True}}, "unknown trust level True"),
    "no such policy": ({"train_on": "assistnt"}, "Did you mean"),
    "a policy is a text": ({"train_on": 3}, "unknown loss policy 3"),
    "max_length is positive": ({"max_length": 0}, "a whole number from 1 up, not 0"),
    "max_length is a number": ({"max_length": "9"}, "a whole number from 1 up, not '9'"),
    "max_length is whole": ({"max_length": 9.5}, "a whole number from 1 up, not 9.5"),
    "max_length is no flag": ({"max_length": True}, "a whole number from 1 up, not True"),
    "too long": ({"max_length": 3}, "more than max_length=3"),
}


@pytest.mark.parametrize(("arguments", "says"), ERRORS.values(), ids=ERRORS)
def test_errors_say_what_is_wrong(
    tokenizers: Tokenizers, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(turnwise.MessageError, match=says):
        turnwise.compile(CHATML).encode(
            alternate_turns("First", "One"), tokenizers("qwen3"), **arguments
        )


@pytest.mark.parametrize(
    "messages", [None, 5, "text", [5], [{"content": "no role"}], {"role": "user"}]
)
def test_broken_messages_are_refused_by_name(tokenizers: Tokenizers, messages: Any) -> None:
    with pytest.raises(turnwise.TurnwiseError):
        turnwise.compile(CHATML).encode(messages, tokenizers("qwen3"))


@dataclass
class OwnMessage:
    """A message as an object of the caller's class."""

    role: str
    content: str


def test_messages_may_be_objects(tokenizers: Tokenizers) -> None:
    chat, used, tokenizer = (
        alternate_turns("First", "One"),
        turnwise.compile(CHATML),
        tokenizers("qwen3"),
    )
    expected = used.encode(chat, tokenizer)
    for form in (
        tuple(chat),
        [OwnMessage(**message) for message in chat],
        [MappingProxyType(message) for message in chat],
    ):
        assert used.encode(form, tokenizer).labels == expected.labels
        assert [found.labels for found in used.examples(form, tokenizer)] == [expected.labels]


@pytest.mark.parametrize("given_", [None, 5, object(), "/no/such/folder"])
def test_what_is_no_tokenizer_is_refused(given_: Any) -> None:
    with pytest.raises(turnwise.TurnwiseError):
        turnwise.compile(CHATML).encode(alternate_turns("First"), given_)
