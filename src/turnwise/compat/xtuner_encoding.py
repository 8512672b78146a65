"""XTuner's training rows: prompts of rounds, the segments of a conversation, and their ids and labels.

`template_map_fn` renders the prompts of rounds from the template's Jinja; `encode_fn` encodes them. The rules of
XTuner's encoder (which part is trained, where bos and eos are inserted) give *segments*, which can be looked at before
they become ids. It does what XTuner's code does: a system text in every round that has one, SEP after the last round,
bos again after each eos.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Literal, NamedTuple

from turnwise.compat.batches import check_length
from turnwise.compat.tokenizer_shim import encode_text, with_calls
from turnwise.compat.xtuner_rows import InvalidRow, require_list, require_text
from turnwise.compat.xtuner_tables import (
    DEFAULT_IMAGE_TOKEN,
    IGNORE_INDEX,
    IMAGE_TOKEN_INDEX,
    PROMPT_TEMPLATE,
)
from turnwise.dialects import xtuner
from turnwise.errors import MessageError, TokenizerError, short_repr
from turnwise.messages import JsonMapping, JsonObject
from turnwise.schema import check_name
from turnwise.template import Template, compile_jinja
from turnwise.token_ids import to_token_ids

# XTuner tells these tokenizers by the name of their class: some start with no token, one with two.
BOS_IDS: Mapping[str, list[int]] = {
    **dict.fromkeys(("QWenTokenizer", "QWen2Tokenizer", "Qwen2TokenizerFast"), []),
    "ChatGLMTokenizer": [64790, 64792],
}


class TrainingSegment(NamedTuple):
    """A part of an encoded conversation: a bos or eos token, or a text; `learnt` if it has labels."""

    kind: Literal["bos", "eos", "text"]
    text: str
    learnt: bool


class InputSegment(TrainingSegment):
    """The input of a round, which alone may have an image."""


def find_fields(template: JsonMapping | str) -> JsonMapping:
    """Return a template's dict: itself, or by name or path (`xtuner.utils.PROMPT_TEMPLATE.internlm_chat`)."""
    if not isinstance(template, str):
        return xtuner.to_dict(template)
    name = template.rpartition(".")[2]
    check_name(name, PROMPT_TEMPLATE, "there is no prompt template", "PROMPT_TEMPLATE has")
    fields: JsonMapping = PROMPT_TEMPLATE[name]
    return fields


def template_map_fn(example: JsonObject, template: JsonMapping | str) -> JsonObject:
    """Render the `input` and `output` of each round, in place, and add what `encode_fn` needs.

    Args:
        example: A row with `conversation`, a list of `{system, input, output}`.
        template: A dict of XTuner's fields, or a name of PROMPT_TEMPLATE.

    Raises:
        MessageError: If a round is not a dict of texts.

    Example:
        >>> row = {"conversation": [{"input": "hi", "output": "yes"}]}
        >>> template_map_fn(row, "internlm_chat")["conversation"][0]["output"]
        'yes<eoa>'
    """
    fields = find_fields(template)
    spec = xtuner.XtunerSpec.of(fields)
    prompt = _compile_prompt(xtuner.write_prompt_jinja(fields))
    rounds = [] if example == {} else require_list(example, "conversation")
    for index, turn in enumerate(rounds):
        system = _text_of(turn, "system", index)
        text = _text_of(turn, "input", index)
        output = _text_of(turn, "output", index)
        rendering = prompt.render(
            [], system=system, input=text, round=index + 1, bot_name=xtuner.BOT_NAME
        )
        turn["input"] = rendering.text
        if spec.suffix:
            turn["output"] = output + spec.suffix
        turn["need_eos_token"] = not spec.suffix_as_eos
        turn["sep"] = spec.sep
    return {"conversation": rounds}


def _text_of(turn: Any, key: str, index: int) -> str:
    """Return a text of a round; null is "", except for the output, which would be trained as an empty answer."""
    path = f"conversation[{index}]"
    if not isinstance(turn, dict):
        raise MessageError(f"a round is a dict, not {short_repr(turn)}", path=path)
    value = turn.get(key, "")
    if not isinstance(value, str) and (value is not None or key == "output"):
        raise MessageError(f"must be text, not {short_repr(value)}", path=f"{path}.{key}")
    return value or ""


def template_map_fn_factory(
    template: JsonMapping | str,
) -> Callable[[JsonObject], JsonObject]:
    """Return `template_map_fn` for one template.

    Example:
        >>> map_fn = template_map_fn_factory("internlm_chat")
        >>> map_fn({"conversation": [{"input": "hi", "output": "yes"}]})["conversation"][0]["sep"]
        '\\n'
    """
    return partial(template_map_fn, template=find_fields(template))


@cache
def _compile_prompt(jinja: str) -> Template:
    return compile_jinja(jinja, name="xtuner round")


def segments(
    example: JsonMapping, bos: bool = True, with_output: bool = True
) -> list[TrainingSegment]:
    """Return the segments that the encoder writes for mapped rounds; each text is encoded by itself.

    Args:
        example: What `template_map_fn` returned, or a dataset map function if there is no template.
        bos: Insert a bos token at the start and after each eos.
        with_output: Include the outputs; without them there may be one round only.

    Raises:
        MessageError: If a round has no input or no output.

    Example:
        >>> row = template_map_fn({"conversation": [{"input": "hi", "output": "yes"}]}, "zephyr")
        >>> [segment.text for segment in segments(row) if segment.learnt]
        ['yes', '']
    """
    rounds = require_list(example, "conversation")
    if len(rounds) > 1 and not with_output:
        raise InvalidRow(
            "several rounds cannot be encoded without their outputs", path="conversation"
        )
    parts = []
    needs_bos = bos
    for index, turn in enumerate(rounds):
        path = f"conversation[{index}]"
        text = require_text(turn, "input", path)
        if needs_bos:
            parts.append(TrainingSegment("bos", "", False))
        parts.append(InputSegment("text", text, False))
        if not with_output:
            continue
        learnt = bool(turn.get("output_with_loss", True))
        parts.append(TrainingSegment("text", require_text(turn, "output", path), learnt))
        # A round that no template has mapped, as in pretraining, has an eos token and no separator.
        has_eos = turn.get("need_eos_token", True)
        if has_eos:
            parts.append(TrainingSegment("eos", "", learnt))
        parts.append(TrainingSegment("text", require_text({"sep": "", **turn}, "sep", path), False))
        needs_bos = bos and has_eos
    return [part for part in parts if part.kind != "text" or part.text]


def encode_fn(
    example: JsonMapping,
    tokenizer: Any,
    max_length: int,
    input_ids_with_output: bool = True,
    with_image_token: bool = False,
) -> dict[str, list[int]]:
    """Encode mapped rounds segment by segment.

    Args:
        example: What `template_map_fn` returned, or a dataset map function if there is no template.
        tokenizer: A tokenizer of transformers, or anything that turnwise can read.
        max_length: The length at which ids and labels are truncated.
        input_ids_with_output: Include the outputs.
        with_image_token: Encode `<image>` in an input as IMAGE_TOKEN_INDEX.

    Returns:
        `input_ids` and `labels`.

    Raises:
        MessageError: If a round has no input or no output, or has several images.
        TokenizerError: If the tokenizer fails, or has no eos token and one is needed.

    Example:
        >>> row = template_map_fn({"conversation": [{"input": "hi", "output": "yes"}]}, "internlm_chat")
        >>> sorted(encode_fn(row, "turnwise", 100))
        ['input_ids', 'labels']
    """
    tokenizer = with_calls(tokenizer)
    length = check_length(max_length, "max_length")
    parts = segments(example, with_output=input_ids_with_output)
    special = {"bos": _bos_ids(tokenizer)}
    if any(part.kind == "eos" for part in parts):
        special["eos"] = _special_ids(tokenizer, "eos_token_id")
    ids: list[int] = []
    labels: list[int] = []
    for part in parts:
        if part.kind in special:
            new = special[part.kind]
        elif (
            with_image_token and isinstance(part, InputSegment) and DEFAULT_IMAGE_TOKEN in part.text
        ):
            new = _encode_with_image(part.text, tokenizer)
        else:
            new = encode_text(tokenizer, part.text)
        ids += new
        labels += new if part.learnt else [IGNORE_INDEX] * len(new)
    return {"input_ids": ids[:length], "labels": labels[:length]}


def _bos_ids(tokenizer: Any) -> list[int]:
    name = type(tokenizer).__name__
    return BOS_IDS[name] if name in BOS_IDS else _special_ids(tokenizer, "bos_token_id")


def _special_ids(tokenizer: Any, name: str) -> list[int]:
    try:
        ids = getattr(tokenizer, name)
    except AttributeError:
        raise TokenizerError(
            f"a tokenizer has {name!r}, and {short_repr(tokenizer)} has not"
        ) from None
    if ids is None:
        return []
    return to_token_ids(ids, f"{name} is an id", allow_one=True)


def _encode_with_image(text: str, tokenizer: Any) -> list[int]:
    chunks = text.split(DEFAULT_IMAGE_TOKEN)
    if len(chunks) != 2:
        found = f"found {len(chunks) - 1}"
        raise InvalidRow(f"a round holds one {DEFAULT_IMAGE_TOKEN} at most; {found}")
    before, after = (encode_text(tokenizer, chunk) for chunk in chunks)
    return [*before, IMAGE_TOKEN_INDEX, *after]
