"""Ask the programs that read a `response_template` whether they accept one: those that are installed here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from turnwise.messages import JsonMapping
from turnwise.publishing.golden import TOOLS, write_replies
from turnwise.replies.events import messages_equal
from turnwise.template import Template

# Package -> the module and the function that checks a response_template, and raises an error.
VALIDATORS: Mapping[str, tuple[str, str]] = {
    "transformers": (
        "transformers.utils.chat_parsing.response_templates",
        "load_response_template",
    ),
    "vllm": ("vllm.parser.response_template", "validate_response_template_for_serving"),
    "sglang": ("sglang.srt.parser.response_template", "validate_response_template_for_serving"),
}
CHUNK_SIZES = (1_000_000, 1, 3, 7)  # in which replies are read


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one program says about a response_template.

    Attributes:
        program: its name.
        accepted: whether it takes the template; None if it cannot be asked.
        detail: why not, or what was tried.
    """

    program: str
    accepted: bool | None
    detail: str = ""

    def __str__(self) -> str:
        answer = {True: "accepts it", False: "refuses it", None: "not asked"}[self.accepted]
        return f"{self.program}: {answer}" + (f" ({self.detail})" if self.detail else "")


def ask_validators(response_template: JsonMapping) -> list[Verdict]:
    """Return the verdict of every program that is known to read response_templates."""
    return [ask_program(program, response_template) for program in VALIDATORS]


def ask_program(program: str, response_template: JsonMapping) -> Verdict:
    """Ask one program; it is imported only if it is installed."""
    if find_spec(program) is None:
        return Verdict(program, None, "it is not installed")
    module, function = VALIDATORS[program]
    try:
        validate: Callable[[Any], Any] = getattr(import_module(module), function)
    except Exception as error:  # an installed program may lack a library, or this function
        return Verdict(program, None, f"its validator cannot be loaded: {error}")
    try:
        validate(dict(response_template))
    except Exception as error:  # whatever a foreign validator raises is a refusal
        return Verdict(program, False, str(error))
    return Verdict(program, True)


def read_back(template: Template, response_template: JsonMapping) -> Verdict:
    """Read written replies through transformers' own parser, whole and in chunks, and compare the messages."""
    program = "transformers' parser"
    if find_spec("transformers") is None:
        return Verdict(program, None, "transformers is not installed")
    try:
        make_parser: Any = import_module("transformers.utils.chat_parsing").ResponseParser
    except Exception as error:  # an older version, or a library that it needs is missing
        return Verdict(program, None, f"it cannot be loaded: {error}")
    count = 0
    for name, message, reply in write_replies(template):
        for size in CHUNK_SIZES:
            try:
                parser = make_parser(
                    response_template, prefix=template.grammar.opening, tools=TOOLS
                )
                for start in range(0, len(reply), size):
                    parser.feed(reply[start : start + size])
                found = parser.finalize()[0]
                is_equal = messages_equal(found, message)
            except Exception as error:  # whatever a foreign parser raises is a difference
                return Verdict(program, False, f"the reply {name!r}: {error}")
            if not is_equal:
                return Verdict(program, False, f"it reads another message in the reply {name!r}")
            count += 1
    return Verdict(program, True, f"{count} readings of written replies")
