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

Messages that need nothing are copied as they are. The caller's objects are never changed.

Each message is read by itself, so an odd one costs no more than itself. There are two ways, with the same result:
`_read_usual` for what clients and SDKs send, in an eighth of the time, and `_read_unusual` for anything else, which
says what is wrong with it. Deleting the first costs four to nine renderings of a conversation. Calls with their
results, and system texts, are looked at together only where one of them may have to be moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Any, Protocol

from turnwise.analysis.facts import Facts
from turnwise.analysis.form_table import FormTable
from turnwise.errors import SourceError, TemplateLimitError, short_repr
from turnwise.messages import (
    Change,
    InputReader,
    ReadMessages,
    has_no_reasoning,
)
from turnwise.messages.input_reader import TURN_ROLES
from turnwise.messages.roles import RESULT_ROLES, SYSTEM_ROLES
from turnwise.normalisation.calls import (
    CALL_DEPTH,
    PLAIN_KEYS,
    CallForms,
    MessageDict,
    Note,
    UnusualMessage,
)
from turnwise.normalisation.capabilities import Capabilities
from turnwise.normalisation.content import ContentForms, is_text_part
from turnwise.normalisation.normalised import LateSystem, check_late_system
from turnwise.normalisation.normalised import Normalised as Normalised
from turnwise.normalisation.results import CallLink, CallOrder, pair_results, read_link
from turnwise.normalisation.roles import describe_role
from turnwise.normalisation.systems import Numbered, SystemTexts
from turnwise.normalisation.tools import normalise_tools
from turnwise.replies.events import Message
from turnwise.replies.input_format import detect_input_format
from turnwise.shapes.anthropic import has_own_block
from turnwise.shapes.foreign_turns import read_foreign

new_tuple = tuple.__new__  # in half of the time of calling a named tuple
USUAL_ROLES = frozenset(["system", "user", "assistant", "tool"])


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
        self._capabilities: dict[bool, Capabilities] = {}

    @cached_property
    def _forms(self) -> FormTable:
        return FormTable(self._facts, lambda: detect_input_format(self._facts))

    def capabilities(self, with_tools: bool = True) -> Capabilities:
        """Return what the template takes in conversations with or without tools; printable."""
        if with_tools not in self._capabilities:
            self._capabilities[with_tools] = Capabilities(self._forms, with_tools)
        return self._capabilities[with_tools]

    def normalise(
        self,
        messages: Any,
        tools: Any = None,
        first: int = 0,
        reply: Any = None,
        late_system: LateSystem | None = None,
        earlier: ReadMessages | None = None,
    ) -> Normalised:
        """Return a conversation in OpenAI's shape in the forms that the template takes.

        Args:
            messages: the conversation; it is not changed.
            tools: JSON schemas of the tools.
            first: how many messages the model has read already, if these follow others. Nothing is moved to those.
            reply: the last of those, to whose calls these messages may have the results.
            late_system: where system texts after other messages are put: "in_place", in a "user" turn, or at the
                "front"; None for the first of these that the template writes without a change of earlier text.
            earlier: `Normalised.read` of messages with which the conversation begins, which are not read again.

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
            capabilities = self.capabilities(bool(tools))
            work = _Conversation(capabilities, tools, first, reply, earlier)
            foreign = work.add_all(messages)
            if foreign:
                work = _Conversation(capabilities, tools, first, reply, None)
                work.add_foreign(*foreign)
            problems = []
            for place, link in work.links.items():
                if problem := describe_role(
                    work.chat[place], link.message, self._facts.renderer.texts
                ):
                    problems.append(problem)
            problems += [*work.calls.problems.values(), *work.content.problems]
            problems += work.order_results(messages)
            hoisted = work.place_systems(policy)
        except TemplateLimitError:
            # The probes cost more than probes may; rendering has other limits, and says what is wrong.
            return Normalised(list(map(InputReader().read_message, messages, count())), tools)
        positions = work.indices
        if positions and positions == tuple(range(first, first + len(messages))):
            positions = None
        return new_tuple(
            Normalised,
            (
                work.chat,
                work.found.tools or tools,
                (*work.found.changes, *work.changes),
                positions,
                tuple(problems),
                tuple(work.content.lost),
                None if first or problems else work.make_read(),
                hoisted,
            ),
        )


class _Conversation:
    """One conversation while it is normalised.

    Args:
        capabilities: what the template takes.
        tools: the tools.
        first: how many messages the model has read before those of the conversation.
        reply: the last of those; None if it is not known.
        earlier: what was read of messages with which the conversation begins.

    Attributes:
        chat: the messages so far.
        changes: what was changed in them.
        indices: those of the messages in the caller's list, if some may have been moved.
        found: the tools, and what was changed in them.
        calls, content: change these, and know what is wrong with them.
        links: what unusual messages say about calls, by their places.
        order: whether results come in the order of their calls.
    """

    _start: list[MessageDict] = []  # the first messages, if they were read before
    _aliases: Mapping[tuple[int, str], str] = {}
    indices: tuple[int, ...] | None = None
    _has_parts = False
    _can_be_read = _can_grow = True

    def __init__(
        self,
        capabilities: Capabilities,
        tools: Any,
        first: int,
        reply: Any,
        earlier: ReadMessages | None,
    ) -> None:
        self.found = normalise_tools(tools)
        self._capabilities = capabilities
        self._first = first
        self._reply = read_link(first - 1, reply) if isinstance(reply, Mapping) else None
        changes: list[Change] = []
        self.changes = changes
        # No method, which would keep the conversation until the garbage is collected.
        self._note: Note = lambda *change: changes.append(new_tuple(Change, change))
        self.chat: list[MessageDict] = []
        self._systems: list[int] = []  # the places of system messages
        self._reasoning: list[int] = []  # the places of messages with reasoning
        self.links: dict[int, CallLink] = {}
        self.calls = CallForms(capabilities, self.found.parameters, self._note)
        self.content = ContentForms(capabilities, self._note)
        self.order = CallOrder()
        if self._reply:
            self.order.follow(self._reply)
        rules = capabilities, self.found.parameters
        known = earlier.reading if earlier else None
        if earlier and known and rules == (known._capabilities, known.found.parameters):
            self._start, self._aliases = earlier.messages, earlier.aliases
            self.chat += known.chat
            self.changes += known.changes
            self._systems += known._systems
            self.order.waiting = [*known.order.waiting]
            self.order.is_answered = known.order.is_answered
            self._reasoning += known._reasoning
            self._has_parts = earlier.has_parts

    def add_all(self, messages: Sequence[Any]) -> tuple[list[Numbered], str] | None:
        """Add the messages that are not known yet; if one of them is a turn of another API, return them all instead."""
        chat, order, texts = self.chat, self.order, self._capabilities.text_roles
        for given in messages[len(chat) :]:
            role = given.get("role") if type(given) is dict else None
            is_text = type(role) is str and role in texts and type(given.get("content")) is str
            if is_text and len(given) == 2 and role in TURN_ROLES and not order.waiting:
                chat.append(given.copy())
                continue
            index, noted = self._first + len(chat), len(self.changes)
            try:
                if type(role) is not str:  # or the message is no dictionary
                    raise UnusualMessage
                message = self._read_text(given, role, index) if is_text else None
                message = message or self._read_usual(given, role, f"messages[{index}]")
            except Exception:
                # Also of the caller's objects, whose code the long way names in an error.
                del self.changes[noted:]
                foreign = None if self.links else read_foreign(messages)  # one look is enough
                if foreign:
                    return foreign
                message = self._read_unusual(given, index)
            chat.append(message)
        return None

    def _read_text(self, given: MessageDict, role: str, index: int) -> MessageDict | None:
        """Return a message whose text stays as it is, if it is a result or has calls and nothing else; else None."""
        if role == "tool":
            id, size = given.get("tool_call_id"), 3 + (type(given.get("name")) is str)
            if type(id) is str and len(given) == size and self.calls.takes_id(id):
                self.order.follow_result(id)
                return given.copy()
        elif len(given) == 3 and role in TURN_ROLES and (calls := given.get("tool_calls")):
            copies = self.calls.read_calls(calls, f"messages[{index}]")
            self.order.follow_calls(calls)  # with the ids that the results name
            return {**given, "tool_calls": copies}
        return None

    def add_foreign(self, given: Sequence[Numbered], api: str) -> None:
        """Add messages that were turns of another API."""
        self._note("messages", f"{api} turns became messages", "templates read OpenAI's shape")
        self.indices = tuple([index + self._first for index, _ in given])
        for index, (_, message) in zip(self.indices, given, strict=True):
            self.chat.append(self._read_unusual(message, index))

    def _read_usual(self, given: MessageDict, role: str, path: str) -> MessageDict:
        """Return a message in the form that the template takes.

        Raises:
            Exception: it is unusual.
        """
        message = given.copy()
        content, calls = given.get("content"), given.get("tool_calls")
        has_values = calls or "tool_calls" not in given
        if not (has_values and role in USUAL_ROLES and PLAIN_KEYS.issuperset(given)):
            self._clean(message, path)
            role = message["role"]
            if role not in USUAL_ROLES:
                raise UnusualMessage
            self.calls.read_others(message, path)
        if type(content) is not str and content is not None:
            message["content"] = self._copy_content(given, content)
        if "tool_calls" in message:
            message["tool_calls"] = self.calls.read_calls(calls, path)
        if type(content) is not str or not self._keeps_text(role):
            self.content.normalise(message, path)
            kind = type(message.get("content", ""))
            self._has_parts |= kind is list
            # Of null beside calls it is known that it is not printed.
            self._can_be_read &= bool(calls) or kind in (str, list)
        if not has_no_reasoning(message):
            self._reasoning.append(len(self.chat))
            self.content.place_reasoning(message, path)
        if role == "system":
            self._systems.append(len(self.chat))
        if role == "tool":
            self.order.follow_result(given.get("tool_call_id"))
        else:
            self.order.follow_calls(calls or [])
        return message

    def _copy_content(self, given: MessageDict, content: Any) -> Any:
        if type(content) is list and all(map(is_text_part, content)):
            return list(map(dict.copy, content))
        if has_own_block(given):
            raise UnusualMessage
        return self.calls.copy_value(content, CALL_DEPTH)

    def _keeps_text(self, role: str) -> bool:
        """Whether a text of a role stays a text in its place, which is remembered."""
        takes = self._capabilities
        # What is not taken is left as it is, but that parts may be taken, and a system text moved.
        if role not in takes.text_roles and (
            takes.takes_text(role) or not (role == "system" or takes.takes_parts(role))
        ):
            takes.text_roles.add(role)
        return role in takes.text_roles

    def _read_unusual(self, given: Any, index: int) -> MessageDict:
        """Return a message in the form that the template takes."""
        if type(given) is Message:  # its form is known: a parser made it
            link = read_link(index, given)
            message = self._capabilities.input_format.to_message(given)
        else:
            message = InputReader().read_message(given, index - self._first)
            path = f"messages[{index}]"
            self._clean(message, path)
            link = read_link(index, message)
            self.calls.normalise(message, path)
            self.content.normalise(message, path)
            self.content.place_reasoning(message, path)
        self._can_be_read = False
        self.order.follow(link)
        self.links[len(self.chat)] = link
        if link.role in SYSTEM_ROLES:
            self._systems.append(len(self.chat))
        return message

    def _clean(self, message: MessageDict, path: str) -> None:
        """Drop keys without a value, which SDKs and columns of tables add to every message, and rename its role."""
        empty = [
            key
            for key, value in message.items()
            if value is None and key != "content" and type(key) is str
        ]
        if message.get("tool_calls") == []:
            empty.append("tool_calls")
        for key in empty:
            del message[key]
        if empty:
            self._note(path, f"{', '.join(empty)} dropped", "they have no value")
        role = message.get("role")
        capabilities = self._capabilities
        if role == "developer" and not capabilities.writes_role("developer"):
            message["role"] = "system"
            self._note(path, "developer became system", "the template has no developer role")
        elif (
            role in RESULT_ROLES
            and not capabilities.writes_role(role)
            and capabilities.writes_role("tool")
        ):
            message["role"] = "tool"
            self._note(path, f"{role} became tool", f"the template does not write the role {role}")

    def order_results(self, messages: Sequence[Any]) -> list[str]:
        """Put results into the order of their calls if the template writes no ids, and return what is wrong."""
        if self.order.is_kept:
            return []
        numbered = self._number()
        links = [
            self.links.get(place)
            or read_link(index, {**messages[index - self._first], "role": message["role"]})
            for place, (index, message) in enumerate(numbered)
        ]
        order = pair_results(links, self._reply)
        moved = [place for place, source in enumerate(order.places) if place != source]
        if moved and not self._capabilities.writes_ids:
            for place in moved:
                self._note(
                    f"messages[{links[place].message}]",
                    "the result was put where its call is among the calls",
                    "the template writes no ids, so the order says to which call it belongs",
                )
            self._renumber([numbered[source] for source in order.places])
        self._can_grow = False
        if self._first and self._reply is None:
            return []  # the calls may be in the messages before
        return order.problems

    def place_systems(self, policy: LateSystem | None) -> tuple[int, ...]:
        """Put every system text where the template writes it; return the indices of those that went to the front."""
        places = self._systems
        if not places or (
            places == [0] and not self._first and self._keeps_text(self.chat[0]["role"])
        ):
            return ()
        numbered = self._number()
        systems = SystemTexts(self._capabilities, numbered, self._note)
        systems.place(places, self._first > 0, policy)
        self.content.lost += systems.lost
        if systems.messages is not numbered:
            self._renumber(systems.messages)
        return tuple(systems.hoisted)

    def _number(self) -> list[Numbered]:
        """Return the messages, each with its index in the caller's list."""
        return list(zip(self.indices or count(self._first), self.chat, strict=False))

    def _renumber(self, numbered: list[Numbered]) -> None:
        self.indices = tuple([index for index, _ in numbered])
        self.chat = [message for _, message in numbered]
        self._can_grow = False

    def make_read(self) -> ReadMessages | None:
        """Return the messages as a renderer takes them; None if that is in doubt."""
        if self.content.lost or not self._can_be_read:
            return None
        chat, aliases = self.chat, {**self._aliases}
        if self._reasoning:
            start, places = self._start, self._reasoning
            if not self._can_grow:
                aliases, start, places = {}, [], [*range(len(chat))]
            reader = InputReader()
            reader.aliases = aliases
            chat = start + chat[len(start) :]
            for place in places:
                if place >= len(start):
                    chat[place] = reader.with_reasoning_aliases(chat[place], place)
        return new_tuple(
            ReadMessages,
            (chat, aliases, "", self._has_parts, None, self if self._can_grow else None),
        )
