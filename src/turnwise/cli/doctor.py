"""`turnwise doctor`: a model writes garbage; is the template the reason?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from turnwise.cli import inputs, output
from turnwise.cli.render import JsonOption
from turnwise.evidence import doctor as check_model


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
    """Check whether a template is the reason why a model writes garbage; exit with 1 if there is a problem.

    Example: turnwise doctor Qwen/Qwen2.5-7B-Instruct qwen2.5
    """
    inputs.check_stdin(template, trained or "")
    given = None if trained is None else inputs.load_template(trained, None)
    found = check_model(model, inputs.load_template(template, None), given)
    if as_json:
        output.write_json([asdict(finding) for finding in found])
    else:
        output.write_report("\n".join(map(str, found)) + "\n")
    if any(finding.well is False for finding in found):
        raise typer.Exit(output.FOUND)
