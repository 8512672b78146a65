"""A model of random weights in a GGUF file, so that llama.cpp's server can be run: its replies are noise.

Noise is what a grammar is for: every token that the grammar allows is about as likely as any other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WIDTH, HEADS, INNER = 32, 2, 64


def write_model(folder: Path, place: Path) -> None:
    """Write a model of one layer, with the vocabulary of a tokenizer folder: byte-level BPE, split as Qwen's is."""
    import gguf
    import numpy

    described = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    added = {token["id"]: token for token in described["added_tokens"]}
    vocabulary = {id: text for text, id in described["model"]["vocab"].items()}
    size = max([*vocabulary, *added]) + 1
    texts, types = [], []
    for id in range(size):
        if id in added:
            texts.append(added[id]["content"])
            kinds = gguf.TokenType.USER_DEFINED, gguf.TokenType.CONTROL
            types.append(kinds[added[id]["special"]])
        else:
            texts.append(vocabulary.get(id, f"[PAD{id}]"))
            types.append(gguf.TokenType.NORMAL if id in vocabulary else gguf.TokenType.UNUSED)
    merges = described["model"]["merges"]

    writer = gguf.GGUFWriter(str(place), "llama")
    writer.add_context_length(8192)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(texts)
    writer.add_token_types(types)
    writer.add_token_merges([one if isinstance(one, str) else " ".join(one) for one in merges])
    writer.add_eos_token_id(texts.index("<|im_end|>"))
    writer.add_add_bos_token(False)

    chance = numpy.random.default_rng(0)
    for name, shape in _list_tensors(size).items():
        tensor: Any = numpy.ones(shape) if len(shape) == 1 else 0.2 * chance.standard_normal(shape)
        writer.add_tensor(name, tensor.astype(numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _list_tensors(size: int) -> dict[str, tuple[int, ...]]:
    square = dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), (WIDTH, WIDTH))
    inner = dict.fromkeys(("ffn_gate", "ffn_up"), (INNER, WIDTH))
    norms = dict.fromkeys(("attn_norm", "ffn_norm"), (WIDTH,))
    layer = {**square, **inner, **norms, "ffn_down": (WIDTH, INNER)}
    return {
        "token_embd.weight": (size, WIDTH),
        "output.weight": (size, WIDTH),
        "output_norm.weight": (WIDTH,),
        **{f"blk.0.{name}.weight": shape for name, shape in layer.items()},
    }
