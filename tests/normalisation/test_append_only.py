"""Normalising a message changes nothing in front of it: prompts of a growing conversation only grow."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import corpus
import turnwise
from agent_traces import (
    RULES,
    TRACES,
    Trace,
    calls,
    find_loss,
    late,
    reply,
    result,
    user,
    without_late,
)
from loaded import load_entry
from published_templates import template_of
from turnwise.errors import MessageError, TurnwiseError

TURNS = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('first only') }}{% endif %}<{{ m.role }}>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }}]{% endfor %}{% endfor %}"
)
ANYWHERE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
HOISTS = (
    "{% for m in messages if m.role == 'system' %}{{ m.content }}|{% endfor %}"
    "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)
DEFAULT = (
    "{% if 'system' not in messages | map(attribute='role') | list %}<system>Be good.{% endif %}"
    + ANYWHERE
)
MARKED = "<system-reminder>\nRest.\n</system-reminder>"


def render(source: str, *messages: dict[str, Any], **more: Any) -> tuple[str, list[str]]:
    rendering = turnwise.compile(source).render(list(messages), **more)
    return rendering.text, [change.what for change in rendering.changes]


def test_a_late_system_text_stays_where_the_template_writes_it() -> None:
    text, changes = render(ANYWHERE, RULES, user("A"), reply("B"), late("Rest."), user("C"))
    assert text == "<system>Answer briefly.<user>A<assistant>B<system>Rest.<user>C" and not changes


@pytest.mark.parametrize("source", [TURNS, HOISTS, DEFAULT])
def test_elsewhere_it_is_put_before_the_next_users_text(source: str) -> None:
    """A template that moves it to the front, or drops its default text for it, does not write it in place."""
    text, changes = render(source, user("A"), reply("B"), late("Rest."), user("C"))
    assert text.endswith(f"<user>A<assistant>B<user>{MARKED}\n\nC")
    assert changes == ["the system text was put, marked, before the text of the next message"]


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([user("A"), late("Rest.")], f"<user>A\n\n{MARKED}"),
        ([user("A"), late("Rest."), reply("B")], f"<user>A\n\n{MARKED}<assistant>B"),
        ([user("A"), reply("B"), late("Rest.")], f"<user>A<assistant>B<user>{MARKED}"),
        (
            [user("A"), reply("B"), late("Rest."), late("<system-reminder>Go"), reply("C")],
            f"<user>A<assistant>B<user>{MARKED}\n\n<system-reminder>Go<assistant>C",
        ),
        (
            [user("A"), calls("1"), result("1", "R"), late("Rest."), reply("B")],
            f"<user>A<assistant>[tide]<tool>R\n\n{MARKED}<assistant>B",
        ),
        (
            [user("A"), calls("1"), late("Rest."), result("1", "R")],
            f"<user>A<assistant>[tide]<tool>{MARKED}\n\nR",
        ),
    ],
)
def test_it_is_put_into_a_turn_that_is_not_answered(messages: list[Any], text: str) -> None:
    assert render(TURNS, *messages)[0] == text


def test_parts_keep_their_order() -> None:
    parts = [{"type": "image", "image": "cat.png"}, {"type": "text", "text": "A"}]
    source = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}<{{ m.role }}>"
        "{% for p in m.content %}{{ '(image)' if p.type == 'image' else p.text }}{% endfor %}{% endfor %}"
    )
    asked = {"role": "user", "content": parts}
    text, _ = render(source, user("Q"), reply("B"), late("Rest."), asked)
    assert text.endswith(f"<assistant>B<user>{MARKED}(image)A")
    assert render(source, asked, late("Rest."))[0] == f"<user>(image)A\n\n{MARKED}"


@pytest.mark.parametrize("policy", ["user", "front"])
def test_an_image_of_a_moved_system_text_is_reported(policy: str) -> None:
    image = {"type": "image_url", "image_url": {"url": "cat.png"}}
    moved = {"role": "system", "content": [{"type": "text", "text": "Look."}, image]}
    chat = [user("A"), reply("B"), moved, user("C")]
    for name in ("qwen3.6", "qwen2.5-vl", "gemma-3"):
        with pytest.raises(MessageError, match=r"nothing of messages\[2\].content\[1\]"):
            load_entry(name).render(chat, strict=True, late_system=policy)


def test_a_policy_is_kept() -> None:
    chat = [RULES, user("A"), reply("B"), late("Rest."), user("C")]
    in_place = "<system>Answer briefly.<user>A<assistant>B<system>Rest.<user>C"
    assert render(ANYWHERE, *chat, late_system="in_place")[0] == in_place
    text, _ = render(ANYWHERE, *chat, late_system="user")
    assert text.endswith(f"<assistant>B<user>{MARKED}\n\nC")
    text, _ = render(ANYWHERE, *chat, late_system="front")
    assert text == "<system>Answer briefly.\n\nRest.<user>A<assistant>B<user>C"
    assert render(ANYWHERE, *chat[1:], late_system="front")[0].startswith("<system>Rest.<user>A")
    with pytest.raises(TurnwiseError, match="first only"):
        render(TURNS, *chat, late_system="in_place")
    with pytest.raises(MessageError, match="late_system is 'in_place', 'user', 'front' or None"):
        render(TURNS, *chat, late_system="fornt")


def test_a_late_developer_is_placed_too() -> None:
    """The template of gpt-oss writes one developer message, at the front."""
    template = load_entry("gpt-oss")
    chat = [late("Be brief.", "developer"), user("A"), reply("B"), late("Rest.", "developer")]
    rendering = template.render([*chat, user("C")], strict=True)
    assert f"{MARKED}\n\nC" in rendering.text and "Be brief." in rendering.text


@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
def test_all_verbs_have_the_policy() -> None:
    template = load_entry("qwen2.5")
    chat = [RULES, user("A"), reply("B"), late("Rest."), user("C")]
    for policy in ("user", "front"):
        text = template.render(chat, late_system=policy).text
        encoded = template.encode(chat, "turnwise", late_system=policy, add_stop=False)
        assert encoded.text == text
        batch = template.encode_batch([chat], "turnwise", late_system=policy, add_stop=False)
        assert list(batch.input_ids) == encoded.input_ids
    session = template.session("turnwise", late_system="front")
    session.prompt(chat[:2])
    session.add_reply("B<|im_end|>")
    session.extend(chat[3:5])
    assert f"user\n{MARKED}\n\nC<|im_end|>" in session.text


# The law


def _read_lines() -> dict[str, str]:
    text = Path(__file__).with_name("rewriting_templates.toml").read_text(encoding="utf-8")
    return {
        name: row["why"] for row in tomllib.loads(text)["rewrites"] for name in row["templates"]
    }


REWRITING = _read_lines()
NAMES = [
    *(f"c:{name}" for name in corpus.load_published()),
    *(f"e:{name}" for name in turnwise.entries() if ":" not in name),
]


def find_own_loss(template: turnwise.Template, trace: Trace) -> int | None:
    """Return the first request of a plain trace that is rewritten, or 0 if the template refuses that trace."""
    try:
        found = find_loss(template, without_late(trace))
    except TurnwiseError:
        return 0
    return None if found is None else found[0]


@pytest.mark.law(6)
@pytest.mark.parametrize("name", NAMES)
def test_prompts_only_grow(name: str) -> None:
    """The prompt of each request begins the next one, unless the template rewrites a plain conversation as well."""
    kind, _, own_name = name.partition(":")
    template = template_of(own_name) if kind == "c" else turnwise.load(own_name)
    lost = []
    for trace in TRACES:
        try:
            found = find_loss(template, trace)
        except TurnwiseError:
            continue  # the template refuses such a conversation in any form
        if found is None:
            continue
        own = find_own_loss(template, trace)
        is_own = own is not None and own <= found[0]
        assert is_own, f"{trace.name}: {found[1]!r} became {found[2]!r}"
        lost.append(trace.name)
    assert bool(lost) == (name in REWRITING), lost


@corpus.needs_corpus
def test_seven_of_eight_templates_never_rewrite() -> None:
    assert set(REWRITING) <= set(NAMES) and len(REWRITING) < len(NAMES) / 8
