"""llama.cpp's server: the fields of a `/completion` request for a conversation, with the grammar of its calls.

    request = completion_request(template, messages, tokenizer, tools)
    answer = client.post("/completion", json=request).json()
    message = template.parse(answer["content"], tools=tools)

The prompt goes as token ids, so no message can forge a control token; the grammar has the calls' native syntax.
"""

from __future__ import annotations

import logging
from typing import Any

from turnwise.errors import TurnwiseError
from turnwise.messages import JsonMapping, JsonObject
from turnwise.template import Template
from turnwise.tokens.loss import train_nothing
from turnwise.tokens.tokenizers import tokenizer as known_tokenizer

__all__ = ["completion_request"]

logger = logging.getLogger(__name__)

WORD = 1
"""llama.cpp's number for a trigger that is a text."""


def completion_request(
    template: Template,
    messages: Any,
    tokenizer: Any,
    tools: Any = None,
    tool_choice: str = "auto",
    *,
    parallel: bool = True,
    content: JsonMapping | None = None,
    **options: Any,
) -> JsonObject:
    """Return the fields of a request for the next reply of a conversation.

    Args:
        template: the template of the model.
        messages: the conversation.
        tokenizer: the model's tokenizer, in any form that `Template.encode` takes; its ids must be llama.cpp's.
        tools: the tools that may be called.
        tool_choice: "auto", "required", "none", or the name of the only tool that may be called.
        parallel: allow several calls in one reply.
        content: a JSON schema that the content must fit.
        options: those of `Template.render`.

    Returns:
        `prompt` (ids), `stop`, and with tools `grammar`, `grammar_lazy`, `grammar_triggers` and `preserved_tokens`.
        What else llama.cpp takes can be added. Tools that no grammar can follow are logged and do not constrain.

    Raises:
        TurnwiseError: the template cannot take the conversation.

    Example:
        >>> import turnwise
        >>> hi = [{"role": "user", "content": "Hi"}]
        >>> completion_request(turnwise.load("chatml"), hi, "turnwise")["stop"]
        ['<|im_end|>']
    """
    known = known_tokenizer(tokenizer)
    encoded = template.encode(
        messages,
        known,
        train_nothing,
        add_stop=False,
        add_generation_prompt=True,
        tools=tools,
        **options,
    )
    request: JsonObject = {
        "prompt": list(encoded.input_ids),
        "stop": list(template.stops(known)),
    }
    if not tools or tool_choice == "none":
        return request
    prompt = encoded.rendering.text
    try:
        gbnf = template.grammar.to_gbnf(
            tools, tool_choice, parallel=parallel, content=content, prompt=prompt
        )
    except TurnwiseError as error:
        logger.warning("%s: calls are not constrained: %s", template.name, error)
        return request
    triggers = [{"type": WORD, "value": text} for text in gbnf.triggers]
    return {
        **request,
        "grammar": gbnf.grammar,
        "grammar_lazy": bool(triggers),
        "grammar_triggers": triggers,
        "preserved_tokens": list(gbnf.preserved_tokens),
    }
