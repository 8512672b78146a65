"""Train the small tokenizer that ships with the package, and write it to src/turnwise/tokens/data.

    .venv/bin/python scripts/train_tokenizer.py

Byte-level BPE, so every text has ids and decodes to itself; English, code and Chinese. Control tokens of the common
templates are added with the flags that real vocabularies give them, so that demos and tests behave like the real thing.

What it is trained on: this project's own documents and source; docstrings and source of Python's standard library (PSF
licence, which permits use and derived works); and the two texts beside this file, everyday Chinese and English written
for this purpose. No model's vocabulary and no text of others goes into it.

The same inputs give the same file: texts are read in sorted order, and the trainer breaks ties by order. Another
version of Python or of the documents gives another vocabulary: train again only to publish a new one, as ids change.
"""

from __future__ import annotations

import ast
import json
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "src" / "turnwise" / "tokens" / "data"
SIZE = 8000  # entries of the model; control tokens come on top
TIMES = {"chinese.txt": 15, "english.txt": 20}  # how often the texts beside this file are counted
CODE = 60  # standard library modules whose source counts too

WORDS = "|".join(
    (
        r" ?\p{L}+",
        r"\p{N}",
        r" ?[^\s\p{L}\p{N}]+",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
"""How text is cut before merging: words with the space before them, single digits, punctuation, lines, white space."""

# fmt: off
SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<pad>",
    "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
    "<|eom_id|>", "<|python_tag|>",
    "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>",
    "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
    "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
    "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|observation|>", "<|end|>",
    "<|start|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>", "<|return|>",
    "<|plugin|>", "<|interpreter|>", "<|action_start|>", "<|action_end|>",
    "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>",
)
ORDINARY = (
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>",
    "<｜User｜>", "<｜Assistant｜>",
    "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>",
    "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
)
# fmt: on
"""Added, but not special, as in the vocabularies that have them: a decoder that skips special tokens keeps these."""

CONFIG = {
    "bos_token": "<s>",
    "eos_token": "<|im_end|>",
    "pad_token": "<|endoftext|>",
    "clean_up_tokenization_spaces": False,
    "model_max_length": 1_000_000,
    "tokenizer_class": "PreTrainedTokenizerFast",
}


def texts() -> Iterator[str]:
    for folder, pattern in ((ROOT, "*.md"), (ROOT / "docs", "**/*.md"), (ROOT / "src", "**/*.py")):
        for file in sorted(folder.glob(pattern)):
            yield file.read_text(encoding="utf-8")
    library = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    for index, file in enumerate(library):
        source = file.read_text(encoding="utf-8")
        yield from docstrings(source)
        if index % (len(library) // CODE) == 0:
            yield source
    for name, times in TIMES.items():
        lines = (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines()
        yield from lines * times


def docstrings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield text


def trained() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=24,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in SPECIAL]
    )
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in ORDINARY])
    return tokenizer


def write(name: str, value: object) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    (OUT / name).write_text(text + "\n", encoding="utf-8")
    print(f"{OUT / name}: {len(text.encode()):,} bytes")


def main() -> None:
    tokenizer = trained()
    OUT.mkdir(exist_ok=True)
    write("tokenizer.json", json.loads(tokenizer.to_str()))
    write("tokenizer_config.json", CONFIG)
    print(f"{tokenizer.get_vocab_size():,} tokens")


if __name__ == "__main__":
    main()
