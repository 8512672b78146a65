"""No error grows with the key, name or value that a template put into it."""

from __future__ import annotations

import pytest

import turnwise
from turnwise.errors import MAX_KEPT_LENGTH, MAX_NAME_SHOWN, did_you_mean

HUGE = "('ab' * 300000)"
CHAT = [{"role": "user", "content": "hello"}]
RAISING = [
    f"{{{{ messages[0][{HUGE}].x }}}}",
    f"{{{{ [1]|map({HUGE})|list }}}}",
    f"{{{{ [1]|select({HUGE})|list }}}}",
    f"{{{{ [1]|map(attribute={HUGE})|sum }}}}",
    f"{{{{ messages|attr({HUGE})|abs }}}}",
    f"{{{{ messages[0].content.x[{HUGE}].y }}}}",
    f"{{{{ {HUGE}|int(0, 99) }}}}{{{{ {HUGE}() }}}}",
    f"{{{{ {HUGE}|from_json }}}}",
    f"{{{{ {HUGE} + 1 }}}}",
    f"{{{{ {HUGE}|abs }}}}",
    f"{{{{ {HUGE}.format() }}}}{{{{ '{{x}}'.format(**{{{HUGE}: 1}}) }}}}",
    f"{{% macro m() %}}{{% endmacro %}}{{{{ m(**{{{HUGE}: 1}}) }}}}",
    f"{{{{ namespace(**{{'_' ~ {HUGE}: 1}}) }}}}",
    f"{{{{ strftime_now({HUGE} ~ '%5d') }}}}",
    f"{{{{ dict([{HUGE}]) }}}}",
    "{{ x." + "y" * 900 + ".z }}",
    "{{ 1 '" + "x" * 900_000 + "' }}",
    "{% " + "x" * 900 + " %}",
    "{{ 1|" + "x" * 900 + " }}",
]


@pytest.mark.parametrize("template", RAISING, ids=range(len(RAISING)))
def test_errors_are_bounded(template: str) -> None:
    with pytest.raises(turnwise.TurnwiseError) as caught:
        turnwise.compile(template).render(CHAT)
    error = caught.value
    assert len(error.message) <= MAX_KEPT_LENGTH + 50
    assert len(error.hint or "") <= MAX_KEPT_LENGTH + 50
    assert len(getattr(error, "source_line", None) or "") <= MAX_KEPT_LENGTH
    assert len(str(error)) <= 4_000


@pytest.mark.parametrize("before", [0, 1_990, 2_010, 500_000])
@pytest.mark.parametrize("after", [0, 500_000])
def test_a_long_source_line_is_cut_around_its_column(before: int, after: int) -> None:
    text = "x" * before + "{{ 1 // 0 }}" + "y" * after
    with pytest.raises(turnwise.TemplateRuntimeError) as caught:
        turnwise.compile(text).render(CHAT)
    error = caught.value
    assert error.column == before + 4
    _, _, shown, caret, *_ = str(error).split("\n")
    assert shown[caret.index("^") :].startswith("1 // 0")


def test_a_raised_text_is_kept() -> None:
    with pytest.raises(turnwise.TemplateRaised) as caught:
        turnwise.compile("{{ raise_exception('x' * 90000) }}").render(CHAT)
    assert len(caught.value.message) == 90_000


def test_names_are_cut_before_they_are_compared() -> None:
    hint = did_you_mean("x" * 10_000_000, ["y" * 10_000_000, "z"], "known")
    assert hint is not None and len(hint) < 3 * MAX_NAME_SHOWN
