"""Run a program with messages that record every question about them.

The run is cut into *sections* (`facts.py`) where a loop takes the next message. What a section asked and wrote becomes
a path of a tree. State between sections is in namespaces only: `S` has what earlier sections wrote to them, and a
section that reads an attribute records its type, or its value.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import CodeType
from typing import Any

from turnwise.engine.provenance.trails import Trail
from turnwise.engine.provenance.written_fields import find_written_tools
from turnwise.engine.runtime.limits import Runtime
from turnwise.engine.runtime.measures import ELEMENT_BYTES
from turnwise.engine.runtime.values import Pair
from turnwise.engine.segments.facts import (
    HELPERS,
    Constants,
    FactTree,
    LoopOverMessages,
    ProvenSegment,
    make_loop,
)
from turnwise.engine.segments.prices import find_price
from turnwise.engine.segments.sources import (
    HAS_WORDS,
    KEY_PATH,
    UNTRACED,
    write_fields,
    write_lists,
    write_origins,
)
from turnwise.engine.segments.symbols import (
    CHARACTER,
    MAX_LIST,
    MAX_PARTS,
    MessageField,
    NotRecordable,
    Parts,
    StateTrail,
    TextSlot,
    UnknownFloat,
    UnknownList,
    UnknownMapping,
    UnknownMessages,
    UnknownNumber,
    UnknownText,
    check_length,
    is_local,
    join_parts,
    number_namespace,
    refuse,
)

MAX_ANSWER = 200  # characters of a role, or of all keys of a mapping
MAX_LOOPS = 24  # over messages, one after another; each has trees of its own
MAX_PATH = 120  # questions of one section
NAMED_FIELDS = frozenset(["role", "type"])  # fields with few values: they are known, once read
IS_OF_SECTION = re.compile(r"\b[jw]\b|\bS\[|\bBrr\d")
IS_OF_ROUND = re.compile(r"\b[im]\b|\bBr\d")
CAPTURE = re.compile(r"out\d+")  # a list of texts that are not yet written
MAX_SECTIONS = 1_500  # of a recording: rounds in rounds take long
CONTENT = "['content']"
# The way from a message to a mapping of which every row of a form has the same keys, and kinds of values.
OF_FORM = re.compile(r"(?:\['tool_calls'\]\[\d+\])?(?:\['function'\])?")
# What is asked first of a field that nearly every message has.
USUAL_FIELDS = {**dict.fromkeys(NAMED_FIELDS, "{}.__class__ is str"), "content": HAS_WORDS}
OF_STATE = "S["
Answers = dict[str, Any]  # by questions
Resolved = list[str | TextSlot | None]  # parts of a text; None for a slot that is no field


class Recorder:
    """One run of a program.

    Args:
        entry: the section with which the program begins.
        constants: the texts of the template that were named before.
    """

    def __init__(self, entry: FactTree, constants: Constants) -> None:
        self.depth = 0  # of rounds in rounds
        self.learned = 0  # leaves
        self.questions = 0  # on the paths to them
        self._loops = 0  # over messages
        self._loop: LoopOverMessages | None = None  # in whose round this is; not one in a round
        self.is_made = False  # this is a round of a loop over a list that the template made
        # names of the messages at hand, by the sources of their indices
        self.owners: dict[str, str] = {}
        # of a conversation of plain turns, see `rows.py`
        self.absent: set[str] = set()  # texts that are in no content
        self.reads_contents = False  # for another question
        self.clock: dict[str, str] = {}  # formats of the time that was written, with the text
        self.parts: Resolved = []  # of the whole text
        self._state_parts: dict[str, Resolved] = {}  # of texts of namespaces
        self.new_parts: dict[str, Resolved] = {}  # that this section writes
        self.total_cost = 0  # for each character of a content, beside rounds
        self.round_cost = 0  # of the round that costs most
        self.constants = constants
        self.name = constants.name
        self.serial = 0  # of this section
        self.namespaces = 0  # in this round, and before it
        self.visits = 0  # of values that were looked through
        self.constant_trails: dict[int, Any] = {}  # and parts of them, by identity
        self.plain: dict[int, Any] = {}  # containers that hold none that is unknown, by identity
        self.sources: dict[int, tuple[Any, TextSlot]] = {}  # of lists in messages, by identity
        self.numbers: dict[str, MessageField] = {}  # fields with numbers, by their sources
        self.streams: dict[int, tuple[Any, int]] = {}
        self.weight = 0  # steps of a round of the loop that is about to begin
        self._done = 0  # items of the output that belong to earlier sections
        self._output: list[Any] | None = None
        self._begin_section(entry)

    def run_program(
        self, run: Callable[..., list[Any]], rt: Runtime, context: Mapping[str, Any]
    ) -> list[Any]:
        messages = context["messages"]
        self._tools = len(context.get("tools") or ())
        self.now, rt.now = rt.now, refuse
        self._scope: dict[str, Any] = {
            **HELPERS,
            "M": messages,
            "n": len(messages),
            "i": 0,
            "S": {"now": self.now},
        }
        self.runtime = rt
        self._left = (rt.steps, rt.bytes)  # when this section began
        unknown = UnknownMessages(self, skipped=0)
        try:
            out = run(rt, {**context, "messages": unknown})
            if self.depth or (self._output is not None and out is not self._output):
                raise NotRecordable  # a round was left early
            self._end_section(out)
        except Exception:  # also of Python, for what no value above can do
            # Whatever it was, the same answers lead to it again.
            if self.serial <= MAX_SECTIONS and self._section.find(self._path) is None:
                self._section.add(self._path, None)
                self.learned += 1
            raise NotRecordable from None
        return []

    @property
    def cost(self) -> int:
        """The bytes that this round pays for each character of that field for which it pays most."""
        costs = self.costs
        return max(sum(costs[path] for path in costs if each.startswith(path)) for each in costs)

    # ---- sections ----

    def _end_section(self, out: list[Any], loop: LoopOverMessages | None = None) -> ProvenSegment:
        """Add what was recorded since the last section, and return it; perhaps it is known already."""
        if self.runtime.is_extended:
            raise NotRecordable  # whether there is enough for a shorter conversation is not known
        write_lists(self)
        parts = join_parts(out[self._done :: 2])
        left = (self.runtime.steps, self.runtime.bytes)
        self.paid = (self._left[0] - left[0], self._left[1] - left[1])
        for part in parts:
            if isinstance(part, str):
                self.constant += part
            elif part.field and part.field.state:
                self._carried[part.source] = part.field.state
            elif part.field:
                self._fields.add(part.field)
        if CHARACTER in self.constant:
            raise NotRecordable
        if loop is None and self.depth:  # namespaces of the round are gone
            for changes in (self.state, self.trails):
                for key in [key for key in changes if is_local(key, self.depth)]:
                    del changes[key]
        known = self._section.find(self._path) or self._make_leaf(out[self._done :], parts, loop)
        self.parts += self._resolve(parts)
        self._state_parts |= self.new_parts  # not before: what this section read is what was there
        self.new_parts = {}
        self.round_cost = max(self.round_cost, self.cost)
        changed = {key: self._evaluate(source) for key, source in self.state.items()}
        self._scope["S"].update(changed)
        self._done = len(out)
        self._left = left
        return known

    def _make_leaf(
        self, written: list[Any], parts: Parts, loop: LoopOverMessages | None
    ) -> ProvenSegment:
        here, others = self._find_written_keys()
        steps, size = self.paid
        # A round without text has marks, of which a longer chat has more.
        is_whole = self.depth > 0 and self.is_first and loop is None and not self.is_made
        items = [] if is_whole and not parts else written
        output, trails = write_origins(self, items, self.trails)
        carried = None if output is None else self.trails.values()
        leaf = ProvenSegment(
            texts=list(map(self.write_part, parts)),
            output=output,
            trails=trails,
            state=dict(self.state),
            keys=here,
            others=others,
            writes_tools=self._tools > 0 and find_written_tools(written, self._tools, carried),
            carried=self._carried,
            cost=self.cost,
            steps=steps,
            size=size,
            price=find_price(self, loop),
            per_character=self.per_character,
            loop=loop,
        )
        self._section.add(self._path, leaf)
        self._section.note(leaf)
        if self._loop is not None and self.depth == 1:
            self._loop.body.note(leaf)
        self.learned += 1
        self.questions += len(self._path)
        return leaf

    def _resolve(self, parts: Parts) -> Resolved:
        """Return parts of the text with the index of each message, not the source of it."""
        found: Resolved = []
        for part in parts:
            if isinstance(part, str):
                found.append(part)
            elif part.field is None:
                found.append(None)
            elif part.field.state:
                found += self._state_parts.get(part.field.state, [None])
            else:
                index = self._evaluate(part.field.message)
                own = part.field._replace(message=repr(index)) if type(index) is int else None
                found.append(own and part._replace(field=own))
        return found

    def _find_written_keys(self) -> tuple[frozenset[str], tuple[tuple[str, str], ...]]:
        """Return the keys that are written whole: of the message at hand, and of others."""
        found: dict[str, set[str]] = {}
        for field in self._fields:
            found.setdefault(field.message, set()).add(field.path)
        keys = {
            index: _find_keys(
                self.owners.get(index) or f"M[{index}]", paths, self._answers, self.constant
            )
            for index, paths in found.items()
        }
        # What a loop in a round writes of the round's message is beside what the round writes.
        own = self._loop.index if self._loop is not None and self.depth == 1 else ""
        here = frozenset(keys.pop(own, ()))
        others = [(index, key) for index, names in keys.items() for key in names]
        return here, tuple(others)

    def _begin_section(self, section: FactTree) -> None:
        self._section = section
        self._path: list[tuple[str, Any]] = []
        self._answers: Answers = {}
        self.state: dict[str, str] = {}  # sources of what it writes to namespaces
        self.trails: dict[str, Any] = {}  # of the texts among that
        self.lists: dict[str, Pair] = {}  # that it writes there
        self._fields: set[MessageField] = set()  # that this round wrote whole
        self.constant = ""  # what it wrote beside them
        self._carried: dict[str, str] = {}  # see `ProvenSegment.carried`
        self.per_character: dict[str, float] = {}  # see `ProvenSegment.per_character`
        self.costs = {"": 0}  # see `cost`; by the paths of fields, "" for any
        self.serial += 1
        self.is_first = True  # of its round
        if self.depth < 2:
            self._round = self.serial  # of the first section of this round

    def iterate(self, elements: Any, is_counted: bool) -> Iterator[Any]:
        """Yield the rounds of a loop over messages, or over numbers; each is a section, or several."""
        frame = sys._getframe(1)
        # Lists in which `{% set %}` blocks collect their text; a loop in one of them is none of sections.
        captures = [value for name, value in frame.f_locals.items() if CAPTURE.fullmatch(name)]
        out, depth = frame.f_locals["out"], self.depth
        self._loops += not depth
        if depth > 1 or frame.f_code.co_name != "run" or self._loops > MAX_LOOPS:
            raise NotRecordable
        del frame
        self._output = out
        name = f"{'LR'[depth]}{self._loops}"
        place = "ij"[depth]
        is_made = type(elements) is UnknownList
        if is_made:
            elements.begin(name)
        leaf = self._end_section(out, make_loop(elements, self._loop, name))
        loop = leaf.loop
        assert loop is not None
        for each, source in loop.named.items():
            self._scope[each] = self._evaluate(source)
        weight, captured = self.weight, sum(map(len, captures))
        # What is known of the state may be another thing after a round.
        answers = {source: one for source, one in self._answers.items() if OF_STATE not in source}
        kept = self._fields, self.constant, self.costs
        first, spaces = self._round, self.namespaces
        self.depth += 1
        if not depth:
            self._loop = loop
        self.owners = loop.owners
        around, self.is_made = self.is_made, is_made
        for number in range(self._evaluate(loop.count)):
            self._begin_section(loop.body)
            self._answers, self.namespaces = answers.copy(), spaces
            self._scope[place] = number
            self.runtime.charge_steps(weight)
            if loop.taken:
                self.runtime.charge_bytes(ELEMENT_BYTES * (depth + self.is_made))
                self._scope[loop.taken] = self._evaluate(loop.element)
            element = elements.take(loop, name, place)
            yield (UnknownNumber(self, place), *element) if is_counted else element
            is_left = self.depth != depth + 1  # a loop in it was left early
            if is_left or captured != sum(map(len, captures)) or self.serial > MAX_SECTIONS:
                raise NotRecordable
            self._end_section(out)
        self.depth, self.namespaces, self.is_made = depth, spaces, around
        self._begin_section(loop.after)
        if depth:  # the round goes on
            self._left = self._left[0] + leaf.steps, self._left[1] + leaf.size
            self._fields, self.constant, self.costs = kept
            self._answers, self._round, self.is_first = answers, first, False
        else:
            self._loop = None

    # ---- questions ----

    def ask(self, source: str) -> Any:
        """Record a question, and return the answer for this conversation."""
        if source not in self._answers:
            if len(self._path) >= MAX_PATH:
                raise NotRecordable
            answer = self._evaluate(source)
            if type(answer) in (str, tuple) and len(repr(answer)) > MAX_ANSWER:
                raise NotRecordable  # it would become code
            self._answers[source] = answer
            self._path.append((source, answer))
        return self._answers[source]

    def _evaluate(self, source: str) -> Any:
        return eval(_compile_question(source), self.constants.values, self._scope)

    def ask_text(self, text: UnknownText, source: str, wanted: Any = None) -> Any:
        """Record a question about a text; with `wanted`, whether that is there, or at one of its ends, or all of it."""
        answer = self.ask(source)
        parts = self._resolve(text.parts)
        # What is not in a content may be in its JSON, or the other way round.
        is_content = len(parts) == 1 and isinstance(parts[0], TextSlot) and not parts[0].is_json
        if is_content and type(wanted) is str and wanted and not answer:
            self.absent.add(wanted)
        else:
            self.reads_contents = True
        return answer

    def ask_full(self, text: UnknownText) -> bool:
        """Record the question whether there is some text."""
        answer = self.ask(f"bool({text.source})")
        parts = self._resolve(text.parts)
        is_field = any(isinstance(part, TextSlot) for part in parts)
        self.reads_contents |= not is_field and None in parts
        return bool(answer)

    def ask_kind(self, owner: UnknownMapping, key: str) -> str:
        """Return the kind of a field; first the questions that are answered soonest."""
        self.reads_contents |= OF_FORM.fullmatch(owner.field.path) is None
        question = USUAL_FIELDS.get(key)
        # Whether there is such a field is asked only if there is no text.
        if question and self.ask(question.format(f"{owner.source}.get({key!r})")):
            return "text"
        if not self.ask(f"{key!r} in {owner.source}"):
            return "absent"
        return str(self.ask(f"kind({owner.source}[{key!r}])"))

    def read_field(self, owner: UnknownMapping, key: str) -> Any:
        """Return a field as a value that records what is asked about it."""
        kind = self.ask_kind(owner, key)
        source = f"{owner.source}[{key!r}]"
        if kind == "text" and key in NAMED_FIELDS:
            return self.ask(source)
        field = owner.field.get(key)
        if kind == "empty" and key != "name":  # an empty name names nothing
            self._fields.add(field)
        return self.read_value(source, kind, field)

    def read_value(self, source: str, kind: str, field: MessageField) -> Any:
        if kind == "text":
            return self.make_text((self.make_slot(source, field),), is_full=True)
        if kind == "blank":
            return self.make_text((self.make_slot(source),), is_full=True)
        if kind in CONSTANTS:
            return CONSTANTS[kind]
        if kind in NUMBERS:
            self.numbers[source] = field
            return NUMBERS[kind](self, source)
        if kind == "dict":
            return UnknownMapping(self, source, field)
        if kind != "list":
            raise NotRecordable
        count = self.ask(f"len({source})")
        if count > MAX_LIST:
            raise NotRecordable
        values = []
        for index in range(count):
            one = f"{source}[{index}]"
            values.append(self.read_value(one, self.ask(f"kind({one})"), field.get(index)))
        self.sources[id(values)] = values, self.make_slot(source, field)
        return values

    def read_state(self, key: str, pair: Pair) -> Pair:
        """Return an attribute of a namespace."""
        if key in self.state:
            return pair
        source, fields, origin, marks = (f"S[{key + mark!r}]" for mark in ("", "#", "@", "!"))
        kind = self.ask(f"{source}.__class__.__name__")
        if kind == "ellipsis":
            raise NotRecordable
        if kind == "list":  # it gets a name, since other sections may read it
            name = f"B{number_namespace(self)}"
            named = f"({name} := {source}, {name}f := {fields}, {name}t := S.get({key + '@'!r}))"
            are_marked = self.ask(f"{named} and {marks}")
            return UnknownList(self, name, f"{name}f", are_marked), StateTrail(f"{name}t")
        trail = StateTrail(origin)
        if kind in NUMBERS:
            return NUMBERS[kind](self, source), trail
        if kind == "str":
            field = MessageField("", "", fields)
            return self.make_text((self.make_slot(source, field),)), trail
        return self.ask(source), UNTRACED

    def write_state(self, key: str, value: Any, trail: Trail) -> None:
        """Note what a namespace has from now on."""
        self.lists.pop(key, None)
        if isinstance(value, (str, int)):
            self.trails[f"{key}@"] = trail
        fields = f"S[{key + '#'!r}]"
        if type(value) is UnknownText:
            grown = [
                part
                for part in value.parts
                if isinstance(part, TextSlot) and OF_STATE in part.source
            ]
            if len(grown) > 1 and not is_local(key, self.depth):
                raise NotRecordable  # a text that doubles in every round
            self.state[key] = value.source
            self.state[f"{key}#"] = write_fields(self, value)
            self.new_parts[fields] = self._resolve(value.parts)
        elif isinstance(value, UnknownNumber):
            self.state[key] = value.source
        elif value is None or type(value) in (bool, int, str):
            self.state[key] = self.name(value)
            self.state[f"{key}#"] = "()"
            self.new_parts[fields] = [value] if type(value) is str else [None]
        else:
            self.state[key] = "..."  # only this section knows the value
            if isinstance(value, list):
                self.lists[key] = value, trail

    def find_section(self, source: str) -> int:
        """Return the number of this section, or of the round, if a source holds only in it, else 0."""
        if IS_OF_SECTION.search(source):
            return self.serial
        return self._round if IS_OF_ROUND.search(source) else 0

    def check_section(self, source: str, section: int) -> str:
        """Return a source that holds in this section.

        Raises:
            NotRecordable: it was read in another one.
        """
        if section not in (0, self._round, self.serial):
            raise NotRecordable
        return source

    # ---- texts ----

    def make_slot(self, source: str, field: MessageField | None = None) -> TextSlot:
        """Return a slot."""
        return TextSlot(check_length(source), self.find_section(source), field)

    def make_text(
        self, parts: Parts, is_full: bool = False, kind: type[UnknownText] = UnknownText
    ) -> UnknownText:
        """Return an unknown text."""
        if len(parts) > MAX_PARTS:
            raise NotRecordable
        text = kind(CHARACTER)
        text.parts, text.recorder, text.is_full = parts, self, is_full
        return text

    def write_source(self, parts: Parts) -> str:
        """Return the source of a text."""
        sources = list(map(self.write_part, parts))
        return sources[0] if len(sources) == 1 else f"({' + '.join(sources)})"

    def write_part(self, part: str | TextSlot) -> str:
        if isinstance(part, TextSlot):
            return self.check_section(part.source, part.section)
        return self.name(part)


@lru_cache(maxsize=2_000)  # rounds, and other templates, ask the same questions
def _compile_question(source: str) -> CodeType:
    return compile(source, "<question>", "eval")


def _find_keys(owner: str, paths: set[str], answers: Answers, constant: str) -> set[str]:
    """Return the keys of a message whose values are written whole."""
    keys = {path[2:-2] for path in paths if KEY_PATH.fullmatch(path)}
    calls = [
        f"['tool_calls'][{index}]" for index in range(answers.get(f"len({owner}['tool_calls'])", 0))
    ]
    if calls and all(_writes_call(owner, call, paths, answers, constant) for call in calls):
        keys.add("tool_calls")
    parts = [f"{CONTENT}[{index}]" for index in range(answers.get(f"len({owner}{CONTENT})", 0))]
    types = {answers.get(f"{owner}{part}['type']") for part in parts}
    if types == {"text"} and paths.issuperset([f"{part}['text']" for part in parts]):
        keys.add("content")
    return keys


def _writes_call(owner: str, call: str, paths: set[str], answers: Answers, constant: str) -> bool:
    """Whether a call is written whole, or its name or id and its arguments, or the name and value of each."""
    function = f"{call}['function']"
    if not paths.isdisjoint(["['tool_calls']", call, function]):
        return True
    if paths.isdisjoint([f"{function}['name']", f"{call}['id']"]):
        return False
    arguments = f"{function}['arguments']"
    names = answers.get(f"tuple({owner}{arguments})", ())
    is_named = all(name in constant for name in names)
    return arguments in paths or (is_named and _is_written(owner, arguments, paths, answers))


def _is_written(owner: str, path: str, paths: set[str], answers: Answers) -> bool:
    """Whether the texts and numbers in a value are written."""
    if path in paths or answers.get(f"kind({owner}{path})") in CONSTANTS:
        return True
    count = answers.get(f"len({owner}{path})")
    inner = answers.get(f"tuple({owner}{path})") if count is None else range(count)
    return inner is not None and all(
        _is_written(owner, f"{path}[{each!r}]", paths, answers) for each in inner
    )


NUMBERS: dict[str, type[UnknownNumber]] = {"int": UnknownNumber, "float": UnknownFloat}
CONSTANTS: dict[str, Any] = {"empty": "", "None": None, "True": True, "False": False}
