"""What `diff` reached: branches that no conversation took, conversations made to take them, and what it may spend."""

from __future__ import annotations

from typing import Any

import pytest

import corpus
import turnwise
from loaded import load_entry
from random_chats import ChatDice, render_outcome
from timing import assert_quick
from turnwise.analysis.conversations import Probe, conversations, name_values
from turnwise.analysis.template_constants import Question, TemplateConstants
from turnwise.analysis.wide_conversations import is_plausible, rare_conversations
from turnwise.engine.program import WatchedProgram
from turnwise.evidence import branch_search, diff
from turnwise.evidence.branch_search import PairedRun

(FIRST,) = name_values("first")

TALK = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
SECONDS = 1.5  # of processor time; the allowance of one call is worth about one


def compare_with_itself(text: str) -> Any:
    template = turnwise.compile(text, "jinja")
    return diff(template, template)


# ---- which branches ran


def outcomes(text: str, messages: Any, **arguments: Any) -> dict[str, set[bool]]:
    """The outcomes of each point, by its kind."""
    program = WatchedProgram(text)
    renderer = turnwise.compile(text, "jinja").renderer.with_programs(lambda _: program)
    renderer.render(messages, **arguments)
    found: dict[str, set[bool]] = {}
    for number, point in enumerate(program.points):
        seen = {True: 2 * number in program.taken, False: 2 * number + 1 in program.taken}
        found.setdefault(point.kind, set()).update(kind for kind, was in seen.items() if was)
    return found


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("{% if messages %}A{% endif %}", "if", {True}),
        ("{% if tools %}A{% elif messages %}B{% else %}C{% endif %}", "if", {True, False}),
        ("{{ 'A' if tools }}", "inline if", {False}),
        ("{{ tools or messages }}", "operand", {True, False}),
        ("{{ tools or 'B' }}", "operand", {False}),  # what is written out is no condition
        ("{{ tools and 'B' }}", "operand", {False}),  # the second is not evaluated
        ("{% for m in messages %}A{% endfor %}", "loop", {True}),
        ("{% for t in tools or [] %}A{% endfor %}", "loop", set()),
        ("{% for t in tools or [] %}A{% else %}B{% endfor %}", "loop else", {True}),
        ("{% for m in messages if m.name %}A{% endfor %}", "loop if", {False}),
        ("{% macro f() %}A{% endmacro %}{{ f() }}", "macro", {True}),
        ("{% macro f() %}A{% endmacro %}", "macro", set()),
    ],
)
def test_outcomes_are_noted(text: str, kind: str, expected: set[bool]) -> None:
    assert outcomes(text, [FIRST])[kind] == expected


def test_a_watched_program_writes_the_same() -> None:
    """On the published templates and the entries; every program can be watched."""
    published = [found.text for found in corpus.load_published().values()]
    texts = [
        *published[::40],
        *(load_entry(name).text for name in list(turnwise.entries())[::80]),
    ]
    for text in texts:
        template = turnwise.compile(text, "jinja")
        watched = template.renderer.with_programs(
            lambda program: WatchedProgram(program.text, program.name, program.shadowed)
        )
        chats = ChatDice([text], list(template.variables), 3)
        for chat in (chats.make() for _ in range(10)):
            try:
                written = watched.render(chat.messages, **chat.arguments).text
            except turnwise.TurnwiseError:
                written = None
            assert written == render_outcome(template, chat)


# ---- what a template asks


def test_constants_are_read_through_names() -> None:
    text = (
        "{% set kind = messages[0]['kind'] | lower %}{% if kind == 'riddle' %}A{% endif %}"
        "{% macro say(what) %}{% if what.tone.startswith('so') %}B{% endif %}{% endmacro %}"
        "{% for m in messages %}{{ say(m.voice) }}{% if m.get('size', 0) > 7 %}C{% endif %}{% endfor %}"
        "{% if 'x' in choices or level in ('low', 3) %}D{% endif %}"
    )
    asked = TemplateConstants.read(text).questions
    assert {
        Question("kind", "riddle", "equals"),
        Question("tone", "so", "contains"),
        Question("size", 7, "size"),
        Question("choices", "x", "contains"),
        Question("level", "low", "equals"),
        Question("level", 3, "equals"),
        Question("voice"),
    } <= set(asked)
    assert "tone" in TemplateConstants.read(text).children["voice"]


# ---- what was not reached


def test_branches_that_nothing_reaches_are_named() -> None:
    found = compare_with_itself(TALK + "\n{% if messages is string %}\nnever{% endif %}")
    (a, b) = found.unreached
    assert found.equal and (a.template, b.template) == ("a", "b")
    assert (a.line, a.column, a.source, a.kind, a.outcome) == (
        *(2, 7, "messages is string", "if"),
        True,
    )
    assert found.coverage.reached == found.coverage.total - 2
    assert "a:2:7 never true: messages is string" in str(found)
    assert f"{found.coverage.reached} of {found.coverage.total} branches reached" in str(found)


def test_many_branches_are_not_all_printed() -> None:
    found = compare_with_itself(TALK + "{% if messages is string %}!{% endif %}" * 10)
    assert len(found.unreached) == 20 and str(found).endswith("  and 12 more")


IN_MESSAGES = "{% for m in messages %}LOOKS{% endfor %}"
IF = "{% if LOOKS %}A{% endif %}"
REACHED = {
    "one in another": "{% if mode == 'xyzzy' %}{% if level == 77 %}A{% endif %}{% endif %}",
    "a field of a field": IF.replace("LOOKS", "m.meta and m.meta.kind == 'plugh'"),
    "three conditions": IF.replace("LOOKS", "m.role == 'judge' and m.verdict == 'no' and final"),
    "a name for a field": "{% set k = m.kind %}" + IF.replace("LOOKS", "k in ['a', 'bc']"),
    "in a macro": "{% macro f(x) %}{% if x.flavour == 'sour' %}A{% endif %}{% endmacro %}{{ f(m) }}",
    "an inner loop": "{% for s in m.steps or [] %}{% if s.done %}A{% endif %}{% endfor %}",
    "a loop": "{% for s in m.steps if m.steps is iterable %}A{% endfor %}",
    "a length": "{% if messages | length == 37 %}A{% endif %}",
    "a text": IF.replace("LOOKS", "m.content is string and m.content.endswith('%%%')"),
}


@pytest.mark.parametrize("text", REACHED.values(), ids=REACHED)
def test_conversations_are_made_to_reach_a_branch(text: str) -> None:
    text = TALK + IN_MESSAGES.replace("LOOKS", text)
    found = diff(turnwise.compile(text), turnwise.compile(text.replace("}A{", "}B{")))
    assert not found.equal and found.witness.kind == "text"


def test_conversations_are_those_that_callers_send() -> None:
    assert all(map(is_plausible, (*conversations(), *rare_conversations())))
    assert not is_plausible(Probe("", [{"role": ["user"], "content": "x"}]))
    assert not is_plausible(Probe("", [{"role": "user", "content": {"a": 1}}]))
    assert not is_plausible(Probe("", [{"role": "user", "content": [3]}]))
    assert not is_plausible(Probe("", [FIRST], tools=[{"function": "f"}]))
    picky = "{% for m in messages %}{{ m.role{} }}{% endfor %}"
    same = turnwise.compile(picky.replace("{}", " + ''")), turnwise.compile(picky.replace("{}", ""))
    assert diff(*same).equal  # a role that is no text would tell them apart


# ---- masks and labels

MASKED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}\n"
    "{% endfor %}"
)
TAGS = ("{% generation %}", "{% endgeneration %}")


def remove_tags(text: str) -> str:
    return text.replace(TAGS[0], "").replace(TAGS[1], "")


@pytest.mark.parametrize(
    ("other", "marked"),
    [
        (remove_tags(MASKED), "nothing"),
        (MASKED.replace("<|im_end|>" + TAGS[1], TAGS[1] + "<|im_end|>"), "'O'"),
    ],
)
def test_generation_blocks_are_compared(other: str, marked: str) -> None:
    a, b = turnwise.compile(MASKED), turnwise.compile(other)
    found = diff(a, b)
    assert found.witness is not None and found.witness.kind == "mask"
    assert found.witness.a.text == found.witness.b.text
    start = len("<|im_start|>assistant\n")
    assert found.witness.trained[0] == ((start, start + 11),) and found.witness.at == start
    blocks = "not what is in {% generation %} blocks"
    assert f"{blocks}:\na: 'O<|im_end|>'\nb: {marked}" in str(found)
    assert diff(a, b, masks=False).equal and diff(a, a).equal


@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
def test_labels_are_compared_with_a_tokenizer() -> None:
    """The source names a stop that the template alone does not show."""
    a = turnwise.load("fastchat:zero_shot")
    b = turnwise.compile(a.text, "jinja", options=dict(a.options))
    assert diff(a, b).equal
    found = diff(a, b, tokenizer="turnwise")
    assert found.witness is not None and found.witness.kind == "labels"
    assert found.witness.trained[0] != found.witness.trained[1]
    assert "the text is the same, but not what is trained:\na: " in str(found)


# ---- what it may spend


def repeat(count: int, text: str) -> str:
    return f"{{% for a in range({count}) %}}{text}{{% endfor %}}"


HOSTILE = {
    "every conversation": repeat(99, repeat(999, "{{ a * a }}")),
    "just within a budget": repeat(30, repeat(150, "{% if a == 3 %}{% endif %}")),
    "long output": "{{ 'x' * 90000 }}",
    "its own messages": IN_MESSAGES.replace("LOOKS", repeat(20, repeat(40, "{{ a }}"))),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_templates_are_bounded(text: str) -> None:
    template = turnwise.compile(text)

    def compare() -> None:
        try:
            diff(template, template)
        except turnwise.TemplateLimitError as error:
            assert "template" in error.message

    assert_quick(compare, SECONDS, rounds=3)


def test_a_difference_is_shown_though_the_allowance_is_spent() -> None:
    """Making it small would cost more than the call may spend."""
    busy = IN_MESSAGES.replace("LOOKS", repeat(50, repeat(200, "")))
    a, b = turnwise.compile(busy + "A"), turnwise.compile(busy + "B")
    assert diff(a, b).witness is not None


def test_what_is_too_expensive_for_one_is_a_difference() -> None:
    endless = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() if messages[0].role == 'user' }}"
    long = repeat(900, repeat(900, "{{ a }}"))
    for text in (endless, long):
        found = diff(turnwise.compile(TALK + text), turnwise.compile(TALK))
        assert found.witness is not None and found.witness.kind == "refusal"


@corpus.needs_corpus
def test_published_templates_spend_half_of_the_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search stops there; the rest is for making a difference small."""
    runs: list[PairedRun] = []

    class RecordedRun(PairedRun):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            runs.append(self)

    monkeypatch.setattr("turnwise.evidence.compare.PairedRun", RecordedRun)
    largest = sorted(corpus.load_published().values(), key=lambda found: len(found.text))[-60::30]
    for found in largest:
        assert compare_with_itself(found.text).equal
    shares = [run._allowance.spent_share for run in runs if run._allowance is not None]
    assert len(shares) == len(largest) and max(shares) < branch_search.SEARCH_SHARE + 0.05
