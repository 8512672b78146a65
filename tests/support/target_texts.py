"""What a converted source makes the software of its dialect write, on conversations of our own.

The conversations are random, so the probes with which `convert` verifies itself have no part in them. A source of
FastChat is given to FastChat itself where it is installed and has the style, one of XTuner, PaddleNLP or LMDeploy to
their code where there is a checkout; any other is rendered by the exact translation of its dialect, which the golden
outputs of that software prove elsewhere. The template writes what `render` gives, system texts as it places them.
"""

from __future__ import annotations

import importlib.util
import random
import re
from collections.abc import Collection, Iterator
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, Protocol

import corpus
import turnwise
from fastchat_goldens import fill_conversation
from originals import WRITERS, has_original
from turnwise.dialects import DIALECTS
from turnwise.dialects.translation import Dialect
from turnwise.template import Template, compile_jinja

Chat = list[dict[str, str]]
TARGETS = ("xtuner", "fastchat", "paddlenlp", "llamafactory", "ollama", "lmdeploy")
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}  # of a template that names none
LOSS = re.compile(r"without=\['(.+?)'\] leaves that out\.")
WORDS = (
    *(
        "What",
        "is",
        "it?",
        "an",
        "answer.",
        "42",
        "1",
        "said",
        "user",
        "assistant",
        "system",
        "None",
    ),
    *(
        "{input}",
        "{{ x }}",
        "{% y %}",
        "{system}",
        "<b>",
        "</b>",
        "&amp;",
        "'so'",
        '"so"',
        "\\n",
        "\\",
        "%s",
        "$1",
    ),
    *(
        "é",
        "漢字",
        "😀",
        "עברית",
        "a\u0301",
        "Ω≈ç",
        "[INST]",
        "<|im_end|>",
        "</s>",
        "###",
        "User:",
        "<n>",
        "#",
        "{",
        "}}",
    ),
)
SPACES = (" ", " ", " ", " ", "\n", "\n\n", "  ", "\t", "\r\n", "\u00a0", "\u2003")
EDGES = ("", "", "", "", "", " ", "\n", "  ", "\n\n", "\t", "\u00a0")


class Converted(NamedTuple):
    """A source, or the error that says why there is none; and what had to be given up."""

    source: Any
    error: turnwise.SourceError | None
    without: list[str]


def unknown_tokens(template: Template) -> dict[str, str]:
    return {name: text for name, text in TOKENS.items() if name not in template.options}


def convert_losing(template: Template, dialect: str) -> Converted:
    """Convert, and give up whatever an error offers to leave out."""
    without: list[str] = []
    while True:
        try:
            source = template.convert(dialect, without=without, **unknown_tokens(template))
        except turnwise.SourceError as error:
            offered = LOSS.search(error.hint or "")
            if offered is None:
                return Converted(None, error, without)
            assert offered[1] not in without, f"{offered[1]} was offered again: {error}"
            without.append(offered[1])
        else:
            return Converted(source, None, without)


def invent_text(dice: random.Random) -> str:
    if dice.random() < 0.06:
        return dice.choice(("", "", " ", "\n"))
    words = [dice.choice(WORDS) for _ in range(dice.choice((1, 1, 2, 3, 5, 20)))]
    plain = dice.random() < 0.5
    text = words[0]
    for word in words[1:]:
        text += (" " if plain else dice.choice(SPACES)) + word
    return text if plain else dice.choice(EDGES) + text + dice.choice(EDGES)


def invent_chats(count: int, seed: int) -> Iterator[Chat]:
    """Rounds with a system text or without, and some with a late one, of one to nine messages."""
    dice = random.Random(seed)
    for _ in range(count):
        length = dice.choice((1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9))
        turns = [
            {"role": ("user", "assistant")[at % 2], "content": invent_text(dice)}
            for at in range(length)
        ]
        later_rounds = range(2, length, 2)
        if later_rounds and dice.random() < 0.3:
            turns.insert(dice.choice(later_rounds), {"role": "system", "content": "From now on."})
        system = invent_text(dice)
        # An empty system text counts as none.
        if dice.random() < 0.5 and system.strip():
            turns.insert(0, {"role": "system", "content": system})
        yield turns


def simplify(chat: Chat, without: Collection[str]) -> Chat | None:
    """The conversation without what was given up; None if nothing is left of it."""
    for name, first in (("system text", 0), ("late system text", 1)):
        if name in without:
            chat = chat[:first] + [each for each in chat[first:] if each["role"] != "system"]
    if "no system text" in without and chat[0]["role"] != "system":
        return simplify([{"role": "system", "content": "Be kind."}, *chat], without)
    found = []
    for message in chat:
        text = message["content"]
        if "white space" in without:
            text = " ".join(text.split())
        if not text and {"white space", "empty messages"}.intersection(without):
            text = "something"
        found.append({**message, "content": text})
    return found


class Target:
    """The software of a dialect, with one source."""

    now = corpus.NOW  # the date that the software writes

    def __init__(self, dialect: str, source: Any, options: dict[str, Any]) -> None:
        self.dialect, self.source, self.options = DIALECTS[dialect], source, options
        reading = self.dialect.read(source, exact=True)
        self.template = compile_jinja(reading.jinja, options={**reading.options, **options})
        self.write = self._write_exactly
        if has_original(dialect):
            self.write = partial(WRITERS[dialect], source)
        elif self._is_known_to_fastchat():
            self.write = self._write_fastchat

    def _is_known_to_fastchat(self) -> bool:
        if self.dialect.name != "fastchat" or importlib.util.find_spec("fastchat") is None:
            return False
        from fastchat.conversation import SeparatorStyle

        return self.source["sep_style"] in SeparatorStyle.__members__

    def _write_exactly(self, chat: Chat, is_prompt: bool, tokens: dict[str, str]) -> str:
        return self.template.render(
            chat, add_generation_prompt=is_prompt, now=self.now, normalise=False, **tokens
        ).text

    def _write_fastchat(self, chat: Chat, is_prompt: bool, tokens: dict[str, str]) -> str:
        from fastchat.conversation import Conversation, SeparatorStyle

        style = SeparatorStyle[self.source["sep_style"]]
        conversation = Conversation(**{**self.source, "messages": [], "sep_style": style})
        return str(fill_conversation(conversation, chat, is_prompt).get_prompt())


class Software(Protocol):
    """What writes a conversation as the target does."""

    dialect: Dialect
    now: datetime

    def write(self, chat: Chat, is_prompt: bool, tokens: dict[str, str], /) -> str: ...


def find_differences(
    template: Template, target: Software, chats: Collection[Chat], without: Collection[str]
) -> tuple[int, list[tuple[Chat, str, str]]]:
    """How many conversations were compared; and those that the two write otherwise, with both texts."""
    tokens = TOKENS | {name: template.options[name] for name in TOKENS if name in template.options}
    bos = tokens["bos_token"]
    if not target.dialect.late_systems:
        without = [*without, "late system text"]
    compared, found = 0, []
    for invented in chats:
        chat = simplify(invented, without)
        is_prompt = chat is not None and chat[-1]["role"] == "user"
        if chat is None or (target.dialect.prompts_only and not is_prompt):
            continue
        try:
            expected = template.render(
                chat, add_generation_prompt=is_prompt, now=target.now, **tokens
            ).text
        except turnwise.TurnwiseError:
            continue
        compared += 1
        try:
            written = target.write(chat, is_prompt, tokens)
        except turnwise.TurnwiseError as error:
            written = f"refused: {error}"
        wanted = expected
        if target.dialect.inserts_bos:  # the first is the software's, never a second
            wanted, written = wanted.removeprefix(bos), written.removeprefix(bos)
        if not is_prompt:
            wanted, written = wanted.rstrip(), written.rstrip()
        if wanted != written:
            found.append((chat, wanted, written))
    return compared, found
