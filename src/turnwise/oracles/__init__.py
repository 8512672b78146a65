"""The makers' own encoders, asked for the prompt of a conversation: what a template is held to.

Many models of 2026 are published with an encoder instead of a template: a package, or a Python file in the model's
folder. An `Oracle` runs one of them. It is an engine of `evidence.conform`, so that `turnwise.conform(template,
oracle)` shows the smallest conversation on which the two differ. The packages are never dependencies of this one: each
is imported when its oracle is made.

    oracle = turnwise.oracles.find_oracle("deepseek-v4.1")
    turnwise.conform(turnwise.load("deepseek-v4.1"), oracle)

oracle.py        what all oracles have in common
makers.py        deepseek-recipe, openai-harmony, mistral-common, cohere-melody
encoder_file.py  an encoder in a model's folder: code of its author, run by consent, in a locked process
encoder_worker.py  what runs in that process
"""

from turnwise.oracles.encoder_file import EncoderFile
from turnwise.oracles.makers import ORACLES, find_oracle
from turnwise.oracles.oracle import Oracle

__all__ = ["ORACLES", "EncoderFile", "Oracle", "find_oracle"]
