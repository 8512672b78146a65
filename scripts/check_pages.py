"""Write docs/checks/README.md from the docstrings of the checks.

    python scripts/check_pages.py          rewrite the page
    python scripts/check_pages.py --check  exit with 1 if the page is not up to date

The docstring of a check is its documentation; this page only collects them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "checks" / "README.md"
HEAD = """\
# Checks

What `turnwise check` and `turnwise.check` look for. Written by `python scripts/check_pages.py` from the docstrings of
the checks; a test holds that it is up to date.

An *error* is a conversation that people send and for which the template fails or writes wrong text. A *warning* is a
refusal that the template states, a cost, or a risk. A *note* is something to know. The exit code is 1 if there is a
warning or an error (`--fail-on error` for errors alone), 2 on an error.

```console
$ turnwise check --explain string-arguments
# T301 string-arguments
...
```

Leave checks out by code or name, with `--ignore`, or in `turnwise.toml` (in `pyproject.toml`, under `[tool.turnwise]`):

```toml
ignore = ["T106", "two-users"]
```

| code | name | severity | what is reported |
|---|---|---|---|
"""


def write_page() -> str:
    """Return the text of the page."""
    from turnwise.evidence.checks import CHECKS

    rows = [
        f"| [{check.code}](#{check.code.lower()}-{check.name}) | {check.name} | {check.severity} | {check.title} |\n"
        for check in CHECKS
    ]
    pages = [check.page.replace("\n## ", "\n### ").replace("# ", "## ", 1) for check in CHECKS]
    return HEAD + "".join(rows) + "\n" + "\n".join(pages)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    wanted = parser.parse_args()
    page = write_page()
    if wanted.check:
        return int(page != PAGE.read_text(encoding="utf-8"))
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
