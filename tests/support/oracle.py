"""What transformers prints: the reference for every text in the case files.

It is called through the function that `apply_chat_template` itself calls, so no tokenizer and no model is needed.
The clock that `strftime_now` reads is replaced for the time of the call; hence not for use from several threads.
"""

from __future__ import annotations

import warnings
from datetime import datetime
from functools import cache
from typing import Any
from unittest import mock

import pytest


@cache
def reference() -> Any:
    """Return the module of transformers, imported when it is first asked for; skip the test where it is missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own, at import, are not ours to fix
        return pytest.importorskip("transformers.utils.chat_template_utils")


def render(template: str, messages: Any, *, now: datetime | None = None, **arguments: Any) -> str:
    """The text; raises whatever transformers raises."""
    with clock(now or datetime(2025, 1, 15, 12, 0)):
        texts, _ = reference().render_jinja_template(
            [messages], chat_template=template, **arguments
        )
    return str(texts[0])


def generation_spans(template: str, messages: Any, **arguments: Any) -> list[tuple[int, int]]:
    """The character ranges of `{% generation %}` blocks."""
    _, spans = reference().render_jinja_template(
        [messages], chat_template=template, return_assistant_tokens_mask=True, **arguments
    )
    return [tuple(span) for span in spans[0]]


def clock(now: datetime) -> Any:
    frozen = mock.Mock(wraps=datetime)
    frozen.now.return_value = now
    return mock.patch.object(reference(), "datetime", frozen)
