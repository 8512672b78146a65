"""Views for notebooks: all is escaped, their size is bounded, colours are the playground's; the notebook runs."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

import turnwise
from hostile_markup import PAYLOADS
from turnwise.errors import TurnwiseWarning
from turnwise.notebook import MAX_CHARACTERS, MAX_LISTED, MAX_ROWS

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
SHEET = ROOT / "src" / "turnwise" / "serve" / "static" / "style.css"
MAX_BYTES = 400_000
TAGS = {
    *("div", "style", "pre", "span", "p", "b", "ul", "li", "table", "tr", "td", "code", "small"),
    "mark",
}
ODD = (
    "{{ 7*7 }}{% raw %}",
    "<!--",
    "]]>&lt;b&gt;&amp;&#60;b&#62;\uff1cb\uff1e",
    "\x1b[31m\u202e\x00\u2066",
    "<|im_end|><think></think><b>",
)


class Outline(HTMLParser):
    """The tags, attributes and texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.classes: set[str] = set()
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.classes |= {word for name, value in attrs if name == "class" for word in value.split()}

    def handle_comment(self, data: str) -> None:
        self.tags.add("comment")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def show(thing: Any) -> str:
    return str(thing._repr_html_())


def show_prompts(text: str, repeat: int = 1) -> Iterator[Any]:
    """Yield everything that has a view, with a text in every field that a caller or a model fills."""
    tool = {"type": "function", "function": {"name": "tide", "description": text, "parameters": {}}}
    messages = [
        {"role": "system", "content": text * repeat},
        {"role": "user", "content": [{"type": "text", "text": text}]},
        {"role": "assistant", "content": text, "reasoning_content": text},
        {"role": "user", "content": Markup(text)},
    ]
    template = turnwise.load("qwen3")
    yield template.render(messages, [tool])
    yield template.encode(messages, "turnwise", tools=[tool])
    yield template.examples(messages, "turnwise", tools=[tool])
    calls = json.dumps({"name": text, "arguments": {text: text}})
    reply = (
        f"<think>\n{text}\n</think>\n\n{text}<tool_call>\n{calls}\n</tool_call><tool_call>{text}"
    )
    yield template.parse(reply)
    message = template.parse(text)
    message["content"] = Markup(text)
    message["tool_calls"] = [{"id": text, "function": {"name": Markup(text), "arguments": text}}]
    yield message


def show_templates(text: str) -> Iterator[Any]:
    written = json.dumps(text, ensure_ascii=True)
    loop = "{% for m in messages %}[{{ m.role }}]{{ m.content }}AFTER{% endfor %}"
    first = turnwise.compile(loop.replace("AFTER", f"{{{{ {written} }}}}"), name=text)
    second = turnwise.compile(loop, name=f"b{text}")
    yield first.grammar
    yield turnwise.check(first, select=["T106", "T204"])
    yield turnwise.diff(first, second)
    yield turnwise.diff(second, second)


@pytest.mark.filterwarnings("ignore::turnwise.errors.TurnwiseWarning")
@pytest.mark.parametrize("make", [show_prompts, show_templates])
@pytest.mark.parametrize("payload", ["\n".join(PAYLOADS), "".join(ODD)], ids=["markup", "odd"])
def test_nothing_is_unescaped(make: Callable[[str], Iterator[Any]], payload: str) -> None:
    for thing in make(payload):
        page = show(thing)
        outline = Outline(page)
        assert outline.tags <= TAGS, (thing, outline.tags)
        assert outline.attributes <= {"class", "title"}
        assert not [
            word for word in outline.classes if not re.fullmatch(r"[a-z]+(-view|\d)?", word)
        ]
        assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", page)
        page.encode("utf-8")


def test_all_text_is_shown() -> None:
    messages = [{"role": "user", "content": "Is 1 < 2 & 3 > 2?"}]
    rendering = turnwise.load("chatml").render(messages)
    assert rendering.text in "".join(Outline(show(rendering)).texts)


@pytest.mark.filterwarnings("ignore::turnwise.errors.TurnwiseWarning")
def test_views_are_bounded_and_count_what_is_left_out() -> None:
    template = turnwise.load("chatml")
    long = [{"role": "user", "content": "sea " * 50_000}]
    many = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] * 2_000
    page = show(template.render(long))
    left = len(template.render(long).text) - MAX_CHARACTERS
    assert f"{left:,} more characters" in page
    assert f"{len(template.encode(long, 'turnwise')) - MAX_ROWS:,} more tokens" in show(
        template.encode(long, "turnwise")
    )
    calls = '<tool_call>\n{"name": "tide", "arguments": {}}\n</tool_call>\n' * 200
    message = turnwise.load("qwen3").parse(calls)
    assert f"and {200 - MAX_LISTED} more calls" in show(message)
    keys = {"x" * 5_000 + str(number): number for number in range(300)}
    odd = turnwise.compile("{{ messages[0] | tojson }}").render([{"role": "user", **keys}])
    things = [template.render(many), template.encode(many, "turnwise"), message, odd]
    things += [template.examples(many[:400], "turnwise"), *show_prompts("<b>" * 30_000)]
    for thing in things:
        assert len(show(thing).encode()) < MAX_BYTES, thing


def test_colours_are_those_of_the_playground() -> None:
    """Both themes: what the page of the playground and a view both name has one value."""
    sheet = SHEET.read_text(encoding="utf-8")
    themes = [dict(re.findall(r"(--[\w-]+): (#\w+);", one)) for one in sheet.split("@media")[:2]]
    view = show(turnwise.load("chatml").grammar)
    rules = re.findall(r"\{ ((?:--[\w-]+: #\w+; ?)+)", view)
    shown = [dict(re.findall(r"(--[\w-]+): (#\w+);", rule)) for rule in rules]
    assert len(shown) == 4 and shown[0] == shown[2] and shown[1] == shown[3]
    for theme, colours in zip(themes, shown, strict=False):
        assert len(colours) > 15 and colours.items() <= theme.items()
    used = set(re.findall(r"var\((--[\w-]+)\)", view))
    assert used <= shown[0].keys()
    assert "prefers-color-scheme: dark" in view and 'data-jp-theme-light="false"' in view


def read_cells() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_the_notebook_runs() -> None:
    """Without Jupyter: each cell is executed, and what it ends with has a view."""
    names: dict[str, Any] = {}
    views = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TurnwiseWarning)
        for cell in read_cells():
            tree = ast.parse(cell)
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, str(NOTEBOOK), "exec"), names)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)
                views.append(type(value).__name__)
                assert "turnwise-view" in show(value)
    assert set(views) == {
        *("Rendering", "Encoded", "Examples", "Message", "Grammar", "CheckReport", "Comparison")
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_jupyter_shows_the_views() -> None:
    nbformat = pytest.importorskip("nbformat", reason="see `make integrations-notebook`")
    nbclient = pytest.importorskip("nbclient", reason="see `make integrations-notebook`")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    saved = [outputs_of(cell) for cell in notebook.cells if cell.cell_type == "code"]
    nbclient.NotebookClient(notebook, timeout=120).execute()
    made = [outputs_of(cell) for cell in notebook.cells if cell.cell_type == "code"]
    assert [len(views) for views in made] == [len(views) for views in saved] == [1] * 7
    assert all("turnwise-view" in view for views in (*made, *saved) for view in views)


def outputs_of(cell: Any) -> list[str]:
    return ["".join(one["data"]["text/html"]) for one in cell["outputs"] if "data" in one]
