"""FastChat's 23 separator styles, as 23 rows.

A row says, in text, what stands before and after a message, what an open turn looks like, and how the system prompt is
joined. It is asked once per place (`TurnPosition`) while a template is translated; `fastchat.py`
makes Jinja of the answers. The original chooses by the parity of a message's number; the default
translation chooses by its role. Both are the same row: only what `even` means differs.

The order of the rows is that of FastChat's enumeration, whose numbers people have in their files (its release 0.2.36
lacks LLAMA3, GEMMA, CLLM and DEFAULT, so numbers after LLAMA2 written by it mean something else: use names).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum, auto
from types import MappingProxyType
from typing import Protocol


class SeparatorStyle(IntEnum):
    """The names and numbers of the styles."""

    ADD_COLON_SINGLE = auto()
    ADD_COLON_TWO = auto()
    ADD_COLON_SPACE_SINGLE = auto()
    NO_COLON_SINGLE = auto()
    NO_COLON_TWO = auto()
    ADD_NEW_LINE_SINGLE = auto()
    LLAMA2 = auto()
    LLAMA3 = auto()
    CHATGLM = auto()
    CHATML = auto()
    CHATINTERN = auto()
    DOLLY = auto()
    RWKV = auto()
    PHOENIX = auto()
    ROBIN = auto()
    FALCON_CHAT = auto()
    CHATGLM3 = auto()
    DEEPSEEK_CHAT = auto()
    METAMATH = auto()
    YUAN2 = auto()
    GEMMA = auto()
    CLLM = auto()
    DEFAULT = auto()


class StyleFields(Protocol):
    """The fields of a Conversation that rows read."""

    @property
    def name(self) -> str: ...
    @property
    def roles(self) -> tuple[str, ...]: ...
    @property
    def one(self) -> str: ...  # sep
    @property
    def two(self) -> str: ...  # sep2


@dataclass(frozen=True, slots=True)
class TurnPosition:
    """Where a message stands. Exact: `even` is the parity of its number; otherwise, whether its role is the user's."""

    role: str  # the text of the role
    even: bool
    first: bool = False
    last: bool = False


Spelling = Callable[[StyleFields, TurnPosition], str]


def colon(f: StyleFields, p: TurnPosition) -> str:
    return p.role + ":"


def colon_space(f: StyleFields, p: TurnPosition) -> str:
    return p.role + ": "


def colon_line(f: StyleFields, p: TurnPosition) -> str:
    return p.role + ":\n"


def line(f: StyleFields, p: TurnPosition) -> str:
    return p.role + "\n"


def bare(f: StyleFields, p: TurnPosition) -> str:
    return p.role


def one(f: StyleFields, p: TurnPosition) -> str:
    return f.one


def either(f: StyleFields, p: TurnPosition) -> str:
    return f.one if p.even else f.two


def nothing(f: StyleFields, p: TurnPosition) -> str:
    return ""


def tag(f: StyleFields, p: TurnPosition) -> str:
    """LLAMA2: the tag belongs to the place, whoever speaks; the system prompt, or its absence, has opened the first."""
    return f.roles[0 if p.even else 1]


# When the system prompt is written: always; if the formatted prompt has text; if the message has text; never.
ALWAYS, PROMPT, MESSAGE, NEVER = "always", "prompt", "message", "never"


@dataclass(frozen=True, slots=True)
class StyleRow:
    before: Spelling
    after: Spelling
    pending: Spelling | None = None  # an open turn, where it differs from `before`
    gap: Spelling = nothing  # what follows `after` and is no part of what the model writes
    system: str = ALWAYS
    system_after: Callable[[StyleFields], str] = lambda f: ""
    no_system: str = ""  # written where there is no system message
    bos: str | None = (
        None  # what the text begins with; "" where FastChat leaves it to the tokenizer
    )
    text: str = ""  # Jinja behind each message's text
    rounds: Callable[[StyleFields], int] | None = (
        None  # the number of the first round, where rounds are counted
    )
    keep: int | None = None  # exact: how many of the last messages are written
    strip: str = ""  # exact: characters that the end of the whole text loses
    end: Callable[[StyleFields], str] = lambda f: ""  # what the whole text ends with
    images: str = "refused"  # exact: placeholders "before" the text, "dropped", or "refused"
    needs: tuple[str, ...] = ("sep",)
    names: tuple[str, ...] = ()  # names of templates that the row treats apart


S = SeparatorStyle
TWO = ("sep", "sep2")

STYLES: Mapping[SeparatorStyle, StyleRow] = MappingProxyType(
    {
        S.ADD_COLON_SINGLE: StyleRow(
            colon_space, one, colon, system_after=lambda f: f.one, images="before"
        ),
        S.ADD_COLON_TWO: StyleRow(
            colon_space, either, colon, system_after=lambda f: f.one, images="before", needs=TWO
        ),
        S.ADD_COLON_SPACE_SINGLE: StyleRow(colon_space, one, system_after=lambda f: f.one),
        S.NO_COLON_SINGLE: StyleRow(bare, one),
        S.NO_COLON_TWO: StyleRow(bare, either, needs=TWO),
        S.ADD_NEW_LINE_SINGLE: StyleRow(line, one, system=PROMPT, system_after=lambda f: f.one),
        S.LLAMA2: StyleRow(
            lambda f, p: "" if p.first and p.even else tag(f, p) + " ",
            lambda f, p: " " if p.first and p.even else either(f, p),
            tag,
            system=MESSAGE,
            no_system="[INST] ",
            bos="",
            needs=TWO,
        ),
        S.LLAMA3: StyleRow(
            lambda f, p: f"<|start_header_id|>{p.role}<|end_header_id|>\n\n",
            lambda f, p: "<|eot_id|>",
            system=MESSAGE,
            bos="<|begin_of_text|>",
            text=" | trim",
            needs=(),
        ),
        S.CHATGLM: StyleRow(
            lambda f, p: p.role + "\uff1a",  # a full-width colon
            one,
            system=PROMPT,
            system_after=lambda f: f.one,
            rounds=lambda f: 1 if f.name == "chatglm2" else 0,
            names=("chatglm2",),
        ),
        S.CHATML: StyleRow(
            line,
            one,
            gap=lambda f, p: "\n",
            system=PROMPT,
            system_after=lambda f: f.one + "\n",
            images="before",
        ),
        S.CHATINTERN: StyleRow(
            lambda f, p: ("<s>" if p.even else "") + p.role + ":",
            either,
            gap=lambda f, p: "\n",
            needs=TWO,
        ),
        S.DOLLY: StyleRow(colon_line, either, gap=lambda f, p: "" if p.even else "\n\n", needs=TWO),
        S.RWKV: StyleRow(
            colon_space,
            lambda f, p: "\n\n",
            colon,
            text=r" | replace('\r\n', '\n') | replace('\n\n', '\n')",
            needs=(),
        ),
        S.PHOENIX: StyleRow(lambda f, p: p.role + ": <s>", lambda f, p: "</s>", needs=()),
        S.ROBIN: StyleRow(colon_line, one, system_after=lambda f: f.one),
        S.FALCON_CHAT: StyleRow(
            colon_space, one, colon, system=MESSAGE, system_after=lambda f: f.one
        ),
        S.CHATGLM3: StyleRow(line, nothing, bare, system=MESSAGE, needs=()),
        S.DEEPSEEK_CHAT: StyleRow(colon_space, either, colon, needs=TWO),
        S.METAMATH: StyleRow(
            lambda f, p: p.role + (":\n" if p.even else ": " + f.two),
            lambda f, p: f.one if p.even else "",
            system=PROMPT,
            system_after=lambda f: f.one,
            needs=TWO,
        ),
        S.YUAN2: StyleRow(
            nothing,
            lambda f, p: "" if p.last else "<n>",
            system=MESSAGE,
            system_after=lambda f: f.two,
            strip="<n>",
            end=lambda f: f.one,
            needs=TWO,
        ),
        S.GEMMA: StyleRow(
            lambda f, p: f"<start_of_turn>{p.role}\n", one, system=NEVER, bos="<bos>"
        ),
        S.CLLM: StyleRow(
            colon_space,
            either,
            colon,
            system_after=lambda f: f.one,
            keep=2,
            images="before",
            needs=TWO,
        ),
        S.DEFAULT: StyleRow(
            colon_space,
            lambda f, p: "\n",
            colon,
            system_after=lambda f: "\n",
            images="dropped",
            needs=(),
        ),
    }
)
