"""A model folder as it is, and files that are put into it so that no half of one is ever there."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from turnwise.errors import SourceError, TurnwiseError
from turnwise.local_files import error_reason, is_present, read_file, read_table
from turnwise.messages import JsonObject
from turnwise.registry import load
from turnwise.template import Template
from turnwise.tokens.tokenizers import tokenizer as load_tokenizer
from turnwise.tokens.tokenizers.protocol import Tokenizer

CONFIG_FILE = "tokenizer_config.json"
GENERATION_FILE = "generation_config.json"
MAX_FILE = 64 * 2**20
INDENT = 2
FOLDER_FILES = (
    "A model folder has a chat template (chat_template.jinja) and a tokenizer (tokenizer.json)."
)


class ModelFolder:
    """A folder with a chat template and a tokenizer.

    Args:
        path: the folder.

    Raises:
        SourceError: it is no folder, has no template or no tokenizer, or a file of it is broken.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            reason, hint = "does not exist", FOLDER_FILES
            if path.exists():
                reason = "is a file"
                hint = f"Give its folder: `turnwise release {path.parent}`. {FOLDER_FILES}"
            raise SourceError(f"{path} {reason}; a release is made of a model folder", hint=hint)
        self.path = path
        self.config = self.read_table(CONFIG_FILE)
        self.generation = self.read_table(GENERATION_FILE)
        self.template: Template = load(str(path))
        try:
            self.tokenizer: Tokenizer = load_tokenizer(path)
        except TurnwiseError as error:
            raise SourceError(error.message, hint=error.hint) from error

    def use_stops(self, ids: Sequence[int]) -> None:
        """Let the template have the stops that it will be loaded with once generation_config.json lists these ids."""
        texts = {token.id: token.text for token in self.tokenizer.added.values()}
        stops = tuple(dict.fromkeys(texts[id] for id in ids if id in texts))
        template = self.template
        translation = replace(template.translation, stops=stops)
        self.template = Template(template.renderer, template.dialect, translation)

    def read_text(self, name: str) -> str | None:
        """Return the text of a file of the folder; None if there is none."""
        path = self.path / name
        if not is_present(path):
            return None
        try:
            return read_file(path, MAX_FILE, self.path).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"{path} cannot be read: {error_reason(error)}") from error

    def read_table(self, name: str) -> JsonObject | None:
        """Return the table in a JSON file of the folder; None if there is no such file."""
        path = self.path / name
        try:
            return read_table(path, MAX_FILE, self.path) if is_present(path) else None
        except (OSError, ValueError) as error:
            raise SourceError(f"{path} cannot be read: {error_reason(error)}") from error

    def set_key(self, name: str, key: str, value: Any) -> str:
        """Return the text of a JSON file with a key set; a new key is put at the end, and no other byte changes."""
        text, table = self.read_text(name), self.read_table(name)
        shown = json.dumps(value, indent=INDENT, ensure_ascii=False)
        entry = f"{json.dumps(key)}: {shown}".replace("\n", "\n" + " " * INDENT)
        if text is None or not table:
            return f"{{\n{' ' * INDENT}{entry}\n}}\n"
        if key in table:
            return json.dumps({**table, key: value}, indent=INDENT, ensure_ascii=False) + "\n"
        end = text.rindex("}")
        return f"{text[:end].rstrip()},\n{' ' * INDENT}{entry}\n{text[end:]}"

    def write(self, name: str, text: str) -> None:
        """Put a file into the folder: under another name first, then in its place.

        Raises:
            SourceError: the folder cannot be written.
        """
        path = self.path / name
        temporary = ""
        try:
            handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=self.path)
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, path.stat().st_mode & 0o777 if path.exists() else 0o644)
            os.replace(temporary, path)
        except OSError as error:
            if temporary and os.path.exists(temporary):
                os.unlink(temporary)
            raise SourceError(f"{path} cannot be written: {error_reason(error)}") from error
