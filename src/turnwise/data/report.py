"""A report of a prepared data set: one HTML page with plots, made of the manifest alone.

The page is one file that loads nothing and runs no script: plots are SVG, drawn here, and follow the light or dark
style of the reader. Reasons, file names and options are text of others, and a manifest may come from anybody. So each
text is escaped where it is put into the page, each number is read as one, lists are cut, and a content security policy
forbids the page to load or to run anything.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from turnwise.data.reasons import KINDS
from turnwise.errors import printable

REPORT = "report.html"
MAX_BARS = 120
MAX_ROWS = 60  # of a table
MAX_TEXT = 400  # characters of a text of others
POLICY = "default-src 'none'; style-src 'unsafe-inline'"

# Of a plot; for the numbers at its left and below it.
WIDTH, HEIGHT, MARGIN, LABELS = 640, 180, 46, 22

STYLE = """
:root { color-scheme: light dark; --back: #fcfcfb; --text: #1f2328; --soft: #5d656e; --line: #d9dde1;
  --card: #ffffff; --main: #2a6fb0; --good: #2e7d4f; --bad: #b8432f; --rest: #9aa3ab; }
@media (prefers-color-scheme: dark) { :root { --back: #15181b; --text: #e4e7ea; --soft: #9aa4ae; --line: #343b42;
  --card: #1d2125; --main: #6aaae6; --good: #66bd8a; --bad: #ea8672; --rest: #68727b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 980px; padding: 24px 16px 60px; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 28px 0 6px; }
p { margin: 4px 0 10px; color: var(--soft); max-width: 75ch; }
.tiles { display: flex; flex-wrap: wrap; gap: 10px; margin: 16px 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px;
  min-width: 130px; }
.tile b { display: block; font-size: 21px; font-variant-numeric: tabular-nums; } .tile span { color: var(--soft); }
svg { display: block; width: 100%; max-width: 700px; height: auto; } svg text { fill: var(--soft); font-size: 11px; }
.axis { stroke: var(--line); } .main { fill: var(--main); } .good { fill: var(--good); } .bad { fill: var(--bad); }
.rest { fill: var(--rest); }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
td, th { text-align: left; padding: 4px 10px 4px 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px; overflow-x: auto; }
"""


class Bar(NamedTuple):
    """One bar of a plot."""

    label: str
    value: float


def write_report(manifest: Mapping[str, Any]) -> str:
    """Return the page for a manifest, as HTML.

    Args:
        manifest: what `manifest.json` holds. What is missing or of another type is shown as 0, or left out.

    Example:
        >>> page = write_report({"rows": {"in": 3, "out": 2, "rejected": 1}, "reasons": {"<b>": 1}})
        >>> "&lt;b&gt;" in page
        True
    """
    sections = (
        _write_head(manifest),
        _write_rows(manifest),
        _write_lengths(manifest),
        _write_trained(manifest),
        _write_packing(manifest),
        _write_reasons(manifest),
        _write_columns(manifest),
        _write_lost(manifest),
        _write_shards(manifest),
        _write_recipe(manifest),
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Prepared data set</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(section for section in sections if section)
        + "\n</body>\n</html>\n"
    )


# -- sections --------------------------------------------------------------------------------------------------------


def _write_head(manifest: Mapping[str, Any]) -> str:
    rows, tokens = _table(manifest, "rows"), _table(manifest, "tokens")
    every, trained = _number(tokens.get("all")), _number(tokens.get("trained"))
    tiles = (
        (_count(rows.get("in")), "rows read"),
        (_count(rows.get("rejected")), "rows rejected"),
        (_count(manifest.get("samples")), "samples"),
        (_count(every), "tokens"),
        (_percent(trained, every), "of tokens trained"),
        (_count(len(_sequence(manifest, "shards"))), "shards"),
    )
    cells = "".join(
        f'<div class="tile"><b>{figure}</b><span>{label}</span></div>' for figure, label in tiles
    )
    recipe = _table(manifest, "recipe")
    made_of = (
        f"Template {_text(recipe.get('template'))}, tokenizer {_text(recipe.get('tokenizer'))}"
    )
    written_by = f"turnwise {_text(manifest.get('turnwise'))}"
    return f'<h1>Prepared data set</h1>\n<p>{made_of}; {written_by}.</p>\n<div class="tiles">{cells}</div>'


def _write_rows(manifest: Mapping[str, Any]) -> str:
    rows = _table(manifest, "rows")
    parts = [(name, _number(rows.get(key))) for name, key in (("written", "out"),)]
    parts += [(name, _number(rows.get(name))) for name in ("filtered", "rejected")]
    total = _number(rows.get("in"))
    balance = "in balance" if total == sum(value for _, value in parts) else "not in balance"
    shown = ", ".join(f"{_count(value)} {name}" for name, value in parts)
    bar = _draw_shares(
        [(name, value, css) for (name, value), css in zip(parts, PARTS, strict=True)]
    )
    return f"<h2>Rows</h2>\n<p>{_count(total)} rows: {shown}; {balance}.</p>\n{bar}"


PARTS = ("good", "rest", "bad")


def _write_lengths(manifest: Mapping[str, Any]) -> str:
    bars = [Bar(f"up to {_count(end)}", value) for end, value in _histogram(manifest, "lengths")]
    if not bars:
        return ""
    return f"<h2>Lengths</h2>\n<p>Samples by their number of tokens.</p>\n{_draw_columns(bars)}"


def _write_trained(manifest: Mapping[str, Any]) -> str:
    bars = [Bar(f"up to {end:.0%}", value) for end, value in _histogram(manifest, "trained_share")]
    if not bars:
        return ""
    what = "Samples by the share of their tokens that is trained."
    if rewritten := _number(manifest.get("rewritten")):
        what += f" {_count(rewritten)} replies are trained in another text than the template's."
    return f"<h2>Trained share</h2>\n<p>{what}</p>\n{_draw_columns(bars)}"


def _write_packing(manifest: Mapping[str, Any]) -> str:
    packing, tokens = _table(manifest, "packing"), _table(manifest, "tokens")
    if packing.get("efficiency") is None:  # the samples are not packed
        return ""
    efficiency = min(1.0, max(0.0, _number(packing.get("efficiency"))))
    padding = _count(tokens.get("padding"))
    what = (
        f"{_count(packing.get('rows'))} packed rows are filled to {efficiency:.1%}; "
        f"{padding} places are padding."
    )
    bar = _draw_shares([("tokens", efficiency, "good"), ("padding", 1 - efficiency, "rest")])
    return f"<h2>Packing efficiency</h2>\n<p>{what}</p>\n{bar}"


def _write_reasons(manifest: Mapping[str, Any]) -> str:
    found = [(str(reason), _number(count)) for reason, count in _table(manifest, "reasons").items()]
    if not found:
        return "<h2>Rejected rows</h2>\n<p>No row was rejected.</p>"
    found.sort(key=lambda one: (-one[1], one[0]))
    kept, others = found[:MAX_ROWS], found[MAX_ROWS:]
    if others:
        kept.append((f"{len(others)} other reasons", sum(count for _, count in others)))
    most = max(count for _, count in kept) or 1
    lines = "".join(
        f'<tr><td>{_text(_explain(reason))}</td><td class="n">{_count(count)}</td>'
        f'<td style="width:40%">{_draw_line(count / most)}</td></tr>'
        for reason, count in kept
    )
    what = "Why rows were rejected or filtered; the rejected ones are in rejected.jsonl."
    return f"<h2>Rejected rows</h2>\n<p>{what}</p>\n<table>{lines}</table>"


def _write_columns(manifest: Mapping[str, Any]) -> str:
    """List the columns that are in no id: those that were not read, and those that the shards carry."""
    lines = []
    for key, what in (("unread", "not read"), ("carried", "carried")):
        found = list(_table(manifest, key).items())
        for name, count in found[:MAX_ROWS]:
            cells = f'<td>{_text(name)}</td><td>{what}</td><td class="n">{_count(count)}</td>'
            lines.append(f"<tr>{cells}</tr>")
        if len(found) > MAX_ROWS:
            lines.append(f"<tr><td>and {_count(len(found) - MAX_ROWS)} more</td></tr>")
    if not lines:
        return ""
    what = (
        "Columns of the rows that are not part of the conversations, and in how many rows they are."
    )
    head = '<tr><th>column</th><th></th><th class="n">rows</th></tr>'
    return f"<h2>Columns</h2>\n<p>{what}</p>\n<table>{head}{''.join(lines)}</table>"


def _write_lost(manifest: Mapping[str, Any]) -> str:
    tokens = _table(manifest, "tokens")
    every, lost = _number(tokens.get("all")), _number(tokens.get("lost"))
    what = f"{_count(lost)} tokens of rows that were too long are in no sample: {_percent(lost, every + lost)}."
    bar = _draw_shares([("kept", every, "good"), ("lost", lost, "bad")])
    return f"<h2>Tokens lost</h2>\n<p>{what}</p>\n{bar}"


def _write_shards(manifest: Mapping[str, Any]) -> str:
    shards = [shard for shard in _sequence(manifest, "shards") if isinstance(shard, Mapping)]
    if not shards:
        return ""
    lines = "".join(
        f"<tr><td>{_text(shard.get('path'))}</td><td>{_text(shard.get('split'))}</td>"
        f'<td class="n">{_count(shard.get("rows"))}</td><td class="n">{_count(shard.get("tokens"))}</td></tr>'
        for shard in shards[:MAX_ROWS]
    )
    more = f"<p>and {_count(len(shards) - MAX_ROWS)} more</p>" if len(shards) > MAX_ROWS else ""
    head = '<tr><th>file</th><th>split</th><th class="n">rows</th><th class="n">tokens</th></tr>'
    return f"<h2>Shards</h2>\n<table>{head}{lines}</table>{more}"


def _write_recipe(manifest: Mapping[str, Any]) -> str:
    notes = "".join(f"<p>{_text(note)}</p>" for note in _sequence(manifest, "notes")[:MAX_ROWS])
    shown = {name: manifest.get(name) for name in ("recipe", "digests")}
    text = json.dumps(shown, indent=2, ensure_ascii=False, default=str)[: 50 * MAX_TEXT]
    escaped = html.escape(printable(text, limit=len(text)))
    return f"<h2>Recipe</h2>\n{notes}\n<pre>{escaped}</pre>"


def _explain(reason: str) -> str:
    """Return a kind of reasons with what it means; another reason as it is."""
    return f"{reason}: {KINDS[reason]}" if reason in KINDS else reason


# -- plots -----------------------------------------------------------------------------------------------------------


def _draw_columns(bars: Sequence[Bar]) -> str:
    """Draw a histogram: one column for each bar, its label at the first, the middle and the last."""
    bars = bars[:MAX_BARS]
    most = max((bar.value for bar in bars), default=0) or 1
    step = (WIDTH - MARGIN) / len(bars)
    drawn = [
        f'<line class="axis" x1="{MARGIN}" y1="{HEIGHT}" x2="{WIDTH}" y2="{HEIGHT}"/>',
        f'<text x="{MARGIN - 6}" y="12" text-anchor="end">{_count(most)}</text>',
        f'<text x="{MARGIN - 6}" y="{HEIGHT}" text-anchor="end">0</text>',
    ]
    for number, bar in enumerate(bars):
        height = bar.value / most * (HEIGHT - 4)
        left = MARGIN + number * step
        drawn.append(
            f'<rect class="main" x="{left + step * 0.08:.1f}" y="{HEIGHT - height:.1f}" '
            f'width="{step * 0.84:.1f}" height="{height:.1f}" rx="1.5">'
            f"<title>{_text(bar.label)}: {_count(bar.value)}</title></rect>"
        )
    for number in sorted({0, len(bars) // 2, len(bars) - 1}):
        middle = MARGIN + (number + 0.5) * step
        anchor = "end" if number and number == len(bars) - 1 else "middle"
        place = min(middle + step / 2, WIDTH) if anchor == "end" else middle
        drawn.append(
            f'<text x="{place:.1f}" y="{HEIGHT + 15}" text-anchor="{anchor}">{_text(bars[number].label)}</text>'
        )
    shown = ", ".join(f"{bar.label}: {_count(bar.value)}" for bar in bars if bar.value)
    return _frame(HEIGHT + LABELS, drawn, f"Histogram. {shown}")


def _draw_shares(parts: Sequence[tuple[str, float, str]]) -> str:
    """Draw one bar that is divided among named parts."""
    total = sum(value for _, value, _ in parts) or 1
    drawn, left = [], 0.0
    for name, value, css in parts:
        width = value / total * WIDTH
        if width:
            drawn.append(
                f'<rect class="{css}" x="{left:.1f}" y="0" width="{width:.1f}" height="20">'
                f"<title>{_text(name)}: {_percent(value, total)}</title></rect>"
            )
        left += width
    legend = 0
    for name, value, css in parts:
        label = f"{name} {_percent(value, total)}"
        drawn.append(f'<rect class="{css}" x="{legend}" y="29" width="10" height="10"/>')
        drawn.append(f'<text x="{legend + 15}" y="38">{_text(label)}</text>')
        legend += 30 + 7 * len(label)
    shown = ", ".join(f"{name} {_percent(value, total)}" for name, value, _ in parts)
    return _frame(44, drawn, shown)


def _draw_line(share: float) -> str:
    width = max(1.0, min(1.0, share) * 200)
    return (
        '<svg viewBox="0 0 200 12" role="img" aria-hidden="true">'
        f'<rect class="bad" width="{width:.1f}" height="12" rx="1.5"/></svg>'
    )


def _frame(height: int, drawn: Iterable[str], label: str) -> str:
    """Return a picture; readers that do not see it get the label, and the titles of its bars."""
    size = f"0 0 {WIDTH} {height}"
    return f'<svg viewBox="{size}" role="img" aria-label="{_text(label)}">{"".join(drawn)}</svg>'


# -- values of a manifest ----------------------------------------------------------------------------------------------


def _table(manifest: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = manifest.get(key)
    return value if isinstance(value, Mapping) else {}


def _sequence(manifest: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = manifest.get(key)
    return value if isinstance(value, (list, tuple)) else ()


def _histogram(manifest: Mapping[str, Any], key: str) -> list[tuple[float, float]]:
    """Return the pairs of an upper bound and a count."""
    pairs = [pair for pair in _sequence(manifest, key) if isinstance(pair, (list, tuple))]
    return [(_number(pair[0]), _number(pair[1])) for pair in pairs if len(pair) == 2]


def _number(value: Any) -> float:
    """Return a number that can be drawn: 0 for what is none, and for less than none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    return max(0, value) if abs(value) < 1e18 and math.isfinite(value) else 0


def _count(value: Any) -> str:
    return f"{_number(value):,.0f}"


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "0%"


def _text(value: Any) -> str:
    """Return a text of others as HTML: cut, without control characters, escaped."""
    return html.escape(printable(str(value if value is not None else "?"), limit=MAX_TEXT))
