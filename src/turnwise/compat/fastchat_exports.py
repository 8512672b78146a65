"""FastChat's conversations as the clients of model services take them: one row of `EXPORTS` for each service.

A row says who answers, how a system message is written, and what one turn becomes; the loop over the turns is the same
for all, by number as in FastChat, and an answer that is not there yet is left out. What comes out is plain data. Where
FastChat makes objects of a vendor's package (Vertex AI's images, Reka's messages) there are the bytes of the image, and
a mapping with the fields of the message: wrap them, if the client wants that.

An image is an address, a data URL, or an object with FastChat's `base64_str` and `filetype`. None is fetched, resized
or decoded to pixels; a service that takes data only refuses an address.

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

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Picture:
    """An image: its address, and its data in base64 where that is at hand."""

    address: str
    data: str = ""
    filetype: str = ""

    def needed(self) -> str:
        if not self.data:
            hint = "Give a data URL, or an image object with base64_str."
            raise MessageError(
                f"this service takes the data of an image, not {short_repr(self.address)}",
                hint=hint,
            )
        return self.data

    def digest(self) -> str:
        return hashlib.md5(self.data.encode(), usedforsecurity=False).hexdigest()

    def decoded(self) -> bytes:
        try:
            return base64.b64decode(self.needed(), validate=True)
        except ValueError as error:
            raise MessageError(f"an image is not base64: {error}") from None


def picture(image: Any) -> Picture:
    """What is known of an image as FastChat's users give it."""
    data, filetype = (
        getattr(image, "base64_str", None) or "",
        getattr(image, "filetype", None) or "",
    )
    told = getattr(image, "to_openai_image_format", None)
    if callable(told):
        return Picture(str(told()), data, filetype)
    if data:
        return Picture(f"data:image/{filetype};base64,{data}", data, filetype)
    address = str(getattr(image, "url", image))
    if found := DATA_URL.fullmatch(address):
        return Picture(address, found[2], found[1])
    return Picture(address)


def is_pair(message: Any) -> bool:
    """A text with images. JSON makes a list of the tuple."""
    return (
        isinstance(message, (tuple, list))
        and len(message) == 2
        and isinstance(message[1], (tuple, list))
    )


def parted(message: Any) -> tuple[Any, list[Picture]]:
    """The text of a message, and its images."""
    return (
        (message[0], [picture(image) for image in message[1]])
        if is_pair(message)
        else (message, [])
    )


# -- turns: what a role and a message become -------------------------------------------------------------------------


def text_part(text: Any) -> Row:
    return {"type": "text", "text": text}


def openai_content(message: Any, bare: bool = False) -> Any:
    """Text, or parts where there are images; Mistral takes the address without the object around it."""
    if not is_pair(message):
        return message
    text, images = parted(message)
    urls = [one.address if bare else {"url": one.address} for one in images]
    return [text_part(text), *({"type": "image_url", "image_url": url} for url in urls)]


def gemini_content(message: Any) -> Any:
    return [message[0], *message[1]] if is_pair(message) else message


def anthropic_content(message: Any) -> list[Row]:
    text, images = parted(message)
    known = [
        {"type": "base64", "media_type": f"image/{one.filetype}", "data": one.data}
        if one.data
        else {"type": "url", "url": one.address}
        for one in images
    ]
    return [text_part(text), *({"type": "image", "source": source} for source in known)]


def reka_turn(role: str, message: Any) -> list[Row]:
    """A message for each image, the text with every one."""
    text, images = parted(message)
    medias = [[{"type": "image_url", "image_url": one.address}] for one in images] or [[]]
    return [{"role": role, "content": [text_part(text), *media]} for media in medias]


def metagen_turn(role: str, message: Any) -> list[Row]:
    """One image at most: the last."""
    text, images = parted(message)
    if not images:
        return [{"role": role, "text": text}]
    attachment = {"type": "base64_image", "mime": "image/jpeg", "data": images[-1].needed()}
    return [{"role": role, "text": text, "attachment": attachment}]


def vertex_turn(_: str, message: Any) -> list[Any]:
    """No roles: images, then the text."""
    text, images = parted(message)
    return [*(one.decoded() for one in images), *([] if text is None else [text])]


def with_content(content: Callable[[Any], Any]) -> Callable[[str, Any], list[Any]]:
    return lambda role, message: [{"role": role, "content": content(message)}]


# -- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Export:
    """How one service takes a conversation."""

    turn: Callable[[str, Any], list[Any]]
    answerer: str = "assistant"
    system: Callable[[str], list[Any]] = lambda text: (
        [{"role": "system", "content": text}] if text else []
    )


EXPORTS: dict[str, Export] = {
    "openai": Export(with_content(openai_content)),
    "mistral": Export(with_content(lambda message: openai_content(message, bare=True))),
    "gemini": Export(with_content(gemini_content), answerer="model"),
    "anthropic": Export(
        with_content(anthropic_content),
        system=lambda text: [{"role": "system", "content": [text_part(text)]}],
    ),
    "vertex": Export(vertex_turn, system=lambda text: [text] if text else []),
    "reka": Export(reka_turn, system=lambda _: []),
    "metagen": Export(
        metagen_turn,
        answerer="ai",
        system=lambda text: [{"role": "system", "text": text}] if text else [],
    ),
}


def exported(service: str, system: str, messages: Iterable[Any]) -> list[Any]:
    """A conversation for a service: the user and the answerer in turn."""
    export = EXPORTS[service]
    rows = export.system(system)
    for number, message in enumerate(messages):
        if not (number % 2 and message is None):
            rows += export.turn(export.answerer if number % 2 else "user", message)
    return rows
