"""Every character that came from a field says so.

Conversations are filled with probes (`probes.py`), rendered by every template of the corpus, and then

* the pieces join to the text,
* each probe in the text lies in pieces whose origin is a field that it was put into, and
* no piece that says it came from a field has text which that field does not have.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from markupsafe import escape

import corpus
import random_templates as grammar
import turnwise
from turnwise.engine.provenance.rendering import Piece, Rendering

# Conversations whose every text is a word that stands nowhere else, so each place in an output has a known source.
#
# A probe has nine letters and digits, since some templates insist on call ids of that form. It replaces a text, or,
# where a text is several runs between tags, or JSON, each run of it: templates look for `</think>` and parse arguments.
# What steers a template (roles, types) is left as it is. Ids that were equal stay equal, as templates look calls up by
# them; such a word then has several sources.

Path = tuple[str | int, ...]
Source = tuple[Path, bool]  # a path, and whether the word is its key

WORD = re.compile(r"zq[0-9]{5}xk", re.IGNORECASE)
RUNS = re.compile(r"(<[^<>]*>|\[/?[A-Z_]+\]|\n+)")
STEERING = frozenset({"role", "type", "weight", "loss", "prefix"})
IDS = frozenset({"id", "tool_call_id"})
NAMED = frozenset({"arguments", "properties", "$defs", "parameters"})  # dicts with free keys
SCHEMA_WORDS = frozenset(
    {"type", "properties", "required", "additionalProperties", "$defs", "items", "description"}
)


@dataclass(frozen=True, slots=True)
class Probed:
    """Arguments for `Template.render` and what each word in them stands for."""

    arguments: dict[str, Any]
    sources: Mapping[str, set[Source]]

    def value(self, path: Path) -> Any:
        found: Any = self.arguments
        for step in path:
            found = found[step]
        return found


class Probing:
    """Replaces texts by probes, and remembers where it put them."""

    def __init__(self) -> None:
        self.sources: dict[str, set[Source]] = defaultdict(set)
        self.ids: dict[str, str] = {}
        self.keys: dict[str, str] = {}
        self.count = 0

    def word(self, *sources: Source) -> str:
        self.count += 1
        word = f"Zq{self.count:05}Xk"
        self.sources[word.lower()].update(sources)
        return word

    def replace(self, value: Any, path: Path) -> Any:
        if isinstance(value, dict):
            return self.mapping(value, path)
        if isinstance(value, list):
            return [self.replace(item, (*path, index)) for index, item in enumerate(value)]
        if (
            not isinstance(value, str)
            or not value.strip()
            or path[-1] in STEERING
            or "type" in path[-2:]
        ):
            return value
        if path[-1] in IDS:
            return self.share_word(self.ids, value, (path, False))
        if "required" in path[-2:]:
            return self.share_word(self.keys, value, (path, False))
        return self.text(value, path)

    def mapping(self, value: dict[str, Any], path: Path) -> dict[str, Any]:
        renames = any(step in NAMED for step in path[-1:]) or "arguments" in path[:-1]
        renames = renames and not ("parameters" in path[-1:] and SCHEMA_WORDS & set(value))
        result = {}
        for key, item in value.items():
            name = self.rename_key(key, path) if renames else key
            result[name] = self.replace(item, (*path, name))
        return result

    def rename_key(self, key: str, path: Path) -> str:
        """A new name for a key; `required` names the keys of `properties`, so the two share their words."""
        word = self.keys.setdefault(key, self.word()) if path[-1] == "properties" else self.word()
        self.sources[word.lower()].add(((*path, word), True))
        return word

    def share_word(self, known: dict[str, str], value: str, source: Source) -> str:
        word = known.setdefault(value, "") or self.word()
        known[value] = word
        self.sources[word.lower()].add(source)
        return word

    def text(self, value: str, path: Path) -> str:
        if path[-1] == "arguments":
            return self.json_text(value, path)
        return "".join(
            run if RUNS.fullmatch(run) or not run.strip() else self.frame(run, path)
            for run in RUNS.split(value)
        )

    def frame(self, run: str, path: Path) -> str:
        """A word with the white space that was around the run."""
        start, end = len(run) - len(run.lstrip()), len(run.rstrip())
        return run[:start] + self.word((path, False)) + run[end:]

    def json_text(self, value: str, path: Path) -> str:
        """JSON inside of a text: all words in it are of that one text, its keys included."""
        try:
            inside = json.loads(value)
        except ValueError:
            return self.word((path, False))
        return json.dumps(self.inside(inside, path))

    def inside(self, value: Any, path: Path) -> Any:
        if isinstance(value, dict):
            return {self.word((path, False)): self.inside(item, path) for item in value.values()}
        if isinstance(value, list):
            return [self.inside(item, path) for item in value]
        return self.word((path, False)) if isinstance(value, str) else value


def probe_arguments(
    arguments: Mapping[str, Any], keep: Callable[[str], bool] = lambda name: False
) -> Probed:
    """The arguments with a probe for every text; `keep` says which of them stay as they are."""
    probing = Probing()
    changed = {
        name: value if keep(name) else probing.replace(value, (name,))
        for name, value in arguments.items()
    }
    return Probed(changed, dict(probing.sources))


# The tests

SHOWN = 6
PARTS = 4  # text from one field that was written several times in a row is one piece

TOOL = {
    "type": "function",
    "function": {
        "name": "book",
        "description": "Book a trip.",
        "parameters": {
            "type": "object",
            "properties": {
                "where": {"type": "string", "description": "A city", "enum": ["Rome", "Oslo"]},
                "stops": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "On the way",
                },
                "who": {
                    "type": "object",
                    "description": "A guest",
                    "properties": {
                        "name": {"type": "string"},
                        "age": {"type": "integer", "default": 3},
                    },
                    "required": ["name"],
                },
            },
            "required": ["where", "who"],
        },
        "return": {"type": "string", "description": "A number"},
    },
}
CALL = {
    "id": "call_0001",
    "type": "function",
    "function": {
        "name": "book",
        "arguments": {
            "where": "Rome",
            "stops": ["Bern", "Ulm"],
            "who": {"name": "Ann", "pets": [{"kind": "cat"}]},
        },
    },
}
RESULT = {"role": "tool", "tool_call_id": "call_0001", "name": "book", "content": "done"}
USER, SYSTEM = {"role": "user", "content": "a trip"}, {"role": "system", "content": "be brief"}
MADE: dict[str, dict[str, Any]] = {
    "nested_call": {
        "messages": [
            SYSTEM,
            USER,
            {"role": "assistant", "content": "sure", "tool_calls": [CALL]},
            RESULT,
        ],
        "tools": [TOOL],
    },
    "silent_call": {
        "messages": [
            USER,
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            RESULT,
            USER,
        ],
        "tools": [TOOL, TOOL],
    },
    "reasoned": {
        "messages": [
            SYSTEM,
            USER,
            {"role": "assistant", "content": "yes", "reasoning_content": "hm\nwell"},
            USER,
            {
                "role": "assistant",
                "content": "<think>\nlet me see\n</think>\n\nno",
                "thinking": "or not",
            },
        ]
    },
    "reasoning_call": {
        "messages": [
            USER,
            {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": [CALL]},
            RESULT,
        ],
        "tools": [TOOL],
        "enable_thinking": True,
    },
    "parts": {
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "be brief"}]},
            {
                "role": "user",
                "content": [{"type": "text", "text": "one"}, {"type": "text", "text": " two "}],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "three"}]},
        ]
    },
    "named": {
        "messages": [
            {"role": "user", "name": "ann", "content": "hello"},
            {"role": "assistant", "name": "bot", "content": "  hello\n\nyou  "},
        ]
    },
    "documents": {
        "messages": [USER],
        "documents": [
            {"title": "Rome", "text": "A city"},
            {"title": "Oslo", "text": "Another", "doc_id": "2"},
        ],
    },
}


@cache
def conversations() -> dict[str, Probed]:
    chats = {
        chat.id: {"messages": chat.messages, **chat.arguments} for chat in corpus.chats().values()
    }
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    return {name: probe_arguments(tokens | chat) for name, chat in (chats | MADE).items()}


@cache
def compile_published(name: str) -> turnwise.Template:
    return turnwise.compile(corpus.load_published()[name].text, name=name)


# ---- what is wrong with a rendering ----


def problems(rendering: Rendering, probed: Probed, found: Counter[str]) -> Iterator[str]:
    if "".join(piece.text for piece in rendering.pieces) != rendering.text:
        yield "the pieces do not join to the text"
        return
    owners = [piece.origin for piece in rendering.pieces for _ in piece.text]
    for match in WORD.finditer(rendering.text):
        sources = probed.sources[match[0].lower()]
        origins = dict.fromkeys(owners[match.start() : match.end()])
        wrong = [origin for origin in origins if (origin.path, origin.key) not in sources]
        found["wrong" if wrong else "right"] += 1
        if wrong:
            yield f"{match[0]} of {names(sources)} is from {wrong[0]}"
    for piece in rendering.pieces:
        if piece.origin.kind == "field" and not belongs(piece, probed):
            yield f"{piece.text!r} is not from {piece.origin}"


def names(sources: set[Source]) -> str:
    return " or ".join(("key " if key else "") + ".".join(map(str, path)) for path, key in sources)


def belongs(piece: Piece, probed: Probed) -> bool:
    """Whether the text of a piece is part of its field, as it is or the way JSON or Python writes it."""
    path = piece.origin.path
    assert path is not None
    value = path[-1] if piece.origin.key else value_at(path, probed)
    if not isinstance(value, str):
        return not isinstance(value, dict | list | tuple)  # a number may be written in many ways
    written = json.dumps(value)[1:-1]
    forms = [
        value,
        value[::-1],
        written,
        json.dumps(written)[1:-1],
        repr(value)[1:-1],
        str(escape(value)),
    ]
    return any(made_of(piece.text.lower(), form.lower()) for form in forms)


def value_at(path: Path, probed: Probed) -> Any:
    try:
        return probed.value(path)
    except (LookupError, TypeError):
        return ()  # no such field: nothing belongs to it


def made_of(text: str, whole: str) -> bool:
    """A part of the whole, or a few of them in a row; the whole may be repeated at will."""
    text = text.replace(whole, "") if whole else text
    for _ in range(PARTS):
        size = len(text)
        while size and text[:size] not in whole:
            size -= 1
        if size == 0:
            return not text
        text = text[size:]
    return not text


# ---- the law ----


def check(name: str, chats: list[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    failures = []
    for chat in chats:
        probed = conversations()[chat]
        flag = not probed.arguments.get("continue_final_message") and chosen(name, chat, 2)
        try:
            rendering = compile_published(name).render(
                now=corpus.NOW, add_generation_prompt=flag, normalise=False, **probed.arguments
            )
        except turnwise.TurnwiseError:
            found["raised"] += 1
            continue
        failures += [f"{chat}: {problem}" for problem in problems(rendering, probed, found)]
    assert not failures, "\n".join(
        [f"{name}: {len(failures)} failures, {dict(found)}", *failures[:SHOWN]]
    )
    return found


def chosen(name: str, chat: str, one_in: int) -> bool:
    """A sample that is the same in each run."""
    digest = hashlib.sha256(f"{name} {chat}".encode()).digest()
    return int.from_bytes(digest[:4]) % one_in == 0


@pytest.mark.law
@corpus.needs_corpus
@pytest.mark.parametrize("name", sorted(corpus.load_published()) or [""])
def test_probes(name: str) -> None:
    check(name, list(conversations()))


# ---- generated templates ----

MIXED = probe_arguments(
    {**MADE["nested_call"], **grammar.OPTIONS}, keep=lambda name: name == "tree"
)


def find_lost(rendering: Rendering, probed: Probed) -> Iterator[str]:
    """Probes that neither came from their field nor were computed from it, and fields with text that is not theirs."""
    if "".join(piece.text for piece in rendering.pieces) != rendering.text:
        yield "the pieces do not join to the text"
        return
    owners = [piece.origin for piece in rendering.pieces for _ in piece.text]
    for match in WORD.finditer(rendering.text):
        sources = probed.sources.get(match[0].lower(), set())
        paths = [path for path, _ in sources]
        for origin in dict.fromkeys(owners[match.start() : match.end()]):
            computed = any(leads(found, path) for found in origin.sources for path in paths)
            if (origin.path, origin.key) not in sources and not computed and sources:
                yield f"{match[0]} of {names(sources)} is from {origin}"
    for piece in rendering.pieces:
        if piece.origin.kind == "field" and not belongs(piece, probed):
            yield f"{piece.text!r} is not from {piece.origin}"


def leads(shorter: Path, longer: Path) -> bool:
    return longer[: len(shorter)] == shorter


def unfaithful(seed: int) -> str:
    """What is wrong with the origins in the template of this seed, or nothing."""
    text = grammar.template(random.Random(seed))
    try:
        template = turnwise.compile(text).with_limits(turnwise.Limits(origins=1_000_000))
        rendering = template.render(now=corpus.NOW, normalise=False, **MIXED.arguments)
        wrong = next(find_lost(rendering, MIXED), "")
    except turnwise.TurnwiseError:
        return ""
    except Exception as error:  # a raw one is a failure as much as a wrong origin
        wrong = f"{type(error).__name__}: {error}"
    return f"{seed}: {wrong}\n    {text!r}" if wrong else ""


@pytest.mark.law
def test_generated_templates() -> None:
    """Origins may become coarse where text is reshaped, but they are never lost and never wrong."""
    failures = list(filter(None, map(unfaithful, range(600))))
    assert not failures, "\n".join([f"{len(failures)} failures", *failures[:SHOWN]])


# ---- messages ----

WELL_KNOWN = [
    "npm-qwen2_5",
    "npm-llama3",
    "npm-llama3_1",
    "llamacpp-mistralai-Mistral-Nemo-Instruct-2407",
    "unsloth-mistral",
    "llamacpp-google-gemma-4-31B-it",
    "llamacpp-google-gemma-2-2b-it",
    "axolotl-exaone4",  # loops over indices
    "hfjs-abacusai--Smaug-34B-v0.1",  # the same, in the condition of another loop
]


@corpus.needs_corpus
@pytest.mark.parametrize("name", WELL_KNOWN)
def test_markers_between_messages(name: str) -> None:
    """What a template writes between two fields is of the message of the one or of the other, in that order."""
    rendering = compile_published(name).render(
        now=corpus.NOW, normalise=False, **conversations()["multi2"].arguments
    )
    for before, between, after in gaps(rendering):
        numbered = [(piece.text, piece.origin.message) for piece in between]
        numbers = [before, *(number for _, number in numbered), after]
        assert set(numbers) == {before, after} and numbers == sorted(numbers, key=numbers.index), (
            before,
            numbered,
            after,
        )


@corpus.needs_corpus
@pytest.mark.parametrize("name", WELL_KNOWN)
@pytest.mark.parametrize("chat", ["nested_call", "reasoned"])
def test_markers_within_messages(name: str, chat: str) -> None:
    """What stands between two fields of one message is of that message."""
    try:
        rendering = compile_published(name).render(
            now=corpus.NOW, normalise=False, **conversations()[chat].arguments
        )
    except turnwise.TurnwiseError as error:
        pytest.skip(f"not for this template: {error.message}")
    for before, between, after in gaps(rendering):
        numbered = [(piece.text, piece.origin.message) for piece in between]
        assert before != after or {number for _, number in numbered} <= {before}, numbered


def gaps(rendering: Rendering) -> Iterator[tuple[int, list[Piece], int]]:
    """The message of a field, the pieces up to the next field of a message, and the message of that one."""
    last, between = -1, []
    for piece in rendering.pieces:
        path = piece.origin.path or ()
        if path[:1] == ("messages",) and isinstance(path[1], int):
            if last >= 0:
                yield last, between, path[1]
            last, between = path[1], []
        else:
            between.append(piece)
