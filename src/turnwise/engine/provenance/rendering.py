"""What `render` returns: the text of a prompt, and the origin of every part of it.

    {% for m in messages %}<|im_start|>{{ m.role }}\\n{{ m.content }}{% endfor %}

    rendering = template.render([{"role": "user", "content": "Hi"}])

    piece.text       str(piece.origin)
    '<|im_start|>'   template 1:24
    'user'           messages[0].role
    '\\n'            template 1:48
    'Hi'             messages[0].content

The text is there at once. The pieces are made when they are first asked for, by following the trails that the program
wrote beside the texts (`trails.py`); `piece_table.py` knows to which message each text belongs.

Making pieces has a budget of its own (`Limits.origins`), about a step for each piece. What lies beyond it is one piece
of kind "computed" without sources, and a `TurnwiseWarning` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, groupby, repeat
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from turnwise.engine.provenance.expressions import Position, WrittenSpan, find_span
from turnwise.engine.provenance.media import MediaPart, Span, find_media
from turnwise.engine.provenance.piece_table import OUTSIDE, PieceTable, Where, message_index
from turnwise.engine.provenance.sections import (
    SECTIONS,
    SLOT,
    UNKNOWN,
    SectionedOutput,
    SectionKey,
    SectionPieces,
)
from turnwise.engine.provenance.splitting import LOST, Follower
from turnwise.engine.provenance.trails import (
    DONE,
    LOOP,
    UNFOLLOWED,
    Computed,
    Field,
    Leaf,
    Output,
    Trail,
    Written,
    part_of_path,
    root_trail,
)
from turnwise.errors import escape_character
from turnwise.messages import Change, JsonObject, Path, PlainKind, format_path
from turnwise.messages.media import find_media_parts
from turnwise.notebook import show_html

DIM, RESET = "\x1b[2m", "\x1b[0m"
COLOURS = ("\x1b[96m", "\x1b[93m", "\x1b[92m", "\x1b[95m", "\x1b[94m", "\x1b[91m")
COMPUTED = "\x1b[2;3m"
PIECE_SIZE = 220  # bytes of a piece and its origin that are kept
MAX_SECTIONS = 2_500  # of an output, of which the pieces are kept
SMALL_BUDGET = 1000  # of a rendering that no template made
# In what writing a conversation leaves (`ReadMessages.memory`): a text without halves of surrogate pairs.
CHECKED_TEXT = "text"
new_tuple = tuple.__new__  # in half of the time of calling a named tuple
Suspects = tuple[tuple[int, str], ...]
"""The fields of which nothing is written, each as the index of its message and the key; the key is "" if that is in
doubt, and the index -1 for tools."""
VISIBLE = str.maketrans({" ": "·", "\n": "↵\n", "\t": "⇥", "\r": "␍"})
OriginKind = Literal["template", "field", "computed"]


class Origin(NamedTuple):
    """Where a piece came from, and which message was being written.

    Attributes:
        kind: "template" (its author wrote the text), "field" (an input value) or "computed".
        line, column, node: the place in the template, if its author wrote the text.
        path: the input value, such as `("messages", 0, "content")`.
        key: the text is the last key of the path, not the value.
        message: the index of the message that was being written, None outside of all messages.
        generation: whether the text is inside of a `{% generation %}` block.
        sources: paths of the values from which a computed text was made.
        part: the part of a message's content that was being written, such as `("messages", 0, "content", 1)`,
            also for the template's own text (`<|image_pad|>`).

    Example:
        >>> origin = turnwise.load("chatml").render([{"role": "user", "content": "Hi"}]).pieces[-3].origin
        >>> origin.kind, origin.field
        ('field', 'messages[0].content')
    """

    kind: OriginKind
    line: int | None = None
    column: int | None = None
    node: int | None = None
    path: Path | None = None
    key: bool = False
    message: int | None = None
    generation: bool = False
    sources: tuple[Path, ...] = ()
    part: Path | None = None

    @property
    def field(self) -> str | None:
        """The path as text: `messages[0].content`."""
        return format_path(self.path) if self.path is not None else None

    def __str__(self) -> str:
        if self.kind == "template":
            return f"template {self.line}:{self.column}"
        if self.path is not None:
            return f"key of {self.field}" if self.key else str(self.field)
        if not self.sources:
            return "computed"
        return f"computed (from {', '.join(map(format_path, self.sources))})"


class RenderingSource:
    """What a rendering was made of, which its origins need. This is that of a text that no template made.

    Attributes:
        nodes: line and column of each template node.
        aliases: reasoning keys as the caller wrote them, see `InputReader`.
        with_parts: the messages, if their content may have media parts.
    """

    nodes: Sequence[Position] = ((1, 1),)
    aliases: Mapping[tuple[int, str], str] = MappingProxyType({})
    with_parts: Sequence[Any] = ()

    def make_follower(self, is_quiet: bool = False) -> Follower:
        """Return what follows trails, within a budget; a quiet one issues no warnings."""
        return Follower(SMALL_BUDGET)

    def find_output(self, text: str) -> Output:
        """Return what the program wrote: texts and their trails, alternately."""
        return []

    def find_writers(self, text: str) -> list[WrittenSpan]:
        """Return which expressions wrote which characters of a text; none if that is not known."""
        return []


NO_TEMPLATE = RenderingSource()


class PieceFields(NamedTuple):
    text: str
    origin: Origin


class Piece(PieceFields):
    """A part of a rendered text with one origin.

    Example:
        >>> piece = turnwise.load("chatml").render([{"role": "user", "content": "Hi"}]).pieces[-3]
        >>> piece.text, str(piece.origin)
        ('Hi', 'messages[0].content')
    """

    # What the rendering was made of, its text, the texts and origins of all of its pieces, and where those start.
    _written: Any = ()

    @property
    def expression(self) -> Position | None:
        """Line and column of the expression of the template that wrote it, or of the template's own text.

        None if that is not known: after pickling. The first time that it is asked of a rendering, the conversation is
        rendered again.
        """
        if self.origin.line is not None and self.origin.column is not None:
            return self.origin.line, self.origin.column
        if not self._written:
            return None
        source, text, texts, origins, starts = self._written
        if not starts:
            # Pieces that share an origin were written by the same expression.
            starts.update(
                zip(map(id, origins), accumulate(map(len, texts), initial=0), strict=False)
            )
        span = find_span(source.find_writers(text), starts[id(self.origin)])
        return span and span.expression

    def __reduce__(self) -> Any:
        return Piece, (self.text, self.origin)


FoundPieces = tuple[list[str], list[Origin]]
"""The texts and the origins of pieces."""


class Rendering:
    """A rendered conversation.

    `str(rendering)` and `rendering.text` are the prompt. `rendering.pieces` are its parts, each
    with one origin; `spans` finds parts by their origin, `show` prints them in colours.

    Attributes:
        text: the prompt.
        changes: what was changed in the conversation, so that the template takes it.
        warnings: what was warned of, in order: text that is not written, a role that is misspelt. Python shows a
            warning once for each line of code; here each rendering has its own.
    """

    changes: tuple[Change, ...] = ()
    warnings: tuple[str, ...] = ()
    _positions: Sequence[int] | None = None  # of the messages in the caller's list
    _media: tuple[MediaPart, ...] | None = None
    _piece_table: PieceTable | None = None
    _pieces: tuple[Piece, ...] | None = None

    def __init__(
        self,
        text: str,
        source: RenderingSource = NO_TEMPLATE,
        output: Output | None = None,
        plain_kind: PlainKind = "",
        unwritten: Suspects | None = None,
    ) -> None:
        self.text = text
        self._source = source
        self._output = output  # mostly only the text is wanted
        self.plain_kind = plain_kind  # of the messages, see `find_plain_kind`
        self.unwritten = unwritten  # None if nothing is known

    def __str__(self) -> str:
        return self.text

    def __len__(self) -> int:
        return len(self.text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rendering):
            return False
        return self.text == other.text and self.pieces == other.pieces

    __hash__ = None  # type: ignore[assignment]  # as Python says that a value is not hashable

    def __repr__(self) -> str:
        told = f", {len(self.warnings)} warnings" if self.warnings else ""
        return f"<Rendering of {len(self.text)} characters{told}>"

    def __reduce__(self) -> Any:
        notes = (self.changes, self.warnings)
        return _restore_rendering, (self.text, self.pieces, notes, self.media)

    def _repr_html_(self) -> str:
        return show_html("rendering", self)

    def __dir__(self) -> list[str]:
        return ["changes", "cut", "media", "pieces", "show", "spans", "text", "warnings"]

    def note_changes(self, changes: tuple[Change, ...], positions: Sequence[int] | None) -> None:
        """Keep what was changed before rendering.

        Args:
            changes: the changes.
            positions: the index in the caller's list of each message that was rendered; None if nothing moved.
        """
        self.changes = changes
        if positions is not None:
            self._positions = positions
            self._pieces = self._media = None  # they may have been asked for, with other numbers

    @property
    def output(self) -> Output:
        """What the program wrote: texts and their trails, alternately."""
        if self._output is None:
            self._output = self._source.find_output(self.text)
        return self._output

    def make_follower(self) -> Follower:
        """Return what follows the trails of the rendering, within its budget."""
        return self._source.make_follower()

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The text, cut where the origin changes."""
        if self._pieces is None:
            texts, origins = self._join_sections() or find_pieces(self, self.piece_table)
            pieces = tuple(map(new_tuple, repeat(Piece), zip(texts, origins, strict=True)))
            # Pieces share a dictionary: few are asked what wrote them.
            shared: JsonObject = {"_written": (self._source, self.text, texts, origins, {})}
            for piece in pieces:
                piece.__dict__ = shared
            self._pieces = pieces
        return self._pieces

    @property
    def media(self) -> tuple[MediaPart, ...]:
        """The images, videos, audios and files of the conversation, in the order of their placeholders.

        Those for which the template wrote no placeholder come last; their `span` is None.

        Example:
            >>> template = turnwise.load("qwen2.5-vl")
            >>> photo = {"role": "user", "content": [{"type": "image", "image": "cat.png"}]}
            >>> rendering = template.render([photo])
            >>> [(part.kind, part.path, rendering.text[slice(*part.span)]) for part in rendering.media]
            [('image', 'messages[0].content[0]', '<|vision_start|><|image_pad|><|vision_end|>')]
        """
        if self._media is None:
            found = find_media_parts(self._source.with_parts)
            kinds = {self._path_as_given(path): kind for path, kind in found}
            # Pieces take longer than encoding, and few conversations have media.
            self._media = find_media(kinds, self.pieces) if kinds else ()
        return self._media

    @property
    def piece_table(self) -> PieceTable:
        """The texts as the program wrote them; their trails are not followed."""
        if self._piece_table is None:
            self._piece_table = PieceTable(self.output, self.text, self.make_follower())
        return self._piece_table

    def _join_sections(self) -> FoundPieces | None:
        """Return the pieces of what segments wrote; None if that takes the piece table."""
        output, source = self.output, self._source
        if type(output) is not SectionedOutput or source.aliases or self._positions is not None:
            return None
        if len(output.sections) > MAX_SECTIONS:
            return None  # the table would drop the first before it has the last
        follower = source.make_follower(is_quiet=True)
        found: FoundPieces = ([], [])
        texts, origins = found
        begin = 0
        for key, end in output.sections:
            known = SECTIONS.peek(key) or _read_section(self, key, output[begin:end], follower)
            if known is None:
                return None
            parts, own, slots, followed = known
            if own[:1] == origins[-1:] != []:
                return None  # they are one piece
            start = len(texts)
            texts += parts
            origins += own
            for number, item in slots:
                texts[start + number] = output[begin + item]
            for number, item in followed:
                written = output[begin + item : begin + item + 2]
                if not self._follow_slot(found, start + number, follower, *written):
                    return None
            begin = end
        # At least what it takes to find them, so that the budget is enough for both or for neither.
        follower.take(len(output) + 3 * len(texts))
        # What is empty may be a mark.
        is_known = not follower.problems and "" not in texts and "".join(texts) == self.text
        return found if is_known else None

    def _follow_slot(
        self, found: FoundPieces, at: int, follower: Follower, text: str, trail: Trail
    ) -> bool:
        """Put the pieces of a text in the place of a slot; return whether they are no part of those around them."""
        texts, origins = found
        if not text and type(trail) is tuple:
            return False  # a mark
        origin = origins[at]
        where = origin.message, origin.generation, origin.part
        fragments = follower.split(text, trail)
        parts, own = _merge(self, [(part, (leaf, where)) for part, leaf in fragments])
        texts[at : at + 1], origins[at : at + 1] = parts, own
        ends = at, at + len(own)
        return all(origins[max(end - 1, 0) : end] != origins[end : end + 1] for end in ends)

    @property
    def writers(self) -> list[WrittenSpan]:
        """Which expressions and texts of the template wrote which characters; empty if that is not known."""
        return self._source.find_writers(self.text)

    def hide_before(self, item: int, start: int) -> Rendering:
        """Return the same rendering without the origins of its first characters.

        Args:
            item: the index in `output` of the mark of a message that the only open loop takes.
            start: the character at which that message begins.
        """
        output = ["", LOOP, self.text[:start], LOST, *self.output[item:]]
        return Rendering(self.text, self._source, output)

    def origin(
        self, leaf: Leaf, message: int | None, generation: bool, part: Path | None = None
    ) -> Origin:
        """Return the origin of a fragment with this leaf, written in this message and content part."""
        if self._positions is not None:
            message = None if message is None else self._positions[message]
            part = None if part is None else self._path_as_given(part)
        if type(leaf) is Written:
            leaf, part = leaf
        if type(leaf) is int:
            line, column = self._source.nodes[leaf]
            return new_tuple(
                Origin, ("template", line, column, leaf, None, False, message, generation, (), part)
            )
        kind, path, key = "computed", None, False
        sources: tuple[Path, ...] = ()
        if type(leaf) is Field:
            kind, path, key = "field", self._path_as_given(leaf.path), leaf.key
            if message is None:
                message = message_index(path)
            part = part_of_path(path) or part
        elif type(leaf) is Computed:
            sources = tuple(map(self._path_as_given, leaf.sources))
            parts = set(map(part_of_path, sources))
            part = parts.pop() if len(parts) == 1 else part
        return new_tuple(
            Origin, (kind, None, None, None, path, key, message, generation, sources, part)
        )

    def _path_as_given(self, path: Path) -> Path:
        # Templates see reasoning under more keys than it was given, and messages may have been moved.
        aliases, positions = self._source.aliases, self._positions
        if (aliases or positions) and path[0] == "messages" and len(path) > 1:
            name = aliases.get(path[1:3])  # type: ignore[arg-type]  # an index and a key
            if name is not None:
                path = (*path[:2], name, *path[3:])
            if positions is not None:
                path = ("messages", positions[path[1]], *path[2:])  # type: ignore[index]  # an index
        return path

    def spans(
        self,
        where: Callable[[Origin], bool] | None = None,
        *,
        kind: OriginKind | None = None,
        field: str | None = None,
        message: int | None = None,
        generation: bool | None = None,
        part: str | None = None,
    ) -> list[Span]:
        """Find the character ranges whose origin fits all conditions.

        Args:
            where: a condition on the origin.
            kind: "template", "field" or "computed".
            field: the path of an input value, such as "messages[0].content".
            message: the index of the message that was being written.
            generation: inside or outside of `{% generation %}` blocks.
            part: the path of the content part that was being written, such as "messages[0].content[1]".

        Returns:
            `(start, end)` pairs in their order; neighbours are one range.

        Example:
            >>> import turnwise
            >>> template = turnwise.compile("{% for m in messages %}[{{ m.content }}]{% endfor %}")
            >>> template.render([{"role": "user", "content": "Hi"}]).spans(kind="field")
            [(1, 3)]
        """
        wanted = {"kind": kind, "message": message, "generation": generation, "field": field}

        def fits(origin: Origin) -> bool:
            if part is not None and part != (origin.part and format_path(origin.part)):
                return False
            if (where is not None and not where(origin)) or (field is not None and origin.key):
                return False
            return all(
                value is None or getattr(origin, name) == value for name, value in wanted.items()
            )

        spans: list[Span] = []
        start = 0
        for text, origin in self.pieces:
            end = start + len(text)
            if fits(origin):
                if spans and spans[-1][1] == start:
                    start = spans.pop()[0]
                spans.append((start, end))
            start = end
        return spans

    def cut(self, end: int) -> Rendering:
        """Return the first `end` characters with their pieces, and the media whose placeholders are whole."""
        pieces, start = [], 0
        for piece in self.pieces:
            if start >= end:
                break
            whole = len(piece.text) <= end - start
            pieces.append(piece if whole else Piece(piece.text[: end - start], piece.origin))
            start += len(piece.text)
        media = tuple(part for part in self.media if part.span is None or part.span[1] <= end)
        notes = (self.changes, self.warnings)
        return _restore_rendering(self.text[:end], tuple(pieces), notes, media)

    def show(self, colour: bool = True, whitespace: bool = False) -> str:
        """Return the text for a terminal.

        Args:
            colour: dim for the template's text, a colour for each input value, slanted if computed.
            whitespace: make spaces, tabs and line ends visible.
        """
        shades: dict[Path, str] = {}
        parts = []
        for text, origin in self.pieces:
            if whitespace:
                text = text.translate(VISIBLE)
            text = "".join(
                [
                    one if one.isprintable() or one in "\n\t" else escape_character(one)
                    for one in text
                ]
            )
            if not colour:
                shade = ""
            elif origin.path is not None:
                shade = shades.setdefault(origin.path, COLOURS[len(shades) % len(COLOURS)])
            else:
                shade = DIM if origin.kind == "template" else COMPUTED
            parts.append(f"{shade}{text}{RESET}" if shade else text)
        return "".join(parts)


def append_reply(
    prompt: Rendering, parts: Sequence[tuple[str, str | None]], message: int
) -> Rendering:
    """Return the prompt followed by a reply, as if the template had written it.

    Args:
        prompt: the rendering that the reply follows.
        parts: texts of the reply, each with the field of its message, or None for a marker.
        message: the index of the reply's message.
    """
    whole = (root_trail("messages"), message)
    out = [*prompt.output, "", LOOP, "", whole]
    for text, name in parts:
        out += (text, 0 if name is None else (whole, name))
    out += ("", DONE)
    text = prompt.text + "".join(text for text, _ in parts)
    return Rendering(text, prompt._source, out)


def _restore_rendering(
    text: str,
    pieces: tuple[Piece, ...],
    notes: tuple[tuple[Change, ...], tuple[str, ...]],
    media: tuple[MediaPart, ...],
) -> Rendering:
    rendering = Rendering(text, output=[text, LOST] if text else [])
    rendering._pieces, rendering._media = pieces, media
    rendering.changes, rendering.warnings = notes
    return rendering


def _read_section(
    rendering: Rendering, key: SectionKey, items: list[Any], follower: Follower
) -> SectionPieces | None:
    """Return the pieces of a section, and keep them; None if they may differ in more than texts."""
    slots: dict[int, bool] = {}
    size = 0
    for section in key[::2]:
        slots |= {size + item: is_known for item, is_known in section.slots.items()}
        size += section.size
    for item, is_known in slots.items():
        trail = items[item + 1]
        if not is_known or type(follower.try_resolve(trail)) is not Field:
            trail = UNKNOWN
        items[item : item + 2] = SLOT, trail
    # A round is in a loop, and others may close loops that are open before them.
    depths = accumulate([(trail is LOOP) - (trail is DONE) for trail in items[1::2]])
    opened = ["", LOOP] * max(key[1] is not None, -min(depths, default=0))
    whole = "".join(items[::2])
    table = PieceTable(opened + items, whole, follower)
    texts, origins = find_pieces(rendering, table)
    numbers = [number for number, text in enumerate(texts) if text == SLOT]
    is_open = table.where(len(table.texts))[1]  # a block goes on in the next section
    if follower.problems or is_open or not len(numbers) == len(slots) == whole.count(SLOT):
        return None  # or a text has the origin of a neighbour
    pairs = list(zip(numbers, slots, strict=True))
    followed = [pair for pair in reversed(pairs) if items[pair[1] + 1] is UNKNOWN]
    filled = [pair for pair in pairs if pair not in followed]
    known = texts, origins, filled, followed
    SECTIONS.keep(key, known, PIECE_SIZE * (1 + len(texts)))
    return known


def _merge(rendering: Rendering, rows: list[tuple[str, tuple[Leaf, Where]]]) -> FoundPieces:
    texts, origins = [], []
    for (leaf, where), group in groupby(rows, itemgetter(1)):
        texts.append("".join([text for text, _ in group]))
        origins.append(rendering.origin(leaf, *where))
    return texts, origins


def find_pieces(rendering: Rendering, table: PieceTable) -> FoundPieces:
    """Follow the trails of a piece table, within its budget."""
    paid = table.follower.take(len(table.texts))  # beside what it takes to follow them
    rows = table.find_rows(paid)
    whole = "".join(table.texts)
    rest = whole[table.starts[paid] :]
    if rest:
        rows.append((rest, (UNFOLLOWED, OUTSIDE)))
    if "".join([text for text, _ in rows]) != whole:
        table.follower.report_defect("the pieces of a rendering do not join to it")
        rows = [(whole, (UNFOLLOWED, OUTSIDE))]
    return _merge(rendering, rows)
