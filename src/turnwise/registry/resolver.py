"""Find what a place leads to: the one resolver of `load`, `serve`, the command line and every `from_pretrained`.

A text is looked up in this order:

1. the name of an entry, even if the current folder has a file of that name (write `./qwen2.5` for the file);
2. a path that exists; a model folder without a chat template gets the entry for its name, with a warning;
3. the name of an imported entry without its dialect, if only one entry has it (`internlm_chat`);
4. the id of a model (`Qwen/Qwen2.5-7B-Instruct`, or `Qwen/Qwen2.5-7B-Instruct@main`) in the local Hugging Face cache,
   whose folder is then read; if an entry for the model writes something else, the warning shows where;
5. whatever `match` answers: an id that an entry claims, a name of Ollama (`llama3.1:8b`), the tables of XTuner and
   LLaMA-Factory, the rules of FastChat and LMDeploy. The warning names the system whose format it is.

So `load(x)` succeeds where `match(x)` answers, unless `x` is written as a path. Nothing is downloaded, unless the
caller asks for it (`download=True`, see `hub`).
"""

from __future__ import annotations

import os
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from turnwise.dialects import translate
from turnwise.dialects.translation import Translation, copy_source
from turnwise.errors import SourceError, TemplateError, short_repr
from turnwise.hub_cache import find_cached_model, split_revision
from turnwise.registry.entry import Entry
from turnwise.registry.files import (
    TEMPLATE_SUFFIXES,
    HasChatTemplate,
    NoChatTemplate,
    TemplateSource,
    names_in_folder,
    read_path,
    read_tokenizer,
    unreadable,
)
from turnwise.registry.hub import download_model
from turnwise.registry.match import CACHE, MAX_ID_LENGTH, UnknownModel, match, match_official
from turnwise.registry.store import current_store, find_entry
from turnwise.template import Template, compile_jinja

PATH_STARTS = ("/", ".", "~")
LIST_HINT = "`turnwise list` prints the built-in names."


def find_source(
    where: str | os.PathLike[str] | HasChatTemplate,
    *,
    pick: str | None = None,
    exact: bool = False,
    revision: str | None = None,
    download: bool = False,
) -> TemplateSource:
    """Find what `load` would compile, without compiling it; the arguments are those of `load`."""
    if download or revision is not None:
        model, revision = _require_model_id(where, revision)
        folder = find_folder(model, revision=revision, download=download)
        assert folder is not None  # a revision that is not there is an error
        return _read_model(folder, model, pick, exact)
    if isinstance(where, bytes | os.PathLike):
        path = Path(os.fsdecode(where))
        if found := _read_existing(path, pick, exact):
            return found
        raise _missing_error(str(path))
    if not isinstance(where, str):
        return _read_object(where, pick)
    if entry := find_entry(where):
        return _read_entry(entry, pick, exact)
    if where and (found := _read_existing(Path(where), pick, exact)):
        return found
    if entry := current_store().find_short(where):
        return _read_entry(entry, pick, exact)
    if folder := find_cached_model(where):
        return _read_model(folder, split_revision(where)[0], pick, exact)
    unknown = None
    if _may_be_id(where):
        try:
            return _read_match(where, pick, exact)
        except UnknownModel as error:
            unknown = error
    raise _missing_error(where, unknown)


def find_folder(
    where: str | os.PathLike[str], *, revision: str | None = None, download: bool = False
) -> Path | None:
    """Return the folder with the files of a model: a folder itself, or what the local Hugging Face cache has of an id.

    Args:
        where: A folder, or the id of a model, which may name a revision ("org/model@main").
        revision: The branch, tag or commit of an id.
        download: Fetch what is not in the cache, as `load` does.

    Returns:
        The folder; None if there is none.

    Raises:
        SourceError: If the revision is not in the cache, or `download` is asked for what is no id.
    """
    if not download and revision is None and os.path.isdir(where):
        return Path(where)
    if isinstance(where, os.PathLike):
        return None
    if not download and revision is None:
        return find_cached_model(where)
    model, revision = _require_model_id(where, revision)
    if download:
        return download_model(model, revision)
    found = find_cached_model(model, revision)
    if found is None:
        problem = f"revision {revision!r} of {model} is not in the local Hugging Face cache"
        raise SourceError(problem, hint="download=True fetches it, with huggingface_hub.")
    return found


def _require_model_id(where: Any, revision: str | None) -> tuple[str, str | None]:
    """Return the id and the revision of a model; raise SourceError if `where` is no id."""
    model, named_revision = split_revision(where) if isinstance(where, str) else ("", None)
    if not _may_be_id(model) or model.count("/") != 1:
        problem = f"revision and download are for the id of a model, not {short_repr(where, 200)}"
        raise SourceError(problem, hint="An id is 'org/model'.")
    return model, revision or named_revision


def _may_be_id(place: str) -> bool:
    """Return whether a text could be the id of a model, or another name that `match` knows, and is not a path."""
    if not 0 < len(place) <= MAX_ID_LENGTH or place.startswith(PATH_STARTS) or place.endswith("/"):
        return False
    is_file = place.endswith((*TEMPLATE_SUFFIXES, ".json", ".gguf", ".toml"))
    # An entry is not a revision, nor what an address or a text leads to.
    return not is_file and not any(mark in place for mark in ("@", "://", "\\", "{", "\n"))


def _read_match(model: str, pick: str | None, exact: bool) -> TemplateSource:
    """Return the template of the entry that `match` answers; raise UnknownModel if it does not."""
    matched = match(model)
    if matched.source == CACHE:
        return read_path(Path(matched.name), pick, exact)
    found = _read_entry(current_store().by_name[matched.name.lower()], pick, exact)
    return found._replace(warning=matched.warning and f"{model}: {matched.warning}")


def _read_model(folder: Path, model: str, pick: str | None, exact: bool) -> TemplateSource:
    """Return the template of a model's files, with a warning if it is not that of the entry for the model."""
    try:
        found = read_path(folder, pick, exact)
    except NoChatTemplate as error:
        return _read_entry_instead(error, model, pick, exact)
    official = match_official(model)
    if official is None or pick is not None:
        return found
    if official.kind == "base":
        return found._replace(warning=_join_warnings(found.warning, f"{model}: {official.warning}"))
    from turnwise.registry.reference import describe_difference, writes_names

    entry = compile_source(_read_entry(current_store().entries[official.entry], None, exact))
    own = compile_source(found._replace(name=str(folder)))
    difference = describe_difference(own, entry, model)
    if difference and writes_names(entry) and not writes_names(own):
        known = found.translation or Translation(found.text)
        found = found._replace(translation=replace(known, fuller=entry.name))
    return found._replace(warning=_join_warnings(found.warning, difference))


def _read_entry_instead(
    error: NoChatTemplate, model: str, pick: str | None, exact: bool
) -> TemplateSource:
    """Return the template of the entry for a model whose files have none; raise the error if there is no entry."""
    try:
        found = _read_match(model, pick, exact)
    except UnknownModel:
        raise error from None
    problem = f"{error.message}: the built-in entry {found.name} is used"
    return found._replace(warning=_join_warnings(problem, found.warning))


def _join_warnings(*warnings: str | None) -> str | None:
    return "; ".join(filter(None, warnings)) or None


def compile_source(source: TemplateSource) -> Template:
    """Compile a template that was found; an error names the user's file that holds it."""
    try:
        return compile_jinja(
            source.text,
            name=source.name,
            options=source.options,
            named=source.named,
            dialect=source.dialect,
            translation=source.translation,
        )
    except TemplateError as error:
        if source.file:
            error.name = f"{source.file}: {error.name}"
        raise


def _read_existing(path: Path, pick: str | None, exact: bool) -> TemplateSource | None:
    """Return the template of a path; None if there is nothing at that path."""
    try:
        return read_path(path, pick, exact) if path.exists() else None
    except NoChatTemplate as error:
        return _read_entry_instead(error, path.resolve().name, pick, exact)
    except OSError as error:
        raise unreadable(path, error) from error


def _read_object(where: HasChatTemplate, pick: str | None) -> TemplateSource:
    if hasattr(where, "chat_template") and not isinstance(where, type):
        return read_tokenizer(where, pick)
    accepted = "a name, a path, a model id or a tokenizer with a chat template"
    raise SourceError(f"load takes {accepted}, not {type(where).__name__}")


def _read_entry(entry: Entry, pick: str | None, exact: bool) -> TemplateSource:
    if pick not in (None, "default"):
        raise SourceError(f"{entry.name} has no template called {pick!r}", hint="It has: default.")
    if entry.unusable:
        raise SourceError(f"{entry.name} cannot be loaded: {entry.unusable}")
    try:
        translation = translate(entry.source, entry.dialect, entry.name, exact)
    except SourceError as error:
        raise (error.within(entry.file) if entry.file else error) from None
    translation = replace(
        translation,
        stops=entry.stops or translation.stops,
        replies=copy_source(entry.replies),
        fuller=entry.fuller,
    )
    return TemplateSource(
        translation.jinja,
        entry.name,
        {**translation.options, **entry.options},
        dialect=entry.dialect,
        translation=translation,
        file=entry.file,
    )


def _missing_error(place: str, unknown: UnknownModel | None = None) -> SourceError:
    """Return the error for a name or path at which there is no template, with what `match` says of an id."""
    if "{{" in place or "{%" in place or "\n" in place:
        hint = "Use turnwise.compile(text)."
        return SourceError("this is the text of a template, not a place", hint=hint)
    if "://" in place:
        problem = f"{short_repr(place, 200)} is an address; only local files are read"
        return SourceError(problem, hint="Download it first.")
    path = Path(place)
    close = [] if unknown and "/" in place else _close_names(place)
    for name in get_close_matches(path.name, names_in_folder(path), n=3, cutoff=0.6):
        close.append(str(path.with_name(name)))
    hints = [LIST_HINT]
    if close:
        hints.insert(0, f"Did you mean {' or '.join(map(repr, close))}?")
    elif unknown and unknown.hint and "/" in place:
        hints.insert(0, unknown.hint)
    elif not path.parent.exists():
        folder = short_repr(str(path.parent), 200)
        hints.insert(0, f"There is no folder {folder}. Nothing is looked up on a network.")
    problem = (
        f"there is no {short_repr(place, 200)}: no file, folder or built-in template has this name"
    )
    return SourceError(problem, hint=" ".join(hints))


def _close_names(place: str) -> list[str]:
    return get_close_matches(place.lower(), current_store().by_name, n=1, cutoff=0.75)
