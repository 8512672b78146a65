"""Warnings travel with the result: Python shows each once for a line of code, and a loop has one line."""

from __future__ import annotations

import itertools
import os
import pickle
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import turnwise
from turnwise.errors import WarningLog

REASONING = "潮汐表を調べます。"


def make_chat(number: int) -> list[dict[str, Any]]:
    reply = {"role": "assistant", "content": f"noon {number}.", "reasoning_content": REASONING}
    return [{"role": "user", "content": "When?"}, reply] * 2


@pytest.mark.filterwarnings("default::turnwise.TurnwiseWarning")
def test_every_row_of_a_loop_has_its_warnings() -> None:
    template = turnwise.load("chatml")
    for number in range(3):
        rendering = template.render(make_chat(number))
        assert ["reasoning_content" in text for text in rendering.warnings] == [True]
        encoded = template.encode(make_chat(number), "turnwise")
        assert len(encoded.warnings) == 2
        assert "does not write its reasoning" in encoded.warnings[1]
        assert encoded.rendering.warnings == encoded.warnings[:1]


@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
@pytest.mark.parametrize("number_of_losses", [0, 1])
def test_what_a_request_asks_in_vain_is_among_the_warnings(number_of_losses: int) -> None:
    template = turnwise.load("chatml")
    chat = make_chat(1)[: 1 + number_of_losses]
    rendering = template.render(chat, reasoning="high")
    assert len(rendering.warnings) == 1 + number_of_losses
    assert "reasoning" in rendering.warnings[0]
    assert (
        rendering.warnings
        == template.encode(chat, "turnwise", reasoning="high").warnings[: 1 + number_of_losses]
    )


@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
def test_the_warnings_of_rows_and_samples() -> None:
    template = turnwise.load("qwen3")
    plain = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    rows = [plain, make_chat(1), plain, make_chat(2)]
    batch = template.encode_batch(rows, "turnwise")
    assert sorted(batch.warnings) == [1, 3]
    assert batch.warnings[1] == template.encode(rows[1], "turnwise").warnings
    assert "2 with warnings" in repr(batch)
    chatml = turnwise.load("chatml")
    samples = chatml.examples(make_chat(1), "turnwise")
    assert samples.warnings
    assert all(sample.warnings == samples.warnings for sample in samples)


@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
def test_they_are_pickled_and_shown() -> None:
    template = turnwise.load("chatml")
    rendering = template.render(make_chat(1))
    encoded = template.encode(make_chat(1), "turnwise")
    for result in (rendering, encoded):
        assert pickle.loads(pickle.dumps(result)).warnings == result.warnings
        assert "warnings>" in repr(result)
    plain = template.render([{"role": "user", "content": "Hi"}])
    assert plain.warnings == ()
    assert "warning" not in repr(plain)


@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
def test_a_used_template_says_what_a_fresh_one_says() -> None:
    """Also of a tokenizer that does not fit, of which Python warns once."""
    text = "{% for m in messages %}<|a|>{{ m.content }}<|b|>{% endfor %}"
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes."}]
    used = turnwise.compile(text)
    first = used.encode(chat, "turnwise").warnings
    assert used.encode(chat, "turnwise").warnings == first
    assert turnwise.compile(text).encode(chat, "turnwise").warnings == first


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{{ m.content }}",
        "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}{% endif %}",
        "{% if m.thinking %}<think>{{ m.thinking }}{% endif %}",
        "{{ m.thinking }}|{{ m.reasoning_content }}",
    ],
)
def test_a_used_template_says_what_is_lost_of_several_reasonings(body: str) -> None:
    texts = ("", "A", "B", None)
    for given in itertools.product([*texts, "absent"], texts, texts):
        values = dict(zip(("reasoning_content", "thinking", "reasoning"), given, strict=True))
        template = turnwise.compile("{% for m in messages %}" + body + "{% endfor %}")
        found = set()
        for number in range(5):
            reply = {"role": "assistant", "content": f"Aye {number}"}
            reply |= {
                key: text and f"{text}{number}" for key, text in values.items() if text != "absent"
            }
            with WarningLog(is_quiet=True):
                rendering = template.render([{"role": "user", "content": f"{number}?"}, reply])
            found.add(rendering.warnings)
        assert len(found) == 1, (given, found)


def test_a_quiet_log_is_of_one_thread() -> None:
    template = turnwise.load("chatml")

    def render(is_quiet: bool) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("error", turnwise.TurnwiseWarning)
            if is_quiet:
                with WarningLog(is_quiet=True) as log:
                    return template.render(make_chat(1)).warnings == log.texts
            with pytest.raises(turnwise.TurnwiseWarning):
                template.render(make_chat(1))
            return True

    with ThreadPoolExecutor(1) as threads, WarningLog(is_quiet=True) as log:
        assert threads.submit(render, False).result()
        assert log.texts == ()
    assert render(True)


def test_a_loop_over_rows_shows_how_often_text_is_lost() -> None:
    """As Python shows warnings by default: one text of one line once. The count makes another text."""
    program = """
import turnwise
template = turnwise.load("llama-2")
for number in range(120):
    rendering = template.render(
        [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "A", "reasoning_content": "B"}]
    )
    assert len(rendering.warnings) == 1 and "times" not in rendering.warnings[0]
"""
    command = [sys.executable, "-c", program]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert found.returncode == 0, found.stderr
    shown = [line for line in found.stderr.splitlines() if "TurnwiseWarning" in line]
    assert ["times so far" in line for line in shown] == [False, True, True], found.stderr
    assert (
        "(10 times so far; `strict` of render, encode and examples makes it an error)" in shown[1]
    )
    assert "(100 times so far" in shown[2]
