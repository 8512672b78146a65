"""Sixty kinds of request for each API, as the SDKs send them: what is in it, and the kind of reply that it gets.

A row is a name, the kind of reply in `REPLIES`, and the arguments of the SDK beside the model and a question.
"""

from __future__ import annotations

from typing import Any

Rows = dict[str, tuple[str, dict[str, Any]]]

CALL = '<tool_call>\n{"name": "tide", "arguments": {"port": "A"}}\n</tool_call>'
OBJECT = '{"port": "A"}'
REPLIES = {
    "text": "Yes, it is low.<|im_end|>",
    "reasoning": "<think>\nHm.\n</think>\n\nYes.<|im_end|>",
    "call": f"{CALL}<|im_end|>",
    "two calls": CALL + "\n" + CALL.replace('"A"', '"B"') + "<|im_end|>",
    "text and call": f"Wait.\n{CALL}<|im_end|>",
    "all": f"<think>\nHm.\n</think>\n\nWait.{CALL}<|im_end|>",
    "nothing": "<|im_end|>",
    "other scripts": "<think>\n潮。\n</think>\n\nПрилив 🌊.<|im_end|>",
    "object": f"{OBJECT}<|im_end|>",
    "reasoning and object": f"<think>\nHm.\n</think>\n\n{OBJECT}<|im_end|>",
    "custom": '<tool_call>\n{"name": "patch", "arguments": {"input": "a \\"b\\"\\n潮"}}\n</tool_call><|im_end|>',
    "long": "Yes, it is low. " * 40 + "<|im_end|>",
    "markup": 'Use `<div>` & "quotes"\\n\n\ttabs, \u2028 and <|im_start|.<|im_end|>',
}
SCHEMA = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}
CLOSED = {**SCHEMA, "additionalProperties": False}
NESTED = {
    "type": "object",
    "properties": {
        "port": {"type": "string"},
        "days": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        "unit": {"enum": ["m", "ft"]},
        "near": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["port"],
}  # fmt: skip
FUNCTION: dict[str, Any] = {"name": "tide", "description": "The tide at a port."}
OTHER: dict[str, Any] = {"name": "now", "description": "The time."}
EMPTY = {"type": "object", "properties": {}}
ASKED = [{"role": "user", "content": "Is it low?"}]
REPLIED = [*ASKED, {"role": "assistant", "content": "Yes."}]
NOW = {"role": "system", "content": "Now."}
DEVELOPER = {"role": "developer", "content": "Be brief."}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def reply(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


# -- Anthropic's Messages

CACHED = {"cache_control": {"type": "ephemeral"}}
TOOL = {**FUNCTION, "input_schema": SCHEMA}
NOW_TOOL = {**OTHER, "input_schema": EMPTY}
USED = {"type": "tool_use", "id": "t1", "name": "tide", "input": {"port": "A"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "low"}
USED_2, RESULT_2 = {**USED, "id": "t2"}, {**RESULT, "tool_use_id": "t2", "content": "high"}
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}


REMINDER = "<system-reminder>Now.</system-reminder>"
THOUGHTS = [THINKING, {"type": "redacted_thinking", "data": "eA=="}]
FORMAT = {"output_config": {"format": {"type": "json_schema", "schema": CLOSED}}}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


def after_call(*blocks: Any, calls: tuple[Any, ...] = (USED,)) -> dict[str, Any]:
    """A conversation in which calls were made, and the turn after them."""
    return {"tools": [TOOL], "messages": [*ASKED, reply(list(calls)), user(list(blocks))]}


def choose(kind: str, **more: Any) -> dict[str, Any]:
    return {"tools": [TOOL], "tool_choice": {"type": kind, **more}}


MESSAGES: Rows = {
    "plain": ("text", {}),
    "a system text": ("text", {"system": "Be brief."}),
    "system blocks": ("text", {"system": [text("a"), text("b")]}),
    "cached system blocks": ("text", {"system": [text("a", **CACHED)]}),
    "an empty system text": ("text", {"system": ""}),
    "text blocks": ("text", {"messages": [user([text("Is it?")])]}),
    "two text blocks": ("text", {"messages": [user([text("Is it?"), text("Or not?")])]}),
    "a cached block": ("text", {"messages": [user([text("Is it?", **CACHED)])]}),
    "a late system text": ("text", {"messages": [*ASKED, NOW]}),
    "a late system text between": ("text", {"messages": [*REPLIED, NOW, *ASKED]}),
    "two late system texts": ("text", {"messages": [*REPLIED, NOW, *ASKED, NOW]}),
    "a reminder in a block": ("text", {"messages": [*REPLIED, user([text(REMINDER), text("And?")])]}),
    "two users": ("text", {"messages": [*ASKED, *ASKED]}),
    "a long conversation": ("text", {"messages": [*REPLIED * 6, *ASKED]}),
    "metadata": ("text", {"metadata": {"user_id": "u"}}),
    "sampling": ("text", {"extra_body": {"temperature": 0.5, "top_p": 0.9, "top_k": 4}}),
    "temperature 0": ("text", {"extra_body": {"temperature": 0}}),
    "a stop sequence that does not come": ("text", {"stop_sequences": ["zzz"]}),
    "four stop sequences": ("text", {"stop_sequences": ["a1", "b2", "c3", "d4"]}),
    "a service tier": ("text", {"service_tier": "auto"}),
    "template options": ("text", {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}),
    "effort": ("text", {"output_config": {"effort": "low"}}),
    "tools": ("call", {"tools": [TOOL]}),
    "tools, and text": ("text", choose("auto")),
    "tools, and text beside a call": ("text and call", {"tools": [TOOL]}),
    "two tools": ("call", {"tools": [TOOL, NOW_TOOL]}),
    "a tool without a description": ("call", {"tools": [{"name": "tide", "input_schema": SCHEMA}]}),
    "a tool of type custom": ("call", {"tools": [{**TOOL, "type": "custom"}]}),
    "a tool with a nested schema": ("call", {"tools": [{**FUNCTION, "input_schema": NESTED}]}),
    "a strict tool": ("call", {"tools": [{**FUNCTION, "input_schema": CLOSED, "strict": True}]}),
    "a cached tool": ("call", {"tools": [{**TOOL, **CACHED}]}),
    "tool examples": ("call", {"tools": [{**TOOL, "input_examples": [{"port": "A"}]}]}),
    "two calls": ("two calls", {"tools": [TOOL]}),
    "one call": ("call", choose("any", disable_parallel_tool_use=True)),
    "one call at most": ("text", choose("auto", disable_parallel_tool_use=True)),
    "any tool": ("call", choose("any")),
    "any tool, two calls": ("two calls", choose("any")),
    "this tool": ("call", choose("tool", name="tide")),
    "no tool": ("text", choose("none")),
    "thinking": ("reasoning", {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000}),
    "adaptive thinking": ("reasoning", {"thinking": {"type": "adaptive"}}),
    "no thinking": ("text", {"thinking": {"type": "disabled"}}),
    "thinking, text and a call": ("all", {"tools": [TOOL]}),
    "thinking and a forced call": ("all", choose("any")),
    "an empty reply": ("nothing", {}),
    "other scripts": ("other scripts", {}),
    "markup": ("markup", {}),
    "a long reply": ("long", {"max_tokens": 4000}),
    "a schema": ("object", FORMAT),
    "a schema after thinking": ("reasoning and object", FORMAT),
    "a result": ("text", after_call(RESULT)),
    "a result of blocks": ("text", after_call({**RESULT, "content": [text("low")]})),
    "a result without content": ("text", after_call({"type": "tool_result", "tool_use_id": "t1"})),
    "a cached result": ("text", after_call({**RESULT, **CACHED})),
    "a result that is an error, and a question": ("text", after_call({**RESULT, "is_error": True}, text("And?"))),
    "results out of order": ("text", after_call(RESULT_2, RESULT, calls=(USED, USED_2))),
    "text beside a call before": ("text", after_call(RESULT, calls=(text("Wait."), USED))),
    "a result, and a call again": ("call", after_call(RESULT)),
    "signed thoughts": ("text", {"messages": [*ASKED, reply([*THOUGHTS, text("Yes.")]), *ASKED]}),
    "signed thoughts before a call": ("text", after_call(RESULT, calls=(THINKING, USED))),
    "prefill": ("text", {"messages": [*ASKED, reply("Yes,")]}),
    "prefill in a block": ("text", {"messages": [*ASKED, reply([text("Yes,")])]}),
}  # fmt: skip

# -- OpenAI's Responses

FLAT: dict[str, Any] = {"type": "function", **FUNCTION, "parameters": SCHEMA, "strict": False}
FLAT_NOW = {"type": "function", **OTHER, "parameters": EMPTY, "strict": False}
PATCH: dict[str, Any] = {"type": "custom", "name": "patch", "description": "Edit files."}
ITEM = {"type": "function_call", "call_id": "t1", "name": "tide", "arguments": OBJECT}
OUTPUT = {"type": "function_call_output", "call_id": "t1", "output": "low"}
ITEM_2, OUTPUT_2 = {**ITEM, "call_id": "t2"}, {**OUTPUT, "call_id": "t2", "output": "high"}
CUSTOM_ITEM = {"type": "custom_tool_call", "call_id": "t1", "name": "patch", "input": "a\nb"}
CUSTOM_OUTPUT = {"type": "custom_tool_call_output", "call_id": "t1", "output": "done"}
THOUGHT = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "eA=="}
PLAIN_THOUGHT = {
    "type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}],
}  # fmt: skip
SUMMARY = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm."}]}
SAID = {
    "type": "message", "id": "m", "status": "completed", "role": "assistant",
    "content": [{"type": "output_text", "text": "Yes.", "annotations": []}],
}  # fmt: skip
REFUSED = {**SAID, "content": [{"type": "refusal", "refusal": "No."}]}


def items(*more: Any, tools: tuple[Any, ...] = (FLAT,)) -> dict[str, Any]:
    """A conversation with tools: the question, and items after it."""
    return {"tools": list(tools), "input": [*ASKED, *more]}


def part(value: str) -> dict[str, Any]:
    return {"type": "input_text", "text": value}


def flat_format(schema: Any, **more: Any) -> dict[str, Any]:
    return {"text": {"format": {"type": "json_schema", "name": "a", "schema": schema, **more}}}


RESPONSES: Rows = {
    "plain": ("text", {}),
    "instructions": ("text", {"instructions": "Be brief."}),
    "items": ("text", {"input": ASKED}),
    "items with a type": ("text", {"input": [{"type": "message", **ASKED[0]}]}),
    "parts": ("text", {"input": [user([part("Is it?")])]}),
    "two parts": ("text", {"input": [user([part("Is it?"), part("Or not?")])]}),
    "a developer": ("text", {"input": [DEVELOPER, *ASKED]}),
    "a system text": ("text", {"input": [NOW, *ASKED]}),
    "instructions and a developer": ("text", {"instructions": "a", "input": [DEVELOPER, *ASKED]}),
    "a late system text": ("text", {"input": [*ASKED, NOW]}),
    "a late developer": ("text", {"input": [*REPLIED, DEVELOPER, *ASKED]}),
    "two users": ("text", {"input": [*ASKED, *ASKED]}),
    "a long conversation": ("text", {"input": [*REPLIED * 6, *ASKED]}),
    "sampling": ("text", {"temperature": 0.5, "top_p": 0.9, "max_output_tokens": 100}),
    "temperature 0": ("text", {"temperature": 0}),
    "metadata": ("text", {"metadata": {"a": "b"}, "user": "u", "prompt_cache_key": "k"}),
    "a safety identifier": ("text", {"safety_identifier": "u"}),
    "a service tier": ("text", {"service_tier": "auto"}),
    "no truncation": ("text", {"truncation": "disabled"}),
    "not stored": ("text", {"store": False}),
    "stored is not needed": ("text", {"store": True}),
    "template options": ("text", {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}),
    "effort": ("text", {"reasoning": {"effort": "low"}}),
    "effort and a summary": ("reasoning", {"reasoning": {"effort": "low", "summary": "auto"}}),
    "verbosity": ("text", {"text": {"verbosity": "low"}}),
    "tools": ("call", {"tools": [FLAT]}),
    "tools, and text": ("text", {"tools": [FLAT], "tool_choice": "auto"}),
    "tools, and text beside a call": ("text and call", {"tools": [FLAT]}),
    "two tools": ("call", {"tools": [FLAT, FLAT_NOW]}),
    "a tool without a description": ("call", {"tools": [{**FLAT_NOW, "name": "tide", "description": None}]}),
    "a tool with a nested schema": ("call", {"tools": [{**FLAT, "parameters": NESTED}]}),
    "a strict tool": ("call", {"tools": [{**FLAT, "parameters": CLOSED, "strict": True}]}),
    "two calls": ("two calls", {"tools": [FLAT]}),
    "one call": ("call", {"tools": [FLAT], "parallel_tool_calls": False, "tool_choice": "required"}),
    "one call at most": ("text", {"tools": [FLAT], "parallel_tool_calls": False}),
    "required": ("call", {"tools": [FLAT], "tool_choice": "required"}),
    "required, two calls": ("two calls", {"tools": [FLAT], "tool_choice": "required"}),
    "this tool": ("call", {"tools": [FLAT], "tool_choice": {"type": "function", "name": "tide"}}),
    "no tool": ("text", {"tools": [FLAT], "tool_choice": "none"}),
    "a custom tool": ("custom", {"tools": [PATCH]}),
    "a custom tool of text": ("custom", {"tools": [{**PATCH, "format": {"type": "text"}}]}),
    "this custom tool": ("custom", {"tools": [PATCH, FLAT], "tool_choice": {"type": "custom", "name": "patch"}}),
    "a custom tool beside a function": ("call", {"tools": [PATCH, FLAT]}),
    "a custom call before": ("text", items(CUSTOM_ITEM, CUSTOM_OUTPUT, tools=(PATCH,))),
    "reasoning": ("reasoning", {"include": ["reasoning.encrypted_content"], "store": False}),
    "reasoning, text and a call": ("all", {"tools": [FLAT]}),
    "an empty reply": ("nothing", {}),
    "other scripts": ("other scripts", {}),
    "markup": ("markup", {}),
    "a long reply": ("long", {}),
    "free text": ("text", {"text": {"format": {"type": "text"}}}),
    "a JSON object": ("object", {"text": {"format": {"type": "json_object"}}}),
    "a schema": ("object", flat_format(CLOSED)),
    "a strict schema after reasoning": ("reasoning and object", flat_format(CLOSED, strict=True)),
    "a result": ("text", items(ITEM, OUTPUT)),
    "a result of parts": ("text", items(ITEM, {**OUTPUT, "output": [part("low")]})),
    "results out of order": ("text", items(ITEM, ITEM_2, OUTPUT_2, OUTPUT)),
    "a result, and a call again": ("call", items(ITEM, OUTPUT)),
    "encrypted reasoning": ("text", items(THOUGHT, ITEM, OUTPUT)),
    "plain reasoning": ("text", items(PLAIN_THOUGHT, SAID, *ASKED)),
    "a summary of reasoning": ("text", items(SUMMARY, ITEM, OUTPUT)),
    "a reply before": ("text", items(SAID, *ASKED, tools=())),
    "a refusal before": ("text", items(REFUSED, *ASKED, tools=())),
}  # fmt: skip

# -- Chat Completions

DEEP: dict[str, Any] = {"type": "function", "function": {**FUNCTION, "parameters": SCHEMA}}
DEEP_NOW = {"type": "function", "function": OTHER}
MADE = {"id": "t1", "type": "function", "function": {"name": "tide", "arguments": OBJECT}}
MADE_2 = {**MADE, "id": "t2"}
TOLD = {"role": "tool", "tool_call_id": "t1", "content": "low"}
TOLD_2 = {"role": "tool", "tool_call_id": "t2", "content": "high"}


def chat(*more: Any) -> dict[str, Any]:
    return {"tools": [DEEP], "messages": [*ASKED, *more]}


def called(*calls: Any, content: Any = None, **more: Any) -> dict[str, Any]:
    return reply(content, tool_calls=list(calls), **more)


def deep_tool(**more: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {**FUNCTION, "parameters": SCHEMA, **more}}]}


def deep_format(schema: Any, **more: Any) -> dict[str, Any]:
    named = {"name": "a", "schema": schema, **more}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


CHAT: Rows = {
    "plain": ("text", {}),
    "a system text": ("text", {"messages": [NOW, *ASKED]}),
    "a developer": ("text", {"messages": [DEVELOPER, *ASKED]}),
    "two system texts": ("text", {"messages": [NOW, NOW, *ASKED]}),
    "system parts": ("text", {"messages": [{"role": "system", "content": [text("a"), text("b")]}, *ASKED]}),
    "parts": ("text", {"messages": [user([text("Is it?")])]}),
    "two parts": ("text", {"messages": [user([text("Is it?"), text("Or not?")])]}),
    "a name": ("text", {"messages": [{**ASKED[0], "name": "Ann"}]}),
    "a late system text": ("text", {"messages": [*ASKED, NOW]}),
    "a late developer": ("text", {"messages": [*REPLIED, DEVELOPER, *ASKED]}),
    "a late system text between": ("text", {"messages": [*REPLIED, NOW, *ASKED]}),
    "two users": ("text", {"messages": [*ASKED, *ASKED]}),
    "a long conversation": ("text", {"messages": [*REPLIED * 6, *ASKED]}),
    "a reply of parts before": ("text", {"messages": [*ASKED, reply([text("Yes.")]), *ASKED]}),
    "a refusal before": ("text", {"messages": [*ASKED, reply(None, refusal="No."), *ASKED]}),
    "reasoning before": ("text", {"messages": [*ASKED, reply("Yes.", reasoning_content="Hm."), *ASKED]}),
    "metadata": ("text", {"metadata": {"a": "b"}, "user": "u", "prompt_cache_key": "k"}),
    "a safety identifier": ("text", {"safety_identifier": "u"}),
    "a service tier": ("text", {"service_tier": "auto"}),
    "not stored": ("text", {"store": False}),
    "sampling": ("text", {"temperature": 0.5, "top_p": 0.9, "seed": 3}),
    "temperature 0": ("text", {"temperature": 0}),
    "penalties": ("text", {"presence_penalty": 0.5, "frequency_penalty": -0.5}),
    "a bias": ("text", {"logit_bias": {"5": -100}}),
    "a limit": ("text", {"max_tokens": 100}),
    "a limit by its new name": ("text", {"max_completion_tokens": 100}),
    "a stop text that does not come": ("text", {"stop": "zzz"}),
    "four stop texts": ("text", {"stop": ["a1", "b2", "c3", "d4"]}),
    "parameters of vLLM": ("text", {"extra_body": {"top_k": 4, "min_p": 0.1, "repetition_penalty": 1.1}}),
    "template options": ("text", {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}),
    "text alone": ("text", {"modalities": ["text"]}),
    "effort": ("text", {"reasoning_effort": "low"}),
    "token ids": ("text", {"extra_body": {"return_token_ids": True}}),
    "tools": ("call", {"tools": [DEEP]}),
    "tools, and text": ("text", {"tools": [DEEP], "tool_choice": "auto"}),
    "tools, and text beside a call": ("text and call", {"tools": [DEEP]}),
    "two tools": ("call", {"tools": [DEEP, DEEP_NOW]}),
    "a tool without a description": ("call", deep_tool(description=None)),
    "a tool with a nested schema": ("call", deep_tool(parameters=NESTED)),
    "a strict tool": ("call", deep_tool(parameters=CLOSED, strict=True)),
    "two calls": ("two calls", {"tools": [DEEP]}),
    "one call": ("call", {"tools": [DEEP], "parallel_tool_calls": False, "tool_choice": "required"}),
    "one call at most": ("text", {"tools": [DEEP], "parallel_tool_calls": False}),
    "required": ("call", {"tools": [DEEP], "tool_choice": "required"}),
    "required, two calls": ("two calls", {"tools": [DEEP], "tool_choice": "required"}),
    "this tool": ("call", {"tools": [DEEP], "tool_choice": {"type": "function", "function": {"name": "tide"}}}),
    "no tool": ("text", {"tools": [DEEP], "tool_choice": "none"}),
    "reasoning": ("reasoning", {}),
    "reasoning, text and a call": ("all", {"tools": [DEEP]}),
    "an empty reply": ("nothing", {}),
    "other scripts": ("other scripts", {}),
    "markup": ("markup", {}),
    "a long reply": ("long", {}),
    "free text": ("text", {"response_format": {"type": "text"}}),
    "a JSON object": ("object", {"response_format": {"type": "json_object"}}),
    "a schema": ("object", deep_format(CLOSED)),
    "a strict schema after reasoning": ("reasoning and object", deep_format(CLOSED, strict=True)),
    "a result": ("text", chat(called(MADE), TOLD)),
    "a result of parts": ("text", chat(called(MADE), {**TOLD, "content": [text("low")]})),
    "results out of order": ("text", chat(called(MADE, MADE_2), TOLD_2, TOLD)),
    "text beside a call before": ("text", chat(called(MADE, content="Wait."), TOLD)),
    "a result, and a call again": ("call", chat(called(MADE), TOLD)),
    "a result, a late system text": ("text", chat(called(MADE), TOLD, NOW)),
}  # fmt: skip
