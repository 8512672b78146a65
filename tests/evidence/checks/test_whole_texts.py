"""What is written of each text, and around it: an edit of a good template for each way in which it goes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import turnwise
from loaded import load_entry
from single_check import run_check

GOOD = (Path(__file__).parent / "good.jinja").read_text(encoding="utf-8")
USER = "'<|im_start|>user\\n' + write_content(message.content) + '<|im_end|>\\n'"
RESULT = "'<|im_start|>tool\\n' + write_content(message.content) + '<|im_end|>\\n'"
PROMPT = "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}"
CONTENT = "write_content(message.content)"
EDITS = {
    "trimmed": ("T705", RESULT, RESULT.replace(CONTENT, f"{CONTENT} | trim"), "at its beginning and end"),
    "trimmed end": ("T705", RESULT, RESULT.replace(CONTENT, f"{CONTENT}.rstrip()"), "at its end: a table"),
    "cut": ("T701", USER, USER.replace(CONTENT, f"{CONTENT}[:200]"), "is cut"),
    "changed": ("T701", USER, USER.replace(CONTENT, f"{CONTENT} | lower"), "is changed"),
    "joined twice": ("T701", USER, USER.replace(CONTENT, f"{CONTENT} + {CONTENT}"), "more than once"),
    "header": ("T703", RESULT, RESULT.replace("tool", "assistant"), "header of the assistant"),
    "newline": ("T703", USER, USER.replace("user\\n", "user"), "other white space"),
    "closing": ("T703", USER, USER.replace("im_end", "eot"), "lacks <|im_end|>"),
    "open tag": ("T703", RESULT, RESULT.replace("tool\\n", "tool\\n<r>\\n"), "not closed"),
    "other tag": (
        "T703",
        RESULT,
        "'<|im_start|>tool\\n<r>\\n' + write_content(message.content) + '\\n</q><|im_end|>\\n'",
        "<r> is opened before a result and not closed",
    ),
    "prompt": ("T407", PROMPT, PROMPT.replace("assistant\\n", "assistant"), "every reply begins after"),
    "clock": ("T406", "    {{- '# Tools\\n' }}", "    {{- strftime_now('%d') }}", "depends on the time"),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_reported_at_its_line(name: str) -> None:
    code, old, new, expected = EDITS[name]
    assert GOOD.count(old) == 1
    text = GOOD.replace(old, new)
    line = text[: text.index(new)].count("\n") + 1 + new.count("\n")
    found = run_check(code, turnwise.compile(text, "jinja"), profile=None)
    assert any(expected in symptom.message for symptom in found), found
    assert line in [symptom.place.line for symptom in found if symptom.place], found
    assert not run_check(code, turnwise.compile(GOOD, "jinja"), profile=None)


@pytest.mark.parametrize("name", ["mistral", "llama-2", "glm-4.5", "gpt-oss"])
def test_what_the_model_writes_itself_is_no_part_of_the_prompt(name: str) -> None:
    """A space before the reply, whether to reason, the channel of a reply."""
    assert not run_check("T407", load_entry(name))


CALL = "'\\n<tool_call>\\n{\"name\": '"
SMALL_EDITS = {
    "two calls": (
        "T703",
        CALL,
        "('\\n' if loop.first else '') + " + CALL.replace("\\n<", "<"),
        "nothing is between",
    ),
}


@pytest.mark.parametrize("name", SMALL_EDITS)
def test_what_runs_together_or_is_not_read_is_reported(name: str) -> None:
    code, old, new, expected = SMALL_EDITS[name]
    assert GOOD.count(old) == 1
    found = run_check(code, turnwise.compile(GOOD.replace(old, new), "jinja"), profile=None)
    assert any(expected in symptom.message for symptom in found), found


def test_a_macro_that_does_not_read_its_parameter_is_reported() -> None:
    text = (
        "{% macro turn(role, text) %}<{{ role }}>{% endmacro %}{{ turn('a', messages[0].content) }}"
    )
    (found,) = run_check("T613", turnwise.compile(text, "jinja"), profile=None)
    assert "does not read its parameter text" in found.message


def test_texts_that_are_all_trimmed_are_a_format() -> None:
    source = "{% for m in messages %}<|{{ m.role }}|>{{ TEXT }}<|end|>{% endfor %}"
    trimmed = source.replace("TEXT", "m.content | trim")
    for code in ("T701", "T705"):
        assert not run_check(code, turnwise.compile(trimmed, "jinja"), profile=None)
    question = source.replace("TEXT", "m.content | trim if m.role == 'user' else m.content")
    (found,) = run_check("T705", turnwise.compile(question, "jinja"), profile=None)
    assert "of the role user" in found.message and "of other texts is kept" in found.message


def test_a_mark_of_reasoning_in_the_template_s_own_text_is_no_second_one() -> None:
    chat = "{%- for m in messages %}{{- m.role + ': ' + m.content + '\n' }}{%- endfor %}"
    rules = "Think between <think> and </think>.\n"
    assert not run_check("T701", turnwise.compile(rules + chat, "jinja"))
