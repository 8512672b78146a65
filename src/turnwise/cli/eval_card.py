"""`turnwise eval-card`: hashes of the prompts that a model gets, and where those of two models first differ."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click

from turnwise.cli import inputs, output
from turnwise.errors import SourceError
from turnwise.evidence.eval_card import KIND, EvalCard, compare_cards, make_card, seal_card
from turnwise.serve.models import load_model

CARD_PARTS = ("template", "tokenizer", "rows")


def eval_card(
    model: str,
    other: str | None = None,
    compare: bool = False,
    tokenizer: str | None = None,
    as_json: bool = False,
) -> None:
    """Print hashes of the prompts of a fixed set of conversations: equal hashes, equal prompts.

    With --compare, show the first conversation on which two models or two cards differ.
    Exits with 0 if there is no difference, with 1 if there is one, and with 2 on any error.

    Example: turnwise eval-card qwen3 --json

    Arguments:
        model MODEL: A model folder, the id of a cached model, a built-in name, or a card: a file that --json wrote.
        other OTHER: What it is compared with.

    Options:
        compare: Compare MODEL and OTHER.
        tokenizer -k PATH: The tokenizer, where it is not in the model's folder.
    """
    if compare is not (other is not None):
        raise click.BadParameter("give two models with it, else one", param_hint="--compare")
    first = _find_card(model, tokenizer)
    if other is None:
        output.finish(first, first, as_json, True)
        return
    second = _find_card(other, tokenizer)
    found = compare_cards(first, second)
    data: dict[str, Any] = {"equal": found is None, "a": first["ids_sha256"]}
    data |= {"b": second["ids_sha256"], "difference": found and found._asdict()}
    same = f"the same ids: {first['ids_sha256']}"
    output.finish(found or same, data, as_json, found is None)


def _find_card(place: str, tokenizer: str | None) -> EvalCard:
    if place.endswith(".json"):
        return _read_card(place)
    model = load_model(place, tokenizer)
    if model.has_shipped_tokenizer:
        output.warn(
            f"{place}: ids of turnwise's own tokenizer, which no model has; see --tokenizer"
        )
    return make_card(model.template, model.tokenizer)


def _read_card(place: str) -> EvalCard:
    data, card = inputs.read_json(place), None
    with suppress(KeyError, TypeError):  # of what is something else
        card = seal_card(**{part: data[part] for part in CARD_PARTS})
    if card is None or card != data:
        raise SourceError(
            f"{place} is no evaluation card, or was changed",
            hint=f"`turnwise eval-card MODEL --json` writes one; the kind of this edition is {KIND!r}.",
        )
    return card
