"""A model folder for the hosts that run transformers: some thousand random parameters and turnwise's own tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from turnwise.tokens.tokenizers.files import SHIPPED


def save_tokenizer(folder: Path, template: str | None, adds_bos: bool = False) -> Any:
    """Write the tokenizer with a chat template, None for a base model, and return it.

    With `adds_bos` it puts one before each text, as Llama's does, whatever the text begins with.
    """
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(SHIPPED)
    tokenizer.chat_template = template
    if adds_bos:
        bos = (tokenizer.bos_token, tokenizer.bos_token_id)
        tokenizer._tokenizer.post_processor = TemplateProcessing(
            single=f"{bos[0]} $A", special_tokens=[bos]
        )
    tokenizer.save_pretrained(folder)
    return tokenizer


def script_replies(model: Any, *replies: str) -> None:
    """Let a model of transformers write these replies, one after the other, instead of sampling."""
    import torch
    from transformers import AutoTokenizer
    from transformers.generation import GenerateDecoderOnlyOutput

    tokenizer = AutoTokenizer.from_pretrained(SHIPPED)
    rest = iter(replies)

    def generate(input_ids: Any, return_dict_in_generate: bool = False, **_: Any) -> Any:
        rows = [
            tokenizer(next(rest), add_special_tokens=False)["input_ids"]
            for _ in range(len(input_ids))
        ]
        made = tokenizer.pad({"input_ids": rows}, padding_side="right", return_tensors="pt")
        sequences = torch.cat([input_ids, made["input_ids"]], dim=1)
        return GenerateDecoderOnlyOutput(sequences) if return_dict_in_generate else sequences

    model.generate = generate


def save_model(folder: Path, template: str | None, adds_bos: bool = False, width: int = 8) -> Path:
    """Write a model of one layer and its tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = save_tokenizer(folder, template, adds_bos)
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        max_position_embeddings=2048,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder
