"""The fields of a FastChat Conversation, and its 23 separator styles as 23 rows.

FastChat writes each style in a branch of its own; here a style is a row of `STYLES`. A row gives,
as text, what is before and after a message, what an open turn looks like, and how the system prompt
is joined:

    CHATML: StyleRow(before=role + newline, after=sep, gap=newline, ...)

A row is asked once for each position of a message (`TurnPosition`) while a template is translated.
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

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum, IntEnum, auto
from types import MappingProxyType
from typing import Any


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

    def to_dict(self) -> dict[str, Any]:
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


TurnText = Callable[[FastChatSpec, TurnPosition], str]
"""Returns the text at one place of a turn: before the message, after it."""


def _role_colon(spec: FastChatSpec, turn: TurnPosition) -> str:
    return turn.role + ":"


def _role_colon_space(spec: FastChatSpec, turn: TurnPosition) -> str:
    return turn.role + ": "


def _role_colon_line(spec: FastChatSpec, turn: TurnPosition) -> str:
    return turn.role + ":\n"


def _role_line(spec: FastChatSpec, turn: TurnPosition) -> str:
    return turn.role + "\n"


def _role(spec: FastChatSpec, turn: TurnPosition) -> str:
    return turn.role


def _sep(spec: FastChatSpec, turn: TurnPosition) -> str:
    return spec.sep_text


def _sep_or_sep2(spec: FastChatSpec, turn: TurnPosition) -> str:
    return spec.sep_text if turn.even else spec.sep2_text


def _empty(spec: FastChatSpec, turn: TurnPosition) -> str:
    return ""


def _newline(spec: FastChatSpec, turn: TurnPosition) -> str:
    return "\n"


def _llama2_tag(spec: FastChatSpec, turn: TurnPosition) -> str:
    """The tag goes by the position, whatever the role."""
    return spec.roles[0 if turn.even else 1]


def _is_llama2_start(turn: TurnPosition) -> bool:
    """The system prompt, or its absence, has already opened the first turn."""
    return turn.first and turn.even


def _system_sep(spec: FastChatSpec) -> str:
    return spec.sep_text


@dataclass(frozen=True, slots=True)
class StyleRow:
    """How one separator style writes a conversation."""

    before: TurnText
    after: TurnText
    open_turn: TurnText | None = None  # where it differs from `before`
    gap: TurnText = _empty  # follows `after`; the model does not write it
    system: SystemRule = SystemRule.ALWAYS
    system_after: Callable[[FastChatSpec], str] = lambda spec: ""
    no_system: str = ""  # written if there is no system message
    bos: str | None = None  # the text starts with it; "" if FastChat leaves that to the tokenizer
    text_filter: str = ""  # Jinja filters for the text of each message
    # The number of the first round, where rounds are numbered.
    first_round: Callable[[FastChatSpec], int] | None = None
    keep_last: int | None = None  # exact: how many of the last messages are written
    strip_end: str = ""  # exact: characters that are stripped from the end of the whole text
    end: Callable[[FastChatSpec], str] = lambda spec: ""  # the end of the whole text
    images: str = "refused"  # exact: placeholders "before" the text, "dropped", or "refused"
    required: tuple[str, ...] = ("sep",)  # separators that must not be null
    special_names: tuple[str, ...] = ()  # names of templates that the style treats differently

    @property
    def pending(self) -> TurnText:
        """The text of a turn without a message."""
        return self.open_turn or self.before


_BOTH_SEPS = ("sep", "sep2")

STYLES: Mapping[SeparatorStyle, StyleRow] = MappingProxyType(
    {
        SeparatorStyle.ADD_COLON_SINGLE: StyleRow(
            _role_colon_space, _sep, _role_colon, system_after=_system_sep, images="before"
        ),
        SeparatorStyle.ADD_COLON_TWO: StyleRow(
            _role_colon_space,
            _sep_or_sep2,
            _role_colon,
            system_after=_system_sep,
            images="before",
            required=_BOTH_SEPS,
        ),
        SeparatorStyle.ADD_COLON_SPACE_SINGLE: StyleRow(
            _role_colon_space, _sep, system_after=_system_sep
        ),
        SeparatorStyle.NO_COLON_SINGLE: StyleRow(_role, _sep),
        SeparatorStyle.NO_COLON_TWO: StyleRow(_role, _sep_or_sep2, required=_BOTH_SEPS),
        SeparatorStyle.ADD_NEW_LINE_SINGLE: StyleRow(
            _role_line, _sep, system=SystemRule.IF_PROMPT, system_after=_system_sep
        ),
        SeparatorStyle.LLAMA2: StyleRow(
            lambda spec, turn: "" if _is_llama2_start(turn) else _llama2_tag(spec, turn) + " ",
            lambda spec, turn: " " if _is_llama2_start(turn) else _sep_or_sep2(spec, turn),
            _llama2_tag,
            system=SystemRule.IF_MESSAGE,
            no_system="[INST] ",
            bos="",
            required=_BOTH_SEPS,
        ),
        SeparatorStyle.LLAMA3: StyleRow(
            lambda spec, turn: f"<|start_header_id|>{turn.role}<|end_header_id|>\n\n",
            lambda spec, turn: "<|eot_id|>",
            system=SystemRule.IF_MESSAGE,
            bos="<|begin_of_text|>",
            text_filter=" | trim",
            required=(),
        ),
        SeparatorStyle.CHATGLM: StyleRow(
            lambda spec, turn: turn.role + "\uff1a",  # a full-width colon
            _sep,
            system=SystemRule.IF_PROMPT,
            system_after=_system_sep,
            first_round=lambda spec: 1 if spec.name == "chatglm2" else 0,
            special_names=("chatglm2",),
        ),
        SeparatorStyle.CHATML: StyleRow(
            _role_line,
            _sep,
            gap=_newline,
            system=SystemRule.IF_PROMPT,
            system_after=lambda spec: spec.sep_text + "\n",
            images="before",
        ),
        SeparatorStyle.CHATINTERN: StyleRow(
            lambda spec, turn: ("<s>" if turn.even else "") + turn.role + ":",
            _sep_or_sep2,
            gap=_newline,
            required=_BOTH_SEPS,
        ),
        SeparatorStyle.DOLLY: StyleRow(
            _role_colon_line,
            _sep_or_sep2,
            gap=lambda spec, turn: "" if turn.even else "\n\n",
            required=_BOTH_SEPS,
        ),
        SeparatorStyle.RWKV: StyleRow(
            _role_colon_space,
            lambda spec, turn: "\n\n",
            _role_colon,
            text_filter=r" | replace('\r\n', '\n') | replace('\n\n', '\n')",
            required=(),
        ),
        SeparatorStyle.PHOENIX: StyleRow(
            lambda spec, turn: turn.role + ": <s>", lambda spec, turn: "</s>", required=()
        ),
        SeparatorStyle.ROBIN: StyleRow(_role_colon_line, _sep, system_after=_system_sep),
        SeparatorStyle.FALCON_CHAT: StyleRow(
            _role_colon_space,
            _sep,
            _role_colon,
            system=SystemRule.IF_MESSAGE,
            system_after=_system_sep,
        ),
        SeparatorStyle.CHATGLM3: StyleRow(
            _role_line, _empty, _role, system=SystemRule.IF_MESSAGE, required=()
        ),
        SeparatorStyle.DEEPSEEK_CHAT: StyleRow(
            _role_colon_space, _sep_or_sep2, _role_colon, required=_BOTH_SEPS
        ),
        SeparatorStyle.METAMATH: StyleRow(
            lambda spec, turn: turn.role + (":\n" if turn.even else ": " + spec.sep2_text),
            lambda spec, turn: spec.sep_text if turn.even else "",
            system=SystemRule.IF_PROMPT,
            system_after=_system_sep,
            required=_BOTH_SEPS,
        ),
        SeparatorStyle.YUAN2: StyleRow(
            _empty,
            lambda spec, turn: "" if turn.last else "<n>",
            system=SystemRule.IF_MESSAGE,
            system_after=lambda spec: spec.sep2_text,
            strip_end="<n>",
            end=_system_sep,
            required=_BOTH_SEPS,
        ),
        SeparatorStyle.GEMMA: StyleRow(
            lambda spec, turn: f"<start_of_turn>{turn.role}\n",
            _sep,
            system=SystemRule.NEVER,
            bos="<bos>",
        ),
        SeparatorStyle.CLLM: StyleRow(
            _role_colon_space,
            _sep_or_sep2,
            _role_colon,
            system_after=_system_sep,
            keep_last=2,
            images="before",
            required=_BOTH_SEPS,
        ),
        SeparatorStyle.DEFAULT: StyleRow(
            _role_colon_space,
            _newline,
            _role_colon,
            system_after=lambda spec: "\n",
            images="dropped",
            required=(),
        ),
    }
)
