"""LLaMA-Factory: tokenized datasets with the labels of turnwise, and the tokenizer's own template as one of its own.

Two of its hooks are used. `tokenized_path` names a folder that LLaMA-Factory trains on as it is: `save_tokenized`
writes one, and no code is needed on the other side. `register_template` takes a class: `register` adds a template
called `turnwise` that encodes with the chat template of the tokenizer, so that data goes through LLaMA-Factory's
readers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from turnwise import shapes
from turnwise.errors import MessageError
from turnwise.integrations.tokenizer_template import template_of
from turnwise.integrations.training_rows import NOTHING_TRAINED, Problem
from turnwise.integrations.transformers import raise_expected_errors
from turnwise.integrations.trl import prepare_dataset
from turnwise.messages import JsonObject
from turnwise.template import Template
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.loss import IGNORED, train_nothing

__all__ = ["encode_pairs", "register", "save_tokenized"]

SHAREGPT_ROLES = {
    "user": "human",
    "assistant": "gpt",
    "function": "function_call",
    "observation": "observation",
}
"""LLaMA-Factory's names of roles, and those of the data that they come from."""

Pair = tuple[list[int], list[int]]


def save_tokenized(
    dataset: Any, tokenizer: Any, path: str | os.PathLike[str], **settings: Any
) -> tuple[Problem, ...]:
    """Encode conversations and write the folder that `tokenized_path` names.

    Args:
        dataset: As for `trl.prepare_dataset`.
        tokenizer: The tokenizer of the model.
        path: The folder.
        **settings: Those of `trl.prepare_dataset`, but for `column`.

    Returns:
        The problems: rows that give no sample, and turns that are not trained.
    """
    prepared = prepare_dataset(dataset, tokenizer, **settings)
    samples = prepared.dataset.select_columns(["input_ids", "labels"])
    masks = [[1] * len(ids) for ids in samples["input_ids"]]
    samples = samples.add_column("attention_mask", masks)
    import_module("datasets").DatasetDict({"train": samples}).save_to_disk(os.fspath(path))
    return prepared.problems


def register(name: str = "turnwise") -> None:
    """Add a template to LLaMA-Factory's that encodes with the tokenizer's chat template: `template: turnwise`.

    Raises:
        ValueError: There is a template of that name.
    """
    host = import_module("llamafactory.data.template")

    # The host is not there when types are checked.
    class TurnwiseTemplate(host.Template):  # type: ignore[name-defined]
        """LLaMA-Factory's Template, with the ids of turnwise."""

        def encode_oneturn(
            self, tokenizer: Any, messages: Any, system: Any = None, tools: Any = None
        ) -> Pair:
            with raise_expected_errors():
                return encode_last(tokenizer, messages, system or self.default_system, tools)

        def encode_multiturn(
            self,
            tokenizer: Any,
            messages: Any,
            system: Any = None,
            tools: Any = None,
            discarding_history_cot: bool = False,
        ) -> list[Pair]:
            # What becomes of earlier reasoning is the template's own decision.
            with raise_expected_errors():
                return encode_pairs(tokenizer, messages, system or self.default_system, tools)

        def get_stop_token_ids(self, tokenizer: Any) -> list[int]:
            return list(template_of(tokenizer).stops(tokenizer).ids)

    host.register_template(name=name, template_class=TurnwiseTemplate)


def encode_pairs(
    tokenizer: Any, messages: Sequence[Mapping[str, str]], system: str | None, tools: str | None
) -> list[Pair]:
    """Return the ids before each reply and those of the reply, in order; joined they are one sample.

    Args:
        tokenizer: A tokenizer with a chat template.
        messages: Messages with LLaMA-Factory's roles: user, assistant, observation and function.
        system: The system message.
        tools: The tools as JSON.

    Raises:
        MessageError: The messages are wrong, or no reply is trained.
    """
    template, arguments = _read(tokenizer, messages, system, tools)
    encoded = template.encode(arguments.pop("messages"), tokenizer, **arguments)
    pairs = _split_at_labels(encoded)
    if not pairs:
        raise MessageError(NOTHING_TRAINED)
    return pairs


def encode_last(
    tokenizer: Any, messages: Sequence[Mapping[str, str]], system: str | None, tools: str | None
) -> Pair:
    """Return the ids of the prompt before the last message, and those of that reply; none if it is empty."""
    template, arguments = _read(tokenizer, messages[:-1], system, tools)
    chat = arguments.pop("messages")
    prompted = {**arguments, "add_generation_prompt": True}
    prompt = template.encode(chat, tokenizer, train_nothing, **prompted).input_ids
    if not messages[-1].get("content"):
        return prompt, []
    _, arguments = _read(tokenizer, messages, system, tools)
    encoded = template.encode(arguments.pop("messages"), tokenizer, "last", **arguments)
    pairs = _split_at_labels(encoded)
    return prompt, pairs[-1][1] if pairs else []


def _read(
    tokenizer: Any, messages: Sequence[Mapping[str, str]], system: str | None, tools: str | None
) -> tuple[Template, JsonObject]:
    """Return the template and the arguments of `encode`."""
    turns = []
    for index, message in enumerate(messages):
        role = message.get("role")
        if role not in SHAREGPT_ROLES:
            known = ", ".join(SHAREGPT_ROLES)
            raise MessageError(f"unknown role {role!r}; one of {known}", path=f"messages[{index}]")
        turns.append({"from": SHAREGPT_ROLES[role], "value": message.get("content")})
    row: JsonObject = {"conversations": turns}
    if system:
        row["system"] = system
    if tools:
        row["tools"] = tools
    return template_of(tokenizer), shapes.conversation(row).arguments


def _split_at_labels(encoded: Encoded) -> list[Pair]:
    """Return runs of ids that are not trained with those that follow them and are; what is behind the last is cut."""
    pairs: list[Pair] = []
    source: list[int] = []
    target: list[int] = []
    for id, label in zip(encoded.input_ids, encoded.labels, strict=True):
        if label != IGNORED:
            target.append(id)
            continue
        if target:
            pairs.append((source, target))
            source, target = [], []
        source.append(id)
    return [*pairs, (source, target)] if target else pairs
