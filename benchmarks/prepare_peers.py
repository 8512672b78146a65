"""The contestants of `prepare.py`, each a program of its own: `python prepare_peers.py NAME SETTINGS`.

A contestant is started anew for each figure, so that imports, loading the tokenizer and starting its two processes
count. SETTINGS is JSON: the files with the rows and with their rendered texts, how many of them to take, the tokenizer,
the template and the folder for results.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from itertools import islice
from pathlib import Path
from typing import Any

PROCESSES = 2
AT_ONCE = 500  # texts in one call of a raw encoder

Settings = dict[str, Any]


def run_turnwise(settings: Settings) -> None:
    """Run the command as people call it, with two workers."""
    from turnwise.cli import main

    sys.argv = [
        *("turnwise", "prepare", settings["rows"], "-t", settings["template"]),
        *("-k", settings["tokenizer"], "-o", settings["out"], "--workers", str(PROCESSES)),
    ]
    main()


def run_datasets(settings: Settings) -> None:
    """Read JSON Lines, map `apply_chat_template` with its mask over two processes, write Parquet."""
    import datasets

    datasets.disable_progress_bars()
    tokenizer = _load_tokenizer(settings)

    def encode(row: dict[str, Any]) -> dict[str, Any]:
        found = tokenizer.apply_chat_template(
            row["messages"], return_dict=True, return_assistant_tokens_mask=True
        )
        ids, mask = found["input_ids"], found["assistant_masks"]
        labels = [id if trained else -100 for id, trained in zip(ids, mask, strict=True)]
        return {"input_ids": ids, "labels": labels}

    rows = _load_rows(settings)
    done = rows.map(encode, num_proc=PROCESSES, remove_columns=rows.column_names)
    done.to_parquet(f"{settings['out']}.parquet")


def run_trl(settings: Settings) -> None:
    """Let TRL's trainer prepare its data set, as it does when it is made; the model is as small as it can be."""
    import datasets
    import torch
    import transformers
    import trl

    datasets.disable_progress_bars()
    torch.set_num_threads(1)
    tokenizer = _load_tokenizer(settings)
    tokenizer.pad_token = tokenizer.eos_token
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": len(tokenizer)}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape, **heads))
    arguments = trl.SFTConfig(
        settings["out"],
        assistant_only_loss=True,
        dataset_num_proc=PROCESSES,
        max_length=None,
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    trainer = trl.SFTTrainer(
        model, arguments, train_dataset=_load_rows(settings), processing_class=tokenizer
    )
    trainer.train_dataset.to_parquet(f"{settings['out']}.parquet")


def run_axolotl(settings: Settings) -> None:
    """Let axolotl's loader prepare the rows, as `axolotl preprocess` does."""
    import datasets
    from axolotl.utils.data.wrappers import get_dataset_wrapper
    from axolotl.utils.dict import DictDefault

    datasets.disable_progress_bars()
    kind = {"type": "chat_template", "field_messages": "messages", "roles_to_train": ["assistant"]}
    shared = {"chat_template": "tokenizer_default", "sequence_len": 1 << 20}
    made, _ = get_dataset_wrapper(
        dataset_config=DictDefault({"path": settings["rows"], **kind}),
        tokenizer=_load_tokenizer(settings),
        cfg=DictDefault({"dataset_num_proc": PROCESSES, **shared}),
        dataset_base_type=kind["type"],
        dataset=_load_rows(settings),
    )
    made.to_parquet(f"{settings['out']}.parquet")


def run_fastokens(settings: Settings) -> None:
    """Encode finished texts in two processes: no rendering, no labels, nothing written."""
    _run_raw(settings, "fastokens")


def run_tokenizers(settings: Settings) -> None:
    """The same with the other library."""
    _run_raw(settings, "tokenizers")


def _run_raw(settings: Settings, library: str) -> None:
    context = multiprocessing.get_context("spawn")
    size = -(-settings["count"] // PROCESSES)
    parts = [(library, settings, part * size, size) for part in range(PROCESSES)]
    with context.Pool(PROCESSES) as pool:
        counts = pool.starmap(_encode_part, parts)
    print(sum(counts))


def _encode_part(library: str, settings: Settings, start: int, size: int) -> int:
    file = str(Path(settings["tokenizer"]) / "tokenizer.json")
    end = min(start + size, settings["count"])
    with open(settings["texts"], encoding="utf-8") as lines:
        texts = (json.loads(line) for line in islice(lines, start, end))
        if library == "fastokens":
            import fastokens

            fast = fastokens.Tokenizer.from_file(file)
            return sum(len(fast.encode_batch_flat(some)[0]) for some in _batches(texts))
        import tokenizers

        slow = tokenizers.Tokenizer.from_file(file)
        return sum(
            len(found.ids)
            for some in _batches(texts)
            for found in slow.encode_batch(some, add_special_tokens=False)
        )


def _batches(texts: Any) -> Any:
    while some := list(islice(texts, AT_ONCE)):
        yield some


def _load_tokenizer(settings: Settings) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_file=str(Path(settings["tokenizer"]) / "tokenizer.json"),
        eos_token="<|im_end|>",
        chat_template=Path(settings["template"]).read_text(encoding="utf-8"),
    )


def _load_rows(settings: Settings) -> Any:
    import datasets

    folder = f"{settings['out']}-cache"  # nothing of an earlier turn
    found = datasets.load_dataset(
        "json", data_files=settings["rows"], split="train", cache_dir=folder
    )
    return found


PEERS = {
    "turnwise": run_turnwise,
    "datasets.map": run_datasets,
    "TRL": run_trl,
    "axolotl": run_axolotl,
    "fastokens": run_fastokens,
    "tokenizers": run_tokenizers,
}

if __name__ == "__main__":
    # Two processes each use one core; threads inside of a library would use the cores of others.
    os.environ.setdefault("RAYON_NUM_THREADS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    PEERS[sys.argv[1]](json.loads(sys.argv[2]))
