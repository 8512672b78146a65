"""Read the chat template of a file, a model folder or a tokenizer object, with its special tokens.

The result is a `TemplateSource`: the text, a name for error messages, the special tokens that the files define (they
become default options, as transformers passes them), and further templates by name. A model may have several templates;
which one is used depends on the conversation (`tool_use` if tools are given), so all of them are kept together.

A folder is read in transformers' order: `chat_template.jinja` and `additional_chat_templates/*.jinja`, together, before
the `chat_template` of `tokenizer_config.json`, before a processor's `chat_template.json`, before a GGUF file. PaddleNLP
has a file of that last name too, with keys of its own, and PaddleNLP's order: it counts before the
`tokenizer_config.json`. What is ignored is told. A file whose name belongs in a model folder gets that folder's
special tokens.

Every size is limited before memory is allocated, links out of a folder are refused (`local_files.py`), and nothing here
uses the network. Not covered: tokens that only a
tokenizer's class defines (a Llama tokenizer without a `bos_token` in its files has one in transformers), and the order
of a *processor*, which would prefer `chat_template.json` to everything else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from turnwise import dialects
from turnwise.dialects import translate
from turnwise.dialects.translation import Translation
from turnwise.engine.option_names import SPECIAL_TOKENS
from turnwise.errors import SourceError, short_repr
from turnwise.local_files import error_reason, is_present, open_file, read_file
from turnwise.messages import JsonMapping, JsonObject
from turnwise.registry.generation_config import read_stops
from turnwise.registry.gguf import MAGIC, TEMPLATE_KEY, read_gguf

DEFAULT = "default"
TOOL_USE = "tool_use"

TEMPLATE_FILE = "chat_template.jinja"
TEMPLATE_FOLDER = "additional_chat_templates"
CONFIG_FILE = "tokenizer_config.json"
PROCESSOR_FILE = "chat_template.json"
TOKENS_FILE = "special_tokens_map.json"

ENCODER_FILES = ("encoding*.py", "encoding/encoding*.py", "chat_template.py")

MAX_TEXT = 4 * 2**20  # the largest template known is some 20 kB
MAX_JSON = 64 * 2**20  # configurations with a whole vocabulary of added tokens reach several MB
MAX_TEMPLATES = 100
MAX_NAMES = 2000

TEMPLATE_SUFFIXES = (".jinja", ".jinja2", ".j2")
# A file with one of these keys is a conversation, unless it also defines a separator style.
CONVERSATION_KEYS = {"messages", "conversations"}
TEMPLATE_HINT = "A chat template is a text in Jinja, such as chat_template.jinja of a model."
CONFIG_HINT = "JSON with a chat template is tokenizer_config.json or chat_template.json of a model."
LFS_HEADER = "version https://git-lfs.github.com/spec/"


class HasChatTemplate(Protocol):
    """A tokenizer or processor object of transformers."""

    chat_template: Any


class TemplateSource(NamedTuple):
    """A template that was found, ready to be compiled."""

    text: str
    name: str
    options: JsonMapping = {}
    named: Mapping[str, str] = {}
    warning: str | None = None  # for the person who asked for it
    dialect: str = "jinja"
    translation: Translation | None = None  # from another dialect, or with facts
    file: str = ""  # that holds a user's entry


class NoChatTemplate(SourceError):
    """A folder has no chat template."""


def read_path(path: Path, pick: str | None = None, exact: bool = False) -> TemplateSource:
    """Return the template of a file or a folder; with a folder's come the stops of its generation_config.json."""
    if path.is_dir():
        found = _read_folder(path, pick, exact)
        stops = read_stops(path)
        if stops and found.translation is None:
            found = found._replace(translation=Translation(found.text, stops=stops))
        return found
    if _first_bytes(path) == MAGIC or path.suffix == ".gguf":
        return _read_gguf(path, pick)
    return read_bytes(_read_bytes(path, MAX_JSON), str(path), pick, _model_folder(path), exact)


def read_bytes(
    data: bytes, name: str, pick: str | None = None, folder: Path | None = None, exact: bool = False
) -> TemplateSource:
    """Return the template in the bytes of one file: a JSON configuration, or the text of a template."""
    text = _decode(data, name)
    if name.endswith(".json") or _looks_like_json(text):
        config = _parse_json(text, name)
        tokens = _special_tokens(config, folder, name)
        other = _read_other_dialect(config, name, tokens, exact)
        return other or _select_template(_templates(config, name), name, tokens, pick)
    if dialects.DIALECTS["ollama"].knows(text):
        return _read_as("ollama", text, name, {}, exact)
    _check_template(text, name)
    tokens = _folder_tokens(folder) if folder else {}
    return _select_template({DEFAULT: text}, name, tokens, pick)


def read_tokenizer(tokenizer: HasChatTemplate, pick: str | None) -> TemplateSource:
    """Return the template of a tokenizer or processor object of transformers, with its special tokens."""
    name = getattr(tokenizer, "name_or_path", None) or type(tokenizer).__name__
    if tokenizer.chat_template is None:
        hint = "Base models have none. Compile the text of one: turnwise.compile(text)."
        raise SourceError(f"the tokenizer {short_repr(name, 200)} has no chat template", hint=hint)
    inner = getattr(tokenizer, "tokenizer", tokenizer)  # of a processor
    tokens = getattr(inner, "special_tokens_map", {})
    texts = {key: str(token) for key, token in tokens.items() if not isinstance(token, list)}
    templates = _templates({"chat_template": tokenizer.chat_template}, name)
    return _select_template(templates, name, _tokens_of_config(texts, name), pick)


# -- folders ---------------------------------------------------------------------------------------------------------


def _model_folder(path: Path) -> Path | None:
    """Return the model folder that a file belongs to by its name, if any."""
    if path.name in (TEMPLATE_FILE, PROCESSOR_FILE, CONFIG_FILE):
        return path.parent
    if path.parent.name == TEMPLATE_FOLDER:
        return path.parent.parent
    return None


def _read_folder(folder: Path, pick: str | None, exact: bool) -> TemplateSource:
    texts = _template_files(folder)
    if texts:
        first = folder / TEMPLATE_FILE if DEFAULT in texts else folder / TEMPLATE_FOLDER
        found = _select_template(texts, str(first), _folder_tokens(folder), pick)
        if _has_paddlenlp_file(folder):  # whose name is that of a processor's
            warning = f"{folder / PROCESSOR_FILE} is ignored: there is {first.name}"
            found = found._replace(warning=warning)
        return found
    for name in (CONFIG_FILE, PROCESSOR_FILE):
        path = folder / name
        if not is_present(path):
            continue
        config = _read_json(path)
        tokens = _folder_tokens(folder)
        if config.get("chat_template") is None:
            other = _read_other_dialect(config, str(path), tokens, exact)
            if other:
                return other
            continue
        if name == CONFIG_FILE and pick is None and _has_paddlenlp_file(folder):
            own = folder / PROCESSOR_FILE
            found = _read_as("paddlenlp", _read_json(own), str(own), tokens, exact)
            warning = f"the chat_template of {path} is ignored: {PROCESSOR_FILE} is PaddleNLP's"
            return found._replace(warning=warning)
        return _select_template(_templates(config, str(path)), str(path), tokens, pick)
    return _read_gguf_folder(folder, pick)


def _read_other_dialect(
    config: JsonMapping, name: str, tokens: JsonMapping, exact: bool
) -> TemplateSource | None:
    """Return the template of a JSON file in another dialect, recognised by its keys; None if it is not one."""
    is_conversation = CONVERSATION_KEYS & config.keys() and "sep_style" not in config
    if "chat_template" in config or is_conversation:
        return None
    dialect = dialects.find_dialect(config)
    return _read_as(dialect, config, name, tokens, exact) if dialect else None


def _read_as(
    dialect: str, source: Any, name: str, tokens: JsonMapping, exact: bool
) -> TemplateSource:
    translation = translate(source, dialect, name, exact)
    options = {**tokens, **translation.options}
    return TemplateSource(
        translation.jinja, name, options, dialect=dialect, translation=translation
    )


def _has_paddlenlp_file(folder: Path) -> bool:
    path = folder / PROCESSOR_FILE
    return is_present(path) and dialects.DIALECTS["paddlenlp"].knows(_read_json(path))


def _template_files(folder: Path) -> dict[str, str]:
    """Return the texts of the `.jinja` files of a model folder by name."""
    templates = {}
    if is_present(folder / TEMPLATE_FILE):
        templates[DEFAULT] = _template_text(folder / TEMPLATE_FILE, folder)
    extra = folder / TEMPLATE_FOLDER
    paths = sorted(path for path in extra.glob("*.jinja") if is_present(path))
    if len(paths) > MAX_TEMPLATES:
        raise SourceError(f"{extra} holds {len(paths)} templates; at most {MAX_TEMPLATES} are read")
    for path in paths:
        templates[path.name.removesuffix(".jinja")] = _template_text(path, folder)
    return templates


def _template_text(path: Path, folder: Path) -> str:
    text = _decode(_read_bytes(path, MAX_TEXT, folder), str(path))
    _check_template(text, str(path))
    return text


def _read_gguf_folder(folder: Path, pick: str | None) -> TemplateSource:
    """Return the template of the folder's GGUF files, which must agree; shards after the first have none."""
    found: dict[str, TemplateSource] = {}
    for path in sorted(folder.glob("*.gguf")):
        templates, tokens = read_gguf(path, folder)
        if templates:
            found[path.name] = _select_template(templates, str(path), tokens, pick)
    if not found:
        hint = _no_template_in_folder_hint(folder)
        raise NoChatTemplate(f"{folder} holds no chat template", hint=hint)
    first, *others = found
    for other in others:
        same_text = found[other].text == found[first].text
        if not same_text or found[other].named != found[first].named:
            problem = f"{first} and {other} have different templates"
            raise SourceError(
                f"the GGUF files in {folder} disagree: {problem}", hint="Give one of the files."
            )
    return found[first]


def _no_template_in_folder_hint(folder: Path) -> str:
    places = f"{TEMPLATE_FILE}, {TEMPLATE_FOLDER}/, {CONFIG_FILE}, {PROCESSOR_FILE} and *.gguf"
    hint = f"Looked for {places}."
    if encoder := find_encoder_file(folder):
        return (
            f"{hint} Its maker ships an encoder instead: {encoder.relative_to(folder)}. Load the entry of"
            " the model by its name, or compare a template with it: turnwise conform --oracle."
        )
    if is_present(folder / CONFIG_FILE):
        hint += f" Its {CONFIG_FILE} has no chat_template, as is usual for a base model."
    return hint


def find_encoder_file(folder: Path) -> Path | None:
    """Return the file with the maker's own encoder in a model folder; None if there is none."""
    for pattern in ENCODER_FILES:
        for path in sorted(folder.glob(pattern)):
            if is_present(path):
                return path
    return None


def _read_gguf(path: Path, pick: str | None) -> TemplateSource:
    templates, tokens = read_gguf(path)
    if not templates:
        hint = f"A GGUF file keeps it under the key {TEMPLATE_KEY!r}; vocabularies and later shards have none."
        raise SourceError(f"{path} holds no chat template", hint=hint)
    return _select_template(templates, str(path), tokens, pick)


# -- several templates -----------------------------------------------------------------------------------------------


def _select_template(
    templates: Mapping[str, str], name: str, tokens: JsonMapping, pick: str | None
) -> TemplateSource:
    """Return the template to render, with the others by name, by transformers' rule.

    Without a `default`, transformers renders only conversations that have tools, if there is a `tool_use`, and refuses
    the others. So does a default that only raises.
    """
    names = ", ".join(sorted(templates))
    if pick is not None:
        if pick not in templates:
            raise SourceError(f"{name} has no template called {pick!r}", hint=f"It has: {names}.")
        return TemplateSource(templates[pick], name, tokens)
    if DEFAULT in templates:
        named = {key: text for key, text in templates.items() if key != DEFAULT}
        return TemplateSource(templates[DEFAULT], name, tokens, named)
    refusal = f"none of the templates in {name} is called 'default'; they are called: {names}"
    if TOOL_USE not in templates:
        raise SourceError(refusal, hint='Pick one by its name: load(where, pick="...").')
    text = "{{ raise_exception(" + json.dumps(refusal) + ") }}"
    return TemplateSource(text, name, tokens, dict(templates))


def _templates(config: JsonMapping, name: str) -> dict[str, str]:
    """Return the templates of a configuration: a text, a list of {name, template}, or a table of texts."""
    value = config.get("chat_template")
    if value is None:
        raise SourceError(f"{name} has no chat_template", hint=_no_template_hint(config, name))
    if isinstance(value, str):
        value = {DEFAULT: value}
    elif isinstance(value, list):
        value = dict(_name_and_text(item, index, name) for index, item in enumerate(value))
    elif not isinstance(value, dict):
        hint = "It should be a text or a list of {name, template}."
        raise SourceError(f"chat_template in {name} is {_type_name(value)}", hint=hint)
    for key, text in value.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise SourceError(f"chat_template {key!r} in {name} is {_type_name(text)}, not a text")
        if len(text) > MAX_TEXT:
            size = f"{len(text):,} characters; at most {MAX_TEXT:,} are read"
            raise SourceError(f"chat_template {key!r} in {name} has {size}")
    if not any(text.strip() for text in value.values()):
        raise SourceError(f"chat_template in {name} is empty")
    if len(value) > MAX_TEMPLATES:
        raise SourceError(f"{name} has {len(value)} templates; at most {MAX_TEMPLATES} are read")
    return dict(value)


def _name_and_text(item: Any, index: int, name: str) -> tuple[str, str]:
    where = f"chat_template[{index}]"
    if not isinstance(item, dict):
        problem = f"is {_type_name(item)}, not a table of name and template"
        raise SourceError(f"{where} in {name} {problem}")
    for key in ("name", "template"):
        if key not in item:
            raise SourceError(f"{where}.{key} in {name} is missing")
        if not isinstance(item[key], str):
            raise SourceError(f"{where}.{key} in {name} is {_type_name(item[key])}, not a text")
    return item["name"], item["template"]


def _no_template_hint(config: JsonMapping, name: str) -> str | None:
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
    config = _read_json(path) if is_present(path) else {}
    return _special_tokens(config, folder, str(path))


def _special_tokens(config: JsonMapping, folder: Path | None, name: str) -> dict[str, str]:
    """Return the named special tokens; the older file counts only if the configuration lists no added tokens."""
    tokens = _tokens_of_config(config, name)
    if folder is not None and "added_tokens_decoder" not in config:
        path = folder / TOKENS_FILE
        if is_present(path):
            tokens.update(_tokens_of_config(_read_json(path), str(path)))
    return tokens


def _tokens_of_config(config: JsonMapping, name: str) -> dict[str, str]:
    tokens = {}
    extra = config.get("extra_special_tokens")
    if not isinstance(extra, dict):
        extra = {}
    for key, value in (*config.items(), *extra.items()):
        if value is None or not (key.endswith("_token") or key in extra):
            continue
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            tokens[key] = text
        elif key in SPECIAL_TOKENS:
            hint = 'It should be a text or {"content": text}.'
            raise SourceError(f"{key} in {name} is {_type_name(value)}", hint=hint)
    from turnwise.analysis.conversations import STANDARD_VARIABLES

    if clash := tokens.keys() & set(STANDARD_VARIABLES):
        problem = f"{min(clash)!r}, a name that the conversation fills"
        raise SourceError(f"{name} has a special token called {problem}")
    return tokens


# -- bytes, text, JSON -----------------------------------------------------------------------------------------------


def _first_bytes(path: Path) -> bytes:
    """Return the first bytes of a regular file; a pipe is not read, since its bytes would be lost."""
    if not path.is_file():
        return b""
    try:
        with open_file(path) as file:
            return file.read(len(MAGIC))
    except OSError as error:
        raise unreadable(path, error) from error


def _read_bytes(path: Path, limit: int, folder: Path | None = None) -> bytes:
    """Return the bytes of a file; one of a `folder` must not be a link out of it."""
    try:
        return read_file(path, limit, folder)
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path | str, error: OSError) -> SourceError:
    """Return the error for a path that the system refused to read."""
    return SourceError(f"{short_repr(str(path), 200)} cannot be read: {error_reason(error)}")


def _decode(data: bytes, name: str) -> str:
    if b"\0" in data:
        is_utf16 = data[:2] in (b"\xff\xfe", b"\xfe\xff")
        hint = "It looks like UTF-16; save it as UTF-8." if is_utf16 else TEMPLATE_HINT
        raise SourceError(f"{name} is a binary file, not a template", hint=hint)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"byte {data[error.start]:#04x} at offset {error.start}"
        hint = "Save the file as UTF-8."
        raise SourceError(f"{name} is not UTF-8: {where}", hint=hint) from error
    if text.startswith(LFS_HEADER):
        hint = "Fetch it with: git lfs pull"
        raise SourceError(f"{name} is a Git LFS pointer, not the file itself", hint=hint)
    return text


def _check_template(text: str, name: str) -> None:
    if not text.strip():
        raise SourceError(f"{name} is empty", hint=TEMPLATE_HINT)
    if len(text) > MAX_TEXT:
        raise SourceError(f"{name} is larger than {MAX_TEXT:,} bytes, too large for a template")
    if not name.endswith(TEMPLATE_SUFFIXES) and "{{" not in text and "{%" not in text:
        raise SourceError(f"{name} is not a template: there is no {{{{ or {{% in it")


def _looks_like_json(text: str) -> bool:
    start = text[:200].lstrip()
    return start.startswith("{") and start[1:].lstrip().startswith('"')


def _read_json(path: Path) -> JsonObject:
    """Return the table in a JSON file of a model folder."""
    return _parse_json(_decode(_read_bytes(path, MAX_JSON, path.parent), str(path)), str(path))


def _parse_json(text: str, name: str) -> JsonObject:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        is_dataset = error.msg == "Extra data"
        hint = "It looks like JSON lines, so like a dataset." if is_dataset else CONFIG_HINT
        raise SourceError(f"{name} is not JSON: {error.msg} at {place}", hint=hint) from error
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise SourceError(f"{name} is not JSON that can be read: {reason}") from error
    if not isinstance(value, dict):
        problem = f"{name} holds {_type_name(value)}, not a table with a chat_template"
        raise SourceError(problem, hint=CONFIG_HINT)
    return value


JSON_TYPE_NAMES = {
    dict: "a table",
    list: "a list",
    str: "a text",
    bool: "true or false",
    type(None): "null",
}


def _type_name(value: Any) -> str:
    return JSON_TYPE_NAMES.get(type(value), "a number")


def names_in_folder(path: Path) -> list[str]:
    """Return up to `MAX_NAMES` names in the folder where `path` would be, for "did you mean"."""
    try:
        with os.scandir(path.parent) as entries:
            return [entry.name for entry in islice(entries, MAX_NAMES)]
    except (OSError, ValueError):
        return []
