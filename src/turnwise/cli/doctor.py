"""`turnwise doctor`: the model writes garbage; is it the template?"""

from __future__ import annotations

from typing import Annotated

import typer

from turnwise.cli import inputs, output
from turnwise.cli.render import JsonOption
from turnwise.evidence import doctor as examined


def doctor(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The id of the model.")],
    template: Annotated[
        str, typer.Argument(metavar="TEMPLATE", help="The template that it is used with.")
    ],
    trained: Annotated[
        str | None, typer.Option("--trained", help="The template that it was trained with.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Look for what may be wrong with a template for a model, with the evidence; exit with 1 if there is something."""
    inputs.check_stdin(template, trained or "")
    given = None if trained is None else inputs.template_of(trained, None)
    found = examined(model, inputs.template_of(template, None), given)
    if as_json:
        output.write_json(
            [{"check": one.check, "well": one.well, "evidence": one.evidence} for one in found]
        )
    else:
        output.write("\n".join(map(str, found)) + "\n")
    if not all(one.well for one in found):
        raise typer.Exit(1)
