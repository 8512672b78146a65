"""Find templates by name, path, model id or tokenizer: `load("qwen2.5")`, `load("models/mine")`, `load(tokenizer)`.

A string is looked up in this order:

1. the name of an entry, even if the current folder has a file of that name (write `./qwen2.5` for the file);
2. a path that exists;
3. the name of an imported entry without its dialect, if only one entry has it (`internlm_chat`);
4. the id of a model (`Qwen/Qwen2.5-7B-Instruct`, or `Qwen/Qwen2.5-7B-Instruct@main`) in the local Hugging Face cache,
   whose folder is then read; if an entry for the model writes something else, that is told;
5. the id of a model for which `match` knows the entry.

Entries are data files in `entries/`; `store` describes how users add their own. Nothing is downloaded, unless the
caller says so (`download=True`, see `hub`).
"""

from __future__ import annotations

import os
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from warnings import warn

from turnwise.dialects import translate
from turnwise.dialects.translation import copy_source
from turnwise.errors import SourceError, TemplateError, TurnwiseWarning, short_repr
from turnwise.registry.entry import Entry
from turnwise.registry.files import (
    HasChatTemplate,
    NoChatTemplate,
    TemplateSource,
    names_in_folder,
    read_path,
    read_tokenizer,
    unreadable,
)
from turnwise.registry.hub import download_model
from turnwise.registry.match import (
    CACHE,
    MAX_ID_LENGTH,
    NO_ENTRY_HINT,
    Match,
    UnknownModel,
    match,
    match_official,
)
from turnwise.registry.reference import describe_difference
from turnwise.registry.store import current_store, entries, find_entry, register, unregister
from turnwise.template import Template, compile_jinja
from turnwise.tokens.tokenizers.hub_cache import find_cached_model, split_revision

__all__ = [
    "Entry",
    "HasChatTemplate",
    "Match",
    "TemplateSource",
    "compile_source",
    "entries",
    "load",
    "match",
    "find_source",
    "register",
    "unregister",
]


def load(
    where: str | os.PathLike[str] | HasChatTemplate,
    *,
    pick: str | None = None,
    exact: bool = False,
    revision: str | None = None,
    download: bool = False,
) -> Template:
    """Load a template.

    Args:
        where: The name of an entry, a file, a model folder, the id of a model that is in the local Hugging Face cache
            or has an entry, or a tokenizer object of transformers. A text is looked up in this order: the name of
            an entry, a path that exists, the cached model, the entry of a model id.
        pick: The name of one template, if there are several.
        exact: For formats of other software: write the same text as that software, with its known defects.
        revision: Of a model id, the branch, tag or commit; "org/model@revision" says the same.
        download: Fetch the template and the tokenizer of a model id from the Hugging Face hub, with huggingface_hub
            (the extra `hub`), into its cache. Otherwise nothing is looked up on a network.

    Returns:
        The compiled template; the special tokens of the files or the tokenizer are its default options.

    Warns:
        TurnwiseWarning: If the template of a cached model differs from the entry for that model, a file was ignored
            for another, or the model is a base model.

    Raises:
        SourceError: If there is no template in `where`; or a file of a folder is a link out of that folder, a pipe
            or a device, or too large.
        TemplateSyntaxError: If the template cannot be compiled.

    Example:
        >>> import turnwise
        >>> template = turnwise.load("qwen2.5")
        >>> str(template.render([{"role": "user", "content": "hi"}])).endswith("hi<|im_end|>\\n")
        True
    """
    found = find_source(where, pick=pick, exact=exact, revision=revision, download=download)
    if found.warning:
        warn(found.warning, TurnwiseWarning, stacklevel=2)
    return compile_source(found)


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
        return _find_revision(where, pick, exact, revision, download)
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
    if found := _find_model(where, pick, exact):
        return found
    raise _missing_error(where)


def _find_revision(
    where: Any, pick: str | None, exact: bool, revision: str | None, download: bool
) -> TemplateSource:
    """Return the template of a model id in one revision, or from the hub."""
    model, named_revision = split_revision(where) if isinstance(where, str) else ("", None)
    if not _is_model_id(model):
        problem = f"revision and download are for the id of a model, not {short_repr(where, 200)}"
        raise SourceError(problem, hint="An id is 'org/model'.")
    revision = revision or named_revision
    if download:
        return _read_model(download_model(model, revision), model, pick, exact)
    found = _find_model(f"{model}@{revision}", pick, exact)
    if found is None:
        problem = f"revision {revision!r} of {model} is not in the local Hugging Face cache"
        raise SourceError(problem, hint="download=True fetches it, with huggingface_hub.")
    return found


def _find_model(place: str, pick: str | None, exact: bool) -> TemplateSource | None:
    """Return the template of a model id: of its cached files, else of the entry for it; None if there is neither."""
    model, revision = split_revision(place)
    if not _is_model_id(model):
        return None
    if folder := find_cached_model(place):
        return _read_model(folder, model, pick, exact)
    if revision is not None:  # an entry is not a revision
        return None
    return _read_model_entry(model, pick, exact)


def _read_model_entry(model: str, pick: str | None, exact: bool) -> TemplateSource | None:
    matched = _match_model(model)
    if matched is None or matched.source == CACHE:
        return None
    found = _read_entry(current_store().by_name[matched.name.lower()], pick, exact)
    return replace(found, warning=matched.warning and f"{model}: {matched.warning}")


def _read_model(folder: Path, model: str, pick: str | None, exact: bool) -> TemplateSource:
    """Return the template of a model's files, with a warning if it is not that of the entry for the model."""
    try:
        found = read_path(folder, pick, exact)
    except NoChatTemplate as error:
        entry = _read_model_entry(model, pick, exact)
        if entry is None:
            raise
        problem = f"{error.message}: the built-in entry {entry.name} is used"
        return replace(entry, warning=_join_warnings(problem, entry.warning))
    official = match_official(model)
    if official is None or pick is not None:
        return found
    if official.kind == "base":
        return replace(found, warning=_join_warnings(found.warning, f"{model}: {official.warning}"))
    reference = _read_entry(current_store().entries[official.entry], None, exact)
    own = replace(found, name=str(folder))
    difference = describe_difference(compile_source(own), compile_source(reference), model)
    return replace(found, warning=_join_warnings(found.warning, difference))


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
        translation, stops=entry.stops or translation.stops, replies=copy_source(entry.replies)
    )
    return TemplateSource(
        translation.jinja,
        entry.name,
        {**translation.options, **entry.options},
        dialect=entry.dialect,
        translation=translation,
        file=entry.file,
    )


def _is_model_id(place: str) -> bool:
    if place.count("/") != 1 or len(place) > MAX_ID_LENGTH:
        return False
    return not place.startswith(("/", ".", "~")) and not place.endswith("/")


def _match_model(place: str) -> Match | None:
    """Return what is known of a model if `place` is an id such as `Qwen/Qwen2.5-7B-Instruct`."""
    if not _is_model_id(place):
        return None
    try:
        return match(place)
    except UnknownModel:
        return None


def _missing_error(place: str) -> SourceError:
    """Return the error for a name or path at which there is no template."""
    if "{{" in place or "{%" in place or "\n" in place:
        hint = "Use turnwise.compile(text)."
        return SourceError("this is the text of a template, not a place", hint=hint)
    if "://" in place:
        problem = f"{short_repr(place, 200)} is an address; only local files are read"
        return SourceError(problem, hint="Download it first.")
    path = Path(place)
    is_model_id = _is_model_id(place)
    close = []
    if not is_model_id:  # a model of a similar name may have another template
        close += get_close_matches(place.lower(), current_store().by_name, n=1, cutoff=0.75)
    for name in get_close_matches(path.name, names_in_folder(path), n=3, cutoff=0.6):
        close.append(str(path.with_name(name)))
    hint = "`turnwise list` prints the built-in names."
    if close:
        hint = f"Did you mean {' or '.join(map(repr, close))}? {hint}"
    elif is_model_id:
        hint = f"{NO_ENTRY_HINT} {hint}"
    elif not path.parent.exists():
        folder = short_repr(str(path.parent), 200)
        hint = f"There is no folder {folder}. Nothing is looked up on a network. {hint}"
    problem = (
        f"there is no {short_repr(place, 200)}: no file, folder or built-in template has this name"
    )
    return SourceError(problem, hint=hint)
