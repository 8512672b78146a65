"""FastChat's `Conversation`: a template and the messages of one conversation.

A `Conversation` has FastChat's thirteen fields and its methods. `get_prompt` translates the fields to Jinja (once for
all conversations of a template) and renders the messages with turnwise, so `rendering()` also tells where each
character came from. Differences from FastChat:

* separators and tags are chosen by role;
* roles and images are kept in OpenAI's messages;
* messages can be appended to a new Conversation;
* names are found in any case, `v0` is found on token boundaries, and there is a `chatml`.

An empty message is a turn that is still open, as in FastChat, whose callers append `""` for the answer to come; with
`open_empty_turns = False` it is a finished turn, as in `turnwise.load("fastchat:...")`.

`strict_fastchat = True`, on one Conversation or on the class, gives FastChat's behaviour to the byte; functions without
a Conversation take it as an argument.

Errors are turnwise's and also of the type that FastChat would raise (AssertionError, KeyError, ValueError).

Images are passed on as they are: never downloaded, resized, hashed or saved. Of the formats of model services only
OpenAI's is written; `turnwise.shapes` makes requests of other services out of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from turnwise.dialects.fastchat import parse_spec
from turnwise.dialects.fastchat_jinja import IMAGE_PLACEHOLDER, translate_spec
from turnwise.dialects.fastchat_styles import STYLES, SeparatorStyle
from turnwise.engine.provenance.rendering import Rendering
from turnwise.errors import MessageError, SourceError, TurnwiseError, short_repr
from turnwise.messages import JsonObject, Path
from turnwise.template import Template, compile_jinja

IMAGE_PLACEHOLDER_STR = IMAGE_PLACEHOLDER
MAX_FILLED = 1_000_000
"""A longer prompt is rendered, since rendering has budgets."""
SYSTEM = -1
SAMPLE = " \r\n\n\ue000{}\ue000aA<|>\r\n\n "
"""A text that strip, replace and changes of case would alter; private characters are around its number."""
TEXT_FUNCTIONS: dict[str, Callable[[str], str]] = {
    " | trim": str.strip,
    r" | replace('\r\n', '\n') | replace('\n\n', '\n')": (
        lambda text: text.replace("\r\n", "\n").replace("\n\n", "\n")
    ),
}
"""What the filters of a style make of the text of a message."""
FILTERED_STYLES = {
    style: TEXT_FUNCTIONS[row.text_filter] for style, row in STYLES.items() if row.text_filter
}


@dataclass
class Conversation:
    """A template of FastChat and the messages of one conversation.

    Example:
        >>> conversation = get_conv_template("vicuna_v1.1")
        >>> conversation.append_message(conversation.roles[0], "Hello!")
        >>> conversation.append_message(conversation.roles[1], None)
        >>> conversation.get_prompt().endswith("USER: Hello! ASSISTANT:")
        True
    """

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

    strict_fastchat = False  # without an annotation: a switch, not a field
    open_empty_turns = True
    image_placeholder = IMAGE_PLACEHOLDER_STR

    def __post_init__(self) -> None:
        # FastChat's default is a tuple, to which nothing can be appended; JSON has no tuples and no enumerations.
        if isinstance(self.messages, tuple):
            self.messages = [list(message) for message in self.messages]
        given: Any = self.roles
        self.roles = tuple(given) if isinstance(given, list) else given
        if isinstance(self.sep_style, int) and self.sep_style in list(SeparatorStyle):
            self.sep_style = SeparatorStyle(self.sep_style)

    # -- rendering

    def get_prompt(self) -> str:
        """Return the prompt: `rendering()` as text, from a skeleton where one is known."""
        texts: dict[int, str] = {}
        shape = None
        if self.messages.__class__ is list and self.system_message.__class__ is str:
            shape = _read_shape(self.messages, texts)
        fields = (
            *(self.sep_style, self.name, self.system_template, bool(self.system_message)),
            *(self.roles, self.sep, self.sep2, self.image_placeholder),
            *(bool(self.strict_fastchat), bool(self.open_empty_turns)),
        )
        try:
            skeleton = () if shape is None else _make_skeleton(fields, shape)
        except TypeError:  # a field that is not hashable
            skeleton = ()
        if skeleton and self.sep_style in FILTERED_STYLES:
            change = FILTERED_STYLES[self.sep_style]
            texts = {key: change(text) for key, text in texts.items()}
        texts[SYSTEM] = self.system_message
        parts = [part if isinstance(part, str) else texts[part] for part in skeleton]
        if not parts or sum(map(len, parts)) > MAX_FILLED:
            return str(self.rendering())
        return "".join(parts)

    def rendering(self) -> Rendering:
        """Return the prompt with the origin of each character."""
        keys, others = self._openai_roles()
        fields = (
            *(self.sep_style, self.name, self.system_template, self.roles, self.sep, self.sep2),
            *(tuple(others.items()), bool(self.strict_fastchat)),
        )
        try:
            template = _compile_template(*fields)
        except TypeError:  # a field that is not hashable is not text either; the check names it
            template = _compile_template.__wrapped__(*fields)
        messages: list[JsonObject] = [{"role": "system", "content": self.system_message}]
        for index, (key, text) in enumerate(zip(keys, self._texts(), strict=True)):
            if text == "" and self.open_empty_turns:
                text = None
            messages.append({"role": key, "content": _to_content(index, text)})
        last = messages[-1]
        is_open = last["role"] == "assistant" and last["content"] is None
        return template.render(
            messages[:-1] if is_open else messages,
            add_generation_prompt=is_open,
            normalise=False,
            image_placeholder=self.image_placeholder,
        )

    def _texts(self) -> list[Any]:
        return [message for _, message in self._pairs()]

    def _pairs(self) -> list[tuple[str, Any]]:
        """Return the messages as (role, text); raise MessageError for anything else."""
        if not isinstance(self.messages, list | tuple):
            raise MessageError(
                f"must be a list of [role, text], not {short_repr(self.messages)}", path="messages"
            )
        for number, item in enumerate(self.messages):
            if not isinstance(item, list | tuple) or len(item) != 2 or not isinstance(item[0], str):
                raise MessageError(
                    f"a message is [role, text], not {short_repr(item)}", path=f"messages[{number}]"
                )
        return [(role, message) for role, message in self.messages]

    def _openai_roles(self) -> tuple[list[str], dict[str, str]]:
        """Return each message's role in an OpenAI conversation, and the names of roles that OpenAI does not have."""
        user, assistant = _user_and_assistant(self.roles)
        others: dict[str, str] = {}
        keys = []
        for number, (role, _) in enumerate(self._pairs()):
            if role not in (user, assistant):
                key = f"other {role}"
                others[key] = role
            elif user == assistant:  # one name for both, which then alternate
                key = "assistant" if number % 2 else "user"
            else:
                key = "assistant" if role == assistant else "user"
            keys.append(key)
        return keys, others

    # -- changing

    def set_system_message(self, system_message: str) -> None:
        """Set the system message."""
        self.system_message = system_message

    def get_system_message(self, is_vision: bool = False) -> str:
        """Return the system message; for vision the other one, if there is one."""
        if is_vision and self.system_message_vision:
            return self.system_message_vision
        return self.system_message

    def append_message(self, role: str, message: Any) -> None:
        """Add a message: text, (text, images), or None for the turn that the model is to write."""
        if isinstance(self.messages, tuple):
            self.messages = [list(item) for item in self.messages]
        self.messages.append([role, message])

    def update_last_message(self, message: Any) -> None:
        """Replace the text of the last message."""
        if not self.messages:
            raise MessageError("there is no last message to update", path="messages")
        self.messages[-1] = [self.messages[-1][0], message]

    def copy(self) -> Conversation:
        """Return a Conversation with its own list of messages."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        lists = {key: list(value) for key, value in values.items() if isinstance(value, list)}
        twin = type(self)(**{**values, **lists, "messages": [list(pair) for pair in self._pairs()]})
        own = {key: value for key, value in vars(self).items() if key not in values}
        vars(twin).update(own)  # switches that were set on this one
        return twin

    # -- other shapes

    def get_images(self) -> list[Any]:
        """Return the images of the user's turns."""
        asked = self._pairs()[self.offset :: 2]
        images = [image for _, message in asked if has_images(message) for image in message[1]]
        return [getattr(image, "base64_str", None) or image for image in images]

    def to_openai_api_messages(self) -> list[JsonObject]:
        """Return the conversation in the format of OpenAI's chat completions, without the examples."""
        rows: list[JsonObject] = []
        if self.system_message:
            rows.append({"role": "system", "content": self.system_message})
        keys = [] if self.strict_fastchat else self._openai_roles()[0][self.offset :]
        for number, message in enumerate(self._texts()[self.offset :]):
            if self.strict_fastchat:  # roles by position, images as they are
                role = "assistant" if number % 2 else "user"
                if message is not None or role == "user":
                    rows.append({"role": role, "content": message})
            elif message is not None:
                role = keys[number] if keys[number] in ("user", "assistant") else "system"
                rows.append({"role": role, "content": openai_content(message)})
        return rows

    def to_openai_vision_api_messages(self) -> list[JsonObject]:
        """Return the same with images as parts; roles go by position, as in FastChat."""
        strict = self.copy()
        strict.strict_fastchat = True
        rows = strict.to_openai_api_messages()
        return [row | {"content": openai_content(row["content"])} for row in rows]

    def to_gradio_chatbot(self) -> list[list[Any]]:
        """Return pairs of question and answer; the first image of a question becomes HTML."""
        pairs: list[list[Any]] = []
        for number, (_, message) in enumerate(self._pairs()[self.offset :]):
            if number % 2:
                pairs[-1][1] = message
            elif has_images(message):
                address = to_openai_image_format(message[1][0])
                image = f'<img src="{address}" alt="user upload image" />'
                pairs.append([image + message[0].replace("<image>\n", "").strip(), None])
            else:
                pairs.append([message, None])
        return pairs

    def extract_text_from_messages(self) -> list[tuple[str, Any]]:
        """Return the roles and texts, without images."""
        return [
            (role, message[0] if has_images(message) else message)
            for role, message in self._pairs()
        ]

    def dict(self) -> JsonObject:
        """Return the data of the conversation for logs."""
        return {
            "template_name": self.name,
            "system_message": self.system_message,
            "roles": self.roles,
            "messages": [
                (
                    role,
                    (message[0], list(map(to_openai_image_format, message[1])))
                    if has_images(message)
                    else message,
                )
                for role, message in self._pairs()
            ],
            "offset": self.offset,
        }


def _user_and_assistant(roles: Any) -> tuple[str, str]:
    is_tuple = isinstance(roles, tuple) and len(roles) > 1
    if not is_tuple or not all(isinstance(role, str) for role in roles):
        problem = "roles are the names of the user and the assistant"
        raise SourceError(f"{problem}, not {short_repr(roles)}")
    return roles[0], roles[1]


def _to_content(number: int, message: Any) -> Any:
    """Return a message's content for the renderer, which only needs the number of images."""
    if message is None or isinstance(message, str):
        return message
    if not has_images(message) or not isinstance(message[0], str):
        raise MessageError(
            f"a message is text, (text, images) or None, not {short_repr(message)}",
            path=f"messages[{number}]",
        )
    return [{"type": "image"}] * len(message[1]) + [{"type": "text", "text": message[0]}]


def has_images(message: Any) -> bool:
    """Return True for (text, images), which JSON makes a list."""
    is_pair = isinstance(message, tuple | list) and len(message) == 2
    return is_pair and isinstance(message[1], tuple | list)


def openai_content(message: Any) -> Any:
    """Return text, or parts if there are images."""
    if not has_images(message):
        return message
    urls = map(to_openai_image_format, message[1])
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [{"type": "text", "text": message[0]}, *images]


def to_openai_image_format(image: Any) -> str:
    """Return the address of an image: a text as it is, or that of FastChat's image objects.

    Example:
        >>> to_openai_image_format("https://example.com/a.png")
        'https://example.com/a.png'
    """
    to_address = getattr(image, "to_openai_image_format", None)
    if callable(to_address):
        return str(to_address())
    if getattr(image, "base64_str", None):
        return f"data:image/{getattr(image, 'filetype', None) or ''};base64,{image.base64_str}"
    return str(getattr(image, "url", image))


def _read_shape(messages: list[Any], texts: dict[int, str]) -> tuple[tuple[str, Any], ...] | None:
    """Return each message's role and whether it has a text, which is put into `texts`; None for anything else."""
    shape: list[tuple[str, Any]] = []
    for index, message in enumerate(messages):
        if message.__class__ is not list or len(message) != 2:
            return None
        role, text = message
        if text.__class__ is str and text:
            texts[index] = text
            shape.append((role, True))
        elif text is None or text == "":
            shape.append((role, text))
        else:
            return None
    return tuple(shape)


@lru_cache(maxsize=512)
def _make_skeleton(fields: tuple[Any, ...], shape: tuple[tuple[str, Any], ...]) -> Path:
    """Return the prompt of every conversation of one shape: texts of the template, and numbers of messages.

    A template of this dialect writes each message in a place that its role and its number choose, so the place is found
    by rendering sample texts once. The result is empty where texts are not written as they are, or rendering fails.
    """
    style, name, system_template, has_system, roles, sep, sep2, placeholder, strict, opens = fields
    if strict and style in STYLES and STYLES[style].strip_end:
        return ()  # cuts characters off the whole prompt, which may be those of a message
    # A style with filters gets a text on which they have nothing to do.
    text = SAMPLE.strip() if style in FILTERED_STYLES else SAMPLE
    messages = [
        [role, text.format(number) if given is True else given]
        for number, (role, given) in enumerate(shape)
    ]
    system = text.format(SYSTEM) if has_system else ""
    sample = Conversation(name, system_template, system, "", roles, messages)
    sample.sep_style, sample.sep, sample.sep2 = style, sep, sep2
    sample.strict_fastchat, sample.open_empty_turns = strict, opens
    sample.image_placeholder = placeholder
    try:
        number = re.escape(text).replace(r"\{\}", "(-?[0-9]+)")
        parts = re.split(number, sample.rendering().text)
    except TurnwiseError:
        return ()
    if any("\ue000" in part for part in parts[::2]):
        return ()
    return tuple(int(part) if index % 2 else part for index, part in enumerate(parts))


@lru_cache(maxsize=512)
def _compile_template(
    style: SeparatorStyle | None,
    name: str,
    system_template: str,
    roles: tuple[str, ...],
    sep: str | None,
    sep2: str | None,
    others: Sequence[tuple[str, str]],
    exact: bool,
) -> Template:
    """Return the compiled template of a Conversation; the arguments are the cache key, so no messages."""
    fields = {"name": name, "system_template": system_template, "roles": roles}
    spec = parse_spec({**fields, "sep_style": style, "sep": sep, "sep2": sep2})
    return compile_jinja(translate_spec(spec, exact, dict(others)), name=f"fastchat:{name}")
