r"""The fields of a FastChat Conversation, and its 23 separator styles as 23 rows.

FastChat writes each style in a branch of its own; here a style is a row of `fastchat_styles.json`.
A row gives, as text, what is before and after a message, what an open turn looks like, and how the
system prompt is joined:

    "CHATML": {"before": "{role}\n", "after": "{sep}", "gap": "\n", ...}

A text that depends on the position has one for each: `{"even": "{sep}", "odd": "{sep2}"}`; `first`
is the first message, unless it is odd, and `last` the last one. A row is asked once for each
position of a message (`TurnPosition`) while a template is translated.
FastChat chooses by the parity of a message's number; the default translation chooses by its role.
Both use the same row: only the meaning of `even` differs.

The order of the rows is that of FastChat's enumeration, whose numbers are in people's files.
(FastChat 0.2.36 lacks LLAMA3, GEMMA, CLLM and DEFAULT, so a number after LLAMA2 that it wrote means
another style: use names.)

FastChat in this package:

    dialects/fastchat.py          reads a Conversation: checks its fields
    dialects/fastchat_styles.py   the fields and the table of styles (this file)
    dialects/fastchat_jinja.py    writes the Jinja of a Conversation
    dialects/fastchat_write.py    writes turns of any template as a Conversation
    registry/fastchat.py          the templates that FastChat ships, as entries
    compat/fastchat.py            FastChat's own functions and adapters, for code that calls them
    compat/fastchat_conversation.py   its own class
    shapes/fastchat.py            rows of training data in FastChat's shape
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum, IntEnum, auto
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from turnwise.messages import JsonObject


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


@dataclass(frozen=True, slots=True)
class FastChatSpec:
    """The thirteen fields of a Conversation, checked by `fastchat.parse_spec`."""

    name: str
    system_template: str = "{system_message}"
    system_message: str = ""
    system_message_vision: str = ""
    roles: tuple[str, ...] = ("USER", "ASSISTANT")
    messages: tuple[Any, ...] = ()
    offset: int = 0
    sep_style: SeparatorStyle = SeparatorStyle.ADD_COLON_SINGLE
    sep: str | None = "\n"
    sep2: str | None = None
    stop_str: Any = None
    stop_token_ids: Any = None
    max_image_size_mb: float | None = None

    @property
    def sep_text(self) -> str:
        """`sep`, empty if it is null."""
        return self.sep or ""

    @property
    def sep2_text(self) -> str:
        """`sep2`, empty if it is null."""
        return self.sep2 or ""

    @property
    def style(self) -> StyleRow:
        """The row of the separator style."""
        return STYLES[self.sep_style]

    def to_dict(self) -> JsonObject:
        """Return the fields, with the style by name."""
        return asdict(self) | {"sep_style": self.sep_style.name}


@dataclass(frozen=True, slots=True)
class TurnPosition:
    """Where a message is in the conversation.

    Exact: `even` is the parity of the message's number. Otherwise it is True for the user's role.
    """

    role: str  # the text that is written for the role
    even: bool
    first: bool = False
    last: bool = False


class SystemRule(Enum):
    """When the system prompt is written."""

    ALWAYS = auto()
    IF_PROMPT = auto()  # if the formatted prompt is not empty
    IF_MESSAGE = auto()  # if the system message is not empty
    NEVER = auto()


@dataclass(frozen=True, slots=True)
class TurnText:
    """The text at one place of a turn: before the message, after it."""

    texts: Mapping[str, str]

    def __call__(self, spec: FastChatSpec, turn: TurnPosition) -> str:
        """Return the text at a position."""
        # The system prompt, or its absence, has already opened a first turn.
        keys = {
            "first": turn.first and turn.even,
            "last": turn.last,
            "even": turn.even,
            "odd": True,
        }
        text = next(self.texts[key] for key, holds in keys.items() if holds and key in self.texts)
        return fill_text(text, spec, turn.role)


def fill_text(text: str, spec: FastChatSpec, role: str = "") -> str:
    """Return a text of a row with the fields of a Conversation in it."""
    return text.format(role=role, roles=spec.roles, sep=spec.sep_text, sep2=spec.sep2_text)


@dataclass(frozen=True, slots=True)
class StyleRow:
    """How one separator style writes a conversation."""

    before: TurnText
    after: TurnText
    pending: TurnText  # a turn without a message
    gap: TurnText  # follows `after`; the model does not write it
    required: tuple[str, ...]  # separators that must not be null
    system: SystemRule = SystemRule.ALWAYS
    system_after: str = ""  # with the separators in braces, like `end`
    no_system: str = ""  # written if there is no system message
    bos: str | None = None  # the text starts with it; "" if FastChat leaves that to the tokenizer
    text_filter: str = ""  # Jinja filters for the text of each message
    # The number of the first round, where rounds are numbered, by the name of the template.
    first_rounds: Mapping[str, int] | None = None
    keep_last: int | None = None  # exact: how many of the last messages are written
    strip_end: str = ""  # exact: characters that are stripped from the end of the whole text
    end: str = ""  # the end of the whole text
    images: str = "refused"  # exact: placeholders "before" the text, "dropped", or "refused"

    def first_round(self, spec: FastChatSpec) -> int:
        """Return the number of the first round; 0 if rounds are not numbered."""
        rounds = self.first_rounds or {"": 0}
        return rounds.get(spec.name, rounds[""])


def _read_row(row: JsonObject) -> StyleRow:
    texts = {name: row.pop(name, "") for name in ("before", "after", "gap")}
    texts["pending"] = row.pop("open_turn", texts["before"])
    places: JsonObject = {
        name: TurnText(dict.fromkeys(("even", "odd"), text) if isinstance(text, str) else text)
        for name, text in texts.items()
    }
    separators = ["sep", "sep2"] if "sep2" in str(texts) else ["sep"]
    required = tuple(row.pop("required", separators))
    rule = SystemRule[row.pop("system", "ALWAYS")]
    return StyleRow(**places, required=required, system=rule, **row)


def _read_styles() -> Mapping[SeparatorStyle, StyleRow]:
    text = files("turnwise.dialects").joinpath("fastchat_styles.json").read_text(encoding="utf-8")
    rows = json.loads(text)
    return MappingProxyType({SeparatorStyle[name]: _read_row(row) for name, row in rows.items()})


STYLES = _read_styles()
