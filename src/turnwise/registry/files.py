"""The template that lies in a file or a model folder, with what belongs to it.

A `Found` is all that a template needs to be compiled: its text, a name for error messages, the special tokens that the
files state (they become default options, as transformers passes them), and further templates by name. A model may have
several templates; which one speaks is decided when a conversation is rendered (`tool_use` when tools are given), so all
of them travel together.

A folder is read as transformers reads it: `chat_template.jinja` and `additional_chat_templates/*.jinja` win, together,
over the `chat_template` of `tokenizer_config.json`; then a processor's `chat_template.json`, and a GGUF file last. A
file whose name belongs in a model folder takes that folder's special tokens with it.

Every size is bounded before memory is spent, and nothing here touches a network. Not covered: tokens that only a
tokenizer's class knows (a Llama tokenizer without a `bos_token` in its files has one in transformers), and the order
of a *processor*, which would prefer `chat_template.json` to everything else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from turnwise import dialects
from turnwise.dialects.translation import Translation, copy_source
from turnwise.errors import SourceError, short_repr
from turnwise.registry.gguf import MAGIC
from turnwise.registry.gguf import TEMPLATE as GGUF_KEY
from turnwise.registry.gguf import read as gguf_values

DEFAULT = "default"
TOOL_USE = "tool_use"

TEMPLATE_FILE = "chat_template.jinja"
TEMPLATE_FOLDER = "additional_chat_templates"
CONFIG_FILE = "tokenizer_config.json"
PROCESSOR_FILE = "chat_template.json"
TOKENS_FILE = "special_tokens_map.json"

MAX_TEXT = 4 * 2**20  # the largest template known is some 20 kB
MAX_JSON = 64 * 2**20  # configurations with a whole vocabulary of added tokens reach several MB
MAX_TEMPLATES = 100

SPECIAL_TOKENS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
TEMPLATE_SUFFIXES = (".jinja", ".jinja2", ".j2")
# Names that a conversation fills; a token of such a name would replace it.
RESERVED = {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"}
ROWS = {
    "messages",
    "conversations",
}  # a file with these is a conversation, unless it says how to write one
LFS = "version https://git-lfs.github.com/spec/"


@dataclass(frozen=True, slots=True)
class Found:
    """A template as it was found, ready to be compiled."""

    text: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    named: Mapping[str, str] = field(default_factory=dict)
    warning: str | None = None  # what whoever asked for it should know
    dialect: str = "jinja"
    translation: Translation | None = (
        None  # where it came from another dialect, or with facts of its own
    )
    file: str = ""  # of a user's entry


def read_path(path: Path, pick: str | None = None, exact: bool = False) -> Found:
    """What a file or a folder holds."""
    if path.is_dir():
        return _read_folder(path, pick, exact)
    if _magic(path) == MAGIC:
        return _read_gguf(path, pick)
    return read_bytes(_bytes(path, MAX_JSON), str(path), pick, _home(path), exact)


def read_bytes(
    data: bytes, name: str, pick: str | None = None, folder: Path | None = None, exact: bool = False
) -> Found:
    """What the bytes of one file hold: a JSON configuration, or the text of a template."""
    text = _decoded(data, name)
    if name.endswith(".json") or _looks_like_json(text):
        config = _object(text, name)
        tokens = _special_tokens(config, folder, name)
        return _declared(config, name, tokens, exact) or _chosen(
            _templates(config, name), name, tokens, pick
        )
    if dialects.DIALECTS["ollama"].knows(text):
        return _read_as("ollama", text, name, {}, exact)
    _check_template(text, name)
    tokens = _folder_tokens(folder) if folder else {}
    return _chosen({DEFAULT: text}, name, tokens, pick)


# -- folders ---------------------------------------------------------------------------------------------------------


def _home(path: Path) -> Path | None:
    """The model folder that a file belongs to by its name, if any."""
    if path.name in (TEMPLATE_FILE, PROCESSOR_FILE, CONFIG_FILE):
        return path.parent
    return path.parent.parent if path.parent.name == TEMPLATE_FOLDER else None


def _read_folder(folder: Path, pick: str | None, exact: bool) -> Found:
    if loose := _loose_templates(folder):
        first = folder / TEMPLATE_FILE if DEFAULT in loose else folder / TEMPLATE_FOLDER
        return replace(
            _chosen(loose, str(first), _folder_tokens(folder), pick),
            warning=_passed_over(folder, f"there is {first.name}"),
        )
    for name in (CONFIG_FILE, PROCESSOR_FILE):
        path = folder / name
        if not path.is_file():
            continue
        config = _json(path)
        if config.get("chat_template") is not None:
            found = _chosen(_templates(config, str(path)), str(path), _folder_tokens(folder), pick)
            why = f"{CONFIG_FILE} has a chat_template of its own"
            return (
                replace(found, warning=_passed_over(folder, why)) if name == CONFIG_FILE else found
            )
        if declared := _declared(config, str(path), _folder_tokens(folder), exact):
            return declared
    return _read_gguf_folder(folder, pick)


def _declared(
    config: Mapping[str, Any], name: str, tokens: Mapping[str, Any], exact: bool
) -> Found | None:
    """A JSON file that is a source of another dialect, told by its keys."""
    if "chat_template" in config:
        return None
    if ROWS & config.keys() and "sep_style" not in config:
        return None
    dialect = dialects.find_dialect(config)
    return _read_as(dialect, config, name, tokens, exact) if dialect else None


def _read_as(dialect: str, source: Any, name: str, tokens: Mapping[str, Any], exact: bool) -> Found:
    translation = translate_source(dialect, source, name, exact)
    return Found(
        translation.jinja,
        name,
        {**tokens, **translation.options},
        dialect=dialect,
        translation=translation,
    )


def translate_source(dialect: str, source: Any, name: str, exact: bool = False) -> Translation:
    """What a dialect makes of a source; an error says which source it was."""
    try:
        source = copy_source(source)
        translation = dialects.get_dialect(dialect).read(source, exact=exact)
    except SourceError as error:
        raise error.within(name) from None
    return replace(translation, facts={"template": source, **translation.facts})


def _passed_over(folder: Path, why: str) -> str | None:
    """PaddleNLP's file has the name of a processor's; beside a tokenizer's own template it does not count."""
    other = folder / PROCESSOR_FILE
    if other.is_file() and dialects.DIALECTS["paddlenlp"].knows(_json(other)):
        return f"{other} is passed over: {why}"
    return None


def _loose_templates(folder: Path) -> dict[str, str]:
    templates = {}
    if (folder / TEMPLATE_FILE).is_file():
        templates[DEFAULT] = _template_text(folder / TEMPLATE_FILE)
    extra = sorted(p for p in (folder / TEMPLATE_FOLDER).glob("*.jinja") if p.is_file())
    if len(extra) > MAX_TEMPLATES:
        raise SourceError(
            f"{folder / TEMPLATE_FOLDER} holds {len(extra)} templates; at most {MAX_TEMPLATES} are read"
        )
    for path in extra:
        templates[path.name.removesuffix(".jinja")] = _template_text(path)
    return templates


def _template_text(path: Path) -> str:
    text = _decoded(_bytes(path, MAX_TEXT), str(path))
    _check_template(text, str(path))
    return text


def _read_gguf_folder(folder: Path, pick: str | None) -> Found:
    """The template of the GGUF files of a folder, which must agree: quantisations do, and later shards have none."""
    found: dict[str, Found] = {}
    for path in sorted(folder.glob("*.gguf")):
        templates, tokens = gguf_values(path)
        if templates:
            found[path.name] = _chosen(templates, str(path), tokens, pick)
    if not found:
        raise SourceError(f"{folder} holds no chat template", hint=_nothing_hint(folder))
    first, *others = found
    for other in others:
        if (found[other].text, found[other].named) != (found[first].text, found[first].named):
            raise SourceError(
                f"the GGUF files in {folder} disagree: {first} and {other} have different templates",
                hint="Give one of the files.",
            )
    return found[first]


def _nothing_hint(folder: Path) -> str:
    wanted = f"Looked for {TEMPLATE_FILE}, {TEMPLATE_FOLDER}/, {CONFIG_FILE}, {PROCESSOR_FILE} and *.gguf."
    if (folder / CONFIG_FILE).is_file():
        return f"{wanted} Its {CONFIG_FILE} has no chat_template, as is usual for a base model."
    return wanted


def _read_gguf(path: Path, pick: str | None) -> Found:
    templates, tokens = gguf_values(path)
    if not templates:
        hint = f"A GGUF file keeps it under the key {GGUF_KEY!r}; vocabularies and later shards have none."
        raise SourceError(f"{path} holds no chat template", hint=hint)
    return _chosen(templates, str(path), tokens, pick)


# -- several templates -----------------------------------------------------------------------------------------------


def _chosen(
    templates: Mapping[str, str], name: str, tokens: Mapping[str, Any], pick: str | None
) -> Found:
    """One template to render and the others beside it, by transformers' rule.

    Without a `default`, transformers still renders conversations that have tools when there is a `tool_use`, and
    refuses the others; a text that only refuses says the same.
    """
    names = ", ".join(sorted(templates))
    if pick is not None:
        if pick not in templates:
            raise SourceError(f"{name} has no template called {pick!r}", hint=f"It has: {names}.")
        return Found(templates[pick], name, tokens)
    if DEFAULT in templates:
        named = {key: text for key, text in templates.items() if key != DEFAULT}
        return Found(templates[DEFAULT], name, tokens, named)
    refusal = f"none of the templates in {name} is called 'default'; they are called: {names}"
    if TOOL_USE in templates:
        return Found(
            "{{ raise_exception(" + json.dumps(refusal) + ") }}", name, tokens, dict(templates)
        )
    raise SourceError(refusal, hint='Pick one by its name: load(where, pick="...").')


def _templates(config: Mapping[str, Any], name: str) -> dict[str, str]:
    """The `chat_template` of a configuration: a text, a list of {name, template}, or a table of texts."""
    value = config.get("chat_template")
    if value is None:
        raise SourceError(f"{name} has no chat_template", hint=_no_template_hint(config, name))
    if isinstance(value, str):
        pairs: Iterable[tuple[Any, Any]] = [(DEFAULT, value)]
    elif isinstance(value, list):
        pairs = [_pair(item, position, name) for position, item in enumerate(value)]
    elif isinstance(value, dict):
        pairs = value.items()
    else:
        hint = "It should be a text or a list of {name, template}."
        raise SourceError(f"chat_template in {name} is {_kind(value)}", hint=hint)
    templates = {}
    for key, text in pairs:
        if not isinstance(key, str) or not isinstance(text, str):
            raise SourceError(f"chat_template {key!r} in {name} is {_kind(text)}, not a text")
        templates[key] = text
    return _checked(templates, name)


def _checked(templates: dict[str, str], name: str) -> dict[str, str]:
    if not templates or not any(text.strip() for text in templates.values()):
        raise SourceError(f"chat_template in {name} is empty")
    if len(templates) > MAX_TEMPLATES:
        raise SourceError(
            f"{name} has {len(templates)} templates; at most {MAX_TEMPLATES} are read"
        )
    for key, text in templates.items():
        if len(text) > MAX_TEXT:
            size = f"{len(text):,} characters; at most {MAX_TEXT:,} are read"
            raise SourceError(f"chat_template {key!r} in {name} has {size}")
    return templates


def _pair(item: Any, position: int, name: str) -> tuple[Any, Any]:
    if not isinstance(item, dict):
        raise SourceError(
            f"chat_template[{position}] in {name} is {_kind(item)}, not a table of name and template"
        )
    for key in ("name", "template"):
        if not isinstance(item.get(key), str):
            state = f"is {_kind(item[key])}, not a text" if key in item else "is missing"
            raise SourceError(f"chat_template[{position}].{key} in {name} {state}")
    return item["name"], item["template"]


def _no_template_hint(config: Mapping[str, Any], name: str) -> str | None:
    if "messages" in config or "conversations" in config:
        return "This looks like a conversation; the template comes first."
    if "model" in config and "added_tokens" in config:
        return f"This is a vocabulary. The template lies beside it: give the folder, or its {CONFIG_FILE}."
    if name.endswith(CONFIG_FILE):
        return f"Base models have none; newer models keep it in {TEMPLATE_FILE} beside this file: give the folder."
    return None


# -- special tokens --------------------------------------------------------------------------------------------------


def _folder_tokens(folder: Path) -> dict[str, str]:
    path = folder / CONFIG_FILE
    config = _json(path) if path.is_file() else {}
    return _special_tokens(config, folder, str(path))


def _special_tokens(config: Mapping[str, Any], folder: Path | None, name: str) -> dict[str, str]:
    """Every named token. The older map counts only for a configuration that does not list its added tokens."""
    tokens = _tokens(config, name)
    if folder is not None and "added_tokens_decoder" not in config:
        path = folder / TOKENS_FILE
        if path.is_file():
            tokens.update(_tokens(_json(path), str(path)))
    return tokens


def _tokens(config: Mapping[str, Any], name: str) -> dict[str, str]:
    tokens = {}
    extra = config.get("extra_special_tokens")
    for key, value in (*config.items(), *(extra.items() if isinstance(extra, dict) else ())):
        if value is None or not (
            key.endswith("_token") or (isinstance(extra, dict) and key in extra)
        ):
            continue
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            tokens[key] = text
        elif key in SPECIAL_TOKENS:
            raise SourceError(
                f"{key} in {name} is {_kind(value)}",
                hint='It should be a text or {"content": text}.',
            )
    if clash := RESERVED & tokens.keys():
        raise SourceError(
            f"{name} has a special token called {min(clash)!r}, a name that the conversation fills"
        )
    return tokens


# -- bytes, text, JSON -----------------------------------------------------------------------------------------------


def _magic(path: Path) -> bytes:
    """The first bytes of a regular file. A pipe is not touched: what is read from it is gone."""
    if not path.is_file():
        return b""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC))
    except OSError as error:
        raise unreadable(path, error) from error


def _bytes(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    if len(data) > limit:
        raise SourceError(f"{path} is larger than {limit:,} bytes, too large for a template")
    return data


def unreadable(path: Path | str, error: OSError) -> SourceError:
    return SourceError(
        f"{short_repr(str(path), 200)} cannot be read: {(error.strerror or str(error)).lower()}"
    )


def _decoded(data: bytes, name: str) -> str:
    if b"\0" in data:
        raise SourceError(f"{name} is a binary file, not a template", hint=_binary_hint(data))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"byte {data[error.start]:#04x} at offset {error.start}"
        raise SourceError(
            f"{name} is not UTF-8: {where}", hint="Save the file as UTF-8."
        ) from error
    if text.startswith(LFS):
        raise SourceError(
            f"{name} is a Git LFS pointer, not the file itself", hint="Fetch it with: git lfs pull"
        )
    return text


def _binary_hint(data: bytes) -> str | None:
    return (
        "It looks like UTF-16; save it as UTF-8."
        if data[:2] in (b"\xff\xfe", b"\xfe\xff")
        else None
    )


def _check_template(text: str, name: str) -> None:
    if not text.strip():
        raise SourceError(f"{name} is empty")
    if len(text) > MAX_TEXT:
        raise SourceError(f"{name} is larger than {MAX_TEXT:,} bytes, too large for a template")
    if not name.endswith(TEMPLATE_SUFFIXES) and "{{" not in text and "{%" not in text:
        raise SourceError(f"{name} is not a template: there is no {{{{ or {{% in it")


def _looks_like_json(text: str) -> bool:
    start = text[:200].lstrip()
    return start.startswith("{") and start[1:].lstrip().startswith('"')


def _json(path: Path) -> dict[str, Any]:
    return _object(_decoded(_bytes(path, MAX_JSON), str(path)), str(path))


def _object(text: str, name: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        hint = "It looks like JSON lines, so like a dataset." if error.msg == "Extra data" else None
        raise SourceError(f"{name} is not JSON: {error.msg} at {place}", hint=hint) from error
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise SourceError(f"{name} is not JSON that can be read: {reason}") from error
    if not isinstance(value, dict):
        raise SourceError(f"{name} holds {_kind(value)}, not a table with a chat_template")
    return value


KINDS = {dict: "a table", list: "a list", str: "a text", bool: "true or false", type(None): "null"}


def _kind(value: Any) -> str:
    return KINDS.get(type(value), "a number")


def near(path: Path) -> list[str]:
    """The names in the folder where `path` would be, for "did you mean"."""
    try:
        with os.scandir(path.parent) as entries:
            return [entry.name for _, entry in zip(range(2000), entries, strict=False)]
    except (OSError, ValueError):
        return []
