"""One rule for all commands: 0 all is well, 1 a finding or a difference, 2 an error of any kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_runner import run
from turnwise.cli import COMMANDS

LOOP = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
PROMPT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
TOOLS = [{"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}]
FILES = {
    "good.jinja": LOOP + PROMPT,
    "other.jinja": LOOP,
    "rewrites.jinja": f"{{{{ messages | length }}}}{LOOP}",
    "syntax.jinja": "{% for %}",
    "refuses.jinja": "{{ raise_exception('never') }}",
    "empty.jinja": "",
    "chat.json": json.dumps(CHAT),
    "bad.json": '[{"role": ',
    "tools.json": json.dumps(TOOLS),
    "rows.jsonl": json.dumps({"messages": CHAT * 2}),
    "mixed.jsonl": json.dumps({"messages": CHAT}) + "\n{oops",
    "oops.jsonl": "{oops\n{oops",
    "empty.jsonl": "",
}
ONLY = "--only null-content"
MODEL = "-t good.jinja -k turnwise"
CASES: dict[str, dict[int, tuple[str, ...]]] = {
    "render": {
        0: ("good.jinja chat.json",),
        2: ("good.jinja bad.json", "syntax.jinja chat.json", "refuses.jinja chat.json", "--no"),
    },
    "encode": {
        0: ("good.jinja chat.json -k turnwise",),
        2: ("good.jinja bad.json -k turnwise", "good.jinja chat.json -k none"),
    },
    "stops": {0: ("good.jinja",), 2: ("syntax.jinja", "none.jinja")},
    "parse": {0: ("good.jinja Hello",), 2: ("syntax.jinja Hello",)},
    "explain": {0: ("good.jinja",), 2: ("syntax.jinja",)},
    "grammar": {
        0: ("qwen3 --tools tools.json",),
        2: ("qwen3", "good.jinja --tools tools.json", "qwen3 --tools bad.json"),
    },
    "list": {0: ("",), 2: ("--no",)},
    "match": {0: ("Qwen/Qwen3-8B",), 2: ("",)},
    "diff": {
        0: ("good.jinja good.jinja",),
        1: ("good.jinja other.jinja",),
        2: ("good.jinja syntax.jinja", "good.jinja none.jinja"),
    },
    "eval-card": {
        0: ("chatml", "chatml chatml --compare"),
        1: ("chatml qwen3 --compare",),
        2: ("none.jinja", "chatml qwen3", "bad.json"),
    },
    "convert": {0: ("good.jinja --to jinja",), 2: ("good.jinja --to cobol",)},
    "check": {
        0: ("good.jinja --fail-on error --ignore T201 --ignore T204 --ignore T307",),
        1: ("other.jinja",),
        2: ("syntax.jinja", "none.jinja", "good.jinja --fail-on never"),
    },
    "stability": {0: ("good.jinja",), 1: ("rewrites.jinja",), 2: ("syntax.jinja",)},
    "conform": {2: ("http://127.0.0.1:9 -t good.jinja", "ftp://example.org")},
    "scan": {
        0: ("rows.jsonl",),
        1: ("mixed.jsonl",),
        2: ("oops.jsonl", "empty.jsonl", "none.jsonl", "rows.jsonl -t syntax.jinja"),
    },
    "prepare": {
        0: (f"rows.jsonl {MODEL} -o out", f"rows.jsonl {MODEL} --dry-run"),
        1: (f"mixed.jsonl {MODEL} -o out", f"mixed.jsonl {MODEL} --dry-run"),
        2: (
            f"oops.jsonl {MODEL} -o out",
            f"none.jsonl {MODEL} -o out",
            f"mixed.jsonl {MODEL} -o out --on-bad-row fail",
            f"rows.jsonl {MODEL}",
            "rows.jsonl -t syntax.jinja -k turnwise -o out",
            "rows.jsonl -t good.jinja -k none -o out",
        ),
    },
    "inspect": {2: (".", "none", "")},
    "fix": {
        0: ("good.jinja --only string-arguments",),
        1: (f"good.jinja {ONLY}",),
        2: (f"syntax.jinja {ONLY}", f"refuses.jinja {ONLY}", "good.jinja --only nothing"),
    },
    "release": {2: ("", "none", "good.jinja")},
    "serve": {2: ("", "none.jinja", "good.jinja --upstream http://127.0.0.1:9", "syntax.jinja")},
    "chat": {2: ("-t good.jinja", "--base-url http://127.0.0.1:9 -t good.jinja --user Hi")},
    "demo": {2: ("none.jinja",)},
}
"""By command and exit code, arguments."""
LINES = [
    (code, f"{command} {arguments}")
    for command, by_code in CASES.items()
    for code, lines in by_code.items()
    for arguments in lines
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text, encoding="utf-8")


@pytest.mark.law
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("code", "line"), LINES, ids=[line for _, line in LINES])
def test_exit_codes(code: int, line: str) -> None:
    result = run(*line.split())
    assert result.exit_code == code, result.output
    assert ("error" in result.stderr.lower()) == (code == 2), result.stderr


@pytest.mark.law
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("line", [line for code, line in LINES if code == 2])
def test_errors_as_data(line: str) -> None:
    result = run(*line.split(), "--json")
    error = json.loads(result.stdout.splitlines()[-1])["error"]
    assert result.exit_code == 2 and error["type"] and error["message"] in result.stderr
    assert not error.get("hint") or error["hint"] in result.stderr


def test_all_commands_have_cases() -> None:
    assert set(CASES) == set(COMMANDS)
