"""Find where in a prompt the reply begins.

A prompt ends with the generation prompt, and often with more: a reasoning block that is opened, or
opened and closed, or the beginning of the answer. What follows the header of the assistant's turn
is parsed as part of the reply: the *prefill*. The header is the grammar's generation prompt up to
the first marker of a region; the last one in the prompt counts. Where a turn goes on after a tool
result without another header, the end of the result counts as one; where no turn has a header, the
end of the last message of a user.

A prompt is what was sent, in any form: a rendering, its text, an encoded conversation, or token
ids.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from turnwise.errors import MessageError, TokenizerError, short_repr
from turnwise.replies.grammar_parts import GrammarParts, Marker, Region
from turnwise.replies.parser.detokenizer import IncrementalDetokenizer
from turnwise.replies.parser.markers import trailing_space
from turnwise.token_ids import to_token_ids

_ACCEPTED = "a rendering, a text, an encoded conversation, or token ids with a tokenizer"


def prompt_text(prompt: Any, tokenizer: Any) -> str:
    """Return the text of a prompt.

    Raises:
        MessageError: if this is no prompt.
        TokenizerError: if the prompt consists of ids and there is no tokenizer, or of something else than ids.
    """
    text = prompt if isinstance(prompt, str) else getattr(prompt, "text", None)
    if isinstance(text, str):
        return str(text)
    if not isinstance(prompt, (list, tuple)) and not hasattr(prompt, "tolist"):
        raise MessageError(
            f"this is not a prompt: {short_repr(prompt)}",
            path="prompt",
            hint=f"accepted: {_ACCEPTED}",
        )
    ids = to_token_ids(prompt, "a prompt must be text or token ids")
    if tokenizer is None:
        raise TokenizerError(
            "a prompt of token ids can only be read with a tokenizer", hint="give `tokenizer=` too"
        )
    detokenizer = IncrementalDetokenizer(tokenizer)
    return detokenizer.decode(ids) + detokenizer.flush()


def assistant_header(grammar: GrammarParts) -> str:
    """Return the generation prompt without what is part of a region: a whole marker, or the beginning of one."""
    return _find_header(grammar.opening, grammar.content.open, grammar.reasoning, grammar.empty)


@lru_cache
def _find_header(opening: str, content: Marker, reasoning: Region | None, empty: str) -> str:
    openers, markers = [content.core], [content.core, empty.strip()]
    if reasoning is not None:
        openers.append(reasoning.open.core)
        markers += [reasoning.open.core, reasoning.close.core]
    # The header ends before the first whole marker, or before a marker that is only begun.
    cuts = [opening.find(marker) for marker in markers if marker and marker in opening]
    for marker in openers:
        size = _partial_marker_size(opening, marker)
        if size:
            cuts.append(len(opening) - size)
    return opening[: min(cuts)] if cuts else opening


def _partial_marker_size(opening: str, marker: str) -> int:
    """Return how many characters at the end of `opening` begin a marker, where neither is cut within a word."""
    for size in range(len(marker) - 1, 0, -1):
        # Two characters belong together if both are of a word, or both are punctuation.
        last, following = marker[size - 1], marker[size]
        is_cut = last.isalnum() == following.isalnum() and not last.isspace()
        if opening.endswith(marker[:size]) and not is_cut:
            before = opening[: len(opening) - size]
            return 0 if before[-1:].isalnum() else size
    return 0


def prefill_of(grammar: GrammarParts, prompt: str | None) -> str:
    """Return the part of the reply that the prompt holds; without a prompt, what the generation prompt holds of it."""
    header = assistant_header(grammar)
    if prompt is None:
        return grammar.opening[len(header) :]
    if not header.strip():
        return _prefill_without_header(grammar, prompt)
    end = max(_find_header_end(prompt, header), _find_header_end(prompt, grammar.reopening))
    return prompt[end:] if end else ""


def _prefill_without_header(grammar: GrammarParts, prompt: str) -> str:
    """Return what follows the last turn of a user, if it opens a region; else the generation prompt or an opener.

    Text alone may be a tool's result.
    """
    opener = "" if grammar.reasoning is None else grammar.reasoning.open.core
    prefill = prompt[_find_header_end(prompt, grammar.reopening) :]
    is_one_turn = not any(stop in prefill for stop in grammar.stops)
    if grammar.reopening and opener and is_one_turn and prefill.lstrip().startswith(opener):
        return prefill
    for text in (grammar.opening, opener):
        if text and prompt.rstrip().endswith(text.strip()):
            return prompt[prompt.rindex(text.strip()) :]
    return ""


def _find_header_end(text: str, header: str) -> int:
    """Return where the last header ends, with the whitespace after it; 0 if there is none."""
    core = header.strip()
    start = text.rfind(core) if core else -1
    if start < 0:
        return 0
    end = start + len(core)
    for char in trailing_space(header):
        if not text.startswith(char, end):
            break
        end += 1
    return end
