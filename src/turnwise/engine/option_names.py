"""Keyword arguments that callers pass on to a template, checked for misspelt names.

A template's variables are passed as keyword arguments beside our own: `render(messages, enable_thinking=False)`. A
template ignores a name that it does not read, so a typo would be silent: `add_generation_promt=True` renders a prompt
without a generation prompt. A name is refused if the template does not read it and it is that of an argument of
another method, nearly that of an argument of this one, or nearly that of a variable which the template reads and which
was not given.
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from turnwise.errors import MessageError

REQUEST_FACTS = ("reasoning", "tool_choice", "response_format", "parallel_tool_calls")
"""The arguments of `render` that say what a request asks."""
RENDER_ARGUMENTS = (
    "tools",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "now",
    "normalise",
    "strict",
    "late_system",
    *REQUEST_FACTS,
)
ENCODE_ARGUMENTS = ("train_on", "max_length", "overflow", "trust", "compatible", "add_stop")
OWN_ARGUMENTS = {
    "encode": ENCODE_ARGUMENTS,
    "encode_batch": ENCODE_ARGUMENTS,
    "examples": ENCODE_ARGUMENTS[:4],
    "session": ("trust",),
}
"""The arguments of each method beside those of `render`."""
REFUSED_ARGUMENTS = {
    "examples": {"add_generation_prompt": "a sample ends with a turn"},
    "session": {
        "add_generation_prompt": "it renders prompts",
        "continue_final_message": "it renders prompts",
    },
}
"""The arguments of `render` that a method does not take, and why."""
SPECIAL_TOKENS = (
    "bos_token",
    "eos_token",
    "pad_token",
    "unk_token",
    "sep_token",
    "cls_token",
    "mask_token",
)
"""The special tokens that a tokenizer names. Most callers pass them to every template, read or not."""
CLOSE_TO_ARGUMENT = 0.8
CLOSE_TO_VARIABLE = 0.85


def reject_misspelt_options(
    given: Collection[str],
    variables: Collection[str],
    verb: str,
) -> None:
    """Raise MessageError for a name that is probably a typo, or that the method refuses.

    Args:
        given: the names that the caller passed.
        variables: the names that the template reads.
        verb: the method that was called, for the message.
    """
    refused = REFUSED_ARGUMENTS.get(verb, {})
    known = (*RENDER_ARGUMENTS, *OWN_ARGUMENTS.get(verb, ()))
    for name in given:
        if name in refused:
            raise MessageError(f"{verb} takes no {name!r}: {refused[name]}", path=name)
        if name in known or name in variables or name in SPECIAL_TOKENS:
            continue
        unused = [variable for variable in variables if variable not in given]
        close = get_close_matches(name, known, 1, CLOSE_TO_ARGUMENT)
        close += get_close_matches(name, unused, 1, CLOSE_TO_VARIABLE)
        hint = f"did you mean {close[0]}?" if close else ""
        if name in ENCODE_ARGUMENTS:
            hint = f"It takes: {', '.join(name for name in known if name not in refused)}."
        if hint:
            message = f"{verb} takes no {name!r}, and the template does not read it"
            raise MessageError(message, path=name, hint=hint)
