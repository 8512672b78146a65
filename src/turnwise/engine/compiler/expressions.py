"""Expressions: jinja2's tree to Python, a value and its trail at a time.

`code(node)` writes the lines that an expression needs and returns a `Code`: two small Python expressions, for the
value and for its trail. With `trail=False` (conditions, comparisons) nothing is spent on trails. What is frequent and
cheap is written as plain Python (a field of a dict, a comparison with a constant, a test); everything else is a call
into the runtime.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

from jinja2 import nodes

from turnwise.engine.compiler.codegen import Code, Known, Writer
from turnwise.engine.compiler.scopes import Fault, Frame, KnownMacro, LoopNames
from turnwise.engine.compiler.syntax import operands
from turnwise.engine.runtime.filters import FILTERS, WITHHELD
from turnwise.engine.runtime.methods import METHODS
from turnwise.engine.runtime.operations import SHORT
from turnwise.engine.runtime.tests import INLINE, TESTS
from turnwise.engine.runtime.values import Undefined
from turnwise.errors import did_you_mean

COMPARISONS = {"eq": "==", "ne": "!="}
ORDERINGS = {"lt": "<", "lteq": "<=", "gt": ">", "gteq": ">="}
CONSTANT = (str, int, float, bool, type(None))
CUTS = {"strip": "STRIPPED", "lstrip": "LSTRIPPED", "rstrip": "RSTRIPPED", "split": "SPLIT"}
SIGNS: dict[type, str] = {nodes.Sub: "-", nodes.Mod: "%", nodes.FloorDiv: "//"}
QUICK = ("startswith", "endswith")  # cost no more than their argument is long
COUNT = 1 << 40
TEXTUAL = {
    "capitalize",
    "center",
    "format",
    "indent",
    "join",
    "lower",
    "replace",
    "string",
    "title",
    "tojson",
    "trim",
    "upper",
}


class Expressions(Writer):
    """The half of the compiler that knows expressions."""

    def __init__(self) -> None:
        super().__init__()
        self.loop_names: dict[str, LoopNames] = {}
        self.identifiers: dict[str, str] = {}
        self.namespaces: set[str] = set()
        self.macros: dict[str, KnownMacro] = {}
        self.loaded: set[str] = set()  # names whose value is used
        self.kinds: dict[str, str] = {}  # what a variable certainly holds
        self.trails: dict[str, str] = {}  # variables whose trail never changes: inputs
        self.functions: dict[
            str, str
        ] = {}  # variables that are builtin functions, and what to call for them

    # ---- names ----

    def identifier(self, reference: str) -> str:
        """The Python name for jinja2's name of a variable."""
        if reference not in self.identifiers:
            ascii_name = reference if reference.isascii() else f"l_{len(self.identifiers)}_"
            self.identifiers[reference] = ascii_name.replace("l_", "v", 1)
        return self.identifiers[reference]

    def reference(self, name: str, frame: Frame) -> str:
        """The variable that a name of the template means here."""
        return frame.symbols.owner(name).inputs.get(name) or self.identifier(
            frame.symbols.ref(name)
        )

    def variable(self, name: str, frame: Frame) -> Code:
        found = self.reference(name, frame)
        return Code(found, self.trails.get(found, f"o{found[1:]}"), self.kinds.get(found, ""))

    # ---- entry ----

    def code(self, node: nodes.Node, frame: Frame, trail: bool = True) -> Code:
        self.here = node.lineno or self.here
        write: Callable[..., Code] | None = getattr(self, f"on_{type(node).__name__}", None)
        if write is None:
            raise Fault(f"{type(node).__name__} is not part of chat templates", node.lineno)
        return write(node, frame, trail)

    def condition(self, node: nodes.Node, frame: Frame) -> str:
        return self.code(node, frame, trail=False).value

    def named(self, code: Code) -> Code:
        """The same value behind a plain name, so that it can be said twice."""
        if code.value.isidentifier() or code.kind in ("constant", "literal"):
            return code
        name = self.temporary()
        self.line(f"{name} = {code.value}")
        return Code(name, code.trail, code.kind)

    def held(self, code: Code) -> Code:
        """The same value in a variable, even if it is a literal: Python warns of what some of them are asked."""
        if code.value.isidentifier() and code.kind != "constant":
            return code
        name = self.temporary()
        self.line(f"{name} = {code.value}")
        return Code(
            name,
            code.trail,
            "text" if code.kind == "literal" else code.kind if code.kind != "constant" else "",
        )

    def pair(self, call: str, kind: str = "") -> Code:
        value = self.temporary()
        trail = f"o{value[1:]}"
        self.line(f"{value}, {trail} = {call}")
        return Code(value, trail, kind)

    # ---- constants and containers ----

    def on_Const(self, node: nodes.Const, frame: Frame, trail: bool) -> Code:
        return self.constant(node.value, node.lineno)

    def on_TemplateData(self, node: nodes.TemplateData, frame: Frame, trail: bool) -> Code:
        return self.constant(node.data, node.lineno)

    def constant(self, value: Any, lineno: int) -> Code:
        if isinstance(value, str):
            if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
                raise Fault("half of a surrogate pair cannot be written as UTF-8", lineno)
            return Code(repr(value), self.node(lineno), "literal")
        if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
            return Code(f"float({str(value)!r})", self.node(lineno), "constant")
        kind = "whole" if type(value) is int else "constant"
        return Code(repr(value) if kind == "constant" else f"({value!r})", self.node(lineno), kind)

    def on_List(self, node: nodes.List, frame: Frame, trail: bool) -> Code:
        return self.sequence(node.items, frame, trail, "[{}]")

    def on_Tuple(self, node: nodes.Tuple, frame: Frame, trail: bool) -> Code:
        return self.sequence(node.items, frame, trail, "({},)" if node.items else "()")

    def sequence(self, items: Sequence[nodes.Expr], frame: Frame, trail: bool, form: str) -> Code:
        codes = [self.code(item, frame, trail) for item in items]
        if not codes:
            return Code(form.format("") if form == "[{}]" else form)
        trails = f"(ITEMS, ({', '.join(code.trail for code in codes)},))" if trail else "None"
        return Code(form.format(", ".join(code.value for code in codes)), trails)

    def on_Dict(self, node: nodes.Dict, frame: Frame, trail: bool) -> Code:
        values, trails, keys = [], [], []
        for entry in node.items:
            key = self.named(self.code(entry.key, frame))
            if key.kind not in ("literal", "constant", "whole", "text"):
                key = self.held(Code(f"hashable(rt, {key.value})", key.trail))
            value = self.code(entry.value, frame, trail)
            values.append(f"{key.value}: {value.value}")
            trails.append(f"{key.value}: {value.trail}")
            keys.append(f"{key.value}: {key.trail}")
        if not values:
            return Code("{}")
        made = f"(ITEMS, {{{', '.join(trails)}}}, {{{', '.join(keys)}}})" if trail else "None"
        return Code(f"{{{', '.join(values)}}}", made)

    # ---- names and fields ----

    def on_Name(self, node: nodes.Name, frame: Frame, trail: bool) -> Code:
        self.loaded.add(node.name)
        return self.variable(node.name, frame)

    def on_Getattr(self, node: nodes.Getattr, frame: Frame, trail: bool) -> Code:
        loop = self.loop_of(node.node, frame)
        if loop is not None and node.attr in loop.attributes:
            return Code(
                loop.attributes[node.attr],
                "None",
                "fact" if node.attr in ("first", "last") else "whole",
            )
        if loop is not None and node.attr in loop.neighbours:
            return self.pair(loop.neighbours[node.attr])
        owner = self.held(self.code(node.node, frame))
        self.here = node.lineno
        if self.changeable(node.node):
            inside = (
                f"{owner.value}.__class__ is Namespace and {node.attr!r} in {owner.value}.pairs"
            )
            call = f"attribute(rt, {owner.value}, {owner.trail}, {node.attr!r})"
            return self.pair(f"{owner.value}.pairs[{node.attr!r}] if {inside} else {call}")
        if node.attr in METHODS[dict]:
            return self.pair(f"attribute(rt, {owner.value}, {owner.trail}, {node.attr!r})")
        return self.field(owner, node.attr, "attribute", trail)

    def loop_of(self, node: nodes.Expr, frame: Frame) -> LoopNames | None:
        if isinstance(node, nodes.Name) and node.name == "loop" and frame.symbols.find_ref("loop"):
            return self.loop_names.get(self.reference("loop", frame))
        return None

    def changeable(self, node: nodes.Expr) -> bool:
        """A name that is a namespace somewhere in this template."""
        return isinstance(node, nodes.Name) and node.name in self.namespaces

    def field(self, owner: Code, name: str, otherwise: str, trail: bool) -> Code:
        """`owner.name` of a dict, inline; whatever else it is, by a call."""
        key = repr(name)
        certain = owner.kind == "message"
        undefined = Undefined(
            f"'dict object' has no attribute {name!r}", owner=owner.value, key=name
        )
        read = f"{owner.value}[{key}] if {key} in {owner.value} else {self.shared('U', undefined)}"
        call = f"{otherwise}(rt, {owner.value}, {owner.trail}, {key})"
        return self.read_once(
            owner, key, "" if certain else f"{owner.value}.__class__ is dict", read, call, trail
        )

    def element(self, owner: Code, index: Code, trail: bool) -> Code:
        """`owner[index]` of a list, inline; whatever else it is, by a call."""
        number = index.value
        fits = f"{number} < len({owner.value})"
        if number.startswith("(-") and number.strip("()-").isdigit():
            fits = f"len({owner.value}) >= {number.strip('()-')}"
        elif not number.strip("()").isdigit():
            fits = f"-len({owner.value}) <= {fits}"
        if owner.kind != "messages":
            fits = f"{owner.value}.__class__ is list and {fits}"
        call = f"item(rt, {owner.value}, {owner.trail}, {number})"
        lasting = number.strip("()-").isdigit()
        name = number if lasting else f"{number}?{self.temporaries}"
        return self.read_once(owner, name, fits, f"{owner.value}[{number}]", call, trail)

    def read_once(
        self, owner: Code, key: str, fits: str, read: str, call: str, trail: bool
    ) -> Code:
        """A read that stays available until its owner is bound again."""
        known = self.recall(owner.value, key)
        index = key.split("?")[0]
        if (
            index.startswith("(") and not index.strip("()").isdigit()
        ):  # a trail counts from the front
            index = f"{index} % len({owner.value})"
        place = f"({owner.trail}, {index})"
        if known is None:
            value = self.temporary()
            known = Known(value, f"o{value[1:]}" if trail else None)
            if not fits:
                self.line(f"{value} = {read}" + (f"; {known.trail} = {place}" if trail else ""))
            elif not trail:
                self.line(f"{value} = ({read}) if {fits} else {call}[0]")
            else:
                self.line(f"if {fits}: {value} = {read}; {known.trail} = {place}")
                self.line(f"else: {value}, {known.trail} = {call}")
            self.remember(owner.value, key, known)
        elif trail and known.trail is None:
            known = Known(known.value, self.temporary("o"))
            self.line(f"{known.trail} = {place}" + (f" if {fits} else {call}[1]" if fits else ""))
            self.remember(owner.value, key, known)
        return Code(
            known.value,
            known.trail or "None",
            "message" if owner.kind == "messages" and not fits else "",
        )

    def on_Getitem(self, node: nodes.Getitem, frame: Frame, trail: bool) -> Code:
        owner = self.held(self.code(node.node, frame))
        if isinstance(node.arg, nodes.Slice):
            parts = (node.arg.start, node.arg.stop, node.arg.step)
            bounds = [
                self.code(part, frame, False).value if part is not None else "None"
                for part in parts
            ]
            return self.pair(f"part(rt, {owner.value}, {owner.trail}, {', '.join(bounds)})")
        key = self.code(node.arg, frame, False)
        self.here = node.lineno
        if key.kind == "literal" and not self.changeable(node.node):
            name = ast.literal_eval(key.value)
            if name not in METHODS[dict]:
                return self.field(owner, name, "item", trail)
        if key.kind == "whole":
            number = key.value.strip("()-").isdigit()
            code = self.element(
                owner, self.named(key) if "len" in key.value else key, trail or frame.counting
            )
        else:
            number = key.kind in ("literal", "constant")
            code = self.pair(f"item(rt, {owner.value}, {owner.trail}, {key.value})")
        if frame.counting and not number:  # a loop over numbers takes its messages like this
            self.bound(code.trail)
        return code

    def bound(self, trail: str) -> None:
        """Note, in the output, that an element was taken."""

    def on_Slice(self, node: nodes.Slice, frame: Frame, trail: bool) -> Code:
        raise Fault("a slice stands only between brackets", node.lineno)

    def on_NSRef(self, node: nodes.NSRef, frame: Frame, trail: bool) -> Code:
        raise Fault("a namespace attribute is assigned with {% set %}", node.lineno)

    # ---- logic ----

    def on_Not(self, node: nodes.Not, frame: Frame, trail: bool) -> Code:
        return Code(f"(not {self.condition(node.node, frame)})", "None", "fact")

    def on_And(self, node: nodes.And, frame: Frame, trail: bool) -> Code:
        return self.either(node, frame, trail, "and", "if {}:")

    def on_Or(self, node: nodes.Or, frame: Frame, trail: bool) -> Code:
        return self.either(node, frame, trail, "or", "if not {}:")

    def either(self, node: nodes.BinExpr, frame: Frame, trail: bool, word: str, test: str) -> Code:
        """`a and b`, `a or b`: the right side runs only if the left one does not decide."""
        left = self.code(node.left, frame, trail)
        value, source = self.temporary(), f"o{self.temporaries}"
        self.flush()
        mark = len(self.lines)
        self.line(f"{value} = {left.value}")
        if trail:
            self.line(f"{source} = {left.trail}")
        with self.block(test.format(value)):
            start = len(self.lines)
            right = self.code(node.right, frame, trail)
            simple = len(self.lines) == start and not trail
            self.line(f"{value} = {right.value}")
            if trail:
                self.line(f"{source} = {right.trail}")
        if simple:  # the right side needed no lines of its own: one expression says it all
            del self.lines[mark:], self.places[mark:]
            return Code(f"({left.value} {word} {right.value})", "None", "fact")
        return Code(value, source if trail else "None")

    def on_CondExpr(self, node: nodes.CondExpr, frame: Frame, trail: bool) -> Code:
        test = self.condition(node.test, frame)
        value, source = self.temporary(), f"o{self.temporaries}"
        soft = frame.softened()
        for head, branch in ((f"if {test}:", node.expr1), ("else:", node.expr2)):
            with self.block(head):
                if branch is None:
                    message = "the inline if-expression evaluated to false and no else section was defined."
                    code = Code(f"Undefined({message!r})")
                else:
                    code = self.code(branch, soft, trail)
                self.line(f"{value} = {code.value}")
                if trail:
                    self.line(f"{source} = {code.trail}")
        return Code(value, source if trail else "None")

    def on_Compare(self, node: nodes.Compare, frame: Frame, trail: bool) -> Code:
        left, left_node = self.code(node.expr, frame, False), node.expr
        if len(node.ops) == 1:
            return self.comparison(left, left_node, node.ops[0], frame)
        value = self.temporary()
        self.line(f"{value} = True")
        self.flush()
        for operand in node.ops:
            self.line(
                f"if {value}:"
            )  # a chain: the next comparison runs only while the ones before hold
            self.indent += 1
            self.available.append({})
            result = self.comparison(left, left_node, operand, frame)
            self.line(f"{value} = {result.value}")
            left, left_node = self.last_operand, operand.expr
        for _ in node.ops:
            self.available.pop()
            self.indent -= 1
        return Code(value, "None", "fact")

    def comparison(
        self, left: Code, left_node: nodes.Expr, operand: nodes.Operand, frame: Frame
    ) -> Code:
        right = self.code(operand.expr, frame, False)
        self.last_operand = right = self.named(right) if not constant(operand.expr) else right
        constants = constant(left_node) or constant(operand.expr)
        if operand.op in COMPARISONS and (constants or {left.kind, right.kind} & {"whole", "fact"}):
            return Code(f"({left.value} {COMPARISONS[operand.op]} {right.value})", "None", "fact")
        if operand.op in COMPARISONS:
            negation = "not " if operand.op == "ne" else ""
            return Code(f"({negation}equal(rt, {left.value}, {right.value}))", "None", "fact")
        if operand.op in ORDERINGS and "whole" in (left.kind, right.kind):
            order = f"{left.value} {ORDERINGS[operand.op]} {right.value}"
            unsure = next((code.value for code in (left, right) if code.kind != "whole"), None)
            if unsure is None:
                return Code(f"({order})", "None", "fact")
            if unsure.isidentifier():
                call = f"compared(rt, {operand.op!r}, {left.value}, {right.value})"
                return Code(f"({order} if {unsure}.__class__ is int else {call})", "None", "fact")
        if operand.op in ("in", "notin"):
            test = f"contained(rt, {left.value}, {right.value})"
            if (
                left.kind == "literal" and right.value.isidentifier()
            ):  # a short search is cheaper than charging for it
                kind = f"{right.value}.__class__"
                short = f"{kind} is dict or {kind} is str and len({right.value}) < {SHORT}"
                inside = f"{left.value} in {right.value}"
                test = (
                    f"({inside})"
                    if right.kind == "message"
                    else f"({inside} if {short} else {test})"
                )
            elif isinstance(operand.expr, (nodes.List, nodes.Tuple)) and all(
                map(constant, operand.expr.items)
            ):
                test = f"({left.value} in {right.value})"
            return Code(f"(not {test})" if operand.op == "notin" else test, "None", "fact")
        return Code(f"compared(rt, {operand.op!r}, {left.value}, {right.value})", "None", "fact")

    # ---- operators ----

    def on_Add(self, node: nodes.Add, frame: Frame, trail: bool) -> Code:
        codes = [self.code(part, frame) for part in operands(node)]
        self.here = node.lineno
        if all(code.kind == "whole" for code in codes):
            return Code(f"({' + '.join(code.value for code in codes)})", "None", "whole")
        if len(codes) == 2 and codes[1].kind == "whole":
            return self.counted(
                self.held(codes[0]), "+", codes[1], f"added(rt, ({spelled(codes)}))"
            )
        return self.pair(f"added(rt, ({spelled(codes)}))")

    def counted(self, left: Code, sign: str, right: Code, call: str) -> Code:
        """A counter and a number, inline while the counter is one; a counter stays small."""
        result = self.temporary()
        fits = f"{left.value}.__class__ is int and -{COUNT} < {left.value} < {COUNT}"
        self.line(f"if {fits}: {result} = {left.value} {sign} {right.value}; o{result[1:]} = None")
        self.line(f"else: {result}, o{result[1:]} = {call}")
        return Code(result, f"o{result[1:]}")

    def on_Concat(self, node: nodes.Concat, frame: Frame, trail: bool) -> Code:
        codes = [self.code(part, frame) for part in node.nodes]
        return self.pair(f"concatenated(rt, ({spelled(codes)}))", "text")

    def binary(self, node: nodes.BinExpr, frame: Frame, trail: bool) -> Code:
        left, right = self.code(node.left, frame), self.code(node.right, frame)
        self.here = node.lineno
        if isinstance(node, nodes.Sub) and left.kind == right.kind == "whole":
            return Code(f"({left.value} - {right.value})", "None", "whole")
        call = f"do_{type(node).__name__}(rt, {left.value}, {left.trail}, {right.value}, {right.trail})"
        if type(node) in SIGNS and right.kind == "whole" and right.value != "(0)":
            left = self.held(left)
            call = f"do_{type(node).__name__}(rt, {left.value}, {left.trail}, {right.value}, {right.trail})"
            return self.counted(left, SIGNS[type(node)], right, call)
        return self.pair(call)

    on_Sub = on_Mul = on_Div = on_FloorDiv = on_Mod = on_Pow = binary

    def on_Neg(self, node: nodes.Neg, frame: Frame, trail: bool) -> Code:
        if isinstance(node.node, nodes.Const) and type(node.node.value) in (int, float):
            return self.constant(-node.node.value, node.lineno)
        return Code(f"signed({self.code(node.node, frame, False).value}, True)", "None", "fact")

    def on_Pos(self, node: nodes.Pos, frame: Frame, trail: bool) -> Code:
        return Code(f"signed({self.code(node.node, frame, False).value}, False)", "None", "fact")

    # ---- filters, tests, calls ----

    def on_Filter(self, node: nodes.Filter, frame: Frame, trail: bool) -> Code:
        if node.node is None:
            raise Fault("a filter needs a value", node.lineno)
        return self.filtered(node, self.code(node.node, frame), frame)

    def filtered(self, node: nodes.Filter, value: Code, frame: Frame) -> Code:
        if node.name not in FILTERS:
            return self.unknown(node, "filter", FILTERS, WITHHELD.get(node.name), frame)
        if node.name == "length" and not node.args and not node.kwargs:
            value = self.held(value)
            fits = f"{value.value}.__class__ is list or {value.value}.__class__ is str"
            size = f"len({value.value})" if value.kind == "messages" else ""
            return Code(
                size or f"(len({value.value}) if {fits} else length(rt, {value.value}, None)[0])",
                "None",
                "whole",
            )
        _, arguments = self.arguments(node, frame)
        self.here = node.lineno
        kind = "text" if node.name in TEXTUAL else ""
        if node.name == "trim" and not arguments:
            return self.quick_text(
                value, "strip()", "STRIPPED", f"filter_trim(rt, {value.value}, {value.trail})", kind
            )
        if node.name == "tojson":  # its punctuation is text of the template, at this place
            arguments += f", node={self.node(node.lineno)}"
        return self.pair(f"filter_{node.name}(rt, {value.value}, {value.trail}{arguments})", kind)

    def on_Test(self, node: nodes.Test, frame: Frame, trail: bool) -> Code:
        if node.name in ("filter", "test"):
            names = FILTERS if node.name == "filter" else TESTS
            return Code(f"({self.condition(node.node, frame)} in {tuple(names)!r})", "None", "fact")
        if node.name not in TESTS:
            return self.unknown(node, "test", TESTS, None, frame)
        value = self.code(node.node, frame, False)
        if node.name in INLINE and not node.args:
            name = self.held(value).value
            return Code(f"({INLINE[node.name].format(name)})", "None", "fact")
        arguments = "".join(
            f", {self.code(argument, frame, False).value}" for argument in node.args or ()
        )
        return Code(f"tests[{node.name!r}](rt, {value.value}{arguments})", "None", "fact")

    def unknown(self, node: Any, what: str, table: Any, reason: str | None, frame: Frame) -> Code:
        message = f"No {what} named {node.name!r}" + (f": {reason}" if reason else "")
        hint = (
            did_you_mean(node.name, table, f"there is no such {what}; known")
            if not reason
            else None
        )
        if not frame.soft:
            raise Fault(message, node.lineno, hint)
        self.line(f"raise Failure({message!r}, {hint!r})")
        return Code("None")

    def on_Call(self, node: nodes.Call, frame: Frame, trail: bool) -> Code:
        direct = self.direct_call(node, frame)
        if direct is not None:
            result = self.pair(f"captured(rt, {direct})", "text")
            self.forget_changeable()
            return result
        if isinstance(node.node, nodes.Getattr) and self.loop_of(node.node.node, frame) is None:
            owner = self.held(self.code(node.node.node, frame))
            return self.method_call(owner, node.node.attr, node, frame)
        callee = self.code(node.node, frame)
        _, arguments = self.arguments(node, frame)
        self.here = node.lineno
        if callee.value in self.functions:
            return self.pair(f"{self.functions[callee.value]}(rt{arguments})")
        result = self.pair(f"call(rt, {callee.value}, {callee.trail}{arguments})")
        self.forget_changeable()
        return result

    def direct_call(self, node: nodes.Call, frame: Frame) -> str | None:
        """A call of a macro that can only be one: its function, with its arguments in their places."""
        if (
            not isinstance(node.node, nodes.Name)
            or node.dyn_args is not None
            or node.dyn_kwargs is not None
        ):
            return None
        known = self.macros.get(node.node.name)
        if known is None or self.reference(node.node.name, frame) != known.variable:
            return None
        given = dict(zip(known.arguments, node.args, strict=False)) | {
            word.key: word.value for word in node.kwargs
        }
        if len(given) != len(node.args) + len(node.kwargs) or not set(given) <= set(
            known.arguments
        ):
            return None
        pairs = []
        for argument in known.arguments:
            code = self.code(given[argument], frame) if argument in given else None
            pairs.append(f"({code.value}, {code.trail})" if code else "ABSENT")
        self.here = node.lineno
        return f"{known.function}({', '.join(pairs)})"

    def method_call(self, owner: Code, name: str, node: nodes.Call, frame: Frame) -> Code:
        codes, arguments = self.arguments(node, frame)
        self.here = node.node.lineno
        call = f"method(rt, {owner.value}, {owner.trail}, {name!r}{arguments})"
        fits = f"{owner.value}.__class__ is str"
        words = [code.value for code in codes if code.kind == "literal"]
        simple = node.dyn_args is None and node.dyn_kwargs is None and not node.kwargs
        if simple and name in QUICK and len(codes) == len(words) == 1:
            return Code(
                f"({owner.value}.{name}({words[0]}) if {fits} else {call}[0])", "None", "fact"
            )
        if simple and name == "get" and len(codes) in (1, 2) and codes[0].kind == "literal":
            return self.get(owner, words[0], codes[1] if len(codes) == 2 else Code("None"), call)
        cuts = simple and name in CUTS and len(codes) == len(words) < 2 and words != ["''"]
        if cuts and (words or name != "split"):
            return self.quick_text(owner, f"{name}({''.join(words)})", CUTS[name], call, "")
        if name in METHODS[str] and name not in METHODS[dict]:
            return self.pair(
                f"str_{name}(rt, {owner.value}, {owner.trail}{arguments}) if {fits} else {call}"
            )
        return self.pair(call)

    def quick_text(self, owner: Code, operation: str, rule: str, call: str, kind: str) -> Code:
        """A cut of a short text, inline; a longer one is charged for by the call."""
        owner = self.held(owner)
        value = self.temporary()
        trail = f"o{value[1:]}"
        fits = f"{owner.value}.__class__ is str and len({owner.value}) < {SHORT if rule != 'SPLIT' else SHORT // 16}"
        parts = f", {value}" if rule == "SPLIT" else ""
        self.line(
            f"if {fits}: {value} = {owner.value}.{operation}; {trail} = ({rule}, {owner.value}, {owner.trail}{parts})"
        )
        self.line(f"else: {value}, {trail} = {call}")
        return Code(value, trail, kind)

    def get(self, owner: Code, key: str, default: Code, call: str) -> Code:
        """`mapping.get("key", default)`"""
        found = f"({owner.value}[{key}], ({owner.trail}, {key})) if {key} in {owner.value}"
        return self.pair(
            f"({found} else ({default.value}, {default.trail})) if {owner.value}.__class__ is dict else {call}"
        )

    def arguments(self, node: Any, frame: Frame) -> tuple[list[Code], str]:
        """The positional arguments, and all of them spelled: `, (value, trail), *more, name=(value, trail), **more`."""
        codes = [self.code(argument, frame) for argument in node.args or ()]
        parts = [f", ({code.value}, {code.trail})" for code in codes]
        if node.dyn_args is not None:
            code = self.code(node.dyn_args, frame)
            parts.append(f", *spread(rt, {code.value}, {code.trail})")
        keywords = []
        for keyword in node.kwargs or ():
            code = self.code(keyword.value, frame)
            keywords.append(f"{keyword.key!r}: ({code.value}, {code.trail})")
        if keywords:
            parts.append(f", **{{{', '.join(keywords)}}}")
        if node.dyn_kwargs is not None:
            code = self.code(node.dyn_kwargs, frame)
            parts.append(f", **spread_keywords(rt, {code.value}, {code.trail})")
        return codes, "".join(parts)


def constant(node: nodes.Expr) -> bool:
    """A literal whose comparison costs no more than the literal is long."""
    return isinstance(node, nodes.Const) and isinstance(node.value, CONSTANT)


def is_text(node: nodes.Node) -> TypeGuard[nodes.Const]:
    return isinstance(node, nodes.Const) and isinstance(node.value, str)


def spelled(codes: Sequence[Code]) -> str:
    """Values and trails, flat."""
    return "".join(f"{code.value}, {code.trail}, " for code in codes)
