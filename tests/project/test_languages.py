"""What the commands can show is in the catalogue of each language, and nothing else is."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from string import Formatter
from typing import Any

import pytest
from click.testing import CliRunner

import turnwise
from message_texts import PLACEHOLDER, find_texts
from sources import PACKAGE
from turnwise.analysis.forms import load_forms
from turnwise.cli import app
from turnwise.cli.options import read_table
from turnwise.engine.compiler.syntax import SYNTAX_HINTS
from turnwise.evidence.checks import CHECKS
from turnwise.languages import LANGUAGES, find_language, read_phrases, translate
from turnwise.serve.playground_api import call

pytestmark = pytest.mark.once

# What only the Python API or an HTTP client is shown, which stays English.
NOT_SHOWN = (
    *("compat", "integrations", "oracles", "isolation", "batch.py", "training.py"),
    "tokens/session.py",
    *(
        f"serve/{name}.py"
        for name in (
            *("api_requests", "app", "chat_route", "derendering", "gateway", "memory", "openapi"),
            *("operations", "plain_stream", "rendering", "reply_checks", "reply_writers"),
            *("request_types", "sampling", "service", "stop_texts", "trajectories", "upstreams"),
        )
    ),
)
COMPOSED = ("frames", "changes", "forms", "titles", "reports", "usage", "help", "entries")
"""Topics of sentences that are put together, stand in data files, or are click's."""
MIN_COVERED = 0.95
CHAT = [{"role": "user", "content": "the template is nested too deeply"}]


def read_topics(language: str) -> dict[str, dict[str, str]]:
    text = (PACKAGE / "languages" / f"{language}.json").read_text(encoding="utf-8")
    topics: dict[str, dict[str, str]] = json.loads(text)
    return topics


def fill(pattern: str) -> str:
    """Return a sentence of a pattern, with a word for each value."""
    numbers = iter(range(100))
    values = re.sub(PLACEHOLDER, lambda _: f"'v{next(numbers)}'", pattern.replace("{{", "\0"))
    return values.replace("\0", "{").replace("}}", "}").strip()


def anonymise(pattern: str) -> str:
    return re.sub(r"\{\w+\}", "{}", pattern).strip()


def list_untranslated(texts: Iterable[str], language: str) -> list[str]:
    return [text for text in texts if translate(text, language) == text]


@pytest.mark.law
@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_what_commands_show_is_translated(language: str, sample: Any) -> None:
    texts = find_texts(NOT_SHOWN)
    assert len(texts) > 800  # else the reader of the source is broken
    texts = dict(sample(texts.items(), 150))
    left = {fill(text): place for text, place in texts.items()}
    left = {text: left[text] for text in list_untranslated(left, language)}
    listed = "\n".join(f"{place}: {text}" for text, place in left.items())
    print(f"{language}: {len(texts) - len(left)} of {len(texts)} messages\n{listed}")
    assert len(left) <= (1 - MIN_COVERED) * len(texts), listed


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_no_pattern_is_unused(language: str) -> None:
    known = {anonymise(text) for text in find_texts(NOT_SHOWN)}
    unused = [
        english
        for topic, phrases in read_topics(language).items()
        if topic not in COMPOSED
        for english in phrases
        if anonymise(english) not in known
    ]
    assert len(unused) <= (1 - MIN_COVERED) * len(known), "\n".join(unused)


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_patterns_have_the_same_values(language: str) -> None:
    for _, english, translated in read_phrases(language):
        names = [{name for _, name, *_ in Formatter().parse(one)} for one in (english, translated)]
        assert names[0] | {None} == names[1] | {None}, english


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_findings_forms_notes_and_help_are_translated(language: str) -> None:
    forms = [text for form in load_forms().values() for text in (form.what, form.plainly) if text]
    assert not list_untranslated(forms, language)
    notes = [entry.notes for entry in turnwise.entries().values() if entry.notes]
    titles = [check.title for check in CHECKS]
    for texts in (titles, notes, list(list_help())):
        left = list_untranslated(texts, language)
        assert len(left) <= (1 - MIN_COVERED) * len(texts), "\n".join(left)


def list_help() -> Iterator[str]:
    """Yield the sentences of `--help` of all commands."""
    for row in read_table().values():
        yield from row["help"]
        yield from (param["help"] for param in row["params"])


def run(*words: str, language: str = "zh") -> str:
    return CliRunner(env={"TURNWISE_LANG": language}).invoke(app, [*words]).output


def test_a_report_and_an_error_are_chinese_and_json_is_not() -> None:
    assert "修复：" in run("check", "llama-2") and "fix:" in run("check", "llama-2", language="en")
    assert "没有叫这个名称的文件" in run("render", "nosuch", "--user", "x")
    assert "没有选项" in run("render", "--nosuch")
    data = json.loads(run("check", "llama-2", "--json"))
    assert data == json.loads(run("check", "llama-2", "--json", language="en"))


def test_a_conversation_is_never_translated() -> None:
    words = ("render", "chatml", "--user", CHAT[0]["content"])
    assert run(*words) == run(*words, language="en")
    body = {"template": "chatml", "messages": CHAT, "language": "zh"}
    assert call("render", body)["text"] == call("render", body | {"language": "en"})["text"]
    answer = call("parse", {"template": "chatml", "reply": CHAT[0]["content"], "language": "zh"})
    assert answer["message"]["content"] == CHAT[0]["content"]


def test_the_playground_answers_in_the_language_it_is_asked_for() -> None:
    found = call("check", {"template": "llama-2", "language": "zh"})["findings"]
    english = call("check", {"template": "llama-2"})["findings"]
    assert [one["code"] for one in found] == [one["code"] for one in english]
    assert all(re.search(r"[一-鿿]", one["message"] + one["fix"]) for one in found)
    assert all(
        one["messages"] == other["messages"] for one, other in zip(found, english, strict=True)
    )
    error = call("render", {"template": "nosuch", "messages": [], "language": "zh"})["error"]
    assert "没有名为" in error["message"] and "没有名为" in error["text"]
    notes = {row["name"]: row["notes_zh"] for row in call("entries", {})["entries"]}
    assert notes["qwen3"].startswith("Qwen3，由")


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({}, "en"),
        ({"TURNWISE_LANG": "zh"}, "zh"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"TURNWISE_LANG": "en", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
    ],
)
def test_the_language_is_that_of_the_variable_or_the_locale(
    environment: dict[str, str], language: str
) -> None:
    assert find_language(environment) == language


@pytest.mark.parametrize(
    "text",
    [
        *("a, b; or c. D: " * 66, ": " * 499, "nested too deeply, " * 50 + "z", "x" * 100_000),
        " rows were read, but , gave samples, " * 27,
    ],
)
def test_a_hostile_text_takes_little_time(text: str) -> None:
    read_phrases("zh")
    start = time.process_time()
    translate(text, "zh")
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("llama-2: 1 error, 3 warnings, 1 note", "llama-2：1 个错误，3 个警告，1 条提示"),
        ("gemma-2: 2 errors, 3 warnings, 1 note", "gemma-2：2 个错误，3 个警告，1 条提示"),
        ("qwen3: 1 warning, 1 note", "qwen3：1 个警告，1 条提示"),
        ("One of: error, warning, note.", "可选：error, warning, note。"),
        (
            "Invalid value for --to: 'foo' is not known. One of: xtuner, jinja.",
            "--to 的值无效：未知的值 'foo'。可选：xtuner, jinja。",
        ),
        (
            "not run: T102, T103: the template refuses a user message",
            "未运行：T102, T103：模板拒绝 user 消息",
        ),
        ("b.jinja: text and tools, no system message", "b.jinja：文本、工具，没有 system 消息"),
        (
            "qwen3 has no tokenizer: its ids are those of a small one",
            "qwen3 没有分词器：使用一个小型分词器的 id",
        ),
        (
            "what begins with '{\"type\":' is not JSON: Expecting ',' delimiter",
            "以 '{\"type\":' 开头的内容不是合法的 JSON：Expecting ',' delimiter",
        ),
        (
            "a user message or a tool result or a system message changes what was written of earlier messages",
            "user 消息或工具结果或 system 消息会改变前面消息已经写出的内容",
        ),
        (
            "Unexpected end of template. Jinja was looking for the following tags: 'endfor' or 'else'. "
            "The innermost block that needs to be closed is 'for'.",
            "模板意外结束，缺少标签 'endfor' or 'else'。最内层未关闭的块是 'for'。",
        ),
        ("16: 37.5% trained", "16：37.5% 参与训练"),
        (
            "b.jinja is not in the revision HEAD: it is in no git repository",
            "版本 HEAD 中没有 b.jinja：它不在 git 仓库中",
        ),
        ("'abc' is not a valid integer range.", "'abc' 不是整数。"),
        # An English subject, and an English part that is not known: the sentence stays as it is.
        ("what nobody ever wrote is not JSON: x", None),
        ("qwen3 has no tokenizer: it was lost at sea", None),
        ("what nobody ever wrote: the template refuses the conversation", None),
        ("row 2: the template refuses the conversation", "row 2: 模板拒绝这段对话"),
        (
            "fastchat cannot express this template: an empty message",
            "fastchat 无法表达这个模板：空消息",
        ),
    ],
)
def test_a_sentence_is_translated_in_full_or_not_at_all(english: str, chinese: str | None) -> None:
    assert translate(english, "zh") == (chinese or english)


@pytest.mark.parametrize("hint", SYNTAX_HINTS.values())
def test_hints_about_syntax_are_chinese(hint: str) -> None:
    assert translate(hint, "zh") != hint and "{{% " not in translate(hint, "zh")
