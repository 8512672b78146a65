"""A source that came from a dialect goes through its Jinja, and nothing but its Jinja, back into that dialect.

It is the same, or it is the same on the conversations that the dialect is for, or what cannot be written is named; the
numbers of each are part of the test, since a silent loss would change them. Stops survive.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import corpus
import oracle
import turnwise
from corpus import needs_corpus
from loaded import load_entry as load
from turnwise.analysis.conversations import conversations
from turnwise.analysis.counterexample import try_render
from turnwise.conversion.verification import is_dialogue
from turnwise.dialects.jinja import with_stop_comment
from turnwise.registry import entries

pytestmark = pytest.mark.once

TOKENS = {"bos_token": "<bos>", "eos_token": "<eos>"}
IMPORTED = [
    name
    for dialect in ("xtuner", "xtuner_v1", "fastchat", "llamafactory")
    for name in entries(dialect=dialect)
]
# What the translation of a source does better than its software, which is what `convert` compares with: XTuner inserts
# a bos token after each eos token of its own; to FastChat an empty message is an open turn, and most styles refuse
# images; LLaMA-Factory writes results of tools otherwise.
ASKED: dict[str, dict[str, Any]] = {
    "xtuner": {"bos_token": ""},
    "fastchat": {"without": ["empty messages", "images"]},
    "llamafactory": {"without": ["tools"]},
}
USER = {"role": "user", "content": "hi"}
CHAT = [{"role": "system", "content": "S"}, USER, {"role": "assistant", "content": "ho"}, USER]


@cache
def as_jinja(template: turnwise.Template) -> turnwise.Template:
    """The template converted to Jinja: found once for all tests, for it renders many probes."""
    return turnwise.compile(template.convert("jinja"))


def come_back(template: turnwise.Template) -> tuple[str, Any]:
    """How it came back, and what was written or refused."""
    alone = as_jinja(template)
    asked = dict(ASKED.get(template.dialect, {}))
    try:
        try:
            source = alone.convert(template.dialect, **asked)
        except turnwise.SourceError as error:
            # Of a template in Jinja, `render` joins system texts that its software would drop or refuse.
            shown = error.hint or ""
            is_about_system = "'role': 'system'" in shown or "'no system text'" in shown
            if not is_about_system or (template.dialect == "fastchat" and writes_system(alone)):
                raise
            lost = "late system text" if "late system" in shown else "system text"
            asked["without"] = [*asked.get("without", ()), lost]
            source = alone.convert(template.dialect, **asked)
    except turnwise.SourceError as error:
        named = re.fullmatch(
            r"(?:\w+ cannot express this template|turnwise's writer for \w+ does not express this template"
            r"|this template cannot be expressed as turns): (\w.*)",
            error.message,
        )
        assert named, error.message
        return named[1].partition(":")[0], error
    written = turnwise.compile(source, template.dialect)
    if written.text == template.text:
        return "same", source
    assert differing(template, written) == [], (template.name, source)
    return "alike", source


def writes_system(template: turnwise.Template) -> bool:
    chat = [{"role": "system", "content": "Xrules"}, USER]
    return "Xrules" in template.render(chat, normalise=False).text


def differing(template: turnwise.Template, written: turnwise.Template) -> list[str]:
    """The rounds of plain text that the two write otherwise, special tokens and all."""
    found = []
    for probe in conversations():
        opening = probe.messages[-1]["role"] != "assistant"
        asked = replace(probe, add_generation_prompt=opening, options=dict(TOKENS))
        is_plain = all(
            isinstance(message.get("content"), str) and message.keys() == {"role", "content"}
            for message in probe.messages
        )
        if not is_plain or probe.tools is not None or not is_dialogue(probe.messages):
            continue
        first = try_render(template.renderer, asked)
        if not isinstance(first, turnwise.TurnwiseError):
            second = try_render(written.renderer, asked)
            if (
                isinstance(second, turnwise.TurnwiseError)
                or first.text.rstrip() != second.text.rstrip()
            ):
                found.append(probe.covers)
    return found


@pytest.mark.law
def test_xtuner() -> None:
    assert Counter(come_back(load(name))[0] for name in entries(dialect="xtuner")) == {"same": 27}


@pytest.mark.law
def test_fastchat() -> None:
    found = {name: come_back(load(name))[0] for name in IMPORTED if name.startswith("fastchat:")}
    assert Counter(found.values())["same"] >= 92
    # LLAMA3 writes its own bos token, GEMMA drops a system text, YUAN2 strips letters from the end.
    assert {name: how for name, how in found.items() if how not in ("same", "alike")} == {
        "fastchat:llama-3": "bos_token, whose text is not known (pass bos_token=...)",
        "fastchat:yuan2": "the text of a message, which the template changes",
        "fastchat:gemma": "a system text in the first user turn",
    }


@pytest.mark.slow
def test_llamafactory() -> None:
    """Formats of tools and thoughts are names in this dialect, which are not found again in a text."""
    found = {name: come_back(load(name)) for name in entries(dialect="llamafactory")}
    written = {name: source for name, (how, source) in found.items() if how in ("same", "alike")}
    assert len(found) == 124 and len(written) >= 98
    refused = Counter(how for name, (how, _) in found.items() if name not in written)
    assert set(refused) == {"reasoning", "the end of a reply"}
    begun = [name for name in written if load(name).source.get("format_prefix") == [["bos_token"]]]
    assert len(begun) >= 13 and all(
        written[name]["format_prefix"] == [["bos_token"]] for name in begun
    )


@pytest.mark.law
@needs_corpus
def test_paddlenlp(sample: Any) -> None:
    rows = [row for row in corpus.lines("golden/paddlenlp.jsonl") if row["kind"] == "template"]
    found: Counter[str] = Counter()
    taken = sample(rows, 5)
    for row in taken:
        if row["t"] != "docs_custom_system":  # its Jinja is none
            found[come_back(turnwise.compile(row["config"], "paddlenlp"))[0]] += 1
    if len(taken) == len(rows):
        assert found["same"] + found["alike"] >= 10 and sum(found.values()) == len(rows) - 1
        assert found["it refuses alternating user and assistant messages"] == 3


# Stops


@pytest.mark.law
@pytest.mark.parametrize("name", IMPORTED)
def test_stops_survive_as_jinja(name: str) -> None:
    template = load(name)
    alone = as_jinja(template)
    assert tuple(alone.stops()) == tuple(template.stops())
    assert alone.translation.stop_ids == template.translation.stop_ids
    assert alone.convert("jinja") == alone.text


@pytest.mark.law
def test_stops_are_noted_where_they_cannot_be_read_off_the_text() -> None:
    assert (
        turnwise.load("fastchat:deepseek-coder")
        .convert("jinja")
        .startswith('{#- stops: "<|EOT|>" -#}\n')
    )
    noting = [name for name in IMPORTED if as_jinja(load(name)).text != load(name).text]
    assert 40 <= len(noting) <= 70, len(noting)


@pytest.mark.parametrize(
    "text",
    [
        "{%- if true %}a{% endif %}",
        "\n a{{ messages[0].role }}",
        "x",
        "",
        "\t{{ 1 }}",
        "  {% if true %}\n a{% endif %}",
    ],
)
@pytest.mark.parametrize(
    "stops", [("<|EOT|>",), ("#}", '"', "-#}", "\n"), ("###", 2, 396), ("结束",)]
)
def test_the_note_prints_nothing(text: str, stops: tuple[str | int, ...]) -> None:
    minijinja = pytest.importorskip("minijinja")
    whole = with_stop_comment(text, stops)
    template, plain = turnwise.compile(whole), turnwise.compile(text)
    assert template.translation.stops + template.translation.stop_ids == stops
    assert template.render([USER]).text == plain.render([USER]).text
    assert oracle.render(whole, [USER]) == oracle.render(text, [USER])
    engine = minijinja.Environment(trim_blocks=True, lstrip_blocks=True)
    assert engine.render_str(whole, messages=[USER]) == engine.render_str(text, messages=[USER])


@pytest.mark.parametrize(
    "note", ["{#- stops: -#}", "{#- stops: here -#}", "{#- stops: [1] -#}", "{#- stops: 1.5 -#}"]
)
def test_another_comment_is_a_comment(note: str) -> None:
    assert turnwise.compile(note + "x").translation.stops == ()


@pytest.mark.parametrize("dialect", ["xtuner", "llamafactory", "ollama", "fastchat"])
def test_declared_stops_go_into_other_dialects(dialect: str) -> None:
    source = turnwise.compile(
        with_stop_comment(turnwise.load("yi").text, ["<|im_end|>", "\nUser:"])
    )
    lost = ["empty messages", "late system text"]
    written = turnwise.compile(source.convert(dialect, without=lost), dialect)
    assert written.translation.stops == ("<|im_end|>", "\nUser:")
