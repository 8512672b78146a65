"""The table of what a template does with each feature of a conversation, each row with its evidence.

    system late          refused    System message must be at the beginning.
    user parts           as repr    "user\\n[{'type': 'text', 'text': 'Zcontentq'}]<|im_end|>"
    arguments as text    written    '{"name": "zfuna", "arguments": {"zkeya": "zvala"'

A row is a probe: a conversation whose every field is a word that no template writes, and the words that should be in
the rendering. It is *written* if all of them are, *dropped* if one is missing, *refused* if the template raises an
error, *in quotes* if JSON text is written as a string, with its own quotes escaped, and *as repr* if they are inside
of Python's or JSON's notation of a value that nobody meant to be read: a list of parts, the word None.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from turnwise.analysis.conversations import MessageDict, make_message, option_names
from turnwise.analysis.prober import (
    ABSENT,
    ARGUMENTS,
    CONTENT,
    DOCUMENTS,
    IDS,
    NAMES,
    NEXT_USER,
    REASONING,
    RESULT,
    SYSTEM,
    USER,
    CallShape,
    Prober,
)
from turnwise.analysis.template_constants import TemplateConstants
from turnwise.engine.provenance.rendering import Rendering
from turnwise.errors import short_repr
from turnwise.replies.input_format import IN_PARTS, InputFormat

Verdict = Literal["written", "dropped", "refused", "in quotes", "as repr"]
LATER = "Zlaterq"  # the text of a second system message
# Of arguments; tools name the keys, too.
VALUES = [
    tuple(value for value in arguments.values() if isinstance(value, str))
    for arguments in ARGUMENTS
]
OPTION_VALUES = (True, False)  # of an option that is only tested
EXCERPT = 24  # characters on each side of a word
MAX_EVIDENCE = 100  # characters

_REPR_OF_PART = re.compile(r"""['"](?:type|text)['"]\s*:""")  # of a content that was printed whole


class Capability(NamedTuple):
    """What a template does with one feature of a conversation.

    Attributes:
        name: the feature.
        verdict: "written", "dropped", "refused", "in quotes" or "as repr".
        evidence: what the template wrote around the first word, or its error message.
        probe: the conversation that shows it.
    """

    name: str
    verdict: Verdict
    evidence: str = ""
    probe: tuple[MessageDict, ...] = ()

    def __str__(self) -> str:
        return f"{self.name:<30} {self.verdict:<8}  {self.evidence}".rstrip()


class CapabilityProber:
    """Asks a template for the rows of the table.

    Args:
        prober: renders probes, with settings that the template accepts.
        input_format: the form in which the template takes assistant messages.
    """

    def __init__(self, prober: Prober, input_format: InputFormat) -> None:
        self._prober = prober
        self._shape = input_format.shape
        self._reasoning_key = input_format.reasoning

    def rows(self) -> Iterator[Capability]:
        """Yield a row for each feature, then one for each option."""
        yield from self._judge_roles()
        yield from self._judge_contents()
        yield from self._judge_media()
        yield from self._judge_calls()
        yield from self._judge_reasoning()
        yield from self._judge_arguments()
        yield from self._judge_options()

    def judge(
        self, name: str, chat: Sequence[MessageDict], *words: str, **arguments: Any
    ) -> Capability:
        """Return what the template does with a conversation that has these words."""
        rendering = self._prober.render(chat, **arguments)
        if rendering is None:
            refusal = self._prober.refusal(chat) or ""
            return Capability(name, "refused", short_repr(refusal, MAX_EVIDENCE)[1:-1], tuple(chat))
        text = rendering.text
        missing = [word for word in words if word not in text]
        if missing:
            return Capability(name, "dropped", f"no {missing[0]}", tuple(chat))
        place = text.find(words[0]) if words else 0
        excerpt = text[max(0, place - EXCERPT) : place + len(words[0] if words else "") + EXCERPT]
        verdict = judge_form(rendering, *words)
        return Capability(name, verdict, short_repr(excerpt, MAX_EVIDENCE), tuple(chat))

    # Roles

    def _judge_roles(self) -> Iterator[Capability]:
        prober = self._prober
        system, later = (
            make_message("system", prober.as_content(text)) for text in (SYSTEM, LATER)
        )
        user, again, reply = prober.user(), prober.user(NEXT_USER), prober.reply()
        yield self.judge("system", [system, user], SYSTEM, USER)
        yield self.judge("system late", [user, reply, later, again], LATER)
        yield self.judge("system twice", [system, later, user], SYSTEM, LATER)
        yield self.judge("developer", [{**system, "role": "developer"}, user], SYSTEM)
        yield self.judge("users in a row", [user, again], USER, NEXT_USER)
        next_reply = prober.reply(LATER)
        yield self.judge("assistants in a row", [user, reply, next_reply, again], CONTENT, LATER)
        yield self.judge("assistant first", [reply, user], CONTENT, USER)

    # Content

    def _judge_contents(self) -> Iterator[Capability]:
        prober = self._prober
        for role in ("user", "system", "assistant", "tool"):
            for form, content in (
                ("text", CONTENT),
                ("parts", [{"type": "text", "text": CONTENT}]),
            ):
                yield self.judge(
                    f"{role} content as {form}", self.chat_with(role, content), CONTENT
                )
        empty: tuple[tuple[str, Any], ...] = (("null", None), ("absent", ABSENT), ("empty", ""))
        for name, content in empty:
            reply = make_message("assistant", content)
            if content is ABSENT:
                del reply["content"]
            chat = [prober.user(), reply, prober.user(NEXT_USER)]
            yield self.judge(f"{name} content", chat, USER, NEXT_USER)

    def chat_with(self, role: str, content: Any) -> list[MessageDict]:
        """Return a conversation that has a message with this role and content."""
        prober = self._prober
        message = make_message(role, content)
        if role == "user":
            return [message]
        if role in ("system", "developer"):
            return [message, prober.user()]
        if role == "assistant":
            return [prober.user(), message, prober.user(NEXT_USER)]
        return [prober.user(), self.call(), {**message, "tool_call_id": IDS[0], "name": NAMES[0]}]

    def _judge_media(self) -> Iterator[Capability]:
        for kind in ("image", "image_url", "video", "audio"):
            yield self.judge_part_type(kind)

    def judge_part_type(self, kind: str) -> Capability:
        """Return what the template does with a media part of this `type` before the text of a user."""
        part = {"type": kind, kind: {"url": "Zurlq"} if kind.endswith("_url") else "Zurlq"}
        chat = [make_message("user", [part, {"type": "text", "text": USER}])]
        found = self.judge(kind, chat, USER)
        if found.verdict != "written":
            return found
        rendering = self._prober.render(chat)
        media = rendering.media if rendering is not None else ()
        if rendering is None or not media or media[0].span is None:
            return found._replace(verdict="dropped", evidence="no placeholder")
        start, end = media[0].span
        return found._replace(evidence=short_repr(rendering.text[start:end], MAX_EVIDENCE))

    # Calls

    def call(self, *arguments: Any, content: str | None = None, **changes: Any) -> MessageDict:
        """Return an assistant message with calls in the form that the template takes, but for some changes."""
        shape: CallShape = self._shape._replace(**changes)
        given = arguments or ARGUMENTS[:1]
        return {"role": "assistant", **self._prober.call(shape, *given, content=content)}

    def _judge_calls(self) -> Iterator[Capability]:
        user, result = self._prober.user(), self._prober.as_content(RESULT)
        yield self.judge("tools", [user], *NAMES)
        yield self.judge("call without text", [user, self.call()], *VALUES[0])
        with_text = self.call(content=CONTENT)
        yield self.judge("text beside a call", [user, with_text], CONTENT, *VALUES[0])
        yield self.judge("parallel calls", [user, self.call(*ARGUMENTS)], *VALUES[0], *VALUES[1])
        for name, as_text in (("arguments as mapping", False), ("arguments as text", True)):
            yield self.judge(name, [user, self.call(as_text=as_text)], *VALUES[0])
        yield self.judge("tool result", self.chat_with("tool", result), RESULT)

    def _judge_reasoning(self) -> Iterator[Capability]:
        prober = self._prober
        for name, fields in (
            ("reasoning", {"content": prober.as_content(CONTENT)}),
            ("reasoning without content", {"content": prober.as_content("")}),
            ("reasoning beside a call", prober.call(self._shape, ARGUMENTS[0])),
        ):
            reply = {"role": "assistant", **fields, **self.reasoning_field(fields)}
            yield self.judge(name, [prober.user(), reply], REASONING)

    def reasoning_field(self, fields: MessageDict) -> MessageDict:
        """Return reasoning in the form that the template takes, for a message with these fields."""
        if self._reasoning_key != IN_PARTS:
            return {self._reasoning_key: REASONING}
        text = fields.get("content")
        parts = text if isinstance(text, list) else []
        return {IN_PARTS: [{"type": "thinking", "thinking": REASONING}, *parts]}

    # Arguments and options of render

    def _judge_arguments(self) -> Iterator[Capability]:
        prober = self._prober
        words = (DOCUMENTS[0]["title"], DOCUMENTS[0]["text"])
        yield self.judge("documents", [prober.user()], *words, documents=DOCUMENTS)
        opening = prober.generation_prompt()
        text = opening.text if opening is not None else ""
        verdict: Verdict = "refused" if opening is None else "written" if text else "dropped"
        yield Capability(
            "add_generation_prompt",
            verdict,
            short_repr(text, MAX_EVIDENCE) if text else "",
            (prober.user(),),
        )

    def _judge_options(self) -> Iterator[Capability]:
        """Yield a row for each option with the values that the template compares it with."""
        prober, renderer = self._prober, self._prober.renderer
        read = [TemplateConstants.read(text) for text in renderer.texts]
        reply = {**prober.reply(), **self.reasoning_field(prober.reply())}
        chat = [prober.user(), reply, prober.user(NEXT_USER)]
        for name in option_names(renderer.variables):
            compared = [value for one in read for value in one.constants_of(name)]
            values = list(dict.fromkeys(map(repr, compared))) or list(map(repr, OPTION_VALUES))
            texts = set()
            for value in (*compared, *OPTION_VALUES):
                found = prober.render(chat, add_generation_prompt=True, **{name: value})
                texts.add(found.text if found is not None else None)
            # A name that the template assigns is an option only if a value from outside changes the text.
            if len(texts) == 1 and any(name in one.aliases for one in read):
                continue
            verdict: Verdict = "written" if len(texts) > 1 else "dropped"
            evidence = f"values {', '.join(values)}"
            yield Capability(f"option {name}", verdict, evidence[:MAX_EVIDENCE], tuple(chat))


def writes_well(rendering: Rendering, word: str) -> bool:
    """Whether a word is in a rendering, and not inside of a list that was printed whole."""
    before, found, _ = rendering.text.partition(word)
    return bool(found) and not _REPR_OF_PART.search(before[-40:])


def judge_form(rendering: Rendering, *words: str) -> Verdict:
    """Return "written" if the words of a probe are, or how the values that hold them were printed whole."""
    if any(f'\\"{key}' in rendering.text for arguments in ARGUMENTS for key in arguments):
        return "in quotes"
    writes_none = any(
        piece.text == "None" and piece.origin.kind == "field" and not piece.origin.key
        for piece in rendering.pieces
    )
    is_readable = all(writes_well(rendering, word) for word in words)
    return "written" if is_readable and not writes_none else "as repr"
