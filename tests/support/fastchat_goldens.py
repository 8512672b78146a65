"""What the tests of FastChat share: conversations, and the two ways to render one."""

from __future__ import annotations

from functools import cache
from typing import Any

from turnwise.compat.fastchat import Conversation, SeparatorStyle
from turnwise.dialects import fastchat as dialect
from turnwise.registry import fastchat as registry
from turnwise.template import Template, compile_jinja

NAMES = list(registry.templates())
FIELDS = dialect.KEYS
CHAT = [
    {"role": "user", "content": "Hello!"},
    {"role": "assistant", "content": "Hi there!"},
    {"role": "user", "content": "How are you?"},
]
EDGES = {
    "plain": CHAT,
    "system": [{"role": "system", "content": "Be kind."}, *CHAT],
    "answered": [*CHAT, {"role": "assistant", "content": "Fine."}],
    "assistant first": CHAT[1:],
    "two users": [CHAT[0], CHAT[2], CHAT[1]],
    "empty": [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}],
    "open": [CHAT[0], {"role": "assistant", "content": None}],
    "blanks": [
        {"role": "user", "content": " a\r\n\r\nb\n\n "},
        {"role": "assistant", "content": "again <n>"},
    ],
    "none": [],
}
PARTS = [
    {"type": "image_url", "image_url": {"url": "a.png"}},
    {"type": "text", "text": "Look"},
    {"type": "text", "text": "here"},
]
EXAMPLE_OF_STYLE = {
    SeparatorStyle[item["sep_style"]]: name
    for name, item in registry.templates().items()
    if item["sep_style"]
}


@cache
def compile_golden(name: str, exact: bool) -> Template:
    source = registry.templates()[name]
    return compile_jinja(dialect.read(source, exact=exact).jinja, name=name, dialect="fastchat")


def render_golden(
    name: str, chat: Any, prompt: bool = True, exact: bool = False, **options: Any
) -> str:
    return str(compile_golden(name, exact).render(chat, add_generation_prompt=prompt, **options))


def fill_conversation(
    conversation: Conversation, chat: list[dict[str, Any]], prompt: bool = True
) -> Conversation:
    """The conversation, as a FastChat server builds it from OpenAI messages."""
    for message in chat:
        if message["role"] == "system":
            conversation.set_system_message(message["content"])
        else:
            role = conversation.roles[message["role"] == "assistant"]
            conversation.append_message(role, message["content"])
    if prompt:
        conversation.append_message(conversation.roles[1], None)
    return conversation


def custom(style: Any = "ADD_COLON_SINGLE", **given: Any) -> dict[str, Any]:
    return {
        "name": "mine",
        "roles": ["Human", "AI"],
        "sep": "\n\n",
        "sep2": "</s>",
        "sep_style": style,
        **given,
    }
