"""The calls of the playground: plain functions from JSON data to JSON data, with no HTTP in them.

The server offers each as `POST /api/<verb>` (`entries` as `GET`), and the static page calls the same functions inside
of the browser, under Pyodide: `call(verb, body, resources)`. Nothing here opens a file that `resources` does not
name, reads a clock but for `now`, or touches a network.

Every body is an object. These fields are shared:

    template    "qwen3" (an entry, or a model that is served) or {"source": TEXT OR OBJECT, "dialect": NAME OR NULL}
    tokenizer   "turnwise" (the one that ships, the default) or the name of a model that is served
    messages    a list of messages in OpenAI's shape
    tools       a list of tools, documents a list, options {"enable_thinking": false}: the template's own variables
    add_generation_prompt, continue_final_message, now ("2025-01-15T12:00"), normalise, strict,
    late_system: as `Template.render`
    language    "en" or "zh": of what is said about the template, in findings, errors, warnings and changes

and these are the verbs:

    entries     {}                                    -> {"entries": [{"name", "dialect", "family", "notes",
                                                          "notes_zh", "verified", "unusable"}], "served": [NAME]}
    source      {template}                            -> {"name", "dialect", "source", "jinja", "options", "variables"}
    render      {template, messages, ...}             -> {"text", "pieces": [PIECE], "changes": [TEXT]}
    encode      {... , tokenizer, train_on}           -> {"input_ids", "tokens", "labels", "mask", "offsets", "owners",
                                                          "control", "defused", "text", "pieces", "changes",
                                                          "untrained"}
    parse       {template, reply, prompt?, messages?, tools?, chunks?}
                                                      -> {"message", "finish_reason", "stop", "events": [EVENT],
                                                          "spans", "attempts"}
    grammar     {template, tools?, choice?}           -> {"table": [{"part", "text", "origin"}], "text",
                                                          "exports": {NAME: TEXT OR {"error"}}}
    check       {template, tokenizer?}                -> {"template", "findings": [FINDING], "not_run", "ignored"}
    facts       {template, tokenizer?}                -> {"stops", "stop_ids", "capabilities", "stability", "variables"}
    diff        {template, other, tokenizer?}         -> {"equal", "tried", "text", "witness"?}
    convert     {template, to?, without?, eos_token?, bos_token?}
                                                      -> {"dialect", "output": TEXT, "left_out": [NAME]}; without `to`
                                                          the first dialect that can say the template, or most of it
    match       {model, source?}                      -> {"name", "kind", "source", "reason", "warning", ...}

    PIECE   {"text", "kind": "template" | "field" | "computed", "line", "column", "path", "message", "sources"}
    EVENT   {"kind", "text", "call", "name", "id", "delta", "at"}: `at` is how many chunks had been fed
    FINDING {"code", "name", "severity", "message", "fix", "line", "column", "messages", "arguments", "output"}

Entries have `notes_zh` in any language: the static page shows them before it has an engine. Everything that was warned
of is in `"warnings"`, a list of sentences, if there is any. An error is `{"error": {"message", "type", "param", "hint",
"line", "column", "source_line", "text"}}`; `text` is all of it as the command line shows it, with the line and a caret.
The server sends it with the status 422.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from datetime import datetime
from typing import Any

from turnwise.analysis.counterexample import passed_arguments, rendered_text
from turnwise.engine.program import compile_program
from turnwise.engine.provenance.rendering import Piece, Rendering
from turnwise.errors import (
    MessageError,
    SourceError,
    TemplateError,
    TurnwiseError,
    TurnwiseWarning,
    printable,
    short_repr,
)
from turnwise.evidence import check, diff, stability
from turnwise.languages import translate, translate_answer
from turnwise.messages import JsonMapping, JsonObject, format_path
from turnwise.registry import entries, load
from turnwise.registry.match import match
from turnwise.replies.events import Event
from turnwise.schema import check_name
from turnwise.serve.bodies import RequestBody, read_fields
from turnwise.template import Template, compile

__all__ = ["VERBS", "call", "describe_error"]

Resources = Mapping[str, JsonMapping]
SHIPPED = "turnwise"
RENDER_FIELDS = (
    "tools",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "normalise",
    "strict",
    "late_system",
)
MAX_CHUNKS = 100_000
NO_RESOURCES: Resources = {}
# Dialects that are tried, in this order, where a conversion names none; what one cannot express is left out.
GREETINGS = ("ollama", "llamafactory", "xtuner", "lmdeploy", "fastchat")
REMEDY = re.compile(r"without=\['([a-z_]+)'\]")  # in the hint of a refusal


def call(verb: str, body: Any, resources: Resources = NO_RESOURCES) -> JsonObject:
    """Run a verb on a body, and return its answer or its error as data; nothing is raised.

    Args:
        verb: a name of `VERBS`.
        body: what the page sent.
        resources: files that may be opened: `{"templates": {name: path}, "tokenizers": {name: path}}`. The static
            page gives tokenizers instead of their paths.

    Example:
        >>> body = {"template": "chatml", "messages": [{"role": "user", "content": "Hi"}]}
        >>> call("render", body)["text"]
        '<|im_start|>user\\nHi<|im_end|>\\n'
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_name(verb, VERBS, "there is no call", "Calls", SourceError)
            answer = VERBS[verb](_Request(body, verb, resources))
        except TurnwiseError as error:
            answer = {"error": describe_error(error)}
    texts = [str(one.message) for one in caught if issubclass(one.category, TurnwiseWarning)]
    if texts:
        answer["warnings"] = [*dict.fromkeys(texts)]
    return translate_answer(answer, body)


def describe_error(error: TurnwiseError) -> JsonObject:
    """Return an error as data: its sentence, the place, and what to do."""
    path = getattr(error, "path", None)
    data: JsonObject = {
        "message": printable(error.message),
        "type": type(error).__name__,
        "param": printable(path) if path else None,
        "hint": error.hint and printable(error.hint),
        "text": str(error),
    }
    if isinstance(error, TemplateError):
        data |= _select(error, "line", "column", "source_line")
    return data


class PlaygroundTemplate(RequestBody):
    """A template whose source is in the body."""

    is_closed = True
    source: str | JsonObject
    dialect: str | None = None
    name: str = "template"
    options: JsonObject | None = None


class PlaygroundBody(RequestBody):
    """The fields of all verbs."""

    language: str | None = None
    template: str | PlaygroundTemplate | None = None
    other: str | PlaygroundTemplate | None = None
    tokenizer: str | None = None
    messages: list[Any] | None = None
    tools: list[Any] | None = None
    documents: list[Any] | None = None
    options: JsonObject = field(default_factory=dict)
    add_generation_prompt: bool | None = None
    continue_final_message: bool | str | None = None
    now: str | None = None
    normalise: bool | None = None
    late_system: str | None = None
    strict: bool | None = None
    train_on: str = "assistant"
    reply: str | None = None
    prompt: str | None = None
    chunks: list[Any] | None = None
    choice: str = "auto"
    to: str | None = None
    without: list[Any] = field(default_factory=list)
    eos_token: str | None = None
    bos_token: str | None = None
    model: str | None = None
    source: str | None = None


class _Request:
    def __init__(self, body: Any, verb: str, resources: Resources) -> None:
        if not isinstance(body, dict):
            raise MessageError(f"the body of {verb} is an object, not {short_repr(body)}")
        self.body = read_fields(PlaygroundBody, body)
        self.resources = resources

    def require(self, name: str) -> Any:
        """Return a field that must be there."""
        value = getattr(self.body, name)
        if value is None:
            raise MessageError("this field is missing", path=name)
        return value

    def template(self, name: str = "template") -> Template:
        """Return the template: an entry, one that is served, or a source in the body."""
        given = self.require(name)
        if isinstance(given, str):
            # A template by its name, which is looked up in tables and never taken for a path.
            served = self.resources.get("templates", {})
            if given in served:
                template = load(served[given])
                # Its own name may be a path of this machine, which answers and errors must not have.
                renderer = template.renderer.with_programs(
                    lambda program: compile_program(program.text, given, program.shadowed)
                )
                return Template(renderer, template.dialect, template.translation)
            check_name(given, [*served, *entries()], "there is no template", "Names", path=name)
            return load(given)
        return compile(given.source, given.dialect, name=given.name, options=given.options)

    def tokenizer(self, default: str | None = SHIPPED) -> Any:
        """Return the tokenizer that the body names, as what `encode` takes."""
        given = default if self.body.tokenizer is None else self.body.tokenizer
        known = {SHIPPED: SHIPPED, **self.resources.get("tokenizers", {})}
        if given is None:
            return None
        check_name(given, known, "there is no tokenizer", "Tokenizers", path="tokenizer")
        return known[given]

    def render_arguments(self) -> JsonObject:
        """Return the keyword arguments of `Template.render`."""
        for key in self.body.options:
            if key in (*RENDER_FIELDS, "messages", "now", "tokenizer", "train_on"):
                raise MessageError("this is no variable of the template", path=f"options.{key}")
        given = _select(self.body, *RENDER_FIELDS).items()
        arguments = self.body.options | {name: value for name, value in given if value is not None}
        now = self.body.now
        if now is not None:
            try:
                arguments["now"] = datetime.fromisoformat(now)
            except ValueError:
                raise MessageError(
                    f"{short_repr(now)} is not a time such as 2025-01-15T12:00", path="now"
                ) from None
        return arguments


# -- the verbs


def _list_entries(request: _Request) -> JsonObject:
    rows = [
        {
            **_select(entry, "name", "dialect", "family", "notes"),
            "notes_zh": translate(entry.notes, "zh"),
            "verified": bool(entry.verified),
            "unusable": entry.unusable or None,
        }
        for entry in entries().values()
    ]
    return {"entries": rows, "served": sorted(request.resources.get("templates", {}))}


def _show_source(request: _Request) -> JsonObject:
    template = request.template()
    return {
        **_select(template, "name", "dialect", "source"),
        "jinja": template.text,
        "options": _as_json(dict(template.options)),
        "variables": list(template.variables),
    }


def _render(request: _Request) -> JsonObject:
    messages = request.require("messages")
    rendering = request.template().render(messages, **request.render_arguments())
    return _rendering_data(rendering)


def _encode(request: _Request) -> JsonObject:
    messages = request.require("messages")
    template, tokenizer = request.template(), request.tokenizer()
    arguments = {**request.render_arguments(), "train_on": request.body.train_on}
    encoded = template.encode(messages, tokenizer, **arguments)
    return {
        **_rendering_data(encoded.rendering),
        **_select(encoded, "text", "input_ids", "tokens", "labels", "mask", "control"),
        "offsets": [list(span) for span in encoded.offsets],
        "owners": [owner._asdict() for owner in encoded.owners],
        "defused": [list(span) for span in encoded.defused],
        "untrained": [_select(one, "message", "reason") for one in encoded.untrained],
    }


def _parse(request: _Request) -> JsonObject:
    template, body = request.template(), request.body
    chunks = [request.require("reply")] if body.chunks is None else body.chunks
    if len(chunks) > MAX_CHUNKS or not all(isinstance(chunk, str) for chunk in chunks):
        raise MessageError(f"chunks are at most {MAX_CHUNKS:,} texts", path="chunks")
    prompt = body.prompt
    if prompt is None and body.messages:
        arguments = request.render_arguments() | {"add_generation_prompt": True}
        prompt = template.render(body.messages, **arguments).text
    parser = template.parser(prompt, body.tools)
    events = [_event_data(event, 0) for event in parser.prefill]
    for number, chunk in enumerate(chunks, 1):
        events += [_event_data(event, number) for event in parser.feed(chunk)]
    message = parser.close()
    events += [_event_data(event, len(chunks)) for event in message.events]
    return {
        "message": dict(message),
        **_select(message, "finish_reason", "stop"),
        "events": events,
        "spans": [asdict(span) for span in message.spans],
        "attempts": [asdict(attempt) for attempt in message.attempts],
    }


def _show_grammar(request: _Request) -> JsonObject:
    grammar = request.template().grammar
    tools, choice = request.body.tools, request.body.choice
    exports = {"response_template": _try(lambda: grammar.to_response_template(partly=True))}
    if tools:
        exports |= {
            "structural_tag": _try(lambda: grammar.to_structural_tag(tools, choice)),
            "lark": _try(lambda: grammar.to_lark(tools, choice)),
            "gbnf": _try(lambda: grammar.to_gbnf(tools, choice).grammar),
        }
    rows = [row._asdict() for row in grammar.rows()]
    return {"table": rows, "text": str(grammar), "exports": exports}


def _check(request: _Request) -> JsonObject:
    report = check(request.template(), request.tokenizer(None))
    return {**_as_json(report.to_data()), "text": str(report)}


def _show_facts(request: _Request) -> JsonObject:
    template, tokenizer = request.template(), request.tokenizer(None)
    stops = template.stops(tokenizer)
    return {
        "stops": list(stops),
        "stop_ids": list(stops.ids),
        "capabilities": str(template.capabilities),
        "stability": str(stability(template)),
        "variables": list(template.variables),
    }


def _diff(request: _Request) -> JsonObject:
    found = diff(request.template(), request.template("other"), request.tokenizer(None))
    data: JsonObject = {**_select(found, "equal", "tried"), "text": str(found)}
    if found.witness is not None:
        witness = found.witness
        data["witness"] = {
            "messages": _as_json(witness.probe.messages),
            "arguments": _as_json(passed_arguments(witness.probe)),
            **_select(witness, "kind", "at"),
            "a": rendered_text(witness.a),
            "b": rendered_text(witness.b),
        }
    return data


def _convert(request: _Request) -> JsonObject:
    if request.body.to is not None:
        return _write_dialect(request, request.body.to, [])
    for to in GREETINGS:
        left_out: list[str] | None = []
        while left_out is not None:
            try:
                return _write_dialect(request, to, left_out)
            except SourceError as refusal:
                remedy = REMEDY.search(refusal.hint or "")
                is_new = remedy is not None and remedy[1] not in left_out
                left_out = [*left_out, remedy[1]] if remedy and is_new else None
    return _write_dialect(request, "jinja", [])


def _write_dialect(request: _Request, to: str, left_out: list[str]) -> JsonObject:
    body = request.body
    without = [*body.without, *left_out]
    tokens = _select(body, "eos_token", "bos_token")
    output = request.template().convert(to, without=without, **tokens)
    return {"dialect": to, "output": _as_text(output), "left_out": left_out}


def _match(request: _Request) -> JsonObject:
    found = match(request.require("model"), request.body.source)
    return {**_as_json(asdict(found)), "name": found.name}


VERBS: dict[str, Callable[[_Request], JsonObject]] = {
    "entries": _list_entries,
    "source": _show_source,
    "render": _render,
    "encode": _encode,
    "parse": _parse,
    "grammar": _show_grammar,
    "check": _check,
    "facts": _show_facts,
    "diff": _diff,
    "convert": _convert,
    "match": _match,
}


# -- values as data


def _rendering_data(rendering: Rendering) -> JsonObject:
    return {
        "text": rendering.text,
        "pieces": [_piece_data(piece) for piece in rendering.pieces],
        "changes": [str(change) for change in rendering.changes],
    }


def _piece_data(piece: Piece) -> JsonObject:
    origin = piece.origin
    line, column = piece.expression or (None, None)
    return {
        "text": piece.text,
        "line": line,
        "column": column,
        **_select(origin, "kind", "message"),
        "path": origin.field,
        "sources": [format_path(path) for path in origin.sources],
    }


def _select(value: Any, *names: str) -> JsonObject:
    return {name: getattr(value, name) for name in names}


def _event_data(event: Event, at: int) -> JsonObject:
    return {**event._asdict(), "delta": event.delta(), "at": at}


def _try(make: Callable[[], Any]) -> Any:
    """Return what a function makes, as text; an error as data."""
    try:
        return _as_text(make())
    except TurnwiseError as error:
        return {"error": describe_error(error)}


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _as_json(value: Any) -> Any:
    """Return a value as JSON data; what JSON has no word for becomes text."""
    return json.loads(json.dumps(value, default=str))
