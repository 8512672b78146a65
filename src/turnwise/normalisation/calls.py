"""Tool calls and results in the form that a template takes.

    {"id": "call_1", "type": "function", "function": {"name": "tide", "arguments": "{\\"harbour\\": \\"Brest\\"}"}}

is a call as OpenAI's clients send it. Most templates want the arguments as a mapping and would quote the text again,
some want the text; some want name and arguments in the call itself, some one call under `function_call`, some an id of
nine letters and digits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from zlib import crc32

from turnwise.analysis.prober import ABSENT
from turnwise.errors import MessageError, short_repr
from turnwise.messages import InputReader, JsonMapping, JsonObject
from turnwise.messages.fields import read_call
from turnwise.normalisation.capabilities import Capabilities
from turnwise.shapes.row import drop_nulls
from turnwise.shapes.tool_forms import make_function_call

CALL_KEYS = frozenset(["id", "type", "function"])
PLAIN_KEYS = frozenset(["role", "content", "tool_calls"])
ODD_KEYS = ("function_call", "refusal", "audio")  # they may become calls or content
CALL_TYPES = {"id": str, "type": str, "function": dict, "index": int}  # the last of streamed calls
CALL_DEPTH = 5  # containers around the arguments of a call
NINE = 9  # letters and digits of an id, where a template wants so many

MessageDict = JsonObject
Note = Callable[[str, str, str], None]  # of the path, what was done and why


class CallForms:
    """Changes calls and results as far as a template needs it.

    Args:
        capabilities: what the template takes.
        parameters: the names of the parameters of each tool.
        note: called once for each change.
    """

    def __init__(
        self,
        capabilities: Capabilities,
        parameters: Mapping[str, frozenset[str]],
        note: Note,
    ) -> None:
        self._capabilities = capabilities
        self._parameters = parameters
        self._note = note
        self.copy_value = InputReader().copy_value  # of all nested values, whose number has a limit
        # What is wrong with calls and arguments, by their paths: a message may be read twice.
        self.problems: dict[str, str] = {}

    def normalise(self, message: MessageDict, path: str) -> None:
        """Change the calls of a message, or the id of a result."""
        self._fit_id(message, "tool_call_id", path)
        if not has_calls(message):
            return
        shape = self._capabilities.shape
        if "function_call" in message and not shape.single and "tool_calls" not in message:
            message["tool_calls"] = [{"type": "function", "function": message.pop("function_call")}]
            self._note(
                f"{path}.function_call", "became tool_calls", "the template does not read it"
            )
        calls = message.get("tool_calls")
        if isinstance(calls, Mapping) and calls:
            calls = [calls]
            self._note(f"{path}.tool_calls", "a call became a list of calls", "templates read one")
        if isinstance(calls, (list, tuple)) and calls:
            message["tool_calls"] = [
                self._normalise_call(call, f"{path}.tool_calls[{number}]")
                for number, call in enumerate(calls)
            ]
            if shape.single and len(calls) == 1:
                message["function_call"] = message.pop("tool_calls")[0].get("function")
                self._note(f"{path}.tool_calls", "became function_call", "the template reads that")
        elif calls:
            where = f"{path}.tool_calls"
            self.problems[where] = f"{where} is {short_repr(calls)}, and calls are a list"

    def read_others(self, message: MessageDict, path: str) -> None:
        """Copy what a message has beside role, content and calls, and change the id of a result.

        Raises:
            Exception: something of it is unusual.
        """
        for key, value in message.items():
            if key not in PLAIN_KEYS:
                is_odd_id = key == "tool_call_id" and type(value) is not str
                if is_odd_id or key in ODD_KEYS or type(key) is not str:
                    raise UnusualMessage
                message[key] = self.copy_value(value, 1)
        self._fit_id(message, "tool_call_id", path)

    def read_calls(self, given: Any, path: str) -> list[MessageDict]:
        """Return copies of the calls of a message, in the form that the template takes.

        Fast path: it does the work of `InputReader` and of `normalise` for calls as OpenAI's clients send them. Without
        it, normalising a message with calls costs as much as ten renderings of it; with it, as much as one or two.

        Raises:
            Exception: a call is unusual.
        """
        _, takes_text, is_bare, is_single = self._capabilities.shape
        if type(given) is not list or is_bare or is_single:
            raise UnusualMessage
        takes_any_id = self._capabilities.takes_any_id
        calls: list[MessageDict] = []
        for call in given:
            call = {**call}
            for key in call:
                if type(call[key]) is not CALL_TYPES.get(key):
                    raise UnusualMessage
            function = call["function"] = {**call["function"]}
            name, arguments = function["name"], function["arguments"]
            is_named = len(function) == 2 and type(name) is str and name
            if not is_named or type(arguments) not in (str, dict):
                raise UnusualMessage
            function["arguments"] = self.copy_value(arguments, CALL_DEPTH)
            if not takes_any_id:
                self._fit_id(call, "id", f"{path}.tool_calls[{len(calls)}]")
            if takes_text or type(arguments) is str or None in arguments.values():
                self._normalise_arguments(function, f"{path}.tool_calls[{len(calls)}].function")
                self.copy_value(function["arguments"], CALL_DEPTH)
            calls.append(call)
        return calls

    def _normalise_call(self, call: Any, path: str) -> Any:
        """Return a call with its keys in the order in which they were given: some templates print it whole."""
        given, call = call, make_function_call(call)
        if given is not call:
            self._note(path, "a custom call became a function's", "templates know functions")
        try:
            read_call(call, path)
        except MessageError as error:
            self.problems[path] = error.message
        if not isinstance(call, Mapping):
            return call
        call = drop_nulls(call)
        self._fit_id(call, "id", path)
        function, is_bare = call.get("function"), self._capabilities.shape.bare
        if isinstance(function, Mapping):
            fields = self._normalise_function(function, f"{path}.function")
            if not is_bare:
                return {**call, "function": fields}
            rest = {key: value for key, value in call.items() if key not in ("function", "type")}
            return {**rest, **fields}
        if "name" not in call:
            return call
        if is_bare:
            return self._normalise_function(call, path)
        own = dict(call)
        rest = {key: own.pop(key) for key in call if key in CALL_KEYS}
        return {**rest, "type": "function", "function": self._normalise_function(own, path)}

    def _normalise_function(self, function: JsonMapping, path: str) -> MessageDict:
        fields = dict(function)
        if "name" in fields:
            self._normalise_arguments(fields, path)
        return fields

    def _normalise_arguments(self, function: MessageDict, path: str) -> None:
        """Give arguments the form that the template takes."""
        where = f"{path}.arguments"
        arguments = function.get("arguments", ABSENT)
        is_blank = isinstance(arguments, str) and not arguments.strip()
        if is_blank:
            self._note(where, "empty text became {}", "that is the JSON text of no arguments")
        if is_blank or arguments is ABSENT or arguments is None:
            arguments = function["arguments"] = {}
        if isinstance(arguments, str):
            self._normalise_argument_text(function, arguments, where)
        elif isinstance(arguments, Mapping):
            arguments = self._drop_padding(function.get("name"), arguments, where)
            function["arguments"] = arguments
            if not self._capabilities.takes_argument_mapping:
                function["arguments"] = json.dumps(arguments, ensure_ascii=False)
                self._note(where, "a mapping became JSON text", "the template takes text only")
        else:
            found = short_repr(arguments)
            problem = f"{where} is {found}, and arguments are a mapping or its JSON text"
            self.problems[where] = problem

    def _normalise_argument_text(self, function: MessageDict, text: str, where: str) -> None:
        """Give arguments that are JSON text the form that the template takes."""
        takes_text = self._capabilities.takes_argument_text
        try:
            parsed = parse_argument_text(text)
        except (json.JSONDecodeError, NotAnObject) as error:
            self.problems[where] = f"{where} is no JSON object: {error}"
        except (ValueError, RecursionError):
            if not takes_text:
                problem = "has too long a number or is too deep to be read, and the template takes a mapping"
                self.problems[where] = f"{where} {problem}"
        else:
            if not takes_text:
                function["arguments"] = parsed
                self._note(where, "JSON text became a mapping", "the template would quote it again")

    def _drop_padding(self, name: Any, arguments: JsonMapping, where: str) -> MessageDict:
        """Drop null arguments that the tool does not have: tables give every call the arguments of all tools."""
        declared = self._parameters.get(name) if isinstance(name, str) else None
        if declared is None:
            return dict(arguments)
        kept = {
            key: value for key, value in arguments.items() if value is not None or key in declared
        }
        if len(kept) < len(arguments):
            self._note(where, "null arguments were dropped", "the tool does not have them")
        return kept

    def takes_id(self, id: str) -> bool:
        """Whether the template takes an id as it is."""
        return self._capabilities.takes_any_id or (len(id) == NINE and id.isalnum())

    def _fit_id(self, fields: MessageDict, key: str, path: str) -> None:
        """Give an id, if there is one, the form that the template takes; the same for the same id."""
        given = fields.get(key)
        if not isinstance(given, str) or self.takes_id(given):
            return
        self._note(
            f"{path}.{key}",
            "became an id of nine letters and digits",
            "the template takes no other",
        )
        letters = "".join(filter(str.isalnum, given))[-NINE:]
        if len(letters) != NINE:
            letters = f"{crc32(given.encode(errors='replace')):0{NINE}x}"
        fields[key] = letters


def has_calls(message: JsonMapping) -> bool:
    """Whether a message has tool calls."""
    return bool(message.get("tool_calls") or message.get("function_call"))


class UnusualMessage(Exception):
    """A message, or a call in it, is unusual."""


class NotAnObject(Exception):
    """A text is JSON of something else than an object, or has numbers that JSON does not have."""


def _refuse_constant(name: str) -> float:
    raise NotAnObject(f"{name} is no JSON number")


_decoder: Any = json.JSONDecoder(parse_constant=_refuse_constant)


def parse_argument_text(text: str) -> JsonObject:
    """Return the JSON object that a text is.

    Raises:
        NotAnObject: it is none.
        ValueError: it is no JSON, or has a number with more digits than Python reads.
        RecursionError: it is nested more deeply than Python reads.
    """
    try:
        value, end = _decoder.scan_once(text, 0)  # in half of the time
    except StopIteration:
        end = -1
    if end != len(text):
        value = _decoder.decode(text)
    if not isinstance(value, dict):
        raise NotAnObject(f"it is {short_repr(value)}")
    return value
