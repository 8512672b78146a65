"""Write the Jinja of an Ollama template, from the tree that `ollama_go.py` parses.

Ollama has two kinds of templates. Those that mention `.Messages` see the whole conversation:
consecutive messages of one role are joined first (tool results excepted), and `.System` is all
system texts. The older ones see one round, `.System`, `.Prompt` and `.Response`, and are executed
once per round; in the last round everything after `.Response` is cut, which is how the generation
prompt comes about. Both become Jinja over OpenAI messages:

    {{ if eq .Role "user" }}<u>{{ .Content }}{{ end }}

    {%- if item.role == 'user' -%}
    {{- '<u>' ~ item.content -}}
    {%- endif -%}

A value that is not text prints as compact JSON, with the keys in the order in which they came;
Ollama has an order of its own, and escapes `<`, `>` and `&`, which only `exact` does. A function or
field that is not in the tables below is an error.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from turnwise.dialects.ollama_go import GoNode, GoTerm, parse, refuse
from turnwise.dialects.turns import literal
from turnwise.errors import did_you_mean, short_repr

ROOT_FIELDS = {
    "System": "system",
    "Prompt": "prompt",
    "Response": "response",
    "Messages": "chat",
    "Tools": "tools",
    "Suffix": "suffix",
    "Think": "enable_thinking",
    "IsThinkSet": "(enable_thinking is defined)",
}
FIELDS = {
    "Role": "role",
    "Content": "content",
    "Thinking": "reasoning_content",
    "ToolCalls": "tool_calls",
    "ToolName": "name",
    "ToolCallID": "tool_call_id",
    "Images": "images",
    **{
        name: name.lower()
        for name in (
            *("ID", "Type", "Function", "Name", "Description", "Arguments", "Parameters"),
            *("Properties", "Required", "Enum"),
        )
    },
}
TEXT_FIELDS = {
    "System",
    "Prompt",
    "Response",
    "Suffix",
    "Role",
    "Content",
    "Thinking",
    "ToolName",
    "Name",
}
MAPPING_FIELDS = {"Arguments", "Properties"}

FUNCTIONS: dict[str, tuple[int, int, Callable[..., str]]] = {
    "eq": (2, 9, lambda a, *b: f"{a} == {b[0]}" if len(b) == 1 else f"{a} in [{', '.join(b)}]"),
    "ne": (2, 2, lambda a, b: f"{a} != {b}"),
    "lt": (2, 2, lambda a, b: f"{a} < {b}"),
    "le": (2, 2, lambda a, b: f"{a} <= {b}"),
    "gt": (2, 2, lambda a, b: f"{a} > {b}"),
    "ge": (2, 2, lambda a, b: f"{a} >= {b}"),
    "and": (1, 9, lambda *a: " and ".join(a)),
    "or": (1, 9, lambda *a: " or ".join(a)),
    "not": (1, 1, lambda a: f"not {a}"),
    "len": (1, 1, lambda a: f"{a} | length"),
    "index": (2, 4, lambda a, *b: a + "".join(f"[{key}]" for key in b)),
    "slice": (1, 3, lambda a, *b: f"{a}[{b[0] if b else ''}:{b[1] if len(b) > 1 else ''}]"),
    "json": (1, 1, lambda a: f"json({a})"),
    "currentDate": (0, 0, lambda: "strftime_now('%Y-%m-%d')"),
}
"""Go function: fewest and most arguments, and the Jinja."""

LIST_FUNCTIONS = {"slice", "index", "and", "or"}  # their value may be a list


def _count_bytes(text: str) -> str:
    """Go counts the bytes of a text; urlencode writes a byte that is not ASCII as three characters."""
    return f"({text} | urlencode | length) - 2 * ({text} | urlencode).count('%')"


RESERVED_NAMES = {
    *ROOT_FIELDS.values(),
    *("messages", "given", "message", "ns", "loop", "show", "json", "round", "last", "changing"),
    *("and", "or", "not", "in", "is", "if", "else", "for", "set", "_"),
    *("true", "false", "none", "True", "False", "None"),
}
"""Names that a Go variable cannot keep in the Jinja."""

JSON_MACROS = """\
{%- macro json(value) -%}
{{- value | tojson(separators=(',', ':')) -}}
{%- endmacro -%}
{%- macro show(value) -%}
{{- value if value is string else json(value) if value is defined and value is not none else '' -}}
{%- endmacro -%}"""
COLLECT_MESSAGES = """\
{%- set ns = namespace(chat=[], systems=[], system='', prompt='', response='') -%}
{%- for message in given -%}
{%- set content = message.content or '' -%}
{%- if message.role == 'system' -%}
{%- set ns.systems = ns.systems + [content] -%}
{%- endif -%}
{%- set joins = ns.chat and ns.chat[-1].role == message.role and message.role != 'tool' -%}
{%- set other = ns.chat[-1] if joins else message -%}
{%- set one = {'role': message.role, 'content': (ns.chat[-1].content ~ '\\n\\n' if joins else '') ~ content, \
'reasoning_content': other.reasoning_content or '', 'tool_calls': other.tool_calls or [], 'name': other.name or '', \
'tool_call_id': other.tool_call_id or '', 'images': other.images or []} -%}
{%- set ns.chat = (ns.chat[:-1] if joins else ns.chat) + [one] -%}
{%- endfor -%}"""
USE_MESSAGES = """\
{%- set chat = ns.chat -%}
{%- set system = ns.systems | join('\\n\\n') -%}"""
USE_ROUNDS = """\
{%- for message in ns.chat -%}
{%- set full = ns.prompt or ns.response if message.role == 'system' else ns.response -%}
{%- if full and message.role in ['system', 'user'] -%}
{{- round(ns.system, ns.prompt, ns.response, false) -}}
{%- set ns.system = '' -%}
{%- set ns.prompt = '' -%}
{%- set ns.response = '' -%}
{%- endif -%}
{%- if message.role == 'system' -%}
{%- set ns.system = message.content -%}
{%- elif message.role == 'user' -%}
{%- set ns.prompt = message.content -%}
{%- elif message.role == 'assistant' -%}
{%- set ns.response = message.content -%}
{%- endif -%}
{%- endfor -%}"""


@dataclass(frozen=True, slots=True)
class OllamaScope:
    """What the dot and the variables mean at one place of the template."""

    dot: str | None = None  # a Jinja expression; None is the root
    variables: Mapping[str, str] = field(default_factory=dict)

    def with_variable(self, name: str, jinja: str) -> OllamaScope:
        """Return the scope with one more variable."""
        return OllamaScope(self.dot, {**self.variables, name: jinja})

    def with_dot(self, dot: str) -> OllamaScope:
        """Return the scope with another dot."""
        return OllamaScope(dot, self.variables)


class OllamaJinjaWriter:
    """Writes the Jinja of one template.

    Args:
        template: the text in Go's template language.
        first_line: the line of the Modelfile on which it begins.
        system: the default system text of the Modelfile.
        examples: roles and texts of the messages that come before every conversation.
        exact: escape JSON as Ollama does, and open the last round even if it has a reply.
    """

    def __init__(
        self,
        template: str,
        first_line: int = 1,
        system: str = "",
        examples: list[tuple[str, str]] | None = None,
        exact: bool = False,
    ) -> None:
        self.system = system
        self.examples = examples or []
        self.exact = exact
        self.nodes = parse(template, first_line)
        self.by_rounds = not _mentions(self.nodes, "Messages")
        self._used_names: set[str] = set()
        # A variable that gets a second value must be a namespace's: Jinja's own are local to a loop.
        self._reassigned = set(_list_reassigned(self.nodes))
        self._is_after_response = False

    def write(self) -> str:
        """Return the whole template."""
        body = self._write_nodes(self.nodes, OllamaScope())
        if self.by_rounds:
            if not _mentions(self.nodes, "Response"):
                body.append("{{- response -}}")
            body = self._write_rounds(body)
        else:
            body = [*USE_MESSAGES.splitlines(), *body]
        return "\n".join([*self._write_start(), *body]) + "\n"

    def _write_start(self) -> list[str]:
        lines = JSON_MACROS.splitlines()
        if self.exact:
            escapes = "".join(f" | replace('{c}', '\\\\u{ord(c):04x}')" for c in "<>&")
            lines[1] = lines[1].replace(" -}}", f"{escapes} -}}}}")
        if self._reassigned:
            lines.append("{%- set changing = namespace() -%}")
        lines.append("{%- set given = messages -%}")
        if self.examples:
            examples = ", ".join(_write_message(*example) for example in self.examples)
            lines.append(f"{{%- set given = [{examples}] + given -%}}")
        if self.system:
            lines += [
                "{%- if not given or given[0].role != 'system' -%}",
                f"{{%- set given = [{_write_message('system', self.system)}] + given -%}}",
                "{%- endif -%}",
            ]
        return [*lines, *COLLECT_MESSAGES.splitlines()]

    def _write_rounds(self, body: list[str]) -> list[str]:
        last = "true" if self.exact else "not ns.response"
        return [
            "{%- macro round(system, prompt, response, last) -%}",
            *body,
            "{%- endmacro -%}",
            *USE_ROUNDS.splitlines(),
            f"{{{{- round(ns.system, ns.prompt, ns.response, {last}) -}}}}",
        ]

    # -- nodes

    def _write_nodes(self, nodes: tuple[GoNode, ...], scope: OllamaScope) -> list[str]:
        lines: list[str] = []
        for node in nodes:
            is_cut = self._is_after_response
            if node.kind == "set" and node.term is not None:
                value = self._write_value(node.term, scope)
                target = self._write_target(node, scope)
                scope = scope.with_variable(node.names[0], target)
                lines.append(f"{{%- set {target} = {value} -%}}")
                continue
            written = self._write_node(node, scope)
            if is_cut:
                written = ["{%- if not last -%}", *written, "{%- endif -%}"]
            lines += written
        return _merge_prints(lines)

    def _write_node(self, node: GoNode, scope: OllamaScope) -> list[str]:
        if node.kind == "text":
            return [f"{{{{- {literal(node.text)} -}}}}"]
        if node.kind in ("break", "continue"):
            return [f"{{%- {node.kind} -%}}"]
        assert node.term is not None
        if node.kind == "range":
            return self._write_range(node, node.term, scope)
        value = self._write_value(node.term, scope)
        if node.kind in ("if", "with"):
            return self._write_branch(node, value, scope)
        if self.by_rounds and node.term.path[-1:] == ("Response",):
            self._is_after_response = True
        return [f"{{{{- {value if _is_text(node.term) else f'show({value})'} -}}}}"]

    def _write_branch(
        self, node: GoNode, value: str, scope: OllamaScope, word: str = "if"
    ) -> list[str]:
        lines = []
        if node.names:
            name = self._new_name(node.names[0])
            lines.append(f"{{%- set {name} = {value} -%}}")
            scope, value = scope.with_variable(node.names[0], name), name
        inner = scope.with_dot(value) if node.kind == "with" else scope
        test = _strip_parentheses(value)
        lines += [f"{{%- {word} {test} -%}}", *self._write_nodes(node.body, inner)]
        if len(node.otherwise) == 1:
            # `else if` is a nested block in Go, and `elif` here.
            (other,) = node.otherwise
            if other.kind == "if" and not other.names and other.term:
                condition = self._write_value(other.term, scope)
                return lines + self._write_branch(other, condition, scope, "elif")
        if node.otherwise:
            lines += ["{%- else -%}", *self._write_nodes(node.otherwise, scope)]
        return [*lines, "{%- endif -%}"]

    def _write_range(self, node: GoNode, term: GoTerm, scope: OllamaScope) -> list[str]:
        _check_iterable(node, term)
        value = self._write_value(term, scope)
        # range $item := ..., or range $index, $item := ...; "_" is a name that is not used.
        *index_names, item_name = node.names or ("_",)
        item = self._new_name("item" if item_name == "_" else item_name)
        inner = scope.with_dot(item)
        index_lines = []
        if term.path and term.path[-1] in MAPPING_FIELDS:
            index = self._new_name("key")
            items = f"{value} | dictsort(case_sensitive=true)" if self.exact else f"{value}.items()"
            head = f"{{%- for {index}, {item} in {items} -%}}"
        else:
            index = ""
            head = f"{{%- for {item} in {value} -%}}"
        for name in index_names:
            if name != "_":
                if not index:
                    index = self._new_name(name)
                    index_lines.append(f"{{%- set {index} = loop.index0 -%}}")
                inner = inner.with_variable(name, index)
        if item_name != "_":
            inner = inner.with_variable(item_name, item)
        lines = [head, *index_lines, *self._write_nodes(node.body, inner)]
        if node.otherwise:
            lines += ["{%- else -%}", *self._write_nodes(node.otherwise, scope)]
        return [*lines, "{%- endfor -%}"]

    # -- names and values

    def _new_name(self, name: str) -> str:
        """Return a name for the Jinja that nothing else has: `x`, `x_2`, `x_3`, ..."""
        taken = self._used_names | RESERVED_NAMES
        free = name
        for number in itertools.count(2):
            if free not in taken:
                break
            free = f"{name}_{number}"
        self._used_names.add(free)
        return free

    def _write_target(self, node: GoNode, scope: OllamaScope) -> str:
        """Return the Jinja name of the variable that a node sets."""
        (name,) = node.names
        if not node.declares:
            return self._get_variable(name, node.line, scope)
        new = self._new_name(name)
        return f"changing.{new}" if name in self._reassigned else new

    def _get_variable(self, name: str, line: int, scope: OllamaScope) -> str:
        if name not in scope.variables:
            hint = did_you_mean(name, scope.variables, "Declared")
            refuse(line, f"${name} is not declared", hint)
        return scope.variables[name]

    def _write_value(self, term: GoTerm, scope: OllamaScope) -> str:
        """Return a term as a Jinja expression that needs no parentheses around it."""
        if term.kind == "constant":
            return literal(term.value) if term.name == "text" else term.value
        if term.kind == "call":
            return self._write_call(term, scope)
        if term.kind == "variable" and term.name:
            variable = self._get_variable(term.name, term.line, scope)
            return _write_path(variable, term.path, term.line)
        if term.kind == "dot" and scope.dot is not None:
            return _write_path(scope.dot, term.path, term.line)
        return _write_root_path(term)

    def _write_call(self, term: GoTerm, scope: OllamaScope) -> str:
        values = [self._write_value(argument, scope) for argument in term.arguments]
        if not term.name:  # a field of something in parentheses
            return _write_path(values[0], term.path, term.line)
        if term.name not in FUNCTIONS:
            hint = did_you_mean(term.name, FUNCTIONS, "Supported")
            refuse(term.line, f"the function {short_repr(term.name)} is not supported", hint)
        least, most, write = FUNCTIONS[term.name]
        if not least <= len(values) <= most:
            refuse(term.line, f"{term.name} takes {least} to {most} values, not {len(values)}")
        if term.name == "len" and _is_text(term.arguments[0]):
            write = _count_bytes
        return f"({write(*values)})"


def _write_path(base: str, path: tuple[str, ...], line: int) -> str:
    for name in path:
        if name not in FIELDS:
            hint = did_you_mean(name, FIELDS, "Fields")
            if name in ROOT_FIELDS:
                hint = f"It is a field of the root: write $.{name}."
            refuse(line, f"there is no field .{name} here", hint)
        base += f".{FIELDS[name]}"
    return base


def _write_root_path(term: GoTerm) -> str:
    if not term.path:
        refuse(term.line, "the whole data cannot be used as a value")
    name, *rest = term.path
    if name not in ROOT_FIELDS:
        refuse(term.line, f"there is no .{name}", did_you_mean(name, ROOT_FIELDS, "Fields"))
    return _write_path(ROOT_FIELDS[name], tuple(rest), term.line)


def _check_iterable(node: GoNode, term: GoTerm) -> None:
    """Refuse a range over what is certainly neither a list nor a mapping."""
    is_other_call = term.kind == "call" and term.name and term.name not in LIST_FUNCTIONS
    if term.kind != "constant" and not _is_text(term) and not is_other_call:
        return
    found = term.name or f".{'.'.join(term.path)}"
    if term.kind == "constant":
        found = short_repr(term.value)
    problem = f"range goes through a list or a mapping, not {found}"
    refuse(node.line, problem, "For example: range .Messages.")


def _is_text(term: GoTerm) -> bool:
    """Return True if a term certainly is text, so that it prints as it is."""
    if term.kind == "call":
        return term.name in ("json", "currentDate")
    if term.path:
        return term.path[-1] in TEXT_FIELDS
    return term.kind == "constant" and term.name == "text"


def _strip_parentheses(value: str) -> str:
    """Return an expression without the parentheses around the whole of it."""
    if not value.startswith("(") or "'" in value:
        return value
    depth = 0
    for at, character in enumerate(value):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:  # the first parenthesis is closed here
            return value[1:-1] if at == len(value) - 1 else value
    return value


def _write_message(role: str, content: str) -> str:
    return f"{{'role': {literal(role)}, 'content': {literal(content)}}}"


def _merge_prints(lines: list[str]) -> list[str]:
    """Return the lines with consecutive outputs merged into one."""
    merged: list[str] = []
    for line in lines:
        if line.startswith("{{- ") and merged and merged[-1].startswith("{{- "):
            merged[-1] = merged[-1].removesuffix(" -}}") + " ~ " + line.removeprefix("{{- ")
        else:
            merged.append(line)
    return merged


def _mentions(nodes: tuple[GoNode, ...], name: str) -> bool:
    """Return True if any term below has a field of this name."""

    def has_name(term: GoTerm | None) -> bool:
        return term is not None and (name in term.path or any(map(has_name, term.arguments)))

    return any(
        has_name(node.term) or _mentions(node.body, name) or _mentions(node.otherwise, name)
        for node in nodes
    )


def _list_reassigned(nodes: tuple[GoNode, ...]) -> list[str]:
    """Return the variables that get a second value somewhere."""
    names: list[str] = []
    for node in nodes:
        names += _list_reassigned(node.body) + _list_reassigned(node.otherwise)
        if not node.declares:
            names += node.names
    return names
