"""The same text as transformers, or an error in both: the law for generated templates."""

from __future__ import annotations

import re
import warnings
from typing import Any

import corpus
import oracle
import random_templates as grammar
import turnwise

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Look it up.",
            "parameters": {
                "type": "object",
                "properties": {"what": {"type": "string"}},
                "required": ["what"],
            },
        },
    }
]
ARGUMENTS = {"what": "1", "more": [1, None]}
CALL = {"id": "call00001", "type": "function", "function": {"name": "look", "arguments": ARGUMENTS}}
CHATS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "hi there"}],
    [
        {"role": "system", "content": " be\nkind "},
        {"role": "user", "content": "q?"},
        {"role": "assistant", "content": "yes", "thinking": "hm"},
    ],
    [
        {"role": "user", "content": [{"type": "text", "text": "part"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "42", "name": "look", "tool_call_id": "call00001"},
    ],
]
ADDRESS = re.compile(
    r"<(built-in|bound|function|generator|reversed|class|method|map|filter|jinja2|\w+ object at 0x)[^>]*>?"
)


MARKUP = re.compile(r"""Markup\(('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\)""")


# docs/compatibility.md: methods of text that was escaped do not escape what they are given
ESCAPED_METHOD = re.compile(r"\|(e|escape|forceescape|safe)\)+\.\w+\(")


def theirs(text: str, chat: list[dict[str, Any]]) -> str | None:
    """Their text, or None for any error."""
    with warnings.catch_warnings():
        # jinja2 writes `None[1:]`, of which Python warns when it compiles it.
        warnings.simplefilter("ignore", SyntaxWarning)
        try:
            return oracle.render(text, chat, tools=TOOLS, **grammar.OPTIONS)
        except Exception:  # anything at all may leave the reference
            return None


BEYOND = "beyond the budgets"  # transformers has none, so there is nothing to compare


def ours(text: str, chat: list[dict[str, Any]]) -> str | None:
    try:
        rendering = turnwise.compile(text).render(
            chat, tools=TOOLS, now=corpus.NOW, normalise=False, **grammar.OPTIONS
        )
    except turnwise.TemplateLimitError:
        return BEYOND
    except turnwise.TurnwiseError:
        return None
    assert "".join(piece.text for piece in rendering.pieces) == rendering.text, (
        "the pieces do not join to the text"
    )
    return rendering.text


def same(text: str, chat: list[dict[str, Any]]) -> None:
    if ESCAPED_METHOD.search(text):
        ours(text, chat)  # raises nothing but our own errors
        return
    expected = theirs(text, chat)
    if expected is not None and ADDRESS.search(expected):
        expected = (
            None  # docs/compatibility.md: printing a function or a generator is an error here
        )
    if expected is not None:
        # docs/compatibility.md: text that was escaped is printed as text, also inside of a list
        expected = MARKUP.sub(r"\1", expected)
    assert ours(text, chat) in (expected, BEYOND)
