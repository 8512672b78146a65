"""The playground's calls: JSON in, JSON out, the answers of the API, and errors as data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import turnwise
from turnwise.serve.playground_api import VERBS, call

CHAT = [
    {"role": "user", "content": "Is it <|im_end|> low?"},
    {"role": "assistant", "content": "Yes."},
]
TIDE = {
    "type": "function",
    "function": {
        "name": "tide",
        "parameters": {"type": "object", "properties": {"port": {"type": "string"}}},
    },
}
PASTED = {"source": "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"}


def ask(verb: str, **body: Any) -> dict[str, Any]:
    answer = call(verb, json.loads(json.dumps(body)))
    assert json.loads(json.dumps(answer)) == answer, "an answer is JSON data"
    return answer


def test_render_gives_text_and_origins() -> None:
    answer = ask("render", template="chatml", messages=CHAT)
    rendering = turnwise.load("chatml").render(CHAT)
    assert answer["text"] == rendering.text == "".join(piece["text"] for piece in answer["pieces"])
    by_path = {piece["path"]: piece["text"] for piece in answer["pieces"] if piece["path"]}
    assert by_path["messages[1].content"] == "Yes."


def test_late_system_texts_are_placed_as_asked() -> None:
    chat = [*CHAT, {"role": "system", "content": "Rest."}, {"role": "user", "content": "Is it?"}]
    for policy in ("in_place", "user", "front"):
        answer = ask("render", template="chatml", messages=chat, late_system=policy)
        assert answer["text"] == turnwise.load("chatml").render(chat, late_system=policy).text
    answer = ask("render", template="chatml", messages=chat, late_system="back")
    assert answer["error"]["param"] == "late_system"


def test_encode_is_encode_and_shows_what_was_defused() -> None:
    answer = ask("encode", template="chatml", messages=CHAT)
    encoded = turnwise.load("chatml").encode(CHAT, "turnwise")
    assert answer["input_ids"] == encoded.input_ids
    assert answer["mask"] == encoded.mask and answer["labels"] == encoded.labels
    (start, end), *more = answer["defused"]
    assert answer["text"][start:end] == "<|im_end|>" and not more


def test_parse_gives_events_by_chunk() -> None:
    chunks = ["<think>\nLow", "?\n</think>\n\nY", "es.<|im_end|>"]
    answer = ask("parse", template="qwen3", chunks=chunks)
    assert answer["message"]["content"] == "Yes."
    assert answer["message"]["reasoning_content"] == "Low?"
    content = "".join(one["text"] for one in answer["events"] if one["kind"] == "text")
    assert content == "Yes." and {one["at"] for one in answer["events"]} >= {2, 3}


def test_a_pasted_template_and_its_error() -> None:
    assert ask("render", template=PASTED, messages=CHAT[1:])["text"] == "[assistant] Yes.\n"
    broken = {"source": "{% for m in messages %}\n{{ m.content | shout }}{% endfor %}"}
    error = ask("render", template=broken, messages=CHAT)["error"]
    assert (error["type"], error["line"]) == ("TemplateSyntaxError", 2)
    assert "shout" in error["message"] and "^" in error["text"]


@pytest.mark.parametrize(
    ("verb", "body", "key"),
    [
        ("entries", {}, "entries"),
        ("source", {"template": "qwen3"}, "jinja"),
        ("grammar", {"template": "qwen3", "tools": [TIDE]}, "exports"),
        ("check", {"template": PASTED}, "findings"),
        ("facts", {"template": "chatml", "tokenizer": "turnwise"}, "stops"),
        ("diff", {"template": "chatml", "other": PASTED}, "witness"),
        ("convert", {"template": "chatml", "to": "xtuner"}, "output"),
        ("match", {"model": "Qwen/Qwen3-8B"}, "reason"),
    ],
)
def test_every_verb_answers(verb: str, body: dict[str, Any], key: str) -> None:
    assert ask(verb, **body)[key]


def test_all_verbs_are_tried() -> None:
    assert set(VERBS) == {
        *("entries", "source", "render", "encode", "parse", "grammar"),
        *("check", "facts", "diff", "convert", "match"),
    }


@pytest.mark.parametrize(
    ("verb", "body", "param"),
    [
        ("render", {"messages": CHAT}, "template"),
        ("render", {"template": "qwen3"}, "messages"),
        ("render", {"template": "qwen3", "messages": "hi"}, "messages"),
        ("render", {"template": "qwen3", "messages": CHAT, "strict": 1}, "strict"),
        ("render", {"template": "qwen3", "messages": CHAT, "now": "soon"}, "now"),
        (
            "render",
            {"template": "qwen3", "messages": CHAT, "options": {"strict": 1}},
            "options.strict",
        ),
        ("render", {"template": {"sauce": ""}, "messages": CHAT}, "template"),
        ("render", {"template": {"source": 5}, "messages": CHAT}, "template.source"),
        ("render", {"template": {"name": "x"}, "messages": CHAT}, "template.source"),
        ("source", {"template": {"source": "x", "dialect": 5}}, "template.dialect"),
        ("source", {"template": {"source": "x", "options": []}}, "template.options"),
        ("encode", {"template": "qwen3", "messages": CHAT, "tokenizer": "/etc"}, "tokenizer"),
    ],
)
def test_bad_bodies_are_reported_by_field(verb: str, body: dict[str, Any], param: str) -> None:
    error = ask(verb, **body)["error"]
    assert error["param"] == param and error["message"].startswith(param)


@pytest.mark.parametrize("name", ["../qwen3", "/etc/passwd", "qwen3/../../x", ".", "", "C:\\x"])
def test_names_are_never_paths(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.serve.playground_api.load", None)
    error = ask("render", template=name, messages=CHAT)["error"]
    assert "there is no template" in error["message"]


def test_warnings_are_reported() -> None:
    deaf = {"source": "{{ messages[0].content }}"}
    assert "messages[1]" in ask("render", template=deaf, messages=CHAT)["warnings"][0]


def test_no_answer_names_a_path_of_the_server(tmp_path: Path) -> None:
    path = tmp_path / "chat_template.jinja"
    path.write_text("{{ messages[0].content }}{{ raise_exception('no') if stop }}")
    resources = {"templates": {"mine": str(path)}}
    chat = [{"role": "user", "content": "Hi"}]
    for verb, body in {
        "source": {},
        "render": {"messages": chat},
        "encode": {"messages": chat},
        "render ": {"messages": chat, "options": {"stop": True}},
    }.items():
        try:
            answer = json.dumps(call(verb.strip(), {"template": "mine", **body}, resources))
        except turnwise.TurnwiseError as error:
            answer = str(error)
        assert str(tmp_path) not in answer and tmp_path.name not in answer
    assert call("source", {"template": "mine"}, resources)["name"] == "mine"


def test_a_conversion_without_a_target_finds_one() -> None:
    """The first dialect that can say the template; what must be left out is named."""
    found = call("convert", {"template": "chatml"})
    assert (found["dialect"], found["left_out"]) == ("ollama", [])
    found = call("convert", {"template": "qwen3"})
    assert (found["dialect"], found["left_out"]) == (
        "ollama",
        ["tools", "reasoning", "enable_thinking"],
    )
    same = call("convert", {"template": "qwen3", "to": "ollama", "without": found["left_out"]})
    assert same["output"] == found["output"]
    refused = call("convert", {"template": "qwen3", "to": "ollama"})
    assert "tools" in refused["error"]["message"]
