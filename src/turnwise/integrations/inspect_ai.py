"""Inspect: providers for transformers and for completions servers, with tools and reasoning for any model.

    inspect eval task.py --model turnwise/MODEL -M base_url=http://localhost:8000/v1 -M tokenizer=FOLDER
    inspect eval task.py --model turnwise-hf/FOLDER

Inspect finds them by the entry point of this package. `turnwise` sends the ids of a prompt to `/v1/completions` of any
server that has it; `turnwise-hf` is Inspect's provider `hf`. Both render with the model's chat template and parse
replies by it, where Inspect's `hf` looks for "llama", "mistral" and "qwen" in the name of the model. Arguments (`-M`)
beside those of Inspect's `openai-api-completions` and `hf`: `template`, another one than the tokenizer's;
`chat_template_args` and `enable_thinking`, options of the template.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from inspect_ai.model import ChatMessageAssistant, ContentReasoning, ContentText, modelapi
from inspect_ai.model._call_tools import parse_tool_call

from turnwise.errors import MessageError, TurnwiseError
from turnwise.integrations.evaluation import RAW_TEXT, EvalChat, EvalPrompt, pop_settings
from turnwise.messages import JsonObject
from turnwise.replies.events import Message
from turnwise.shapes.row import drop_nulls

__all__ = ["make_completions_provider", "make_transformers_provider"]

MAX_TOKENS = 2048  # of a reply, as Inspect has it for transformers


class ChatTemplateProvider:
    """What is put before a provider of Inspect; the methods are those of its `ModelAPI`."""

    turnwise: EvalChat
    model_name: str
    # Returns the raw reply to a prompt, as Inspect's provider does.
    sample: Callable[[EvalPrompt, Any], Awaitable[Any]]

    async def generate(
        self, input: list[Any], tools: list[Any], tool_choice: Any, config: Any
    ) -> Any:
        offered = [_read_tool(tool) for tool in tools] or None
        asked = _read_request(offered, tool_choice, config)
        prompt = self._encode(input, **asked)
        self.turnwise.note_sent(prompt)
        made = await self.sample(prompt, config)
        output = made[0] if isinstance(made, tuple) else made
        for choice in output.choices:
            reply = self.turnwise.parse(choice.message.text, prompt, offered)
            choice.message = _write_message(reply, self.model_name)
            if choice.message.tool_calls:
                choice.stop_reason = "tool_calls"
        output.completion = output.choices[0].message.text if output.choices else ""
        output.metadata = {**(output.metadata or {}), "turnwise": self.turnwise.report()}
        return made

    def _encode(self, input: Sequence[Any], **asked: Any) -> EvalPrompt:
        chat = [_read_message(message, index) for index, message in enumerate(input)]
        is_begun = bool(chat) and chat[-1]["role"] == "assistant"
        return self.turnwise.encode(
            chat, add_generation_prompt=not is_begun, continue_final_message=is_begun, **asked
        )

    async def count_tokens(self, input: Any, config: Any = None) -> int:
        texts = [input]
        if not isinstance(input, str):
            try:
                return len(self._encode(input).ids)
            except TurnwiseError:
                # A part of a conversation, which the template does not take alone.
                texts = [message.text for message in input]
        return sum(len(self.turnwise.tokenizer.whole(text)) for text in texts)

    def max_tokens(self) -> int:
        return MAX_TOKENS

    def collapse_user_messages(self) -> bool:
        return True


@cache
def make_completions_provider() -> Any:
    """Return the provider for completions servers; Inspect asks for it when a model of its name is wanted."""
    host = import_module("inspect_ai.model._providers.openai_compatible_completions")

    # The host is not there when types are checked.
    class TurnwiseCompletionsAPI(ChatTemplateProvider, host.OpenAICompatibleCompletionsAPI):  # type: ignore[name-defined]
        """Sends prompts of ids to `/v1/completions`."""

        def __init__(self, model_name: str, **named: Any) -> None:
            settings = pop_settings(named)
            tokenizer = named.pop("tokenizer", None) or model_name
            self.turnwise = EvalChat(tokenizer, **settings)
            # Local servers ask for no key, and Inspect for one.
            named["api_key"] = named.get("api_key") or os.environ.get("TURNWISE_API_KEY", "none")
            super().__init__(model_name, service="turnwise", **named)

        async def sample(self, prompt: EvalPrompt, config: Any) -> Any:
            stops = [*(config.stop_seqs or ()), *self.turnwise.stops]
            fields = {**RAW_TEXT, **(config.extra_body or {})}
            changed = config.model_copy(update={"stop_seqs": stops, "extra_body": fields})
            return await host.generate_raw_completions(self, prompt.ids, changed)

    return TurnwiseCompletionsAPI


@cache
def make_transformers_provider() -> Any:
    """Return the provider for models that transformers loads."""
    host = import_module("inspect_ai.model._providers.hf")

    # The host is not there when types are checked.
    class TurnwiseHuggingFaceAPI(ChatTemplateProvider, host.HuggingFaceAPI):  # type: ignore[name-defined]
        """Samples with transformers."""

        def __init__(self, *arguments: Any, **named: Any) -> None:
            settings = pop_settings(named)
            super().__init__(*arguments, **named)
            self.turnwise = EvalChat(self.tokenizer, **settings)
            self.tokenizer: Any = PromptTokenizer(self.tokenizer)
            self.model.generation_config.eos_token_id = list(self.turnwise.stops.ids) or None

        async def sample(self, prompt: EvalPrompt, config: Any) -> Any:
            # Inspect's way from messages to a reply, of which only the sampling is wanted: the prompt is there
            # already, and without tools it returns the reply as it is.
            return await host.HuggingFaceAPI.generate(self, prompt, [], "none", config)

        def hf_chat(self, messages: Any, tools: Any) -> Any:
            return messages

    return TurnwiseHuggingFaceAPI


modelapi(name="turnwise")(make_completions_provider)
modelapi(name="turnwise-hf")(make_transformers_provider)


class PromptTokenizer:
    """A tokenizer object that gives prompts their own ids, and keeps special tokens when it decodes replies."""

    def __init__(self, tokenizer: Any) -> None:
        self._own = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def __call__(self, prompts: Any, **named: Any) -> Any:
        if not all(isinstance(prompt, EvalPrompt) for prompt in prompts):
            return self._own(prompts, **named)  # of stop texts
        rows = {"input_ids": [prompt.ids for prompt in prompts]}
        return self._own.pad(rows, padding_side="left", return_tensors="pt")

    def batch_decode(self, *arguments: Any, **named: Any) -> Any:
        return self._own.batch_decode(*arguments, **{**named, "skip_special_tokens": False})


# -- Inspect's objects and ours


def _read_tool(tool: Any) -> JsonObject:
    fields = tool.model_dump(exclude={"options"}, exclude_none=True)
    return {"type": "function", "function": fields}


def _read_request(tools: Any, choice: Any, config: Any) -> JsonObject:
    """Return what a request asks beside its conversation, as `render` takes it."""
    asked: JsonObject = {"reasoning": config.reasoning_effort, "tools": tools}
    if tools:
        known = "required" if choice == "any" else choice
        if not isinstance(choice, str):
            known = {"type": "function", "function": {"name": choice.name}}
        asked |= {"tool_choice": known, "parallel_tool_calls": config.parallel_tool_calls}
    if config.response_schema is not None:
        raise MessageError("replies cannot be held to a schema here", path="response_schema")
    return drop_nulls(asked)


def _read_message(message: Any, index: int) -> JsonObject:
    parts = message.content
    if isinstance(parts, str):
        parts = [ContentText(text=parts)]
    texts: dict[str, list[str]] = {"text": [], "reasoning": []}
    for part in parts:
        if part.type not in texts:
            problem = f"these providers send text, and this is of the type {part.type!r}"
            raise MessageError(problem, path=f"messages[{index}].content")
        texts[part.type].append(getattr(part, part.type))
    chat: JsonObject = {"role": message.role, "content": "\n".join(texts["text"])}
    if texts["reasoning"]:
        chat["reasoning_content"] = "\n".join(texts["reasoning"])
    if message.role == "tool":
        chat |= {"tool_call_id": message.tool_call_id, "name": message.function}
        if message.error is not None:
            chat["content"] = f"Error: {message.error.message}"
    for call in getattr(message, "tool_calls", None) or ():
        function = {"name": call.function, "arguments": call.arguments}
        made = {"id": call.id, "type": "function", "function": function}
        chat.setdefault("tool_calls", []).append(made)
    return chat


def _write_message(reply: Message, model: str) -> ChatMessageAssistant:
    calls = []
    for call in reply.get("tool_calls") or ():
        function = call["function"]
        calls.append(parse_tool_call(call["id"], function["name"], function["arguments"]))
    content: Any = reply["content"]
    if reasoning := reply.get("reasoning_content"):
        content = [ContentReasoning(reasoning=reasoning), ContentText(text=content)]
    return ChatMessageAssistant(
        content=content, tool_calls=calls or None, model=model, source="generate"
    )
