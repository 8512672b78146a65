"""FastChat's adapters, its lists of models, and turns that are still open, beside FastChat where it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corpus
import turnwise
from corpus import needs_corpus
from host_sources import load_functions
from timing import processor_seconds
from turnwise.compat import fastchat as compat
from turnwise.compat.fastchat import (
    BaseModelAdapter,
    Conversation,
    get_conv_template,
    get_conversation_template,
    get_model_adapter,
    model_adapters,
    register_model_adapter,
)

# Templates that differ without `strict_fastchat`, each a row of docs/compatibility.md.
BETTER = {"cllm", "yuan2"}


@pytest.fixture(autouse=True)
def own_adapters() -> Iterator[None]:
    before = list(model_adapters)
    yield
    model_adapters[:] = before


def fill(conversation: Any, texts: list[Any]) -> Any:
    for index, text in enumerate(texts):
        conversation.append_message(conversation.roles[index % 2], text)
    return conversation


# --- open turns


@pytest.mark.law
@pytest.mark.parametrize("name", sorted(set(compat.conv_templates) - {"yandexgpt"}))
def test_an_empty_last_message_is_an_open_turn(name: str) -> None:
    """As callers of FastChat use it: `""` is what None is."""
    for texts in (["hi"], ["a", "b", "c"]):
        empty = fill(get_conv_template(name), [*texts, ""])
        assert empty.get_prompt() == fill(get_conv_template(name), [*texts, None]).get_prompt()
        closed = fill(get_conv_template(name), [*texts, "done"]).get_prompt()
        empty.update_last_message("done")
        assert empty.get_prompt() == closed


def test_an_empty_message_may_be_a_finished_turn() -> None:
    conversation = fill(get_conv_template("vicuna_v1.1"), ["", ""])
    assert conversation.get_prompt().endswith("questions. USER:ASSISTANT:")
    conversation.open_empty_turns = False
    assert conversation.get_prompt().endswith("questions. USER:  ASSISTANT: </s>")


TEXTS = st.lists(st.sampled_from(["hi", "", None, "two\nlines", " x "]), max_size=5)


@given(TEXTS, st.booleans())
@settings(max_examples=25, deadline=None)
def test_beside_fastchat(texts: list[Any], strict: bool) -> None:
    """Every template that FastChat 0.2.36 has as we have it, on messages that may be empty or open anywhere."""
    theirs = pytest.importorskip("fastchat.conversation")
    compared = 0
    for name, template in theirs.conv_templates.items():
        ours = compat.conv_templates[name]
        same = all(
            getattr(ours, field) == getattr(template, field)
            for field in ("system_template", "system_message", "roles", "sep", "sep2")
        )
        styles = [getattr(one.sep_style, "name", None) for one in (ours, template)]
        if not same or styles[0] != styles[1] or styles[0] is None:  # changed since
            continue
        if name in BETTER and not strict:
            continue
        ours = ours.copy()
        ours.strict_fastchat = strict
        assert fill(ours, texts).get_prompt() == fill(template.copy(), texts).get_prompt(), name
        compared += 1
    assert compared > 70


# --- prompts from skeletons


SHAPED = st.lists(
    st.one_of(st.text("a \r\n<n>|\ue0000x", max_size=6), st.none(), st.just(("img", ["u"]))),
    max_size=6,
)


@given(SHAPED, st.text("a \n", max_size=3), st.booleans(), st.booleans())
@settings(max_examples=12, deadline=None)
def test_a_prompt_is_the_text_of_its_rendering(
    texts: list[Any], system: str, strict: bool, opens: bool
) -> None:
    """`get_prompt` fills a skeleton; whatever the texts are, it is what rendering them writes."""
    for name in compat.conv_templates:
        conversation = get_conv_template(name)
        conversation.set_system_message(system)
        conversation.strict_fastchat, conversation.open_empty_turns = strict, opens
        fill(conversation, texts)
        try:
            expected = str(conversation.rendering())
        except turnwise.TurnwiseError as error:
            with pytest.raises(type(error)):
                conversation.get_prompt()
        else:
            assert conversation.get_prompt() == expected == conversation.get_prompt(), name


@pytest.mark.parametrize(
    "field", [{"messages": 5}, {"messages": [["USER", 5]]}, {"messages": [[["a"], "x"]]},
              {"system_message": 5}, {"messages": [["USER"]]}, {"sep": ["x"]}, {"sep_style": ["x"]}]
)  # fmt: skip
def test_a_prompt_that_cannot_be_rendered(field: dict[str, Any]) -> None:
    conversation = get_conv_template("vicuna_v1.1")
    for name, value in field.items():
        setattr(conversation, name, value)
    with pytest.raises(turnwise.TurnwiseError):
        conversation.get_prompt()


@pytest.mark.parametrize("name", ["vicuna_v1.1", "llama-2", "chatglm", "zero_shot", "one_shot"])
def test_a_prompt_costs_at_most_five_times_as_much(name: str) -> None:
    theirs = pytest.importorskip("fastchat.conversation").get_conv_template(name)
    texts = [*["hello there, how are you?", "fine, thanks"] * 6]
    pair = [fill(get_conv_template(name), [*texts, None]), fill(theirs, [*texts, None])]
    assert pair[0].get_prompt() == pair[1].get_prompt()

    def call(conversation: Any) -> None:
        for _ in range(200):
            conversation.get_prompt()

    ratios = []
    for _ in range(5):
        mine, other = (processor_seconds(lambda each=each: call(each)) for each in pair)
        ratios.append(mine / other)
    assert min(ratios) <= 5, ratios


# --- training


class Tensor(numpy.ndarray):
    """The two methods of a tensor that FastChat's code calls."""

    def clone(self) -> Any:
        return self.copy()

    def ne(self, value: int) -> Any:
        return self != value


class Pieces:
    """A tokenizer with one id for each character, padding, and the two pieces that FastChat counts for Llama."""

    model_max_length, pad_token_id, legacy = 220, 0, True

    def __call__(self, text: Any, **layout: Any) -> Any:
        if isinstance(text, str):
            return SimpleNamespace(input_ids=[1, *map(ord, text)])
        rows = [self(each).input_ids[: self.model_max_length] for each in text]
        padded = [[*row, *[0] * (self.model_max_length - len(row))] for row in rows]
        return SimpleNamespace(input_ids=numpy.array(padded).view(Tensor))


def test_the_training_flow_of_fastchat() -> None:
    """`preprocess` of its train.py with the names of either: one import changes, no id and no label does."""
    theirs = pytest.importorskip("fastchat.conversation")
    sources = [
        [
            {"from": who, "value": text}
            for who, text in zip(("human", "gpt") * 2, texts, strict=False)
        ]
        for texts in (("hi", "hello"), ("one\ntwo", "b", "c", " d "), ("q" * 300, "x"))
    ]
    results = []
    for style, find in (
        (compat.SeparatorStyle, get_conversation_template),
        (theirs.SeparatorStyle, lambda _: theirs.get_conv_template("vicuna_v1.1")),
    ):
        names = load_functions("fastchat", "train/train.py", "preprocess")
        names |= {"SeparatorStyle": style, "get_conversation_template": find}
        names |= {"IGNORE_TOKEN_ID": -100, "rank0_print": lambda *_: None}
        run = FunctionType(names["preprocess"].__code__, names)
        results.append({key: value.tolist() for key, value in run(sources, Pieces()).items()})
    assert results[0] == results[1]


# --- adapters


def golden_paths() -> list[dict[str, Any]]:
    rows = corpus.lines("golden/fastchat_models.jsonl")
    return [row for row in rows if "model_path" in row]


@needs_corpus
@pytest.mark.parametrize("with_another", [False, True])
def test_adapters_of_golden_paths(with_another: bool) -> None:
    """The list of adapters says what the rules say, alone and beside an adapter of the user's."""
    if with_another:
        register_model_adapter(Mine)
    rows = golden_paths()
    assert len(rows) == 118
    for row in rows:
        adapter = get_model_adapter(row["model_path"])
        assert type(adapter).__name__ == row["adapter"]
        for conversation in (
            adapter.get_default_conv_template(row["model_path"]),
            get_conversation_template(row["model_path"]),
        ):
            assert (conversation.name, conversation.system_message) == (
                row["template"],
                row["system_message"],
            )


class Mine(BaseModelAdapter):
    def match(self, model_path: str) -> bool:
        return "my-own" in model_path.lower()

    def get_default_conv_template(self, model_path: str) -> Conversation:
        return get_conv_template("zephyr")


def test_an_adapter_of_ones_own() -> None:
    path = "someone/My-Own-7b"
    assert get_conversation_template(path).name == "one_shot"
    assert type(get_model_adapter(path)) is BaseModelAdapter
    assert register_model_adapter(Mine) is Mine
    assert type(get_model_adapter(path)) is Mine
    assert get_conversation_template(path).name == "zephyr"
    assert get_conversation_template("my-own/7b").name == "zephyr"  # by the whole path
    # FastChat's own come first, unless one is put before them.
    assert get_conversation_template("my-own-vicuna-7b").name == "vicuna_v1.1"
    model_adapters.insert(0, Mine())
    assert get_conversation_template("my-own-vicuna-7b").name == "zephyr"
    # The switch of the call still counts.
    assert get_conversation_template("prompt-7b").name == "one_shot"
    assert get_conversation_template("prompt-7b", strict_fastchat=True).name == "zero_shot"
    with pytest.raises(turnwise.SourceError, match="PEFT"):
        get_conversation_template("some-peft", strict_fastchat=True)


def test_adapters_can_be_inherited_from() -> None:
    class Longer(compat.VicunaAdapter):  # type: ignore[misc]
        def get_default_conv_template(self, model_path: str) -> Conversation:
            found: Conversation = super().get_default_conv_template(model_path)
            found.set_system_message("Mine.")
            return found

    model_adapters.insert(0, Longer())
    found = get_conversation_template("lmsys/vicuna-7b-v1.5")
    assert (found.name, found.system_message) == ("vicuna_v1.1", "Mine.")
    assert get_conv_template("vicuna_v1.1").system_message != "Mine."
    with pytest.raises(AttributeError, match="VicunasAdapter"):
        _ = compat.VicunasAdapter


def test_adapters_that_are_none() -> None:
    for wrong in (Mine(), int, "Mine", None):
        with pytest.raises(turnwise.SourceError, match="an adapter is a class with match"):
            register_model_adapter(wrong)  # type: ignore[type-var]
    for call in (get_model_adapter, get_conversation_template):
        with pytest.raises(turnwise.SourceError, match="a model path is text"):
            call(5)  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="does not load"):
        get_model_adapter("vicuna").load_model("vicuna", {})
    model_adapters[:] = [Mine()]
    with pytest.raises(ValueError, match="no model adapter takes 'other'"):
        get_model_adapter("other")

    class Forgetful(Mine):
        def get_default_conv_template(self, model_path: str) -> Any:
            return "zephyr"

    model_adapters[:] = [Forgetful()]
    with pytest.raises(turnwise.SourceError, match="an adapter returned 'zephyr'"):
        get_conversation_template("my-own")


def test_lists_of_models() -> None:
    """FastChat's tuples of the models of two services; each is taken by its adapter."""
    assert {"gpt-3.5-turbo", "gpt-4-0613", "o1-mini"} <= set(compat.OPENAI_MODEL_LIST)
    assert {"claude-2.1", "claude-3-opus-20240229"} <= set(compat.ANTHROPIC_MODEL_LIST)
    assert (len(compat.OPENAI_MODEL_LIST), len(compat.ANTHROPIC_MODEL_LIST)) == (23, 12)
    for names, adapter in (
        (compat.OPENAI_MODEL_LIST, "ChatGPTAdapter"),
        (compat.ANTHROPIC_MODEL_LIST, "ClaudeAdapter"),
    ):
        assert isinstance(names, tuple)
        assert {type(get_model_adapter(name)).__name__ for name in names} == {adapter}
