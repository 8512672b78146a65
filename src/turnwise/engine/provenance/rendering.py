"""Rendering: the pieces of one conversation.

The text is there at once; the pieces are made when somebody asks for them, by following the trails that the program
wrote beside the texts (`trails.py`). Which message each belongs to, the piece table says (`piece_table.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from turnwise.engine.provenance.piece_table import PieceTable, message_index
from turnwise.engine.provenance.trails import (
    DONE,
    JOINED,
    JSON,
    LOOP,
    ROOT,
    Computed,
    Field,
    Leaf,
    Path,
)
from turnwise.errors import TemplateLimitError
from turnwise.messages import format_path

DIM, RESET = "\x1b[2m", "\x1b[0m"
COLOURS = ("\x1b[96m", "\x1b[93m", "\x1b[92m", "\x1b[95m", "\x1b[94m", "\x1b[91m")
COMPUTED = "\x1b[2;3m"
PIECES = 400_000  # more than this cannot be looked at by anybody
VISIBLE = str.maketrans({" ": "·", "\n": "↵\n", "\t": "⇥", "\r": "␍"})


class Origin(NamedTuple):
    """Where a piece came from, and what was being written."""

    kind: str  # "template", "field" or "computed"
    line: int | None = None
    column: int | None = None
    node: int | None = None
    path: Path | None = None
    key: bool = False  # the text is the key at this path, not the value
    message: int | None = None
    generation: bool = False
    sources: tuple[Path, ...] = ()

    @property
    def field(self) -> str | None:
        return format_path(self.path) if self.path is not None else None

    def __str__(self) -> str:
        if self.kind == "template":
            return f"template {self.line}:{self.column}"
        if self.path is not None:
            return f"key of {self.field}" if self.key else str(self.field)
        return (
            f"computed (from {', '.join(map(format_path, self.sources))})"
            if self.sources
            else "computed"
        )


class Piece(NamedTuple):
    """A run of rendered text with one origin."""

    text: str
    origin: Origin


class Rendering:
    """What a template made of a conversation. `str()` is the text; `pieces` say where each part of it came from."""

    __slots__ = ("_aliases", "_nodes", "_out", "_piece_table", "_pieces", "changes", "text")

    def __init__(
        self,
        text: str,
        out: list[Any],
        nodes: list[tuple[int, int]],
        aliases: dict[tuple[int, str], str],
    ) -> None:
        self.text = text
        self.changes: tuple[Any, ...] = ()
        self._out = out
        self._nodes = nodes
        self._aliases = aliases
        self._piece_table: PieceTable | None = None
        self._pieces: tuple[Piece, ...] | None = None

    def __str__(self) -> str:
        return self.text

    def __len__(self) -> int:
        return len(self.text)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Rendering) and self.text == other.text and self.pieces == other.pieces
        )

    __hash__ = None  # type: ignore[assignment]  # as Python says that a value is not hashable

    def __repr__(self) -> str:
        return f"<Rendering of {len(self.text)} characters>"

    @property
    def piece_table(self) -> PieceTable:
        """The text as it was written, its trails not followed."""
        if self._piece_table is None:
            self._piece_table = PieceTable(self._out, len(self.text))
        return self._piece_table

    def tail(self, character: int) -> tuple[list[int], list[Any]]:
        """Where the texts start that reach behind this character, and the end; and their trails. Nothing is followed,
        so this costs no more than there is behind it."""
        starts, trails, at = [len(self.text)], [], len(self.text)
        for index in range(len(self._out) - 2, -1, -2):
            if at <= character:
                break
            trail = self._out[index + 1]
            block = (
                trail[1]
                if type(trail) is tuple and trail[0] is JOINED
                else self._out[index : index + 2]
            )
            for part in range(len(block) - 2, -1, -2):
                at -= len(block[part])
                starts.append(at)
                trails.append(block[part + 1])
        return starts[::-1], trails[::-1]

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The text, cut where the origin changes."""
        if self._pieces is None:
            self._pieces = tuple(PieceBuilder(self).cut(self.piece_table))
        return self._pieces

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.text, self.pieces, self.changes)

    def origin(self, leaf: Leaf, message: int | None, generation: bool) -> Origin:
        if type(leaf) is int:
            line, column = self._nodes[leaf]
            return Origin("template", line, column, leaf, None, False, message, generation)
        if type(leaf) is Field:
            path = self._given(leaf.path) if self._aliases else leaf.path
            message = message_index(path) if message is None else message
            return Origin("field", None, None, None, path, leaf.key, message, generation)
        sources = tuple(map(self._given, leaf.sources)) if isinstance(leaf, Computed) else ()
        return Origin("computed", None, None, None, None, False, message, generation, sources)

    def _given(self, path: Path) -> Path:
        """The path as the caller wrote it: reasoning is known to templates under more names than it was given."""
        if len(path) >= 3 and path[0] == "messages":
            name = self._aliases.get((path[1], path[2]))  # type: ignore[arg-type]
            if name is not None:
                return (*path[:2], name, *path[3:])
        return path

    def spans(
        self,
        where: Callable[[Origin], bool] | None = None,
        *,
        kind: str | None = None,
        field: str | None = None,
        message: int | None = None,
        generation: bool | None = None,
    ) -> list[tuple[int, int]]:
        """The character ranges whose origin fits; neighbours are one range."""
        spans: list[tuple[int, int]] = []
        at = 0
        for piece in self.pieces:
            origin, end = piece.origin, at + len(piece.text)
            fits = (
                (where is None or where(origin))
                and (kind is None or origin.kind == kind)
                and (field is None or (origin.field == field and not origin.key))
                and (message is None or origin.message == message)
                and (generation is None or origin.generation == generation)
            )
            if fits:
                if spans and spans[-1][1] == at:
                    spans[-1] = (spans[-1][0], end)
                else:
                    spans.append((at, end))
            at = end
        return spans

    def show(self, colour: bool = True, whitespace: bool = False) -> str:
        """The text for people: the template's words dim, each field in a colour of its own."""
        shades: dict[Path, str] = {}
        shown = []
        for piece in self.pieces:
            text = piece.text.translate(VISIBLE) if whitespace else piece.text
            text = "".join(
                c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text
            )
            path = piece.origin.path
            if not colour:
                shown.append(text)
            elif path is None:
                shown.append(f"{DIM if piece.origin.kind == 'template' else COMPUTED}{text}{RESET}")
            else:
                shade = shades.setdefault(path, COLOURS[len(shades) % len(COLOURS)])
                shown.append(f"{shade}{text}{RESET}")
        return "".join(shown)


def append_reply(
    prompt: Rendering, parts: Sequence[tuple[str, str | None]], message: int
) -> Rendering:
    """The prompt, and behind it what an assistant says: texts of the fields of its message, and markers (None)."""
    whole = (ROOT, "messages"), message
    out = [*prompt._out, "", LOOP, "", whole]
    for text, name in parts:
        out += (text, 0 if name is None else (whole, name))
    text = prompt.text + "".join(text for text, _ in parts)
    return Rendering(text, [*out, "", DONE], prompt._nodes or [(1, 1)], prompt._aliases)


def _restored(text: str, pieces: tuple[Piece, ...], changes: tuple[Any, ...]) -> Rendering:
    """A rendering from another process: its pieces were made before it left."""
    rendering = Rendering(text, [], [], {})
    rendering._pieces, rendering.changes = pieces, changes
    return rendering


class PieceBuilder:
    """Follows the trails of a piece table and puts the pieces together."""

    def __init__(self, rendering: Rendering) -> None:
        self.rendering = rendering
        self.pieces: list[Piece] = []
        self.texts: list[str] = []  # of the piece that is being put together
        self.last: Origin | None = None

    def cut(self, table: PieceTable) -> list[Piece]:
        known: dict[tuple[int | None, bool], dict[Leaf, Origin]] = {}
        for index, (text, trail, message, generation) in enumerate(table.rows()):
            origins = known.setdefault((message, generation), {})
            if type(trail) is int:
                self.put(text, trail, message, generation, origins)
            elif (
                type(trail) is tuple
                and trail[0] is JSON
                and trail[5] is not None
                and message is None
            ):
                self.lasting(table, index, generation, origins)
            else:
                for part, leaf in table.split(index):
                    self.put(part, leaf, message, generation, origins)
        self.close()
        return self.pieces

    def put(
        self,
        text: str,
        leaf: Leaf,
        message: int | None,
        generation: bool,
        origins: dict[Leaf, Origin],
    ) -> None:
        origin = origins.get(leaf)
        if origin is None:
            origin = origins[leaf] = self.rendering.origin(leaf, message, generation)
        if origin is not self.last:
            self.close()
            self.last = origin
        self.texts.append(text)

    def close(self) -> None:
        """End the piece that is being put together."""
        if self.last is not None:
            if len(self.pieces) >= PIECES:
                raise TemplateLimitError(
                    "the rendering has too many pieces to list", budget="output"
                )
            text = self.texts[0] if len(self.texts) == 1 else "".join(self.texts)
            self.pieces.append(Piece(text, self.last))
            self.last = None
        self.texts = []

    def lasting(
        self, table: PieceTable, index: int, generation: bool, origins: dict[Leaf, Origin]
    ) -> None:
        """JSON of a tool that stays: its pieces were made before, unless for another program."""
        trail = table.trails[index]
        memo, key = trail[5], (id(trail[1]), trail[3], trail[4], "pieces", generation)
        nodes, pieces = memo.get(key) or (None, [])
        self.close()
        if nodes is not self.rendering._nodes:
            before, self.pieces = self.pieces, []
            for part, leaf in table.split(index):
                self.put(part, leaf, None, generation, origins)
            self.close()
            nodes, pieces, self.pieces = self.rendering._nodes, self.pieces, before
            memo[key] = (nodes, pieces)
        self.pieces += pieces
