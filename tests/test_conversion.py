"""Conversion: what a declarative dialect can say is said and holds; what it cannot say is named, with a conversation.

`convert` verifies what it wrote, with the probes. Here its results are rendered again on conversations of our own, by
the reader of the target dialect, so that a gap in the verification shows. White space at the very end is not compared,
nor is a conversation that the template itself refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

import corpus
import oracle
import turnwise
from corpus import needs_corpus
from turnwise import dialects
from turnwise.conversion import turns_of
from turnwise.dialects.turns import Slot
from turnwise.registry import entries

TARGETS = ("xtuner", "llamafactory", "paddlenlp", "ollama")
OFFICIAL = [name for name, entry in entries().items() if entry.dialect == "jinja"]
SAID = ("chatml", "yi", "zephyr", "mistral")
TEXTS = ("What is it?", "It's {input} {{ 1 + 1 }}\n", "a\n\nb", "说 <b>", "last")
XTUNER = {
    "SYSTEM": "<|im_start|>system\n{system}<|im_end|>\n",
    "INSTRUCTION": "<|im_start|>user\n{input}<|im_end|>\n<|im_start|>assistant\n",
    "SUFFIX": "<|im_end|>",
    "SUFFIX_AS_EOS": True,
    "SEP": "\n",
    "STOP_WORDS": ["<|im_end|>"],
}
PADDLENLP = {"system": "S", "conversation": ["[{{index}}] {{user}}\n", "{{bot}}</s>"], "query": "{{query}}\n"}
INSIDE = (
    "{% for m in messages %}{{ m.role }}{{ eos_token }}{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}assistant{{ eos_token }}{% endif %}"
)
WORD = {"paddlenlp": "eos_token", "ollama": "eos"}  # what `convert` calls the text of that token


def chats() -> Iterator[list[dict[str, str]]]:
    """Rounds of one to five messages, with a system text and without."""
    for length in range(1, 6):
        turns = [
            {"role": ("user", "assistant")[at % 2], "content": text.strip() if at == length - 1 else text}
            for at, text in enumerate(TEXTS[:length])
        ]
        yield turns
        yield [{"role": "system", "content": "Be kind: 'yes'."}, *turns]


@cache
def load(name: str) -> turnwise.Template:
    return turnwise.load(name)


def converted(template: turnwise.Template, dialect: str, **details: Any) -> Any:
    """The source, or the error; anything else that is raised is a failure."""
    try:
        return template.convert(dialect, **details)
    except turnwise.SourceError as error:
        return error


def disagreements(template: turnwise.Template, source: Any, dialect: str) -> list[Any]:
    """The conversations that the written source says otherwise."""
    written = turnwise.compile(source, dialect, options=template.options)
    found = []
    for chat in chats():
        opening = chat[-1]["role"] == "user"
        arguments: dict[str, Any] = {"bos_token": "", "eos_token": "</s>", **template.options}
        arguments |= {"bos_token": "", "add_generation_prompt": opening, "now": corpus.NOW}
        try:
            expected = template.render(chat, **arguments).text.rstrip()
        except turnwise.TurnwiseError:
            continue
        if (dialect != "ollama" or opening) and written.render(chat, **arguments).text.rstrip() != expected:
            found.append(chat)
    return found


# What can be said


@pytest.mark.parametrize("dialect", TARGETS)
@pytest.mark.parametrize("name", SAID)
def test_plain_templates_are_said_in_every_dialect(name: str, dialect: str) -> None:
    source = load(name).convert(dialect)
    assert dialects.guess(source) == dialect
    assert disagreements(load(name), source, dialect) == []


@pytest.mark.parametrize("dialect", TARGETS)
def test_stops_are_said_too(dialect: str) -> None:
    for name in ("chatml", "yi"):
        assert turnwise.compile(load(name).convert(dialect), dialect).stops() == ("<|im_end|>",)


def test_what_is_written() -> None:
    """It is what people would have written."""
    chatml = load("chatml")
    assert chatml.convert("xtuner") == XTUNER
    assert load("zephyr").convert("xtuner") == {
        "SYSTEM": "<|system|>\n{system}</s>\n",
        "INSTRUCTION": "<|user|>\n{input}</s>\n<|assistant|>\n",
        "SEP": "\n",
    }  # eos_token ends a reply unless SUFFIX stands for it
    assert load("mistral").convert("xtuner") == {"INSTRUCTION": "[INST] {input} [/INST]", "SEP": " "}
    assert load("yi").convert("llamafactory") == {
        "format_system": ["{{content}}"],
        "format_user": ["<|im_start|>user\n{{content}}<|im_end|>\n<|im_start|>assistant\n"],
        "format_assistant": ["{{content}}<|im_end|>\n"],
        "stop_words": ["<|im_end|>"],
    }
    modelfile = chatml.convert("ollama")
    assert modelfile.startswith("FROM .\nTEMPLATE") and modelfile.endswith('PARAMETER stop "<|im_end|>"\n')


def test_the_turns_are_read_off_the_pieces() -> None:
    found = turns_of(load("chatml"))
    assert found.user == ("<|im_start|>user\n", Slot("text"), "<|im_end|>\n")
    assert found.system == ("<|im_start|>system\n", Slot("text"), "<|im_end|>\n")
    assert (found.opening, found.closing, found.between) == ("<|im_start|>assistant\n", "<|im_end|>", "\n")
    assert (found.start, found.default_system, found.eos) == ("", None, False)
    assert turns_of(load("qwen1.5")).default_system == "You are a helpful assistant"
    assert turns_of(load("mistral"), "</s>").eos and turns_of(load("mistral"), "</s>").system is None


def test_a_token_whose_text_is_asked_for() -> None:
    """Replies of `default` end with the tokenizer's eos_token; a dialect of plain text must be told what that is."""
    default = load("default")
    assert "SUFFIX_AS_EOS" not in default.convert("xtuner")
    for dialect, detail in (("paddlenlp", "eos_token"), ("ollama", "eos")):
        error = converted(default, dialect)
        assert isinstance(error, turnwise.SourceError) and "eos_token" in str(error)
        source = default.convert(dialect, **{detail: "</s>"})
        assert "</s>" in str(source) and disagreements(default, source, dialect) == []


@pytest.mark.parametrize("dialect", TARGETS)
def test_the_jinja_of_what_was_written_works_in_transformers(dialect: str) -> None:
    written = turnwise.compile(load("chatml").convert(dialect), dialect)
    for chat in chats():
        opening = chat[-1]["role"] == "user"
        expected = oracle.render(written.text, chat, add_generation_prompt=opening, eos_token="</s>", bos_token="")
        assert written.render(chat, add_generation_prompt=opening, eos_token="</s>", bos_token="").text == expected


# What cannot be said


@pytest.mark.parametrize("dialect", [dialect for dialect in TARGETS if dialect != "xtuner"])
def test_tools_are_an_obstacle(dialect: str) -> None:
    error = converted(load("qwen2.5"), dialect)
    assert isinstance(error, turnwise.SourceError)
    assert error.message == f"{dialect} cannot say this template: tools"
    shown = [line.strip() for line in str(error).splitlines()]
    at = shown.index("they differ on:")
    assert shown[at + 1] == "{'role': 'user', 'content': 'F'}" and shown[at + 2].startswith("tools=[")
    assert "# Tools" in str(error)


def test_a_default_system_text_is_an_obstacle_to_xtuner() -> None:
    """Its dict has no place for one; with the system text given by hand, everything else of Qwen1.5 can be said."""
    for name in ("qwen1.5", "qwen2.5"):
        error = converted(load(name), "xtuner")
        assert isinstance(error, turnwise.SourceError) and "You are" in error.message
    bare = load("qwen1.5").text.replace("You are a helpful assistant", "")
    assert isinstance(converted(turnwise.compile(bare), "xtuner"), turnwise.SourceError)  # an empty turn is one, too


@pytest.mark.parametrize("name", ["qwen3", "qwen3-thinking"])
def test_rounds_that_are_not_alike_are_an_obstacle(name: str) -> None:
    error = converted(load(name), "xtuner")
    assert isinstance(error, turnwise.SourceError)
    assert "a second round that is not written like the first" in error.message


def test_a_template_that_takes_no_rounds() -> None:
    for text in ("{{ raise_exception('no') }}", ""):
        error = converted(turnwise.compile(text), "xtuner")
        assert isinstance(error, turnwise.SourceError) and "users and replies" in error.message
    error = converted(turnwise.compile("{{ messages | tojson }}"), "xtuner")
    assert isinstance(error, turnwise.SourceError) and "a text that every conversation starts with" in error.message


def test_a_token_inside_a_turn() -> None:
    error = converted(turnwise.compile(INSIDE), "llamafactory")
    assert isinstance(error, turnwise.SourceError) and "pass eos_token=..." in error.message
    source = turnwise.compile(INSIDE, options={"eos_token": "</s>"}).convert("llamafactory")
    assert source["format_user"] == ["user</s>{{content}};assistant</s>"]



@pytest.mark.parametrize(
    "dialect",
    ["paddlenlp", "xtuner", "llamafactory", "ollama"],
)
def test_the_token_can_be_passed_as_the_error_says(dialect: str) -> None:
    source = turnwise.compile(INSIDE).convert(dialect, eos_token="</s>")
    assert "user</s>" in str(source)


def test_dialects_that_are_only_read() -> None:
    for dialect in ("internlm2", "xtuner_v1"):
        with pytest.raises(turnwise.SourceError, match=f"{dialect} sources can be read, not written"):
            load("chatml").convert(dialect)
    with pytest.raises(turnwise.SourceError, match="there is no dialect 'xtunr'") as error:
        load("chatml").convert("xtunr")
    assert "Did you mean 'xtuner'" in str(error.value)


# The registry


@pytest.mark.parametrize("name", OFFICIAL)
def test_official_entries_are_said_or_the_obstacle_is_named(name: str) -> None:
    template = load(name)
    assert template.convert("jinja") == template.text == template.source
    for dialect in TARGETS:
        told = {WORD[dialect]: "</s>"} if dialect in WORD and "eos_token" not in template.options else {}
        source = converted(template, dialect, **told)
        if not isinstance(source, turnwise.SourceError):
            assert disagreements(template, source, dialect) == [], dialect
            continue
        assert "cannot" in source.message and source.message.partition(": ")[2], dialect
        if "cannot say this template" in source.message:
            assert "they differ on:" in str(source) and "\na: " in str(source), dialect


def test_how_many_official_entries_are_said() -> None:
    """A change here is worth a look: fewer is a loss, more is to be believed only with the test above."""
    said = {
        dialect: [name for name in OFFICIAL if not isinstance(converted(load(name), dialect), turnwise.SourceError)]
        for dialect in TARGETS
    }
    assert all(set(SAID) <= set(names) for names in said.values())
    assert all(len(names) >= least for names, least in zip(said.values(), (13, 17, 16, 18), strict=True)), {
        dialect: len(names) for dialect, names in said.items()
    }


@pytest.mark.parametrize("dialect", TARGETS)
def test_what_a_template_does_with_messages_is_not_lost(dialect: str) -> None:
    """DeepSeek R1 leaves thoughts out of the history, and writes calls without ever reading `tools`."""
    assert isinstance(converted(load("deepseek-r1"), dialect), turnwise.SourceError)


@pytest.mark.parametrize(
    ("dialect", "count"),
    [
        ("xtuner", 27),
        ("xtuner_v1", 8),
        ("llamafactory", 124),
        ("fastchat", 102),
    ],
)
def test_an_imported_entry_comes_back(dialect: str, count: int) -> None:
    names = [name for name in entries(dialect=dialect) if name != "fastchat:yandexgpt"]  # has no style: cannot be read
    assert len(names) == count
    for name in names:
        source = load(name).convert(dialect)
        assert source == entries()[name].source == load(name).source, name
        assert turnwise.compile(source, dialect).text == load(name).text, name


def test_the_seed_s_dict_comes_back() -> None:
    assert turnwise.load("internlm_chat").convert("xtuner") == {
        "SYSTEM": "<|System|>:{system}\n",
        "INSTRUCTION": "<|User|>:{input}<eoh>\n<|Bot|>:",
        "SUFFIX": "<eoa>",
        "SUFFIX_AS_EOS": True,
        "SEP": "\n",
        "STOP_WORDS": ["<eoa>"],
    }


def test_a_source_of_paddlenlp_comes_back() -> None:
    template = turnwise.compile(PADDLENLP, "paddlenlp")
    assert template.convert("paddlenlp") == PADDLENLP == template.source
    assert turnwise.compile(template.convert("paddlenlp")).text == template.text


@needs_corpus
def test_every_source_of_paddlenlp_comes_back() -> None:
    rows = [row for row in corpus.lines("golden/paddlenlp.jsonl") if row["kind"] == "template"]
    assert len(rows) >= 15
    for row in rows:
        try:
            template = turnwise.compile(row["config"], "paddlenlp")
        except turnwise.SourceError:
            assert row["t"] == "docs_custom_system"  # its Jinja is none
            continue
        assert template.convert("paddlenlp") == row["config"], row["t"]


@pytest.mark.parametrize(
    "source",
    [
        {"spelling": "current"},
        'FROM x\nTEMPLATE """{{ .Prompt }}{{ .Response }}"""\n',
    ],
    ids=["internlm2", "ollama"],
)
def test_a_source_of_another_dialect_comes_back(source: Any) -> None:
    dialect = dialects.guess(source)
    assert turnwise.compile(source, dialect).convert(dialect) == source


@pytest.mark.parametrize("name", entries(dialect="xtuner"))
def test_xtuner_comes_back_from_its_jinja_alone(name: str) -> None:
    """Nothing but the Jinja is known: the dict that is read off it means the same, or the obstacle is named."""
    template = turnwise.compile(load(name).text, options=load(name).options)
    source = converted(template, "xtuner")
    if isinstance(source, turnwise.SourceError):
        assert name in ("xtuner:chatglm2", "xtuner:gemma"), str(source)  # {round}; eos_token behind a suffix
    else:
        assert turnwise.compile(source, "xtuner").text == template.text
