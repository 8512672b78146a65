"""SGLang: replies are read, calls constrained and prompts rendered as the model's own template says.

    python -m sglang.launch_server --model-path MODEL --tool-call-parser turnwise --reasoning-parser turnwise

SGLang calls `register` in each of its processes, through the entry point group `sglang.srt.plugins`. It registers by
name, so nothing changes for a model that does not ask for it. The detectors are in `sglang_detectors`.
"""

from __future__ import annotations

import os
from typing import Any

from turnwise.errors import TurnwiseError
from turnwise.integrations.serving import TEMPLATE_VARIABLE, load_named

__all__ = ["NAME", "register", "render_segments"]

NAME = "turnwise"
"""The name of the parsers and of the chat template."""


def register() -> None:
    """Register the tool call parser, the reasoning parser and the chat template."""
    from sglang.srt.function_call.function_call_parser import FunctionCallParser
    from sglang.srt.parser.python_chat_template import PYTHON_CHAT_TEMPLATES, PythonChatTemplate
    from sglang.srt.parser.reasoning_parser import ReasoningParser

    from turnwise.integrations.sglang_detectors import CallDetector, ReasoningDetector

    FunctionCallParser.ToolCallParserEnum[NAME] = CallDetector
    ReasoningParser.DetectorMap[NAME] = ReasoningDetector
    PYTHON_CHAT_TEMPLATES[NAME] = PythonChatTemplate(
        name=NAME,
        render_segments=render_segments,
        content_format="openai",
        reasoning_config=None,
        may_reorder_tool_results=False,
        supports_inline_system=True,  # a late system text is put where the template takes it
        reasoning_parser=NAME,
        tool_call_parser=NAME,
    )


def render_segments(
    messages: Any,
    tools: Any = None,
    documents: Any = None,
    add_generation_prompt: bool = False,
    **options: Any,
) -> list[str]:
    """Render a conversation with the template that `TURNWISE_TEMPLATE` names, for `--chat-template turnwise`.

    Returns:
        The texts whose concatenation is the prompt.

    Raises:
        TurnwiseError: no template is named, or it cannot take the conversation.
    """
    place = os.environ.get(TEMPLATE_VARIABLE)
    if not place:
        raise TurnwiseError(
            "--chat-template turnwise does not say which template",
            hint=f"Set {TEMPLATE_VARIABLE} to a name, a file or the model's folder.",
        )
    template = load_named(place)
    known = {name: options[name] for name in options if name in template.variables}
    rendering = template.render(
        messages,
        tools=tools,
        documents=documents,
        add_generation_prompt=add_generation_prompt,
        **known,
    )
    return [piece.text for piece in rendering.pieces]
