"""Write the playground as a static site: the page, Pyodide, and the engine as one archive.

    python scripts/build_site.py build/site --pyodide build/pyodide/package

The site needs no server but one that sends files, and sends nothing anywhere: the engine runs in the browser. `make
site` fetches Pyodide with npm first.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from turnwise.serve.playground_api import call

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
LEFT_OUT = ("cli", "integrations", "compat")  # rooms that the page does not call
SUFFIXES = (".py", ".json", ".toml", ".jinja", ".txt", ".typed")
MODE = """// The engine runs in this browser: engine.js. Written by `make site`.
export const MODE = { kind: "static" };
"""
FILE_LIST = """// The files of this site, which offline.js keeps. Written by `make site`.
self.VERSION = {version};
self.FILES = {files};
"""
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'none'"
)
META = f'<meta http-equiv="content-security-policy" content="{POLICY}">'
TIMESTAMP = (2020, 1, 1, 0, 0, 0)  # the same sources make the same archive


def build_site(target: Path, pyodide: Path) -> None:
    """Write all files of the site.

    Args:
        target: the folder; what it has is replaced.
        pyodide: the unpacked npm package.
    """
    missing = [name for name in PYODIDE_FILES if not (pyodide / name).is_file()]
    if missing:
        sys.exit(f"{pyodide} has no {', '.join(missing)}: unpack the npm package pyodide there")
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(STATIC, target)
    (target / "mode.js").write_text(MODE, encoding="utf-8")
    page = target / "index.html"
    charset = '<meta charset="utf-8">'
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace(charset, f"{charset}\n  {META}"), encoding="utf-8")
    (target / "pyodide").mkdir()
    for name in PYODIDE_FILES:
        shutil.copyfile(pyodide / name, target / "pyodide" / name)
    write_engine(target / "engine.zip")
    # The list of entries needs no engine: the page shows it while the engine starts.
    (target / "entries.json").write_text(json.dumps(call("entries", {})), encoding="utf-8")
    write_file_list(target)


def write_file_list(target: Path) -> None:
    """Write the names of all files, and one version of them: what offline.js keeps."""
    digest = hashlib.sha256()
    names = ["./"]
    for file in sorted(file for file in target.rglob("*") if file.is_file()):
        names.append(file.relative_to(target).as_posix())
        digest.update(names[-1].encode() + file.read_bytes())
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
        if file.suffix in SUFFIXES and parts[0] not in LEFT_OUT and "static" not in parts:
            yield file, f"turnwise/{'/'.join(parts)}"
    encoder = ROOT / "scripts" / "site"
    for file in sorted(encoder.rglob("*.py")):
        yield file, file.relative_to(encoder).as_posix()
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
    arguments = parser.parse_args()
    build_site(arguments.target, arguments.pyodide)
    size = sum(file.stat().st_size for file in arguments.target.rglob("*") if file.is_file())
    print(f"{arguments.target}: {size / 1e6:.1f} MB; serve the folder with any web server")


if __name__ == "__main__":
    main()
