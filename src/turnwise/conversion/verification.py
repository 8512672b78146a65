"""Compare a template with its translation on every conversation that the dialect is for.

A declarative dialect is for rounds: an optional system text, then user and assistant in turn; some
software takes a system text before later rounds, too. The probes of `analysis/conversations.py` that
are such rounds are rendered by both; then, if the template reads the clock, on another day, and with
each value of each option that it reads. Probes about a topic that the template does not support, or
that the caller gave up (`without`), are skipped.

What the template writes is what `Template.render` gives: a probe that the template refuses, or does
not write all of, is normalised first. So a system text that has no place of its own in the template,
which `render` puts into the user's turn, has to be there in the translation, too.

The translation is an exact one: it does what the software of the dialect does. Some software
inserts `bos_token` before the conversation by itself. Then that one is not compared, and every other
must be in both texts; the template must start with it always, or never. If never, the software may
insert one all the same: that is a setting of its tokenizer, and no part of the source.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from itertools import pairwise

from turnwise.analysis.conversations import (
    LATER,
    MessageDict,
    Probe,
    conversations,
    name_values,
    option_names,
    vary_options,
)
from turnwise.analysis.counterexample import RenderOutcome, shrink, try_render
from turnwise.analysis.losses import find_losses
from turnwise.conversion.features import (
    EMPTY,
    LATE_SYSTEM,
    NO_SYSTEM,
    OPTIONS,
    SYSTEM,
    TOPICS,
    WHITE_SPACE,
    ProbeTest,
    has_empty_text,
    has_late_system,
    has_system_text,
    is_about_topic,
    list_texts,
)
from turnwise.conversion.observed_turns import CLOCK
from turnwise.dialects.translation import Dialect
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.renderer import Renderer
from turnwise.engine.runtime.limits import raise_if_call_ended
from turnwise.errors import SourceError, TurnwiseError
from turnwise.normalisation.normaliser import Normaliser

COMMENT = re.compile(
    r"\{#.*?(#\}|\Z)", re.S
)  # to the end, if it is not closed: it is looked for once
SAME, DIFFERENCES = "same", ("text", "refusal")
ROUND_ROLES = {"user", "assistant", "tool"}


class Verification:
    """Compares a template with translations of it.

    Args:
        renderer: the template.
        dialect: what it was translated to.
        tokens: the special tokens with which both are rendered.
        without: the names of what may be lost.
        starts_with_bos: conversations start with the bos token.
        normaliser: gives conversations the form that the template takes, if `render` does so.
    """

    def __init__(
        self,
        renderer: Renderer,
        dialect: Dialect,
        tokens: Mapping[str, str],
        without: Collection[str],
        starts_with_bos: bool,
        normaliser: Normaliser | None = None,
    ) -> None:
        self.renderer = renderer
        self.dialect = dialect
        self.tokens = dict(tokens)
        self.without = without
        self.starts_with_bos = starts_with_bos
        self.normaliser = normaliser
        self._text = COMMENT.sub(lambda found: "" if found[1] else found[0], renderer.text)

    def find_difference(self, translated: Renderer) -> tuple[Probe | None, int]:
        """Return the first probe on which the two differ, and on how many before it they agree.

        Raises:
            SourceError: there is no conversation on which they could differ.
        """
        agreed = 0
        for probe in self._list_probes():
            outcome = self._judge(translated, probe)
            if outcome in DIFFERENCES:
                return probe, agreed
            agreed += outcome == SAME
        if not agreed:
            problem = "nothing is left to compare: the template refuses every conversation"
            names = ", ".join(map(repr, self.without))
            raise SourceError(f"{problem} that without=[{names}] keeps")
        return None, agreed

    def shrink(self, translated: Renderer, probe: Probe) -> Probe:
        """Return the smallest probe near this one on which the two differ in the same way."""
        kind = self.compare(translated, probe)
        return self._as_sent(shrink(probe, lambda one: self.compare(translated, one) == kind))

    def compare(self, translated: Renderer, probe: Probe) -> str:
        """Return how the template and a translation differ: "text", "refusal", or "" if not.

        A probe that the dialect is not for, or that the template itself refuses, is no difference.
        """
        outcome = self._judge(translated, probe)
        return outcome if outcome in DIFFERENCES else ""

    def agrees(self, translated: Renderer, probe: Probe) -> bool:
        """Return True if both render the probe, and write the same."""
        return self._judge(translated, probe) == SAME

    def _judge(self, translated: Renderer, probe: Probe) -> str:
        """Return one of DIFFERENCES, SAME, or "" for a probe that is not to be compared."""
        probe = self._as_sent(probe)
        is_open = probe.add_generation_prompt or not self.dialect.prompts_only
        has_rounds = is_dialogue(probe.messages, self.dialect.late_systems)
        if not is_open or not has_rounds or not self._is_relevant(probe):
            return ""
        expected, written = (
            self.render_normalised(self.renderer, probe),
            try_render(translated, probe),
        )
        if isinstance(expected, TurnwiseError):
            return ""
        if isinstance(written, TurnwiseError):
            return "refusal"
        wanted, text = expected.text, written.text
        if self.dialect.inserts_bos and self.tokens["bos_token"]:
            bos = self.tokens["bos_token"]
            if wanted.startswith(bos) != self.starts_with_bos:
                return "text"  # only some conversations start with it
            wanted, text = wanted.removeprefix(bos), text.removeprefix(bos)
        if not probe.add_generation_prompt:
            # After a final reply white space is never sent to a model.
            wanted, text = wanted.rstrip(), text.rstrip()
        return SAME if wanted == text else "text"

    def render_normalised(self, template: Renderer, probe: Probe) -> RenderOutcome:
        """Render a probe as `Template.render` does: as it is, or normalised if the template does not write it all."""
        outcome = try_render(template, probe)
        if self.normaliser is None:
            return outcome
        if isinstance(outcome, Rendering) and not find_losses(outcome, probe.messages, probe.tools):
            return outcome
        try:
            given = self.normaliser.normalise(probe.messages, probe.tools)
        except TurnwiseError as error:
            raise_if_call_ended(error)
            return outcome
        if not given.changes:
            return outcome
        return try_render(
            template, replace(probe, messages=list(given.messages), tools=given.tools)
        )

    def _list_probes(self) -> Iterator[Probe]:
        yield from self._plain_probes
        if CLOCK in self._text:
            yield from (replace(probe, now=LATER) for probe in self._plain_probes)
        options = [
            name for name in self._options if re.search(rf"\b{re.escape(name)}\b", self._text)
        ]
        for probe in vary_options(options):
            prompt = _without_final_reply(probe)
            if self._is_relevant(prompt):
                yield prompt

    @cached_property
    def _plain_probes(self) -> list[Probe]:
        probes = [*conversations(), *_place_contents()]
        if self.dialect.prompts_only:
            probes += [_ask_again(probe) for probe in conversations() if _is_answered(probe)]
        if self.dialect.late_systems:
            probes += _place_late_systems()
        return [probe for probe in probes if self._is_relevant(probe)]

    @cached_property
    def _options(self) -> list[str]:
        """The options that have no value yet, and that must not be lost."""
        if OPTIONS in self.without:
            return []
        decided = {*self.renderer.options, *self.without}
        return [name for name in option_names(self.renderer.variables) if name not in decided]

    def _is_relevant(self, probe: Probe) -> bool:
        """Return True if a probe is about nothing that is unsupported, or may be lost."""
        return not any(concerns(probe) for concerns in self._skipped_topics)

    @cached_property
    def _skipped_topics(self) -> list[ProbeTest]:
        skipped = [is_lost for name, is_lost in LOST_PROBES.items() if name in self.without]
        for name, words in TOPICS.items():
            is_supported = any(word in self._text for word in words)
            if name in self.without or not is_supported:
                skipped.append(partial(is_about_topic, name))
        return skipped

    def _as_sent(self, probe: Probe) -> Probe:
        """Return the probe as it is sent to a model: with a generation prompt after a user."""
        last_role = probe.messages[-1]["role"] if probe.messages else ""
        is_prompt = last_role in ("user", "tool")
        return replace(probe, add_generation_prompt=is_prompt, options=probe.options | self.tokens)


def _place_contents() -> Iterator[Probe]:
    """Return the probes of odd texts in other places: after a system text, in a last reply or round."""
    one, two, second, rules = name_values("one", "two", "second", "rules")
    for probe in conversations():
        if probe.about != "contents" or not is_dialogue(probe.messages):
            continue
        system = probe.messages[:1] if probe.messages[0]["role"] == "system" else []
        turns = probe.messages[len(system) :]
        answer = turns[:2] if len(turns) > 1 else [*turns, one]
        yield replace(probe, messages=[*system, *answer])
        yield replace(probe, messages=[*(system or [rules]), *turns])
        yield replace(probe, messages=[*system, second, two, *answer])
        yield replace(probe, messages=[*(system or [rules]), second, two, *turns])


def _place_late_systems() -> Iterator[Probe]:
    """Return conversations with a system text before the second round, with and without a first one."""
    first, one, second, two, rules = name_values("first", "one", "second", "two", "rules")
    late = rules | {"content": f"{rules['content']} later"}
    for system in ([], [rules]):
        for end in ([second], [second, two]):
            yield Probe("a late system text", [*system, first, one, late, *end])


def _is_answered(probe: Probe) -> bool:
    return bool(probe.messages) and probe.messages[-1]["role"] == "assistant"


def _ask_again(probe: Probe) -> Probe:
    """Return the probe with another question, so that its last reply is part of a prompt."""
    return replace(probe, messages=[*probe.messages, *name_values("second")])


def _without_final_reply(probe: Probe) -> Probe:
    """Return the probe up to its last reply, whose start an option may change."""
    if not _is_answered(probe):
        return probe
    return replace(probe, messages=probe.messages[:-1])


def _is_oddly_spaced(probe: Probe) -> bool:
    """Return True for anything but words with one space between; an empty text has no words."""
    return any(not text or text != " ".join(text.split()) for text in list_texts(probe))


LOST_PROBES: dict[str, ProbeTest] = {
    WHITE_SPACE: _is_oddly_spaced,
    EMPTY: has_empty_text,
    SYSTEM: has_system_text,
    NO_SYSTEM: lambda probe: [message["role"] for message in probe.messages[:1]] != ["system"],
    LATE_SYSTEM: has_late_system,
}
"""The probes that are not compared if one of the losses is accepted."""


def is_dialogue(messages: list[MessageDict], late_systems: bool = False) -> bool:
    """Return True for rounds in which every message has content, after an optional system text.

    An empty system text counts as none, and dialects cannot express it: then it is no dialogue.

    Args:
        messages: the conversation.
        late_systems: a system text may be before any user message.
    """
    roles: list[str] = []
    for index, message in enumerate(messages):
        if message["role"] != "system":
            roles.append(message["role"])
            continue
        is_before_user = [each["role"] for each in messages[index + 1 : index + 2]] == ["user"]
        if not str(message.get("content")).strip() or not is_before_user:
            return False
        if index and not late_systems:
            return False
    if roles[:1] != ["user"] or not set(roles) <= ROUND_ROLES:
        return False
    alternates = all(role != next_role or role == "tool" for role, next_role in pairwise(roles))
    return alternates and all(map(_has_content, messages))


def _has_content(message: MessageDict) -> bool:
    """Return True for text, and for a user's list of parts that has an image or audio."""
    content = message.get("content")
    if isinstance(content, str):
        return True
    if message["role"] != "user" or not isinstance(content, list):
        return False
    types = [part.get("type", "") for part in content if isinstance(part, dict)]
    return any("image" in kind or "audio" in kind for kind in types)
