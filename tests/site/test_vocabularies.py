"""The static page gives the ids of `Template.encode`, for every vocabulary that it ships.

The page's own engine runs in Node here: Pyodide with tokenizers.js. `make site` builds what is needed; without it these
tests are skipped. A few conversations are looked at in a real browser, in `tests/browser`.
"""

from __future__ import annotations

import gzip
import json
import random
import shutil
import subprocess
import unicodedata
from pathlib import Path
from typing import Any

import pytest

import turnwise
from turnwise.errors import TurnwiseError
from turnwise.tokens.tokenizers import Tokenizer, tokenizer
from vocabularies import SNIPPETS

SITE = Path(__file__).resolve().parents[2] / "build" / "site"
RUNNER = Path(__file__).with_name("encode_chats.mjs")
CHATS = 200
NAMES = sorted(file.name.removesuffix(".json.gz") for file in SITE.glob("vocabularies/*.gz")) or [
    "turnwise"
]
HARD_SNIPPETS = (
    *("I'm", "WE'LL", "it'ſ", "l’été", "\u1100\u1161\u11a8", "a\u0308\u0304", "ﷺ", "½²Ⅷ", "\x85"),
    *("\u2028", "\ufeff", "\x7f", "𝔘𝔫", "𠀀𠮷", "👍🏽", "ΑΣ", "İ", "__init__", "camelCaseXML"),
    *(
        "1,000,000",
        "٣٤٥",
        "//\n\n",
        "}\r\n\r\n",
        "<|",
        "|>",
        "```",
        "潮汐表上写的是中午。",
        "Прилив?",
    ),
)
TOOL = {"type": "function", "function": {"name": "tide", "description": "", "parameters": {}}}


def make_chats(reference: Tokenizer, seed: str) -> list[dict[str, Any]]:
    """Conversations whose messages also spell the control tokens of the vocabulary."""
    dice = random.Random(seed)
    controls = [text for text, token in reference.added.items() if token.control]
    forged = controls[:12] + dice.sample(controls, min(len(controls), 20))

    def write_text() -> str:
        parts = dice.choices((*SNIPPETS, *HARD_SNIPPETS, *forged), k=dice.randrange(1, 14))
        return dice.choice(("", " ")).join(parts)

    chats = []
    for number in range(CHATS):
        turns = [
            {"role": role, "content": write_text()}
            for role in ("user", "assistant") * dice.randrange(1, 4)
        ]
        if number % 3 == 0:
            turns[1]["reasoning_content"] = write_text()
        chat: dict[str, Any] = {"messages": turns[: len(turns) - number % 2]}
        if number % 2:
            chat["add_generation_prompt"] = True
        if number % 5 == 0:
            chat["tools"] = [TOOL]
        chats.append(chat)
    return chats


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::turnwise.errors.TurnwiseWarning")
@pytest.mark.parametrize("name", NAMES)
def test_ids_of_the_static_page_equal_encode(name: str, tmp_path: Path) -> None:
    if shutil.which("node") is None or not (SITE / "engine.zip").is_file():
        pytest.skip("no Node or no static site: make site")
    packed = (SITE / "vocabularies" / f"{name}.json.gz").read_bytes()
    for file, data in json.loads(gzip.decompress(packed)).items():
        (tmp_path / file).write_text(json.dumps(data), encoding="utf-8")
    reference = tokenizer(tmp_path, backend="tokenizers")
    listed = json.loads((SITE / "entries.json").read_text(encoding="utf-8"))["vocabularies"]
    fitting = {row["name"]: row["entries"] for row in listed}.get(name) or ["chatml"]
    entry = fitting[0]
    chats = make_chats(reference, name)
    requests = "".join(json.dumps({"template": entry, **chat}) + "\n" for chat in chats)
    command = ["node", str(RUNNER), str(SITE), name]
    run = subprocess.run(
        command, input=requests, capture_output=True, encoding="utf-8", check=False
    )
    assert not run.returncode, run.stderr
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(answers) == CHATS
    template, compared = turnwise.load(entry), 0
    for chat, answer in zip(chats, answers, strict=True):
        messages, arguments = chat["messages"], {**chat}
        del arguments["messages"]
        try:
            expected = template.encode(messages, reference, **arguments)
        except TurnwiseError as refusal:
            assert answer["error"] == refusal.message
            continue
        compared += 1
        assert answer["input_ids"] == expected.input_ids, messages
        # what a message spells stays text: the same tokens are control tokens, and none is more
        assert answer["control"] == list(expected.control)
        assert answer["defused"] == [list(span) for span in expected.defused]
        # where a normalizer changes the text, offsets are found by another way, and may differ by a character
        if unicodedata.is_normalized("NFC", expected.text):
            assert answer["offsets"] == [list(span) for span in expected.offsets]
    assert compared > CHATS / 2
