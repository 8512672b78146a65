"""Markers and stops: what a template writes around messages, and whether a tokenizer has it."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import pytest

import corpus
import turnwise
from corpus import needs_corpus
from loaded import load_entry
from turnwise.errors import TokenizerError, TurnwiseWarning
from turnwise.tokens.stop_ids import Stops
from turnwise.tokens.tokenizers import tokenizer

CHAT = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
MARKED = (
    "{% for m in messages %}<message>{{ m.role }}\n{{ m.content }}\n</message>\n{% endfor %}"
    "{% if add_generation_prompt %}<message>assistant\n{% endif %}"
)
BARE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
BRACKETS = BARE.replace("{{ m.role }}:", "[{{ m.role | upper }}]")
ENDED = "{{ bos_token }}" + BARE.replace("\n{% endfor", "{{ eos_token }}{% endfor")
PAIRS = {
    "qwen2_5": ("npm-qwen2_5", "trl-qwen2_5_training"),
    "qwen3": ("npm-qwen3", "trl-qwen3_training"),
    "llama3": ("npm-llama3", "trl-llama3_training"),
    "deepseek_v3": ("npm-deepseek_v3",),
    "gemma2": ("llamacpp-google-gemma-2-2b-it", "trl-gemma_training"),
    "internlm2": ("npm-internlm2",),
    "mistral_v0_1": ("chujie-mistral-instruct", "chujie-llama-2-chat"),
}
"""Tokenizers and the templates that belong to them."""
STOPS = {
    "llamacpp-openai-gpt-oss-120b": ("<|return|>", "<|call|>"),
    "llamacpp-meta-llama-Llama-3.1-8B-Instruct": ("<|eot_id|>", "<|eom_id|>"),
    "npm-qwen3": ("<|im_end|>",),
    "npm-deepseek_v3": ("<｜end▁of▁sentence｜>",),
    "llamacpp-GLM-4.6": ("<|user|>", "<|observation|>"),  # a turn ends where the next begins
    "trl-phi3": ("<|end|>",),  # not the eos after the whole conversation
    "trl-cohere2_training": (
        "<|END_OF_TURN_TOKEN|>",
    ),  # not the end of the response inside the turn
    "npm-llama3": ("<|eot_id|>",),  # not the opening, which it always writes
    "npm-mistral_nemo": ("</s>",),
    "chujie-falcon-instruct": (),
}


def compile_published(name: str) -> turnwise.Template:
    found = corpus.load_published()[name]
    return turnwise.compile(found.text, "jinja", name=name, options=found.options)


def pairs() -> list[tuple[str, str]]:
    return [
        (name, one)
        for name, some in PAIRS.items()
        for one in some
        if one in corpus.load_published()
    ]


# --- stops


@needs_corpus
@pytest.mark.parametrize("name", STOPS)
def test_stops_are_read_off_the_template(name: str) -> None:
    assert compile_published(name).stops() == STOPS[name]


def test_stops_without_a_tokenizer_have_no_ids() -> None:
    found = load_entry("qwen2.5").stops()
    assert isinstance(found, tuple) and found == ("<|im_end|>", "<|endoftext|>") and found.ids == ()
    assert pickle.loads(pickle.dumps(Stops(["a"], [1]))).ids == (1,)


@needs_corpus
def test_stops_and_their_ids(tokenizers: Any) -> None:
    """The tokenizer's eos without being declared; ids for what is one token."""
    known = tokenizers("qwen3")
    found = load_entry("qwen2.5").stops(known)
    assert found == ("<|im_end|>", "<|endoftext|>") and len(found.ids) == 2
    assert found.ids == tuple(known.id(text) for text in found)
    words = turnwise.compile(MARKED).stops(known)
    assert words[0] == "</message>" and known.id("</message>") is None
    assert words.ids == (known.id(known.named["eos_token"]),)
    ended = turnwise.compile(ENDED)
    assert ended.stops() == () and ended.stops(known) == (known.named["eos_token"],)


@needs_corpus
@pytest.mark.parametrize(("name", "template"), pairs())
def test_every_reply_ends_with_a_stop(name: str, template: str, tokenizers: Any) -> None:
    """What `encode` trains as the end of a turn is one of the stops."""
    known = tokenizers(name)
    found = compile_published(template)
    encoded = found.encode(CHAT, known)
    stops = found.stops(known)
    for turn in encoded.turns:
        assert encoded.text[turn.stop : turn.end] in stops
        assert [id for id in encoded.labels if id != -100][-1] in stops.ids


# --- markers


@needs_corpus
@pytest.mark.parametrize(("name", "template"), pairs())
def test_a_template_s_own_tokenizer_has_its_markers(
    name: str, template: str, tokenizers: Any
) -> None:
    """Nothing is missing, nothing is reported; every turn marker in angle brackets is one id."""
    found = compile_published(template).markers(tokenizers(name))
    assert not [marker for marker in found.missing if marker.turn] and not found.problems
    assert all(
        len(marker.ids) == 1 for marker in found if marker.turn and marker.text.startswith("<|")
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compile_published(template).encode(CHAT, tokenizers(name), strict=True)


@needs_corpus
def test_markers_with_their_ids(tokenizers: Any) -> None:
    found = {
        marker.text: marker
        for marker in compile_published("npm-qwen2_5").markers(tokenizers("qwen2_5"))
    }
    assert (
        found["<|im_start|>"].ids == (151644,)
        and found["<|im_start|>"].turn
        and not found["<|im_start|>"].stop
    )
    assert found["<|im_end|>"].ids == (151645,) and found["<|im_end|>"].stop
    assert found["<tool_call>"].ids == (151657,) and not found["<tool_call>"].turn
    assert len(found["<tools>"].ids) > 1 and not found["<tools>"].missing  # words by design


@needs_corpus
def test_missing_markers_are_named_with_the_remedy(tokenizers: Any) -> None:
    """Split or unknown; once for each template and tokenizer; an error if asked."""
    template, known = compile_published("npm-qwen2_5"), tokenizers("llama3")
    found = template.markers(known)
    assert {marker.text for marker in found.missing} >= {"<|im_start|>", "<|im_end|>"}
    assert all(len(marker.ids) > 1 for marker in found.missing)
    assert (
        "special tokens" in found.remedy
        and "untrained" in found.remedy
        and "embeddings" in found.remedy
    )
    with pytest.warns(TurnwiseWarning, match=r"<\|im_start\|> \(\d tokens\).*resize") as caught:
        template.encode(CHAT, known)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        template.encode(CHAT, known)  # reported already
    with pytest.raises(TokenizerError, match=r"lacks the markers.*<\|im_end\|>"):
        template.encode(CHAT, known, strict=True)


@needs_corpus
def test_markers_of_ordinary_words(tokenizers: Any) -> None:
    """`<message>` is split by every tokenizer; words without brackets are nothing that a tokenizer lacks."""
    found = turnwise.compile(MARKED).markers(tokenizers("qwen3"))
    assert [marker.text for marker in found.missing] == ["<message>", "</message>"]
    assert turnwise.compile(BARE).markers(tokenizers("qwen3")) == ()


@needs_corpus
@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("<s>" + ENDED, "writes <s> twice at the start"),
        (BARE, "no stop token after a reply"),
        (
            "<|begin|>" + ENDED.replace("{{ bos_token }}", ""),
            r"lacks the markers of the turns: <\|begin\|>",
        ),
    ],
)
def test_other_problems(template: str, problem: str, tokenizers: Any) -> None:
    with pytest.warns(TurnwiseWarning, match=problem):
        turnwise.compile(template).encode(CHAT, tokenizers("mistral_v0_1"))
    with pytest.raises(TokenizerError, match=problem):
        turnwise.compile(template).encode(CHAT, tokenizers("mistral_v0_1"), strict=True)


def test_a_tokenizer_without_eos() -> None:
    library = pytest.importorskip("tokenizers")
    letters = {letter: index for index, letter in enumerate("qauser: itn")}
    bare = library.Tokenizer(library.models.WordLevel({**letters, "?": 99}, unk_token="?"))
    bare.pre_tokenizer = library.pre_tokenizers.Split("", "isolated")
    with pytest.warns(TurnwiseWarning) as caught:
        turnwise.compile(ENDED).encode(CHAT, tokenizer(bare, backend="tokenizers"))
    first, second = (str(warning.message) for warning in caught)
    assert "eos_token, and the tokenizer has none" in first
    assert "messages[1]: no stop ends it" in second


@needs_corpus
def test_markers_that_a_real_model_has_in_words(tokenizers: Any) -> None:
    """Zephyr was trained on markers that its tokenizer splits. That is reported."""
    found = compile_published("chujie-zephyr").markers(tokenizers("mistral_v0_1"))
    assert [marker.text for marker in found.missing] == ["<|user|>", "<|assistant|>", "<|system|>"]


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (load_entry("vicuna"), ["USER:", "ASSISTANT:"]),
        (turnwise.load("fastchat:alpaca"), ["### Instruction:", "### Response:"]),
        (turnwise.compile(BRACKETS), ["[USER]", "[ASSISTANT]", "[SYSTEM]"]),
        (turnwise.compile(BARE), ["user:", "assistant:", "system:"]),
        (load_entry("llama-2"), []),  # the tokenizer has [INST] and <s>
        (load_entry("gemma-3"), []),
    ],
    ids=["words", "headings", "brackets", "roles", "tokens", "tags"],
)
def test_turn_markers_that_people_write(template: turnwise.Template, words: list[str]) -> None:
    """What opens a turn and is no special token, in words, brackets or headings."""
    found = template.markers("turnwise").ordinary
    assert [marker.text for marker in found] == words and all(marker.turn for marker in found)


def make_tokenizer(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TURNWISE_BACKEND", "tokenizers")  # fastokens has no such models
    library = pytest.importorskip("tokenizers")
    letters = {letter: index for index, letter in enumerate("qa<>|imstarend_u\n ")}
    made = library.Tokenizer(library.models.WordLevel({**letters, "?": 99}, unk_token="?"))
    made.pre_tokenizer = library.pre_tokenizers.Split("", "isolated")
    return made


def test_missing_markers_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """To a tokenizer object, with a warning that they are untrained; to nothing else."""
    template, known = load_entry("chatml"), make_tokenizer(monkeypatch)
    with pytest.warns(TurnwiseWarning, match=r"added .*<\|im_start\|>.*Resize .*untrained"):
        assert template.markers(known).add_missing_to(known) == ("<|im_start|>", "<|im_end|>")
    found = template.markers(known)
    assert found.missing == () and {len(marker.ids) for marker in found} == {1}
    assert found.add_missing_to(known) == ()  # and nothing is reported
    with pytest.raises(TokenizerError, match="cannot be added to a file or name"):
        found.add_missing_to("turnwise")
    with pytest.raises(TokenizerError, match="cannot be added to object"):
        found.add_missing_to(object())


def test_missing_markers_are_added_to_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    known = transformers.PreTrainedTokenizerFast(tokenizer_object=make_tokenizer(monkeypatch))
    with pytest.warns(TurnwiseWarning, match="untrained"):
        load_entry("chatml").markers(known).add_missing_to(known)
    assert load_entry("chatml").markers(known).missing == ()
    (id,) = known.encode("<|im_end|>", add_special_tokens=False)
    assert known.decode([id], skip_special_tokens=True) == ""


@pytest.mark.parametrize("verb", ["render", "encode", "examples", "session"])
@pytest.mark.parametrize("role", ["usr", "alien"])
def test_warnings_of_the_input_point_at_the_caller(verb: str, role: str) -> None:
    """Whatever is between: a role that is misspelt, text that is not written."""
    known = "{% for m in messages if m.role in ('user', 'assistant') %}"
    template = turnwise.compile(BARE.replace("{% for m in messages %}", known))
    chat = [{"role": role, "content": "lost"}, *CHAT]
    with pytest.warns(TurnwiseWarning) as caught:
        if verb == "render":
            template.render(chat)
        elif verb == "session":
            template.session("turnwise").prompt(chat[:2])
        else:
            getattr(template, verb)(chat, "turnwise")
    assert {one.filename for one in caught} == {__file__}
    assert any("messages[0]" in str(one.message) for one in caught)


@pytest.mark.parametrize("verb", ["encode", "examples", "session"])
def test_warnings_of_the_tokenizer_point_at_the_caller(verb: str) -> None:
    template = turnwise.compile(MARKED)
    with pytest.warns(TurnwiseWarning, match="<message>") as caught:
        if verb == "session":
            template.session("turnwise")
        else:
            getattr(template, verb)(CHAT, "turnwise")
    assert {one.filename for one in caught} == {__file__}


def marker_texts(template: turnwise.Template) -> set[str]:
    return {marker.text for marker in template.facts.markers}


@pytest.mark.parametrize("name", ["qwen3", "hermes-3", "hermes-4", "granite-4.0"])
def test_placeholders_of_instructions_are_no_markers(name: str) -> None:
    found = marker_texts(load_entry(name))
    assert {"<tools>", "</tools>", "<tool_call>", "</tool_call>"} <= found
    assert not {text for text in found if "function-name" in text or "args-" in text}


@pytest.mark.parametrize(
    ("instructions", "is_marker"),
    [
        ("Call with <name-of-it> and wait.", False),
        ("Call with (<name-of-it>, 1).", False),
        ("Think in <name-of-it> and </name-of-it> tags.", True),
        ("These are tools:\n<name-of-it>\nand so on.", True),
    ],
)
def test_a_tag_amid_a_sentence_is_prose(instructions: str, is_marker: bool) -> None:
    found = marker_texts(turnwise.compile(instructions + "\n" + MARKED))
    assert ("<name-of-it>" in found) == is_marker
    assert {"<message>", "</message>"} <= found
