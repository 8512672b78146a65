"""The newest chat models of the makers, by id: each is found, or it is said that it is not, and what to do."""

import pytest

import turnwise

ENTRIES = {
    "deepseek-ai/DeepSeek-V4-Pro": "deepseek-v4",
    "deepseek-ai/DeepSeek-V4-Flash": "deepseek-v4",
    "deepseek-ai/DeepSeek-V4.1-Flash": "deepseek-v4.1",
    "deepseek-ai/DeepSeek-V3.2": "deepseek-v3.2",
    "deepseek-ai/DeepSeek-V3.2-Speciale": "deepseek-v3.2",
    "moonshotai/Kimi-K3": "kimi-k3",
    "moonshotai/Kimi-K2.6": "kimi-k2.6",
    "moonshotai/Kimi-K2.5": "kimi-k2.5",
    "moonshotai/Kimi-K2.7-Code": "kimi-k2.7-code",
    "zai-org/GLM-5": "glm-4.7",
    "zai-org/GLM-5.1": "glm-5.1",
    "zai-org/GLM-5.2": "glm-5.2",
    "zai-org/GLM-4.7-Flash": "glm-4.7",
    "Qwen/Qwen3.5-397B-A17B": "qwen3.5",
    "Qwen/Qwen3.5-27B": "qwen3.5",
    "Qwen/Qwen3.6-27B": "qwen3.6",
    "Qwen/Qwen3.6-35B-A3B": "qwen3.6",
    "Qwen/Qwen3-Coder-Next": "qwen3-coder-next",
    "MiniMaxAI/MiniMax-M2.5": "minimax-m2.5",
    "MiniMaxAI/MiniMax-M2.7": "minimax-m2.7",
    "MiniMaxAI/MiniMax-M3": "minimax-m3",
    "mistralai/Mistral-Small-4-119B-2603": "mistral-small-4",
    "mistralai/Mistral-Medium-3.5-128B": "mistral-medium-3.5",
    "mistralai/Ministral-3-8B-Instruct-2512": "ministral-3-8b",
    "mistralai/Devstral-2-123B-Instruct-2512": "devstral-2",
    "google/gemma-4-31B-it": "gemma-4",
    "google/gemma-4-E4B-it": "gemma-4-e",
    "openai/gpt-oss-120b": "gpt-oss",
    "openai/gpt-oss-20b": "gpt-oss",
    "CohereLabs/command-a-plus-05-2026": "command-a-plus",
    "CohereLabs/North-Mini-Code-1.0": "north-mini-code",
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16": "nemotron-3-super",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "nemotron-3",
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": "nemotron-3-ultra",
    "tencent/Hy3-preview": "hy3-preview",
    "tencent/Hy3": "hy3",
    "stepfun-ai/Step-3.5-Flash": "step-3.5",
    "stepfun-ai/Step-3.7-Flash": "step-3.7",
    "meituan-longcat/LongCat-Flash-Chat": "longcat-flash",
    "XiaomiMiMo/MiMo-V2-Flash": "mimo-v2",
    "XiaomiMiMo/MiMo-V2.5-Pro": "mimo-v2.5-pro",
    "internlm/Intern-S1-Pro": "intern-s1-pro",
    "internlm/Intern-S2-Preview": "intern-s2",
    "LGAI-EXAONE/K-EXAONE-236B-A23B": "k-exaone",
    "LGAI-EXAONE/EXAONE-4.5-33B": "exaone-4.5",
    "LiquidAI/LFM2.5-1.2B-Instruct": "lfm2.5",
    "LiquidAI/LFM2.5-8B-A1B": "lfm2.5-8b",
    "ibm-granite/granite-4.0-h-small": "granite-4.0",
    "ibm-granite/granite-4.1-8b": "granite-4.1",
    "ai21labs/AI21-Jamba2-Mini": "jamba-2",
    "ai21labs/AI21-Jamba-Reasoning-3B": "jamba-reasoning",
    "allenai/Olmo-3-32B-Think": "olmo-3-32b-think",
    "allenai/Olmo-3.1-32B-Instruct": "olmo-3",
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": "llama-4",
}
UNVERIFIED = {"moonshotai/Kimi-K3"}
UNREAD = (
    "deepseek-ai/DeepSeek-V3.2-Exp",
    "zai-org/GLM-5.3",
    "zai-org/GLM-5.3-Flash",
    "Qwen/Qwen3.8-27B",
    "meituan-longcat/LongCat-2.0",
    "thinkingmachines/Inkling",
    "facebook/Muse-Glimmer",
)


@pytest.mark.parametrize("model", ENTRIES)
def test_a_model_of_2026_has_its_entry(model):
    found = turnwise.match(model)
    assert found.entry == ENTRIES[model] and found.kind == "chat"
    assert found.is_verified == (model not in UNVERIFIED)


@pytest.mark.parametrize("model", UNREAD)
def test_a_model_without_an_entry_is_an_error_that_says_what_to_do(model):
    with pytest.raises(turnwise.SourceError) as caught:
        turnwise.match(model)
    assert "give the model's folder" in caught.value.hint


def test_most_are_found():
    assert len(ENTRIES) + len(UNREAD) >= 60 and len(ENTRIES) >= 53
