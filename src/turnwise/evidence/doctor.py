"""`doctor(model, template)`: a model writes garbage; is the template the reason?

Each check is a function that yields findings: what was checked, whether it is as it should be, and the evidence. The
first three are the questions of FastChat's documentation for garbled output: is it the model's own template, the one it
was trained with, or the format of another system? They are about the text: `{% generation %}` blocks do not count.

A healthy model gets no complaint. A template that is the model's own is not made wrong by another system that has
another one for it: FastChat has a rule for every id, which for most models since 2024 is a fallback. What other systems
use is evidence only where the template is not the model's own, and equals theirs: then that is where it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from jinja2 import nodes

from turnwise.analysis.conversations import option_names
from turnwise.analysis.prober import replace_placeholders
from turnwise.engine.compiler.syntax import parse
from turnwise.errors import TurnwiseError
from turnwise.evidence.checks import check_template
from turnwise.evidence.compare import diff, to_template
from turnwise.messages import message_text
from turnwise.registry import load, match
from turnwise.template import Template

SOURCES = ("fastchat", "xtuner")
GUARDS = ("defined", "undefined", "default", "d")
"""Tests and filters with which a template reads a variable that may be missing: an option, and not a mistake."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        check: What was checked.
        well: Whether it is as it should be; None if it was not checked.
        evidence: A conversation, a name or a reason.
    """

    check: str
    well: bool | None
    evidence: str

    def __str__(self) -> str:
        label = {True: "ok", False: "problem", None: "skipped"}[self.well]
        evidence = self.evidence.replace("\n", "\n  ")
        return f"{label}: {self.check}\n  {evidence}"


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """A model id, the template that it is used with, and the one that it was trained with."""

    model: str
    template: Template
    trained: Template | None
    is_own: bool = False  # the template writes what the model's own does


def _check_own_template(checked: CheckedModel) -> Iterator[Finding]:
    """Is it the template of this model?"""
    try:
        wanted = match(checked.model)
    except TurnwiseError as error:
        problem = f"no template is known for {checked.model}: {error.message}"
        yield Finding("the model's template", False, problem)
        return
    check = f"the model's template is {wanted.name} ({wanted.reason})"
    yield Finding(check, *_compare(load(wanted.name), checked.template))


def _compare(wanted: Template, used: Template) -> tuple[bool, str]:
    """Return whether two templates write the same, and the evidence."""
    if wanted.renderer == used.renderer:
        return True, "no difference: it is the same template"
    found = diff(wanted, used, masks=False)
    return found.equal, str(found)


def _check_training_format(checked: CheckedModel) -> Iterator[Finding]:
    """Is it the template that the model was trained with?"""
    check = "the format it was trained with"
    if checked.trained is None:
        yield Finding(check, None, "that template is not given (--trained)")
        return
    yield Finding(check, *_compare(checked.trained, checked.template))


def _check_other_systems(checked: CheckedModel) -> Iterator[Finding]:
    """Is it the template that another system uses for this model?"""
    check = "is it the format of another system?"
    if checked.is_own:
        yield Finding(check, True, "no, it is the model's own")
        return
    tried = []
    for source in SOURCES:
        try:
            theirs = match(checked.model, source)
            is_theirs, _ = _compare(load(theirs.name), checked.template)
        except TurnwiseError:
            continue
        if is_theirs:
            yield Finding(
                check, False, f"yes, it is {theirs.name}, which {source} uses for {checked.model}"
            )
            return
        tried.append(theirs.name)
    known = f"for {checked.model} they use {', '.join(tried)}" if tried else "none is known"
    evidence = f"no; {known}"
    yield Finding(check, True, evidence)


def _check_generation_prompt(checked: CheckedModel) -> Iterator[Finding]:
    """Does the template render a conversation, and write a generation prompt?"""
    facts = checked.template.facts
    refusal = facts.refusals.get("turns")
    check = "add_generation_prompt"
    if refusal is not None:
        yield Finding("a plain conversation", checked.is_own, refusal)
    elif facts.generation_prompt:
        yield Finding(check, True, f"the generation prompt is {facts.generation_prompt!r}")
    elif ending := _find_user_ending(checked.template):
        yield Finding(
            check, True, f"a user's turn ends with {ending!r}, after which the reply comes"
        )
    else:
        evidence = "it is ignored: the template writes no generation prompt"
        yield Finding(check, checked.is_own, evidence)


def _find_user_ending(template: Template) -> str:
    """Return what the template writes after a user's text, as Mistral's `[/INST]`, if a reply follows right there."""
    prober = template.facts.prober
    asked, answered = prober.render([prober.user()]), prober.render([prober.user(), prober.reply()])
    if asked is None or answered is None or not answered.text.startswith(asked.text):
        return ""
    opening = answered.text[len(asked.text) :].partition(message_text(prober.reply()))[0]
    if opening.strip():
        return ""  # the reply has an opening of its own, which the prompt lacks
    ending = prober.after_user(asked)
    return "" if ending is None else replace_placeholders(ending.text).strip()


def _check_variables(checked: CheckedModel) -> Iterator[Finding]:
    """Does the template read variables that are never set?"""
    template = checked.template
    own = _names_with_a_value(template)
    names = option_names(template.variables)
    unknown = [name for name in names if name not in template.options and name not in own]
    evidence = "none but the usual ones"
    if unknown:
        evidence = f"{', '.join(unknown)}: are they options, or misspelled?"
        if checked.is_own:
            evidence = f"{', '.join(unknown)}: options of the model's own template"
    yield Finding("variables that it reads", checked.is_own or not unknown, evidence)


def _names_with_a_value(template: Template) -> set[str]:
    """Return the names that a template assigns itself, in whatever scope, or reads only with a test or a default."""
    found: set[str] = set()
    for text in template.renderer.texts:
        tree = parse(text, template.name)
        found |= {macro.name for macro in tree.find_all(nodes.Macro)}
        found |= {name.name for name in tree.find_all(nodes.Name) if name.ctx != "load"}
        for node in tree.find_all((nodes.Test, nodes.Filter)):
            if node.name in GUARDS and isinstance(node.node, nodes.Name):
                found.add(node.node.name)
    return found


def _run_checks(checked: CheckedModel) -> Iterator[Finding]:
    """Is something else wrong with the template, as `turnwise check` finds it?"""
    check = "what people send to it"
    if checked.is_own:
        evidence = "it is the model's own; `turnwise check` tells what it cannot take"
        yield Finding(check, None, evidence)
        return
    errors = [
        finding for finding in check_template(checked.template) if finding.severity == "error"
    ]
    if not errors:
        yield Finding(check, True, "no check finds an error")
    for error in errors:
        place = "" if error.place is None else f" (line {error.place.line})"
        yield Finding(f"{check}: {error.name}", False, f"{error.message}{place}\n{error.fix}")


CHECKS: tuple[Callable[[CheckedModel], Iterator[Finding]], ...] = (
    _check_training_format,
    _check_other_systems,
    _check_generation_prompt,
    _check_variables,
    _run_checks,
)


def doctor(
    model: str, template: Template | str, trained: Template | str | None = None
) -> list[Finding]:
    """Check whether a template is the reason why a model writes garbage.

    Args:
        model: The id of the model.
        template: The template that it is used with, or a name that `load` takes.
        trained: The template that it was trained with.

    Returns:
        One finding or more for each check.

    Raises:
        SourceError: If a template cannot be loaded.

    Example:
        >>> from turnwise.evidence import doctor
        >>> findings = doctor("Qwen/Qwen2.5-7B-Instruct", "chatml")
        >>> findings[0].well
        False
    """
    own = None if trained is None else to_template(trained)
    checked = CheckedModel(model, to_template(template), own)
    findings = list(_check_own_template(checked))
    checked = replace(checked, is_own=all(finding.well for finding in findings))
    return findings + [finding for check in CHECKS for finding in check(checked)]
