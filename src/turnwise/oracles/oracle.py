"""What all oracles have in common: a request in OpenAI's shape becomes the prompt that the maker's encoder writes."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from turnwise.errors import SourceError
from turnwise.evidence.conform import Engine, Prompt
from turnwise.messages import JsonMapping

REQUEST_ARGUMENTS = ("reasoning_effort", "thinking", "tool_choice", "response_format")
"""What a request may ask beside its conversation; `chat_template_kwargs` may hold them too."""


class Oracle(Engine):
    """A maker's encoder.

    Attributes:
        name: The name that `find_oracle` accepts.
        package: The package that has the encoder; empty for a file.
        version: Its version.
        roles: Roles that its requests call otherwise.
        tokenizer: The vocabulary of the ids that `render` gives, as `encode` accepts it; None if it gives none.

    Raises:
        SourceError: the package is not installed.
    """

    package = ""
    roles: Mapping[str, str] = {"developer": "system"}  # OpenAI's newer name of the same author
    tokenizer: Any = None
    only_prompts = True
    normalises = has_own_rules = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = self._find_version()

    def _find_version(self) -> str:
        try:
            return version(self.package)
        except PackageNotFoundError:
            problem = f"the oracle {self.name!r} needs the package {self.package}"
            raise SourceError(problem, hint=f"pip install {self.package}") from None

    def render(self, request: JsonMapping) -> Prompt:
        """Return the prompt that the maker's encoder writes for a request, or the reason why it refuses.

        Args:
            request: `messages`, and if wanted `tools`, `add_generation_prompt` and the `REQUEST_ARGUMENTS`, in OpenAI's
                shape.
        """
        extra = request.get("chat_template_kwargs") or {}
        asked = {name: extra[name] for name in REQUEST_ARGUMENTS if name in extra}
        asked["messages"] = [
            {**message, "role": self.roles.get(message["role"], message["role"])}
            for message in request["messages"]
        ]
        try:
            return self.write({**request, **asked})
        except Exception as error:  # each package has errors of its own
            return Prompt(refusal=f"{type(error).__name__}: {error}")

    def write(self, request: JsonMapping) -> Prompt:
        """Return the prompt; the encoder may raise anything."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<Oracle {self.name}: {self.package} {self.version}>"
