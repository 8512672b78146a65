"""`turnwise diff` and `turnwise convert`."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from turnwise.cli import app

RUN = CliRunner()


def test_diff_of_equal_templates(tmp_path: Path) -> None:
    other = tmp_path / "other.jinja"
    other.write_text(
        "{%- for m in messages -%}\n{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}\n{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
    )
    result = RUN.invoke(app, ["diff", "chatml", str(other)])
    assert result.exit_code == 0, result.output
    assert "no difference in" in result.stdout


def test_diff_shows_the_smallest_conversation() -> None:
    result = RUN.invoke(app, ["diff", "xtuner:internlm2_chat", "internlm2"])
    assert result.exit_code == 1
    assert "they differ on:" in result.stdout
    data = json.loads(RUN.invoke(app, ["diff", "chatml", "zephyr", "--json"]).stdout)
    assert data["equal"] is False and data["witness"]["messages"]


def test_diff_of_something_that_is_not_there() -> None:
    result = RUN.invoke(app, ["diff", "chatml", "chatmll"])
    assert result.exit_code == 2 and "Did you mean" in result.stderr


def test_diff_tells_a_difference_from_an_error(tmp_path: Path) -> None:
    """Exit code 1 is an answer; every error is 2, also one in a template."""
    broken = tmp_path / "broken.jinja"
    broken.write_text("{% for m in messages %}{{ m.content }")
    binary = tmp_path / "binary.jinja"
    binary.write_bytes(b"\xff\xfe\0")
    for wrong in (broken, binary, tmp_path / "missing.jinja"):
        for arguments in ([str(wrong), "chatml"], ["chatml", str(wrong)]):
            result = RUN.invoke(app, ["diff", *arguments])
            assert result.exit_code == 2 and result.stderr.startswith("error: "), result.output
    stdin = RUN.invoke(app, ["diff", "-", "chatml"], input="{% if %}")
    assert stdin.exit_code == 2 and not stdin.stdout


def test_flags_take_no_value() -> None:
    for command in ("render", "encode", "parse", "diff", "check", "list", "explain"):
        lines = RUN.invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout.splitlines()
        values = [line for line in lines if "<bool>" in line and "--help" not in line]
        assert not values, values


def test_convert() -> None:
    result = RUN.invoke(app, ["convert", "chatml", "--to", "xtuner"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["SUFFIX"] == "<|im_end|>"
    modelfile = RUN.invoke(app, ["convert", "chatml", "--to", "ollama"]).stdout
    assert modelfile.startswith("FROM .\nTEMPLATE") and "PARAMETER stop" in modelfile


def test_convert_names_the_obstacle() -> None:
    result = RUN.invoke(app, ["convert", "qwen2.5", "--to", "llamafactory"])
    assert (
        result.exit_code == 2
        and "turnwise's writer for llamafactory does not express this template: tools"
        in result.stderr
    )
    result = RUN.invoke(app, ["convert", "qwen2.5", "--to", "llamafactory", "--without", "tools"])
    assert result.exit_code == 0 and json.loads(result.stdout)["format_user"]


def test_convert_is_given_the_tokens() -> None:
    result = RUN.invoke(app, ["convert", "xtuner:default", "--to", "paddlenlp"])
    assert result.exit_code == 2 and "pass bos_token=..." in result.stderr
    result = RUN.invoke(
        app, ["convert", "xtuner:default", "--to", "paddlenlp", "--bos", "<s>", "--eos", "</s>"]
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["conversation"][1] == "{{bot}}</s>"


def test_convert_to_nowhere() -> None:
    result = RUN.invoke(app, ["convert", "chatml", "--to", "xtunr"])
    assert result.exit_code == 2 and "Did you mean 'xtuner'?" in result.stderr


def test_an_option_without_its_value_names_its_command() -> None:
    error = RUN.invoke(app, ["list", "--family"]).stderr
    assert error.startswith("error: turnwise list: ") and "`turnwise list --help`" in error
