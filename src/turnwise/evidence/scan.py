"""`scan(rows, ...)`: what is wrong with the rows of a dataset.

    control token   a text that is spelled like a control token; other software makes a control token of it
    role            a role that is probably misspelt, or that the template does not write
    arguments       arguments of a call that are not a JSON object
    null padding    null values inside of tools and arguments, which Arrow adds so that all rows have the same columns
    unreadable      the row is no JSON, or no conversation
    refused         the template refuses the conversation
    vanished        a message with text, of which the template writes nothing
    no labels       nothing of the row would be trained

The first five need no template, the next two need one, the last a tokenizer too. Rows may have any shape that
`turnwise.shapes` reads. They are read one at a time and nothing of them is kept, but for the first problems of each
kind in a `ScanReport`.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from turnwise.errors import MessageError, TurnwiseError, TurnwiseWarning, did_you_mean, short_repr
from turnwise.messages import InputReader, Path, format_path
from turnwise.normalisation.losses import find_losses
from turnwise.normalisation.normaliser import Normaliser
from turnwise.shapes import ParsedRow, conversation
from turnwise.template import Template
from turnwise.tokens import tokenizers
from turnwise.tokens.loss import IGNORED
from turnwise.tokens.text_encoder import encoder_for
from turnwise.tokens.token_matcher import TokenMatcher
from turnwise.tokens.tokenizers.protocol import Tokenizer

CONTROL, ROLE, ARGUMENTS, PADDING = "control token", "role", "arguments", "null padding"
UNREADABLE, REFUSED, VANISHED, NO_LABELS = "unreadable", "refused", "vanished", "no labels"
ROW_PROBLEMS = {
    UNREADABLE: "no JSON, or no conversation",
    CONTROL: "a text is spelled like a control token",
    ROLE: "a role that nobody has",
    ARGUMENTS: "the arguments of a call are no JSON object",
    PADDING: "null values that Arrow added",
    REFUSED: "the template refuses the conversation",
    VANISHED: "the template writes nothing of a message",
    NO_LABELS: "nothing would be trained",
}
"""The kinds of problems, in the order of a report."""
KNOWN_ROLES = (
    *("system", "user", "assistant", "tool", "developer", "function"),
    *("ipython", "environment", "observation", "context", "documents", "tool_results", "critic"),
)
# Keys of a schema whose values may be null.
MEANINGFUL_NULLS = ("default", "enum", "const", "examples")
SHOWN_PER_KIND = 5


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
        place = f" {self.field}" if self.field else ""
        return f"row {self.row}{place}: {self.text}"


class UnreadableRow(NamedTuple):
    """Stands for a row that could not be read, with the reason."""

    problem: str


def scan(
    rows: Iterable[Any], tokenizer: Any = None, template: Template | None = None
) -> Iterator[RowProblem]:
    """Find what is wrong with the rows of a dataset.

    Args:
        rows: Conversations in any shape that `turnwise.shapes` reads, or `UnreadableRow`.
        tokenizer: The tokenizer whose control tokens are searched.
        template: The template that the rows are rendered with. With a tokenizer, labels are checked too.

    Yields:
        The problems, in the order of the rows.

    Raises:
        MessageError: `rows` are no rows.

    Example:
        >>> from turnwise.evidence import scan
        >>> for problem in scan([[{"role": "user", "content": "Hi!<|im_end|>"}]], "turnwise"):
        ...     print(problem)
        row 0 messages[0].content: <|im_end|>
    """
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise MessageError(f"rows are a list of conversations, not {type(rows).__name__}")
    scanner = RowScanner(tokenizer, template)
    for number, row in enumerate(rows):
        for kind, place, text in scanner.scan(row):
            yield RowProblem(number, kind, place, text)


@dataclass
class ScanReport:
    """Counts of the problems of a dataset, with the first rows of each kind; `str()` of it is a table.

    Attributes:
        rows: The number of rows.
        affected: The number of rows with a problem.
        counts: The number of rows with a problem of each kind.
        first: The first problems of each kind.
    """

    rows: int = 0
    affected: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, list[RowProblem]] = field(default_factory=dict)

    def add(self, problems: Iterable[RowProblem]) -> None:
        """Add a row with its problems."""
        self.rows += 1
        kinds: dict[str, RowProblem] = {}
        for problem in problems:
            kinds.setdefault(problem.kind, problem)
        self.affected += bool(kinds)
        for kind, problem in kinds.items():
            self.counts[kind] += 1
            listed = self.first.setdefault(kind, [])
            if len(listed) < SHOWN_PER_KIND:
                listed.append(problem)

    def __str__(self) -> str:
        lines = [f"{self.rows} row{'s' * (self.rows != 1)}, {self.affected} with a problem"]
        for kind, meaning in ROW_PROBLEMS.items():
            if self.counts[kind]:
                lines.append(f"{self.counts[kind]:>8}  {kind}: {meaning}")
                lines += [f"{'':>10}{problem}" for problem in self.first[kind]]
        return "\n".join(lines)


class RowScanner:
    """Finds the problems of single rows; the arguments are those of `scan`."""

    def __init__(self, tokenizer: Any = None, template: Template | None = None) -> None:
        self._tokenizer: Tokenizer | None = None
        self._template = template
        self._matcher: TokenMatcher | None = None
        self._normaliser: Normaliser | None = None
        if tokenizer is not None:
            self._tokenizer = tokenizers.tokenizer(tokenizer)
            self._matcher = encoder_for(self._tokenizer).matcher
        texts = () if template is None else template.renderer.texts
        # A role of a single model is in its template.
        self._template_text = "\n".join(texts)

    def scan(self, row: Any) -> Iterator[tuple[str, str, str]]:
        """Yield kind, field and text of the problems of a row."""
        if isinstance(row, UnreadableRow):
            yield UNREADABLE, "", row.problem
            return
        try:
            found = conversation(row)
        except MessageError as error:
            yield UNREADABLE, error.path, error.message.removeprefix(f"{error.path}: ")
            return
        if not found.messages:
            yield UNREADABLE, "", "there is no message in it"
        if isinstance(row, str):
            yield UNREADABLE, "", f"only a text, and no conversation: {short_repr(row)}"
        yield from self._find_control_tokens(found.messages)
        yield from self._find_roles(found.messages)
        yield from _find_bad_arguments(found.messages)
        yield from _find_padding(found)
        if self._template is not None:
            yield from self._render(self._template, found)

    def _find_control_tokens(self, messages: list[Any]) -> Iterator[tuple[str, str, str]]:
        if self._matcher is None:
            return
        for path, text in _find_texts(messages, ("messages",)):
            for match in self._matcher.find(text):
                if match.token.control:
                    yield CONTROL, format_path(path), match.token.text

    def _find_roles(self, messages: list[Any]) -> Iterator[tuple[str, str, str]]:
        for index, message in enumerate(messages):
            role = message.get("role") if isinstance(message, Mapping) else None
            if role in KNOWN_ROLES:
                continue
            if isinstance(role, str) and role and role in self._template_text:
                continue
            hint = did_you_mean(str(role), KNOWN_ROLES[:6], "Roles")
            yield ROLE, f"messages[{index}].role", f"{short_repr(role)}. {hint}"

    def _render(self, template: Template, row: ParsedRow) -> Iterator[tuple[str, str, str]]:
        arguments = {**row.arguments}
        messages = arguments.pop("messages")
        with warnings.catch_warnings():
            # What they say is found here, and told for each row.
            warnings.simplefilter("ignore", TurnwiseWarning)
            try:
                normaliser = self._find_normaliser(template)
                plain = normaliser.normalise(messages, arguments.pop("tools", None))
                messages, arguments["tools"] = plain.messages, plain.tools
                rendering = template.render(messages, **arguments)
                documents = arguments.get("documents")
                capabilities = normaliser.capabilities(bool(plain.tools))
                given = InputReader().read_messages(messages)
                for place in find_losses(
                    rendering, given, plain.tools, documents, plain.positions, capabilities
                ):
                    yield VANISHED, place, "the template writes nothing of it"
                if self._tokenizer is None:
                    return
                encoded = template.encode(messages, self._tokenizer, **arguments)
            except TurnwiseError as error:
                yield REFUSED, getattr(error, "path", ""), error.message
                return
        if all(label == IGNORED for label in encoded.labels):
            yield NO_LABELS, "", "every label is ignored"

    def _find_normaliser(self, template: Template) -> Normaliser:
        """Return what gives conversations the forms that the template takes, as training would do it."""
        if self._normaliser is None:
            self._normaliser = Normaliser(template)
        return self._normaliser


def _find_bad_arguments(messages: list[Any]) -> Iterator[tuple[str, str, str]]:
    for path, arguments in _find_arguments(messages):
        if isinstance(arguments, str):
            try:
                value = json.loads(arguments)
            except (ValueError, RecursionError):
                yield ARGUMENTS, format_path(path), f"not JSON: {short_repr(arguments)}"
                continue
            if not isinstance(value, dict):
                yield ARGUMENTS, format_path(path), f"not an object: {short_repr(arguments)}"
        elif not isinstance(arguments, Mapping):
            yield ARGUMENTS, format_path(path), f"not an object: {short_repr(arguments)}"


def _find_arguments(messages: list[Any]) -> Iterator[tuple[Path, Any]]:
    """Yield the arguments of all calls with their paths."""
    for index, message in enumerate(messages):
        calls = message.get("tool_calls") if isinstance(message, Mapping) else None
        for number, call in enumerate(calls if isinstance(calls, list) else ()):
            if not isinstance(call, Mapping):
                continue
            path: Path = ("messages", index, "tool_calls", number)
            function = call.get("function")
            if isinstance(function, Mapping):
                call, path = function, (*path, "function")
            if "arguments" in call:
                yield (*path, "arguments"), call["arguments"]


def _find_padding(row: ParsedRow) -> Iterator[tuple[str, str, str]]:
    """Yield tools and arguments with null values; one problem for each is enough."""
    values: list[tuple[Path, Any]] = []
    tools = row.arguments.get("tools")
    if isinstance(tools, list):
        values += [(("tools", number), tool) for number, tool in enumerate(tools)]
    values += list(_find_arguments(row.messages))
    for path, value in values:
        found = next(_find_nulls(value, path), None)
        if found is not None:
            yield PADDING, format_path(found), "null"


def _find_nulls(value: Any, path: Path) -> Iterator[Path]:
    """Yield the paths of null values of mappings, but for those that mean something in a schema."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key in MEANINGFUL_NULLS:
                continue
            if item is None:
                yield (*path, str(key))
            else:
                yield from _find_nulls(item, (*path, str(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _find_nulls(item, (*path, index))


def _find_texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield every text in a value with its path; keys count as texts of the mapping."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(key, str):
                yield path, key
            yield from _find_texts(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _find_texts(item, (*path, index))
