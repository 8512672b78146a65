"""A template becomes one Python function that appends text and trails to a list.

    {% for m in messages %}<|{{ m.role }}|>{% endfor %}

becomes, in essence,

    t1, o1, k1 = start_loop(rt, v_messages, R1, 4)
    for v1_m, o1_m in zip(t1, o1):
        t2 = v1_m['role']; o2 = (o1_m, 'role')
        out += ('<|', 0, t2, o2, '|>', 1)

jinja2's parser and its symbol tracking are used as they are, so syntax and scoping are exact; its code generator and
its constant folding are not used at all. Macros are nested functions, names of outer scopes are closures. Loops pay
for all their iterations at the start, in steps (`cost.py`).

Each part of the compiler visits some node types (`visit_For`); `CompileContext` holds the state that they share.

Not supported, and refused while compiling: `include`, `import`, `extends`, `block`, `autoescape`, `trans`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jinja2 import nodes

from turnwise.engine.compiler.branches import BranchCompiler
from turnwise.engine.compiler.calls import CallCompiler
from turnwise.engine.compiler.codegen import Line
from turnwise.engine.compiler.context import CompileContext
from turnwise.engine.compiler.loops import LoopCompiler
from turnwise.engine.compiler.macros import MacroCompiler
from turnwise.engine.compiler.operators import OperatorCompiler
from turnwise.engine.compiler.statements import StatementCompiler
from turnwise.engine.compiler.unassigned_reads import find_unassigned_reads
from turnwise.engine.compiler.values import ValueCompiler


class GeneratedCode(NamedTuple):
    """The Python source of a template, and what its execution refers to."""

    lines: list[Line]
    text_positions: list[int]  # of the texts that the template writes, by their trail
    constants: dict[str, Any]
    inputs: list[str]  # whose values the execution can use


def generate_code(
    tree: nodes.Template, shadowed: frozenset[str], marks_writers: bool = False
) -> GeneratedCode:
    """Translate a syntax tree to a Python function `run(rt, context)`.

    Args:
        tree: the template; if its branches are counted, a watched one.
        shadowed: builtin functions whose names are inputs of this template.
        marks_writers: whether the output says which expression writes each text of it.

    Raises:
        CompileError: the template uses something that is not supported.
    """
    context = CompileContext(tree, shadowed)
    values = ValueCompiler(context)
    calls = CallCompiler(context, values=values)
    statements = StatementCompiler(context, calls=calls)
    macros = MacroCompiler(context, calls)
    context.parts = [
        values,
        OperatorCompiler(context),
        calls,
        statements,
        LoopCompiler(context, statements=statements),
        macros,
        BranchCompiler(context),
    ]
    writer, variables = context.writer, context.variables
    writer.marks_writers = marks_writers
    variables.frame.symbols.analyze_node(tree)
    with writer.function("def run(rt, context):"):
        writer.line("out = []")
        variables.define_names()
        context.compile_body(tree.body)
    macros.remove_unused_values()
    context.release_parts()
    writer.lines[1:1] = [Line(text, 0) for text in variables.input_lines]
    unassigned = find_unassigned_reads(tree)
    inputs = [name for name in variables.inputs if name in unassigned]
    return GeneratedCode(writer.lines, writer.text_positions, writer.constants, inputs)
