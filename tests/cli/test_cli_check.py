"""`turnwise check`: formats, exit codes, configuration, pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import turnwise
from cli_runner import bad, good, run
from turnwise.evidence.checks import CHECKS

ROOT = Path(__file__).resolve().parents[2]
BROKEN = """\
{%- for message in messages %}
    {{- '<|' + message.role + '|>' + message.content.strip() + '<|end|>' }}
{%- endfor %}
{{- strftime_now('%d %B %Y') }}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}
"""
LINE = 2  # of the null content


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "chat_template.jinja"
    path.write_text(BROKEN, encoding="utf-8")
    return path


def test_text_names_line_conversation_and_fix(broken: Path) -> None:
    result = run("check", broken.name, "--for", "all")
    assert result.exit_code == 1
    text = result.stdout
    assert f"chat_template.jinja:{LINE}:" in text and "^" in text
    assert '"content": null' in text and "fix: " in text and "T201" in text


def test_json_has_the_same_facts(broken: Path) -> None:
    result = run("check", broken.name, "--for", "all", "--format", "json")
    (report,) = json.loads(result.stdout)
    found = [one for one in report["findings"] if one["code"] == "T201"]
    assert found[0]["line"] == LINE and found[0]["messages"] and found[0]["fix"]
    assert result.exit_code == 1


def test_github_annotations_are_one_line_each(broken: Path) -> None:
    lines = run("check", broken.name, "--for", "all", "--format", "github").stdout.splitlines()
    assert lines and all(line.startswith(("::error ", "::warning ", "::notice ")) for line in lines)
    assert any(f"file=chat_template.jinja,line={LINE},col=" in line for line in lines)


def test_sarif_has_rules_and_regions(broken: Path) -> None:
    log = json.loads(run("check", broken.name, "--for", "all", "--format", "sarif").stdout)
    (entry,) = log["runs"]
    rules = entry["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == [check.code for check in CHECKS]
    result = next(one for one in entry["results"] if one["ruleId"] == "T201")
    assert rules[result["ruleIndex"]]["id"] == "T201"
    location = result["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"] == "chat_template.jinja"
    assert location["region"]["startLine"] == LINE


def test_a_template_in_json_has_no_lines_of_the_file(broken: Path) -> None:
    config = broken.with_name("tokenizer_config.json")
    config.write_text(json.dumps({"chat_template": BROKEN}), encoding="utf-8")
    log = json.loads(run("check", config.name, "--for", "all", "--format", "sarif").stdout)
    result = next(one for one in log["runs"][0]["results"] if one["ruleId"] == "T201")
    assert "region" not in result["locations"][0]["physicalLocation"]
    assert f"line {LINE} of the template" in result["message"]["text"]


@pytest.mark.parametrize("name", ["turnwise.toml", "pyproject.toml"])
def test_checks_are_left_out_by_configuration(broken: Path, name: str) -> None:
    head = "[tool.turnwise]\n" if name == "pyproject.toml" else ""
    broken.with_name(name).write_text(f'{head}ignore = ["T201", "content-parts"]\n')
    (report,) = json.loads(run("check", broken.name, "--for", "all", "--format", "json").stdout)
    codes = {one["code"] for one in report["findings"]}
    assert codes and not codes & {"T201", "T204"} and report["ignored"] >= 2


def test_every_finding_can_be_ignored(broken: Path) -> None:
    flags = [flag for check in CHECKS for flag in ("--ignore", check.code)]
    assert "no findings" in good("check", broken.name, *flags)


def test_fail_on_decides_about_the_exit_code(broken: Path) -> None:
    flags = [
        flag
        for check in CHECKS
        if check.severity == "error" or check.code in ("T201", "T204")
        for flag in ("--ignore", check.code)
    ]
    assert run("check", broken.name, *flags, "--fail-on", "error").exit_code == 0
    assert run("check", broken.name, *flags, "--fail-on", "note").exit_code == 1


@pytest.mark.parametrize(
    ("folder", "entry", "is_told"),
    [
        ("Qwen2.5-7B-Instruct", "chatml", True),
        ("Qwen2.5-7B-Instruct", "qwen2.5", False),
        ("Qwen2.5-7B", "chatml", False),  # a base model has no template of its own
        ("my-org-unknown-7b", "chatml", False),
    ],
)
def test_the_first_line_is_about_the_model(
    folder: str, entry: str, is_told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / folder
    place.mkdir()
    (place / "chat_template.jinja").write_text(turnwise.load(entry).text, encoding="utf-8")
    monkeypatch.chdir(place)
    text = run("check", ".").stdout
    expected = (
        f"not the template that is known of {folder} (the entry qwen2.5): turnwise diff qwen2.5 ."
    )
    assert text.startswith(expected) == is_told
    assert ("the template that is known" in text) == is_told
    (report,) = json.loads(run("check", ".", "--json").stdout)
    assert bool(report["about_model"]) == is_told


def test_doctor_is_a_part_of_check() -> None:
    assert "turnwise check FOLDER" in bad("doctor", "Qwen/Qwen2.5-7B-Instruct", "chatml")


def test_pages_and_list() -> None:
    page = good("check", "--explain", "T301")
    assert page.startswith("# T301 string-arguments") and "## How to fix" in page
    assert good("check", "--explain", "string-arguments") == page
    assert len(good("check", "--list").splitlines()) == len(CHECKS)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "TEMPLATE"),
        (("chatml", "--format", "xml"), "text"),
        (("chatml", "--fail-on", "fatal"), "warning"),
        (("chatml", "--ignore", "T999"), "no check 'T999'"),
        (("--explain", "T30l"), "Did you mean"),
        (("nothing-of-that-name",), "nothing-of-that-name"),
        (("chatml", "-k", "no-tokenizer"), "no-tokenizer"),
        (("chatml", "--reference", "nothing-of-that-name"), "nothing-of-that-name"),
    ],
)
def test_misuse_is_2(
    arguments: tuple[str, ...], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert problem in bad("check", *arguments)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ignore = 3", "list of codes"),
        ("ignor = []", "Did you mean 'ignore'"),
        ("ignore = [", "is not TOML"),
    ],
)
def test_a_wrong_configuration_is_2(
    text: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("turnwise.toml").write_text(text)
    assert problem in bad("check", "chatml")


def test_a_template_that_does_not_compile_is_2(tmp_path: Path) -> None:
    path = tmp_path / "chat_template.jinja"
    path.write_text("{% for m in messages %}{{ m.content | no_such_filter }}{% endfor %}")
    assert "no_such_filter" in bad("check", path)


def test_the_hook_and_the_action_call_the_command() -> None:
    hook = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    action = (ROOT / "action.yml").read_text(encoding="utf-8")
    assert "entry: turnwise check" in hook
    assert "turnwise check" in action and "--format github" in action


def test_a_project_starts_green_and_stays_green(broken: Path) -> None:
    flags = ("check", broken.name, "--for", "all")
    assert run(*flags).exit_code == 1
    good(*flags, "--write-baseline", "--baseline", "known.json")
    text = good(*flags, "--baseline", "known.json")
    assert "no findings" in text and "in the baseline" in text
    broken.write_text(
        "{#- a comment #}\n" + BROKEN, encoding="utf-8"
    )  # other lines, the same findings
    good(*flags, "--baseline", "known.json")
    broken.write_text(BROKEN.replace("<|end|>", "<|end|>{{ 1 | nothing }}"), encoding="utf-8")
    assert run(*flags, "--baseline", "known.json").exit_code != 0
    broken.write_text(BROKEN.replace("strip()", "strip().lower()"), encoding="utf-8")
    (report,) = json.loads(run(*flags, "--baseline", "known.json", "--json").stdout)
    assert report["known"] and "T701" in [one["code"] for one in report["findings"]]


def test_the_baseline_is_a_setting(broken: Path) -> None:
    good("check", broken.name, "--for", "all", "--write-baseline")
    broken.with_name("turnwise.toml").write_text('baseline = "turnwise-baseline.json"\n')
    good("check", broken.name, "--for", "all")
    broken.with_name("turnwise.toml").write_text("baseline = 3\n")
    assert "baseline must be a string, not 3" in bad("check", broken.name)


@pytest.mark.parametrize("text", ["", "[]", '{"version": 7}', '{"version": 1, "templates": [3]}'])
def test_a_file_that_is_no_baseline(broken: Path, text: str) -> None:
    broken.with_name("known.json").write_text(text)
    assert "is not a baseline" in bad("check", broken.name, "--baseline", "known.json")
    assert "cannot be read" in bad("check", broken.name, "--baseline", "none.json")


def test_markdown_has_the_conversation_and_the_output(broken: Path) -> None:
    text = run("check", broken.name, "--for", "all", "--format", "markdown").stdout
    assert "- **T201 error**" in text and '"content": null' in text and text.count("```") % 2 == 0


def test_a_check_is_selected(broken: Path) -> None:
    (report,) = json.loads(run("check", broken.name, "--select", "clock", "--json").stdout)
    assert [one["code"] for one in report["findings"]] == ["T406"]
