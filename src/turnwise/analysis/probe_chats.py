"""ProbeChats: readable conversations in the plain forms that one template accepts.

A question about a form of input (`forms.py`, `turnwise check`) differs from a plain conversation in that form alone.
The plain forms are those of the prober's settings (text or parts, a system message first) and of the template's calls
(arguments as a mapping or as JSON text). The words are readable, since the conversations are shown to users; fields are
found by provenance, not by their words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

from turnwise.analysis.conversations import (
    STANDARD_VARIABLES,
    MessageDict,
    Probe,
    make_message,
    make_tool,
    name_tokens,
)
from turnwise.analysis.facts import Facts
from turnwise.analysis.prober import IN_PARTS, CallShape, Prober
from turnwise.engine.runtime.functions import FUNCTIONS
from turnwise.messages import REASONING_KEYS, JsonMapping, JsonObject, Path

RULES, MORE_RULES = "Answer briefly.", "Use metric units."
ASKED, ASKED_AGAIN = "Tide at Brest?", "And at Calais?"
SAID, SAID_NEXT = "High water at noon.", "An hour later."
THOUGHT = "Let me look at the table."
FOUND, FOUND_NEXT = "7.1 metres", "6.8 metres"
ARGUMENTS: tuple[JsonObject, ...] = ({"harbour": "Brest"}, {"harbour": "Calais"})
CALL_IDS = ("call00001", "call00002")  # nine letters and digits, as some templates demand
TOOL_NAME = "tide"
TOOLS = [make_tool(TOOL_NAME, harbour={"type": "string", "description": "The harbour"})]
BOOLEAN_TOOL = make_tool(TOOL_NAME, nearby={"type": "boolean", "default": True})
OPENAI_ID = "call_8Zf3a9c27d4bQx10"  # as OpenAI's clients make them
ODD_VALUES = {"nearby": True, "limit": None, "ports": ["Brest", "Calais"]}
DOCUMENTS = [{"title": "Tide table", "text": "High water at Brest: 7.1 metres"}]
CONTENTS: JsonObject = {
    "text": SAID,
    "parts": [{"type": "text", "text": SAID}],
    "two-parts": [{"type": "text", "text": text} for text in (SAID, SAID_NEXT)],
    "null": None,
    "empty": "",
}
"""The contents of variants of a message."""
ABSENT_KEYS = {"absent": "content", "nameless": "name"}
"""The keys that variants of a message do not have."""


class AssistantFormat(Protocol):
    """The form in which a template accepts an assistant's message."""

    @property
    def shape(self) -> CallShape:
        """The form of tool calls."""

    @property
    def reasoning(self) -> str:
        """The key of reasoning."""


class FormQuestion(NamedTuple):
    """A conversation, and the paths of what it asks about."""

    probe: Probe
    paths: tuple[Path, ...]


class ProbeChats:
    """Makes conversations for one template.

    Args:
        facts: what is known about the template.
        find_format: returns the form of assistant messages, which takes many probes to find out.
        tokens: the texts of special tokens that are known; others are made up.
    """

    def __init__(
        self,
        facts: Facts,
        find_format: Callable[[], AssistantFormat],
        tokens: Mapping[str, str] | None = None,
    ) -> None:
        self.facts = facts
        self._find_format = find_format
        self._known_tokens = tokens or {}

    @property
    def prober(self) -> Prober:
        """A prober with the settings that the template accepts."""
        return self.facts.prober

    @cached_property
    def input_format(self) -> AssistantFormat:
        """The form in which the template accepts assistant messages."""
        return self._find_format()

    @cached_property
    def tokens(self) -> dict[str, str]:
        """The special tokens that the template reads and has no text for."""
        tokens = name_tokens(self.prober.renderer)
        return {name: self._known_tokens.get(name) or text for name, text in tokens.items()}

    @cached_property
    def options(self) -> JsonObject:
        """The values without which the template cannot be rendered."""
        options: JsonObject = dict(self.tokens)
        renderer = self.prober.renderer
        if self.prober.settings.fill_variables:
            known = {*STANDARD_VARIABLES, *FUNCTIONS, *options, *renderer.options}
            options |= {name: "" for name in renderer.variables if name not in known}
        return options

    @property
    def tools(self) -> list[Any] | None:
        """The tools of conversations with calls; None if the template refuses a user message with tools."""
        return TOOLS if self.prober.settings.tools else None

    # Messages

    def system(self, text: str = RULES) -> MessageDict:
        """Return a system message."""
        return make_message("system", self.prober.as_content(text))

    def user(self, text: str = ASKED) -> MessageDict:
        """Return a user message."""
        return make_message("user", self.prober.as_content(text))

    def reply(self, text: str = SAID, **more: Any) -> MessageDict:
        """Return an assistant message with content."""
        return make_message("assistant", self.prober.as_content(text), **more)

    def call(
        self, *arguments: Any, content: str | None = None, as_text: bool | None = None
    ) -> MessageDict:
        """Return an assistant message that calls the tool once for each of the arguments, in the template's form.

        Args:
            arguments: those of each call; one call without any given.
            content: the text beside the calls; the template's own form of no text, if None.
            as_text: whether arguments are JSON text; as the template accepts them, if None.
        """
        shape = self.input_format.shape
        if as_text is not None:
            shape = shape._replace(as_text=as_text)
        given = arguments or ARGUMENTS[:1]
        names = (TOOL_NAME, TOOL_NAME)
        fields = self.prober.call(shape, *given, content=content, names=names, ids=CALL_IDS)
        return {"role": "assistant", **fields}

    def result(self, text: str = FOUND, number: int = 0) -> MessageDict:
        """Return the result of a call."""
        names = {"name": TOOL_NAME, "tool_call_id": CALL_IDS[number]}
        return {"role": "tool", "content": self.prober.as_content(text), **names}

    # Conversations

    def chat(
        self,
        *messages: MessageDict,
        tools: Sequence[Any] | None = None,
        prompt: bool = False,
        options: JsonMapping | None = None,
    ) -> Probe:
        """Return a conversation, after the messages that the template wants first."""
        roles = [message.get("role") for message in messages]
        first: list[MessageDict] = []
        if self.prober.settings.system_first and "system" not in roles[:1]:
            first = [self.system()]
        return Probe(
            "",
            [*first, *messages],
            tools=list(tools) if tools is not None else None,
            add_generation_prompt=prompt,
            options={**self.options, **(options or {})},
        )


class FormChats(ProbeChats):
    """Makes the conversations of the table of forms, which are written in words (`forms.toml`)."""

    @property
    def reasoning_key(self) -> str:
        """The key of reasoning in messages: one of the usual keys, also if the template reads another place."""
        key = self.input_format.reasoning
        return key if key in REASONING_KEYS else REASONING_KEYS[0]

    def with_reasoning(self, message: MessageDict) -> MessageDict:
        """Return a message with reasoning under its usual key, and where the template reads it."""
        key = self.input_format.reasoning
        message = {**message, self.reasoning_key: THOUGHT}
        if key != IN_PARTS:
            return {**message, key: THOUGHT}
        content = message.get("content")
        parts = content if isinstance(content, list) else []
        return {**message, IN_PARTS: [{"type": "thinking", "thinking": THOUGHT}, *parts]}

    def _make_message(self, name: str, word: str) -> MessageDict:
        makers: dict[str, Callable[[], MessageDict]] = {
            "system": self.system,
            "late": partial(self.system, MORE_RULES),
            "developer": lambda: {**self.system(), "role": "developer"},
            "user": self.user,
            "again": partial(self.user, ASKED_AGAIN),
            "reply": self.reply,
            "next": partial(self.reply, SAID_NEXT),
            "call": self.call,
            "calls": partial(self.call, *ARGUMENTS),
            "call-said": partial(self.call, content=SAID_NEXT),
            "call-mapping": partial(self.call, as_text=False),
            "call-text": partial(self.call, as_text=True),
            "call-odd": partial(self.call, ODD_VALUES),
            "result": self.result,
            "next-result": partial(self.result, FOUND_NEXT, 1),
            "other": lambda: {**self.result(), "role": word},
        }
        return makers[name]()

    def _vary(self, message: MessageDict, variant: str, word: str) -> MessageDict:
        """Return a message in a variant of its form."""
        if variant in CONTENTS:
            return {**message, "content": CONTENTS[variant]}
        if variant == "thought":
            return self.with_reasoning(message)
        if variant == "media":
            value: Any = {"url": "cat.png"} if word.endswith("_url") else "cat.png"
            parts = [{"type": word, word: value}, {"type": "text", "text": SAID}]
            return {**message, "content": parts}
        if variant == "long-id":
            calls = [{**call, "id": OPENAI_ID} for call in message.get("tool_calls", ())]
            given = {"tool_calls": calls, "tool_call_id": OPENAI_ID}
            return {**message, **{key: given[key] for key in given if key in message}}
        return {key: value for key, value in message.items() if key != ABSENT_KEYS[variant]}

    def ask(self, chat: str, about: str, word: str = "", tools: str = "") -> FormQuestion | None:
        """Return a conversation, and the paths of the fields that it asks about.

        Args:
            chat: its messages in words: `user reply:null* again` is one whose reply, which the question is about, has
                null content.
            about: which field of the messages with a star, or of the conversation (`Form.about`).
            word: a role or the type of a part, for `other` and `media`.
            tools: which tools it has (`Form.tools`).

        Returns:
            None if the template's calls have no such form.
        """
        shape = self.input_format.shape if "call" in chat else CallShape()
        if (shape.single and ("calls" in chat or "long-id" in chat)) or (
            shape.as_text and "call-odd" in chat
        ):
            return None
        messages = []
        for one in chat.split():
            name, *variants = one.rstrip("*").split(":")
            message = self._make_message(name, word)
            for variant in variants:
                message = self._vary(message, variant, word)
            messages.append(message)
        given = {"usual": self.tools, "always": TOOLS, "boolean": [BOOLEAN_TOOL]}
        probe = self.chat(*messages, tools=given.get(tools))
        if about in ("tools", "documents"):
            documents = DOCUMENTS if about == "documents" else None
            return FormQuestion(replace(probe, documents=documents), ((about,),))
        first = len(probe.messages) - len(messages)
        paths = [
            ("messages", first + index, *self._name_field(about, messages[index]))
            for index, one in enumerate(chat.split())
            if one.endswith("*")
        ]
        return FormQuestion(probe, tuple(paths))

    def _name_field(self, about: str, message: MessageDict) -> Path:
        if about == "calls":
            return ("function_call",) if "function_call" in message else ("tool_calls",)
        if about == "reasoning":
            return (self.reasoning_key,)
        return ("content", 0) if about == "part" else ("content",)
