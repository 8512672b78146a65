"""Models by their id: the local Hugging Face cache, its revisions, the hub, and the entry as fallback and reference.

No test uses a network: the library that downloads is replaced by a function that fills a cache.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import turnwise
from turnwise import TurnwiseWarning
from turnwise.errors import SourceError, TokenizerError
from turnwise.hub_cache import find_cached_model
from turnwise.registry import find_source, hub
from turnwise.registry.generation_config import read_stops
from turnwise.tokens.tokenizers import files as tokenizer_files

PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
OTHER = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
HELLO = [{"role": "user", "content": "hello"}]
MODEL = "Qwen/Qwen2.5-7B-Instruct"


@pytest.fixture(autouse=True)
def hub_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache of the hub."""
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    yield tmp_path / "hub"


def put_model(
    cache: Path, model: str, files: Mapping[str, str], commit: str = "abc1", reference: str = "main"
) -> Path:
    """Put files into the cache as the library does: blobs, a snapshot of links, a reference."""
    root = cache / f"models--{model.replace('/', '--')}"
    snapshot = root / "snapshots" / commit
    snapshot.mkdir(parents=True, exist_ok=True)
    (root / "blobs").mkdir(exist_ok=True)
    for number, (name, text) in enumerate(files.items()):
        blob = root / "blobs" / f"{commit}{number}"
        blob.write_text(text, encoding="utf-8")
        place = snapshot / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(blob)
    if reference:
        place = root / "refs" / reference
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(commit)
    return snapshot


# ---- the files come first, the entry is the reference ----


def test_the_files_of_the_user_are_used_and_a_difference_is_reported(hub_folder: Path) -> None:
    put_model(hub_folder, MODEL, {"chat_template.jinja": PLAIN})
    with pytest.warns(TurnwiseWarning) as caught:
        assert turnwise.load(MODEL).render(HELLO).text == "<user>hello"
    warned = str(caught[0].message)
    assert (
        "differs from the built-in entry qwen2.5" in warned and "conversation of 'a user'" in warned
    )
    assert "'<user>First' where the entry writes '<|im_start|>system" in warned
    assert MODEL in warned and "abc1" in warned


def test_the_text_of_the_entry_is_no_difference(hub_folder: Path) -> None:
    text = turnwise.load("qwen2.5").text
    put_model(hub_folder, MODEL, {"chat_template.jinja": text})
    assert turnwise.load(MODEL).text == text  # a warning would be an error here
    assert find_source(MODEL).name.endswith("chat_template.jinja")


def test_a_known_text_needs_no_comparison(
    hub_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hash of a published text that the entry is known to equal is enough."""
    from turnwise.registry import reference

    text = turnwise.load("qwen2.5").text
    known = reference.identify("")
    assert known is None
    row = type("Row", (), {"equal": ("qwen2.5",)})()
    monkeypatch.setattr(reference, "identify", lambda text: row)
    monkeypatch.setattr(reference, "_render", lambda *arguments: pytest.fail("rendered"))
    put_model(hub_folder, MODEL, {"chat_template.jinja": text + " "})
    assert turnwise.load(MODEL).text == text + " "


def test_without_files_the_entry_is_used() -> None:
    assert turnwise.load(MODEL).text == turnwise.load("qwen2.5").text


def test_files_without_a_template_fall_back_to_the_entry(hub_folder: Path) -> None:
    put_model(hub_folder, MODEL, {"tokenizer_config.json": "{}"})
    with pytest.warns(TurnwiseWarning, match="holds no chat template: the built-in entry qwen2.5"):
        assert turnwise.load(MODEL).text == turnwise.load("qwen2.5").text
    put_model(hub_folder, "some/model", {"tokenizer_config.json": "{}"})
    with pytest.raises(SourceError, match="holds no chat template"):
        turnwise.load("some/model")


def test_a_base_model_with_a_template_is_reported(hub_folder: Path) -> None:
    put_model(hub_folder, "Qwen/Qwen2.5-7B", {"chat_template.jinja": PLAIN})
    with pytest.warns(TurnwiseWarning, match="base model was not trained on a chat template"):
        assert turnwise.load("Qwen/Qwen2.5-7B").text == PLAIN


def test_a_template_that_refuses_is_a_difference(hub_folder: Path) -> None:
    put_model(hub_folder, MODEL, {"chat_template.jinja": "{{ raise_exception('no') }}"})
    with pytest.warns(TurnwiseWarning, match="'a user': it refuses it"):
        turnwise.load(MODEL)


LAYOUTS = {
    "jinja": {"chat_template.jinja": PLAIN},
    "processor": {"chat_template.json": json.dumps({"chat_template": PLAIN})},
    "config": {"tokenizer_config.json": json.dumps({"chat_template": PLAIN})},
    "named": {
        "tokenizer_config.json": json.dumps(
            {"chat_template": [{"name": "default", "template": PLAIN}]}
        )
    },
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_place_of_a_template(hub_folder: Path, layout: str) -> None:
    put_model(hub_folder, "me/mine", LAYOUTS[layout])
    assert turnwise.load("me/mine").text == PLAIN


def test_a_link_out_of_the_cache_is_refused(hub_folder: Path, tmp_path: Path) -> None:
    snapshot = put_model(hub_folder, "me/mine", {"tokenizer_config.json": "{}"})
    (tmp_path / "secret").write_text(PLAIN)
    (snapshot / "chat_template.jinja").symlink_to(tmp_path / "secret")
    with pytest.raises(SourceError, match="link out of its folder"):
        turnwise.load("me/mine")


# ---- revisions ----


def test_revisions(hub_folder: Path) -> None:
    put_model(hub_folder, "me/mine", {"chat_template.jinja": PLAIN}, "abc1", "main")
    put_model(hub_folder, "me/mine", {"chat_template.jinja": OTHER}, "abc2", "refs/pr/7")
    put_model(hub_folder, "me/mine", {"chat_template.jinja": "{{ 3 }}"}, "abc3", "")
    for revision, text in (("main", PLAIN), ("refs/pr/7", OTHER), ("abc3", "{{ 3 }}")):
        assert turnwise.load("me/mine", revision=revision).text == text
        assert turnwise.load(f"me/mine@{revision}").text == text
    assert turnwise.load("me/mine").text == PLAIN
    for revision in ("v9", "../../other", "", "abc", "main/../../x"):
        assert find_cached_model("me/mine", revision or "nothing") is None
    with pytest.raises(SourceError, match="revision 'v9' of me/mine is not in the local"):
        turnwise.load("me/mine", revision="v9")
    with pytest.raises(SourceError, match="there is no 'me/mine@v9'"):
        turnwise.load("me/mine@v9")


def test_an_entry_is_not_a_revision() -> None:
    with pytest.raises(SourceError, match="not in the local Hugging Face cache"):
        turnwise.load(MODEL, revision="main")
    for where in ("qwen2.5", Path("x"), 5):
        with pytest.raises(SourceError, match="revision and download are for the id of a model"):
            turnwise.load(where, revision="main")  # type: ignore[arg-type]


def test_the_tokenizer_of_a_cached_model(hub_folder: Path) -> None:
    shipped = tokenizer_files.SHIPPED / "tokenizer.json"
    text = shipped.read_text(encoding="utf-8")
    chatml = turnwise.load("chatml").text
    put_model(hub_folder, "me/mine", {"chat_template.jinja": chatml, "tokenizer.json": text})
    put_model(hub_folder, "me/mine", {"tokenizer.json": text}, "abc2", "v2")
    template = turnwise.load("me/mine")
    ids = template.encode(HELLO, "turnwise").input_ids
    assert template.encode(HELLO, "me/mine").input_ids == ids
    assert template.encode(HELLO, "me/mine@v2").input_ids == ids
    with pytest.raises(TokenizerError, match="no such model in the local"):
        template.encode(HELLO, "me/mine@v3")


# ---- the hub ----


def replace_library(monkeypatch: pytest.MonkeyPatch, download: Any) -> None:
    library = ModuleType("huggingface_hub")
    library.snapshot_download = download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)


def test_download(hub_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def download(model: str, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append((model, revision))
        assert "*.safetensors" not in allow_patterns and "tokenizer*" in allow_patterns
        return str(put_model(hub_folder, model, {"chat_template.jinja": PLAIN}))

    replace_library(monkeypatch, download)
    with pytest.raises(SourceError, match="there is no"):
        turnwise.load("me/mine")
    assert asked == []  # only when asked to
    assert turnwise.load("me/mine", download=True).text == PLAIN
    assert turnwise.load("me/mine@v1", download=True).text == PLAIN
    assert turnwise.load("me/mine", download=True, revision="v2").text == PLAIN
    assert asked == [("me/mine", None), ("me/mine", "v1"), ("me/mine", "v2")]
    assert turnwise.load("me/mine").text == PLAIN  # from the cache


def test_a_download_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*arguments: Any, **more: Any) -> str:
        raise ConnectionError("no route to host")

    replace_library(monkeypatch, download)
    with pytest.raises(SourceError, match="me/mine at v1 cannot be downloaded: ConnectionError"):
        turnwise.load("me/mine", download=True, revision="v1")
    with pytest.raises(SourceError, match="for the id of a model"):
        turnwise.load("qwen2.5", download=True)


def test_download_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(SourceError, match="needs huggingface_hub") as caught:
        turnwise.load("me/mine", download=True)
    assert "turnwise[hub]" in str(caught.value.hint)


def test_the_library_takes_our_arguments() -> None:
    """The call is one that the installed library accepts; nothing is called."""
    import inspect

    library = pytest.importorskip("huggingface_hub")
    inspect.signature(library.snapshot_download).bind(
        "me/mine", revision=None, allow_patterns=list(hub.PATTERNS)
    )


# ---- generation_config.json ----


def write(folder: Path, **files: Any) -> Path:
    folder.mkdir(exist_ok=True)
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    return folder


DECODER = {"7": {"content": "<|end|>"}, "8": {"content": "<|stop|>"}, "x": {}, "9": 5}


@pytest.mark.parametrize(
    ("ids", "stops"),
    [
        (7, ("<|end|>",)),
        ([7, 8], ("<|end|>", "<|stop|>")),
        ([8, 7, 8], ("<|stop|>", "<|end|>")),
        ([7, 1000], ("<|end|>",)),
        ([3], ("<|three|>",)),
        (None, ()),
        ([True, "7", 7.0, None], ()),
        ({"a": 1}, ()),
        ([9], ()),
    ],
)
def test_stops_of_a_folder(tmp_path: Path, ids: Any, stops: tuple[str, ...]) -> None:
    folder = write(
        tmp_path / "model",
        generation_config={"eos_token_id": ids},
        tokenizer_config={"added_tokens_decoder": DECODER, "chat_template": PLAIN},
        tokenizer={"added_tokens": [{"id": 3, "content": "<|three|>"}, 4, {"id": "5"}]},
    )
    assert read_stops(folder) == stops
    found = turnwise.load(folder).stops()
    assert found[: len(stops)] == stops


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 10_000, "\xff"])
def test_a_broken_file_has_no_stops(tmp_path: Path, text: str) -> None:
    folder = write(tmp_path / "model", tokenizer_config={"chat_template": PLAIN})
    (folder / "generation_config.json").write_text(text, encoding="latin-1")
    assert read_stops(folder) == ()
    assert turnwise.load(folder).stops() == turnwise.compile(PLAIN).stops()


def test_the_stops_of_a_model_are_those_of_its_files(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "model",
        generation_config={"eos_token_id": [7, 8]},
        tokenizer_config={"added_tokens_decoder": DECODER},
    )
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}<|end|>")
    template = turnwise.load(folder)
    assert template.stops() == ("<|end|>", "<|stop|>")
    assert template.parse("Hi<|stop|>")["content"] == "Hi"


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"])
def test_a_cache_of_a_user_who_is_not_there(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    for other in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(variable, "~nobody-is-called-so/cache")
    assert find_cached_model(MODEL) is None
