"""Read the stops of a model folder: the `eos_token_id` of its `generation_config.json`, as texts.

A model may stop at tokens that its template never writes (`<|eom_id|>`, `<|endoftext|>`). The file has one id or a list
of them; the texts are in the tokenizer's files: the `added_tokens_decoder` of `tokenizer_config.json`, or the
`added_tokens` of `tokenizer.json`. An id that is no added token has no text that could be a stop, and is left out. A
file that is not as it should be is no reason to refuse the template beside it: then no stops are read.
"""

from __future__ import annotations

from pathlib import Path

from turnwise.errors import TokenizerError
from turnwise.local_files import is_present, read_table
from turnwise.messages import JsonObject

GENERATION_FILE = "generation_config.json"
MAX_CONFIG = 2**20  # bytes; real ones have some hundred
MAX_TOKENIZER = 64 * 2**20
MAX_STOPS = 100


def read_stops(folder: Path) -> tuple[str, ...]:
    """Return the texts of the tokens at which a model stops, in the order of the file; empty if nothing is known."""
    ids = _read_table(folder / GENERATION_FILE, MAX_CONFIG).get("eos_token_id")
    if not isinstance(ids, list):
        ids = [ids]
    ids = [id for id in ids[:MAX_STOPS] if isinstance(id, int) and not isinstance(id, bool)]
    if not ids:
        return ()
    from turnwise.tokens.tokenizers.special_tokens_config import read_declarations

    try:
        texts = {id: text for text, id in read_declarations(folder).ids.items()}
    except TokenizerError:
        texts = {}
    if not texts.keys() >= set(ids):
        rows = _read_table(folder / "tokenizer.json", MAX_TOKENIZER).get("added_tokens")
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and isinstance(row.get("id"), int):
                texts.setdefault(row["id"], str(row.get("content") or ""))
    return tuple(dict.fromkeys(texts[id] for id in ids if texts.get(id)))


def _read_table(path: Path, limit: int) -> JsonObject:
    """Return the table in a JSON file of the folder; empty if there is none, or it cannot be read."""
    try:
        return read_table(path, limit, path.parent) if is_present(path) else {}
    except (OSError, ValueError):
        return {}
