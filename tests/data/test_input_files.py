"""Files of every format give the same rows, wherever they are cut; what is no data is named."""

from __future__ import annotations

import errno
import gzip
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prepared_folders import make_rows, write_jsonl
from turnwise.data import chunks as chunk_module
from turnwise.data import readers
from turnwise.data.chunks import InputChunk, choose_chunk_bytes, survey_file, unpack_file
from turnwise.data.files import InputFile, find_files
from turnwise.data.readers import read_chunk
from turnwise.data.row_bounds import ElementScanner
from turnwise.errors import DataError

ROWS = make_rows(200)
LINES = "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS)
JSON_VALUES = st.recursive(
    st.none() | st.integers() | st.text('ab"\\[]{},:é\n'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('a"]'), inner, max_size=3),
    max_leaves=6,
)


def write_text(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(text.encode())


def write_gzip(text: str) -> Callable[[Path], object]:
    half = len(text) // 2  # two members, as `cat a.gz b.gz` makes them
    data = gzip.compress(text[:half].encode()) + gzip.compress(text[half:].encode())
    return lambda path: path.write_bytes(data)


def write_zstd(text: str) -> Callable[[Path], object]:
    half = len(text) // 2
    frames = [
        pa.compress(part.encode(), "zstd", asbytes=True) for part in (text[:half], text[half:])
    ]
    return lambda path: path.write_bytes(b"".join(frames))


def write_parquet(group_rows: int) -> Callable[[Path], object]:
    return lambda path: pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=group_rows)


def write_arrow(open_writer: Any) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        table = pa.Table.from_pylist(ROWS)
        with open_writer(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=33)

    return write


FORMATS: dict[str, Callable[[Path], object]] = {
    "lines.jsonl": write_text(LINES),
    "ends_with_line_feed.ndjson": write_text(LINES + "\n"),
    "windows.jsonl": write_text("\ufeff" + LINES.replace("\n", "\r\n") + "\r\n\r\n"),
    "lines.jsonl.gz": write_gzip(LINES),
    "lines.jsonl.zst": write_zstd(LINES),
    "list.json": write_text(json.dumps(ROWS, indent=1)),
    "list_in_one_line.json": write_text("\ufeff" + json.dumps(ROWS)),
    "object.json": write_text(json.dumps({"version": "1, [2", "data": ROWS, "more": [1]})),
    "object.json.gz": write_gzip(json.dumps({"data": ROWS})),
    "lines_named_json.json": write_text(LINES),
    "lines_without_extension": write_text(LINES),
    "one_group.parquet": write_parquet(10_000),
    "groups.parquet": write_parquet(17),
    "stream.arrow": write_arrow(pa.ipc.new_stream),
    "file.feather": write_arrow(pa.ipc.new_file),
    "parquet_named_jsonl.jsonl": write_parquet(50),
}


def cut(file: InputFile, chunk_bytes: int, folder: Path) -> list[InputChunk]:
    survey = survey_file(file, 0, chunk_bytes)
    if survey.chunks is None:
        return list(unpack_file(file, 0, chunk_bytes, folder))
    return list(survey.chunks)


def read_rows(chunks: list[InputChunk]) -> Iterator[dict[str, Any]]:
    for chunk in chunks:
        for batch in read_chunk(chunk):
            yield from batch.to_pylist()


@pytest.mark.law(6)
@pytest.mark.parametrize("name", FORMATS)
def test_rows_do_not_depend_on_format_or_chunks(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    FORMATS[name](path)
    (tmp_path / "unpacked").mkdir()
    (file,) = find_files([path]).files
    for chunk_bytes in (500, 5_000, 1 << 30):
        chunks = cut(file, chunk_bytes, tmp_path / "unpacked")
        found = list(read_rows(chunks))
        assert [json.loads(row["raw"]) for row in found] == ROWS
        assert [row["row"] for row in found] == list(range(1, len(ROWS) + 1))
        assert {row["file"] for row in found} == {str(path)}
        assert len({chunk.name for chunk in chunks}) == len(chunks)
    if file.format in ("jsonl", "json") and not file.compression:
        data = path.read_bytes()
        for row in found:
            assert data[row["offset"] :].lstrip(b" \n\xef\xbb\xbf").startswith(row["raw"])


def test_chunks_of_a_file_have_about_the_same_size(tmp_path: Path) -> None:
    (file,) = find_files([write_jsonl(tmp_path / "data.jsonl", make_rows(2_000))]).files
    sizes = [chunk.size for chunk in cut(file, 20_000, tmp_path)]
    assert sum(sizes) == file.size
    assert len(sizes) > 10 and min(sizes) > 0.8 * max(sizes)


def test_a_small_data_set_is_cut_for_several_workers() -> None:
    file = InputFile("a.jsonl", "jsonl", "", 64 << 20)
    assert choose_chunk_bytes((file,), 8 << 20) == 4 << 20
    assert choose_chunk_bytes((file,) * 100, 8 << 20) == 8 << 20
    assert choose_chunk_bytes((file,), 1 << 10) == 1 << 10


def test_large_row_groups_are_cut_into_few_parts(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    rows = [{"text": f"{number} {os.urandom(300).hex()}"} for number in range(500)]
    pq.write_table(pa.Table.from_pylist(rows), path)
    (file,) = find_files([path]).files
    chunks = cut(file, 2_000, tmp_path)
    assert len(chunks) == chunk_module.MAX_PARTS_OF_GROUP
    found = list(read_rows(chunks))
    assert [json.loads(row["raw"]) for row in found] == rows
    assert [row["row"] for row in found] == list(range(1, 501))


@given(st.lists(JSON_VALUES, min_size=1), st.integers(1, 7), st.booleans())
@settings(max_examples=60)
def test_elements_of_lists_end_where_json_says(
    values: list[Any], block: int, is_indented: bool
) -> None:
    text = json.dumps(values, indent=1 if is_indented else None, ensure_ascii=False).encode()
    scanner, ends = ElementScanner(), []
    for start in range(1, len(text), block):
        ends += [start + end for end in scanner.feed(text[start : start + block])]
    assert scanner.is_closed and ends[-1] == len(text)
    starts = [1, *ends[:-1]]
    parts = [text[start : end - 1] for start, end in zip(starts, ends, strict=True)]
    assert [json.loads(part) for part in parts] == values


def test_broken_lines_are_rows_with_their_bytes(tmp_path: Path) -> None:
    lines = [b'{"a": 1}', b'{"a": ', b"\xff\xfe", b"", b"  ", b'{"a": 2}', b'{"cut": "sho']
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"\n".join(lines))
    (file,) = find_files([path]).files
    found = [(row["row"], row["raw"]) for row in read_rows(cut(file, 10, tmp_path))]
    assert found == [(number, line) for number, line in enumerate(lines, 1) if line.strip()]


def test_a_row_that_is_too_long_is_reported_and_the_next_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "MAX_ROW_BYTES", 3 << 20)
    huge = b'{"a": "' + b"x" * (5 << 20) + b'"}'
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'{"a": 1}\n' + huge + b'\n{"a": 2}\n')
    (file,) = find_files([path]).files
    first, long, last = read_rows(cut(file, 1 << 20, tmp_path))
    assert (long["row"], long["offset"], long["size"]) == (2, 9, len(huge) + 1)
    assert huge.startswith(long["raw"]) and len(long["raw"]) == readers.KEPT_BYTES
    good = [(row["row"], row["raw"], row["size"]) for row in (first, last)]
    assert good == [(1, b'{"a": 1}', None), (3, b'{"a": 2}', None)]


@pytest.mark.parametrize(
    ("document", "rows"),
    [
        ([{"role": "user", "content": "hi"}], 1),  # one conversation
        ({"messages": [{"role": "user", "content": "hi"}]}, 1),
        ({"instruction": "a", "history": [["b", "c"]], "output": "d"}, 1),
        ({"data": [{"prompt": "a"}, {"prompt": "b"}]}, 2),
        ([{"prompt": "a"}, {"prompt": "b"}], 2),
    ],
)
def test_a_document_is_one_row_or_a_list_of_them(document: Any, rows: int, tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_text(json.dumps(document))
    (file,) = find_files([path]).files
    assert len(list(read_rows(cut(file, 1000, tmp_path)))) == rows


HEADS = {
    "padded number": ('{"a":', " ", "1}"),
    "padded end of a number": ('{"a": 1', " ", ', "data": [{"prompt": "a"}]}'),
    "padded key": ('{"a"', "\n", ': 1, "data": [{"prompt": "a"}]}'),
    "many members": ("{", '"a": 1 , ', '"data": [{"prompt": "a"}]}'),
    "letters in place of a number": ('{"a": ', "ab ", "}"),
    "quotes": ('{"a": "', '\\"', '"}'),
    "a string that does not end": ('{"a": "', "\\\\a", ""),
    "line feeds": ("", "\n", "[[1]]"),
    "opening brackets": ("[", " ", '{"role"'),
}


@pytest.mark.parametrize("name", HEADS)
def test_the_format_of_a_padded_file_is_found_in_linear_time(name: str, tmp_path: Path) -> None:
    start, padding, end = HEADS[name]
    path = tmp_path / "data.json"
    for size in (1_000, 8_000, 400_000):  # a cubic pattern fails at the second, and not after hours
        path.write_text(start + padding * (size // len(padding)) + end)
        begin = time.process_time()
        find_files([path])
        assert time.process_time() - begin < 0.5


@given(
    scalars=st.dictionaries(
        st.text('ab"\\[]{},:é\n'),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text('ab"\\[]{},:é\n'),
        max_size=4,
    ),
    indent=st.none() | st.integers(0, 3),
)
def test_rows_are_found_after_any_scalars(
    scalars: dict[str, Any], indent: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    scalars.pop("data", None)
    path = tmp_path_factory.mktemp("scalars") / "data.json"
    path.write_text(json.dumps({**scalars, "data": [{"prompt": "a"}]}, indent=indent))
    (file,) = find_files([path]).files
    text = path.read_bytes()
    assert (file.format, text[file.rows_start - 1 : file.rows_start]) == ("json", b"[")
    assert json.loads(text[file.rows_start - 1 : text.rindex(b"}")]) == [{"prompt": "a"}]


# -- what is found ---------------------------------------------------------------------------------------------------


def test_folders_and_globs_are_read_in_order_of_names(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "sub/c.jsonl", ".hidden.jsonl", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_jsonl(tmp_path / name, ROWS[:1])
    found = find_files([tmp_path])
    assert [Path(file.path).name for file in found.files] == ["a.jsonl", "b.jsonl", "c.jsonl"]
    assert any("left out" in note for note in found.notes)
    found = find_files([str(tmp_path / "*.jsonl")])
    assert [Path(file.path).name for file in found.files] == ["a.jsonl", "b.jsonl"]


@pytest.mark.once
def test_folders_of_datasets(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_list(ROWS)
    data.save_to_disk(tmp_path / "plain", num_shards=2)
    splits = datasets.DatasetDict({"train": data, "test": data.select(range(3))})
    splits.save_to_disk(tmp_path / "splits")
    for name in ("plain", "splits"):
        found = find_files([tmp_path / name])
        rows = [
            json.loads(row["raw"])
            for file in found.files
            for row in read_rows(cut(file, 5_000, tmp_path))
        ]
        assert rows == ROWS
    place = tmp_path / "splits"
    note = f"{place}: the split 'train' was read, not test; "
    assert found.notes == (f"{note}name the folder of a split to read it: {place / 'test'}",)
    (test,) = find_files([place / "test"]).files
    assert len(list(read_rows(cut(test, 5_000, tmp_path)))) == 3
    datasets.DatasetDict({"a": data, "b": data}).save_to_disk(tmp_path / "neither")
    with pytest.raises(DataError, match="several splits: a, b"):
        find_files([tmp_path / "neither"])


@pytest.mark.parametrize("name", ["data.jsonl", "data.jsonl.gz"])
def test_an_empty_file_is_noted(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"") if name.endswith(".gz") else b"")
    found = find_files([tmp_path / name])
    assert found.notes == (f"{tmp_path / name} is empty",)
    assert list(read_rows(cut(found.files[0], 1000, tmp_path))) == []


def test_a_wrong_extension_is_noted(tmp_path: Path) -> None:
    write_parquet(50)(tmp_path / "data.jsonl")
    (note,) = find_files([tmp_path / "data.jsonl"]).notes
    assert "is parquet by its content, not jsonl" in note


WRONG: dict[str, tuple[bytes, str]] = {
    "text.parquet": (b"hello", "is not Parquet: it begins with b'hello'"),
    "cut.parquet": (b"PAR1abc", "is not Parquet that can be read"),
    "cut.arrow": (b"ARROW1\0\0abc", "is not Arrow that can be read"),
    "archive.jsonl": (b"PK\x03\x04rest", "is a zip archive"),
    "wide.jsonl": ('{"a": 1}'.encode("utf-16"), "is text in UTF-16"),
    "cut.jsonl.gz": (gzip.compress(b'{"a": 1}\n' * 9)[:-20], "cannot be read"),
    "notes": (b"hello", "is no data that can be read"),
    "cut.json": (b'[{"a": 1}, {"a": 2}', "ends within its list, after byte 19"),
    "comma.json": (b'[{"a": 1}, {"a": "]"},\n', "ends within its list, after byte 23"),
    "two.json": (b'[{"a": 1}] [{"a": 2}]', "has more text behind its list, at byte 11"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_data_is_named(name: str, tmp_path: Path) -> None:
    content, problem = WRONG[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        for file in find_files([path]).files:
            cut(file, 1000, tmp_path)
    assert problem in caught.value.message and name in caught.value.message


def test_inputs_that_are_not_there(tmp_path: Path) -> None:
    for place, problem in (
        (tmp_path / "no.jsonl", "no such file"),
        (tmp_path / "*.jsonl", "no file matches(.|\\n)*A relative pattern is read in "),
        (tmp_path, "has no data"),
    ):
        with pytest.raises(DataError, match=problem):
            find_files([place])
    path = write_jsonl(tmp_path / "data.jsonl", ROWS[:1])
    with pytest.raises(DataError, match="twice"):
        find_files([path, tmp_path])


def test_a_file_that_shrinks_is_noticed(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "data.jsonl", ROWS)
    (file,) = find_files([path]).files
    chunks = cut(file, 5_000, tmp_path)
    path.write_bytes(path.read_bytes()[:6_000])
    with pytest.raises(DataError, match="was cut short"):
        list(read_rows(chunks))


def test_a_full_disk_while_unpacking_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "no space")

    write_gzip(LINES)(tmp_path / "data.jsonl.gz")
    (file,) = find_files([tmp_path / "data.jsonl.gz"]).files
    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(DataError, match="there is no space left to write"):
        cut(file, 1000, tmp_path)
