"""Which template a model has, and why: `match("Qwen/Qwen2.5-7B-Instruct")`.

Three sources answer, and disagree: `official` (what the model's maker publishes: the `models` and `base` of our
entries), `xtuner` (the table of its documents) and `fastchat` (its rules, which have an answer to everything). Unless
one is named, `official` is asked, then `xtuner`. Within a source the id itself is looked up first, to the letter; then
a pattern that names the organisation too (`me/*`), which only users have; then its normal form (the part after the
last slash, in lower case, `-` for `_`, without the marks of a quantisation), so that copies by other people and folders
are found; then patterns of that form, those that fix more letters first.

A base model has no chat template: it gets `default`, and a warning. Nothing is looked up anywhere; a model that is
named like another is taken for it, and the reason says which pattern did that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase, translate
from functools import cache
from typing import Any, Literal, NamedTuple

from turnwise.errors import SourceError, short_repr
from turnwise.registry.entry import ENTRIES, SEPARATOR
from turnwise.registry.fastchat import match as fastchat_match
from turnwise.registry.store import Shelf, current

Kind = Literal["base", "chat"]

OFFICIAL, XTUNER, FASTCHAT = "official", "xtuner", "fastchat"
SOURCES = (OFFICIAL, XTUNER, FASTCHAT)
DEFAULT = "default"

WILD = "*?["
LONGEST = 200  # characters of an id; patterns are tried on it, and the ids of hubs have 96 at most
SET = r"\[[^]]*\]"
# texts, not compiled: `import turnwise` is to stay cheap, and re keeps what it compiled
QUANTISED = (
    r"(?:[-.](?:gguf|gptq|awq|exl2|mlx|onnx|hf|unsloth|dynamic|bnb|nf4|fp8|fp16|bf16|int[48]|w[48]a16|[48]-?bits?"
    r"|q[2-8](?:-[0k](?:-[sml])?)?))+$"
)

UNTRAINED = (
    "the chat template of its family uses special tokens that pre-training did not see; "
    "with that template they would have to be learnt, embeddings and all"
)
NOT_TRAINED = "a base model was not trained on a chat template: it continues text, and need not stop where a turn ends"
MARKED = "the markers of this template are special tokens: this model learnt them in chat training, its base did not"


@dataclass(frozen=True, slots=True)
class Match:
    """The answer: an entry, and how it was found."""

    model: str
    entry: str  # the name in the source's own words
    kind: Kind
    source: str
    reason: str
    by: Literal["id", "normal form", "pattern", "rule"]
    star: bool = False  # the template has special tokens that a base model has not learnt
    warning: str | None = None

    @property
    def name(self) -> str:
        """What `load` takes."""
        return self.entry if self.source == OFFICIAL else f"{self.source}{SEPARATOR}{self.entry}"


class Row(NamedTuple):
    """One line of a table: a name or a pattern of models, and what they get."""

    pattern: str
    entry: str
    kind: Kind
    reason: str
    star: bool = False


class UnknownModel(SourceError):
    """No source knows the model. What is near it is only looked for when somebody reads the hint."""

    def __init__(self, message: str, word: str, known: Callable[[], Iterable[str]]) -> None:
        self.word, self.known = word, known
        super().__init__(message)

    @property
    def hint(self) -> str | None:
        return near(self.word, self.known())

    @hint.setter
    def hint(self, value: str | None) -> None:
        pass

    def __reduce__(self) -> tuple[Any, ...]:
        return SourceError, (self.message,)


class Table:
    """Rows, ready to be asked."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.exact: dict[str, Row] = {}
        self.normal: dict[str, Row] = {}
        globs = []
        for row in rows:
            if any(sign in row.pattern for sign in WILD):
                globs.append(row)
                continue
            self.exact.setdefault(row.pattern, row)
            self.normal.setdefault(normal(row.pattern), row)
        globs.sort(key=lambda row: letters(row.pattern), reverse=True)
        self.rows = [row for row in globs if "/" not in row.pattern]
        self.owned = [row for row in globs if "/" in row.pattern]
        self.starts = {row.pattern[0].lower() for row in self.rows} - set(WILD)
        self.compiled: dict[str, tuple[re.Pattern[str], list[Row]]] = {}

    def find(self, model: str) -> tuple[Row, Literal["id", "normal form", "pattern"]] | None:
        if (row := self.exact.get(model)) is not None:
            return row, "id"
        plain = normal(model)
        if self.owned and (row := self.of_owner(model, plain)) is not None:
            return row, "pattern"
        if (row := self.normal.get(plain)) is not None:
            return row, "normal form"
        patterns, rows = self.patterns(plain[:1])
        if found := patterns.fullmatch(plain):
            assert found.lastindex is not None
            return rows[found.lastindex - 1], "pattern"
        return None

    def of_owner(self, model: str, plain: str) -> Row | None:
        """The row whose pattern says the organisation: it fits the id as it is, or with the normal form of its name."""
        owner, slash, name = model.strip().lower().rpartition("/")
        forms = (f"{owner}/{name}", f"{owner}/{plain}") if slash else ()
        return next(
            (
                row
                for row in self.owned
                if any(fnmatchcase(form, row.pattern.lower()) for form in forms)
            ),
            None,
        )

    def patterns(self, start: str) -> tuple[re.Pattern[str], list[Row]]:
        """The rows that can fit a name by its first letter, in one expression: the number of the group is the row's."""
        start = start if start in self.starts else ""
        if start not in self.compiled:
            rows = [row for row in self.rows if row.pattern[0].lower() in (start, *WILD)]
            text = "|".join(f"({translate(row.pattern.lower())})" for row in rows)
            self.compiled[start] = re.compile(text or "(?!)"), rows
        return self.compiled[start]


def match(model: str, source: str | None = None) -> Match:
    """The template of a model, by its id, with the reason."""
    if not isinstance(model, str) or not model.strip() or len(model) > LONGEST:
        raise SourceError(
            f"a model is named by an id such as 'Qwen/Qwen2.5-7B-Instruct', not {short_repr(model)}"
        )
    found: Match | None
    if source is None:
        found = by_table(OFFICIAL, model) or by_table(XTUNER, model)
    elif source == FASTCHAT:
        found = by_fastchat(model)
    elif source in SOURCES:
        found = by_table(source, model)
    else:
        raise SourceError(
            f"there is no source {short_repr(source)}", hint=f"Sources: {', '.join(SOURCES)}."
        )
    if found is None:
        asked = source or f"{OFFICIAL} or {XTUNER}"
        raise UnknownModel(
            f"no template of {asked} is known to be for {short_repr(model, 200)}", model, known
        )
    return found


def by_table(source: str, model: str) -> Match | None:
    found = tables()[source].find(model)
    if found is None:
        return None
    row, by = found
    how = {
        "id": "",
        "normal form": f"{model!r} is named like {row.pattern!r}: ",
        "pattern": f"{model!r} fits {row.pattern!r}: ",
    }[by]
    return Match(model, row.entry, row.kind, source, how + row.reason, by, row.star, warning(row))


def warning(row: Row) -> str | None:
    """What must be said about a row, if anything."""
    if row.kind == "base":
        return f"{NOT_TRAINED}; {UNTRAINED}" if row.star else NOT_TRAINED
    return MARKED if row.star else None


def by_fastchat(model: str) -> Match:
    """FastChat's answer. It knows no base models; that comes from `official`, else from the name."""
    answer = fastchat_match(model)
    found = tables()[OFFICIAL].find(model)
    kind: Kind = found[0].kind if found else "base" if normal(model).endswith("-base") else "chat"
    said = NOT_TRAINED if kind == "base" else None
    return Match(model, answer.template, kind, FASTCHAT, answer.reason, "rule", warning=said)


# -- tables ----------------------------------------------------------------------------------------------------------

_current: tuple[Shelf, dict[str, Table]] | None = None


def tables() -> dict[str, Table]:
    """The tables of `official` and `xtuner`; made anew when the entries have changed."""
    global _current
    now = current()
    if _current is None or _current[0] is not now:
        _current = (now, {OFFICIAL: Table(official_rows(now)), XTUNER: _xtuner()})
    return _current[1]


def official_rows(now: Shelf) -> Iterator[Row]:
    for entry in reversed(now.entries.values()):  # what users add comes last, and wins
        name = entry.name
        for pattern in entry.models:
            yield Row(pattern, name, "chat", f"a chat model of the entry {name}")
        for pattern in entry.base:
            of = "no template of its own" if name == DEFAULT else f"the family of {name}"
            yield Row(
                pattern,
                DEFAULT,
                "base",
                f"a base model ({of}), which gets `{DEFAULT}`",
                entry.untrained,
            )


@cache
def _xtuner() -> Table:
    import tomllib  # as in the shelf: not needed by who only compiles

    data = tomllib.loads(ENTRIES.with_name("models.toml").read_text(encoding="utf-8"))[XTUNER]
    reasons: Mapping[str, str] = data["reasons"]
    return Table(
        Row(model, name.rstrip("*"), kind, reasons[why], star=name.endswith("*"))
        for model, name, kind, why in data["rows"]
    )


# -- names -----------------------------------------------------------------------------------------------------------


def normal(model: str) -> str:
    """An id as patterns see it: the last part in lower case, `-` for `_`, without the marks of a quantisation."""
    plain = (
        model.strip()
        .rstrip("/")
        .replace("\\", "/")
        .rpartition("/")[2]
        .lower()
        .replace("_", "-")
        .replace(" ", "-")
    )
    return re.sub(QUANTISED, "", plain) or plain


def letters(pattern: str) -> tuple[int, int]:
    """How much a pattern says: the letters that it fixes, then the sets of which it wants one."""
    fixed, sets = re.subn(SET, "", pattern)
    return len(fixed) - fixed.count("*") - fixed.count("?"), sets


def known() -> list[str]:
    """Every id and name that could have been meant."""
    ids = [row.pattern for table in tables().values() for row in table.exact.values()]
    return list(dict.fromkeys(ids))


def near(word: str, names: Iterable[str]) -> str | None:
    spelled = {name.lower(): name for name in names}
    short = {name.rpartition("/")[2]: full for name, full in spelled.items()}
    found = get_close_matches(word.lower(), spelled, 3, 0.7) or get_close_matches(
        normal(word), short, 3, 0.7
    )
    close = dict.fromkeys(spelled.get(name) or short[name] for name in found)
    return f"Did you mean {' or '.join(map(repr, close))}?" if close else None
