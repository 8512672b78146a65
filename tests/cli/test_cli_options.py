"""Variables of the template on the command line: how values are spelt, and names that the template does not read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cli_runner
from cli_runner import good, run

THINKING = "<think>\n\n</think>"
CHAT = ("chat", "--base-url", "http://127.0.0.1:9", "-t", "qwen3", "--user", "Hi")
RENDER = ("render", "qwen3", "--user", "Hi")


@pytest.mark.parametrize("spelt", ["False", "false"])
def test_values_as_python_spells_them(spelt: str) -> None:
    assert THINKING in good(*RENDER, "-g", "--option", f"enable_thinking={spelt}")


def test_all_words_of_python(tmp_path: Path) -> None:
    template = tmp_path / "t.jinja"
    template.write_text("{{ a is true }} {{ b is none }} {{ c }}", encoding="utf-8")
    words = ("--option", "a=True", "--option", "b=None", "--option", "c=Nones")
    assert good("render", template, "--user", "Hi", *words) == "True True Nones"


def test_prepare_reads_values_the_same_way(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"messages": [{"role": "user", "content": "Hi"}]}), encoding="utf-8")
    words = ("-t", "qwen3", "-k", "turnwise", "--dry-run", "--option")
    misspelt = run("prepare", rows, *words, "enable_thinkng=False")
    assert "--options takes no 'enable_thinkng'" in misspelt.stderr
    assert "encode_batch" not in misspelt.output
    unread = run("prepare", rows, *words, "nonsense=1")
    assert unread.stderr.count("does not read 'nonsense'; it reads: enable_thinking") == 1


@pytest.mark.parametrize("words", [RENDER, ("encode", *RENDER[1:]), CHAT], ids=lambda it: it[0])
def test_unread_and_misspelt_names(words: tuple[str, ...]) -> None:
    unread = run(*words, "--option", "nonsense=1")
    assert unread.stderr.count("does not read 'nonsense'; it reads: enable_thinking") == 1
    misspelt = cli_runner.run(*words, "--option", "enable_thinkng=1")
    assert misspelt.exit_code == 2 and "did you mean enable_thinking?" in misspelt.stderr
    assert "--option takes no 'enable_thinkng'" in misspelt.stderr
    assert "warning" not in run(*words, "--option", "bos_token=<s>").stderr


@pytest.mark.parametrize(
    "item", [{"role": "user", "content": "Hi"}, {"role": "tool", "name": "a"}, {"messages": []}]
)
def test_tools_that_are_none(tmp_path: Path, item: dict[str, object]) -> None:
    place = tmp_path / "tools.json"
    place.write_text(json.dumps([item]), encoding="utf-8")
    assert "tools[0] is no tool" in cli_runner.bad(*RENDER, "--tools", place)
    place.write_text('[{"type": "web_search"}, {"name": "a"}]', encoding="utf-8")
    good(*RENDER, "--tools", place)


def test_the_place_of_late_system_texts(tmp_path: Path) -> None:
    late = {"role": "system", "content": "Rest."}
    chat = [{"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}, late]
    file = tmp_path / "chat.json"
    file.write_text(json.dumps(chat), encoding="utf-8")
    for command in ("render", "encode"):
        found = run(command, "qwen3", str(file), "--late-system", "front", "--json")
        assert json.loads(found.stdout)["text"].startswith("<|im_start|>system\nRest.")
    wrong = run("render", "qwen3", str(file), "--late-system", "fornt")
    assert wrong.exit_code == 2 and "front" in wrong.output
