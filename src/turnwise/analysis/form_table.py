"""The table of forms: what one template does with each form in which clients send a conversation.

The verdict on a form (`forms.py`) is read off the rendering of a conversation that has it:

    written    all of its words are in the text, as in its plain form
    changed    a part of its words is missing, or the text is not that of the plain form
    dropped    nothing of it is written
    garbled    it is written in Python's notation, or as JSON where a text is meant (`misprints.py`)
    refused    the template raises an error

Words are found by provenance (`losses.py`), so that equal text elsewhere proves nothing. A form is a *defect* if it is
not written although the same can be said to the template: its plain form is written, or at least changed, and so is
what it needs. A template for text alone drops tools; that is no defect.

Each form is asked once. The normaliser, `turnwise check`, `turnwise fix`, `template.capabilities` and the card read the
answers here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from turnwise.analysis.conversations import Probe
from turnwise.analysis.counterexample import RenderOutcome, try_render
from turnwise.analysis.facts import Facts
from turnwise.analysis.forms import Form, load_forms
from turnwise.analysis.losses import find_losses
from turnwise.analysis.misprints import Misprint, Notation, find_misprints, find_value
from turnwise.analysis.probe_chats import TOOL_NAME, AssistantFormat, FormChats, FormQuestion
from turnwise.analysis.prober import MAX_RENDERING_LENGTH, REASONING_VALUES
from turnwise.engine.provenance.expressions import find_span
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.runtime.limits import Allowance
from turnwise.errors import TemplateError, TemplateRaised, TurnwiseError, short_repr
from turnwise.messages import InputReader, JsonMapping, Path, format_path

Verdict = Literal["written", "changed", "dropped", "garbled", "refused"]
EXCERPT = 24  # characters on each side of a word
MAX_EVIDENCE = 100  # characters
HAS_WORDS: tuple[Verdict, ...] = ("written", "changed")
ASKING = 4  # times the budgets of one rendering, for all questions


class Judgement(NamedTuple):
    """What a template does with some fields of one conversation.

    Attributes:
        verdict: "written", "changed", "dropped", "garbled" or "refused".
        evidence: what the template wrote there, or its error message; empty if all is written.
        path: what is lost or garbled; the first of the fields, if all is written.
        start: the index of the first character that is wrong, if some text is.
        notation: how a garbled value is written (`misprints.py`).
        is_stated: whether the template itself refuses it, with `raise_exception`.
        line: the line of the template that refused it; `FormTable.rows` adds that of the first wrong character.
    """

    verdict: Verdict
    evidence: str = ""
    path: Path = ()
    start: int | None = None
    notation: Notation = "python"
    is_stated: bool = False
    line: int | None = None


class FormRow(NamedTuple):
    """What a template does with one form; the attributes are those of a `Judgement` and these.

    Attributes:
        name: the form.
        form: how it was asked.
        probe: the conversation that shows it.
    """

    name: str
    form: Form
    probe: Probe
    verdict: Verdict
    evidence: str
    path: Path
    start: int | None
    notation: Notation
    is_stated: bool
    line: int | None


class FormTable:
    """Asks one template for the rows of the table; an answer is kept.

    Args:
        facts: what is known about the template.
        find_format: returns the form of its assistant messages, which takes many probes to find out.
    """

    def __init__(self, facts: Facts, find_format: Callable[[], AssistantFormat]) -> None:
        self._facts = facts
        self.chats = FormChats(facts, find_format)
        self._allowance: Allowance | None = Allowance(facts.renderer.limits, ASKING)
        self._rows: dict[tuple[str, bool | None], FormRow | None] = {}

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the template and of those beside it."""
        return tuple(self._facts.renderer.texts)

    @cached_property
    def alone(self) -> FormTable:
        """A table that shares no allowance, for questions with words that anybody may have written."""
        table = FormTable(self._facts, lambda: self.chats.input_format)
        table._allowance = None
        return table

    def find(self, name: str, with_tools: bool | None = None) -> FormRow | None:
        """Return what the template does with a form; None if its calls have no such form.

        Args:
            name: the form.
            with_tools: ask with or without tools, since some templates accept other forms there; None for as usual.
        """
        key = (name, with_tools)
        if key not in self._rows:
            self._rows[key] = self.ask(load_forms()[name], with_tools)
        return self._rows[key]

    def is_written(self, name: str, with_tools: bool | None = None) -> bool:
        """Whether a form is written."""
        row = self.find(name, with_tools)
        return row is not None and row.verdict == "written"

    def rows(self) -> Iterator[FormRow]:
        """Yield all rows, with the evidence and the lines that take longer to find."""
        for name in load_forms():
            row = self.find(name)
            if row is None:
                continue
            if row.verdict == "written":
                row = row._replace(evidence=_show_field(self._run(row.probe), row.path))
            elif row.start is not None:
                row = row._replace(line=_find_line(self._run(row.probe), row.start))
            yield row

    def find_defects(self, check: str) -> list[FormRow]:
        """Return the defects that a check reports."""
        rows = [self.find(form.name) for form in load_forms().values() if form.check == check]
        return [row for row in rows if row is not None and self.is_defect(row)]

    def is_defect(self, row: FormRow) -> bool:
        """Whether a form is not written, although its plain form is, and one of those that it needs."""
        form = row.form
        if row.verdict == "written" or not self._facts.is_accepting:
            return False
        if form.must_not_fail and row.verdict == "refused" and not row.is_stated:
            return True
        if form.needs and not any(map(self._has_words, form.needs)):
            return False
        plain = self.make_plain(form)
        return plain is None or is_worse(row.verdict, self._judge(form, plain).verdict)

    def _has_words(self, name: str) -> bool:
        row = self.find(name)
        return row is not None and row.verdict in HAS_WORDS

    def make_plain(self, form: Form, with_tools: bool | None = None) -> FormQuestion | None:
        """Return the plain form of a conversation, if it has one."""
        tools = form.plain_tools or form.tools
        return self._make(form, form.plain, tools, with_tools) if form.plain else None

    def ask(self, form: Form, with_tools: bool | None = None) -> FormRow | None:
        """Return what the template does with a form that may not be in the table; the answer is not kept."""
        question = self._make(form, form.chat, form.tools, with_tools)
        if question is None:
            return None
        row = self._judge(form, question)
        if row.verdict != "written" and form.otherwise:
            other = self._make(form, form.otherwise, form.tools, with_tools)
            found = self._judge(form, other) if other is not None else row
            row = found if found.verdict == "written" else row
        plain = self.make_plain(form, with_tools) if form.plainly else None
        if plain is None or row.verdict != "written":
            return row
        return self._compare(row, plain)

    def write(self, probe: Probe) -> str | None:
        """Return the text of a conversation; None if the template refuses it."""
        outcome = self._run(probe)
        return None if isinstance(outcome, TurnwiseError) else outcome.text

    def _run(self, probe: Probe) -> RenderOutcome:
        renderer = self._facts.prober.renderer.with_allowance(self._allowance)
        return try_render(renderer, probe)

    def _make(
        self, form: Form, chat: str, tools: str, with_tools: bool | None = None
    ) -> FormQuestion | None:
        """Return a question, with the tools and the options with which its form is asked."""
        if with_tools is not None:
            tools = "usual" if with_tools else ""
        question = self.chats.ask(chat, form.about, form.word, tools)
        if question is None or not form.reasons:
            return question
        options = {**question.probe.options, **self.reasoning_options}
        return question._replace(probe=replace(question.probe, options=options))

    @cached_property
    def reasoning_options(self) -> JsonMapping:
        """The options under which reasoning is written: none, or those that turn it on."""
        form = load_forms()["reasoning"]
        question = self._make(form, form.chat, form.tools)
        assert question is not None
        for options in ({}, *self.chats.prober.reasoning_options(REASONING_VALUES)):
            probe = replace(question.probe, options={**question.probe.options, **options})
            if self._judge(form, question._replace(probe=probe)).verdict == "written":
                return options
        return {}

    def _judge(self, form: Form, question: FormQuestion) -> FormRow:
        """Return what the template does with a conversation, apart from its plain form."""
        found = judge(self._run(question.probe), question, form.any_notation)
        return FormRow(form.name, form, question.probe, *found)

    def _compare(self, row: FormRow, plain: FormQuestion) -> FormRow:
        """Return a row that is "changed" if the text is not that of the plain form, and that is written."""
        outcome, wanted = self._run(row.probe), self._run(plain.probe)
        if isinstance(outcome, TurnwiseError) or isinstance(wanted, TurnwiseError):
            return row
        if outcome.text == wanted.text or self._judge(row.form, plain).verdict != "written":
            return row
        start = find_difference(outcome.text, wanted.text, row.form.compared)
        if start is None:
            return row
        evidence = _show_at(outcome.text, start)
        return row._replace(verdict="changed", evidence=evidence, start=start)


def judge(outcome: RenderOutcome, question: FormQuestion, any_notation: bool = False) -> Judgement:
    """Return what a template does with the fields that a question is about.

    Args:
        outcome: the rendering of the conversation, or the error.
        question: the conversation, and the paths of the fields.
        any_notation: whether a value in Python's notation counts as written.
    """
    if isinstance(outcome, TurnwiseError):
        evidence = short_repr(outcome.message, MAX_EVIDENCE)[1:-1]
        line = outcome.line if isinstance(outcome, TemplateError) else None
        is_stated = isinstance(outcome, TemplateRaised)
        path = next(iter(question.paths), ())
        return Judgement("refused", evidence, path, is_stated=is_stated, line=line)
    if len(outcome.text) > MAX_RENDERING_LENGTH:
        return Judgement("refused", "too long a text")
    probe, paths = question
    messages = InputReader().read_messages(probe.messages)
    misprint = None if any_notation else _find_misprint(outcome, messages, probe, paths)
    if misprint is not None:
        return Judgement("garbled", _show_at(outcome.text, misprint.start), *misprint)
    lost = [
        (path, loss)
        for loss in find_losses(outcome, messages, probe.tools, probe.documents)
        for path in paths
        if _is_within(loss.path, format_path(path))
    ]
    if lost:
        whole = [
            path
            for path, loss in lost
            if not loss.is_part and format_path(path).startswith(loss.path)
        ]
        path, loss = lost[0]
        if whole:
            return Judgement("dropped", f"no {format_path(whole[0])}", whole[0])
        return Judgement("changed", f"no {loss.path}", path)
    return Judgement("written", path=paths[0] if paths else ())


def is_worse(verdict: Verdict, other: Verdict) -> bool:
    """Whether a verdict is worse than another; all are equally bad of which no word can be read."""
    ranks = {"written": 0, "changed": 1}
    return ranks.get(verdict, 2) > ranks.get(other, 2)


def _find_misprint(
    rendering: Rendering, messages: Sequence[Any], probe: Probe, paths: Sequence[Path]
) -> Misprint | None:
    given = {"messages": messages, "tools": probe.tools}
    if all(isinstance(find_value(given, path), str) for path in paths):
        return None  # a text is written as it is, and looking at pieces takes longer than rendering
    is_code = f"{TOOL_NAME}(" in rendering.text  # a call that is Python code has Python's values
    for found in find_misprints(rendering, messages, probe.tools):
        if is_code and "arguments" in found.path:
            continue
        if any(_starts(found.path, path) or _starts(path, found.path) for path in paths):
            return found
    return None


def _find_line(outcome: RenderOutcome, index: int) -> int | None:
    """Return the line of the template that wrote a character."""
    if isinstance(outcome, TurnwiseError):
        return None
    span = find_span(outcome.writers, min(index, len(outcome.text) - 1))
    return span.expression[0] if span and span.expression else None


def _starts(path: Path, start: Path) -> bool:
    return path[: len(start)] == start


def _is_within(path: str, other: str) -> bool:
    return path.startswith(other) or other.startswith(path)


def _show_field(outcome: RenderOutcome, path: Path) -> str:
    """Return an excerpt around the first text of a field."""
    if isinstance(outcome, TurnwiseError):
        return ""
    spans = outcome.spans(lambda origin: origin.path is not None and _starts(origin.path, path))
    return _show_at(outcome.text, *(spans[0] if spans and path else (0,)))


def _show_at(text: str, start: int, end: int | None = None) -> str:
    excerpt = text[max(0, start - EXCERPT) : (end or start) + EXCERPT]
    return short_repr(excerpt, MAX_EVIDENCE)


def find_difference(text: str, other: str, compared: str) -> int | None:
    """Return the index of the first character of a text in which it differs from another; None if they are the same.

    Args:
        text: the text.
        other: the other one.
        compared: what counts: the "text", its "words" or its "letters".
    """
    if compared == "words" and text.split() == other.split():
        return None
    skips_space = compared == "letters"
    wanted = iter("".join(other.split()) if skips_space else other)
    for index, character in enumerate(text):
        if not (skips_space and character.isspace()) and next(wanted, None) != character:
            return index
    return None if next(wanted, None) is None else len(text)
