"""Rendering: the pieces of one conversation.

The text is there at once; the pieces are made when somebody asks for them, by following the trails that the program
wrote beside the texts (`trails.py`). Marks between the texts say which message a loop was at and where a
`{% generation %}` block began and ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from turnwise.engine.trails import (
    BEGIN,
    BOUND,
    DONE,
    END,
    ITEMS,
    JOINED,
    JSON,
    LOOP,
    NEXT,
    NOWHERE,
    Cache,
    Computed,
    Field,
    Leaf,
    Path,
    follow,
    runs,
)
from turnwise.errors import TemplateLimitError
from turnwise.messages import field

DIM, RESET = "\x1b[2m", "\x1b[0m"
COLOURS = ("\x1b[96m", "\x1b[93m", "\x1b[92m", "\x1b[95m", "\x1b[94m", "\x1b[91m")
COMPUTED = "\x1b[2;3m"
WALKED = 20_000  # blocks within blocks that are walked for their marks; more are only cut into runs
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
        return field(self.path) if self.path is not None else None

    def __str__(self) -> str:
        if self.kind == "template":
            return f"template {self.line}:{self.column}"
        if self.path is not None:
            return f"key of {self.field}" if self.key else str(self.field)
        return f"computed (from {', '.join(map(field, self.sources))})" if self.sources else "computed"


class Piece(NamedTuple):
    """A run of rendered text with one origin."""

    text: str
    origin: Origin


class Rendering:
    """What a template made of a conversation. `str()` is the text; `pieces` say where each part of it came from."""

    __slots__ = ("_aliases", "_nodes", "_out", "_pieces", "changes", "text")

    def __init__(
        self, text: str, out: list[Any], nodes: list[tuple[int, int]], aliases: dict[tuple[int, str], str]
    ) -> None:
        self.text = text
        self.changes: tuple[Any, ...] = ()
        self._out = out
        self._nodes = nodes
        self._aliases = aliases
        self._pieces: tuple[Piece, ...] | None = None

    def __str__(self) -> str:
        return self.text

    def __len__(self) -> int:
        return len(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rendering) and self.text == other.text and self.pieces == other.pieces

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Rendering of {len(self.text)} characters>"

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The text, cut where the origin changes."""
        if self._pieces is None:
            self._pieces = tuple(self._cut())
        return self._pieces

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.text, self.pieces, self.changes)

    def _cut(self) -> list[Piece]:
        pieces = Reading(self).read(self._out)
        left = len(self.text)
        if sum(len(piece.text) for piece in pieces) == left:
            return pieces
        kept = []  # a continued message ends before its rendering did
        for piece in pieces:
            if left > 0:
                kept.append(Piece(piece.text[:left], piece.origin))
                left -= len(piece.text)
        return kept

    def origin(self, leaf: Leaf, message: int | None, generation: bool) -> Origin:
        if type(leaf) is int:
            line, column = self._nodes[leaf]
            return Origin("template", line, column, leaf, None, False, message, generation)
        if type(leaf) is Field:
            path = self._given(leaf.path) if self._aliases else leaf.path
            message = index_in(path) if message is None else message
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
            text = "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)
            path = piece.origin.path
            if not colour:
                shown.append(text)
            elif path is None:
                shown.append(f"{DIM if piece.origin.kind == 'template' else COMPUTED}{text}{RESET}")
            else:
                shade = shades.setdefault(path, COLOURS[len(shades) % len(COLOURS)])
                shown.append(f"{shade}{text}{RESET}")
        return "".join(shown)


def _restored(text: str, pieces: tuple[Piece, ...], changes: tuple[Any, ...]) -> Rendering:
    """A rendering from another process: its pieces were made before it left."""
    rendering = Rendering(text, [], [], {})
    rendering._pieces, rendering.changes = pieces, changes
    return rendering


class Reading:
    """Walks what a program wrote, keeping count of loops and generation blocks."""

    def __init__(self, rendering: Rendering) -> None:
        self.rendering = rendering
        self.pieces: list[Piece] = []
        self.texts: list[str] = []  # of the piece that is being put together
        self.last: Origin | None = None
        self.cache = Cache()
        self.walked = 0
        self.unplaced: int | None = None  # where the pieces of a round begin whose message is not known yet
        self.loops: list[int | None] = []  # the message that each loop is at
        self.message: int | None = None
        self.generations = 0
        self.known: dict[Leaf, Origin] = {}  # origins of the message that is being written
        self.all_known: dict[tuple[int | None, bool], dict[Leaf, Origin]] = {(None, False): self.known}

    def read(self, out: Any) -> list[Piece]:
        """Pieces in order. What a block or macro wrote is walked too, for it has marks of its own."""
        walks = [zip(out[::2], out[1::2], strict=True)]
        while walks:
            for text, trail in walks[-1]:
                if not text:
                    if type(trail) is tuple:
                        self.mark(trail)
                elif type(trail) is not tuple:
                    self.put(text, NOWHERE if trail is None else trail)
                elif trail[0] is JOINED and self.walked < WALKED:
                    self.walked += 1
                    walks.append(zip(trail[1][::2], trail[1][1::2], strict=True))
                    break
                elif trail[0] is JSON and trail[5] is not None and self.known is self.all_known[None, False]:
                    self.lasting(text, trail)
                else:
                    for part, leaf in runs(text, trail, self.cache):
                        self.put(part, leaf)
            else:
                walks.pop()
        self.close()
        return self.pieces

    def put(self, text: str, leaf: Leaf) -> None:
        origin = self.known.get(leaf)
        if origin is None:
            origin = self.known[leaf] = self.rendering.origin(leaf, self.message, self.generations > 0)
        if origin is not self.last:
            self.close()
            self.last = origin
        self.texts.append(text)

    def close(self) -> None:
        """End the piece that is being put together."""
        if self.last is not None:
            if len(self.pieces) >= PIECES:
                raise TemplateLimitError("the rendering has too many pieces to list", budget="output")
            text = self.texts[0] if len(self.texts) == 1 else "".join(self.texts)
            self.pieces.append(Piece(text, self.last))
            self.last = None
        self.texts = []

    def lasting(self, text: str, trail: tuple[Any, ...]) -> None:
        """JSON of a tool that stays: its pieces were made before, unless for another program."""
        memo, key = trail[5], (id(trail[1]), trail[3], trail[4], "pieces")
        nodes, pieces = memo.get(key) or (None, [])
        self.close()
        if nodes is not self.rendering._nodes:
            before, self.pieces = self.pieces, []
            for part, leaf in runs(text, trail, self.cache):
                self.put(part, leaf)
            self.close()
            nodes, pieces, self.pieces = self.rendering._nodes, self.pieces, before
            memo[key] = (nodes, pieces)
        self.pieces += pieces

    def place(self, message: int | None) -> None:
        """The message of this round is known now: what was written before belongs to it too."""
        self.close()
        if message is not None and self.unplaced is not None:
            for index in range(self.unplaced, len(self.pieces)):
                text, origin = self.pieces[index]
                if origin.message is None:
                    self.pieces[index] = Piece(text, origin._replace(message=message))
            self.unplaced = None

    def mark(self, trail: tuple[Any, ...]) -> None:
        if trail is LOOP:
            self.loops.append(None)
        elif trail is DONE:
            self.loops.pop()
        elif trail is BEGIN:
            self.generations += 1
        elif trail is END:
            self.generations -= 1
        elif trail is NEXT:
            self.loops[-1], self.unplaced = None, len(self.pieces) + (self.last is not None)
        elif trail[0] is BOUND:
            if self.message is None and self.loops:
                self.loops[-1] = message_of(trail[1])
                self.place(self.loops[-1])
        elif self.loops:
            found = message_of(trail)
            if found is not None:
                self.loops[-1] = found
        self.message = next((message for message in reversed(self.loops) if message is not None), None)
        self.known = self.all_known.setdefault((self.message, self.generations > 0), {})


def message_of(trail: Any) -> int | None:
    """The index, if the trail leads to a whole message, or to a dict that the template made of one."""
    found = follow(trail)
    if isinstance(found, Field):
        return index_in(found.path) if len(found.path) == 2 else None
    if type(found) is tuple and found[0] is ITEMS and isinstance(found[1], dict) and "role" in found[1]:
        for key in ("content", "role"):
            for _, leaf in runs(" ", found[1].get(key)):
                index = index_in(leaf.path) if isinstance(leaf, Field) else None
                if index is not None:
                    return index
    return None


def index_in(path: Path) -> int | None:
    """The message that a path leads into."""
    index = path[1] if len(path) > 1 and path[0] == "messages" else None
    return index if isinstance(index, int) else None
