"""`conform`: does a running engine, or the maker's own encoder, make the same prompts as a template?

Engines render templates with programs of their own (minijinja, a C++ interpreter) and change messages before. Here an
engine is asked for the prompts of made-up conversations, and each is compared with what the template writes. Where
they differ, the conversation is made small (`analysis/counterexample.py`), and the first piece that differs and the
condition around it are named.

Engines are rows of `ENGINES`. They take and return JSON; `Ask` is a function that sends it, since nothing here
touches the network:

    vllm       POST /v1/chat/completions/render returns ids; where there is none, POST /tokenize does.
               The reference text is encoded by the engine itself (POST /tokenize with `prompt`), so that ids
               are compared and no tokenizer is needed here.
    llamacpp   POST /apply-template returns the text; GET /props has the template and the special tokens. Its
               prompts always end with a generation prompt and lack the bos token, which it adds as an id.

Another template may stand in the place of an engine, and an `Oracle` (`oracles/`) is one. These are compared with what
`Template.render` writes, and on random conversations too (`analysis/request_probes.py`).

Conversations are sent in OpenAI's shape, so arguments of calls are JSON text. Engines parse it, and the reference gets
them as the template takes them. A refusal by both is agreement.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from turnwise.analysis.conversations import Probe, conversations, name_values
from turnwise.analysis.counterexample import (
    MAX_SHRINK_STEPS,
    describe_probe,
    excerpt,
    piece_at,
    shrink,
)
from turnwise.analysis.decisions import Decision
from turnwise.analysis.request_probes import make_request_probes
from turnwise.analysis.rewrites import common_length
from turnwise.analysis.wide_conversations import with_text_arguments
from turnwise.engine.provenance.rendering import Piece, Rendering
from turnwise.errors import SourceError, TurnwiseError, WarningLog, short_repr
from turnwise.evidence.compare import find_place, find_refusal
from turnwise.messages import JsonMapping, JsonObject
from turnwise.template import Template

WIRE_ROLES = ("system", "user", "assistant", "tool", "developer")
IN_PLACE = "in_place"  # late system texts: an encoder decides by itself what becomes of them
RANDOM_PROBES = 300  # that are made for an oracle or another template
TEXT, IDS, REFUSAL, DECLINED = "text", "ids", "refusal", "declined"


class EngineReply(NamedTuple):
    """What an engine answered: the status and the JSON value of its body."""

    status: int
    value: Any


Ask = Callable[[str, str, Any], EngineReply]
"""Sends a request: the method, the path, the JSON body (or None). It raises `SourceError` if there is no answer."""


@dataclass(frozen=True)
class Prompt:
    """A prompt that an engine made: its text, or its ids; or why it refused, and the line if it is known."""

    text: str | None = None
    ids: tuple[int, ...] | None = None
    refusal: str | None = None
    decision: Decision | None = None


class Engine:
    """An engine that renders conversations.

    Args:
        ask: Sends requests to it.
        model: The name of the model, for servers that have several.
    """

    name = version = ""
    only_prompts = False  # conversations that are no prompts cannot be asked for
    normalises = False  # the reference is what `Template.render` writes, not the bare template
    has_own_rules = False  # its refusals are rules about requests, which no template has

    def __init__(self, ask: Ask, model: str | None = None) -> None:
        self._ask = ask
        self._model = model

    def render(self, request: JsonMapping) -> Prompt:
        """Return the prompt for a request in OpenAI's shape."""
        raise NotImplementedError

    def reference(self, text: str) -> Prompt:
        """Return the prompt that the engine should make, if this is its text."""
        return Prompt(text=text)

    def text_of(self, prompt: Prompt) -> str:
        """Return the text of a prompt, for showing it."""
        return prompt.text or ""

    def served_template(self) -> tuple[str, dict[str, str]] | None:
        """Return the template that the engine serves, and its special tokens; None if it does not tell."""
        return None

    def _post(self, path: str, body: JsonMapping) -> EngineReply:
        named = {"model": self._model, **body} if self._model else body
        return self._ask("POST", path, named)


class LlamaCpp(Engine):
    """The server of llama.cpp."""

    name = "llamacpp"
    only_prompts = True
    _bos = ""

    def render(self, request: JsonMapping) -> Prompt:
        path = "/apply-template"
        reply = self._post(path, request)
        refusal = read_refusal(reply, path)
        if refusal is not None:
            return Prompt(refusal=refusal)
        return Prompt(text=require_field(reply, path, "prompt", str))

    def reference(self, text: str) -> Prompt:
        return Prompt(text=text.removeprefix(self._bos))

    def served_template(self) -> tuple[str, dict[str, str]] | None:
        reply = self._ask("GET", "/props", None)
        if reply.status != 200 or not isinstance(reply.value, Mapping):
            return None
        tokens = {
            name: text
            for name in ("bos_token", "eos_token")
            if isinstance(text := reply.value.get(name), str)
        }
        self._bos = tokens.get("bos_token", "")
        template = reply.value.get("chat_template")
        return (template, tokens) if isinstance(template, str) and template else None


class Vllm(Engine):
    """vLLM, and services that speak its protocol."""

    name = "vllm"
    paths = ("/v1/chat/completions/render", "/tokenize")
    _path = paths[0]

    def render(self, request: JsonMapping) -> Prompt:
        reply = self._post(self._path, request)
        if reply.status in (404, 405, 501) and self._path != self.paths[1]:
            self._path = self.paths[1]
            reply = self._post(self._path, request)
        refusal = read_refusal(reply, self._path)
        if refusal is not None:
            return Prompt(refusal=refusal)
        name = "token_ids" if self._path == self.paths[0] else "tokens"
        return Prompt(ids=_read_ids(reply, self._path, name))

    def reference(self, text: str) -> Prompt:
        body = {"prompt": text, "add_special_tokens": False}
        reply = self._post("/tokenize", body)
        refusal = read_refusal(reply, "/tokenize")
        if refusal is not None:
            raise SourceError(f"POST /tokenize refused a text: {refusal}")
        return Prompt(text=text, ids=_read_ids(reply, "/tokenize", "tokens"))

    def text_of(self, prompt: Prompt) -> str:
        if prompt.text is not None or prompt.ids is None:
            return prompt.text or ""
        reply = self._post("/detokenize", {"tokens": list(prompt.ids)})
        if reply.status != 200:
            return f"(ids {list(prompt.ids)})"
        text: str = require_field(reply, "/detokenize", "prompt", str)
        return text


class OtherTemplate(Engine):
    """A template in the place of an engine.

    Args:
        template: The template.
    """

    normalises = True

    def __init__(self, template: Template) -> None:
        self.name = template.name
        self._template = template

    def render(self, request: JsonMapping) -> Prompt:
        known = ("messages", "tools", "add_generation_prompt")
        arguments = {name: request[name] for name in known if name in request}
        asked = request.get("chat_template_kwargs") or {}
        options = {name: asked[name] for name in asked if name in self._template.variables}
        try:
            with WarningLog(is_quiet=True):
                arguments["late_system"] = IN_PLACE
                return Prompt(text=self._template.render(**arguments, **options).text)
        except TurnwiseError as error:
            return Prompt(refusal=error.message, decision=find_refusal(error))


ENGINES: dict[str, type[Engine]] = {engine.name: engine for engine in (Vllm, LlamaCpp)}


def detect_engine(ask: Ask, model: str | None = None) -> Engine:
    """Return the engine that answers: llama.cpp has /props, others are asked as vLLM is."""
    llama = LlamaCpp(ask, model)
    return llama if llama.served_template() is not None else Vllm(ask, model)


def read_refusal(reply: EngineReply, path: str) -> str | None:
    """Return why an engine refused a conversation; None if it did not.

    Raises:
        SourceError: the answer is about something else: there is no such path, or access is denied.
    """
    if reply.status == 200:
        return None
    message = _error_message(reply.value)
    if reply.status in (400, 422, 500) and message:
        return message
    raise SourceError(
        f"POST {path} answered with status {reply.status}: {message or short_repr(reply.value)}",
        hint="Is it a vLLM or llama.cpp server? --engine names one, --model the model.",
    )


def _error_message(value: Any) -> str:
    """Return the text of an error as OpenAI, llama.cpp and FastAPI write it."""
    for name in ("error", "detail", "message"):
        if isinstance(value, Mapping) and value.get(name):
            return _error_message(value[name]) if name == "error" else str(value[name])
    return value if isinstance(value, str) else ""


def require_field(reply: EngineReply, path: str, name: str, kind: type) -> Any:
    """Return a field of an answer; raise `SourceError` if it is missing or of another type."""
    value = reply.value.get(name) if isinstance(reply.value, Mapping) else None
    if not isinstance(value, kind):
        raise SourceError(f"POST {path} answered without {name!r}: {short_repr(reply.value)}")
    return value


def _read_ids(reply: EngineReply, path: str, name: str) -> tuple[int, ...]:
    ids = require_field(reply, path, name, list)
    if not all(type(id) is int for id in ids):
        raise SourceError(f"POST {path} answered with {name!r} that are not all integers")
    return tuple(ids)


@dataclass(frozen=True)
class EngineDifference:
    """A conversation for which an engine makes another prompt than its template.

    Attributes:
        probe: The conversation.
        request: What was sent for it.
        expected: What the template writes, or its refusal.
        got: What the engine made of it, or its refusal.
        kind: "text", "ids" (of the same text) or "refusal".
        piece: The piece of the reference in which the first different character lies.
        decision: The line of the template to look at.
    """

    probe: Probe
    request: JsonMapping
    expected: str
    got: str
    kind: str
    piece: Piece | None = None
    decision: Decision | None = None

    @property
    def at(self) -> int:
        """The index of the first character that differs."""
        return common_length(self.expected, self.got)

    def __str__(self) -> str:
        lines = list(describe_probe(self.probe))
        for name, text in (("template", self.expected), ("engine", self.got)):
            lines.append(f"{name + ':':<10}{excerpt(text, self.at)}")
        if self.kind == IDS:
            lines.append("the text is the same, the ids are not")
        if self.piece is not None:
            lines.append(f"  from {self.piece.origin}: {short_repr(self.piece.text)}")
        if self.decision is not None:
            lines.append(f"  {self.decision}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Conformance:
    """The result of `conform`; true if no difference was found.

    Attributes:
        engine: The name of the engine.
        tried: The number of conversations that were compared.
        refused: How many of them both refuse.
        declined: How many of them a maker's encoder refuses by rules of its own.
        differing: How many differ.
        difference: The smallest conversation that was found for the first difference.
        also: What the other differing conversations are about.
        version: The version of the engine, where it is known.
    """

    engine: str
    tried: int
    refused: int
    declined: int = 0
    differing: int = 0
    difference: EngineDifference | None = None
    also: tuple[str, ...] = ()
    version: str = ""

    @property
    def equal(self) -> bool:
        """True if no difference was found."""
        return self.difference is None

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        tried = f"{self.tried} conversations, {self.refused} refused by both"
        if self.declined:
            tried += f", {self.declined} by {self.engine} alone"
        name = f"{self.engine} {self.version}".strip()
        if self.difference is None:
            return f"{name} makes the prompts of the template: {tried}"
        summary = f"{name} differs on {self.differing} of {tried}"
        also = f"\nalso on: {', '.join(self.also)}" if self.also else ""
        return f"{summary}\n{self.difference}{also}"


def conform(
    template: Template,
    other: Engine | Template,
    now: datetime | None = None,
    limit: int | None = None,
) -> Conformance:
    """Compare the prompts of a template with those of an engine, a maker's encoder or another template.

    Args:
        template: The template, with its special tokens as options.
        other: An engine that was made with a function that sends requests (`detect_engine(ask)`), an oracle
            (`turnwise.oracles.find_oracle`), or a template.
        now: The time, for templates that ask for it; the engine has a clock of its own.
        limit: The most conversations to try.

    Returns:
        The result; `str()` of it shows the smallest difference.

    Raises:
        SourceError: this is no template or no engine; the engine does not answer, or not as engines do; or both refuse
            everything.

    Example:
        >>> print(turnwise.conform(turnwise.load("chatml"), turnwise.load("chatml"), limit=20))
        chatml makes the prompts of the template: 20 conversations, 0 refused by both
    """
    given: Any = other
    engine = OtherTemplate(given) if isinstance(given, Template) else given
    wanted: tuple[tuple[Any, type], ...] = ((template, Template), (engine, Engine))
    for value, needed in wanted:
        if not isinstance(value, needed):
            raise SourceError(
                "conform compares a Template with an Engine; "
                f"{type(value).__name__} is no {needed.__name__}"
            )
    comparison = EngineComparison(engine, template, now)
    outcomes: Counter[str | None] = Counter()
    differing: list[tuple[Probe, str]] = []
    for probe in islice(comparison.list_probes(), limit):
        outcome = comparison.compare(probe)
        outcomes[outcome] += 1
        if outcome and outcome != DECLINED:
            differing.append((probe, outcome))
    tried, refused, declined = outcomes.total(), outcomes[None], outcomes[DECLINED]
    if tried == refused + declined:
        raise SourceError(f"the engine and the template refuse all {tried} conversations")
    found = Conformance(engine.name, tried, refused, declined, version=engine.version)
    if not differing:
        return found
    first, kind = differing[0]
    others = dict.fromkeys(probe.covers for probe, _ in differing[1:])
    difference = comparison.describe(comparison.shrink(first, kind), kind)
    return replace(found, differing=len(differing), difference=difference, also=tuple(others))


class EngineComparison:
    """Compares the prompts of an engine with those of a template; the arguments are those of `conform`."""

    def __init__(self, engine: Engine, template: Template, now: datetime | None = None) -> None:
        self._engine = engine
        self._template = template
        self._now = now

    def list_probes(self, seed: int = 0, count: int = RANDOM_PROBES) -> Iterator[Probe]:
        """Yield the conversations to try: fixed ones, and random ones for what has no server to wait for."""
        yield from wire_probes(self._engine.only_prompts)
        if not self._engine.normalises:
            return
        (asked,) = name_values("request options")
        options = {name: asked[name] for name in asked if name in self._template.variables}
        random = make_request_probes(options, seed)
        fitting = (probe for probe in random if is_wire_probe(probe, self._engine.only_prompts))
        yield from islice(fitting, count)

    def compare(self, probe: Probe) -> str | None:
        """Return how the two differ: "text", "ids", "refusal", or "" if they agree; None if both refuse.

        "declined" is no difference: a maker's encoder has rules about requests that a template has not.
        """
        expected, got = self._render(probe), self._engine.render(wire_request(probe))
        if got.refusal is not None:
            refused = DECLINED if self._engine.has_own_rules else REFUSAL
            return refused if isinstance(expected, Rendering) else None
        if not isinstance(expected, Rendering):
            return REFUSAL
        wanted = self._engine.reference(expected.text)
        if got.ids is None or wanted.ids is None:
            return "" if got.text == wanted.text else TEXT
        if got.ids == wanted.ids:
            return ""
        return IDS if self._engine.text_of(got) == expected.text else TEXT

    def shrink(self, probe: Probe, kind: str) -> Probe:
        """Return a smaller conversation on which the two still differ in the same way."""

        def shows(one: Probe) -> bool:
            asked = open_prompt(one)
            return is_wire_probe(asked, self._engine.only_prompts) and self.compare(asked) == kind

        # each is a request or two
        return open_prompt(shrink(probe, shows, MAX_SHRINK_STEPS // 4))

    def describe(self, probe: Probe, kind: str) -> EngineDifference:
        """Return a difference with both texts and the place in the template."""
        request = wire_request(probe)
        expected, got = self._render(probe), self._engine.render(request)
        shown = self._engine.text_of(got) if got.refusal is None else f"refuses: {got.refusal}"
        if isinstance(expected, Rendering):
            wanted, written = self._engine.reference(expected.text).text or "", expected.text
        else:
            wanted, written = f"refuses: {expected.message}", ""
        found = EngineDifference(probe, request, wanted, shown, kind, decision=got.decision)
        if got.refusal is not None:
            return found
        at = found.at + len(written) - len(wanted)  # a bos token that the engine adds as an id
        place = find_place(self._template.renderer, probe, expected, at)
        return replace(found, piece=piece_at(expected, at), decision=place)

    def _render(self, probe: Probe) -> Rendering | TurnwiseError:
        """Return what the template writes, with arguments in the form that it takes; or its refusal."""
        if self._engine.normalises:
            arguments = {**probe.arguments(), "now": self._now, "late_system": IN_PLACE}
            with WarningLog(is_quiet=True):
                try:
                    return self._template.render(wire_request(probe)["messages"], **arguments)
                except TurnwiseError as error:
                    return error
        refusal: TurnwiseError | None = None
        arguments = {**probe.arguments(), "now": self._now}
        for form in (probe, with_text_arguments(probe)):
            if form is None:
                continue
            try:
                return self._template.renderer.render(form.messages, **arguments)
            except TurnwiseError as error:
                refusal = refusal or error
        assert refusal is not None  # the first form is never None
        return refusal


def wire_probes(only_prompts: bool) -> Iterator[Probe]:
    """Yield the conversations that may be sent in OpenAI's shape, as prompts where they have no reply at the end."""
    asked = map(open_prompt, conversations())
    return (probe for probe in asked if is_wire_probe(probe, only_prompts))


def open_prompt(probe: Probe) -> Probe:
    """Return a conversation with a generation prompt, if it has no reply at the end."""
    is_finished = bool(probe.messages) and probe.messages[-1]["role"] == "assistant"
    return replace(probe, add_generation_prompt=not is_finished)


def is_wire_probe(probe: Probe, only_prompts: bool) -> bool:
    """Return whether a conversation may be sent in OpenAI's shape, and whether the engine takes such prompts."""
    messages = probe.messages
    if not messages or probe.documents is not None or probe.tools == []:
        return False
    if not all(tool.get("type") == "function" for tool in probe.tools or ()):
        return False
    if not all(map(_is_wire_message, messages)):
        return False
    ends_with_assistant = messages[-1]["role"] == "assistant"
    if only_prompts and ends_with_assistant:
        return False
    return bool(probe.add_generation_prompt) != bool(ends_with_assistant)


def _is_wire_message(message: JsonMapping) -> bool:
    """Return whether OpenAI's shape has such a message: a known role, text, and calls that are whole."""
    if message.get("role") not in WIRE_ROLES or "thinking" in message:
        return False
    calls = message.get("tool_calls")
    if calls is not None and not (calls and all(map(_is_wire_call, calls))):
        return False
    if message["role"] == "tool" and "tool_call_id" not in message:
        return False
    return isinstance(message.get("content"), str)


def _is_wire_call(call: Any) -> bool:
    match call:
        case {"id": _, "type": "function", "function": {"name": str(), "arguments": dict()}}:
            return True
    return False


def wire_request(probe: Probe) -> JsonObject:
    """Return the body of a request for a conversation, in OpenAI's shape."""
    # As templates write them, so that an engine may parse the arguments or keep their text.
    written = with_text_arguments(probe, partial(json.dumps, ensure_ascii=False)) or probe
    body: JsonObject = {
        "messages": written.messages,
        "add_generation_prompt": probe.add_generation_prompt,
    }
    if probe.tools is not None:
        body["tools"] = probe.tools
    if probe.options:
        body["chat_template_kwargs"] = dict(probe.options)
    return body
