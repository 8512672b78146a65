"""PaddleNLP's chat_template.json: the one Jinja that it becomes, and PaddleNLP's own calls.

The reference is the golden corpus, made with PaddleNLP itself: prompts (`infer`), training parts (`encode`), training
text with what is learnt (`train`), and the same cut to a length (`train_truncated`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import corpus
import oracle
import turnwise
from corpus import needs_corpus
from turnwise import registry
from turnwise.compat import paddlenlp as compat
from turnwise.dialects import paddlenlp, xtuner
from turnwise.dialects.turns import Slot, Turns
from turnwise.engine.provenance.rendering import Rendering
from turnwise.template import compile_jinja
from xtuner_turns import to_turns

EXAMPLE = {
    "system": "You are an AI assistant with a witty sense of humor, "
    "typically preferring to communicate in a literary style.",
    "conversation": ["[Round {{index}}]\nQuestion: {{user}}\n", "Answer: {{bot}}\n"],
    "query": "[Round {{index}}]\nQuestion: {{query}}\nAnswer:",
}
ROUNDS = [["1+1=", "1+1=2"], ["Add one more"]]
ADDED = (
    EXAMPLE["system"]
    + "[Round 0]\nQuestion: 1+1=\nAnswer: 1+1=2\n[Round 1]\nQuestion: Add one more\nAnswer:"
)
FLAGS = "({{index}} {{is_first}} {{is_last}} {{length}} {{is_training}})"


def as_messages(rounds: list[list[str]], system: str | None = None) -> list[dict[str, Any]]:
    start = [] if system is None else [{"role": "system", "content": system}]
    return start + compat.as_messages(rounds)


def render(source: Any, messages: Any, exact: bool = False, **arguments: Any) -> Rendering:
    return compile_jinja(paddlenlp.read(source, exact=exact).jinja, dialect="paddlenlp").render(
        messages, **arguments
    )


def segments(rendering: Rendering) -> list[list[Any]]:
    inside = {i for start, end in rendering.spans(generation=True) for i in range(start, end)}
    found: list[list[Any]] = []
    for i, letter in enumerate(rendering.text):
        if found and found[-1][1] == (i in inside):
            found[-1][0] += letter
        else:
            found.append([letter, i in inside])
    return found


def join_parts(parts: list[tuple[str, bool]]) -> list[list[Any]]:
    found: list[list[Any]] = []
    for text, mark in parts:
        if found and found[-1][1] == mark:
            found[-1][0] += text
        else:
            found.append([text, mark])
    return found


@cache
def golden() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in corpus.lines("golden/paddlenlp.jsonl"):
        found.setdefault(row["kind"], []).append(row)
    return found


@cache
def rounds() -> dict[str, list[list[str]]]:
    return {row["c"]: row["rounds"] for row in golden()["render"] if "rounds" in row}


@cache
def configs() -> dict[str, dict[str, Any]]:
    return {row["t"]: row["config"] for row in golden().get("template", ())}


def golden_rows(name: str) -> list[dict[str, Any]]:
    rows = [row for row in golden()["render"] if row["t"] == name]
    assert len(rows) == 35
    return rows


# --- goldens


@needs_corpus
@pytest.mark.parametrize("name", sorted(configs()))
def test_golden_prompts_and_training(name: str) -> None:
    """The Jinja, in our engine and in transformers."""
    if name == "docs_custom_system":
        with pytest.raises(
            turnwise.SourceError, match="system is not Jinja: expected token 'name', got 'string'"
        ) as error:
            paddlenlp.read(configs()[name])
        assert "write default('...')" in str(error.value)
        return
    template = compile_jinja(paddlenlp.read(configs()[name], exact=True).jinja, dialect="paddlenlp")
    for row in golden_rows(name):
        given, system = rounds()[row["c"]], row["context"].get("system")
        asked = as_messages([*given[:-1], given[-1][:1]], system)
        calls: list[tuple[Any, list[dict[str, Any]], dict[str, Any]]] = [
            (
                row.get("infer", {"error": row.get("infer_error")}),
                asked,
                {"add_generation_prompt": True},
            )
        ]
        if "train" in row:
            calls.append((row["train"], as_messages(given, system), {"is_training": True}))
        for expected, messages, arguments in calls:
            if isinstance(expected, dict):
                with pytest.raises(turnwise.TurnwiseError):
                    template.render(messages, **arguments)
                continue
            rendering = template.render(messages, **arguments)
            found: Any = rendering.text if isinstance(expected, str) else segments(rendering)
            assert found == expected, row["c"]
            assert rendering.text == oracle.render(template.text, messages, **arguments)


@needs_corpus
@pytest.mark.parametrize("name", sorted(configs()))
def test_golden_calls(name: str) -> None:
    """ChatTemplate, encode_chat_inputs and the truncation, with exact."""
    chat = compat.Chat(configs()[name], exact=True)
    for row in golden_rows(name):
        given, context = rounds()[row["c"]], dict(row["context"])
        training = {**context, "is_training": True}
        agrees(
            row.get("infer", row),
            lambda given, context: chat.apply_chat_template(given, False, context),
            given,
            context,
        )
        for key in ("encode", "train", "train_truncated"):
            if key in row:
                agrees(row[key], partial(list_trained, chat, key, row), given, training)
        assert context == row["context"] and "length" not in training


def agrees(expected: Any, call: Callable[[Any, Any], Any], *arguments: Any) -> None:
    if "segments" in expected:
        expected = expected["segments"]
    if "error" in expected or "infer_error" in expected:
        with pytest.raises(turnwise.TurnwiseError):
            call(*arguments)
    else:
        assert call(*arguments) == expected


def list_trained(chat: compat.Chat, key: str, row: dict[str, Any], given: Any, context: Any) -> Any:
    parts = chat.encode_chat_inputs(given, context, tokenize=False)
    if key == "encode":
        return parts
    limits = row[key] if key == "train_truncated" else {"max_length": 10**9, "src_length": 10**9}
    return join_parts(
        compat.truncate_rounds(parts, limits["max_length"], limits["src_length"], exact=True)
    )


@needs_corpus
def test_golden_jinja() -> None:
    """A Jinja template given to PaddleNLP's calls, and its rounds for training; an empty answer is no error here."""
    rows = [row for row in golden()["jinja"] if row["t"] in corpus.load_published()]
    assert len(rows) >= 20
    for row in rows:
        chat = compat.Chat(corpus.load_published()[row["t"]].text)
        chat.special_tokens_map = {"bos_token": "<s>", "eos_token": "</s>"}
        given = rounds()[row["c"]]
        assert chat.apply_chat_template(given, tokenize=False) == row["infer"], (row["t"], row["c"])
        if "encode" not in row:
            continue
        if "error" not in row["encode"]:
            found = chat.encode_chat_inputs(given, tokenize=False)["conversations"]
            assert found == row["encode"], (row["t"], row["c"])
        elif row["t"] == "npm-llama3":  # writes the assistant's opening after answers too
            with pytest.raises(
                turnwise.MessageError, match=r"rounds\[1\]: with this template an answer does not"
            ):
                chat.encode_chat_inputs(given, tokenize=False)
        else:
            texts = [
                text
                for turn in chat.encode_chat_inputs(given, tokenize=False)["conversations"]
                for text in turn
            ]
            assert row["infer"].startswith("".join(texts))


@needs_corpus
def test_nothing_leaks_between_calls() -> None:
    """The original's second answer differs from its first; ours is the first, each time."""
    (row,) = golden()["state_leak"]
    chat = compat.Chat(configs()[row["t"]], exact=True)
    assert row["first"] != row["second"]
    for _ in range(2):
        assert chat.apply_chat_template("q1", tokenize=False) == row["first"]
        chat.apply_chat_template([["q1", "a1"], ["q2"]], tokenize=False)


# --- the example of its documentation


def test_a_text_and_rounds() -> None:
    """A text is one round; the prompt is system + rounds + query; index from 0."""
    chat = compat.Chat(EXAMPLE)
    assert chat.apply_chat_template("hi", tokenize=False) == chat.apply_chat_template(
        [["hi"]], tokenize=False
    )
    text = chat.apply_chat_template(ROUNDS, tokenize=False)
    assert isinstance(text, str) and text == ADDED
    template = compat.ChatTemplate.from_dict(EXAMPLE)
    history = "".join(template.render_conversation(ROUNDS[0], 0))
    assert text == template.render_system() + history + template.render_query(ROUNDS[1][0], 1)
    assert render(EXAMPLE, as_messages(ROUNDS), add_generation_prompt=True).text == text


def test_files(tmp_path: Path) -> None:
    """Written and found under its name; init takes a path, a folder, a dict, Jinja."""
    path = compat.ChatTemplate.from_dict(EXAMPLE).save(tmp_path)
    assert (
        path.name == "chat_template.json"
        and json.loads(path.read_text(encoding="utf-8")) == EXAMPLE
    )
    for source in (str(path), path, tmp_path, EXAMPLE, compat.ChatTemplate(**EXAMPLE)):
        chat = compat.Chat()
        chat.init_chat_template(source)
        assert chat.apply_chat_template(ROUNDS, tokenize=False) == ADDED
    chat.init_chat_template("{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}")
    assert (
        chat.apply_chat_template(ROUNDS, tokenize=False)
        == "user:1+1=;assistant:1+1=2;user:Add one more;"
    )
    assert chat.apply_chat_template("hi", tokenize=False) == "user:hi;"
    assert paddlenlp.read(path.read_text(encoding="utf-8")).jinja == paddlenlp.read(EXAMPLE).jinja


def test_rounds_may_count_from_one() -> None:
    """`index` is 0 in the first round, as in PaddleNLP; a template that wants another start says so."""
    source = {
        "conversation": ["[Round {{index + 1}}]{{user}}", "{{bot}}"],
        "query": "[Round {{index + 1}}]{{query}}",
    }
    text = "[Round 1]1+1=1+1=2[Round 2]Add one more"
    assert compat.Chat(source).apply_chat_template(ROUNDS, tokenize=False) == text
    assert render(source, as_messages(ROUNDS), add_generation_prompt=True).text == text


def test_a_folder_is_loaded(tmp_path: Path) -> None:
    """`load` finds the file too; it counts before a tokenizer's own template, and a warning says so."""
    path = compat.ChatTemplate.from_dict(EXAMPLE).save(tmp_path)
    for place in (tmp_path, path):
        found = registry.find_source(place)
        assert (found.dialect, found.warning) == ("paddlenlp", None)
        assert (
            turnwise.load(place).render(as_messages(ROUNDS), add_generation_prompt=True).text
            == ADDED
        )
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"eos_token": "</s>"}), encoding="utf-8")
    assert registry.find_source(tmp_path).dialect == "paddlenlp"
    config.write_text(json.dumps({"chat_template": "{{ messages }}"}), encoding="utf-8")
    found = registry.find_source(tmp_path)
    assert found.dialect == "paddlenlp"
    assert (
        found.warning
        == f"the chat_template of {config} is ignored: chat_template.json is PaddleNLP's"
    )
    with pytest.warns(turnwise.TurnwiseWarning, match="is ignored: chat_template.json is Paddle"):
        loaded = turnwise.load(tmp_path)
    assert loaded.render(as_messages(ROUNDS), add_generation_prompt=True).text == ADDED
    # A processor's file of the same name is transformers', and so is its order.
    path.write_text(json.dumps({"chat_template": "{{ 1 }}"}), encoding="utf-8")
    assert registry.find_source(tmp_path).text == "{{ messages }}"
    path.write_text(json.dumps(EXAMPLE), encoding="utf-8")
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0] }}", encoding="utf-8")
    found = registry.find_source(tmp_path)
    assert found.text == "{{ messages[0] }}"
    assert found.warning == f"{path} is ignored: there is chat_template.jinja"


def test_what_is_learnt() -> None:
    """System and user are not learnt, the bot's part is, and training never uses `query`."""
    found = render(EXAMPLE, as_messages([["1+1=", "2"], ["q", "a"]]))
    assert [text for text, mark in segments(found) if mark] == ["Answer: 2\n", "Answer: a\n"]
    no_query = {**EXAMPLE, "query": "{{ query }}{{ raise_exception('query') }}"}
    assert (
        render(no_query, as_messages([["q", "a"]])).text
        == render(EXAMPLE, as_messages([["q", "a"]])).text
    )
    assert compat.Chat(no_query).encode_chat_inputs([["q", "a"]], tokenize=False) == {
        "system": EXAMPLE["system"],
        "conversations": [["[Round 0]\nQuestion: q\n", "Answer: a\n"]],
    }
    with pytest.raises(turnwise.TurnwiseError, match="query"):
        compat.Chat(no_query).apply_chat_template("q", tokenize=False)


def test_context_and_flags() -> None:
    """Jinja everywhere, with context; flags mean one thing in every field, in the template and in the calls."""
    source = {
        "system": "{{mood}} {{length}};",
        "conversation": [FLAGS + "{{user}}|", "{{bot}};"],
        "query": FLAGS + "{{query}}|",
    }
    chat = compat.Chat(source)
    text = chat.apply_chat_template(
        [["q", "a"], ["r"]], tokenize=False, context_data={"mood": "dry"}
    )
    assert text == "dry 2;(0 True False 2 False)q|a;(1 False True 2 False)r|"
    asked = as_messages([["q", "a"], ["r"]])
    assert render(source, asked, add_generation_prompt=True, mood="dry").text == text
    with pytest.warns(turnwise.TurnwiseWarning, match=r"system writes {{mood}}"):
        assert chat.apply_chat_template("q", tokenize=False) == " 1;(0 True True 1 False)q|"
    training = {"is_training": True, "mood": ""}
    parts = chat.encode_chat_inputs([["q", "a"], ["r", "b"]], training, tokenize=False)
    assert parts["conversations"] == [
        ["(0 True False 2 True)q|", "a;"],
        ["(1 False True 2 True)r|", "b;"],
    ]
    trained = render(source, as_messages([["q", "a"], ["r", "b"]]), is_training=True).text
    assert trained == parts["system"] + "".join(
        text for turn in parts["conversations"] for text in turn
    )


class PaddleLetters:
    """One id per character; says with what it was called."""

    def __call__(self, text: str, **arguments: Any) -> Any:
        return {"input_ids": [ord(letter) for letter in text], "arguments": arguments}

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        assert not add_special_tokens
        return [ord(letter) for letter in text]


class Paddled(compat.ChatTemplateMixin):
    """A tokenizer of PaddleNLP's kind, where `encode` gives a mapping."""

    def __call__(self, text: str, **arguments: Any) -> Any:
        return PaddleLetters()(text, **arguments)

    def encode(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": PaddleLetters().encode(text, add_special_tokens)}


def test_ids() -> None:
    """Ids with a tokenizer, no special tokens added; Paddle's tensors need Paddle."""
    for chat in (compat.Chat(EXAMPLE, PaddleLetters()), Paddled()):
        chat.init_chat_template(EXAMPLE)
        found = chat.apply_chat_template("hi", return_tensors="np")
        assert found["arguments"] == {"return_tensors": "np", "add_special_tokens": False}
        encoded = chat.encode_chat_inputs([["q", "a"]])
        assert set(encoded) == {"system", "conversations"}
        assert ["".join(map(chr, part)) for part in encoded["conversations"][0]] == [
            "[Round 0]\nQuestion: q\n",
            "Answer: a\n",
        ]
        with pytest.raises(turnwise.MessageError, match="needs Paddle"):
            chat.apply_chat_template("hi", return_tensors="pd")
    with pytest.raises(turnwise.MessageError, match="tokenize=False"):
        compat.Chat(EXAMPLE).apply_chat_template("hi")
    with pytest.raises(turnwise.MessageError, match="tokenize=False"):
        compat.Chat(EXAMPLE).encode_chat_inputs([["q", "a"]])


def test_fields_are_optional() -> None:
    """A query without template is itself; rounds without `conversation` are an error."""
    assert compat.Chat({}).apply_chat_template("hi", tokenize=False) == "hi"
    assert (
        compat.Chat({"query": "Q: {{query}}"}).apply_chat_template("hi", tokenize=False) == "Q: hi"
    )
    assert render({"system": "S "}, as_messages([["hi"]])).text == "S hi"
    for call in (
        lambda: compat.Chat({}).apply_chat_template(ROUNDS, tokenize=False),
        lambda: render({}, as_messages(ROUNDS)),
        lambda: render({}, as_messages([["q", "a"]])),
    ):
        with pytest.raises(turnwise.TurnwiseError, match="no `?conversation"):
            call()


def test_truncation_by_rounds() -> None:
    """The oldest rounds go, whole; the system part never."""
    chat = compat.Chat(
        {"system": "S:", "conversation": ["<{{user}}>", "{{bot}};"]}, PaddleLetters()
    )
    parts = chat.encode_chat_inputs([["1", "a"], ["2", "b"], ["3", "c"]], tokenize=False)
    lengths = {
        17: "S:<1>a;<2>b;<3>c;",
        16: "S:<2>b;<3>c;",
        12: "S:<2>b;<3>c;",
        11: "S:<3>c;",
        7: "S:<3>c;",
        6: "S:<3>c",
        4: "S:<3",
    }
    for length, text in lengths.items():
        assert "".join(part for part, _ in compat.truncate_rounds(parts, length, length)) == text
    with pytest.raises(turnwise.MessageError, match="system part has length 2"):
        compat.truncate_rounds(parts, 2, 2)
    example = {"src": ["1", "2"], "tgt": ["a", "b"]}
    inputs, labels = compat.tokenize_rounds_example(
        chat, example, SimpleNamespace(max_length=8, src_length=8)
    )
    assert "".join(map(chr, inputs["input_ids"])) == "S:<2>b;"
    assert labels == [-100] * 5 + [ord("b"), ord(";")] and example == {
        "src": ["1", "2"],
        "tgt": ["a", "b"],
    }
    assert compat.training_rounds({"src": "q", "tgt": "a"}) == [["q", "a"]]
    with pytest.raises(turnwise.MessageError, match="found 1 and 2"):
        compat.training_rounds({"src": "q", "tgt": ["a", "b"]})


def test_a_finished_last_round() -> None:
    """Refused; with exact, cut to its question as PaddleNLP does."""
    with pytest.raises(turnwise.MessageError, match=r"rounds\[1\]: the last round is one question"):
        compat.Chat(EXAMPLE).apply_chat_template([["q", "a"], ["r", "b"]], tokenize=False)
    exact = compat.Chat(EXAMPLE, exact=True).apply_chat_template(
        [["q", "a"], ["r", "b"]], tokenize=False
    )
    assert exact == compat.Chat(EXAMPLE).apply_chat_template([["q", "a"], ["r"]], tokenize=False)


def test_a_system_message() -> None:
    """It is the context's `system`; where no field reads it, it is refused, or with exact dropped."""
    source = {"system": "<{{system | default('none')}}>", "conversation": ["{{user}}", "{{bot}}"]}
    messages = as_messages([["q", "a"]], "S")
    assert render(source, messages).text == "<S>qa"
    assert (
        render(source, messages[1:]).text == "<none>qa"
        and render(source, messages[1:], system="T").text == "<T>qa"
    )
    with pytest.raises(turnwise.TurnwiseError, match="no system message"):
        render(EXAMPLE, messages)
    assert render(EXAMPLE, messages, exact=True).text == render(EXAMPLE, messages[1:]).text


@pytest.mark.parametrize(
    "field",
    [
        "{{user}}\n",
        "\n\n{{user}}\n\n",
        "  {% if user %}\n  x\n  {% endif %}\n",
        "{# gone #}\n{{user}} {#- gone -#} .",
        "a {%- if true -%} b {%- endif %} c\n",
        "{% raw %}{{ user }}{% endraw %}\n{{user}}",
        "{% set user = 'mine' %}{{user}}",
        "{% for index in range(2) %}{{index}}{{loop.last}}{{user}}{% endfor %}",
        "{% macro m(x) %}[{{x}}]{% endmacro %}{{m(user)}}\r\n'\"\\",
        "{{ {'a': user}['a'] ~ '\\n}}' }}",
        "{{user if not is_first else index}}{{bot}}",
    ],
)
def test_a_field_is_what_it_is_alone(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever whitespace and scopes a field has, it says in the one template what it says by itself in PaddleNLP."""
    monkeypatch.setattr(paddlenlp, "REQUIRED_VARIABLES", {})
    reference = oracle.reference().jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    values = {
        "user": "U",
        "bot": "B",
        "index": 0,
        "is_first": True,
        "is_last": True,
        "length": 1,
        "is_training": False,
    }
    alone = reference.from_string(field).render(values)
    source = {"system": "{% set user = 1 %}{% set index = 7 %}", "conversation": [field, field]}
    assert render(source, as_messages([["U", "B"]])).text == alone * 2
    assert oracle.render(paddlenlp.read(source).jinja, as_messages([["U", "B"]])) == alone * 2
    assert compat.ChatTemplate.from_dict(source).render_conversation(
        ["U", "B"], 0, {"is_first": True}
    ) == [
        alone,
        alone,
    ]


# --- reading, writing, and what cannot be read


@pytest.mark.parametrize("name", ["example", *sorted(configs())])
def test_round_trip(name: str) -> None:
    source = {"example": EXAMPLE, **configs()}[name]
    if name == "docs_custom_system":
        return
    assert paddlenlp.read(source).facts["template"] == source


def test_written_from_turns() -> None:
    """XTuner's dicts written as chat_template.json: the same texts."""
    sources: list[dict[str, Any]] = [
        {
            "INSTRUCTION": "<u>{input}</u>\n<a>",
            "SUFFIX": "</a>",
            "SUFFIX_AS_EOS": True,
            "SEP": "\n",
        },
        {
            "SYSTEM": "[{system}]\n",
            "INSTRUCTION": "[Round {round}] {{ {{% {input} 'x'",
            "SEP": "\n\n",
        },
    ]
    for source in sources:
        (written,) = paddlenlp.write(to_turns(source), eos_token="</s>")
        reading = xtuner.read(source)
        for rounds_, system in (
            ([["q", "a"], ["r"]], None),
            ([["q", "a"], ["r", "b"]], None),
            ([["q", "a"]], "S"),
        ):
            if system and "SYSTEM" not in source:
                continue
            messages = as_messages(rounds_, system)
            expected = (
                compile_jinja(reading.jinja, dialect="paddlenlp")
                .render(messages, eos_token="</s>", add_generation_prompt=True)
                .text
            )
            assert render(written, messages, add_generation_prompt=True).text == expected
    turns = Turns(
        ("U:", Slot("text")),
        prefix="<s>{",
        system=("<", Slot("text"), ">"),
        default_system="it's",
        generation_prompt="A:",
    )
    (written,) = paddlenlp.write(turns)
    assert render(written, as_messages([["q", "a"]])).text == "<s>{<it's>U:qA:a"
    assert (
        paddlenlp.write(to_turns(sources[1]))[0]["conversation"][1] == "{{bot}}"
    )  # a text that was not given


def test_known_by_shape() -> None:
    """Hugging Face's file of the same name is recognised by its key."""
    assert (
        paddlenlp.knows(EXAMPLE)
        and paddlenlp.knows(json.dumps(EXAMPLE))
        and paddlenlp.knows({"query": "{{query}}"})
    )
    hugging = {"chat_template": "{% for message in messages %}{% endfor %}"}
    assert (
        not paddlenlp.knows(hugging)
        and not paddlenlp.knows({})
        and not paddlenlp.knows("{{ query }} {")
    )
    with pytest.raises(turnwise.SourceError, match="Hugging Face"):
        paddlenlp.read(hugging)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (
            {"conversation": ["a", "b", "c"]},
            "conversation must be a list of two strings, [user, bot], or null, not ['a', 'b', 'c']",
        ),
        ({"conversation": ["a"]}, "not ['a']"),
        (
            {"conversation": "ab"},
            "conversation must be a list of two strings, [user, bot], or null, not 'ab'",
        ),
        ({"conversation": ["a", None]}, "conversation[1] must be a string, not None"),
        ({"system": 1}, "system must be a string or null, not 1"),
        ({"query": ["q"]}, "query must be a string or null, not ['q']"),
        ({"sytem": "x"}, "Did you mean 'system'"),
        ({"query": "{{ query"}, "query is not Jinja"),
        ({"conversation": ["{% if %}", "{{bot}}"]}, "conversation[0] is not Jinja"),
        ({"query": "{{ query }}{{ messages[0] }}"}, "a field reads 'messages'"),
        ("[1]", "is a JSON object, not [1]"),
        ("{", "this text is not JSON"),
        (3, "a chat_template.json must be a mapping, not 3"),
    ],
)
def test_bad_sources(source: Any, problem: str) -> None:
    with pytest.raises(turnwise.SourceError) as error:
        paddlenlp.read(source)
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("conversation", "problem"),
    [
        (["a", "b"], "a batch of conversations"),
        ([], "a list of rounds, not []"),
        (None, "not None"),
        ([["a", "b", "c"]], "rounds[0]: a round is [user, bot] or [user]"),
        ([["a"], ["b"]], "rounds[0]: a finished round is [user, bot], not ['a']"),
        ([[1]], "not [1]"),
    ],
)
def test_bad_conversations(conversation: Any, problem: str) -> None:
    with pytest.raises(turnwise.MessageError) as error:
        compat.Chat(EXAMPLE).apply_chat_template(conversation, tokenize=False)
    assert problem in str(error.value)


def test_context_may_not_hide_messages() -> None:
    chat, exact = compat.Chat(EXAMPLE), compat.Chat(EXAMPLE, exact=True)
    with pytest.raises(turnwise.MessageError, match="context_data.user"):
        chat.apply_chat_template(ROUNDS, tokenize=False, context_data={"user": "me"})
    assert "Question: me\n" in exact.apply_chat_template(
        ROUNDS, tokenize=False, context_data={"user": "me"}
    )
    with pytest.raises(turnwise.MessageError, match="context_data.index"):
        exact.apply_chat_template(ROUNDS, tokenize=False, context_data={"index": 3})


def test_nothing_to_apply(tmp_path: Path) -> None:
    with pytest.raises(turnwise.SourceError, match="no chat template"):
        compat.Chat().apply_chat_template("hi")
    for source in (3, "no/such/file.json"):
        with pytest.raises(turnwise.SourceError, match="this is not a chat template"):
            compat.Chat(source)
    with pytest.raises(turnwise.SourceError, match="cannot be read"):
        compat.Chat(tmp_path)
    (tmp_path / "chat_template.json").write_text('{"conversation": ["x"]}', encoding="utf-8")
    with pytest.raises(
        turnwise.SourceError,
        match=r"chat_template.json: conversation must be a list of two strings",
    ):
        compat.Chat(tmp_path)


# --- ids


@needs_corpus
def test_ids_of_every_part(tokenizers: Any) -> None:
    """The shape of the training encoding, each part encoded by itself; and of prompts."""
    known = tokenizers("qwen2_5")
    chat, texts = compat.Chat(EXAMPLE, known), compat.Chat(EXAMPLE)
    finished = [["1+1=", "1+1=2"], ["Add <|im_end|> one", "3"]]
    parts, turn_texts = (
        chat.encode_chat_inputs(finished),
        texts.encode_chat_inputs(finished, tokenize=False),
    )
    assert parts["system"] == known.whole(turn_texts["system"])
    assert parts["conversations"] == [
        [known.whole(part) for part in turn] for turn in turn_texts["conversations"]
    ]
    prompt = texts.apply_chat_template(ROUNDS, tokenize=False)
    found = chat.apply_chat_template(ROUNDS)
    assert found["input_ids"] == known.whole(prompt) and set(found["attention_mask"]) == {1}
    arrays = chat.apply_chat_template(ROUNDS, return_tensors="np")
    assert arrays["input_ids"].shape == (1, len(found["input_ids"]))
    folder = compat.Chat(EXAMPLE, corpus.tokenizer_folder("qwen2_5"))
    assert folder.apply_chat_template(ROUNDS)["input_ids"] == found["input_ids"]
    for name, message in (("pd", "needs Paddle"), ("tf", "no tensors called")):
        with pytest.raises(turnwise.TurnwiseError, match=message):
            chat.apply_chat_template(ROUNDS, return_tensors=name)


@needs_corpus
def test_rounds_are_cut_by_tokens(tokenizers: Any) -> None:
    """Whole rounds from the oldest, never the system; only what the bot says is learnt."""
    known = tokenizers("qwen2_5")
    chat = compat.Chat(EXAMPLE, known)
    example = {"src": ["one two three", "four five", "six"], "tgt": ["a b c d", "e f", "g h i"]}
    parts = chat.encode_chat_inputs(
        [list(pair) for pair in zip(example["src"], example["tgt"], strict=True)]
    )
    system, turns = parts["system"], parts["conversations"]
    whole = len(system) + sum(map(len, sum(turns, [])))
    seen = set()
    for limit in range(len(system) + 4, whole + 2):
        data = SimpleNamespace(max_length=limit, src_length=limit - 2)
        found, labels = compat.tokenize_rounds_example(chat, example, data)
        ids = found["input_ids"]
        assert len(ids) == len(labels) <= limit and ids[: len(system)] == system
        assert all(label in (-100, id) for label, id in zip(labels, ids, strict=True))
        kept = next(
            (
                count
                for count in (3, 2, 1)
                if len(system) + sum(map(len, sum(turns[3 - count :], []))) <= limit
            ),
            0,
        )
        seen.add(kept)
        if kept:
            rest = [
                pair for turn in turns[3 - kept :] for pair in zip(turn, (False, True), strict=True)
            ]
            assert ids[len(system) :] == [id for part, _ in rest for id in part]
            wanted = [id if learnt else -100 for part, learnt in rest for id in part]
            assert labels == [-100] * len(system) + wanted
        else:
            room = limit - len(system)
            user = turns[2][0][: room - 2]
            assert ids[len(system) :] == [*user, *turns[2][1][: room - len(user)]]
    assert seen == {0, 1, 2, 3}
    with pytest.raises(turnwise.MessageError, match="system part"):
        compat.tokenize_rounds_example(
            chat, example, SimpleNamespace(max_length=len(system), src_length=9)
        )
