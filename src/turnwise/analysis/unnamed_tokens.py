"""Special tokens that a template reads and that nobody gave a text.

`compile(tokenizer.chat_template)` knows no bos token. Most templates print nothing for it; one that adds it to a text
(`bos_token + content`) fails. Such a template is rendered with empty special tokens, and a warning.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.engine.option_names import SPECIAL_TOKENS
from turnwise.engine.renderer import Renderer
from turnwise.errors import TemplateRuntimeError
from turnwise.messages import JsonMapping

PLAIN_CHAT = [{"role": "user", "content": "?"}]


def find_unnamed_tokens(renderer: Renderer, given: JsonMapping) -> tuple[str, ...]:
    """Return the special tokens that the template reads and that have no value."""
    known = {*renderer.options, *given}
    return tuple(
        name for name in renderer.variables if name in SPECIAL_TOKENS and name not in known
    )


def describe_unnamed_tokens(renderer: Renderer, names: Sequence[str]) -> str:
    """Return the text of the warning."""
    return (
        f"{renderer.name} reads {', '.join(names)}, without a value: rendered as empty text. "
        f"Give {names[0]}=..., or load the model's folder or tokenizer"
    )


def needs_tokens(renderer: Renderer, arguments: JsonMapping, names: Sequence[str]) -> bool:
    """Return True if the template fails without these tokens, and does not fail if they are empty."""
    empty = dict.fromkeys(names, "")
    return _fails(renderer, arguments) and not _fails(renderer, {**arguments, **empty})


def _fails(renderer: Renderer, arguments: JsonMapping) -> bool:
    try:
        renderer.render(PLAIN_CHAT, **arguments)
    except TemplateRuntimeError:
        return True
    return False
