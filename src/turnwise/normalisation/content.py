"""Content and reasoning of a message in the form that a template takes.

Content may be a text, a list of parts, null or missing. Templates take some of these, and fail on the others or write
`None` or a list of Python. Reasoning has several keys, and some templates want it among the parts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from turnwise.analysis.prober import ABSENT
from turnwise.errors import MessageError, short_repr
from turnwise.messages import REASONING_KEYS, JsonMapping
from turnwise.messages.media import KIND_OF_TYPE, KINDS, TEXT_TYPES, media_kind
from turnwise.normalisation.calls import MessageDict, Note, has_calls
from turnwise.normalisation.capabilities import Capabilities
from turnwise.replies.input_format import IN_PARTS

PLAIN_TYPES = TEXT_TYPES[:3]  # of parts that are a text and no more
THINKING_TYPES = ("thinking", "reasoning")  # of parts that hold what a model thought


class ContentForms:
    """Changes content and reasoning as far as a template needs it.

    Args:
        capabilities: what the template takes.
        note: called once for each change.
    """

    def __init__(self, capabilities: Capabilities, note: Note) -> None:
        self._capabilities = capabilities
        self._note = note
        self.lost: list[str] = []  # the paths of parts that were left out
        self.problems: list[str] = []  # parts and reasoning that no template should be given

    def normalise(self, message: MessageDict, path: str) -> None:
        """Change the content of a message.

        Raises:
            MessageError: it is a number.
        """
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str):
            return
        where = f"{path}.content"
        if not content:
            content = self._read_spoken(message, path) or content
        if content is None:
            self._fill_content(message, role, where)
            return
        if role == "tool" and _is_data(content):
            content = message["content"] = json.dumps(content, ensure_ascii=False)
            self._note(where, "data became JSON text", "content is a text or a list of parts")
        if isinstance(content, Mapping):
            content = [content]
            self._note(where, "a part became a list of parts", "content is a text or a list")
        if isinstance(content, (list, tuple)):
            self._normalise_parts(message, role, list(content), where)
        elif isinstance(content, str):
            capabilities = self._capabilities
            if not capabilities.takes_text(role) and capabilities.takes_parts(role):
                message["content"] = [{"type": "text", "text": content}]
                self._note(where, "the text became a part", "the template takes parts only")
        else:
            problem = f"content is a text or a list of parts, not {short_repr(content)}"
            raise MessageError(problem, path=where)

    def _read_spoken(self, message: MessageDict, path: str) -> str | None:
        """Move what an assistant said in refusing, or aloud, to its content, where templates read it."""
        refusal, audio = message.get("refusal"), message.get("audio")
        text: Any
        if isinstance(refusal, str) and refusal:
            key, text, what = "refusal", refusal, "became the content"
        elif isinstance(audio, Mapping):
            key, text, what = "audio", audio.get("transcript"), "its transcript became the content"
        else:
            return None
        del message[key]
        where = f"{path}.{key}"
        if not isinstance(text, str) or not text:
            self._note(where, "was left out", "it has no transcript")
            self.lost.append(where)
            return None
        message["content"] = text
        self._note(where, what, "templates read the text there")
        return text

    def _fill_content(self, message: MessageDict, role: str, where: str) -> None:
        """Give a message without content the content that the template takes."""
        capabilities = self._capabilities
        wanted = capabilities.shape.content if has_calls(message) else capabilities.empty_content
        if role != "assistant":  # only of assistants is it known what the template makes of null
            wanted = "" if capabilities.takes_text(role) else []
        given = message.pop("content", ABSENT)
        if wanted is not ABSENT:
            message["content"] = wanted
        if given is not wanted:
            name = "no content" if given is ABSENT else "null"
            shown = "no content" if wanted is ABSENT else f"{wanted!r}"
            why = "the template takes that for an empty one"
            self._note(where, f"{name} became {shown}", why)

    def _normalise_parts(
        self, message: MessageDict, role: str, parts: list[Any], where: str
    ) -> None:
        if not all(map(is_text_part, parts)):
            parts = self._read_parts(message, parts, where)
        if self._capabilities.takes_parts(role) or not self._capabilities.takes_text(role):
            message["content"] = parts
            return
        texts = []
        for number, text in enumerate(map(part_text, parts)):
            if text is not None:
                texts.append(text)
            else:
                self._note(f"{where}[{number}]", "was left out", "the template takes text only")
                self.lost.append(f"{where}[{number}]")
        message["content"] = "\n".join(texts)
        self._note(where, "text parts were joined", "the template takes text only")

    def _read_parts(self, message: MessageDict, parts: list[Any], where: str) -> list[Any]:
        """Return the parts that stay in a content, each under the type that the template knows."""
        kept = []
        for number, part in enumerate(parts):
            path = f"{where}[{number}]"
            text = part_text(part)
            if text is None and self._read_thinking(message, part, path):
                continue
            if text is None:
                if not isinstance(part, Mapping):
                    found = short_repr(part)
                    self.problems.append(f"{path} is {found}, and a part is a text or a mapping")
                part = self._rename_part(part, path)
            elif not isinstance(part, Mapping) or part.get("type") != "text":
                part = {"type": "text", "text": text}
                self._note(path, "became a part of type text", "templates know that type")
            if part is not None:
                kept.append(part)
        return kept

    def _read_thinking(self, message: MessageDict, part: Any, where: str) -> bool:
        """Move the text of a thinking part to the reasoning of the message; False if it is none."""
        kind = part.get("type") if isinstance(part, Mapping) else None
        text = part.get(kind, part.get("text")) if kind in THINKING_TYPES else None
        if not isinstance(text, str) or any(message.get(name) for name in REASONING_KEYS):
            return False
        if self._capabilities.input_format.reasoning == IN_PARTS:
            return False  # the template reads it here
        message[REASONING_KEYS[0]] = text
        self._note(where, f"became {REASONING_KEYS[0]}", "the template reads no part of this type")
        return True

    def _rename_part(self, part: Any, where: str) -> Any:
        """Return a media part under the type that the template knows; None if it is left out."""
        kind = part.get("type") if isinstance(part, Mapping) else None
        if not isinstance(kind, str) or kind not in KIND_OF_TYPE:
            return part
        judge = self._capabilities.judge_part_type
        if judge(kind) == "written":
            return part
        for other in KINDS[KIND_OF_TYPE[kind]][:2]:
            if other != kind and judge(other) == "written":
                self._note(where, f"{kind} became {other}", f"the template does not know {kind}")
                rest = {key: value for key, value in part.items() if key != kind}
                return {**rest, "type": other, other: part.get(kind)}
        if judge(kind) == "dropped":
            return part  # the template leaves it out itself
        self._note(where, f"{kind} was left out", "the template has no place for it")
        self.lost.append(where)
        return None

    def place_reasoning(self, message: MessageDict, path: str) -> None:
        """Put reasoning where the template looks for it, if that is none of its usual keys."""
        names = [name for name in REASONING_KEYS if isinstance(message.get(name), str)]
        if len({message[name] for name in names} - {""}) > 1:
            problem = "with different texts, of which templates write one"
            self.problems.append(f"{path} has {' and '.join(names)} {problem}")
        if not names or message.get("role") != "assistant":
            return
        key, given = self._capabilities.input_format.reasoning, names[0]
        if key in REASONING_KEYS or (key in message and key != IN_PARTS):
            return
        where = f"{path}.{given}"
        if key != IN_PARTS:
            message[key] = message[given]
            self._note(where, f"was copied to {key}", "the template reads it there")
            return
        content = message.get("content")
        parts = content if isinstance(content, list) else []
        if isinstance(content, str) and content:
            parts = [{"type": "text", "text": content}]
        message["content"] = [{"type": "thinking", "thinking": message[given]}, *parts]
        self._note(where, "became a part of the content", "the template reads it there")


def _is_data(content: Any) -> bool:
    """Whether the result of a tool is a number, or a mapping or list that has no parts."""
    if isinstance(content, (list, tuple)):
        is_text = all(isinstance(item, str) for item in content)
        return not is_text and not any(
            _is_part(item) or "type" in item for item in content if isinstance(item, Mapping)
        )
    if isinstance(content, Mapping):
        return not _is_part(content)
    return isinstance(content, (int, float))


def _is_part(value: JsonMapping) -> bool:
    return (
        value.get("type") in TEXT_TYPES
        or media_kind(value) is not None
        or part_text(value) is not None
    )


def is_text_part(part: Any) -> bool:
    """Whether a part is a text, and nothing else."""
    return (
        type(part) is dict
        and len(part) == 2
        and part.get("type") == "text"
        and type(part.get("text")) is str
    )


def join_texts(content: Any) -> str | None:
    """Return the texts of parts, joined with line breaks; None if some part is no text."""
    if not isinstance(content, (list, tuple)):
        return None
    texts = [part_text(part) for part in content]
    return None if None in texts else "\n".join(filter(None, texts))


def part_text(part: Any) -> str | None:
    """Return the text of a text part; None for any other part."""
    if isinstance(part, str):
        return part
    is_mapping = isinstance(part, (dict, Mapping))  # the first is known at once
    if not is_mapping or part.get("type", "text") not in PLAIN_TYPES:
        return None
    text = part.get("text")
    return text if isinstance(text, str) else None
