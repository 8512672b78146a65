"""Install the package with each of its extras, and write what that brings to docs/installing.md: some minutes.

python scripts/install_sizes.py            all extras that users have
python scripts/install_sizes.py --bare     the package alone, to stdout: exits with 1 if it brings too much
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "installing.md"
TABLE = re.compile(r"(?<=<!-- sizes -->\n).*(?=<!-- end -->)", re.DOTALL)
NOT_FOR_USERS = ("docs", "test")
MAX_PACKAGES = 8  # besides this one, of an install without extras
MEGABYTE = 2**20


def main() -> int:
    if "--bare" in sys.argv:
        packages, size = install("")
        print(f"{len(packages)} packages besides turnwise, {size:.0f} MB: {', '.join(packages)}")
        return int(len(packages) > MAX_PACKAGES)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [one for one in project["optional-dependencies"] if one not in NOT_FOR_USERS]
    bare, _ = install("")
    lines = ["| install | packages besides turnwise | MB | brings |\n|---|---:|---:|---|\n"]
    for extra in ("", *extras):
        packages, size = install(extra)
        brought = [one for one in packages if not extra or one not in bare]
        name = f"turnwise[{extra}]" if extra else "turnwise"
        lines.append(f"| `{name}` | {len(packages)} | {size:.0f} | {', '.join(brought)} |\n")
        print(lines[-1], end="")
    PAGE.write_text(TABLE.sub("".join(lines), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


def install(extra: str) -> tuple[list[str], float]:
    """Return the packages that an install brings besides this one, and the megabytes of all."""
    with tempfile.TemporaryDirectory() as folder:
        what = f"{ROOT}[{extra}]" if extra else str(ROOT)
        words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
        subprocess.run([*words, "--target", folder, what], check=True)
        found = [path.name.split("-")[0] for path in Path(folder).glob("*.dist-info")]
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    return sorted(set(found) - {"turnwise"}, key=str.lower), size / MEGABYTE


if __name__ == "__main__":
    sys.exit(main())
