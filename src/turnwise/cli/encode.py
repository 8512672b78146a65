"""`turnwise encode` and `turnwise stops`: a conversation as tokens, and the tokens that end a reply.

Tokens are shown as chips, one behind the other, lines broken where the text breaks. On a terminal, trained tokens are
green, others plain, control tokens reversed, and what only looks like one is struck out. Without colour the same is
said in signs, `LEGEND` has them; text that has such a sign in it is shown as it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Annotated, Any
from warnings import catch_warnings, simplefilter

import typer
from rich.text import Text

from turnwise.cli import inputs, output
from turnwise.cli.render import (
    ChatArgument,
    ColourOption,
    ContinueOption,
    GenerationOption,
    JsonOption,
    LineOption,
    NowOption,
    PickOption,
    ShapeOption,
    SystemOption,
    TemplateArgument,
    ToolsOption,
    UserOption,
    VariableOption,
)
from turnwise.errors import SourceError, TokenizerError, TurnwiseWarning, did_you_mean, printable
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.loss import POLICIES
from turnwise.tokens.stop_ids import find_token_id
from turnwise.tokens.tokenizers import SHIPPED, Tokenizer
from turnwise.tokens.tokenizers import tokenizer as tokenizer_at

TokenizerOption = Annotated[
    str,
    typer.Option(
        "--tokenizer",
        "-k",
        help=f"A tokenizer file or a model folder; {SHIPPED!r} ships with the package.",
    ),
]
SIGNS = {"control": ("⟦", "⟧"), "defused": ("⟨", "⟩"), "trained": ("", ""), "plain": ("", "")}
STYLES = {
    "control": "bold reverse",
    "defused": "strike red",
    "trained": "black on green",
    "plain": "dim",
}
SHADES = ("", " underline")  # so that neighbours are told apart
LEGEND = "trained tokens end with ', others with |; ⟦control⟧, ⟨only looks like a control token⟩"


def encode(
    template: TemplateArgument,
    chat: ChatArgument = None,
    tokenizer: TokenizerOption = SHIPPED,
    train_on: Annotated[
        str, typer.Option("--train-on", help=f"What is trained: {', '.join(POLICIES)}.")
    ] = "assistant",
    max_length: Annotated[
        int | None, typer.Option("--max-length", min=1, help="Leave out the oldest rounds.")
    ] = None,
    compatible: Annotated[
        bool,
        typer.Option("--compatible", help="Encode as transformers does, forged tokens included."),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse a tokenizer that lacks the markers.")
    ] = False,
    user: UserOption = None,
    system: SystemOption = None,
    tools: ToolsOption = None,
    option: VariableOption = None,
    generation: GenerationOption = False,
    continued: ContinueOption = False,
    now: NowOption = None,
    line: LineOption = None,
    shape: ShapeOption = None,
    pick: PickOption = None,
    as_json: JsonOption = False,
    colour: ColourOption = None,
) -> None:
    """Encode a conversation: every token with what it is, and whether it is trained."""
    inputs.check_stdin(template, chat, tools)
    given = inputs.chat_of(chat, user, system, tools, line, shape)
    messages, arguments = inputs.asked(given, option, generation, continued, now)
    if train_on not in POLICIES:
        raise typer.BadParameter(
            did_you_mean(train_on, POLICIES, "Policies") or "", param_hint="--train-on"
        )
    loaded, known = inputs.template_of(template, pick), tokenizer_of(tokenizer)
    with catch_warnings(record=True) as caught:
        simplefilter("always", TurnwiseWarning)
        encoded = loaded.encode(
            messages,
            known,
            train_on,
            max_length=max_length,
            compatible=compatible,
            strict=strict,
            **arguments,
        )
    for warning in caught:
        if issubclass(warning.category, TurnwiseWarning):
            output.warn(str(warning.message))
    if as_json:
        output.write_json(as_data(encoded))
    else:
        show(encoded, output.coloured(colour))


def tokenizer_of(place: str) -> Tokenizer:
    """What --tokenizer names; if there is none, the call is wrong."""
    try:
        return tokenizer_at(place)
    except TokenizerError as error:
        raise SourceError(error.message, hint=error.hint) from None


def as_data(encoded: Encoded) -> dict[str, Any]:
    return {
        "input_ids": encoded.input_ids,
        "labels": encoded.labels,
        "tokens": encoded.tokens,
        "owners": [owner._asdict() for owner in encoded.owners],
        "control": encoded.control,
        "defused": encoded.defused,
        "text": encoded.text,
        "kept": list(encoded.kept),
        "untrained": [{"message": one.message, "reason": one.reason} for one in encoded.untrained],
        "tokenizer": {"name": encoded.tokenizer.name, "backend": encoded.tokenizer.backend},
    }


def show(encoded: Encoded, colour: bool) -> None:
    output.write_lines(chip_lines(encoded, colour), colour)
    trained = sum(encoded.mask)
    legend = "" if colour else f"; {LEGEND}"
    output.note(f"{len(encoded)} tokens, {trained} trained, {len(encoded.control)} control{legend}")
    for start, end in encoded.defused:
        output.note(
            f"{encoded.text[start:end]!r} at character {start} stayed text: a message wrote it"
        )
    for one in encoded.untrained:
        output.warn(f"not trained: {one}")
    if not isinstance(encoded.kept, range):
        output.note(f"kept messages {', '.join(map(str, encoded.kept))}")


def chip_lines(encoded: Encoded, colour: bool) -> Iterator[Text]:
    """The tokens, a new line behind every token that breaks the line."""
    line, mask = Text(), encoded.mask
    for index, (text, kind) in enumerate(zip(encoded.tokens, kinds(encoded), strict=True)):
        before, after = ("", "") if colour else SIGNS[kind]
        shown = printable(text, 10**6).replace("\n", "↵") or "·"
        edge = "" if colour else "'" if mask[index] else "|"
        style = (
            STYLES[kind]
            + (" green" if kind == "control" and mask[index] else "")
            + SHADES[index % 2]
        )
        line.append(f"{before}{shown}{after}{edge}", style)
        if "\n" in text:
            yield line
            line = Text()
    if line:
        yield line


def kinds(encoded: Encoded) -> Iterator[str]:
    """What each token is."""
    control, mask = set(encoded.control), encoded.mask
    defused, start = encoded.defused, 0
    starts = [span[0] for span in defused]
    for index, end in enumerate(encoded.ends):
        span = bisect_right(starts, max(start, end - 1)) - 1
        inside = span >= 0 and start < defused[span][1] and end > defused[span][0]
        yield (
            "control"
            if index in control
            else "defused"
            if inside
            else "trained"
            if mask[index]
            else "plain"
        )
        start = end


def stops(
    template: TemplateArgument,
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", "-k", help="A tokenizer file or folder.")
    ] = None,
    pick: PickOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print what ends a reply: texts, and with a tokenizer their ids."""
    inputs.check_stdin(template)
    known = tokenizer_of(tokenizer) if tokenizer else None
    found = inputs.template_of(template, pick).stops(known)
    if as_json:
        output.write_json({"stops": list(found), "ids": list(found.ids)})
        return
    for text in found:
        id = find_token_id(text, known) if known else None
        shown = printable(repr(text)[1:-1])
        output.write(
            f"{shown}\t{'not one token' if id is None else id}\n" if known else f"{shown}\n"
        )
    if not found:
        output.note("the template writes nothing behind a reply that would end it")
