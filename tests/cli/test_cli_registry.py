"""`turnwise list` and `turnwise match`, and the warning where a base model is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_runner import bad, good, run
from turnwise.errors import SourceError
from turnwise.registry import entries, load


def test_list_names_everything() -> None:
    shown = good("list")
    names = {name.strip() for line in shown.splitlines() for name in line[16:].split(",")}
    assert {name for name in entries() if ":" not in name} <= names
    assert len(shown.splitlines()) < 80
    imported = [line for line in shown.splitlines() if line.endswith(" entries")]
    assert sum(int(line.split()[1]) for line in imported) == sum(":" in one for one in entries())


def test_list_searches() -> None:
    found = [line.split()[0] for line in good("list", "Qwen", "thinking").splitlines()]
    assert {"qwen3-thinking", "qwen3-vl-thinking"} <= set(found) and "qwen2" not in found
    assert "gpt-oss" in good("list", "openai/gpt-oss-20b") and "verified" in good("list", "gpt-oss")
    none = run("list", "no such word")
    assert (none.exit_code, none.stdout) == (0, "") and "turnwise match" in none.stderr


def test_list_filters() -> None:
    gemmas = [line.split()[0] for line in good("list", "--family", "gemma").splitlines()]
    assert {"gemma", "gemma-2", "gemma-3", "gemma-4"} <= set(gemmas)
    assert all("gemma" in name for name in gemmas)
    xtuner = good("list", "--dialect", "xtuner").split()
    assert len(xtuner) == 27 and "xtuner:internlm_chat" in xtuner
    assert good("list", "--dialect", "xtuner", "--family", "gemma") == ""


def test_list_as_json() -> None:
    found = json.loads(good("list", "--json", "--family", "qwen"))
    assert {"qwen1.5", "qwen2.5", "qwen3"} <= {entry["name"] for entry in found}
    entry = next(entry for entry in found if entry["name"] == "qwen2.5")
    assert (
        entry["dialect"] == "jinja"
        and "npm-qwen2_5" in entry["verified"]
        and "load_source" not in entry
    )


def test_list_says_what_there_is() -> None:
    problem = bad("list", "--family", "lama")
    assert "--family" in problem and "llama" in problem
    assert "--dialect" in bad("list", "--dialect", "klingon")


def test_list_has_entries_of_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\nsource = "mine.jinja"\nfamily = "house"', encoding="utf-8"
    )
    (tmp_path / "mine.jinja").write_text("{{ messages[0].content }}", encoding="utf-8")
    monkeypatch.setenv("TURNWISE_PATH", str(tmp_path))
    assert good("list", "--family", "house") == "mine\n"
    assert good("render", "mine", "--user", "hi") == "hi"
    monkeypatch.setenv("TURNWISE_PATH", str(tmp_path / "absent"))
    assert "TURNWISE_PATH" in bad("list")


def test_match_prints_the_answer_and_warns_apart() -> None:
    result = run("match", "Qwen/Qwen2.5-7B-Instruct")
    assert result.exit_code == 0 and result.stderr == ""
    assert dict(line.split(maxsplit=1) for line in result.stdout.splitlines()) == {
        "entry": "qwen2.5",
        "kind": "chat",
        "source": "official",
        "reason": "a chat model of the entry qwen2.5",
        "others": "another text for this model: fastchat:qwen-7b-chat (without a system message)",
    }
    result = run("match", "Qwen/Qwen-7B")
    assert (
        result.exit_code == 0
        and result.stderr.startswith("warning: a base model")
        and "warning" not in result.stdout
    )
    assert "default*" in result.stdout and "base" in result.stdout


def test_match_asks_a_source() -> None:
    assert "xtuner:qwen_chat" in good("match", "Qwen/Qwen-7B-Chat", "--source", "xtuner")
    assert "fastchat:qwen-7b-chat" in good("match", "Qwen/Qwen-7B-Chat", "--source", "fastchat")
    assert "Sources: official, xtuner, fastchat" in bad("match", "x", "--source", "y")


def test_match_as_json() -> None:
    result = run("match", "google/gemma-2b-it", "--source", "xtuner", "--json")
    found = json.loads(result.stdout)
    assert (
        found["entry"] == "gemma"
        and found["name"] == "xtuner:gemma"
        and found["star"]
        and found["warning"]
    )
    assert result.stderr.startswith("warning: ")


def test_what_is_listed_can_be_loaded() -> None:
    """FastChat has one template without a style: it is not listed, and loading it tells why."""
    for name in entries("fastchat"):
        load(name)
    assert "yandexgpt" not in good("list")
    with pytest.raises(SourceError, match="FastChat defines no separator style for it"):
        load("fastchat:yandexgpt")


def test_match_of_nothing_known() -> None:
    assert "give the model's folder" in bad("match", "Qwen/Qwen2.5-7B-Instrct")
    assert "a model is named by an id" in bad("match", "")


def test_match_escapes_what_it_repeats() -> None:
    problem = bad("match", "x/\x1b[31mred")
    assert "\x1b" not in problem


@pytest.mark.parametrize("command", ["render", "explain"])
def test_a_base_model_is_warned_about(command: str) -> None:
    arguments = ["--user", "hi"] if command == "render" else []
    result = run(command, "Qwen/Qwen2.5-7B", *arguments)
    assert result.exit_code == 0 and "base model" in result.stderr
    assert run(command, "Qwen/Qwen2.5-7B-Instruct", *arguments).stderr == ""


def test_exact_is_a_flag(tmp_path: Path) -> None:
    chat = tmp_path / "chat.json"
    chat.write_text(
        json.dumps([{"role": "user", "content": "q"}, {"role": "assistant", "content": ""}])
    )
    ours, theirs = (
        good("render", "fastchat:vicuna_v1.1", str(chat), *flag) for flag in ([], ["--exact"])
    )
    assert ours.endswith(" ASSISTANT: </s>") and theirs.endswith(
        " ASSISTANT:"
    )  # FastChat leaves an empty answer open
    file = tmp_path / "mine.json"
    file.write_text(good("convert", "fastchat:vicuna_v1.1", "--to", "fastchat"))
    assert good("render", str(file), str(chat), "--exact") == theirs
    assert run("diff", "fastchat:vicuna_v1.1", str(file), "--exact").exit_code == 0
    assert good("convert", str(file), "--to", "jinja", "--exact") != good(
        "convert", str(file), "--to", "jinja"
    )


def test_a_stray_file_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "list.json").write_text("[1]", encoding="utf-8")
    monkeypatch.setenv("TURNWISE_PATH", str(tmp_path))
    result = run("render", "chatml", "--user", "hi")
    assert result.exit_code == 0 and result.stdout == "<|im_start|>user\nhi<|im_end|>\n"
    assert result.stderr.startswith("warning: skipped entry: ") and "list.json" in result.stderr
    assert "store.py" not in result.stderr
