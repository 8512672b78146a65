"""XTuner's own names: PROMPT_TEMPLATE, SYSTEM_TEMPLATE, the map functions, the encoder and the packer.

    from turnwise.compat.xtuner import PROMPT_TEMPLATE, alpaca_map_fn, template_map_fn_factory
    # was: xtuner.utils, xtuner.dataset, xtuner.dataset.map_fns

The steps of a training row: a dataset map function makes rounds of it (`xtuner_datasets.py`), `template_map_fn` renders
their prompts, `encode_fn` encodes them with any tokenizer (`xtuner_encoding.py`), and `Packer` joins the rows
(`xtuner_packing.py`). Without a template, as in pretraining, the second step is left out. `process_hf_dataset` runs all
of them on a dataset (`xtuner_process.py`). `load(name, system=...)` returns the whole template, with a text of
SYSTEM_TEMPLATE by name.

Not covered: XTuner's configs, its datasets of images, of preferences, of agents and of InternEvo's files, and tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwise.compat.xtuner_datasets import (
    DATASET_FORMAT_MAPPING,
    alpaca_map_fn,
    alpaca_zh_map_fn,
    arxiv_map_fn,
    code_alpaca_map_fn,
    colors_map_fn,
    crime_kg_assitant_map_fn,
    default_map_fn,
    law_reference_map_fn,
    llava_image_only_map_fn,
    llava_map_fn,
    medical_map_fn,
    oasst1_map_fn,
    openai_map_fn,
    openorca_map_fn,
    pretrain_map_fn,
    sql_map_fn,
    stack_exchange_map_fn,
    tiny_codes_map_fn,
    wizardlm_map_fn,
)
from turnwise.compat.xtuner_encoding import (
    TrainingSegment,
    encode_fn,
    find_fields,
    segments,
    template_map_fn,
    template_map_fn_factory,
)
from turnwise.compat.xtuner_packing import Packer
from turnwise.compat.xtuner_process import process_hf_dataset
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
from turnwise.errors import SourceError, did_you_mean, short_repr
from turnwise.template import Template, compile_jinja

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
    "law_reference_map_fn",
    "llava_image_only_map_fn",
    "llava_map_fn",
    "load",
    "medical_map_fn",
    "oasst1_map_fn",
    "openai_map_fn",
    "openorca_map_fn",
    "pretrain_map_fn",
    "process_hf_dataset",
    "segments",
    "sql_map_fn",
    "stack_exchange_map_fn",
    "template_map_fn",
    "template_map_fn_factory",
    "tiny_codes_map_fn",
    "wizardlm_map_fn",
]


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
    fields = find_fields(template)
    name = template if isinstance(template, str) else "template"
    if isinstance(system, str) and system in SYSTEM_TEMPLATE:
        system = SYSTEM_TEMPLATE[system]
    elif system is not None and (not isinstance(system, str) or system.isidentifier()):
        raise SourceError(
            f"there is no system text {short_repr(system)}",
            hint=did_you_mean(str(system), SYSTEM_TEMPLATE, "SYSTEM_TEMPLATE has"),
        )
    translation = xtuner.read(fields, exact=exact, system=system)
    return compile_jinja(
        translation.jinja,
        name=name,
        options=translation.options,
        dialect="xtuner",
        translation=translation,
    )
