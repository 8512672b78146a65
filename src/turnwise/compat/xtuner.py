"""XTuner's own names: PROMPT_TEMPLATE, SYSTEM_TEMPLATE, the map functions, the encoder and the packer.

    from turnwise.compat.xtuner import PROMPT_TEMPLATE, alpaca_map_fn, template_map_fn_factory
    # was: xtuner.utils, xtuner.dataset, xtuner.dataset.map_fns

The steps of a training row: a dataset map function makes rounds of it (`xtuner_datasets.py`), `template_map_fn` renders
their prompts from the template's Jinja, `encode_fn` encodes them with any tokenizer, and `Packer` joins the rows
(`xtuner_packing.py`). The rules of XTuner's encoder (which part is trained, where bos and eos are inserted) give
*segments*, which can be looked at before they become ids. Without a template, as in pretraining, the second step is
left out. `load(name, system=...)` returns the whole template, with a text of SYSTEM_TEMPLATE by name.

This is the training side, so it does what XTuner's code does: a system text in every round that has one, SEP after the
last round, bos again after each eos. Not covered: loading of LLaVA's images, `process_hf_dataset`, tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Literal, NamedTuple

from turnwise.compat.batches import check_length
from turnwise.compat.tokenizer_shim import encode_text, with_calls
from turnwise.compat.xtuner_datasets import (
    DATASET_FORMAT_MAPPING,
    alpaca_map_fn,
    alpaca_zh_map_fn,
    arxiv_map_fn,
    code_alpaca_map_fn,
    colors_map_fn,
    crime_kg_assitant_map_fn,
    default_map_fn,
    intel_orca_dpo_map_fn,
    law_reference_map_fn,
    llava_image_only_map_fn,
    llava_map_fn,
    medical_map_fn,
    msagent_react_map_fn,
    oasst1_map_fn,
    openai_map_fn,
    openorca_map_fn,
    orpo_dpo_mix_40k_map_fn,
    pretrain_map_fn,
    sql_map_fn,
    stack_exchange_map_fn,
    tiny_codes_map_fn,
    wizardlm_map_fn,
)
from turnwise.compat.xtuner_packing import Packer
from turnwise.compat.xtuner_rows import InvalidRow, require_list, require_text
from turnwise.compat.xtuner_tables import (
    DEFAULT_IMAGE_TOKEN,
    DEFAULT_PAD_TOKEN_INDEX,
    IGNORE_INDEX,
    IMAGE_TOKEN_INDEX,
    PROMPT_TEMPLATE,
    SYSTEM_TEMPLATE,
    ConfigDict,
)
from turnwise.dialects import xtuner
from turnwise.errors import MessageError, SourceError, TokenizerError, did_you_mean, short_repr
from turnwise.template import Template, compile_jinja
from turnwise.token_ids import to_token_ids

__all__ = [
    "DATASET_FORMAT_MAPPING",
    "DEFAULT_IMAGE_TOKEN",
    "DEFAULT_PAD_TOKEN_INDEX",
    "IGNORE_INDEX",
    "IMAGE_TOKEN_INDEX",
    "PROMPT_TEMPLATE",
    "SYSTEM_TEMPLATE",
    "ConfigDict",
    "Packer",
    "TrainingSegment",
    "alpaca_map_fn",
    "alpaca_zh_map_fn",
    "arxiv_map_fn",
    "code_alpaca_map_fn",
    "colors_map_fn",
    "crime_kg_assitant_map_fn",
    "default_map_fn",
    "encode_fn",
    "intel_orca_dpo_map_fn",
    "law_reference_map_fn",
    "llava_image_only_map_fn",
    "llava_map_fn",
    "load",
    "medical_map_fn",
    "msagent_react_map_fn",
    "oasst1_map_fn",
    "openai_map_fn",
    "openorca_map_fn",
    "orpo_dpo_mix_40k_map_fn",
    "pretrain_map_fn",
    "segments",
    "sql_map_fn",
    "stack_exchange_map_fn",
    "stop_words",
    "template_map_fn",
    "template_map_fn_factory",
    "tiny_codes_map_fn",
    "wizardlm_map_fn",
]

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


def stop_words(template: Mapping[str, Any] | str, eos_token: str | None = None) -> list[str]:
    """Return the texts that end generation: the template's STOP_WORDS and the tokenizer's eos token.

    Example:
        >>> stop_words("internlm_chat", "</s>")
        ['<eoa>', '</s>']
    """
    words = [*xtuner.XtunerSpec.of(_find_fields(template)).stop_words]
    if eos_token:
        words.append(eos_token)
    return list(dict.fromkeys(words))


def _find_fields(template: Mapping[str, Any] | str) -> Mapping[str, Any]:
    """Return a template's dict: itself, or by name or path (`xtuner.utils.PROMPT_TEMPLATE.internlm_chat`)."""
    if not isinstance(template, str):
        return xtuner.to_dict(template)
    name = template.rpartition(".")[2]
    if name not in PROMPT_TEMPLATE:
        hint = did_you_mean(name, PROMPT_TEMPLATE, "PROMPT_TEMPLATE has")
        raise MessageError(f"there is no prompt template {short_repr(name)}", hint=hint)
    fields: Mapping[str, Any] = PROMPT_TEMPLATE[name]
    return fields


def load(
    template: Mapping[str, Any] | str, system: str | None = None, exact: bool = False
) -> Template:
    """Load a template by its dict or its name.

    Args:
        template: A dict of XTuner's fields, or a name of PROMPT_TEMPLATE.
        system: The system text of conversations that have none: a text, or a name of SYSTEM_TEMPLATE.
        exact: Write the same text as XTuner, with its known defects.

    Raises:
        SourceError: If there is no such system text, or the dict is not a template.
        MessageError: If there is no such prompt template.

    Example:
        >>> str(load("internlm_chat").render([{"role": "user", "content": "hi"}]))
        '<|User|>:hi<eoh>\\n<|Bot|>:'
    """
    fields = _find_fields(template)
    name = template if isinstance(template, str) else "template"
    if isinstance(system, str) and system in SYSTEM_TEMPLATE:
        system = SYSTEM_TEMPLATE[system]
    elif system is not None and (not isinstance(system, str) or system.isidentifier()):
        hint = did_you_mean(str(system), SYSTEM_TEMPLATE, "SYSTEM_TEMPLATE has")
        raise SourceError(f"there is no system text {short_repr(system)}", hint=hint)
    translation = xtuner.read(fields, exact=exact, system=system)
    return compile_jinja(
        translation.jinja,
        name=name,
        options=translation.options,
        dialect="xtuner",
        translation=translation,
    )


def template_map_fn(example: dict[str, Any], template: Mapping[str, Any] | str) -> dict[str, Any]:
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
    fields = _find_fields(template)
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
    template: Mapping[str, Any] | str,
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return `template_map_fn` for one template.

    Example:
        >>> map_fn = template_map_fn_factory("internlm_chat")
        >>> map_fn({"conversation": [{"input": "hi", "output": "yes"}]})["conversation"][0]["sep"]
        '\\n'
    """
    return partial(template_map_fn, template=_find_fields(template))


@cache
def _compile_prompt(jinja: str) -> Template:
    return compile_jinja(jinja, name="xtuner round")


def segments(
    example: Mapping[str, Any], bos: bool = True, with_output: bool = True
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
        problem = "several rounds cannot be encoded without their outputs"
        raise InvalidRow(problem, path="conversation")
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
    example: Mapping[str, Any],
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
    """Return the id or the ids that a tokenizer has under a name; none if it is null."""
    try:
        ids = getattr(tokenizer, name)
    except AttributeError:
        problem = f"a tokenizer has {name!r}, and {short_repr(tokenizer)} has not"
        raise TokenizerError(problem) from None
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
