"""One Python function of all that is known of a template: it asks each question once and writes what the leaf says.

    def walk(M, n, S, T):
        out, left, missing, others, carried, price = [], [], None, [], (), 0.0
        for i in range(n):
            m = M[i]
            v1 = m.get('role')
            if v1 == 'user':
                if len(m) != 2: left.append((i, keys3))
                out += ('<|im_start|>user\\n', m['content'], '<|im_end|>\\n',)
                continue
            ...
            return None  # an answer that is new
        ...

Sections follow each other as the program runs them, so the code after a loop stands after the rounds of that loop.

The prompts before the turns of one conversation begin alike, and so do those of one that grows. A walk with a memory
keeps where each loop was before its last round, and before the last question, and goes on there with more messages: if
the loop began in the same state, and its rounds look no further than to the next message. So a prompt costs as much as
what is new in it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from turnwise.engine.provenance.sections import OutputSection, SectionedOutput
from turnwise.engine.runtime.access import LOOP_START_COST
from turnwise.engine.segments.facts import (
    HELPERS,
    Constants,
    FactBranch,
    FactNode,
    FactTree,
    LoopOverMessages,
    ProvenSegment,
)
from turnwise.engine.segments.names import INDEX, LITERAL, SUBJECT, TEXT, PathNames
from turnwise.engine.segments.sources import HAS_WORDS, IS_MADE
from turnwise.engine.segments.symbols import SOME_FIELD

OF_ROUND = re.compile(r"\b[imMn]\b|\bselect\(")  # in a question about more than the state
OF_INNER_ROUND = re.compile(r"\b[jwM]\b|\bselect\(")  # the same, of a loop in a round
# In a source about more than the message at hand and the state: other messages, or the clock.
OF_OTHERS = re.compile(r"\b[MNn]\b|\bselect\(|\bformat_now\(|\bBr*\d")
# In the source of a trail about more than which message is at hand.
OF_CONVERSATION = re.compile(r"\b(?:[ijmwMnS]|[LR]\d+|Br*\d+t|select|format_now)\b")
UNCOUNTED = frozenset(["role", "name", "tool_call_id"])  # fields that are no loss
OF_TEXT = re.compile(rf"\.get\(({TEXT})\)(\)?\.__class__ is str)")  # whether a field has text
OWN_FIELD = re.compile(r"\bm(?:\[|\.get\()'(\w+)'[\])]")
OF_MESSAGES = re.compile(r"\b(?:[mwMS]|Br*\d+)\b")
BOTH = {"True", "False"}  # as answers; 1 and 0 are other ones
BEGIN = [
    "def walk(M, n, S, T, memory):",
    "    out, missing, others, carried, price = [], None, [], (), 0.0",
    "    cost = steps = size = 0",
]
WITH_SECTIONS = "    out = SectionedOutput(); sections = out.sections = []"
OUTER_LOOP, INNER_LOOP = "for i in range(rounds):", "for j in range(rounds):"
# Of the walk, of a round, and of a loop.
ENDS = ("return out, missing, others, carried, T, price, cost, steps, size", "continue", "break")
OF_LITERAL = re.compile(LITERAL)
HAS_CLASS = re.compile(r"kind\((.*)\) == '(list|dict|int|float|text)'")
STATE = re.compile(rf"S\[({TEXT})\]")
IN_STATE = re.compile(r"'[^']+' in S\b")
# The number of a round beside one of the state, and the question whether that is one.
ROUND_AND_END = re.compile(
    rf"i (?:[<>]=?|[!=]=) S\[{TEXT}\]|S\[{TEXT}\](?: (?:[<>]=?|[!=]=) i|\.__class__\.__name__)"
)
NEIGHBOUR = r"\(i [-+] 1\)"
# How many messages there are of a kind: a checkpoint is one of conversations that have as many.
COUNT = re.compile(r"len\(select\(S, M, \d+, K\d+\)\)")
OWN_INDEX = re.compile(r"(?:\(\d+ \+ )*i\)*")
# What a round that is not the last finds the same with more messages; N is the number of rounds.
SAME = re.compile(
    rf"M\[{INDEX}\]|0 <= (?:0|i|{NEIGHBOUR}) < N"
    rf"|\(i \+ 1\) (?:==|<) N|\(i - 1\) < N|\(-[nN]\) <= {NEIGHBOUR}|[nN] > 0|[nN] >= 1"
)


Unwritten = tuple[int, frozenset[str | tuple[str]]]
"""A message that is not written whole, and the keys of it that are; those of which a part may be, each in a tuple."""
Walked = tuple[Any, ...]
"""What a conversation becomes:

* the texts; with trails, texts and trails, alternately;
* the messages that no loop writes whole; None if no loop is over all of them;
* fields that are written in other rounds than their message's: its index, and the key;
* the same of what the state carried;
* whether there are tools, and nothing of them is written; None if that is in doubt;
* the share of the budgets that it takes, beside what messages add to them;
* bytes that it pays for each character of a text;
* steps that the program pays for it, or some more;
* the bytes that it pays for, beside those for characters.
"""
Walk = Callable[..., Walked | None]
"""Its arguments are the messages, their number, the state with the clock, whether there are tools, and the memory."""


def join_missing(missing: list[Unwritten], left: list[Unwritten]) -> list[Unwritten]:
    """Return the messages that neither this loop nor an earlier one writes whole."""
    now = dict(left)
    return [(index, keys | now[index]) for index, keys in missing if index in now]


LoopEntry = tuple[Any, ...]  # the state, and what else is known before a round


class LoopCheckpoint(NamedTuple):
    """A loop before one of its rounds.

    Attributes:
        entry: the state and what else was known before its first round.
        ends: numbers of the state that rounds only compare with their own number.
        round: the number of that round.
        made: what the rounds before it wrote.
        after: what was known after them, and the state.
    """

    entry: LoopEntry
    ends: tuple[int, ...]
    round: int
    made: list[str]
    after: LoopEntry


def read_entry(state: LoopEntry, ends: LoopEntry, *others: Any) -> LoopEntry | None:
    """Return what the rounds of a loop may depend on; None if equal values may be written in different ways."""
    types = tuple(map(type, state))
    if tuple in types or list in types or any([type(end) is not int for end in ends]):
        return None
    return types, state, *others


def compile_walk(
    entry: FactTree,
    constants: Constants,
    with_trails: bool,
    with_memory: bool,
) -> Walk:
    """Return the function of all sections.

    Args:
        entry: the section with which the program begins.
        constants: the values that sources name.
        with_trails: whether it writes trails too.
        with_memory: whether it keeps checkpoints.
    """
    code = _WalkCode(constants, with_trails, with_memory)
    try:
        code.write_tree(entry.root, 1, None, PathNames())
        source = "\n".join([*code.lines, ""])
        if IS_MADE.search(source):  # then fields are in lists, too
            flat = ENDS[0].replace("others, carried", "list_fields((others, carried)), ()")
            # A text of the template may read like this code, but is quoted: it never ends a line.
            source = source.replace(ENDS[0] + "\n", flat + "\n")
        exec(source, code.scope)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return lambda *_: None  # the code is nested too deeply for Python
    walk: Walk = code.scope.pop("walk")  # or scope and function would keep each other in memory
    return walk


class _WalkCode:
    def __init__(self, constants: Constants, with_trails: bool, with_memory: bool) -> None:
        self.lines = list(BEGIN)
        self._with_sections = with_trails and not with_memory
        if self._with_sections:
            self.lines.append(WITH_SECTIONS)
        if with_memory and not with_trails:  # the prompt before a turn: what is lost is not asked
            self.lines.append("    T = None")
        self.scope: dict[str, Any] = {
            **HELPERS,
            **constants.values,
            "join_missing": join_missing,
            "UNCOUNTED": UNCOUNTED,
            "LoopCheckpoint": LoopCheckpoint,
            "read_entry": read_entry,
            "SectionedOutput": SectionedOutput,
        }
        self._with_trails = with_trails
        self._with_memory = with_memory

    def write_tree(
        self,
        node: FactBranch,
        depth: int,
        loop: LoopOverMessages | None,
        names: PathNames,
        is_of_state: bool = True,
    ) -> None:
        """Write the code of a tree. Each branch leaves the round or the function, so the last is not indented further.

        Args:
            node: the tree.
            depth: of its indentation.
            loop: the loop of which this is a round, if it is one.
            names: those of the path so far.
            is_of_state: whether nothing but the state decided so far.
        """
        lines, indent = self.lines, "    " * depth
        of_round = OF_INNER_ROUND if loop is not None and loop.around else OF_ROUND
        while isinstance(node := _skip_implied(node), FactNode):
            question = node.source
            is_of_state &= not of_round.search(question)
            if [*node.branches] == [True]:  # a subscript fails without the field, and is faster
                question = OF_TEXT.sub(r"[\1]\2", question)
            asked = names.name_subject(question)
            *others, (last, following) = node.branches.items()
            if others:
                name = names.get(question) or f"v{len(lines)}"
                lines.append(f"{indent}{name} = {asked}")
                for answer, branch in others:
                    lines.append(f"{indent}if {_compare(name, answer)}:")
                    self.write_tree(branch, depth + 1, loop, names.fork(), is_of_state)
                asked = name
            if set(map(repr, node.branches)) != BOTH:
                lines.append(f"{indent}if not ({_compare(asked, last)}): return None")
            node = following
        if node is None or (self._with_trails and node.output is None):
            lines.append(f"{indent}return None")
            return
        # If only the state decided, and it stays, all rounds that follow do the same: nothing.
        is_last = loop is not None and is_of_state and _does_nothing(node, loop)
        self._write_segment(node, indent, loop, names, is_last)
        if node.loop is not None:
            names.is_in_round = loop is not None
            names.first_keys = [key for place, key in node.others if place == "0"]
            self._write_loop(node.loop, depth, names)
            self.write_tree(node.loop.after.root, depth, loop, names, False)
        else:
            lines.append(f"{indent}{ENDS[(loop is not None) + is_last]}")

    def _write_loop(self, loop: LoopOverMessages, depth: int, names: PathNames) -> None:
        indent = "    " * depth
        steps, size = loop.body.steps, loop.body.size
        begin = [
            *[f"{name} = {source}" for name, source in loop.named.items()],
            f"rounds = {loop.count}; steps += rounds * {steps} + {LOOP_START_COST}; size += rounds * {size}",
            "pass" if loop.around else f"left = []; cost += {loop.body.cost}",
        ]
        self.lines += [f"{indent}{names.use(line)}" for line in begin]
        is_resumed = self._with_memory and not loop.around and self._resume_loop(loop, indent)
        if not is_resumed:
            self.lines.append(f"{indent}{INNER_LOOP if loop.around else OUTER_LOOP}")
        if loop.taken:
            self.lines.append(f"{indent}    {loop.taken} = {loop.element}")
        self.write_tree(loop.body.root, depth + 1, loop, names.fork())
        if _counts(loop):
            if loop.skipped:
                skipped = f"range(min({loop.skipped}, n))"
                self.lines.append(f"{indent}left += [(i, UNCOUNTED) for i in {skipped}]")
            joined = "left if missing is None else join_missing(missing, left)"
            self.lines.append(f"{indent}missing = {joined}")

    def _resume_loop(self, loop: LoopOverMessages, indent: str) -> bool:
        """Write the beginning of a loop that goes on at its checkpoint; return whether it can."""
        nodes = list(_list_nodes(loop.body.root))
        sources = [source for node in nodes for source in _list_sources(node)]
        if not _looks_at_neighbours(loop, sources):
            return False
        name = f"loop{len(self.scope)}"
        self.scope[name] = (loop, self._with_trails, _counts(loop))
        source = "\n".join(sources)
        leaves = [node for node in nodes if isinstance(node, ProvenSegment)]
        written = {key for leaf in leaves for key in (*leaf.state, *leaf.trails)}
        others = [one for one in sources if not ROUND_AND_END.fullmatch(one.strip("()"))]
        read = set(STATE.findall("\n".join(others)))
        keys = dict.fromkeys(STATE.findall(source))
        ends = [key for key in keys if key not in read and key not in map(repr, written)]
        values = [f"S.get({key})" for key in keys if key not in ends]
        fields = [value for value in values if value.endswith("#')")]  # pairs of index and key
        counts = [*fields, *dict.fromkeys(COUNT.findall(source) + IN_STATE.findall(source))]
        lines = RESUMED.format(
            loop=name,
            ends="".join(f"S.get({key}), " for key in ends),
            read="".join(f"{value}, " for value in values if value not in fields),
            counts="".join(f"{value}, " for value in counts),
            written=sorted(written),
        )
        self.lines += textwrap.indent(lines, indent).splitlines()
        return True

    def _write_segment(
        self,
        node: ProvenSegment,
        indent: str,
        loop: LoopOverMessages | None,
        names: PathNames,
        is_last: bool,
    ) -> None:
        lines = self._note_fields(node, loop, names)
        if node.writes_tools is not False:
            lines.append("T = T and False" if node.writes_tools else "T = T and None")
        if node.price or node.per_character:
            price = f"{('', '(rounds - j) * ')[is_last]}{node.price!r}"
            each = [f" + {share!r} * len({text})" for text, share in node.per_character.items()]
            lines += [f"price += {price}{''.join(each)}", "if price > 1: return None"]
        texts: list[str] | None = node.texts
        state = node.state
        if self._with_trails:
            texts, state = node.output, state | node.trails
        if texts:
            lines.append(f"out += ({', '.join(texts)},)")
        if self._with_sections:
            lines += self._note_section(node, loop, names)
        if loop is None and (node.steps or node.size):  # a loop pays for its rounds
            lines.append(f"steps += {node.steps}; size += {node.size}")
        lines += [f"carried += {fields}" for fields in node.carried.values()]
        if state:
            targets = ", ".join(f"S[{key!r}]" for key in state)
            lines.append(f"{targets}, = {', '.join(state.values())},")
        self.lines += [f"{indent}{names.use(line)}" for line in lines]

    def _note_fields(
        self, node: ProvenSegment, loop: LoopOverMessages | None, names: PathNames
    ) -> list[str]:
        """Return the lines that note which fields are written: whole ones of other messages, and the own message if
        not all of it is."""
        parts = _find_parts(node)
        others: list[Any] = [*node.others]
        lines = []
        if loop is not None and not _counts(loop):
            others += [(loop.index, key) for key in node.keys]
        elif loop is not None and node.loop is None:
            name = f"keys{len(self.scope)}"
            self.scope[name] = UNCOUNTED.union(node.keys, zip(parts))
            has_role = "" if "m['role']" in names else " and 'role' in m"
            is_whole = f"len(m) == {1 + len(node.keys)}{has_role} or {name}.issuperset(m)"
            if names.first_keys:  # nothing else of the first message may be missing
                is_whole += (
                    f" or {loop.index} == 0 and {name}.union({names.first_keys}).issuperset(m)"
                )
            lines = [f"if not ({is_whole}): left.append(({loop.index}, {name}))"]
            parts &= {""}
        others += [SOME_FIELD] * bool(parts)
        pairs = [f"({place}, {key!r}), " for place, key in others]
        return [*lines, f"others += ({''.join(pairs)})"] if pairs else lines

    def _note_section(
        self, node: ProvenSegment, loop: LoopOverMessages | None, names: PathNames
    ) -> list[str]:
        if not node.output and node.loop is None:
            return []
        loops = (loop, loop and loop.around)
        indices = [
            "None" if one is None or IS_MADE.search(one.index) else one.index for one in loops
        ]
        name = f"section{len(self.scope)}"
        section = self.scope[name] = OutputSection({}, 0)
        item, rest = 0, iter(node.output or ())
        for source in rest:
            if source.startswith("*"):
                item += len(self.scope[source[1:]])
            else:
                trail = OF_LITERAL.sub("", next(rest))
                for index in indices:
                    trail = trail.replace(index, "")
                is_known = OF_CONVERSATION.search(trail) is None
                # A text that is constant may be a mark.
                if not is_known or (source not in self.scope and OF_LITERAL.sub("", source)):
                    section.slots[item] = is_known
                item += 2
        section.size = item
        before = "sections.pop()[0] + " if names.is_in_round else ""
        return [f"sections.append(({before}({name}, {indices[0]}), len(out)))"]


# The beginning of a loop that goes on at a checkpoint: if its loop began in the same way, and its rounds reached the
# same ends. It makes the next ones: before its last round, and before it passes the first end by. That one still fits
# if all ends come later: after a new question.
RESUMED = """\
begin, first = len(out), 0
ends = ({ends})
entry = read_entry(({read}), ends, {counts}others.copy(), carried, T, price)
for known in memory.get({loop}, ()):
    reached = [[min(end, known.round) for end in each] for each in (known.ends, ends)]
    if known.round < rounds and known.entry == entry and reached[0] == reached[1]:
        first = known.round
        out += known.made
        left, others, carried, T, price, state = known.after
        left, others = left.copy(), others.copy()
        S.update(state)
        break
last, settled = rounds - 1, min(ends, default=-1)
for i in range(first, rounds):
    if (i == last or i == settled) and entry is not None:
        state = {{key: S[key] for key in {written} if key in S}}
        after = left.copy(), others.copy(), carried, T, price, state
        kept = [known for known in memory.get({loop}, ()) if known.round <= settled][:1]
        memory[{loop}] = LoopCheckpoint(entry, ends, i, out[begin:], after), *kept
"""


def _looks_at_neighbours(loop: LoopOverMessages, sources: list[str]) -> bool:
    """Whether more messages change no round but the last: the others look at most one message ahead."""
    if not OWN_INDEX.fullmatch(loop.index):
        return False
    plain = [COUNT.sub("", OF_LITERAL.sub("", one)).replace(loop.count, "N") for one in sources]
    return not any(OF_OTHERS.search(SAME.sub(" ", source)) for source in plain)


def _list_nodes(node: FactBranch) -> Iterator[FactNode | ProvenSegment]:
    if node is not None:
        yield node
    if isinstance(node, FactNode):
        for branch in node.branches.values():
            yield from _list_nodes(branch)


def _list_sources(node: FactNode | ProvenSegment) -> Iterator[str]:
    """Yield the sources of a question, or of what is written."""
    if isinstance(node, FactNode):
        yield node.source
    else:
        yield from (*node.texts, *(node.output or ()), *node.state.values(), *node.per_character)
        yield from node.trails.values()
        yield from (place for place, _ in node.others)
        yield from node.carried.values()
        yield from ("M",) if node.loop else ()  # a loop in the round may read all of them


def _counts(loop: LoopOverMessages) -> bool:
    """Whether a loop is over all messages, and writes some of them whole."""
    return loop.body.has_keys and loop.skipped is not None


def _does_nothing(node: ProvenSegment, loop: LoopOverMessages) -> bool:
    does = (node.texts, node.state, node.trails, node.others, node.carried, node.loop)
    price = 0.0 if loop.around else node.price  # a loop in a round pays for those that follow
    is_silent = node.writes_tools is False
    return is_silent and not any((*does, _counts(loop), price, node.per_character))


def _find_parts(node: ProvenSegment) -> set[str]:
    """Return the keys of the message at hand that are not written whole, and "" if that may be said of other fields."""
    source = "\n".join(node.texts)
    whole = [f"M[{place}][{key!r}]" for place, key in node.others]
    for written in (*whole, *node.carried):
        source = source.replace(written, "")
    found = set(OWN_FIELD.findall(source)) - node.keys
    rest = OF_LITERAL.sub("", OWN_FIELD.sub("", source))
    return found | {""} if OF_MESSAGES.search(rest) else found


def _compare(name: str, answer: Any) -> str:
    if type(answer) is bool:
        return name if answer else f"not ({name})"
    found = HAS_CLASS.fullmatch(asked := f"{name} == {answer!r}")
    if found is None:
        return asked
    value, kind = found.groups()
    return HAS_WORDS.format(value) if kind == "text" else f"{value}.__class__ is {kind}"


def _skip_implied(node: FactBranch) -> FactBranch:
    """Return what comes after questions that are true wherever the next one has an answer that is known."""
    while isinstance(node, FactNode) and [*node.branches] == [True]:
        following = node.branches[True]
        if not isinstance(following, FactNode):
            break
        found = SUBJECT.match(following.source)
        owner, _, key = found[2].rpartition("[") if found else ("", "", "")
        if node.source != f"{key[:-1]} in {owner}":
            is_text = OF_TEXT.sub(r"[\1]\2", node.source) == f"{following.source}.__class__ is str"
            if not is_text or set(map(type, following.branches)) != {str}:
                break
        node = following
    return node
