"""Checks on published templates: no error on good ones, all of the corpus in a minute, and the peer's errors answered.

Good is what transformers says, not what we say. `GOOD` are entries of templates that their makers publish and serve
today (IBM, DeepSeek, Moonshot, Microsoft, Ai2, Shanghai AI Laboratory, Nous, Alibaba, and the two formats that most
fine-tunes use), verified against the published text. For each, transformers renders the conversations of `SENT` with
every text in them.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

import corpus
import oracle
import turnwise
from peer_findings import PeerError, list_unanswered

GOOD = (
    *("chatml", "zephyr", "granite-4.0", "granite-4.1", "kimi-k2", "deepseek-v3", "deepseek-v3.1"),
    *("phi-4", "olmo-2", "internlm2", "hermes", "qwen2.5-vl"),
)
MAX_SECONDS = 60  # processor time for all templates of the corpus
SAMPLE = 30  # every so manieth template in CI
SYSTEM = {"role": "system", "content": "Answer briefly."}
ASKED = {"role": "user", "content": "How high is the tide?"}
SAID = {"role": "assistant", "content": "Seven metres."}
AGAIN = {"role": "user", "content": "And tomorrow?"}
LATE = {"role": "system", "content": "Use feet."}
SENT: dict[str, list[dict[str, Any]]] = {
    "a system message": [SYSTEM, ASKED],
    "rounds": [SYSTEM, ASKED, SAID, AGAIN],
    "two system messages": [SYSTEM, LATE, ASKED],
    "a late system message": [ASKED, SAID, LATE, AGAIN],
    "two users": [ASKED, AGAIN],
}


@pytest.mark.parametrize("name", GOOD)
def test_good_templates_have_no_errors(name: str) -> None:
    template = turnwise.load(name)
    options = {key: value for key, value in template.options.items() if isinstance(value, str)}
    for what, messages in SENT.items():
        text = oracle.render(template.text, messages, **options)
        assert all(message["content"] in text for message in messages), what
    report = turnwise.check(template)
    assert [str(finding) for finding in report if finding.severity == "error"] == []


@corpus.needs_corpus
def test_a_sample_of_the_corpus_is_quick() -> None:
    published = list(corpus.load_published().items())[::SAMPLE]
    start = time.process_time()
    for name, one in published:
        template = turnwise.compile(one.text, "jinja", name=name, options=dict(one.options))
        json.dumps(turnwise.check(template).to_data(), default=str)
    seconds = time.process_time() - start
    # a busy machine takes twice as long; the measured figure is that of the slow test
    assert seconds < 2 * MAX_SECONDS * len(published) / len(corpus.load_published())


@pytest.mark.slow
@corpus.needs_corpus
def test_the_corpus_takes_a_minute() -> None:
    start = time.process_time()
    for name, one in corpus.load_published().items():
        turnwise.check(turnwise.compile(one.text, "jinja", name=name, options=dict(one.options)))
    assert time.process_time() - start < MAX_SECONDS


@pytest.mark.slow
@corpus.needs_corpus
def test_errors_of_the_peer_are_answered() -> None:
    peer = pytest.importorskip("chatlint.check")
    render = pytest.importorskip("chatlint.render")
    left = []
    for name, one in corpus.load_published().items():
        found = peer.check(render.Template(name=name, source=one.text)).errors
        errors = [PeerError(error.prop, error.shape, error.detail) for error in found]
        report = turnwise.check(
            turnwise.compile(one.text, "jinja", name=name, options=dict(one.options))
        )
        left += [(name, *error) for error in list_unanswered(errors, report)]
    assert not left, "\n".join(map(str, left))
