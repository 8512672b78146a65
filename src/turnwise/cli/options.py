"""Options of commands, as the docstrings of the commands describe them.

A command is a function with plain types. Its docstring ends with a line for each parameter: the name, what differs from
the usual, and the help.

    Arguments:
        data DATA: Files, folders or patterns with *.

    Options:
        tokenizer -k PATH: A tokenizer file or folder.
        port -p min=0 max=65535: The port; 0 takes a free one.
        upstream_kind KIND: One of {KINDS}.

A word that begins with `-` is a flag; without a long one, it is the name of the parameter. `min=` and `max=` are
bounds, any other word is what help calls the value. `{KINDS}` are the names in that global of the command's module, and
the only ones that are accepted; `[KINDS]` only lists them. Parameters without a line are those of `SHARED`. A command
with `**values` gets one for each line that is no parameter: `int`, `float`, `bool`, `list`, or else text.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
import sys
from collections.abc import Callable, Collection, Iterable
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer

from turnwise.errors import did_you_mean, short_repr
from turnwise.normalisation.systems import LATE_SYSTEM as LATE_SYSTEM
from turnwise.shapes import SHAPES as SHAPES

SHARED = """
    Arguments:
        template TEMPLATE: A file, a model folder, a built-in name, or -.
        chat CHAT: A JSON file of messages, or -.

    Options:
        user: A user's message, instead of CHAT.
        system: A system message to put first.
        tools FILE: A JSON file with a list of tools, or -.
        option KEY=VALUE: A variable of the template; the value as JSON.
        generation --generation -g --add-generation-prompt: Add the generation prompt.
        continued --continue --continue-final-message: Leave the last message open.
        now ISO: The time, for templates that ask for it.
        late_system NAME: Where a late system text is put: {LATE_SYSTEM}; what fits the template, if not given.
        line min=1: Which line of a JSON Lines file.
        shape NAME: What CHAT is, if not guessed: {SHAPES}.
        pick: Which template, where a model has several.
        exact: Other software's template: its text, with its known defects.
        as_json --json: Print JSON.
        colour bool --color/--no-color: Colours, or none; by default only on a terminal.
"""
SECTION = re.compile(r"^ *(Arguments|Options):\n((?: {8}.*\n?)+)", re.MULTILINE)
ENTRY = re.compile(r"^ {8}(\w+)((?: \S+?)*?): (.*(?:\n {9}.*)*)", re.MULTILINE)
CHOICES = re.compile(r"([{[])([A-Za-z_.]+)[]}]")
TYPES = {"int": int, "float": float, "bool": bool, "list": list[str]}


class CommandOption(NamedTuple):
    """One parameter: what typer is told of it, its type if the function has none, and the names that it accepts."""

    info: Any
    type: Any
    flag: str
    choices: Collection[str] = ()


def check_choice(value: str | None, known: Iterable[str], flag: str) -> None:
    """Refuse a value of a flag that is not one of the known ones; None is a flag that was not given."""
    names = list(known)
    if value is not None and value not in names:
        hint = did_you_mean(value, names, "One of")
        raise typer.BadParameter(f"{short_repr(value)} is not known. {hint}", param_hint=flag)


def add_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the parameters and the help that typer reads; --color is in the environment already."""
    function = inspect.unwrap(command)
    own = read_options(function.__doc__ or "", sys.modules[function.__module__])
    known = {**read_options(SHARED, sys.modules[__name__]), **own}
    hints = get_type_hints(function)
    given = list(inspect.signature(function).parameters.values())
    if given and given[-1].kind is inspect.Parameter.VAR_KEYWORD:
        given.pop()
        given[1:1] = [_make_parameter(name) for name in own if name not in hints]
    given.append(_make_parameter("colour"))

    @functools.wraps(command)
    def run(*, colour: bool | None, **values: Any) -> None:
        for name, value in values.items():
            if choices := known[name].choices:
                for one in value if isinstance(value, list) else [value]:
                    check_choice(one, choices, known[name].flag)
        command(**values)

    parameters = []
    for one in given:
        option = known[one.name]
        kind: Any = hints.get(one.name, option.type)
        annotation = Annotated[kind, option.info]
        parameters.append(one.replace(annotation=annotation, kind=inspect.Parameter.KEYWORD_ONLY))
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    vars(run)["__signature__"] = inspect.Signature(parameters)
    run.__doc__ = SECTION.sub("", function.__doc__ or "")
    return run


def _make_parameter(name: str) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)


def read_options(docstring: str, module: object) -> dict[str, CommandOption]:
    """Return the parameters that a docstring describes; `module` has the choices."""
    found = {}
    for section, entries in SECTION.findall(docstring):
        for name, words, text in ENTRY.findall(entries):
            found[name] = _make_option(name, words.split(), " ".join(text.split()), section, module)
    return found


def _make_option(
    name: str, words: list[str], text: str, section: str, module: object
) -> CommandOption:
    choices: Collection[str] = ()
    if listed := CHOICES.search(text):
        names = attrgetter(listed[2])(module)
        choices = names if listed[1] == "{" else ()
        text = text.replace(listed[0], ", ".join(names))
    settings: dict[str, Any] = {"help": text}
    kind: Any = str
    flags = []
    for word in words:
        if word.startswith("-"):
            flags.append(word)
        elif word.startswith(("min=", "max=")):
            settings[word[:3]] = json.loads(word[4:])
        elif word in TYPES:
            kind = TYPES[word]
        else:
            settings["metavar"] = word
    if section == "Arguments":
        return CommandOption(typer.Argument(show_default=False, **settings), kind, name, choices)
    if not any(flag.startswith("--") for flag in flags):
        flags.insert(0, to_flag(name))
    return CommandOption(typer.Option(*flags, **settings), kind | None, flags[0], choices)


def to_flag(name: str) -> str:
    """Return the flag of a parameter."""
    return f"--{name.replace('_', '-')}"
