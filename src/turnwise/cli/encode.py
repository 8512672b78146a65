"""`turnwise encode` and `turnwise stops`: a conversation as tokens, and the tokens that end a reply.

Tokens are shown one after the other, with line breaks where the text has them. On a terminal, trained tokens are green,
control tokens reversed, and text that only looks like a control token is struck out. Without colour, signs tell the
same (`LEGEND`); such signs in the text itself are not escaped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from turnwise.cli import inputs, output
from turnwise.cli.render import note_changes
from turnwise.errors import SourceError, TokenizerError, WarningLog, printable
from turnwise.messages import JsonObject
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.loss import POLICIES as POLICIES
from turnwise.tokens.loss import TrainOn
from turnwise.tokens.stop_ids import find_token_id
from turnwise.tokens.tokenizers import SHIPPED, Tokenizer
from turnwise.tokens.tokenizers import tokenizer as tokenizer_at
from turnwise.tokens.truncation import OVERFLOW as OVERFLOW
from turnwise.tokens.truncation import Overflow

SIGNS = {"control": ("⟦", "⟧"), "defused": ("⟨", "⟩"), "trained": ("", ""), "plain": ("", "")}
STYLES = {
    "control": "bold reverse",
    "defused": "strike red",
    "trained": "black on_green",
    "plain": "dim",
}
SHADES = ("", " underline")  # alternate, to tell neighbours apart
LEGEND = "trained tokens end with ', others with |; ⟦control⟧, ⟨only looks like a control token⟩"


def encode(
    template: str,
    tokenizer: str = SHIPPED,
    train_on: str = "assistant",
    max_length: int | None = None,
    overflow: str = "drop_rounds",
    compatible: bool = False,
    strict: bool = False,
    pick: str | None = None,
    as_json: bool = False,
    **request: Any,
) -> None:
    """Encode a conversation and show each token: its kind, and whether it is trained.

    Example: turnwise encode qwen2.5 --user "Hi" --tokenizer turnwise

    Options:
        tokenizer -k: A tokenizer file or a model folder; 'turnwise' ships with the package.
        train_on: What is trained: {POLICIES}.
        max_length min=1: The most tokens that are wanted.
        overflow: If there are more: {OVERFLOW}.
        compatible: Encode as transformers does, forged tokens included.
        strict: Refuse a tokenizer that lacks the markers, and untrained turns.
    """
    loaded, messages, arguments = inputs.read_request(template, pick, **request)
    known = load_tokenizer(tokenizer)
    with WarningLog(is_quiet=True) as log:
        encoded = loaded.encode(
            messages,
            known,
            cast(TrainOn, train_on),
            max_length=max_length,
            overflow=cast(Overflow, overflow),
            compatible=compatible,
            strict=strict,
            **arguments,
        )
    for text in log.texts:
        output.warn(text)
    if as_json:
        output.write_json(encoded_data(encoded))
    else:
        _show(encoded)
        note_changes(encoded.rendering)


def load_tokenizer(place: str) -> Tokenizer:
    """Return the tokenizer that --tokenizer names; if there is none, the call is wrong."""
    try:
        return tokenizer_at(place)
    except TokenizerError as error:
        raise SourceError(error.message, hint=error.hint) from None


def encoded_data(encoded: Encoded) -> JsonObject:
    """Return ids, labels, and what is known of each token, as JSON takes it."""
    select = output.select_fields
    return {
        **select(
            encoded, "input_ids", "labels", "tokens", "control", "defused", "text", "warnings"
        ),
        "owners": [owner._asdict() for owner in encoded.owners],
        "kept": list(encoded.kept),
        "changes": [str(change) for change in encoded.rendering.changes],
        "untrained": [select(one, "message", "reason") for one in encoded.untrained],
        "tokenizer": select(encoded.tokenizer, "name", "backend"),
    }


def _show(encoded: Encoded) -> None:
    output.write_lines(chip_lines(encoded))
    trained = sum(encoded.mask)
    legend = "" if output.use_colour() else f"; {LEGEND}"
    output.note(f"{len(encoded)} tokens, {trained} trained, {len(encoded.control)} control{legend}")
    for start, end in encoded.defused:
        output.note(
            f"{encoded.text[start:end]!r} at character {start} stayed text: a message wrote it"
        )
    if not isinstance(encoded.kept, range):
        output.note(f"kept messages {', '.join(map(str, encoded.kept))}")


def chip_lines(encoded: Encoded) -> Iterator[output.Line]:
    """Return the tokens, with a new line after each token that has a line break."""
    return token_lines(encoded.tokens, _token_kinds(encoded), encoded.mask)


def token_lines(
    tokens: Iterable[str], kinds: Iterable[str], mask: Sequence[int]
) -> Iterator[output.Line]:
    """Return tokens as lines.

    Args:
        tokens: the text of each.
        kinds: the kind of each, a key of `STYLES`.
        mask: whether each is trained.
    """
    colour = output.use_colour()  # else signs tell the kinds
    line: list[tuple[str, str]] = []
    for index, (text, kind) in enumerate(zip(tokens, kinds, strict=True)):
        before, after = ("", "") if colour else SIGNS[kind]
        shown = printable(text, 10**6).replace("\n", "↵") or "·"
        if not colour:
            after += "'" if mask[index] else "|"
        style = STYLES[kind] + SHADES[index % 2]
        if kind == "control" and mask[index]:
            style += " green"
        line.append((f"{before}{shown}{after}", style))
        if "\n" in text:
            yield line
            line = []
    if line:
        yield line


def _token_kinds(encoded: Encoded) -> Iterator[str]:
    control = set(encoded.control)
    defused = encoded.defused
    starts = [span[0] for span in defused]
    start = 0
    for index, end in enumerate(encoded.ends):
        # The last defused span that starts before the end of the token; does it reach into the token?
        span = bisect_right(starts, max(start, end - 1)) - 1
        is_defused = span >= 0 and start < defused[span][1] and end > defused[span][0]
        if index in control:
            yield "control"
        elif is_defused:
            yield "defused"
        else:
            yield "trained" if encoded.mask[index] else "plain"
        start = end


def stops(
    template: str,
    tokenizer: str | None = None,
    pick: str | None = None,
    as_json: bool = False,
) -> None:
    """Print the texts that end a reply, and with a tokenizer their ids.

    Example: turnwise stops qwen2.5 --tokenizer turnwise

    Options:
        tokenizer -k: A tokenizer file or folder.
    """
    inputs.check_stdin(template)
    known = load_tokenizer(tokenizer) if tokenizer else None
    found = inputs.load_template(template, pick).stops(known)
    if as_json:
        output.write_json({"stops": list(found), "ids": list(found.ids)})
        return
    for text in found:
        line = printable(repr(text)[1:-1])
        if known:
            id = find_token_id(text, known)
            line += "\tnot one token" if id is None else f"\t{id}"
        output.write(f"{line}\n")
    if not found:
        output.note("the template writes nothing after a reply that would end it")
