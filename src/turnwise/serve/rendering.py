"""A chat becomes a request of token ids: what `/v1/chat/completions/render` and `/tokenize` answer.

The ids are those of `Template.encode`, always: control tokens that a message spells stay text. What was sent before is
remembered (`memory.py`), so the answer also says how many ids at the front an earlier request had.

A template of the request itself is a stranger's: it runs in a worker process that can be killed, and is remembered
nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from turnwise.analysis.request_facts import WRITTEN_FACTS
from turnwise.engine.option_names import (
    ENCODE_ARGUMENTS,
    RENDER_ARGUMENTS,
    REQUEST_FACTS,
    SPECIAL_TOKENS,
)
from turnwise.engine.provenance.rendering import Rendering
from turnwise.errors import did_you_mean, short_repr, warn_caller
from turnwise.isolation import WorkerPool
from turnwise.messages import JsonObject
from turnwise.normalisation.roles import ROLES, describe_role
from turnwise.serve.bodies import Bounds, FieldType, RequestBody, RequestError, refuse_fields
from turnwise.serve.memory import ConversationMemory, KnownIds, join_ids
from turnwise.serve.models import ServedModel
from turnwise.serve.request_types import MAX_TOKEN_ID, ChatBody, CompletionBody, RenderBody
from turnwise.serve.sampling import (
    read_checked_tools,
    read_choice,
    read_limit,
    read_response_schema,
    read_sampling,
)
from turnwise.serve.settings import ServeSettings
from turnwise.serve.upstreams import GenerationPlan, has_reasoning, make_structural_tag
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.growing import GrowingPrompt
from turnwise.tokens.loss import train_nothing
from turnwise.tokens.tokenizers.protocol import WHOLE

RESERVED_OPTIONS = (
    *(name for name in RENDER_ARGUMENTS if name not in REQUEST_FACTS),
    *ENCODE_ARGUMENTS,
    "messages",
    "tokenizer",
    "growing",
    "chat_template",
)
UNSUPPORTED = {
    "use_beam_search": "beam search is not a matter of prompts",
    "truncate_prompt_tokens": "a prompt is never cut: leave out messages instead",
    "add_special_tokens": "a chat template writes its special tokens itself: leave this out",
    "prompt_embeds": "a prompt is tokens, not embeddings",
}
# Fields that say nothing about a prompt or a reply.
HARMLESS = (
    "user", "metadata", "store", "service_tier", "session_id", "request_id", "prompt_cache_key",
    "safety_identifier", "prompt_cache_retention", "prompt_cache_options", "priority", "cache_salt",
    "return_tokens_as_token_ids",
)  # fmt: skip
# Values of fields that are not read, with which they ask for nothing.
ASKS_NOTHING = {"modalities": ["text"], "verbosity": "medium", "logit_bias": {}}
# Fields that a renderer leaves to the engine; a gateway says that it does not pass them on.
ENGINE_FIELDS = (
    "mm_payload", "media_io_kwargs", "mm_processor_kwargs", "length_penalty", "return_token_ids",
    "kv_transfer_params", "ec_transfer_params", "structured_outputs", "verbosity", "modalities",
    "truncation_side", "return_mm_kwargs", "stream_options",
)  # fmt: skip


TEXT = FieldType((str,))
CALLS = FieldType((list,), item=FieldType((dict,)))
PROMPT_IDS = FieldType((list,), item=FieldType((int,), Bounds(0, MAX_TOKEN_ID)))


class ChatPrompt(NamedTuple):
    """The prompt of a chat.

    Attributes:
        encoded: its ids, with offsets, labels and origins on demand.
        known: how many ids an earlier request had, and all of them as text.
    """

    encoded: Encoded
    known: KnownIds


class ChatRenderer:
    """Renders the chats of a server.

    Args:
        settings: the limits.
        memory: the conversations so far.
        find_pool: starts the worker processes for templates of requests, when they are first needed.
    """

    def __init__(
        self,
        settings: ServeSettings,
        memory: ConversationMemory,
        find_pool: Callable[[], WorkerPool],
    ) -> None:
        self.settings = settings
        self.memory = memory
        self._find_pool = find_pool

    def encode(self, body: ChatBody, model: ServedModel) -> ChatPrompt:
        """Encode the chat of a request; `memory.keep` remembers it once an engine will see it.

        Raises:
            RequestError: a field is malformed, or too much.
            TurnwiseError: the template cannot render it.
        """
        messages, arguments = self.read_chat(body, model)
        if body.chat_template is not None:
            template = self._compile(body.chat_template)
            place = model.tokenizer_place
            encoded: Encoded = template.encode(messages, place, add_stop=False, **arguments)
            return ChatPrompt(encoded, KnownIds(0, join_ids(encoded.input_ids)))
        # Without a mask nothing is said about training.
        policy: Any = "assistant" if body.return_assistant_tokens_mask else train_nothing
        key = (model.name, body.cache_salt or "", list(arguments.items()))

        def run(growing: GrowingPrompt | None) -> Encoded:
            return model.template.encode(
                messages, model.tokenizer, policy, add_stop=False, growing=growing, **arguments
            )

        return ChatPrompt(*self.memory.encode(key, messages, run))

    def render_text(self, body: ChatBody, model: ServedModel) -> str:
        """Return the prompt of a chat as text."""
        messages, arguments = self.read_chat(body, model)
        text = body.chat_template
        template = model.template if text is None else self._compile(text)
        rendering: Rendering = template.render(messages, **arguments)
        return rendering.text

    def read_chat(self, body: ChatBody, model: ServedModel) -> tuple[list[Any], JsonObject]:
        """Return the messages of a request and the other arguments of `Template.render`."""
        refuse_fields(body, UNSUPPORTED)
        if not body.messages:
            raise RequestError("at least one message is needed", path="messages")
        for index, message in enumerate(body.messages):
            check_role(message, index)
            calls = message.get("tool_calls")
            if calls is not None and not isinstance(calls, dict):  # one may stand without a list
                CALLS.read(calls, f"messages[{index}].tool_calls")
        arguments = read_template_options(body)
        if self.settings.late_system is not None:
            arguments["late_system"] = self.settings.late_system
        if body.tools:
            arguments["tools"] = body.tools
        if body.documents is not None:
            arguments["documents"] = body.documents
        continued, prompted = body.continue_final_message, body.add_generation_prompt
        if continued and prompted:
            raise RequestError(
                "a final message is continued, or a new one is begun, not both",
                path="continue_final_message",
                hint="set add_generation_prompt to false",
            )
        arguments["add_generation_prompt"] = not continued if prompted is None else prompted
        if continued:
            arguments["continue_final_message"] = True
        if body.chat_template is None:
            # A template may write what is asked of the reply; the grammar enforces it in any case.
            for name in WRITTEN_FACTS:
                value = body.given.get(name)
                if value is not None and name in model.template.variables:
                    arguments.setdefault(name, value)
        return body.messages, arguments

    def _compile(self, text: str) -> Any:
        if not self.settings.request_templates:
            raise RequestError(
                "this server takes no templates of requests",
                path="chat_template",
                hint="start it without --no-request-templates",
            )
        return self._find_pool().compile(text, "jinja", name="chat_template")


def check_role(message: JsonObject, index: int) -> None:
    """Refuse a message without a role, as vLLM does; warn of one that templates probably do not know.

    Raises:
        RequestError: the message has no role, or one that is no text.
    """
    role = message.get("role")
    if role in ROLES:
        return
    path = f"messages[{index}]"
    if role is None:
        raise RequestError("this field is missing", path=f"{path}.role")
    TEXT.read(role, f"{path}.role")
    if describe_role(message, index, ()) is None:  # else it is misspelt, and `encode` says so
        usual = ", ".join(ROLES[:5])
        warn_caller(
            f"{path} has the role {short_repr(role)}, which is given to the template as it is; "
            f"usual roles are {usual}"
        )


def read_template_options(body: ChatBody) -> JsonObject:
    """Return the template's own variables that a request sets; they cannot name an argument of ours."""
    options = dict(body.chat_template_kwargs)
    for name in options:
        if name in SPECIAL_TOKENS:
            raise RequestError(
                f"{name!r} is a matter of the server: a request writes no control tokens",
                path="chat_template_kwargs",
                hint="leave it out; the special tokens are those of the model",
            )
        if name in RESERVED_OPTIONS:
            raise RequestError(
                f"{name!r} is no variable of a template",
                path="chat_template_kwargs",
                hint="some of these are fields of the request itself",
            )
    if body.reasoning_effort is not None and "reasoning_effort" not in options:
        options.setdefault("reasoning", body.reasoning_effort)
    return options


def find_unknown_fields(body: RequestBody, more: tuple[str, ...] = ENGINE_FIELDS) -> list[str]:
    """Return a sentence for each field that is not read: it may be misspelt.

    Args:
        body: the request.
        more: fields that are known besides those that are read.
    """
    known = (*body.types, *HARMLESS, *UNSUPPORTED, *more)
    found = []
    for name, value in body.given.items():
        if name not in known and value not in (None, ASKS_NOTHING.get(name)):
            near = (did_you_mean(name, known, "") or "").rpartition("Did you mean ")[2]
            hint = f"; did you mean {near}" if near.endswith("?") else ""
            found.append(f"the field {short_repr(name)} is not read{hint}")
    return found


# -- answers


def make_plan(
    body: ChatBody,
    model: ServedModel,
    prompt: ChatPrompt,
    request_id: str,
    settings: ServeSettings,
) -> GenerationPlan:
    """Return what an engine must know about the reply to a prompt.

    Raises:
        RequestError: a field is malformed, or asks for too much.
    """
    encoded = prompt.encoded
    if not encoded.input_ids:
        raise RequestError("the template writes nothing of this chat, so there is no prompt")
    sampling = read_sampling(body, model)
    limit = read_limit(body, model, len(encoded))
    if limit is not None:
        sampling["max_tokens"] = limit
    tools = body.tools or None
    choice = read_choice(body, tools)
    return GenerationPlan(
        request_id=request_id,
        model=model,
        upstream_model=settings.upstream_model or model.name,
        ids=encoded.input_ids,
        text=encoded.text,
        sampling=sampling,
        tools=tools,
        choice=choice,
        checked=read_checked_tools(tools, choice),
        parallel=body.parallel_tool_calls,
        schema=read_response_schema(body),
        with_reasoning=body.include_reasoning,
        with_ids=bool(getattr(body, "return_token_ids", False)),
    )


def make_generate_request(
    body: RenderBody,
    model: ServedModel,
    prompt: ChatPrompt,
    request_id: str,
    settings: ServeSettings,
    warnings: list[str],
) -> JsonObject:
    """Return the answer of `/v1/chat/completions/render` without its `token_ids`: a GenerateRequest of vLLM.

    Args:
        body: the request.
        model: the model.
        prompt: its prompt.
        request_id: the id that the answer gets.
        settings: the limits.
        warnings: they are a part of the answer.
    """
    encoded = prompt.encoded
    plan = make_plan(body, model, prompt, request_id, settings)
    sampling = plan.sampling
    structured = make_structural_tag(plan)
    if structured or body.structured_outputs:
        sampling["structured_outputs"] = structured or body.structured_outputs
    answer: JsonObject = {
        "request_id": request_id,
        "model": model.name,
        "sampling_params": sampling,
        "stream": body.stream,
        "stream_options": body.stream_options if body.stream else None,
        "cache_salt": body.cache_salt,
        "priority": body.priority,
        "kv_transfer_params": body.kv_transfer_params,
        "ec_transfer_params": body.ec_transfer_params,
        "return_token_ids": body.return_token_ids,
        "features": None,
        "reasoning_ended": True if has_reasoning(structured) else None,
        "common_prefix_tokens": prompt.known.common,
    }
    answer |= describe_prompt(body, encoded)
    return answer | note_warnings([*warnings, *find_unknown_fields(body)])


def note_warnings(warnings: list[str]) -> JsonObject:
    """Return the warnings of a request as a field of its answer, if there are any."""
    return {"warnings": warnings} if warnings else {}


def describe_prompt(body: ChatBody, encoded: Encoded) -> JsonObject:
    """Return what a request asks to know of its prompt beside the ids."""
    answer: JsonObject = {"token_offsets": encoded.offsets if body.return_token_offsets else None}
    if body.return_assistant_tokens_mask:
        answer["assistant_tokens_mask"] = encoded.mask
    if body.return_prompt_text:
        answer["prompt_text"] = encoded.text
    if body.return_origins:
        answer["origins"] = list_origins(encoded)
    if encoded.rendering.changes:
        answer["changes"] = [str(change) for change in encoded.rendering.changes]
    if encoded.media:
        answer["media"] = [
            {"path": one.path, "kind": one.kind, "tokens": one.tokens} for one in encoded.media
        ]
    return answer


def list_origins(encoded: Encoded) -> list[JsonObject]:
    """Return runs of tokens with one origin: where they begin, and the message and field, or the template's line."""
    pieces = encoded.rendering.pieces
    runs: list[JsonObject] = []
    last = -1
    for index, owner in enumerate(encoded.owners):
        if owner.piece == last:
            runs[-1]["end"] = index + 1
            continue
        last = owner.piece
        origin = pieces[owner.piece].origin if owner.piece < len(pieces) else None
        run: JsonObject = {"start": index, "end": index + 1, "message": owner.message}
        run["kind"] = "template" if origin is None else origin.kind
        if owner.field is not None:
            run["field"] = owner.field
        elif origin is not None and origin.line is not None:
            run |= {"line": origin.line, "column": origin.column}
        runs.append(run)
    return runs


def write_with_ids(answer: JsonObject, field: str, ids: str) -> bytes:
    """Return an answer as JSON, with a list of ids that is text already."""
    return f'{{"{field}":[{ids}],{json.dumps(answer, allow_nan=False)[1:]}'.encode()


# -- plain prompts


def encode_plain(model: ServedModel, prompt: str, add_special_tokens: bool) -> list[int]:
    """Return the ids of a prompt that is no chat, its control tokens recognised: its sender wrote all of it."""
    ids = model.tokenizer.whole(prompt)
    if not add_special_tokens:
        return ids
    before, behind = model.tokens_around
    return [*before, *ids, *behind]


def find_plain_offsets(model: ServedModel, prompt: str, ids: list[int]) -> list[tuple[int, int]]:
    """Return the characters of each id of a plain prompt; ids that were added around it have none."""
    own = model.tokenizer.whole(prompt)
    offsets = model.tokenizer.offsets(prompt, own, WHOLE)
    if len(ids) == len(own):
        return offsets
    before, behind = model.tokens_around
    end = len(prompt)
    return [(0, 0)] * len(before) + offsets + [(end, end)] * len(behind)


def read_prompts(
    body: CompletionBody, model: ServedModel, settings: ServeSettings
) -> list[tuple[str | None, list[int]]]:
    """Return the prompts of a completion request, each its text, if it is one, and its ids.

    Raises:
        RequestError: one is neither, or empty, or there are too many.
    """
    given = body.prompt
    if isinstance(given, str) or (isinstance(given, list) and set(map(type, given)) == {int}):
        given = [given]
    if not isinstance(given, list) or not given:
        raise RequestError("a text, a list of texts, or token ids are needed", path="prompt")
    if len(given) > settings.max_prompts:
        raise RequestError(
            f"{len(given):,} are more than the {settings.max_prompts} that this server takes",
            path="prompt",
        )
    prompts: list[tuple[str | None, list[int]]] = []
    for index, item in enumerate(given):
        path = "prompt" if given is not body.prompt else f"prompt[{index}]"
        if not item or not isinstance(item, (str, list)):
            raise RequestError("a text or token ids are needed", path=path)
        if isinstance(item, str):
            prompts.append((item, encode_plain(model, item, body.add_special_tokens)))
        else:
            prompts.append((None, PROMPT_IDS.read(item, path)))
    return prompts
