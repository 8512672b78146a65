"""`turnwise conform`: the prompts of a running engine, or of a maker's encoder, against those of a template."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from turnwise.cli import inputs, output
from turnwise.cli.http_client import JsonClient
from turnwise.evidence.conform import ENGINES, Conformance, Engine, conform, detect_engine
from turnwise.messages import JsonObject
from turnwise.oracles import ORACLES, find_oracle
from turnwise.registry.files import find_encoder_file
from turnwise.template import Template, compile_jinja

HEADER = r"([^:\s]+)\s*:\s*(.*?)\s*"


def conform_engine(
    url: str,
    template: str | None = None,
    oracle: str | None = None,
    trust_encoder: bool = False,
    engine: str | None = None,
    model: str | None = None,
    header: list[str] | None = None,
    timeout: float = 30.0,
    limit: int | None = None,
    now: str | None = None,
    pick: str | None = None,
    as_json: bool = False,
) -> None:
    """Compare the prompts of a running engine with its template; show the smallest conversation that differs.

    With --oracle, compare a template with the encoder that its maker publishes, or with another template.
    Exits with 0 if there is no difference, with 1 if there is one, and with 2 on any error.

    Example: turnwise conform http://localhost:8080

    Arguments:
        url URL: A server of vLLM or llama.cpp: http://localhost:8000; with --oracle, a template.

    Options:
        template -t: What it serves, if it does not tell: a file, a name.
        oracle: The maker's encoder: a name, a model's folder; or another template.
        trust_encoder: Run the encoder of that folder, in a locked process.
        engine: {ENGINES}, if not found out.
        model: The model, of several.
        header NAME:VALUE: A header to send.
        timeout min=0.1: Seconds to wait for an answer.
        limit min=1: The most conversations to try.
    """
    time = inputs.parse_time(now) or datetime.now()
    other: Engine | Template
    if oracle is not None:
        given, other = inputs.load_template(url, pick), _find_other(oracle, trust_encoder)
    else:
        headers = inputs.split_pairs(header, "name:value", HEADER, "--header")
        ask = JsonClient(url, timeout, headers).ask
        other = ENGINES[engine](ask, model) if engine else detect_engine(ask, model)
        given = _find_template(other, template, pick)
    found = conform(given, other, time, limit)
    output.finish(found, _as_data(found), as_json, found.equal)


def _find_other(name: str, trust_encoder: bool) -> Engine | Template:
    """Return what a template is compared with: an oracle, the encoder of a folder, or a template."""
    path = Path(name)
    has_encoder = path.suffix == ".py" or (path.is_dir() and find_encoder_file(path))
    if name in ORACLES or has_encoder:
        return find_oracle(name, trust_encoder=trust_encoder)
    return inputs.load_template(name, None)


def _find_template(engine: Engine, template: str | None, pick: str | None) -> Template:
    """Return the template of the call, else the one that the engine tells, with the special tokens of the engine."""
    served = engine.served_template()
    if template is None:
        if served is None:
            raise click.BadParameter(
                f"{engine.name} does not tell which template it serves: name it",
                param_hint="--template",
            )
        text, tokens = served
        return compile_jinja(text, name="served", options=tokens)
    given = inputs.load_template(template, pick)
    tokens = {} if served is None else served[1]
    missing = {name: text for name, text in tokens.items() if not given.options.get(name)}
    return given.with_options(missing)


def _as_data(found: Conformance) -> JsonObject:
    names = ("engine", "version", "equal", "tried", "refused", "declined", "differing", "also")
    data = output.select_fields(found, *names)
    difference = found.difference
    if difference is not None:
        shown = ("kind", "request", "expected", "got", "at", "decision")
        data["difference"] = output.select_fields(difference, *shown)
        if piece := difference.piece:
            data["difference"]["piece"] = {"text": piece.text, "origin": str(piece.origin)}
    return data
