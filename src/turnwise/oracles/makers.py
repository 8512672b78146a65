"""The encoders that makers publish as packages, one class each; `ORACLES` has them by name.

A class translates a request in OpenAI's shape to what its package accepts, as the maker documents it, and nothing more.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

from turnwise.errors import SourceError, did_you_mean
from turnwise.evidence.conform import Prompt
from turnwise.messages import JsonMapping, JsonObject
from turnwise.normalisation.results import pair_results, read_link
from turnwise.oracles.encoder_file import EncoderFile
from turnwise.oracles.oracle import Oracle

Request = JsonMapping
MISTRAL_VOCABULARY = "data/tekken_240911.json"
MISTRAL_SIZE = 20_000  # tokens: enough for merges of all kinds, and soon loaded


class DeepSeekRecipe(Oracle):
    """DeepSeek V4 and V4.1, by deepseek-recipe; requests are converted by its own reader of chat completions.

    It gives ids once `tokenizer` is set to the path of the model's tokenizer.json.
    """

    package = "deepseek-recipe"

    def __init__(self, name: str, encoding: str, model: str) -> None:
        super().__init__(name)
        self._encoding, self._model = encoding, model

    def write(self, request: Request) -> Prompt:
        import deepseek_recipe

        body: JsonObject = {"model": self._model}
        for key in ("messages", "tools", "tool_choice", "response_format", "reasoning_effort"):
            if request.get(key) is not None:
                body[key] = request[key]
        if request.get("thinking") is not None:
            body["thinking"] = {"type": "enabled" if request["thinking"] else "disabled"}
        options = deepseek_recipe.ConversionOptions()
        converted = deepseek_recipe.ChatCompletionRequest(body).convert(options)
        encoding = getattr(deepseek_recipe, self._encoding)()
        text = encoding.render_conversation(converted.conversation).prompt
        if self.tokenizer is None:
            return Prompt(text=text)
        ids = encoding.with_tokenizer(self._vocabulary).encode(converted.conversation)
        return Prompt(text=text, ids=tuple(ids))

    @cached_property
    def _vocabulary(self) -> Any:
        import deepseek_recipe

        return deepseek_recipe.Tokenizer.from_file(str(self.tokenizer))


class Harmony(Oracle):
    """gpt-oss, by openai-harmony; it gives ids.

    Its vocabulary is read from the folder that the variable TIKTOKEN_ENCODINGS_BASE of the environment names, or
    downloaded.
    """

    package = "openai-harmony"

    @property
    def tokenizer(self) -> Any:
        return os.path.join(os.environ.get("TIKTOKEN_ENCODINGS_BASE", ""), "o200k_base.tiktoken")

    @cached_property
    def _encoding(self) -> Any:
        from openai_harmony import HarmonyEncodingName, load_harmony_encoding

        return load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)

    def write(self, request: Request) -> Prompt:
        from openai_harmony import Conversation, Role

        conversation = Conversation.from_messages(list(self._list_messages(request)))
        ids = self._encoding.render_conversation_for_completion(conversation, Role.ASSISTANT)
        return Prompt(text=self._encoding.decode_utf8(ids), ids=tuple(ids))

    def _list_messages(self, request: Request) -> Iterator[Any]:
        """Yield the messages of harmony: two that set the rules, then one or more for each of the conversation."""
        from openai_harmony import (
            DeveloperContent,
            Message,
            ReasoningEffort,
            Role,
            SystemContent,
            ToolDescription,
        )

        options = request.get("chat_template_kwargs") or {}
        system = SystemContent.new()
        if request.get("reasoning_effort"):
            effort = ReasoningEffort(request["reasoning_effort"].capitalize())
            system = system.with_reasoning_effort(effort)
        if options.get("conversation_start_date"):
            system.conversation_start_date = options["conversation_start_date"]
        yield Message.from_role_and_content(Role.SYSTEM, system)
        messages = order_results(request["messages"])
        rules = DeveloperContent.new()
        if messages and messages[0]["role"] == "system":
            rules.instructions = messages.pop(0)["content"] or None
        tools = [tool["function"] for tool in request.get("tools") or ()]
        if tools:
            described = [
                ToolDescription.new(
                    tool["name"], tool.get("description") or "", tool.get("parameters")
                )
                for tool in tools
            ]
            rules = rules.with_function_tools(described)
        if tools or rules.instructions:
            yield Message.from_role_and_content(Role.DEVELOPER, rules)
        names: dict[str, str] = {}
        for message in messages:
            yield from self._translate(message, names)

    def _translate(self, message: JsonMapping, names: dict[str, str]) -> Iterator[Any]:
        from openai_harmony import Author, DeveloperContent, Message, Role

        role, content = message["role"], message.get("content") or ""
        if role == "user":
            yield Message.from_role_and_content(Role.USER, content)
        elif role == "system":
            rules = DeveloperContent.new().with_instructions(content)
            yield Message.from_role_and_content(Role.DEVELOPER, rules)
        elif role == "tool":
            author = Author.new(Role.TOOL, f"functions.{names.get(message['tool_call_id'], '')}")
            result = Message.from_author_and_content(author, content)
            yield result.with_recipient("assistant").with_channel("commentary")
        else:
            said = partial(Message.from_role_and_content, Role.ASSISTANT)
            calls = message.get("tool_calls") or ()
            if thought := message.get("reasoning_content") or message.get("reasoning"):
                yield said(thought).with_channel("analysis")
            if content or not calls:
                yield said(content).with_channel("commentary" if calls else "final")
            for call in calls:
                function = call["function"]
                names[call["id"]] = function["name"]
                made = said(function["arguments"]).with_channel("commentary")
                made = made.with_recipient(f"functions.{function['name']}")
                yield made.with_content_type("<|constrain|>json")


def order_results(messages: Sequence[JsonMapping]) -> list[JsonMapping]:
    """Return messages with results in the order of their calls, for a format that has no ids."""
    links = [read_link(index, message) for index, message in enumerate(messages)]
    return [messages[place] for place in pair_results(links).places]


class MistralCommon(Oracle):
    """Mistral's models by mistral-common, with the rules of one version of its tokenizers.

    Args:
        name: The name of the oracle.
        tokenizer_version: The version in a model's tekken.json, such as "v13".
    """

    package = "mistral-common"

    def __init__(self, name: str, tokenizer_version: str) -> None:
        super().__init__(name)
        self._rules = tokenizer_version

    @cached_property
    def tokenizer(self) -> Any:
        """The rules on the first tokens of a vocabulary that the package has, with all of its special tokens."""
        from importlib.resources import files

        from mistral_common.protocol.instruct.normalize import get_normalizer
        from mistral_common.protocol.instruct.validator import ValidationMode, get_validator
        from mistral_common.tokens.tokenizers import instruct, mistral
        from mistral_common.tokens.tokenizers.base import SpecialTokens, TokenizerVersion
        from mistral_common.tokens.tokenizers.model_settings_builder import ModelSettingsBuilder
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer

        rules = TokenizerVersion(self._rules)
        shipped = json.loads(files("mistral_common").joinpath(MISTRAL_VOCABULARY).read_text())
        special: list[Any] = [
            {"rank": n, "token_str": token.value, "is_control": True}
            for n, token in enumerate(SpecialTokens)
        ]
        settings = None
        if rules.supports_model_settings:
            efforts = {"type": "enum", "accepts_none": True, "default": "none"}
            efforts["values"] = ["none", "high"]
            settings = ModelSettingsBuilder.model_validate({"reasoning_effort": efforts})
        tekken = Tekkenizer(
            shipped["vocab"],
            special,
            shipped["config"]["pattern"],
            MISTRAL_SIZE,
            len(special),
            rules,
            model_settings_builder=settings,
        )
        write = getattr(instruct, f"InstructTokenizer{self._rules.upper()}")(tekken)
        validator = get_validator(rules, mode=ValidationMode.test)
        normalizer = get_normalizer(rules, settings)
        return mistral.MistralTokenizer(write, validator, normalizer)

    def write(self, request: Request) -> Prompt:
        from mistral_common.protocol.instruct.request import ChatCompletionRequest
        from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy

        asked = {
            key: request[key] for key in ("reasoning_effort", "tool_choice") if request.get(key)
        }
        messages = [
            {key: value for key, value in message.items() if key != "name"}
            for message in request["messages"]
        ]
        converted = ChatCompletionRequest.from_openai(messages, request.get("tools"), **asked)
        ids = self.tokenizer.encode_chat_completion(converted).tokens
        return Prompt(text=self.tokenizer.decode(ids, SpecialTokenPolicy.KEEP), ids=tuple(ids))


class CohereMelody(Oracle):
    """Command models, by cohere-melody.

    Args:
        name: The name of the oracle.
        function: The function that writes the format.
    """

    package = "cohere-melody"
    roles = {**Oracle.roles, "assistant": "chatbot"}
    tool_keys = ("name", "description", "parameters")

    def __init__(self, name: str, function: str) -> None:
        super().__init__(name)
        self._function = function

    def write(self, request: Request) -> Prompt:
        import cohere_melody

        config: JsonObject = {"messages": list(map(self._translate, request["messages"]))}
        tools = [tool["function"] for tool in request.get("tools") or ()]
        config["available_tools"] = [
            {"description": "", **{key: tool[key] for key in self.tool_keys if key in tool}}
            for tool in tools
        ]
        if effort := request.get("reasoning_effort"):
            config["reasoning_type"] = "disabled" if effort == "none" else "enabled"
        return Prompt(text=getattr(cohere_melody, self._function)(config))

    def _translate(self, message: JsonMapping) -> JsonObject:
        parts = []
        if thought := message.get("reasoning_content") or message.get("reasoning"):
            parts.append({"type": "thinking", "thinking": thought})
        parts.append({"type": "text", "text": message.get("content") or ""})
        translated = {"role": message["role"], "content": parts}
        if message["role"] == "tool":
            translated["tool_call_id"] = message["tool_call_id"]
        if message.get("tool_calls"):
            translated["tool_calls"] = [
                {
                    "id": call["id"],
                    "name": call["function"]["name"],
                    "parameters": call["function"]["arguments"],
                }
                for call in message["tool_calls"]
            ]
        return translated


ORACLES: dict[str, Callable[[str], Oracle]] = {
    "deepseek-v4": partial(DeepSeekRecipe, encoding="DeepseekV4Encoding", model="DeepSeek-V4-Pro"),
    "deepseek-v4.1": partial(
        DeepSeekRecipe, encoding="DeepseekV41Encoding", model="DeepSeek-V4.1-Flash"
    ),
    "harmony": Harmony,
    "mistral-v11": partial(MistralCommon, tokenizer_version="v11"),
    "mistral-v13": partial(MistralCommon, tokenizer_version="v13"),
    "mistral-v15": partial(MistralCommon, tokenizer_version="v15"),
    "cmd3": partial(CohereMelody, function="render_cmd3"),
    "cmd4": partial(CohereMelody, function="render_cmd4"),
    "cmd5": partial(CohereMelody, function="render_cmd5"),
}
"""What makes each oracle, by its name."""


def find_oracle(name: str | os.PathLike[str], *, trust_encoder: bool = False) -> Oracle:
    """Return the oracle with a name, or the encoder in a model's folder.

    Args:
        name: A name of `ORACLES`, or the path of a folder or of an encoder's file.
        trust_encoder: True to allow that the code of such a file is run, in a locked process.

    Raises:
        SourceError: there is no such oracle, its package is not installed, or there is no consent.

    Example:
        >>> turnwise.oracles.find_oracle("deepseek-v4").package
        'deepseek-recipe'
    """
    if isinstance(name, str) and name in ORACLES:
        return ORACLES[name](name)
    if isinstance(name, (str, os.PathLike)) and os.path.exists(name):
        return EncoderFile(name, trust_encoder=trust_encoder)
    hint = did_you_mean(str(name), ORACLES, "There are")
    raise SourceError(f"there is no oracle {json.dumps(str(name))}", hint=hint)
