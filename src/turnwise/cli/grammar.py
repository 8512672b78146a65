"""`turnwise grammar`: which replies may be written, in the language of a constrained decoder or of a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import click

from turnwise.cli import inputs, output
from turnwise.replies.export.gbnf import GbnfGrammar
from turnwise.replies.export.response_template import ProfileName
from turnwise.replies.grammar import Grammar

TARGETS = ("structural-tag", "lark", "gbnf", "response-template")


def grammar(
    template: str,
    tools: str | None = None,
    to: str = TARGETS[0],
    choice: str = "auto",
    reasoning: bool | None = None,
    one_call: bool = False,
    content: str | None = None,
    profile: str = "transformers",
    pick: str | None = None,
    as_json: bool = False,
) -> None:
    """Print a grammar of the replies that a template's model may write with some tools.

    Example: turnwise grammar qwen3 --to response-template

    Options:
        to: One of {TARGETS}.
        choice: auto, required, or the name of a tool.
        reasoning --reasoning/--no-reasoning: Require reasoning, or leave it out.
        one_call: Accept one call in a reply.
        content FILE: A JSON schema for the content.
        profile: Of a response template: transformers or serving.
    """
    inputs.check_stdin(template, tools or "", content or "")
    found = inputs.load_template(template, pick).grammar
    if to == "response-template":
        output.write_json(
            found.to_response_template(profile=cast(ProfileName, profile), partly=True)
        )
        return
    if tools is None:
        raise click.BadParameter("a grammar of calls needs the tools", param_hint="--tools")
    schema = None if content is None else inputs.read_json(content)
    written = MAKERS[to](
        found,
        inputs.read_tools(tools),
        choice,
        reasoning=reasoning,
        parallel=not one_call,
        content=schema,
    )
    if as_json or not isinstance(written, (str, GbnfGrammar)):
        output.write_json(written._asdict() if isinstance(written, GbnfGrammar) else written)
    elif isinstance(written, str):
        output.write(written)
    else:
        _write_gbnf(written)


def _write_gbnf(gbnf: GbnfGrammar) -> None:
    """Write the grammar; what else llama.cpp's server takes is in its comments."""
    notes = {"grammar_triggers": gbnf.triggers, "preserved_tokens": gbnf.preserved_tokens}
    for name, texts in notes.items():
        output.write(f"# {name} {json.dumps(texts, ensure_ascii=False)}\n")
    output.write(gbnf.grammar)


MAKERS: dict[str, Callable[..., Any]] = {
    "structural-tag": Grammar.to_structural_tag,
    "lark": Grammar.to_lark,
    "gbnf": Grammar.to_gbnf,
}
