"""Change a conversation as far as a template needs it, and say what was changed.

    {"role": "assistant", "content": null,
     "tool_calls": [{"id": "call_1", "function": {"name": "tide", "arguments": "{\\"harbour\\": \\"Brest\\"}"}}]}

is what OpenAI's clients send. Most templates want the arguments as a mapping, and fail on null. A `Normaliser` asks
what the template takes (`capabilities.py`) and changes only what it does not take:

    null content           becomes empty
    text parts             are joined with line breaks; text becomes a part where only parts are taken
    results                that are data, not text, become JSON text
    arguments              JSON text becomes a mapping, or a mapping JSON text
    ids of calls           become nine letters and digits where the template refuses others
    results out of order   are put into the order of their calls where the template writes no ids
    keys that are null     are dropped, as SDKs and Arrow add them
    developer, function    become system and tool where the template does not know them
    system twice           is joined to the first where the template takes one
    system at all          is put before the first user's text where there is no system role
    system late            is put into a turn of a user where it is not written in its place (`systems.py`)
    image_url              becomes image, or the other way round
    Anthropic, Responses   their blocks and items become messages; one that cannot is an error

Messages that need nothing are passed on as they are. The caller's objects are never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Protocol

from turnwise.analysis.facts import Facts
from turnwise.analysis.form_table import FormTable
from turnwise.errors import SourceError, TemplateLimitError, short_repr
from turnwise.messages import Change, InputReader, ReadMessages
from turnwise.messages.roles import RESULT_ROLES
from turnwise.normalisation.calls import CallForms, MessageDict
from turnwise.normalisation.capabilities import Capabilities
from turnwise.normalisation.content import ContentForms
from turnwise.normalisation.normalised import LateSystem, check_late_system
from turnwise.normalisation.normalised import Normalised as Normalised
from turnwise.normalisation.results import CallLink, pair_results, read_link
from turnwise.normalisation.roles import describe_role
from turnwise.normalisation.systems import SystemTexts
from turnwise.normalisation.tools import normalise_tools
from turnwise.normalisation.usual_reader import UsualReader
from turnwise.replies.events import Message
from turnwise.replies.input_format import detect_input_format
from turnwise.shapes.foreign_turns import read_foreign


class HasFacts(Protocol):
    """A template, as far as a normaliser needs it."""

    @property
    def facts(self) -> Facts: ...


class Normaliser:
    """Normalises the conversations of one template; what it finds out about the template is kept.

    Args:
        template: the template.

    Example:
        >>> normaliser = turnwise.Normaliser(turnwise.load("gemma-2"))
        >>> rules = {"role": "system", "content": "Be brief."}
        >>> normaliser.normalise([rules, {"role": "user", "content": "Hi"}]).messages
        [{'role': 'user', 'content': 'Be brief.\\n\\nHi'}]
    """

    def __init__(self, template: HasFacts) -> None:
        if not hasattr(template, "facts"):
            hint = "Give what `compile` or `load` made."
            raise SourceError(
                f"a Normaliser takes a template, not {short_repr(template)}", hint=hint
            )
        self._facts = template.facts
        self._readers: dict[bool, UsualReader] = {}

    @cached_property
    def _forms(self) -> FormTable:
        return FormTable(self._facts, lambda: detect_input_format(self._facts))

    def reader(self, with_tools: bool) -> UsualReader:
        """Return the reader of usual conversations with or without tools."""
        if with_tools not in self._readers:
            self._readers[with_tools] = UsualReader(Capabilities(self._forms, with_tools))
        return self._readers[with_tools]

    def capabilities(self, with_tools: bool = True) -> Capabilities:
        """Return what the template takes in conversations with or without tools; printable."""
        return self.reader(with_tools).capabilities

    def normalise(
        self,
        messages: Any,
        tools: Any = None,
        first: int = 0,
        reply: Any = None,
        late_system: LateSystem | None = None,
    ) -> Normalised:
        """Return a conversation in OpenAI's shape in the forms that the template takes.

        Args:
            messages: the conversation; it is not changed.
            tools: JSON schemas of the tools.
            first: how many messages the model has read already, if these follow others. Nothing is moved to those.
            reply: the last of those, to whose calls these messages may have the results.
            late_system: where system texts after other messages are put: "in_place", in a "user" turn, or at the
                "front"; None for the first of these that the template writes without a change of earlier text.

        Returns:
            Messages and tools for `render`, `encode` and `examples`, what was changed and why, and what is
            probably wrong with the input.

        Raises:
            MessageError: the input is not a conversation, or there is no such policy.
        """
        policy = check_late_system(late_system)
        if not isinstance(messages, (list, tuple)):
            messages = InputReader().read_messages(messages)
        try:
            usual = None if first or policy else self.read_usual(messages, tools)
            if usual is not None:
                return usual
            work = _Conversation(self.capabilities(bool(tools)), tools, first, reply)
            return self._normalise(messages, work, policy)
        except TemplateLimitError:
            # The probes cost more than probes may; rendering has other limits, and says what is wrong.
            reader = InputReader()
            plain = [reader.read_message(one, index) for index, one in enumerate(messages)]
            return Normalised(plain, tools)

    def read_usual(
        self, messages: Any, tools: Any, earlier: ReadMessages | None = None
    ) -> Normalised | None:
        """Return the same for usual messages, at less cost; None for others.

        Args:
            messages: the conversation.
            tools: the tools.
            earlier: what was read of messages with which the conversation begins.
        """
        read = self.reader(bool(tools)).read(messages, earlier)
        if read is None:
            return None
        changed, (_, chat, changes, *_) = normalise_tools(tools), read.reading
        told = (*changed.changes, *changes)
        return Normalised(chat if changes else messages, changed.tools or tools, told, read=read)

    def _normalise(
        self, messages: Any, work: _Conversation, policy: LateSystem | None
    ) -> Normalised:
        problems = []
        foreign = read_foreign(messages)
        if foreign is not None:
            given, api = foreign
            work.note("messages", f"{api} turns became messages", "templates read OpenAI's shape")
            pairs = [(index + work.first, message) for index, message in given]
        else:
            pairs = list(enumerate(messages, work.first))
        for index, message in pairs:
            work.add(index, message)
            problem = describe_role(work.messages[-1][1], index, self._facts.renderer.texts)
            if problem is not None:
                problems.append(problem)
        problems += [*work.problems, *work.order_results()]
        hoisted = work.place_systems(policy)
        positions = tuple(index for index, _ in work.messages)
        as_given = tuple(range(work.first, work.first + len(messages)))
        return Normalised(
            [message for _, message in work.messages],
            work.tools,
            tuple(work.changes),
            None if positions == as_given else positions,
            tuple(problems),
            tuple(work.lost),
            hoisted=hoisted,
        )


class _Conversation:
    """One conversation while it is normalised: the messages so far, each with its index in the caller's list.

    Args:
        capabilities: what the template takes.
        tools: the tools.
        first: how many messages the model has read before those of the conversation.
        reply: the last of those; None if it is not known.
    """

    def __init__(
        self, capabilities: Capabilities, tools: Any, first: int = 0, reply: Any = None
    ) -> None:
        self.capabilities = capabilities
        self.first = first
        self._reply = read_link(first - 1, reply) if isinstance(reply, Mapping) else None
        self.messages: list[tuple[int, MessageDict]] = []
        self._links: list[CallLink] = []
        found = normalise_tools(tools)
        self.changes: list[Change] = list(found.changes)
        self.tools = found.tools or tools
        self._calls = CallForms(capabilities, found.parameters, self.note)
        self._content = ContentForms(capabilities, self.note)
        self.lost = self._content.lost  # the paths of parts that had to be left out

    @property
    def problems(self) -> list[str]:
        """What is probably wrong with calls, contents and reasoning."""
        return [*self._calls.problems, *self._content.problems]

    def note(self, path: str, what: str, why: str) -> None:
        self.changes.append(Change(path, what, why))

    def add(self, index: int, given: Any) -> None:
        """Add a message in the form that the template takes."""
        if type(given) is Message:  # its form is known: a parser made it
            self._links.append(read_link(index, given))
            self.messages.append((index, self.capabilities.input_format.to_message(given)))
            return
        message = dict(InputReader().read_message(given, index - self.first))
        path = f"messages[{index}]"
        self._drop_nulls(message, path)
        self._rename_role(message, path)
        self._links.append(read_link(index, message))
        self._calls.normalise(message, path)
        self._content.normalise(message, path)
        self._content.place_reasoning(message, path)
        self.messages.append((index, message))

    def _drop_nulls(self, message: MessageDict, path: str) -> None:
        """Drop keys without a value, which SDKs and columns of tables add to every message."""
        empty = [key for key, value in message.items() if value is None and key != "content"]
        if message.get("tool_calls") == []:
            empty.append("tool_calls")
        for key in empty:
            del message[key]
        if empty:
            self.note(path, f"{', '.join(empty)} dropped", "they have no value")

    def _rename_role(self, message: MessageDict, path: str) -> None:
        role = message.get("role")
        capabilities = self.capabilities
        if role == "developer" and not capabilities.writes_role("developer"):
            message["role"] = "system"
            self.note(path, "developer became system", "the template has no developer role")
        elif (
            role in RESULT_ROLES
            and role != "tool"
            and not capabilities.writes_role(role)
            and capabilities.writes_role("tool")
        ):
            message["role"] = "tool"
            self.note(path, f"{role} became tool", f"the template does not write the role {role}")

    def order_results(self) -> list[str]:
        """Put results into the order of their calls if the template writes no ids, and return what is wrong."""
        order = pair_results(self._links, self._reply)
        moved = [place for place, source in enumerate(order.places) if place != source]
        if moved and not self.capabilities.writes_ids:
            for place in moved:
                index = self.messages[place][0]
                self.note(
                    f"messages[{index}]",
                    "the result was put where its call is among the calls",
                    "the template writes no ids, so the order says to which call it belongs",
                )
            self.messages = [self.messages[source] for source in order.places]
        if self.first and self._reply is None:
            return []  # the calls may be in the messages before
        return order.problems

    def place_systems(self, policy: LateSystem | None) -> tuple[int, ...]:
        """Put every system text where the template writes it; return the indices of those that went to the front."""
        systems = SystemTexts(self.capabilities, self.messages, self.note)
        systems.place(self.first > 0, policy)
        self.messages = systems.messages
        self.lost += systems.lost
        return tuple(systems.hoisted)
