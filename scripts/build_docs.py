"""Build the documentation site: `python scripts/build_docs.py`, which `make docs` calls.

The pages of docs/ are copied to build/docs, and those that are made from data are written beside them: one for each
entry, dialect and check, and the help of each command. Then mkdocs makes build/site-docs of them; a link that leads
nowhere is an error.
"""

from __future__ import annotations

import argparse
import inspect
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from click.testing import CliRunner

import turnwise
from turnwise import dialects
from turnwise.cli import app
from turnwise.cli.options import read_table
from turnwise.evidence.checks import CHECKS

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "docs"
OUTSIDE = (
    "README.md",
    "README.zh-CN.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/README.md",
)
"""Pages that do not stand in docs/."""
FRONT = ("index.md", "index.zh-CN.md")
"""The first pages, whose drawings stand in the page: so they have its colours, light or dark."""
CHINESE = {
    "the template": "模板",
    "A user writes": "用户写了",
    "turnwise: the forged tokens stay text": "turnwise：伪造的 token 仍是文本",
    "as other software encodes it: a second, forged system message": "其他软件的编码：多出一条伪造的 system 消息",
    "control token that the user forged": "用户伪造的控制 token",
    "control token": "控制 token",
    "text": "文本",
    "Milliseconds for the prompt of each turn": "每一轮提示词所需的毫秒数",
    "turn of the conversation": "对话的轮次",
    "A prompt. Bright is a message, dim is the template.": "提示词：亮色是消息，暗色是模板。",
    "Where does each piece come from?": "每一段来自哪里？",
    "An attack: the forged &lt;|im_end|&gt; stays text.": "一次攻击：伪造的 &lt;|im_end|&gt; 仍是文本。",
    "A reply becomes a message.": "把回复变成消息。",
    "What ends a reply?": "什么表示回复结束？",
    "What is wrong with a template?": "模板有哪些问题？",
    "Where do two templates differ?": "两个模板哪里不同？",
    "Does a longer conversation change what was written?": "对话变长会改变已写出的内容吗？",
}
"""The words of the drawings."""
PLAYGROUND = ROOT / "build" / "site"
"""The playground as `make site` builds it; without it, the first pages have a picture of it."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pages", action="store_true", help="write the pages, build no site")
    wanted = parser.parse_args()
    write_pages(PAGES)
    if wanted.pages:
        return 0
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"], cwd=ROOT
    ).returncode


def write_pages(folder: Path) -> None:
    """Write all pages of the site."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    for name in OUTSIDE:
        text = (ROOT / name).read_text(encoding="utf-8")
        write(folder / place_of(name), relink(text))
    for name in FRONT:
        page = folder / name
        text = draw(page.read_text(encoding="utf-8"), folder)
        if "zh" in name:
            for words, translated in CHINESE.items():
                spaced = words.replace(" ", "\u00a0")
                text = text.replace(f">{words}</text>", f">{translated}</text>")
                text = text.replace(f">{spaced}</text>", f">{translated}</text>")
        page.write_text(text, encoding="utf-8")
    for page in folder.rglob("*.md"):
        page.write_text(relink_up(page.read_text(encoding="utf-8"), folder, page), encoding="utf-8")
    write_all(folder / "entries", "Models", entry_pages())
    write_all(folder / "dialects", "Dialects", dialect_pages())
    write_all(folder / "checks", "Checks", check_pages())
    write_all(folder / "commands", "Commands", command_pages())


def draw(text: str, folder: Path) -> str:
    """Put the drawings of a page into it, and the playground where its picture is."""

    def read(found: re.Match[str]) -> str:
        svg = (folder / found[2]).read_text(encoding="utf-8")
        svg = re.sub(r"<title>.*?</title>", f"<title>{found[1]}</title>", svg, count=1).strip()
        return f"<div>\n{svg}\n</div>"

    text = re.sub(r"!\[([^\]]*)\]\((images/\w+\.svg)\)", read, text)
    if not PLAYGROUND.is_dir():
        return re.sub(r"\n[^\n]+\n\{ \.playground-note \}\n", "\n", text)
    shutil.copytree(PLAYGROUND, folder / "app", dirs_exist_ok=True)
    frame = r'<iframe class="playground" src="app/index.html" title="\1" loading="lazy"></iframe>'
    return re.sub(r"\[!\[([^\]]*)\]\(images/playground\.png\)\]\(playground\.md\)", frame, text)


def place_of(name: str) -> str:
    """Return where a page from outside of docs/ stands on the site."""
    return name.replace("/README", "").replace("README", "overview").lower()


def relink(text: str) -> str:
    """Let the links of a page from outside of docs/ lead to the places of the site."""
    for other in OUTSIDE:
        text = text.replace(f"]({other}", f"]({place_of(other)}")
    return text.replace("](docs/", "](").replace("](../docs/", "](")


def relink_up(text: str, folder: Path, page: Path) -> str:
    """Let links out of docs/ lead to the pages that were put in, and those to files of the project be plain text."""

    def change(found: re.Match[str]) -> str:
        label, target = found[1], found[2]
        if "://" in target or target.startswith("#"):
            return found[0]
        path, hash_sign, anchor = target.partition("#")
        for other in OUTSIDE:
            if (page.parent / path).resolve() == (folder.parent / other).resolve():
                up = "../" * len(page.parent.relative_to(folder).parts)
                return f"[{label}]({up}{place_of(other)}{hash_sign}{anchor})"
        return found[0] if (page.parent / path).exists() else label

    return re.sub(r"(?<!!)\[([^\]\n]+)\]\(([^)\s]+)\)", change, text)


def entry_pages() -> dict[str, tuple[str, str]]:
    """Return a page for each entry that is written by us, by name: what it is for, and how to use it."""
    pages = {}
    for name, entry in turnwise.entries().items():
        if ":" in name or "/" in name:
            continue
        rows = {
            "family": entry.family,
            "dialect": entry.dialect,
            "other names": ", ".join(entry.aliases),
            "models": ", ".join(f"`{model}`" for model in entry.models),
            "stops": ", ".join(f"`{stop}`" for stop in entry.stops),
            "equal to": ", ".join(f"`{text}`" for text in entry.verified),
        }
        table = "".join(f"| {key} | {value} |\n" for key, value in rows.items() if value)
        source = str(entry.load_source())
        text = (
            f"# {name}\n\n{entry.notes}\n\n| | |\n|---|---|\n{table}\n"
            f'```python\nimport turnwise\n\ntemplate = turnwise.load("{name}")\n```\n\n'
            f"```jinja\n{source.replace('```', '` ` `')}\n```\n"
        )
        pages[name] = (entry.notes.partition(".")[0], text)
    return pages


def dialect_pages() -> dict[str, tuple[str, str]]:
    """Return a page for each dialect: what its module says about it."""
    pages = {}
    for name in sorted(dialects.DIALECTS):
        module = import_module(f"turnwise.dialects.{name}")
        head = inspect.getdoc(module) or ""
        pages[name] = (head.partition("\n")[0], f"# {name}\n\n```text\n{head}\n```\n")
    return pages


def check_pages() -> dict[str, tuple[str, str]]:
    """Return a page for each check."""
    return {f"{check.code}-{check.name}": (check.title, check.page) for check in CHECKS}


def command_pages() -> dict[str, tuple[str, str]]:
    """Return the help of each command."""
    pages = {}
    for name, row in read_table().items():
        shown = CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1"}).invoke(app, [name, "--help"])
        lines = "\n".join(line.rstrip() for line in shown.output.strip().splitlines())
        pages[name] = (row["help"][0], f"# turnwise {name}\n\n```text\n{lines}\n```\n")
    return pages


def write_all(folder: Path, title: str, pages: dict[str, tuple[str, str]]) -> None:
    """Write pages and the list of them."""
    for name, (_, text) in pages.items():
        write(folder / f"{name}.md", text)
    if (folder / "README.md").exists():
        return
    rows = "".join(f"| [{name}]({name}.md) | {line} |\n" for name, (line, _) in pages.items())
    write(folder / "index.md", f"# {title}\n\n| | |\n|---|---|\n{rows}")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
