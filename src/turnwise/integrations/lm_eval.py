"""lm-eval (the LM Evaluation Harness): its models with turnwise's prompts and answers.

    python -m turnwise.integrations.lm_eval run --model turnwise-hf --model_args pretrained=... --apply_chat_template

That is lm-eval's own command with three more models; in a program, `register()` adds them. Each is a model of lm-eval
with the same arguments, and `template` for another chat template than the tokenizer's:

| name | model of lm-eval |
|---|---|
| `turnwise-hf` | `hf` |
| `turnwise-vllm` | `vllm` |
| `turnwise-completions` | `local-completions` |

What changes, with `--apply_chat_template`: a template that refuses a system message gets its text in the user's
message, where lm-eval drops it; the ids are the template's, so there is one bos, and control tokens that a document
spells are text; the answer is what follows the reasoning, however that is marked, and the stop texts of a task do not
end the reasoning; the results have a hash of the ids that were sent (`config.turnwise`). Prompts without a template are
left to lm-eval.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

from turnwise.errors import MessageError, TurnwiseError, warn_caller
from turnwise.integrations.evaluation import RAW_TEXT, EvalChat, EvalPrompt, pop_settings
from turnwise.messages import JsonObject

__all__ = ["main", "register"]

HERE = "turnwise.integrations.lm_eval"  # which is `__main__` when it is run


class ChatTemplateModel:
    """What is put before a model class of lm-eval: its methods, with the arguments that they have there."""

    reply_fields: JsonObject = {}
    keeps_markers = False
    cache_hook: Any
    tokenizer: Any

    def __init__(self, *arguments: Any, **named: Any) -> None:
        settings = pop_settings(named)
        super().__init__(*arguments, **named)
        self.turnwise = EvalChat(self.tokenizer, **settings)

    # The class of lm-eval that follows, whose types are not there when types are checked.
    @property
    def _host(self) -> Any:
        return super()

    def chat_template(self, chat_template: bool | str = False) -> str:
        return self.turnwise.template.text

    @property
    def tokenizer_name(self) -> str:
        return f"turnwise-{self.turnwise.identify()}"

    def get_model_info(self) -> JsonObject:
        find_info = getattr(self._host, "get_model_info", dict)
        return {**find_info(), "turnwise": self.turnwise.report()}

    def apply_chat_template(
        self, chat_history: list[JsonObject], add_generation_prompt: bool = True
    ) -> EvalPrompt:
        return self.turnwise.encode(
            chat_history,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )

    def tok_encode(self, string: Any, *arguments: Any, **named: Any) -> Any:
        if isinstance(string, EvalPrompt):
            return string.ids
        if _are_prompts(string):
            return [prompt.ids for prompt in string]
        return self._host.tok_encode(string, *arguments, **named)

    def _encode_pair(self, context: str, continuation: str) -> Any:
        if not isinstance(context, EvalPrompt):
            return self._host._encode_pair(context, continuation)
        if self.turnwise.template.parser(context).in_reasoning:
            raise MessageError(
                "the prompt opens reasoning, in which no answer can be scored",
                path="messages",
                hint="switch it off (enable_thinking=False), or use a task that generates",
            )
        self.turnwise.note_sent(context)
        return context.ids, self.turnwise.encode_after(context, continuation)

    def loglikelihood(self, requests: list[Any], *arguments: Any, **named: Any) -> Any:
        with _report_failures(self):
            return self._host.loglikelihood(requests, *arguments, **named)

    def generate_until(self, requests: list[Any], *arguments: Any, **named: Any) -> Any:
        prompts = [request.args[0] for request in requests]
        if not _are_prompts(prompts):
            return self._host.generate_until(requests, *arguments, **named)
        for prompt in prompts:
            self.turnwise.note_sent(prompt)
        asked = []
        for request in requests:
            prompt, wanted, *media = request.args  # of media, lm-eval decides
            asked.append(replace(request, arguments=(prompt, self._ask(wanted), *media)))
        # lm-eval's cache is for answers; a run that is stopped would leave replies in it.
        hook = self.cache_hook
        self.cache_hook = import_module("lm_eval.api.model").CacheHook(None)
        self.keeps_markers = True
        try:
            with _report_failures(self):
                replies = self._host.generate_until(asked, *arguments, **named)
        finally:
            self.cache_hook, self.keeps_markers = hook, False
        return [
            self._read_answer(reply, *request.args[:2])
            for reply, request in zip(replies, requests, strict=True)
        ]

    def _ask(self, wanted: JsonObject) -> JsonObject:
        """Return the arguments of a generation: it ends with the turn, and with a task's texts if those cannot occur
        in reasoning.
        """
        more = () if self.turnwise.has_reasoning else _read_until(wanted)
        return {**wanted, **self.reply_fields, "until": [*self.turnwise.stops, *more]}

    def _read_answer(self, reply: str, prompt: EvalPrompt, wanted: JsonObject) -> str:
        answer = self.turnwise.parse(reply, prompt)["content"] or ""
        for text in _read_until(wanted):
            answer = answer.partition(text)[0]
        return answer


class TransformersModel(ChatTemplateModel):
    """For `hf`, which pads prompts and decodes replies itself."""

    def tok_batch_encode(self, strings: Any, *arguments: Any, **named: Any) -> Any:
        if not _are_prompts(strings):
            return self._host.tok_batch_encode(strings, *arguments, **named)
        rows = [prompt.ids for prompt in strings]
        length = named.get("left_truncate_len")
        if length and max(map(len, rows)) > length:
            warn_caller(f"a prompt has more than {length} tokens: its beginning is cut off")
            rows = [row[-length:] for row in rows]
        padded = self.tokenizer.pad({"input_ids": rows}, padding_side="left", return_tensors="pt")
        return padded["input_ids"], padded["attention_mask"]

    def tok_decode(self, tokens: Any, skip_special_tokens: bool = True) -> Any:
        return self._host.tok_decode(tokens, skip_special_tokens and not self.keeps_markers)


class CompletionsModel(ChatTemplateModel):
    """For `local-completions`: prompts are ids of a tokenizer that is here, which a server's cannot be."""

    reply_fields = RAW_TEXT

    def __init__(
        self, *arguments: Any, tokenizer_backend: str = "huggingface", **named: Any
    ) -> None:
        super().__init__(*arguments, tokenizer_backend=tokenizer_backend, **named)


MODELS: dict[str, tuple[type, str, str]] = {
    "hf": (TransformersModel, "huggingface", "HFLM"),
    "vllm": (ChatTemplateModel, "vllm_causallms", "VLLM"),
    "completions": (CompletionsModel, "openai_completions", "LocalCompletionsAPI"),
}
"""What follows `turnwise-` in the names of models: what is put before a class of lm-eval, its module and its name."""


def register() -> None:
    """Add the models to lm-eval's; each is imported when it is asked for."""
    import_module("lm_eval.models")  # lm-eval adds its own only where there are none
    registry = import_module("lm_eval.api.registry").model_registry
    for name in MODELS:
        registry.register(f"turnwise-{name}", target=f"{HERE}:{name}")


def main() -> None:
    """Run lm-eval's command with the models."""
    register()
    import_module("lm_eval.__main__").cli_evaluate()


def __getattr__(name: str) -> Any:
    """Make a model's class when lm-eval asks for it: it extends one that imports torch or vLLM."""
    if name not in MODELS:
        raise AttributeError(name)
    before, module, host = MODELS[name]
    return type(
        f"Turnwise{host}", (before, getattr(import_module(f"lm_eval.models.{module}"), host)), {}
    )


def _are_prompts(texts: Any) -> bool:
    return not isinstance(texts, str) and all(isinstance(one, EvalPrompt) for one in texts)


def _read_until(wanted: JsonObject) -> Iterator[str]:
    read = import_module("lm_eval.models.utils").handle_stop_sequences
    return filter(None, read(wanted.get("until"), None))


@contextmanager
def _report_failures(model: Any) -> Iterator[None]:
    """Name the server in the error of a connection, which lm-eval has tried several times."""
    try:
        yield
    except OSError as error:
        place = getattr(model, "base_url", None)
        if place is None:
            raise
        hint = "Is it still running? lm-eval's max_retries and timeout say how long it waits."
        raise TurnwiseError(f"the server at {place} does not answer: {error}", hint=hint) from error


if __name__ == "__main__":
    main()
