"""FastChat's conversation module, by its own names: change the import and the rest of the code stays.

    from turnwise.compat.fastchat import get_conv_template      # was: fastchat.conversation

A Conversation is FastChat's thirteen fields and its methods; `get_prompt` translates the fields to Jinja (once for all
conversations of a template) and renders the messages with turnwise, so `rendering()` also says where each character
came from. The differences from FastChat are the contradictions' better halves: an empty message is not an open turn
(C23), separators and tags go by role, roles and images reach OpenAI's messages (C18), a fresh Conversation can be
appended to (C19), names are found in any case (C5), `v0` is found on token boundaries (C20), and there is a `chatml`
(C4). `strict_fastchat = True`, on one Conversation or on the class, gives FastChat's behaviour to the byte; functions
that have no Conversation take it as an argument.

Errors are turnwise's and also of the type that FastChat would raise (AssertionError, KeyError, ValueError).

Images are passed on as they are given, never fetched, resized or hashed by their pixels, so there is no
`convert_image_to_base64`, and `save_new_images` saves the data as it is, under its own digest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from turnwise.compat.fastchat_exports import exported, is_pair, openai_content, parted, picture
from turnwise.dialects.fastchat import InvalidStyle, parse_spec
from turnwise.dialects.fastchat_jinja import IMAGE_PLACEHOLDER, translate_spec
from turnwise.dialects.fastchat_styles import FastChatSpec, SeparatorStyle
from turnwise.dialects.translation import copy_source
from turnwise.engine.provenance.rendering import Rendering
from turnwise.errors import MessageError, SourceError, did_you_mean, short_repr
from turnwise.registry import fastchat as registry
from turnwise.template import Template

__all__ = [
    "IMAGE_PLACEHOLDER_STR",
    "Conversation",
    "InvalidStyle",
    "SeparatorStyle",
    "conv_templates",
    "get_conv_template",
    "get_conversation_template",
    "register_conv_template",
    "to_openai_image_format",
]

IMAGE_PLACEHOLDER_STR = IMAGE_PLACEHOLDER

Row = dict[str, Any]  # `dict` is a method below


class AlreadyRegistered(SourceError, AssertionError):
    """A name that is taken; FastChat asserts that it is not."""


class UnknownTemplate(SourceError, KeyError):
    """A name that nobody registered; FastChat looks it up in a dict."""


@dataclass
class Conversation:
    """A template and the conversation that is being held with it."""

    name: str
    system_template: str = "{system_message}"
    system_message: str = ""
    system_message_vision: str = ""
    roles: tuple[str, ...] = ("USER", "ASSISTANT")
    messages: Any = field(default_factory=list)
    offset: int = 0
    sep_style: SeparatorStyle | None = SeparatorStyle.ADD_COLON_SINGLE
    sep: str | None = "\n"
    sep2: str | None = None
    stop_str: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    max_image_size_mb: float | None = None

    strict_fastchat = False  # no annotation: these two are switches, not fields
    image_placeholder = IMAGE_PLACEHOLDER_STR

    def __post_init__(self) -> None:
        # FastChat's default is a tuple, to which nothing can be appended; JSON knows neither tuples nor our numbers
        if isinstance(self.messages, tuple):
            self.messages = [list(message) for message in self.messages]
        given: Any = self.roles
        self.roles = tuple(given) if isinstance(given, list) else given
        if isinstance(self.sep_style, int) and self.sep_style in list(SeparatorStyle):
            self.sep_style = SeparatorStyle(self.sep_style)

    # -- rendering

    def get_prompt(self) -> str:
        """The whole prompt."""
        return str(self.rendering())

    def rendering(self) -> Rendering:
        """The prompt, with the origin of each of its characters."""
        keys, others = self._keys()
        sources: tuple[Any, ...] = (
            self.sep_style,
            self.name,
            self.system_template,
            self.roles,
            self.sep,
            self.sep2,
        )
        sources = (*sources, tuple(others.items()), bool(self.strict_fastchat))
        try:
            template = _template(*sources)
        except TypeError:  # a field that cannot be a key is no text; the check says which
            template = _template.__wrapped__(*sources)
        chat = [{"role": "system", "content": self.system_message}]
        turns = [
            {"role": key, "content": _content(*pair)}
            for key, pair in zip(keys, enumerate(self._texts()), strict=True)
        ]
        pending = bool(turns) and turns[-1]["role"] == "assistant" and turns[-1]["content"] is None
        return template.render(
            chat + (turns[:-1] if pending else turns),
            add_generation_prompt=pending,
            normalise=False,
            image_placeholder=self.image_placeholder,
        )

    def _texts(self) -> list[Any]:
        return [message for _, message in self._pairs()]

    def _pairs(self) -> list[tuple[str, Any]]:
        """The messages, each a role and a text; anything else would be written as something that nobody said."""
        if not isinstance(self.messages, list | tuple):
            raise MessageError(
                f"is a list of [role, text], not {short_repr(self.messages)}", path="messages"
            )
        for number, item in enumerate(self.messages):
            if not isinstance(item, list | tuple) or len(item) != 2 or not isinstance(item[0], str):
                raise MessageError(
                    f"a message is [role, text], not {short_repr(item)}", path=f"messages[{number}]"
                )
        return [(role, message) for role, message in self.messages]

    def _keys(self) -> tuple[list[str], Row]:
        """What each message's role is called in an OpenAI conversation; the texts of roles that have no such name."""
        if (
            not isinstance(self.roles, tuple)
            or len(self.roles) < 2
            or not all(isinstance(r, str) for r in self.roles)
        ):
            raise SourceError(
                f"roles are the names of the user and the assistant, not {short_repr(self.roles)}"
            )
        known = {self.roles[1]: "assistant", self.roles[0]: "user"}
        alike = len(known) == 1
        others: Row = {}
        keys = []
        for number, (role, _) in enumerate(self._pairs()):
            if alike and role in known:
                keys.append("assistant" if number % 2 else "user")
            elif role in known:
                keys.append(known[role])
            else:
                others.setdefault(f"other {role}", role)
                keys.append(f"other {role}")
        return keys, others

    # -- changing

    def set_system_message(self, system_message: str) -> None:
        self.system_message = system_message

    def get_system_message(self, is_vision: bool = False) -> str:
        return (
            self.system_message_vision
            if is_vision and self.system_message_vision
            else self.system_message
        )

    def append_message(self, role: str, message: Any) -> None:
        """Add a turn: text, (text, images), or None for one that is still to be written."""
        if isinstance(self.messages, tuple):
            self.messages = [list(item) for item in self.messages]
        self.messages.append([role, message])

    def update_last_message(self, message: Any) -> None:
        """Give the last turn its text."""
        if not self.messages:
            raise MessageError("there is no last message to update", path="messages")
        self.messages[-1] = [self.messages[-1][0], message]

    def copy(self) -> Conversation:
        """A Conversation with messages of its own."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        lists = {key: list(value) for key, value in values.items() if isinstance(value, list)}
        twin = type(self)(**{**values, **lists, "messages": [list(pair) for pair in self._pairs()]})
        own = {key: value for key, value in vars(self).items() if key not in values}
        vars(twin).update(own)  # switches that were set on this one
        return twin

    # -- other people's shapes

    def get_images(self) -> list[Any]:
        """The images of the user's turns."""
        asked = self._pairs()[self.offset :: 2]
        images = [image for _, message in asked if is_pair(message) for image in message[1]]
        return [getattr(image, "base64_str", None) or image for image in images]

    def to_openai_api_messages(self) -> list[Row]:
        """The conversation as OpenAI's chat completions take it, without the examples."""
        if self.strict_fastchat:
            return exported("openai", self.system_message, ()) + [
                {"role": "assistant" if number % 2 else "user", "content": message}
                for number, (_, message) in enumerate(self._pairs()[self.offset :])
                if not (number % 2 and message is None)
            ]
        keys = self._keys()[0][self.offset :]
        turns = zip(keys, self._pairs()[self.offset :], strict=True)
        return exported("openai", self.system_message, ()) + [
            {
                "role": key if key in ("user", "assistant") else "system",
                "content": openai_content(message),
            }
            for key, (_, message) in turns
            if message is not None
        ]

    def to_openai_vision_api_messages(self, is_mistral: bool = False) -> list[Row]:
        """The same with images as parts; Mistral takes the address of an image without the object around it."""
        return self._exported("mistral" if is_mistral else "openai")

    def to_gemini_api_messages(self) -> list[Row]:
        return self._exported("gemini")

    def to_anthropic_vision_api_messages(self) -> list[Row]:
        return self._exported("anthropic")

    def to_vertex_api_messages(self) -> list[Any]:
        """Texts in their order, and before each the bytes of its images."""
        return self._exported("vertex")

    def to_reka_api_messages(self) -> list[Row]:
        return self._exported("reka")

    def to_metagen_api_messages(self) -> list[Row]:
        return self._exported("metagen")

    def _exported(self, service: str) -> list[Any]:
        return exported(service, self.system_message, self._texts()[self.offset :])

    def to_gradio_chatbot(self) -> list[list[Any]]:
        """Pairs of question and answer; the first image of a question stands in it as HTML."""
        pairs: list[list[Any]] = []
        for number, (_, message) in enumerate(self._pairs()[self.offset :]):
            if number % 2:
                pairs[-1][1] = message
            elif is_pair(message):
                shown_image = (
                    f'<img src="{to_openai_image_format(message[1][0])}" alt="user upload image" />'
                )
                pairs.append([shown_image + message[0].replace("<image>\n", "").strip(), None])
            else:
                pairs.append([message, None])
        return pairs

    def extract_text_from_messages(self) -> list[tuple[str, Any]]:
        return [
            (role, message[0] if is_pair(message) else message) for role, message in self._pairs()
        ]

    def extract_text_and_image_hashes_from_messages(self) -> list[tuple[str, Any]]:
        return [
            (
                role,
                (message[0], [_image_key(image) for image in message[1]])
                if is_pair(message)
                else message,
            )
            for role, message in self._pairs()
        ]

    def save_new_images(
        self, has_csam_images: bool = False, use_remote_storage: bool = False
    ) -> None:
        """Write the images of the last question under `$LOGDIR`, each named by what `dict()` keeps of it."""
        if use_remote_storage and not has_csam_images:
            raise MessageError(
                "images are saved on this machine only", hint="Say use_remote_storage=False."
            )
        asked = self.messages[-2][1] if len(self.messages) > 1 else None
        folder = Path(
            os.environ.get("LOGDIR", "."), "csam_images" if has_csam_images else "serve_images"
        )
        for one in (image for image in parted(asked)[1] if image.data):
            if not re.fullmatch(r"[\w+-]+", one.filetype):  # it becomes a part of the file's name
                raise MessageError(
                    f"an image has the file type {short_repr(one.filetype)}",
                    hint="For example: png.",
                )
            file = folder / f"{one.digest()}.{one.filetype}"
            if not file.is_file():
                folder.mkdir(parents=True, exist_ok=True)
                file.write_bytes(one.decoded())

    def dict(self) -> Row:
        """What logs keep of a conversation."""
        return {
            "template_name": self.name,
            "system_message": self.system_message,
            "roles": self.roles,
            "messages": self.extract_text_and_image_hashes_from_messages(),
            "offset": self.offset,
        }


def _content(number: int, message: Any) -> Any:
    """A message's content for the renderer, which needs to know only how many images there are."""
    if message is None or isinstance(message, str):
        return message
    if not is_pair(message) or not isinstance(message[0], str):
        raise MessageError(
            f"a message is text, (text, images) or None, not {short_repr(message)}",
            path=f"messages[{number}]",
        )
    return [{"type": "image"}] * len(message[1]) + [{"type": "text", "text": message[0]}]


def to_openai_image_format(image: Any) -> str:
    """The address of an image: a text is one already; FastChat's image objects know theirs."""
    return picture(image).address


def _image_key(image: Any) -> Any:
    """An address stands for itself, an image object for the digest of its data."""
    known = picture(image)
    return known.digest() if known.data and not isinstance(image, str) else image


@lru_cache(maxsize=512)
def _template(
    style: SeparatorStyle | None,
    name: str,
    system_template: str,
    roles: tuple[str, ...],
    sep: str | None,
    sep2: str | None,
    others: Sequence[tuple[str, str]],
    exact: bool,
) -> Template:
    """The compiled template of a Conversation. What changes from call to call is no part of it."""
    given = {
        "name": name,
        "system_template": system_template,
        "roles": roles,
        "sep": sep,
        "sep2": sep2,
    }
    form = parse_spec({**given, "sep_style": style})
    return Template.from_jinja(translate_spec(form, exact, dict(others)), name=f"fastchat:{name}")


# -- the registry ----------------------------------------------------------------------------------------------------


def _conversation(item: Mapping[str, Any]) -> Conversation:
    """A registered template; the one whose style FastChat left out can be had, and says so when it is rendered."""
    given = copy_source(item)
    if given.get("sep_style") is not None:
        given["sep_style"] = SeparatorStyle[given["sep_style"]]
    given["roles"] = tuple(given.get("roles", FastChatSpec.__dataclass_fields__["roles"].default))
    return Conversation(**given)


conv_templates: dict[str, Conversation] = {
    name: _conversation(item) for name, item in registry.templates().items()
}


def register_conv_template(template: Conversation, override: bool = False) -> None:
    """Add a template to `conv_templates`; a name that is taken needs `override`."""
    if not isinstance(getattr(template, "name", None), str) or not hasattr(template, "copy"):
        raise SourceError(f"a template is a Conversation, not {short_repr(template)}")
    if not override and template.name in conv_templates:
        raise AlreadyRegistered(
            f"{template.name!r} has been registered", hint="Pass override=True to replace it."
        )
    conv_templates[template.name] = template


def get_conv_template(name: str) -> Conversation:
    """A copy of a registered template, to hold a conversation with."""
    found = conv_templates.get(name) if isinstance(name, str) else None
    if found is None and isinstance(name, str):
        lower = {known.lower(): known for known in conv_templates}
        found = conv_templates.get(lower.get(name.lower(), name))
    if found is None:
        raise UnknownTemplate(
            f"no conversation template is called {short_repr(name)}", hint=_near(str(name))
        )
    return found.copy()


def _near(name: str) -> str | None:
    by_lower = {known.lower(): known for known in conv_templates}
    start = [
        known
        for lower, known in by_lower.items()
        if name and (lower.startswith(name.lower()) or name.lower() in lower)
    ]
    return did_you_mean(name, [*start, *conv_templates][:50], "Registered are")


def get_conversation_template(model_path: str, strict_fastchat: bool | None = None) -> Conversation:
    """The template that FastChat takes for a model, found by the name in its path."""
    exact = Conversation.strict_fastchat if strict_fastchat is None else strict_fastchat
    return get_conv_template(registry.match_path(model_path, exact).template)
