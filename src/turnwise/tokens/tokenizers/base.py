"""What the smaller adapters share: a library that encodes plain text, and a table of added tokens beside it.

An adapter says how its library encodes plain text (`ids_of`) and which bytes an id stands for (`bytes_of`). The rest
follows: added tokens are found by the scanner, ends are sums of widths, decoding joins bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

from turnwise.errors import TokenizerError
from turnwise.tokens.token_matcher import Scanner
from turnwise.tokens.tokenizers.foreign_errors import check_ids, check_text, guarded
from turnwise.tokens.tokenizers.offsets import Widths
from turnwise.tokens.tokenizers.protocol import AFTER, START, Added


class Plain:
    """The common part. `ids_of(text, at)`, `bytes_of(id)`, `token(id)` and `id(text)` are the adapter's own."""

    backend = ""
    prefix = 0  # how many characters the library may put before a text

    def __init__(
        self,
        name: str,
        added: Iterable[Added],
        named: Mapping[str, str],
        native: Iterable[int] = (),
    ) -> None:
        self.name = name
        self.added: Mapping[str, Added] = {token.text: token for token in added}
        self.named: Mapping[str, str] = dict(named)
        self.native = frozenset(native)
        self._texts = {token.id: token.text for token in self.added.values()}
        self._widths = Widths(self.bytes_of)

    def ids_of(self, text: str, at: int) -> list[int]:
        raise NotImplementedError

    def bytes_of(self, id: int) -> bytes | None:
        raise NotImplementedError

    def token(self, id: int) -> str | None:
        raise NotImplementedError

    @cached_property
    def _scanner(self) -> Scanner:
        return Scanner(self.added)

    def encode(self, text: str, at: int = START) -> list[int]:
        check_text(text)
        with guarded(f"{self.name} cannot encode a text of {len(text)} characters"):
            return self.ids_of(text, at)

    def whole(self, text: str) -> list[int]:
        check_text(text)
        ids: list[int] = []
        done = 0
        for hit in self._scanner.hits(text):
            ids += (
                self.encode(text[done : hit.start], AFTER if ids else START)
                if hit.start > done
                else []
            )
            ids.append(hit.token.id)
            done = hit.end
        return ids + self.encode(text[done:], AFTER if ids else START) if done < len(text) else ids

    def ends(self, text: str, ids: Sequence[int], at: int = START) -> list[int]:
        found = self._widths.ends(ids, len(text), self.prefix)
        if found is None:
            raise TokenizerError(
                f"{self.name} does not say where the {len(ids)} tokens of this text end: {text[:40]!r}",
                hint="Its vocabulary does not spell them. Use the model's tokenizer.json, if there is one.",
            )
        return found

    def decode(self, ids: Sequence[int]) -> str:
        check_ids(ids)
        with guarded(f"{self.name} cannot decode {len(ids)} ids"):
            return "".join(self.parts(ids))

    def parts(self, ids: Sequence[int]) -> Iterable[str]:
        """The text of the ids, cut at added tokens."""
        start = 0
        for index, id in enumerate(ids):
            if id in self._texts:
                yield self.text_of(ids[start:index])
                yield self._texts[id]
                start = index + 1
        yield self.text_of(ids[start:])

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of ids none of which is an added token. An id that means nothing adds nothing."""
        return b"".join(self.bytes_of(id) or b"" for id in ids).decode("utf-8", "replace")

    def __repr__(self) -> str:
        return f"<tokenizer {self.name} ({self.backend})>"


def names(ids: Mapping[str, int | None], token: Callable[[int], str | None]) -> dict[str, str]:
    """Names to texts, from names to ids; what is not there (None, or a negative id) is left out."""
    texts = {name: token(id) for name, id in ids.items() if id is not None and id >= 0}
    return {name: text for name, text in texts.items() if text}
