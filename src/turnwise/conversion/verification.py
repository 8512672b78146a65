"""Compare a template with its translation on every conversation that the dialect is for.

A declarative dialect is for rounds: an optional system text, then user and assistant in turn, each
with some text. The probes of `analysis/conversations.py` that are such rounds are rendered by both;
then, if the template reads the clock, on another day, and with each value of each option that it
reads. Probes about a topic that the template does not support, or that the caller gave up
(`without`), are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

from turnwise.analysis.conversations import (
    LATER,
    MessageDict,
    Probe,
    conversations,
    option_names,
    vary_options,
)
from turnwise.analysis.counterexample import shrink, try_render
from turnwise.conversion.features import OPTIONS, TOPICS, WHITE_SPACE, ProbeTest, list_texts
from turnwise.dialects.translation import Dialect
from turnwise.engine.renderer import Renderer
from turnwise.errors import TurnwiseError

COMMENT = re.compile(r"\{#.*?#\}", re.S)
CLOCK = "strftime_now"
ROUND_ROLES = {"user", "assistant", "tool"}


class Verification:
    """Compares a template with translations of it.

    Args:
        renderer: the template.
        dialect: what it was translated to.
        tokens: the special tokens with which both are rendered.
        without: the names of what may be lost.
    """

    def __init__(
        self,
        renderer: Renderer,
        dialect: Dialect,
        tokens: Mapping[str, str],
        without: Collection[str],
    ) -> None:
        self.renderer = renderer
        self.dialect = dialect
        self.tokens = dict(tokens)
        self.without = without
        self._text = COMMENT.sub("", renderer.text)

    def find_difference(self, translated: Renderer) -> Probe | None:
        """Return the first probe on which the two differ."""
        for probe in self._list_probes():
            if self.compare(self.renderer, translated, probe):
                return probe
        return None

    def shrink(self, translated: Renderer, probe: Probe) -> Probe:
        """Return the smallest probe near this one on which the two differ in the same way."""
        kind = self.compare(self.renderer, translated, probe)
        return self._as_sent(shrink(self.renderer, translated, probe, kind, self.compare))

    def compare(self, a: Renderer, b: Renderer, probe: Probe) -> str:
        """Return how a template `a` and its translation `b` differ: "text", "refusal", or "" if not.

        A probe that the dialect is not for, or that the template itself refuses, is no difference.
        """
        probe = self._as_sent(probe)
        is_open = probe.add_generation_prompt or not self.dialect.prompts_only
        if not is_open or not is_dialogue(probe.messages) or not self._is_relevant(probe):
            return ""
        expected, written = try_render(a, probe), try_render(b, probe)
        if isinstance(expected, TurnwiseError):
            return ""
        if isinstance(written, TurnwiseError):
            return "refusal"
        return "" if expected.text.rstrip() == written.text.rstrip() else "text"

    def _list_probes(self) -> Iterator[Probe]:
        yield from self._plain_probes
        if CLOCK in self._text:
            yield from (replace(probe, now=LATER) for probe in self._plain_probes)
        options = [name for name in self._options if re.search(rf"\b{name}\b", self._text)]
        for probe in vary_options(options):
            prompt = _without_final_reply(probe)
            if self._is_relevant(prompt):
                yield prompt

    @cached_property
    def _plain_probes(self) -> list[Probe]:
        return [probe for probe in conversations() if self._is_relevant(probe)]

    @cached_property
    def _options(self) -> list[str]:
        """The options that have no value yet, and that must not be lost."""
        if OPTIONS in self.without:
            return []
        decided = {*self.renderer.options, *self.without}
        return [name for name in option_names(self.renderer.variables) if name not in decided]

    def _is_relevant(self, probe: Probe) -> bool:
        """Return True if a probe is about nothing that is unsupported, or may be lost."""
        if any(concerns(probe) for concerns in self._skipped_topics):
            return False
        return WHITE_SPACE not in self.without or _is_evenly_spaced(probe)

    @cached_property
    def _skipped_topics(self) -> list[ProbeTest]:
        skipped = []
        for name, topic in TOPICS.items():
            is_supported = any(word in self._text for word in topic.words)
            if name in self.without or not is_supported:
                skipped.append(topic.concerns)
        return skipped

    def _as_sent(self, probe: Probe) -> Probe:
        """Return the probe as it is sent to a model: with a generation prompt after a user."""
        last_role = probe.messages[-1]["role"] if probe.messages else ""
        is_prompt = last_role in ("user", "tool")
        return replace(probe, add_generation_prompt=is_prompt, options=probe.options | self.tokens)


def _without_final_reply(probe: Probe) -> Probe:
    """Return the probe up to its last reply, whose start an option may change."""
    if probe.messages[-1]["role"] != "assistant":
        return probe
    return replace(probe, messages=probe.messages[:-1])


def _is_evenly_spaced(probe: Probe) -> bool:
    """Return True if there is one space between words, and none around them."""
    return all(text == " ".join(text.split()) for text in list_texts(probe))


def is_dialogue(messages: list[MessageDict]) -> bool:
    """Return True for rounds in which every message has content, after an optional system text.

    An empty system text counts as none, and dialects cannot express it: then it is no dialogue.
    """
    roles = [message["role"] for message in messages]
    if roles[:1] == ["system"]:
        if not str(messages[0].get("content")).strip():
            return False
        roles = roles[1:]
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
