"""Check that a fast back end agrees with the reference before it is used.

The texts are short and many: each covers a point on which implementations of the same `tokenizer.json` have differed or
may differ (white space, combining marks, digits, contractions, bytes without a token, ...).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from turnwise.tokens.tokenizers.protocol import START, WHOLE, Added

MAX_ADDED = 24  # added tokens of each kind that are tried

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


class Backend(Protocol):
    """A library that encodes one `tokenizer.json`."""

    def decode(self, ids: Sequence[int]) -> str: ...

    def encode(self, text: str, position: int) -> list[int]:
        """Return the ids of the text at this position, or with its added tokens (WHOLE)."""


def find_disagreement(
    fast: Backend, reference: Backend, added: Iterable[Added], positions: Iterable[int]
) -> str | None:
    """Return the first text on which the two differ, as a phrase; None if they agree on all."""
    for text in TEXTS:
        for position in positions:
            if fast.encode(text, position) != reference.encode(text, position):
                return f"different ids for the plain text {text[:40]!r}"
    for text in (*TEXTS, *_texts_with_added(added)):
        if fast.encode(text, WHOLE) != reference.encode(text, WHOLE):
            return f"different ids for the text {text[:40]!r}"
    return None


def have_same_decoder(fast: Backend, reference: Backend) -> bool:
    """Return whether both decode ids to the same texts, also ids that begin or end inside a character."""
    for text in TEXTS:
        ids = reference.encode(text, START)
        for part in (ids, ids[1:], ids[:-1], ids[::2], ids[::-1]):
            if fast.decode(part) != reference.decode(part):
                return False
    return True


def _texts_with_added(added: Iterable[Added]) -> Iterator[str]:
    """Yield texts with added tokens: the first and last ones, and some with flags that are not usual."""
    table = list(added)
    unusual = [
        token
        for token in table
        if token.lstrip or token.rstrip or token.single_word or not token.special
    ]
    for token in dict.fromkeys(table[:MAX_ADDED] + table[-MAX_ADDED:] + unusual[:MAX_ADDED]):
        yield f"{token.text}a {token.text} b{token.text}{token.text}\n {token.text} c"
