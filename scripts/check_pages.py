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

A report begins with what the template is for (text only; tools; reasoning; images), which decides what matters.
Severity follows from harm: an *error* is text that is lost or wrong, or a request that fails; a *warning* is the same
in a form beside the plain ones, such as text beside a call; a *note* is a stated refusal, a cost, or style.

| `--for` | what users send besides text | then an error is |
|---|---|---|
| (none) | what the template writes: tools, images | a plain form that is lost; the other forms are warnings |
| `chat` | nothing | a lost system message, user or reply |
| `tools` | tools, calls, results | also a lost tool, arguments in another form, a schema that fails |
| `agents` | parallel calls, text and reasoning beside calls, late system messages, `developer` | also each of these |
| `vision` | images | also an image without a placeholder |
| `training` | conversations that end with a reply | also an open last turn, a prompt that no turn begins with |
| `all` | every known form, also those that servers convert before they render | everything that is not written |

Servers join text parts, parse arguments and fill null content before they render; without `--for`, a form that they
convert is reported only if the template has code for it. The exit code is 1 if there is an error (`--fail-on` names
another severity), 2 if the call is wrong.

```console
$ turnwise check --explain string-arguments
# T301 string-arguments
...
```

A project starts green with `--write-baseline`, which writes all findings to a file that is committed, and stays green
with `--baseline FILE`: only what the file has not is reported, and fails. A finding is known by its code, its message
and its source line, so that edits elsewhere do not bring it back. The [GitHub action](../../action.yml) annotates the
lines of a pull request and, with `comment: true`, adds a comment with the smallest conversations, and with what the
template wrote before and writes now.

What remains of well-known templates has no errors; each finding is a fact that their users meet:

| finding | template | why it is reported |
|---|---|---|
| T301, T302 | qwen2.5, llama-3.1, mistral-v3, gpt-oss, glm-4.5, deepseek-v3 | arguments in OpenAI's form are garbled or fail where no server parses them first |
| T306, T305, T303 | llama-3.1, mistral-v3, hermes-3, gpt-oss | text beside calls, calls without tools, a second call: agents send them, and they are lost or refused |
| T307 | deepseek-v3 | it writes calls and results, and no tools |
| T102, T103, T106 | gpt-oss, mistral-v3, qwen2.5, qwen3, glm-4.5, deepseek-v3 | a late or `developer` text is dropped, or refused with a reason |
| T105 | mistral-v3 | the system text is gone where a conversation ends with a reply: training data loses it |
| T311 | mistral-v3 | a stated refusal: ids of nine characters |
| T204, T702 | glm-4.5, mistral-v3 | a result in parts is printed; a quote in the description of a tool ends its JSON text |
| T201, T308 | gpt-oss, glm-4.5, hermes-3 | null beside a call, a tool without a description: optional in OpenAI's format |
| T206 | gemma-3 | `image` is written and `image_url` is not |
| T401, T404, T406 | qwen3, glm-4.5, deepseek-v3, gpt-oss, hermes-3, mistral-v3 | costs: history that changes, a last turn without a stop, a date |
| T701 | llama-3.1, gpt-oss | a result that is a text is written as JSON, in quotes |
| T705 | llama-3.1, glm-4.5, mistral-v3 | white space at the ends of replies and results is removed |

Leave checks out by code or name, with `--ignore`, or in `turnwise.toml` (in `pyproject.toml`, under `[tool.turnwise]`):

```toml
ignore = ["T106", "two-users"]
```

| code | name | severity | what is reported |
|---|---|---|---|
"""  # noqa: E501


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
