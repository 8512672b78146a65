"""`turnwise diff` and `turnwise convert`: two templates side by side, and one in another dialect."""

from __future__ import annotations

import json
from dataclasses import replace

from turnwise.analysis.counterexample import (
    TRAINED,
    passed_arguments,
    rendered_text,
)
from turnwise.cli import inputs, output
from turnwise.cli.options import check_choice
from turnwise.dialects import DIALECTS, WRITABLE
from turnwise.errors import SourceError
from turnwise.evidence import Comparison, diff
from turnwise.messages import JsonObject
from turnwise.registry.revisions import load_revision


def compare(
    first: str,
    second: str | None = None,
    against_revision: str | None = None,
    tokenizer: str | None = None,
    text_only: bool = False,
    exact: bool = False,
    as_json: bool = False,
) -> None:
    """Compare two templates; on a difference, show the smallest conversation on which they differ.

    If there is none, the branches of the templates are listed that no conversation reached.

    Exits with 0 if there is no difference, with 1 if there is one, and with 2 on any error.

    Example: turnwise diff qwen2.5 qwen3

    Arguments:
        first A: A file, a folder, a built-in name, or - for stdin.
        second B: Another.

    Options:
        against_revision REV: Compare A with itself as it was: in git, or in the cache of the hub.
        tokenizer PATH: Compare labels, too, with this one.
        text_only: Do not compare what {% generation %} blocks mark.
    """
    inputs.check_stdin(first, second)
    if (second is None) == (against_revision is None):
        raise SourceError("diff compares A with B, or with --against-revision REV")
    given = inputs.load_template(first, None, exact)
    if against_revision:
        pair = (load_revision(first, against_revision), given)
    else:
        pair = (given, inputs.load_template(second or "", None, exact))
    found = diff(*pair, tokenizer, masks=not text_only)
    if against_revision and found.witness:
        found = replace(found, witness=replace(found.witness, names=(against_revision, "now")))
    output.finish(found, _as_data(found), as_json, found.equal)


def _as_data(found: Comparison) -> JsonObject:
    data = output.select_fields(found, "equal", "tried", "covers", "options")
    data["coverage"] = output.select_fields(
        found.coverage, "reached", "total", "uncounted", "unreached"
    )
    if witness := found.witness:
        data["witness"] = {
            "messages": witness.probe.messages,
            "arguments": passed_arguments(witness.probe),
            **output.select_fields(witness, "kind", "at", "decision"),
        }
        outcomes = (witness.a, witness.b)
        sides = zip("ab", outcomes, witness.pieces, witness.trained, strict=True)
        for name, outcome, piece, spans in sides:
            side: JsonObject = {"text": rendered_text(outcome)}
            if isinstance(outcome, Exception):
                side = {"refuses": outcome.message}
            if piece:
                side["piece"] = {"text": piece.text, "origin": str(piece.origin)}
            if witness.kind in TRAINED:
                side["trained"] = spans
            data["witness"][name] = side
    return data


def convert(
    template: str,
    to: str,
    eos: str | None = None,
    bos: str | None = None,
    without: list[str] | None = None,
    pick: str | None = None,
    exact: bool = False,
    as_json: bool = False,
) -> None:
    """Write a template in another dialect; the result is verified, or refused with the reason.

    Example: turnwise convert chatml --to ollama

    Options:
        to DIALECT: One of [WRITABLE].
        eos: The text of eos_token, where the target needs it.
        bos: The text of bos_token, where the target needs it.
        without: What may be lost: tools, reasoning, images, white space, options, or an option.
    """
    if to not in DIALECTS:
        check_choice(to, WRITABLE, "--to")
    found = inputs.load_template(template, pick, exact)
    text = found.convert(to, eos_token=eos, bos_token=bos, without=without or ())
    if as_json:
        output.write_json({"dialect": to, "source": text})
        return
    if not isinstance(text, str):
        text = json.dumps(text, ensure_ascii=False, indent=2)
    output.write(text.removesuffix("\n") + "\n")
