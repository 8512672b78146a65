"""renderers: turnwise as one of its renderers, for any tokenizer that has a chat template.

    from renderers import CustomRendererConfig, create_renderer

    config = CustomRendererConfig(import_path="turnwise.integrations.renderers.TokenizerRenderer")
    renderer = create_renderer(tokenizer, config)

renderers loads a class by its import path; `build_training_sample`, `build_trajectory_step` and everything else that
takes a renderer then works with it. Fields of the config are variables of the template (`enable_thinking`), and
`thinking_retention="all"` leaves replies as they were sampled where the template would rewrite them.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from turnwise.compat.renderers import TokenRenderer
from turnwise.errors import MessageError
from turnwise.integrations.tokenizer_template import template_of

__all__ = ["create_renderer"]

HISTORY = {None: "same", "all": "keep"}
"""`thinking_retention` of renderers, and what it means for a bridge."""


def create_renderer(tokenizer: Any, **options: Any) -> TokenRenderer:
    """Return a renderer of the tokenizer's chat template, without the package `renderers`.

    Args:
        tokenizer: A tokenizer object of transformers.
        **options: Variables of the template; and `history`, as for `TokenRenderer`.
    """
    return TokenRenderer(template_of(tokenizer), tokenizer, **options)


@cache
def _renderer_class() -> Any:
    configs = import_module("renderers.configs")
    allow_extra = import_module("pydantic").ConfigDict(frozen=True, extra="allow")

    # The host is not there when types are checked.
    class TokenizerRendererConfig(configs.BaseRendererConfig):  # type: ignore[name-defined]
        """Variables of the template, by their names."""

        model_config = allow_extra
        name: str = "turnwise"
        _allow_opaque_template_kwargs = True

    class TokenizerRenderer(TokenRenderer):
        """A renderer as `renderers.create_renderer` makes it: of a tokenizer and a config."""

        config_class = TokenizerRendererConfig

        def __init__(self, tokenizer: Any, config: Any = None) -> None:
            config = config or TokenizerRendererConfig()
            if config.thinking_retention not in HISTORY:
                problem = (
                    f"{config.thinking_retention!r} is not supported; leave it out, or say 'all'"
                )
                raise MessageError(problem, path="thinking_retention")
            history: Any = HISTORY[config.thinking_retention]
            options = dict(config.model_extra or {})
            super().__init__(template_of(tokenizer), tokenizer, history=history, **options)

    return TokenizerRenderer


def __getattr__(name: str) -> Any:
    """Make the class when it is asked for: its config is a class of the package `renderers`."""
    if name == "TokenizerRenderer":
        return _renderer_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
