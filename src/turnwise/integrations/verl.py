"""verl: its Continuous Token builder over a turnwise session, for every template.

    from turnwise.integrations.verl import install

    install()  # in the worker, before agent loops are made

verl keeps the ids of a rollout and has builders, written by hand per family of models, that append what the template
writes between two replies. Here a session does that: sampled ids stay as they are, and only the text behind them is
rendered and encoded. Where the template would now render the earlier text differently, the ids stay all the same, as
verl wants it, and a warning says where they differ.

Ids of prompts are safe: a control token that a message spells is ordinary text. Images, videos and audios are not
supported: builders of multimodal models are left as they are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from warnings import warn

from turnwise.errors import MessageError, TurnwiseWarning, Unstable
from turnwise.integrations.tokenizer_template import template_of
from turnwise.integrations.transformers import raise_expected_errors
from turnwise.messages.roles import ASSISTANT_ROLES
from turnwise.tokens.session import Session

__all__ = ["SessionTokens", "builder_class", "install"]

MAX_REPLY_STARTS = 10_000  # rollouts that are under way in one process
BUILDERS = "verl.utils.tokenizer.continuous_token"
WIRING = "verl.utils.tokenizer.continuous_token_wiring"


@dataclass
class SessionTokens:
    """What a builder needs: ids of a first prompt, and of a prompt that follows a reply.

    Args:
        tokenizer: The tokenizer of the rollout, with a chat template.
        options: Variables of the template.
    """

    tokenizer: Any
    options: dict[str, Any]
    _reply_starts: OrderedDict[int, int] = field(default_factory=OrderedDict)

    def encode_prompt(self, messages: Sequence[Any], tools: Any) -> list[int]:
        """Return the ids of a prompt, generation prompt included."""
        return self._start(messages, tools)[1]

    def note_reply(self, before: Sequence[int], ids: Sequence[int]) -> None:
        """Remember where the reply at the end of `ids` begins: a builder is told ids, not replies."""
        self._reply_starts[hash(tuple(ids))] = len(before)
        while len(self._reply_starts) > MAX_REPLY_STARTS:
            self._reply_starts.popitem(last=False)

    def extend(
        self, previous: Sequence[Any], following: Sequence[Any], ids: Sequence[int], tools: Any
    ) -> list[int]:
        """Return the ids of the next prompt.

        Args:
            previous: The messages before, the last reply included or not.
            following: The messages that are added.
            ids: All ids so far, which end with the reply.
            tools: The tools that are offered.

        Raises:
            MessageError: It is not known where the reply begins, or the messages are wrong.
        """
        given = list(previous)
        if given and given[-1].get("role") in ASSISTANT_ROLES:
            given.pop()  # the reply, which is read from the ids
        session, prompt = self._start(given, tools)
        start = self._reply_starts.get(hash(tuple(ids)))
        if start is None and list(ids[: len(prompt)]) == prompt:
            start = len(prompt)
        if start is None:
            hint = "Give the reply to merge_assistant_tokens first."
            raise MessageError("it is not known where the reply begins in these ids", hint=hint)
        session.replace_ids(list(ids[:start]))
        session.add_reply(list(ids[start:]))
        try:
            return session.extend(following)
        except Unstable as error:
            warn(f"the sampled ids are kept: {error}", TurnwiseWarning, stacklevel=2)
            return session.extend(following, history="keep")

    def _start(self, messages: Sequence[Any], tools: Any) -> tuple[Session, list[int]]:
        template = template_of(self.tokenizer)
        session = template.session(self.tokenizer, tools, **self.options)
        return session, session.prompt(list(messages))


def builder_class() -> Any:
    """Return the builder as a subclass of verl's own."""
    host = import_module(BUILDERS)

    # The host is not there when types are checked.
    class TurnwiseTokenBuilder(host.ContinuousTokenBuilder):  # type: ignore[name-defined]
        """verl's ContinuousTokenBuilder, with the ids of a turnwise session."""

        def __init__(self, tokenizer: Any, **settings: Any) -> None:
            super().__init__(tokenizer, **settings)
            self.tokens = SessionTokens(tokenizer, dict(self.chat_template_kwargs))

        def build_initial_tokens(
            self,
            messages: Any,
            *,
            tools: Any = None,
            images: Any = None,
            videos: Any = None,
            audios: Any = None,
            mm_inputs_out: Any = None,
        ) -> list[int]:
            if images or videos or audios:
                raise ValueError("turnwise builds tokens of text, not of images, videos or audios")
            with raise_expected_errors():
                return self.tokens.encode_prompt(messages, tools)

        def merge_assistant_tokens(self, runtime_token_ids: Any, assistant_token_ids: Any) -> Any:
            result = super().merge_assistant_tokens(runtime_token_ids, assistant_token_ids)
            self.tokens.note_reply(runtime_token_ids, result.token_ids)
            return result

        def merge_context_tokens(
            self,
            previous_messages: Any,
            updated_messages: Any,
            runtime_token_ids: Any,
            *,
            tools: Any = None,
        ) -> Any:
            self._assert_append_only(previous_messages, updated_messages)
            following = updated_messages[len(previous_messages) :]
            ids = list(runtime_token_ids)
            if following:
                with raise_expected_errors():
                    ids = self.tokens.extend(previous_messages, following, ids, tools)
            added = len(ids) - len(runtime_token_ids)
            return host.MergeResult(token_ids=ids, appended_token_count=added, kind="context")

    return TurnwiseTokenBuilder


def install() -> tuple[str, ...]:
    """Make verl build the tokens of all text models with turnwise; return the families that were changed."""
    registry = import_module(WIRING)._CONTINUOUS_TOKEN_BUILDER_REGISTRY
    builder = builder_class()
    changed = []
    for family, own in registry.items():
        if not own.supports_multimodal():
            registry[family] = builder
            changed.append(str(family))
    return tuple(changed)
