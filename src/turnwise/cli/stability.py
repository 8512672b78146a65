"""`turnwise stability`: which appended messages make a template change earlier text."""

from __future__ import annotations

from typing import Any

from turnwise.analysis.rewrites import Rewrite
from turnwise.cli import inputs, output
from turnwise.cli.encode import load_tokenizer
from turnwise.evidence.prefix_stability import Stability
from turnwise.evidence.prefix_stability import stability as measure_stability
from turnwise.tokens.tokenizers import SHIPPED


def stability(
    template: str,
    tokenizer: str = SHIPPED,
    pick: str | None = None,
    as_json: bool = False,
) -> None:
    """Show which appended messages change earlier text, and the option that prevents it; exit with 1 if one does.

    Example: turnwise stability qwen3

    Options:
        tokenizer -k: A tokenizer file or a model folder; 'turnwise' ships with the package.
    """
    loaded = inputs.load_template(template, pick)
    found = measure_stability(loaded, load_tokenizer(tokenizer))
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
    costs = [cost._asdict() for cost in found.late_system]
    return {
        "template": found.name,
        "stable": found.stable,
        "rows": rows,
        "late_system": costs,
    }


def _option_data(name: str, value: Any) -> dict[str, Any]:
    return {"option": name, "value": value}


def _rewrite_data(rewrite: Rewrite) -> dict[str, Any]:
    decision = rewrite.decision
    data = output.select_fields(rewrite, "at", "message", "field")
    return {**data, "decision": decision}
