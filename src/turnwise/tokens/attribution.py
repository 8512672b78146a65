"""Decide which added tokens in a rendered prompt are real control tokens.

A prompt mixes text by the template's author with text by users, tools and web pages. Every character has an author,
known from its origin, and every author a trust level:

    ALL       may write any added token
    ORDINARY  may write added tokens that are not marked special (`<think>`), unless the template delimits turns with
              them
    NONE      may write none: a look-alike is encoded as ordinary text

A token is real only if one author with enough trust wrote all of its characters. Role names are input, but templates
build markers from them (`'<|' + role + '|>'`), so a known role name counts as the template's text; an unknown one is a
field like any other. A token option (`eos_token`) may write the one added token that it is; if it is any other text, it
is an option like the others, so two of them cannot spell a token together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Mapping, Sequence
from enum import IntEnum
from functools import partial
from itertools import accumulate
from typing import Any

from turnwise.engine.option_names import SPECIAL_TOKENS
from turnwise.engine.provenance.piece_table import PieceTable
from turnwise.engine.provenance.trails import NOWHERE, Field, Leaf, Written
from turnwise.engine.provenance.written_values import JSON_PUNCTUATION, json_source
from turnwise.errors import MessageError, did_you_mean
from turnwise.messages import REASONING_KEYS, JsonMapping
from turnwise.messages.roles import ASSISTANT_ROLES, RESULT_ROLES, SYSTEM_ROLES
from turnwise.schema import check_name
from turnwise.tokens.token_matcher import TokenMatch, TokenMatcher, make_match
from turnwise.tokens.tokenizers.protocol import Added


class Trust(IntEnum):
    """What an author may write; see the head of this file."""

    NONE = 0
    ORDINARY = 1
    ALL = 2


LEVELS = {"none": Trust.NONE, "ordinary": Trust.ORDINARY, "all": Trust.ALL}
OLD_ORDINARY = "words"  # the name that earlier versions documented
ROLES = frozenset(["user", *SYSTEM_ROLES, *RESULT_ROLES, *ASSISTANT_ROLES])
INPUTS = ("tools", "documents")
OPTION_PREFIX = "option "
# Fields in which assistants may write ordinary tokens.
ASSISTANT_TEXT = ("content", *REASONING_KEYS)

AuthorKey = tuple[str, str]  # the kind of an author and its name: a row of the table of trust
TEMPLATE: AuthorKey = ("template", "")  # also known role names
UNKNOWN: AuthorKey = ("unknown", "")  # computed text without an origin
# Authors that are not listed are not trusted.
DEFAULT_TRUST: Mapping[AuthorKey, Trust] = {
    TEMPLATE: Trust.ALL,
    **{("role", role): Trust.ORDINARY for role in ASSISTANT_ROLES},
}


class Attribution:
    """The authors of a rendered text, looked up at the position of a token.

    Args:
        table: the pieces of the text.
        messages: the conversation.
        trust: trust levels that differ from the table of this file.
        get_option: returns the value of an option; without it, none is a token.
    """

    def __init__(
        self,
        table: PieceTable,
        messages: Sequence[JsonMapping],
        trust: JsonMapping | None = None,
        get_option: Callable[[str], object] | None = None,
    ) -> None:
        self.table = table
        self._get_option = get_option
        self._added: Container[object] = ()
        self.messages = messages
        self.trust_table = parse_trust(trust)
        self.assistant_tokens: set[int] = set()  # where assistants wrote ordinary added tokens
        # By the index of a text.
        self._authors: dict[int, tuple[list[int], list[AuthorKey | Field]]] = {}
        self._foreign_json: dict[int, bool] = {}

    def find_allowed_tokens(
        self, matcher: TokenMatcher, text: str, begin: int = 0
    ) -> list[TokenMatch]:
        """Return the added tokens from `begin` on whose authors may write them.

        Ordinary tokens written by assistants are included and listed in `assistant_tokens`. Those that delimit
        turns must still be removed.
        """
        matches = find_template_tokens(matcher, text, self.table.starts, self.table.trails, begin)
        self._added = matcher.added
        if matches is None:
            matches = matcher.find(text, self._is_allowed, partial(self._narrow, matcher), begin)
        return matches

    def _is_allowed(self, token: Added, start: int, end: int) -> bool:
        """Return whether the author of characters `start` to `end` may write this token."""
        if not token.control:
            return True
        level = self.trust_of(start, end)
        if level == Trust.ORDINARY and not token.special:
            self.assistant_tokens.add(start)
            return True
        return level == Trust.ALL

    def turn_delimiters(self, matches: list[TokenMatch]) -> set[str]:
        """Return the tokens by which the template delimits turns.

        These are the first token of every turn, and all tokens of the turns of users and tools.
        """
        delimiters: set[str] = set()
        seen: set[int | None] = {None}
        for match in matches:
            message = self.table.message_of(self.table.index_at(match.text_start))
            is_first = message not in seen
            seen.add(message)
            if match.text_start in self.assistant_tokens:
                continue
            if is_first or self._role_of(message) in ("user", "tool"):
                delimiters.add(match.token.text)
        return delimiters

    def trust_of(self, start: int, end: int) -> Trust:
        """Return the trust in the author of characters `start` to `end`; NONE if there are several."""
        table = self.table
        index = table.index_at(start)
        offset, text_end = table.starts[index : index + 2]
        if end <= text_end:
            if type(table.trails[index]) is int:
                return Trust.ALL
            text = table.texts[index][start - offset : end - offset]
            if self._is_foreign_json(index) and not JSON_PUNCTUATION.issuperset(text):
                return Trust.NONE
        authors = {self._author_of(*fragment) for fragment in table.split_between(start, end)}
        return self._level_of(*authors)

    def _narrow(self, matcher: TokenMatcher, start: int) -> tuple[TokenMatcher, int] | None:
        """Return the tokens that the author at `start` may write, and where that author's text ends; None if all."""
        table = self.table
        index = table.index_at(start)
        end = table.starts[index + 1]
        if type(table.trails[index]) is int:
            return None
        if self._is_foreign_json(index):
            return None if matcher.has_punctuation else (matcher.blank, end)
        starts, authors = self._find_authors(index)
        run = bisect_right(starts, start) - 1
        level = self._level_of(authors[run])
        if level == Trust.ALL:
            return None
        end = starts[run + 1] if run + 1 < len(starts) else end
        return matcher.ordinary if level == Trust.ORDINARY else matcher.blank, end

    def _find_authors(self, index: int) -> tuple[list[int], list[AuthorKey | Field]]:
        """Return where the fragments of a text begin, and their authors; a text is asked once for each token in it."""
        known = self._authors.get(index)
        if known is None:
            fragments = self.table.split(index)
            lengths = (len(part) for part, _ in fragments[:-1])
            starts = list(accumulate(lengths, initial=self.table.starts[index]))
            known = starts, [self._author_of(*fragment) for fragment in fragments]
            self._authors[index] = known
        return known

    def _is_foreign_json(self, index: int) -> bool:
        """Return whether a text is the JSON of an input in which nobody may write control tokens.

        Then its trail need not be followed: whatever is not punctuation is not the template's.
        """
        known = self._foreign_json.get(index)
        if known is None:
            source = json_source(self.table.follower, self.table.trails[index])
            known = source is not None and self._is_untrusted(source)
            self._foreign_json[index] = known
        return known

    def _is_untrusted(self, source: Field) -> bool:
        """Return whether neither the texts nor the keys inside of an input are trusted."""
        path = source.path
        if path[0] == "messages" and len(path) < 3:
            return False  # roles are trusted, and are in there
        authors = [self.author_of(Field(path, is_key)) for is_key in (False, True)]
        return all(self._level_of(author) == Trust.NONE for author in authors)

    def _level_of(self, *authors: AuthorKey | Field) -> Trust:
        """Return the trust in one author; in several together there is none."""
        if len(authors) != 1:
            return Trust.NONE
        (author,) = authors
        if not isinstance(author, Field):
            return self.trust_table.get(author, Trust.NONE)
        level = self.trust_table.get(self._trust_key(author), Trust.NONE)
        return Trust.ALL if level == Trust.NONE and self._is_token_option(author) else level

    def _is_token_option(self, author: Field) -> bool:
        """Return whether a text comes from a token option that is exactly one added token."""
        name = author.path[0]
        if len(author.path) > 1 or author.key or name not in SPECIAL_TOKENS:
            return False
        value = self._get_option(str(name)) if self._get_option else None
        return isinstance(value, str) and value in self._added

    def _author_of(self, text: str, leaf: Leaf) -> AuthorKey | Field:
        """Return who wrote a fragment; a number that the template counts is the template's text."""
        is_counter = leaf == NOWHERE and text.isdigit()
        return TEMPLATE if is_counter else self.author_of(leaf)

    def author_of(self, leaf: Leaf) -> AuthorKey | Field:
        """Return the author of a text with this origin: TEMPLATE, UNKNOWN, or the field that it came from."""
        if type(leaf) is int or type(leaf) is Written:
            return TEMPLATE
        if not isinstance(leaf, Field):
            return UNKNOWN
        if leaf.key:
            return leaf
        match leaf.path:
            case ("messages", index, "role") if self._role_of(index) in ROLES:
                return TEMPLATE
            case _:
                return leaf

    def _trust_key(self, author: Field) -> AuthorKey:
        """Return the row of the table for a field: the role of its message, or the input it belongs to."""
        path = author.path
        if path[0] != "messages" or len(path) < 3:
            return "input", str(path[0])
        role = self._role_of(path[1])
        is_text = path[2] in ASSISTANT_TEXT and not author.key
        if role in ASSISTANT_ROLES and not is_text:
            return "field", f"{role}.{path[2]}"
        return "role", role

    def _role_of(self, index: Any) -> str:
        """Return the role of a message, empty if there is none."""
        if isinstance(index, int) and index < len(self.messages):
            return str(self.messages[index].get("role", ""))
        return ""


def find_template_tokens(
    matcher: TokenMatcher, text: str, starts: Sequence[int], trails: Sequence[Any], begin: int
) -> list[TokenMatch] | None:
    """Fast path: return the added tokens from `begin` on if the template wrote all of them, as in most conversations.

    Args:
        matcher: the matcher of the tokenizer.
        text: a rendered text.
        starts: where its parts begin; the last one is the end of the text.
        trails: the trails of these parts. They are not followed: a part by the template has a number.
        begin: the character to start from.

    Returns:
        The matches, or None if a token has another author or needs a look at its surroundings.
    """
    if not matcher.is_simple:
        return None
    added, index = matcher.added, 0
    matches: list[TokenMatch] = []
    for match in matcher.pattern.finditer(text, begin):
        start, end = match.span()
        index = bisect_right(starts, start, index)  # the part after the one that holds `start`
        if type(trails[index - 1]) is not int or end > starts[index]:
            return None
        matches.append(make_match((start, end, added[text[start:end]], start)))
    return matches


def parse_trust(trust: JsonMapping | None) -> Mapping[AuthorKey, Trust]:
    """Return the table of trust with the levels that the caller gives to roles, inputs and options.

    Raises:
        MessageError: `trust` is not a mapping, or names an unknown author or level.
    """
    if not trust:
        return DEFAULT_TRUST
    if not isinstance(trust, Mapping):
        raise MessageError(
            f"trust must be a mapping from roles, inputs or options to levels, not {type(trust).__name__}",
            path="trust",
        )
    table = dict(DEFAULT_TRUST)
    for name, given in trust.items():
        level = "ordinary" if given == OLD_ORDINARY else given
        check_name(level, LEVELS, "unknown trust level", "Levels", path=f"trust[{name!r}]")
        table[_parse_author(name)] = LEVELS[level]
    return table


def _parse_author(name: Any) -> AuthorKey:
    """Return the row of the table that a caller means: a role, an input, or `option NAME`."""
    if isinstance(name, str) and name.startswith(OPTION_PREFIX):
        return "input", name.removeprefix(OPTION_PREFIX)
    if name in INPUTS:
        return "input", name
    if name in ROLES:
        return "role", name
    known = (*sorted(ROLES), *INPUTS, f"{OPTION_PREFIX}NAME")
    raise MessageError(
        f"unknown role, input or option {name!r} in trust",
        path="trust",
        hint=did_you_mean(str(name), known, "Roles, inputs and options"),
    )
