"""`release` writes what a folder lacks, changes nothing else, and its goldens find what changed later."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import turnwise
import vocabularies
from cli_runner import bad, run
from turnwise.evidence import check
from turnwise.publishing.golden import GOLDEN_FILE
from turnwise.publishing.release_parts import CARD_FILE, TRAINING_FILE
from turnwise.publishing.validators import Verdict, ask_program

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")]
CONFIG = '{\n    "eos_token": "<|im_end|>",\n    "model_max_length": 1e30\n}'
BASE_MODELS = {"gemma2": "gemma-2", "mistral_v0_1": "mistral-v1"}
NEW_FILES = {"generation_config.json", TRAINING_FILE, CARD_FILE, GOLDEN_FILE}


def make_folder(path: Path, entry: str = "qwen2.5") -> Path:
    path.mkdir()
    shutil.copy(vocabularies.SHIPPED, path)
    (path / "tokenizer_config.json").write_text(CONFIG, encoding="utf-8")
    (path / "chat_template.jinja").write_text(turnwise.load(entry).text, encoding="utf-8")
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def release_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_folder(tmp_path_factory.mktemp("models") / "model")
    before = contents(folder)
    dry = run("release", folder, "--dry-run")
    assert dry.exit_code == 1 and "+++ b/generation_config.json" in dry.stdout
    assert contents(folder) == before
    result = run("release", folder)
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def folder(release_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(release_folder, tmp_path / "copy"))


def test_every_part_is_written(folder: Path) -> None:
    assert set(contents(folder)) >= NEW_FILES
    config = (folder / "tokenizer_config.json").read_text(encoding="utf-8")
    assert config.startswith(CONFIG[:-2])  # not a byte of it is another
    template = turnwise.load(str(folder))
    written = json.loads(config)["response_template"]
    assert written == template.grammar.to_response_template(profile="serving", partly=True)
    training = turnwise.load(str(folder / TRAINING_FILE))
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes."}]
    assert str(training.render(chat)) == str(template.render(chat))
    own = template.encode(chat, folder).labels
    assert training.encode(chat, folder, train_on="marked").labels == own
    stops = json.loads((folder / "generation_config.json").read_bytes())["eos_token_id"]
    assert set(template.stops(folder).ids) <= set(stops)
    card = (folder / CARD_FILE).read_text(encoding="utf-8")
    assert "| parallel calls | yes |" in card and "--verify" in card
    assert (
        "| arguments as text | no: it is printed as a value of Python or JSON |" in card
    )  # as T301 says


def test_what_is_written_is_new(folder: Path) -> None:
    (folder / CARD_FILE).unlink()
    assert f"card ({CARD_FILE}): missing" in str(turnwise.release(folder, dry_run=True))
    assert f"card ({CARD_FILE}): new" in str(turnwise.release(folder))


def test_the_template_is_checked_first(folder: Path) -> None:
    path = folder / "chat_template.jinja"
    path.write_text(
        path.read_text(encoding="utf-8").replace("message.content", "message.content | lower")
    )
    found = turnwise.release(folder, dry_run=True)
    assert found.findings is not None and "T701" in [one.code for one in found.findings]
    assert str(found).startswith("check: ") and "T701 the text of a message" in str(found)


def test_a_second_release_writes_nothing(folder: Path) -> None:
    before = contents(folder)
    found = turnwise.release(folder)
    assert found.is_complete and not found.written and not found.diff
    assert contents(folder) == before
    assert [
        verdict.accepted for verdict in found.verdicts if verdict.program == "transformers"
    ] != [False]


@pytest.mark.parametrize("module", [None, "no_such_module"])
def test_what_cannot_be_proved_here_is_not_written(
    module: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if module is None:  # transformers is not installed
        monkeypatch.setattr("turnwise.publishing.validators.find_spec", lambda name: None)
    else:  # it is too old to read response templates
        missing = {"transformers": (module, "validate")}
        monkeypatch.setattr("turnwise.publishing.validators.VALIDATORS", missing)
    folder = make_folder(tmp_path / "model")
    result = run("release", folder)
    assert result.exit_code == 1, result.output
    line = next(line for line in result.stdout.splitlines() if "response template" in line)
    assert ": not proved: " in line and "pip install -U transformers" in line
    assert "written: tokenizer_config.json" not in result.stdout
    assert (folder / "tokenizer_config.json").read_text(encoding="utf-8") == CONFIG
    assert set(contents(folder)) >= NEW_FILES  # what is proved without it


STOP_ONLY = "{% generation %}{{ '<|im_end|>' }}{% endgeneration %}"
REFUSES_PROMPTS = (
    "{% if add_generation_prompt and messages | length > 1 %}{{ raise_exception('no') }}{% endif %}"
)


@pytest.mark.parametrize(
    ("added", "stop", "reason"),
    [("", STOP_ONLY, "is not in a block"), (REFUSES_PROMPTS, "<|im_end|>", "fewer than 90%")],
)
def test_an_unproved_training_template_is_not_written(
    added: str, stop: str, reason: str, tmp_path: Path
) -> None:
    folder = make_folder(tmp_path / "model")
    template = (
        f"{added}{{% for m in messages %}}<|im_start|>{{{{ m.role }}}}\n{{{{ m.content }}}}{stop}{{% endfor %}}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    found = turnwise.release(folder)
    (part,) = [part for part in found.parts if part.file == TRAINING_FILE]
    assert part.status == "not possible" and reason in part.detail, str(found)
    assert part.describe() in str(found) and not (folder / TRAINING_FILE).exists()


def test_nothing_is_written_before_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, seen = make_folder(tmp_path / "model"), []

    def look(*arguments: Any, **named: Any) -> Any:
        seen.append(set(contents(folder)))
        return check(*arguments, **named)

    monkeypatch.setattr("turnwise.publishing.release_parts.check", look)
    before = set(contents(folder))
    shown = json.loads(run("release", folder, "--json").stdout)
    assert seen == [before] and "findings" in shown and set(contents(folder)) > before


def test_an_unproved_stop_or_response_template_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = "turnwise.publishing.release_parts"
    monkeypatch.setattr(f"{parts}._find_open_ends", lambda *_: iter(["7 is no stop"]))
    refused = Verdict("transformers", False, "it has no such key")
    monkeypatch.setattr(f"{parts}.ask_program", lambda *_: refused)
    folder = make_folder(tmp_path / "model")
    found = turnwise.release(folder)
    status = {part.name: (part.status, part.detail) for part in found.parts}
    assert status["stops"] == ("not possible", "7 is no stop")
    assert status["response template"] == ("not possible", str(refused))
    assert not (folder / "generation_config.json").exists()
    assert (folder / "tokenizer_config.json").read_text(encoding="utf-8") == CONFIG


def test_what_is_there_is_kept_unless_asked(folder: Path) -> None:
    (folder / CARD_FILE).write_text("mine", encoding="utf-8")
    (folder / "generation_config.json").write_text(
        '{"eos_token_id": 1, "top_p": 0.8}', encoding="utf-8"
    )
    found = turnwise.release(folder)
    assert not found.is_complete and not found.written
    assert {part.status for part in found.parts} == {"present", "differs"}
    assert (folder / CARD_FILE).read_text(encoding="utf-8") == "mine"
    again = turnwise.release(folder, overwrite=True)
    assert again.is_complete and set(again.written) == {CARD_FILE, "generation_config.json"}
    table = json.loads((folder / "generation_config.json").read_bytes())
    assert table["top_p"] == 0.8 and table["eos_token_id"][0] == 1


def test_goldens_find_a_changed_template(folder: Path) -> None:
    assert run("release", folder, "--verify").exit_code == 0
    template = folder / "chat_template.jinja"
    text = template.read_text(encoding="utf-8")
    template.write_text(text.replace("<tool_call>", "<call>"), encoding="utf-8")
    result = run("release", folder, "--verify")
    assert result.exit_code == 1 and "rendering 'a call', text: expected" in result.stdout
    assert any("reply 'call'" in str(one) for one in turnwise.verify_release(folder))


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("chat_template.jinja", None, "chat template"),
        ("tokenizer.json", None, "Looked for: tokenizer.json"),
        ("tokenizer_config.json", "{", "cannot be read"),
        ("generation_config.json", "[]", "not a JSON object"),
        (GOLDEN_FILE, "", "cannot be read"),
        (GOLDEN_FILE, '{"version": 1}', "is damaged"),
        (GOLDEN_FILE, '{"version": 9}', "has the version 9"),
        (GOLDEN_FILE, None, f"has no {GOLDEN_FILE}"),
    ],
)
def test_bad_folders(folder: Path, file: str, text: str | None, problem: str) -> None:
    (folder / file).unlink()
    if text is not None:
        (folder / file).write_text(text, encoding="utf-8")
    assert problem in bad("release", folder, *(["--verify"] if file == GOLDEN_FILE else []))


def test_a_folder_that_is_none_or_cannot_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "tokenizer.json" in bad("release", folder / "nowhere")
    file = folder / "chat_template.jinja"
    assert f"Give its folder: `turnwise release {folder}`" in bad("release", file).replace("\n", "")
    (folder / CARD_FILE).unlink()

    def refuse(*given: object, **more: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("turnwise.publishing.model_folder.tempfile.mkstemp", refuse)
    assert "cannot be written: permission denied" in bad("release", folder)


def test_a_program_that_is_not_installed_or_refuses() -> None:
    assert ask_program("sglang", {}).accepted is None or ask_program("sglang", {}).accepted is False
    pytest.importorskip("transformers")
    refused = ask_program("transformers", {"version": 99})
    assert refused.accepted is False and "version" in refused.detail


@pytest.mark.slow
@pytest.mark.parametrize("entry", turnwise.entries(dialect="jinja"))
def test_every_entry(entry: str, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", entry)
    turnwise.release(folder)
    again = turnwise.release(folder)
    assert not again.diff and all(verdict.accepted is not False for verdict in again.verdicts)
    assert turnwise.verify_release(folder) == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", vocabularies.REAL)
def test_every_tokenizer_of_the_corpus(name: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(vocabularies.path(name), tmp_path / "model"))
    if name in BASE_MODELS:  # their folders have no template
        text = turnwise.load(BASE_MODELS[name]).text
        (folder / "chat_template.jinja").write_text(text, encoding="utf-8")
    turnwise.release(folder)
    assert turnwise.release(folder).is_complete and turnwise.verify_release(folder) == ()
