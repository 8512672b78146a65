"""Help of commands: what a command takes, a line for each argument and option, in colour where somebody sees it."""

from __future__ import annotations

from typing import Any

import click

from turnwise.cli.output import localise, paint

MAX_WIDTH = 120  # of help on a wide terminal
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": MAX_WIDTH}
UNBROKEN_HYPHEN = "\u2011"


class HelpFormatter(click.HelpFormatter):
    """Paints headings and names, and breaks no line at a hyphen: flags have them."""

    def write_heading(self, heading: str) -> None:
        """Write a heading."""
        super().write_heading(paint(localise(heading), "bold"))

    def write_text(self, text: str) -> None:
        """Write paragraphs."""
        super().write_text(_prepare(text))

    def write_dl(self, rows: Any, *widths: Any, **more: Any) -> None:
        """Write names and what they are for."""
        shown = [(paint(name, "cyan"), _prepare(text)) for name, text in rows]
        super().write_dl(shown, *widths, **more)

    def getvalue(self) -> str:
        """Return all that was written."""
        return super().getvalue().replace(UNBROKEN_HYPHEN, "-")


def _prepare(text: str) -> str:
    return localise(text).replace("-", UNBROKEN_HYPHEN)


class HelpContext(click.Context):
    """A call whose help is written by our formatter."""

    formatter_class = HelpFormatter


class HelpCommand(click.Command):
    """A command whose help lists its arguments, too."""

    context_class = HelpContext

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write nothing: click calls this since 8.5, and `format_options` in all versions."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write arguments and options, each with one long name: all are parsed."""
        arguments = []
        for param in self.get_params(ctx):
            if isinstance(param, click.Argument):
                name = param.human_readable_name.strip("[]")
                arguments.append((name, getattr(param, "help", "")))
            long = [name for name in param.opts if name.startswith("--")]
            param.opts = [name for name in param.opts if name not in long[1:]]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)
        super().format_options(ctx, formatter)
