"""What Ollama's own packages made of entries that were converted to it; `scripts/ollama_conversions.py` made the texts.

Ollama's parser read the Modelfile, and its template package executed it. The conversations are ours, and random.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import turnwise
from target_texts import TOKENS, Target, find_differences, simplify, unknown_tokens
from turnwise.dialects import DIALECTS

pytestmark = pytest.mark.once

GOLDENS = Path(__file__).parent / "ollama_goldens" / "conversions.jsonl"
_VERSIONS, CHATS, *ROWS = [json.loads(line) for line in GOLDENS.read_text("utf-8").splitlines()]
CHATML = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
USER = {"role": "user", "content": "hi"}


class RecordedOllama:
    """Ollama, as it was recorded."""

    dialect = DIALECTS["ollama"]
    now = Target.now

    def __init__(self, row: dict[str, Any]) -> None:
        chats = [simplify(chat, row["without"]) for chat in CHATS["conversations"]]
        self.texts = {
            json.dumps(chat): text for chat, text in zip(chats, row["texts"], strict=True)
        }

    def write(self, chat: Any, is_prompt: bool, tokens: dict[str, str]) -> str:
        text: str = self.texts[json.dumps(chat)]
        return text


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["entry"])
def test_ollama_writes_what_the_entry_writes(row: dict[str, Any]) -> None:
    template, chats = turnwise.load(row["entry"]), CHATS["conversations"]
    compared, found = find_differences(template, RecordedOllama(row), chats, row["without"])
    assert not found and compared >= len(chats) // 2


@pytest.mark.parametrize("row", ROWS[::4], ids=lambda row: row["entry"])
def test_the_conversion_is_the_one_that_was_recorded(row: dict[str, Any]) -> None:
    """After a change of the writer: `scripts/ollama_conversions.py`, first without and then with `--goldens`."""
    template = turnwise.load(row["entry"])
    source = template.convert("ollama", without=row["without"], **unknown_tokens(template))
    assert source == row["modelfile"]


@pytest.mark.parametrize("odd", ["\u3000", "\u200b", "\x07", "\u00a0", '"""', "{{", "\ufeff"])
@pytest.mark.parametrize("place", ["{{ m.content", "<|assistant|>{%"])
def test_what_a_modelfile_would_lose_is_quoted(odd: str, place: str) -> None:
    """Ollama drops every character of a Modelfile that is not printable."""
    literal = "{{ " + json.dumps(odd) + " }}"
    template = turnwise.compile(CHATML.replace(place, f"{literal}{place}"))
    source = template.convert("ollama")
    assert odd.isprintable() or odd not in source
    target = Target("ollama", source, {})
    assert (
        target.write([USER], True, TOKENS)
        == template.render([USER], add_generation_prompt=True).text
    )


def test_a_stop_that_a_modelfile_would_lose_is_named() -> None:
    template = turnwise.compile(CHATML.replace("<|end|>", "<|e\u200bnd|>"))
    with pytest.raises(turnwise.SourceError, match=r"the stop '<\|e\\u200bnd\|>'"):
        template.convert("ollama")


def test_a_default_system_text_that_a_modelfile_would_lose_is_in_the_template() -> None:
    text = "Be\u3000kind."
    template = turnwise.compile(
        "{% if messages[0].role != 'system' %}<|system|>" + text + "<|end|>\n{% endif %}" + CHATML
    )
    source = template.convert("ollama")
    assert "\nSYSTEM" not in source and "Be\\U00003000kind." in source


def test_characters_that_ollama_drops_are_dropped() -> None:
    file = 'FROM x\nTEMPLATE """<u\u200b>{{ .Prompt }}\u3000\t<a>"""\nPARAMETER\tstop\t"<\u00a0u>"'
    template = turnwise.compile(file, "ollama")
    assert template.render([USER]).text.startswith("<u>hi\t<a>")
    assert template.stops() == ("<u>",)
