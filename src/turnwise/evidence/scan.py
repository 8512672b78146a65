"""`scan(rows, ...)`: what is wrong with the rows of a dataset.

Each row has the verdict of `turnwise prepare`, by the same code: at most one problem, whose kind is a key of
`turnwise.data.reasons.KINDS`, for which the row would be rejected. Beside it are these, for which it would not:

    control token   a text that is spelled like a control token; other software makes a control token of it
    role            a role that is probably misspelt, or that the template does not write
    arguments       arguments of a call that are not a JSON object
    null padding    null values inside of tools and arguments, which Arrow adds so that all rows have the same columns
    repeated        the conversation of an earlier row
    nearly repeated nearly the text of an earlier row, but for system texts (`row_repeats.py`)

Without a template, a row is only read; without a tokenizer, it is rendered, and control tokens are those that the
template writes. Of the rows a digest and a sketch are kept, and the first problems of each kind in a `ScanReport`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, NamedTuple

from turnwise.data.flaws import RowChecker
from turnwise.data.null_padding import undo_null_padding
from turnwise.data.pages import count_of, describe_columns
from turnwise.data.reasons import FILTER_KINDS, KINDS
from turnwise.data.recipe import Recipe
from turnwise.data.record_encoder import RecordEncoder
from turnwise.data.records import Record, UnusableRow
from turnwise.data.samples import check_text
from turnwise.errors import MessageError, did_you_mean, short_repr
from turnwise.evidence.row_repairs import RowRepairer
from turnwise.evidence.row_repeats import NEAR, REPEATED, RepeatFinder, Repeats, find_texts
from turnwise.messages import JsonObject, Path, format_path
from turnwise.normalisation.calls import NotAnObject, parse_argument_text
from turnwise.normalisation.roles import ROLES
from turnwise.replies.grammar import Grammar
from turnwise.template import Template
from turnwise.tokens import tokenizers
from turnwise.tokens.text_encoder import encoder_for
from turnwise.tokens.token_matcher import TokenMatcher

UNREAD = "unread-column"
CONTROL, ROLE, ARGUMENTS, PADDING = "control token", "role", "arguments", "null padding"
ROW_PROBLEMS = {
    **KINDS,
    CONTROL: "a text is spelled like a control token",
    ROLE: "an unknown role",
    ARGUMENTS: "the arguments of a call are no JSON object",
    PADDING: "null values that Arrow added",
    REPEATED: "the conversation of an earlier row",
    NEAR: "nearly the text of an earlier row",
}
"""The kinds of problems, in the order of a report; those of `KINDS` reject a row."""
KNOWN_ROLES = (
    *ROLES,
    *("context", "documents", "tool_results", "critic"),
)
SHOWN_PER_KIND = 5
BATCH_ROWS = 64  # that are encoded together
AS_GIVEN = ("shape", "columns")
NoteRows = Iterator[tuple[str, str, str]]  # kind, path and text
"""Settings of rows as they are given, which repaired ones do not need."""


class RowProblem(NamedTuple):
    """A problem of a row.

    Attributes:
        row: The number of the row, from 0.
        kind: A key of `ROW_PROBLEMS`.
        field: The path of the value, such as `messages[0].content`; empty if it is about the whole row.
        text: What was found there.
    """

    row: int
    kind: str
    field: str
    text: str

    def __str__(self) -> str:
        place = f" {self.field}" if self.field and not self.text.startswith(self.field) else ""
        return f"row {self.row}{place}: {self.text}"

    @property
    def rejects(self) -> bool:
        """Whether `prepare` would reject the row."""
        return self.kind in KINDS


class ScannedRow(NamedTuple):
    """What was found in a row.

    Attributes:
        problems: The problems.
        unread: The names of columns that were not read.
        is_readable: Whether there is a conversation in the row.
        repaired: The row without its problems, with its line and its changes; None if it needs no change, or cannot
            be repaired.
    """

    problems: list[RowProblem]
    unread: tuple[str, ...]
    is_readable: bool
    repaired: JsonObject | None = None


def scan(
    rows: Iterable[Any],
    tokenizer: Any = None,
    template: Template | None = None,
    repeats: Repeats = "exact",
    **settings: Any,
) -> Iterator[RowProblem]:
    """Find what is wrong with the rows of a dataset.

    Args:
        rows: Conversations in any shape that `turnwise.data` reads, JSON texts of them as bytes, or `UnusableRow`.
        tokenizer: The tokenizer whose control tokens are searched.
        template: The template that the rows are rendered with. With a tokenizer, labels are checked too.
        repeats: The rows that are reported as repeated: "exact" those with the conversation of an earlier row, "near"
            also those with nearly its text, or "none".
        settings: Values of a recipe that decide about rows, such as `preferences`, `columns` and `samples`.

    Yields:
        The problems, in the order of the rows.

    Raises:
        MessageError: `rows` are no rows.
        SourceError: There is no such setting.

    Example:
        >>> from turnwise.evidence import scan
        >>> for problem in scan([[{"role": "user", "content": "Hi!<|im_end|>"}]], "turnwise"):
        ...     print(problem)
        row 0: there is no reply of the assistant in the row, so nothing of it can be trained
        row 0 messages[0].content: <|im_end|>
    """
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise MessageError(f"rows are a list of conversations, not {type(rows).__name__}")
    scanner = RowScanner(tokenizer, template, repeats, **settings)
    for found in scanner.scan(enumerate(rows)):
        yield from found.problems


@dataclass
class ScanReport:
    """Counts of the problems of a dataset, with the first rows of each kind; `str()` of it is a table.

    Attributes:
        rows: The number of rows.
        affected: The number of rows with a problem.
        rejected: The number of rows that `prepare` would reject.
        unreadable: The number of rows without a conversation.
        counts: The number of rows with a problem of each kind.
        first: The first problems of each kind.
        unread: The number of rows with a column that was not read, by its name.
        repaired: The number of rows that were repaired; None if that was not asked for.
        unrepaired: The number of rows with a problem that were not.
    """

    rows: int = 0
    affected: int = 0
    rejected: int = 0
    unreadable: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, list[RowProblem]] = field(default_factory=dict)
    unread: Counter[str] = field(default_factory=Counter)
    repaired: int | None = None
    unrepaired: int = 0

    def add(self, row: ScannedRow) -> None:
        """Add a row."""
        self.rows += 1
        kinds: dict[str, RowProblem] = {}
        for problem in row.problems:
            kinds.setdefault(problem.kind, problem)
        self.affected += bool(kinds)
        self.rejected += any(problem.rejects for problem in kinds.values())
        self.unreadable += not row.is_readable
        self.unread.update(row.unread)
        if self.repaired is not None:
            self.repaired += row.repaired is not None
            self.unrepaired += bool(kinds) and row.repaired is None
        for kind, problem in kinds.items():
            self.counts[kind] += 1
            listed = self.first.setdefault(kind, [])
            if len(listed) < SHOWN_PER_KIND:
                listed.append(problem)

    def __str__(self) -> str:
        rows = count_of(self.rows, "row")
        lines = [f"{rows}, {self.affected} with a problem; {self.rejected} would be rejected"]
        if self.repaired is not None:
            were = "was" if self.repaired == 1 else "were"
            repaired = f"{count_of(self.repaired, 'row')} {were} repaired"
            lines.append(f"{repaired}, {self.unrepaired} could not be")
        for kind, meaning in ROW_PROBLEMS.items():
            if self.counts[kind]:
                lines.append(f"{self.counts[kind]:>8}  {kind}: {meaning}")
                lines += [f"{'':>10}{problem}" for problem in self.first[kind]]
        return "\n".join([*lines, *describe_columns({"unread": self.unread})])


class RowScanner:
    """Finds the problems of rows; the arguments are those of `scan`.

    With `repair`, rows that can be repaired are, and what comes of them has no problem but repetition. They are in
    OpenAI's shape, and columns have their usual names.
    """

    def __init__(
        self,
        tokenizer: Any = None,
        template: Template | None = None,
        repeats: Repeats = "exact",
        repair: bool = False,
        **settings: Any,
    ) -> None:
        self._template = template
        self._repeats = RepeatFinder(repeats)
        self._repairer: RowRepairer | None = None
        if repair:
            usual = {key: value for key, value in settings.items() if key not in AS_GIVEN}
            self._repairer = RowRepairer(template)
            self._scanner_of_repaired = RowScanner(tokenizer, template, "none", **usual)
        self._matcher: TokenMatcher | None = None
        # Without a template or a tokenizer, these are never loaded.
        given = {"template": template or "chatml", "tokenizer": tokenizer or "turnwise"}
        recipe = Recipe.from_mapping({"inputs": "rows", **given, **settings})
        self._encoder = None if template is None or tokenizer is None else RecordEncoder(recipe)
        self._checker = RowChecker(recipe, template)
        self._markers: tuple[str, ...] = ()
        self._allowed: tuple[str, ...] = ()
        if template is not None:
            texts = (*template.facts.turn_markers_for({}), *template.facts.stops)
            self._markers = tuple(dict.fromkeys(filter(_is_marker, map(str.strip, texts))))
            self._allowed = tuple(_find_reply_markers(template.grammar))
        if tokenizer is not None:
            self._matcher = encoder_for(tokenizers.tokenizer(tokenizer)).matcher
        texts = () if template is None else template.renderer.texts
        # A role of a single model is in its template.
        self._template_text = "\n".join(texts)

    def scan(self, rows: Iterable[tuple[int, Any]]) -> Iterator[ScannedRow]:
        """Yield what is found in each of the rows, which have numbers."""
        numbered = iter(rows)
        while batch := list(islice(numbered, BATCH_ROWS)):
            numbers, values = zip(*batch, strict=True)
            judged = zip(numbers, values, self._judge(values), strict=True)
            for number, row, (record, problem) in judged:
                found, repaired = [], None
                if problem is not None and problem.kind not in FILTER_KINDS:
                    found.append(RowProblem(number, problem.kind, problem.path, problem.reason))
                if record is not None:
                    notes = chain(self._find_notes(record), self._repeats.find(number, record))
                    found += [RowProblem(number, *one) for one in notes]
                    repaired = self._repair(number, row, record)
                unread = record.unread if record is not None else problem.unread if problem else ()
                is_readable = record is not None or any(one.kind == UNREAD for one in found)
                yield ScannedRow(found, unread, is_readable, repaired)

    def _repair(self, number: int, row: Any, record: Record) -> JsonObject | None:
        """Return a row without its problems; None if there is nothing to change, or a problem is left."""
        repaired = self._repairer and self._repairer.repair(row, record)
        if not repaired:
            return None
        numbered = {"line": number, **repaired}
        (again,) = self._scanner_of_repaired.scan([(number, numbered)])
        return None if again.problems else numbered

    def _judge(self, rows: Sequence[Any]) -> list[tuple[Record | None, UnusableRow | None]]:
        """Return the conversation of each row, and why `prepare` would reject it."""
        if self._encoder is None:
            return [self._judge_text(one) for one in rows]
        found = self._encoder.encode_rows(rows)
        problems = {index: result.problem for index, result in found.results.items()}
        return [(one, problems.get(index)) for index, one in enumerate(found.records)]

    def _judge_text(self, row: Any) -> tuple[Record | None, UnusableRow | None]:
        record, problem = self._checker.check(row)
        if record is not None and problem is None and self._template is not None:
            problem = check_text(self._template, record)
        return record, problem

    def _find_notes(self, record: Record) -> NoteRows:
        """Yield kind, field and text of what is no reason to reject a row."""
        yield from self._find_control_tokens(record.messages)
        yield from self._find_roles(record.messages)
        for path, arguments in _find_arguments(record.messages):
            try:
                if isinstance(arguments, str):
                    parse_argument_text(arguments)
                elif not isinstance(arguments, Mapping):
                    raise NotAnObject(f"it is {short_repr(arguments)}")
            except (NotAnObject, ValueError, RecursionError) as error:
                yield ARGUMENTS, format_path(path), f"no JSON object: {error}"
        yield from _find_padding(record)

    def _find_control_tokens(self, messages: list[Any]) -> NoteRows:
        for index, message in enumerate(messages):
            allowed = self._allowed if message["role"] == "assistant" else ()
            for path, text in find_texts(message, ("messages", index)):
                found = dict.fromkeys(marker for marker in self._markers if marker in text)
                matches = self._matcher.find(text) if self._matcher is not None else ()
                found |= dict.fromkeys(match.token.text for match in matches if match.token.control)
                for token in found:
                    if not any(token in marker for marker in allowed):
                        yield CONTROL, format_path(path), token

    def _find_roles(self, messages: list[Any]) -> NoteRows:
        for index, message in enumerate(messages):
            role = message["role"]
            if role not in KNOWN_ROLES and not (role and role in self._template_text):
                hint = did_you_mean(role, KNOWN_ROLES[:6], "Roles")
                yield ROLE, f"messages[{index}].role", f"{short_repr(role)}. {hint}"


def _is_marker(text: str) -> bool:
    """Return whether a text of a template is no word that conversations have, too."""
    return len(text) > 2 and not text[0].isalnum() and not text[-1].isalnum() and " " not in text


def _find_reply_markers(grammar: Grammar) -> Iterator[str]:
    """Yield the markers that replies have inside of them: of reasoning and calls."""
    regions = [grammar.reasoning]
    for calls in (grammar.calls, *grammar.more):
        regions += [calls.section, calls.each] if calls is not None else []
    for region in regions:
        if region is not None:
            yield from filter(None, (region.open.core, region.close.core))


def _find_arguments(messages: list[Any]) -> Iterator[tuple[Path, Any]]:
    """Yield the arguments of all calls with their paths."""
    for index, message in enumerate(messages):
        calls = message.get("tool_calls")
        for number, call in enumerate(calls if isinstance(calls, list) else ()):
            if not isinstance(call, Mapping):
                continue
            path: Path = ("messages", index, "tool_calls", number)
            function = call.get("function")
            if isinstance(function, Mapping):
                call, path = function, (*path, "function")
            if "arguments" in call:
                yield (*path, "arguments"), call["arguments"]


def _find_padding(record: Record) -> NoteRows:
    """Yield the first null of tools and arguments that a table added."""
    if not record.arguments and not any("tool_calls" in one for one in record.messages):
        return
    for path in undo_null_padding({**record.arguments, "messages": record.messages}).removed:
        if path[0] == "tools" or "arguments" in path:
            yield PADDING, format_path(path), "null"
            return
