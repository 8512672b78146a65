"""The Go types of what Ollama gives to a template, and where a conversation has the same.

Go prints a value by its type: a text as it is, a number of the conversation as float64, a tool as
JSON, its function as a struct. A template does not name types, but those of the data are known, so
the type of every expression is known before anything is rendered:

    .Tools                 template.templateTools, a list of tools
    (index .Tools 0)       template.templateTool
    $call.Function.Name    string
    $call.Function.Arguments.city    any: whatever the JSON has there

A struct lists its fields in Go's order, in which they print. Where a value is missing, Go has the
zero of its type. The types are those of Ollama's packages `template` and `api`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GoField:
    """A field of a struct."""

    name: str  # in Go
    key: str  # in the conversation
    type: str  # a key of TYPES
    json: str = ""  # its name in JSON; empty: as in Go
    omits_empty: bool = False  # JSON leaves it out if it has no value


@dataclass(frozen=True, slots=True)
class GoType:
    """A type, as far as printing, comparing and looping depend on it."""

    name: str  # a key of TYPES
    go_name: str
    kind: str  # string, int, float, bool, nil, any, list, map, struct, bytes, root
    element: str = ""  # of a list or a map: a key of TYPES
    fields: tuple[GoField, ...] = ()
    prints_json: bool = False  # its method String writes JSON
    is_made: bool = False  # a list that Ollama makes, nil if there is nothing in it
    is_ordered: bool = False  # a map whose JSON has the keys in the given order

    def get_field(self, name: str) -> GoField | None:
        """Return the field of this name in Go, if there is one."""
        return next((field for field in self.fields if field.name == name), None)


MESSAGE = (
    GoField("Role", "role", "string"),
    GoField("Content", "content", "string"),
    GoField("Thinking", "reasoning_content", "string"),
    GoField("Images", "images", "images"),
    GoField("ToolCalls", "tool_calls", "calls"),
    GoField("ToolName", "name", "string"),
    GoField("ToolCallID", "tool_call_id", "string"),
)
CALL = (GoField("ID", "id", "string"), GoField("Function", "function", "called"))
CALLED = (
    GoField("Index", "index", "int"),
    GoField("Name", "name", "string"),
    GoField("Arguments", "arguments", "arguments"),
)
TOOL = (
    GoField("Type", "type", "string", "type"),
    GoField("Items", "items", "any", "items", omits_empty=True),
    GoField("Function", "function", "function", "function"),
)
FUNCTION = (
    GoField("Name", "name", "string", "name"),
    GoField("Description", "description", "string", "description"),
    GoField("Parameters", "parameters", "parameters", "parameters"),
)
PARAMETERS = (
    GoField("Type", "type", "string", "type"),
    GoField("Defs", "$defs", "any", "$defs", omits_empty=True),
    GoField("Items", "items", "any", "items", omits_empty=True),
    GoField("Required", "required", "strings", "required", omits_empty=True),
    GoField("Properties", "properties", "properties", "properties"),
)
PROPERTY = (
    GoField("AnyOf", "anyOf", "property_list", "anyOf", omits_empty=True),
    GoField("Type", "type", "property_type", "type", omits_empty=True),
    GoField("Items", "items", "any", "items", omits_empty=True),
    GoField("Description", "description", "string", "description", omits_empty=True),
    GoField("Enum", "enum", "anys", "enum", omits_empty=True),
    GoField("Properties", "properties", "nested", "properties", omits_empty=True),
    GoField("Required", "required", "strings", "required", omits_empty=True),
)

TYPES = {
    type_.name: type_
    for type_ in (
        GoType("string", "string", "string"),
        GoType("int", "int", "int"),
        GoType("float", "float64", "float"),
        GoType("bool", "bool", "bool"),
        GoType("nil", "<nil>", "nil"),
        GoType("any", "interface {}", "any"),
        GoType("root", "map[string]interface {}", "root"),
        GoType("strings", "[]string", "list", "string"),
        GoType("anys", "[]interface {}", "list", "any"),
        GoType("messages", "[]*template.templateMessage", "list", "message", is_made=True),
        GoType("message", "*template.templateMessage", "struct", fields=MESSAGE),
        GoType("images", "[]api.ImageData", "list", "image"),
        GoType("image", "api.ImageData", "bytes"),
        GoType("calls", "[]template.templateToolCall", "list", "call", is_made=True),
        GoType("call", "template.templateToolCall", "struct", fields=CALL),
        GoType("called", "template.templateToolCallFunction", "struct", fields=CALLED),
        GoType("arguments", "template.templateArgs", "map", "any", prints_json=True),
        GoType("tools", "template.templateTools", "list", "tool", prints_json=True),
        GoType("tool", "template.templateTool", "struct", fields=TOOL, prints_json=True),
        GoType("function", "template.templateToolFunction", "struct", fields=FUNCTION),
        GoType(
            "parameters", "template.templateToolFunctionParameters", "struct", fields=PARAMETERS
        ),
        GoType("properties", "template.templateProperties", "map", "property", prints_json=True),
        GoType("property", "api.ToolProperty", "struct", fields=PROPERTY),
        GoType("property_list", "[]api.ToolProperty", "list", "property"),
        GoType("property_type", "api.PropertyType", "list", "string"),
        GoType("nested", "*api.ToolPropertiesMap", "map", "property", is_ordered=True),
    )
}  # fmt: skip

THINKING = {
    "Think": ("think", "bool"),
    "ThinkLevel": ("think_level", "string"),
    "IsThinkSet": ("think_is_set", "bool"),
}
CHAT_FIELDS = {
    "System": ("system", "string"),
    "Response": ("''", "string"),
    "Messages": ("chat", "messages"),
    "Tools": ("tools", "tools"),
    **THINKING,
}
"""Field of the root: its Jinja and its type, where the template sees the whole conversation."""

ROUND_FIELDS = {
    "System": ("ns.system", "string"),
    "Prompt": ("ns.prompt", "string"),
    "Response": ("ns.response", "string"),
    **THINKING,
}
"""The same where it sees one round."""

SUFFIX_FIELDS = {"Prompt": ("prompt", "any"), "Suffix": ("suffix", "any")}
"""More of them, if the template asks for a suffix."""

ROOT_FIELDS = {**CHAT_FIELDS, **ROUND_FIELDS, **SUFFIX_FIELDS}
KNOWN_NAMES = {
    *ROOT_FIELDS,
    "First",  # older templates ask for it; Ollama has no such value any more
    *(field.name for type_ in TYPES.values() for field in type_.fields),
}
"""Every name that is a field somewhere."""


def join_types(first: GoType, second: GoType) -> GoType:
    """Return the type of a value that is of one or the other type."""
    return first if first == second else TYPES["any"]
