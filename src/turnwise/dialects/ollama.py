"""Ollama's Modelfiles: TEMPLATE (in Go's template language), SYSTEM, PARAMETER stop and MESSAGE.

    FROM llama3
    TEMPLATE "{{ range .Messages }}<|{{ .Role }}|>{{ .Content }}{{ end }}<|assistant|>"
    SYSTEM "You are helpful."
    PARAMETER stop "<|user|>"

A source is a Modelfile, or the text of its TEMPLATE alone. `ollama_go.py` parses the template,
`ollama_jinja.py` writes the Jinja; with `exact` every value prints as in Go. Ollama opens a reply
whenever the last message is not the assistant's, so `add_generation_prompt` changes nothing here.
Without `exact`, a conversation that ends with a reply keeps what closes it.

`write` writes turns as the newer kind of template, like those of Ollama's library: a final
assistant message is left open, to be continued. The language cannot count rounds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from turnwise.dialects.ollama_jinja import OllamaJinjaWriter
from turnwise.dialects.translation import Translation
from turnwise.dialects.turns import MARKS, Slot, Text, Turns, fill_slots, split_at_text
from turnwise.errors import SourceError, did_you_mean, short_repr

INSTRUCTIONS = (
    *("FROM", "TEMPLATE", "SYSTEM", "PARAMETER", "MESSAGE"),
    *("ADAPTER", "DRAFT", "LICENSE", "RENDERER", "PARSER", "REQUIRES"),
)
INSTRUCTION = re.compile(rf"\s*({'|'.join(INSTRUCTIONS)})[ \t]", re.IGNORECASE)
GO_FIELD = re.compile(r"[\s($]\.(?:Messages|Prompt|System|Response)\b")
ROLES = ("system", "user", "assistant")
TRIPLE = '"""'
KEPT_CONTROLS = "\n\r\t"
"""What Ollama keeps of a Modelfile, of the characters that are not printable; it drops the others."""


@dataclass(slots=True)
class Modelfile:
    """The instructions of a Modelfile that concern the template."""

    template: str = ""
    line: int = 1  # the line on which the template begins
    system: str = ""
    messages: list[tuple[str, str]] = field(default_factory=list)
    parameters: dict[str, list[str]] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)


def knows(source: Any) -> bool:
    """Return True for a Modelfile or a Go template."""
    if not isinstance(source, str) or "{%" in source:
        return False
    return ("{{" in source and bool(GO_FIELD.search(source))) or _is_modelfile(source)


def read(source: Any, exact: bool = False) -> Translation:
    """Translate the template of a Modelfile, or the text of its TEMPLATE alone."""
    if not isinstance(source, str):
        raise SourceError(f"a Modelfile must be a string, not {type(source).__name__}")
    file = _parse_modelfile(source) if _is_modelfile(source) else Modelfile(template=source)
    if not file.template:
        problem = "this Modelfile has no TEMPLATE"
        renderer = file.others.get("RENDERER")
        if renderer:
            problem = f"the renderer {short_repr(renderer)} is part of Ollama"
        hint = "Ollama takes it from the model then: get it with `ollama show --template`."
        raise SourceError(problem, hint=hint)
    writer = OllamaJinjaWriter(file.template, file.line, file.system, file.messages, exact)
    return Translation(
        jinja=writer.write(),
        stops=tuple(file.parameters.get("stop", ())),
        facts={"parameters": file.parameters, "system": file.system, **file.others},
    )


# -- Modelfiles ------------------------------------------------------------------------------------


FIRST_LINE = re.compile(r"\s*+(?:#[^\n]*+\s*+)*+([^\n]*)")  # that is neither empty nor a comment


def _is_skipped(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _is_modelfile(text: str) -> bool:
    first = FIRST_LINE.match(text)
    if first and INSTRUCTION.match(first[1] + " "):
        return True
    return text.startswith(("FROM ", "TEMPLATE ")) or "\nFROM " in text or "\nTEMPLATE " in text


def _parse_modelfile(text: str) -> Modelfile:
    """Parse the instructions; a value in quotes may have several lines."""
    file = Modelfile()
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        if _is_skipped(lines[at]):
            at += 1
            continue
        found = INSTRUCTION.match(lines[at] + " ")
        if found is None:
            word = lines[at].split()[0]
            problem = f"line {at + 1} of the Modelfile: unknown instruction {short_repr(word)}"
            raise SourceError(problem, hint=did_you_mean(word.upper(), INSTRUCTIONS, "Known"))
        instruction = found[1].upper()
        rest, key = lines[at][found.end() :].strip(), ""
        if instruction in ("PARAMETER", "MESSAGE"):
            key, rest = (*re.split("[ \t]", rest, maxsplit=1), "")[:2]
        value, next_line = _parse_value(lines, at, rest.strip())
        kept = "".join(filter(_is_kept, value))
        _add_instruction(file, instruction, key, kept, at + 1)
        at = next_line
    return file


def _parse_value(lines: list[str], at: int, rest: str) -> tuple[str, int]:
    """Return a value without its quotes, and the index of the line after it."""
    quote = next((mark for mark in (TRIPLE, '"') if rest.startswith(mark)), "")
    if not quote:
        return rest, at + 1
    text = lines[at][lines[at].index(quote) + len(quote) :]
    for index in range(at, len(lines)):
        if index > at:
            text += f"\n{lines[index]}"
        if text.rstrip().endswith(quote):
            return text.rstrip().removesuffix(quote), index + 1
    raise SourceError(f"line {at + 1} of the Modelfile: {quote} is not closed")


def _is_kept(character: str) -> bool:
    """Return True for what Ollama keeps of a Modelfile: of white space and controls, what is written in ASCII."""
    return character.isprintable() or character in KEPT_CONTROLS


def _add_instruction(file: Modelfile, instruction: str, key: str, value: str, line: int) -> None:
    if instruction == "TEMPLATE":
        file.template, file.line = value, line
    elif instruction == "SYSTEM":
        file.system = value
    elif instruction == "PARAMETER":
        file.parameters.setdefault(key.lower(), []).append(value)
    elif instruction == "MESSAGE":
        if key not in ROLES:
            problem = f"the role of a MESSAGE must be one of {', '.join(ROLES)}"
            raise SourceError(f"line {line} of the Modelfile: {problem}, not {short_repr(key)}")
        file.messages.append((key, value))
    else:
        file.others[instruction] = value


# -- writing turns ---------------------------------------------------------------------------------


def write(turns: Turns, *, base: str = ".", eos_token: str | None = None) -> str:
    """Return a Modelfile for these turns.

    Every round is written with the number of the first. A stop that cannot be quoted is left out.

    Args:
        turns: what the template writes.
        base: the model of the FROM instruction.
        eos_token: the text of the token that ends a reply, if one does.
    """
    eos = (eos_token or "") if turns.eos else ""
    after_reply = turns.reply_suffix + eos + turns.separator
    # The default system text is an instruction of its own, if the quotes can hold it.
    default = turns.default_system
    text = default or TRIPLE
    has_instruction = TRIPLE not in text and MARKS["date"] not in text and all(map(_is_kept, text))
    user = _write_user(turns)
    parts = [
        _quote_go(turns.prefix.removeprefix(turns.bos)),
        _write_system(turns, None if has_instruction else default),
        "{{ $first := true }}" if "$first" in user else "",
        "{{ range $i, $_ := .Messages }}{{ $last := eq (len (slice $.Messages $i)) 1 }}",
        '{{ if eq .Role "user" }}',
        user,
        _write_if("$last", turns.generation_prompt),
        '{{ else if eq .Role "assistant" }}',
        f"{_quote_go(turns.before_reply)}{{{{ .Content }}}}",
        _write_if("not $last", after_reply),
        "{{ end }}{{ end }}",
    ]
    lines = [f"FROM {base}", f"TEMPLATE {TRIPLE}{''.join(parts)}{TRIPLE}"]
    if has_instruction:
        lines.append(f"SYSTEM {TRIPLE}{default}{TRIPLE}")
    stops = [*turns.stops, eos] if eos else turns.stops
    for stop in dict.fromkeys(stops):
        if TRIPLE not in f'"{stop}"':
            lines.append(f'PARAMETER stop "{stop}"')
    return "\n".join(lines) + "\n"


def _write_system(turns: Turns, default: str | None) -> str:
    """Return the system turn; `default` is its text if neither a message nor SYSTEM gives one."""
    if turns.system is None or turns.system_in_user or turns.system_in_last_user:
        return ""
    otherwise = ""
    if default is not None:
        otherwise = "{{ else }}" + _quote_go(fill_slots(turns.system, 0, default))
    system = _write_text(turns.system, ".System")
    return f"{{{{ if .System }}}}{system}{otherwise}{{{{ end }}}}"


def _write_user(turns: Turns) -> str:
    """Return a user turn, with the system text in it if that is where the template has it."""
    before, after = split_at_text(turns.user)
    start = fill_slots(before, 0)
    bos = ""
    if turns.has_bos_in_user:
        # Ollama inserts the first.
        bos = _write_if("not $first", turns.bos)
        start = start.removeprefix(turns.bos)
    system = ""
    if turns.system_in_user or turns.system_in_last_user:
        place = "$last" if turns.system_in_last_user else "$first"
        text = _write_text(turns.system or (), "$.System")
        system = f"{{{{ if and {place} $.System }}}}{text}{{{{ end }}}}"
    turn = f"{bos}{_quote_go(start)}{system}{{{{ .Content }}}}{_write_text(after, '.Content')}"
    return turn + "{{ $first = false }}" if "$first" in turn else turn


def _write_if(test: str, text: str) -> str:
    return f"{{{{ if {test} }}}}{_quote_go(text)}{{{{ end }}}}" if text else ""


def _write_text(text: Text, content: str) -> str:
    """Return a text in Go's language; `content` is the Go field of the message."""
    parts = []
    for part in text:
        if part == Slot("text"):
            parts.append(f"{{{{ {content} }}}}")
        else:
            parts.append(_quote_go(fill_slots((part,), 0)))
    return "".join(parts)


def _quote_go(text: str) -> str:
    """Return text for a Go template: as it is, or quoted if it would mean something."""
    return "{{ currentDate }}".join(map(_quote_go_text, text.split(MARKS["date"])))


def _quote_go_text(text: str) -> str:
    is_safe_inside = "{{" not in text and '""' not in text and all(map(_is_kept, text))
    if is_safe_inside and not text.startswith('"') and not text.endswith(('"', "{")):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{{{{ "{"".join(map(_escape_go, escaped))}" }}}}'


def _escape_go(character: str) -> str:
    """Return a character as Go's string literals write it, if a Modelfile would lose it."""
    return character if _is_kept(character) else f"\\U{ord(character):08x}"
