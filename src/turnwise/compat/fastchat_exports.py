"""FastChat's conversations in the formats of model services: one row of `EXPORTS` for each service.

A row defines the name of the assistant's role, how a system message is written, and what one turn becomes. The loop
over the turns is the same for all: users and assistants alternate, as in FastChat, and an answer that is still open is
left out. The result is plain data: where FastChat makes objects of a vendor's package (Vertex AI's images, Reka's
messages) there are the bytes of the image, and a mapping with the fields of the message.

An image is an address, a data URL, or an object with FastChat's `base64_str` and `filetype`. None is downloaded,
resized or decoded to pixels; a service that takes only data refuses an address.

All files about FastChat are listed in `dialects/fastchat_styles.py`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from turnwise.errors import MessageError, short_repr

DATA_URL = re.compile(r"data:image/([\w.+-]+);base64,(.*)", re.DOTALL)

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ChatImage:
    """An image: its address, and its data in base64 if it is at hand."""

    address: str
    data: str = ""
    filetype: str = ""

    def require_data(self) -> str:
        """Return the data in base64; MessageError if there is only an address."""
        if not self.data:
            hint = "Give a data URL, or an image object with base64_str."
            problem = f"this service takes the data of an image, not {short_repr(self.address)}"
            raise MessageError(problem, hint=hint)
        return self.data

    def digest(self) -> str:
        """Return the digest by which logs name the image."""
        return hashlib.md5(self.data.encode(), usedforsecurity=False).hexdigest()

    def decode(self) -> bytes:
        """Return the bytes of the image."""
        try:
            return base64.b64decode(self.require_data(), validate=True)
        except ValueError as error:
            raise MessageError(f"an image is not base64: {error}") from None


def read_image(image: Any) -> ChatImage:
    """Return an image as FastChat's users give it: an address, a data URL or an image object."""
    data = getattr(image, "base64_str", None) or ""
    filetype = getattr(image, "filetype", None) or ""
    to_address = getattr(image, "to_openai_image_format", None)
    if callable(to_address):
        return ChatImage(str(to_address()), data, filetype)
    if data:
        return ChatImage(f"data:image/{filetype};base64,{data}", data, filetype)
    address = str(getattr(image, "url", image))
    if found := DATA_URL.fullmatch(address):
        return ChatImage(address, data=found[2], filetype=found[1])
    return ChatImage(address)


def has_images(message: Any) -> bool:
    """Return True for (text, images), which JSON makes a list."""
    if not isinstance(message, tuple | list) or len(message) != 2:
        return False
    return isinstance(message[1], tuple | list)


def split_images(message: Any) -> tuple[Any, list[ChatImage]]:
    """Return the text of a message, and its images."""
    if not has_images(message):
        return message, []
    return message[0], [read_image(image) for image in message[1]]


# -- turns: what a role and a message become -------------------------------------------------------------------------


def _text_part(text: Any) -> JsonObject:
    return {"type": "text", "text": text}


def openai_content(message: Any, bare: bool = False) -> Any:
    """Return text, or parts if there are images; Mistral takes the address `bare`, without an object around it."""
    if not has_images(message):
        return message
    text, images = split_images(message)
    parts = [_text_part(text)]
    for image in images:
        url = image.address if bare else {"url": image.address}
        parts.append({"type": "image_url", "image_url": url})
    return parts


def _mistral_content(message: Any) -> Any:
    return openai_content(message, bare=True)


def _gemini_content(message: Any) -> Any:
    return [message[0], *message[1]] if has_images(message) else message


def _anthropic_content(message: Any) -> list[JsonObject]:
    text, images = split_images(message)
    parts = [_text_part(text)]
    for image in images:
        source = {"type": "url", "url": image.address}
        if image.data:
            media_type = f"image/{image.filetype}"
            source = {"type": "base64", "media_type": media_type, "data": image.data}
        parts.append({"type": "image", "source": source})
    return parts


def _reka_turn(role: str, message: Any) -> list[JsonObject]:
    """Return one message for each image, each with the text."""
    text, images = split_images(message)
    media = [[{"type": "image_url", "image_url": image.address}] for image in images] or [[]]
    return [{"role": role, "content": [_text_part(text), *parts]} for parts in media]


def _metagen_turn(role: str, message: Any) -> list[JsonObject]:
    """Return one message, with the last image."""
    text, images = split_images(message)
    turn = {"role": role, "text": text}
    if images:
        data = images[-1].require_data()
        turn["attachment"] = {"type": "base64_image", "mime": "image/jpeg", "data": data}
    return [turn]


def _vertex_turn(role: str, message: Any) -> list[Any]:
    """Return the images, then the text; there are no roles."""
    text, images = split_images(message)
    turn: list[Any] = [image.decode() for image in images]
    if text is not None:
        turn.append(text)
    return turn


def _with_content(content: Callable[[Any], Any]) -> Callable[[str, Any], list[Any]]:
    return lambda role, message: [{"role": role, "content": content(message)}]


# -- the table -------------------------------------------------------------------------------------------------------


def _system_message(text: str) -> list[Any]:
    return [{"role": "system", "content": text}] if text else []


@dataclass(frozen=True, slots=True)
class ServiceFormat:
    """How one service takes a conversation."""

    turn: Callable[[str, Any], list[Any]]
    assistant: str = "assistant"
    system: Callable[[str], list[Any]] = _system_message


EXPORTS: dict[str, ServiceFormat] = {
    "openai": ServiceFormat(_with_content(openai_content)),
    "mistral": ServiceFormat(_with_content(_mistral_content)),
    "gemini": ServiceFormat(_with_content(_gemini_content), assistant="model"),
    "anthropic": ServiceFormat(
        _with_content(_anthropic_content),
        system=lambda text: [{"role": "system", "content": [_text_part(text)]}],
    ),
    "vertex": ServiceFormat(_vertex_turn, system=lambda text: [text] if text else []),
    "reka": ServiceFormat(_reka_turn, system=lambda _: []),
    "metagen": ServiceFormat(
        _metagen_turn,
        assistant="ai",
        system=lambda text: [{"role": "system", "text": text}] if text else [],
    ),
}


def export_conversation(service: str, system: str, messages: Iterable[Any]) -> list[Any]:
    """Return a conversation in the format of a service: the user and the assistant in turn."""
    target = EXPORTS[service]
    rows = target.system(system)
    for number, message in enumerate(messages):
        is_answer = number % 2 == 1
        if not (is_answer and message is None):
            rows += target.turn(target.assistant if is_answer else "user", message)
    return rows
