"""Templates by name or by place: `load("qwen2.5")`, `load("models/mine")`, `load("tokenizer_config.json")`.

A string is looked up in this order: the name of an entry (whatever the current folder holds: write `./qwen2.5` for a
folder of that name), a path that exists, the name of an imported entry without its dialect where only one has it
(`internlm_chat`), the id of a model (`Qwen/Qwen2.5-7B-Instruct`), for which `match` knows the entry. Entries are data
and lie in `entries/`; users add their own, see `shelf`. Nothing is ever fetched.
"""

from __future__ import annotations

import os
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from turnwise.errors import SourceError, TemplateError, short_repr
from turnwise.registry.entry import Entry
from turnwise.registry.files import Found, near, read_path, translate_source, unreadable
from turnwise.registry.match import LONGEST, Match, UnknownModel, known, match
from turnwise.registry.store import current, entries, register, unregister
from turnwise.template import Template

__all__ = [
    "Entry",
    "Found",
    "Match",
    "compiled",
    "entries",
    "load",
    "match",
    "read",
    "register",
    "unregister",
]


def load(
    where: str | os.PathLike[str], *, pick: str | None = None, exact: bool = False
) -> Template:
    """The template of an entry, a file, a model folder or a model's id.

    `pick` chooses one of several templates by its name. `exact` is for entries and files of other software's dialects:
    the text that it writes, defects included.
    """
    return compiled(read(where, pick=pick, exact=exact))


def read(where: str | os.PathLike[str], *, pick: str | None = None, exact: bool = False) -> Found:
    """What `load` compiles, not compiled."""
    try:
        place = os.fspath(where)
    except TypeError:
        raise SourceError(f"load takes a name or a path, not {type(where).__name__}") from None
    if isinstance(where, str) and (entry := current().find(where)):
        return _found(entry, pick, exact)
    path = Path(os.fsdecode(place))
    try:
        if place and path.exists():
            return read_path(path, pick, exact)
    except OSError as error:
        raise unreadable(path, error) from error
    if isinstance(where, str) and (entry := current().short_of(where)):
        return _found(entry, pick, exact)
    if isinstance(where, str) and (model := _of_model(where)):
        entry = current().named[model.name.lower()]
        return replace(
            _found(entry, pick, exact), warning=model.warning and f"{where}: {model.warning}"
        )
    raise _missing(os.fsdecode(place), path)


def compiled(found: Found) -> Template:
    try:
        return Template.from_jinja(
            found.text,
            name=found.name,
            options=found.options,
            named=found.named,
            dialect=found.dialect,
            translation=found.translation,
        )
    except TemplateError as error:
        error.name = f"{found.file}: {error.name}" if found.file else error.name
        raise


def _found(entry: Entry, pick: str | None, exact: bool) -> Found:
    if pick not in (None, "default"):
        raise SourceError(f"{entry.name} has no template called {pick!r}", hint="It has: default.")
    try:
        translation = translate_source(entry.dialect, entry.source, entry.name, exact)
    except SourceError as error:
        raise (error.within(entry.file) if entry.file else error) from None
    translation = replace(
        translation, stops=entry.stops or translation.stops, replies=entry.replies
    )
    options = {**translation.options, **entry.options}
    return Found(
        translation.jinja,
        entry.name,
        options,
        dialect=entry.dialect,
        translation=translation,
        file=entry.file,
    )


def _of_model(place: str) -> Match | None:
    """What is known of a model, where a string is an id such as `Qwen/Qwen2.5-7B-Instruct`."""
    if (
        place.count("/") != 1
        or place.startswith(("/", ".", "~"))
        or place.endswith("/")
        or len(place) > LONGEST
    ):
        return None
    try:
        return match(place)
    except UnknownModel:
        return None


def _missing(place: str, path: Path) -> SourceError:
    if "{{" in place or "{%" in place or "\n" in place:
        return SourceError(
            "this is the text of a template, not a place", hint="Use turnwise.compile(text)."
        )
    if "://" in place:
        return SourceError(
            f"{short_repr(place, 200)} is an address; only local files are read",
            hint="Download it first.",
        )
    close = get_close_matches(place.lower(), current().named, n=1, cutoff=0.75)
    close += [
        str(path.with_name(name))
        for name in get_close_matches(path.name, near(path), n=3, cutoff=0.6)
    ]
    if not close and place.count("/") == 1:
        close = get_close_matches(place, known(), n=2, cutoff=0.75)
    hint = "`turnwise list` prints the built-in names."
    if close:
        hint = f"Did you mean {' or '.join(map(repr, close))}? {hint}"
    elif not path.parent.exists():
        hint = f"There is no folder {short_repr(str(path.parent), 200)}. Nothing is looked up on a network. {hint}"
    return SourceError(f"there is no {short_repr(place, 200)}", hint=hint)
