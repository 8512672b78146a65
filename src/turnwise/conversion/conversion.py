"""Conversion: one template on its way into one dialect. The steps are in `conversion/__init__.py`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from turnwise.analysis.conversations import NOW, PROBE_TOKENS, Probe, option_names
from turnwise.analysis.counterexample import Counterexample, try_render
from turnwise.analysis.facts import Facts
from turnwise.conversion.features import (
    CONTENTS,
    FEATURES,
    OPTIONS,
    TOPICS,
    WHITE_SPACE,
    Obstacle,
    describe_feature,
    list_texts,
)
from turnwise.conversion.observed_turns import ObservedTurns, observe_turns
from turnwise.conversion.verification import Verification
from turnwise.dialects import translate
from turnwise.dialects.jinja import with_stop_comment
from turnwise.dialects.translation import Dialect, Translation, copy_source
from turnwise.dialects.turns import TOKEN_MARKS, Turns, replace_token_marks
from turnwise.engine.program import compile_program
from turnwise.engine.renderer import Renderer
from turnwise.errors import SourceError, did_you_mean, short_repr
from turnwise.schema import STRING, check, or_null

MISPLACED_SYSTEM = Obstacle("a system text that is left out, or that is not first")
CONVERTING = 2  # times the budgets of one rendering, for all that a conversion renders
DATE = Obstacle("the date, which it writes anew every day")


class VerificationFailure(NamedTuple):
    """How a translation fails: a probe that it renders otherwise, or a stop that it lacks."""

    translated: Renderer
    probe: Probe | None = None
    lost_stop: str = ""


class Conversion:
    """Converts one template to one dialect.

    Args:
        renderer: the template.
        stops: the texts that end generation, as the template's source names them.
        dialect: the target.
        tokens: texts of special tokens by name; "" if there is none, null if it is not known.
        without: the names of what may be lost.

    Raises:
        SourceError: an argument is malformed.
    """

    def __init__(
        self,
        renderer: Renderer,
        stops: Iterable[str],
        dialect: Dialect,
        tokens: Mapping[str, str | None],
        without: Collection[str] | None = (),
    ) -> None:
        self.renderer = renderer = renderer.allow(CONVERTING)
        self.stops = tuple(stops)
        self.dialect = dialect
        self.known_tokens = self._find_tokens(tokens)
        # Tokens that the dialect has a place for; "" means that the template is to write none.
        written = [
            name
            for name in (*dialect.texts, *dialect.names, "eos_token")
            if self.known_tokens.get(name) != ""
        ]
        # The turns are read with marks for the tokens, and compared with their texts.
        self.marks = {name: mark if name in written else "" for name, mark in TOKEN_MARKS.items()}
        texts = PROBE_TOKENS | self.known_tokens
        compared = {name: texts[name] if name in written else "" for name in TOKEN_MARKS}
        losses = self._check_losses(without)
        self.verification = Verification(renderer, dialect, compared, losses)

    def _find_tokens(self, given: Mapping[str, str | None]) -> dict[str, str]:
        """Return the texts of special tokens that are given, or options of the template."""
        known = {}
        for name, text in given.items():
            check(text, or_null(STRING), name)
            found = self.renderer.options.get(name) if text is None else text
            if found is not None:
                known[name] = found
        return known

    def _check_losses(self, without: Any) -> tuple[str, ...]:
        if isinstance(without, str):
            without = (without,)
        elif not isinstance(without, Collection | None):
            kind = type(without).__name__
            raise SourceError(f"without must be a list of names, not {kind}")
        known = [*TOPICS, WHITE_SPACE, OPTIONS, *option_names(self.renderer.variables)]
        for name in without or ():
            if name not in known:
                hint = did_you_mean(str(name), known, "Accepted")
                raise SourceError(f"unknown name in without: {short_repr(name)}", hint=hint)
        return tuple(without or ())

    def keep(self, source: Any, details: Mapping[str, Any]) -> Any:
        """Return a source that the template already has in this dialect."""
        for name in details:
            problem = f"{self.dialect.name} takes no argument {name!r}"
            raise SourceError(f"{problem} for a template that is already written in it")
        return source

    def keep_jinja(self, translation: Translation, details: Mapping[str, Any]) -> str:
        """Return the template as Jinja, led by a comment with those stops that cannot be derived from it."""
        text = self.renderer.text
        noted = translate(text, "jinja")
        derived = Facts(Renderer(compile_program(text)), noted.stops).stops
        known = {*derived, self.renderer.options.get("eos_token")}
        stops = () if known.issuperset(translation.stops) else translation.stops
        ids = [id for id in translation.stop_ids if id not in noted.stop_ids]
        if stops or ids:
            text = with_stop_comment(text, (*stops, *ids))
        self.keep(text, details)
        return text

    def write(self, details: Mapping[str, Any]) -> Any:
        """Return the first source that renders like the template.

        Args:
            details: arguments of the dialect's writer.

        Raises:
            SourceError: the obstacle of the first source that was tried.
        """
        write = self.dialect.write
        if write is None:
            raise SourceError(f"{self.dialect.name} sources can be read, not written")
        for name in details:
            if name not in self.dialect.details:
                hint = did_you_mean(name, self.dialect.details, "Accepted")
                raise SourceError(f"{self.dialect.name} takes no argument {name!r}", hint=hint)
        arguments = dict(details)
        if "eos_token" in self.dialect.texts:
            arguments["eos_token"] = self.known_tokens.get("eos_token")
        turns = self._read_turns()
        sources = write(turns, **arguments)
        failures = []
        for source in sources if isinstance(sources, list) else [sources]:
            failure = self._verify(source, turns)
            if failure is None:
                return source
            failures.append(failure)
        raise self._explain(failures[0])

    def _read_turns(self) -> Turns:
        observed = observe_turns(self.renderer, self.marks).turns
        turns = replace_token_marks(observed, self.known_tokens, self.dialect.names)
        declared = [stop for stop in self.stops if stop != self.known_tokens.get("eos_token")]
        return replace(turns, stops=tuple(dict.fromkeys((*declared, *turns.stops))))

    def _verify(self, source: Any, turns: Turns) -> VerificationFailure | None:
        """Read a source that was written; return how it fails to render like the template."""
        translation = self.dialect.read(copy_source(source))
        options = {**translation.options, **self.renderer.options}
        translated = Renderer(
            compile_program(translation.jinja, "template"), options
        ).with_allowance(self.renderer.allowance)
        probe = self.verification.find_difference(translated)
        if probe is not None:
            return VerificationFailure(translated, probe=probe)
        for stop in turns.stops if self.dialect.stops else ():
            if stop not in translation.stops:
                return VerificationFailure(translated, lost_stop=stop)
        return None

    # -- naming the obstacle

    def _explain(self, failure: VerificationFailure) -> SourceError:
        """Return the error that names the obstacle, and shows the smallest conversation with it."""
        hints = []
        obstacle = Obstacle(f"the stop {short_repr(failure.lost_stop)}")
        if failure.probe is not None:
            smallest = self.verification.shrink(failure.translated, failure.probe)
            obstacle = self._find_obstacle(failure.translated, failure.probe, smallest)
            hints.append(str(self._show(failure.translated, smallest)))
        if obstacle.loss:
            hints.append(f"without=[{obstacle.loss!r}] leaves that out.")
        problem = f"{self.dialect.name} cannot express this template: {obstacle.description}"
        return SourceError(problem, hint="\n".join(hints) or None)

    def _show(self, translated: Renderer, probe: Probe) -> Counterexample:
        read = self.renderer.variables
        options = {
            name: value
            for name, value in probe.options.items()
            if name in read or name not in PROBE_TOKENS
        }
        return Counterexample(
            replace(probe, options=options),
            try_render(self.renderer, probe),
            try_render(translated, probe),
            ("the template", f"in {self.dialect.name}"),
        )

    def _find_obstacle(self, translated: Renderer, probe: Probe, smallest: Probe) -> Obstacle:
        """Name what the two differ in, from the smallest conversation that shows it."""
        if smallest.now != NOW and not self._differs(translated, replace(smallest, now=NOW)):
            return DATE
        # Shrinking has removed every option that makes no difference, so one that is left does.
        for name in option_names(smallest.options):
            return Obstacle(f"the option {name}", name)
        for obstacle, is_about in CONTENTS:
            if is_about(smallest):
                return obstacle
        # Do they still differ if every message is one digit? If not, some text makes the difference.
        plain = [message | {"content": "1"} for message in smallest.messages]
        if not self._differs(translated, replace(smallest, messages=plain)):
            # The oddest text is the likely reason.
            text = max(
                list_texts(smallest), key=lambda text: (not text.isalnum(), len(text)), default=""
            )
            changed = "the text of a message, which the template changes"
            return Obstacle(f"{changed}: {short_repr(text)}")
        description = self._compare_turns(translated, smallest)
        return Obstacle(description or f"what it writes for {probe.covers}")

    def _differs(self, translated: Renderer, probe: Probe) -> bool:
        return bool(self.verification.compare(self.renderer, translated, probe))

    def _compare_turns(self, translated: Renderer, smallest: Probe) -> str:
        """Describe the first feature that differs, of those that the conversation shows."""
        known = {name: text for name, text in self.known_tokens.items() if self.marks.get(name)}
        tokens = self.marks | known
        try:
            wanted = observe_turns(self.renderer, tokens)
            written = observe_turns(translated, tokens)
        except SourceError:
            return ""
        return self._find_feature(wanted, written, {m["role"] for m in smallest.messages})

    def _find_feature(
        self, wanted: ObservedTurns, written: ObservedTurns, roles: Collection[str]
    ) -> str:
        if wanted.turns.system is None and "system" in roles:
            return MISPLACED_SYSTEM.description
        for feature in FEATURES:
            if feature.in_final_reply and self.dialect.prompts_only:
                continue
            value = feature.value(wanted)
            if feature.is_shown_by(roles) and value != feature.value(written):
                return describe_feature(feature, value, self.dialect.names)
        return ""
