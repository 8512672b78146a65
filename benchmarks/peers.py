"""Everyone who can turn a template and a conversation into text, behind one shape.

A peer is a function of (subject, conversation) that does all that can be done once, and returns a call without
arguments that renders. What each may do once is what its users get for free: transformers, turnwise and jinja2
compile the template; nobody keeps anything of a conversation.

    transformers      render_jinja_template, which apply_chat_template calls: plain copies of the messages, then jinja2
    jinja2            the sandboxed environment that transformers sets up, messages handed over as they are
    minijinja         the Rust engine's Python package, its Python methods on
    hand-written      what a person writes who needs one model only: a list of strings and one join
    turnwise          str() of a rendering
    turnwise+pieces   the same and its pieces, so that no origin is left to be found later

Neither jinja2 here nor minijinja records `{% generation %}`; for them the tag becomes `{% if true %}`, which keeps
white space control as it is. minijinja's own `tojson` escapes `<`, `>`, `&` and `'`, so it gets the function
transformers uses. The joins below know no more than the workloads ask; what they leave out is said at each. Sentences
that a model's template writes (tool instructions, default system texts) are not repeated here: they are read off a
rendering when the join is made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import workloads

Conversation = workloads.Conversation
Subject = workloads.Subject
Render = Callable[[], str]
Peer = Callable[[Subject, Conversation], Render]
Join = Callable[[Conversation], str]

REFERENCE = "transformers"
MARK = "\N{SECTION SIGN}"


def dumps(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def raise_exception(message: str) -> None:
    raise ValueError(message)


def strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def without_generation(text: str) -> str:
    text = re.sub(r"\{%([-+]?)\s*generation\s*([-+]?)%\}", r"{%\1 if true \2%}", text)
    return re.sub(r"\{%([-+]?)\s*endgeneration\s*([-+]?)%\}", r"{%\1 endif \2%}", text)


def inputs(subject: Subject, conversation: Conversation) -> dict[str, Any]:
    """The names a template sees under transformers."""
    return {
        "messages": conversation.messages,
        "tools": conversation.tools,
        "documents": None,
        "add_generation_prompt": conversation.add_generation_prompt,
        **subject.options,
    }


def transformers(subject: Subject, conversation: Conversation) -> Render:
    from transformers.utils.chat_template_utils import render_jinja_template

    given = inputs(subject, conversation)
    messages = given.pop("messages")
    text = subject.text
    return lambda: render_jinja_template([messages], chat_template=text, **given)[0][0]


def sandboxed(subject: Subject, conversation: Conversation) -> Render:
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = dumps
    environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    render = environment.from_string(without_generation(subject.text)).render
    given = inputs(subject, conversation)
    return lambda: render(**given)


def minijinja(subject: Subject, conversation: Conversation) -> Render:
    from minijinja import Environment

    environment = Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        pycompat=True,
        debug=False,
        filters={"tojson": dumps},
        globals={"raise_exception": raise_exception, "strftime_now": strftime_now},
    )
    environment.add_template("chat", without_generation(subject.text))
    render = environment.render_template
    given = inputs(subject, conversation)
    return lambda: render("chat", **given)


def turnwise(subject: Subject, conversation: Conversation) -> Render:
    render, given = turnwise_call(subject, conversation)
    return lambda: str(render(**given))


def turnwise_pieces(subject: Subject, conversation: Conversation) -> Render:
    render, given = turnwise_call(subject, conversation)

    def text() -> str:
        rendering = render(**given)
        _ = rendering.pieces
        return str(rendering)

    return text


def turnwise_call(
    subject: Subject, conversation: Conversation
) -> tuple[Callable[..., Any], dict[str, Any]]:
    from turnwise import compile as compile_template

    return compile_template(subject.text, name=subject.name).render, inputs(subject, conversation)


def hand_written(subject: Subject, conversation: Conversation) -> Render:
    def probe(role: str, tools: list[dict[str, Any]] | None = None, invite: bool = False) -> str:
        return transformers(
            subject, Conversation([{"role": role, "content": MARK}], tools, invite)
        )()

    kinds = JOINS.get(subject.name)
    if kinds is None or (conversation.tools and not kinds[1]):
        raise NotImplementedError("no join is written for it")
    join = kinds[0](subject, probe)
    return lambda: join(conversation)


def qwen(subject: Subject, probe: Callable[..., str]) -> Join:
    """Qwen2.5 and Qwen3, which differ in what they do to thoughts. Tools need a system message here."""
    thinks = subject.name == "qwen3"
    untold = probe("user").partition("<|im_start|>user")[0]
    before_tools, _, after_tools = probe("system", [{}]).partition(MARK)[2].partition("\n{}")

    def join(conversation: Conversation) -> str:
        messages, tools = conversation.messages, conversation.tools
        parts = [untold]
        if messages[0]["role"] == "system":
            listed = (
                [before_tools, *["\n" + dumps(tool) for tool in tools], after_tools]
                if tools
                else ["<|im_end|>\n"]
            )
            parts = ["<|im_start|>system\n", messages[0]["content"], *listed]
            messages = messages[1:]
        last_query = max(
            (i for i, message in enumerate(messages) if message["role"] == "user"),
            default=len(messages),
        )
        last = len(messages) - 1
        for i, message in enumerate(messages):
            role = message["role"]
            if role == "user":
                parts.append(f"<|im_start|>user\n{message['content']}<|im_end|>\n")
            elif role == "assistant":
                thought = qwen_thought(message, i == last) if thinks and i > last_query else ""
                calls = qwen_calls(message) if message.get("tool_calls") else ""
                parts.append(
                    f"<|im_start|>assistant\n{thought}{message['content']}{calls}<|im_end|>\n"
                )
            else:
                opening = "" if messages[i - 1]["role"] == "tool" else "<|im_start|>user"
                closing = "" if i < last and messages[i + 1]["role"] == "tool" else "<|im_end|>\n"
                parts.append(
                    f"{opening}\n<tool_response>\n{message['content']}\n</tool_response>{closing}"
                )
        if conversation.add_generation_prompt:
            parts.append("<|im_start|>assistant\n")
        return "".join(parts)

    return join


def qwen_thought(message: dict[str, Any], last: bool) -> str:
    """Thoughts given in a field of their own; those inside the content are not looked for."""
    reasoning = (message.get("reasoning_content") or "").strip("\n")
    return f"<think>\n{reasoning}\n</think>\n\n" if last or reasoning else ""


def qwen_calls(message: dict[str, Any]) -> str:
    written = []
    for call in message["tool_calls"]:
        function = call["function"]
        name, arguments = function["name"], dumps(function["arguments"])
        written.append(f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>')
    return ("\n" if message["content"] else "") + "\n".join(written)


def llama(subject: Subject, probe: Callable[..., str]) -> Join:
    """Llama 3.1 without tools."""
    opening = probe("system").partition(MARK)[0]

    def join(conversation: Conversation) -> str:
        messages = conversation.messages
        system = messages[0]["role"] == "system"
        parts = [opening, messages[0]["content"].strip() if system else "", "<|eot_id|>"]
        parts += [
            f"<|start_header_id|>{message['role']}<|end_header_id|>\n\n{message['content'].strip()}<|eot_id|>"
            for message in messages[system:]
        ]
        if conversation.add_generation_prompt:
            parts.append("<|start_header_id|>assistant<|end_header_id|>\n\n")
        return "".join(parts)

    return join


def mistral(subject: Subject, probe: Callable[..., str]) -> Join:
    """Mistral Nemo without tools; the system text goes into a last user turn, and else nowhere."""
    bos, eos = subject.options["bos_token"], subject.options["eos_token"]

    def join(conversation: Conversation) -> str:
        messages = conversation.messages
        told = messages[0]["content"] + "\n\n" if messages[0]["role"] == "system" else ""
        parts = [bos]
        for message in messages[1:] if told else messages:
            if message["role"] == "user":
                parts.append(
                    f"[INST]{told if message is messages[-1] else ''}{message['content']}[/INST]"
                )
            else:
                parts.append(message["content"] + eos)
        return "".join(parts)

    return join


def deepseek(subject: Subject, probe: Callable[..., str]) -> Join:
    """DeepSeek-V3.1 without tools and thoughts; user and assistant alternate."""
    bos, eos = subject.options["bos_token"], subject.options["eos_token"]
    user, _, invitation = probe("user", invite=True).removeprefix(bos).partition(MARK)
    around = {"system": ("", ""), "user": (user, ""), "assistant": (invitation, eos)}

    def join(conversation: Conversation) -> str:
        parts = [bos]
        for message in conversation.messages:
            before, after = around[message["role"]]
            parts += (before, message["content"], after)
        if conversation.add_generation_prompt:
            parts.append(invitation)
        return "".join(parts)

    return join


# Template -> (how its join is made, whether the join can write tools and calls)
JOINS: dict[str, tuple[Callable[[Subject, Callable[..., str]], Join], bool]] = {
    "qwen2.5": (qwen, True),
    "qwen3": (qwen, True),
    "llama-3.1": (llama, False),
    "mistral-nemo": (mistral, False),
    "deepseek-v3.1": (deepseek, False),
}

PEERS: dict[str, Peer] = {
    "transformers": transformers,
    "jinja2": sandboxed,
    "minijinja": minijinja,
    "turnwise": turnwise,
    "turnwise+pieces": turnwise_pieces,
    "hand-written": hand_written,
}
