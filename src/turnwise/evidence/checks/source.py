"""T6: the text of the template. Misspelt variables, hidden characters and orders, a reference.

These checks read the source where no conversation could tell: what a reader does not see, and what only the right words
wake up.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from difflib import get_close_matches
from typing import Any

from jinja2 import nodes

from turnwise.analysis.conversations import STANDARD_VARIABLES, Probe
from turnwise.analysis.probe_chats import ASKED_AGAIN
from turnwise.analysis.template_constants import TemplateConstants
from turnwise.engine.compiler.syntax import TokenScan, unpack_position
from turnwise.engine.compiler.tree import walk
from turnwise.engine.option_names import SPECIAL_TOKENS
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.runtime.functions import FUNCTIONS
from turnwise.errors import short_repr
from turnwise.evidence.checks.catalogue import Check
from turnwise.evidence.checks.findings import Place, Symptom, Symptoms
from turnwise.evidence.checks.subject import Subject
from turnwise.evidence.compare import diff

GUARDS = ("defined", "undefined", "default", "d")
"""Tests and filters with which a template reads a variable that may be missing."""
HIDDEN = re.compile(
    "[\u202a-\u202e\u2066-\u2069\u200b-\u200d\u2060-\u2064\ufeff\u00ad\u180e\U000e0000-\U000e007f]"
)
"""Characters that change the direction of text, that have no width, and letters that nobody sees and models read."""
INVISIBLE = frozenset("\u200b\u200c\u200d\u2060\u2061\u2062\u2063\u2064\ufeff\u00ad\u180e")
OPTIONS = ("enable_thinking", "thinking", "reasoning_effort")
"""Names of options that many templates read."""
CLOSE_NAME = 0.85  # how similar a misspelt name is to the right one
ENCODED = re.compile(r"[A-Za-z0-9+/=_-]{80,}|(?:\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}){16,}")
LITERALS = ("data", "string")  # tokens that may be written
MAX_ASKED = 24  # constants that are put into messages
MIN_ORDER = 12  # characters of template text that a word in a message adds
MAX_LISTED = 5  # hidden characters of one line


def check_variables(subject: Subject) -> Symptoms:
    """A variable is read that nobody passes.

    ## What it does
    Lists the names that the template reads from outside, without those that callers pass, that it assigns itself, that
    it has an option for, that it reads with a test or a default, or that decide a condition, as options do. A name that
    is nearly one of those that callers pass is an error.

    ## Why it matters
    A misspelt name is undefined, which prints as nothing and is false in every test, so a part of the template never
    runs; and other engines raise an error.

    ## How to fix
    Correct the name, or read it with a default: `{{ date_string | default("") }}`.
    """
    known = {*STANDARD_VARIABLES, *SPECIAL_TOKENS, *FUNCTIONS, *subject.renderer.options}
    names = sorted(known | subject.assigned_names | set(subject.renderer.variables))
    unknown = [
        name
        for name in subject.renderer.variables
        if name not in known and name not in subject.assigned_names
    ]
    for tree, _, name in subject.places.list_trees() if unknown else ():
        guarded, asked = _guarded_names(tree), _asked_names(tree)
        for variable in unknown:
            used = [node for node in tree.find_all(nodes.Name) if node.name == variable]
            near = [
                one
                for one in get_close_matches(variable, names, 2, CLOSE_NAME)
                if one != variable and (one in known or one in OPTIONS)
            ]
            if not used or (not near and variable in guarded | asked):
                continue
            hint = f" Did you mean {near[0]}?" if near else ""
            yield Symptom(
                f"the variable {variable} is read, and callers do not pass it by themselves",
                f"Correct its name, or read it with a default.{hint}",
                subject.places.of_node(used[0], name),
                severity="error" if near else None,
            )


def _guarded_names(tree: nodes.Template) -> set[str]:
    """Return the variables that a template reads with a test or a default."""
    return {
        node.node.name
        for node in tree.find_all((nodes.Test, nodes.Filter))
        if node.name in GUARDS and isinstance(node.node, nodes.Name)
    }


def _asked_names(tree: nodes.Template) -> set[str]:
    """Return the names in conditions."""
    tests = [one.test for one in walk(tree) if isinstance(one, (nodes.If, nodes.CondExpr))]
    return {one.name for one in walk(*tests) if isinstance(one, nodes.Name)}


def check_hidden_characters(subject: Subject) -> Symptoms:
    """The source has characters that nobody sees.

    ## What it does
    Looks for characters that change the direction of text, that have no width, and for the invisible letters of the tag
    block.

    ## Why it matters
    They hide orders to the model from reviewers, and make two markers that look the same different tokens.

    ## How to fix
    Remove them, or write them as escapes that a reader sees.
    """
    for _, text, name in subject.places.list_trees():
        for number, line in enumerate(text.split("\n"), 1):
            places = [match.start() for match in HIDDEN.finditer(line)]
            hidden = [index for index in places if not _joins_emoji(line, index)]
            if not hidden:
                continue
            found = Counter(line[index] for index in hidden)
            titles = [_describe_hidden(one, count) for one, count in found.items()]
            if len(titles) > MAX_LISTED:
                titles[MAX_LISTED:] = [f"and {len(titles) - MAX_LISTED} more"]
            yield Symptom(
                f"characters in the source that nobody sees: {', '.join(titles)}",
                "Remove them, or write them as escapes.",
                Place(name, number, hidden[0] + 1, line),
                severity="warning" if INVISIBLE.issuperset(found) else None,
            )


def _describe_hidden(character: str, count: int) -> str:
    title = unicodedata.name(character, f"U+{ord(character):04X}")
    return title + (f" ({count} times)" if count > 1 else "")


def _joins_emoji(line: str, index: int) -> bool:
    """Return True for a joiner between two symbols, which makes one picture of them."""
    if line[index] != "\u200d" or not 0 < index < len(line) - 1:
        return False
    return unicodedata.category(line[index + 1]) == "So"


def check_encoded_text(subject: Subject) -> Symptoms:
    """The source has a long encoded text.

    ## What it does
    Looks for 80 characters or more without a space in a literal, or for many escapes in a row. Comments are not
    looked at: no model reads them.

    ## Why it matters
    Nobody can read what it says, and a model can. Templates are code that comes with a download.

    ## How to fix
    Write the text in the open.
    """
    for _, text, name in subject.places.list_trees():
        for position, kind, value in TokenScan(text).scan() if ENCODED.search(text) else ():
            for match in ENCODED.finditer(value) if kind in LITERALS else ():
                if len(set(match[0])) > 8:  # not a line of dashes
                    line, column = unpack_position(position)
                    before = value[: match.start()]
                    if "\n" in before:
                        line, column = line + before.count("\n"), -before.rindex("\n")
                    yield Symptom(
                        f"an encoded text of {len(match[0])} characters",
                        "Write the text in the open.",
                        subject.places.by_position(line, column + match.start(), name),
                        output=short_repr(match[0]),
                    )


def check_text_branches(subject: Subject) -> Symptoms:
    """A word in a message makes the template write a text of its own.

    ## What it does
    Puts every constant that the template compares with texts of messages into a user message and a system message, and
    compares what the template itself writes: markers and single words may differ, sentences may not.

    ## Why it matters
    A template that waits for a word ("password", a company's name) and then adds an order to the prompt is a backdoor:
    it passes every test that does not know the word.

    ## How to fix
    Do not look at the text of messages, but for markers of the template itself (`</think>`).
    """
    constants: list[Any] = []
    for _, text, _ in subject.places.list_trees():
        found = TemplateConstants.read(text)
        constants += [
            question.constant
            for question in found.questions
            if question.subject not in ("role", "type") and isinstance(question.constant, str)
        ]
    words = [word for word in dict.fromkeys(constants) if len(word) > 2][:MAX_ASKED]
    plain = subject.chat(subject.user(), subject.reply(), subject.user(ASKED_AGAIN), prompt=True)
    expected = _own_text(subject, plain)
    if expected is None:
        return
    for word in words:
        probe = subject.chat(
            subject.user(word), subject.reply(), subject.user(ASKED_AGAIN), prompt=True
        )
        written = _own_text(subject, probe)
        if written is None or len(written) < len(expected) + MIN_ORDER:
            continue
        yield Symptom(
            f"the word {short_repr(word)} in a message makes the template write a text of its own",
            "Do not make the prompt depend on the words of messages.",
            subject.places.of_constant(word),
            probe,
        )


def _own_text(subject: Subject, probe: Probe) -> str | None:
    """Return what the template's author wrote of a rendering."""
    outcome = subject.run(probe)
    if not isinstance(outcome, Rendering):
        return None
    return "".join(p.text for p in outcome.pieces if p.origin.kind == "template")


def check_reference(subject: Subject) -> Symptoms:
    """The template differs from the reference.

    ## What it does
    Compares the template with the one that `--reference` names, as `turnwise diff` does.

    ## Why it matters
    A template that was edited, converted or copied should still write what the original writes.

    ## How to fix
    Look at the smallest conversation on which they differ.
    """
    if subject.reference is None:
        return
    found = diff(subject.reference, subject.template, subject.tokenizer)
    witness = found.witness
    if witness is None:
        return
    yield Symptom(
        f"the template differs from {subject.reference.name}",
        "Look at the conversation; turnwise diff shows both sides.",
        subject.places.of_error(witness.b) or subject.places.at(witness.probe, witness.at),
        witness.probe,
        str(witness).partition("\na: ")[2],
    )


CHECKS = (
    Check("T601", "unknown-variable", "warning", check_variables, reads_source=True),
    Check("T602", "hidden-characters", "error", check_hidden_characters, reads_source=True),
    Check("T603", "encoded-text", "warning", check_encoded_text, reads_source=True),
    Check("T604", "word-triggers", "warning", check_text_branches),
    Check("T606", "differs-from-reference", "error", check_reference),
)
