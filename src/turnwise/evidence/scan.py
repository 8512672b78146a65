"""`scan(rows, tokenizer)`: texts of a dataset that are spelled like control tokens.

`encode` keeps them apart, so they do no harm here; trained with other software they become real tokens. Rows are read
in any shape that people have (`shapes/`), one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from turnwise.messages import format_path
from turnwise.shapes import conversation
from turnwise.tokens import tokenizers
from turnwise.tokens.text_encoder import encoder_for


class Collision(NamedTuple):
    """A text in a row that is spelled like a control token."""

    row: int
    field: str
    text: str


def scan(rows: Iterable[Any], tokenizer: Any) -> Iterator[Collision]:
    """The collisions, in the order of the rows."""
    matcher = encoder_for(tokenizers.tokenizer(tokenizer)).matcher
    for number, row in enumerate(rows):
        for path, text in texts(conversation(row).messages, ("messages",)):
            for match in matcher.find(text):
                if match.token.control:
                    yield Collision(number, format_path(path), match.token.text)


def texts(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every text in a value, keys included, and where it stands."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from ((path, key),) if isinstance(key, str) else ()
            yield from texts(item, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from texts(item, (*path, index))
