"""A baseline: findings that a project knows, so that only new ones are reported.

A finding is recognised by its code, its message and the source line that it points to, not by the number of that line,
so that an edit elsewhere does not bring it back. The file is JSON, by the names of templates, and is meant to be
committed:

    {"version": 1, "templates": {"chat_template.jinja": [["T301", "arguments ...", "{{ call.arguments | tojson }}"]]}}
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from turnwise.errors import SourceError
from turnwise.evidence.checks.findings import CheckFinding, CheckReport

VERSION = 1
HINT = "Write it again with --write-baseline."

Known = dict[str, Counter[tuple[str, ...]]]


def _identify(finding: CheckFinding) -> tuple[str, str, str]:
    line = finding.place.source_line.strip() if finding.place is not None else ""
    return finding.code, finding.message, line


def dump_baseline(reports: Iterable[CheckReport]) -> str:
    """Return the text of a baseline that has all findings of some reports."""
    templates = {one.template: sorted(map(_identify, one.findings)) for one in reports}
    data = {"version": VERSION, "templates": templates}
    return json.dumps(data, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def parse_baseline(text: str, name: str) -> Known:
    """Return the findings of a baseline by the names of templates.

    Raises:
        SourceError: the text is not a baseline.
    """
    try:
        data: Any = json.loads(text)
        if data["version"] != VERSION:
            raise ValueError(f"version {data['version']!r} is not {VERSION}")
        rows: dict[str, list[list[str]]] = data["templates"]
        return {template: Counter(map(tuple, found)) for template, found in rows.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SourceError(f"{name} is not a baseline: {error}", hint=HINT) from error


def remove_known(report: CheckReport, known: Known) -> CheckReport:
    """Return a report without the findings of a baseline, and how many these are."""
    left = Counter(known.get(report.template, Counter()))
    kept = []
    for finding in report.findings:
        key = _identify(finding)
        if left[key]:
            left[key] -= 1
        else:
            kept.append(finding)
    return replace(report, findings=tuple(kept), known=len(report.findings) - len(kept))
