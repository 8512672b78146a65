"""What a template does with each form of a message: write it, drop it, refuse it, or write Python's `repr` of it.

Conversations come in OpenAI's shape: content may be null or a list of parts, arguments are JSON text, there is a
developer role, a system message may come late. Templates take some of these forms, and most fail or write nonsense for
the others. Each question is answered by rendering a probe in which every field is a word that no template writes
(`prober.py`), never by reading the source.

    capabilities = Normaliser(template).capabilities()
    capabilities.takes_parts("user")     # False: text parts have to be joined
    print(capabilities)                  # a table of all answers

An answer is computed when it is first asked for, and kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal

from turnwise.analysis.conversations import MessageDict, make_message
from turnwise.analysis.facts import Facts
from turnwise.analysis.prober import (
    ABSENT,
    ARGUMENTS,
    CONTENT,
    IDS,
    NEXT_USER,
    RESULT,
    SYSTEM,
    USER,
    CallShape,
)
from turnwise.engine.provenance.rendering import Rendering
from turnwise.replies.input_format import InputFormat

Verdict = Literal["written", "dropped", "refused", "as repr"]
LATER = "Zlaterq"  # the text of a second system message
LONG_ID = "call_Zq81f3a9c27d4b"  # as OpenAI's clients make them
_REPR_OF_PART = re.compile(r"""['"](?:type|text)['"]\s*:""")  # of a content that was printed whole


class Capabilities:
    """The answers for one template.

    Args:
        facts: what is known about the template; its prober has settings that the template accepts.
        input_format: returns the form in which it takes assistant messages, which takes many probes to find out.
        with_tools: ask in conversations with tools, where some templates take other forms.
    """

    def __init__(
        self, facts: Facts, input_format: Callable[[], InputFormat], with_tools: bool = True
    ) -> None:
        prober = facts.prober
        self._prober = prober.with_settings(tools=with_tools and prober.settings.tools)
        self._find_input_format = input_format
        self._takes_content: dict[tuple[str, str], str | None] = {}

    @cached_property
    def input_format(self) -> InputFormat:
        """The form in which the template takes assistant messages."""
        return self._find_input_format()

    @property
    def shape(self) -> CallShape:
        """The form in which the template takes tool calls."""
        return self.input_format.shape

    # Content

    def takes_text(self, role: str) -> bool:
        """Whether a content that is a text is written."""
        return self._render_content(role, "text") is not None

    def takes_parts(self, role: str) -> bool:
        """Whether a content of one text part is written as the text alone would be."""
        in_parts = self._render_content(role, "parts")
        if in_parts is None:
            return False
        as_text = self._render_content(role, "text")
        return as_text is None or as_text == in_parts

    def _render_content(self, role: str, form: str) -> str | None:
        """Return a rendering with the content of one message as text or in parts; None if it is not written well."""
        key = role, form
        if key not in self._takes_content:
            content: Any = CONTENT if form == "text" else [{"type": "text", "text": CONTENT}]
            rendering = self._prober.render(self._chat_with(role, content))
            is_written = rendering is not None and _is_well_written(rendering, CONTENT)
            self._takes_content[key] = rendering.text if rendering and is_written else None
        return self._takes_content[key]

    def _chat_with(self, role: str, content: Any) -> list[MessageDict]:
        """Return a conversation that has a message with this role and content."""
        prober = self._prober
        message = make_message(role, content)
        if role == "user":
            return [message]
        if role in ("system", "developer"):
            return [message, prober.user()]
        if role == "assistant":
            return [prober.user(), message, prober.user(NEXT_USER)]
        return [prober.user(), self._call(), {**message, "tool_call_id": IDS[0], "name": "zfuna"}]

    def _call(self, **changes: Any) -> MessageDict:
        shape = self.shape._replace(**changes)
        return {"role": "assistant", **self._prober.call(shape, ARGUMENTS[0])}

    @cached_property
    def empty_content(self) -> Any:
        """The content of a reply that has none: None, "", no text in a part, or `ABSENT`; the first that is taken.

        None is taken if it is written like an empty text, not as the word "None".
        """
        texts: list[Any] = ["", [{"type": "text", "text": ""}]]
        if not self.takes_text("assistant"):
            texts.reverse()
        forms = ((form, self._render_reply(form)) for form in (*texts, ABSENT))
        form, text = next((found for found in forms if found[1] is not None), ("", None))
        null = self._render_reply(None)
        return None if null is not None and text in (None, null) else form

    def _render_reply(self, content: Any) -> str | None:
        prober = self._prober
        reply = make_message("assistant", content)
        if content is ABSENT:
            del reply["content"]
        rendering = prober.render([prober.user(), reply, prober.user(NEXT_USER)])
        return rendering.text if rendering is not None else None

    def takes_part_type(self, kind: str) -> bool:
        """Whether a media part with this `type` gets a placeholder in a user's message."""
        if kind not in self._part_types:
            part = {"type": kind, kind: {"url": "Zurlq"} if kind.endswith("_url") else "Zurlq"}
            message = make_message("user", [part, {"type": "text", "text": USER}])
            rendering = self._prober.render([message])
            self._part_types[kind] = rendering is not None and all(
                media.written for media in rendering.media
            )
        return self._part_types[kind]

    @cached_property
    def _part_types(self) -> dict[str, bool]:
        return {}

    # Roles

    def writes_role(self, role: str) -> bool:
        """Whether the text of a message with this role is written, where such a message usually stands."""
        return self.takes_text(role) or self._render_content(role, "parts") is not None

    @cached_property
    def takes_late_system(self) -> bool:
        """Whether a system message behind other messages is written."""
        prober = self._prober
        system = make_message("system", prober.as_content(LATER))
        chat = [prober.user(), prober.reply(), system, prober.user(NEXT_USER)]
        return self._writes(chat, LATER, USER, NEXT_USER)

    @cached_property
    def takes_two_systems(self) -> bool:
        """Whether the second of two system messages at the front is written."""
        prober = self._prober
        systems = [make_message("system", prober.as_content(text)) for text in (SYSTEM, LATER)]
        return self._writes([*systems, prober.user()], SYSTEM, LATER, USER)

    def _writes(self, chat: Sequence[MessageDict], *words: str, **arguments: Any) -> bool:
        rendering = self._prober.render(chat, **arguments)
        return rendering is not None and all(word in rendering.text for word in words)

    # Calls

    @cached_property
    def takes_argument_text(self) -> bool:
        """Whether arguments may be JSON text: they are written as a mapping is, white space aside."""
        return self.shape.as_text or self._is_same_call(as_text=True)

    @cached_property
    def takes_argument_mapping(self) -> bool:
        """Whether arguments may be a mapping."""
        return not self.shape.as_text or self._is_same_call(as_text=False)

    def _is_same_call(self, **changes: Any) -> bool:
        usual, other = (
            self._prober.turn(self._prober.call(shape, ARGUMENTS[0]))
            for shape in (self.shape, self.shape._replace(**changes))
        )
        if usual is None or other is None:
            return False
        return _without_space(usual.text) == _without_space(other.text)

    @cached_property
    def takes_any_id(self) -> bool:
        """Whether the ids of calls may have any length; some templates want nine letters and digits."""
        prober = self._prober
        call = self._call()
        for one in call.get("tool_calls", ()):
            one["id"] = LONG_ID
        result = {"role": "tool", "content": prober.as_content(RESULT), "tool_call_id": LONG_ID}
        chat = [prober.user(), call, {**result, "name": "zfuna"}]
        if prober.render(chat) is not None:
            return True
        result["tool_call_id"] = IDS[0]
        return prober.render([prober.user(), self._call(), {**result, "name": "zfuna"}]) is None

    def judge(self, chat: Sequence[MessageDict], *words: str) -> Verdict:
        """Return what the template does with a conversation that has these words."""
        rendering = self._prober.render(chat)
        if rendering is None:
            return "refused"
        if any(word not in rendering.text for word in words):
            return "dropped"
        return "written" if _is_well_written(rendering, words[0]) else "as repr"

    def __str__(self) -> str:
        return "\n".join(f"{name:<28} {verdict}" for name, verdict in self.rows())

    def rows(self) -> Iterator[tuple[str, Verdict]]:
        """Yield an answer for each form of input that people have."""
        prober = self._prober
        system, later = (
            make_message("system", prober.as_content(text)) for text in (SYSTEM, LATER)
        )
        user, again, reply = prober.user(), prober.user(NEXT_USER), prober.reply()
        yield "system", self.judge([system, user], SYSTEM)
        yield "developer", self.judge([{**system, "role": "developer"}, user], SYSTEM)
        yield "system late", self.judge([user, reply, later, again], LATER)
        yield "system twice", self.judge([system, later, user], SYSTEM, LATER)
        yield "users in a row", self.judge([user, again], USER, NEXT_USER)
        yield "assistant first", self.judge([reply, user], CONTENT)
        yield "call", self.judge([user, self._call()], "zkeya")
        yield "result", self.judge(self._chat_with("tool", prober.as_content(RESULT)), RESULT)
        for role in ("user", "system", "assistant", "tool"):
            parts = self._chat_with(role, [{"type": "text", "text": CONTENT}])
            yield f"{role} content in parts", self.judge(parts, CONTENT)
        for kind in ("image", "image_url", "video", "audio"):
            yield kind, "written" if self.takes_part_type(kind) else "dropped"


def _is_well_written(rendering: Rendering, word: str) -> bool:
    """Whether a word is in a rendering, and not inside of a list that was printed whole."""
    before, found, _ = rendering.text.partition(word)
    return bool(found) and not _REPR_OF_PART.search(before[-40:])


def _without_space(text: str) -> str:
    return "".join(text.split())
