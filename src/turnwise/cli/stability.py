"""`turnwise stability`: which appended messages make a template change earlier text."""

from __future__ import annotations

from turnwise.cli import inputs, output
from turnwise.cli.encode import load_tokenizer
from turnwise.evidence.prefix_stability import Stability
from turnwise.evidence.prefix_stability import stability as measure_stability
from turnwise.messages import JsonObject
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
    found = measure_stability(inputs.load_template(template, pick), load_tokenizer(tokenizer))
    output.finish(found, _stability_data(found), as_json, found.stable)


def _stability_data(found: Stability) -> JsonObject:
    rows = []
    for row in found.rows:
        data = {
            "appending": row.kind,
            **output.select_fields(row, "status", "compared", "changed"),
        }
        if (witness := row.witness) is not None:
            data["witness"] = {
                "messages": witness.probe.messages,
                **output.select_fields(witness, "arguments", "before", "after"),
                **output.select_fields(witness.rewrite, "at", "message", "field", "decision"),
            }
            for name in ("stable_with", "helps_with"):
                pairs = getattr(row, name)
                data[name] = [{"option": option, "value": value} for option, value in pairs]
        rows.append(data)
    costs = [cost._asdict() for cost in found.late_system]
    return {
        "template": found.name,
        "stable": found.stable,
        "rows": rows,
        "late_system": costs,
    }
