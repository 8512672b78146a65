"""A verb (render, encode, examples) on a conversation: the forms that it tries, and what the result lost of it.

    attempt = inputs.begin(messages, {"tools": tools})
    for given in attempt:
        try:
            rendering = renderer.render(given.messages, given.tools)
            attempt.check(rendering)
        except TemplateRuntimeError as error:
            attempt.refuse(error)

The loop runs once, and once more in each of these cases:

    plain turns    were given as they are, and the template refuses them, or does not write all of them;
                   normalising changes something
    text parts     are printed as Python prints a list; they are joined
    tools          are refused, and lack a description or parameters; these are filled in

What was given and is not written is found by `analysis/losses.py`. Templates that write the reasoning of the last reply
and remove it from earlier ones do so on purpose. That is no loss. Content that is written, but as Python prints a list,
a mapping or None, is a misprint (`analysis/misprints.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from turnwise.analysis.losses import Loss, find_losses
from turnwise.analysis.misprints import find_misprints
from turnwise.analysis.unnamed_tokens import describe_unnamed_tokens, find_unnamed_tokens
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.renderer import Renderer
from turnwise.errors import (
    MessageError,
    TemplateLimitError,
    TemplateRuntimeError,
    warn_caller,
    warnings_so_far,
)
from turnwise.messages import NO_TOOLS, Change, InputReader, JsonMapping, JsonObject, prepared_tools
from turnwise.normalisation.normalised import Normalised

if TYPE_CHECKING:
    from turnwise.normalisation.capabilities import Capabilities
    from turnwise.normalisation.normaliser import Normaliser

EMPTY_CONVERSATION = "the conversation is empty: give at least one message"


class Reporter(NamedTuple):
    """Warns of what is wrong with the input of a template.

    Attributes:
        renderer: the template.
        fuller: the entry for the same models that writes what this template leaves out, if there is one.
        strict: raise an error, not a warning.
    """

    renderer: Renderer
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
            warn_caller(f"{self.renderer.name}: {problem}")

    def report_losses(self, lost: Sequence[Loss]) -> None:
        """Warn of what was given and is not written.

        Raises:
            MessageError: with `strict`, there is something.
        """
        if not lost:
            return
        described = []
        for is_part, words in enumerate(("nothing of", "only a part of")):
            paths = ", ".join([loss.path for loss in lost if loss.is_part == is_part])
            described += [f"{words} {paths}"] if paths else []
        problem = f"the template writes {', and '.join(described)}"
        if self.fuller:
            problem = f"{problem}; the entry {self.fuller} does"
        self.report([problem], lost[0].path)


class InputAttempt:
    """The forms in which a verb gets a conversation, one after the other, until one is accepted and written whole.

    Args:
        find_normaliser: returns what knows other forms of the conversation.
        reporter: warns of what is lost.
        given: the form that is tried first.
        documents: the documents.
        normalise: whether other forms are wanted; if not, losses are reported only if they are errors.
        is_plain: whether it has plain turns as the caller has them, which are normalised only if need be.
        is_read: whether its messages are plain data.

    Attributes:
        given: the form that was tried last.
    """

    def __init__(
        self,
        find_normaliser: Callable[[], Normaliser],
        reporter: Reporter,
        given: Normalised,
        documents: Any = None,
        normalise: bool = True,
        is_plain: bool = False,
        is_read: bool = True,
    ) -> None:
        self._find_normaliser = find_normaliser
        self._reporter = reporter
        self._documents = documents
        self._normalise = normalise
        self._is_plain = is_plain
        self._is_read = is_read
        self._unnamed: tuple[str, ...] = ()
        self.given = given
        self._next: Normalised | None = given

    def __iter__(self) -> Iterator[Normalised]:
        while self._next is not None:
            self.given, self._next = self._next, None
            yield self.given

    def resume(
        self,
        rendering: Rendering | None,
        refusal: TemplateRuntimeError | None,
        options: JsonObject,
    ) -> None:
        """Go on from what became of the first form, if it was tried already."""
        if refusal is not None:
            self.refuse(refusal, options)
        elif rendering is not None:
            self.check(rendering)

    def refuse(self, error: TemplateRuntimeError, options: JsonObject | None = None) -> None:
        """Choose another form than that which the template refused.

        Args:
            error: the error of the template.
            options: the values of the template's variables; special tokens without one become empty texts there, and
                the same form is tried again.

        Raises:
            TemplateRuntimeError: there is no other form.
        """
        if options is not None and self._normalise:
            unnamed = find_unnamed_tokens(self._reporter.renderer, options)
            if unnamed:
                options |= dict.fromkeys(unnamed, "")
                self._unnamed, self._next = unnamed, self.given
                return
        messages = self.given.messages
        if isinstance(messages, (list, tuple)) and not messages:
            error.hint = "; ".join(filter(None, (EMPTY_CONVERSATION, error.hint)))
        self._next = self._normalise_plain() or self._fill_tools()
        if self._next is None:
            raise error

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
        self._next = None
        lost: list[Loss] = []
        if rendering is not None and (self._normalise or self._reporter.strict):
            misprints = self._find_misprints(rendering, kept)
            if misprints:
                self._next = join_parts(self.given, misprints)
                if self._next is not None:
                    return
                self._reporter.report(
                    [f"the template writes {', '.join(misprints)} as Python prints it"],
                    next(iter(misprints)),
                )
            lost = self.find_losses(rendering, kept)
        if lost or not is_complete:
            self._next = self._normalise_plain()
            if self._next is not None:
                return
        if self._unnamed:
            warn_caller(describe_unnamed_tokens(self._reporter.renderer, self._unnamed))
        self._reporter.report_losses([*map(Loss, self.given.lost), *lost])
        if rendering is not None:
            rendering.warnings = warnings_so_far()

    def _normalise_plain(self) -> Normalised | None:
        """Return the normalised form of plain turns; None if it is the same."""
        if not self._is_plain:
            return None
        self._is_plain = False
        normaliser, given = self._find_normaliser(), self.given
        keeps_texts = normaliser.capabilities(bool(given.tools)).text_roles.issuperset
        if keeps_texts([one["role"] for one in given.messages]):
            return None
        other = normaliser.normalise(given.messages, given.tools)
        return other if other.changes else None

    def _fill_tools(self) -> Normalised | None:
        """Return the form in which every tool has a description and parameters; None if they have."""
        from turnwise.normalisation.tools import fill_tools

        filled = fill_tools(self.given.tools)
        if filled is None:
            return None
        return self.given._replace(
            tools=filled.tools, changes=(*self.given.changes, *filled.changes)
        )

    def find_losses(self, rendering: Rendering, kept: Sequence[int] | None = None) -> list[Loss]:
        """Return what was given and is not in a rendering."""
        messages, positions = self.given.messages, self.given.positions
        if not self._is_read:
            messages = InputReader().read_messages(messages)
        if kept is not None and len(kept) < len(messages):
            positions = tuple(positions[index] if positions else index for index in kept)
            messages = [messages[index] for index in kept]
        tools = prepared_tools(self.given.tools or NO_TOOLS).plain
        try:
            return find_losses(
                rendering,
                messages,
                tools,
                self._documents,
                positions,
                RemovedReasoning(
                    messages, lambda: self._find_normaliser().capabilities(bool(tools))
                ),
                bool(self._reporter.fuller),
            )
        except TemplateLimitError:
            return []  # what the template does with reasoning could not be found out

    def _find_misprints(self, rendering: Rendering, kept: Sequence[int] | None) -> dict[str, int]:
        """Return the paths of contents that are written as Python prints them, with the places of their messages.

        Pieces are looked at only if some content may be printed, and the text has the signs of it.
        """
        given = self.given
        is_part = kept and len(kept) < len(given.messages)  # with other indices
        if rendering.plain_kind or not self._normalise or is_part:
            return {}
        if given.read is not None and (rendering.unwritten == () or not given.read.has_parts):
            return {}  # usual contents: texts, or all of them are written
        is_plain = all(
            isinstance(message.get("content", ""), (str, int, float))
            for message in given.messages
            if isinstance(message, Mapping)
        )
        if is_plain or not any(sign in rendering.text for sign in ("None", "{'", "['")):
            return {}
        indices = {
            found.path[1]: None
            for found in find_misprints(rendering, given.messages)
            if found.notation == "python" and found.path[2:3] == ("content",)
        }
        return {
            f"messages[{given.positions[index] if given.positions else index}].content": index
            for index in indices
            if isinstance(index, int)
        }


def join_parts(given: Normalised, paths: Mapping[str, int]) -> Normalised | None:
    """Return a conversation with the text parts at these paths, in these places, joined; None if there are none."""
    from turnwise.normalisation.content import join_texts

    messages, changes = list(given.messages), list(given.changes)
    for path, place in paths.items():
        text = join_texts(messages[place].get("content"))
        if text is not None:
            messages[place] = {**messages[place], "content": text}
            changes.append(
                Change(path, "text parts were joined", "the template prints the list here")
            )
    if len(changes) == len(given.changes):
        return None
    return given._replace(messages=messages, changes=tuple(changes), read=None)


class RemovedReasoning:
    """The messages whose reasoning a template removes on purpose, though it writes that of a last reply.

    The template is asked only where reasoning is in doubt.

    Args:
        messages: the messages that were rendered.
        find_capabilities: returns what the template does with reasoning.
    """

    def __init__(
        self,
        messages: Sequence[JsonMapping],
        find_capabilities: Callable[[], Capabilities],
    ) -> None:
        self._messages = messages
        self._find_capabilities = find_capabilities

    def __contains__(self, index: object) -> bool:
        if not isinstance(index, int):
            return False
        message = self._messages[index]
        if message.get("role") != "assistant" or index >= self._last_user:
            return False
        if message.get("tool_calls"):
            return self._find_capabilities().writes_reasoning_with_calls
        return self._find_capabilities().writes_reasoning

    @cached_property
    def _last_user(self) -> int:
        """The index of the last user's message, 0 if there is none."""
        users = [i for i, one in enumerate(self._messages) if one.get("role") == "user"]
        return max(users, default=0)
