"""`turnwise stability` and `turnwise ledger`: text that a template rewrites, and what that costs a server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer

from turnwise.analysis.rewrites import Rewrite
from turnwise.cli import inputs, output
from turnwise.cli.json_lines import read_json_lines
from turnwise.cli.render import (
    JsonOption,
    NowOption,
    PickOption,
    TemplateArgument,
    VariableOption,
    make_flag,
)
from turnwise.errors import SourceError
from turnwise.evidence import CacheLedger, LedgerTotals, LedgerTurn, TraceLine
from turnwise.evidence.prefix_stability import Stability
from turnwise.evidence.prefix_stability import stability as measure_stability

MAX_WARNINGS = 10  # of lines that cannot be read; all are counted
TRACE_HINT = 'A line is JSON such as {"messages": [...]} or {"role": "user", "content": "Hi"}.'
TemplateOption = Annotated[
    str,
    typer.Option("--template", "-t", help="A file, a model folder, a built-in name, or -."),
]
TokenizerOption = Annotated[
    str,
    typer.Option("--tokenizer", "-k", metavar="PATH", help="A tokenizer file, folder or model id."),
]


def stability(
    template: TemplateArgument, pick: PickOption = None, as_json: JsonOption = False
) -> None:
    """Show which appended messages change earlier text, and the option that prevents it; exit with 1 if one does.

    Example: turnwise stability qwen3
    """
    found = measure_stability(inputs.load_template(template, pick))
    output.finish(found, _stability_data(found), as_json, found.stable)


def _stability_data(found: Stability) -> dict[str, Any]:
    rows = []
    for row in found.rows:
        data = {
            "appending": row.kind,
            **output.select_fields(row, "status", "compared", "changed"),
        }
        if row.witness is not None:
            witness = row.witness
            data["witness"] = {
                "messages": witness.probe.messages,
                **output.select_fields(witness, "arguments", "before", "after"),
                **_rewrite_data(witness.rewrite),
            }
            data["stable_with"] = [_option_data(*pair) for pair in row.stable_with]
            data["helps_with"] = [_option_data(*pair) for pair in row.helps_with]
        rows.append(data)
    return {"template": found.name, "stable": found.stable, "rows": rows}


def _option_data(name: str, value: Any) -> dict[str, Any]:
    return {"option": name, "value": value}


def _rewrite_data(rewrite: Rewrite) -> dict[str, Any]:
    decision = rewrite.decision
    data = output.select_fields(rewrite, "at", "message", "field")
    return {**data, "decision": None if decision is None else asdict(decision)}


def ledger(
    trace: Annotated[
        str, typer.Argument(metavar="TRACE", help="JSON Lines of requests or messages, or -.")
    ],
    template: TemplateOption,
    tokenizer: TokenizerOption,
    option: VariableOption = None,
    now: NowOption = None,
    every: Annotated[
        bool, make_flag("--every", help="Show every prompt, not only those that lost tokens.")
    ] = False,
    pick: PickOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which prompts of an agent's trace lose tokens that a server had computed, and why.

    Each line is a request with `messages` and perhaps `tools`, or one message of a growing conversation. With --json,
    there is one object for each prompt, and the totals last. Exits with 1 if a token was lost or a line could not be
    read, and with 2 if there is no prompt at all.

    Example: turnwise ledger trace.jsonl -t qwen3 -k turnwise
    """
    inputs.check_stdin(trace, template)
    options = inputs.parse_options(option or [])
    # One time for all prompts: a clock that goes on would change each of them.
    time = inputs.parse_time(now) or datetime.now()
    loaded = inputs.load_template(template, pick)
    inputs.check_options(options, loaded)
    found = CacheLedger(loaded, tokenizer, time, options)
    for turn in found.add_trace(_read_trace(trace)):
        if as_json:
            data = _turn_data(turn) if isinstance(turn, LedgerTurn) else asdict(turn)
            output.write_json(data, None)
        elif isinstance(turn, LedgerTurn):
            if every or turn.lost:
                output.write_report(f"{turn}\n")
        elif found.totals.problems <= MAX_WARNINGS:
            output.warn(f"{trace}: {turn}")
    totals = found.totals
    if not totals.turns:
        problem = f"no line of {trace} is a request or a message that the template takes"
        raise SourceError(problem, hint=TRACE_HINT)
    if as_json:
        output.write_json({"totals": _totals_data(totals)}, None)
    else:
        output.write_report(f"{totals}\n")
    if totals.lost or totals.problems:
        raise typer.Exit(output.FOUND)


def _read_trace(trace: str) -> Iterator[TraceLine]:
    for line in read_json_lines(trace):
        yield TraceLine(line.number, line.value, line.problem)


def _turn_data(turn: LedgerTurn) -> dict[str, Any]:
    keys = ("line", "tokens", "reused", "computed", "lost", "cause", "previous")
    data = output.select_fields(turn, *keys)
    if turn.changed is not None:
        data["changed"] = turn.changed
    if turn.rewrite is not None:
        data |= _rewrite_data(turn.rewrite)
        data |= output.select_fields(turn.rewrite, "before", "now")
    return data


def _totals_data(totals: LedgerTotals) -> dict[str, Any]:
    keys = ("turns", "tokens", "reused", "computed", "lost", "lost_by", "problems")
    return {
        **output.select_fields(totals, *keys),
        "options": [
            {
                **_option_data(option.name, option.value),
                "computed": option.computed,
                "saves": totals.saved_with(option),
            }
            for option in totals.options
        ],
    }
