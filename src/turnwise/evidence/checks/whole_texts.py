"""T7: provenance. Each text is written once, whole, unchanged, and between the markers of its role.

Conversations are rendered whose texts have quotes, several lines, capitals and white space at both ends, and are longer
than a template has a reason to cut. The pieces of a rendering show what became of each field: a *run* is text that was
written from it without a break. What the template itself wrote around the content of a message is its *frame*.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from turnwise.analysis.conversations import Probe, make_tool
from turnwise.analysis.misprints import find_value
from turnwise.analysis.probe_chats import TOOL_NAME
from turnwise.analysis.profiles import Severity
from turnwise.engine.provenance.rendering import Origin, Rendering
from turnwise.evidence.checks.catalogue import Check
from turnwise.evidence.checks.findings import Symptom
from turnwise.evidence.checks.subject import Subject
from turnwise.evidence.checks.symptoms import first_difference, show_from
from turnwise.messages import Path

LONG = "The table of the harbour has one row for each hour of the day. " * 9
QUOTED = 'The "high" water\nof a Harbour'
IN_JSON = re.compile(r'[:,\[{]\s*"$')  # the text before a string of JSON
TAG = re.compile(r"<(/?)([A-Za-z][\w:-]*)(?=[\s=>])")
HEADER_GOES_ON = re.compile(r" ?[\w=<|>:.-]{1,40}")  # `<|im_start|>system name=<|plugin|>`
NO_PAIRS = ("think", "s")  # a reply may hold one half of the first; the other is a stop
CHANGES = {
    "trimmed": ("is written without the white space at its ends", "Write it as it is."),
    "repeated": ("is written more than once", "Write it once."),
    "cut": ("is cut", "Write all of it."),
    "changed": ("is changed", "Write it as it is."),
}


class Run(NamedTuple):
    """Text that was written from one field without a break."""

    start: int
    text: str

    @property
    def end(self) -> int:
        """The index of the character after it."""
        return self.start + len(self.text)


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


OddPlace = tuple[str, Probe, int]
"""What is wrong, the conversation, and the index of the first character that is."""


def make_text(word: str) -> str:
    """Return a text that shows what is done to it."""
    return f'  {word}: "Low" or high?\n{LONG}{word}.  '


def list_chats(subject: Subject) -> Iterator[Probe]:
    """Yield conversations without tools and with them."""
    rounds = [
        message
        for number in ("one", "two")
        for message in (
            subject.user(make_text(f"Question {number}")),
            subject.reply(make_text(f"Answer {number}")),
        )
    ]
    system = [subject.system(make_text("Rules"))] if subject.takes_system else []
    yield subject.chat(*rounds, subject.user(make_text("Question three")))
    if system:
        yield subject.chat(*system, *rounds, subject.user(make_text("Question three")))
    tools = None
    if subject.tools is not None:
        tools = [make_tool(TOOL_NAME, harbour={"type": "string", "description": QUOTED})]
        tools[0]["function"]["description"] = QUOTED
        yield subject.chat(*system, *rounds[:3], tools=tools)
    if subject.takes_calls:
        said = make_text("Aside") if subject.forms.is_written("text beside a call") else None
        call = subject.call({"harbour": 'Brest "Nord"'}, content=said)
        result = subject.result(make_text("Found"))
        yield subject.chat(*system, rounds[0], call, result, *rounds[1:], tools=tools)


def list_renderings(subject: Subject) -> Iterator[tuple[Probe, Rendering]]:
    """Yield the conversations that the template accepts, with their renderings."""
    for probe in list_chats(subject):
        outcome = subject.run(probe)
        if isinstance(outcome, Rendering):
            yield probe, outcome


def list_runs(rendering: Rendering, path: Path) -> list[Run]:
    """Return the texts that were written from a field."""
    runs: list[Run] = []
    start = 0
    for text, origin in rendering.pieces:
        if _is_of(origin, path):
            if runs and runs[-1].end == start:
                last = runs.pop()
                runs.append(Run(last.start, last.text + text))
            else:
                runs.append(Run(start, text))
        start += len(text)
    return runs


def _is_of(origin: Origin, path: Path) -> bool:
    if origin.path is not None:
        return origin.path[: len(path)] == path and not origin.key
    return origin.kind == "computed" and any(one[: len(path)] == path for one in origin.sources)


def _content_path(probe: Probe, message: int) -> Path:
    path: Path = ("messages", message, "content")
    is_text = isinstance(probe.messages[message].get("content"), str)
    return path if is_text else (*path, 0, "text")


# Fields


def check_whole_texts(subject: Subject) -> Iterator[Symptom]:
    """A text is trimmed, cut, changed or written twice.

    ## What it does
    Renders conversations with and without tools whose texts have white space at their ends, quotes, capitals and
    several lines, and compares what was written from each content with the content. A text that is escaped for JSON is
    whole. White space at the ends that is removed is a note.

    ## Why it matters
    The model reads something else than the user wrote: half of a long text, another spelling, the system text twice.
    White space matters for code, and for a reply that is continued.

    ## How to fix
    Write `message.content` as it is, once.
    """
    found: dict[tuple[str, str], tuple[Probe, int, int]] = {}
    for probe, rendering in list_renderings(subject):
        for index, message in enumerate(probe.messages):
            path = _content_path(probe, index)
            value = find_value({"messages": probe.messages}, path)
            runs = list_runs(rendering, path) if isinstance(value, str) and value else []
            kind, run = judge_runs(runs, value) if runs else ("", None)
            if kind and run is not None:
                found.setdefault((kind, str(message["role"])), (probe, index, run.start))
    kinds: dict[str, list[str]] = {}
    for kind, role in found:
        kinds.setdefault(kind, []).append(role)
    for kind, roles in kinds.items():
        probe, index, start = found[kind, roles[0]]
        what, fix = CHANGES[kind]
        severity: Severity = "note" if kind == "trimmed" else "error"
        yield Symptom(
            f"the text of a message of the role {', '.join(roles)} {what}",
            fix,
            subject.places.at(probe, start, caller=True),
            replace(probe, messages=probe.messages[: index + 1]),
            f"writes: {show_from(subject.text_of(probe) or '', start)}",
            severity,
        )


def judge_runs(runs: Sequence[Run], value: str) -> tuple[str, Run | None]:
    """Return what became of a text, and where; an empty word if it is written once, whole and unchanged."""
    forms = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    trimmed = {
        form
        for one in (value.strip(), value.lstrip(), value.rstrip())
        for form in (one, json.dumps(one)[1:-1])
    }
    known = forms | trimmed
    whole = [run for run in runs if run.text in known]
    if len(whole) > 1:
        return "repeated", whole[1]
    if not whole:
        joined = "".join(run.text for run in runs)
        if joined in known:
            return "", None
        if any(form and joined == form * (len(joined) // len(form)) for form in known):
            return "repeated", runs[0]
        is_part = any(joined.strip() in form for form in known)
        return ("cut" if is_part else "changed"), runs[0]
    return ("trimmed", whole[0]) if whole[0].text not in forms else ("", None)


def check_escaped_texts(subject: Subject) -> Iterator[Symptom]:
    """A text is written between the quotes of JSON without being escaped.

    ## What it does
    Renders a tool, a call and a result whose texts have quotes and several lines. Reported is a text that is written as
    it is between the quotes of a JSON value.

    ## Why it matters
    `"description": "The "high" water"` is no JSON. The model learns to write it so, and no parser reads that.

    ## How to fix
    Write values with `tojson`, which adds the quotes: `{{ tool.description | tojson }}`.
    """
    seen = set()
    for probe, rendering in list_renderings(subject):
        start = 0
        for text, origin in rendering.pieces:
            end = start + len(text)
            path = origin.path
            is_open = IN_JSON.search(rendering.text[max(0, start - 8) : start])
            is_raw = '"' in text.replace('\\"', "") or "\n" in text
            if path and is_open and is_raw and rendering.text[end : end + 1] == '"':
                place = subject.places.at(probe, start)
                if place not in seen:
                    seen.add(place)
                    yield Symptom(
                        f"{_name_field(path)} is written between the quotes of JSON without being escaped",
                        "Write it with tojson, which adds the quotes.",
                        place,
                        probe,
                        f"writes: {show_from(rendering.text, start)}",
                    )
            start = end


def _name_field(path: Path) -> str:
    """Return what a field is in words: the last name of its path."""
    names = [part for part in path if isinstance(part, str)]
    return f"the {names[-1]} of {'a tool' if path[0] == 'tools' else 'a message'}"


# Frames


def list_frames(probe: Probe, rendering: Rendering) -> Iterator[MessageFrame]:
    """Yield the frames of the messages whose content is written once."""
    positions = []
    start = 0
    for text, origin in rendering.pieces:
        positions.append((start, text, origin))
        start += len(text)
    for index, message in enumerate(probe.messages):
        path = _content_path(probe, index)
        own = [n for n, (_, _, origin) in enumerate(positions) if _is_of(origin, path)]
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
    return origin.kind == "template" or (origin.path or ())[2:3] == ("role",)


def check_frames(subject: Subject) -> Iterator[Symptom]:
    """The markers around a message are not those of its role, or not the same in every conversation.

    ## What it does
    Compares what the template writes before and after the contents of messages. Messages of one role have the same
    opening and closing in all conversations, up to white space; where the openings of all roles are the same but for
    the name of the role, all close alike; no message but a reply follows the generation prompt; every header has its
    white space; and a tag that is closed somewhere is closed wherever it is opened.

    ## Why it matters
    A header without its newline, a turn that ends with another token, a result under the header of the assistant: the
    model never saw it in training, or learns it from now on.

    ## How to fix
    Write the opening and the closing of a turn in one place, for all roles.
    """
    seen: set[Any] = set()
    chats = list(list_renderings(subject))
    frames = [frame for chat in chats for frame in list_frames(*chat)]
    prompt = subject.facts.generation_prompt.strip().partition("\n")[0]
    texts = "".join(rendering.text for _, rendering in chats)
    odd = [*_find_wrong_headers(prompt, frames), *_find_odd_frames(frames, texts)]
    for probe, rendering in chats:
        odd += [(what, probe, index) for what, index in _find_open_tags(rendering)]
        odd += [(what, probe, index) for what, index in _find_bare_headers(rendering, frames)]
    for message, probe, index in odd:
        place = subject.places.at(probe, index)
        if place in seen:
            continue
        seen.add(place)
        yield Symptom(
            message,
            "Write the opening and the closing of a turn in one place, for all roles.",
            place,
            probe,
            f"writes: {show_from(subject.text_of(probe) or '', index)}",
        )


def _find_odd_frames(frames: Sequence[MessageFrame], texts: str) -> Iterator[OddPlace]:
    """Yield what is wrong with a frame, and the index of the first character that is."""
    turns = "".join(frame.opening for frame in frames if frame.role != "tool")
    for frame in frames:
        for match in TAG.finditer(frame.opening) if frame.role == "tool" else ():
            # a tag that opens other turns, too, is a marker, which has no pair
            is_pair = not match[1] and match[0] not in turns
            if is_pair and f"</{match[2]}>" not in texts:
                message = f"<{match[2]}> is opened before a result and not closed after it"
                yield message, frame.probe, frame.end
    inner = [frame for frame in frames if frame.message + 1 < len(frame.probe.messages)]
    yield from _find_uneven(frames, lambda frame: frame.opening, "opening", by_role=True)
    yield from _find_uneven(inner, lambda frame: frame.closing, "closing", by_role=True)
    yield from _find_uneven(inner, _general_opening, "opening", by_role=False)
    yield from _find_other_closings(inner)


def _find_wrong_headers(prompt: str, frames: Sequence[MessageFrame]) -> Iterator[OddPlace]:
    """Yield messages of other roles that are written under the header of the assistant."""
    others = [frame for frame in frames if frame.role != "assistant"]
    for frame in others if any(map(str.isalpha, prompt)) else ():
        if prompt in frame.opening:
            start = frame.start + frame.opening.rindex(prompt)
            message = f"a message of the role {frame.role} follows the header of the assistant"
            yield message, frame.probe, start


def _find_open_tags(rendering: Rendering) -> Iterator[tuple[str, int]]:
    """Yield the tags in the template's own text that have no pair, though a tag of that name is closed somewhere."""
    opened: dict[str, list[int]] = {}
    closed: set[str] = set()
    start = 0
    for text, origin in rendering.pieces:
        for match in TAG.finditer(text) if origin.kind == "template" else ():
            name = match[2]
            index = start + match.start()
            if not match[1]:
                opened.setdefault(name, []).append(index)
            elif opened.get(name):
                opened[name].pop()
                closed.add(name)
            elif name not in NO_PAIRS:
                yield f"</{name}> closes what was not opened", index
        start += len(text)
    for name in closed.difference(NO_PAIRS):
        # a tag in the middle of a line may be a mention of it
        blocks = [index for index in opened[name] if rendering.text[max(index - 1, 0)] == "\n"]
        if blocks:
            yield f"<{name}> is not closed", blocks[0]


def _find_bare_headers(
    rendering: Rendering, frames: Sequence[MessageFrame]
) -> Iterator[tuple[str, int]]:
    """Yield the headers of messages that lack the white space which follows most of them."""
    openings = Counter(_general_opening(frame) for frame in frames)
    usual = openings.most_common(1)[0][0] if openings else ""
    header = usual.strip()
    space = usual[usual.find(header) + len(header) :]
    if not space or "ROLE" not in header or header == "ROLE":
        return
    roles = "|".join({frame.role for frame in frames} | {"system"})
    pattern = re.escape(header).replace("ROLE", f"(?:{roles})")
    for match in re.finditer(pattern, rendering.text):
        after = rendering.text[match.end() :]
        is_longer = HEADER_GOES_ON.fullmatch(after.partition(space)[0])
        if after and not after.startswith(space) and not is_longer:
            yield f"the header {match[0]!r} is written without {space!r}", match.start()


def _general_opening(frame: MessageFrame) -> str:
    """Return an opening with a word for the name of the role."""
    return re.sub(rf"(?i)\b{re.escape(frame.role)}\b", "ROLE", frame.opening)


def _find_uneven(
    frames: Sequence[MessageFrame], read: Callable[[MessageFrame], str], what: str, by_role: bool
) -> Iterator[OddPlace]:
    """Yield the frames whose text has other white space than that of most others with the same words."""
    groups: dict[Any, list[MessageFrame]] = {}
    for frame in frames:
        words = tuple(read(frame).split())
        if words:
            groups.setdefault((frame.role if by_role else "", words), []).append(frame)
    for group in groups.values():
        counts = Counter(read(frame) for frame in group)
        usual = counts.most_common(1)[0][0]
        for frame in group:
            text = read(frame)
            if text == usual:
                continue
            base = frame.start if what == "opening" else frame.end
            index = base + first_difference(text, usual)
            other = "of other conversations" if by_role else "of other roles"
            message = f"the {what} of a message of the role {frame.role} has other white space than those {other}"
            yield message, frame.probe, min(index, base + len(text) - 1)
            break


def _find_other_closings(frames: Sequence[MessageFrame]) -> Iterator[OddPlace]:
    """Yield a role that closes otherwise, where the openings of other roles are the same but for the name."""
    turns = [frame for frame in frames if frame.role != "tool" and frame.closing.strip()]
    openings = {_general_opening(frame).strip() for frame in turns}
    roles = {frame.role for frame in turns}
    if len(openings) != 1 or "ROLE" not in openings.pop() or len(roles) < 2:
        return
    closings = Counter(closing for _, closing in {(one.role, one.closing.strip()) for one in turns})
    usual = closings.most_common(1)[0][0]
    for frame in frames:
        text = frame.closing.strip()
        has_calls = "tool_calls" in frame.probe.messages[frame.message]
        if text and usual not in text and not has_calls:
            start = frame.end + frame.closing.index(text)
            message = (
                f"a message of the role {frame.role} ends with {text!r}, others with {usual!r}"
            )
            yield message, frame.probe, start
            return


CHECKS = (
    Check("T701", "text-not-whole", "error", check_whole_texts),
    Check("T702", "unescaped-json", "error", check_escaped_texts, sent_by="tools"),
    Check("T703", "uneven-turns", "error", check_frames),
)
