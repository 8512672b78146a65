"""`continue_final_message`: the final message is left open, so that the model goes on with its text.

A template closes the final message like any other. So a tag that no template writes is appended to the text of the
final message, and the rendering is truncated where the tag is rendered: after the text, before the end of the turn.
A template that trims its content also drops the space at the end of the tag; then trailing white space of the text
before it is dropped too, as transformers does.
"""

from __future__ import annotations

from typing import Any

from turnwise.errors import MessageError
from turnwise.messages import REASONING_KEYS, contains_text

TAG = "CONTINUE_FINAL_MESSAGE_TAG "


class Continuation:
    """The final message of a chat with a tag after its text.

    Args:
        chat: the messages; the last one is replaced by a copy with the tag.
        field: True for the content, or the name of the field to continue.
        template: the Jinja text, to see whether it reads the field at all.
    """

    def __init__(self, chat: list[dict[str, Any]], field: bool | str, template: str) -> None:
        if not chat:
            raise MessageError("there is no final message to continue", path="messages")
        name = field if isinstance(field, str) else "content"
        final = dict(chat[-1])
        path = f"messages[{len(chat) - 1}].{name}"
        value = final.get(name)
        if value is None:
            raise MessageError(
                f'continue_final_message is set but the final message has no "{name}" to continue!',
                path=path,
            )
        # Reasoning is there under each of its names; the tag goes into all of them.
        fields = [name]
        if name in REASONING_KEYS:
            fields = [other for other in REASONING_KEYS if final.get(other) == value]
        if not any(other in template for other in fields):
            raise MessageError(f"the template does not read {name!r}", path=path)
        self.tag = _unused_tag(chat)
        if isinstance(value, (list, tuple)):
            self.text, final[name] = self._append_to_last_part(value, path)
        elif isinstance(value, str):
            self.text = value
            for other in fields:
                final[other] = final[other] + self.tag
        else:
            raise MessageError(f"only text can be continued, not {type(value).__name__}", path=path)
        chat[-1] = final

    def _append_to_last_part(self, parts: Any, path: str) -> tuple[str, list[Any]]:
        """Return the text of the last text part, and the parts with the tag after that text."""
        for index in range(len(parts) - 1, -1, -1):
            part = parts[index]
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                tagged = {**part, "text": part["text"] + self.tag}
                return part["text"], [*parts[:index], tagged, *parts[index + 1 :]]
        raise MessageError("there is no text to continue in the final message", path=path)

    def truncate(self, text: str) -> str:
        """Return the rendered text up to the tag."""
        start = text.rfind(self.tag.strip())
        if self.text.strip() not in text or start < 0:
            raise MessageError(
                "continue_final_message is set but the final message does not appear in the chat "
                "after applying the chat template",
                hint="the template changes or drops the end of the final message",
            )
        if text.startswith(self.tag, start):
            return text[:start]
        return text[:start].rstrip()


def _unused_tag(chat: list[dict[str, Any]]) -> str:
    """Return a tag that no message contains."""
    tag = TAG
    while contains_text(chat, tag.strip()):
        tag = f"{tag.strip()}_ "
    return tag
