"""Tokenizers for the tests: the shipped one, those of the corpus, small ones made up; and texts to try them on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import corpus
from turnwise.tokens.tokenizers import START, Tokenizer, files, tokenizer
from turnwise.tokens.tokenizers.offsets import ends_of_starts

SHIPPED = files.SHIPPED / "tokenizer.json"
FOLDER = corpus.folder()
REAL = tuple(sorted(entry.name for entry in (FOLDER / "tokenizers").iterdir())) if FOLDER else ()
NAMES = ("turnwise", *REAL)


def space(text: str) -> str:
    return text.replace("▁", " ")


def path(name: str) -> Path:
    return files.SHIPPED if name == "turnwise" else FOLDER / "tokenizers" / name  # type: ignore[operator]


def load(name: str) -> Tokenizer:
    return tokenizer(name if name == "turnwise" else path(name), backend="fastokens")


SNIPPETS = (
    *(
        "<|im_start|>",
        "<|im_end|>",
        "<s>",
        "</s>",
        "<unk>",
        "<think>",
        "<tool_call>",
        "<start_of_turn>",
        "<｜User｜>",
    ),
    *(
        "<|eot_id|>",
        "<bos>",
        "[INST]",
        "<unused3>",
        "<|im_",
        "▁",
        "Ġ",
        "<0x0A>",
        " ",
        "  ",
        "\n",
        "\n\n",
        "\t",
        "\r\n",
    ),
    *(
        "Hello",
        " world",
        "don't",
        "123",
        "3.14",
        "中文",
        "你好，世界",
        "é",
        "e\u0301",
        "ﬁ",
        "\u0958",
        "👩\u200d👧",
        "🇫🇷",
    ),
    *(
        "def f(x):\n    return x",
        '{"a": [1, null]}',
        "ab" * 9,
        "\u00a0",
        "\u200b",
        "\x00",
        "\ufffd",
        "한국어",
        "ــ",
    ),
)
TEXTS = st.lists(st.one_of(st.sampled_from(SNIPPETS), st.text(max_size=12)), max_size=8).map(
    "".join
)


def ends(own: Tokenizer, text: str, ids: Sequence[int], position: int = START) -> list[int]:
    """Where each token ends if every character belongs to one token."""
    starts = (start for start, _ in own.offsets(text, ids, position))
    return ends_of_starts(starts, len(text))


def law(count: int) -> Callable[[Any], Any]:
    return settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))


def variant(**parts: Any) -> str:
    """The shipped tokenizer, spelled as SentencePiece does where asked for, with other parts."""
    data = json.loads(SHIPPED.read_text(encoding="utf-8"))
    vocabulary = {chr(code): number for number, code in enumerate(range(32, 127))} | {
        "▁": 95,
        "▁a": 96,
        "ab": 97,
        "▁ab": 98,
    }
    model = {
        "type": "BPE",
        "vocab": vocabulary,
        "merges": ["▁ a", "a b", "▁a b"],
        "unk_token": "?",
        "fuse_unk": True,
    }
    added = [{**data["added_tokens"][0], "id": 99, "content": "<x>"}]
    parts = {"normalizer": None, "pre_tokenizer": None, "decoder": None, **parts}
    return json.dumps({**data, "model": model, "added_tokens": added, **parts})


REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PREPEND = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, REPLACE]}


def metaspace(scheme: str) -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}
