"""vLLM's tool parser and reasoning parser, for any template; `turnwise.integrations.vllm` registers them.

vLLM makes one of each for every request. `engine_based_streaming` is its word for parsers that keep the text they were
given: such a parser gets new text only, says itself when the reasoning is over, and is asked for what it held back when
the reply has ended (`finish_streaming`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from vllm.entrypoints.generate.base.protocol import (
    DeltaFunctionCall,
    DeltaMessage,
    DeltaToolCall,
    ExtractedToolCallInformation,
    FunctionCall,
    ToolCall,
)
from vllm.reasoning import ReasoningParser
from vllm.renderers.chat_utils import make_tool_call_id
from vllm.tool_parsers import ToolParser
from vllm.tool_parsers.structural_tag_registry import (
    get_model_structural_tag,
    register_vllm_structural_tag,
)
from vllm.tool_parsers.tool_strict_level import ToolStrictLevel
from xgrammar import StructuralTag

from turnwise.integrations.serving import ServedTemplate, find_template, join_texts, to_tool_dicts
from turnwise.replies.events import ARGUMENTS, REASONING, START, TEXT, Event
from turnwise.replies.parser.parser import Parser

__all__ = ["TurnwiseReasoningParser", "TurnwiseToolParser"]

PROMPT_TAIL = 256  # tokens in which the beginning of the assistant's turn is looked for first
CLOSER_TAIL = 16  # tokens before the newest that may be a part of the end of the reasoning


class TurnwiseToolParser(ToolParser):
    """Reads the content and the calls of a reply, and constrains them."""

    # Calls are written in the model's own syntax, constrained or not.
    supports_required_and_named = False
    structural_tag_model: str | None = "turnwise"
    engine_based_streaming = True

    def __init__(self, tokenizer: Any, tools: Any = None) -> None:
        super().__init__(tokenizer, tools)
        self._served = find_template(tokenizer)
        self._tools = to_tool_dicts(tools)
        self._stream: Parser | None = None
        if not self._served.has_calls:
            self.structural_tag_model = None

    def adjust_request(self, request: Any) -> Any:
        """Ask for the texts of special tokens: markers of calls mostly are such tokens."""
        return _keep_special_tokens(super().adjust_request(request))

    def get_structural_tag(
        self,
        request: Any,
        *,
        reasoning: bool = False,
        strict_level: ToolStrictLevel = ToolStrictLevel.AUTO,
    ) -> StructuralTag | None:
        """Return the constraint of calls in the syntax of the template.

        vLLM's registry decides which tools may be called and which of them are strict, and then calls a builder, which
        knows neither the template nor whether several calls are allowed: so each pair of these has its own.
        """
        if not self._served.has_calls:
            return None
        parallel = request.parallel_tool_calls is not False
        return get_model_structural_tag(
            model=_register_builder(self._served, parallel),
            tools=request.tools,
            tool_choice=request.tool_choice,
            reasoning=reasoning,
            strict_level=strict_level,
        )

    def extract_tool_calls(self, model_output: str, request: Any) -> ExtractedToolCallInformation:
        """Read a whole reply, from which the reasoning is already taken."""
        parser = self._start(request)
        parser.feed(model_output)
        message = parser.close()
        calls = [
            ToolCall(id=call["id"], function=FunctionCall(**call["function"]))
            for call in message.get("tool_calls", ())
        ]
        return ExtractedToolCallInformation(
            tools_called=bool(calls), tool_calls=calls, content=message["content"] or None
        )

    def extract_tool_calls_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
        request: Any,
    ) -> DeltaMessage | None:
        """Read the next part of a reply, and return what is certain now."""
        if self._stream is None:
            self._stream = self._start(request)
        return _to_delta(self._stream.feed(delta_text))

    def finish_streaming(self) -> DeltaMessage | None:
        """Return what was held back: the reply has ended."""
        return None if self._stream is None else _to_delta(self._stream.close().events)

    def _start(self, request: Any) -> Parser:
        tools = to_tool_dicts(getattr(request, "tools", None)) or self._tools
        allowed = getattr(request, "tool_choice", None) != "none"
        return self._served.call_parser(tools, _make_id, has_calls=allowed)


class TurnwiseReasoningParser(ReasoningParser):
    """Reads the reasoning of a reply, and leaves the rest as it was written."""

    engine_based_streaming = True

    def __init__(self, tokenizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(tokenizer, *args, **kwargs)
        self._served = find_template(tokenizer)
        self._options = kwargs.get("chat_template_kwargs")
        self._prompt: str | None = None
        self._stream: Parser | None = None
        self._has_ended = not self._served.has_reasoning

    @property
    def reasoning_start_str(self) -> str | None:
        """The marker that opens reasoning."""
        return self._served.markers[0] or None

    @property
    def reasoning_end_str(self) -> str | None:
        """The marker that closes reasoning."""
        return self._served.markers[1] or None

    def adjust_request(self, request: Any) -> Any:
        """Ask for the texts of special tokens: markers of reasoning often are such tokens."""
        return _keep_special_tokens(request)

    # -- where reasoning ends, in token ids

    def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
        """Return whether a prompt, and what was written after it, leave no reasoning to come."""
        if not self._served.has_reasoning:
            return True
        parser = self._served.reasoning_parser(self._decode_turn(input_ids))
        return not parser.in_reasoning and bool(parser.prefill_text.strip())

    def is_reasoning_end_streaming(
        self, input_ids: Sequence[int], delta_ids: Iterable[int]
    ) -> bool:
        """Return whether the newest tokens complete the end of the reasoning."""
        closer = self.reasoning_end_str
        if closer is None:
            return self.is_reasoning_end(input_ids)
        count = len(list(delta_ids)) + CLOSER_TAIL
        return closer in self._decode(input_ids[-count:])

    def extract_content_ids(self, input_ids: list[int]) -> list[int]:
        """Return the tokens of a reply that follow its reasoning."""
        parser = self._served.reasoning_parser(self._initial_prompt)
        for index, text in enumerate(map(self._decode_one, input_ids)):
            if any(event.kind == TEXT for event in parser.feed(text)):
                return input_ids[index:]
        return []

    def count_reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        """Return how many tokens of a reply are reasoning, markers included."""
        parser = self._served.reasoning_parser(self._initial_prompt)
        count = 0
        for text in map(self._decode_one, token_ids):
            was_open = parser.in_reasoning
            parser.feed(text)
            count += was_open or parser.in_reasoning
        return count

    # -- the text of reasoning

    def adjust_initial_state_from_prompt(self, prompt_token_ids: Sequence[int]) -> None:
        """Take the prompt that was really sent: it may open the reasoning, or the answer."""
        self._prompt = self._decode_turn(prompt_token_ids)

    def extract_reasoning(self, model_output: str, request: Any) -> tuple[str | None, str | None]:
        """Return the reasoning of a whole reply, and the rest."""
        parser = self._served.reasoning_parser(self._initial_prompt)
        message = parser.read(model_output)
        return message.get("reasoning_content"), message["content"] or None

    def extract_reasoning_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
    ) -> DeltaMessage | None:
        """Read the next part of a reply. With the first text that is no reasoning, reasoning has ended."""
        if self._stream is None:
            self._stream = self._served.reasoning_parser(self._initial_prompt)
        events = self._stream.feed(delta_text)
        self._has_ended = self._has_ended or any(event.kind == TEXT for event in events)
        return _to_delta(events)

    def has_engine_confirmed_reasoning_end(self) -> bool:
        """Return whether reasoning has ended."""
        return self._has_ended

    def finish_streaming(self) -> DeltaMessage | None:
        """Return what was held back: the reasoning, or the reply, has ended."""
        return None if self._stream is None else _to_delta(self._stream.close().events)

    @cached_property
    def _expected_prompt(self) -> str:
        return self._served.generation_prompt(self._options)

    @property
    def _initial_prompt(self) -> str:
        return self._expected_prompt if self._prompt is None else self._prompt

    def _decode_turn(self, ids: Sequence[int]) -> str:
        """Return the end of a prompt, which has the beginning of the assistant's turn."""
        tail = self._decode(ids[-PROMPT_TAIL:])
        if len(ids) <= PROMPT_TAIL or self._served.reasoning_parser(tail).prefill_text:
            return tail
        header = self._served.template.grammar.opening.split("\n", 1)[0]
        return tail if header and header in tail else self._decode(ids)

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self.model_tokenizer.decode(list(ids), skip_special_tokens=False)
        return text

    def _decode_one(self, id: int) -> str:
        return self._decode([id])


def _keep_special_tokens(request: Any) -> Any:
    request.skip_special_tokens = False
    if hasattr(request, "spaces_between_special_tokens"):
        request.spaces_between_special_tokens = False
    return request


def _make_id(name: str, number: int) -> str:
    id: str = make_tool_call_id(func_name=name, idx=number)
    return id


def _to_delta(events: Sequence[Event]) -> DeltaMessage | None:
    """Return events as one chunk of a stream; None if they have nothing for the client."""
    calls: list[DeltaToolCall] = []
    for event in events:
        if event.kind == START:
            # Clients take the id of a call from its first chunk, so one that the model writes later is not told.
            id = event.id or _make_id(event.name or "", event.call or 0)
            function = DeltaFunctionCall(name=event.name, arguments="")
            calls.append(DeltaToolCall(index=event.call, id=id, type="function", function=function))
        elif event.kind == ARGUMENTS and event.text:
            function = DeltaFunctionCall(arguments=event.text)
            calls.append(DeltaToolCall(index=event.call, function=function))
    texts = join_texts(events)
    fields = {"content": texts[TEXT], "reasoning": texts[REASONING], "tool_calls": calls}
    given = {name: value for name, value in fields.items() if value}
    return DeltaMessage(**given) if given else None


def _register_builder(served: ServedTemplate, parallel: bool) -> str:
    """Register a builder of structural tags for a template, and return its name."""
    name = f"turnwise-{id(served)}-{'several' if parallel else 'one'}"

    def build(
        tools: Any, builtin_tools: Any, choice: str, reasoning: bool, token_suffix: str = ""
    ) -> Any:
        # vLLM says "forced" where one tool is named, and gives that tool alone.
        named = "auto" if choice == "auto" else "required"
        return served.constrain(tools, named, parallel, loose=(False,))

    register_vllm_structural_tag(name)(build)
    return name
