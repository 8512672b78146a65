"""An encoder in a model's folder: code of the model's author.

It runs only with `trust_encoder=True`, in a worker process (`isolation/`) that has limits of time and memory and may
neither write a file, nor start a process, nor open a connection (`isolation/lockdown.py`). It can read what the user
can read, and all that comes back is a text.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turnwise.errors import SourceError, TemplateLimitError
from turnwise.evidence.conform import Prompt
from turnwise.isolation.pool import isolated
from turnwise.local_files import read_file
from turnwise.oracles.oracle import Oracle
from turnwise.registry.files import find_encoder_file

SECONDS = 5.0
MEGABYTES = 1024
MAX_ENCODER = 2**20  # bytes


class EncoderFile(Oracle):
    """The encoder of a model's folder.

    Args:
        where: The folder, or the file.
        trust_encoder: True to allow that its code is run.
        seconds: The processor time of one conversation.
        megabytes: The memory that it may take.

    Raises:
        SourceError: there is no encoder, or no consent.
    """

    only_prompts = False
    roles = {}

    def __init__(
        self,
        where: str | os.PathLike[str],
        *,
        trust_encoder: bool = False,
        seconds: float = SECONDS,
        megabytes: int = MEGABYTES,
    ) -> None:
        path = Path(where)
        file = find_encoder_file(path) if path.is_dir() else path
        if file is None or not file.is_file():
            raise SourceError(
                f"{path} holds no encoder", hint="It is encoding*.py or chat_template.py."
            )
        if trust_encoder is not True:
            raise SourceError(
                f"{file} is a program of the model's author and is not run without consent",
                hint="Read it, then pass trust_encoder=True: it runs in a locked process.",
            )
        self._path = str(file.resolve())
        self._megabytes = megabytes
        digest = hashlib.sha256(read_file(file, MAX_ENCODER, file.parent)).hexdigest()
        self._digest = f"sha256:{digest[:12]}"
        super().__init__(file.name)
        self._pool = isolated(1, seconds=seconds, megabytes=megabytes, patience=4 * seconds)

    def _find_version(self) -> str:
        return self._digest

    def write(self, request: Mapping[str, Any]) -> Prompt:
        worker = "turnwise.oracles.encoder_worker:write_prompt"
        try:
            return Prompt(text=self._pool.run(worker, self._path, dict(request), self._megabytes))
        except TemplateLimitError as error:
            return Prompt(refusal=f"the encoder was stopped: {error.message}")

    def close(self) -> None:
        """End the worker process."""
        self._pool.close()

    def __enter__(self) -> EncoderFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
