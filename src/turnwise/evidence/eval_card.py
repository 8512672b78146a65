"""Evaluation cards: the prompts of one model for a fixed set of conversations, and a hash of their ids.

Two evaluations sent the same prompts if their cards have the same hash. The conversations are the topic `eval_card` of
`analysis/probes.json`: who speaks, tools, reasoning switched on and off, a prefilled answer. A card has texts and ids,
so two cards show where they first differ without the models that they were made of. The hash of ids is SHA-256 of the
numbers, in decimal with commas between them.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, NamedTuple

from turnwise.analysis.conversations import load_probes
from turnwise.analysis.counterexample import excerpt
from turnwise.analysis.rewrites import common_length
from turnwise.errors import TurnwiseError, WarningLog, printable
from turnwise.template import Template
from turnwise.tokens.loss import train_nothing
from turnwise.tokens.tokenizers import Tokenizer

__all__ = ["CardDifference", "EvalCard", "compare_cards", "hash_values", "make_card", "seal_card"]

KIND = "turnwise eval card 1"
"""What a card is, and the edition of the conversations: a change of them is a new number."""
IDS_SHOWN = 5


def hash_values(values: Iterable[object]) -> str:
    """Return SHA-256 of values as text, with commas between them.

    Example:
        >>> hash_values([1, 2, 3])[:12]
        '8a6ae1512200'
    """
    return sha256(",".join(map(str, values)).encode()).hexdigest()


class EvalCard(dict[str, Any]):
    """The prompts of one model as JSON has them; printed, it shows the hash of each.

    Its keys: `kind`; `template` and `tokenizer`, their names; `rows`, each with a `conversation`, the `text` of its
    prompt and the `ids`, which are None if the template refuses it, with the reason as text; `ids_sha256`, the hash of
    all.
    """

    def __str__(self) -> str:
        lines = [f"{self['template']}, tokenizer {self['tokenizer']}", f"ids {self['ids_sha256']}"]
        for row in self["rows"]:
            shown = f"refused: {row['text']}"
            if (ids := row["ids"]) is not None:
                shown = f"{hash_values(ids)[:12]} {len(ids):5} tokens"
            lines.append(f"  {row['conversation']:<38} {printable(shown)}")
        return "\n".join(lines)


def make_card(template: Template, tokenizer: Tokenizer) -> EvalCard:
    """Return the card of a template and a tokenizer."""
    rows = []
    # What a template does not write is no part of its prompts.
    with WarningLog(is_quiet=True):
        for probe in load_probes("eval_card"):
            given = {**probe.arguments(), "add_stop": False}
            text, ids = "", None
            try:
                encoded = template.encode(probe.messages, tokenizer, train_nothing, **given)
                text, ids = encoded.text, encoded.input_ids
            except TurnwiseError as error:
                text = error.message
            rows.append({"conversation": probe.covers, "text": text, "ids": ids})
    return seal_card(template=template.name, tokenizer=tokenizer.name, rows=rows)


def seal_card(**parts: Any) -> EvalCard:
    """Return a card with its kind and the hash of its rows."""
    every = hash_values(f"{row['conversation']}:{row['ids']}" for row in parts["rows"])
    return EvalCard(kind=KIND, ids_sha256=every, **parts)


class CardDifference(NamedTuple):
    """The first conversation whose prompts differ; printable.

    Attributes:
        conversation: what it is.
        at: the index of the first id that differs.
        texts: the text of each around the first difference, which is marked.
        ids: the ids of each from there on; None for a prompt that is refused.
        others: how many more conversations differ.
    """

    conversation: str
    at: int
    texts: list[str]
    ids: list[list[int] | None]
    others: int

    def __str__(self) -> str:
        lines = [f"{self.conversation}: ids differ from number {self.at} on"]
        for text, ids in zip(self.texts, self.ids, strict=True):
            lines.append(f"  {text!r}\n    {'refused' if ids is None else ids}")
        return "\n".join([*lines, f"{self.others} more conversations differ"])


def compare_cards(first: EvalCard, second: EvalCard) -> CardDifference | None:
    """Return where two cards first differ, None if they have the same ids."""
    pairs = zip(first["rows"], second["rows"], strict=True)
    different = [pair for pair in pairs if pair[0]["ids"] != pair[1]["ids"]]
    if not different:
        return None
    texts, ids = ([row[key] for row in different[0]] for key in ("text", "ids"))
    place, at = common_length(*texts), common_length(*(row or [] for row in ids))
    return CardDifference(
        different[0][0]["conversation"],
        at,
        [excerpt(text, place) for text in texts],
        [row and row[at : at + IDS_SHOWN] for row in ids],
        len(different) - 1,
    )
