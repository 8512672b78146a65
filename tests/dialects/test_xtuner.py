"""XTuner's dicts: what its code does (exact), what its documentation says (default), and its own calls.

The reference is the golden corpus, made with XTuner itself: a one-id-per-character tokenizer, its map functions and
its encoder. Segments are `[kind, text, learnt]`.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import corpus
import oracle
import turnwise
from corpus import needs_corpus
from turnwise import registry
from turnwise.compat import xtuner as compat
from turnwise.dialects import xtuner, xtuner_v1
from turnwise.dialects.turns import Slot, Turns
from turnwise.engine.provenance.rendering import Rendering
from turnwise.errors import TokenizerError
from turnwise.template import compile_jinja
from xtuner_turns import to_turns

BOS, EOS = "\ue000", "\ue001"  # one character each, in no fixture
INTERNLM = {
    "SYSTEM": "<|System|>:{system}\n",
    "INSTRUCTION": "<|User|>:{input}<eoh>\n<|Bot|>:",
    "SUFFIX": "<eoa>",
    "SUFFIX_AS_EOS": True,
    "SEP": "\n",
    "STOP_WORDS": ["<eoa>"],
}
# fmt: off
SEED_NAMES = (
    "default", "baichuan_chat", "baichuan2_chat", "chatglm2", "chatglm3", "deepseek_coder", "internlm_chat",
    "internlm2_chat", "llama2_chat", "vicuna", "mistral", "mixtral", "qwen_chat", "zephyr", "deepseek_moe", "gemma",
)
# fmt: on
NAMES = sorted(compat.PROMPT_TEMPLATE)


def chat(*texts: str, system: str | None = None) -> list[dict[str, Any]]:
    start = [] if system is None else [{"role": "system", "content": system}]
    return start + [
        {"role": "assistant" if i % 2 else "user", "content": text} for i, text in enumerate(texts)
    ]


@cache
def template(name: str, exact: bool = False) -> turnwise.Template:
    reading = xtuner.read(compat.PROMPT_TEMPLATE[name], exact=exact)
    return compile_jinja(reading.jinja, dialect="xtuner", options=reading.options)


def render(
    source: Any, messages: list[dict[str, Any]], exact: bool = False, **arguments: Any
) -> Rendering:
    reading = xtuner.read(source, exact=exact)
    return compile_jinja(reading.jinja, dialect="xtuner", options=reading.options).render(
        messages, **arguments
    )


def learnt(rendering: Rendering) -> list[str]:
    return [rendering.text[start:end] for start, end in rendering.spans(generation=True)]


def segments(rendering: Rendering) -> list[list[Any]]:
    inside = {i for start, end in rendering.spans(generation=True) for i in range(start, end)}
    kinds = {BOS: "bos", EOS: "eos"}
    found: list[list[Any]] = []
    for i, letter in enumerate(rendering.text):
        kind, mark = kinds.get(letter, "text"), i in inside
        if kind == "text" and found and found[-1][0] == kind and found[-1][2] == mark:
            found[-1][1] += letter
        else:
            found.append([kind, letter if kind == "text" else "", mark])
    return found


@cache
def golden(kind: str) -> list[dict[str, Any]]:
    return [row for row in corpus.lines("golden/xtuner.jsonl") if row["kind"] == kind]


def messages_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    return row["messages"] if "messages" in row else corpus.chats()[row["c"]].messages


# --- goldens


@needs_corpus
@pytest.mark.parametrize("name", NAMES)
def test_golden_encodes(name: str) -> None:
    rows = [row for row in golden("encode") if row["t"] == name]
    assert len(rows) == 38
    for row in rows:
        if "error" in row:
            with pytest.raises(turnwise.TurnwiseError, match="no system message"):
                template(name, exact=True).render(messages_of(row))
            continue
        rendering = template(name, exact=True).render(
            messages_of(row), bos_token=BOS, eos_token=EOS
        )
        assert segments(rendering) == row["segments"], row["c"]
        assert rendering.text == oracle.render(
            template(name, exact=True).text, messages_of(row), bos_token=BOS, eos_token=EOS
        )
        if "segments_qwen_tokenizer_class" in row:
            bare = template(name, exact=True).render(messages_of(row), bos_token="", eos_token=EOS)
            assert segments(bare) == row["segments_qwen_tokenizer_class"], row["c"]


def join_segments(mapped: Any, bos: bool = True) -> list[list[Any]]:
    """The segments, with neighbouring texts joined that are both trained or both not."""
    found: list[compat.TrainingSegment] = []
    for part in compat.segments(mapped, bos):
        last = found[-1] if found else None
        if last and last.kind == part.kind == "text" and last.learnt == part.learnt:
            found[-1] = part._replace(text=last.text + part.text)
        else:
            found.append(part)
    return [list(part) for part in found]


@needs_corpus
@pytest.mark.parametrize("name", NAMES)
def test_golden_encodes_through_the_calls(name: str) -> None:
    for row in golden("encode"):
        if row["t"] != name:
            continue
        example = compat.openai_map_fn({"messages": messages_of(row)})
        if "openai_map_fn" in row:
            assert example["conversation"] == row["openai_map_fn"]
        if "error" in row:
            with pytest.raises(turnwise.TurnwiseError, match="no system message"):
                compat.template_map_fn(example, name)
            continue
        mapped = compat.template_map_fn(example, compat.PROMPT_TEMPLATE[name])
        assert join_segments(mapped) == row["segments"], row["c"]
        if "segments_qwen_tokenizer_class" in row:
            assert join_segments(mapped, bos=False) == row["segments_qwen_tokenizer_class"]


@needs_corpus
def test_golden_templates() -> None:
    """27 prompt templates and 8 system texts, and those of v1 that are texts."""
    rows = [row for row in golden("template") if row["api"] == "PROMPT_TEMPLATE"]
    assert {row["t"]: row["fields"] for row in rows} == dict(compat.PROMPT_TEMPLATE)
    assert {row["t"]: row["text"] for row in golden("system_template")} == dict(
        compat.SYSTEM_TEMPLATE
    )
    assert (len(compat.PROMPT_TEMPLATE), len(compat.SYSTEM_TEMPLATE)) == (27, 8)


@needs_corpus
def test_golden_v1() -> None:
    fields = {
        row["t"]: row["fields"] for row in golden("template") if row["api"] != "PROMPT_TEMPLATE"
    }
    with_user = {name for name, given in fields.items() if "user" in given}
    templates = {
        name: compile_jinja(xtuner_v1.read(fields[name], exact=True).jinja, dialect="xtuner")
        for name in with_user
    }
    for name in set(fields) - with_user:
        with pytest.raises(turnwise.SourceError, match="'user' is missing"):
            xtuner_v1.read(fields[name])
    for row in golden("v1"):
        if row["t"] not in with_user:
            assert "error" in row
            continue
        given = corpus.chats()[row["c"]]
        found = templates[row["t"]]
        if "error" in row:
            with pytest.raises(turnwise.TurnwiseError):
                found.render(as_v1(given.messages), tools=given.arguments.get("tools"))
            continue
        rendering = found.render(as_v1(given.messages), tools=given.arguments.get("tools"))
        assert rendering.text == row["text"], (row["t"], row["c"])
        assert [list(span) for span in rendering.spans(generation=True)] == row["trainable"], (
            row["t"],
            row["c"],
        )


def as_v1(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """XTuner ignores `reasoning_content`, which is `thinking` to us, and spells arguments anew, which Jinja cannot."""
    found = json.loads(json.dumps(messages))
    for message in found:
        if "reasoning_content" in message:
            message["thinking"] = None
        for call in message.get("tool_calls") or ():
            function = call.get("function", {})
            if isinstance(function.get("arguments"), str):
                function["arguments"] = json.dumps(
                    json.loads(function["arguments"]), ensure_ascii=False
                )
    return found


def test_v1_entries_read_and_render() -> None:
    data = json.loads(
        (corpus.ROOT / "src/turnwise/registry/entries/xtuner_v1.json").read_text(encoding="utf-8")
    )
    assert len(data["entries"]) == 8
    for name, source in data["entries"].items():
        reading = xtuner_v1.read(source)
        rendering = compile_jinja(reading.jinja, dialect="xtuner").render(
            chat("q", "a"), now=corpus.NOW
        )
        assert rendering.text == oracle.render(reading.jinja, chat("q", "a")), name
        assert rendering.text.endswith("".join(learnt(rendering)))
        assert reading.facts["template"] == source and reading.stops == tuple(source["stop_words"])
    assert (
        "Current date: 2025-01-15\n"
        in compile_jinja(xtuner_v1.read(data["entries"]["gpt-oss"]).jinja, dialect="xtuner")
        .render(chat("q"), now=corpus.NOW)
        .text
    )


def test_v1_default_is_kind() -> None:
    source = {
        "user": "<u>{user}<a>",
        "assistant": "{assistant}<end>",
        "sep": "\n",
        "stop_words": ["<return>"],
        "loss_assistant_format_mapping": {"<end>": "<return>"},
    }
    reply = chat("q", "say <end>")
    plain = compile_jinja(xtuner_v1.read(source).jinja, dialect="xtuner")
    exact = compile_jinja(xtuner_v1.read(source, exact=True).jinja, dialect="xtuner")
    assert plain.render(reply).text == "<u>q<a>say <end><return>"
    assert plain.render(reply, trailing_sep=True).text == "<u>q<a>say <end><return>\n"
    assert exact.render(reply).text == "<u>q<a>say <return><return>\n"
    call = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    calls = [*chat("q"), {"role": "assistant", "content": "", "tool_calls": [call]}]
    text = '<u>q<a><tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call><return>'
    assert plain.render(calls).text == text
    with pytest.raises(turnwise.TurnwiseError, match="arguments must be JSON text"):
        exact.render(calls)


# --- the example of its documentation


def test_the_six_keys() -> None:
    """The seed's dict is taken, known, and our internlm_chat."""
    assert xtuner.knows(INTERNLM) and dict(compat.PROMPT_TEMPLATE.internlm_chat) == INTERNLM
    assert xtuner.read(INTERNLM).facts["template"] == INTERNLM
    with pytest.raises(turnwise.SourceError, match="unknown key 'SUFIX'") as error:
        xtuner.read({**INTERNLM, "SUFIX": ""})
    assert "Did you mean 'SUFFIX'" in str(error.value)


def test_a_wrong_key_is_found_in_its_template(tmp_path: Path) -> None:
    """Whether it has a name, a file or an entry, that is what the error begins with."""
    wrong = {**INTERNLM, "SUFIX": ""}
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(wrong), encoding="utf-8")
    turnwise.register("wrong-key", wrong, dialect="xtuner")
    try:
        places = {
            "mine": lambda: turnwise.compile(wrong, dialect="xtuner", name="mine"),
            str(file): lambda: turnwise.load(file),
            "wrong-key": lambda: turnwise.load("wrong-key"),
        }
        for place, asked in places.items():
            with pytest.raises(turnwise.SourceError) as error:
                asked()
            assert error.value.message == f"{place}: unknown key 'SUFIX'"
    finally:
        registry.unregister("wrong-key")


def test_system_and_instruction() -> None:
    """The system text once and first, or not at all; the user's text in INSTRUCTION."""
    messages = chat("hi", "ho", "hi", "ho", "hi", "ho", system="S")
    text = render(INTERNLM, messages).text
    assert text.startswith("<|System|>:S\n") and text.count("<|System|>") == 1
    assert "<|User|>:hi<eoh>\n<|Bot|>:" in text
    assert render(INTERNLM, chat("hi")).text == "<|User|>:hi<eoh>\n<|Bot|>:"
    for exact in (False, True):
        assert render(INTERNLM, chat("hi", "ho", system=""), exact=exact).text.startswith(
            "<|User|>:hi"
        )


def test_round_and_bot_name() -> None:
    """`{round}` counts from 1, `{bot_name}` is an option."""
    text = template("chatglm2").render(chat("q", "a", "q2", system="S")).text
    assert text == "S\n[Round 1]\n\n问：q\n\n答：a\n\n[Round 2]\n\n问：q2\n\n答："
    source = {"INSTRUCTION": "{input} {bot_name}{round}:"}
    assert xtuner.read(source).options == {"bot_name": "BOT"}
    assert render(source, chat("q")).text == "q BOT1:"
    assert render(source, chat("q"), bot_name="MOSS").text == "q MOSS1:"


def test_suffix_and_eos() -> None:
    """SUFFIX after every answer; eos_token unless SUFFIX stands for it; both learnt."""
    messages = chat("q", "a", "q", "b")
    assert learnt(render(INTERNLM, messages, eos_token="</s>")) == ["a<eoa>", "b<eoa>"]
    assert learnt(template("zephyr").render(messages, eos_token="</s>")) == ["a</s>", "b</s>"]
    assert learnt(template("gemma").render(messages, eos_token="<eos>")) == [
        "a<end_of_turn><eos>",
        "b<end_of_turn><eos>",
    ]
    assert learnt(render({"INSTRUCTION": "{input}"}, messages)) == ["a", "b"]


def test_sep() -> None:
    """Between rounds, not learnt; after the last only when asked for, or exact."""
    messages = chat("q", "a", "q2", "b")
    text = render(INTERNLM, messages).text
    assert text == "<|User|>:q<eoh>\n<|Bot|>:a<eoa>\n<|User|>:q2<eoh>\n<|Bot|>:b<eoa>"
    assert render(INTERNLM, messages, trailing_sep=True).text == text + "\n"
    assert render(INTERNLM, messages, exact=True).text == text + "\n"


def test_stop_words() -> None:
    """STOP_WORDS, and the tokenizer's eos_token unasked."""
    assert xtuner.read(INTERNLM).stops == ("<eoa>",)
    assert compat.load("internlm_chat").stops() == ("<eoa>",)


def test_the_seed_s_results() -> None:
    """One round and three, as printed."""
    one = "<|System|>:{system}\n<|User|>:{input}<eoh>\n<|Bot|>:{output}<eoa>"
    more = "\n<|User|>:{input}<eoh>\n<|Bot|>:{output}<eoa>"
    assert render(INTERNLM, chat("{input}", "{output}", system="{system}")).text == one
    assert (
        render(INTERNLM, chat(*["{input}", "{output}"] * 3, system="{system}")).text
        == one + more * 2
    )


def test_output_with_loss() -> None:
    """A turn that is not to be learnt is not."""
    rounds = [
        {"input": "q", "output": "a", "output_with_loss": False},
        {"input": "q", "output": "b"},
    ]
    mapped = compat.template_map_fn({"conversation": rounds}, "zephyr")
    assert [part[1] for part in compat.segments(mapped) if part[2]] == ["b", ""]
    messages = chat("q", "a", "q", "b")
    for loss, expected in (
        (False, ["b"]),
        ("False", ["b"]),
        ("true", ["a", "b"]),
        (True, ["a", "b"]),
    ):
        messages[1]["loss"] = loss
        assert learnt(render({"INSTRUCTION": "{input}"}, messages, exact=True)) == expected
        assert compat.openai_map_fn({"messages": messages})["conversation"][0][
            "output_with_loss"
        ] is (len(expected) > 1)


@pytest.mark.parametrize("name", SEED_NAMES)
def test_the_seed_s_names(name: str) -> None:
    """Each of the table's templates renders three rounds, here and in transformers."""
    messages = chat("1", "a", "2", "b", "3", "c", system="S")
    rendering = template(name).render(messages, bos_token="<s>", eos_token="</s>")
    assert [text[0] for text in learnt(rendering)] == ["a", "b", "c"]
    assert rendering.text == oracle.render(
        template(name).text, messages, bos_token="<s>", eos_token="</s>"
    )


def test_one_system_text_first() -> None:
    """Messages may have one, first; XTuner's code takes one in any round, and so does the exact template."""
    late = [*chat("q", "a"), {"role": "system", "content": "S"}, *chat("q2", "b")]
    with pytest.raises(turnwise.TurnwiseError, match="one system message at most, first"):
        render(INTERNLM, late)
    assert "<eoa>\n<|System|>:S\n<|User|>:q2" in render(INTERNLM, late, exact=True).text


def test_bos() -> None:
    """Once; exactly, again after each eos_token."""
    messages = chat("q", "a", "q", "b")
    assert template("zephyr").render(messages, bos_token="<s>").text.count("<s>") == 1
    assert template("zephyr", exact=True).render(messages, bos_token="<s>").text.count("<s>") == 2
    assert (
        template("internlm_chat", exact=True).render(messages, bos_token="<s>").text.count("<s>")
        == 1
    )


def test_pending_turn() -> None:
    """A prompt ends with the opening, exact only with add_generation_prompt: training drops an unanswered question."""
    messages = chat("q", "a", "q2", system="S")
    prompt = render(INTERNLM, messages).text
    assert prompt.endswith("<|User|>:q2<eoh>\n<|Bot|>:")
    assert render(INTERNLM, messages, add_generation_prompt=True).text == prompt
    assert render(INTERNLM, messages, exact=True, add_generation_prompt=True).text == prompt
    assert render(INTERNLM, messages, exact=True).text == prompt.removesuffix(
        "<|User|>:q2<eoh>\n<|Bot|>:"
    )
    answered = render(INTERNLM, [*messages, {"role": "assistant", "content": "b"}]).text
    assert answered.startswith(prompt)


@pytest.mark.parametrize(
    "messages",
    [
        chat("q", "a")[::-1],
        [*chat("q"), *chat("q", "a")],
        [*chat("q"), {"role": "tool", "content": "x"}],
        [*chat("q"), {"role": "assistant", "content": None}],
        [
            *chat("q"),
            {"role": "assistant", "content": "a", "tool_calls": [{"function": {"name": "f"}}]},
        ],
    ],
)
def test_what_has_no_place_is_refused(messages: list[dict[str, Any]]) -> None:
    with pytest.raises(turnwise.TurnwiseError):
        template("zephyr").render(messages)


def test_system_texts_by_name() -> None:
    """A text of SYSTEM_TEMPLATE stands where the conversation brings none."""
    source, text = compat.PROMPT_TEMPLATE.moss_sft, compat.SYSTEM_TEMPLATE.moss_sft
    for exact in (False, True):
        reading = xtuner.read(source, exact=exact, system=text)
        found = compile_jinja(reading.jinja, dialect="xtuner", options=reading.options)
        rendered = found.render(chat("q", "a")).text
        assert (
            rendered.startswith("You are an AI assistant whose name is BOT.\n")
            and "that BOT can possess" in rendered
        )
        assert "whose name is MOSS." in found.render(chat("q", "a"), bot_name="MOSS").text
        assert "whose name" not in found.render(chat("q", "a", system="S")).text
    with pytest.raises(turnwise.SourceError, match="no SYSTEM"):
        xtuner.read(compat.PROMPT_TEMPLATE.minicpm, system="S")


@pytest.mark.parametrize("name", NAMES)
def test_round_trip(name: str) -> None:
    source = dict(compat.PROMPT_TEMPLATE[name])
    assert xtuner.read(source).facts["template"] == source
    assert xtuner.read(source, exact=True).facts["template"] == source
    written = xtuner.write(to_turns(source))[0]
    assert written == {
        key: value for key, value in source.items() if value != xtuner.DEFAULTS.get(key)
    }
    assert xtuner.read(written).jinja == xtuner.read(source).jinja


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(INTERNLM),
        repr(INTERNLM),
        "chat = dict(\n    SYSTEM='<|System|>:{system}\\n',\n    INSTRUCTION='<|User|>:{input}<eoh>\\n<|Bot|>:',\n"
        "    SUFFIX='<eoa>',\n    SUFFIX_AS_EOS=True,\n    SEP='\\n',\n    STOP_WORDS=['<eoa>'])",
    ],
)
def test_the_text_of_a_dict(text: str) -> None:
    assert xtuner.knows(text) and xtuner.read(text).jinja == xtuner.read(INTERNLM).jinja
    assert xtuner.read(text).facts["template"] == INTERNLM


def test_escapes_of_json() -> None:
    text = json.dumps({"INSTRUCTION": "{input}😀/"}).replace("/", "\\/")
    assert "\\ud83d" in text and xtuner.read(text).facts["template"] == {
        "INSTRUCTION": "{input}😀/"
    }
    assert (
        not xtuner.knows("{{ INSTRUCTION }}")
        and not xtuner.knows("INSTRUCTION = 3")
        and not xtuner.knows(None)
    )


def test_braces_are_text_when_doubled() -> None:
    source = {"INSTRUCTION": "{{{input}}} {{% raw %}} {{{{x}}}}'\"\\\r\n"}
    text = render(source, chat("q {round}")).text
    assert text == source["INSTRUCTION"].format(input="q {round}")
    assert xtuner.write(to_turns(source)) == [source]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({"SYSTEM": "{system}"}, "'INSTRUCTION' is missing"),
        ({"INSTRUCTION": "hello"}, "INSTRUCTION has no {input}"),
        ({"INSTRUCTION": "{inputs}"}, "Did you mean 'input'"),
        ({"INSTRUCTION": "{input}", "SYSTEM": "{sys}"}, "SYSTEM has the unknown placeholder {sys}"),
        ({"INSTRUCTION": "{input}", "SYSTEM": "fixed"}, "SYSTEM has no {system}"),
        ({"INSTRUCTION": 3}, "INSTRUCTION must be a string, not 3"),
        (
            {"INSTRUCTION": "{input}", "SUFFIX_AS_EOS": "yes"},
            "SUFFIX_AS_EOS must be true or false, not 'yes'",
        ),
        (
            {"INSTRUCTION": "{input}", "STOP_WORDS": "</s>"},
            "STOP_WORDS must be a list of strings, not '</s>'",
        ),
        ({"INSTRUCTION": "{input}", "STOP_WORDS": [2]}, "STOP_WORDS[0] must be a string, not 2"),
        ({"INSTRUCTION": "{input}", 7: ""}, "unknown key 7"),
        ({"instruction": "{input}"}, "unknown key 'instruction'"),
        ("dict(INSTRUCTION=open('x'))", "not an XTuner dict"),
        ("INSTRUCTION", "not an XTuner dict"),
        ("{", "not an XTuner dict"),
        ([1], "not list"),
    ],
)
def test_bad_sources(source: Any, problem: str) -> None:
    with pytest.raises(turnwise.SourceError) as error:
        xtuner.read(source)
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (
            {"user": "{user}", "assistant": "{assistant}", "stopwords": []},
            "Did you mean 'stop_words'",
        ),
        (
            {"user": "{input}", "assistant": "{assistant}"},
            "user has the unknown placeholder {input}",
        ),
        ({"user": "hi", "assistant": "{assistant}"}, "user has no {user}"),
        ({"user": "{user}", "assistant": 1}, "assistant must be a string, not 1"),
        (
            {"user": "{user}", "assistant": "{assistant}", "stop_words": "x"},
            "stop_words must be a list of strings",
        ),
        (
            {"user": "{user}", "assistant": "{assistant}", "only_last_assistant_loss": 1},
            "must be true or false",
        ),
        ({"user": "{user}"}, "'assistant' is missing"),
        ("user", "is a JSON object"),
    ],
)
def test_bad_v1_sources(source: Any, problem: str) -> None:
    with pytest.raises(turnwise.SourceError) as error:
        xtuner_v1.read(source)
    assert problem in str(error.value)


def test_turns_that_a_dict_cannot_say() -> None:
    """What it has no place for is left out; `convert` compares, and says so."""
    user = ("x", Slot("text"))
    assert xtuner.write(Turns(user=user, prefix="<bos>", default_system="D")) == xtuner.write(
        Turns(user=user)
    )


# --- its own calls


class XTunerLetters:
    """One id per character, as the corpus was made."""

    bos_token_id, eos_token_id = 1, 2

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        assert not add_special_tokens
        return [ord(letter) for letter in text]


class QWenTokenizer(XTunerLetters):
    bos_token_id = None  # type: ignore[assignment]


def ids(text: str) -> list[int]:
    return [{"^": 1, "$": 2, "@": -200}.get(letter, ord(letter)) for letter in text]


def test_encode_fn() -> None:
    """Ids and labels; learnt are the answer, SUFFIX and eos, and nothing else."""
    rounds = [
        {"input": "q", "output": "a"},
        {"input": "r", "output": "", "output_with_loss": False},
    ]
    source = {"INSTRUCTION": "[{input}]", "SUFFIX": ";", "SEP": "\n"}
    mapped = compat.template_map_fn_factory(source)({"conversation": rounds})
    found = compat.encode_fn(mapped, XTunerLetters(), 99)
    assert found["input_ids"] == ids("^[q]a;$\n^[r];$\n")
    assert found["labels"] == [-100] * 4 + ids("a;$") + [-100] * 8
    short = compat.encode_fn(mapped, QWenTokenizer(), 5)
    assert short == {"input_ids": ids("[q]a;"), "labels": [-100] * 3 + ids("a;")}
    with pytest.raises(turnwise.MessageError, match="several rounds"):
        compat.encode_fn(mapped, XTunerLetters(), 9, input_ids_with_output=False)
    one = compat.template_map_fn({"conversation": [{"system": None, "input": "<image>x"}]}, source)
    assert compat.encode_fn(one, XTunerLetters(), 99, False, True)["input_ids"] == ids("^[@x]")
    two = compat.template_map_fn({"conversation": [{"input": "<image><image>"}]}, source)
    with pytest.raises(turnwise.MessageError, match="found 2"):
        compat.encode_fn(two, XTunerLetters(), 99, False, True)


def test_names_are_attributes_and_paths() -> None:
    assert compat.PROMPT_TEMPLATE.internlm_chat.SUFFIX == "<eoa>"
    path = "xtuner.utils.PROMPT_TEMPLATE.internlm_chat"
    mapped = compat.template_map_fn_factory(path)({"conversation": [{"input": "q", "output": "a"}]})
    assert mapped["conversation"][0]["output"] == "a<eoa>"
    with pytest.raises(AttributeError, match="Did you mean 'internlm_chat'"):
        compat.PROMPT_TEMPLATE.internlm_chta  # noqa: B018
    with pytest.raises(turnwise.MessageError, match="internlm_chta") as error:
        compat.template_map_fn({}, "internlm_chta")
    assert "Did you mean 'internlm_chat'" in str(error.value)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (
            {"role": "tool", "content": "x"},
            "messages[1].role: XTuner does not know the role 'tool'",
        ),
        (
            {"role": "user", "content": None},
            "messages[1].content: must be text, not NoneType: None",
        ),
    ],
)
def test_bad_messages(message: dict[str, Any], problem: str) -> None:
    with pytest.raises(turnwise.MessageError) as error:
        compat.openai_map_fn({"messages": [*chat("q"), message]})
    assert problem in str(error.value)


# --- ids


@needs_corpus
def test_ids_of_every_golden_segment(tokenizers: Any) -> None:
    """Whatever the tokenizer: each segment encoded by itself, bos and eos by id, labels where the segment is learnt."""
    rows = [row for row in golden("encode") if "error" not in row]
    for name in ("qwen2_5", "llama3", "mistral_v0_1"):
        known = tokenizers(name)
        marks = {kind: known.id(known.named.get(f"{kind}_token", "")) for kind in ("bos", "eos")}
        for row in rows[::7]:
            mapped = compat.template_map_fn(
                compat.openai_map_fn({"messages": messages_of(row)}), row["t"]
            )
            found = compat.encode_fn(mapped, known, 10**6)
            ids: list[int] = []
            labels: list[int] = []
            for kind, text, trained in compat.segments(mapped):
                new = (
                    known.whole(text)
                    if kind == "text"
                    else [id for id in [marks[kind]] if id is not None]
                )
                ids, labels = (
                    ids + new,
                    labels + (new if trained else [compat.IGNORE_INDEX] * len(new)),
                )
            assert found == {"input_ids": ids, "labels": labels}, (name, row["t"], row["c"])
            cut = compat.encode_fn(mapped, known, 9)
            assert cut == {"input_ids": ids[:9], "labels": labels[:9]}


@needs_corpus
def test_what_ends_an_answer_in_ids(tokenizers: Any) -> None:
    """The suffix or eos is learnt with the answer; SEP never; nothing if a turn says so."""
    known = tokenizers("mistral_v0_1")
    eos = known.id("</s>")

    def encode_turn(name: str, **turn: Any) -> dict[str, list[int]]:
        example = {"conversation": [{"system": "", "input": "q", "output": "a", **turn}]}
        return compat.encode_fn(compat.template_map_fn(example, name), known, 100)

    zephyr, internlm = encode_turn("zephyr"), encode_turn("internlm_chat")
    assert [id for id in zephyr["labels"] if id != -100][-1] == eos
    assert eos not in internlm["input_ids"]
    learnt = [id for id in internlm["labels"] if id != -100]
    assert learnt == known.whole("a<eoa>") and internlm["labels"][-1] == -100
    assert set(encode_turn("zephyr", output_with_loss=False)["labels"]) == {-100}


@needs_corpus
def test_ids_are_the_same_from_any_tokenizer(tokenizers: Any) -> None:
    """A folder, the library's object, and transformers' object."""
    transformers = pytest.importorskip("transformers")
    library = pytest.importorskip("tokenizers")
    folder = corpus.tokenizer_folder("llama3")
    file = str(folder / "tokenizer.json")
    named = {"bos_token": "<|begin_of_text|>", "eos_token": tokenizers("llama3").named["eos_token"]}
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=file, **named)
    example = {
        "conversation": [
            {"system": "s", "input": "q", "output": "a"},
            {"input": "q2", "output": "a2"},
        ]
    }
    mapped = compat.template_map_fn(example, "llama3_chat")
    given = (folder, tokenizers("llama3"), theirs)
    first, *rest = [compat.encode_fn(mapped, one, 100) for one in given]
    assert rest == [first] * 2 and first["input_ids"][0] == tokenizers("llama3").id(
        "<|begin_of_text|>"
    )
    bare = library.Tokenizer.from_file(
        file
    )  # knows no names: bos is left out, eos is not needed here
    assert compat.encode_fn(mapped, bare, 100)["input_ids"] == first["input_ids"][1:]
    with pytest.raises(TokenizerError, match="has no eos token"):
        compat.encode_fn(
            compat.template_map_fn({"conversation": [{"input": "q", "output": "a"}]}, "zephyr"),
            bare,
            9,
        )
