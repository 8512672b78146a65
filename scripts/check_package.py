"""Build the wheel and the sdist, and try each in an environment of its own: `python scripts/check_package.py`.

    python scripts/check_package.py                       with the interpreters of PYTHONS that are found
    python scripts/check_package.py python3.11 python3.13 with these

A package passes if twine, check-wheel-contents and pyroma accept it, it installs with its dependencies alone, which are
few, its data files are there (a built-in template renders, the built-in tokenizer encodes), and the demo runs. uvx also
runs the wheel, without installing it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
TOOLS = (
    "build>=1,<2",
    "twine>=6,<8",
    "check-wheel-contents>=0.6,<1",
    "pyroma>=4.2,<6",
    "uv>=0.5,<1",
)
MIN_RATING = 8  # of 10: an e-mail address and a home page are for those who publish it
MAX_PACKAGES = 8  # besides this one
TRIAL = """
import importlib.metadata
installed = {one.name for one in importlib.metadata.distributions()} - {"pip", "setuptools", "turnwise"}
assert len(installed) <= MAX_PACKAGES, installed
import turnwise
chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]
encoded = turnwise.load("qwen3").encode(chat, "turnwise")
assert encoded.text.endswith("Hello!<|im_end|>\\n") and any(label != -100 for label in encoded.labels)
assert len(turnwise.entries()) > 200
"""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        packages = build(Path(folder))
        lint(Path(folder) / "tool" / "bin", packages)
        run_with_uvx(Path(folder), packages)
        for python in sys.argv[1:] or PYTHONS:
            if not is_there(python):
                print(f"{python}: not on this machine")
                continue
            for package in packages:
                try_package(python, package, Path(folder) / "trial")
                print(f"{python}: {package.name} works")
    return 0


def build(folder: Path) -> list[Path]:
    """Return the wheel and the sdist."""
    tool = folder / "tool"
    run(sys.executable, "-m", "venv", tool)
    run(tool / "bin" / "pip", "install", "--quiet", *TOOLS)
    run(tool / "bin" / "python", "-m", "build", "--outdir", folder / "dist", ROOT)
    return sorted((folder / "dist").iterdir())


def lint(tools: Path, packages: list[Path]) -> None:
    """Ask those who know what a package index and its readers expect."""
    run(tools / "twine", "check", "--strict", *packages)
    for package in packages:
        if package.suffix == ".whl":
            run(tools / "check-wheel-contents", package)
        else:
            run(tools / "pyroma", "--min", str(MIN_RATING), package)


def run_with_uvx(folder: Path, packages: list[Path]) -> None:
    """Run the wheel as `uvx turnwise check` does."""
    wheel = next(str(package) for package in packages if package.suffix == ".whl")
    # Which index is asked is pip's business here: uv reads none of its settings.
    run(
        folder / "tool" / "bin" / "pip", "wheel", "--quiet", "--wheel-dir", folder / "wheels", wheel
    )
    found = (
        "--offline",
        "--no-index",
        "--find-links",
        folder / "wheels",
        "--python",
        sys.executable,
    )
    uvx = folder / "tool" / "bin" / "uvx"
    run(
        uvx,
        *found,
        "--from",
        wheel,
        "turnwise",
        "check",
        "chatml",
        "--fail-on",
        "error",
        quiet=True,
    )
    print("uvx: turnwise check works")


def is_there(python: str) -> bool:
    found = shutil.which(python)
    if found is None:
        return False
    answer = subprocess.run([found, "-c", ""], capture_output=True)
    return answer.returncode == 0


def try_package(python: str, package: Path, folder: Path) -> None:
    """Install a package and use it; an error ends the program."""
    shutil.rmtree(folder, ignore_errors=True)
    run(python, "-m", "venv", folder)
    run(folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", package)
    run(
        folder / "bin" / "python",
        "-W",
        "error",
        "-c",
        TRIAL.replace("MAX_PACKAGES", str(MAX_PACKAGES)),
    )
    run(folder / "bin" / "turnwise", "demo", quiet=True)


def run(*words: str | Path, quiet: bool = False) -> None:
    words = tuple(map(str, words))
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    output = subprocess.DEVNULL if quiet else None
    subprocess.run(words, check=True, cwd=tempfile.gettempdir(), env=plain, stdout=output)


if __name__ == "__main__":
    sys.exit(main())
