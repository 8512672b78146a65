"""Find the tokens of a text in it, where neither their widths nor the library tell where they are.

Normalisers change text on its way into tokens: case, accents, Unicode forms, white space. So text and tokens are
compared without these. Tokens are searched from left to right, each behind the one before. A token that is not found
(an unknown one, white space, a part of a character) covers what is left between its neighbours.

The result may be coarse, but it is always one: starts never fall, and every span is inside of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from unicodedata import combining, normalize

from turnwise.tokens.tokenizers.offsets import Offsets
from turnwise.tokens.tokenizers.protocol import Added

SPACE_SIGNS = ("▁", "Ġ", " ")
SPACE_BYTES = tuple(sign.encode() for sign in SPACE_SIGNS)
CONTINUATION_SIGNS = ("##", "@@", "</w>")  # of WordPiece and of older BPE vocabularies
MAX_SKIPPED = 64  # characters that a normaliser may have dropped, or an unknown token stand for


def align_tokens(
    text: str,
    ids: Sequence[int],
    added: Iterable[Added],
    token_bytes: Callable[[int], bytes | None],
) -> list[Offsets]:
    """Return the span of each token in `text`.

    Args:
        text: the text that was encoded.
        ids: its tokens.
        added: the added tokens of the vocabulary, which spell their own texts.
        token_bytes: returns the bytes of any other token, None where they are not known.
    """
    texts = {token.id: token.text.encode("utf-8", "replace") for token in added}
    tokens = [texts.get(id) or token_bytes(id) for id in ids]
    folded, characters = _fold(text)
    found = _search(folded, [_fold_token(token) for token in tokens])
    offsets: list[Offsets] = []
    waiting = 0  # tokens before this one that were not found
    covered = 0  # the characters before this one belong to earlier tokens
    for token, place in zip(tokens, found, strict=True):
        if place is None:
            waiting += 1
            continue
        start, end = characters[place[0]], characters[place[1] - 1] + 1
        offsets += [(covered, max(covered, start))] * waiting
        if not waiting and token is not None and token.startswith(SPACE_BYTES):
            start = covered  # the white space before a word is part of its token
        offsets.append((start, end))
        waiting, covered = 0, end
    return offsets + [(covered, len(text))] * waiting


def _search(folded: str, tokens: Sequence[str]) -> list[tuple[int, int] | None]:
    """Return where each token is in the text, both folded; None for a token that is not there."""
    found: list[tuple[int, int] | None] = []
    done, skipped = 0, 0
    for token in tokens:
        limit = done + len(token) + MAX_SKIPPED * (1 + min(skipped, MAX_SKIPPED))
        start = folded.find(token, done, limit) if token else -1
        if start < 0:
            found.append(None)
            skipped += 1
            continue
        done, skipped = start + len(token), 0
        found.append((start, done))
    return found


def _fold(text: str) -> tuple[str, list[int]]:
    """Return the text without case, accents and white space, and the character that each of its letters came from."""
    letters: list[str] = []
    characters: list[int] = []
    for index, character in enumerate(text):
        for letter in normalize("NFKD", character).casefold():
            if not (letter.isspace() or letter in SPACE_SIGNS or combining(letter)):
                letters.append(letter)
                characters.append(index)
    return "".join(letters), characters


def _fold_token(token: bytes | None) -> str:
    """Return a token as `_fold` leaves it, empty if nothing of it can be searched."""
    try:
        text = (token or b"").decode("utf-8")
    except UnicodeDecodeError:  # a part of a character
        return ""
    for sign in CONTINUATION_SIGNS:
        if text != sign:
            text = text.removeprefix(sign).removesuffix(sign)
    return _fold(text)[0]
