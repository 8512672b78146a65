"""Where a template reads a field, as places that can be wrapped: `message['content']`, `call.arguments | tojson`.

Found in the tokens, since jinja2's tree does not know where an expression ends. A read is a name with what follows it
(`.key`, `[index]`, calls) up to the wanted key. What is assigned (`{% set ns.content = x %}`) is no read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from turnwise.repair.source_tree import SourceTree, Token, find_closing

CLOSERS = frozenset(")]")
TAG_BEGINS = ("variable_begin", "block_begin")


class Read(NamedTuple):
    """An expression that reads a value, from `start` to `end`.

    Attributes:
        is_tested: Whether it is only asked about: `x is string`, `x is defined`.
        filter: The filter that it is given to, with its arguments (`tojson(indent=2)`), or "".
        filter_end: Where the filter ends.
    """

    start: int
    end: int
    is_tested: bool = False
    filter: str = ""
    filter_end: int = 0


class ReadFinder:
    """Finds the reads of one template."""

    def __init__(self, tree: SourceTree) -> None:
        self.tree = tree
        self.tokens = list(_within_tags(tree.tokens))

    def find_key(self, key: str) -> list[Read]:
        """Return the reads of a key: `x.key`, `x['key']`, `x.get('key')`."""
        found = []
        for index, token in enumerate(self.tokens):
            end = self._end_of_key(index, token, key)
            read = self._make_read(end) if end is not None else None
            if read is not None:
                found.append(read)
        return found

    def find_filtered(self, name: str) -> list[Read]:
        """Return the expressions that are given to a filter: names with what follows them."""
        found = []
        for index, token in enumerate(self.tokens[:-1]):
            following = self.tokens[index + 1]
            if token.text != "|" or following.kind != "name" or following.text != name:
                continue
            read = self._make_read(index - 1)
            if read is not None:
                found.append(read)
        return found

    def find_names_set_from(self, reads: Sequence[Read]) -> set[str]:
        """Return the names that `{% set name = ... %}` gives to expressions with such reads."""
        starts = {read.start for read in reads}
        names = set()
        for index, token in enumerate(self.tokens):
            if token.kind == "name" and token.text == "set" and self._at(index + 2) == "=":
                for inner in self.tokens[index + 3 :]:
                    if inner.kind == "block_end":
                        break
                    if inner.start in starts:
                        names.add(self.tokens[index + 1].text)
        return names

    def _end_of_key(self, index: int, token: Token, key: str) -> int | None:
        """Return the index of the last token of a read whose key is at `index`."""
        before, after = self._at(index - 1), self._at(index + 1)
        if token.kind == "name" and token.text == key and before == ".":
            return index
        if token.kind == "string" and token.text[1:-1] == key:
            if before == "[" and after == "]" and index > 1 and self._is_value(index - 2):
                return index + 1
            if before == "(" and after == ")" and self._at(index - 2) == "get":
                return index + 1
        return None

    def _make_read(self, end: int) -> Read | None:
        """Return the read that ends with the token `end`; None if it is assigned, or no simple chain."""
        first = self._find_first(end)
        if first is None or self._is_target(first, end):
            return None
        start, stop = self.tokens[first].start, self.tokens[end].end
        following = self._at(end + 1)
        name, filter_end = "", 0
        if following == "|":
            last = end + 2
            if self._at(last + 1) == "(":
                last = find_closing(self.tokens, last + 1)
            filter_end = self.tokens[last].end
            name = self.tree.text[self.tokens[end + 2].start : filter_end]
        return Read(start, stop, following == "is", name, filter_end)

    def _find_first(self, end: int) -> int | None:
        """Return the index of the first token of the chain that ends with the token `end`."""
        index = end
        while index >= 0:
            token = self.tokens[index]
            if token.kind == "operator" and token.text in CLOSERS:
                index = self._match_back(index) - 1
                continue
            if token.kind != "name":
                return None
            if self._at(index - 1) != ".":
                return index
            index -= 2
        return None

    def _match_back(self, index: int) -> int:
        """Return the index of the bracket that opens what the one at `index` closes."""
        depth = 0
        while index >= 0:
            token = self.tokens[index]
            if token.kind == "operator":
                depth += (token.text in ")]}") - (token.text in "([{")
            if not depth:
                return index
            index -= 1
        return 0

    def _is_value(self, index: int) -> bool:
        """Whether something that can be indexed ends here."""
        token = self.tokens[index]
        return token.kind == "name" or token.text in CLOSERS

    def _is_target(self, first: int, end: int) -> bool:
        """Whether a chain is what `set` assigns to."""
        return self._at(first - 1) == "set" and self._at(end + 1) == "="

    def _at(self, index: int) -> str:
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""


def _within_tags(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens in tags, with the ends of the tags, and without white space, text and comments."""
    is_tag = False
    for token in tokens:
        if token.kind in TAG_BEGINS:
            is_tag = True
        if is_tag and token.kind != "whitespace":
            yield token
        if token.kind in ("variable_end", "block_end"):
            is_tag = False
