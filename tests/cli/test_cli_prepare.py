"""`turnwise prepare` and `turnwise inspect` as users call them."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import turnwise
from cli_runner import bad, good, run
from turnwise.cli import prepare as command
from turnwise.data import pages
from turnwise.data.dry_run import try_recipe
from turnwise.data.recipe import ENGINE_NAMES, Recipe
from turnwise.data.run import ENGINES, Progress, prepare
from turnwise.errors import DataError
from turnwise.tokens.tokenizers import tokenizer

KNOWN = tokenizer("turnwise")
BASE = ("-t", "chatml", "-k", "turnwise")


def chat(number: int, times: int = 1) -> dict[str, Any]:
    asked = {"role": "user", "content": f"What is {number}? " * times}
    return {"messages": [asked, {"role": "assistant", "content": f"It is {number}."}]}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Forty good rows and two bad ones."""
    lines = [json.dumps(chat(number, number % 7 + 1)) for number in range(40)]
    lines[20:20] = ["{oops", json.dumps({"messages": [{"role": "usr", "content": "x"}]})]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def out(rows: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    result = run("prepare", rows, *BASE, "-o", folder, "--workers", "1", "--validation", "0.3")
    assert result.exit_code == 1, result.output
    return folder


# -- prepare -----------------------------------------------------------------------------------------------------------

FLAGS: dict[str, tuple[tuple[str, ...], Any]] = {
    "inputs": (("a.jsonl", "b/*.jsonl"), ("a.jsonl", "b/*.jsonl")),
    "template": (("--template", "qwen3"), "qwen3"),
    "tokenizer": (("--tokenizer", "tok"), "tok"),
    "output": (("--output", "shards"), "shards"),
    "shape": (("--shape", "alpaca"), "alpaca"),
    "columns": (("--columns", "messages=dialogue"), {"messages": "dialogue"}),
    "carry_columns": (["--carry-columns", "label"], ("label",)),
    "drop_columns": (
        ["--drop-columns", "label", "--drop-columns", "meta.label"],
        ("label", "meta.label"),
    ),
    "train_on": (("--train-on", "last"), "last"),
    "samples": (("--samples", "turns"), "turns"),
    "preferences": (("--preferences", "pairs"), "pairs"),
    "max_length": (("--max-length", "99"), 99),
    "overlong": (("--overlong", "split", "--max-length", "9"), "split"),
    "packing": (("--packing", "best-fit", "--max-length", "9"), "best-fit"),
    "validation": (("--validation", "0.25"), 0.25),
    "deduplicate": (("--deduplicate",), True),
    "shuffle": (("--shuffle", "7"), 7),
    "group_by_length": (("--group-by-length",), True),
    "on_bad_row": (("--on-bad-row", "fail"), "fail"),
    "on_flaw": (("--on-flaw", "keep"), "keep"),
    "shard_format": (("--shard-format", "arrow"), "arrow"),
    "chunk_bytes": (("--chunk-bytes", "65536"), 65536),
    "late_system": (("--late-system", "front"), "front"),
    "now": (("--now", "2026-11-16"), datetime(2026, 11, 16)),
    "options": (("--options", "enable_thinking=false"), {"enable_thinking": False}),
}
GIVEN = {"inputs": "d.jsonl", "template": "chatml", "tokenizer": "turnwise", "output": "o"}


@pytest.fixture
def prepare_calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the command asks of `turnwise.data.prepare`, which is not run."""
    calls: list[Any] = []

    def stop(recipe: Recipe, **settings: Any) -> None:
        calls.append((recipe, settings))
        raise DataError("enough")

    monkeypatch.setattr("turnwise.data.run.prepare", stop)
    return calls


def test_every_value_of_a_recipe_has_a_flag() -> None:
    assert set(FLAGS) == {one.name for one in fields(Recipe)}


@pytest.mark.parametrize("name", FLAGS)
def test_flags_reach_the_recipe(name: str, prepare_calls: list[Any], tmp_path: Path) -> None:
    flags, expected = FLAGS[name]
    file = tmp_path / "recipe.toml"
    others = {key: value for key, value in GIVEN.items() if key != name}
    file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in others.items()))
    assert "enough" in bad("prepare", *flags, "--recipe", file)
    ((recipe, _),) = prepare_calls
    assert getattr(recipe, name) == expected
    for key in others:
        assert getattr(recipe, key) == getattr(Recipe.from_mapping(GIVEN), key)


def test_flags_come_before_the_file(prepare_calls: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text('inputs = ["a"]\ntemplate = "qwen3"\ntokenizer = "b"\nmax_length = 5\n')
    bad("prepare", "--recipe", file, "-o", "c", "--max-length", "6", "--engine", "local")
    ((recipe, settings),) = prepare_calls
    assert (recipe.max_length, recipe.template, recipe.output) == (6, "qwen3", "c")
    assert settings["engine"] == "local" and settings["workers"] is None


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("a.jsonl", "-k", "turnwise", "-o", "o"), "--template"),
        (("-t", "chatml", "-k", "turnwise", "-o", "o"), "DATA"),
        (("a.jsonl", *BASE), "--output"),
        (("a.jsonl", *BASE, "-o", "o", "--engine", "lokal"), "local"),
        (("a.jsonl", *BASE, "-o", "o", "--columns", "messages"), "NAME=COLUMN"),
        (("a.jsonl", *BASE, "-o", "o", "--packing", "best_fit"), "best-fit"),
        (("a.jsonl", *BASE, "-o", "o", "--options", "enable_thinking"), "--options"),
        (("a.jsonl", *BASE, "-o", "o", "--options", "messages=1"), "--options"),
        (("--recipe", "none.toml"), "none.toml"),
    ],
)
def test_misuse_is_named(arguments: tuple[str, ...], named: str, tmp_path: Path) -> None:
    assert named in bad("prepare", *arguments)


def test_summary_and_files(out: Path, rows: Path) -> None:
    manifest = json.loads((out / "manifest.json").read_text())
    again = run("prepare", rows, *BASE, "-o", out, "--workers", "1", "--validation", "0.3")
    assert again.exit_code == 1 and "nothing was done" in again.stderr
    lines = dict(line.split(None, 1) for line in again.stdout.splitlines() if "reason" not in line)
    assert lines["rows"] == "42 read: 40 written, 2 rejected"
    assert lines["samples"] == "40"
    assert lines["tokens"].startswith(f"{manifest['tokens']['all']:,}: ")
    counts = Counter({shard["split"]: shard["rows"] for shard in manifest["shards"]})
    assert counts.total() == 40
    for split, count in counts.items():
        assert lines[split] == f"{count} rows in 1 shard"
    assert Path(lines["report"]).read_text().startswith("<!doctype html>")
    assert len(Path(lines["rejected"]).read_text().splitlines()) == 2
    assert "1 x bad-json: the row is not JSON" in again.stdout


def test_json_is_the_manifest(out: Path, rows: Path) -> None:
    again = run("prepare", rows, *BASE, "-o", out, "--validation", "0.3", "--json")
    assert json.loads(again.stdout) == json.loads((out / "manifest.json").read_text())


def test_one_bad_row_can_end_the_run(rows: Path, tmp_path: Path) -> None:
    shown_error = bad("prepare", rows, *BASE, "-o", tmp_path / "o", "--on-bad-row", "fail")
    assert "rows.jsonl" in shown_error and "21" in shown_error
    assert not list(tmp_path.glob("o/train-*"))


def test_every_row_rejected_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "oops.jsonl"
    path.write_text("{oops\n{oops\n")
    result = run("prepare", path, *BASE, "-o", tmp_path / "o")
    assert result.exit_code == 2 and "every row was rejected" in result.stderr
    dry = run("prepare", path, *BASE, "--dry-run")
    assert dry.exit_code == 2 and "oops.jsonl:1" in dry.stderr


@pytest.fixture(params=["empty", "empty.gz", "too-long", "column", "mixed"])
def nothing(
    request: pytest.FixtureRequest, tmp_path: Path
) -> tuple[tuple[object, ...], tuple[str, ...]]:
    """Arguments of runs that write nothing, and what their errors must say."""
    path = tmp_path / "data.jsonl"
    lines = "".join(json.dumps(chat(number, 9)) + "\n" for number in range(3))
    path.write_text(lines)
    if request.param == "empty":
        path.write_text("")
        return (path, *BASE), ("there is no row in the inputs", "Name files that have rows")
    if request.param == "empty.gz":
        path = tmp_path / "data.jsonl.gz"
        path.write_bytes(gzip.compress(b""))
        return (path, *BASE), ("there is no row in the inputs", "Name files that have rows")
    if request.param == "column":
        shown_error = ": there is no column 'message'. It has: messages. Did you mean"
        return (path, *BASE, "--columns", "messages=message"), (
            "every row",
            "rejected",
            "data.jsonl:1",
            shown_error,
        )
    if request.param == "mixed":
        path.write_text(lines + "{oops\n")
        expected = ("of 4 rows", "3", "filtered", "data.jsonl:4: ", "Raise --max-length")
        return (path, *BASE, "--max-length", "20"), expected
    return (path, *BASE, "--max-length", "20"), ("of 3 rows", "filtered", "Raise --max-length")


@pytest.mark.parametrize("is_dry", [False, True])
def test_a_run_that_writes_nothing_is_an_error(
    nothing: tuple[tuple[object, ...], tuple[str, ...]], is_dry: bool, tmp_path: Path
) -> None:
    given, expected = nothing
    arguments = (*given, "--dry-run" if is_dry else "--workers=1", "-o", tmp_path / "o")
    result = run("prepare", *arguments)
    assert result.exit_code == 2 and "read" in result.stdout
    for text in expected:
        assert text in result.stderr
    as_data = run("prepare", *arguments, "--json")
    assert as_data.exit_code == 2
    error = json.loads(as_data.stdout)["error"]  # one document: the error
    assert error["type"] == "DataError"
    for text in expected:
        assert text in f"{error['message']} {error['hint']}"


def test_a_run_that_wrote_nothing_is_repeated(tmp_path: Path) -> None:
    path = tmp_path / "oops.jsonl"
    path.write_text("{oops\n")
    call = ("prepare", path, *BASE, "-o", tmp_path / "o")
    assert "oops.jsonl:1: is not JSON" in run(*call).stderr
    (tmp_path / "o" / "rejected.jsonl").unlink()
    again = run(*call)
    assert again.exit_code == 2 and "every row was rejected" in again.stderr
    assert "oops.jsonl:1: is not JSON" in again.stderr
    path.write_text(json.dumps(chat(0)))
    assert "1 row" in good(*call)


def test_the_summary_names_notes_and_removed_nulls(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    other = {"type": "function", "function": {"name": "g", "description": "G."}}
    table = pa.Table.from_pylist([{**chat(0), "tools": [tool]}, {**chat(1), "tools": [other]}])
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    (tmp_path / "none.jsonl").touch()
    places = (tmp_path / "rows.parquet", tmp_path / "none.jsonl")
    qwen = ("-t", "qwen3", "-k", "turnwise", "--on-flaw", "keep")
    shown = run("prepare", *places, *qwen, "-o", tmp_path / "out").stdout
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["nulls_removed"] == 2
    assert "nulls      2 removed, with which Arrow pads tables\n" in shown
    assert f"note       {tmp_path / 'none.jsonl'} is empty\n" in shown
    assert "nulls      2 removed" in good("inspect", tmp_path / "out", "-n", "0")


def test_interrupt_says_how_to_go_on(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: Any, **settings: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("turnwise.data.run.prepare", interrupt)
    result = run("prepare", rows, *BASE, "-o", tmp_path / "o")
    assert result.exit_code == 130 and "the same command resumes" in result.stderr


def test_dry_run_reads_and_writes_nothing(rows: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    result = run("prepare", rows, *BASE, "-o", tmp_path / "o", "--dry-run")
    assert result.exit_code == 1
    assert "42 read, all" in result.stdout and "41 openai" in result.stdout
    assert "rows.jsonl:21: is not JSON" in result.stdout
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("format", ["jsonl", "json", "jsonl.gz", "parquet"])
def test_dry_run_estimates(format: str, tmp_path: Path) -> None:
    chats = [chat(number) for number in range(2500)]
    path = tmp_path / f"rows.{format}"
    text = "\n".join(map(json.dumps, chats))
    if format == "parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(chats), path)
    elif format == "jsonl.gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(json.dumps(chats) if format == "json" else text)
    found = try_recipe(Recipe(str(path), "chatml", "turnwise"))
    assert found.rows_read == len(found.lengths) == 1000
    if format != "jsonl.gz":  # how well text can be compressed is a guess
        assert found.rows_estimated == pytest.approx(2500, rel=0.05)
        encoded = turnwise.load("chatml").encode_batch(chats, "turnwise")
        expected = sum(len(row.input_ids) for row in encoded)
        assert found.tokens_estimated == pytest.approx(expected, rel=0.1)


def test_a_dry_run_names_each_reason_once(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    bad = [{"messages": [{"role": "user", "content": 5}]}, {"other": 1}]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*bad * 3, bad[0]]), "utf-8")
    reasons = try_recipe(Recipe(str(path), "chatml", "turnwise")).reasons
    assert len(reasons) == 2
    assert reasons[0].startswith(f"{path}:1 and 3 more: ")
    assert reasons[1].startswith(f"{path}:2 and 2 more: ")


def test_a_dry_run_undoes_null_padding_in_renamed_columns(tmp_path: Path) -> None:
    turns: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}]
    for name in ("first", "second"):  # a table gives each call the argument of the other
        call = {"type": "function", "function": {"name": name, "arguments": {name: "x"}}}
        turns.append({"role": "assistant", "content": "", "tool_calls": [call]})
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pa.Table.from_pylist([{"chat": turns}]), path)
    columns = {"messages": "chat"}
    recipe = Recipe(str(path), "qwen3", "turnwise", str(tmp_path / "out"), columns=columns)
    assert try_recipe(recipe).lengths == [prepare(recipe).manifest["tokens"]["all"]]


def test_figures_beside_the_bar() -> None:
    first = Progress(rows=1000, tokens=50_000)  # what an earlier run has done
    now = Progress(rows=3000, tokens=1_050_000, rejected=7)
    shown = command.progress_figures(first, now, 2.0)
    assert shown == "3,000 rows  1.00k rows/s  500k tokens/s  7 rejected"
    assert command.progress_figures(first, first, 0.0) == "1,000 rows  0 rejected"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (999, "999"),
        (999.6, "1.00k"),
        (12_345, "12.3k"),
        (999_960, "1.00M"),
        (5e10, "50.0G"),
    ],
)
def test_short_numbers(value: float, shown: str) -> None:
    assert pages.short_number(value) == shown


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--max-length", "0"), "'--max-length'"),
        (("--packing", "best-fit"), "--packing needs --max-length: "),
        (("--packing", "foo"), "--packing: 'foo' is not known. One of: none, best-fit."),
        (("--overlong", "split"), "--overlong split needs --max-length"),
        (("--preferences", "pairs", "--samples", "turns"), "--samples must be 'whole'"),
        (("--preferences", "pairs", "--samples", "turns"), "--preferences chosen trains"),
        (("--columns", "foo=bar"), "--columns: unknown key 'foo'"),
        (("--now", "foo"), "--now: 'foo' is not a time"),
    ],
)
def test_errors_name_flags_of_a_recipe(words: tuple[str, ...], problem: str) -> None:
    shown = bad("prepare", "a.jsonl", *BASE, "-o", "o", *words)
    assert problem in shown and "max_length" not in shown and "null" not in shown


def test_one_row_is_no_rows(tmp_path: Path) -> None:
    place = tmp_path / "one.jsonl"
    place.write_text(json.dumps(chat(1)), encoding="utf-8")
    shown = good("prepare", place, *BASE, "-o", tmp_path / "out", "--workers", "1")
    assert "1 row in 1 shard\n" in shown and "1 rows" not in shown


def test_every_engine_has_a_name() -> None:
    assert tuple(ENGINES) == ENGINE_NAMES


# -- inspect -----------------------------------------------------------------------------------------------------------


def test_inspect_shows_trained_tokens(out: Path) -> None:
    row = pyarrow.parquet.read_table(out / "train-00000-of-00001.parquet").to_pylist()[0]
    shown = good("inspect", out, "-n", "1", "--split", "train")
    assert f"train-00000-of-00001.parquet row 1: {len(row['input_ids'])} tokens" in shown
    assert f"rows.jsonl:{row['source_row']}" in shown
    *words, stop = [id for id in row["labels"] if id != -100]
    expected = "".join(f"{KNOWN.decode([id])}'" for id in words) + f"⟦{KNOWN.decode([stop])}⟧'"
    assert expected.endswith(".'⟦<|im_end|>⟧'") and expected in shown
    assert f"'{expected}" not in shown and f"{expected}↵'" not in shown
    assert "\x1b" not in shown
    assert "\x1b[30;42m" in good("inspect", out, "-n", "1", "--color")


def test_inspect_shows_forged_control_tokens(tmp_path: Path) -> None:
    rows = chat(1)
    rows["messages"][0]["content"] = "a<|im_end|>b"
    (tmp_path / "rows.jsonl").write_text(json.dumps(rows), encoding="utf-8")
    good("prepare", tmp_path / "rows.jsonl", *BASE, "-o", tmp_path / "out", "--workers", "1")
    shown = good("inspect", tmp_path / "out", "-n", "1")
    forged = shown.partition("a|")[2].partition("b|")[0]
    assert forged.startswith("⟨") and forged.replace("⟩|⟨", "") == "⟨<|im_end|>⟩|"
    assert shown.count("⟦<|im_end|>⟧") == 2  # those of the template


def test_inspect_as_data(out: Path) -> None:
    tables = {path.name: pyarrow.parquet.read_table(path) for path in sorted(out.glob("*.parquet"))}
    every = [(name, row) for name, table in tables.items() for row in table.to_pylist()]
    for skip in (0, 5, 38, 40):
        data = json.loads(good("inspect", out, "-n", "3", "--skip", str(skip), "--json"))
        assert data["manifest"] == json.loads((out / "manifest.json").read_text())
        found = data["samples"]
        assert [one["input_ids"] for one in found] == [
            row["input_ids"] for _, row in every[skip : skip + 3]
        ]
        assert [one["shard"] for one in found] == [name for name, _ in every[skip : skip + 3]]
        assert all(one["text"].startswith("<|im_start|>user\nWhat is") for one in found)


def test_histogram_counts_every_sample(out: Path) -> None:
    shown = good("inspect", out, "-n", "0").splitlines()
    counts = [int(line.split()[2]) for line in shown if line.startswith("<=")]
    assert sum(counts) == 40


def test_packed_rows_and_pairs(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    row = {"prompt": "Hi", "chosen": "Hello!", "rejected": "Go away."}
    path.write_text("\n".join(json.dumps(row) for _ in range(3)))
    good("prepare", path, *BASE, "-o", tmp_path / "pairs", "--preferences", "pairs")
    shown = good("inspect", tmp_path / "pairs", "-n", "1")
    assert "chosen_ids" in shown and "Hello'!'⟦<|im_end|>⟧'" in shown and "user|" in shown
    packed = ("--packing", "best-fit", "--max-length", "64")
    good("prepare", path, *BASE, "-o", tmp_path / "packed", *packed)
    shown = good("inspect", tmp_path / "packed", "-n", "1")
    assert shown.count("-- the next sample of this row") == 2


def test_report_of_a_folder(out: Path, tmp_path: Path) -> None:
    good("inspect", out, "-n", "0", "--report", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_bytes() == (out / "report.html").read_bytes()
    assert "cannot be written" in bad("inspect", out, "--report", tmp_path / "no" / "page.html")


def change_manifest(out: Path, **values: Any) -> None:
    manifest = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps({**manifest, **values}))


def test_inspect_refuses_what_is_no_folder_of_shards(out: Path, tmp_path: Path) -> None:
    assert "no manifest.json" in bad("inspect", tmp_path)
    assert "none' does not exist" in bad("inspect", tmp_path / "none")
    assert "is a file, not a folder" in bad("inspect", out / "manifest.json")
    assert "validation" in bad("inspect", out, "--split", "valid")
    (out / "train-00000-of-00001.parquet").write_bytes(b"PAR1 broken PAR1")
    assert "train-00000-of-00001.parquet cannot be read" in bad("inspect", out)
    for name in ("notes", "nulls_removed"):
        change_manifest(out, **{name: "three"})
        assert f"{name!r} is missing" in bad("inspect", out)
        change_manifest(out, **{name: [] if name == "notes" else 0})
    for text in ("[", "[]", "{}", '{"rows": 1}'):
        (out / "manifest.json").write_text(text)
        assert "manifest" in bad("inspect", out)


def test_inspect_stays_in_the_folder(out: Path, tmp_path: Path) -> None:
    shard = {
        "path": "../secret.parquet",
        "split": "train",
        "rows": 1,
        "tokens": 1,
        "size": 1,
        "sha256": "",
    }
    (tmp_path / "secret.parquet").write_bytes((out / "train-00000-of-00001.parquet").read_bytes())
    change_manifest(out, shards=[shard])
    assert "outside its folder" in bad("inspect", out)
    (out / "link.parquet").symlink_to(tmp_path / "secret.parquet")
    change_manifest(out, shards=[{**shard, "path": "link.parquet"}])
    assert "cannot be read" in bad("inspect", out)


def test_inspect_without_its_tokenizer(out: Path) -> None:
    manifest = json.loads((out / "manifest.json").read_text())
    change_manifest(out, recipe={**manifest["recipe"], "tokenizer": "none/there"})
    assert "--tokenizer" in bad("inspect", out)
    good("inspect", out, "-n", "0")
    assert "It' is'" in good("inspect", out, "-n", "1", "-k", "turnwise")


# -- signals -----------------------------------------------------------------------------------------------------------


@pytest.mark.once
@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT")
def test_ctrl_c_leaves_what_the_same_command_resumes(tmp_path: Path) -> None:
    path, folder = tmp_path / "rows.jsonl", tmp_path / "out"
    path.write_text("\n".join(json.dumps(chat(number)) for number in range(300)))
    source = str(Path(turnwise.__file__).parents[1])
    code = (
        # a shell that runs the tests in the background lets all of them ignore the signal
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        f"sys.path.insert(0, {source!r}); from turnwise.cli import main; main()"
    )
    # Many small chunks, so that it takes some seconds.
    call = [sys.executable, "-c", code, "prepare", str(path), *BASE, "-o", str(folder)]
    call += ["--chunk-bytes", "1024", "--workers", "1"]
    process = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not list(folder.glob(".turnwise/done/*.json")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    shown, shown_error = process.communicate(timeout=60)
    assert process.returncode == 130 and shown == ""
    assert shown_error == "note: stopped; the same command resumes where it was\n"
    assert not list(folder.glob("train-*")) and not (folder / "manifest.json").exists()
    assert "no manifest.json" in bad("inspect", folder)
    resumed = subprocess.run(call, capture_output=True, text=True, check=True)
    assert "300 read: 300 written" in resumed.stdout
