"""What a check found: a code, what happens, where in the template, with which conversation, and what to do.

    T301 error: arguments that are JSON text are written as a text in quotes
      chat_template.jinja:41:60
       41 |   {{- call.function.arguments | tojson }}
          |       ^
      with: {"role": "assistant", ... "arguments": "{\\"harbour\\": \\"Brest\\"}"}
      writes: '"arguments": "{\\"harbour\\"'
      fix: ...

Severities follow from harm (`analysis/profiles.py`): an *error* is text that is lost or wrong, or a request that fails;
a *warning* the same in a form beside the plain ones; a *note* a stated refusal, a cost, or style.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from turnwise.analysis.conversations import NOW, Probe
from turnwise.analysis.profiles import SEVERITIES, Severity
from turnwise.engine.option_names import SPECIAL_TOKENS
from turnwise.errors import TemplateError, printable, truncate_text
from turnwise.messages import JsonObject
from turnwise.notebook import show_html

MAX_SHOWN_MESSAGE = 400  # characters of one message in a text report
MAX_SHOWN_OUTPUT = 200


class Place(NamedTuple):
    """A place in a template.

    Attributes:
        name: the name of the template.
        line: the line of its Jinja text, counted from 1.
        column: the column, counted from 1.
        source_line: the text of that line.
    """

    name: str
    line: int
    column: int
    source_line: str

    def show(self) -> str:
        """Return the place with its source line and a caret under the column."""
        error = TemplateError(
            "", name=self.name, line=self.line, column=self.column, source_line=self.source_line
        )
        return error.where()


class Symptom(NamedTuple):
    """What a check saw; the runner adds whose check it was.

    Attributes:
        message: what happens.
        fix: what to do about it.
        place: where in the template, if that is known.
        probe: the conversation, if one shows it.
        output: what the template writes, or its error.
        severity: if it is not that of the check.
    """

    message: str
    fix: str
    place: Place | None = None
    probe: Probe | None = None
    output: str = ""
    severity: Severity | None = None


Symptoms = Iterator[Symptom]


@dataclass(frozen=True)
class CheckFinding:
    """One problem of a template.

    Attributes:
        code: the code of the check, such as "T301".
        name: its name in words, such as "string-arguments".
        severity: "error", "warning" or "note".
        message: what happens.
        fix: what to do about it.
        place: where in the template, None if it is not one place.
        probe: the smallest conversation that shows it, None if no conversation is needed.
        output: what the template writes, or its error.
        also: the names of other checks that found the same at this place.

    Example:
        >>> finding = turnwise.check("qwen3").findings[0]
        >>> finding.code, finding.severity
        ('T106', 'warning')
    """

    code: str
    name: str
    severity: Severity
    message: str
    fix: str
    place: Place | None = None
    probe: Probe | None = None
    output: str = ""
    also: tuple[str, ...] = ()

    def to_data(self) -> JsonObject:
        """Return the finding as JSON data."""
        place = self.place
        return {
            "code": self.code,
            "name": self.name,
            "severity": self.severity,
            "message": self.message,
            "fix": self.fix,
            "template": place.name if place else None,
            "line": place.line if place else None,
            "column": place.column if place else None,
            "messages": self.probe.messages if self.probe else None,
            "arguments": shown_arguments(self.probe) if self.probe else None,
            "output": self.output or None,
            "also": list(self.also),
        }

    def __str__(self) -> str:
        lines = [f"{self.code} {self.severity}: {printable(self.message)}"]
        if self.place is not None:
            lines.append(self.place.show())
        lines += [f"  {line}" for line in self.example()]
        lines.append(f"  fix: {printable(self.fix)}")
        return "\n".join(lines)

    def example(self) -> Iterator[str]:
        """Yield the conversation and the output, a line each."""
        if self.probe is not None:
            label = "with: "
            for message in self.probe.messages:
                yield f"{label}{_show(message)}"
                label = "      "
            for name, value in shown_arguments(self.probe).items():
                yield f"      {name}={_show(value) if name != 'tools' else _show_tools(value)}"
        if self.output:
            yield printable(truncate_text(self.output, MAX_SHOWN_OUTPUT))


@dataclass(frozen=True)
class CheckReport:
    """All findings of one template; true if none is an error.

    Attributes:
        template: the name of the template.
        findings: the problems: errors first, then by their places.
        not_run: the checks that could not be run, by code, with the reason.
        ignored: how many findings were left out by their codes.
        known: how many findings were left out because a baseline has them.
        about_model: that it is not the template of its model, if that is known; no finding, since models are tuned.
        kind: what the template is for, in a few words.
        others: the names of checks whose findings this profile does not need.
        shows_notes: whether its text has the notes, or their names alone.
    """

    template: str
    findings: tuple[CheckFinding, ...]
    not_run: tuple[tuple[str, str], ...] = ()
    ignored: int = 0
    about_model: str = ""
    kind: str = ""
    others: tuple[str, ...] = ()
    known: int = 0
    shows_notes: bool = True

    def count(self, severity: Severity) -> int:
        """Return how many findings have a severity."""
        return sum(finding.severity == severity for finding in self.findings)

    def __bool__(self) -> bool:
        return not self.count("error")

    def __iter__(self) -> Iterator[CheckFinding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def by_cause(self) -> Iterator[tuple[Place | None, list[CheckFinding]]]:
        """Yield the findings in groups of one place; those without a place are groups of one."""
        groups: dict[Any, list[CheckFinding]] = {}
        for number, finding in enumerate(self.findings):
            groups.setdefault(finding.place or number, []).append(finding)
        for key, group in groups.items():
            yield (key if isinstance(key, Place) else None), group

    def to_data(self) -> JsonObject:
        """Return the report as JSON data."""
        return {
            "template": self.template,
            "about_model": self.about_model or None,
            "findings": [finding.to_data() for finding in self.findings],
            "not_run": dict(self.not_run),
            "ignored": self.ignored,
            "known": self.known,
            "kind": self.kind,
            "others": list(self.others),
        }

    def _repr_html_(self) -> str:
        return show_html("report", self)

    def summary(self) -> str:
        """Return the numbers of findings in a sentence."""
        counts = [(self.count(severity), severity) for severity in SEVERITIES]
        found = [f"{count} {word}{'s' if count != 1 else ''}" for count, word in counts if count]
        text = f"{printable(self.template)}: {', '.join(found) or 'no findings'}"
        left = [(self.ignored, "ignored"), (self.known, "in the baseline")]
        more = ", ".join(f"{count} {word}" for count, word in left if count)
        return f"{text} ({more})" if more else text

    def __str__(self) -> str:
        lines = [printable(self.about_model), ""] if self.about_model else []
        if self.kind:
            lines += [f"{printable(self.template)}: {self.kind}", ""]
        shown = [one for one in self.findings if self.shows_notes or one.severity != "note"]
        for place, group in replace(self, findings=tuple(shown)).by_cause():
            if place is None or len(group) == 1:
                lines += [str(group[0]), ""]
            else:
                lines += [*_show_group(place, group), ""]
        reasons: dict[str, list[str]] = {}
        for code, reason in self.not_run:
            reasons.setdefault(reason, []).append(code)
        for reason, codes in reasons.items():
            lines.append(f"not run: {', '.join(codes)}: {printable(reason)}")
        notes = {f"{one.code} {one.name}": None for one in self.findings if one not in shown}
        if notes:
            lines.append(f"notes, see --for all: {', '.join(notes)}")
        if self.others:
            lines.append(f"not needed here, see --for all: {', '.join(self.others)}")
        return "\n".join([*lines, self.summary()])


def _show_group(place: Place, group: list[CheckFinding]) -> Iterator[str]:
    """Yield the findings of one place: what they are, the place, then examples and fixes with the codes they are of."""
    examples: dict[tuple[str, ...], list[str]] = {}
    fixes: dict[str, list[str]] = {}
    for finding in group:
        yield f"{finding.code} {finding.severity}: {printable(finding.message)}"
        examples.setdefault(tuple(finding.example()), []).append(finding.code)
        fixes.setdefault(finding.fix, []).append(finding.code)
    yield place.show()
    for example, codes in examples.items():
        if example:
            yield f"  {', '.join(dict.fromkeys(codes))}:"
            yield from (f"    {line}" for line in example)
    for fix, codes in fixes.items():
        yield f"  fix of {', '.join(dict.fromkeys(codes))}: {printable(fix)}"


def shown_arguments(probe: Probe) -> JsonObject:
    """Return the arguments of `render` that matter: not the defaults, and not the special tokens."""
    arguments: JsonObject = {"tools": probe.tools, "documents": probe.documents}
    arguments |= {
        name: value for name, value in probe.options.items() if name not in SPECIAL_TOKENS
    }
    if probe.add_generation_prompt:
        arguments["add_generation_prompt"] = True
    if probe.now != NOW:
        arguments["now"] = probe.now.isoformat()
    return {name: value for name, value in arguments.items() if value is not None}


def _show_tools(tools: list[Any]) -> str:
    """Return tools as JSON, without what is the same in all of them."""
    functions = [tool.get("function", tool) for tool in tools]
    short = {"description": "..."}
    return _show([{**one, **(short if "description" in one else {})} for one in functions])


def _show(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return printable(truncate_text(text, MAX_SHOWN_MESSAGE))
