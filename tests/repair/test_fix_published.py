"""Published templates: what they get wrong is repaired with proof, and transformers agrees.

The proof inside of `fix` is turnwise's; here transformers renders the conversations of the corpus with the template
before and after, so that nothing rests on one engine.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import corpus
import oracle
import turnwise
from fix_renderings import measure
from turnwise.repair import Repair
from turnwise.repair.candidates import BY_NAME
from turnwise.repair.fix import STILL_BROKEN

pytestmark = corpus.needs_corpus

SHARE = 0.8  # of the templates with a defect that can be repaired
WHOLE_SHARE = 0.6  # the same, with nothing left, not even for a system message without a text
SAMPLE = 140  # every so many templates in CI
RENDERINGS = 20_000  # that worked, in templates that `fix` changes
CHATS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}],
    [
        {"role": "system", "content": "Be"},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes"},
        {"role": "user", "content": "And"},
    ],
    [
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "call00001",
                    "type": "function",
                    "function": {"name": "tide", "arguments": {"at": "Oslo"}},
                }
            ],
        },
        {"role": "tool", "name": "tide", "tool_call_id": "call00001", "content": "high"},
    ],
]


def repair_published(name: str) -> Repair:
    published = corpus.load_published()[name]
    return turnwise.fix(turnwise.compile(published.text, options=dict(published.options)))


def find_changes(name: str, repair: Repair) -> Iterator[str]:
    """Yield conversations that transformers wrote before, and writes in another way now."""
    published = corpus.load_published()[name]
    for messages in CHATS:
        for is_open in (False, True):
            given = {"add_generation_prompt": is_open, **published.options}
            try:
                before = oracle.render(published.text, messages, **given)
            except Exception:  # whatever transformers raises is a refusal
                continue
            after = oracle.render(repair.text, messages, **given)
            is_prompt = is_open and any(p.name == "generation-prompt" for p in repair.patches)
            if after != before and not is_prompt and not repairs_call(messages, repair):
                yield json.dumps(messages)


def repairs_call(messages: list[dict[str, Any]], repair: Repair) -> bool:
    """Whether a mapping for arguments was broken before."""
    has_calls = any("tool_calls" in message for message in messages)
    return has_calls and any(patch.name == "mapping-arguments" for patch in repair.patches)


@pytest.mark.parametrize("name", sorted(corpus.load_published())[::SAMPLE])
def test_a_repaired_template_is_one_for_transformers(name: str) -> None:
    repair = repair_published(name)
    assert not list(find_changes(name, repair))
    assert turnwise.compile(repair.text).text == repair.text


@pytest.mark.law(2)
@pytest.mark.parametrize("name", sorted(corpus.load_published()))
def test_a_rendering_that_worked_is_the_same(name: str) -> None:
    try:
        found = measure(name)
    except turnwise.SourceError:  # it refuses every conversation
        return
    assert not found.changed


@pytest.mark.slow
def test_of_all_renderings_that_worked_none_changes() -> None:
    templates = compared = repaired = 0
    for name in sorted(corpus.load_published()):
        try:
            found = measure(name)
        except turnwise.SourceError:  # it refuses every conversation
            continue
        assert not found.changed, name
        templates += found.compared > 0
        compared += found.compared
        repaired += found.repaired
    print(
        f"{compared:,} renderings of {templates} templates: {repaired:,} repaired, 0 others changed"
    )
    assert compared - repaired >= RENDERINGS


@pytest.mark.slow
def test_most_templates_are_repaired() -> None:
    counts: Counter[tuple[str, str]] = Counter()
    fixable = repaired = whole = 0
    for name in sorted(corpus.load_published()):
        try:
            repair = repair_published(name)
        except turnwise.SourceError as error:
            assert "refuses all" in str(error)  # rerankers, and one that wants a time
            continue
        assert not list(find_changes(name, repair)), name
        impossible = [one for one in repair.unfixed if one.reason == BY_NAME]
        rest = [one for one in repair.unfixed if one not in impossible]
        failed = [one for one in rest if not one.reason.startswith(STILL_BROKEN)]
        counts.update((patch.name, "repaired") for patch in repair.patches)
        counts.update((one.name, "impossible") for one in impossible)
        counts.update((one.name, "failed") for one in failed)
        for one in rest:
            print(name, one)
        fixable += bool(repair.patches or rest)
        repaired += bool(repair.patches) and not failed
        whole += bool(repair.patches) and not rest
    for key, count in sorted(counts.items()):
        print(*key, count)
    print(f"{repaired} of {fixable} templates, {whole} of them whole")
    assert repaired >= SHARE * fixable and whole >= WHOLE_SHARE * fixable
