"""Reports for programs: GitHub's annotations and comments, and SARIF for code scanning.

Both name files by their paths. A template that is not a file (a built-in entry, stdin) is named as it is called; one
that is a value in a JSON file has lines of its own, which are not lines of the file, so only its message tells them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from turnwise.evidence.checks.catalogue import Check
from turnwise.evidence.checks.findings import CheckFinding, CheckReport
from turnwise.messages import JsonObject

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def to_github(reports: Iterable[CheckReport]) -> Iterator[str]:
    """Yield a workflow command for each finding: GitHub shows it at its line in the changed files."""
    for report in reports:
        for finding in report.findings:
            values = {"file": _file_of(report, finding)}
            if _has_lines(values["file"]) and finding.place is not None:
                values["line"] = str(finding.place.line)
                values["col"] = str(finding.place.column)
            values["title"] = f"{finding.code} {finding.name}"
            properties = ",".join(f"{key}={_escape(value, True)}" for key, value in values.items())
            text = _escape(f"{_place_in_words(finding)}{finding.message}\nFix: {finding.fix}")
            yield f"::{finding.severity.replace('note', 'notice')} {properties}::{text}"


def to_markdown(reports: Iterable[CheckReport]) -> Iterator[str]:
    """Yield the lines of a comment on a pull request: the findings, each with its smallest conversation."""
    for report in reports:
        yield f"### {report.summary()}"
        for finding in report.findings:
            yield f"- **{finding.code} {finding.severity}**: {finding.message}"
            where = [finding.place.show()] if finding.place is not None else []
            yield from ("", "  ```text", *_indent([*where, *finding.example()]), "  ```")
            yield f"  {finding.fix}"
        yield ""


def _indent(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        # a fence inside of the block would end it
        yield from (f"  {line}".replace("```", "` ` `") for line in text.split("\n"))


def _escape(text: str, is_property: bool = False) -> str:
    """Return a text as a workflow command has it: it ends with the line."""
    for character, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(character, code)
    if is_property:
        text = text.replace(":", "%3A").replace(",", "%2C")
    return text


def to_sarif(reports: Sequence[CheckReport], checks: Sequence[Check], version: str) -> JsonObject:
    """Return the findings as a SARIF 2.1.0 log, which code scanning reads."""
    rules = [
        {
            "id": check.code,
            "name": check.name,
            "shortDescription": {"text": check.title},
            "help": {"text": check.page, "markdown": check.page},
            "defaultConfiguration": {"level": check.severity},
        }
        for check in checks
    ]
    numbers = {check.code: number for number, check in enumerate(checks)}
    results = [
        _to_result(report, finding, numbers) for report in reports for finding in report.findings
    ]
    driver = {"name": "turnwise", "version": version, "rules": rules}
    return {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def _to_result(report: CheckReport, finding: CheckFinding, numbers: dict[str, int]) -> JsonObject:
    file = _file_of(report, finding)
    location: JsonObject = {"artifactLocation": {"uri": file.replace("\\", "/")}}
    if finding.place is not None and _has_lines(file):
        place = finding.place
        location["region"] = {"startLine": place.line, "startColumn": place.column}
    return {
        "ruleId": finding.code,
        "ruleIndex": numbers[finding.code],
        "level": finding.severity,
        "message": {"text": f"{_place_in_words(finding)}{finding.message}\nFix: {finding.fix}"},
        "locations": [{"physicalLocation": location}],
    }


def _file_of(report: CheckReport, finding: CheckFinding) -> str:
    return finding.place.name if finding.place is not None else report.template


def _has_lines(file: str) -> bool:
    """Return True if the lines of a template are those of its file."""
    return not file.endswith((".json", ".gguf"))


def _place_in_words(finding: CheckFinding) -> str:
    """Return the line of the template where the file has other lines."""
    if finding.place is None or _has_lines(finding.place.name):
        return ""
    return f"line {finding.place.line} of the template: "
