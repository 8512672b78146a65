"""The error for a template that rewrites earlier text: what changed, in which message, and how it is shown.

Two renderings are compared. They may part in the middle of a marker (`<think>` and `<tool_call>` part after `<t`), so
both are shown from where that marker or word begins.
"""

from __future__ import annotations

from turnwise.analysis.rewrites import MAX_SHOWN_LENGTH, common_length, find_word_start
from turnwise.engine.provenance.piece_table import PieceTable
from turnwise.engine.provenance.rendering import Rendering
from turnwise.errors import Unstable, short_repr
from turnwise.tokens.boundaries import find_last_message_end
from turnwise.tokens.turn_ends import TextSpan, find_content_end


def make_unstable(prompt: Rendering, now: Rendering, before: str, reply: int) -> Unstable:
    """Return the error for a rendering that does not begin with the last prompt and the reply.

    Args:
        prompt: the last prompt, rendered again.
        now: the conversation as the template writes it now.
        before: the text of the last prompt and the reply.
        reply: the index of the reply's message.
    """
    place = common_length(before, now.text)
    changed = _find_changed_message(prompt, now, place, reply)
    subject = "text outside of the messages" if changed is None else f"messages[{changed}]"
    if changed == reply:
        subject = "the reply"
    end, piece = 0, None
    for piece in now.pieces:
        end += len(piece.text)
        if end > place:
            break
    shown_from = find_word_start(before, place)
    old, new = before[shown_from:], now.text[shown_from:]
    return Unstable(
        f"{subject} is rendered differently now: "
        f"{short_repr(old[:MAX_SHOWN_LENGTH])} became {short_repr(new[:MAX_SHOWN_LENGTH])}",
        before=old,
        now=new,
        piece=piece,
        message_index=changed,
        hint='history="keep" goes on with the sampled ids as they are, "rewrite" re-encodes the conversation',
    )


def make_omitted(reply: str, now: str, index: int) -> Unstable:
    """Return the error for a rendering in which the reply does not occur."""
    return Unstable(
        "the template leaves the reply out, so nothing can be added after it",
        before=reply[-MAX_SHOWN_LENGTH:],
        now=now[-MAX_SHOWN_LENGTH:],
        message_index=index,
        hint='history="rewrite" re-encodes the conversation',
    )


def _find_changed_message(prompt: Rendering, now: Rendering, place: int, reply: int) -> int | None:
    """Return the message in which the earlier text changed; None where it belongs to no message."""
    table = prompt.piece_table
    if place >= find_last_message_end(table):
        return reply  # its opening, or its own text
    changed = _message_at(table, place)
    if (
        changed == reply - 1
        and _message_at(now.piece_table, place) == reply
        and place >= find_content_end(table, TextSpan(0, len(prompt)))
    ):
        return reply  # the template writes its opening with the message before
    return changed


def _message_at(table: PieceTable, character: int) -> int | None:
    if character >= table.starts[-1]:
        return None
    return table.message_of(table.index_at(character))
