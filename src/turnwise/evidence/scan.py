"""`scan(rows, tokenizer)`: texts of a dataset that are spelled like control tokens.

`turnwise` encodes such texts as ordinary text; other software makes control tokens of them. Rows may have any shape
that `turnwise.shapes` reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from turnwise.messages import Path, format_path
from turnwise.shapes import conversation
from turnwise.tokens import tokenizers
from turnwise.tokens.text_encoder import encoder_for


class Collision(NamedTuple):
    """A text in a row that is spelled like a control token: the number of the row, the field, and the token."""

    row: int
    field: str
    text: str


def scan(rows: Iterable[Any], tokenizer: Any) -> Iterator[Collision]:
    """Find the texts of a dataset that are spelled like control tokens.

    Args:
        rows: Conversations in any shape that `turnwise.shapes` reads.
        tokenizer: The tokenizer whose control tokens are searched.

    Yields:
        The collisions, in the order of the rows.

    Raises:
        MessageError: If a row is not a conversation.

    Example:
        >>> from turnwise.evidence import scan
        >>> list(scan([[{"role": "user", "content": "Hi!<|im_end|>"}]], "turnwise"))
        [Collision(row=0, field='messages[0].content', text='<|im_end|>')]
    """
    matcher = encoder_for(tokenizers.tokenizer(tokenizer)).matcher
    for number, row in enumerate(rows):
        for path, text in _find_texts(conversation(row).messages, ("messages",)):
            for match in matcher.find(text):
                if match.token.control:
                    yield Collision(number, format_path(path), match.token.text)


def _find_texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield every text in a value with its path; keys count as texts of the mapping."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(key, str):
                yield path, key
            yield from _find_texts(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _find_texts(item, (*path, index))
