"""Run a verb (render, encode, examples) on the conversation that the caller has, in the form that the template takes.

    given ──▶ normalise ──▶ the verb ──▶ is all text that was given in the rendering? ──▶ a warning that names the rest

Conversations of plain turns, texts of users and assistants behind at most one system text, are what nearly every
template takes. They are given to the verb as they are, and normalised only if the template refuses them or does not
write all of them. So they cost no probes, and their text is what transformers writes.

Templates of other software (dialects) say themselves what becomes of each message. Only messages that `parse` returned
are changed for them, and losses are told all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from turnwise.analysis.losses import Loss, find_losses
from turnwise.analysis.unnamed_tokens import find_unnamed_tokens
from turnwise.engine.provenance.rendering import Rendering
from turnwise.errors import (
    MessageError,
    TemplateLimitError,
    TemplateRuntimeError,
    WarningLog,
    warn_caller,
)
from turnwise.messages import (
    NO_TOOLS,
    InputReader,
    find_plain_kind,
    prepared_tools,
)
from turnwise.normalisation.change import Change
from turnwise.normalisation.content import join_texts
from turnwise.normalisation.losses import RemovedReasoning, find_printed_contents
from turnwise.normalisation.normaliser import Normalised, Normaliser
from turnwise.normalisation.stages import Stage, find_early_replies, split_stages
from turnwise.normalisation.tools import normalise_tools
from turnwise.replies.codec import ReplyCodec

OPENAI_DIALECT = "jinja"
MAX_SEARCHED_ITEMS = 400  # of an output, for each message; published templates write some ten
EMPTY_CONVERSATION = "the conversation is empty: give at least one message"

Result = TypeVar("Result")


class Seen(NamedTuple):
    """A rendering in which the texts of a conversation are looked for.

    Attributes:
        rendering: the rendering; None if there is none.
        kept: the indices of the messages that were rendered, if not all were.
        is_complete: whether every turn that was wanted is in a rendering.
    """

    rendering: Rendering | None
    kept: Sequence[int] | None = None
    is_complete: bool = True


class Preprocessor:
    """Prepares conversations for one template, and says what it lost of them.

    Args:
        codec: the replies of the template, with what is known about it.
        dialect: the dialect in which it was written.
        fuller: the entry for the same models that writes what this template leaves out, if there is one.
    """

    def __init__(self, codec: ReplyCodec, dialect: str, fuller: str = "") -> None:
        self._codec = codec
        self._fuller = fuller
        self._name = codec.renderer.name
        self._is_openai = dialect == OPENAI_DIALECT

    @cached_property
    def normaliser(self) -> Normaliser:
        """The normaliser of the template."""
        return Normaliser(self._codec)

    def normalise(
        self, messages: Any, tools: Any, strict: bool = False, first: int = 0, reply: Any = None
    ) -> Normalised:
        """Return a conversation in the form that the template takes, and warn of what is probably wrong with it.

        Args:
            messages: the conversation.
            tools: the tools.
            strict: raise an error, not a warning.
            first: how many messages the model has read before these.
            reply: the last of those.

        Raises:
            MessageError: the input is not a conversation; or, with `strict`, a role is misspelt.
        """
        if not self._is_openai:
            return Normalised(self._codec.to_input(messages), tools)
        given = self.normaliser.normalise(messages, tools, first, reply)
        if given.problems:
            self._report(given.problems, strict)
        return given

    def split_stages(self, messages: Any, given: Normalised, only_last: bool) -> list[Stage]:
        """Return a conversation up to each system text that was moved to before a reply, and the whole of it.

        Args:
            messages: the conversation as the caller has it.
            given: the conversation in the form that the template takes.
            only_last: leave out the replies of all stages but the last that has one.
        """
        if given.positions is None:
            return [Stage(given)]
        stages = split_stages(self.normaliser, messages, given)
        if not only_last:
            return stages
        return stages[-1:] if stages[-1].first < len(given.messages) else stages[-2:]

    def report_early_replies(
        self, messages: Any, given: Normalised, only_last: bool, strict: bool
    ) -> None:
        """Warn of replies that are trained behind a system text that came after them.

        Args:
            messages: the conversation as the caller has it.
            given: the conversation in the form that the template takes.
            only_last: no reply but the last is trained.
            strict: raise an error, not a warning.
        """
        moved = find_early_replies(messages, given, only_last)
        if moved is not None:
            system, reply = moved
            problem = (
                f"messages[{system}], a system text, was moved to before messages[{reply}], a reply that was "
                "given without it; `examples` trains such a reply by itself"
            )
            self._report([problem], strict, f"messages[{reply}]")

    def check_losses(
        self, seen: Seen, messages: Sequence[Any], tools: Any, first: int, strict: bool
    ) -> None:
        """Warn of text of the messages from `first` on that is not in a rendering."""
        lost = self._find_losses(seen, Normalised(messages, tools), None)
        old = tuple(f"messages[{index}]" for index in range(first))
        lost = [
            loss
            for loss in lost
            if not loss.path.startswith(old) and (not first or "[" in loss.path)
        ]
        self.report_losses(lost, strict)

    def report_losses(self, lost: Sequence[Loss], strict: bool) -> None:
        """Warn of what was given and is not written; with `strict`, raise an error."""
        if lost:
            problem = _describe_losses(lost)
            if self._fuller:
                problem = f"{problem}; the entry {self._fuller} does"
            self._report([problem], strict, lost[0].path)

    def try_as_given(
        self,
        messages: Any,
        tools: Any,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
        strict: bool,
    ) -> Rendering | None:
        """Return the rendering of a conversation that the template takes as it is; None if it may need another form.

        This is the fast path of `render`, which must cost little more than rendering.
        """
        if type(messages) is not list or not messages:
            return None
        rendering = None
        try:
            if tools is None and _looks_plain(messages):
                # the renderer looks at all of them
                rendering = self._codec.renderer.render(messages, None, *arguments, **options)
                if rendering.plain_kind == "turns":
                    return self._check_plain_turns(rendering, messages, strict)
            if not self._is_openai:
                return None
            try:
                return self._try_usual_forms(messages, tools, arguments, options, strict, rendering)
            except TemplateLimitError:
                return None  # what it costs to find out what the template takes
        except TemplateRuntimeError:
            if self._has_no_other_form(messages, tools, options):
                raise
            return None

    def _check_plain_turns(
        self, rendering: Rendering, messages: list[Any], strict: bool
    ) -> Rendering | None:
        """Return a rendering, with a warning of what it lost; None if another form may lose less."""
        if rendering.is_whole:
            return rendering
        # What is lost is looked for again in another form, and twice is too much in a long output.
        if len(rendering.output) > MAX_SEARCHED_ITEMS * (len(messages) + 1):
            return None
        lost = find_losses(rendering, messages)
        if lost and self._is_openai and self.normaliser.normalise(messages).changes:
            return None
        self._note_losses(rendering, lost, strict)
        return rendering

    def _note_losses(self, rendering: Rendering, lost: Sequence[Loss], strict: bool) -> None:
        """Report losses, and keep the warning with the rendering."""
        if lost:
            with WarningLog() as log:
                self.report_losses(lost, strict)
            rendering.warnings = log.texts

    def _try_usual_forms(
        self,
        messages: list[Any],
        tools: Any,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
        strict: bool,
        rendering: Rendering | None,
    ) -> Rendering | None:
        """Do as `try_as_given` for messages with tools, calls, results or reasoning; perhaps there is a rendering."""
        prepared = NO_TOOLS if tools is None else prepared_tools(tools)
        capabilities = self.normaliser.capabilities(bool(tools))
        chat = self.normaliser.usual_forms(bool(tools)).read(messages)
        if chat is None or normalise_tools(prepared).changes:
            return None
        if rendering is None:
            known = None if tools is None else prepared
            rendering = self._codec.renderer.render(chat, known, *arguments, **options)
        removed = RemovedReasoning(chat.messages, capabilities)
        plain = prepared.plain if tools else None
        names = bool(self._fuller)
        lost = find_losses(rendering, chat.messages, plain, removed=removed, names=names)
        self._note_losses(rendering, lost, strict)
        return rendering

    def _has_no_other_form(self, messages: Any, tools: Any, options: dict[str, Any]) -> bool:
        """Whether a conversation that the template refuses would be the same after normalising."""
        if tools is not None or find_unnamed_tokens(self._codec.renderer, options):
            return False
        if not self._is_openai:
            return False
        other = self.normaliser.normalise(messages)
        return not other.changes and not other.problems

    def run(
        self,
        messages: Any,
        verb: Callable[[Normalised], Result],
        view: Callable[[Result], Seen],
        *,
        tools: Any = None,
        documents: Any = None,
        normalise: bool = True,
        strict: bool = False,
    ) -> tuple[Result, Normalised]:
        """Run a verb on a conversation, and warn of text that was given and is not in its result.

        Args:
            messages: the conversation as the caller has it.
            verb: does the work; called a second time if plain turns have to be changed.
            view: returns the rendering of a result.
            tools: the tools.
            documents: the documents.
            normalise: change what the template does not take, and warn; else do neither, as transformers does.
            strict: raise an error, not a warning.

        Returns:
            The result, and the conversation in the form in which the verb got it.

        Raises:
            MessageError: the input is not a conversation; or, with `strict`, something of it is lost.
        """
        if isinstance(messages, (list, tuple)) and not messages:
            verb = _explain_no_message(verb)
        with WarningLog() as log:
            if not normalise:
                given = Normalised(messages, tools)
                result = verb(given)
                lost = []
                if strict:
                    lost = self._find_losses(view(result), given, documents, exact=True)
            elif tools is None and find_plain_kind(messages) == "turns":
                result, given, lost = self._run_on_plain_turns(messages, verb, view, documents)
            else:
                result, given, lost = self._run_normalised(
                    self.normalise(messages, tools, strict), verb, view, documents, strict
                )
            self.report_losses(lost, strict)
        rendering = view(result).rendering
        if rendering is not None:
            rendering.warnings = log.texts
        return result, given

    def _run_normalised(
        self,
        given: Normalised,
        verb: Callable[[Normalised], Result],
        view: Callable[[Result], Seen],
        documents: Any,
        strict: bool,
    ) -> tuple[Result, Normalised, list[Loss]]:
        """Run a verb on a conversation in the form that the template takes, and find what is not in its result."""
        result = verb(given)
        misprints = self._find_misprints(view(result), given)
        if misprints:
            joined = _join_parts(given, misprints)
            if joined is not given:
                given, result = joined, verb(joined)
                misprints = self._find_misprints(view(result), given)
            self._report_misprints(misprints, strict)
        lost = [*map(Loss, given.lost), *self._find_losses(view(result), given, documents)]
        return result, given, lost

    def _run_on_plain_turns(
        self,
        messages: Any,
        verb: Callable[[Normalised], Result],
        view: Callable[[Result], Seen],
        documents: Any,
    ) -> tuple[Result, Normalised, list[Loss]]:
        """Do the same as it is; normalised, if the template refuses that or loses something."""
        result, given = self._try_plain_turns(messages, verb)
        seen = view(result)
        lost = self._find_losses(seen, given, documents)
        is_flawed = bool(lost) or not seen.is_complete
        if is_flawed and given.messages is messages and self._is_openai:
            other = self.normaliser.normalise(messages)
            if other.changes:
                given, result = other, verb(other)
                lost = self._find_losses(view(result), given, documents)
        return result, given, lost

    def _try_plain_turns(
        self, messages: Any, verb: Callable[[Normalised], Result]
    ) -> tuple[Result, Normalised]:
        """Run a verb on a conversation as it is, or normalised if the template refuses that."""
        given = Normalised(messages, None)
        try:
            return verb(given), given
        except TemplateRuntimeError:
            other = self.normaliser.normalise(messages) if self._is_openai else given
            if not other.changes:
                raise
        return verb(other), other

    def _find_losses(
        self, seen: Seen, given: Normalised, documents: Any, exact: bool = False
    ) -> list[Loss]:
        """Return what was given and is not in a rendering; `exact` if nothing was read yet."""
        if seen.rendering is None:
            return []
        messages, positions = given.messages, given.positions
        if exact or not self._is_openai:
            messages = InputReader().read_messages(messages)
        kept = seen.kept
        if kept is not None and len(kept) < len(messages):
            positions = tuple(positions[index] if positions else index for index in kept)
            messages = [messages[index] for index in kept]
        try:
            capabilities = self.normaliser.capabilities(bool(given.tools))
            removed = RemovedReasoning(messages, capabilities)
            return find_losses(
                seen.rendering,
                messages,
                given.tools,
                documents,
                positions,
                removed,
                names=bool(self._fuller),
            )
        except TemplateLimitError:
            return []  # what the template does with reasoning could not be found out

    def _find_misprints(self, seen: Seen, given: Normalised) -> list[str]:
        """Return the paths of contents that are written as Python prints them."""
        if seen.rendering is None or (seen.kept and len(seen.kept) < len(given.messages)):
            return []  # the indices of a part of the messages are others
        return find_printed_contents(seen.rendering, given.messages, given.positions)

    def _report_misprints(self, paths: Sequence[str], strict: bool) -> None:
        if paths:
            message = f"the template writes {', '.join(paths)} as Python prints it"
            self._report([message], strict, paths[0])

    def _report(self, problems: Iterable[str], strict: bool, path: str = "messages") -> None:
        """Warn of problems with the input; with `strict`, raise an error."""
        for problem in problems:
            if strict:
                raise MessageError(problem, path=path)
            warn_caller(f"{self._name}: {problem}")

    def __reduce__(self) -> tuple[Any, ...]:
        dialect = OPENAI_DIALECT if self._is_openai else ""
        return _share_preprocessor, (self._codec, dialect, self._fuller)


def choose_input_arguments(arguments: Mapping[str, Any], strict: bool) -> dict[str, Any]:
    """Return those of the arguments of `render` that decide what becomes of the input."""
    return {
        "tools": arguments.get("tools"),
        "documents": arguments.get("documents"),
        "normalise": arguments.get("normalise", True),
        "strict": strict,
    }


def _explain_no_message(verb: Callable[[Normalised], Result]) -> Callable[[Normalised], Result]:
    """Return a verb that says so if it fails on a conversation without messages."""

    def run(given: Normalised) -> Result:
        try:
            return verb(given)
        except TemplateRuntimeError as error:
            error.hint = "; ".join(filter(None, (EMPTY_CONVERSATION, error.hint)))
            raise

    return run


def _looks_plain(messages: Sequence[Any]) -> bool:
    """Whether the first, third and last message have two keys each; with calls or reasoning, one of these has more."""
    first, last = messages[0], messages[-1]
    if not type(first) is type(last) is dict or not len(first) == len(last) == 2:
        return False
    third = messages[2] if len(messages) > 3 else last
    return type(third) is dict and len(third) == 2


def _join_parts(given: Normalised, paths: Sequence[str]) -> Normalised:
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
    return given._replace(messages=messages, changes=tuple(changes))


def _describe_losses(lost: Sequence[Loss]) -> str:
    whole = ", ".join(loss.path for loss in lost if not loss.is_part)
    parts = ", ".join(loss.path for loss in lost if loss.is_part)
    said = [f"nothing of {whole}"] if whole else []
    said += [f"only a part of {parts}"] if parts else []
    return f"the template writes {', and '.join(said)}"


_shared: WeakKeyDictionary[ReplyCodec, Preprocessor] = WeakKeyDictionary()


def _share_preprocessor(codec: ReplyCodec, dialect: str, fuller: str = "") -> Preprocessor:
    """Unpickle a preprocessor: thousands of sessions of one template ask it once what it takes."""
    found = _shared.get(codec)
    if found is None:
        found = _shared[codec] = Preprocessor(codec, dialect, fuller)
    return found
