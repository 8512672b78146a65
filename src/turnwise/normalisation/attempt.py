"""A verb (render, encode, examples) on a conversation: the form that it gets, and what the result lost of it.

    attempt = inputs.begin(messages, tools)
    while attempt.is_open:
        with attempt:
            rendering = renderer.render(attempt.given.messages, attempt.given.tools)
            attempt.check(rendering)

The loop runs once, and a second time in one of these cases:

    plain turns    were given as they are, and the template refuses them, or does not write all of them;
                   normalising changes something
    text parts     are printed as Python prints a list; they are joined
    tools          are refused, and lack a description or parameters; these are filled in
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from turnwise.analysis.losses import Loss, find_losses
from turnwise.engine.provenance.rendering import Rendering
from turnwise.errors import (
    MessageError,
    TemplateLimitError,
    TemplateRuntimeError,
    WarningLog,
    warn_caller,
)
from turnwise.messages import Change, InputReader, prepared_tools
from turnwise.normalisation.content import join_texts
from turnwise.normalisation.losses import RemovedReasoning, find_printed_contents
from turnwise.normalisation.normaliser import Normalised, Normaliser
from turnwise.normalisation.tools import fill_tools

EMPTY_CONVERSATION = "the conversation is empty: give at least one message"


class Reporter(NamedTuple):
    """Warns of what is wrong with the input of a template.

    Attributes:
        name: the name of the template.
        fuller: the entry for the same models that writes what this template leaves out, if there is one.
        strict: raise an error, not a warning.
    """

    name: str
    fuller: str
    strict: bool

    def report(self, problems: Iterable[str], path: str = "messages") -> None:
        """Warn of problems.

        Raises:
            MessageError: with `strict`, there is one.
        """
        for problem in problems:
            if self.strict:
                raise MessageError(problem, path=path)
            warn_caller(f"{self.name}: {problem}")

    def report_losses(self, lost: Sequence[Loss]) -> None:
        """Warn of what was given and is not written.

        Raises:
            MessageError: with `strict`, there is something.
        """
        if not lost:
            return
        whole = ", ".join(loss.path for loss in lost if not loss.is_part)
        parts = ", ".join(loss.path for loss in lost if loss.is_part)
        described = [f"nothing of {whole}"] if whole else []
        described += [f"only a part of {parts}"] if parts else []
        problem = f"the template writes {', and '.join(described)}"
        if self.fuller:
            problem = f"{problem}; the entry {self.fuller} does"
        self.report([problem], lost[0].path)


class InputAttempt:
    """A conversation in the form in which a verb gets it, and the warnings of that verb.

    Args:
        normaliser: knows other forms of the conversation.
        reporter: warns of what is lost.
        given: the conversation.
        documents: the documents.

    Attributes:
        given: the conversation.
        is_open: whether the verb has to run.
        is_tentative: whether it is given as it is, until it is refused or something of it is lost.
        is_normalised: whether it has the form that the template takes, or needs none.
        is_read: whether its messages are plain data.
    """

    def __init__(
        self, normaliser: Normaliser, reporter: Reporter, given: Normalised, documents: Any
    ) -> None:
        self._log = WarningLog()
        self._normaliser = normaliser
        self._reporter = reporter
        self._documents = documents
        self.given = given
        self.is_open = True
        self.is_tentative = False
        self.is_normalised = self.is_read = True

    def __enter__(self) -> None:
        self._log.__enter__()

    def __exit__(self, kind: object, error: BaseException | None, place: object) -> bool:
        is_tried_again = False
        if isinstance(error, TemplateRuntimeError):
            messages = self.given.messages
            if isinstance(messages, (list, tuple)) and not messages:
                error.hint = "; ".join(filter(None, (EMPTY_CONVERSATION, error.hint)))
            is_tried_again = self._try_normalised() or self._try_filled_tools()
        self._log.__exit__()
        return is_tried_again

    def check(
        self,
        rendering: Rendering | None,
        kept: Sequence[int] | None = None,
        is_complete: bool = True,
    ) -> None:
        """Warn of what was given and is not in a rendering, unless another form is tried first.

        Args:
            rendering: the rendering; None if there is none.
            kept: the indices of the messages that were rendered, if not all were.
            is_complete: whether every turn that was wanted is in a rendering.

        Raises:
            MessageError: with `strict`, something is lost.
        """
        self.is_open = False
        lost: list[Loss] = []
        if rendering is not None and (self.is_normalised or self._reporter.strict):
            misprints = self._find_misprints(rendering, kept)
            if misprints and self._try_joined(misprints):
                return
            if misprints:
                message = f"the template writes {', '.join(misprints)} as Python prints it"
                self._reporter.report([message], misprints[0])
            lost = self.find_losses(rendering, kept)
        if (lost or not is_complete) and self._try_normalised():
            return
        self._reporter.report_losses([*map(Loss, self.given.lost), *lost])
        if rendering is not None:
            rendering.warnings = self._log.texts

    def _try_normalised(self) -> bool:
        """Choose the normalised form of a conversation that was given as it is; False if it is the same."""
        if not self.is_tentative:
            return False
        other = self._normaliser.normalise(self.given.messages)
        self.is_tentative = False
        if other.changes:
            self.given, self.is_open = other, True
        return self.is_open

    def _try_filled_tools(self) -> bool:
        """Choose the form in which every tool has a description and parameters; False if they have."""
        filled = fill_tools(self.given.tools) if self.given.tools else None
        if filled is None:
            return False
        changes = (*self.given.changes, *filled.changes)
        self.given = self.given._replace(tools=filled.tools, changes=changes)
        return True

    def _try_joined(self, paths: Sequence[str]) -> bool:
        """Choose the form with text parts joined at these paths; False if there are none, or they were joined."""
        joined = join_parts(self.given, paths)
        self.is_open = joined is not self.given
        self.given = joined
        return self.is_open

    def find_losses(self, rendering: Rendering, kept: Sequence[int] | None = None) -> list[Loss]:
        """Return what was given and is not in a rendering."""
        messages, positions = self.given.messages, self.given.positions
        if not self.is_read:
            messages = InputReader().read_messages(messages)
        if kept is not None and len(kept) < len(messages):
            positions = tuple(positions[index] if positions else index for index in kept)
            messages = [messages[index] for index in kept]
        tools = prepared_tools(self.given.tools).plain
        try:
            capabilities = self._normaliser.capabilities(bool(tools))
            removed = RemovedReasoning(messages, capabilities)
            names = bool(self._reporter.fuller)
            return find_losses(
                rendering, messages, tools, self._documents, positions, removed, names
            )
        except TemplateLimitError:
            return []  # what the template does with reasoning could not be found out

    def _find_misprints(self, rendering: Rendering, kept: Sequence[int] | None) -> list[str]:
        """Return the paths of contents that are written as Python prints them."""
        given = self.given
        if rendering.unwritten == () or rendering.plain_kind or not self.is_normalised:
            return []
        if kept and len(kept) < len(given.messages):
            return []  # the indices of a part of the messages are others
        return find_printed_contents(rendering, given.messages, given.positions)


def join_parts(given: Normalised, paths: Sequence[str]) -> Normalised:
    """Return a conversation with the text parts at these paths joined; the same object if there are none."""
    messages, changes = list(given.messages), list(given.changes)
    for place, message in enumerate(messages):
        path = f"messages[{given.positions[place] if given.positions else place}].content"
        text = join_texts(message.get("content")) if path in paths else None
        if text is not None:
            messages[place] = {**message, "content": text}
            why = "the template prints the list here"
            changes.append(Change(path, "text parts were joined", why))
    if len(changes) == len(given.changes):
        return given
    return given._replace(messages=messages, changes=tuple(changes), read=None)
