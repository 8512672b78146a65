"""Targets that read files: tokenizers, configurations, GGUF, entries, the dialects."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import turnwise
from harness import FOLDER, Target
from mutations import NUMBERS, mutate_bytes, mutate_tree, write_json
from turnwise.registry import gguf, store
from turnwise.registry.files import read_bytes
from turnwise.registry.match import UnknownModel
from turnwise.replies.declared import parse_declaration
from turnwise.tokens.tokenizers import tokenizer

SEEDS = FOLDER / "seeds"
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "hello"},
    {"role": "user", "content": "bye"},
]
BYTE_LEVEL = 0.2  # how often the bytes are changed and not the structure


@cache
def scratch() -> Path:
    """Return a folder for the files of this process, in memory where there is such a place."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="turnwise-fuzz-", dir=place))


@cache
def read_seeds(pattern: str) -> tuple[bytes, ...]:
    """Return the files in `seeds/` that a target starts from."""
    found = tuple(path.read_bytes() for path in sorted(SEEDS.glob(pattern)))
    assert found, f"no seeds {pattern}"
    return found


def mutate_json(pattern: str, chance: Random) -> bytes:
    """Return a changed JSON file."""
    data = chance.choice(read_seeds(pattern))
    if chance.random() < BYTE_LEVEL:
        return mutate_bytes(data, chance)
    return write_json(mutate_tree(json.loads(data), chance), chance)


def write_files(files: dict[str, bytes]) -> Path:
    """Write a folder of these files and no others."""
    folder = scratch() / str(os.getpid())
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        if old.name not in files:
            old.unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def use(template: turnwise.Template) -> None:
    """Render with a template that could be read."""
    try:
        template.render(CHAT, add_generation_prompt=True)
    finally:
        template.render(CHAT[1:2])


# -- tokenizers --------------------------------------------------------------------------------------------------------


def run_tokenizer(data: bytes) -> None:
    """Load a `tokenizer.json` with one of the libraries, and encode a little."""
    folder = write_files({"tokenizer.json": data})
    backend = Random(data).choice(("tokenizers", "fastokens"))
    made = tokenizer(folder, backend=backend)
    for text in ("", "a<|x|> b</s>é😀\n", "<|im_end|>"):
        ids = made.encode(text)
        made.decode(ids)
        made.decode(ids[1:])
        made.offsets(text, ids, 0)
        made.whole(text)
    for id in (0, 1, 40, 2**31, 2**40):
        made.token(id)


def run_declarations(data: bytes) -> None:
    """Read the files beside a tokenizer, as a template's and as a tokenizer's."""
    first, _, second = data.partition(b"\x1d")
    files = {"tokenizer_config.json": first, "special_tokens_map.json": second or b"{}"}
    plain = read_seeds("tokenizer-small.json")[0]
    folder = write_files(files | {"tokenizer.json": plain})
    try:
        use(turnwise.load(folder))
    finally:
        tokenizer(folder, backend="tokenizers").encode("a<|x|> b")


def make_declarations(chance: Random) -> bytes:
    config = mutate_json("config-*.json", chance)
    return config + b"\x1d" + mutate_json("special-*.json", chance)


# -- GGUF --------------------------------------------------------------------------------------------------------------

Value = tuple[int, Any]
VALUES: tuple[tuple[str, Value], ...] = (
    ("tokenizer.chat_template", (gguf.STRING, "{{ messages[0].content }}{{ bos_token }}")),
    ("tokenizer.chat_template.tool_use", (gguf.STRING, "{{ tools }}")),
    ("tokenizer.ggml.tokens", (gguf.ARRAY, (gguf.STRING, ["<s>", "</s>", "a", ""]))),
    ("tokenizer.ggml.scores", (gguf.ARRAY, (6, [0.0, 1.0, -1.0]))),
    ("tokenizer.ggml.bos_token_id", (4, 0)),
    ("tokenizer.ggml.eos_token_id", (5, 1)),
    ("tokenizer.ggml.padding_token_id", (4, gguf.NO_TOKEN)),
    ("general.name", (gguf.STRING, "a")),
    ("nested", (gguf.ARRAY, (gguf.ARRAY, [(4, [1, 2]), (gguf.STRING, ["a"])]))),
)


def make_gguf(chance: Random) -> bytes:
    """Return a header with a hostile number in some place, or with changed bytes."""
    order = chance.choice("<<<>")
    chosen = [chance.choice(VALUES) for _ in range(chance.randrange(6))] + list(VALUES)
    chance.shuffle(chosen)
    forge = chance.choice((0.0, 0.02, 0.1))

    def number(code: str, value: int) -> bytes:
        if chance.random() < forge:
            value = chance.choice(NUMBERS)
        size = struct.calcsize(order + code)
        return (value % 256**size).to_bytes(size, "little" if order == "<" else "big")

    def text(value: str) -> bytes:
        data = value.encode()
        if chance.random() < forge:
            data = mutate_bytes(data, chance)
        return number("Q", len(data)) + data

    def write(kind: int, value: Any) -> bytes:
        if kind == gguf.STRING:
            return text(value)
        if kind == gguf.ARRAY:
            inner, items = value
            times = chance.choice((1, 500)) if chance.random() < forge else 1
            body = b"".join(write(inner, item) for item in items) * times
            return number("I", inner) + number("Q", len(items) * times) + body
        return struct.pack(order + gguf.SCALARS[kind], value)

    seen = dict(chosen) if chance.random() < 0.8 else None
    pairs = list(seen.items()) if seen else chosen
    body = b"".join(
        text(key) + number("I", kind) + write(kind, value) for key, (kind, value) in pairs
    )
    start = gguf.MAGIC + number("I", 3) + number("Q", 0) + number("Q", len(pairs))
    data = start + body
    return mutate_bytes(data, chance) if chance.random() < 0.5 else data


def run_gguf(data: bytes) -> None:
    folder = write_files({"model.gguf": data})
    use(turnwise.load(folder))


# -- entries -----------------------------------------------------------------------------------------------------------


def make_entry(chance: Random) -> bytes:
    """Return a TOML entry, a TOML collection or a JSON collection; the first byte says which."""
    if chance.random() < 0.4:
        return b"j" + mutate_json("collection-*.json", chance)
    data = chance.choice(read_seeds("entry-*.toml"))
    if chance.random() < 0.3:
        return b"t" + mutate_bytes(data, chance)
    lines = data.splitlines(keepends=True)
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(lines))
        key = lines[at].partition(b"=")[0].strip() or b"x"
        value = json.dumps(json.loads(write_value(chance)), ensure_ascii=True).encode()
        lines[at : at + chance.randrange(2)] = [
            key + b" = " + value.replace(b"null", b"''") + b"\n"
        ]
    return b"t" + b"".join(lines)


def write_value(chance: Random) -> bytes:
    try:
        data = write_json(mutate_tree({"a": ["b"]}, chance), chance)
        return json.dumps(json.loads(data)).encode()
    except (ValueError, RecursionError):
        return b"[[[1]]]"


def run_entry(data: bytes) -> None:
    """Read a folder of TURNWISE_PATH, and load what it has."""
    name = "mine.json" if data[:1] == b"j" else "mine.toml"
    source = b"{% for m in messages %}{{ m.content }}{% endfor %}"
    folder = write_files({name: data[1:], "mine.jinja": source})
    os.environ[store.PATH_VARIABLE] = str(folder)
    store._current = None
    try:
        found = [entry for entry in turnwise.entries().values() if entry.file]
        for model in ("me/mine", "Qwen/Qwen3-8B", "mine-7b"):
            with suppress(UnknownModel):
                turnwise.match(model)
        for entry in found[:5]:
            parse_declaration(dict(entry.replies), entry.name)
            use(turnwise.load(entry.name))
        if not found:
            turnwise.load("mine")
    finally:
        del os.environ[store.PATH_VARIABLE]
        store._current = None


# -- dialects ----------------------------------------------------------------------------------------------------------


def run_dialect(dialect: str, data: bytes) -> None:
    """Give a source to its dialect as text or, where it is JSON, as data; or as a file or text of unknown kind."""
    source: Any = data.decode("utf-8", "surrogateescape")
    choice = Random(data)
    if choice.random() < 0.1:
        read_bytes(data, "source.json" if data[:1] == b"{" else "source")
        return
    if choice.random() < 0.6:
        with suppress(ValueError, RecursionError):
            source = revive(json.loads(source))
    arguments = {} if choice.random() < 0.2 else {"dialect": dialect}
    use(turnwise.compile(source, exact=choice.random() < 0.4, **arguments))


def revive(value: Any, depth: int = 0) -> Any:
    """Return the value with Python's own types in some places, which a caller may pass and a file cannot hold."""
    if isinstance(value, list) and depth < 20:
        items = [revive(item, depth + 1) for item in value]
        return tuple(items) if len(items) == 2 else items
    if isinstance(value, dict) and depth < 20:
        return {(7 if key == "" else key): revive(item, depth + 1) for key, item in value.items()}
    return b"bytes" if value == "\x00" else value


MAX_TEXT = 400_000  # bytes


def make_text(pattern: str, chance: Random) -> bytes:
    """Return a changed source that is no JSON: lines moved, words inserted, bytes changed."""
    data = chance.choice(read_seeds(pattern))
    words = data.split(b" ")
    for _ in range(chance.choice((1, 2, 4))):
        at = chance.randrange(len(words))
        change = chance.randrange(4)
        if change == 0:
            words[at : at + chance.choice((1, 3))] = []
            words = words or [b""]
        elif change == 1:
            words.insert(at, chance.choice(words))
        elif change == 2:
            words[at] = (words[at] * chance.choice((2, 100, 2_000)))[:MAX_TEXT]
        else:
            words.insert(at, chance.choice(GO_WORDS))
    changed = b" ".join(words)[:MAX_TEXT]
    return mutate_bytes(changed, chance) if chance.random() < 0.4 else changed


GO_WORDS = (
    *(
        b"{{",
        b"}}",
        b"{{-",
        b"-}}",
        b"{{ end }}",
        b"{{ else }}",
        b"{{ range .Messages }}",
        b"{{ if .System }}",
    ),
    *(
        b".Content",
        b".Role",
        b"$x",
        b":=",
        b"|",
        b"json",
        b"(",
        b")",
        b"eq",
        b"and",
        b"not",
        b"index",
        b"slice",
    ),
    *(
        b'"a"',
        b"`b`",
        b"'c'",
        b"1",
        b"-1",
        b"1e99",
        b"0x" + b"f" * 400,
        b"9" * 5_000,
        b"{{/* c */}}",
        b"{% if x %}",
    ),
    *(
        b"\nFROM x\n",
        b"\nTEMPLATE ",
        b'"""',
        b"\nSYSTEM a\n",
        b"\nPARAMETER stop ",
        b"\nMESSAGE user hi\n",
    ),
    *(
        b"{{ tojson }}",
        b"messages",
        b"{% for m in messages %}",
        b"{% endfor %}",
        b"{# c #}",
        b"{% raw %}",
    ),
)

DIALECTS: dict[str, Callable[[Random], bytes]] = {
    **{
        name: partial(mutate_json, f"{name}-*.json")
        for name in (
            "xtuner",
            "xtuner_v1",
            "fastchat",
            "llamafactory",
            "paddlenlp",
            "internlm2",
            "lmdeploy",
        )
    },
    "ollama": partial(make_text, "ollama-*"),
    "jinja": partial(make_text, "jinja-*"),
}

TARGETS: Sequence[Target] = (
    Target(
        "tokenizer",
        partial(mutate_json, "tokenizer-*.json"),
        run_tokenizer,
        "tokenizer.json, both libraries",
    ),
    Target(
        "config",
        make_declarations,
        run_declarations,
        "tokenizer_config.json and special_tokens_map.json",
    ),
    Target("gguf", make_gguf, run_gguf, "headers of GGUF files"),
    Target("entries", make_entry, run_entry, "TURNWISE_PATH: TOML entries, JSON collections"),
    *(
        Target(name, make, partial(run_dialect, name), f"sources of the dialect {name}")
        for name, make in DIALECTS.items()
    ),
)
