"""The markers of a template under one tokenizer: which of them are one token, and what is wrong otherwise.

A marker is meant to be one token: only then can it not be confused with text, and only then was it trained as what
it means. Which markers a template writes is known from its facts (`analysis/facts.py`). Those around plain messages
are *turn markers*. A marker that the tokenizer splits, or does not know at all, is *missing*, with two exceptions
that are text by design: markers in square brackets (`[INST]`), and tags inside a turn (`<tools>`).

Also found here: a bos token that the template writes twice, turns that nothing ends, and turn markers that people write
in their texts, too, and that are no special tokens: words (`USER:`, `### Instruction:`), words in square brackets
(`[USER]`), XML tags (`<message>`).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from turnwise.analysis.facts import Facts
from turnwise.analysis.prober import replace_placeholders
from turnwise.analysis.stops import BRACKETED, CONTROL_TOKEN, MARKER
from turnwise.errors import TurnwiseWarning
from turnwise.tokens.added_tokens import add_special_tokens
from turnwise.tokens.stop_ids import find_token_id
from turnwise.tokens.tokenizers import tokenizer as load_tokenizer
from turnwise.tokens.tokenizers.protocol import Tokenizer

UNTRAINED = (
    "Resize the model's embeddings: the new rows are untrained, so the model must be trained with them before it "
    "understands them."
)
REMEDY = (
    "Add them to the tokenizer as special tokens (`markers(tokenizer).add_missing_to(tokenizer)`) and resize the "
    "model's embeddings: the new rows are untrained, so the model must be trained with them before it understands "
    "them. Or choose the template that the model was trained with, or one whose markers are ordinary words (`default` "
    "for base models)."
)
NO_EOS = (
    "the template ends replies with eos_token, and the tokenizer has none. A model that is trained so does not learn "
    "to stop. Pass eos_token=..."
)
NO_STOP = (
    "the template writes no stop token after a reply. A model that is trained so does not learn to stop. Let it write "
    "eos_token there; until then, samples end with the eos token of the tokenizer, if it names one."
)
_XML_TAG = re.compile(r"</?[A-Za-z][A-Za-z-]*>")


class TokenizedMarker(NamedTuple):
    """A marker and the ids that the tokenizer makes of it."""

    text: str
    ids: tuple[int, ...]
    turn: bool = False  # around plain messages
    stop: bool = False  # ends replies
    missing: bool = False  # should be one token, and is not

    def __str__(self) -> str:
        if not self.missing:
            return f"{self.text} {' '.join(map(str, self.ids))}"
        return f"{self.text} ({f'{len(self.ids)} tokens' if len(self.ids) != 1 else 'unknown'})"


class Markers(tuple[TokenizedMarker, ...]):
    """The markers of a template under one tokenizer; `problems` are sentences about the two together."""

    problems: tuple[str, ...]
    ordinary: tuple[TokenizedMarker, ...]
    """Those around messages that people write in their texts, too, such as `<message>` or `USER:`: a poor choice."""
    remedy = REMEDY

    def __new__(
        cls,
        markers: Iterable[TokenizedMarker] = (),
        problems: Iterable[str] = (),
        ordinary: Iterable[TokenizedMarker] = (),
    ) -> Markers:
        found = super().__new__(cls, markers)
        found.problems = tuple(problems)
        found.ordinary = tuple(ordinary)
        return found

    @property
    def missing(self) -> tuple[TokenizedMarker, ...]:
        """Those that the tokenizer splits or does not know: add them to it."""
        return tuple(marker for marker in self if marker.missing)

    def add_missing_to(self, tokenizer: Any) -> tuple[str, ...]:
        """Add the missing markers to a tokenizer object, as special tokens.

        The model does not know the new tokens: resize its embeddings and train them. A warning says so.

        Args:
            tokenizer: An object of transformers or tokenizers; it is changed.

        Returns:
            The texts that were added.

        Raises:
            TokenizerError: The tokenizer cannot be changed: a file, or an object of another library.

        Example:
            >>> template.markers(tokenizer).add_missing_to(tokenizer)  # doctest: +SKIP
            ('<|im_start|>', '<|im_end|>')
        """
        texts = tuple(marker.text for marker in self.missing)
        add_special_tokens(tokenizer, texts)
        if texts:
            names = ", ".join(texts)
            warnings.warn(f"added to the tokenizer: {names}. {UNTRAINED}", TurnwiseWarning, 2)
        return texts


def tokenize_markers(facts: Facts, source: object) -> Markers:
    """Return every marker that the template writes with its ids, in the order in which they are first rendered."""
    tokenizer = load_tokenizer(source)
    turn_markers = facts.turn_markers_for(tokenizer.named)
    stops = facts.stops_for(tokenizer.named)
    written = [marker.text for marker in facts.markers_for(tokenizer.named)]
    found = [
        _tokenize_marker(text, tokenizer, text in turn_markers, text in stops)
        for text in dict.fromkeys((*written, *stops))
        if text in written or text != tokenizer.named.get("eos_token")
    ]
    special = {text for text, token in tokenizer.added.items() if token.special}
    special.update(facts.special_tokens(tokenizer.named).values())
    ordinary = [  # a word, a word in square brackets or an XML tag
        _tokenize_marker(text, tokenizer, True, text in stops)
        for text in turn_markers
        if text not in special
        and (not MARKER.search(text) or _XML_TAG.fullmatch(text) or BRACKETED.fullmatch(text))
    ]
    return Markers(found, find_problems(facts, tokenizer), ordinary)


def find_problems(facts: Facts, tokenizer: Tokenizer) -> Iterator[str]:
    """What goes wrong with this template and this tokenizer in plain conversations."""
    named = tokenizer.named
    turn_markers = [
        _tokenize_marker(text, tokenizer, True) for text in facts.turn_markers_for(named)
    ]
    missing = ", ".join(str(marker) for marker in turn_markers if marker.missing)
    if missing:
        yield f"{tokenizer.name} lacks the markers of the turns: {missing}. {REMEDY}"
    bos = named.get("bos_token")
    tokens = facts.special_tokens(named)
    if bos and any(
        replace_placeholders(found.text, tokens).startswith(bos + bos)
        for found in facts.plain_renderings
    ):
        yield (
            f"the template writes {bos} twice at the start: once by itself, once as bos_token. Pass bos_token='', or "
            "take one of the two out of the template."
        )
    if facts.lacks_stop(named):
        yield NO_EOS if facts.reply_stops else NO_STOP


def _tokenize_marker(
    text: str, tokenizer: Tokenizer, turn: bool, stop: bool = False
) -> TokenizedMarker:
    id = find_token_id(text, tokenizer)
    ids = (id,) if id is not None else tuple(tokenizer.whole(text))
    unknown = tokenizer.id(tokenizer.named.get("unk_token", ""))
    is_control_token = bool(CONTROL_TOKEN.fullmatch(text))
    is_turn_tag = turn and bool(MARKER.fullmatch(text)) and not BRACKETED.fullmatch(text)
    is_one_token = id is not None and id != unknown
    missing = (is_control_token or is_turn_tag) and not is_one_token
    return TokenizedMarker(text, ids, turn, stop, missing)
