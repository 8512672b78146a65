"""What `load` finds, and what it says when there is nothing to find.

Where transformers reads the same folder it is the oracle: which template it would render, and the special tokens that
it would pass. GGUF files are written here by a few lines that follow the format, so that each can be wrong in one
place.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus import needs_corpus
from timing import assert_quick
from turnwise import registry
from turnwise.errors import SourceError, TurnwiseError, TurnwiseWarning
from turnwise.registry import TemplateSource, entries, find_source, load
from turnwise.registry import files as registry_files

PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
WITH_TOOLS = "{{ tools | length }} tools: {{ messages[0].content }}"
HELLO = [{"role": "user", "content": "hello"}]
TOOLS = [{"type": "function", "function": {"name": "f"}}]
GUARDED = os.name == "posix" and os.geteuid() != 0


def put(folder: Path, content: Mapping[str, Any]) -> Path:
    """Write files: text as it is, anything else as JSON."""
    for name, value in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(value, bytes):
            path.write_bytes(value)
        else:
            path.write_bytes((value if isinstance(value, str) else json.dumps(value)).encode())
    return folder


def catch_refusal(where: Any, **rest: Any) -> str:
    with pytest.raises(SourceError) as caught:
        find_source(where, **rest)
    return str(caught.value)


# Tokenizer objects


def tokenizer_with(template: Any) -> Any:
    """A small tokenizer of transformers, made in memory."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = models.WordLevel({"<s>": 0, "</s>": 1, "hello": 2}, unk_token="hello")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(words), bos_token="<s>", eos_token="</s>", name_or_path="me/tiny"
    )
    fast.chat_template = template
    return fast


def test_a_tokenizer_object_has_its_template_and_tokens() -> None:
    text = "{{ bos_token }}" + PLAIN + "{{ eos_token }}"
    tokenizer = tokenizer_with(text)
    template = load(tokenizer)
    assert (template.text, template.name) == (text, "me/tiny")
    assert template.options["bos_token"] == "<s>" and template.options["eos_token"] == "</s>"
    assert str(template.render(HELLO)) == tokenizer.apply_chat_template(HELLO, tokenize=False)
    assert str(template.render(HELLO)) == "<s><user>hello</s>"


def test_a_tokenizer_object_with_several_templates() -> None:
    tokenizer = tokenizer_with({"default": PLAIN, "tool_use": WITH_TOOLS})
    template = load(tokenizer)
    for tools in (None, TOOLS):
        theirs = tokenizer.apply_chat_template(HELLO, tools=tools, tokenize=False)
        assert str(template.render(HELLO, tools=tools)) == theirs
    assert load(tokenizer, pick="tool_use").text == WITH_TOOLS
    with pytest.raises(SourceError, match="no template called 'rag'"):
        load(tokenizer, pick="rag")


def test_a_tokenizer_object_without_a_template() -> None:
    with pytest.raises(SourceError, match="the tokenizer 'me/tiny' has no chat template"):
        load(tokenizer_with(None))
    for other in (
        3,
        object(),
        [PLAIN],
        {"chat_template": PLAIN},
        type("T", (), {"chat_template": "x"}),
    ):
        with pytest.raises(
            SourceError, match="load takes a name, a path, a model id or a tokenizer"
        ):
            load(other)


# Built-in entries


def test_names_and_aliases() -> None:
    assert load("Qwen2.5").text == load("qwen2.5-instruct").text == entries()["qwen2.5"].source
    assert load("qwen2.5").options["eos_token"] == "<|im_end|>"


def test_a_name_is_not_a_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "chatml", {"chat_template.jinja": PLAIN})
    monkeypatch.chdir(tmp_path)
    assert find_source("chatml").text == entries()["chatml"].source
    assert find_source("./chatml").text == find_source(Path("chatml")).text == PLAIN


def test_qwen_with_tools() -> None:
    chat = [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "f", "arguments": {"a": "é"}}}],
        },
        {"role": "tool", "content": "1"},
        {"role": "tool", "content": "2"},
    ]
    text = load("qwen2.5").render(chat, tools=[{"n": 1}], add_generation_prompt=True).text
    head, tail = text.split("</tool_call><|im_end|>\n", 1)
    assert (
        head.startswith("<|im_start|>system\nYou are Qwen")
        and '<tools>\n{"n": 1}\n</tools>' in head
    )
    assert tail == (
        "<|im_start|>user\nq<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "f", "arguments": {"a": "é"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


# Files and folders


@pytest.mark.parametrize("name", ["t.jinja", "t.j2", "t.txt", "t", "chat_template.jinja"])
def test_a_text_file_is_a_template(tmp_path: Path, name: str) -> None:
    put(tmp_path, {name: PLAIN})
    template = load(tmp_path / name)
    assert template.text == PLAIN and template.name == str(tmp_path / name)
    assert str(template.render(HELLO)) == "<user>hello"
    assert load(str(tmp_path / name)).text == PLAIN


def test_bytes_are_kept(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "a.jinja": b"\xef\xbb\xbf{{ 1 }}\r\n\xc3\xa9\r",
            "b.json": b'\xef\xbb\xbf{"chat_template": "\\r\\n{{ 1 }}"}',
        },
    )
    assert find_source(tmp_path / "a.jinja").text == "{{ 1 }}\r\né\r"
    assert find_source(tmp_path / "b.json").text == "\r\n{{ 1 }}"


def test_json_by_its_look(tmp_path: Path) -> None:
    """A configuration without its suffix is not rendered as if it were a template."""
    put(tmp_path, {"config": {"chat_template": PLAIN}})
    assert find_source(tmp_path / "config").text == PLAIN


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (PLAIN, {}),
        ([{"name": "default", "template": PLAIN}], {}),
        (
            [{"name": "tool_use", "template": WITH_TOOLS}, {"name": "default", "template": PLAIN}],
            {"tool_use": WITH_TOOLS},
        ),
        ({"default": PLAIN, "rag": "{{ documents }}"}, {"rag": "{{ documents }}"}),
    ],
)
def test_shapes_of_chat_template(tmp_path: Path, value: Any, named: dict[str, str]) -> None:
    for name in ("tokenizer_config.json", "chat_template.json", "other.json"):
        put(tmp_path, {name: {"chat_template": value}})
        found = find_source(tmp_path / name)
        assert (found.text, dict(found.named)) == (PLAIN, named)


def test_tools_choose_the_template(tmp_path: Path) -> None:
    put(
        tmp_path,
        {"chat_template.jinja": PLAIN, "additional_chat_templates/tool_use.jinja": WITH_TOOLS},
    )
    template = load(tmp_path)
    assert str(template.render(HELLO)) == "<user>hello"
    assert str(template.render(HELLO, tools=TOOLS)) == "1 tools: hello"
    assert str(template.render(HELLO, tools=[])) == "0 tools: hello"


def test_without_default_only_tools_are_rendered(tmp_path: Path) -> None:
    value = [{"name": "tool_use", "template": WITH_TOOLS}, {"name": "rag", "template": PLAIN}]
    put(tmp_path, {"tokenizer_config.json": {"chat_template": value}})
    template = load(tmp_path)
    assert str(template.render(HELLO, tools=TOOLS)) == "1 tools: hello"
    with pytest.raises(TurnwiseError, match=r"none of the templates .* rag, tool_use"):
        template.render(HELLO)
    assert str(load(tmp_path, pick="rag").render(HELLO)) == "<user>hello"


def test_without_default_and_tools_nothing_is_rendered(tmp_path: Path) -> None:
    put(
        tmp_path, {"tokenizer_config.json": {"chat_template": [{"name": "rag", "template": PLAIN}]}}
    )
    assert "called: rag" in catch_refusal(tmp_path)
    assert find_source(tmp_path, pick="rag").text == PLAIN
    assert "It has: rag." in catch_refusal(tmp_path, pick="tool_use")
    assert "It has: default." in catch_refusal("chatml", pick="rag")


def test_neighbours_give_their_tokens(tmp_path: Path) -> None:
    """A template file of a model folder does not lose the folder's tokens; any other file stands alone."""
    put(
        tmp_path,
        {
            "tokenizer_config.json": {"bos_token": "<s>"},
            "chat_template.jinja": PLAIN,
            "mine.jinja": PLAIN,
        },
    )
    put(tmp_path, {"additional_chat_templates/rag.jinja": PLAIN})
    assert find_source(tmp_path / "chat_template.jinja").options == {"bos_token": "<s>"}
    assert find_source(tmp_path / "additional_chat_templates" / "rag.jinja").options == {
        "bos_token": "<s>"
    }
    assert find_source(tmp_path / "mine.jinja").options == {}


# Against transformers

TOKENIZER = {
    "version": "1.0",
    "added_tokens": [],
    "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1}, "unk_token": "[UNK]"},
}
ADDED = {
    "0": {
        "content": "[UNK]",
        "lstrip": False,
        "normalized": False,
        "rstrip": False,
        "single_word": False,
    }
}
TOKEN = {
    "__type": "AddedToken",
    "content": "<b>",
    "lstrip": False,
    "normalized": False,
    "rstrip": False,
}
LOOSE = {"chat_template.jinja": "loose {{ 1 }}"}
EXTRA = {"additional_chat_templates/tool_use.jinja": "extra {{ 1 }}"}
NAMED = [
    {"name": "default", "template": "config {{ 1 }}"},
    {"name": "tool_use", "template": "config tools {{ 1 }}"},
]
LAYOUTS: dict[str, dict[str, Any]] = {
    "a text": {"tokenizer_config.json": {"chat_template": "config {{ 1 }}"}},
    "a list": {"tokenizer_config.json": {"chat_template": NAMED}},
    "a table": {
        "tokenizer_config.json": {"chat_template": {"default": "d {{ 1 }}", "rag": "r {{ 1 }}"}}
    },
    "loose": {**LOOSE, "tokenizer_config.json": {}},
    "loose wins": {**LOOSE, "tokenizer_config.json": {"chat_template": NAMED}},
    "loose and extra": {
        **LOOSE,
        **EXTRA,
        "tokenizer_config.json": {"chat_template": "config {{ 1 }}"},
    },
    "extra hides the config": {
        **EXTRA,
        "tokenizer_config.json": {"chat_template": "config {{ 1 }}"},
    },
    "extra default wins": {
        **LOOSE,
        "additional_chat_templates/default.jinja": "e {{ 1 }}",
        "tokenizer_config.json": {},
    },
    "only rag": {
        "tokenizer_config.json": {"chat_template": [{"name": "rag", "template": "r {{ 1 }}"}]}
    },
    "no config": LOOSE,
    "tokens": {
        **LOOSE,
        "tokenizer_config.json": {"bos_token": TOKEN, "eos_token": "</b>", "add_bos_token": True},
    },
    "null token": {**LOOSE, "tokenizer_config.json": {"bos_token": None, "pad_token": "<pad>"}},
    "own tokens": {
        **LOOSE,
        "tokenizer_config.json": {"image_token": "<i>", "extra_special_tokens": {"boi": "<x>"}},
    },
    "older map wins": {
        **LOOSE,
        "tokenizer_config.json": {"bos_token": "<config>", "eos_token": "<e>"},
        "special_tokens_map.json": {
            "bos_token": {"content": "<map>", "lstrip": False},
            "pad_token": "<p>",
        },
    },
    "older map ignored": {
        **LOOSE,
        "tokenizer_config.json": {"bos_token": "<config>", "added_tokens_decoder": ADDED},
        "special_tokens_map.json": {"bos_token": "<map>", "pad_token": "<p>"},
    },
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_folder_is_read_as_transformers_reads_it(tmp_path: Path, layout: str) -> None:
    transformers = pytest.importorskip("transformers")
    put(tmp_path, {"tokenizer.json": TOKENIZER, **LAYOUTS[layout]})
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    for tools in (None, TOOLS):
        try:
            expected = tokenizer.apply_chat_template(HELLO, tools=tools, tokenize=False)
        except ValueError:
            with pytest.raises(TurnwiseError):
                load(tmp_path).render(HELLO, tools=tools)
        else:
            assert str(load(tmp_path).render(HELLO, tools=tools)) == expected
            assert find_source(tmp_path).options == tokenizer.special_tokens_map


@needs_corpus
@pytest.mark.parametrize("name", ["qwen2_5", "qwen3", "llama3", "deepseek_v3"])
def test_real_folders(corpus: Path, name: str) -> None:
    config = json.loads(
        (corpus / "tokenizers" / name / "tokenizer_config.json").read_text(encoding="utf-8")
    )
    found = find_source(corpus / "tokenizers" / name)
    assert found.text == config["chat_template"]
    eos = config["eos_token"]
    assert found.options["eos_token"] == (eos if isinstance(eos, str) else eos["content"])


# Nothing to find

BAD_FILES: dict[str, tuple[str, Any, str]] = {
    "empty": ("t.jinja", "", "is empty"),
    "blank": ("t.jinja", " \n\t", "is empty"),
    "no tags": ("README.md", "# Hello", "not a template"),
    "binary": ("t.jinja", b"\x7fELF\0\0", "binary"),
    "utf-16": ("t.jinja", "{{ 1 }}".encode("utf-16"), "UTF-16"),
    "latin-1": ("t.jinja", b"{{ 1 }} caf\xe9", "byte 0xe9 at offset 11"),
    "git lfs": (
        "t.jinja",
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        "git lfs pull",
    ),
    "too large": ("t.jinja", b"{{ 1 }}" + b" " * registry_files.MAX_TEXT, "too large"),
    "broken JSON": (
        "tokenizer_config.json",
        '{"chat_template": "x",\n  "a": }',
        "line 2, column 8",
    ),
    "cut JSON": ("tokenizer_config.json", '{"chat_template": "x', "line 1, column 19"),
    "empty JSON": ("tokenizer_config.json", "", "line 1, column 1"),
    "deep JSON": ("tokenizer_config.json", "[" * 100_000, "nested too deeply"),
    "long number": ("tokenizer_config.json", '{"a": ' + "9" * 5000 + "}", "JSON that can be read"),
    "JSON list": ("tokenizer_config.json", [1], "holds a list"),
    "JSON text": ("tokenizer_config.json", '"x"', "holds a text"),
    "JSON lines": ("data.json", '{"messages": []}\n{"messages": []}', "like a dataset"),
    "no template": ("tokenizer_config.json", {"bos_token": "<s>"}, "no chat_template"),
    "null template": ("tokenizer_config.json", {"chat_template": None}, "no chat_template"),
    "number": ("tokenizer_config.json", {"chat_template": 5}, "is a number"),
    "true": ("tokenizer_config.json", {"chat_template": True}, "is true or false"),
    "empty text": ("tokenizer_config.json", {"chat_template": ""}, "is empty"),
    "empty list": ("tokenizer_config.json", {"chat_template": []}, "is empty"),
    "list of texts": ("tokenizer_config.json", {"chat_template": ["x"]}, "chat_template[0] in"),
    "no name": (
        "tokenizer_config.json",
        {"chat_template": [{"template": "x"}]},
        "chat_template[0].name in",
    ),
    "odd name": (
        "tokenizer_config.json",
        {"chat_template": [{"name": 1, "template": "x"}]},
        "name in",
    ),
    "odd text": (
        "tokenizer_config.json",
        {"chat_template": [{"name": "default", "template": None}]},
        "is null",
    ),
    "table of lists": ("tokenizer_config.json", {"chat_template": {"default": []}}, "is a list"),
    "many": (
        "tokenizer_config.json",
        {"chat_template": {str(i): "x" for i in range(101)}},
        "101 templates",
    ),
    "long": (
        "tokenizer_config.json",
        {"chat_template": "x" * (registry_files.MAX_TEXT + 1)},
        "characters",
    ),
    "odd token": ("tokenizer_config.json", {"chat_template": "x", "bos_token": 5}, "bos_token in"),
    "odd token table": (
        "tokenizer_config.json",
        {"chat_template": "x", "bos_token": {}},
        "bos_token in",
    ),
    "clash": (
        "tokenizer_config.json",
        {"chat_template": "x", "extra_special_tokens": {"tools": "<t>"}},
        "'tools'",
    ),
    "vocabulary": ("tokenizer.json", TOKENIZER, "give the folder"),
    "a conversation": ("chat.json", {"messages": HELLO}, "template comes first"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files(tmp_path: Path, case: str) -> None:
    name, content, problem = BAD_FILES[case]
    put(tmp_path, {name: content})
    message = catch_refusal(tmp_path / name)
    assert problem in message and name in message
    assert message.isprintable() or "\n" in message


BAD_FOLDERS: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({"weights.bin": b"\0"}, "holds no chat template"),
    "a base model": ({"tokenizer_config.json": {"bos_token": "<s>"}}, "usual for a base model"),
    "broken config": (
        {"chat_template.jinja": PLAIN, "tokenizer_config.json": "{"},
        "tokenizer_config.json is not JSON",
    ),
    "broken map": (
        {"chat_template.jinja": PLAIN, "special_tokens_map.json": "[]"},
        "special_tokens_map.json holds",
    ),
    "binary extra": ({"additional_chat_templates/x.jinja": b"\0"}, "x.jinja is a binary"),
    "disagreeing GGUF": ({"a.gguf": b"", "b.gguf": b""}, "a.gguf is not a GGUF file"),
    "a folder as template": ({"chat_template.jinja/x": "x"}, "holds no chat template"),
}


@pytest.mark.parametrize("case", BAD_FOLDERS)
def test_bad_folders(tmp_path: Path, case: str) -> None:
    content, problem = BAD_FOLDERS[case]
    put(tmp_path, content)
    assert problem in catch_refusal(tmp_path)


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("", "there is no ''"),
        ("qwen2.4", "Did you mean 'qwen2.5'?"),
        ("no-such-name", "`turnwise list` prints the built-in names"),
        ("nobody/no-such-model", "nothing is looked up on a network"),
        ("https://example.com/t.jinja", "only local files"),
        (PLAIN, "turnwise.compile(text)"),
        ("a\0b", r"there is no 'a\x00b'"),
        ("x" * 5000, "'xxx"),
        (5, "not int"),
        (None, "not NoneType"),
        (b"no-such-name", "there is no 'no-such-name'"),
    ],
)
def test_bad_places(where: Any, problem: str) -> None:
    message = catch_refusal(where)
    assert problem in message and len(message) < 500


def test_near_names(tmp_path: Path) -> None:
    put(tmp_path, {"tokenizer_config.json": {"chat_template": PLAIN}, "zzz": ""})
    assert f"Did you mean {str(tmp_path / 'tokenizer_config.json')!r}?" in catch_refusal(
        tmp_path / "tokeniser_config.json"
    )


@pytest.mark.skipif(not GUARDED, reason="needs a user whom the file system can refuse")
def test_unreadable(tmp_path: Path) -> None:
    put(tmp_path, {"t.jinja": PLAIN})
    (tmp_path / "t.jinja").chmod(0)
    assert "permission denied" in catch_refusal(tmp_path / "t.jinja")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_endless_device() -> None:
    if Path("/dev/zero").exists():
        assert "it is a device, not a regular file" in catch_refusal("/dev/zero")


# GGUF

STRING, ARRAY, U32, I32, F32, BOOL, U64 = 8, 9, 4, 5, 6, 7, 10
CODES = {U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", 0: "B"}
Value = tuple[int, Any]


class Writer:
    """Just enough of the format to write headers, right and wrong."""

    def __init__(self, order: str = "<") -> None:
        self.order = order

    def number(self, code: str, value: Any) -> bytes:
        return struct.pack(self.order + code, value)

    def text(self, text: str | bytes) -> bytes:
        data = text.encode() if isinstance(text, str) else text
        return self.number("Q", len(data)) + data

    def value(self, kind: int, value: Any) -> bytes:
        if kind == STRING:
            return self.text(value)
        if kind == ARRAY:
            inner, items = value
            body = b"".join(self.value(inner, item) for item in items)
            return self.number("I", inner) + self.number("Q", len(items)) + body
        return self.number(CODES[kind], value)

    def file(
        self, *keys: tuple[str | bytes, int, Any], version: int = 3, count: int | None = None
    ) -> bytes:
        head = b"GGUF" + self.number("I", version) + self.number("Q", 1)
        body = b"".join(
            self.text(key) + self.number("I", kind) + self.value(kind, value)
            for key, kind, value in keys
        )
        return head + self.number("Q", len(keys) if count is None else count) + body


TEMPLATE_KEY = ("tokenizer.chat_template", STRING, PLAIN)
WORDS = ("tokenizer.ggml.tokens", ARRAY, (STRING, ["<unk>", "<s>", "</s>", "héé"]))
KEYS: list[tuple[str, int, Any]] = [
    ("general.architecture", STRING, "llama"),
    ("general.file_type", U32, 7),
    ("tokenizer.ggml.scores", ARRAY, (F32, [0.5, 1.0])),
    WORDS,
    ("tokenizer.ggml.bos_token_id", U32, 1),
    ("tokenizer.ggml.eos_token_id", I32, 2),
    ("tokenizer.ggml.unknown_token_id", U32, 0xFFFFFFFF),
    ("tokenizer.ggml.add_bos_token", BOOL, True),
    TEMPLATE_KEY,
    ("tokenizer.chat_template.tool_use", STRING, WITH_TOOLS),
    ("nested", ARRAY, (ARRAY, [(STRING, ["a"]), (U32, [1])])),
]
FOUND = (PLAIN, {"tool_use": WITH_TOOLS}, {"bos_token": "<s>", "eos_token": "</s>"})
TAIL = b"\0" * 64


def as_tuple(found: TemplateSource) -> tuple[str, Any, Any]:
    return found.text, found.named, found.options


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "model.gguf"


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("version", [2, 3])
def test_gguf(model: Path, order: str, version: int) -> None:
    model.write_bytes(Writer(order).file(*KEYS, version=version) + TAIL)
    assert as_tuple(find_source(model)) == as_tuple(find_source(model.parent)) == FOUND
    assert str(load(model).render(HELLO, tools=TOOLS)) == "1 tools: hello"
    assert find_source(model, pick="tool_use").text == WITH_TOOLS


def test_gguf_by_its_first_bytes(tmp_path: Path) -> None:
    put(tmp_path, {"sha256-abc": Writer().file(TEMPLATE_KEY)})
    assert find_source(tmp_path / "sha256-abc").text == PLAIN


def test_gguf_comes_last(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "model.gguf": Writer().file(TEMPLATE_KEY),
            "tokenizer_config.json": {"chat_template": "x {{ 1 }}"},
        },
    )
    assert find_source(tmp_path).text == "x {{ 1 }}"


def test_gguf_without_vocabulary_has_no_tokens(model: Path) -> None:
    model.write_bytes(Writer().file(TEMPLATE_KEY, ("tokenizer.ggml.bos_token_id", U32, 1)))
    assert find_source(model).options == {}


def test_several_gguf_must_agree(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "a.gguf": Writer().file(*KEYS),
            "b.gguf": Writer().file(*KEYS),
            "c-00002.gguf": Writer().file(WORDS),
        },
    )
    assert find_source(tmp_path).name.endswith("a.gguf")
    put(tmp_path, {"d.gguf": Writer().file(TEMPLATE_KEY)})
    assert "a.gguf and d.gguf have different templates" in catch_refusal(tmp_path)


BAD_GGUF: dict[str, tuple[bytes, str]] = {
    "no template": (Writer().file(WORDS), "holds no chat template"),
    "only magic": (b"GGUF", "ends in the middle"),
    "version 1": (Writer().file(TEMPLATE_KEY, version=1), "version 1"),
    "version 77": (Writer(">").file(TEMPLATE_KEY, version=77), "version 77"),
    "many keys": (Writer().file(count=2**63), "9,223,372,036,854,775,808 keys"),
    "missing keys": (Writer().file(TEMPLATE_KEY, count=2), "ends in the middle"),
    "same key twice": (Writer().file(TEMPLATE_KEY, TEMPLATE_KEY), "twice"),
    "template of a number": (Writer().file(("tokenizer.chat_template", U32, 5)), "not a string"),
    "template of bytes": (Writer().file(("tokenizer.chat_template", STRING, b"\xff")), "UTF-8"),
    "key of bytes": (Writer().file((b"\xff", U32, 5)), "UTF-8"),
    "unknown type": (
        Writer().file()[:-8] + Writer().number("Q", 1) + Writer().text("a") + b"\x63\0\0\0",
        "type 99",
    ),
    "id of a text": (
        Writer().file(TEMPLATE_KEY, ("tokenizer.ggml.bos_token_id", STRING, "1")),
        "whole number",
    ),
    "id outside": (
        Writer().file(TEMPLATE_KEY, WORDS, ("tokenizer.ggml.bos_token_id", U32, 4)),
        "vocabulary of 4",
    ),
    "words of numbers": (
        Writer().file(
            TEMPLATE_KEY,
            ("tokenizer.ggml.tokens", ARRAY, (U32, [1])),
            ("tokenizer.ggml.bos_token_id", U32, 0),
        ),
        "list of strings",
    ),
    "deep": (
        Writer().file(("a", ARRAY, (ARRAY, [(ARRAY, [(ARRAY, [(ARRAY, [(ARRAY, [])])])])]))),
        "too deeply",
    ),
}


@pytest.mark.parametrize("case", BAD_GGUF)
def test_bad_gguf(model: Path, case: str) -> None:
    data, problem = BAD_GGUF[case]
    model.write_bytes(data)
    assert problem in catch_refusal(model)


def test_cut_gguf(model: Path) -> None:
    """Cut anywhere in the header, a file is refused; cut in its tensors it is still good."""
    whole = Writer().file(*KEYS)
    for end in range(4, len(whole)):
        model.write_bytes(whole[:end])
        assert "ends in the middle of its header" in catch_refusal(model)


HUGE = Writer().number("Q", 2**62)


@pytest.mark.parametrize(
    "value",
    [
        Writer().number("I", STRING) + HUGE,
        Writer().number("I", ARRAY) + Writer().number("I", STRING) + HUGE,
        Writer().number("I", ARRAY) + Writer().number("I", U64) + HUGE,
        Writer().number("I", ARRAY) + Writer().number("I", ARRAY) + HUGE,
    ],
)
def test_forged_sizes_cost_nothing(model: Path, value: bytes) -> None:
    with model.open("wb") as file:
        file.write(Writer().file(count=1) + Writer().text("key") + value)
        file.truncate(2**34)  # sparse: sixteen gigabytes that take no room
    assert_quick(lambda: catch_refusal(model), 2)


@given(st.integers(4, 400), st.binary(min_size=1, max_size=8))
def test_any_damage_is_an_answer(
    tmp_path_factory: pytest.TempPathFactory, at: int, damage: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    whole = Writer().file(*KEYS)
    path.write_bytes(whole[:at] + damage + whole[at + len(damage) :])
    try:
        assert isinstance(find_source(path), TemplateSource)
    except SourceError as error:
        assert "damaged.gguf" in str(error)


def test_the_package_writes_what_we_read(model: Path) -> None:
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(model, "llama")
    writer.add_token_list(["<unk>", "<s>", "</s>"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(
        [{"name": "default", "template": PLAIN}, {"name": "tool_use", "template": WITH_TOOLS}]
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert as_tuple(find_source(model)) == FOUND


def test_front_door() -> None:
    assert registry.load is load


@pytest.mark.parametrize("variable", ["HF_HOME", "HF_HUB_CACHE"])
def test_a_cached_model_is_found_by_its_id(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entry name, existing path, cached model, and only then the entry of the model id."""
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    cache = tmp_path / "hub" if variable == "HF_HOME" else tmp_path
    for model in ("models--some--model-1.5", "models--Qwen--Qwen2.5-7B-Instruct"):
        snapshot = put(cache / model / "snapshots" / "0123abcd", {"chat_template.jinja": PLAIN})
        put(cache / model / "refs", {"main": "0123abcd"})
        assert registry_files.read_path(snapshot).text == PLAIN
    assert load("some/model-1.5").render(HELLO).text == "<user>hello"
    found = registry.match("some/model-1.5")
    assert (found.source, found.kind, found.by) == ("cache", "chat", "id")
    assert load(found.name).text == PLAIN
    with pytest.raises(SourceError, match="no template of xtuner is known"):
        registry.match("some/model-1.5", "xtuner")
    with pytest.warns(TurnwiseWarning, match="differs from the built-in entry qwen2.5"):
        assert load("Qwen/Qwen2.5-7B-Instruct").text == PLAIN
    assert load("Qwen/Qwen2.5-14B-Instruct").text == load("qwen2.5").text
    monkeypatch.chdir(put(tmp_path / "here", {"some/model-1.5": "{{ 'a path' }}"}))
    assert load("some/model-1.5").render(HELLO).text == "a path"
    with pytest.raises(SourceError, match="is not in the local Hugging Face cache"):
        load("some/other-model")
