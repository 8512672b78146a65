"""What one call may spend: its renderings share an allowance, the input adds a bounded share, a deadline ends it."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

import corpus
import turnwise
from timing import assert_quick
from turnwise.analysis.facts import PROBING
from turnwise.engine.renderer import Renderer
from turnwise.engine.runtime.limits import DEFAULT_LIMITS, Allowance, Limits, Runtime
from turnwise.template import compile_jinja

pytestmark = pytest.mark.once

CHAT = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "ok"}]
TOKENIZER = "turnwise"
READS_OPTIONS = "".join(f"{{% if option{number} %}}z{{% endif %}}" for number in range(12))
TURNS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
BURN = "{% for i in range(COUNT) %}{% set x = 'abc'|upper|list %}{% endfor %}"
VERBS: dict[str, Callable[[turnwise.Template], object]] = {
    "stops": lambda template: template.stops(),
    "markers": lambda template: template.markers(TOKENIZER),
    "facts": lambda template: str(template.facts),
    "grammar": lambda template: template.grammar,
    "session": lambda template: template.session(TOKENIZER).prompt(CHAT[:1]),
    "encode": lambda template: template.encode(CHAT, TOKENIZER),
    "examples": lambda template: template.examples(CHAT, TOKENIZER),
    "convert to fastchat": lambda template: template.convert("fastchat"),
    "convert to ollama": lambda template: template.convert("ollama"),
}


def burning(count: int) -> turnwise.Template:
    """A template that works for nothing in every rendering, and asks to be rendered often."""
    return turnwise.compile(READS_OPTIONS + BURN.replace("COUNT", str(count)) + TURNS)


def often(template: turnwise.Template) -> turnwise.Template:
    """The template with budgets for fifteen of its renderings, so each probe is allowed, but not all of them."""
    shared = template.renderer.allow(1)
    shared.render(CHAT)
    allowance = shared.allowance
    assert allowance is not None
    whole = Allowance(DEFAULT_LIMITS, 1)
    spent = {
        name: 15 * (whole.left(name) - allowance.left(name) + 1000) for name in ("steps", "bytes")
    }
    return template.with_limits(Limits(**spent, max_growth=0))


@pytest.mark.law(6)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("count", [1000, 9000])
def test_a_verb_costs_as_much_as_a_few_renderings(verb: str, count: int) -> None:
    """Without an allowance `stops` takes 13 seconds."""

    def call() -> None:
        try:
            VERBS[verb](burning(count))
        except turnwise.SourceError:
            assert verb.startswith("convert")
        except turnwise.TemplateLimitError as error:
            assert error.budget in ("call", "steps", "bytes")

    assert_quick(call, 1.2)


def test_the_error_names_the_budget() -> None:
    with pytest.raises(turnwise.TemplateLimitError, match="the budget of one call") as caught:
        often(burning(300)).stops()
    assert caught.value.budget == "call"


def test_a_template_that_was_not_asked_says_so() -> None:
    grammar = often(burning(300)).grammar
    assert "exceeds its limits" in grammar.unreached[0]


def test_renderings_share_an_allowance() -> None:
    alone = turnwise.compile(BURN.replace("COUNT", "3000")).renderer
    shared = alone.allow(1)
    for _ in range(10):
        alone.render(CHAT)
    with pytest.raises(turnwise.TemplateLimitError) as caught:
        for _ in range(10):
            shared.render(CHAT)
    assert caught.value.budget == "call"


def test_an_allowance_gives_back_what_was_not_used() -> None:
    shared = turnwise.load("chatml").renderer.allow(1)
    for _ in range(200):
        shared.render(CHAT)
    assert shared.allowance is not None
    assert shared.allowance.left("steps") > DEFAULT_LIMITS.steps // 2


def test_an_allowance_counts_the_output() -> None:
    shared = turnwise.compile("{{ 'a' * 24000 }}", name="long").renderer.allow(0.5)
    with pytest.raises(turnwise.TemplateLimitError) as caught:
        for _ in range(100):
            shared.render(CHAT)
    assert caught.value.budget == "call"


def test_an_allowance_grows_with_the_input() -> None:
    """Five conversations of 5,000 messages cost more than the base of the budgets has."""
    chat = CHAT * 2500
    shared = turnwise.load("qwen3").renderer.allow(2)
    for _ in range(5):
        shared.render(chat)
    assert shared.allowance is not None
    assert shared.allowance.left("steps") > 0
    assert shared.allowance.left("steps") != 2 * DEFAULT_LIMITS.steps


def test_threads_share_an_allowance() -> None:
    allowance = Allowance(Limits(steps=10_000_000), 1)
    threads = [
        threading.Thread(target=lambda: [allowance.spend({"steps": 1}) for _ in range(2000)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert allowance.left("steps") == 10_000_000 - 8000


def test_an_allowance_is_not_part_of_a_renderer() -> None:
    renderer = turnwise.load("chatml").renderer
    shared = renderer.allow(1)
    assert shared == renderer and hash(shared) == hash(renderer)
    assert pickle.loads(pickle.dumps(shared)).allowance is None


@corpus.needs_corpus
@pytest.mark.parametrize("name", sorted(corpus.load_published())[::16])
def test_real_templates_do_not_come_near(name: str) -> None:
    """All that is ever asked about a template: its facts, its grammar, its markers."""
    published = corpus.load_published()[name]
    template = compile_jinja(published.text, name=name, options=published.options)
    _ = template.grammar, str(template.facts), template.facts.markers
    allowance = template.facts._allowance
    for budget in ("steps", "bytes", "output"):
        whole = Allowance(DEFAULT_LIMITS, PROBING).left(budget)
        assert whole - allowance.left(budget) < whole * 0.7, budget


# The input


def test_the_input_adds_a_bounded_share() -> None:
    limits = Limits()
    few, many, most = (limits.share_of(count, 20 * count) for count in (100, 10_000, 1_000_000))
    for budget in ("steps", "bytes"):
        bound = getattr(limits, budget) * limits.max_bytes_growth
        assert 0 < few[budget] < many[budget] <= most[budget] <= bound
    assert most["steps"] == limits.steps * limits.max_growth
    assert most["output"] == 10_000 * few["output"]  # a few times the input, however long that is


def test_a_template_may_look_from_every_message_at_all_before_it() -> None:
    template = turnwise.compile(
        "{% for m in messages %}{% set ns = namespace(last=none) %}{% for i in range(loop.index0 - 1, -1, -1) %}"
        "{% if ns.last is none %}{% if messages[i].role == 'user' %}{% set ns.last = messages[i].content|trim %}"
        "{% elif messages[i].role == 'tool' %}{% set ns.last = messages[i].name ~ messages[i].content %}{% endif %}"
        "{% endif %}{% endfor %}{{ ns.last }}{% endfor %}"
    )
    assert template.render(CHAT * 500).text.count("None") < 1000


def test_many_messages_buy_no_more_than_that() -> None:
    quadratic = turnwise.compile(
        "{% for m in messages %}{% for n in messages %}{% endfor %}{% endfor %}"
    )
    with pytest.raises(turnwise.TemplateLimitError):
        quadratic.render([{"role": "user", "content": "x"}] * 20_000)


@pytest.mark.parametrize("name", ["chatml", "qwen3", "llama3.1"])
def test_long_inputs_are_rendered(name: str) -> None:
    template = turnwise.load(name)
    assert len(template.render(CHAT * 5000).text) > 100_000
    assert len(template.render([{"role": "user", "content": "a word " * 150_000}]).text) > 1_000_000


# Output


def rendered_length(source: str, chat: list[dict[str, str]] = CHAT) -> int | None:
    """The bytes of the prompt; None if the budget of output was too small."""
    try:
        return len(turnwise.compile(source).render(chat).text.encode())
    except turnwise.TemplateLimitError as error:
        assert error.budget == "output" and "output=" in (error.hint or "")
        return None


@pytest.mark.parametrize("unit", ["a", "é", "本", "😀"])
def test_output_is_counted_in_bytes(unit: str) -> None:
    width = len(unit.encode())
    assert rendered_length(f"{{{{ '{unit}' * {24_000 // width} }}}}")
    assert rendered_length(f"{{{{ '{unit}' * {27_000 // width} }}}}") is None


def test_a_template_may_write_its_own_text() -> None:
    """A long instruction in a template is written, also to some turns; not to any number of them."""
    instruction = "本" * 10_000
    assert rendered_length(instruction) == 30_000
    assert rendered_length("{% for i in range(2) %}" + instruction + "{% endfor %}") == 60_000
    assert rendered_length("{% for i in range(9) %}" + instruction + "{% endfor %}") is None
    assert rendered_length("x" * 90_000) == 90_000
    assert rendered_length("x" * 200_000) is None


def test_an_input_pays_for_its_output() -> None:
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    )
    for content in ("x" * 100_000, "😀" * 100_000, ""):
        for count in (1, 10):
            assert rendered_length(source, [{"role": "user", "content": content}] * count)
    assert rendered_length(source, [{"role": "user", "content": "hi"}] * 10_000)


# Deadline


def test_a_deadline_ends_a_rendering() -> None:
    slow = burning(9000).with_limits(Limits(steps=10**9, bytes=10**9, deadline=0.02))
    with pytest.raises(turnwise.TemplateLimitError, match="its deadline") as caught:
        slow.render(CHAT)
    assert caught.value.budget == "deadline" and "deadline=" in (caught.value.hint or "")
    assert_quick(lambda: pytest.raises(turnwise.TemplateLimitError, slow.render, CHAT), 0.2)


def test_a_deadline_is_that_of_a_whole_call() -> None:
    slow = burning(500).with_limits(Limits(steps=10**8, bytes=10**9, deadline=0.005))
    assert slow.with_limits(Limits(deadline=60)).render(CHAT).text
    with pytest.raises(turnwise.TemplateLimitError) as caught:
        slow.stops()
    assert caught.value.budget == "deadline"


@pytest.mark.parametrize("name", ["chatml", "qwen3", "deepseek-v3"])
def test_a_deadline_that_is_not_reached_changes_nothing(name: str) -> None:
    template = turnwise.load(name)
    timed = template.with_limits(Limits(deadline=60))
    for chat in (CHAT, CHAT * 500):
        assert timed.render(chat).text == template.render(chat).text
        assert timed.render(chat).pieces == template.render(chat).pieces
    assert timed.stops() == template.stops()


@pytest.mark.parametrize("deadline", [None, 60.0])
@pytest.mark.parametrize("allowed", [None, 1.0])
def test_slices_add_up(deadline: float | None, allowed: float | None) -> None:
    """Budgets in slices, and budgets of an allowance, end at the same charge as those of one rendering."""
    limits = Limits(steps=100_000, bytes=1_000_000, deadline=deadline)
    allowance = None if allowed is None else Allowance(limits, allowed)
    for budget in ("steps", "bytes"):
        runtime = Runtime(limits, {}, lambda: None, allowance)  # type: ignore[arg-type, return-value]
        charge = getattr(runtime, f"charge_{budget}")
        whole = getattr(limits, budget) + limits.share_of(1, 0)[budget]
        for _ in range(100):
            charge(whole // 100)
        with pytest.raises(turnwise.TemplateLimitError) as caught:
            charge(whole // 100)
        assert caught.value.budget == budget


# Limits


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": -1},
        {"bytes": "many"},
        {"depth": True},
        {"deadline": -0.1},
        {"deadline": 0},
        {"deadline": "1"},
    ],
)
def test_limits_are_numbers(wrong: dict[str, Any]) -> None:
    with pytest.raises(turnwise.MessageError, match=next(iter(wrong))):
        Limits(**wrong)


def test_limits_of_a_template_can_be_changed() -> None:
    template = turnwise.load("chatml")
    narrow = template.with_limits(Limits(steps=10, max_growth=0))
    with pytest.raises(turnwise.TemplateLimitError):
        narrow.render(CHAT * 10)
    assert template.render(CHAT * 10) and narrow.dialect == template.dialect
    with pytest.raises(turnwise.MessageError, match=r"turnwise\.Limits"):
        template.with_limits({"steps": 1})  # type: ignore[arg-type]


def test_a_renderer_without_an_allowance_has_none() -> None:
    assert isinstance(turnwise.load("chatml").renderer, Renderer)
    assert turnwise.load("chatml").renderer.allowance is None
