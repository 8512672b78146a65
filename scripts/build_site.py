"""Write the playground as a static site: the page, Pyodide, tokenizers.js, vocabularies, and the engine as one archive.

    python scripts/build_site.py build/site --pyodide build/pyodide/package --tokenizers build/tokenizers/package \\
        --vocabularies build/vocabularies

The site needs no server but one that sends files, and sends nothing anywhere: the engine runs in the browser. `make
site` fetches the packages with npm first, and `site_vocabularies.py` the vocabularies.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib.util
import json
import shutil
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.serve.playground_api import call
from turnwise.tokens.tokenizers.files import SHIPPED

ROOT = Path(__file__).resolve().parents[1]
STATIC = ROOT / "src" / "turnwise" / "serve" / "static"
PACKAGES = ("jinja2", "markupsafe")  # what the engine imports; both run without their native parts
PYODIDE_FILES = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "python_stdlib.zip",
    "pyodide-lock.json",
)
TOKENIZERS_FILE = "dist/tokenizers.min.mjs"
SCRIPTS = ROOT / "scripts" / "site"
# Rooms that the page does not call. The vocabulary of the package is left out too: JavaScript reads it.
LEFT_OUT = ("cli", "integrations", "compat")
SUFFIXES = (".py", ".json", ".toml", ".jinja", ".txt", ".typed")
MODE = """// The engine runs in this browser: engine.js. Written by `make site`.
export const MODE = {mode};
"""
FILE_LIST = """// The files of this site, which offline.js keeps. Written by `make site`.
self.VERSION = {version};
self.FILES = {files};
"""
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; "
    "connect-src {hosts}; worker-src 'self'; base-uri 'none'; form-action 'none'"
)
META = '<meta http-equiv="content-security-policy" content="{policy}">'
HUB = "https://huggingface.co"
HUB_FILES = ("https://*.huggingface.co", "https://*.hf.co")  # where its large files are
VOCABULARIES = "vocabularies"  # they are kept when they were used, not before
TIMESTAMP = (2020, 1, 1, 0, 0, 0)  # the same sources make the same archive


@dataclass(frozen=True)
class SiteParts:
    """What a site is made of, beside the files of this repository.

    Args:
        pyodide, tokenizers: the unpacked npm packages.
        vocabularies: the folder that `site_vocabularies.py` wrote.
        hub: the address from which templates and tokenizers may be fetched; empty for none.
    """

    pyodide: Path
    tokenizers: Path
    vocabularies: Path | None = None
    hub: str = HUB


def build_site(target: Path, parts: SiteParts) -> None:
    """Write all files of the site; what the folder has is replaced."""
    needed = ((parts.pyodide, PYODIDE_FILES), (parts.tokenizers, (TOKENIZERS_FILE,)))
    for folder, names in needed:
        if missing := [name for name in names if not (folder / name).is_file()]:
            sys.exit(f"{folder} has no {', '.join(missing)}: unpack the npm package there")
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(STATIC, target)
    for script in SCRIPTS.glob("*js"):
        shutil.copyfile(script, target / script.name)
    mode = {"kind": "static", "hub": parts.hub}
    (target / "mode.js").write_text(MODE.format(mode=json.dumps(mode)), encoding="utf-8")
    write_pages(target, parts.hub)
    (target / "pyodide").mkdir()
    for name in PYODIDE_FILES:
        shutil.copyfile(parts.pyodide / name, target / "pyodide" / name)
    (target / "tokenizers").mkdir()
    library = parts.tokenizers / TOKENIZERS_FILE
    shutil.copyfile(library, target / "tokenizers" / library.name)
    write_engine(target / "engine.zip")
    index = copy_vocabularies(target / VOCABULARIES, parts.vocabularies)
    # The list of entries needs no engine: the page shows it while the engine starts.
    listed = {**call("entries", {}), "vocabularies": index}
    (target / "entries.json").write_text(json.dumps(listed), encoding="utf-8")
    # Node reads the scripts as modules.
    (target / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    (target / "first.json").write_text("{}", encoding="utf-8")  # compile_engine.mjs fills it
    write_file_list(target)


def write_pages(target: Path, hub: str) -> None:
    """Write the page with its policy, and once more with one that allows the hub."""
    page = target / "index.html"
    text = page.read_text(encoding="utf-8")
    hosts = {"index.html": ["'self'"]}
    if hub:
        hosts["hub.html"] = ["'self'", hub, *(HUB_FILES if hub == HUB else ())]
    for name, allowed in hosts.items():
        policy = POLICY.format(hosts=" ".join(allowed))
        charset = '<meta charset="utf-8">'
        marked = text.replace(charset, f"{charset}\n  {META.format(policy=policy)}")
        (target / name).write_text(marked, encoding="utf-8")


def copy_vocabularies(target: Path, source: Path | None) -> list[dict[str, Any]]:
    """Copy the vocabularies, with the small one of this package, and return their list."""
    target.mkdir()
    files = {
        name: json.loads((SHIPPED / name).read_text(encoding="utf-8"))
        for name in ("tokenizer.json", "tokenizer_config.json")
    }
    packed = gzip.compress(json.dumps(files).encode(), mtime=0)
    (target / "turnwise.json.gz").write_bytes(packed)
    if source is None:
        return []
    index: list[dict[str, Any]] = json.loads((source / "index.json").read_text(encoding="utf-8"))
    for row in index:
        name = f"{row['name']}.json.gz"
        shutil.copyfile(source / name, target / name)
    return index


def write_file_list(target: Path) -> None:
    """Write the names of all files but vocabularies, and one version of them: what offline.js keeps."""
    digest = hashlib.sha256()
    names = ["./"]
    for file in sorted(file for file in target.rglob("*") if file.is_file()):
        name = file.relative_to(target).as_posix()
        digest.update(name.encode() + file.read_bytes())
        if not name.startswith(VOCABULARIES):
            names.append(name)
    version, files = json.dumps(digest.hexdigest()[:16]), json.dumps(names)
    (target / "files.js").write_text(
        FILE_LIST.format(version=version, files=files), encoding="utf-8"
    )


def write_engine(archive: Path) -> None:
    """Write the modules and data that the engine needs."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        for file, name in list_engine():
            entry = zipfile.ZipInfo(name, TIMESTAMP)
            entry.compress_type = zipfile.ZIP_DEFLATED
            opened.writestr(entry, file.read_bytes())


def list_engine() -> Iterator[tuple[Path, str]]:
    """Yield the files of the engine, and their names in the archive."""
    package = ROOT / "src" / "turnwise"
    for file in sorted(package.rglob("*")):
        parts = file.relative_to(package).parts
        is_left_out = parts[0] in LEFT_OUT or "static" in parts or file.parent == SHIPPED
        if file.suffix in SUFFIXES and not is_left_out:
            yield file, f"turnwise/{'/'.join(parts)}"
    for file in sorted(SCRIPTS.glob("*.py")):
        yield file, file.name
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            sys.exit(f"{name} is not installed here: make site installs it")
        folder = Path(spec.origin).parent
        for file in sorted(folder.rglob("*.py")):
            yield file, f"{name}/{file.relative_to(folder).as_posix()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("--pyodide", type=Path, required=True)
    parser.add_argument("--tokenizers", type=Path, required=True)
    parser.add_argument("--vocabularies", type=Path)
    parser.add_argument("--hub", default=HUB)
    arguments = vars(parser.parse_args())
    target = arguments.pop("target")
    build_site(target, SiteParts(**arguments))
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    print(f"{target}: {size / 1e6:.1f} MB; serve the folder with any web server")


if __name__ == "__main__":
    main()
