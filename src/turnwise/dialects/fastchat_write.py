r"""Write turns as a FastChat Conversation: find the style that fits, and the texts of its fields.

A row of `fastchat_styles.STYLES` is asked what it writes around known texts while its fields hold
*unknowns*: private characters that stand for a text that is not known yet. The answer is a pattern;
matched with what the turns write around the same texts, it gives the text of each unknown:

    row CHATML, roles[0] unknown:  "\ue000\n" + message + ...
    the turns:                     "<|im_start|>user\n" + message + ...
    so roles[0] is                 "<|im_start|>user"

Every row that fits gives a source, in the order of the table. That a row changes the text of a
message (LLAMA3 trims it) is not seen here, so the caller must try the sources.

If no row fits, less is required (`REQUIREMENTS`): first the end of the last reply is given up, then
a conversation without a system text, and so on down to the generation prompt. What was given up is
then not expressed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from turnwise.dialects.fastchat_jinja import JinjaExpression, write_system_prompt
from turnwise.dialects.fastchat_styles import (
    STYLES,
    FastChatSpec,
    SeparatorStyle,
    TurnPosition,
    fill_text,
)
from turnwise.dialects.turns import Slot, Turns, fill_slots, split_at_text
from turnwise.messages import JsonObject

# The unknowns, one private character each.
ROLE0, ROLE1, SEP, SEP2, SYSTEM_HEAD, SYSTEM_TAIL, SYSTEM_MESSAGE = map(chr, range(0xE000, 0xE007))
UNKNOWN = re.compile(f"([{ROLE0}-{SYSTEM_MESSAGE}])")
MESSAGE = "\ue010"  # the text of every message

# Where one unknown may end and the next begin: after white space or a closing bracket, before an
# opening one.
SEAM = re.compile(r"(?<=\s)(?=\S)|(?<=[\]>)}#])(?=.)|(?<=.)(?=[\[<({#])", re.DOTALL)
MAX_SEAMS = 16
SYSTEM_FIELDS = (
    ("{system_message}", ""),
    ("{system_message}", SYSTEM_MESSAGE),
    (SYSTEM_HEAD + "{system_message}" + SYSTEM_TAIL, ""),
    (SYSTEM_HEAD + "{system_message}" + SYSTEM_TAIL, SYSTEM_MESSAGE),
    (SYSTEM_HEAD, ""),  # the system text is left out
)
"""`system_template` and `system_message`, the simplest first."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The texts around the messages of a conversation; without a system text, unless it says so."""

    end: str  # after a final reply, as if another turn followed
    final: str  # after a final reply
    user_to_reply: str
    reply_to_user: str
    user_to_prompt: str  # after the last user message of a prompt
    start_to_user: str
    start_to_system: str  # before a system text
    system_to_user: str


_ROUNDS = ("user_to_reply", "reply_to_user", "user_to_prompt")
_SYSTEM = ("start_to_system", "system_to_user")
_NO_SYSTEM = ("start_to_user",)
_WITHOUT_SYSTEM_TEXT: tuple[tuple[str, ...], ...] = (
    ("end", *_ROUNDS, *_NO_SYSTEM),
    ("final", *_ROUNDS, *_NO_SYSTEM),
    (*_ROUNDS, *_NO_SYSTEM),
    ("end", "reply_to_user", "user_to_prompt", *_NO_SYSTEM),
    ("reply_to_user", "user_to_prompt", *_NO_SYSTEM),
    ("reply_to_user", "user_to_prompt"),
    ("user_to_prompt",),
)
REQUIREMENTS: tuple[tuple[str, ...], ...] = (
    ("end", *_ROUNDS, *_SYSTEM, *_NO_SYSTEM),
    ("final", *_ROUNDS, *_SYSTEM, *_NO_SYSTEM),
    (*_ROUNDS, *_SYSTEM, *_NO_SYSTEM),
    ("end", *_ROUNDS, *_SYSTEM),
    ("final", *_ROUNDS, *_SYSTEM),
    *_WITHOUT_SYSTEM_TEXT,
)
"""The texts that a row must write, fewer and fewer; first the one that settles most unknowns."""


UNRELEASED_FIELDS = ("system_message_vision", "max_image_size_mb")


def write(turns: Turns, name: str = "template", eos_token: str | None = None) -> list[JsonObject]:
    """Return Conversations for these turns as dicts of their fields, or the nearest there are.

    Args:
        turns: what the template writes.
        name: the name of the Conversation.
        eos_token: the text of the token that ends a reply, if one does.
    """
    wanted = _surroundings_of_turns(turns, eos_token or "")
    stops = list(turns.stops)
    stop_str = {"stop_str": stops[0] if len(stops) == 1 else stops or None}
    for required in REQUIREMENTS if turns.system is not None else _WITHOUT_SYSTEM_TEXT:
        fitted = [_fit(candidate, wanted, required) for candidate in _list_candidates(name)]
        specs = dict.fromkeys(spec for spec in fitted if spec is not None)
        if specs:
            ranked = sorted(specs, key=partial(_rank, has_system=turns.system is not None))
            return [_to_source(spec) | stop_str for spec in ranked]
    nothing = FastChatSpec(name, sep="", sep_style=SeparatorStyle.NO_COLON_SINGLE)
    return [_to_source(nothing) | stop_str]


def _list_candidates(name: str) -> Iterator[FastChatSpec]:
    """Return every row, with unknowns for its fields."""
    for style, row in STYLES.items():
        for spec_name in filter(None, (name, *(row.first_rounds or ()))):
            for system_template, system_message in SYSTEM_FIELDS:
                yield FastChatSpec(
                    spec_name,
                    system_template=system_template,
                    system_message=system_message,
                    roles=(ROLE0, ROLE1),
                    sep_style=style,
                    sep=SEP,
                    sep2=SEP2,
                )


def _rank(spec: FastChatSpec, has_system: bool) -> tuple[bool, bool, int, int]:
    """Rank natural ones first: with filled separators, short fields, and a system text only where the turns have one.

    A style that writes the bos token comes after the others: most tokenizers add one to it.
    """
    empty_separators = sum(not getattr(spec, key) for key in spec.style.required)
    texts = (spec.system_template, spec.system_message, *spec.roles, spec.sep_text, spec.sep2_text)
    is_other = ("{system_message}" in spec.system_template) != has_system
    return bool(spec.style.bos), is_other, empty_separators, sum(map(len, texts))


def _to_source(spec: FastChatSpec) -> JsonObject:
    fields = spec.to_dict() | {"roles": list(spec.roles), "messages": []}
    # Nothing writes them, and the package that FastChat released (0.2.36) does not know them.
    return {name: value for name, value in fields.items() if name not in UNRELEASED_FIELDS}


# -- solving for the unknowns ----------------------------------------------------------------------

Tokens = tuple[str, ...]  # texts and unknowns
Known = Mapping[str, str]  # unknowns and their texts


def _fit(
    candidate: FastChatSpec, wanted: Surroundings, required: Sequence[str]
) -> FastChatSpec | None:
    """Return the row with texts for its unknowns, if it can write what is required."""
    written = _surroundings_of_spec(candidate)
    equations = []
    for part in required:
        tokens = tuple(filter(None, UNKNOWN.split(getattr(written, part))))
        equations.append((tokens, getattr(wanted, part)))
    solution = next(_solve(equations, {}, True), None) or next(_solve(equations, {}, False), None)
    if solution is None:
        return None

    def fill_format(unknown: re.Match[str]) -> str:
        return solution.get(unknown[0], "").replace("{", "{{").replace("}", "}}")

    return replace(
        candidate,
        system_template=UNKNOWN.sub(fill_format, candidate.system_template),
        system_message=solution.get(SYSTEM_MESSAGE, ""),
        roles=(solution.get(ROLE0, "USER"), solution.get(ROLE1, "ASSISTANT")),
        sep=solution.get(SEP, ""),
        sep2=solution.get(SEP2, "") if "sep2" in candidate.style.required else None,
    )


def _solve(
    equations: Sequence[tuple[Tokens, str]], known: Known, strict_roles: bool
) -> Iterator[Known]:
    """Yield texts for the unknowns with which each pattern equals its text.

    With `strict_roles` the text of a role does not start with white space.
    """
    if not equations:
        yield known
        return
    tokens, text = equations[0]
    for solution in _match(tokens, text, known, strict_roles):
        yield from _solve(equations[1:], solution, strict_roles)


def _match(tokens: Tokens, text: str, known: Known, strict_roles: bool) -> Iterator[Known]:
    """The same for one pattern."""
    if not tokens:
        if not text:
            yield known
        return
    token, rest = tokens[0], tokens[1:]
    value = known.get(token) if UNKNOWN.fullmatch(token) else token
    if value is not None:
        if text.startswith(value):
            yield from _match(rest, text[len(value) :], known, strict_roles)
        return
    for end in _find_ends(tokens, text, known):
        value = text[:end]
        if strict_roles and token in (ROLE0, ROLE1) and value[:1].isspace():
            continue
        yield from _match(rest, text[end:], {**known, token: value}, strict_roles)


def _find_ends(tokens: Tokens, text: str, known: Known) -> Iterable[int]:
    """Return where the first token, which is an unknown, may end."""
    unknown = [token for token in tokens if UNKNOWN.fullmatch(token) and token not in known]
    if len(set(unknown)) == 1:
        # The lengths decide: the rest of the text is shared by the occurrences of the unknown.
        fixed = sum(len(known.get(token, token)) for token in tokens if token not in unknown)
        left = len(text) - fixed
        return [left // len(unknown)] if left >= 0 and left % len(unknown) == 0 else []
    if len(tokens) > 1 and not UNKNOWN.fullmatch(tokens[1]):
        return _limit([match.start() for match in re.finditer(re.escape(tokens[1]), text)])
    return _find_seams(text)


@lru_cache(256)
def _find_seams(text: str) -> list[int]:
    return _limit([0, *(match.start() for match in SEAM.finditer(text)), len(text)])


def _limit(positions: list[int]) -> list[int]:
    """Keep the first and the last: a long text has many positions, and pairs of them are tried."""
    if len(positions) <= MAX_SEAMS:
        return positions
    return positions[: MAX_SEAMS // 2] + positions[-MAX_SEAMS // 2 :]


# -- the texts around messages ---------------------------------------------------------------------


def _surroundings_of_turns(turns: Turns, eos: str) -> Surroundings:
    before_user, after_user = split_at_text(turns.user)
    first_user = fill_slots(before_user, 0)
    user_suffix = fill_slots(after_user, 0)
    system_parts = split_at_text(turns.system or (Slot("text"),))
    system_head, system_tail = (fill_slots(part, 0) for part in system_parts)
    before_system = first_user if turns.system_in_user else ""
    default = ""
    if turns.default_system is not None:
        default = system_head + turns.default_system + system_tail
    final = turns.reply_suffix + (eos if turns.eos else "")
    return Surroundings(
        end=final + turns.separator,
        final=final,
        user_to_reply=user_suffix + turns.before_reply,
        reply_to_user=final + turns.separator + fill_slots(before_user, 1),
        user_to_prompt=user_suffix + turns.generation_prompt,
        start_to_user=(turns.prefix + default + first_user).removeprefix(turns.bos),
        start_to_system=(turns.prefix + before_system + system_head).removeprefix(turns.bos),
        system_to_user=system_tail + ("" if turns.system_in_user else first_user),
    )


@lru_cache(512)
def _surroundings_of_spec(spec: FastChatSpec) -> Surroundings:
    """Return what a row writes after its bos token; a test compares it with the row's Jinja."""
    rounds = ["user", "assistant", "user"]
    bare = render_conversation(spec, rounds, system=False).split(MESSAGE)
    full = render_conversation(spec, rounds, system=True).split(MESSAGE)
    finished = render_conversation(
        spec, ["user", "assistant"], system=False, generation_prompt=False
    )
    end = finished.split(MESSAGE)[2]
    return Surroundings(
        end=end,
        final=end,
        user_to_reply=bare[1],
        reply_to_user=bare[2],
        user_to_prompt=bare[3],
        start_to_user=bare[0],
        start_to_system=full[0],
        system_to_user=full[1],
    )


def render_conversation(
    spec: FastChatSpec, roles: Sequence[str], system: bool, generation_prompt: bool = True
) -> str:
    """Render a conversation in which every text is `MESSAGE`, as the row writes it."""
    style = spec.style
    system_message = MESSAGE if system else spec.system_message
    parts = []
    for term in write_system_prompt(spec, has_message=bool(system_message)):
        parts.append(system_message if isinstance(term, JinjaExpression) else term)
    round_number = style.first_round(spec)
    for index, role in enumerate(roles):
        is_user = role == "user"
        turn = TurnPosition(
            spec.roles[0 if is_user else 1],
            even=is_user,
            first=index == 0,
            last=index + 1 == len(roles),
        )
        if style.first_rounds and is_user:
            parts.append(f"[Round {round_number}]{spec.sep_text}")
            round_number += 1
        parts.append(style.before(spec, turn))
        parts += [MESSAGE, style.after(spec, turn), style.gap(spec, turn)]
    if generation_prompt:
        parts.append(style.pending(spec, TurnPosition(spec.roles[1], even=False)))
    return "".join([*parts, fill_text(style.end, spec)])
