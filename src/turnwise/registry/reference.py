"""Compare the template in a model's files with the built-in entry for that model, and tell a difference.

The files are what the user has, and they are used. The entry is the reference: if the files write something else, the
maker has changed the template since, or a copy was edited, and the user should know. Texts that are known to be equal
to the entry by their hash need no comparison; of others both templates render a few conversations, which takes
milliseconds. So a difference in something rare is not found here; `turnwise.diff` looks at everything.
"""

from __future__ import annotations

from typing import Any

from turnwise.analysis.conversations import PROBE_TOKENS, Probe, load_probes
from turnwise.errors import TurnwiseError, short_repr
from turnwise.registry.published import identify
from turnwise.template import Template

CONTEXT = 10  # characters of each text that are shown before the first difference
MAX_SHOWN = 50  # and with those behind it


def describe_difference(own: Template, reference: Template, model: str) -> str | None:
    """Return a sentence about how a model's own template differs from its entry; None if no difference is seen."""
    known = identify(own.text)
    if known is not None and reference.name in known.equal:
        return None
    for probe in load_probes("reference"):
        ours, theirs = _render(reference, probe), _render(own, probe)
        if ours == theirs:
            continue
        about = f", {known.describe(model)}," if known else ""
        place = _first_difference(theirs, ours)
        return (
            f"the template of {model} in {own.name}{about} is used; it differs from the built-in entry "
            f"{reference.name}, first in a conversation of {probe.covers!r}: {place}"
        )
    return None


def writes_names(template: Template) -> bool:
    """Return whether a template writes the name of a message."""
    message = {"role": "user", "name": "n4m3", "content": "x"}
    arguments: dict[str, Any] = {**PROBE_TOKENS, "normalise": False}
    try:
        return "n4m3" in template.render([message], **arguments).text
    except TurnwiseError:
        return False


def _render(template: Template, probe: Probe) -> str | None:
    """Return the text with a generation prompt; None if the template refuses the conversation."""
    arguments = {**PROBE_TOKENS, **probe.arguments(), "add_generation_prompt": True}
    try:
        return template.render(probe.messages, normalise=False, **arguments).text
    except TurnwiseError:
        return None


def _first_difference(own: str | None, reference: str | None) -> str:
    if own is None or reference is None:
        return "it refuses it" if own is None else "the entry refuses it"
    pairs = enumerate(zip(own, reference, strict=False))
    shortest = min(len(own), len(reference))
    place = next((index for index, (a, b) in pairs if a != b), shortest)
    start = max(0, place - CONTEXT)
    shown = short_repr(own[start : start + MAX_SHOWN], MAX_SHOWN)
    expected = short_repr(reference[start : start + MAX_SHOWN], MAX_SHOWN)
    return f"{shown} where the entry writes {expected}"
