"""Ollama's Modelfiles: TEMPLATE (in Go's template language), SYSTEM, PARAMETER stop and MESSAGE.

Templates are of two kinds. Those that mention `.Messages` see the whole conversation: messages of one role in a row
are joined first (results of tools excepted), and `.System` is all system texts. The older ones see a round,
`.System`, `.Prompt` and `.Response`, and are run once per round; in the last run everything behind `.Response` is
cut, which is how a reply is opened. Without `exact` a conversation that ends with a reply keeps what closes it.

Both kinds are translated to Jinja over OpenAI messages. Whatever is not text prints as compact JSON, in the order of
the keys that came in; Ollama has its own order, and escapes `<`, `>` and `&`, which only `exact` does. Ollama opens a
reply whenever the last message is not the assistant's, so `add_generation_prompt` changes nothing here. A function or
field that is not in the tables below is an error.

`write` says turns in the newer kind, as the library's own templates do: a final assistant message is left open, to be
continued.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from turnwise.dialects.ollama_go import GoNode, GoTerm, parse, refuse
from turnwise.dialects.translation import Translation
from turnwise.dialects.turns import Slot, Text, Turns, fill_slots, literal
from turnwise.errors import SourceError, did_you_mean, short_repr

INSTRUCTIONS = (
    *("FROM", "TEMPLATE", "SYSTEM", "PARAMETER", "MESSAGE"),
    *("ADAPTER", "LICENSE", "RENDERER", "PARSER", "REQUIRES"),
)
INSTRUCTION = re.compile(rf"\s*({'|'.join(INSTRUCTIONS)})[ \t]", re.IGNORECASE)
GO = re.compile(r"[\s($]\.(?:Messages|Prompt|System|Response)\b")
ROLES = ("system", "user", "assistant")

ROOT = {
    "System": "system",
    "Prompt": "prompt",
    "Response": "response",
    "Messages": "chat",
    "Tools": "tools",
}
ROOT |= {
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
        for name in ("ID", "Type", "Function", "Name", "Description", "Arguments", "Parameters")
    },
    **{name: name.lower() for name in ("Properties", "Required", "Enum")},
}
TEXTS = {
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
MAPPINGS = {"Arguments", "Properties"}

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

# Of text, Go counts bytes: urlencode spells one that is not ASCII with three characters, the first of them %.
BYTES: dict[str, Callable[[str], str]] = {
    "len": lambda a: f"({a} | urlencode | length) - 2 * ({a} | urlencode).count('%')",
}
LISTS = {"slice", "index", "and", "or"}  # functions whose value one can go through


@dataclass(slots=True)
class Modelfile:
    """The instructions of a Modelfile that say something about the template."""

    template: str = ""
    line: int = 1  # where the template begins
    system: str = ""
    messages: list[tuple[str, str]] = field(default_factory=list)
    parameters: dict[str, list[str]] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)


def knows(source: Any) -> bool:
    """Whether this is a Modelfile or a Go template."""
    if not isinstance(source, str) or "{%" in source:
        return False
    return ("{{" in source and bool(GO.search(source))) or is_file(source)


def read(source: Any, exact: bool = False) -> Translation:
    """The template of a Modelfile, or of the text of its TEMPLATE alone."""
    if not isinstance(source, str):
        raise SourceError(f"a Modelfile is a text, not {type(source).__name__}")
    file = parse_file(source) if is_file(source) else Modelfile(template=source)
    if not file.template:
        renderer = file.others.get("RENDERER")
        raise SourceError(
            f"the renderer {short_repr(renderer)} is part of Ollama"
            if renderer
            else "this Modelfile has no TEMPLATE",
            hint="Ollama takes it from the model then: ask it with `ollama show --template`.",
        )
    return Translation(
        jinja=OllamaJinjaWriter(file, exact).written(),
        stops=tuple(file.parameters.get("stop", ())),
        facts={"parameters": file.parameters, "system": file.system, **file.others},
    )


def is_file(text: str) -> bool:
    lines = (
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    )
    return bool(
        INSTRUCTION.match(next(lines, "") + " ")
        or re.search(r"^(FROM|TEMPLATE) ", text, re.MULTILINE)
    )


def parse_file(text: str) -> Modelfile:
    """The instructions, in order; a value in quotes may have many lines."""
    file = Modelfile()
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        if not lines[at].strip() or lines[at].lstrip().startswith("#"):
            at += 1
            continue
        found = INSTRUCTION.match(lines[at] + " ")
        if found is None:
            word = lines[at].split()[0]
            raise SourceError(
                f"line {at + 1} of the Modelfile: unknown instruction {short_repr(word)}",
                hint=did_you_mean(word.upper(), INSTRUCTIONS, "Known"),
            )
        word, rest, extra = found[1].upper(), lines[at][found.end() :].strip(), ""
        if word in ("PARAMETER", "MESSAGE"):
            extra, _, rest = rest.partition(" ")
        value, after = quoted(lines, at, rest)
        take(file, word, extra, value, at + 1)
        at = after
    return file


def quoted(lines: list[str], at: int, rest: str) -> tuple[str, int]:
    """A value without its quotes, and the number of the line behind it."""
    rest = rest.strip()
    quote = next((mark for mark in ('"""', '"') if rest.startswith(mark)), "")
    if not quote:
        return rest, at + 1
    text = lines[at][lines[at].index(quote) + len(quote) :]
    for number in range(at, len(lines)):
        text += "" if number == at else f"\n{lines[number]}"
        if text.rstrip().endswith(quote):
            return text.rstrip()[: -len(quote)], number + 1
    raise SourceError(f"line {at + 1} of the Modelfile: {quote} without its end")


def take(file: Modelfile, word: str, extra: str, value: str, line: int) -> None:
    if word == "TEMPLATE":
        file.template, file.line = value, line
    elif word == "SYSTEM":
        file.system = value
    elif word == "PARAMETER":
        file.parameters.setdefault(extra.lower(), []).append(value)
    elif word == "MESSAGE":
        if extra not in ROLES:
            raise SourceError(
                f"line {line} of the Modelfile: a MESSAGE is of {', '.join(ROLES)}, not {short_repr(extra)}"
            )
        file.messages.append((extra, value))
    else:
        file.others[word] = value


@dataclass(frozen=True, slots=True)
class OllamaScope:
    """What the dot and the variables mean at a place."""

    dot: str | None = None  # a Jinja expression; None is the root
    variables: Mapping[str, str] = field(default_factory=dict)

    def having(self, name: str, jinja: str) -> OllamaScope:
        return OllamaScope(self.dot, {**self.variables, name: jinja})

    def at(self, dot: str) -> OllamaScope:
        return OllamaScope(dot, self.variables)


class OllamaJinjaWriter:
    """The Jinja of one Modelfile."""

    def __init__(self, file: Modelfile, exact: bool) -> None:
        self.file = file
        self.exact = exact
        self.nodes = parse(file.template, file.line)
        self.used: set[str] = set()  # names that the Jinja has taken
        self.changed = set(assigned(self.nodes))
        self.rounds = not mentions(self.nodes, "Messages")
        self.cut = False

    def written(self) -> str:
        body = self.block(self.nodes, OllamaScope())
        if self.rounds and not mentions(self.nodes, "Response"):
            body.append("{{- response -}}")
        lines = [
            *self.heading(),
            *(self.in_rounds(body) if self.rounds else [*CONVERSATION.splitlines(), *body]),
        ]
        return "\n".join(lines) + "\n"

    def heading(self) -> list[str]:
        lines = JSON.splitlines()
        if self.exact:
            escapes = "".join(f" | replace('{c}', '\\\\u{ord(c):04x}')" for c in "<>&")
            lines[1] = lines[1].replace(" -}}", f"{escapes} -}}}}")
        if self.changed:
            lines.append("{%- set changing = namespace() -%}")
        lines.append("{%- set given = messages -%}")
        if self.file.messages:
            shots = ", ".join(said(*message) for message in self.file.messages)
            lines.append(f"{{%- set given = [{shots}] + given -%}}")
        if self.file.system:
            lines.append("{%- if not given or given[0].role != 'system' -%}")
            lines += [
                f"{{%- set given = [{said('system', self.file.system)}] + given -%}}",
                "{%- endif -%}",
            ]
        return [*lines, *COLLATED.splitlines()]

    def in_rounds(self, body: list[str]) -> list[str]:
        last = "true" if self.exact else "not ns.response"
        return [
            "{%- macro round(system, prompt, response, last) -%}",
            *body,
            "{%- endmacro -%}",
            *ROUNDS.splitlines(),
            f"{{{{- round(ns.system, ns.prompt, ns.response, {last}) -}}}}",
        ]

    # nodes

    def block(self, nodes: tuple[GoNode, ...], scope: OllamaScope) -> list[str]:
        lines: list[str] = []
        for node in nodes:
            cut = self.cut
            written = self.node(node, scope)
            if node.kind == "set":
                (name,) = node.names
                scope = scope.having(name, self.target(name, scope, node))
                written = [f"{{%- set {scope.variables[name]} = {written[0]} -%}}"]
            if cut and node.kind != "set":  # behind .Response: not in the last round
                written = ["{%- if not last -%}", *written, "{%- endif -%}"]
            lines += written
        return merged(lines)

    def node(self, node: GoNode, scope: OllamaScope) -> list[str]:
        if node.kind == "text":
            return [f"{{{{- {literal(node.text)} -}}}}"]
        if node.kind in ("break", "continue"):
            return [f"{{%- {node.kind} -%}}"]
        assert node.term is not None
        if node.kind == "range":
            return self.range(node, node.term, scope)
        value = self.value(node.term, scope)
        if node.kind == "set":
            return [value]
        if node.kind == "print":
            if self.rounds and node.term.path[-1:] == ("Response",):
                self.cut = True
            return [f"{{{{- {value if is_text(node.term) else f'show({value})'} -}}}}"]
        return self.branch(node, value, scope)

    def branch(self, node: GoNode, value: str, scope: OllamaScope, word: str = "if") -> list[str]:
        lines = []
        if node.names:
            name = self.fresh(node.names[0])
            lines.append(f"{{%- set {name} = {value} -%}}")
            scope, value = scope.having(node.names[0], name), name
        inner = scope.at(value) if node.kind == "with" else scope
        lines += [f"{{%- {word} {bare(value)} -%}}", *self.block(node.body, inner)]
        other = node.otherwise
        if len(other) == 1 and other[0].kind == "if" and not other[0].names and other[0].term:
            return lines + self.branch(other[0], self.value(other[0].term, scope), scope, "elif")
        if other:
            lines += ["{%- else -%}", *self.block(other, scope)]
        return [*lines, "{%- endif -%}"]

    def range(self, node: GoNode, term: GoTerm, scope: OllamaScope) -> list[str]:
        if (
            term.kind == "constant"
            or is_text(term)
            or (term.kind == "call" and term.name and term.name not in LISTS)
        ):
            found = (
                short_repr(term.value)
                if term.kind == "constant"
                else term.name or f".{'.'.join(term.path)}"
            )
            refuse(
                node.line,
                f"range goes through a list or a mapping, not {found}",
                "For example: range .Messages.",
            )
        value = self.value(term, scope)
        mapping = term.path[-1:] and term.path[-1] in MAPPINGS
        item = self.fresh(node.names[-1] if node.names and node.names[-1] != "_" else "item")
        inner = scope.at(item)
        names = [name for name in node.names if name != "_"]
        head, lines = f"{{%- for {item} in {value} -%}}", []
        if mapping:
            key = self.fresh("key")
            items = f"{value} | dictsort(case_sensitive=true)" if self.exact else f"{value}.items()"
            head = f"{{%- for {key}, {item} in {items} -%}}"
        if len(node.names) == 2 and node.names[0] != "_":
            index = key if mapping else self.fresh(node.names[0])
            lines += [] if mapping else [f"{{%- set {index} = loop.index0 -%}}"]
            inner = inner.having(node.names[0], index)
            names = names[1:]
        for name in names:
            inner = inner.having(name, item)
        lines = [head, *lines, *self.block(node.body, inner)]
        if node.otherwise:
            lines += ["{%- else -%}", *self.block(node.otherwise, scope)]
        return [*lines, "{%- endfor -%}"]

    # names and values

    def fresh(self, name: str) -> str:
        """A name for the Jinja that nothing else has."""
        taken = self.used | RESERVED
        numbered = (f"{name}_{number}" for number in itertools.count(2))
        found = next(other for other in itertools.chain([name], numbered) if other not in taken)
        self.used.add(found)
        return found

    def target(self, name: str, scope: OllamaScope, node: GoNode) -> str:
        if not node.declares:
            if name not in scope.variables:
                refuse(
                    node.line,
                    f"${name} is not declared",
                    did_you_mean(name, scope.variables, "Declared"),
                )
            return scope.variables[name]
        return f"changing.{self.fresh(name)}" if name in self.changed else self.fresh(name)

    def value(self, term: GoTerm, scope: OllamaScope) -> str:
        """A term as a Jinja expression that needs no parentheses around it."""
        if term.kind == "constant":
            return literal(term.value) if term.name == "text" else term.value
        if term.kind == "call":
            return self.called(term, scope)
        if term.kind == "variable" and term.name:
            if term.name not in scope.variables:
                hint = did_you_mean(term.name, scope.variables, "Declared")
                refuse(term.line, f"${term.name} is not declared", hint)
            return self.path(scope.variables[term.name], term)
        if term.kind == "variable" or scope.dot is None:
            return self.from_root(term)
        return self.path(scope.dot, term)

    def from_root(self, term: GoTerm) -> str:
        if not term.path:
            refuse(term.line, "the whole data cannot be used as a value")
        name, *_ = term.path
        if name not in ROOT:
            refuse(term.line, f"there is no .{name}", did_you_mean(name, ROOT, "There are"))
        return self.path(ROOT[name], term, 1)

    def path(self, base: str, term: GoTerm, skip: int = 0) -> str:
        for name in term.path[skip:]:
            if name not in FIELDS:
                hint = (
                    f"Of the root: write $.{name}."
                    if name in ROOT
                    else did_you_mean(name, FIELDS, "There are")
                )
                refuse(term.line, f"there is no field .{name} here", hint)
            base += f".{FIELDS[name]}"
        return base

    def called(self, term: GoTerm, scope: OllamaScope) -> str:
        values = [self.value(argument, scope) for argument in term.arguments]
        if not term.name:  # a field of something in parentheses
            return self.path(values[0], term)
        if term.name not in FUNCTIONS:
            near = difflib.get_close_matches(term.name, FUNCTIONS, 1)
            hint = f"Supported: {', '.join(FUNCTIONS)}." + (
                f" Did you mean {near[0]!r}?" if near else ""
            )
            refuse(term.line, f"the function {short_repr(term.name)} is not supported", hint)
        least, most, written = FUNCTIONS[term.name]
        if not least <= len(values) <= most:
            refuse(term.line, f"{term.name} takes {least} to {most} values, not {len(values)}")
        if term.name in BYTES and is_text(term.arguments[0]):
            written = BYTES[term.name]
        return f"({written(*values)})"


RESERVED = {
    *ROOT.values(),
    "messages",
    "given",
    "message",
    "ns",
    "loop",
    "show",
    "json",
    "round",
    "last",
    "changing",
}
RESERVED |= {
    "and",
    "or",
    "not",
    "in",
    "is",
    "if",
    "else",
    "for",
    "set",
    "true",
    "false",
    "none",
    "True",
    "False",
    "None",
    "_",
}


def is_text(term: GoTerm) -> bool:
    """Whether a term surely is text, so that it needs no thought about how it prints."""
    if term.kind == "call":
        return term.name in ("json", "currentDate")
    return term.path[-1] in TEXTS if term.path else term.kind == "constant" and term.name == "text"


def bare(value: str) -> str:
    """An expression without the parentheses around the whole of it."""
    depth = 0
    for at, character in enumerate(value if value.startswith("(") and "'" not in value else ""):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return value[1:-1] if at == len(value) - 1 else value
    return value


def said(role: str, content: str) -> str:
    return f"{{'role': {literal(role)}, 'content': {literal(content)}}}"


def merged(lines: list[str]) -> list[str]:
    """Outputs that follow each other as one."""
    found: list[str] = []
    for line in lines:
        if line.startswith("{{- ") and found and found[-1].startswith("{{- "):
            found[-1] = f"{found[-1][: -len(' -}}')]} ~ {line[len('{{- ') :]}"
        else:
            found.append(line)
    return found


def mentions(nodes: tuple[GoNode, ...], name: str) -> bool:
    def of(term: GoTerm | None) -> bool:
        return term is not None and (name in term.path or any(map(of, term.arguments)))

    return any(of(n.term) or mentions(n.body, name) or mentions(n.otherwise, name) for n in nodes)


def assigned(nodes: tuple[GoNode, ...]) -> list[str]:
    """Variables that get a second value somewhere."""
    inner = [
        name for node in nodes for part in (node.body, node.otherwise) for name in assigned(part)
    ]
    return inner + [name for node in nodes if not node.declares for name in node.names]


JSON = """\
{%- macro json(value) -%}
{{- value | tojson(separators=(',', ':')) -}}
{%- endmacro -%}
{%- macro show(value) -%}
{{- value if value is string else json(value) if value is defined and value is not none else '' -}}
{%- endmacro -%}"""
COLLATED = """\
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
CONVERSATION = """\
{%- set chat = ns.chat -%}
{%- set system = ns.systems | join('\\n\\n') -%}"""
ROUNDS = """\
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


def write(turns: Turns, *, base: str = ".", eos_token: str | None = None) -> str:
    """A Modelfile that says these turns; `eos_token` is the text of the token that ends a reply, if one does.

    The language cannot count rounds; each is written with the number of the first. A stop that its quotes cannot hold
    is left out.
    """
    eos = (eos_token or "") if turns.eos else ""
    closing = turns.reply_suffix + eos + turns.separator
    default = turns.default_system
    instruction = default if default and '"""' not in default else None
    template = "".join(
        [
            go(turns.prefix),
            system_part(turns, default if instruction is None else None),
            "{{ range $i, $_ := .Messages }}{{ $last := eq (len (slice $.Messages $i)) 1 }}",
            f'{{{{ if eq .Role "user" }}}}{around(turns.user, ".Content")}',
            f"{{{{ if $last }}}}{go(turns.generation_prompt)}{{{{ end }}}}",
            f'{{{{ else if eq .Role "assistant" }}}}{go(turns.before_reply)}{{{{ .Content }}}}',
            f"{{{{ if not $last }}}}{go(closing)}{{{{ end }}}}{{{{ end }}}}{{{{ end }}}}",
        ]
    )
    lines = [f"FROM {base}", f'TEMPLATE """{template}"""']
    if instruction is not None:
        lines.append(f'SYSTEM """{instruction}"""')
    stops = (f'"{stop}"' for stop in dict.fromkeys((*turns.stops, *filter(None, [eos]))))
    return (
        "\n".join([*lines, *(f"PARAMETER stop {stop}" for stop in stops if '"""' not in stop)])
        + "\n"
    )


def system_part(turns: Turns, default: str | None) -> str:
    """The system turn; `default` is the text of one that no message and no SYSTEM gives."""
    if turns.system is None:
        return ""
    otherwise = "" if default is None else "{{ else }}" + go(fill_slots(turns.system, 0, default))
    return f"{{{{ if .System }}}}{around(turns.system, '.System')}{otherwise}{{{{ end }}}}"


def around(text: Text, content: str) -> str:
    """A text with a hole, the hole fill_slots by what Go calls its content."""
    return "".join(
        go(part if isinstance(part, str) else fill_slots((part,), 0))
        if part != Slot("text")
        else f"{{{{ {content} }}}}"
        for part in text
    )


def go(text: str) -> str:
    """Text as Go's template language has it: as it is, or quoted where it would mean something."""
    if (
        "{{" not in text
        and '""' not in text
        and not text.startswith('"')
        and not text.endswith(('"', "{"))
    ):
        return text
    return (
        "{{ " + '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '" }}'
    )
