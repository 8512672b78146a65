"""The bodies of requests, one dataclass for each kind: what is read of them, and within which bounds.

Names are those of vLLM and OpenAI. `bodies.py` reads them, and the OpenAPI page is written from them.
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any, Literal

from turnwise.messages import JsonObject
from turnwise.serve.bodies import MAX_INTEGER, Bounds, RequestBody

MAX_TOKEN_ID = 2**31 - 1
MAX_REPLY_TOKENS = 1_000_000
MAX_LISTED = 100_000

EngineId = Annotated[int, Bounds(0, MAX_TOKEN_ID)]  # that an engine gets
SampledId = Annotated[int, Bounds(0, MAX_INTEGER)]  # that one has sampled: no tokenizer may have it
ReplyIds = Annotated[list[SampledId], Bounds(most=MAX_REPLY_TOKENS)]
ListedIds = Annotated[list[EngineId] | None, Bounds(most=MAX_LISTED)]
Messages = Annotated[list[JsonObject], Bounds(most="max_messages")]
ListedObjects = Annotated[list[JsonObject] | None, Bounds(most="max_messages")]
Flag = bool | None
Text = str | None
Object = JsonObject | None
Share = Annotated[float | None, Bounds(0, 1)]
Penalty = Annotated[float | None, Bounds(-2, 2)]
Count = Annotated[int | None, Bounds(0)]
Limit = Annotated[int | None, Bounds(1)]


class PassedSampling(RequestBody):
    """Sampling parameters that an engine gets as they are."""

    temperature: Annotated[float | None, Bounds(0, 100)] = None
    top_p: Share = None
    top_k: Annotated[int | None, Bounds(-1)] = None
    min_p: Share = None
    presence_penalty: Penalty = None
    frequency_penalty: Penalty = None
    repetition_penalty: Annotated[float | None, Bounds(0)] = None
    seed: int | None = None
    min_tokens: Count = None
    prompt_logprobs: Annotated[int | None, Bounds(-1)] = None
    thinking_token_budget: Count = None
    routed_experts_prompt_start: Count = None
    ignore_eos: Flag = None
    skip_special_tokens: Flag = None
    spaces_between_special_tokens: Flag = None
    include_stop_str_in_output: Flag = None
    watermarking: Flag = None


class SamplingBody(PassedSampling):
    """How replies are sampled, and which prompt fields all requests have."""

    model: Text = None
    n: Annotated[int, Bounds(1, "max_choices")] = 1
    stop: Annotated[str | list[str] | None, Bounds(most=4)] = None  # as OpenAI's API
    stop_token_ids: Annotated[list[EngineId] | None, Bounds(most=64)] = None
    allowed_token_ids: ListedIds = None
    logprob_token_ids: ListedIds = None
    bad_words: Annotated[list[str] | None, Bounds(most=MAX_LISTED)] = None
    vllm_xargs: Object = None
    logit_bias: Object = None
    logprobs: Flag = None
    top_logprobs: Annotated[int, Bounds(0, 100)] = 0
    max_tokens: Limit = None
    max_completion_tokens: Limit = None
    stream: bool = False
    cache_salt: Text = None
    priority: int = 0
    return_token_offsets: bool = False


class JsonSchemaFormat(RequestBody):
    """The schema of `response_format`."""

    schema: JsonObject


class ResponseFormat(RequestBody):
    """What the content of a reply must look like."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchemaFormat | None = None


class ChatBody(SamplingBody):
    """A chat, and what is asked about its prompt and of its reply."""

    messages: ListedObjects = None
    tools: Annotated[list[JsonObject] | None, Bounds(most="max_tools")] = None
    documents: ListedObjects = None
    add_generation_prompt: Flag = None
    continue_final_message: bool = False
    chat_template: Text = None
    chat_template_kwargs: JsonObject = field(default_factory=dict)
    reasoning_effort: Text = None
    return_assistant_tokens_mask: bool = False
    return_origins: bool = False
    return_prompt_text: bool = False
    return_token_strs: bool = False
    tool_choice: Any = None
    parallel_tool_calls: bool = True
    response_format: ResponseFormat | None = None
    include_reasoning: bool = True


class RenderBody(ChatBody):
    """A chat for an engine that the caller asks."""

    messages: Messages
    stream_options: Object = None
    structured_outputs: Object = None
    kv_transfer_params: Object = None
    ec_transfer_params: Object = None
    return_token_ids: Flag = None


class StreamOptions(RequestBody):
    """What else a stream has."""

    include_usage: bool = False


class GatewayBody(ChatBody):
    """A chat for the engine that this server asks."""

    messages: Messages
    stream_options: StreamOptions = field(default_factory=StreamOptions)
    return_token_ids: Flag = None


class TokenizeBody(ChatBody):
    """A chat, or a plain prompt."""

    prompt: Text = None
    add_special_tokens: bool = True


class DetokenizeBody(RequestBody):
    """Ids whose text is asked for."""

    model: Text = None
    tokens: Annotated[list[SampledId], Bounds(most=4_000_000)]


class CompletionBody(SamplingBody):
    """Plain prompts."""

    prompt: Any
    add_special_tokens: bool = True


class PlainGatewayBody(CompletionBody):
    """A plain prompt for the engine that this server asks."""

    stream_options: StreamOptions = field(default_factory=StreamOptions)
    return_token_ids: Flag = None


# -- replies of an engine


class EngineChoice(RequestBody):
    """The ids of one reply, or of a part of it."""

    token_ids: ReplyIds = field(default_factory=list)
    index: Count = None
    finish_reason: Text = None
    stop_reason: int | str | None = None


class EngineOutput(RequestBody):
    """A GenerateResponse, or one chunk of it."""

    choices: Annotated[list[EngineChoice], Bounds(most="max_choices")]
    output_mode: str = "tokens"
    request_id: str = ""
    created: int | None = None
    kv_transfer_params: Object = None
    usage: Object = None


class StreamState(RequestBody):
    """What a client sends back with the next chunk; vLLM's fields, of which these are read."""

    role_sent: Flag = None
    output_token_ids: Annotated[list[SampledId] | None, Bounds(most=MAX_REPLY_TOKENS)] = None
    output_chunk_lens: Annotated[list[int] | None, Bounds(most=MAX_REPLY_TOKENS)] = None
    last_tool_call_ids: Annotated[list[str], Bounds(most=100_000)] = field(default_factory=list)


class DerenderBody(RequestBody):
    """The ids of a reply, with the chat that it answers."""

    model: Text = None
    stream: bool = False
    generate_response: EngineOutput | None = None
    generate_chunk: EngineOutput | None = None
    stream_state: StreamState | None = None
    prompt_tokens: Annotated[int, Bounds(0)] = 0
    prompt_token_ids: ReplyIds = field(default_factory=list)
    chat_request: ChatBody | None = None
