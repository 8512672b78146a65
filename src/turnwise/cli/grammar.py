"""`turnwise grammar`: which replies may be written, in the language of a constrained decoder or of a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

import typer

from turnwise.cli import inputs, output
from turnwise.cli.render import PickOption, TemplateArgument, ToolsOption, make_flag
from turnwise.errors import did_you_mean
from turnwise.replies.grammar import Grammar

TARGETS = ("structural-tag", "lark", "gbnf", "response-template")


def grammar(
    template: TemplateArgument,
    tools: ToolsOption = None,
    to: Annotated[str, typer.Option("--to", help=f"One of {', '.join(TARGETS)}.")] = TARGETS[0],
    choice: Annotated[
        str, typer.Option("--choice", help="auto, required, or the name of a tool.")
    ] = "auto",
    reasoning: Annotated[
        bool | None,
        make_flag("--reasoning/--no-reasoning", help="Require reasoning, or leave it out."),
    ] = None,
    one_call: Annotated[bool, make_flag("--one-call", help="Accept one call in a reply.")] = False,
    content: Annotated[
        str | None,
        typer.Option("--content", metavar="FILE", help="A JSON schema for the content."),
    ] = None,
    profile: Annotated[
        str,
        typer.Option("--profile", help="Of a response template: transformers or serving."),
    ] = "transformers",
    pick: PickOption = None,
) -> None:
    """Print a grammar of the replies that a template's model may write with some tools.

    Example: turnwise grammar qwen3 --tools tools.json --to lark --choice required
    """
    inputs.check_stdin(template, tools or "", content or "")
    if to not in TARGETS:
        raise typer.BadParameter(did_you_mean(to, TARGETS, "Accepted") or "", param_hint="--to")
    found = inputs.load_template(template, pick).grammar
    if to == "response-template":
        output.write_json(found.to_response_template(profile=profile, partly=True))
        return
    if tools is None:
        raise typer.BadParameter("a grammar of calls needs the tools", param_hint="--tools")
    schema = None if content is None else inputs.read_json(content)
    options: dict[str, Any] = {
        "reasoning": reasoning,
        "parallel": not one_call,
        "content": schema,
    }
    WRITERS[to](found, inputs.read_tools(tools), choice, options)


def _write_structural_tag(found: Grammar, tools: Any, choice: str, options: Any) -> None:
    output.write_json(found.to_structural_tag(tools, choice, **options))


def _write_lark(found: Grammar, tools: Any, choice: str, options: Any) -> None:
    output.write(found.to_lark(tools, choice, **options))


def _write_gbnf(found: Grammar, tools: Any, choice: str, options: Any) -> None:
    """Write the grammar; what else llama.cpp's server takes is in its comments."""
    gbnf = found.to_gbnf(tools, choice, **options)
    notes = {"grammar_triggers": gbnf.triggers, "preserved_tokens": gbnf.preserved_tokens}
    for name, texts in notes.items():
        output.write(f"# {name} {json.dumps(texts, ensure_ascii=False)}\n")
    output.write(gbnf.grammar)


WRITERS: dict[str, Callable[[Grammar, Any, str, Any], None]] = {
    "structural-tag": _write_structural_tag,
    "lark": _write_lark,
    "gbnf": _write_gbnf,
}
