"""The tests of FastChat and XTuner themselves, unchanged but for what they import.

FastChat's tests start servers and load models (17 functions), or resize images (5), which is not ours: what is left of
its own checks are the examples at the end of conversation.py. XTuner's releases with `PROMPT_TEMPLATE` have no tests;
those of its later templates, the dialect xtuner_v1, compare prompts with transformers'. Four of the five need nothing
but templates; the fifth needs the tokenizer of Qwen3.5. PaddleNLP's and LMDeploy's are in the files of their calls.
"""

from __future__ import annotations

import ast
import contextlib
import io
import unittest
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import turnwise
from host_sources import find_package
from originals import find_checkout
from turnwise.compat import fastchat

XTUNER_TESTS = find_checkout("xtuner") / "tests/chat_template/test_chat_template.py"
PUBLISHED = {
    "QWEN3_PATH": "qwen3",
    "QWEN3_VL_DENSE_PATH": "qwen3-vl",
    "GPT_OSS_MINI_PATH": "gpt-oss",
    "DEEPSEEK_V3_PATH": "deepseek-v3.1",
}
"""The entries for the models that XTuner's tests load; each is verified on the published template."""


def test_fastchats_own_examples() -> None:
    """The last block of its conversation.py, with either module."""
    file = find_package("fastchat") / "conversation.py"
    tree = ast.parse(file.read_text(encoding="utf-8"))
    examples = tree.body[-1]
    assert isinstance(examples, ast.If) and ast.unparse(examples.test).startswith("__name__")
    code = ast.unparse(ast.Module(examples.body, []))
    changed = code.replace("fastchat.conversation", fastchat.__name__)
    assert code.count("fastchat.conversation") == 1
    written = []
    for text in (code, changed):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(text, {})
        written.append(output.getvalue())
    assert written[0] == written[1] and written[0].count("How are you?") >= 4


class Messages:
    """XTuner's ChatMessages, with our templates."""

    def __init__(self, messages: Any, tools: Any = None) -> None:
        self.messages, self.tools = messages, tools

    def get_prompt(self, template: turnwise.Template) -> str:
        is_prompt = self.messages[-1]["role"] == "user"
        options = {"tools": self.tools, "add_generation_prompt": is_prompt}
        return template.render(self.messages, **options).text

    def tokenize(self, used: Any, template: turnwise.Template) -> dict[str, list[int]]:
        return {"input_ids": used.encode(self.get_prompt(template))}


class Published:
    """A tokenizer of transformers, as far as these tests use one: its template, and an id for each letter."""

    def __init__(self, path: str, **_: Any) -> None:
        self.path = path

    def apply_chat_template(self, messages: Any, tokenize: bool, **options: Any) -> str:
        return turnwise.load(PUBLISHED[self.path]).render(messages, **options).text

    def encode(self, text: str, **_: Any) -> list[int]:
        return list(map(ord, text))


def parametrize(_: str, rows: list[tuple[Any, ...]]) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        def run(self: Any) -> None:
            for row in rows:
                function(self, *row)

        return run

    return decorate


@pytest.mark.skipif(not XTUNER_TESTS.is_file(), reason="TURNWISE_XTUNER: no checkout")
def test_xtuners_own_tests() -> None:
    tree = ast.parse(XTUNER_TESTS.read_text(encoding="utf-8"))
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    names: dict[str, Any] = {
        "TestCase": unittest.TestCase,
        "unittest": SimpleNamespace(skipIf=lambda *_: unittest.skip("needs Qwen3.5's tokenizer")),
        "parametrize": SimpleNamespace(parametrize=parametrize),
        "Version": str,
        "transformers_version": "",
        "AutoTokenizer": SimpleNamespace(from_pretrained=Published),
        "CHAT_TEMPLATE_MAP": {
            name.partition(":")[2]: turnwise.load(name, exact=True)
            for name in turnwise.entries(dialect="xtuner_v1")
        },
        "ChatMessages": Messages,
        **{path: path for path in PUBLISHED},
    }
    exec(compile(ast.Module([found], []), str(XTUNER_TESTS), "exec"), names)
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(names[found.name])
    result = suite.run(unittest.TestResult())
    problems = [text for _, text in (*result.failures, *result.errors)]
    assert (result.testsRun, len(result.skipped), problems) == (5, 1, [])
