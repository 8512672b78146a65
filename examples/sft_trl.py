"""Fine-tune with TRL: labels that match serving, for any template.

    pip install turnwise trl torch
    python examples/sft_trl.py

A tiny model learns to answer "Aye."; with a real one, change the two lines that make tokenizer and model.
"""

from __future__ import annotations

import tempfile

from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl import SFTConfig, SFTTrainer

import turnwise
from turnwise.integrations.trl import prepare_dataset
from turnwise.tokens.tokenizers.files import SHIPPED


def main() -> None:
    tokenizer = AutoTokenizer.from_pretrained(
        SHIPPED
    )  # AutoTokenizer.from_pretrained("Qwen/Qwen3-0.6B")
    tokenizer.chat_template = turnwise.load("qwen3").text
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes, **heads))
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"Is boat {number} in?"},
                {"role": "assistant", "content": "Aye."},
            ]
        }
        for number in range(200)
    ]
    prepared = prepare_dataset(rows, tokenizer, max_length=1024)
    for problem in prepared.problems:
        print(problem)
    with tempfile.TemporaryDirectory() as folder:
        settings = SFTConfig(
            folder, max_length=1024, report_to="none", learning_rate=1e-2, use_cpu=True, bf16=False
        )
        trainer = SFTTrainer(
            model, settings, train_dataset=prepared.dataset, processing_class=tokenizer
        )
        print(trainer.train().training_loss)


if __name__ == "__main__":
    main()
