"""What the integrations of evaluation harnesses share: prompts that carry their ids, answers, and a record of both.

A harness asks for a prompt as text and encodes it later, with a bos too many or with control tokens that a document of
a task spells. So a prompt here is a text that has its ids with it, and where a harness asks for the ids of a text, it
gets these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from turnwise.evidence.eval_card import hash_values
from turnwise.integrations.tokenizer_template import template_of
from turnwise.messages import JsonMapping, JsonObject
from turnwise.registry import load
from turnwise.replies.events import TEXT, Message
from turnwise.tokens.loss import train_nothing
from turnwise.tokens.tokenizers import tokenizer as adapt_tokenizer
from turnwise.tokens.tokenizers.protocol import AFTER, WITHIN

__all__ = ["EvalChat", "EvalPrompt", "pop_settings"]

RAW_TEXT = {"skip_special_tokens": False, "spaces_between_special_tokens": False}
"""What vLLM and SGLang must be asked for, so that a reply has its markers; other servers ignore it."""


class EvalPrompt(str):
    """The text of a prompt, with its ids; it is copied, sorted and pickled as texts are."""

    ids: list[int]


def pop_settings(arguments: JsonObject) -> JsonObject:
    """Take those arguments of a harness's model that are for `EvalChat` out of them, and return them for it.

    They are `template`, and options of the template: `enable_thinking`, and more by their names in
    `chat_template_args`.
    """
    options = dict(arguments.pop("chat_template_args", None) or {})
    if (thinking := arguments.pop("enable_thinking", None)) is not None:
        options["enable_thinking"] = thinking
    return {"template": arguments.pop("template", None), "options": options}


class EvalChat:
    """A template and a tokenizer as a harness needs them.

    Args:
        tokenizer: a tokenizer object of transformers, or a place of one.
        template: the name, file or folder of a template; by default the tokenizer's own.
        options: variables of the template.

    Raises:
        SourceError: there is no chat template.
        TokenizerError: there is no tokenizer.
    """

    def __init__(
        self, tokenizer: Any, template: str | None = None, options: JsonMapping | None = None
    ) -> None:
        self.tokenizer = adapt_tokenizer(tokenizer)
        place = template or tokenizer
        self.template = load(place) if isinstance(place, str) else template_of(place)
        self.options = options or {}
        self.stops = self.template.stops(self.tokenizer)
        self.has_reasoning = self.template.grammar.reasoning is not None
        self._hashes: set[str] = set()
        self._changes: Counter[str] = Counter()

    def encode(self, messages: Sequence[JsonMapping], **arguments: Any) -> EvalPrompt:
        """Return the prompt of a conversation in a form that the template takes; `arguments` are those of `render`.

        Raises:
            TemplateError: the template refuses it in every form.
            MessageError: it is no conversation.
        """
        encoded = self.template.encode(
            messages, self.tokenizer, train_nothing, add_stop=False, **self.options, **arguments
        )
        self._changes.update(f"{one.what} ({one.why})" for one in encoded.rendering.changes)
        prompt = EvalPrompt(encoded.text)
        prompt.ids = encoded.input_ids
        return prompt

    def encode_after(self, prompt: EvalPrompt, text: str) -> list[int]:
        """Return the ids of an answer after a prompt: no control token is read in it, and none of the prompt's ids
        changes, as none does when a model answers.
        """
        is_after = self.tokenizer.token(prompt.ids[-1]) in self.tokenizer.added
        return self.tokenizer.encode(text, AFTER if is_after else WITHIN)

    def parse(self, reply: str, prompt: str, tools: Any = None) -> Message:
        """Return a reply, special tokens included, as a message.

        One that is cut off in its reasoning has no content; what the prompt began of the content is not in it.
        """
        message = self.template.parse(reply, prompt, tools, strip="calls")
        content = "".join(one.text for one in message.events if one.kind == TEXT)
        message["content"] = content.lstrip() if message.get("reasoning_content") else content
        return message

    def note_sent(self, prompt: EvalPrompt) -> None:
        """Count a prompt among those that were sent."""
        self._hashes.add(hash_values(prompt.ids))

    def identify(self) -> str:
        """Return a short text that differs for other templates, options and tokenizers, for the names of caches."""
        parts = (self.template.text, self.template.options, self.options, self.tokenizer.name)
        return hash_values(parts)[:16]

    def report(self) -> JsonObject:
        """Return what was sent, for the results of an evaluation: equal hashes mean equal prompts.

        Its parts are the name of the template, the number of different prompts, one hash of the ids of all of them,
        and how often which change was made before rendering.
        """
        return {
            "template": self.template.name,
            "prompts": len(self._hashes),
            "prompt_ids_sha256": hash_values(sorted(self._hashes)),
            "changes": dict(self._changes),
        }
