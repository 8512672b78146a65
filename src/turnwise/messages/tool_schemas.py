"""JSON schemas of tools that are given as Python: functions, methods and pydantic models.

A function becomes what transformers' `get_json_schema` makes of it: name, description and types come from its signature
and its docstring in Google's style.

    def tide(harbour: str, days: int = 1) -> str:
        '''Return the tides of a harbour.

        Args:
            harbour: its name (choices: ["Brest", "Dover"])
            days: how many days
        '''

A pydantic model becomes a function of its name with its own schema; pydantic itself is not imported.
"""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Callable
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from turnwise.errors import MessageError, short_repr
from turnwise.messages.types import JsonObject

TYPE_NAMES = {
    int: "integer",
    float: "number",
    str: "string",
    bool: "boolean",
    type(None): "null",
    list: "array",
    tuple: "array",
}
SECTIONS = ("Args:", "Returns:", "Raises:")
ARGUMENT = re.compile(r"\s*(\w+):\s*(.*)")
CHOICES = re.compile(r"(?>(.*?)\(choices:)(.*?)\)\s*$", re.IGNORECASE)


def to_tool(value: Any, path: str) -> Any:
    """Return the JSON schema of a tool that is a function or a pydantic model; what is neither, as it is.

    Raises:
        MessageError: the function says too little about itself, or its types have no schema.
    """
    if isinstance(value, type):
        if callable(getattr(value, "model_json_schema", None)):
            return _describe_model(value)
        return value
    if inspect.isfunction(value) or inspect.ismethod(value):
        try:
            return _describe_function(value)
        except (TypeError, ValueError, NameError, AttributeError) as error:
            raise MessageError(
                f"no JSON schema can be made of the function {value.__name__}: {error}",
                path=path,
                hint="give each parameter a type hint and a line under `Args:` in the docstring",
            ) from None
    return value


def _describe_model(model: Any) -> JsonObject:
    parameters = dict(model.model_json_schema())
    parameters.pop("title", None)
    description = parameters.pop("description", "")
    return _make_tool(model.__name__, description, parameters)


def _make_tool(name: str, description: str, parameters: JsonObject) -> JsonObject:
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def _describe_function(function: Callable[..., Any]) -> JsonObject:
    sections = _read_docstring(inspect.getdoc(function) or "")
    described = _read_arguments(sections["Args:"])
    hints = get_type_hints(function)
    properties, required = {}, []
    parameters = inspect.signature(function).parameters
    for number, (name, parameter) in enumerate(parameters.items()):
        if parameter.annotation is parameter.empty:
            if number == 0 and name in ("self", "cls"):
                continue
            raise ValueError(f"the parameter {name!r} has no type hint")
        if name not in described:
            raise ValueError(f"its docstring does not describe the parameter {name!r}")
        properties[name] = _describe_parameter(hints[name], described[name])
        if parameter.default is parameter.empty:
            required.append(name)
    schema: JsonObject = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    tool = _make_tool(function.__name__, sections[""], schema)
    if "return" in hints:
        returned = to_schema(hints["return"])
        if sections["Returns:"]:
            returned["description"] = sections["Returns:"]
        tool["function"]["return"] = returned
    return tool


def _read_docstring(text: str) -> dict[str, str]:
    """Return the text before the first section, under "", and those of the sections."""
    sections: dict[str, list[str]] = {"": [], **{name: [] for name in SECTIONS}}
    current = ""
    for line in text.strip().splitlines():
        if line.strip() in SECTIONS:
            current = line.strip()
        else:
            sections[current].append(line)
    found = {name: "\n".join(lines).strip() for name, lines in sections.items()}
    if not found[""]:
        raise ValueError("it has no docstring")
    return found


def _read_arguments(text: str) -> dict[str, str]:
    """Return the descriptions of parameters by name; a line that names none continues the one before it."""
    found: dict[str, list[str]] = {}
    name = None
    for line in text.splitlines():
        match = ARGUMENT.match(line)
        if match is not None:
            name = match[1]
            found[name] = [match[2].strip()]
        elif name is not None and line.strip():
            found[name].append(line.strip())
    return {name: " ".join(lines).strip() for name, lines in found.items()}


def _describe_parameter(hint: Any, description: str) -> JsonObject:
    schema = to_schema(hint)
    choices = CHOICES.match(description)
    if choices is not None:
        values = json.loads(choices[2])
        schema["enum"] = [one.strip() if isinstance(one, str) else one for one in values]
        description = choices[1].strip()
    schema["description"] = description
    return schema


def to_schema(hint: Any) -> JsonObject:
    """Return the JSON schema of a type hint, as transformers gives it.

    Raises:
        ValueError: there is none.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is None:
        if hint is Any:
            return {}
        return {"type": TYPE_NAMES.get(hint, "object")}
    if origin is Union or origin is types.UnionType:
        return _join_schemas(arguments)
    if origin is Literal:
        names = list(dict.fromkeys(TYPE_NAMES.get(type(one), "object") for one in arguments))
        return {"type": names[0] if len(names) == 1 else names, "enum": list(arguments)}
    if origin is list:
        return {"type": "array", "items": to_schema(arguments[0])}
    if origin is tuple and len(arguments) > 1 and ... not in arguments:
        return {"type": "array", "prefixItems": [to_schema(one) for one in arguments]}
    if origin is dict:
        return {"type": "object", "additionalProperties": to_schema(arguments[1])}
    raise ValueError(f"the type hint {short_repr(hint)} has no JSON schema")


def _join_schemas(hints: tuple[Any, ...]) -> JsonObject:
    """Return the schema of a union; a null among others is `nullable`."""
    schemas = [to_schema(hint) for hint in hints if hint is not type(None)]
    joined: JsonObject
    if len(schemas) == 1:
        joined = schemas[0]
    elif all(schema.keys() == {"type"} and isinstance(schema["type"], str) for schema in schemas):
        names = sorted({schema["type"] for schema in schemas})
        joined = {"type": names[0] if len(names) == 1 else names}
    else:
        joined = {"anyOf": schemas}
    if len(schemas) < len(hints):
        joined["nullable"] = True
    return joined
