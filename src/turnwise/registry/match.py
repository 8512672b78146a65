"""Find the template of a model by its id, and the reason: `match("Qwen/Qwen2.5-7B-Instruct")`.

There are four sources, and they disagree: `official` (the template that the model's maker publishes: the `models` and
`base` of our entries), `xtuner` (the table in its documentation), `fastchat` (its rules, which match every id) and
`lmdeploy` (its rules, by words in the id).
Unless a source is given, `official` is asked, then `xtuner`. Within a source an id is looked up

1. as it is;
2. among patterns that include the organisation (`me/*`), which only users' entries have;
3. in its normal form (the part after the last slash, in lower case, `-` for `_`, without suffixes of quantisations),
   so that copies by other people and local folders are found;
4. among patterns of that form, the more specific ones first.

An id that neither source knows is looked up in the local Hugging Face cache; the match then names the model's folder.

A base model has no chat template: it gets `default` and a warning. Nothing is looked up on a network; a model with a
name like another model's is taken for that model, and the reason tells which pattern matched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from functools import cache
from typing import Literal, NamedTuple

from turnwise.errors import SourceError, short_repr
from turnwise.registry.entry import ENTRIES, SEPARATOR
from turnwise.registry.fastchat import match_path
from turnwise.registry.lmdeploy import find_template
from turnwise.registry.store import EntryStore, current_store
from turnwise.tokens.tokenizers.hub_cache import find_cached_model

Kind = Literal["base", "chat"]
MatchedBy = Literal["id", "normal form", "pattern", "rule"]

OFFICIAL, XTUNER, FASTCHAT, LMDEPLOY = "official", "xtuner", "fastchat", "lmdeploy"
SOURCES = (OFFICIAL, XTUNER, FASTCHAT, LMDEPLOY)
CACHE = "cache"
"""The source of a model that is only known by its files in the local Hugging Face cache."""
DEFAULT = "default"

WILDCARDS = "*?["
CHARACTER_SET = r"\[[^]]*\]"
MAX_ID_LENGTH = 200  # patterns are tried on an id; the ids of hubs have 96 characters at most
# Text, not a compiled pattern, to keep `import turnwise` cheap; `re` caches what it compiled.
QUANTISATION_SUFFIX = (
    r"(?:[-.](?:gguf|gptq|awq|exl2|mlx|onnx|hf|unsloth|dynamic|bnb|nf4|fp8|fp16|bf16|int[48]|w[48]a16|[48]-?bits?"
    r"|q[2-8](?:-[0k](?:-[sml])?)?))+$"
)

BASE_MODEL = "a base model was not trained on a chat template: it continues text, and need not stop where a turn ends"
BASE_WITH_SPECIAL_TOKENS = (
    f"{BASE_MODEL}; the chat template of its family uses special tokens that pre-training did not see; "
    "with that template they would have to be learnt, embeddings and all"
)
CHAT_WITH_SPECIAL_TOKENS = (
    "the markers of this template are special tokens: "
    "this model learnt them in chat training, its base did not"
)
NO_ENTRY_HINT = (
    "Nothing is looked up on a network, and it is not in the local Hugging Face cache: "
    "give the model's folder or its tokenizer_config.json."
)


@dataclass(frozen=True, slots=True)
class Match:
    """The template of a model, and how it was found.

    Attributes:
        model: The id that was asked for.
        entry: The name of the template in its source; of a cached model, its folder.
        kind: "chat", or "base" for a model that was not trained to chat.
        source: "official", "xtuner", "fastchat" or "lmdeploy"; "cache" for files in the local Hugging Face cache.
        reason: Why this template, in one sentence.
        by: How the id was found: "id", "normal form", "pattern" or "rule".
        star: True if the template has special tokens that a base model has not learnt.
        warning: What to know before using it; None if there is nothing.
    """

    model: str
    entry: str
    kind: Kind
    source: str
    reason: str
    by: MatchedBy
    star: bool = False
    warning: str | None = None

    @property
    def name(self) -> str:
        """The name that `load` takes."""
        return (
            self.entry
            if self.source in (OFFICIAL, CACHE)
            else f"{self.source}{SEPARATOR}{self.entry}"
        )


class ModelRow(NamedTuple):
    """One row of a table: an id or a pattern of models, and their template."""

    pattern: str
    entry: str
    kind: Kind
    reason: str
    star: bool = False


class UnknownModel(SourceError):
    """No source has a template for the model."""


class ModelTable:
    """Rows with indexes by id and by normal form, and the patterns in the order in which they are tried."""

    def __init__(self, rows: Iterable[ModelRow]) -> None:
        self.by_id: dict[str, ModelRow] = {}
        self.by_normal_form: dict[str, ModelRow] = {}
        patterns = []
        for row in rows:
            if any(wildcard in row.pattern for wildcard in WILDCARDS):
                patterns.append(row)
                continue
            self.by_id.setdefault(row.pattern, row)
            self.by_normal_form.setdefault(normal_form(row.pattern), row)
        patterns.sort(key=lambda row: specificity(row.pattern), reverse=True)
        self.name_patterns = [row for row in patterns if "/" not in row.pattern]
        self.owner_patterns = [row for row in patterns if "/" in row.pattern]
        first_letters = {row.pattern[0].lower() for row in self.name_patterns}
        self.first_letters = first_letters - set(WILDCARDS)
        self.compiled: dict[str, tuple[re.Pattern[str], list[ModelRow]]] = {}

    def find(self, model: str) -> tuple[ModelRow, MatchedBy] | None:
        """Return the row of a model, and how it was found."""
        if row := self.by_id.get(model):
            return row, "id"
        name = normal_form(model)
        if self.owner_patterns and (row := self._match_owner(model, name)):
            return row, "pattern"
        if row := self.by_normal_form.get(name):
            return row, "normal form"
        pattern, rows = self._patterns_for(name[:1])
        if found := pattern.fullmatch(name):
            assert found.lastindex is not None
            return rows[found.lastindex - 1], "pattern"
        return None

    def _match_owner(self, model: str, name: str) -> ModelRow | None:
        """Return the row whose pattern with an organisation fits the id, or the id with the normal form of its name."""
        owner, slash, own_name = model.strip().lower().rpartition("/")
        if not slash:
            return None
        for row in self.owner_patterns:
            pattern = row.pattern.lower()
            if fnmatchcase(f"{owner}/{own_name}", pattern) or fnmatchcase(
                f"{owner}/{name}", pattern
            ):
                return row
        return None

    def _patterns_for(self, letter: str) -> tuple[re.Pattern[str], list[ModelRow]]:
        """Return the patterns that can fit a first letter as one expression, in which group n is the n-th row."""
        if letter not in self.first_letters:
            letter = ""
        if letter not in self.compiled:
            first = (letter, *WILDCARDS)
            rows = [row for row in self.name_patterns if row.pattern[0].lower() in first]
            groups = [f"({translate(row.pattern.lower())})" for row in rows]
            self.compiled[letter] = re.compile("|".join(groups) or "(?!)"), rows
        return self.compiled[letter]


def match(model: str, source: str | None = None) -> Match:
    """Find the template of a model by its id.

    Args:
        model: An id such as "Qwen/Qwen2.5-7B-Instruct", or the name of a folder.
        source: "official", "xtuner", "fastchat" or "lmdeploy"; by default "official", then "xtuner", then the local
            Hugging Face cache.

    Returns:
        The match, with the reason.

    Raises:
        SourceError: If the source has no template for the model, or `model` is not an id.

    Example:
        >>> import turnwise
        >>> turnwise.match("Qwen/Qwen2.5-7B-Instruct").name
        'qwen2.5'
    """
    if not isinstance(model, str) or not model.strip() or len(model) > MAX_ID_LENGTH:
        raise SourceError(
            f"a model is named by an id such as 'Qwen/Qwen2.5-7B-Instruct', not {short_repr(model)}"
        )
    if source not in (None, *SOURCES):
        hint = f"Sources: {', '.join(SOURCES)}."
        raise SourceError(f"there is no source {short_repr(source)}", hint=hint)
    if source == FASTCHAT:
        return _match_fastchat(model)
    if source == LMDEPLOY:
        return _match_lmdeploy(model)
    for table in (source,) if source else (OFFICIAL, XTUNER):
        if found := _match_table(table, model):
            return found
    if source is None and (folder := find_cached_model(model)):
        reason = "no entry is known to be for it; its files are in the local Hugging Face cache"
        return Match(model, str(folder), "chat", CACHE, reason, "id")
    asked = source or f"{OFFICIAL} or {XTUNER}"
    problem = f"no template of {asked} is known to be for {short_repr(model, 200)}"
    raise UnknownModel(problem, hint=NO_ENTRY_HINT)


def _match_table(source: str, model: str) -> Match | None:
    found = tables()[source].find(model)
    if found is None:
        return None
    row, by = found
    reason = row.reason
    if by == "normal form":
        reason = f"{model!r} is named like {row.pattern!r}: {reason}"
    elif by == "pattern":
        reason = f"{model!r} fits {row.pattern!r}: {reason}"
    return Match(model, row.entry, row.kind, source, reason, by, row.star, _warning(row))


def _warning(row: ModelRow) -> str | None:
    if row.kind == "base":
        return BASE_WITH_SPECIAL_TOKENS if row.star else BASE_MODEL
    return CHAT_WITH_SPECIAL_TOKENS if row.star else None


def _match_fastchat(model: str) -> Match:
    found = match_path(model)
    kind = _guess_kind(model)
    warning = BASE_MODEL if kind == "base" else None
    return Match(model, found.template, kind, FASTCHAT, found.reason, "rule", warning=warning)


def _match_lmdeploy(model: str) -> Match:
    rule = find_template(model)
    if rule is None:
        problem = f"no template of {LMDEPLOY} is known to be for {short_repr(model, 200)}"
        hint = "LMDeploy would take the chat template of the model's own files."
        raise UnknownModel(problem, hint=hint)
    kind = _guess_kind(model)
    warning = BASE_MODEL if kind == "base" else None
    reason = f"{model!r} has {rule.describe()} (LMDeploy's rule)"
    return Match(model, rule.template, kind, LMDEPLOY, reason, "rule", warning=warning)


def _guess_kind(model: str) -> Kind:
    """Return the kind of a model by `official` or its name: the rules of other software do not know base models."""
    if official := tables()[OFFICIAL].find(model):
        return official[0].kind
    return "base" if normal_form(model).endswith("-base") else "chat"


# -- tables ----------------------------------------------------------------------------------------------------------

_current: tuple[EntryStore, dict[str, ModelTable]] | None = None


def tables() -> dict[str, ModelTable]:
    """Return the tables of `official` and `xtuner`, rebuilt if the entries changed."""
    global _current
    store = current_store()
    if _current is None or _current[0] is not store:
        _current = (store, {OFFICIAL: ModelTable(_official_rows(store)), XTUNER: _xtuner_table()})
    return _current[1]


def _official_rows(store: EntryStore) -> Iterator[ModelRow]:
    for entry in reversed(store.entries.values()):  # users' entries come last, and take precedence
        name = entry.name
        for pattern in entry.models:
            yield ModelRow(pattern, name, "chat", f"a chat model of the entry {name}")
        family = "no template of its own" if name == DEFAULT else f"the family of {name}"
        reason = f"a base model ({family}), which gets `{DEFAULT}`"
        for pattern in entry.base:
            yield ModelRow(pattern, DEFAULT, "base", reason, entry.untrained)


@cache
def _xtuner_table() -> ModelTable:
    import tomllib  # imported late: not needed to compile a template

    file = ENTRIES.with_name("models.toml")
    data = tomllib.loads(file.read_text(encoding="utf-8"))[XTUNER]
    reasons: Mapping[str, str] = data["reasons"]
    return ModelTable(
        ModelRow(model, name.rstrip("*"), kind, reasons[why], star=name.endswith("*"))
        for model, name, kind, why in data["rows"]
    )


# -- names -----------------------------------------------------------------------------------------------------------


def normal_form(model: str) -> str:
    """Return an id as patterns see it: its last part in lower case, `-` for `_`, without suffixes of quantisations."""
    path = model.strip().rstrip("/").replace("\\", "/")
    name = path.rpartition("/")[2].lower().replace("_", "-").replace(" ", "-")
    return re.sub(QUANTISATION_SUFFIX, "", name) or name


def specificity(pattern: str) -> tuple[int, int]:
    """Return a sort key: the number of fixed characters of a pattern, then of its character sets."""
    rest, sets = re.subn(CHARACTER_SET, "", pattern)
    return len(rest) - rest.count("*") - rest.count("?"), sets
