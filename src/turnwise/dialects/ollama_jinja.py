"""Write the Jinja of an Ollama template, from the tree that `ollama_go.py` parses.

    {{ if eq .Role "user" }}<u>{{ .Content }}{{ end }}

    {%- if (item.role == 'user') -%}
    {{- '<u>' ~ item.content -}}
    {%- endif -%}

Blocks are written here, values in `ollama_values.py`. A variable of Go lives in its block and may change in blocks
within; Jinja's are local to a loop, so one that changes is an attribute of a namespace. Its type is that of all values
that it gets, which is known only after everything was written: it is written again until no type changes any more.

What Ollama does to a conversation before a template sees it is written, too. Consecutive messages of one role are
joined first, tool results excepted. A template that mentions `.Messages` sees all of them, and `.System` is all system
texts. An older one sees one round, `.System`, `.Prompt` and `.Response`, and is executed once per round. The last round
is executed with a copy of the template from which everything behind `.Response` was cut, which is how the generation
prompt comes about.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from turnwise.dialects.ollama_go import (
    GoNode,
    GoNodes,
    GoTerm,
    parse,
    refuse,
    walk_nodes,
    walk_terms,
)
from turnwise.dialects.ollama_print import MACROS, GoPrinter, GoValue, as_list, is_simple
from turnwise.dialects.ollama_types import (
    CHAT_FIELDS,
    ROUND_FIELDS,
    SUFFIX_FIELDS,
    TYPES,
    GoType,
    join_types,
)
from turnwise.dialects.ollama_values import GoValueWriter, OllamaScope
from turnwise.dialects.turns import literal

COLLECT_MESSAGES = """\
{%- set ns = namespace(chat=[], systems=[], system='', prompt='', response='') -%}
{%- for message in given -%}
{%- set content = message.content or '' -%}
{%- set role = ROLE -%}
{%- if role == 'system' -%}
{%- set ns.systems = ns.systems + [content] -%}
{%- endif -%}
{%- set joins = ns.chat and ns.chat[-1].role == role and role != 'tool' -%}
{%- set other = ns.chat[-1] if joins else message -%}
{%- set one = {'role': role, 'content': (ns.chat[-1].content ~ '\\n\\n' if joins else '') ~ content, \
'reasoning_content': other.reasoning_content or '', 'tool_calls': other.tool_calls or [], \
'name': other.tool_name or other.name or '', 'tool_call_id': other.tool_call_id or '', \
'images': other.images | default(none)} -%}
{%- set ns.chat = (ns.chat[:-1] if joins else ns.chat) + [one] -%}
{%- endfor -%}"""
ROLE = "message.role"
EXACT_ROLE = "message.role | lower"  # Ollama reads roles so
USE_MESSAGES = """\
{%- set chat = ns.chat -%}
{%- set system = ns.systems | join('\\n\\n') -%}"""
USE_SUFFIX = """\
{%- set users = given | selectattr('role', 'equalto', 'user') | map(attribute='content') | list -%}
{%- set prompt = users | last if suffix and users else none -%}
{%- if prompt -%}
{%- set chat = [] -%}
{%- set system = none -%}
{%- endif -%}"""
"""With a suffix the text between prompt and suffix is asked for, and there is no conversation."""

USE_ROUNDS = """\
{%- for message in ns.chat -%}
{%- set full = ns.prompt or ns.response if message.role == 'system' else ns.response -%}
{%- if full and message.role in ['system', 'user'] -%}
{{- round() -}}
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
THINK_LEVELS = "['high', 'medium', 'low', 'max']"
USE_THINKING = """\
{%- set think_is_set = enable_thinking is defined and enable_thinking is not none -%}
{%- set think = enable_thinking if think_is_set else false -%}
{%- set think_level = 'medium' if think else '' -%}"""
USE_THINK_LEVEL = f"""\
{{%- set has_level = reasoning_effort is defined and reasoning_effort in {THINK_LEVELS} -%}}
{{%- set think_is_set = has_level or (enable_thinking is defined and enable_thinking is not none) -%}}
{{%- set think = enable_thinking if enable_thinking is defined and enable_thinking is not none else has_level -%}}
{{%- set think_level = (reasoning_effort if has_level else 'medium') if think else '' -%}}"""

RESERVED_NAMES = {
    *("system", "prompt", "chat", "tools", "suffix", "think", "think_level", "think_is_set"),
    *MACROS,
    *("messages", "given", "message", "ns", "loop", "round", "last_round", "changing", "dot"),
    *("content", "role", "joins", "other", "one", "full", "users", "has_level"),
    *("enable_thinking", "reasoning_effort", "range", "namespace", "dict", "add_generation_prompt"),
    *("raise_exception", "strftime_now", "cycler", "joiner", "lipsum"),
    *("and", "or", "not", "in", "is", "if", "else", "for", "set", "_"),
    *("true", "false", "none", "True", "False", "None"),
}
"""Names that a Go variable cannot keep in the Jinja."""

CHANGING = "{%- set changing = namespace() -%}"
LOOP_KINDS = ("list", "map", "any", "nil")


class OllamaJinjaWriter:
    """Writes the Jinja of one template.

    Args:
        template: the text in Go's template language.
        first_line: the line of the Modelfile on which it begins.
        system: the default system text of the Modelfile.
        examples: roles and texts of the messages that come before every conversation.
        exact: print and fail as Ollama does, and open the last round even if it has a reply.
    """

    def __init__(
        self,
        template: str,
        first_line: int,
        system: str,
        examples: list[tuple[str, str]] | None,
        exact: bool,
    ) -> None:
        self.system = system
        self.examples = examples or []
        self.exact = exact
        nodes = parse(template, first_line)
        # The names of all fields of the dot and of variables, in small letters as Ollama asks.
        terms = (term for node in walk_nodes(nodes) for term in walk_terms(node.term))
        self.names = {name.lower() for term in terms if term.kind != "call" for name in term.path}
        self.by_rounds = "messages" not in self.names
        if self.by_rounds and "response" not in self.names:
            response = GoTerm("dot", first_line, path=("Response",))
            nodes = (*nodes, GoNode("print", first_line, term=response))
        self.nodes = nodes
        # A variable that gets a second value must be a namespace's: Jinja's own are local to a loop.
        self._reassigned = set(_list_reassigned(nodes))
        self._variable_types: dict[str, GoType] = {}
        self._start()

    def write(self) -> str:
        """Return the whole template."""
        while True:
            before = dict(self._variable_types)
            self._start()
            body = (
                self._write_rounds()
                if self.by_rounds
                else self._write_nodes(self.nodes, OllamaScope())
            )
            start = self._write_start()  # which knows the macros only now
            text = "\n".join([*start, *body]) + "\n"
            if before == self._variable_types:
                return text

    def _start(self) -> None:
        """Forget what was written."""
        self._used_names: set[str] = set()
        self._printer = GoPrinter(self.exact)
        fields = ROUND_FIELDS if self.by_rounds else CHAT_FIELDS
        if "suffix" in self.names:  # with a suffix there is no system text
            fields = {**SUFFIX_FIELDS, **fields, "System": (fields["System"][0], "any")}
        self._values = GoValueWriter(
            self._printer,
            {name: GoValue(jinja, TYPES[type_]) for name, (jinja, type_) in fields.items()},
        )

    def _write_start(self) -> list[str]:
        lines = self._printer.write_macros()
        if self._reassigned:
            lines.append(CHANGING)
        used = self._values.used_root
        if "ThinkLevel" in used:
            lines += USE_THINK_LEVEL.splitlines()
        elif used & {"Think", "IsThinkSet"}:
            lines += USE_THINKING.splitlines()
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
        lines += COLLECT_MESSAGES.replace("ROLE", EXACT_ROLE if self.exact else ROLE).splitlines()
        if not self.by_rounds:
            lines += USE_MESSAGES.splitlines()
        if "suffix" in self.names:
            lines += USE_SUFFIX.splitlines()
        return lines

    def _write_rounds(self) -> list[str]:
        """Return the macros for a round and for the last one, and what calls them."""
        lines = self._write_macro("round", self.nodes)
        lines += self._write_macro("last_round", tuple(_cut_response(self.nodes)))
        last = "last_round()" if self.exact else "(round() if ns.response else last_round())"
        calls = [*USE_ROUNDS.splitlines(), f"{{{{- {last} -}}}}"]
        if "suffix" in self.names:
            whole = [
                "{%- if prompt -%}",
                "{%- set ns.system = none -%}",
                "{%- set ns.prompt = prompt -%}",
                "{{- round() -}}",
            ]
            calls = [*whole, "{%- else -%}", *calls, "{%- endif -%}"]
        return [*lines, *calls]

    def _write_macro(self, name: str, nodes: GoNodes) -> list[str]:
        body = self._write_nodes(nodes, OllamaScope())
        if _list_reassigned(nodes):
            body = [CHANGING, *body]
        return [f"{{%- macro {name}() -%}}", *body, "{%- endmacro -%}"]

    # -- nodes

    def _write_nodes(self, nodes: GoNodes, scope: OllamaScope) -> list[str]:
        lines: list[str] = []
        for node in nodes:
            if node.kind == "set" and node.term is not None:
                value = self._values.write(node.term, scope)
                line, scope = self._write_assignment(node, node.names[0], value, scope)
                lines.append(line)
            else:
                lines += self._write_node(node, scope)
        # The lines with consecutive outputs merged into one.
        merged: list[str] = []
        for line in lines:
            if line.startswith("{{- ") and merged and merged[-1].startswith("{{- "):
                merged[-1] = merged[-1].removesuffix(" -}}") + " ~ " + line.removeprefix("{{- ")
            else:
                merged.append(line)
        return merged

    def _write_node(self, node: GoNode, scope: OllamaScope) -> list[str]:
        if node.kind == "text":
            return [f"{{{{- {literal(node.text)} -}}}}"]
        if node.kind in ("break", "continue"):
            return [f"{{%- {node.kind} -%}}"]
        assert node.term is not None
        value = self._values.write(node.term, scope)
        if node.kind == "range":
            return self._write_range(node, value, scope)
        if node.kind in ("if", "with"):
            return self._write_branch(node, value, scope)
        return [f"{{{{- {self._printer.print_value(value, node.line)} -}}}}"]

    def _write_branch(
        self, node: GoNode, value: GoValue, scope: OllamaScope, word: str = "if"
    ) -> list[str]:
        lines = []
        if node.names:
            line, scope = self._write_assignment(node, node.names[0], value, scope)
            lines.append(line)
            value = scope.variables[node.names[0]]
        inner = scope
        if node.kind == "with":
            # The dot keeps its value if a variable changes.
            if value.jinja and (not is_simple(value.jinja) or value.jinja.startswith("changing.")):
                name = self._new_name("dot_value")
                lines.append(f"{{%- set {name} = {value.jinja} -%}}")
                value = GoValue(name, value.type)
            inner = scope.with_dot(value)
        test = self._values.write_truth(value)
        lines += [f"{{%- {word} {test} -%}}", *self._write_nodes(node.body, inner)]
        if len(node.otherwise) == 1:
            # `else if` is a nested block in Go, and `elif` here.
            (other,) = node.otherwise
            if other.kind == "if" and not other.names and other.term:
                condition = self._values.write(other.term, scope)
                return lines + self._write_branch(other, condition, scope, "elif")
        if node.otherwise:
            lines += ["{%- else -%}", *self._write_nodes(node.otherwise, scope)]
        return [*lines, "{%- endif -%}"]

    # -- loops

    def _write_range(self, node: GoNode, value: GoValue, scope: OllamaScope) -> list[str]:
        if value.kind not in LOOP_KINDS:
            problem = f"range goes through a list or a mapping, not a {value.type.go_name}"
            refuse(node.line, problem, "For example: range .Messages.")
        if value.kind == "nil":
            return self._write_nodes(node.otherwise, scope)
        if not node.otherwise:
            return self._write_loop(node, value, scope)
        # The else is not one of the loop: Jinja writes that one after a break, too.
        listed = GoValue(self._new_name("listed"), value.type)
        lines = [
            f"{{%- set {listed.jinja} = {value.jinja} -%}}",
            f"{{%- if {listed.jinja} -%}}",
            *self._write_loop(node, listed, scope),
            "{%- else -%}",
            *self._write_nodes(node.otherwise, scope),
        ]
        return [*lines, "{%- endif -%}"]

    def _write_loop(self, node: GoNode, value: GoValue, scope: OllamaScope) -> list[str]:
        # range $item := ..., or range $index, $item := ...; "_" is a name that is not used.
        *index_names, item_name = node.names or ("_",)
        item = GoValue(
            self._new_name("item" if item_name == "_" else item_name),
            TYPES[value.type.element or "any"],
        )
        before, head, index = self._write_loop_head(value, item, index_names)
        inner = scope.with_dot(item)
        for name, given in (*((name, index) for name in index_names), (item_name, item)):
            if name in self._reassigned or (given.jinja == "loop.index0" and name != "_"):
                line, inner = self._write_assignment(node, name, given, inner)
                head.append(line)
            elif name != "_":
                inner = inner.with_variable(name, given)
        return [*before, *head, *self._write_nodes(node.body, inner), "{%- endfor -%}"]

    def _write_loop_head(
        self, value: GoValue, item: GoValue, index_names: list[str]
    ) -> tuple[list[str], list[str], GoValue]:
        """Return what comes before the loop, how it begins, and its index or key."""
        number = GoValue("loop.index0", TYPES["int"])
        if value.kind == "map":
            key = self._new_name("key")
            sort = " | dictsort(case_sensitive=true)" if self.exact else ".items()"
            pairs = f"{{%- for {key}, {item.jinja} in {as_list(value)}{sort} -%}}"
            return [], [pairs], GoValue(key, TYPES["string"])
        if value.kind != "any":
            return [], [f"{{%- for {item.jinja} in {as_list(value)} -%}}"], number
        # A value of JSON may be a list or a mapping.
        whole, entry, key = map(self._new_name, ("whole", "entry", "key"))
        sort = "dictsort(case_sensitive=true)" if self.exact else "items"
        head = [
            f"{{%- for {entry} in ({whole} | {sort} if {whole} is mapping else {whole}) -%}}",
            f"{{%- set {item.jinja} = {entry}[1] if {whole} is mapping else {entry} -%}}",
        ]
        if index_names:
            head.append(f"{{%- set {key} = {entry}[0] if {whole} is mapping else loop.index0 -%}}")
        return [f"{{%- set {whole} = {value.jinja} or [] -%}}"], head, GoValue(key, value.type)

    # -- names

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

    def _write_assignment(
        self, node: GoNode, name: str, value: GoValue, scope: OllamaScope
    ) -> tuple[str, OllamaScope]:
        """Return the line that gives a variable its value, and the scope with the variable."""
        if node.declares:
            target = self._new_name(name)
            if name in self._reassigned:
                target = f"changing.{target}"
        else:
            target = self._values.get_variable(name, node.line, scope).jinja
        if value.kind == "root":
            refuse(node.line, "the whole data cannot be the value of a variable")
        type_ = join_types(self._variable_types.get(target, value.type), value.type)
        self._variable_types[target] = type_
        line = f"{{%- set {target} = {value.jinja} -%}}"
        if node.declares:
            scope = scope.with_variable(name, GoValue(target, type_))
        return line, scope


def _write_message(role: str, content: str) -> str:
    return f"{{'role': {literal(role)}, 'content': {literal(content)}}}"


def _list_reassigned(nodes: GoNodes) -> list[str]:
    """Return the variables that get a second value somewhere."""
    return [name for node in walk_nodes(nodes) if not node.declares for name in node.names]


def _cut_response(nodes: GoNodes) -> Iterator[GoNode]:
    """Yield the nodes up to the first `.Response` that is printed, and the blocks around it, cut in the same way."""
    for node in nodes:
        if node.kind in ("print", "set") and _has_response((node,)):
            if node.term is None or node.term.kind != "dot":
                refuse(node.line, "a function of .Response is not supported")
            yield node
            return
        if _has_response(node.body):
            yield replace(node, body=tuple(_cut_response(node.body)))
            return
        if _has_response(node.otherwise):
            yield replace(node, otherwise=tuple(_cut_response(node.otherwise)))
            return
        yield node


def _has_response(nodes: GoNodes) -> bool:
    """Return True if `.Response` is printed or given to a variable; what a block asks is left alone."""
    return any(
        term.kind == "dot" and "Response" in term.path
        for node in walk_nodes(nodes)
        if node.kind in ("print", "set")
        for term in walk_terms(node.term)
    )
