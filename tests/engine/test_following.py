"""Following trails: within a budget, linear, and closed where it fails."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

import turnwise
from timing import ROUNDS, assert_linear, processor_seconds
from turnwise.engine.provenance import container_rules, piece_table, rendering, text_rules
from turnwise.engine.provenance.splitting import Follower
from turnwise.engine.provenance.trails import NOWHERE, UNFOLLOWED, Computed
from turnwise.engine.runtime.limits import Limits
from turnwise.tokens.attribution import UNKNOWN, Attribution, Trust

pytestmark = pytest.mark.once

CHAT = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": "ok"},
]
USER = "messages[1].content"
SECONDS = 0.3  # following takes a fifth of it, and took up to ten times as long without a budget
BEYOND = pytest.mark.filterwarnings("ignore:the template makes its text in more steps")
COSTLY = {
    "replaced": f"{{{{ ('a' * 100000).replace('a', {USER}) }}}}",
    "replaced, empty": f"{{{{ ('a' * 300000).replace('', {USER}) }}}}",
    "JSON": "{{ ([0] * 60000)|tojson }}",
    "JSON of a dict": "{{ dict.fromkeys(range(8000))|tojson }}",
    "repr": "{{ [0] * 100000 }}",
    "two splits in turn": "{% set s = 'ab,' * 6000 %}{% set a = s.split(',') %}{% set b = s.split(',') %}"
    "{% for i in range(6000) %}{{ a[i] }}{{ b[i] }}{% endfor %}",
    "two cut texts in turn": f"{{% set s = ('a' ~ {USER}) * 3000 %}}{{% set t = ('b' ~ {USER}) * 3000 %}}"
    "{% for i in range(0, 6000, 2) %}{{ s[i:i + 2] }}{{ t[i:i + 2] }}{% endfor %}",
    "doubled": f"{{% set ns = namespace(s={USER}) %}}{{% for i in range(16) %}}"
    "{% set ns.s = ns.s ~ 'x' ~ ns.s %}{% endfor %}{{ ns.s }}",
    "cut 20,000 times": f"{{% set ns = namespace(s='ab' ~ {USER}) %}}{{% for i in range(20000) %}}"
    "{% set ns.s = ns.s[0:] %}{% endfor %}{{ ns.s }}",
    "recased 20,000 times": f"{{% set ns = namespace(s='ab' ~ {USER}) %}}{{% for i in range(20000) %}}"
    "{% set ns.s = ns.s|upper %}{% endfor %}{{ ns.s }}",
    "a key 10,000 times": f"{{% set ns = namespace(s='a' ~ {USER}) %}}{{% for i in range(10000) %}}"
    "{% set ns.s = {ns.s: 1}|list|first %}{% endfor %}{{ ns.s }}",
    "an element 20,000 times": "{% set ns = namespace(x=messages) %}{% for i in range(20000) %}"
    "{% set ns.x = [ns.x][0] %}{% endfor %}{% for i in range(3000) %}{{ ns.x[1].content }}{% endfor %}",
    "letters": f"{{% for c in ('a' ~ {USER}) * 6000 %}}{{{{ c }}}}{{% endfor %}}",
    "lines": f"{{{{ ({USER} ~ '\\n' * 50000)|indent(1) }}}}",
    "marks": "{% for i in range(6000) %}{% for m in messages %}{{ m.role }}{% endfor %}{% endfor %}",
    "numbers": "{% for i in range(40000) %}a{{ i }}{% endfor %}",
}
WIDE = Limits(bytes=30_000_000, output=10_000_000)  # what is tested is the budget of origins
GROWING: dict[str, str] = {
    "a list": "{% set ns = namespace(l=[]) %}{% for m in messages %}{% set ns.l = ns.l + [m.content ~ '!'] %}"
    "{% endfor %}{% for x in ns.l %}{{ x }}{% endfor %}",
    "a text": "{% set ns = namespace(s='') %}{% for m in messages %}{% set ns.s = ns.s ~ '<' ~ m.content %}"
    "{% endfor %}{{ ns.s[1:] }}",
    "two splits": "{% set s = messages|map(attribute='content')|join(',') %}{% set a = s.split(',') %}"
    "{% set b = s.split(',') %}{% for i in range(a|length) %}{{ a[i] }}{{ b[i] }}{% endfor %}",
    "slices": "{% set s = messages|map(attribute='content')|join(',') %}{% set t = s ~ '.' %}"
    "{% for m in messages %}{{ s[loop.index:loop.index + 2] }}{{ t[loop.index:loop.index + 2] }}{% endfor %}",
    "slices of slices": "{% set ns = namespace(l=messages) %}{% for m in messages %}{{ ns.l[0].content }}"
    "{% if loop.index < 90 %}{% set ns.l = ns.l[1:] %}{% endif %}{% endfor %}",
    "JSON": "{{ messages|tojson }}",
    "repr": "{{ messages }}",
}


@pytest.mark.law(6)
@BEYOND
@pytest.mark.parametrize("name", COSTLY)
def test_costly_trails(name: str) -> None:
    template = turnwise.compile(COSTLY[name]).with_limits(WIDE)
    for _ in range(ROUNDS):
        prompt = template.render(CHAT, normalise=False)
        spent = processor_seconds(lambda prompt=prompt: prompt.pieces)
        assert "".join(piece.text for piece in prompt.pieces) == prompt.text
        if spent < SECONDS:
            return
    raise AssertionError(f"{spent:.3f} s of processor time, more than {SECONDS} s")


@pytest.mark.parametrize("name", GROWING)
def test_linear(name: str) -> None:
    template = turnwise.compile(GROWING[name])
    chats = {
        size: [{"role": "user", "content": f"word{i}"} for i in range(size)] for size in (150, 600)
    }

    def follow(size: int) -> Any:
        out = template.render(chats[size])
        table = out.piece_table
        return table, [table.split(index) for index in range(len(table.texts))], out.pieces

    follow(150), follow(600)
    assert_linear(follow, 150)


def test_beyond_the_budget_nothing_is_trusted() -> None:
    template = turnwise.compile(f"<s>{{{{ ('a' * 300000).replace('a', {USER}) }}}}<e>")
    prompt = template.with_limits(WIDE).render(CHAT, normalise=False)
    with pytest.warns(turnwise.TurnwiseWarning, match="more steps than can be followed"):
        first, *_, last = prompt.pieces
    assert first.origin.kind == "template" and first.text == "<s>"
    assert last.origin.kind in ("computed", "template")
    assert {piece.origin.kind for piece in prompt.pieces if "hello" in piece.text} == {"computed"}
    assert Attribution(prompt.piece_table, CHAT).trust_of(10, 12) == Trust.NONE


def test_digits_beyond_the_budget_are_no_counter() -> None:
    """A number without an origin is one that the template counts, but not if its trail was not followed."""
    chat = [{"role": "user", "content": "7"}]
    template = turnwise.compile("{{ ('1' * 300000).replace('1', messages[0].content) }}")
    prompt = template.with_limits(WIDE).render(chat, normalise=False)
    with pytest.warns(turnwise.TurnwiseWarning):
        assert prompt.piece_table.split(0) == [(prompt.text, UNFOLLOWED)]
    assert Attribution(prompt.piece_table, chat).trust_of(0, 3) == Trust.NONE
    assert UNFOLLOWED != NOWHERE


def test_the_budget_grows_with_the_input() -> None:
    limits = Limits()
    values = [{"a": "b"}] * 100
    assert limits.share_of_origins({"x": values}) >= 100 * limits.origins_per_value
    chat = [{"role": "user", "content": f"word {i}"} for i in range(20_000)]
    template = turnwise.compile(
        "{% for m in messages %}<{{ m.role }}>{{ m.content|trim }}{% endfor %}"
    )
    assert len(template.render(chat).pieces) == 4 * len(chat)


def test_a_large_schema_is_followed() -> None:
    properties = {f"name_{i}": {"type": "string", "description": f"The {i}."} for i in range(4000)}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": properties}}}
    pieces = turnwise.compile("{{ tools|tojson }}").render([], tools=[tool]).pieces
    assert {piece.origin.kind for piece in pieces} == {"template", "field"}


# ---- defects ----

SIMPLE = "<s>{{ messages[1].content|upper }}{{ ('a' ~ messages[1].content)[1:] }}"


def break_rule(monkeypatch: pytest.MonkeyPatch, rule: Any, split: Callable[..., Any]) -> None:
    monkeypatch.setattr(rule, "split", split)


def lose_a_character(follower: Follower, text: str, *inputs: Any) -> list[Any]:
    return [(text[1:], 0)]


def fail(follower: Follower, text: str, *inputs: Any) -> list[Any]:
    raise ZeroDivisionError


@pytest.mark.parametrize("split", [lose_a_character, fail])
@pytest.mark.parametrize("rule", [text_rules.RECASED, text_rules.PART])
def test_a_rule_that_is_wrong(
    rule: Any, split: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = turnwise.compile(SIMPLE).render(CHAT, normalise=False)
    break_rule(monkeypatch, rule, split)
    with pytest.warns(turnwise.TurnwiseWarning, match="a defect of turnwise"):
        pieces = prompt.pieces
    assert "".join(piece.text for piece in pieces) == prompt.text
    assert [piece.text for piece in pieces if piece.origin.kind == "template"] == ["<s>"]
    attribution = Attribution(prompt.piece_table, CHAT)
    start = 3 if rule is text_rules.RECASED else 8
    assert attribution.trust_of(start, start + 5) == Trust.NONE


def test_a_child_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = turnwise.compile("{{ messages[1].content.split('l')[0] }}").render(
        CHAT, normalise=False
    )
    monkeypatch.setattr(container_rules.SPLIT, "child", fail)
    with pytest.warns(turnwise.TurnwiseWarning, match="a defect of turnwise"):
        assert [piece.origin.kind for piece in prompt.pieces] == ["computed"]


def test_texts_that_do_not_join(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table, its pieces and the texts after a place all belong to the text, or are untrusted."""
    prompt = turnwise.compile("<s>{{ messages[1].content }}").render(CHAT, normalise=False)
    broken = rendering.Rendering("<e>hello", prompt._source, prompt.output)
    assert piece_table.read_texts_after(broken.output, broken.text, 0)[1] != [0]
    with pytest.warns(turnwise.TurnwiseWarning, match="a defect of turnwise"):
        table = broken.piece_table
    assert table.texts == ["<e>hello"] and table.split(0) == [("<e>hello", UNFOLLOWED)]
    assert Attribution(table, CHAT).author_of(table.split(0)[0][1]) == UNKNOWN
    assert [piece.origin.kind for piece in broken.pieces] == ["computed"]


def test_pieces_that_do_not_join(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = turnwise.compile("<s>{{ messages[1].content }}").render(CHAT, normalise=False)
    table = prompt.piece_table
    monkeypatch.setattr(piece_table.PieceTable, "split", lambda self, index: [("<s>", 0)])
    with pytest.warns(turnwise.TurnwiseWarning, match="a defect of turnwise"):
        assert [piece.text for piece in prompt.pieces] == ["<s>hello"]
    assert prompt.pieces[0].origin.kind == "computed" and table.texts == ["<s>", "hello"]


def test_what_was_unpickled_is_not_trusted() -> None:
    prompt = turnwise.compile("<s>{{ messages[1].content }}").render(CHAT, normalise=False)
    copy = pickle.loads(pickle.dumps(prompt))
    assert copy.pieces == prompt.pieces
    assert copy.piece_table.split(0) == [(prompt.text, UNFOLLOWED)]


def test_merged_leaves_stay_unfollowed() -> None:
    parts = [("a", UNFOLLOWED), ("b", Computed((("messages", 0),)))]
    merged = text_rules.merge_fragments("ab", parts)
    assert merged == [("ab", Computed((("messages", 0),), followed=False))]
