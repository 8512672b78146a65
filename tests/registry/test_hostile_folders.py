"""Folders and files made to break `load`: an error of ours, soon, and no file from elsewhere."""

from __future__ import annotations

import json
import os
import socket
import struct
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import turnwise
from timing import assert_quick
from turnwise import hub_cache, local_files
from turnwise.compat.paddlenlp import ChatTemplate
from turnwise.registry import gguf, store
from turnwise.registry.fastchat import match_path
from turnwise.tokens.tokenizers import files as tokenizer_files
from turnwise.tokens.tokenizers import tokenizer

PLAIN = "{{ messages[0].content }}"
SECRET = "{{ 'a secret of this machine' }}"
CHAT = [{"role": "user", "content": "hi"}]

needs_links = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs links and pipes")


def catch_refusal(where: object, reads: Callable[[object], object] = turnwise.load) -> str:  # type: ignore[assignment]
    with pytest.raises(turnwise.TurnwiseError) as caught:
        reads(where)
    return str(caught.value)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with files that a model folder must not reach."""
    folder = tmp_path / "outside"
    (folder / "additional_chat_templates").mkdir(parents=True)
    (folder / "secret.jinja").write_text(SECRET)
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text(SECRET)
    (folder / "secret.json").write_text(json.dumps({"chat_template": SECRET, "bos_token": "x"}))
    (folder / "secret.gguf").write_bytes(header([("tokenizer.chat_template", text(SECRET))]))
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    return folder


# Links

LINKS = {
    "chat_template.jinja": "secret.jinja",
    "additional_chat_templates/tool_use.jinja": "secret.jinja",
    "tokenizer_config.json": "secret.json",
    "chat_template.json": "secret.json",
    "special_tokens_map.json": "secret.json",
    "model.gguf": "secret.gguf",
}


@needs_links
@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("is_relative", [False, True])
def test_a_link_out_of_the_folder(model: Path, outside: Path, name: str, is_relative: bool) -> None:
    if name == "special_tokens_map.json":
        (model / "chat_template.jinja").write_text(PLAIN)
    link = model / name
    link.parent.mkdir(exist_ok=True)
    target = outside / LINKS[name]
    link.symlink_to(os.path.relpath(target, link.parent) if is_relative else target)
    message = catch_refusal(model)
    assert f"it is a link out of its folder, to '{target.resolve()}'" in message
    assert "secret of" not in message


@needs_links
def test_a_folder_of_templates_that_is_a_link(model: Path, outside: Path) -> None:
    link = model / "additional_chat_templates"
    link.symlink_to(outside / "additional_chat_templates")
    assert "it is a link out of its folder" in catch_refusal(model)


@needs_links
def test_links_that_stay_in_the_folder(model: Path) -> None:
    (model / "files").mkdir()
    (model / "files" / "template").write_text(PLAIN)
    (model / "chat_template.jinja").symlink_to(Path("files") / "template")
    assert str(turnwise.load(model).render(CHAT)) == "hi"


@needs_links
def test_a_link_that_the_user_names(tmp_path: Path, model: Path, outside: Path) -> None:
    (tmp_path / "mine.jinja").symlink_to(outside / "secret.jinja")
    assert "a secret" in str(turnwise.load(tmp_path / "mine.jinja").render(CHAT))
    (model / "chat_template.jinja").write_text(PLAIN)
    (tmp_path / "alias").symlink_to(model)
    assert str(turnwise.load(tmp_path / "alias").render(CHAT)) == "hi"


@needs_links
def test_the_cache_of_the_hub(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot links to the blobs of its own model, and to nothing else."""
    model = tmp_path / "hub" / "models--me--mine"
    snapshot = model / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (model / "blobs").mkdir()
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("abc")
    (model / "blobs" / "123").write_text(PLAIN)
    (snapshot / "chat_template.jinja").symlink_to(Path("../../blobs/123"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    assert str(turnwise.load("me/mine").render(CHAT)) == "hi"
    assert str(turnwise.load(snapshot).render(CHAT)) == "hi"
    (snapshot / "tokenizer_config.json").symlink_to(outside / "secret.json")
    assert "it is a link out of its folder" in catch_refusal("me/mine")


@needs_links
def test_a_reference_of_the_cache_is_a_name(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "hub" / "models--me--mine"
    (model / "refs").mkdir(parents=True)
    (model / "snapshots").mkdir()
    (outside / "chat_template.jinja").write_text(SECRET)
    (model / "refs" / "main").write_text("../../../outside")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    assert hub_cache.find_cached_model("me/mine") is None
    assert "there is no 'me/mine'" in catch_refusal("me/mine")


@needs_links
def test_other_readers_of_folders_refuse_links(model: Path, outside: Path) -> None:
    (model / "chat_template.json").symlink_to(outside / "secret.json")
    assert "it is a link out of its folder" in catch_refusal(model, ChatTemplate.from_file)
    (outside / "tokenizer.json").write_bytes(
        (tokenizer_files.SHIPPED / "tokenizer.json").read_bytes()
    )
    (model / "tokenizer.json").symlink_to(outside / "tokenizer.json")
    assert "it is a link out of its folder" in catch_refusal(model, tokenizer)
    assert tokenizer(model / "tokenizer.json").encode("a")
    (outside / "adapter_config.json").write_text('{"base_model_name_or_path": "vicuna"}')
    (model / "adapter_config.json").symlink_to(outside / "adapter_config.json")
    assert match_path(str(model)) == match_path("something")


@needs_links
def test_entries_of_users_are_no_links(
    model: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model / "mine.toml").write_text('name = "mine"\nsource = "mine.jinja"')
    (model / "mine.jinja").symlink_to(outside / "secret.jinja")
    monkeypatch.setenv(store.PATH_VARIABLE, str(model))
    assert "it is a link out of its folder" in catch_refusal("mine")


# Pipes, sockets, devices, sizes


@needs_links
@pytest.mark.parametrize("name", [*LINKS, "t.jinja"])
def test_a_pipe_is_refused(model: Path, name: str) -> None:
    if name == "special_tokens_map.json":
        (model / "chat_template.jinja").write_text(PLAIN)
    (model / name).parent.mkdir(exist_ok=True)
    os.mkfifo(model / name)
    message = catch_refusal(model / name if name == "t.jinja" else model)
    assert "it is a pipe, not a regular file" in message


@needs_links
def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("t.jinja")
        assert "'t.jinja' cannot be read" in catch_refusal(Path("t.jinja"))


@needs_links
def test_a_pipe_of_the_shell_is_read() -> None:
    """As `turnwise render <(command) ...` gives it."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as file:
        file.write(PLAIN)
    assert str(turnwise.load(f"/dev/fd/{reader}").render(CHAT)) == "hi"
    os.close(reader)


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("chat_template.jinja", 4 * 2**20),
        ("tokenizer_config.json", 64 * 2**20),
        ("chat_template.json", 64 * 2**20),
    ],
)
def test_sizes_are_known_before_reading(model: Path, name: str, limit: int) -> None:
    with (model / name).open("wb") as file:
        file.truncate(limit + 1)
    assert f"it is larger than {limit:,} bytes" in catch_refusal(model)


def test_a_file_that_grows_while_it_is_read(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (model / "t").write_bytes(b"a" * 101)
    (model / "empty").touch()
    monkeypatch.setattr(local_files.os, "fstat", lambda number: os.stat(model / "empty"))
    with pytest.raises(OSError, match="larger than 100 bytes"):
        local_files.read_file(model / "t", 100)
    assert local_files.read_file(model / "t", 101) == b"a" * 101


# GGUF


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<IQ", gguf.STRING, len(data)) + data


def header(values: list[tuple[str, bytes]]) -> bytes:
    """Return a GGUF header of these keys, each with the bytes of its type and value."""
    body = b"".join(struct.pack("<Q", len(key)) + key.encode() + value for key, value in values)
    return gguf.MAGIC + struct.pack("<IQQ", 3, 0, len(values)) + body


def arrays(count: int) -> bytes:
    """Return an array of so many empty arrays."""
    empty = struct.pack("<IQ", gguf.ARRAY, 0)
    return struct.pack("<IIQ", gguf.ARRAY, gguf.ARRAY, count) + empty * count


TEMPLATE = ("tokenizer.chat_template", text(PLAIN))
FORGED = {
    "nested arrays": (
        [TEMPLATE, ("a", arrays(100_000))],
        "100,000 arrays in arrays; at most 4,096 are read",
    ),
    "templates": (
        [(f"tokenizer.chat_template.t{i}", text(PLAIN)) for i in range(101)],
        "more than 100 templates",
    ),
    "text": (
        [(f"tokenizer.chat_template.t{i}", text("a" * 2**20)) for i in range(5)],
        "bytes for 'tokenizer.chat_template.t4'; at most 0 are read",
    ),
    "keys": (
        [(f"{i:05}" * 1000, struct.pack("<IB", 0, 0)) for i in range(300)],
        "bytes for a key",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_is_in_a_header_is_bounded(tmp_path: Path, name: str) -> None:
    values, message = FORGED[name]
    path = tmp_path / "model.gguf"
    path.write_bytes(header(values))
    assert message in catch_refusal(path)
    assert_quick(lambda: catch_refusal(path), 1)


def test_a_large_vocabulary_is_walked_in_time(tmp_path: Path) -> None:
    """100 kB of the shortest strings, numbers and keys: at most a tenth of a second, here with room."""
    words = struct.pack("<IIQ", gguf.ARRAY, gguf.STRING, 12_000) + bytes(8 * 12_000)
    path = tmp_path / "model.gguf"
    keys = [(f"k{i}", struct.pack("<IB", 0, 0)) for i in range(5_000)]
    path.write_bytes(header([TEMPLATE, ("tokenizer.ggml.tokens", words), *keys]))
    assert str(turnwise.load(path).render(CHAT)) == "hi"
    assert_quick(lambda: turnwise.load(path), 0.5)


# Entries of users

BAD_TOML = {
    "a long key": "a" + ".a" * 20_000 + " = 1",
    "a long quoted key": '"a b"' + " . 'a b'" * 20_000 + " = 1",
    "a long header": "[a" + ".a" * 20_000 + "]",
    "a long key in a table": "x = {a" + ".a" * 20_000 + " = 1}",
    "many long keys": ("a" + ".a" * 40 + " = 1\n") * 500,
    "deep": "a = " + "[" * 50_000,
    "digits": "a = " + "1" * 5_000,
    "escapes": '"' + '\\"' * 50_000,
    "large": "# " + "a" * store.MAX_TOML,
}


@pytest.mark.parametrize("name", BAD_TOML)
def test_toml_that_would_take_long(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.toml").write_text(BAD_TOML[name])
    monkeypatch.setenv(store.PATH_VARIABLE, str(tmp_path))

    def refuse() -> None:
        store._current = None
        assert "mine.toml" in catch_refusal("mine")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_quick(refuse, 1)
    store._current = None


def test_long_keys_are_distinguished_from_text() -> None:
    notes = "see " + "a.b." * 100
    data = store._parse_toml(f"notes = \"{notes}\"\na.b.c = 1\nother = '{notes}'")
    assert data == {"notes": notes, "a": {"b": {"c": 1}}, "other": notes}
