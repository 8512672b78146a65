"""What a template does with each form of input, as the normaliser asks for it and as it is printed.

All answers are rows of the table of forms (`analysis/form_table.py`); this is a view of it:

    capabilities = template.capabilities
    capabilities.takes_parts("user")     # False: text parts have to be joined
    capabilities["system late"]          # what it does with one form, with the evidence
    print(capabilities)                  # a table of all forms and options

    system late                    refused   System message must be at the beginning.
    user content as parts          garbled   "user\\n[{'type': 'text', 'text': 'High water"
    arguments as text              written   '{"name": "tide", "arguments": {"harbour": "Brest"'

An answer is computed when it is first asked for, and kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from turnwise.analysis.conversations import MessageDict, make_message, option_names
from turnwise.analysis.form_table import HAS_WORDS, MAX_EVIDENCE, FormTable, Verdict
from turnwise.analysis.forms import CONTENT_ROLES, make_content_form, make_part_form
from turnwise.analysis.probe_chats import (
    ARGUMENTS,
    ASKED,
    ASKED_AGAIN,
    CALL_IDS,
    FOUND,
    MORE_RULES,
    RULES,
    SAID,
    SAID_NEXT,
    FormChats,
)
from turnwise.analysis.prober import ABSENT, CallShape
from turnwise.analysis.template_constants import TemplateConstants
from turnwise.errors import did_you_mean, short_repr
from turnwise.replies.input_format import InputFormat
from turnwise.sized_cache import SizedTable

MAX_NAMES_BYTES = 1 << 18
OPTION_VALUES = (True, False)  # of an option that is only tested
EARLIER = (ASKED, SAID, FOUND)  # texts before a late system text


class Capability(NamedTuple):
    """What a template does with one form of input.

    Attributes:
        name: the form.
        verdict: "written", "changed", "dropped", "garbled" or "refused".
        evidence: what the template wrote there, or its error message.
        probe: the conversation that shows it.
        line: the line of the template that refuses it, or writes the first wrong character.

    Example:
        >>> turnwise.load("chatml").capabilities.rows[0].verdict
        'written'
    """

    name: str
    verdict: Verdict
    evidence: str = ""
    probe: tuple[MessageDict, ...] = ()
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.name:<30} {self.verdict:<8}  {self.evidence}".rstrip()


class Capabilities:
    """The answers for one template.

    Args:
        forms: the table of forms of the template.
        with_tools: ask in conversations with tools, where some templates accept other forms.

    Attributes:
        text_roles: the roles of which a text is known to stay a text.

    Example:
        >>> capabilities = turnwise.load("llama-2").capabilities
        >>> [row.name for row in capabilities.rows if row.verdict == "dropped"][:2]
        ['tools', 'call without text']
    """

    def __init__(self, forms: FormTable, with_tools: bool = True) -> None:
        self.forms = forms
        self._with_tools = with_tools
        self.text_roles: set[str] = set()
        self._late: dict[str, bool] = {}
        self._pairs: dict[tuple[str, str], bool] = {}
        # Of names that conversations have, which are any texts.
        self._answers: SizedTable[Verdict] = SizedTable(MAX_NAMES_BYTES)

    @cached_property
    def input_format(self) -> InputFormat:
        """The form in which the template accepts assistant messages."""
        found = self.forms.chats.input_format
        assert isinstance(found, InputFormat)
        return found

    @cached_property
    def shape(self) -> CallShape:
        """The form in which the template accepts tool calls."""
        return self.input_format.shape

    # Content

    def takes_text(self, role: str) -> bool:
        """Whether a content that is a text is written."""
        return self._judge(role, "text") in HAS_WORDS

    def takes_parts(self, role: str) -> bool:
        """Whether a content of one text part is written as the text alone would be."""
        return self._judge(role, "parts") == "written"

    def judge_part_type(self, kind: str) -> Verdict:
        """Return what the template does with a media part of this `type` before the text of a user."""
        return self._judge(kind, "media")

    def _judge(self, name: str, kind: str) -> Verdict:
        """Return the verdict on a content of a role, or on a media part, whatever they are called."""
        key = name, kind
        known = self._answers.peek(key)
        if known is None:
            if name in CONTENT_ROLES:
                row = self.forms.find(f"{name} content as {kind}", self._with_tools)
            else:
                form = make_part_form(name) if kind == "media" else make_content_form(name, kind)
                row = self.forms.alone.ask(form, self._with_tools)
            known = row.verdict if row is not None else "refused"
            self._answers.keep(key, known, 4 * len(name))
        return known

    @cached_property
    def empty_content(self) -> Any:
        """The content of a reply that has none: None, "", no text in a part, or `ABSENT`; the first accepted form.

        None is accepted if it is written like an empty text, not as the word "None".
        """
        texts: list[Any] = ["", [{"type": "text", "text": ""}]]
        if not self.takes_text("assistant"):
            texts.reverse()
        forms = ((form, self._write_reply(form)) for form in (*texts, ABSENT))
        form, text = next((found for found in forms if found[1] is not None), ("", None))
        null = self._write_reply(None)
        return None if null is not None and text in (None, null) else form

    def _write_reply(self, content: Any) -> str | None:
        chats = self.forms.chats
        reply = make_message("assistant", content)
        if content is ABSENT:
            del reply["content"]
        return self._write_chat(chats.user(), reply, chats.user(ASKED_AGAIN))

    # Roles

    def writes_role(self, role: str) -> bool:
        """Whether the text of a message with this role is written, where such a message usually stands."""
        return self.takes_text(role) or self._judge(role, "parts") in HAS_WORDS

    def writes_late(self, role: str) -> bool:
        """Whether a system text is written where it stands: after a reply, a result or a user, and nothing moves it."""
        if role not in self._late:
            is_late = role != "system" or self.forms.is_written("system late", self._with_tools)
            self._late[role] = is_late and all(
                without is None or _is_inserted(MORE_RULES, written, without)
                for chats in _list_late_chats(self.forms.chats, role, self._with_tools)
                for without, written in [[self._write_chat(*chat) for chat in chats]]
            )
        return self._late[role]

    def takes_systems(self, roles: Sequence[str]) -> bool:
        """Whether several system messages of these roles at the front are written."""
        pairs = set(pairwise(roles))
        if ("system", "system") in pairs and not self.forms.is_written(
            "system twice", self._with_tools
        ):
            return False
        for pair in pairs - self._pairs.keys():
            chats, texts = self.forms.chats, (RULES, MORE_RULES)
            systems = [
                {**chats.system(text), "role": role} for text, role in zip(texts, pair, strict=True)
            ]
            written = self._write_chat(*systems, chats.user()) or ""
            self._pairs[pair] = all(text in written for text in texts)
        return all(map(self._pairs.__getitem__, pairs))

    def _write_chat(self, *messages: MessageDict) -> str | None:
        chats = self.forms.chats
        return self.forms.write(
            chats.chat(*messages, tools=chats.tools if self._with_tools else None)
        )

    # Calls

    @cached_property
    def takes_argument_text(self) -> bool:
        """Whether arguments may be JSON text: they are written as a mapping is, white space aside."""
        return self.shape.as_text or self.forms.is_written("arguments as text")

    @cached_property
    def takes_argument_mapping(self) -> bool:
        """Whether arguments may be a mapping."""
        return not self.shape.as_text or self.forms.is_written("arguments as mapping")

    @cached_property
    def writes_ids(self) -> bool:
        """Whether the ids of calls and of their results are written, or numbers for them, so that any order will do."""
        chats = self.forms.chats
        first, second = chats.result(), chats.result(number=1)
        exchanged = [
            {**first, "tool_call_id": second["tool_call_id"]},
            {**second, "tool_call_id": first["tool_call_id"]},
        ]
        text, other = (
            self.forms.write(
                chats.chat(chats.user(), chats.call(*ARGUMENTS), *results, tools=chats.tools)
            )
            for results in ([first, second], exchanged)
        )
        if text is None:
            return False
        return all(text.count(id) > 1 for id in CALL_IDS) or other not in (None, text)

    @cached_property
    def takes_any_id(self) -> bool:
        """Whether the ids of calls may have any length; some templates want nine letters and digits."""
        row = self.forms.find("call with a long id")
        return row is None or row.verdict != "refused" or not self.forms.is_defect(row)

    @cached_property
    def writes_reasoning(self) -> bool:
        """Whether the reasoning of a last reply is written at all."""
        return self.forms.is_written("reasoning", self._with_tools)

    @cached_property
    def writes_reasoning_with_calls(self) -> bool:
        """Whether the reasoning beside a call is written, without an option that turns it on."""
        is_written = self.forms.is_written("reasoning beside a call")
        return is_written and not self.forms.reasoning_options

    # Everything

    @cached_property
    def rows(self) -> tuple[Capability, ...]:
        """What the template does with each form of a conversation and each of its options, with the evidence."""
        forms = [
            Capability(row.name, row.verdict, row.evidence, tuple(row.probe.messages), row.line)
            for row in self.forms.rows()
        ]
        return (*forms, self._judge_prompt(), *self._judge_options())

    def _judge_prompt(self) -> Capability:
        prober = self.forms.chats.prober
        opening = prober.generation_prompt()
        text = opening.text if opening is not None else ""
        verdict: Verdict = "refused" if opening is None else "written" if text else "dropped"
        evidence = short_repr(text, MAX_EVIDENCE) if text else ""
        return Capability("add_generation_prompt", verdict, evidence, (prober.user(),))

    def _judge_options(self) -> Iterator[Capability]:
        """Yield a row for each option with the values that the template compares it with."""
        chats = self.forms.chats
        renderer = chats.prober.renderer
        read = [TemplateConstants.read(text) for text in renderer.texts]
        reply = chats.with_reasoning(chats.reply())
        chat = [chats.user(), reply, chats.user(ASKED_AGAIN)]
        for name in option_names(renderer.variables):
            compared = [value for one in read for value in one.constants_of(name)]
            values = list(dict.fromkeys(map(repr, compared))) or list(map(repr, OPTION_VALUES))
            texts = {
                self.forms.write(
                    chats.chat(*chat, tools=chats.tools, prompt=True, options={name: value})
                )
                for value in (*compared, *OPTION_VALUES)
            }
            # A name that the template assigns is an option only if a value from outside changes the text.
            if len(texts) == 1 and any(name in one.aliases for one in read):
                continue
            verdict: Verdict = "written" if len(texts) > 1 else "dropped"
            evidence = f"values {', '.join(values)}"[:MAX_EVIDENCE]
            yield Capability(f"option {name}", verdict, evidence, tuple(chat))

    def __iter__(self) -> Iterator[Capability]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Capability:
        """Return the row of a form.

        Raises:
            KeyError: there is no such form.
        """
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(did_you_mean(name, [row.name for row in self.rows], "One of") or name)

    def __str__(self) -> str:
        return "\n".join(map(str, self.rows))


def _list_late_chats(
    chats: FormChats, role: str, with_tools: bool
) -> Iterator[tuple[list[MessageDict], list[MessageDict]]]:
    """Yield conversations without and with a late system text, after each kind of message that it may follow."""
    late = {**chats.system(MORE_RULES), "role": role}
    user, again, reply = chats.user(), chats.user(ASKED_AGAIN), chats.reply(SAID_NEXT)
    starts = [([user, chats.reply()], [again, reply, user]), ([user], [reply, again])]
    if with_tools:
        starts.append(([user, chats.call(), chats.result()], [reply, again]))
    for start, rest in starts:
        yield [*start, *rest], [*start, late, *rest]


def _is_inserted(text: str, written: str | None, without: str) -> bool:
    """Return whether a conversation is written as it is without a message, up to the text of that message.

    Args:
        text: the text of the message, which is after those of `EARLIER`.
        written: the conversation with the message; None if the template refuses it.
        without: the conversation without it.
    """
    ends = [without.find(one) + len(one) for one in EARLIER if one in without]
    end = max(ends, default=0)
    if written is None or written[:end] != without[:end]:
        return False
    return ASKED_AGAIN in written[end:].partition(text)[2]
