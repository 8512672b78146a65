r"""LMDeploy's chat templates: a header and an end for each role.

    {
        "model_name": "your awesome chat template name",
        "system": "<|im_start|>system\n",
        "meta_instruction": "You are a robot developed by LMDeploy.",
        "eosys": "<|im_end|>\n",
        "user": "<|im_start|>user\n",
        "eoh": "<|im_end|>\n",
        "assistant": "<|im_start|>assistant\n",
        "eoa": "<|im_end|>",
        "separator": "\n",
        "capability": "chat",
        "stop_words": ["<|im_end|>"]
    }

A conversation is `{system}{meta_instruction}{eosys}{user}...{eoh}{assistant}...{eoa}{separator}`;
`tool` and `eotool` are around results. All fields are optional and empty by default; a null is a
field that is not given. The meta instruction is the system text of a conversation that has none; if
it is empty, the turn is written all the same.

If `model_name` is one of LMDeploy's own names, its fields are the defaults, and its class may do
more than the fields say. That is data here (`lmdeploy.json`), in fields of our own:

    style      how turns are written, see `lmdeploy_styles.py`
    start      before everything
    think      after the generation prompt; `no_think` with `enable_thinking=False`
    cut        the last character of every prompt is cut: "always", or "chat" for that capability
    later      other fields for a text that goes on after an earlier round (`sequence_start` is false)

A capability changes what becomes of a string that is given in the place of messages, here
`render([], prompt="...")`: "completion" writes it as it is; the style codellama also for "python",
and for "infilling" puts the texts before and after `<FILL>` in their order. Otherwise the string is
the one question of a chat.

`"sequence_start": false` gives the text of a later round of a session, whose earlier text the model
has already seen: nothing before everything, no default system turn, and a string starts with the
separator.

With `exact` the text is that of LMDeploy 0.9.2 for messages and strings, to the byte. Its prompts
always open the reply, a final assistant message is always continued, and the capability does not
change messages. Without it, the generation prompt and the end of the last turn are the caller's
choice, and a template for completion takes one user message.

This dialect can be read, not written. InternLM2's own format, of which LMDeploy has a part, is
`internlm2.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from turnwise.dialects.lmdeploy_jinja import write_jinja
from turnwise.dialects.lmdeploy_styles import STYLES
from turnwise.dialects.translation import Translation, object_in, to_mapping
from turnwise.dialects.turns import Slot, Turns, fill_slots, split_at_text
from turnwise.errors import SourceError
from turnwise.messages import JsonMapping, JsonObject
from turnwise.schema import BOOLEAN, STRING, STRINGS, TABLE, check_table, one_of

DATA_FILE = "lmdeploy.json"
MESSAGE = Slot("text")
CAPABILITIES = ("chat", "completion", "infilling", "python", "voice")
"""LMDeploy's, and the one of its tests; all but the first three are like "chat", except for codellama."""
TEXTS = (
    *("start", "system", "meta_instruction", "eosys", "user", "eoh", "assistant", "eoa"),
    *("separator", "tool", "eotool", "tools", "eotools", "environment", "eoenv", "plugin"),
    *("interpreter", "ipython", "eoi", "knowledge", "think", "no_think"),
)
RULES = {
    "model_name": STRING,
    "model_path": STRING,
    **dict.fromkeys(TEXTS, STRING),
    "capability": one_of(CAPABILITIES),
    "stop_words": STRINGS,
    "style": one_of(STYLES),
    "cut": one_of(("chat", "always")),
    "suffix_first": BOOLEAN,
    "sequence_start": BOOLEAN,
    "later": TABLE,
}
KEYS = tuple(RULES)
DISTINCTIVE_KEYS = {"meta_instruction", "eosys", "eoh", "eoa", "eotool", "capability"}
HEADERS = {"user", "assistant"}
INTERNLM2_KEYS = {"spelling", "environment", "eoenv"}
"""Keys of the dialect internlm2, whose sources may have all of those, too."""
DEFAULTS: JsonMapping = {
    **dict.fromkeys(TEXTS, ""),
    "capability": "chat",
    "stop_words": None,
    "style": "base",
    "cut": "",
    "suffix_first": False,
    "sequence_start": True,
    "later": {},
}


@cache
def read_data() -> JsonMapping:
    """Return the data file: LMDeploy's own templates under `entries`, its rules for models under `models`."""
    from importlib.resources import files  # slow to import, and only needed here

    text = files("turnwise.dialects").joinpath(DATA_FILE).read_text(encoding="utf-8")
    data: JsonMapping = json.loads(text)
    return data


def knows(source: Any) -> bool:
    """Return True for a mapping with a `model_name`, or with both headers and a key that only such a template has.

    Fewer keys change some texts of InternLM2's format: that is the dialect internlm2.
    """
    source = object_in(source)
    if not isinstance(source, Mapping):
        return False
    keys = set(source)
    if keys & INTERNLM2_KEYS and "style" not in keys:
        return False
    if "model_name" in keys:
        return keys <= set(KEYS) or bool(DISTINCTIVE_KEYS & keys)
    return keys >= HEADERS and bool(DISTINCTIVE_KEYS & keys)


def read(source: Any, exact: bool = False) -> Translation:
    """Translate the fields, or their JSON."""
    mapping = to_mapping(source, "an LMDeploy template")
    given = check_table(mapping, RULES, skip_nulls=True)
    own: JsonMapping = read_data()["entries"].get(given.get("model_name"), {})
    fields = {**DEFAULTS, **own, **given}
    _check_style(fields)
    stops = fields["stop_words"]
    if stops is None:
        is_infilling = fields["style"] == "codellama" and fields["capability"] == "infilling"
        stops = ["<EOT>"] if is_infilling else []
    facts = {key: value for key, value in given.items() if key in ("model_name", "capability")}
    return Translation(write_jinja(fields, exact), stops=tuple(stops), facts=facts)


def _check_style(fields: JsonMapping) -> None:
    if fields["style"] == "codellama" and fields["capability"] == "voice":
        raise SourceError(
            "codellama has no capability 'voice'", hint=f"It has: {', '.join(CAPABILITIES[:-1])}."
        )


def write(turns: Turns, eos_token: str | None = None) -> JsonObject:
    """Return the fields of `ChatTemplateConfig` for these turns; empty ones are left out.

    Not expressed: leaving out the system turn where no system text is given, a system text in the
    user turn, numbers of rounds, a text before replies that is not the generation prompt.

    Args:
        turns: what the template writes.
        eos_token: the text of the token that ends a reply, if one does.
    """
    first, *rest = turns.user
    separator = turns.separator
    if turns.has_bos_in_user:
        # LMDeploy's tokenizers insert the first one; the others end what separates the rounds.
        turns = replace(turns, user=(str(first).removeprefix(turns.bos), *rest))
        separator += turns.bos
    before, after = split_at_text(turns.user)
    is_in_user = turns.system_in_user or turns.system_in_last_user
    system, eosys = split_at_text((not is_in_user and turns.system) or (MESSAGE,))
    texts = {
        "system": turns.prefix.removeprefix(turns.bos) + fill_slots(system, 0),
        "meta_instruction": turns.default_system or "",
        "eosys": fill_slots(eosys, 0),
        "user": fill_slots(before, 0),
        "eoh": fill_slots(after, 0),
        "assistant": turns.generation_prompt,
        "eoa": turns.reply_suffix + ((eos_token or "") if turns.eos else ""),
        "separator": separator,
    }
    required = {key: texts[key] for key in ("user", "eoh", "assistant")}
    source = required | {key: text for key, text in texts.items() if text}
    return source | ({"stop_words": list(turns.stops)} if turns.stops else {})
