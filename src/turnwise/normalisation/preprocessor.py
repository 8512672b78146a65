"""Prepares conversations for one template: what `render`, `encode`, `examples` and sessions do with their input.

    messages ──▶ begin ──▶ the verb ──▶ check: is all text in the rendering? ──▶ a warning that names the rest

Conversations of plain turns, texts of users and assistants after at most one system text, are what nearly every
template takes. They are given to the verb as they are, and normalised only if the template refuses them or does not
write all of them (`attempt.py`). So they cost no probes, and their text is what transformers writes.

Templates of other software (dialects) define themselves what becomes of each message. Only messages that `parse`
returned are changed for them; losses are still reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from turnwise.engine.option_names import (
    RENDER_ARGUMENTS,
    REQUEST_FACTS,
    SPECIAL_TOKENS,
    reject_misspelt_options,
)
from turnwise.engine.provenance.rendering import Rendering
from turnwise.errors import WarningLog
from turnwise.messages import (
    JsonMapping,
    JsonObject,
    ReadMessages,
    find_plain_kind,
    prepared_tools,
)
from turnwise.normalisation.attempt import InputAttempt, Reporter
from turnwise.normalisation.normalised import LateSystem, Normalised, check_late_system
from turnwise.normalisation.stages import Stage, find_early_reply, split_stages
from turnwise.replies.codec import ReplyCodec

if TYPE_CHECKING:
    from turnwise.analysis.request_facts import RequestFacts
    from turnwise.normalisation.normaliser import Normaliser
    from turnwise.tokens.loss import TrainOn

OPENAI_DIALECT = "jinja"
get_role = itemgetter("role")
new_tuple = tuple.__new__  # in half of the time of calling a named tuple


class Preprocessor:
    """Prepares conversations for one template, and reports what it lost of them.

    Args:
        codec: the replies of the template, with what is known about it.
        dialect: the dialect in which it was written.
        fuller: the entry for the same models that writes what this template leaves out, if there is one.
    """

    def __init__(self, codec: ReplyCodec, dialect: str, fuller: str = "") -> None:
        self._codec = codec
        self._fuller = fuller
        self.report_to = partial(Reporter, codec.renderer, fuller)
        self._is_openai = dialect == OPENAI_DIALECT

    @cached_property
    def normaliser(self) -> Normaliser:
        """The normaliser of the template."""
        from turnwise.normalisation.normaliser import Normaliser

        return Normaliser(self._codec)

    @cached_property
    def _names(self) -> set[str]:
        """Options that every verb takes as they are."""
        return {*self._codec.renderer.variables, *SPECIAL_TOKENS}.difference(RENDER_ARGUMENTS)

    @cached_property
    def _facts(self) -> RequestFacts:
        from turnwise.analysis.request_facts import RequestFacts

        return RequestFacts(self._codec.renderer)

    def read_options(
        self,
        given: JsonObject,
        verb: str,
        strict: bool,
    ) -> tuple[JsonObject, tuple[str, ...]]:
        """Return arguments with what a request asks as variables of the template, and the warnings.

        It warns of what the variables do not express.

        Raises:
            MessageError: an argument is misspelt, or this method does not take it; or, with `strict`, something is not
                expressed.
        """
        if self._names.issuperset(given):
            return given, ()
        reject_misspelt_options(given, self._codec.renderer.variables, verb)
        if not given.keys() & REQUEST_FACTS:
            return given, ()
        kept = {name: value for name, value in given.items() if name not in REQUEST_FACTS}
        found = self._facts.translate(given, kept)
        options = {**found.options, **kept}
        with WarningLog() as log:
            self.report_to(strict).report(found.problems, "options")
        return options, log.texts

    def read(
        self,
        messages: Any,
        tools: Any,
        earlier: ReadMessages | None = None,
        policy: LateSystem | None = None,
    ) -> Normalised:
        """Return input in the form that the template takes.

        Messages that were read are copies of the caller's. They need `check` only if their rendering is not known to be
        whole.

        Args:
            messages: the conversation as the caller has it.
            tools: the tools.
            earlier: what was read of messages with which the conversation begins.
            policy: where system texts after other messages are put.
        """
        is_plain = find_plain_kind(messages) == "turns"
        changes = ()
        if tools is not None and self._is_openai:
            tools = prepared_tools(tools)
            known, takes = tools.normalised, self.normaliser.capabilities(True)
            is_plain = is_plain and known and takes.text_roles.issuperset(map(get_role, messages))
            if is_plain:
                tools, changes = known.tools or tools, known.changes
        if is_plain:
            copies = list(map(dict.copy, messages))
            turns = new_tuple(ReadMessages, (copies, {}, "turns", False, None, None))
            return new_tuple(Normalised, (messages, tools, changes, None, (), (), turns, ()))
        if not self._is_openai:
            return Normalised(self._codec.to_input(messages), tools)
        return self.normaliser.normalise(messages, tools, 0, None, policy, earlier)

    def begin(
        self,
        messages: Any,
        arguments: JsonMapping,
        usual: Normalised | None = None,
        earlier: ReadMessages | None = None,
    ) -> InputAttempt:
        """Return a conversation in the form in which a verb gets it first.

        Args:
            messages: the conversation as the caller has it.
            arguments: those of `render`, of which `tools`, `documents`, `normalise`, `strict` and `late_system` are
                read.
            usual: what `read` returned, if it was asked.
            earlier: what was read of messages with which the conversation begins.

        Raises:
            MessageError: the input is not a conversation, or there is no such policy; or, with `strict`, a role is
                misspelt.
        """
        tools, strict = arguments.get("tools"), bool(arguments.get("strict"))
        policy = check_late_system(arguments.get("late_system"))
        wanted = arguments.get("normalise", True)
        if usual is None and wanted:
            usual = self.read(messages, tools, earlier, policy)
        given = usual or Normalised(messages, tools)
        reporter = self.report_to(strict)
        reporter.report(given.problems)
        is_plain = bool(given.read and given.read.plain_kind)
        return InputAttempt(
            lambda: self.normaliser,
            reporter,
            given,
            arguments.get("documents"),
            wanted,
            is_plain=is_plain and self._is_openai,
            is_read=wanted and (is_plain or self._is_openai),
        )

    def normalise(
        self,
        messages: Any,
        tools: Any,
        strict: bool = False,
        first: int = 0,
        reply: Any = None,
        late_system: LateSystem | None = None,
    ) -> Normalised:
        """Return a conversation in the form that the template takes, and warn of what is probably wrong with it.

        Args:
            messages: the conversation.
            tools: the tools.
            strict: raise an error, not a warning.
            first: how many messages the model has read before these.
            reply: the last of those.
            late_system: where system texts after other messages are put; see `Normaliser.normalise`.

        Raises:
            MessageError: the input is not a conversation; or, with `strict`, a role is misspelt.
        """
        if not self._is_openai:
            return Normalised(self._codec.to_input(messages), tools)
        given = self.normaliser.normalise(messages, tools, first, reply, late_system)
        self.report_to(strict).report(given.problems)
        return given

    def split_stages(self, messages: Any, given: Normalised, only_last: bool) -> list[Stage]:
        """Return a conversation up to each system text that was moved to before a reply, and the whole of it.

        Args:
            messages: the conversation as the caller has it.
            given: the conversation in the form that the template takes.
            only_last: leave out the replies of all stages but the last that has one.
        """
        stages = split_stages(self.normaliser, messages, given)
        last = -1 if stages[-1].first < len(given.messages) else -2
        return stages[last:] if only_last else stages

    def report_early_replies(self, given: Normalised, train_on: TrainOn, strict: bool) -> None:
        """Warn of replies that are trained after a system text that came after them.

        Args:
            given: the conversation in the form that the template takes.
            train_on: what is trained; of a function nothing is known.
            strict: raise an error, not a warning.
        """
        moved = None if callable(train_on) else find_early_reply(given, train_on == "last")
        if moved is not None:
            system, reply = moved
            problem = (
                f"messages[{system}], a system text, was moved to before messages[{reply}], a reply that was "
                "given without it; `examples` trains such a reply by itself"
            )
            self.report_to(strict).report([problem], f"messages[{reply}]")

    def check_losses(
        self, rendering: Rendering, messages: Sequence[Any], tools: Any, first: int, strict: bool
    ) -> None:
        """Warn of text of the messages from `first` on that is not in a rendering."""
        given, reporter = Normalised(messages, tools), self.report_to(strict)
        attempt = InputAttempt(lambda: self.normaliser, reporter, given, is_read=self._is_openai)
        lost = attempt.find_losses(rendering)
        if lost and first:
            old = tuple(f"messages[{index}]" for index in range(first))
            lost = [loss for loss in lost if "[" in loss.path and not loss.path.startswith(old)]
        reporter.report_losses(lost)

    def __reduce__(self) -> tuple[Any, ...]:
        return _share_preprocessor, (
            self._codec,
            OPENAI_DIALECT if self._is_openai else "",
            self._fuller,
        )


_shared: WeakKeyDictionary[ReplyCodec, Preprocessor] = WeakKeyDictionary()


def _share_preprocessor(codec: ReplyCodec, dialect: str, fuller: str = "") -> Preprocessor:
    """Unpickle a preprocessor: thousands of sessions of one template ask it once what it takes."""
    return _shared.setdefault(codec, Preprocessor(codec, dialect, fuller))
