"""Find the template of a model by its id, and the reason: `match("Qwen/Qwen2.5-7B-Instruct")`.

There are six sources, and they disagree:

| source | what it is |
|---|---|
| `official` | the template that the model's maker publishes: `models` and `base` of our entries, and known texts |
| `xtuner` | the table in its documentation |
| `llamafactory` | its table of models |
| `lmdeploy` | its rules, by words in the id |
| `fastchat` | its rules, which match every id |
| `ollama` | names of its library, such as `llama3.1:8b`, which stand for models that `official` knows |

Unless a source is given, `official`, `xtuner` and `llamafactory` are asked in this order, `ollama` if the id has the
form of its names, then the local Hugging Face cache (a match of the cache names the model's folder), and last the rules
of `fastchat` and `lmdeploy`. Those look for a word in the name, so they are believed only if the rest of the name is a
size, a release or the like; the warning names them. What they would say of an unknown model stands in the error.

`official` goes by the name (`model_table` tells how) and by the text: of some thousand models it is known which
published template they have (`published`). A fine-tune that is only named like a model is not taken for it; one that
is known to have the same text gets its entry. A base model has no chat template: it gets `default` and a warning.
Nothing is looked up on a network.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache, cached_property

from turnwise.errors import SourceError, short_repr
from turnwise.hub_cache import find_cached_model
from turnwise.messages import JsonMapping, JsonObject
from turnwise.registry import fastchat, lmdeploy
from turnwise.registry.entry import ENTRIES, SEPARATOR
from turnwise.registry.model_table import (
    Kind,
    MatchedBy,
    ModelRow,
    ModelTable,
    chats,
    normal_form,
    rest_is_plain,
)
from turnwise.registry.published import PublishedText, texts_of, texts_of_namesakes
from turnwise.registry.store import EntryStore, built_in_store, current_store

OFFICIAL, XTUNER, FASTCHAT, LMDEPLOY = "official", "xtuner", "fastchat", "lmdeploy"
LLAMAFACTORY, OLLAMA = "llamafactory", "ollama"
CACHE = "cache"
"""The source of a model that is only known by its files in the local Hugging Face cache."""
DEFAULT = "default"
MAX_ID_LENGTH = 200  # patterns are tried on an id; the ids of hubs have 96 characters at most
HUB_PREFIXES = ("hf.co/", "huggingface.co/")  # of Ollama's names for models of the hub
TAG = ":"
CONTRADICTIONS = ENTRIES.with_name("contradictions.json")

BASE_MODEL = "a base model was not trained on a chat template: it continues text, and need not stop where a turn ends"
BASE_WITH_SPECIAL_TOKENS = (
    f"{BASE_MODEL}; the chat template of its family uses special tokens that pre-training did not see; "
    "with that template they would have to be learnt, embeddings and all"
)
CHAT_WITH_SPECIAL_TOKENS = (
    "the markers of this template are special tokens: "
    "this model learnt them in chat training, its base did not"
)
NOT_OFFICIAL = (
    "this is LLaMA-Factory's format for the model, which may differ from the published template"
)
RULES_ONLY = (
    "the format that {} has for models with such a name; nothing is known here of the model itself"
)
SAME_START = 4  # letters that names of models must share to be compared, which is slow
SYSTEMS = {"fastchat": "FastChat", "lmdeploy": "LMDeploy"}
NO_ENTRY_HINT = (
    "It is not in the local Hugging Face cache, and nothing is looked up on a network: give the model's folder or "
    "its tokenizer_config.json, or load it with download=True."
)


@dataclass(frozen=True, slots=True)
class Match:
    """The template of a model, and how it was found.

    Attributes:
        model: The id that was asked for.
        entry: The name of the template in its source; of Ollama's names, the entry of the model they stand for; of a
            cached model, its folder.
        kind: "chat", or "base" for a model that was not trained to chat.
        source: "official", "xtuner", "llamafactory", "lmdeploy", "fastchat" or "ollama"; "cache" for files in the
            local Hugging Face cache.
        reason: Why this template, in one sentence.
        by: How the id was found: "id", "normal form", "pattern" or "rule"; "text" if its published template is known.
        star: True if the template has special tokens that a base model has not learnt.
        warning: What to know before using it; None if there is nothing.

    Example:
        >>> found = turnwise.match("Qwen/Qwen3-8B")
        >>> found.entry, found.kind
        ('qwen3', 'chat')
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
        if self.source in (OFFICIAL, OLLAMA, CACHE):
            return self.entry
        return f"{self.source}{SEPARATOR}{self.entry}"

    @property
    def is_verified(self) -> bool:
        """False if the entry is a reconstruction that was compared with nothing that the maker published."""
        entry = current_store().entries.get(self.entry)
        return self.source not in (OFFICIAL, OLLAMA) or entry is None or entry.is_verified

    @property
    def contradictions(self) -> Mapping[str, tuple[str, ...]]:
        """What other systems have for the model that writes another text, and in which chats: "bare", "system"."""
        known = _contradictions().get(self.entry) if self.source == OFFICIAL else None
        if not known:
            return {}
        others = (
            MATCHERS[source](self.model) for source in (FASTCHAT, LMDEPLOY, XTUNER, LLAMAFACTORY)
        )
        names = [other.name for other in others if other is not None]
        return {name: tuple(known[name]) for name in names if name in known}


class UnknownModel(SourceError):
    """No source has a template for the model.

    The hint takes longer to find than all answers together, so it is made when it is read.
    """

    def __init__(self, message: str, model: str) -> None:
        super().__init__(message)
        self.model = model
        del self.hint

    @cached_property
    def hint(self) -> str | None:  # type: ignore[override]
        return hint_at_others(self.model)

    def as_data(self) -> JsonObject:
        return {**super().as_data(), "hint": self.hint}


def match(model: str, source: str | None = None) -> Match:
    """Find the template of a model by its id.

    Args:
        model: An id such as "Qwen/Qwen2.5-7B-Instruct", the name of a folder, or of Ollama's library ("llama3.1:8b").
        source: "official", "xtuner", "llamafactory", "lmdeploy", "fastchat" or "ollama"; by default "official", then
            "xtuner", "llamafactory" and "ollama" (an id with a colon), the local Hugging Face cache, then the rules of
            "fastchat" and "lmdeploy" if they cover the whole name.

    Returns:
        The match, with the reason.

    Raises:
        SourceError: If the source has no template for the model, or `model` is not an id.

    Example:
        >>> import turnwise
        >>> turnwise.match("Qwen/Qwen2.5-7B-Instruct").name
        'qwen2.5'
        >>> turnwise.match("llama3.1:8b", "ollama").name
        'llama-3.1'
    """
    if not isinstance(model, str) or not model.strip() or len(model) > MAX_ID_LENGTH:
        raise SourceError(
            f"a model is named by an id such as 'Qwen/Qwen2.5-7B-Instruct', not {short_repr(model)}"
        )
    if source not in (None, *SOURCES):
        hint = f"Sources: {', '.join(SOURCES)}."
        raise SourceError(f"there is no source {short_repr(source)}", hint=hint)
    found = MATCHERS[source](model) if source is not None else _match_any(model)
    if found is not None:
        return found
    asked = source or f"{OFFICIAL}, {XTUNER} or {LLAMAFACTORY}"
    problem = f"no template of {asked} is known to be for {short_repr(model, 200)}"
    for pattern, files in _models_file()["unread"]["rows"]:
        if fnmatchcase(model.lower(), pattern):
            problem = f"{problem}: its text was not to be had; the model's folder has {files}"
    raise UnknownModel(problem, model)


def _match_any(model: str) -> Match | None:
    """Ask the sources in their order, and look into the local Hugging Face cache."""
    found = match_official(model) or _match_xtuner(model)
    if found is None and (theirs := _match_llamafactory(model)) and theirs.entry != DEFAULT:
        found = theirs
    if found is None and TAG in model:
        found = _match_ollama(model)
    if found is None and (folder := find_cached_model(model)):
        reason = "no entry is known to be for it; its files are in the local Hugging Face cache"
        found = Match(model, str(folder), "chat", CACHE, reason, "id")
    return found or _match_rules(model)


def _match_rules(model: str) -> Match | None:
    """Return what the rules of other software say of a chat model, if they cover its whole name."""
    if "/" not in model or not chats(model) or _llamafactory_table().find(model):
        return None  # not an id; or LLaMA-Factory knows the model, and has no template for it
    documented = [name for name in SYSTEMS if model in _models_file()[name]["documented"]]
    if not documented and not rest_is_plain(model, _words_of_rules()):
        return None
    theirs, rule = fastchat.match_path(model), lmdeploy.find_template(model)
    if FASTCHAT in documented or (theirs.is_specific and rest_is_plain(model, theirs.words)):
        found: Match | None = _match_fastchat(model)
    elif LMDEPLOY in documented or (rule is not None and rest_is_plain(model, rule.words)):
        found = _match_lmdeploy(model)
    else:
        return None
    if found is None or found.kind == "base":
        return None
    return replace(found, warning=RULES_ONLY.format(SYSTEMS[found.source]))


@cache
def _words_of_rules() -> frozenset[str]:
    return fastchat.all_words() | lmdeploy.all_words()


def hint_at_others(model: str) -> str:
    """Return what to do about an unknown model: what other systems would use, and which models are named alike."""
    theirs, rule = fastchat.match_path(model), lmdeploy.find_template(model)
    first = f"would use `fastchat:{theirs.template}`"
    if not theirs.is_specific:
        first = f"has no format for it, and {first}"
    second = "would take the model's own template"
    if rule is not None:
        second = f"would use `lmdeploy:{rule.template}`"
    others = f"FastChat {first}, LMDeploy {second}, by a word in the name alone."
    known = tables()[OFFICIAL].by_normal_form
    name = normal_form(model)
    alike = [other for other in known if other.startswith(name[:SAME_START])]
    close = get_close_matches(name, alike, n=3, cutoff=0.7)
    if not close:
        return f"{NO_ENTRY_HINT} {others}"
    named_alike = ", ".join(f"{known[name].pattern} ({known[name].entry})" for name in close)
    return f"{NO_ENTRY_HINT} {others} Named alike, perhaps with another template: {named_alike}."


def match_official(model: str) -> Match | None:
    """Return what our entries say of a model: by its name, and by the text of its template where that is known."""
    row_and_way = tables()[OFFICIAL].find(model)
    by_name = row_and_way and _to_match(OFFICIAL, model, *row_and_way)
    if by_name is not None and by_name.by == "id":
        return by_name
    if not chats(model):
        return None
    if by_name is not None and by_name.kind == "base":
        return by_name
    texts = texts_of(model)
    entries = _entries_of(texts)
    if by_name is not None and (not texts or by_name.entry in entries):
        return by_name
    if entries:
        reason = f"the published template of {model!r} is that of the entry {entries[0]}"
        return Match(model, entries[0], "chat", OFFICIAL, reason, "text")
    if by_name is not None:
        warning = f"the published template of {model} is known, and is not that of {by_name.entry}"
        return replace(by_name, warning=warning)
    return None if texts else _match_namesakes(model)


def _match_namesakes(model: str) -> Match | None:
    """Return the entry of the models of the same name, if there is one for each text that they have."""
    texts = texts_of_namesakes(model)
    entries = _entries_of(texts)
    if not entries or not all(text.entries for text in texts):
        return None
    others = f"a model whose published template is that of the entry {entries[0]}"
    return Match(model, entries[0], "chat", OFFICIAL, f"{model!r} is named like {others}", "text")


def _entries_of(texts: Iterable[PublishedText]) -> list[str]:
    """Return the entries for some texts, but for those that a user has taken out."""
    known = current_store().entries
    return [entry for text in texts for entry in text.entries if entry in known]


def _match_xtuner(model: str) -> Match | None:
    found = tables()[XTUNER].find(model)
    return _to_match(XTUNER, model, *found) if found else None


def _match_llamafactory(model: str) -> Match | None:
    found = _llamafactory_table().find(model)
    if found is None:
        return None
    made = _to_match(LLAMAFACTORY, model, *found)
    if made.entry == DEFAULT:
        kind = _guess_kind(model)
        return replace(made, kind=kind, warning=BASE_MODEL if kind == "base" else made.reason)
    return replace(made, warning=NOT_OFFICIAL)


def _to_match(source: str, model: str, row: ModelRow, by: MatchedBy) -> Match:
    reason = row.reason
    if by == "normal form":
        reason = f"{model!r} is named like {row.pattern!r}: {reason}"
    elif by == "pattern":
        reason = f"{model!r} fits {row.pattern!r}: {reason}"
    warning = BASE_MODEL if row.kind == "base" else None
    if row.star:
        warning = BASE_WITH_SPECIAL_TOKENS if warning else CHAT_WITH_SPECIAL_TOKENS
    return Match(model, row.entry, row.kind, source, reason, by, row.star, warning)


def _match_fastchat(model: str) -> Match:
    found = fastchat.match_path(model)
    return _to_rule_match(FASTCHAT, model, found.template, found.reason)


def _match_lmdeploy(model: str) -> Match | None:
    rule = lmdeploy.find_template(model)
    if rule is None:
        return None
    reason = f"{model!r} has {rule.describe()} (LMDeploy's rule)"
    return _to_rule_match(LMDEPLOY, model, rule.template, reason)


def _to_rule_match(source: str, model: str, template: str, reason: str) -> Match:
    kind = _guess_kind(model)
    warning = BASE_MODEL if kind == "base" else None
    return Match(model, template, kind, source, reason, "rule", warning=warning)


def _match_ollama(model: str) -> Match | None:
    """Return the entry of a name of Ollama's library, or of a model of the hub under Ollama's name."""
    for prefix in HUB_PREFIXES:
        if model.lower().startswith(prefix):
            found = match_official(model[len(prefix) :].partition(TAG)[0])
            return found and replace(found, model=model, source=OLLAMA, by="rule")
    name, _, tag = model.lower().removeprefix("library/").partition(TAG)
    for pattern, meant in _ollama_models().get(name, ()):
        if not fnmatchcase(tag or "latest", pattern):
            continue
        found = match_official(meant)
        if found is None:
            return None
        reason = f"Ollama's {name} is {meant}: {found.reason}"
        return replace(found, model=model, source=OLLAMA, reason=reason, by="rule")
    return None


def _guess_kind(model: str) -> Kind:
    """Return the kind of a model by `official` or its name: the rules of other software do not know base models."""
    if official := tables()[OFFICIAL].find(model):
        return official[0].kind
    return "base" if normal_form(model).endswith("-base") else "chat"


MATCHERS: Mapping[str, Callable[[str], Match | None]] = {
    OFFICIAL: match_official,
    XTUNER: _match_xtuner,
    FASTCHAT: _match_fastchat,
    LMDEPLOY: _match_lmdeploy,
    LLAMAFACTORY: _match_llamafactory,
    OLLAMA: _match_ollama,
}
SOURCES = tuple(MATCHERS)


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
    built_in = built_in_store().entries
    for entry in reversed(store.entries.values()):  # users' entries come last, and take precedence
        name = entry.name
        any_words = built_in.get(name) is not entry
        for pattern in entry.models:
            reason = f"a chat model of the entry {name}"
            yield ModelRow(pattern, name, "chat", reason, any_words=any_words)
        family = "no template of its own" if name == DEFAULT else f"the family of {name}"
        reason = f"a base model ({family}), which gets `{DEFAULT}`"
        for pattern in entry.base:
            yield ModelRow(pattern, DEFAULT, "base", reason, entry.untrained, any_words)


@cache
def _models_file() -> JsonMapping:
    import tomllib  # imported late: not needed to compile a template

    file = ENTRIES.with_name("models.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


@cache
def _contradictions() -> Mapping[str, Mapping[str, list[str]]]:
    """Return, by entry, templates of other systems for its models that write another text (scripts/id_claims.py)."""
    found: Mapping[str, Mapping[str, list[str]]] = json.loads(
        CONTRADICTIONS.read_text(encoding="utf-8")
    )
    return found


@cache
def _xtuner_table() -> ModelTable:
    data = _models_file()[XTUNER]
    reasons: Mapping[str, str] = data["reasons"]
    return ModelTable(
        ModelRow(model, name.rstrip("*"), kind, reasons[why], star=name.endswith("*"))
        for model, name, kind, why in [*data["rows"], *data["configs"]]
    )


@cache
def _llamafactory_table() -> ModelTable:
    """Return LLaMA-Factory's table; a model that it gives no template is trained with its `default`."""
    file = ENTRIES.with_name("llamafactory_models.json")
    models: Mapping[str, list[str]] = json.loads(file.read_text(encoding="utf-8"))["models"]
    rows = []
    for template, ids in models.items():
        reason = "a row of LLaMA-Factory's table of models"
        if not template:
            reason = f"LLaMA-Factory's table has no template for it, which means `{DEFAULT}`"
        rows += [ModelRow(model, template or DEFAULT, "chat", reason) for model in ids]
    return ModelTable(rows)


@cache
def _ollama_models() -> Mapping[str, list[tuple[str, str]]]:
    """Return, by name of Ollama's library, patterns of tags and the models that they stand for."""
    found: dict[str, list[tuple[str, str]]] = {}
    for pattern, model in _models_file()[OLLAMA]["rows"]:
        name, _, tags = pattern.partition(TAG)
        found.setdefault(name, []).append((tags or "*", model))
    return found
