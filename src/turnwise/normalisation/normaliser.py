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

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol
from zlib import crc32

from turnwise.analysis.facts import Facts
from turnwise.analysis.prober import ABSENT
from turnwise.errors import TemplateLimitError
from turnwise.messages import REASONING_KEYS, InputReader
from turnwise.messages.media import KIND_OF_TYPE, KINDS, TEXT_TYPES
from turnwise.normalisation.capabilities import Capabilities
from turnwise.normalisation.change import Change
from turnwise.normalisation.roles import describe_role
from turnwise.normalisation.tools import normalise_tools
from turnwise.replies.events import Message
from turnwise.replies.input_format import IN_PARTS, InputFormat, detect_input_format

PARAGRAPH = "\n\n"  # between a system text and the text that it is joined to
PLAIN_ROLES = frozenset(["system", "user", "assistant", "tool"])
PLAIN_KEYS = frozenset(["role", "content", "name", "tool_call_id"])  # whose texts need no change
CALL_KEYS = frozenset(["id", "type", "function"])
NINE = 9  # letters and digits of an id, where a template wants so many
RESULT_ROLES = ("function", "ipython", "environment")  # other names for the role of a tool's result

MessageDict = dict[str, Any]


class Normalised(NamedTuple):
    """A conversation that a template takes.

    Attributes:
        messages: the messages.
        tools: the tools.
        changes: what was changed.
        positions: the index that each message has in the caller's list; None if all are where they were.
        problems: what is probably wrong with the input.
    """

    messages: Any
    tools: Any
    changes: tuple[Change, ...] = ()
    positions: tuple[int, ...] | None = None
    problems: tuple[str, ...] = ()


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

    def normalise(self, messages: Any, tools: Any = None) -> Normalised:
        """Return a conversation in OpenAI's shape in the forms that the template takes.

        Args:
            messages: the conversation; it is not changed.
            tools: JSON schemas of the tools.

        Returns:
            Messages and tools for `render`, `encode` and `examples`, what was changed and why, and what is
            probably wrong with the input.

        Raises:
            MessageError: the input is not a conversation.
        """
        if tools is None and self._takes_plain_turns and is_plain_turns(messages):
            return Normalised(messages, None)
        if not isinstance(messages, (list, tuple)):
            messages = InputReader().read_messages(messages)
        try:
            work = _Conversation(self.capabilities(bool(tools)), tools)
            if work.needs_nothing(messages):
                return Normalised(messages, work.tools, tuple(work.changes))
            return self._normalise(messages, work)
        except TemplateLimitError:
            # The probes cost more than probes may; rendering has other limits, and says what is wrong.
            return Normalised(messages, tools)

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
        for index, message in enumerate(messages):
            work.add(index, message)
            problem = describe_role(work.messages[-1][1], index, texts)
            if problem is not None:
                problems.append(problem)
        work.place_systems()
        positions = tuple(index for index, _ in work.messages)
        return Normalised(
            [message for _, message in work.messages],
            work.tools,
            tuple(work.changes),
            None if positions == tuple(range(len(messages))) else positions,
            tuple(problems),
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
    """One conversation while it is normalised: the messages so far, each with its index in the caller's list."""

    def __init__(self, capabilities: Capabilities, tools: Any) -> None:
        self.capabilities = capabilities
        self.messages: list[tuple[int, MessageDict]] = []
        found = normalise_tools(tools)
        self.changes: list[Change] = list(found.changes)
        self.tools = tools if found.tools is None else found.tools
        self._parameters = found.parameters
        self._plain_roles: dict[Any, bool] = {}

    def note(self, path: str, what: str, why: str) -> None:
        self.changes.append(Change(path, what, why))

    # Messages

    def add(self, index: int, given: Any) -> None:
        """Add a message in the form that the template takes."""
        if type(given) is Message:  # its form is known: a parser made it
            self.messages.append((index, self.capabilities.input_format.to_message(given)))
            return
        message = dict(InputReader().read_message(given, index))
        path = f"messages[{index}]"
        self._drop_nulls(message, path)
        self._rename_role(message, path)
        self._normalise_calls(message, path)
        self._normalise_content(message, path)
        self._place_reasoning(message, path)
        self.messages.append((index, message))

    def needs_nothing(self, messages: Sequence[Any]) -> bool:
        """Whether all messages are in forms that the template takes, as those of most conversations are."""
        if not messages or not all(map(self._is_usual, messages)):
            return False
        roles = [message["role"] for message in messages]
        if "system" not in roles:
            return True
        return "system" not in roles[1:] and self.capabilities.writes_role("system")

    def _is_usual(self, message: Any) -> bool:
        """Whether a message has only texts, and calls in the form that the template takes."""
        if type(message) is not dict or type(message.get("content")) is not str:
            return False
        role = message.get("role")
        if role not in self._plain_roles:
            self._plain_roles[role] = role in PLAIN_ROLES and self.capabilities.takes_text(role)
        if not self._plain_roles[role]:
            return False
        for key, value in message.items():
            if key == "tool_calls":
                if not all(map(self._is_usual_call, value or [None])):
                    return False
            elif key not in PLAIN_KEYS or type(value) is not str:
                return False
        return "tool_call_id" not in message or self.capabilities.takes_any_id

    def _is_usual_call(self, call: Any) -> bool:
        if (
            type(call) is not dict
            or call.keys() - CALL_KEYS
            or type(call.get("function")) is not dict
        ):
            return False
        function, capabilities = call["function"], self.capabilities
        arguments = function.get("arguments")
        if type(arguments) is dict:
            is_taken = capabilities.takes_argument_mapping and None not in arguments.values()
        else:
            is_taken = type(arguments) is str and capabilities.takes_argument_text
        shape = capabilities.shape
        has_id = type(call.get("id")) is str and capabilities.takes_any_id
        return is_taken and (has_id or "id" not in call) and not (shape.bare or shape.single)

    def _drop_nulls(self, message: MessageDict, path: str) -> None:
        """Drop keys without a value, which SDKs and columns of tables add to every message."""
        for key in [key for key, value in message.items() if value is None and key != "content"]:
            del message[key]
        if message.get("tool_calls") == []:
            del message["tool_calls"]

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

    # Content

    def _normalise_content(self, message: MessageDict, path: str) -> None:
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str):
            return
        where = f"{path}.content"
        if content is None:
            self._fill_content(message, where)
        elif isinstance(content, (list, tuple)):
            self._normalise_parts(message, role, list(content), where)
        elif isinstance(content, str):
            capabilities = self.capabilities
            if not capabilities.takes_text(role) and capabilities.takes_parts(role):
                message["content"] = [{"type": "text", "text": content}]
                self.note(where, "the text became a part", "the template takes parts only")

    def _fill_content(self, message: MessageDict, where: str) -> None:
        """Give a message without content the content that the template takes."""
        has_calls = message.get("tool_calls") or message.get("function_call")
        wanted = self.capabilities.shape.content if has_calls else self.capabilities.empty_content
        given = message.pop("content", ABSENT)
        if wanted is not ABSENT:
            message["content"] = wanted
        if given is not wanted:
            name = "no content" if given is ABSENT else "null"
            shown = "no content" if wanted is ABSENT else f"{wanted!r}"
            self.note(where, f"{name} became {shown}", "the template takes that for an empty one")

    def _normalise_parts(
        self, message: MessageDict, role: str, parts: list[Any], where: str
    ) -> None:
        texts = list(map(_part_text, parts))
        if None in texts:
            message["content"] = [
                self._rename_part(part, f"{where}[{number}]") for number, part in enumerate(parts)
            ]
            return
        capabilities = self.capabilities
        if capabilities.takes_parts(role) or not capabilities.takes_text(role):
            message["content"] = [
                part
                if isinstance(part, Mapping) and part.get("type") == "text"
                else {"type": "text", "text": text}
                for part, text in zip(parts, texts, strict=True)
            ]
            return
        message["content"] = "\n".join(text for text in texts if text is not None)
        self.note(where, "text parts were joined", "the template takes text only")

    def _rename_part(self, part: Any, where: str) -> Any:
        """Return a media part under the type that the template knows."""
        if isinstance(part, str):
            return {"type": "text", "text": part}
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind not in KIND_OF_TYPE or self.capabilities.takes_part_type(kind):
            return part
        for other in KINDS[KIND_OF_TYPE[kind]][:2]:
            if other != kind and self.capabilities.takes_part_type(other):
                self.note(where, f"{kind} became {other}", f"the template does not know {kind}")
                payload = part.get(kind)
                return {
                    **{k: v for k, v in part.items() if k != kind},
                    "type": other,
                    other: payload,
                }
        return part

    # Reasoning

    def _place_reasoning(self, message: MessageDict, path: str) -> None:
        """Put reasoning where the template looks for it, if that is none of its usual keys."""
        given = next((name for name in REASONING_KEYS if isinstance(message.get(name), str)), None)
        if given is None or message.get("role") != "assistant":
            return
        key = self.capabilities.input_format.reasoning
        if key in REASONING_KEYS or (key in message and key != IN_PARTS):
            return
        where = f"{path}.{given}"
        if key != IN_PARTS:
            message[key] = message[given]
            self.note(where, f"was copied to {key}", "the template reads it there")
            return
        content = message.get("content")
        texts = content if isinstance(content, list) else []
        if isinstance(content, str) and content:
            texts = [{"type": "text", "text": content}]
        message["content"] = [{"type": "thinking", "thinking": message[given]}, *texts]
        self.note(where, "became a part of the content", "the template reads it there")

    # Calls

    def _normalise_calls(self, message: MessageDict, path: str) -> None:
        shape = self.capabilities.shape if self._has_calls(message) else None
        if shape is None:
            self._normalise_result(message, path)
            return
        if "function_call" in message and not shape.single and "tool_calls" not in message:
            message["tool_calls"] = [{"type": "function", "function": message.pop("function_call")}]
            self.note(f"{path}.function_call", "became tool_calls", "the template does not read it")
        calls = message.get("tool_calls")
        if isinstance(calls, list) and calls:
            message["tool_calls"] = [
                self._normalise_call(call, f"{path}.tool_calls[{number}]")
                for number, call in enumerate(calls)
            ]
            if shape.single and len(calls) == 1:
                message["function_call"] = message.pop("tool_calls")[0].get("function")
                self.note(f"{path}.tool_calls", "became function_call", "the template reads that")

    def _has_calls(self, message: MessageDict) -> bool:
        return bool(message.get("tool_calls") or message.get("function_call"))

    def _normalise_call(self, call: Any, path: str) -> Any:
        if not isinstance(call, Mapping):
            return call
        call = {key: value for key, value in call.items() if value is not None}
        function = call.get("function")
        is_bare = not isinstance(function, Mapping)
        fields = dict(function) if isinstance(function, Mapping) else dict(call)
        if "name" not in fields:
            return call
        self._normalise_arguments(fields, path)
        shape = self.capabilities.shape
        rest = {
            key: value
            for key, value in call.items()
            if key not in ("function", *(fields if is_bare else ()))
        }
        if "id" in call:
            rest["id"] = self._fit_id(call["id"], f"{path}.id")
            fields.pop("id", None)
        if shape.bare:
            rest.pop("type", None)
            return {**rest, **fields}
        return {
            "type": "function",
            **rest,
            "function": {k: v for k, v in fields.items() if k != "type"},
        }

    def _normalise_arguments(self, function: MessageDict, path: str) -> None:
        """Give arguments the form that the template takes."""
        where = f"{path}.arguments"
        arguments = function.get("arguments", ABSENT)
        if arguments is ABSENT or arguments is None:
            arguments = function["arguments"] = {}
        capabilities = self.capabilities
        if isinstance(arguments, str):
            parsed = _parse_object(arguments)
            if parsed is not None and not capabilities.takes_argument_text:
                function["arguments"] = parsed
                self.note(where, "JSON text became a mapping", "the template would quote it again")
        elif isinstance(arguments, Mapping):
            arguments = self._drop_padding(function.get("name"), arguments, where)
            function["arguments"] = arguments
            if not capabilities.takes_argument_mapping:
                function["arguments"] = json.dumps(arguments, ensure_ascii=False)
                self.note(where, "a mapping became JSON text", "the template takes text only")

    def _drop_padding(self, name: Any, arguments: Mapping[str, Any], where: str) -> MessageDict:
        """Drop null arguments that the tool does not have: tables give every call the arguments of all tools."""
        declared = self._parameters.get(name)
        if declared is None:
            return dict(arguments)
        kept = {
            key: value for key, value in arguments.items() if value is not None or key in declared
        }
        if len(kept) < len(arguments):
            self.note(where, "null arguments were dropped", "the tool does not have them")
        return kept

    def _normalise_result(self, message: MessageDict, path: str) -> None:
        if "tool_call_id" in message:
            message["tool_call_id"] = self._fit_id(message["tool_call_id"], f"{path}.tool_call_id")

    def _fit_id(self, given: Any, where: str) -> Any:
        """Return an id that the template takes; the same for the same id."""
        if not isinstance(given, str) or (len(given) == NINE and given.isalnum()):
            return given
        if self.capabilities.takes_any_id:
            return given
        self.note(where, "became an id of nine letters and digits", "the template takes no other")
        letters = "".join(filter(str.isalnum, given))[-NINE:]
        return letters if len(letters) == NINE else f"{crc32(given.encode()):0{NINE}x}"

    # System messages

    def place_systems(self) -> None:
        """Put every system text where the template writes it."""
        systems = [
            place
            for place, (_, message) in enumerate(self.messages)
            if message.get("role") == "system"
        ]
        if not systems or all(not self.messages[place][1].get("content") for place in systems):
            return
        capabilities = self.capabilities
        late = [place for number, place in enumerate(systems) if place != number]
        twice = len(systems) - len(late) > 1
        if not capabilities.writes_role("system"):
            self._move_to_user(systems)
        elif (late and not capabilities.takes_late_system) or (
            twice and not capabilities.takes_two_systems
        ):
            self._join_systems(systems)

    def _join_systems(self, systems: Sequence[int]) -> None:
        """Join all system texts to one message at the front."""
        first = self.messages[systems[0]]
        texts = [self._take_text(place) for place in systems]
        joined = {
            **first[1],
            "content": self._as_content("system", PARAGRAPH.join(filter(None, texts))),
        }
        for place in systems:
            index = self.messages[place][0]
            if place:
                self.note(
                    f"messages[{index}]",
                    "the system text was joined to the first",
                    "the template takes one, at the front",
                )
        rest = [entry for place, entry in enumerate(self.messages) if place not in systems]
        self.messages = [(first[0], joined), *rest]

    def _move_to_user(self, systems: Sequence[int]) -> None:
        """Put all system texts before the text of the first user."""
        text = PARAGRAPH.join(filter(None, map(self._take_text, systems)))
        for place in systems:
            index = self.messages[place][0]
            self.note(
                f"messages[{index}]",
                "the system text was put before the first user's",
                "the template has no system role",
            )
        first = self.messages[systems[0]][0]
        rest = [entry for place, entry in enumerate(self.messages) if place not in systems]
        user = next(
            (place for place, (_, message) in enumerate(rest) if message.get("role") == "user"),
            None,
        )
        if user != 0:
            self.messages = [
                (first, {"role": "user", "content": self._as_content("user", text)}),
                *rest,
            ]
            return
        index, message = rest[0]
        content = message.get("content")
        if isinstance(content, (list, tuple)):
            merged: Any = _put_before(text, list(content))
        else:
            merged = f"{text}{PARAGRAPH}{content}" if content else text
        self.messages = [(index, {**message, "content": merged}), *rest[1:]]

    def _take_text(self, place: int) -> str:
        content = self.messages[place][1].get("content")
        if isinstance(content, str):
            return content
        return "\n".join(filter(None, map(_part_text, content or [])))

    def _as_content(self, role: str, text: str) -> Any:
        if self.capabilities.takes_text(role):
            return text
        return [{"type": "text", "text": text}]


def _put_before(text: str, parts: list[Any]) -> list[Any]:
    """Return parts with a text before that of the first, or before all of them if the first is no text."""
    first = _part_text(parts[0]) if parts else None
    if first is None:
        return [{"type": "text", "text": text}, *parts]
    return [{"type": "text", "text": f"{text}{PARAGRAPH}{first}"}, *parts[1:]]


def _part_text(part: Any) -> str | None:
    """Return the text of a text part; None for any other part."""
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping) or part.get("type", "text") not in TEXT_TYPES[:3]:
        return None
    text = part.get("text")
    return text if isinstance(text, str) else None


def _parse_object(text: str) -> dict[str, Any] | None:
    """Return a JSON object; None if the text is none. Empty text stands for no arguments."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
