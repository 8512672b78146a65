r"""LMDeploy's chat templates as Jinja: prompts, and the cuts that LMDeploy makes.

LMDeploy concatenates all turns and then cuts: the end of a final assistant turn, so that the model
continues it, and in some classes the last character of every prompt. With `exact` the Jinja does
the same to the same text. Otherwise a final assistant turn is closed, the generation prompt is
written only with `add_generation_prompt`, and only that prompt loses its last character.

The variable `prompt` is the string that LMDeploy takes in the place of messages. The capability
decides what becomes of it: a chat with one question, the text alone, or a text to fill in.

The turns of each style are in `lmdeploy_styles.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from turnwise.dialects.lmdeploy_styles import (
    CALL_MESSAGE_END,
    EXACT_TEXT,
    JOINED_TEXT,
    STYLES,
)
from turnwise.dialects.turns import literal

Fields = Mapping[str, Any]

FIELD = re.compile(r"@(\w+)@")
STEM = "stem_"
GENERATION_TAGS = ("{%- generation -%}\n", "{%- endgeneration -%}\n")
NO_CHAT = "{{- raise_exception('this template is for completion: LMDeploy writes no messages with it') -}}\n"
ONE_MESSAGE = """\
{%- if messages | length != 1 or messages[0].role != 'user' -%}
{{- raise_exception('this template is for completion: it takes one user message, the prompt') -}}
{%- endif -%}
{%- set prompt = text_of(messages[0]) -%}
"""


def write_jinja(fields: Fields, exact: bool) -> str:
    """Return the Jinja of a template that has every field."""
    if not fields["sequence_start"]:
        fields = {**fields, "start": "", **fields["later"]}
    if exact:
        cuts = fields["cut"] == "always" or (fields["cut"] and fields["capability"] == "chat")
        prompt = _capture(_write_prompt(fields), "text[:-1]" if cuts else "text")
        parts = (EXACT_TEXT, IF_PROMPT, prompt, ELSE, _write_exact_chat(fields), END)
    else:
        parts = (JOINED_TEXT, IF_PROMPT, _write_prompt(fields), ELSE, _write_chat(fields), END)
    return fill_fields("".join(parts), fields)


def fill_fields(text: str, fields: Fields) -> str:
    """Replace `@user@` by the field as a literal, `@stem_user@` by the field without white space around it."""

    def fill(found: re.Match[str]) -> str:
        name = found[1]
        if name.startswith(STEM):
            return literal(fields[name.removeprefix(STEM)].strip())
        return literal(fields[name])

    return FIELD.sub(fill, text)


def _capture(body: str, expression: str) -> str:
    """Return Jinja that writes an expression of `text`, which is what the body writes."""
    return f"{{%- set text -%}}\n{body}{{%- endset -%}}\n{{{{- {expression} -}}}}\n"


# -- a string in the place of messages ---------------------------------------------------------------

IF_PROMPT = """\
{%- if prompt is defined -%}
{%- if prompt is not string or messages -%}
{{- raise_exception('prompt is a text in the place of messages') -}}
{%- endif -%}
"""
ELSE = "{%- else -%}\n"
END = "{%- endif -%}\n"
SPLIT_PROMPT = """\
{%- set parts = prompt.split('<FILL>') -%}
{%- if parts | length != 2 -%}
{{- raise_exception('a text to fill in has one <FILL>') -}}
{%- endif -%}
"""
INFILLING = SPLIT_PROMPT + "{{- '<PRE> ' ~ parts[0] ~ ' <SUF>' ~ parts[1] ~ ' <MID>' -}}\n"
SUFFIX_FIRST = SPLIT_PROMPT + "{{- '<PRE> <SUF>' ~ parts[1] ~ ' <MID> ' ~ parts[0] -}}\n"
COMPLETION = "{{- prompt -}}\n"
LATER_QUESTION = "{{- @separator@ ~ @user@ ~ prompt ~ @eoh@ ~ @assistant@ -}}\n"
QUESTION = "{{- @user@ ~ prompt ~ @eoh@ ~ @assistant@ -}}\n"
CHAT = "{{- @system@ ~ @meta_instruction@ ~ @eosys@ -}}\n" + QUESTION
ROUND = "{{- '[Round ' ~ round | default(1) ~ ']\\n\\n' -}}\n" + QUESTION


def _write_prompt(fields: Fields) -> str:
    start = "{{- @start@ -}}\n" if fields["sequence_start"] else ""
    return start + _choose_prompt(fields)


def _choose_prompt(fields: Fields) -> str:
    """Return what the style and the capability make of a string."""
    style, capability = fields["style"], fields["capability"]
    if style == "codellama" and capability == "infilling":
        return SUFFIX_FIRST if fields["suffix_first"] else INFILLING
    if style == "completion" or (style == "codellama" and capability != "chat"):
        return COMPLETION
    if style == "chatglm2":
        return ROUND
    if capability == "completion":
        return COMPLETION
    if not fields["sequence_start"]:
        return LATER_QUESTION
    return QUESTION if fields["meta_instruction"] is None else CHAT


# -- messages ----------------------------------------------------------------------------------------


def _write_chat(fields: Fields) -> str:
    """Return Jinja for messages, without LMDeploy's defects."""
    if _choose_prompt(fields) in (COMPLETION, INFILLING, SUFFIX_FIRST):
        return ONE_MESSAGE + _write_prompt(fields)
    reply_start = fields["assistant"]
    if fields["style"] == "chatglm2":
        reply_start = ""  # it ends the user's turn
    elif fields["cut"]:
        reply_start = reply_start[:-1]
    opening = f"{{{{- {literal(reply_start)} ~ {_write_think(fields)} -}}}}\n"
    ending = f"{{%- if add_generation_prompt -%}}\n{opening}{{%- endif -%}}\n"
    return "{{- @start@ -}}\n" + STYLES[fields["style"]](fields, False) + ending


def _write_exact_chat(fields: Fields) -> str:
    """Return Jinja for messages that cuts the same characters as LMDeploy."""
    style = fields["style"]
    if style == "completion":
        return NO_CHAT
    turns = "{{- @start@ -}}\n" + STYLES[style](fields, True)
    end = len(fields["eoa"] + fields["separator"])
    reply_start, think = "@assistant@", _write_think(fields)
    if style == "chatglm2":
        reply_start = "''"
    if style == "intern-s1":  # the others write it after a final assistant turn, too
        reply_start, think = f"@assistant@ ~ {think}", "''"
    # Styles that never continue a reply, or do so only if there is an end to cut.
    always_opens = style in ("chatglm2", "qwen2.5") or (style in ("base", "codellama") and not end)
    is_open = "false" if always_opens else "messages and messages[-1].role == 'assistant'"
    cuts_end_only = always_opens or 0 < end <= len(CALL_MESSAGE_END)
    if not fields["cut"] and (cuts_end_only or (end and style != "llama3.1")):
        if not always_opens:
            turns = _leave_open(turns, end)
        return f"{turns}{{{{- ('' if {is_open} else {reply_start}) ~ {think} -}}}}\n"
    for tag in GENERATION_TAGS:  # text that is captured has no place yet
        turns = turns.replace(tag, "")
    # Where the end is empty, a cut of its length leaves nothing, as in LMDeploy.
    whole = f"(text[:-{end}] if {is_open} else text ~ {reply_start})"
    if fields["cut"]:
        whole += "[:-1]"
    return _capture(turns, f"{whole} ~ {think}")


def _leave_open(turns: str, end: int) -> str:
    """Return turns that do not write the end of a final assistant turn.

    Llama 3.1 ends a turn with a call otherwise, of which as many characters are left out.
    """
    texts = {"@eoa@": "''", "@separator@": "''"}
    texts[literal(CALL_MESSAGE_END)] = literal(CALL_MESSAGE_END[:-end])
    for text, open_text in texts.items():
        turns = turns.replace(text, f"({open_text} if loop.last else {text})")
    return turns


def _write_think(fields: Fields) -> str:
    """Return an expression for the beginning of the reasoning, or for its absence."""
    if fields["no_think"] or fields["style"] == "intern-s1":
        return "(@no_think@ if enable_thinking is false else @think@)"
    return "@think@"
