"""A request that is made from the last one is the one that would be built."""

from __future__ import annotations

import itertools
import random
from datetime import datetime
from typing import Any

import pytest

import turnwise
from turnwise.analysis.facts import Facts
from turnwise.errors import TurnwiseError, WarningLog
from turnwise.messages import prepared_tools
from turnwise.tokens.request_builder import RequestBuilder
from turnwise.tokens.tokenizers import tokenizer

TEXT = (
    "{{ bos_token }}{{ flag }}{% if tools %}{{ tools }}{% endif %}{% for m in messages %}<|im_start|>"
    "{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
LOOK = {"type": "function", "function": {"name": "look", "description": "Looks."}}
NOW = datetime(2024, 5, 17)
# Of each argument: equal values of other types, values that can be changed later, and wrong ones.
VALUES: dict[str, tuple[Any, ...]] = {
    "flag": (1, True, 1.0, "1", None, [1], {"a": 1}),
    "bos_token": ("<s>", "", None, "<|im_end|><|im_start|>"),
    "eos_token": ("<|im_end|>",),
    "add_generation_prompt": (True, False, 1),
    "strict": (True, False),
    "normalise": (True, False),
    "now": (NOW, None),
    "tools": (None, prepared_tools([LOOK]), prepared_tools([LOOK, LOOK])),
    "documents": (None, [{"text": "a"}], [{"text": "b"}]),
}
MORE: dict[str, tuple[Any, ...]] = {
    "max_length": (None, 5, 5.0, True, 0),
    "overflow": ("truncate", "refuse", "no"),
    "trust": (None, {"system": "all"}),
    "compatible": (True, False),
    "add_stop": (True, False, 1),
}


def choose(dice: random.Random, values: dict[str, tuple[Any, ...]], most: int) -> dict[str, Any]:
    return {
        name: dice.choice(values[name]) for name in dice.sample(list(values), dice.randint(0, most))
    }


def build(builder: RequestBuilder, *given: Any, **more: Any) -> Any:
    """The fields of a request, but for what is learnt; or the error. And the warnings."""
    with WarningLog(is_quiet=True) as log:
        try:
            request = builder.build(CHAT, *given, **more)
        except TurnwiseError as error:
            return str(error), log.texts
    arguments = dict(request.arguments)
    now = arguments.pop("now")
    assert now == given[2].get("now") or not given[2].get("now")
    kinds = [(name, type(value)) for name, value in arguments.items()]
    other = request._replace(arguments=arguments, turn_cache=None)
    return other, kinds, log.texts


def test_a_request_is_made_of_its_arguments() -> None:
    facts = Facts(turnwise.compile(TEXT).renderer)
    used, dice, same = RequestBuilder(facts), random.Random(5), 0
    known = [tokenizer("turnwise"), tokenizer("turnwise", backend="tokenizers")]
    for number in range(600):
        if number % 3 == 0:  # else as the last one, mostly
            own, policy = dice.choice(known), dice.choice(["assistant", "last", "all", "none"])
            arguments, more = choose(dice, VALUES, 3), choose(dice, MORE, 1)
        elif dice.random() < 0.3:
            arguments = {**arguments, **choose(dice, VALUES, 1)}
        last = used._last
        found = build(used, own, policy, arguments, **more)
        assert found == build(RequestBuilder(facts), own, policy, arguments, **more), arguments
        same += last is not None and last is used._last
    assert same > 200


def test_turns_are_learnt_for_each_set_of_options() -> None:
    used, own = RequestBuilder(Facts(turnwise.compile(TEXT).renderer)), tokenizer("turnwise")
    caches = [
        used.build(CHAT, own, "assistant", {"flag": flag, "bos_token": ""}).turn_cache
        for flag in (1, 1, True, "1", 1)
    ]
    assert caches[0] is caches[1] is caches[4]
    assert len(set(map(id, caches))) == 3


def test_options_that_can_be_changed_are_read_again() -> None:
    template, options = turnwise.compile(TEXT), {"flag": [1]}
    for number in (2, 3, 3):
        options["flag"].append(number)
        text = template.encode(CHAT, "turnwise", bos_token="", **options).text
        assert text.startswith(f"{options['flag']}<")


def test_each_call_warns() -> None:
    """The template fails without a special token, so it is an empty text in every call."""
    template = turnwise.compile(TEXT.replace("{{ bos_token }}", "{{ sep_token + '' }}"))
    for _ in range(3):
        with pytest.warns(turnwise.TurnwiseWarning, match="sep_token"):
            encoded = template.encode(CHAT, "turnwise")
        assert any("sep_token" in warning for warning in encoded.warnings)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("tool_choice", ("none", "required", "auto", None)),
        ("response_format", ({"type": "json_object"}, {"type": "text"}, None)),
        ("reasoning", (True, False, "low", None)),
        ("parallel_tool_calls", (True, False, None)),
    ],
)
@pytest.mark.parametrize("train_on", ["assistant", "content"])
def test_what_a_request_asks_is_no_other_request(
    name: str, values: tuple[Any, ...], train_on: Any
) -> None:
    """The template writes it before the conversation, and where its turns begin."""
    asked = "{% if NAME %}{{ NAME|string|upper }} {% endif %}".replace("NAME", name)
    text = TEXT.replace("{{ flag }}", asked).replace("{{ m.content }}", asked + "{{ m.content }}")
    text = text.replace("assistant\n", "assistant\n" + asked)
    for before, after in itertools.permutations(values, 2):
        used, fresh = turnwise.compile(text), turnwise.compile(text)
        with WarningLog(is_quiet=True):
            used.encode_batch([CHAT] * 9, "turnwise", train_on, **{name: before})
            for _ in range(9):
                used.encode(CHAT, "turnwise", train_on, **{name: before})
            found = used.encode(CHAT, "turnwise", train_on, **{name: after})
            rows = used.encode_batch([CHAT], "turnwise", train_on, **{name: after})
            expected = fresh.encode(CHAT, "turnwise", train_on, **{name: after})
        assert found.lists() == expected.lists()
        assert [*rows.input_ids] == expected.input_ids
        assert [*rows.labels] == expected.labels
