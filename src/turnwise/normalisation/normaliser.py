"""Change a conversation as far as a template needs it, and say what was changed.

    {"role": "assistant", "content": null,
     "tool_calls": [{"id": "call_1", "function": {"name": "tide", "arguments": "{\\"harbour\\": \\"Brest\\"}"}}]}

is what OpenAI's clients send. Most templates want the arguments as a mapping, and fail on null. A `Normaliser` asks
what the template takes (`capabilities.py`) and changes only what it does not take:

    null content           becomes empty
    text parts             are joined with line breaks; text becomes a part where only parts are taken
    arguments              JSON text becomes a mapping, or a mapping JSON text
    ids of calls           become nine letters and digits where the template refuses others
    keys that are null     are dropped, as SDKs and Arrow add them
    developer, function    become system and tool where the template does not know them
    system late or twice   is joined to the first system text where it would not be written
    system at all          is put before the first user's text where there is no system role
    image_url              becomes image, or the other way round

Messages that need nothing are passed on as they are. The caller's objects are never changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from turnwise.analysis.facts import Facts
from turnwise.errors import TemplateLimitError
from turnwise.messages import InputReader
from turnwise.normalisation.calls import CallForms, MessageDict
from turnwise.normalisation.capabilities import Capabilities
from turnwise.normalisation.change import Change
from turnwise.normalisation.content import ContentForms
from turnwise.normalisation.roles import describe_role
from turnwise.normalisation.systems import SystemTexts
from turnwise.normalisation.tools import normalise_tools
from turnwise.replies.events import Message
from turnwise.replies.input_format import InputFormat, detect_input_format

PLAIN_ROLES = frozenset(["system", "user", "assistant", "tool"])
PLAIN_KEYS = frozenset(["role", "content", "name", "tool_call_id"])  # whose texts need no change
RESULT_ROLES = ("function", "ipython", "environment")  # other names for the role of a tool's result


class Normalised(NamedTuple):
    """A conversation that a template takes.

    Attributes:
        messages: the messages.
        tools: the tools.
        changes: what was changed.
        positions: the index that each message has in the caller's list; None if all are where they were.
        problems: what is probably wrong with the input.
        lost: the paths of parts that had to be left out.
    """

    messages: Any
    tools: Any
    changes: tuple[Change, ...] = ()
    positions: tuple[int, ...] | None = None
    problems: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


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
        self._facts = template.facts
        self._capabilities: dict[bool, Capabilities] = {}

    @cached_property
    def _input_format(self) -> InputFormat:
        return detect_input_format(self._facts)

    def capabilities(self, with_tools: bool = True) -> Capabilities:
        """Return what the template takes in conversations with or without tools; printable."""
        if with_tools not in self._capabilities:
            found = Capabilities(self._facts, lambda: self._input_format, with_tools)
            self._capabilities[with_tools] = found
        return self._capabilities[with_tools]

    def normalise(self, messages: Any, tools: Any = None, first: int = 0) -> Normalised:
        """Return a conversation in OpenAI's shape in the forms that the template takes.

        Args:
            messages: the conversation; it is not changed.
            tools: JSON schemas of the tools.
            first: how many messages the model has read already, if these follow others. Nothing is moved to those.

        Returns:
            Messages and tools for `render`, `encode` and `examples`, what was changed and why, and what is
            probably wrong with the input.

        Raises:
            MessageError: the input is not a conversation.
        """
        if tools is None and not first and self._takes_plain_turns and is_plain_turns(messages):
            return Normalised(messages, None)
        if not isinstance(messages, (list, tuple)):
            messages = InputReader().read_messages(messages)
        try:
            work = _Conversation(self.capabilities(bool(tools)), tools, first)
            if work.needs_nothing(messages):
                return Normalised(messages, work.tools, tuple(work.changes))
            return self._normalise(messages, work)
        except TemplateLimitError:
            # The probes cost more than probes may; rendering has other limits, and says what is wrong.
            reader = InputReader()
            plain = [reader.read_message(one, index) for index, one in enumerate(messages)]
            return Normalised(plain, tools)

    @cached_property
    def _takes_plain_turns(self) -> bool:
        try:
            capabilities = self.capabilities(with_tools=False)
            return all(map(capabilities.takes_text, ("user", "assistant", "system")))
        except TemplateLimitError:
            return False

    def _normalise(self, messages: Any, work: _Conversation) -> Normalised:
        texts = self._facts.renderer.texts
        problems = []
        for index, message in enumerate(messages, work.first):
            work.add(index, message)
            problem = describe_role(work.messages[-1][1], index, texts)
            if problem is not None:
                problems.append(problem)
        problems += work.call_problems
        work.place_systems()
        positions = tuple(index for index, _ in work.messages)
        as_given = tuple(range(work.first, work.first + len(messages)))
        return Normalised(
            [message for _, message in work.messages],
            work.tools,
            tuple(work.changes),
            None if positions == as_given else positions,
            tuple(problems),
            tuple(work.lost),
        )


def is_plain_turns(messages: Any) -> bool:
    """Whether there are only texts of users and assistants, perhaps behind one system text."""
    if type(messages) is not list:
        return False
    for index, message in enumerate(messages):
        if type(message) is not dict or len(message) != 2:
            return False
        role = message.get("role")
        if type(message.get("content")) is not str:
            return False
        if role != "user" and role != "assistant" and (role != "system" or index):
            return False
    return True


class _Conversation:
    """One conversation while it is normalised: the messages so far, each with its index in the caller's list.

    Args:
        capabilities: what the template takes.
        tools: the tools.
        first: how many messages the model has read before those of the conversation.
    """

    def __init__(self, capabilities: Capabilities, tools: Any, first: int = 0) -> None:
        self.capabilities = capabilities
        self.first = first
        self.messages: list[tuple[int, MessageDict]] = []
        found = normalise_tools(tools)
        self.changes: list[Change] = list(found.changes)
        self.tools = tools if found.tools is None else found.tools
        self._calls = CallForms(capabilities, found.parameters, self.note)
        self._content = ContentForms(capabilities, self.note)
        self._plain_roles: dict[Any, bool] = {}

    @property
    def lost(self) -> list[str]:
        """The paths of parts that had to be left out."""
        return self._content.lost

    @property
    def call_problems(self) -> list[str]:
        """What is probably wrong with the calls."""
        return self._calls.problems

    def note(self, path: str, what: str, why: str) -> None:
        self.changes.append(Change(path, what, why))

    def add(self, index: int, given: Any) -> None:
        """Add a message in the form that the template takes."""
        if type(given) is Message:  # its form is known: a parser made it
            self.messages.append((index, self.capabilities.input_format.to_message(given)))
            return
        message = dict(InputReader().read_message(given, index - self.first))
        path = f"messages[{index}]"
        self._drop_nulls(message, path)
        self._rename_role(message, path)
        self._calls.normalise(message, path)
        self._content.normalise(message, path)
        self._content.place_reasoning(message, path)
        self.messages.append((index, message))

    def needs_nothing(self, messages: Sequence[Any]) -> bool:
        """Whether all messages are in forms that the template takes, as those of most conversations are."""
        if not messages or not all(map(self._is_usual, messages)):
            return False
        roles = [message["role"] for message in messages]
        if "system" not in roles:
            return True
        if self.first:
            return self.capabilities.takes_late_system
        return "system" not in roles[1:] and self.capabilities.writes_role("system")

    def _is_usual(self, message: Any) -> bool:
        """Whether a message has only texts, and calls in the form that the template takes."""
        if type(message) is not dict or type(message.get("content")) is not str:
            return False
        role = message.get("role")
        if type(role) is not str:
            return False
        if role not in self._plain_roles:
            self._plain_roles[role] = role in PLAIN_ROLES and self.capabilities.takes_text(role)
        if not self._plain_roles[role]:
            return False
        for key, value in message.items():
            if key == "tool_calls":
                if type(value) is not list or not value:
                    return False
                if not all(map(self._calls.is_taken, value)):
                    return False
            elif key not in PLAIN_KEYS or type(value) is not str:
                return False
        return "tool_call_id" not in message or self.capabilities.takes_any_id

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
            and not capabilities.writes_role(role)
            and capabilities.writes_role("tool")
        ):
            message["role"] = "tool"
            self.note(path, f"{role} became tool", f"the template does not write the role {role}")

    def place_systems(self) -> None:
        """Put every system text where the template writes it."""
        systems = SystemTexts(self.capabilities, self.messages, self.note)
        systems.place(follows=self.first > 0)
        self.messages = systems.messages
