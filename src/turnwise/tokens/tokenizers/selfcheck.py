"""Texts on which a fast back end must agree with the reference before it is used.

They are short and many: each stands for a place where implementations of the same `tokenizer.json` were seen, or can be
imagined, to part ways (runs of white space, combining marks, digits, contractions, bytes without a token, ...).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from turnwise.tokens.tokenizers.protocol import Added

TEXTS = (
    "",
    " ",
    "  ",
    "\n",
    "\n\n",
    "\r\n",
    "\t",
    " \n \n",
    "   a   b   ",
    "a\u00a0b\u2003c\u3000d",
    "Hello",
    " Hello",
    "Hello, world!",
    "The quick brown fox jumps over the lazy dog.",
    "I'm sure they'll say we've DON'T and SHE'S",
    "l’été, c’est beau",
    "camelCaseXMLHttpRequest snake_case_name kebab-case",
    "1234567890 3.14159 1,000,000 0x7fff 10^-9",
    "٣٤٥ ०१२ ½ ² Ⅷ",
    "2025-01-15T12:00:00+08:00",
    "https://example.org/a/b?c=d&e=f#g",
    "user@example.org",
    "def f(x):\n    return {'a': [x, None]}\n",
    "for (int i = 0; i < n; ++i) {\n\t\tsum += a[i];\n}",
    'SELECT * FROM t WHERE name = "x" -- comment',
    "<div class='a'>&amp;</div>",
    '{"role": "user", "content": "a\\nb"}',
    "# Title\n\n* item\n* item\n\n```python\nprint(1)\n```",
    "$\\frac{a}{b}$ ≤ ∑ ∞ → ⇒",
    "…—–“quoted”‘’«»",
    "!!!???...;;;:::",
    "()[]{}<>|~^`@#%&*+-=/\\",
    "<|not_a_token|> <x> [Y] <|",
    "中文",
    "你好,世界!今天天气很好。",
    "他说：“可以吗？”——当然。",
    "第1章 2024年 3.5元 A股",
    "日本語のテキスト、カタカナとひらがな",
    "한국어 문장입니다.",
    "Привет, мир!",
    "Καλημέρα κόσμε",
    "שלום עולם",
    "مرحبا بالعالم",
    "สวัสดีชาวโลก",
    "नमस्ते दुनिया",
    "Tiếng Việt có dấu",
    "ﬁ ﬂ Å Å ſ",
    "e\u0301 n\u0303 a\u0308\u0304",
    "\u0958 \u1100\u1161\u11a8 \ufb1d",
    "Z̴a̵l̶g̷o̸",
    "😀 🎉🎉",
    "👩\u200d👩\u200d👧\u200d👦 👍🏽 🏳\ufe0f\u200d🌈",
    "🇫🇷🇨🇳",
    "\u200b\u200c\u200d\ufeff",
    "\x00\x01\x1b[0m\x7f",
    "\ufffd \ue000 \U0010fffd",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𠀀𠮷",
    "▁under▁score Ġhello Ċ <0x0A>",
    "a" * 70,
    "ab " * 30,
    " " * 33 + "x" + "\n" * 17,
    "aaaAAA111!!!   \n\n\t\tend ",
)


class Encoder(Protocol):
    def decode(self, ids: Sequence[int]) -> str: ...

    def encode(self, text: str, at: int) -> list[int]: ...

    def whole(self, text: str) -> list[int]: ...


def disagreement(
    fast: Encoder, reference: Encoder, added: Iterable[Added], positions: Iterable[int]
) -> str | None:
    """The first text on which the two differ, as a phrase; None if they agree on all."""
    for text in TEXTS:
        for at in positions:
            if fast.encode(text, at) != reference.encode(text, at):
                return f"different ids for the plain text {text[:40]!r}"
    for text in (*TEXTS, *marked(added)):
        if fast.whole(text) != reference.whole(text):
            return f"different ids for the text {text[:40]!r}"
    return None


def same_texts(fast: Encoder, reference: Encoder) -> bool:
    """Whether ids become the same texts, letters that were cut in the middle included."""
    found = (reference.encode(text, 0) for text in TEXTS)
    return all(
        fast.decode(part) == reference.decode(part)
        for ids in found
        for part in (ids, ids[1:], ids[:-1], ids[::2], ids[::-1])
    )


def marked(added: Iterable[Added], limit: int = 24) -> Iterator[str]:
    """Texts with added tokens in them: the first few, and those that ask for anything unusual."""
    table = list(added)
    unusual = [
        token
        for token in table
        if token.lstrip or token.rstrip or token.single_word or not token.special
    ]
    for token in dict.fromkeys(table[:limit] + table[-limit:] + unusual[:limit]):
        yield f"{token.text}a {token.text} b{token.text}{token.text}\n {token.text} c"
