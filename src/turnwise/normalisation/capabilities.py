"""What a template does with each form of a message: write it, drop it, refuse it, or write Python's `repr` of it.

Conversations come in OpenAI's shape: content may be null or a list of parts, arguments are JSON text, there is a
developer role, a system message may come late. Templates take some of these forms, and most fail or write nonsense for
the others. Each question is answered by rendering a probe in which every field is a word that no template writes
(`prober.py`), never by reading the source.

    capabilities = template.capabilities
    capabilities.takes_parts("user")     # False: text parts have to be joined
    capabilities["system late"]          # what it does with one feature, with the evidence
    print(capabilities)                  # a table of all features and options

An answer is computed when it is first asked for, and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

from turnwise.analysis.conversations import MessageDict, make_message
from turnwise.analysis.facts import Facts
from turnwise.analysis.prober import (
    ABSENT,
    ARGUMENTS,
    CONTENT,
    IDS,
    NEXT_USER,
    REASONING,
    RESULT,
    RESULTS,
    SYSTEM,
    USER,
    CallShape,
)
from turnwise.errors import did_you_mean
from turnwise.normalisation.capability_table import (
    LATER,
    Capability,
    CapabilityProber,
    Verdict,
    writes_well,
)
from turnwise.replies.input_format import InputFormat
from turnwise.sized_cache import SizedTable, make_digest

MAX_NAMES_BYTES = 1 << 18
LONG_ID = "call_Zq81f3a9c27d4b"  # as OpenAI's clients make them


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
        # Of names that conversations have, which are any texts.
        self._contents: SizedTable[tuple[str | None]] = SizedTable(MAX_NAMES_BYTES)
        self._part_types: SizedTable[Verdict] = SizedTable(MAX_NAMES_BYTES)

    @cached_property
    def _probes(self) -> CapabilityProber:
        return CapabilityProber(self._prober, self.input_format)

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
        key = make_digest((role, form))
        known = self._contents.find(key)
        if known is None:
            content: Any = CONTENT if form == "text" else [{"type": "text", "text": CONTENT}]
            rendering = self._prober.alone().render(self._probes.chat_with(role, content))
            is_written = rendering is not None and writes_well(rendering, CONTENT)
            known = (rendering.text if rendering and is_written else None,)
            self._contents.keep(key, known, len(known[0] or ""))
        return known[0]

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

    def judge_part_type(self, kind: str) -> Verdict:
        """Return what the template does with a media part of this `type` before the text of a user."""
        key = make_digest(kind)
        known = self._part_types.find(key)
        if known is None:
            probes = CapabilityProber(self._prober.alone(), self.input_format)
            known = probes.judge_part_type(kind).verdict
            self._part_types.keep(key, known, 0)
        return known

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
    def writes_ids(self) -> bool:
        """Whether the ids of calls and of their results are written, so that a model can pair them in any order."""
        prober = self._prober
        results = [{**result, "content": prober.as_content(RESULT)} for result in RESULTS]
        rendering = prober.render([prober.user(), self._probes.call(*ARGUMENTS), *results])
        return rendering is not None and all(rendering.text.count(id) > 1 for id in IDS)

    @cached_property
    def takes_any_id(self) -> bool:
        """Whether the ids of calls may have any length; some templates want nine letters and digits."""
        prober = self._prober
        call = self._probes.call()
        for one in call.get("tool_calls", ()):
            one["id"] = LONG_ID
        result = {"role": "tool", "content": prober.as_content(RESULT), "tool_call_id": LONG_ID}
        chat = [prober.user(), call, {**result, "name": "zfuna"}]
        if prober.render(chat) is not None:
            return True
        result["tool_call_id"] = IDS[0]
        return (
            prober.render([prober.user(), self._probes.call(), {**result, "name": "zfuna"}]) is None
        )

    @cached_property
    def writes_reasoning(self) -> bool:
        """Whether the reasoning of a last reply is written at all."""
        return self._shows_reasoning({"content": self._prober.as_content(CONTENT)})

    @cached_property
    def writes_reasoning_with_calls(self) -> bool:
        """Whether the reasoning beside a call is written."""
        return self._shows_reasoning(self._prober.call(self.shape, ARGUMENTS[0]))

    def _shows_reasoning(self, fields: dict[str, Any]) -> bool:
        turn = self._prober.turn({**fields, **self._probes.reasoning_field(fields)})
        return turn is not None and REASONING in turn.text

    # Everything

    @cached_property
    def rows(self) -> tuple[Capability, ...]:
        """What the template does with each feature of a conversation and each of its options, with the evidence."""
        return tuple(self._probes.rows())

    def __iter__(self) -> Iterator[Capability]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Capability:
        """Return the row of a feature.

        Raises:
            KeyError: there is no such feature.
        """
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(did_you_mean(name, [row.name for row in self.rows], "One of") or name)

    def __str__(self) -> str:
        return "\n".join(map(str, self.rows))


def _without_space(text: str) -> str:
    return "".join(text.split())
