"""Conversion: one template on its way into one dialect. The steps are in `conversion/__init__.py`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from turnwise.analysis.conversations import (
    NOW,
    PROBE_TOKENS,
    Probe,
    make_message,
    option_names,
)
from turnwise.analysis.counterexample import Counterexample, rendered_text, try_render
from turnwise.analysis.facts import Facts
from turnwise.conversion.features import (
    CONTENTS,
    FEATURES,
    LOSSES,
    NO_SYSTEM,
    OPTIONS,
    SYSTEM,
    TOPICS,
    Obstacle,
    describe_feature,
    has_system_text,
    list_texts,
)
from turnwise.conversion.observed_turns import DATE_FORMAT, observe_turns
from turnwise.conversion.verification import Verification
from turnwise.dialects import WRITABLE, translate
from turnwise.dialects.jinja import with_stop_comment
from turnwise.dialects.translation import Dialect, Translation, copy_source
from turnwise.dialects.turns import TOKEN_MARKS, Turns, fill_slots, replace_token_marks
from turnwise.engine.program import compile_program
from turnwise.engine.renderer import Renderer
from turnwise.errors import SourceError, short_repr
from turnwise.messages import JsonMapping
from turnwise.normalisation.normaliser import Normaliser
from turnwise.schema import STRING, check, check_name, or_null

MISPLACED_SYSTEM = "a system text that is left out, or that is not first"
CONVERTING = 6  # times the budgets of one rendering, for all that a conversion renders
DATE = Obstacle("the date, which it writes anew every day")


class VerificationFailure(NamedTuple):
    """How a translation fails: a probe that it renders otherwise, or a stop that it lacks."""

    source: Any
    translated: Renderer
    agreed: int  # how many probes were rendered alike before
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
        normaliser: what `render` asks which form of a conversation the template takes; null if it
            renders each as it is.

    Raises:
        SourceError: an argument is malformed.
    """

    def __init__(
        self,
        renderer: Renderer,
        stops: Iterable[str],
        dialect: Dialect,
        tokens: Mapping[str, str | None],
        without: Collection[str] | None,
        normaliser: Normaliser | None,
    ) -> None:
        self.normaliser = normaliser
        self.renderer = renderer = renderer.allow(CONVERTING)
        self.stops = tuple(stops)
        self.dialect = dialect
        self.known_tokens = self._find_tokens(tokens)
        self.without = self._check_losses(without)
        # The turns are read with marks for the tokens, and compared with their texts. A token that is
        # known to be "" is none.
        self.marks = {
            name: "" if self.known_tokens.get(name) == "" else mark
            for name, mark in TOKEN_MARKS.items()
        }

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
        known = [*TOPICS, *LOSSES, *option_names(self.renderer.variables)]
        for name in without or ():
            check_name(name, known, "unknown name in without:", "Accepted", SourceError)
        return tuple(without or ())

    def keep(self, source: Any, details: JsonMapping) -> Any:
        """Return a source that the template already has in this dialect."""
        for name in details:
            problem = f"{self.dialect.name} takes no argument {name!r}"
            raise SourceError(f"{problem} for a template that is already written in it")
        return source

    def keep_jinja(self, translation: Translation, details: JsonMapping) -> str:
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

    def write(self, details: JsonMapping) -> Any:
        """Return the first source that renders like the template.

        Args:
            details: arguments of the dialect's writer.

        Raises:
            SourceError: the obstacle of the source that came nearest.
        """
        write = self.dialect.write
        if write is None:
            problem = f"{self.dialect.name} sources can be read, not written"
            raise SourceError(problem, hint=f"These can be written: {', '.join(WRITABLE)}.")
        for name in details:
            problem = f"{self.dialect.name} takes no argument"
            check_name(name, self.dialect.details, problem, "Accepted", SourceError)
        arguments = dict(details)
        if "eos_token" not in self.dialect.names:
            arguments["eos_token"] = self.known_tokens.get("eos_token")
        tokens = TOKEN_MARKS | self.known_tokens
        observed = observe_turns(
            self.renderer, self.marks, tokens["bos_token"], normaliser=self.normaliser
        )
        starts_with_bos = any(
            _starts_with_bos(observed, bos)
            for bos in (self.marks["bos_token"], tokens["bos_token"])
        )
        verification = Verification(
            self.renderer, self.dialect, tokens, self.without, starts_with_bos, self.normaliser
        )
        turns = self._prepare_turns(observed, starts_with_bos)
        sources = write(turns, **arguments)
        failures = []
        for source in sources if isinstance(sources, list) else [sources]:
            failure = self._verify(source, turns, verification)
            if failure is None:
                return source
            failures.append(failure)
        # Of equals, the first is explained: the writer puts the most natural one there.
        nearest = max(failures, key=lambda failure: failure.agreed)
        raise self._explain(nearest, verification)

    def _prepare_turns(self, observed: Turns, starts_with_bos: bool) -> Turns:
        """Return the turns with the texts that the writer needs."""
        texts = {**self.known_tokens, "date": NOW.strftime(DATE_FORMAT)}
        turns = replace_token_marks(observed, texts, self.dialect.names)
        declared = [stop for stop in self.stops if stop != self.known_tokens.get("eos_token")]
        if SYSTEM in self.without:
            turns = _without_system(turns)
        is_inserted = starts_with_bos and self.dialect.inserts_bos
        return replace(
            turns,
            stops=tuple(dict.fromkeys((*declared, *turns.stops))),
            bos=self.known_tokens.get("bos_token", "") if is_inserted else "",
        )

    def _read(self, source: Any, exact: bool) -> tuple[Translation, Renderer]:
        translation = self.dialect.read(copy_source(source), exact=exact)
        options = {**translation.options, **self.renderer.options}
        program = compile_program(translation.jinja, "template")
        return translation, Renderer(program, options).with_allowance(self.renderer.allowance)

    def _verify(
        self, source: Any, turns: Turns, verification: Verification
    ) -> VerificationFailure | None:
        """Read a source that was written; return how it fails to render like the template."""
        translation, translated = self._read(source, exact=True)
        probe, agreed = verification.find_difference(translated)
        if probe is not None:
            return VerificationFailure(source, translated, agreed, probe=probe)
        for stop in turns.stops if self.dialect.stops else ():
            if stop not in translation.stops:
                return VerificationFailure(source, translated, agreed, lost_stop=stop)
        return None

    # -- naming the obstacle

    def _explain(self, failure: VerificationFailure, verification: Verification) -> SourceError:
        """Return the error that names the obstacle, and shows the smallest conversation with it."""
        hints = []
        obstacle = Obstacle(f"the stop {short_repr(failure.lost_stop)}")
        if failure.probe is not None:
            smallest = verification.shrink(failure.translated, failure.probe)
            obstacle = self._find_obstacle(failure, smallest, verification)
            hints.append(str(self._show(failure.translated, smallest, verification)))
        if obstacle.loss:
            hints.append(f"without=[{obstacle.loss!r}] leaves that out.")
        name = self.dialect.name
        problem = f"{name} cannot express this template"
        if (obstacle.kind or obstacle.loss) in self.dialect.unwritten:
            problem = f"turnwise's writer for {name} does not express this template"
        return SourceError(f"{problem}: {obstacle.description}", hint="\n".join(hints) or None)

    def _show(
        self, translated: Renderer, probe: Probe, verification: Verification
    ) -> Counterexample:
        options = probe.options
        names = ("the template", f"in {self.dialect.name}")
        render = verification.render_normalised
        outcomes = render(self.renderer, probe), try_render(translated, probe)
        if self.dialect.inserts_bos:
            # One bos token is left to the software: without any, the texts show what differs.
            quiet = replace(probe, options=probe.options | {"bos_token": ""})
            without_bos = render(self.renderer, quiet), try_render(translated, quiet)
            if rendered_text(without_bos[0]) != rendered_text(without_bos[1]):
                outcomes = without_bos
                options = quiet.options
        shown = {
            name: value
            for name, value in options.items()
            if name in self.renderer.variables or name not in PROBE_TOKENS
        }
        return Counterexample(replace(probe, options=shown), *outcomes, names)

    def _find_obstacle(
        self, failure: VerificationFailure, smallest: Probe, verification: Verification
    ) -> Obstacle:
        """Name what the two differ in, from the smallest conversation that shows it."""

        def differs(probe: Probe) -> bool:
            return bool(verification.compare(failure.translated, probe))

        if smallest.now != NOW and not differs(replace(smallest, now=NOW)):
            return DATE
        # Shrinking has removed every option that makes no difference, so one that is left does.
        for name in option_names(smallest.options):
            return Obstacle(f"the option {name}", name, OPTIONS)
        for obstacle, is_about in CONTENTS:
            if is_about(smallest):
                return obstacle
        # Do they still differ if every message is one digit? If not, some text makes the difference.
        plain = [message | {"content": "1"} for message in smallest.messages]
        if not differs(replace(smallest, messages=plain)):
            # The oddest text is the likely reason.
            text = max(
                list_texts(smallest), key=lambda text: (not text.isalnum(), len(text)), default=""
            )
            changed = "the text of a message, which the template changes"
            return Obstacle(f"{changed}: {short_repr(text)}", kind="text")
        description = self._compare_turns(failure.source, smallest) or self._find_unknown_token()
        if not description and failure.probe is not None:
            description = f"what it writes for {failure.probe.covers}"
        if NO_SYSTEM in self.without:
            return Obstacle(description)
        # Shrinking has also removed a system text that makes no difference.
        if has_system_text(smallest):
            return Obstacle(description, SYSTEM)
        guided = [make_message("system", "1"), *smallest.messages]
        is_cured = verification.agrees(failure.translated, replace(smallest, messages=guided))
        return Obstacle(description, NO_SYSTEM if is_cured else "")

    def _compare_turns(self, source: Any, smallest: Probe) -> str:
        """Describe the first feature that differs, of those that the conversation shows.

        The source is read by the rules of the default translation: an exact one leaves out turns
        that are looked at here.
        """
        known = {name: text for name, text in self.known_tokens.items() if self.marks.get(name)}
        tokens = self.marks | known
        try:
            wanted = observe_turns(self.renderer, tokens, normaliser=self.normaliser)
            written = observe_turns(self._read(source, exact=False)[1], tokens)
        except SourceError:
            return ""
        if self.dialect.inserts_bos:
            wanted = replace(wanted, bos=tokens["bos_token"])
            written = replace(written, bos=tokens["bos_token"])
        return self._find_feature(wanted, written, {m["role"] for m in smallest.messages})

    def _find_unknown_token(self) -> str:
        """Describe the first token of the template whose text the writer did not know."""
        for name in TOKEN_MARKS:
            is_known = name in self.known_tokens or name in self.dialect.names
            if not is_known and name in self.renderer.variables:
                return f"{name}, whose text is not known (pass {name}=...)"
        return ""

    def _find_feature(self, wanted: Turns, written: Turns, roles: Collection[str]) -> str:
        if wanted.system is None and "system" in roles:
            return MISPLACED_SYSTEM
        for feature in FEATURES:
            if feature.in_final_reply and self.dialect.prompts_only:
                continue
            value = feature.value(wanted)
            if feature.is_shown_by(roles) and value != feature.value(written):
                return describe_feature(feature, value, self.dialect.names)
        return ""


def _without_system(turns: Turns) -> Turns:
    """Return the turns of conversations without a system text; the template's own stays."""
    prefix = turns.prefix
    if turns.system is not None and turns.default_system is not None:
        prefix += fill_slots(turns.system, 0, turns.default_system)
    return replace(
        turns,
        prefix=prefix,
        system=None,
        system_in_user=False,
        system_in_last_user=False,
        default_system=None,
    )


def _starts_with_bos(turns: Turns, bos: str) -> bool:
    """Return True if the turns start with the bos token, given as its mark or its text."""
    start = turns.prefix + fill_slots(turns.user, 0)
    return bool(bos) and start.startswith(bos)
