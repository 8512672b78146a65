"""`diff(a, b)`: do two templates write the same text? If not, the smallest conversation on which they differ.

Both render a fixed, wide set of conversations (`analysis.conversations.variations`) with every option that one of them
reads. "No difference" is evidence, not a proof: the result tells how many conversations were tried and what they cover.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from turnwise.analysis.conversations import PROBE_TOKENS, option_names, variations
from turnwise.analysis.counterexample import Counterexample, find_counterexample, try_render
from turnwise.errors import SourceError, TurnwiseError
from turnwise.registry import load
from turnwise.template import Template
from turnwise.tokens import tokenizers

# Times the budgets of one rendering, for about a thousand conversations; the corpus needs a third of it.
COMPARING = 20


@dataclass(frozen=True)
class Comparison:
    """The result of `diff`; true if no difference was found.

    Attributes:
        witness: The smallest conversation on which the templates differ, with both texts; None if they do not.
        tried: The number of conversations.
        covers: What the conversations cover, in sentences.
        about: The same in a few words: turns, contents, ...
        options: The options that were tried.
    """

    witness: Counterexample | None
    tried: int
    covers: tuple[str, ...]
    about: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """True if no difference was found."""
        return self.witness is None

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        if self.witness is not None:
            return str(self.witness)
        topics = [*self.about]
        if self.options:
            topics.append(f"options ({', '.join(self.options)})")
        return f"no difference in {self.tried} conversations: {', '.join(topics)}"


def diff(a: Template | str, b: Template | str, tokenizer: Any = None) -> Comparison:
    """Compare two templates on made-up conversations.

    Args:
        a: A template, or a name, path or model id that `load` takes.
        b: The other one.
        tokenizer: A tokenizer whose special tokens are used; else made-up ones.

    Returns:
        The comparison; `str()` of it shows the difference.

    Raises:
        SourceError: If one of them is not a template.

    Example:
        >>> import turnwise
        >>> turnwise.diff("chatml", "chatml").equal
        True
        >>> bool(turnwise.diff("chatml", "qwen2.5"))
        False
    """
    a = to_template(a)
    b = to_template(b)
    one = a.renderer.allow(COMPARING)
    other = b.renderer.with_allowance(one.allowance)
    tokens = dict(PROBE_TOKENS)
    if tokenizer is not None:
        for name, text in tokenizers.tokenizer(tokenizer).named.items():
            if name in tokens and text:
                tokens[name] = text
    variables = list(dict.fromkeys((*a.variables, *b.variables)))
    options = tuple(option_names(variables))
    covers: dict[str, None] = {}  # as ordered sets
    about: dict[str, None] = {}
    found = None
    tried = 0
    is_rendered = False
    for probe in variations(variables, tokens):
        tried += 1
        is_rendered = is_rendered or not isinstance(try_render(one, probe), TurnwiseError)
        covers[probe.covers] = None
        if not probe.about.startswith("option "):
            about[probe.about] = None
        found = find_counterexample(one, other, probe)
        if found is not None:
            break
    if found is None and not is_rendered:
        raise SourceError(f"both templates refuse all {tried} conversations that were tried")
    return Comparison(found, tried, tuple(covers), tuple(about), options)


def to_template(given: Any) -> Template:
    """Return a template as it is, and load a name."""
    if isinstance(given, str):
        return load(given)
    if not isinstance(given, Template):
        hint = "Give what `compile` or `load` made, or a name that `load` knows."
        raise SourceError(f"diff compares templates, not {type(given).__name__}", hint=hint)
    return given
