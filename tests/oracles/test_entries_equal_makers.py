"""Entries write what their makers' encoders write, on random conversations."""

import os
from itertools import islice

import pytest

import turnwise
from turnwise.evidence.conform import EngineComparison
from turnwise.oracles import ORACLES, find_oracle

NAMED = {name: entry.oracle for name, entry in turnwise.entries().items() if entry.oracle}
HELD = {name: oracle for name, oracle in NAMED.items() if not oracle.endswith(".py")}
MODULES = {
    "deepseek": "deepseek_recipe",
    "mistral": "mistral_common",
    "cmd": "cohere_melody",
    "harmony": "openai_harmony",
}


def test_oracles_of_entries_exist():
    assert set(HELD.values()) <= set(ORACLES), HELD
    wanted = ("deepseek-v4", "deepseek-v4.1", "mistral-v13", "mistral-v15", "command-cmd4")
    assert {*wanted, "gpt-oss-harmony"} <= set(HELD)


@pytest.mark.law(4)
@pytest.mark.parametrize("name", sorted(HELD))
def test_an_entry_writes_what_its_maker_writes(name):
    pytest.importorskip(
        next(module for start, module in MODULES.items() if HELD[name].startswith(start))
    )
    if HELD[name] == "harmony" and "TIKTOKEN_ENCODINGS_BASE" not in os.environ:
        pytest.skip("openai-harmony would download its vocabulary")
    comparison = EngineComparison(find_oracle(HELD[name]), turnwise.load(name))
    probes = islice(comparison.list_probes(seed=7, count=150), 60, None)
    outcomes = [(comparison.compare(probe), probe) for probe in probes]
    differing = [probe for outcome, probe in outcomes if outcome in ("text", "refusal", "ids")]
    assert not differing, comparison.describe(differing[0], "text")
    assert sum(outcome == "" for outcome, _ in outcomes) > 60
