"""What would be lost on the way into another dialect is named, in words that can be read aloud, and can be let go."""

from __future__ import annotations

from typing import Any

import pytest

import turnwise
from turnwise.analysis.conversations import LATER, NOW
from turnwise.conversion.features import FEATURES
from turnwise.dialects.turns import TOKEN_MARKS, Slot, Turns, replace_token_marks

QUOTES = '"""'
CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
OPENED = CHATML + "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
THINKING = OPENED.replace(
    "{% endif %}", "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
TARGETS = ("xtuner", "llamafactory", "paddlenlp", "ollama", "fastchat")
USER = {"role": "user", "content": "hi"}


def obstacle(template: turnwise.Template, dialect: str, **details: Any) -> turnwise.SourceError:
    with pytest.raises(turnwise.SourceError) as caught:
        template.convert(dialect, **details)
    return caught.value


def feature(template: turnwise.Template, dialect: str, **details: Any) -> str:
    message = obstacle(template, dialect, **details).message
    for unable in (f"{dialect} cannot", f"turnwise's writer for {dialect} does not"):
        message = message.removeprefix(f"{unable} express this template: ")
    return message


# The date


def test_a_date_is_not_frozen() -> None:
    llama = turnwise.load("llama-3.2")
    assert (
        feature(llama, "paddlenlp", without=["tools"]) == "the date, which it writes anew every day"
    )
    fixed = turnwise.compile(llama.text, options={**llama.options, "date_string": "26 Jul 2024"})
    source = fixed.convert("paddlenlp", without=["tools", "options", "reasoning"])
    assert "Today Date: 26 Jul 2024" in source["system"]  # a given date can be written


@pytest.mark.law(3)
@pytest.mark.parametrize("form", ["%Y", "%m", "%d", "%H", "%M", "%S", "%B", "%A", "%d %b %Y"])
def test_every_part_of_a_date_is_seen(form: str) -> None:
    assert NOW.strftime(form) != LATER.strftime(form)
    dated = turnwise.compile(f"{{{{ strftime_now('{form}') }}}}\n" + OPENED)
    for dialect in TARGETS:
        assert "date" in feature(dated, dialect) or "starts with" in feature(dated, dialect)


# Special tokens


def test_the_bos_token_is_not_lost() -> None:
    begun = turnwise.compile("{{ bos_token }}" + OPENED)
    assert begun.convert("llamafactory")["format_prefix"] == [["bos_token"]]
    error = feature(begun, "paddlenlp")
    assert error == (
        "a text that every conversation starts with: bos_token, whose text is not known (pass bos_token=...)"
    )
    source = begun.convert("paddlenlp", bos_token="<s>")
    assert source["system"].startswith("<s>")
    assert "system" not in source or turnwise.compile(source).render([USER]).text.startswith(
        "<s><|im_start|>user"
    )
    assert begun.convert("paddlenlp", bos_token="") == turnwise.compile(OPENED).convert("paddlenlp")
    for dialect in ("xtuner", "ollama"):  # their tokenizers add it
        assert begun.convert(dialect) == turnwise.compile(OPENED).convert(dialect)


def test_a_bos_token_in_every_round() -> None:
    text = "{% for m in messages %}{% if m.role == 'user' %}{{ bos_token + '[INST] ' + m.content + ' [/INST]' }}"
    text += "{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}"
    source = turnwise.compile(text).convert("llamafactory")
    assert source["format_user"] == [["bos_token"], "[INST] {{content}} [/INST]"]
    assert source["format_assistant"] == ["{{content}}", ["eos_token"]]


def test_tokens_of_turns() -> None:
    begin, end = TOKEN_MARKS.values()
    turns = Turns(
        user=(begin, Slot("text"), end),
        reply_suffix=f"a{end}",
        stops=(end, "x"),
        default_system=f"{end}d",
    )
    assert replace_token_marks(turns, {"eos_token": "</s>"}) == Turns(
        user=("", Slot("text"), "</s>"),
        reply_suffix="a</s>",
        stops=("</s>", "x"),
        default_system="</s>d",
    )
    kept = replace_token_marks(turns, {}, named=TOKEN_MARKS)
    assert kept.user == turns.user and kept.stops == ("x",) and kept.default_system == "d"


# Options


@pytest.mark.law(1)
@pytest.mark.parametrize("dialect", TARGETS[:4])
def test_an_option_that_is_lost_is_named(dialect: str) -> None:
    assert feature(turnwise.compile(THINKING), dialect) == "the option enable_thinking"
    assert "without=['enable_thinking']" in str(obstacle(turnwise.compile(THINKING), dialect))
    plain = turnwise.compile(OPENED).convert(dialect)
    for without in (["enable_thinking"], ["options"], "options"):
        assert turnwise.compile(THINKING).convert(dialect, without=without) == plain
    decided = turnwise.compile(THINKING, options={"enable_thinking": True})
    assert decided.convert(dialect) == plain


@pytest.mark.parametrize(
    "option", ["{% if shout %}!{% endif %}", "{% if level == 3 %}!{% endif %}", "{{ prefix }}"]
)
def test_any_option(option: str) -> None:
    name = next(word for word in ("shout", "level", "prefix") if word in option)
    assert feature(
        turnwise.compile(OPENED.replace("assistant\n", f"assistant\n{option}")), "xtuner"
    ) == (f"the option {name}")


# What is rare


@pytest.mark.law(3)
@pytest.mark.parametrize(
    "rare",
    [
        "{% if messages | length == 8 %}!{% endif %}",
        "{% if messages | length > 6 and add_generation_prompt %}!{% endif %}",
        "{% if messages[0].content | length > 200 %}!{% endif %}",
        "{% if messages[0].role == 'system' and '<b>' in messages[0].content %}!{% endif %}",
        "{% for m in messages %}{% if '\\r\\n' in m.content %}!{% endif %}{% endfor %}",
        "{% for m in messages %}{% if '\u00a0' in m.content %}!{% endif %}{% endfor %}",
        "{% for m in messages %}{% if m.name and m.role != 'tool' %}{{ m.name }}{% endif %}{% endfor %}",
        "{% for m in messages if m.role == 'tool' %}!{% endfor %}",
        "{% if documents %}!{% endif %}",
    ],
)
def test_what_is_rare_is_not_lost(rare: str) -> None:
    for dialect in TARGETS[:4]:
        assert obstacle(turnwise.compile(rare + OPENED), dialect)


# White space


@pytest.mark.parametrize("dialect", TARGETS[:4])
def test_white_space_can_be_let_go(dialect: str) -> None:
    trimming = turnwise.compile(OPENED.replace("m.content", "m.content | trim"))
    if dialect != "paddlenlp":  # which can trim
        assert (
            feature(trimming, dialect) == "white space around a message, which the template changes"
        )
        assert "without=['white space'] leaves that out." in str(obstacle(trimming, dialect))
    written = turnwise.compile(trimming.convert(dialect, without=["white space"]), dialect)
    assert (
        written.render([USER], add_generation_prompt=True).text
        == trimming.render([USER], add_generation_prompt=True).text
    )


def test_official_templates_that_trim_can_be_written_for_ollama() -> None:
    for name in ("llama-3", "gemma", "gemma-2"):
        assert turnwise.load(name).convert("ollama", without=["white space"]).startswith("FROM")
    assert feature(
        turnwise.compile(OPENED.replace("m.content", "m.content | trim | lower")),
        "ollama",
        without="white space",
    ) == ("the text of a message, which the template changes: 'F'")  # nothing else is let go


# Names


def test_what_a_template_does_to_a_text_is_named() -> None:
    escaping = turnwise.compile(OPENED.replace("m.content", "m.content | replace('<', '&lt;')"))
    for dialect in TARGETS[:4]:
        assert (
            feature(escaping, dialect) == "the text of a message, which the template changes: '<'"
        )


def test_quotes_in_a_modelfile() -> None:
    quoting = OPENED.replace("<|im_start|>", QUOTES)
    source = turnwise.compile(quoting).convert("ollama")
    assert (
        turnwise.compile(source).render([USER]).text
        == turnwise.compile(quoting).render([USER], add_generation_prompt=True).text
    )
    stopping = turnwise.compile(OPENED.replace("<|im_end|>", QUOTES))
    assert feature(stopping, "ollama") == f"the stop {QUOTES!r}"


def test_both_sides_are_explained_and_pieces_are_short() -> None:
    long = turnwise.compile("{{ '" + "word " * 200 + "' }}" + OPENED)
    problem = str(obstacle(long, "xtuner"))
    assert "\nthe template: " in problem and "\nin xtuner: " in problem and "\na: " not in problem
    assert max(map(len, problem.splitlines())) < 200


def test_obstacles_can_be_read_aloud() -> None:
    for row in FEATURES:
        assert not row.absence.startswith("no "), row.absence
        assert row.absence or not row.name.startswith("a ")


# What is asked wrongly


@pytest.mark.parametrize(
    ("arguments", "details", "problem"),
    [
        ((None,), {}, "unknown dialect None"),
        ((5,), {}, "unknown dialect 5"),
        (("xtuner",), {"source": 1}, "xtuner takes no argument 'source'"),
        (("ollama",), {"bse": "x"}, "ollama takes no argument 'bse'"),
        (("jinja",), {"base": "x"}, "jinja takes no argument 'base'"),
        (("xtuner",), {"eos_token": 5}, "eos_token must be a string or null, not 5"),
        (("xtuner",), {"eos": "</s>"}, "xtuner takes no argument 'eos'"),
        (("paddlenlp",), {"bos_token": ["<s>"]}, "bos_token must be a string or null, not "),
        (("xtuner",), {"without": 3}, "without must be a list of names, not int"),
        (("xtuner",), {"without": [None]}, "unknown name in without: None"),
    ],
)
def test_bad_arguments(arguments: tuple[Any, ...], details: dict[str, Any], problem: str) -> None:
    with pytest.raises(turnwise.SourceError, match=problem):
        turnwise.compile(OPENED).convert(*arguments, **details)


def test_nothing_may_be_lost() -> None:
    assert turnwise.compile(OPENED).convert("xtuner", without=None) == turnwise.compile(
        OPENED
    ).convert("xtuner")
    assert turnwise.compile(OPENED).convert("ollama", base="b.gguf").startswith("FROM b.gguf")
