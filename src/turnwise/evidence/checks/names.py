"""T61: names that nothing has. Misspelt filters, keys and roles, and branches that nothing reaches.

The source is read, not run, so a name is found in a branch that no conversation takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches

from jinja2 import filters, nodes

from turnwise.analysis.conversations import name_values
from turnwise.analysis.profiles import IMAGE_FORMS
from turnwise.analysis.template_constants import TemplateConstants
from turnwise.engine.compiler.syntax import unpack_position
from turnwise.engine.compiler.tree import find_nodes, walk
from turnwise.engine.runtime.filters import FILTERS
from turnwise.engine.runtime.jinja_tests import TESTS
from turnwise.engine.runtime.methods import METHODS
from turnwise.errors import did_you_mean, short_repr
from turnwise.evidence.checks.catalogue import Check
from turnwise.evidence.checks.findings import Symptom, Symptoms
from turnwise.evidence.checks.places import list_read_items
from turnwise.evidence.checks.subject import Subject

ALL_METHODS = frozenset(name for table in METHODS.values() for name in table)
OWN_METHODS = frozenset(["cycle", "changed"])  # of `loop`
ROLES, TYPES, KEYS = name_values("known roles", "known types", "known keys")
"""What clients send: roles, types of parts and of schemas, keys by what they are read from."""
OTHER_NAMES = {"model": "assistant", "ai": "assistant", "gpt": "assistant", "human": "user"}
"""How models and datasets call roles that clients send under another name."""
CLOSE_KEY, CLOSE_WORD = 0.85, 0.72  # how similar a misspelt key is to the right one; a role, a type


def check_known_names(subject: Subject) -> Symptoms:
    """A filter, a test or a method is used that Jinja does not have.

    ## What it does
    Reads the names of filters, tests and methods in all branches of the source, and looks them up among those that
    turnwise and transformers have. `from_json`, which turnwise and some servers add, is none of them.

    ## Why it matters
    The template fails as soon as a conversation takes the branch: mostly the rare one, with tools or with reasoning.

    ## How to fix
    Correct the name.
    """
    for tree, _, name in subject.places.list_trees():
        for kind, used, line, known in _list_used_names(tree):
            if used not in known:
                hint = did_you_mean(used, known, f"Known {kind}s")
                yield Symptom(
                    f"there is no {kind} {short_repr(used)}",
                    f"Correct the name. {hint}",
                    subject.places.by_position(*unpack_position(line), name),
                )


def _list_used_names(tree: nodes.Template) -> Iterator[tuple[str, str, int, list[str]]]:
    """Yield the kind of a name, the name, where it is used, and those that are known."""
    common, tests, methods = (
        sorted(FILTERS.keys() & filters.FILTERS),
        sorted(TESTS),
        sorted(ALL_METHODS | OWN_METHODS),
    )
    for node in find_nodes(tree, nodes.Filter):
        yield "filter", node.name, node.lineno, common
    for test in find_nodes(tree, nodes.Test):
        yield "test", test.name, test.lineno, tests
    imported = {one.target for one in find_nodes(tree, nodes.Import)}
    for call in find_nodes(tree, nodes.Call):
        method = call.node
        if isinstance(method, nodes.Getattr):
            owner = method.node
            if not (isinstance(owner, nodes.Name) and owner.name in imported):
                yield "method", method.attr, method.lineno, methods


def check_known_keys(subject: Subject) -> Symptoms:
    """A key or a role is read that no client sends, and that is nearly one that clients send.

    ## What it does
    Reads the keys that the source takes from messages, calls and tools, and the roles that it compares with, and
    reports those that are nearly the same as known ones: `reasoning_contents`, `message.role == "tools"`. So is `model`
    where no role is compared with `assistant`.

    ## Why it matters
    A misspelt key is undefined, which is false in every test: the branch never runs, and the text is not written.

    ## How to fix
    Correct the name.
    """
    for tree, text, name in subject.places.list_trees():
        compared = TemplateConstants.read(text)
        unknown = dict(_list_near_keys(compared))
        for key, line in _list_read_keys(tree):
            if key in unknown:
                yield Symptom(
                    f"the key {short_repr(key)} is read, which no client sends",
                    f"Correct the name. Did you mean {unknown.pop(key)}?",
                    subject.places.by_position(*unpack_position(line), name),
                )
        places = {one.value: one.lineno for one in find_nodes(tree, nodes.Const)}
        for subject_name, words in (("role", ROLES), ("type", TYPES)):
            known = compared.constants_of(subject_name)
            for word in [one for one in known if isinstance(one, str)]:
                near = _find_near(word, words, CLOSE_WORD) or OTHER_NAMES.get(word, "")
                near = "" if near in known and word in OTHER_NAMES else near
                if near and word in places and near not in _list_beside(tree, word):
                    yield Symptom(
                        f"a {subject_name} is compared with {short_repr(word)}, which no client sends",
                        f"Correct the name. Did you mean {near}?",
                        subject.places.by_position(*unpack_position(places[word]), name),
                    )


def _list_near_keys(constants: TemplateConstants) -> Iterator[tuple[str, str]]:
    """Yield the keys that are nearly known ones, with these."""
    for owner, known in KEYS.items():
        for key in constants.children.get(owner, ()):
            near = _find_near(key, known)
            if near and key not in ALL_METHODS:
                yield key, near


def _find_near(name: str, known: Sequence[str], close: float = CLOSE_KEY) -> str:
    """Return the known name that a misspelt one is nearly; empty if it is known itself, or like none."""
    near = [] if name in known else get_close_matches(name, known, 1, close)
    return near[0] if near else ""


def _list_read_keys(tree: nodes.Template) -> Iterator[tuple[str, int]]:
    yield from list_read_items(tree)
    for call in find_nodes(tree, nodes.Call):
        is_get = isinstance(call.node, nodes.Getattr) and call.node.attr == "get"
        if is_get and call.args and isinstance(call.args[0], nodes.Const):
            yield str(call.args[0].value), call.lineno
    for compared in find_nodes(tree, nodes.Compare):
        if isinstance(compared.expr, nodes.Const) and compared.ops[0].op in ("in", "notin"):
            yield str(compared.expr.value), compared.lineno


def _list_beside(tree: nodes.Template, role: str) -> set[str]:
    """Return the names in the lists in which a role is: `role in ("tool", "tools")` knows both."""
    found: set[str] = set()
    for several in tree.find_all((nodes.List, nodes.Tuple, nodes.Or)):
        names = {str(one.value) for one in several.find_all(nodes.Const)}
        found |= names if role in names else set()
    return found


def check_dead_branches(subject: Subject) -> Symptoms:
    """A branch is never taken, or writes nothing.

    ## What it does
    Looks for an `elif` with the condition of an earlier branch, and for conditions that are a constant. A template that
    tests for images and writes no placeholder for any form of them is reported, too.

    ## Why it matters
    What the branch writes was meant for some conversation, which is written otherwise.

    ## How to fix
    Correct the condition, or remove the branch.
    """
    for tree, _, name in subject.places.list_trees():
        for chain in find_nodes(tree, nodes.If):
            tests = [chain.test, *(branch.test for branch in chain.elif_)]
            for number, test in enumerate(tests):
                is_constant = isinstance(test, nodes.Const) and not test.value
                if is_constant or test in tests[:number]:
                    yield Symptom(
                        "a branch is never taken: its condition is "
                        + ("false" if is_constant else "that of an earlier branch"),
                        "Correct the condition, or remove the branch.",
                        subject.places.of_node(test, name),
                    )
    if subject.facts.is_accepting:
        yield from _find_dropped_images(subject)


def _find_dropped_images(subject: Subject) -> Symptoms:
    """Yield a symptom if a template tests for images, and writes the same without them."""
    tested = list(filter(None, map(subject.places.of_constant, IMAGE_FORMS)))
    for row in filter(None, map(subject.forms.find, IMAGE_FORMS)) if tested else ():
        parts = row.probe.messages[-1]["content"]
        texts = [{"role": "user", "content": [part for part in parts if part["type"] == "text"]}]
        bare = replace(row.probe, messages=[*row.probe.messages[:-1], *texts])
        if row.verdict != "dropped" or subject.text_of(row.probe) != subject.text_of(bare):
            return
    if tested:
        yield Symptom(
            "the template tests for images, and drops them silently",
            "Write a placeholder for them, or refuse them with raise_exception.",
            tested[0],
            row.probe,
        )


def check_lost_assignments(subject: Subject) -> Symptoms:
    """A variable is set in a loop, and read only after it; or a macro is given a value that it does not read.

    ## What it does
    Looks for `set` inside of a loop whose variable is not read inside of it, but after it or in a namespace under the
    same name, and for parameters of macros that are not read.

    ## Why it matters
    What is set in a loop is forgotten at the end of each round: Jinja keeps the value from before the loop. So the
    assignment does nothing, and what follows goes on as if nothing had been found. A macro that does not read its
    parameter does not write the text that it was given.

    ## How to fix
    Keep the value in a namespace: `{% set found = namespace(index=0) %}`, then `{% set found.index = loop.index0 %}`.
    Write the parameter, or remove it.
    """
    for tree, _, name in subject.places.list_trees():
        for macro in find_nodes(tree, nodes.Macro):
            read = {one.name for one in walk(*macro.body) if isinstance(one, nodes.Name)}
            for argument in macro.args:
                if argument.name not in read:
                    yield Symptom(
                        f"the macro {macro.name} does not read its parameter {argument.name}",
                        "Write it, or remove it.",
                        subject.places.of_node(argument, name),
                    )
        later = {one.name for one in find_nodes(tree, nodes.Name) if one.ctx == "load"}
        kept = {one.key for one in find_nodes(tree, nodes.Keyword)}  # of namespaces, mostly
        for loop in find_nodes(tree, nodes.For):
            inside = list(walk(*loop.body))
            read = {one.name for one in inside if isinstance(one, nodes.Name) and one.ctx == "load"}
            names = [one for one in inside if isinstance(one, nodes.Name) and one.ctx == "store"]
            for variable in names:
                if variable.name not in read and variable.name in later | kept:
                    yield Symptom(
                        f"{variable.name} is set in a loop, where it is not read, and forgotten after it",
                        "Keep the value in a namespace.",
                        subject.places.of_node(variable, name),
                    )


CHECKS = (
    Check("T610", "unknown-name", "error", check_known_names, reads_source=True),
    Check("T611", "unknown-key", "error", check_known_keys, reads_source=True),
    Check("T612", "dead-branch", "warning", check_dead_branches, reads_source=True),
    Check("T613", "lost-assignment", "warning", check_lost_assignments, reads_source=True),
)
