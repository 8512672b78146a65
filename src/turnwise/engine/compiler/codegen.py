"""Lines of generated Python, and what is known at each of them.

The compiler walks jinja2's syntax tree and appends lines here. A template expression becomes a `Code`: one Python
expression for its value, one for its trail, and the kind of value it certainly has.

    {{ message.role }}   ->   t3 = v1_message['role'] if 'role' in v1_message else U1; o3 = (o1_message, 'role')
                              Code(value="t3", trail="o3", kind=Kind.ANY)

Three things make the lines fast:

* A field is read once. `message.role` stays in its variable until `message` is assigned again, or until the block ends
  in which it was read (`ReadCache`).
* Output waits in `CodeWriter.pending` until another statement has to run, so that neighbouring texts are appended by
  one statement.
* Every line carries the position in the template that it was generated for, so programs need no code for
  positions: `Program` looks a failing line up from the traceback.

Names of the template become numbered or ASCII identifiers and its texts appear only through `repr`, or not at all if
they are long, so no text of a template can become code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, NamedTuple

from jinja2 import nodes

from turnwise.engine.compiler.syntax import TemplateTooLarge
from turnwise.engine.compiler.tree import find_start
from turnwise.engine.runtime.limits import MAX_PROGRAM_CHARACTERS, MAX_PROGRAM_LINES

NO_TRAIL = "None"
MAX_INLINE_TEXT = 250  # characters; Python takes longer to read a long text than to look up a name


class Kind(Enum):
    """What is certain about a value while compiling."""

    ANY = "nothing"
    TEXT = "a str"
    LITERAL = "a str literal of the template"
    CONSTANT = "a float, bool or None literal"
    SCALAR = "a computed number, bool or None; it has no trail"
    INT = "an int, literal or computed"
    MESSAGE = "a dict: an element of `messages`"
    MESSAGES = "a list of dicts: the input `messages`"


class Code(NamedTuple):
    """A Python expression for a value, and one for its trail."""

    value: str
    trail: str = NO_TRAIL
    kind: Kind = Kind.ANY
    literal: str | int | None = None  # the value itself, of a str or int literal
    writer: str = ""  # the number of the expression that was chosen, if `marks_writers`

    @property
    def pair(self) -> str:
        return f"{self.value}, {self.trail}"

    @property
    def is_text(self) -> bool:
        return self.kind in (Kind.TEXT, Kind.LITERAL)

    @property
    def is_scalar(self) -> bool:
        return self.kind in (Kind.CONSTANT, Kind.SCALAR, Kind.INT)

    @property
    def is_literal(self) -> bool:
        return self.kind is Kind.CONSTANT or self.literal is not None


def scalar(value: str, kind: Kind = Kind.SCALAR) -> Code:
    """Return the code of a computed number, bool or None."""
    return Code(value, NO_TRAIL, kind)


def trail_of(variable: str) -> str:
    """Return the variable that holds the trail of another: `o3` for `t3`, `o1_message` for `v1_message`."""
    return "o" + variable[1:]


def join_pairs(codes: Sequence[Code]) -> str:
    """Return values and trails as the elements of a flat tuple."""
    return "".join(f"{code.pair}, " for code in codes)


class Line(NamedTuple):
    """A line of Python, and the position in the template that it was generated for."""

    text: str
    lineno: int


Reads = dict[str, dict[str, Code]]  # by owner and key


class ReadCache:
    """Lookups whose result is still in a variable, by owner and key.

    There is a scope for each open block: what a block reads is unknown after it, since it may not have run.
    """

    def __init__(self) -> None:
        self.scopes: list[Reads] = [{}]
        self.lasting: set[str] = set()  # inputs and loop items: no call can change their fields

    def recall(self, owner: str, key: str) -> Code | None:
        for scope in reversed(self.scopes):
            code = scope.get(owner, {}).get(key)
            if code is not None:
                return code
        return None

    def remember(self, owner: str, key: str, code: Code) -> None:
        self.scopes[-1].setdefault(owner, {})[key] = code

    def forget(self, variable: str) -> None:
        """Drop the reads of a variable that is assigned again."""
        for scope in self.scopes:
            scope.pop(variable, None)

    def forget_changeable(self) -> None:
        """Drop the reads that a call may have made stale by assigning to a namespace."""
        for scope in self.scopes:
            for owner in scope.keys() - self.lasting:
                del scope[owner]


class Draft(NamedTuple):
    """Lines that are not part of the program yet, and the lookups they read."""

    lines: list[Line]
    reads: Reads


class CodeWriter:
    """Writes the lines of one program.

    Owns the lines with their indentation, the numbers of temporaries, the output that waits to be appended, the
    lookups that are cached, and the constants that all runs of the program share.
    """

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.line_count = 0  # of all lines, also those that are not part of the program yet
        self.size = 0  # their characters
        self.lineno = 0  # of the node that is being compiled
        self.indent = 0
        self.temporaries = 0
        self.text_positions: list[int] = []  # of each text of the template; the index is its trail
        self.constants: dict[str, Any] = {}
        self.reads = ReadCache()
        self.out = "out"  # the list that receives the output
        self.pending: list[Code] = []
        self.marks_writers = False  # the output says which expression writes each text of it

    def line(self, text: str) -> None:
        self.line_count += 1
        self.size += len(text)
        if self.line_count > MAX_PROGRAM_LINES or self.size > MAX_PROGRAM_CHARACTERS:
            raise TemplateTooLarge("too many lines of Python to run it", self.lineno)
        self.lines.append(Line("    " * self.indent + text, self.lineno))

    def temporary(self, prefix: str = "t") -> str:
        self.temporaries += 1
        return f"{prefix}{self.temporaries}"

    def add_text_position(self, lineno: int) -> str:
        """Return the trail of a template text at this position."""
        self.text_positions.append(lineno)
        return str(len(self.text_positions) - 1)

    def share_constant(self, prefix: str, value: Any) -> str:
        """Return the name of a value that is created once, with the program."""
        name = f"{prefix}{len(self.constants)}"
        self.constants[name] = value
        return name

    def quote(self, text: str) -> str:
        """Return the Python expression for a text of the template."""
        if len(text) <= MAX_INLINE_TEXT:
            return repr(text)
        return self.share_constant("K", text)

    # ---- blocks ----

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.flush()
        self.line(head)
        self.indent += 1
        self.reads.scopes.append({})
        start = len(self.lines)
        yield
        self.flush()
        if len(self.lines) == start:
            self.line("pass")
        self.reads.scopes.pop()
        self.indent -= 1

    @contextmanager
    def function(self, head: str) -> Iterator[None]:
        """Write a function that returns its output; it runs later, so no outer read is valid in it."""
        outer_scopes, self.reads.scopes = self.reads.scopes, [{}]
        with self.redirect_output("out"), self.block(head):
            yield
            self.flush()
            self.line("return out")
        self.reads.scopes = outer_scopes

    @contextmanager
    def draft(self) -> Iterator[Draft]:
        """Collect the lines of a block that may turn out to be unnecessary; `adopt` writes them."""
        self.flush()
        outer_lines, self.lines = self.lines, []
        self.indent += 1
        self.reads.scopes.append({})
        yield Draft(self.lines, self.reads.scopes[-1])
        self.reads.scopes.pop()
        self.indent -= 1
        self.lines = outer_lines

    def adopt(self, draft: Draft) -> None:
        """Write the lines of a draft; what it reads was read in this block."""
        self.lines += draft.lines
        for owner, codes in draft.reads.items():
            self.reads.scopes[-1].setdefault(owner, {}).update(codes)

    # ---- variables ----

    def name_value(self, code: Code) -> Code:
        """Return the code with a value that is free to repeat: a variable, a str or a constant."""
        if code.value.isidentifier() or code.kind in (Kind.CONSTANT, Kind.LITERAL):
            return code
        return self._assign(code, code.kind)

    def store_value(self, code: Code) -> Code:
        """Return the code with its value in a variable, even if it is a literal.

        Python warns about operations that make no sense on literals, such as `'a'.__class__ is dict`.
        """
        if code.kind is Kind.CONSTANT:
            return self._assign(code, Kind.ANY)
        if code.value.isidentifier():
            return code
        return self._assign(code, Kind.TEXT if code.is_text else code.kind)

    def _assign(self, code: Code, kind: Kind) -> Code:
        name = self.temporary()
        self.line(f"{name} = {code.value}")
        return Code(name, code.trail, kind)

    def store_pair(self, call: str, kind: Kind = Kind.ANY) -> Code:
        """Write the call of a function that returns a value and its trail."""
        result = self.new_pair(kind)
        self.line(f"{result.pair} = {call}")
        return result

    def new_pair(self, kind: Kind = Kind.ANY) -> Code:
        """Return new variables for a value and its trail."""
        name = self.temporary()
        return Code(name, trail_of(name), kind)

    # ---- output ----

    @contextmanager
    def redirect_output(self, out: str) -> Iterator[None]:
        """Append the output of these lines to another list."""
        self.flush()
        outer_out, self.out = self.out, out
        yield
        self.out = outer_out

    def queue_output(self, code: Code, node: nodes.Node) -> None:
        """Output the value of a node with its neighbours; a value that is no text is converted there."""
        if code.is_scalar:
            code = Code(f"str({code.value})", code.trail, Kind.TEXT)
        code = code if code.is_text else self.name_value(code)
        if code.kind is not Kind.LITERAL:
            self.mark_writer("WRITER", node, code.writer)
        self.pending.append(code)

    def mark_writer(self, mark: str, node: nodes.Node, writer: str = "") -> None:
        """Note in the output, if that is wanted, which expression writes what follows."""
        if self.marks_writers:
            self.emit_marker(f"({mark}, {writer or self.number_writer(node)})")

    def mark_value(self, code: Code, node: nodes.Node) -> Code:
        """Return the code of a value that is kept; what writes it later writes what this expression made."""
        if not self.marks_writers or code.is_literal:
            return code
        code = self.name_value(code)
        writer = code.writer or self.number_writer(node)
        marked = f"(JOINED, ('', (WRITER, {writer}), {code.pair}))"
        return code._replace(trail=f"({marked} if {code.value}.__class__ is str else {code.trail})")

    def number_writer(self, node: nodes.Node) -> str:
        """Return the number of an expression in marks."""
        return self.add_text_position(find_start(node))

    def output_call(self, call: str, node: nodes.Node) -> None:
        """Output what the call of a macro writes."""
        self.mark_writer("CALL", node)
        self.flush()
        self.line(f"{self.out} += {call}")
        if self.marks_writers:
            self.emit_marker("RETURN")

    def emit_marker(self, trail: str) -> None:
        """Note in the output what is rendered from here on: an empty text with a special trail."""
        self.pending.append(Code("''", trail, Kind.TEXT))

    def flush(self) -> None:
        """Write the output that waits: before any line that may run more or less often than it."""
        if not self.pending:
            return
        codes, self.pending = self.pending, []
        condition = text_condition(codes)
        parts = join_pairs(codes)
        if not condition:
            self.line(f"{self.out} += ({parts})")
        else:
            self.line(f"if {condition}: {self.out} += ({parts})")
            self.line(f"else: {self.out} += to_texts(rt, ({parts}))")


def text_condition(codes: Sequence[Code]) -> str:
    """Return the condition under which all of the values are text; empty if they certainly are."""
    names = dict.fromkeys(code.value for code in codes if not code.is_text)
    return " and ".join(f"{name}.__class__ is str" for name in names)
