"""Facts: what is known about one template, found by probing it once. One answer per question.

    facts = Facts(renderer)
    facts.generation_prompt          '<|im_start|>assistant\\n'
    facts.stops                      ('<|im_end|>',)
    facts.stops_for({"eos_token": "</s>"})
    print(facts)                     a table of everything

Everything that needs to know what a template writes reads it here: the reply grammar, `Template.stops`, labels,
sessions, `turnwise explain`, `turnwise check`. An answer is computed when it is first asked for and then kept;
computing it twice in two threads gives the same answer.

Special tokens that have no text are placeholders inside (see `prober.py`). Answers contain the text that a tokenizer
gives them, or leave them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from turnwise.analysis.conversations import make_message
from turnwise.analysis.markers import MarkerFinder, WrittenMarker
from turnwise.analysis.prober import ARGUMENTS as CALL_ARGUMENTS
from turnwise.analysis.prober import SYSTEM, CallShape, Prober, replace_placeholders
from turnwise.analysis.stops import StopFinder
from turnwise.engine.compiler.history_proof import only_appends
from turnwise.engine.option_names import SPECIAL_TOKENS
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.renderer import Renderer
from turnwise.engine.runtime.limits import Allowance

EOS = "eos_token"
PROBING = 1.0  # times the budgets of one rendering, for all probes; the corpus needs half of it


class Facts:
    """What is known about one template.

    Args:
        renderer: the template; it is probed with reduced limits.
        declared_stops: the stops that the template's source names.
        model_stops: stops of the template's model that its template does not write.
    """

    def __init__(
        self,
        renderer: Renderer,
        declared_stops: Sequence[str] = (),
        model_stops: Sequence[str] = (),
    ) -> None:
        self.renderer = renderer
        self.declared_stops = tuple(declared_stops)
        self.model_stops = tuple(model_stops)
        self._allowance = Allowance(renderer.limits, PROBING)  # all probes share it

    @cached_property
    def prober(self) -> Prober:
        """A prober with settings that the template accepts; any settings if it refuses every user message.

        Raises:
            TemplateLimitError: a user message alone is more than a probe may cost.
        """
        renderer = self.renderer.with_reduced_limits().with_allowance(self._allowance)
        prober = Prober(renderer)
        return prober.find_accepted() or prober

    @cached_property
    def is_accepting(self) -> bool:
        """Whether the template renders a user message at all."""
        return self.prober.render([self.prober.user()], add_generation_prompt=True) is not None

    @cached_property
    def generation_prompt(self) -> str:
        """What `add_generation_prompt` adds to a conversation."""
        prompt = self.prober.generation_prompt()
        return replace_placeholders(prompt.text) if prompt else ""

    @cached_property
    def appends(self) -> bool:
        """Whether history is stable, as far as the source proves it: a turn is written in the same way whatever
        follows it, after the prompt that was served. Then one sample trains every turn.
        """
        return only_appends(*self.renderer.texts)

    # Stops

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts that end a reply: declared ones first, then those that the template writes."""
        return self.stops_for({})

    def stops_for(self, tokens: Mapping[str, str]) -> tuple[str, ...]:
        """Return the stops, if special tokens have these texts (`{"eos_token": "</s>"}`); eos is the last."""
        derived = self._resolve_names(self.derived_stops, tokens)
        texts = (*self.declared_stops, *derived, *self.model_stops, tokens.get(EOS))
        return tuple(dict.fromkeys(text for text in texts if text))

    def final_stop_for(self, tokens: Mapping[str, str], after_call: bool = False) -> str:
        """Return the stop of a reply that ends a conversation: what the model writes even if the template does not.

        It is the one that the template writes after other replies (`after_call`: after calls), else one that is
        declared, else eos; empty if nothing is known.
        """
        derived = self._stop_finder.find_final_stop(after_call)
        texts = self._resolve_names([derived] if derived else [], tokens)
        others = (*self.declared_stops, *self.model_stops, tokens.get(EOS))
        return next((text for text in (*texts, *others) if text), "")

    @property
    def stops_as_written(self) -> tuple[str, ...]:
        """The same texts as `stops`; those that the template writes at the end of a turn come first."""
        if not self._stop_finder.closes_turns:
            return self.stops
        return tuple(dict.fromkeys((*self._resolve_names(self.derived_stops, {}), *self.stops)))

    @cached_property
    def derived_stops(self) -> tuple[str, ...]:
        """The stops that the template writes; special tokens without a text are placeholders."""
        return self._stop_finder.find_stops()

    @cached_property
    def _stop_finder(self) -> StopFinder:
        return StopFinder(self.prober)

    @property
    def reply_stops(self) -> tuple[str, ...]:
        """The derived stops of replies without calls, with placeholders."""
        return self._stop_finder.reply_stops

    def lacks_stop(self, tokens: Mapping[str, str]) -> bool:
        """Whether replies are rendered and nothing that is known ends them."""
        return bool(self._stop_finder.rounds) and not self._resolve_names(self.reply_stops, tokens)

    # Markers

    def markers_for(self, tokens: Mapping[str, str]) -> tuple[WrittenMarker, ...]:
        """Return the markers that the template writes, in the order in which they are first rendered."""
        found: dict[str, WrittenMarker] = {}
        for marker in self._marker_finder.markers:
            for text in self._resolve_names([marker.text], tokens):
                found.setdefault(text, marker._replace(text=text))
        return tuple(found.values())

    @property
    def markers(self) -> tuple[WrittenMarker, ...]:
        """The markers that the template writes, without special tokens that have no text."""
        return self.markers_for({})

    def turn_markers_for(self, tokens: Mapping[str, str]) -> tuple[str, ...]:
        """Return the markers around messages that have only content."""
        return self._resolve_names(self._marker_finder.turn_markers, tokens)

    @property
    def plain_renderings(self) -> tuple[Rendering, ...]:
        """Renderings of conversations without tools and reasoning, and of a prompt."""
        return self._marker_finder.plain_renderings

    @cached_property
    def _marker_finder(self) -> MarkerFinder:
        return MarkerFinder(self.prober, self._stop_finder)

    # Everything

    def special_tokens(self, tokens: Mapping[str, str]) -> dict[str, str]:
        """Return the texts of the special tokens that the template reads: its own options, else the tokenizer's."""
        own = self.renderer.options
        names = [name for name in self.renderer.variables if name in SPECIAL_TOKENS]
        texts = {name: own.get(name) or tokens.get(name) for name in names}
        return {name: text for name, text in texts.items() if text}

    @cached_property
    def refusals(self) -> dict[str, str]:
        """The conversations that the template refuses, with its message."""
        prober = self.prober
        system = make_message("system", prober.as_content(SYSTEM))
        call = {"role": "assistant", **prober.call(CallShape(), CALL_ARGUMENTS[0])}
        probes = {
            "one message": [prober.user()],
            "turns": [prober.user(), prober.reply(), prober.user()],
            "a system message": [system, prober.user(), prober.reply()],
        }
        if not self._stop_finder.calls:
            probes["calls"] = [prober.user(), call]
        messages = {title: prober.refusal(chat) for title, chat in probes.items()}
        return {title: message for title, message in messages.items() if message}

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be found out."""
        if not self._stop_finder.rounds:
            return ("stops: the template renders no reply",)
        if not self.lacks_stop({}):
            return ()
        if self.reply_stops:
            return ("stops: replies end with a special token whose text is not known",)
        return ("stops: the template writes no control token after a reply",)

    def rows(self) -> Iterator[tuple[str, str]]:
        """Name and value of every fact, for printing."""
        yield "generation prompt", repr(self.generation_prompt)
        yield "history", "is only appended to" if self.appends else "may be rewritten"
        yield from (("stop", repr(stop)) for stop in self.stops)
        yield from (("marker", str(marker)) for marker in self.markers)
        yield from (("refuses", f"{title}: {text}") for title, text in self.refusals.items())
        yield from (("note", note) for note in self.notes)

    def __str__(self) -> str:
        return "\n".join(f"{name:<18} {value}".rstrip() for name, value in self.rows())

    def __reduce__(self) -> tuple[Any, ...]:
        return Facts, (self.renderer, self.declared_stops, self.model_stops)

    def _resolve_names(self, texts: Iterable[str], tokens: Mapping[str, str]) -> tuple[str, ...]:
        """Return the texts with named special tokens; those that are nothing else and unnamed are left out."""
        special = self.special_tokens(tokens)
        return tuple(dict.fromkeys(filter(None, (replace_placeholders(t, special) for t in texts))))
