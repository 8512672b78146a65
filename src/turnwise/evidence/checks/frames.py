"""T703: what the template writes around messages. The markers of a turn are those of its role, in every conversation.

What the template itself wrote around the content of a message is its *frame*.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from turnwise.analysis.conversations import Probe
from turnwise.analysis.rewrites import common_length
from turnwise.analysis.stops import MARKER
from turnwise.engine.provenance.rendering import Origin, Rendering
from turnwise.evidence.checks.catalogue import Check
from turnwise.evidence.checks.findings import Symptom, Symptoms
from turnwise.evidence.checks.subject import Subject
from turnwise.evidence.checks.symptoms import show_written
from turnwise.evidence.checks.whole_texts import is_of, list_renderings
from turnwise.messages import Path

HEADER_END = re.compile(r"\n| \S")  # `<|im_start|>system name=<|plugin|>`
TAG = re.compile(r"<(/?)([A-Za-z][\w:-]*)(?=[\s=>])")
JOINED_TAGS = re.compile(r"</([\w:]+)>(<)\1>")
BEGINNING = re.compile(r"(?i)(<[^<>\s]*?)(begin|start|bos)(?![a-z])([^<>\s]*>)")
BORROWED = (("system", "user"), ("user", "assistant"))
ROLE_NAMES = "system|user|assistant|model|chatbot|developer|ipython"
TURN = re.compile(rf"\s*(\S*?)(?i:{ROLE_NAMES})(\n*)")
NO_PAIRS = ("think", "s")  # a reply may hold one half of the first; the other is a stop


class MessageFrame(NamedTuple):
    """What the template wrote around the content of a message.

    Attributes:
        role: the role of the message.
        message: its index.
        opening: the text before its content.
        closing: the text after its content.
        start: the index of the first character of the opening.
        end: the index of the first character of the closing.
        probe: the conversation.
    """

    role: str
    message: int
    opening: str
    closing: str
    start: int
    end: int
    probe: Probe


Frames = Sequence[MessageFrame]
OddPlaces = Iterator[tuple[str, Probe, int]]
"""What is wrong, the conversation, and the index of the first character that is."""


def list_frames(probe: Probe, rendering: Rendering) -> Iterator[MessageFrame]:
    """Yield the frames of the messages whose content is written once."""
    positions = []
    start = 0
    for text, origin in rendering.pieces:
        positions.append((start, text, origin))
        start += len(text)
    for index, message in enumerate(probe.messages):
        path: Path = ("messages", index, "content")
        own = [n for n, (_, _, origin) in enumerate(positions) if is_of(origin, path)]
        if not own or own[-1] - own[0] != len(own) - 1:
            continue
        first, last = own[0], own[-1]
        while first and _is_frame(positions[first - 1][2], index):
            first -= 1
        while last + 1 < len(positions) and _is_frame(positions[last + 1][2], index):
            last += 1
        opening = "".join(text for _, text, _ in positions[first : own[0]])
        closing = "".join(text for _, text, _ in positions[own[-1] + 1 : last + 1])
        end = positions[own[-1]][0] + len(positions[own[-1]][1])
        role = str(message["role"])
        yield MessageFrame(role, index, opening, closing, positions[first][0], end, probe)


def _is_frame(origin: Origin, message: int) -> bool:
    """Whether a piece is text of the template while it writes a message, or the role of the message."""
    if origin.message != message:
        return False
    path = origin.path or ("",)
    is_option = path[0] not in ("", "messages", "tools", "documents")  # `eos_token`
    return origin.kind == "template" or is_option or path[2:3] == ("role",)


def check_frames(subject: Subject) -> Symptoms:
    """The markers around a message are not those of its role, or not the same in every conversation.

    ## What it does
    Compares what the template writes before and after the contents of messages. Messages of one role have the same
    opening and closing in all conversations, up to white space; a turn is closed before the next one is opened, where
    turns of other roles are (some models read the opening of a reply as the end of a question); something is between a
    question and its answer; no message but a reply follows the generation prompt; every header has its white space; and
    a tag that is closed somewhere is closed wherever it is opened.

    ## Why it matters
    A header without its newline, a turn that ends with another token, a result under the header of the assistant: the
    model never saw it in training, or learns it from now on.

    ## How to fix
    Write the opening and the closing of a turn in one place, for all roles.
    """
    chats = list_renderings(subject)
    frames = [frame for chat in chats for frame in list_frames(*chat)]
    inner = [frame for frame in frames if frame.message + 1 < len(frame.probe.messages)]
    prompt = subject.facts.generation_prompt
    texts = "".join(rendering.text for _, rendering in chats)
    odd = [
        *_find_wrong_headers(prompt.strip().partition("\n")[0], frames),
        *_find_odd_frames(frames, inner, texts, prompt),
        *_find_open_turns(chats, inner, prompt),
    ]
    for probe, rendering in chats:
        own = [frame for frame in frames if frame.probe is probe]
        odd += _find_joined_messages(own, rendering.text)
        odd += _find_second_system(own, rendering.text)
        odd += _find_open_tags(probe, rendering)
        odd += _find_open_markers(probe, rendering)
        odd += _find_joined_tags(probe, rendering.text)
    found: dict[Any, Symptom] = {}
    for message, probe, index in odd:
        # what is missing has no text in the template: the index is that of what is open
        find = subject.places.after if " is not closed" in message else subject.places.at
        symptom = Symptom(
            message,
            "Write the opening and the closing of a turn in one place, for all roles.",
            find(probe, index),
            probe,
            show_written(subject.text_of(probe) or "", index),
        )
        found.setdefault(symptom.place, symptom)
    yield from found.values()


def _find_odd_frames(frames: Frames, inner: Frames, texts: str, prompt: str) -> OddPlaces:
    """Yield what is wrong with a frame, and the index of the first character that is."""
    turns = "".join(frame.opening for frame in frames if frame.role != "tool")
    for frame in frames:
        for match in TAG.finditer(frame.opening) if frame.role == "tool" else ():
            # a tag that opens other turns, too, is a marker, which has no pair
            is_pair = not match[1] and match[0] not in turns
            if is_pair and f"</{match[2]}>" not in texts:
                message = f"<{match[2]}> is opened before a result and not closed after it"
                yield message, frame.probe, frame.start + match.start()
    yield from _find_uneven(frames, lambda frame: frame.opening, "opening", by_role=True)
    yield from _find_uneven(inner, lambda frame: frame.closing, "closing", by_role=True)
    known = [prompt.replace("assistant", "ROLE")]
    yield from _find_uneven(inner, _general_opening, "opening", by_role=False, known=known)
    yield from _find_open_replies(inner)
    for frame in frames:
        if re.search(rf"(?i)\b{frame.role}\Z", frame.opening):
            message = f"the name of the role {frame.role} and the text run together"
            yield message, frame.probe, frame.start + len(frame.opening) - 1


def _find_open_replies(frames: Frames) -> OddPlaces:
    """Yield a reply that is not closed, where replies of other conversations are."""
    replies = [frame for frame in frames if frame.role == "assistant" and not _has_calls(frame)]
    closings = {frame.closing.strip() for frame in replies}
    for frame in replies if len(closings) > 1 else ():
        if not frame.closing.strip():
            message = "a reply is not closed, and those of other conversations are"
            yield message, frame.probe, frame.start


def _find_wrong_headers(prompt: str, frames: Frames) -> OddPlaces:
    """Yield messages of other roles that are written under the header of the assistant."""
    others = [frame for frame in frames if frame.role != "assistant"]
    for frame in others if any(map(str.isalpha, prompt)) else ():
        if prompt in frame.opening:
            start = frame.start + frame.opening.rindex(prompt)
            message = f"a message of the role {frame.role} follows the header of the assistant"
            yield message, frame.probe, start


def _find_second_system(frames: Frames, text: str) -> OddPlaces:
    """Yield a system turn of the template's own beside the one that was given."""
    given = [frame for frame in frames if frame.role == "system"]
    opening = given[0].opening.strip() if len(given) == 1 else ""
    is_plain = "system" in opening and given[0].probe.tools is None
    if is_plain and text.count(opening) > 1:
        start = text.index(opening)
        start = start if start < given[0].start else text.rindex(opening)
        message = "a system message is written beside the one that was given"
        yield message, given[0].probe, start


def _find_open_tags(probe: Probe, rendering: Rendering) -> OddPlaces:
    """Yield the tags in the template's own text that have no pair, though a tag of that name is closed somewhere."""
    opened: dict[str, list[int]] = {}
    closed: dict[str, int] = {}  # where the last one ends
    start = 0
    for text, origin in rendering.pieces:
        for match in TAG.finditer(text) if origin.kind == "template" else ():
            name, index = match[2], start + match.start()
            if not match[1]:
                opened.setdefault(name, []).append(index)
                continue
            if opened.get(name):
                opened[name].pop()
            elif name not in NO_PAIRS:
                # of several items, the second was not opened: what follows the first is in question
                where = _find_text(rendering, closed[name]) if name in closed else index
                yield f"</{name}> closes what was not opened", probe, where
            closed[name] = index + len(match[0]) + 1
        start += len(text)
    for name in closed:
        # a tag in the middle of a line may be a mention of it
        blocks = [index for index in opened.get(name, ()) if rendering.text[index - 1] == "\n"]
        if blocks and name not in NO_PAIRS:
            yield f"<{name}> is not closed", probe, blocks[min(1, len(blocks) - 1)]


def _find_joined_tags(probe: Probe, text: str) -> OddPlaces:
    """Yield a tag in a line of its own, after which the next one begins in the same line."""
    for match in JOINED_TAGS.finditer(text):
        begun = text.rfind(f"<{match[1]}>", 0, match.start())
        if match[1] not in NO_PAIRS and text[:begun].endswith("\n"):
            yield f"nothing is between two <{match[1]}>", probe, match.start(2)


def _find_text(rendering: Rendering, index: int) -> int:
    """Return the index of the first character from there on that is no white space."""
    return len(rendering.text) - len(rendering.text[index:].lstrip())


def _find_open_markers(probe: Probe, rendering: Rendering) -> OddPlaces:
    """Yield a marker whose name says that it begins something that nothing ends: `<|tool_calls_begin|>`."""
    found: dict[str, None] = {}
    for text, origin in rendering.pieces:
        is_own = origin.kind == "template" and origin.message is not None
        for match in BEGINNING.finditer(text) if is_own else ():
            if any(map(str.isalpha, match[1] + match[3])):
                found[match[0]] = None
    for opening in found:
        closing = BEGINNING.sub(_name_closing, opening)
        # a separator inside of a pair may be named so: <|tool_call_argument_begin|>
        pairs = [match for match in map(BEGINNING.match, found) if match is not None]
        rest = rendering.text.partition(opening)[2]
        is_inside = any(
            _is_inside(opening, other) and _name_closing(other) in rest for other in pairs
        )
        start = rendering.text.index(opening)
        is_begun = rendering.text.startswith("<", start + len(opening))  # by a placeholder
        # <start_of_image> is a placeholder itself
        if closing not in rendering.text and not is_inside and (is_begun or not _has_media(probe)):
            yield f"{opening} is not closed by {closing}", probe, start


def _is_inside(marker: str, pair: re.Match[str]) -> bool:
    """Whether the name of a marker goes on that of a pair."""
    return marker != pair[0] and marker.startswith(pair[1]) and any(map(str.isalpha, pair[1]))


def _has_media(probe: Probe) -> bool:
    contents = [message.get("content") for message in probe.messages]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return any(part.get("type") != "text" for part in parts)


def _name_closing(match: re.Match[str]) -> str:
    """Return the name of the marker that closes what another one begins."""
    end = "eos" if match[2] == "bos" else "END" if match[2].isupper() else "end"
    return f"{match[1]}{end}{match[3]}"


def _general_opening(frame: MessageFrame) -> str:
    """Return an opening with a word for the name of the role."""
    return re.sub(rf"(?i)\b{re.escape(frame.role)}\b", "ROLE", frame.opening)


def _find_uneven(
    frames: Frames,
    read: Callable[[MessageFrame], str],
    what: str,
    by_role: bool,
    known: Sequence[str] = (),
) -> OddPlaces:
    """Yield the frames whose text has other white space than that of most others with the same words."""
    groups: dict[Any, list[MessageFrame]] = {}
    for frame in frames:
        words = tuple(read(frame).split())
        if words:
            groups.setdefault((frame.role if by_role else "", words), []).append(frame)
    for group in groups.values():
        counts = Counter(map(read, group))
        counts.update(text for text in known if text.split() == read(group[0]).split())
        usual = counts.most_common(1)[0][0]
        for frame in group:
            text = read(frame)
            if text == usual:
                continue
            base = frame.start if what == "opening" else frame.end
            index = base + common_length(text, usual)
            other = "of other conversations" if by_role else "of other roles"
            message = f"the {what} of a message of the role {frame.role} has other white space than those {other}"
            yield message, frame.probe, min(index, base + len(text) - 1)
            break


def _find_usual_end(frames: Frames, header: str) -> tuple[str, bool]:
    """Return what closes turns, and whether its name says so; empty if it closes those of one role alone."""
    ends = {(one.role, _find_last_marker(one.closing)) for one in frames if _is_turn(one)}
    counts = Counter(text for _, text in ends if text)
    paired = BEGINNING.sub(_name_closing, header)
    usual = max(sorted(counts), key=lambda text: (text == paired, counts[text]), default="")
    is_pair = usual == paired
    return (usual if header and (is_pair or counts[usual] > 1) else ""), is_pair


def _find_open_turns(
    chats: Sequence[tuple[Probe, Rendering]], frames: Frames, prompt: str
) -> OddPlaces:
    """Yield a turn that the next one follows without the text which closes those of other roles."""
    opened = TURN.match(prompt)
    header, space = opened.groups() if opened else ("", "")
    usual, is_pair = _find_usual_end(frames, header)
    for probe, rendering in chats if usual else ():
        headers = re.finditer(f"{re.escape(header)}(?i:{ROLE_NAMES})", rendering.text)
        for first, second in pairwise(headers):
            if space and not HEADER_END.match(rendering.text, first.end()):
                yield f"the header {first[0]!r} is written without {space!r}", probe, first.start()
            text = rendering.text[: second.start()].rstrip()
            index = len(text) - 1
            origin = _find_origin(rendering, index)
            message = probe.messages[origin.message or 0]
            is_other = message["role"] == "tool" or "tool_calls" in message
            is_closed = usual in text[-40:] or (is_other and MARKER.search(text[-40:]))
            # some models read the opening of a reply as the end of a question
            if not is_closed and (is_pair or not first[0].lower().endswith("user")):
                is_own = origin.kind == "template"
                what = "lacks" if is_own else "is not closed by"
                yield (
                    f"the turn {first[0]!r} {what} {usual}",
                    probe,
                    index if is_own else first.start(),
                )
                return


def _find_joined_messages(frames: Frames, text: str) -> OddPlaces:
    """Yield what is wrong between two messages: the header of the other, nothing, or the same marker again."""
    for frame, following in pairwise(frames):
        opening, pair = frame.opening.strip(), (frame.role, following.role)
        between = text[frame.end : following.start + len(following.opening)].strip()
        if not opening or pair not in BORROWED:
            continue
        if frame.opening == following.opening:
            odd = frame if frame.role == "system" else following
            message = f"a message of the role {odd.role} has the header of a user"
            yield message, frame.probe, odd.start + max(odd.opening.find("user"), 0)
        if frame.role == "user" and not between:
            yield "nothing is between a question and its answer", frame.probe, frame.end - 1
        elif between == opening:
            yield f"{opening} opens and closes a question", frame.probe, frame.end


def _find_last_marker(text: str) -> str:
    return (MARKER.findall(text) or text.split() or [""])[-1]


def _find_origin(rendering: Rendering, index: int) -> Origin:
    """Return where a character comes from."""
    ends = accumulate(len(text) for text, _ in rendering.pieces)
    return rendering.pieces[bisect_right(list(ends), index)].origin


def _is_turn(frame: MessageFrame) -> bool:
    return bool(frame.opening.strip()) and frame.role != "tool" and not _has_calls(frame)


def _has_calls(frame: MessageFrame) -> bool:
    return "tool_calls" in frame.probe.messages[frame.message]


CHECKS = (Check("T703", "uneven-turns", "error", check_frames),)
