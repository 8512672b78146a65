"""The report page: no text of others becomes markup, nothing is loaded, and the plots show the numbers."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from turnwise.data.pages import write_report

PAYLOADS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg onload=alert(1)>",
    "</title></style><iframe src='//evil.example'>",
    "</pre><a href='javascript:alert(1)'>x</a>",
    "&lt;b&gt; \x1b[2J \u202e \ud800 ]]> <!-- -->",
)
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "div", "b", "span", "pre"),
    *("svg", "rect", "line", "text", "table", "tr", "td", "th"),
}
VOID = {"meta"}


def make_manifest(text: str = "plain") -> dict[str, Any]:
    """A manifest with the text in every place that may hold text of others."""
    return {
        "version": 1,
        "turnwise": text,
        "recipe": {
            "template": text,
            "tokenizer": text,
            "options": {text: [text]},
            "inputs": [text],
        },
        "digests": {"recipe": text},
        "rows": {"in": 10, "out": 7, "rejected": 2, "filtered": 1},
        "samples": 9,
        "rewritten": 0,
        "unread": {text: 1},
        "carried": {},
        "tokens": {"all": 1000, "trained": 250, "lost": 40, "padding": 24},
        "reasons": {text: 2, "too-long": 1},
        "lengths": [[64, 3], [128, 6]],
        "trained_share": [[0.1, 4], [0.2, 5]],
        "packing": {"rows": 1, "efficiency": 0.977},
        "shards": [{"path": text, "split": text, "rows": 9, "tokens": 1000, "sha256": text}],
        "notes": [text],
    }


class ReportPage(HTMLParser):
    """The elements of a page; fails on tags that are not closed, and on anything that acts."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.bars: list[float] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        names = dict(attrs)
        assert not {name for name in names if name.startswith("on")}
        assert not {"href", "src", "xlink:href", "action"} & names.keys()
        if tag == "rect" and names.get("class") == "main":
            self.bars.append(float(names["height"] or 0))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError("there is no comment in the page")


@pytest.mark.parametrize("payload", PAYLOADS)
def test_text_of_others_stays_text(payload: str) -> None:
    page = ReportPage(write_report(make_manifest(payload)))
    visible = "".join(page.texts)
    shown = payload.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert visible.count(shown.replace("\ud800", "\\ud800")) >= 6
    assert "\x1b" not in visible and "\u202e" not in visible


def test_nothing_is_loaded() -> None:
    source = write_report(make_manifest())
    assert "default-src 'none'" in source
    assert not re.search(r"https?:|//\w|@import|url\(", source)


def test_figures_and_plots() -> None:
    page = ReportPage(write_report(make_manifest()))
    visible = " ".join(page.texts)
    for figure in ("10 rows: 7 written, 1 filtered, 2 rejected; in balance", "25.0%", "97.7%"):
        assert figure in visible
    assert "40 tokens of rows that were too long are in no sample: 3.8%." in visible
    lengths, shares = page.bars[:2], page.bars[2:]
    assert lengths[0] * 2 == pytest.approx(lengths[1], abs=0.2)
    assert shares[0] / shares[1] == pytest.approx(4 / 5, abs=0.01)


def test_accounting_that_does_not_add_up_is_reported() -> None:
    manifest = make_manifest()
    manifest["rows"]["out"] = 6
    assert "not in balance" in write_report(manifest)


def test_many_reasons_are_joined() -> None:
    manifest = {**make_manifest(), "reasons": {f"reason {n}": n for n in range(1, 200)}}
    source = write_report(manifest)
    assert "139 other reasons" in source and "reason 199" in source
    assert f"{sum(range(1, 140)):,}" in source


def test_same_manifest_same_page() -> None:
    manifest = make_manifest()
    assert write_report(json.loads(json.dumps(manifest))) == write_report(manifest)
