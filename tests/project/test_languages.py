"""What the commands can show is in the catalogue of each language, and nothing else is."""

from __future__ import annotations

import ast
import json
import re
import time
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from itertools import product
from string import Formatter
from typing import Any

import pytest
from click.testing import CliRunner

import turnwise
from sources import PACKAGE, Function, Source, package
from turnwise.analysis.forms import load_forms
from turnwise.cli import app
from turnwise.cli.options import read_table
from turnwise.engine.compiler.syntax import SYNTAX_HINTS
from turnwise.evidence.checks import CHECKS
from turnwise.languages import LANGUAGES, find_language, read_phrases, translate
from turnwise.serve.playground_api import call as call_playground

# What the package can show to a user, read from its syntax trees: errors, hints, warnings, notes, findings, changes.
#
# A *sink* is a function whose arguments are shown: an error class, `warn_caller`, `Symptom`. What is given to a sink is
# followed to its texts: through names that are assigned, through functions that return it, and through parameters of
# functions, which are sinks then themselves. A text is a pattern in which `{name}` stands for a value.

Places = tuple[int | str, ...]  # of arguments, by position or by name
SINKS: dict[str, Places] = {
    "BadParameter": (0,),
    "Change": (1, 2, "what", "why"),
    "CheckFinding": ("message", "fix"),
    "Symptom": (0, 1, "message", "fix"),
    "_note": (1, 2),
    "fail": (0,),
    "note": (0,),
    "note_warning": (0,),
    "warn": (0,),
    "warn_caller": (0,),
}
ERROR_ARGUMENTS: Places = (0, "message", "hint")
MAX_DEPTH = 5
MAX_ALTERNATIVES = 12
PLACEHOLDER = re.compile(r"\{(\w+)\}")
SENTENCE = re.compile(r"[A-Za-z`'-]{2,}[,:;]? [\w`'\"{<(-]")


class Scope:
    """A function, or the top of a module, and what its names are assigned."""

    def __init__(self, source: Source, function: Function | None, nodes: list[ast.AST]) -> None:
        self.source, self.function, self.nodes = source, function, nodes
        self.assigned: dict[str, list[ast.expr]] = {}
        for node in nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._assign(target, node.value)
            elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value:
                self._assign(node.target, node.value)
            elif isinstance(node, ast.For):
                self._assign(node.target, node.iter)
        given = function.args if function else None
        self.parameters = (
            [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
            if given
            else []
        )
        if self.parameters[:1] in (["self"], ["cls"]):
            del self.parameters[0]

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.assigned.setdefault(target.id, []).append(value)
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, part in zip(target.elts, value.elts, strict=False):
                self._assign(one, part)

    def calls(self) -> Iterator[tuple[ast.Call, str]]:
        for node in self.nodes:
            if isinstance(node, ast.Call):
                yield node, name_of(node.func)


def find_texts(left_out: Collection[str] = ()) -> dict[str, str]:
    """Return the patterns that can be shown, each with a place of it; rooms and files may be left out."""
    sinks = all_sinks()
    found: dict[str, str] = {}
    for scope in scopes():
        place = scope.source.place.removeprefix("src/turnwise/")
        if any(place.startswith(f"{one}/") or place == one for one in left_out):
            continue
        for call, name in scope.calls():
            for value in arguments_of(call, sinks.get(name, ())):
                for text in follow(value, scope, MAX_DEPTH):
                    if SENTENCE.search(text):
                        found.setdefault(text, f"{place}:{call.lineno}")
    return found


def follow(node: ast.expr, scope: Scope, depth: int) -> list[str]:
    """Return the texts that an expression may have; none if nothing is known about them."""
    if not depth:
        return []
    match node:
        case ast.Constant(value=str(text)):
            return [text.replace("{", "{{").replace("}", "}}")]
        case ast.JoinedStr(values=parts):
            return join([follow(part, scope, depth) or [placeholder(part)] for part in parts])
        case ast.FormattedValue(value=ast.IfExp() as choice):
            return follow(choice, scope, depth)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            sides = follow(left, scope, depth), follow(right, scope, depth)
            if not any(sides):
                return []
            return join([sides[0] or [placeholder(left)], sides[1] or [placeholder(right)]])
        case ast.IfExp(body=one, orelse=other):
            return follow(one, scope, depth) + follow(other, scope, depth)
        case ast.BoolOp(values=values):
            return [text for value in values for text in follow(value, scope, depth)]
        case ast.NamedExpr(value=value):
            return follow(value, scope, depth)
        case ast.Name(id=name):
            return follow_name(name, scope, depth - 1)
        case ast.Subscript(value=ast.Name(id=name)):
            return follow_table(name, scope, depth - 1)
        case ast.Call(func=ast.Attribute(attr="get", value=ast.Name(id=name))):
            return follow_table(name, scope, depth - 1)
        case ast.Call() if (name := name_of(node.func)) in returns():
            return [
                text for value, inner in returns()[name] for text in follow(value, inner, depth - 1)
            ]
    return []


def follow_name(name: str, scope: Scope, depth: int) -> list[str]:
    found = scope.assigned.get(name)
    if found is None and scope.function is not None and name not in scope.parameters:
        top = module_scopes()[scope.source.module]
        found, scope = top.assigned.get(name), top
    return [text for value in found or () for text in follow(value, scope, depth)]


def follow_table(name: str, scope: Scope, depth: int) -> list[str]:
    """Return the texts that are the values of a dict at the top of a module."""
    for top in (module_scopes()[scope.source.module], *module_scopes().values()):
        for value in top.assigned.get(name, ()):
            if isinstance(value, ast.Dict):
                texts = [follow(one, top, depth) for one in value.values]
                return [text for several in texts for text in several]
    return []


def join(parts: list[list[str]]) -> list[str]:
    """Return all ways to take one text of each part; the first ways, if there are many."""
    ways = 1
    for number, part in enumerate(parts):
        parts[number] = part if ways * len(part) <= MAX_ALTERNATIVES else part[:1]
        ways *= len(parts[number])
    return ["".join(way) for way in product(*parts)]


def placeholder(node: ast.expr) -> str:
    """Return a placeholder named after the last word of an expression: `{path}` for `entry.path`."""
    words = [word for word in re.findall(r"[a-z_]{2,}", ast.unparse(node)) if word not in IDLE]
    return "{" + (words[-1].strip("_") if words else "value") + "}"


IDLE = {
    "self",
    "str",
    "short_repr",
    "printable",
    "len",
    "join",
    "repr",
    "if",
    "else",
    "for",
    "in",
    "is",
    "not",
    "None",
}


def arguments_of(call: ast.Call, wanted: Places) -> Iterator[ast.expr]:
    yield from (value for place, value in enumerate(call.args) if place in wanted)
    yield from (keyword.value for keyword in call.keywords if keyword.arg in wanted)


def name_of(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


@cache
def all_sinks() -> dict[str, Places]:
    """Return the sinks: those that are listed, errors, and functions that pass a parameter on to a sink."""
    errors = {"TurnwiseError"}
    classes = [
        node for source in package() for node in source.nodes if isinstance(node, ast.ClassDef)
    ]
    for _ in range(4):  # as deep as the tree of errors is
        errors |= {one.name for one in classes if errors & {name_of(base) for base in one.bases}}
    sinks = dict.fromkeys(errors, ERROR_ARGUMENTS) | SINKS
    for _ in range(3):
        for scope in scopes():
            if scope.function is None or scope.function.name.startswith("__"):
                continue
            for call, name in scope.calls():
                for value in arguments_of(call, sinks.get(name, ())):
                    if isinstance(value, ast.Name) and value.id in scope.parameters:
                        passed = {scope.parameters.index(value.id), value.id}
                        known = sinks.get(scope.function.name, ())
                        sinks[scope.function.name] = (*known, *(passed - {*known}))
    return sinks


@cache
def scopes() -> tuple[Scope, ...]:
    return tuple(scope for source in package() for scope in find_scopes(source))


@cache
def module_scopes() -> dict[str, Scope]:
    return {scope.source.module: scope for scope in scopes() if scope.function is None}


@cache
def returns() -> dict[str, list[tuple[ast.expr, Scope]]]:
    """Return what functions return or yield, by their names."""
    found: dict[str, list[tuple[ast.expr, Scope]]] = {}
    for scope in scopes():
        for node in scope.nodes:
            if isinstance(node, ast.Return | ast.Yield) and node.value and scope.function:
                found.setdefault(scope.function.name, []).append((node.value, scope))
    return found


def find_scopes(source: Source) -> Iterator[Scope]:
    """Yield the functions of a file and its top; a node belongs to the innermost function."""
    pending: list[tuple[ast.AST, Function | None]] = [(source.tree, None)]
    nodes: dict[Function | None, list[ast.AST]] = {None: []}
    while pending:
        node, function = pending.pop()
        if isinstance(node, Function):
            function = node
            nodes[function] = []
        nodes[function].append(node)
        pending += [(child, function) for child in ast.iter_child_nodes(node)]
    for function, own in nodes.items():
        yield Scope(source, function, own)


# The tests

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


@pytest.mark.law(0)
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


@pytest.mark.law(0)
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
    assert "修复：" in run("check", "qwen3") and "fix:" in run("check", "qwen3", language="en")
    assert "没有叫这个名称的文件" in run("render", "nosuch", "--user", "x")
    assert "没有选项" in run("render", "--nosuch")
    data = json.loads(run("check", "llama-2", "--json"))
    assert data == json.loads(run("check", "llama-2", "--json", language="en"))


def test_a_conversation_is_never_translated() -> None:
    words = ("render", "chatml", "--user", CHAT[0]["content"])
    assert run(*words) == run(*words, language="en")
    body = {"template": "chatml", "messages": CHAT, "language": "zh"}
    assert (
        call_playground("render", body)["text"]
        == call_playground("render", body | {"language": "en"})["text"]
    )
    answer = call_playground(
        "parse", {"template": "chatml", "reply": CHAT[0]["content"], "language": "zh"}
    )
    assert answer["message"]["content"] == CHAT[0]["content"]


def test_the_playground_answers_in_the_language_it_is_asked_for() -> None:
    found = call_playground("check", {"template": "llama-2", "language": "zh"})["findings"]
    english = call_playground("check", {"template": "llama-2"})["findings"]
    assert [one["code"] for one in found] == [one["code"] for one in english]
    assert all(re.search(r"[一-鿿]", one["message"] + one["fix"]) for one in found)
    assert all(
        one["messages"] == other["messages"] for one, other in zip(found, english, strict=True)
    )
    error = call_playground("render", {"template": "nosuch", "messages": [], "language": "zh"})[
        "error"
    ]
    assert "没有名为" in error["message"] and "没有名为" in error["text"]
    notes = {row["name"]: row["notes_zh"] for row in call_playground("entries", {})["entries"]}
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
