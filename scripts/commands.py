"""Write the table of commands and the words that shells complete: `python scripts/commands.py`.

They are `commands.json` and `words.json` in `src/turnwise/cli`. The table is made of the docstrings of commands.

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
with `**values` gets one for each line that is no parameter: `int`, `float`, `bool`, `list`, or else text; one with
`**request` those of `REQUEST`.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from turnwise.cli import COMMANDS, load_command
from turnwise.cli.options import to_flag
from turnwise.dialects import DIALECTS
from turnwise.evidence.checks import CHECKS
from turnwise.normalisation.normalised import LATE_SYSTEM as LATE_SYSTEM
from turnwise.registry import entries
from turnwise.shapes import SHAPES as SHAPES

MODEL_ID = re.compile(r"[\w.-]+/[\w.-]+")
WORDS = Path(__file__).resolve().parents[1] / "src" / "turnwise" / "cli" / "words.json"
TABLE = Path(__file__).resolve().parents[1] / "src" / "turnwise" / "cli" / "commands.json"
SHARED = """
    Arguments:
        template TEMPLATE: A file, a model folder, a built-in name, or -.
        chat CHAT: A JSON file of messages, or -.

    Options:
        user: A user's message, instead of CHAT.
        system: A system message to put first.
        tools FILE: A JSON file with a list of tools, or -.
        option list KEY=VALUE: A variable of the template; the value as JSON.
        generation bool --generation -g --add-generation-prompt: Add the generation prompt.
        continued bool --continue --continue-final-message: Leave the last message open.
        now ISO: The time, for templates that ask for it.
        late_system NAME: Where a late system text is put: {LATE_SYSTEM}; what fits the template, if not given.
        line int min=1: Which line of a JSON Lines file.
        shape NAME: What CHAT is, if not guessed: {SHAPES}.
        pick: Which template, where a model has several.
        exact: Other software's template: its text, with its known defects.
        as_json --json: Print JSON.
        colour bool --color/--no-color: Colours, or none; by default only on a terminal.
"""
REQUEST = ["chat", "user", "system", "tools", "option", "generation", "continued", "now"]
REQUEST += ["late_system", "line", "shape"]
SECTION = re.compile(r"^ *(Arguments|Options):\n((?: {8}.*\n?)+)", re.MULTILINE)
ENTRY = re.compile(r"^ {8}(\w+)((?: \S+?)*?): (.*(?:\n {9}.*)*)", re.MULTILINE)
CHOICES = re.compile(r"([{[])([A-Za-z_.]+)[]}]")
BOUND = re.compile(r"(min|max)=(.+)")
METAVARS = {"text": "TEXT", "int": "N", "float": "X", "path": "PATH", "list": "TEXT"}
TYPES = {"str": "text", "Path": "path", "list[str]": "list"}  # where they differ from Python's


class ParameterLine(NamedTuple):
    """What a docstring says of one parameter."""

    name: str
    words: list[str]
    help: str
    is_argument: bool
    choices: list[str]

    def describe(self, given: inspect.Parameter | None) -> dict[str, Any]:
        """Return a row of the table; `given` is the parameter of the function, None for one of its `**values`."""
        kind, default = "str", None
        if given is not None:
            kind, default = given.annotation.removesuffix(" | None"), given.default
        flags, bounds, metavar = [], {}, None
        for word in self.words:
            if word.startswith("-"):
                flags.append(word)
            elif bound := BOUND.fullmatch(word):
                bounds[bound[1]] = json.loads(bound[2])
            elif word in ("int", "float", "bool", "list"):
                kind = word
            else:
                metavar = word
        kind = TYPES.get(kind, kind)
        metavar = metavar or METAVARS.get(kind)
        is_required = default is inspect.Parameter.empty
        if self.is_argument:
            metavar = metavar if is_required else f"[{metavar}]"
        elif not any(flag.startswith("--") for flag in flags):
            flags.insert(0, to_flag(self.name))
        is_list = kind == "list"
        row = {
            "names": [self.name, *flags],
            "metavar": metavar,
            "type": None if kind in ("text", "list") else kind,
            "bounds": bounds,
            "choices": self.choices,
            "is_flag": kind == "bool",
            "multiple": is_list and not self.is_argument,
            "nargs": -1 if is_list and self.is_argument else None,
            "help": self.help,
        }
        row = {key: value for key, value in row.items() if value}
        if self.is_argument or is_required:
            row["required"] = is_required
        if not is_required and (default is not None or kind == "bool"):
            row["default"] = default
        return row


def describe_command(function: Callable[..., None]) -> dict[str, Any]:
    """Return the help and the parameters of a command."""
    docstring = function.__doc__ or ""
    own = read_lines(docstring, sys.modules[function.__module__])
    known = {**read_lines(SHARED, sys.modules[__name__]), **own}
    given = inspect.signature(function).parameters
    names = list(given)
    if given and given[names[-1]].kind is inspect.Parameter.VAR_KEYWORD:
        is_request = names.pop() == "request"
        names[1:1] = REQUEST if is_request else [one for one in own if one not in given]
    paragraphs = inspect.cleandoc(SECTION.sub("", docstring)).split("\n\n")
    return {
        "help": [" ".join(paragraph.split()) for paragraph in paragraphs],
        "params": [known[name].describe(given.get(name)) for name in (*names, "colour")],
    }


def read_lines(docstring: str, module: object) -> dict[str, ParameterLine]:
    """Return the parameters that a docstring describes; `module` has the choices."""
    found = {}
    for section, lines in SECTION.findall(docstring):
        for name, words, text in ENTRY.findall(lines):
            choices: list[str] = []
            if listed := CHOICES.search(text):
                names = list(attrgetter(listed[2])(module))
                choices = names if listed[1] == "{" else []
                text = text.replace(listed[0], ", ".join(names))
            text = " ".join(text.split())
            found[name] = ParameterLine(name, words.split(), text, section == "Arguments", choices)
    return found


def write_table() -> str:
    """Return the table as JSON, a line for each paragraph and each parameter."""
    commands = []
    for name in COMMANDS:
        parts = []
        for key, rows in describe_command(load_command(name)).items():
            lines = ",\n   ".join(json.dumps(row, ensure_ascii=False) for row in rows)
            parts.append(f'  "{key}": [\n   {lines}\n  ]')
        commands.append(f' "{name}": {{\n' + ",\n".join(parts) + "\n }")
    return "{\n" + ",\n".join(commands) + "\n}\n"


def write_words() -> str:
    """Return the words that shells complete."""
    known = entries()
    models = {model for entry in known.values() for model in entry.models}
    words = {
        "entries": list(known),
        "models": sorted(model for model in models if MODEL_ID.fullmatch(model)),
        "checks": [check.code for check in CHECKS],
        "dialects": list(DIALECTS),
        "families": sorted({entry.family for entry in known.values()}),
    }
    return json.dumps(words, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    TABLE.write_text(write_table(), encoding="utf-8")
    WORDS.write_text(write_words(), encoding="utf-8")
