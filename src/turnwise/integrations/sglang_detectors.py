"""SGLang's detectors of calls and of reasoning, for any template; `turnwise.integrations.sglang` registers them.

SGLang makes one of each for every request. A reply is read whole (`detect_and_parse`), or in parts
(`parse_streaming_increment`, and `finish` for what was held back).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sglang.srt.function_call.base_format_detector import BaseFormatDetector
from sglang.srt.function_call.core_types import StreamingParseResult, ToolCallItem
from sglang.srt.parser.reasoning_parser import (
    BaseReasoningFormatDetector,
)
from sglang.srt.parser.reasoning_parser import (
    StreamingParseResult as ReasoningParseResult,
)

from turnwise.errors import TurnwiseError
from turnwise.integrations.serving import find_template, join_texts, to_tool_dicts
from turnwise.replies.events import ARGUMENTS, REASONING, START, TEXT, Event
from turnwise.replies.parser.parser import Parser

__all__ = ["CallDetector", "ReasoningDetector"]


class CallDetector(BaseFormatDetector):
    """Reads the content and the calls of a reply, and constrains them."""

    def __init__(self, tokenizer: Any = None) -> None:
        super().__init__()
        self._served = find_template(tokenizer)
        self._stream: Parser | None = None

    def has_tool_call(self, text: str) -> bool:
        """Return whether a text has a call."""
        return bool(self._parse(text, None).get("tool_calls"))

    def detect_and_parse(self, text: str, tools: Any) -> StreamingParseResult:
        """Read a whole reply, from which the reasoning is already taken."""
        message = self._parse(text, tools)
        calls = [
            ToolCallItem(
                tool_index=number,
                name=call["function"]["name"],
                parameters=call["function"]["arguments"],
            )
            for number, call in enumerate(message.get("tool_calls", ()))
        ]
        return StreamingParseResult(normal_text=message["content"] or "", calls=calls)

    def parse_streaming_increment(self, new_text: str, tools: Any) -> StreamingParseResult:
        """Read the next part of a reply, and return what is certain now."""
        if self._stream is None:
            self._stream = self._served.call_parser(to_tool_dicts(tools))
        return self._to_result(self._stream.feed(new_text))

    def finish(self, tools: Any) -> StreamingParseResult:
        """Return what was held back: the reply has ended."""
        if self._stream is None:
            return StreamingParseResult()
        return self._to_result(self._stream.close().events)

    def supports_structural_tag(self) -> bool:
        """Return False: SGLang's own tags know only a text before and after JSON arguments."""
        return False

    def parses_required_natively(self) -> bool:
        """Return True: calls that are required have the model's own syntax too."""
        return True

    def structure_info(self) -> Callable[[str], Any]:
        """Refuse: `get_structural_tag` has the whole syntax."""
        raise TurnwiseError("calls of this template are not only JSON between two texts")

    def get_structural_tag(
        self,
        tools: Any = None,
        tool_choice: Any = "auto",
        thinking_mode: bool = False,
        parallel_tool_calls: bool = True,
    ) -> Any:
        """Return the constraint of calls in the syntax of the template; None if there is none."""
        choice = tool_choice if isinstance(tool_choice, str) else tool_choice.function.name
        return self._served.constrain(tools, choice, parallel_tool_calls, loose=(False, None))

    def _parse(self, text: str, tools: Any) -> Any:
        parser = self._served.call_parser(to_tool_dicts(tools))
        parser.feed(text)
        return parser.close()

    def _to_result(self, events: Sequence[Event]) -> StreamingParseResult:
        """Return events as SGLang's result, and count the calls as its serving code wants it."""
        calls = []
        for event in events:
            if event.kind == START:
                self.current_tool_id = event.call or 0
                self.current_tool_name_sent = True
                self.streamed_args_for_tool.append("")
                self.prev_tool_call_arr.append({"name": event.name, "arguments": {}})
                calls.append(ToolCallItem(tool_index=event.call, name=event.name, parameters=""))
            elif event.kind == ARGUMENTS and event.text:
                self.streamed_args_for_tool[event.call or 0] += event.text
                calls.append(ToolCallItem(tool_index=event.call, parameters=event.text))
        return StreamingParseResult(normal_text=join_texts(events)[TEXT], calls=calls)


class ReasoningDetector(BaseReasoningFormatDetector):
    """Reads the reasoning of a reply, and leaves the rest as it was written."""

    def __init__(
        self, tokenizer: Any = None, force_reasoning: bool | None = None, **more: Any
    ) -> None:
        self._served = find_template(tokenizer)
        super().__init__(*self._served.markers, force_reasoning=bool(force_reasoning), **more)
        # SGLang knows from the request whether the prompt opens reasoning; else it does as usual.
        self._prompt = "" if force_reasoning is False else None
        self._is_open = bool(force_reasoning)
        self._stream: Parser | None = None
        self._rest_follows = False

    def detect_and_parse(self, text: str) -> ReasoningParseResult:
        """Return the reasoning of a whole reply, and the rest."""
        message = self._served.reasoning_parser(self._prompt, self._is_open).read(text)
        return ReasoningParseResult(
            normal_text=message["content"] or "",
            reasoning_text=message.get("reasoning_content") or "",
        )

    def parse_streaming_increment(self, new_text: str) -> ReasoningParseResult:
        """Read the next part of a reply. After the first text that is no reasoning, all is passed on."""
        if self._rest_follows:
            return ReasoningParseResult(normal_text=new_text)
        if self._stream is None:
            self._stream = self._served.reasoning_parser(self._prompt, self._is_open)
        events = list(self._stream.feed(new_text))
        if any(event.kind == TEXT for event in events):
            self._rest_follows = True
            events += self._stream.close().events
        return _to_reasoning(events)

    def finish(self) -> ReasoningParseResult:
        """Return what was held back: the reply has ended."""
        if self._stream is None or self._rest_follows:
            return ReasoningParseResult()
        return _to_reasoning(self._stream.close().events)


def _to_reasoning(events: Sequence[Event]) -> ReasoningParseResult:
    texts = join_texts(events)
    return ReasoningParseResult(normal_text=texts[TEXT], reasoning_text=texts[REASONING])
