"""Mistakes of users: each mistake is an error of ours that names the place and what is accepted.

And what they may do without harm: change what they were given, or what they gave.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import turnwise
from turnwise import evidence, shapes
from turnwise.compat import fastchat, paddlenlp, xtuner
from turnwise.dialects import DIALECTS
from turnwise.dialects.translation import copy_source
from turnwise.errors import SourceError, TurnwiseError
from turnwise.registry import entries, load, register, unregister
from turnwise.shapes import parse_transcript

CHAT = [{"role": "user", "content": "hello"}]
ROUNDS = ["{{user}}", "{{bot}}"]
PAIRED = {"conversation": ROUNDS, "query": "{{query}}"}

SOURCES: dict[str, dict[str, Any]] = {
    "xtuner": {"INSTRUCTION": "{input}", "STOP_WORDS": ["a"]},
    "fastchat": {
        "name": "n",
        "roles": ["U", "A"],
        "sep_style": "CHATML",
        "sep": "x",
        "stop_str": ["a"],
    },
    "paddlenlp": {"conversation": list(ROUNDS), "query": "{{query}}"},
    "llamafactory": {"format_user": ["{{content}}"], "stop_words": ["a"]},
    "internlm2": {"eoh": "x\n", "stop_words": ["a"]},
    "xtuner_v1": {"user": "{user}", "assistant": "{assistant}", "stop_words": ["a"]},
}


# What is given and what is taken are two things


def spoil(value: Any) -> None:
    """Every list and mapping of a source, spoilt."""
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list):
            spoil(item)
    value.update(HACK="HACK") if isinstance(value, dict) else value.append("HACK")


@pytest.mark.parametrize("dialect", SOURCES)
def test_a_template_keeps_nothing_of_its_caller(dialect: str) -> None:
    given = copy_source(SOURCES[dialect])
    template = turnwise.compile(given, dialect)
    spoil(given)
    assert template.source == SOURCES[dialect]
    for taken in (template.source, template.convert(dialect)):
        spoil(taken)
    assert template.source == SOURCES[dialect]


def test_an_entry_belongs_to_everybody() -> None:
    before = load("fastchat:zephyr").source
    spoil(load("fastchat:zephyr").convert("fastchat"))
    spoil(entries()["fastchat:zephyr"].source)
    assert load("fastchat:zephyr").source == before == entries()["fastchat:zephyr"].source
    with pytest.raises(AttributeError):
        entries()["chatml"].options.update(eos_token="HACK")  # type: ignore[attr-defined]
    loaded = load("chatml")
    with pytest.raises(TypeError):
        loaded.options["eos_token"] = "HACK"  # type: ignore[index]
    assert "HACK" not in load("chatml").options.values()


def test_a_registered_source_is_a_copy() -> None:
    given = copy_source(SOURCES["fastchat"])
    options: dict[str, Any] = {"words": ["a"]}
    register("misuse", given, dialect="fastchat", options=options)
    try:
        spoil(given)
        spoil(options)
        assert load("misuse").source == SOURCES["fastchat"] and load("misuse").options == {
            "words": ["a"]
        }
        spoil(entries()["misuse"].options["words"])
        assert load("misuse").options == {"words": ["a"]}
    finally:
        unregister("misuse")


def test_conversations_have_lists_of_their_own() -> None:
    listed = [
        (name, key)
        for name, template in fastchat.conv_templates.items()
        for key in ("stop_str", "stop_token_ids")
        if isinstance(getattr(template, key), list)
    ]
    assert len(listed) > 10
    for name, key in listed:
        getattr(fastchat.get_conv_template(name), key).append("HACK")
        assert "HACK" not in getattr(fastchat.get_conv_template(name), key)
        assert "HACK" not in str(load(f"fastchat:{name}").source)


def test_a_conversation_goes_on_without_its_template() -> None:
    held = fastchat.get_conv_template("vicuna_v1.1")
    template = turnwise.compile(held)
    held.append_message("USER", "hello")
    held.sep = "HACK"
    assert template.source["messages"] == [] and template.source["sep"] == " "
    assert turnwise.compile(json.dumps(template.source)).text == template.text


def test_a_source_that_holds_itself() -> None:
    given: dict[str, Any] = {"INSTRUCTION": "{input}"}
    given["STOP_WORDS"] = [given]
    with pytest.raises(SourceError, match="contains itself"):
        turnwise.compile(given)


# A wrong key does not hide the dialect


WRONG: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    (
        {"conversation": ROUNDS, "querry": "{{query}}"},
        ("unknown key 'querry'", "Did you mean 'query'?"),
    ),
    ({"SYSTEM": "{system}", "SUFFIX": "x"}, ("'INSTRUCTION' is missing",)),
    ({"INSTRUCTON": "{input}"}, ("unknown key 'INSTRUCTON'", "Did you mean 'INSTRUCTION'?")),
    (
        {"name": "n", "roles": ["U", "A"], "sep_stile": "CHATML"},
        ("'sep_stile'", "Did you mean 'sep_style'?"),
    ),
    (
        {"format_usr": ["{{content}}"], "stop_word": []},
        ("'format_usr'", "Did you mean 'format_user'?"),
    ),
    ({"meta_instruction": "m", "eosys": "e", "eoo": "e"}, ("'eoo'", "eoa")),
    (
        {"stop_words": [], "user": "{user}", "asistant": "{assistant}", "thinking": "t"},
        ("'asistant'", "'assistant'"),
    ),
]


@pytest.mark.parametrize(("source", "problem"), WRONG)
def test_the_nearest_dialect_says_what_is_wrong(
    source: dict[str, Any], problem: tuple[str, ...], tmp_path: Path
) -> None:
    file, model = tmp_path / "any.json", tmp_path / "model" / "chat_template.json"
    model.parent.mkdir()
    for path in (file, model):
        path.write_text(json.dumps(source), encoding="utf-8")
    asked: tuple[Callable[[], Any], ...] = (
        lambda: turnwise.compile(source),
        lambda: turnwise.compile(json.dumps(source)),
        lambda: load(file),
        lambda: load(model.parent),
    )
    for number, ask in enumerate(asked):
        with pytest.raises(SourceError) as caught:
            ask()
        assert all(text in str(caught.value) for text in problem), str(caught.value)
        assert number < 2 or str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("dialect", SOURCES)
def test_a_whole_source_is_known_as_mapping_and_as_json(dialect: str) -> None:
    assert turnwise.compile(SOURCES[dialect]).dialect == dialect
    assert turnwise.compile(json.dumps(SOURCES[dialect])).dialect == dialect


@pytest.mark.parametrize(
    "row",
    [
        {"messages": CHAT},
        {"messages": CHAT, "name": "x", "roles": ["a", "b"]},
        {"conversations": [{"from": "human", "value": "q"}], "system": "s"},
        {"instruction": "q", "input": "", "output": "a"},
        {"bos_token": "<s>", "eos_token": "</s>", "model_max_length": 5},
        {"query": "q", "response": "r"},
    ],
)
def test_data_and_settings_are_no_dialect(row: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(json.dumps(row), encoding="utf-8")
    with pytest.raises(SourceError, match="has no chat_template"):
        load(file)


def test_all_accepted_values_are_listed() -> None:
    with pytest.raises(ValueError) as caught:  # FastChat's own kind, through every door
        turnwise.compile({**SOURCES["fastchat"], "sep_style": "FOO"}, name="mine")
    assert isinstance(caught.value, SourceError) and str(caught.value).startswith("mine: ")
    assert all(style.name in str(caught.value) for style in fastchat.SeparatorStyle)


def test_a_slot_that_is_misspelt() -> None:
    with pytest.raises(SourceError, match=r"Did you mean 'content'\?"):
        turnwise.compile({"format_user": ["{{contnt}}"]})


# Text would be lost


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (
            {**PAIRED, "conversation": ["{{usr}}", "{{bot}}"]},
            ("conversation[0]", "reads usr", "{{user}} for {{usr}}"),
        ),
        (
            {**PAIRED, "conversation": ["{{user}}", "{{system}}"]},
            ("conversation[1]", "{{bot}}", "reads system"),
        ),
        (
            {**PAIRED, "query": "{{qery}}"},
            ("query", "never writes {{query}}", "{{query}} for {{qery}}"),
        ),
        ({**PAIRED, "query": "hello"}, ("reads nothing", "is_first")),
    ],
)
def test_a_field_must_read_its_turn(source: dict[str, Any], problem: tuple[str, ...]) -> None:
    template = paddlenlp.ChatTemplate.from_dict(source)
    for ask in (lambda: turnwise.compile(source), lambda: template([["a", "b"], ["c"]])):
        with pytest.raises(SourceError) as caught:
            ask()
        assert all(text in str(caught.value) for text in problem), str(caught.value)
    kept = turnwise.compile(
        {**PAIRED, "query": "{{mood}}{{query}}"}
    )  # what the caller gives has any name
    assert kept.render(CHAT, add_generation_prompt=True, mood="!").text == "!hello"


# No other library's exceptions


DEEP = "[" * 100_000


@pytest.mark.parametrize("key", ["sep_style", "format_user", "INSTRUCTION"])
def test_deep_json_is_refused(key: str) -> None:
    with pytest.raises(SourceError):
        turnwise.compile(f'{{"{key}":{DEEP}')


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name not in ("jinja", "ollama")])
@pytest.mark.parametrize(
    "source", [{1: 2}, {None: {}}, [], 5, None, f'{{"a":{DEEP}', "[1]", "{", "1" * 5000]
)
def test_every_dialect_refuses_what_is_not_its_own(dialect: str, source: Any) -> None:
    with pytest.raises(TurnwiseError):
        turnwise.compile(source, dialect)


def build_conversation(**fields: Any) -> fastchat.Conversation:
    return fastchat.Conversation(
        **{"name": "n", "sep_style": fastchat.SeparatorStyle.CHATML, "sep": "x", **fields}
    )


class Ambiguous:
    """As an array of numpy is, if it is asked whether it is true."""

    def __bool__(self) -> bool:
        raise ValueError("the truth value of an array with more than one element is ambiguous")


CHATML = load("chatml")
BUFFER: Any = array("i", [1])  # `marshal` writes it, and arrays of numpy, as bytes
FILE = paddlenlp.ChatTemplate(**PAIRED)
TEXTS = paddlenlp.Chat(PAIRED)
JINJA = paddlenlp.Chat("{% for m in messages %}{{ m.content }}{% endfor %}")
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "no messages": (lambda: xtuner.openai_map_fn({}), "there is no 'messages'"),
    "no content": (
        lambda: xtuner.openai_map_fn({"messages": [{"role": "user"}]}),
        r"messages\[0\]: .*'content'",
    ),
    "no example": (lambda: xtuner.openai_map_fn(None), "a mapping"),  # type: ignore[arg-type]
    "no answer": (
        lambda: map_turn({"input": "q", "output": None}),
        r"conversation\[0\]\.output: must be text, not None",
    ),
    "no rounds": (
        lambda: xtuner.template_map_fn({"conversation": None}, "default"),
        "conversation: must be a list",
    ),
    "no round": (lambda: map_turn(5), r"conversation\[0\]"),
    "no output": (lambda: xtuner.segments({"conversation": [{"input": "q"}]}), "no 'output'"),
    "no system text": (lambda: xtuner.load("internlm_chat", system="codr"), "Did you mean 'coder'"),
    "context list": (lambda: FILE("q", [1]), "context_data"),  # type: ignore[arg-type]
    "context text": (lambda: FILE("q", "x"), "context_data"),  # type: ignore[arg-type]
    "context messages": (lambda: FILE("q", {"messages": []}), "may not give 'messages'"),
    "context number": (lambda: FILE("q", {3: 4}), "may not give 3"),  # type: ignore[dict-item]
    "no finished rounds": (lambda: TEXTS.encode_chat_inputs(None, tokenize=False), "rounds"),  # type: ignore[arg-type]
    "none for Jinja": (lambda: JINJA.encode_chat_inputs(None, tokenize=False), "rounds"),  # type: ignore[arg-type]
    "no finished round": (lambda: FILE.render_conversation(None), r"\[user, bot\], not None"),
    "no tgt": (lambda: paddlenlp.training_rounds({"src": "a"}), "tgt"),
    "nothing to cut": (lambda: paddlenlp.truncate_rounds({"conversations": []}, 5, 5), "no rounds"),
    "one role": (lambda: build_conversation(roles=("U",)).get_prompt(), "user and the assistant"),
    "no roles": (lambda: build_conversation(roles=None).get_prompt(), "user and the assistant"),
    "three of a message": (
        lambda: build_conversation(messages=[["USER", "a", "b"]]).get_prompt(),
        r"messages\[0\]",
    ),
    "messages of OpenAI": (
        lambda: build_conversation(messages=CHAT).get_prompt(),
        r"\[role, text\], not \{'role'",
    ),
    "a copy of these": (lambda: build_conversation(messages=CHAT).copy(), r"messages\[0\]"),
    "a field of lists": (
        lambda: build_conversation(sep=["x"]).get_prompt(),
        r"sep must be a string or null, not \['x'\]",
    ),
    "a name of lists": (lambda: fastchat.get_conv_template(["a"]), "no conversation template"),  # type: ignore[arg-type]
    "no conversation": (lambda: fastchat.register_conv_template(5), "a Conversation"),  # type: ignore[arg-type]
    "a list to write": (lambda: shapes.write(CHAT, "sharegpt"), "takes a ParsedRow"),  # type: ignore[arg-type]
    "a number of a shape": (lambda: shapes.conversation(CHAT, shape=5), "no shape 5"),  # type: ignore[arg-type]
    "no transcript": (lambda: parse_transcript(None), "a transcript is text"),  # type: ignore[arg-type]
    "no folder": (lambda: turnwise.release(None), "a model folder, not of None"),  # type: ignore[arg-type]
    "no template": (lambda: turnwise.Normaliser(None), "a template, not None"),  # type: ignore[arg-type]
    "no rows": (lambda: list(evidence.scan(None)), "not NoneType"),  # type: ignore[arg-type]
    "an array of tools": (
        lambda: CHATML.render(CHAT, tools=BUFFER),
        "tools: tools are a list, not array: <array>",
    ),
    "an array in a tool": (
        lambda: CHATML.render(CHAT, tools=[{"name": "tide", "enum": BUFFER}]),
        r"tools\[0\]\.enum: a value of type array is not JSON",
    ),
    "tools without a truth": (
        lambda: CHATML.encode(CHAT, "turnwise", tools=Ambiguous()),  # type: ignore[arg-type]
        "tools: tools are a list, not Ambiguous",
    ),
    "a number that grows": (
        lambda: CHATML.encode(CHAT, "turnwise", growing=3),  # type: ignore[arg-type]
        r"growing: growing is a GrowingPrompt, not 3\n  .*GrowingPrompt\(\) makes one",
    ),
    "no engine": (lambda: evidence.conform(None, None), "NoneType is no Template"),  # type: ignore[arg-type]
}


def map_turn(turn: Any) -> Any:
    return xtuner.template_map_fn({"conversation": [turn]}, "internlm_chat")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told(mistake: str) -> None:
    make, problem = MISTAKES[mistake]
    with pytest.raises(TurnwiseError) as caught:
        make()
    caught.match(problem)


@pytest.mark.parametrize("mistake", ["no messages", "no content", "no tgt", "a name of lists"])
def test_what_the_original_raises_can_still_be_caught(mistake: str) -> None:
    with pytest.raises(KeyError):
        MISTAKES[mistake][0]()
