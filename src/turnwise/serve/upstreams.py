"""The engines of a gateway: how each is asked for a reply, and what the events of its stream mean.

| kind | path | prompt | reply | grammar |
|---|---|---|---|---|
| `generate` | `/inference/v1/generate` (vLLM) | ids | ids | structural tag |
| `completions` | `/v1/completions` (vLLM, SGLang) | ids | ids, or text | structural tag |
| `llamacpp` | `/completion` (llama.cpp's server) | ids | ids, or text | GBNF |
| `text` | `/v1/completions` (any server) | text | text | none |

Ids are better than text in both directions: a prompt of ids cannot be forged by a message, and a reply of ids has lost
none of its special tokens. Every engine is asked for a stream, also if the client wants none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple, TypeGuard

from turnwise.errors import TurnwiseError, printable, short_repr
from turnwise.messages import JsonObject
from turnwise.replies.export.constraint_tree import ToolSignature
from turnwise.serve.bodies import MAX_INTEGER, RequestError
from turnwise.serve.memory import KnownIds
from turnwise.serve.models import ServedModel
from turnwise.serve.sampling import AUTO, NONE, cannot_enforce, is_forced
from turnwise.tokens.text_encoder import encoder_for

BAD_GATEWAY = 502
FAILED = "error"  # vLLM's finish_reason of a reply that could not be sampled to its end
LOG_HINT = "try again, or see its log"
MAX_REASON = 300  # characters of an upstream's error that are passed on
KIND_HINT = "is --upstream-kind right?"
SURROGATE = re.compile("[\ud800-\udfff]")
NO_TOOL = {"name": "none", "parameters": {"type": "object"}}
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
WORD = 1  # llama.cpp's number for a trigger that is a text


class UpstreamError(RequestError):
    """The engine of the gateway failed, or broke its promise."""

    def __init__(self, message: str, hint: str | None = None, status: int = BAD_GATEWAY) -> None:
        super().__init__(message, hint=hint, status=status)


class ReplyPiece(NamedTuple):
    """A part of a reply as it arrives; replies of one request are numbered."""

    number: int
    chunk: str | list[int]
    finish_reason: str | None = None
    logprobs: list[JsonObject] | None = None
    """Log-probabilities of its tokens, as Chat Completions has them."""


@dataclass(frozen=True)
class GenerationPlan:
    """Everything that an engine must know about a reply.

    Attributes:
        request_id: the id of the completion.
        model: the model that renders and parses.
        upstream_model: what the engine calls it.
        ids: the prompt.
        text: the prompt as text.
        sampling: the sampling parameters, with vLLM's names; `n` and `max_tokens` among them.
        tools, choice, parallel: the tools that were offered, which must be called, and how many at once.
        checked: the tools whose arguments must fit their schemas, by name.
        schema: the JSON schema of the content, None if it is free.
        with_reasoning: whether the client wants the reasoning.
        known: what the memory keeps of the prompt, once the engine is asked.
        with_ids: whether the client wants the token ids of the reply.
        is_plain: whether the prompt is no chat, so that the reply is a text.
    """

    request_id: str
    model: ServedModel
    upstream_model: str
    ids: list[int]
    text: str
    sampling: JsonObject
    tools: list[Any] | None = None
    choice: str = NONE
    parallel: bool = True
    checked: Mapping[str, ToolSignature] = field(default_factory=dict)
    schema: JsonObject | None = None
    with_reasoning: bool = True
    known: KnownIds | None = None
    with_ids: bool = False
    is_plain: bool = False

    @property
    def count(self) -> int:
        """How many replies are wanted."""
        return int(self.sampling.get("n", 1))


@dataclass
class StreamUsage:
    """The numbers of tokens that an engine tells."""

    # Tokens of replies, by the request's first choice.
    told: dict[int, int] = field(default_factory=dict)
    counted: int = 0  # ids that have arrived
    cached_tokens: int | None = None

    def note(self, usage: Any, first: int) -> None:
        """Take the usage of an event in OpenAI's shape, if it has one; the last of a request counts."""
        if not isinstance(usage, dict):
            return
        count, details = usage.get("completion_tokens"), usage.get("prompt_tokens_details")
        if is_count(count):
            self.told[first] = count
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        if is_count(cached):
            self.cached_tokens = cached

    @property
    def completion_tokens(self) -> int:
        """The tokens of all replies: the ids that arrived, else what the engine told."""
        return self.counted or sum(self.told.values())


def is_count(value: Any) -> TypeGuard[int]:
    """Return whether a value of an engine is a number of tokens."""
    return type(value) is int and 0 <= value <= MAX_INTEGER


class UpstreamCall(NamedTuple):
    """One request to an engine; the choices of its answer are numbered from `first` on."""

    path: str
    body: JsonObject
    first: int = 0


# -- requests


def ask_for_one(call: UpstreamCall, number: int) -> UpstreamCall:
    """Return a request for one more reply, for engines that sample one whatever `n` says; its seed is another one."""
    body = dict(call.body)
    sampling = body
    if "sampling_params" in body:
        sampling = body["sampling_params"] = dict(body["sampling_params"])
    sampling["n"] = 1
    _vary_seed(sampling, number)
    return UpstreamCall(call.path, body, number)


def _vary_seed(sampling: JsonObject, number: int) -> None:
    """Change a seed, so that replies of several requests are not all the same."""
    if "seed" in sampling:
        sampling["seed"] = (sampling["seed"] + number) % (MAX_INTEGER + 1)


def _ask_generate(plan: GenerationPlan) -> list[UpstreamCall]:
    # Stop texts are cut off by the gateway: an engine of ids may have no tokenizer to find them with.
    sampling = {key: value for key, value in plan.sampling.items() if key != "stop"}
    grammar = make_structural_tag(plan)
    body = {
        "request_id": plan.request_id,
        "token_ids": plan.ids,
        **STREAMED,
        **({"reasoning_ended": True} if has_reasoning(grammar) else {}),
        "sampling_params": sampling | _use_grammar(grammar),
    }
    return [UpstreamCall("/inference/v1/generate", body)]


def _use_grammar(grammar: JsonObject | None) -> JsonObject:
    return {} if grammar is None else {"structured_outputs": grammar}


def _ask_completions(plan: GenerationPlan) -> list[UpstreamCall]:
    body = {
        **plan.sampling,
        "model": plan.upstream_model,
        "prompt": plan.ids,
        **STREAMED,
        "return_token_ids": True,
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "add_special_tokens": False,
        **_use_grammar(make_structural_tag(plan)),
    }
    return [UpstreamCall("/v1/completions", body)]


LLAMACPP_NAMES = {"max_tokens": "n_predict", "repetition_penalty": "repeat_penalty"}
LLAMACPP_FIELDS = (
    "temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty", "ignore_eos",
    "logit_bias", *LLAMACPP_NAMES,
)  # fmt: skip


def _ask_llamacpp(plan: GenerationPlan) -> list[UpstreamCall]:
    sampling = plan.sampling
    body: JsonObject = {
        LLAMACPP_NAMES.get(name, name): sampling[name]
        for name in LLAMACPP_FIELDS
        if name in sampling
    }
    if "logit_bias" in body:
        body["logit_bias"] = [[int(id), bias] for id, bias in body["logit_bias"].items()]
    body |= {
        "prompt": plan.ids,
        "stream": True,
        "return_tokens": True,
        "cache_prompt": True,
        "stop": [*sampling.get("stop", ()), *([] if plan.is_plain else plan.model.stops)],
    }
    if "logprobs" in sampling:
        body["n_probs"] = max(1, sampling["logprobs"])
    body |= _make_gbnf(plan)
    # It samples one reply for each request.
    calls = [UpstreamCall("/completion", dict(body), number) for number in range(plan.count)]
    for call in calls[1:]:
        _vary_seed(call.body, call.first)
    return calls


def _ask_text(plan: GenerationPlan) -> list[UpstreamCall]:
    if is_asked(plan):
        raise RequestError(
            "an upstream of text takes no grammar, so this cannot be enforced",
            path="tool_choice" if is_forced(plan.choice) else "response_format",
            hint="an upstream of the kind generate, completions or llamacpp can",
        )
    if plan.with_ids or "logprobs" in plan.sampling:
        path = "return_token_ids" if plan.with_ids else "logprobs"
        raise RequestError("an upstream of text has no tokens", path=path)
    tokenizer = plan.model.tokenizer
    controls = encoder_for(tokenizer).controls
    if not controls.are_exactly(controls.select(plan.ids), tokenizer.whole(plan.text)):
        raise RequestError(
            "a message spells a control token, maybe in other letters, which an upstream of text would obey",
            path="messages",
            hint="an upstream that takes token ids keeps it as text",
        )
    sampling = {key: value for key, value in plan.sampling.items() if key in TEXT_FIELDS}
    sampling["stop"] = [*plan.sampling.get("stop", ()), *plan.model.stops]
    body = {**sampling, "model": plan.upstream_model, "prompt": plan.text, **STREAMED}
    return [UpstreamCall("/v1/completions", body)]


TEXT_FIELDS = (
    "temperature", "top_p", "n", "max_tokens", "seed", "presence_penalty", "frequency_penalty", "logit_bias",
)  # fmt: skip

UPSTREAMS: dict[str, Callable[[GenerationPlan], list[UpstreamCall]]] = {
    "generate": _ask_generate,
    "completions": _ask_completions,
    "llamacpp": _ask_llamacpp,
    "text": _ask_text,
}


def make_structural_tag(plan: GenerationPlan) -> JsonObject | None:
    """Return the grammar of a reply as vLLM accepts it: of the whole reply, reasoning included; None if it is free.

    Raises:
        RequestError: it is asked for, and there is none for this template.
    """
    if not is_asked(plan) and not plan.checked and not bans_calls(plan):
        return None
    # Calls of strict tools are checked when they have come, so they need no grammar.
    tag = _export_grammar(plan, plan.model.template.grammar.to_structural_tag)
    if tag:
        return {"structural_tag": json.dumps(tag, ensure_ascii=False)}
    # Without a grammar of the whole reply, an engine begins after the reasoning that its own parser finds.
    return None if plan.tools else {"json": plan.schema}


def has_reasoning(grammar: JsonObject | None) -> bool:
    """Return whether a grammar is that of the whole reply, so that an engine must not wait for the reasoning's end."""
    return grammar is not None and "structural_tag" in grammar


def _make_gbnf(plan: GenerationPlan) -> JsonObject:
    """Return the grammar of a reply as llama.cpp accepts it; with tools also where calls are not forced."""
    if not is_asked(plan) and not plan.tools:
        return {}
    made = _export_grammar(plan, plan.model.template.grammar.to_gbnf)
    if made is None and plan.tools:
        return {}  # calls are read as they come
    if made is None:
        if plan.model.template.parser(plan.text).in_reasoning:
            raise RequestError(
                "this upstream would constrain the reasoning, which the prompt has begun",
                path="response_format",
                hint="switch it off in chat_template_kwargs, if the template can",
            )
        return {"json_schema": plan.schema}
    return {
        "grammar": made.grammar,
        "grammar_lazy": bool(made.triggers),
        "grammar_triggers": [{"type": WORD, "value": text} for text in made.triggers],
        "preserved_tokens": list(made.preserved_tokens),
    }


def is_asked(plan: GenerationPlan) -> bool:
    """Return whether a request asks for calls, or for content of a schema."""
    return is_forced(plan.choice) or plan.schema is not None


def bans_calls(plan: GenerationPlan) -> bool:
    """Return whether the prompt has tools, and no call may begin."""
    return plan.choice == NONE and bool(plan.tools)


def _export_grammar(plan: GenerationPlan, export: Callable[..., Any]) -> Any:
    """Return the grammar of a reply; None if there is none for this template, and it can be done without.

    A grammar needs tools; where there are none, one that may not be called adds nothing to it.
    """
    choice = plan.choice if is_forced(plan.choice) or bans_calls(plan) else AUTO
    tools = plan.tools or [NO_TOOL]
    choice = choice if plan.tools else NONE
    try:
        return export(tools, choice, parallel=plan.parallel, content=plan.schema, prompt=plan.text)
    except TurnwiseError as error:
        if not is_asked(plan) or not plan.tools:
            return None
        path = "tool_choice" if is_forced(plan.choice) else "response_format"
        raise cannot_enforce(error, path) from None


# -- events


def read_event(
    kind: str, event: Any, call: UpstreamCall, usage: StreamUsage
) -> Iterator[ReplyPiece]:
    """Yield the pieces of replies in one event of an engine's stream.

    Raises:
        UpstreamError: the event is an error, or of a shape that this kind of engine does not have.
    """
    if not isinstance(event, dict):
        raise odd_answer("an event that is no object")
    if event.get("error"):
        raise report_failure(event)
    if kind == "llamacpp":
        yield _read_llamacpp(event, call.first, usage)
        return
    usage.note(event.get("usage"), call.first)
    choices = event.get("choices")
    if not isinstance(choices, list):
        raise odd_answer("an event without choices")
    for choice in choices:
        if not isinstance(choice, dict):
            raise odd_answer("a choice that is no object")
        index = choice.get("index", 0)
        if type(index) is not int:
            raise odd_answer("a choice without a number")
        chunk = _read_chunk(choice.get("token_ids"), choice.get("text"))
        reason = choice.get("finish_reason")
        if reason is not None and not isinstance(reason, str):
            raise odd_answer("a finish_reason that is no text")
        if reason == FAILED:
            raise UpstreamError("the upstream failed in the middle of a reply", hint=LOG_HINT)
        yield ReplyPiece(call.first + index, chunk, reason, _read_logprobs(choice.get("logprobs")))


def _read_llamacpp(event: JsonObject, index: int, usage: StreamUsage) -> ReplyPiece:
    # `tokens_cached` counts all that the slot holds, the reply included.
    timings = event.get("timings")
    cached = timings.get("cache_n") if isinstance(timings, dict) else None
    if is_count(cached) and event.get("stop"):
        usage.cached_tokens = cached
    if not event.get("stop") and "content" not in event and "tokens" not in event:
        raise odd_answer("an event without content")
    chunk = _read_chunk(event.get("tokens") or None, event.get("content"))
    reason = None
    if event.get("stop"):
        reason = "length" if event.get("stop_type") == "limit" else "stop"
        chunk = [] if isinstance(chunk, list) else chunk  # the last event repeats all tokens
    found = None if event.get("stop") else event.get("completion_probabilities")
    return ReplyPiece(index, chunk, reason, None if found is None else _read_entries(found))


def _read_logprobs(value: Any) -> list[JsonObject] | None:
    """Return log-probabilities as Chat Completions has them; vLLM's completions have a list for each field."""
    if not isinstance(value, dict):
        return None
    if value.get("content") is not None:
        return _read_entries(value["content"])
    names = ("tokens", "token_logprobs", "top_logprobs")
    columns = [value.get(name) or [] for name in names]
    if not all(isinstance(column, list) for column in columns):
        raise odd_answer("log-probabilities that are no lists")
    entries = []
    for token, logprob, top in zip_longest(*columns):
        ranked = top if isinstance(top, dict) else {}
        others = [{"token": one, "logprob": each} for one, each in ranked.items()]
        entries.append({"token": token, "logprob": logprob, "top_logprobs": others})
    return _read_entries(entries)


def _read_entries(value: Any, with_top: bool = True) -> list[JsonObject]:
    """Return log-probabilities of tokens with the keys that OpenAI's API has."""
    found = []
    for entry in value if isinstance(value, list) else [None]:
        given = entry if isinstance(entry, dict) else {}
        token, logprob, spelled = (given.get(name) for name in ("token", "logprob", "bytes"))
        if not isinstance(token, str) or type(logprob) not in (int, float):
            raise odd_answer("a log-probability without a token or a number")
        if not isinstance(spelled, list):
            spelled = list(token.encode("utf-8", "replace"))
        made = {"token": SURROGATE.sub("\ufffd", token), "logprob": logprob, "bytes": spelled}
        if with_top:
            made["top_logprobs"] = _read_entries(given.get("top_logprobs") or [], with_top=False)
        found.append(made)
    return found


def _read_chunk(ids: Any, text: Any) -> str | list[int]:
    """Return what is new of a reply: its ids, or its text if there are none."""
    if ids is not None:
        if not isinstance(ids, list) or not all(map(is_count, ids)):
            raise odd_answer(f"{short_repr(ids)} in place of token ids")
        return ids
    if text is None:
        return ""
    if not isinstance(text, str):
        raise odd_answer(f"{short_repr(text)} in place of a text")
    return SURROGATE.sub("\ufffd", text)


def odd_answer(what: str) -> UpstreamError:
    """Return the error for an answer of another shape than this kind of engine has."""
    return UpstreamError(f"the upstream sent {what}", hint=KIND_HINT)


def report_failure(value: Any) -> UpstreamError:
    """Return the error for an event that is itself an error."""
    return UpstreamError(f"the upstream failed: {describe_problem(value)}", hint=LOG_HINT)


def describe_problem(value: Any) -> str:
    """Return the sentence in an upstream's error, cut and escaped."""
    error = value.get("error", value) if isinstance(value, dict) else value
    text = error.get("message", error) if isinstance(error, dict) else error
    return printable(str(text), MAX_REASON)
