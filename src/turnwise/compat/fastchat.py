"""FastChat's conversation and model adapter modules, by their own names: change the import, and the rest stays.

    from turnwise.compat.fastchat import get_conv_template      # was: fastchat.conversation
    from turnwise.compat.fastchat import BaseModelAdapter       # was: fastchat.model.model_adapter

`Conversation` is in `fastchat_conversation.py`, which lists the differences from FastChat. Here are templates by name,
and the adapters: which template a model path gets, and how users add rules of their own.

    class MyAdapter(BaseModelAdapter):
        def match(self, model_path):
            return "my-model" in model_path.lower()

        def get_default_conv_template(self, model_path):
            return get_conv_template("vicuna_v1.1")

    register_model_adapter(MyAdapter)

`model_adapters` is FastChat's list in FastChat's order: one adapter for each rule of `registry/fastchat.py`, and
`BaseModelAdapter`, which takes every path. A path is tried as FastChat does it: its last part on each adapter but the
base, then the whole path on each. FastChat puts users' adapters behind its base adapter, so that a whole path never
reaches them; here they stand before it. FastChat's own adapters can be imported by their names (`VicunaAdapter`), to be
inherited from. Models are not loaded here: `load_model` says so.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from turnwise.compat.fastchat_conversation import (
    IMAGE_PLACEHOLDER_STR,
    Conversation,
    to_openai_image_format,
)
from turnwise.dialects.fastchat import InvalidStyle
from turnwise.dialects.fastchat_styles import FastChatSpec, SeparatorStyle
from turnwise.dialects.translation import copy_source
from turnwise.errors import SourceError, did_you_mean, short_repr
from turnwise.registry import fastchat as registry

__all__ = [
    "ANTHROPIC_MODEL_LIST",
    "IMAGE_PLACEHOLDER_STR",
    "OPENAI_MODEL_LIST",
    "BaseModelAdapter",
    "Conversation",
    "InvalidStyle",
    "SeparatorStyle",
    "conv_templates",
    "get_conv_template",
    "get_conversation_template",
    "get_model_adapter",
    "model_adapters",
    "register_conv_template",
    "register_model_adapter",
    "to_openai_image_format",
]

Adapter = TypeVar("Adapter", bound="type[BaseModelAdapter]")


class AlreadyRegistered(SourceError, AssertionError):
    """The name is taken; FastChat raises AssertionError."""


class UnknownTemplate(SourceError, KeyError):
    """There is no template of this name; FastChat raises KeyError."""


# -- templates by name -----------------------------------------------------------------------------------------------


def _build_conversation(item: Mapping[str, Any]) -> Conversation:
    """Return a registered template; one without a separator style raises only when it is rendered."""
    given = copy_source(item)
    if given.get("sep_style") is not None:
        given["sep_style"] = SeparatorStyle[given["sep_style"]]
    given["roles"] = tuple(given.get("roles", FastChatSpec.__dataclass_fields__["roles"].default))
    return Conversation(**given)


conv_templates: dict[str, Conversation] = {
    name: _build_conversation(item) for name, item in registry.templates().items()
}


def register_conv_template(template: Conversation, override: bool = False) -> None:
    """Add a template to `conv_templates`.

    Args:
        template: A Conversation with a name.
        override: Replace a template of the same name.

    Raises:
        SourceError: If the name is taken (also an AssertionError), or it is not a Conversation.

    Example:
        >>> register_conv_template(Conversation("mine", roles=("A", "B")), override=True)
        >>> get_conv_template("mine").roles
        ('A', 'B')
    """
    if not isinstance(getattr(template, "name", None), str) or not hasattr(template, "copy"):
        raise SourceError(f"a template is a Conversation, not {short_repr(template)}")
    if not override and template.name in conv_templates:
        raise AlreadyRegistered(
            f"{template.name!r} has been registered", hint="Pass override=True to replace it."
        )
    conv_templates[template.name] = template


def get_conv_template(name: str) -> Conversation:
    """Return a copy of a registered template.

    Args:
        name: The name of a template, in any case.

    Raises:
        SourceError: If there is none of this name; also a KeyError.

    Example:
        >>> get_conv_template("vicuna_v1.1").roles
        ('USER', 'ASSISTANT')
    """
    wanted = str(name).lower()
    lower = {known.lower(): known for known in conv_templates}
    if not isinstance(name, str) or wanted not in lower:
        # Names that contain the wrong one come first.
        similar = [known for known in conv_templates if wanted and wanted in known.lower()]
        hint = did_you_mean(str(name), [*similar, *conv_templates][:50], "Registered are")
        raise UnknownTemplate(f"no conversation template is called {short_repr(name)}", hint=hint)
    return (conv_templates.get(name) or conv_templates[lower[wanted]]).copy()


# -- model adapters --------------------------------------------------------------------------------------------------


class NoModelAdapter(SourceError, ValueError):
    """No adapter takes the path; FastChat raises ValueError."""


class ModelsNotLoaded(SourceError, NotImplementedError):
    """Models are not loaded here."""


class BaseModelAdapter:
    """The base of adapters, and the one for paths that no other takes."""

    use_fast_tokenizer = True

    def match(self, model_path: str) -> bool:
        """Return True if this adapter is for the model at a path."""
        return True

    def get_default_conv_template(self, model_path: str) -> Conversation:
        """Return the template of a model."""
        return get_conv_template("one_shot")

    def load_model(self, model_path: str, from_pretrained_kwargs: Any = None) -> Any:
        """Refuse to load a model; an adapter of your own may do it."""
        raise ModelsNotLoaded(
            f"turnwise has the templates of models, and does not load {short_repr(model_path)}",
            hint="Load it with transformers, or with FastChat itself.",
        )

    def load_compress_model(
        self, model_path: str, device: str, torch_dtype: Any, revision: str = "main"
    ) -> Any:
        """Refuse to load a model; an adapter of your own may do it."""
        return self.load_model(model_path)


class RuleAdapter(BaseModelAdapter):
    """One of FastChat's own adapters, which are rules: a pattern for paths, and templates to choose from."""

    rule_name = ""

    def match(self, model_path: str) -> bool:
        """Return True if the rule's pattern is found in the path."""
        return self.match_rule(model_path, _is_exact())

    def match_rule(self, model_path: str, exact: bool) -> bool:
        """Return the same for one way of matching; `exact` matches short words anywhere in the path."""
        # The rule for PEFT adapters, which FastChat tells by their names, is an exact one.
        rule = _rules(exact).get(self.rule_name)
        return rule is not None and rule.pattern.matches(model_path, model_path.lower())

    def get_default_conv_template(self, model_path: str) -> Conversation:
        """Return the template that the rule chooses for the path."""
        rule = _rules(_is_exact()).get(self.rule_name) or _rules(True)[self.rule_name]
        return get_conv_template(registry.choose_template(rule, model_path)[1])


def _is_exact() -> bool:
    return bool(Conversation.strict_fastchat)


@cache
def _rules(exact: bool) -> dict[str, registry.AdapterRule]:
    return {rule.adapter: rule for rule in registry.rules(exact)}


ADAPTERS: dict[str, type[BaseModelAdapter]] = {
    name: type(name, (RuleAdapter,), {"rule_name": name, "__doc__": f"FastChat's {name}."})
    for name in _rules(True)
}
"""FastChat's adapters by name."""
ADAPTERS[BaseModelAdapter.__name__] = BaseModelAdapter
model_adapters: list[Any] = [adapter() for adapter in ADAPTERS.values()]
"""All adapters, in the order in which they are tried."""


def _list_models(adapter: str) -> tuple[str, ...]:
    pattern = _rules(True)[adapter].pattern.text
    names = pattern.removeprefix("(?-i:^(?:").removesuffix(")$)")
    return tuple(names.replace("\\", "").split("|"))


OPENAI_MODEL_LIST = _list_models("ChatGPTAdapter")
ANTHROPIC_MODEL_LIST = _list_models("ClaudeAdapter")


def register_model_adapter(cls: Adapter) -> Adapter:
    """Add an adapter behind FastChat's own; it can also be used as a decorator.

    Args:
        cls: A class with `match` and `get_default_conv_template`.

    Raises:
        SourceError: If it is not such a class.
    """
    methods = ("match", "get_default_conv_template")
    if not isinstance(cls, type) or not all(callable(getattr(cls, name, None)) for name in methods):
        raise SourceError(
            f"an adapter is a class with {' and '.join(methods)}, not {short_repr(cls)}",
            hint="Inherit from BaseModelAdapter.",
        )
    kinds = [*map(type, model_adapters), BaseModelAdapter]
    model_adapters.insert(kinds.index(BaseModelAdapter), cls())
    return cls


def get_model_adapter(model_path: str) -> Any:
    """Return the adapter of a model path.

    Raises:
        SourceError: If the path is not text, or no adapter takes it; also a ValueError.

    Example:
        >>> type(get_model_adapter("lmsys/vicuna-7b-v1.5")).__name__
        'VicunaAdapter'
    """
    return _find_adapter(_check_path(model_path), _is_exact())


def _find_adapter(path: str, exact: bool) -> Any:
    own = [adapter for adapter in model_adapters if type(adapter) is not BaseModelAdapter]
    name = os.path.basename(os.path.normpath(path))
    tries = [
        *((adapter, name) for adapter in own),
        *((adapter, path) for adapter in model_adapters),
    ]
    for adapter, text in tries:
        is_rule = type(adapter) in ADAPTERS.values() and isinstance(adapter, RuleAdapter)
        if adapter.match_rule(text, exact) if is_rule else adapter.match(text):
            return adapter
    raise NoModelAdapter(f"no model adapter takes {short_repr(path)}")


def _check_path(model_path: Any) -> str:
    """Return a path, that of the base model for a folder with a PEFT adapter."""
    if not isinstance(model_path, str):
        raise SourceError(f"a model path is text, not {type(model_path).__name__}")
    return registry.find_base_model(model_path)


def get_conversation_template(model_path: str, strict_fastchat: bool | None = None) -> Conversation:
    """Return the template that FastChat uses for a model.

    Args:
        model_path: The path or id of the model.
        strict_fastchat: Match short words anywhere in the path, as FastChat does; by default the switch of the class.

    Raises:
        SourceError: If the path is not text, or names a PEFT adapter without a base model.

    Example:
        >>> get_conversation_template("lmsys/vicuna-7b-v1.5").name
        'vicuna_v1.1'
    """
    exact = _is_exact() if strict_fastchat is None else strict_fastchat
    path = _check_path(model_path)
    adapter = _find_adapter(path, exact)
    if type(adapter) in ADAPTERS.values():
        return get_conv_template(registry.match_path(path, exact).template)
    found = adapter.get_default_conv_template(path)
    if not hasattr(found, "get_prompt"):
        raise SourceError(
            f"an adapter returned {short_repr(found)}, no Conversation",
            hint="Its get_default_conv_template returns what get_conv_template returns.",
        )
    template: Conversation = found
    return template


def __getattr__(name: str) -> type[BaseModelAdapter]:
    """Return one of FastChat's own adapters by its name."""
    if name in ADAPTERS:
        return ADAPTERS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
