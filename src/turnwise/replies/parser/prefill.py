"""Where in a prompt the reply begins.

A prompt ends with the opening of the assistant's turn, and often with more: a reasoning block that is opened, or opened
and closed, or the beginning of the answer. What stands behind the turn's header is read as part of the reply. The
header is the grammar's opening up to the first marker of a region; it is looked for from the end of the prompt. Where
a turn goes on behind a tool's result without another header, the end of the result counts as one.

A prompt is what was sent, in any of its shapes: a rendering, its text, an encoded conversation, or ids.
"""

from __future__ import annotations

from typing import Any

from turnwise.errors import MessageError, TokenizerError, short_repr
from turnwise.replies.grammar_parts import GrammarParts
from turnwise.replies.parser.detokenizer import Spelling, ids_of

ACCEPTED = "a rendering, a text, an encoded conversation, or token ids with a tokenizer"


def sent(prompt: Any, tokenizer: Any = None) -> str:
    """The text of a prompt."""
    text = prompt if isinstance(prompt, str) else getattr(prompt, "text", None)
    if isinstance(text, str):
        return str(text)
    if not isinstance(prompt, (list, tuple)) and not hasattr(prompt, "tolist"):
        raise MessageError(
            f"a prompt is not {short_repr(prompt)}", path="prompt", hint=f"accepted: {ACCEPTED}"
        )
    ids = ids_of(prompt, "a prompt")
    if tokenizer is None:
        raise TokenizerError(
            "a prompt of token ids can only be read with a tokenizer", hint="give `tokenizer=` too"
        )
    spelling = Spelling(tokenizer)
    return spelling.read(ids) + spelling.flush()


def header(grammar: GrammarParts) -> str:
    """The opening without what belongs to a region already: a whole marker, or at its end the beginning of one."""
    opening = grammar.opening
    openers = [grammar.content.open.core]
    regions = [*openers, grammar.empty.strip()]
    if grammar.reasoning is not None:
        openers.append(grammar.reasoning.open.core)
        regions += [grammar.reasoning.open.core, grammar.reasoning.close.core]
    cuts = [opening.find(text) for text in regions if text and text in opening]
    cuts += [len(opening) - size for marker in openers if (size := begins(opening, marker))]
    return opening[: min(cuts)] if cuts else opening


def begins(opening: str, marker: str) -> int:
    """How many characters at the end of an opening begin a marker. Words and rows of signs stay whole, in both."""
    for size in range(len(marker) - 1, 0, -1):
        if opening.endswith(marker[:size]) and not joined(marker[size - 1 : size + 1]):
            return 0 if opening[: len(opening) - size][-1:].isalnum() else size
    return 0


def joined(pair: str) -> bool:
    """Whether two characters belong together: both of a word, or both signs."""
    return pair[0].isalnum() == pair[1].isalnum() and not pair[0].isspace()


def begun(grammar: GrammarParts, prompt: Any) -> str:
    """The part of the reply that the prompt already holds; without a prompt, what the opening holds of it."""
    head = header(grammar)
    if prompt is None:
        return grammar.opening[len(head) :]
    text = sent(prompt)
    core = head.strip()
    if not core:
        return (
            text[len(text) - len(grammar.opening) :]
            if grammar.opening and text.endswith(grammar.opening)
            else ""
        )
    end = max(end_of(text, head), end_of(text, grammar.reopening))
    return text[end:] if end else ""


def end_of(text: str, head: str) -> int:
    """Where the last header ends, with the white space behind it; 0 if there is none."""
    core = head.strip()
    at = text.rfind(core) if core else -1
    if at < 0:
        return 0
    end = at + len(core)
    space = head[len(head.rstrip()) :]
    while space and text.startswith(space[0], end):
        space, end = space[1:], end + 1
    return end
