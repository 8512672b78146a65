"""XTuner's own names: PROMPT_TEMPLATE, SYSTEM_TEMPLATE, the map functions and the rules of its encoder.

Change `from xtuner.utils import PROMPT_TEMPLATE` to `from turnwise.compat.xtuner import PROMPT_TEMPLATE`, and so on.
A round is written by the engine from the template's Jinja; the encoder's rules (which part is learnt, where bos and
eos stand) give *segments*, `[kind, text, learnt]`, of kind bos, eos or text, and `encode_fn` turns those into ids
with the tokenizer it is given. `load(name, system=...)` is the whole template, with a text of SYSTEM_TEMPLATE by name.
This is the training side, so it does what XTuner's code does: a system text in any round that has one, SEP after the
last round, bos again after each eos. Not here: the LLaVA image loading, packing, `max_dataset_length`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from turnwise.compat import MissingKey
from turnwise.compat.batches import whole
from turnwise.compat.tokenizer_shim import ids_of, speaker
from turnwise.dialects import xtuner
from turnwise.errors import MessageError, SourceError, TokenizerError, did_you_mean, short_repr
from turnwise.registry.entry import ENTRIES
from turnwise.template import Template
from turnwise.tokens.session import to_ids

IGNORE_INDEX = -100
IMAGE_TOKEN_INDEX = -200
DEFAULT_IMAGE_TOKEN = "<image>"


class ConfigDict(dict[str, Any]):
    """A dict whose keys are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            hint = did_you_mean(name, self, "It has") or "It is empty."
            raise AttributeError(f"no {name!r} here. {hint}") from None


_DATA = json.loads((ENTRIES / "xtuner.json").read_text(encoding="utf-8"))
PROMPT_TEMPLATE = ConfigDict(
    {name: ConfigDict(fields) for name, fields in _DATA["entries"].items()}
)
SYSTEM_TEMPLATE = ConfigDict(_DATA["systems"])


def stop_words(template: Any, eos_token: str | None = None) -> list[str]:
    """What ends generation: STOP_WORDS, and the tokenizer's eos_token without being listed."""
    words = [*xtuner.XtunerSpec.of(found(template)).stop_words, *([eos_token] if eos_token else [])]
    return list(dict.fromkeys(words))


def found(template: Any) -> Mapping[str, Any]:
    """The dict: itself, or by a name such as `internlm_chat` or `xtuner.utils.PROMPT_TEMPLATE.internlm_chat`."""
    if not isinstance(template, str):
        return xtuner.to_dict(template)
    name = template.rpartition(".")[2]
    if name not in PROMPT_TEMPLATE:
        hint = did_you_mean(name, PROMPT_TEMPLATE, "PROMPT_TEMPLATE has")
        raise MessageError(f"there is no prompt template {short_repr(name)}", hint=hint)
    fields: Mapping[str, Any] = PROMPT_TEMPLATE[name]
    return fields


def load(template: Any, system: str | None = None, exact: bool = False) -> Template:
    """The Template of a dict or a name. `system` stands in conversations that bring none: a text, or a name of
    SYSTEM_TEMPLATE.
    """
    fields, name = found(template), template if isinstance(template, str) else "template"
    if isinstance(system, str) and system in SYSTEM_TEMPLATE:
        system = SYSTEM_TEMPLATE[system]
    elif system is not None and (not isinstance(system, str) or system.isidentifier()):
        hint = did_you_mean(str(system), SYSTEM_TEMPLATE, "SYSTEM_TEMPLATE has")
        raise SourceError(f"there is no system text {short_repr(system)}", hint=hint)
    translation = xtuner.read(fields, exact=exact, system=system)
    return Template.from_jinja(
        translation.jinja,
        name=name,
        options=translation.options,
        dialect="xtuner",
        translation=translation,
    )


def openai_map_fn(example: Mapping[str, Any]) -> dict[str, Any]:
    """OpenAI messages as XTuner's rounds: assistants before anyone else and an unanswered user are left out."""
    system = text = ""
    begun = False
    rounds = []
    for index, message in enumerate(listed(example, "messages")):
        path = f"messages[{index}]"
        role, content = (needed(message, key, path) for key in ("role", "content"))
        if not isinstance(content, str):
            raise MessageError(
                f"content is text here, not {short_repr(content)}", path=f"{path}.content"
            )
        if role == "system":
            system = content
        elif role == "user":
            text += content
        elif role != "assistant":
            hint = "Roles: system, user, assistant."
            raise MessageError(
                f"XTuner does not know the role {short_repr(role)}", path=f"{path}.role", hint=hint
            )
        elif begun:
            rounds.append(
                {
                    "system": system,
                    "input": text,
                    "output": content,
                    "output_with_loss": loud(message),
                }
            )
            system = text = ""
        begun = begun or role != "assistant"
    return {"conversation": rounds}


def loud(message: Mapping[str, Any]) -> bool:
    """Whether the message's `loss` says that it is learnt; a word counts if it is "true"."""
    said = message.get("loss", True)
    return said.lower() == "true" if isinstance(said, str) else bool(said)


def template_map_fn(example: dict[str, Any], template: Any) -> dict[str, Any]:
    """Each round's `input` and `output` as the template writes them, in place, and what the encoder needs to know."""
    fields = found(template)
    spec, prompt = xtuner.XtunerSpec.of(fields), compiled(xtuner.write_prompt_jinja(fields))
    rounds = [] if example == {} else listed(example, "conversation")
    for number, turn in enumerate(rounds, 1):
        system, text, output = (
            text_of(turn, key, number - 1) for key in ("system", "input", "output")
        )
        rendering = prompt.render(
            [], system=system, input=text, round=number, bot_name=xtuner.BOT_NAME
        )
        turn["input"] = rendering.text
        if spec.suffix:
            turn["output"] = output + spec.suffix
        turn["need_eos_token"] = not spec.suffix_as_eos
        turn["sep"] = spec.sep
    return {"conversation": rounds}


def listed(example: Any, key: str) -> list[Any]:
    """The list that an example has under a key."""
    found = needed(example, key, "")
    if not isinstance(found, list | tuple):
        raise MessageError(f"is a list, not {short_repr(found)}", path=key)
    return list(found) if isinstance(found, tuple) else found


def needed(value: Any, key: str, path: str) -> Any:
    """What a mapping must have; XTuner looks it up, and its KeyError may be waited for."""
    if not isinstance(value, Mapping):
        raise MessageError(f"is a mapping with {key!r}, not {short_repr(value)}", path=path)
    if key not in value:
        raise MissingKey(
            f"there is no {key!r}",
            path=path,
            hint=did_you_mean(key, value, "It has") or "It is empty.",
        )
    return value[key]


def text_of(turn: Any, key: str, index: int) -> str:
    """A text of a round. Null is none, but for the output: it would be learnt as an answer that says nothing."""
    if not isinstance(turn, dict):
        raise MessageError(
            f"a round is a dict, not {short_repr(turn)}", path=f"conversation[{index}]"
        )
    found = turn.get(key, "")
    if not isinstance(found, str) and (found is not None or key == "output"):
        raise MessageError(f"is text, not {short_repr(found)}", path=f"conversation[{index}].{key}")
    return found or ""


def template_map_fn_factory(template: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """`template_map_fn` for one template."""
    return partial(template_map_fn, template=found(template))


@cache
def compiled(jinja: str) -> Template:
    return Template.from_jinja(jinja, name="xtuner round")


def segments(
    example: Mapping[str, Any], bos: bool = True, with_output: bool = True
) -> list[list[Any]]:
    """What the encoder writes for mapped rounds, as `[kind, text, learnt]`; each text is encoded by itself."""
    rounds = listed(example, "conversation")
    if len(rounds) > 1 and not with_output:
        raise MessageError(
            "several rounds cannot be encoded without their outputs", path="conversation"
        )
    parts: list[list[Any]] = []
    starts = True
    for index, turn in enumerate(rounds):
        path = f"conversation[{index}]"
        if not isinstance(turn, Mapping) or "sep" not in turn:
            hint = "template_map_fn writes a round as its template has it, and adds `sep` and `need_eos_token`."
            raise MessageError(
                f"this round has not been mapped: {short_repr(turn)}", path=path, hint=hint
            )
        if starts and bos:
            parts.append(["bos", "", False])
        parts.append(["text", needed(turn, "input", path), False])
        if not with_output:
            continue
        learnt = turn.get("output_with_loss", True)
        parts.append(["text", needed(turn, "output", path), learnt])
        starts = needed(turn, "need_eos_token", path)
        if starts:
            parts.append(["eos", "", learnt])
        parts.append(["text", turn["sep"], False])
    return [part for part in parts if part[0] != "text" or part[1]]


def joined(parts: list[list[Any]]) -> list[list[Any]]:
    """Segments with neighbours of one kind made one."""
    result: list[list[Any]] = []
    for kind, text, learnt in parts:
        if kind == "text" and result and result[-1][0] == "text" and result[-1][2] == learnt:
            result[-1][1] += text
        else:
            result.append([kind, text, learnt])
    return result


def encode_fn(
    example: Mapping[str, Any],
    tokenizer: Any,
    max_length: int,
    input_ids_with_output: bool = True,
    with_image_token: bool = False,
) -> dict[str, list[int]]:
    """`input_ids` and `labels` of mapped rounds, segment by segment, cut at `max_length`; with any tokenizer."""
    tokenizer, length = speaker(tokenizer), whole(max_length, "max_length")
    parts = segments(example, with_output=input_ids_with_output)
    marks = {"bos": bos_ids(tokenizer)}
    if any(kind == "eos" for kind, _, _ in parts):
        marks["eos"] = mark(tokenizer, "eos_token_id")
    ids: list[int] = []
    labels: list[int] = []
    for kind, text, learnt in parts:
        new = (
            marks[kind]
            if kind in marks
            else encoded(text, tokenizer, with_image_token and not learnt)
        )
        ids += new
        labels += new if learnt else [IGNORE_INDEX] * len(new)
    return {"input_ids": ids[:length], "labels": labels[:length]}


def bos_ids(tokenizer: Any) -> list[int]:
    """Two tokenizers are told by the name of their class, as XTuner does: one starts with nothing, one with two ids."""
    special = {"QWenTokenizer": [], "ChatGLMTokenizer": [64790, 64792]}
    name = type(tokenizer).__name__
    return special[name] if name in special else mark(tokenizer, "bos_token_id")


def mark(tokenizer: Any, name: str) -> list[int]:
    """The id that a tokenizer has under this name, or the ids; none if it is null."""
    try:
        ids = getattr(tokenizer, name)
    except AttributeError:
        raise TokenizerError(
            f"a tokenizer has {name!r}, and {short_repr(tokenizer)} has not"
        ) from None
    return (
        []
        if ids is None
        else to_ids(ids if isinstance(ids, list | tuple) else [ids], f"{name} is an id")
    )


def encoded(text: str, tokenizer: Any, images: bool) -> list[int]:
    if not images or DEFAULT_IMAGE_TOKEN not in text:
        return ids_of(tokenizer, text)
    chunks = text.split(DEFAULT_IMAGE_TOKEN)
    if len(chunks) != 2:
        raise MessageError(
            f"a round holds one {DEFAULT_IMAGE_TOKEN} at most; found {len(chunks) - 1}"
        )
    before, after = (ids_of(tokenizer, chunk) for chunk in chunks)
    return [*before, IMAGE_TOKEN_INDEX, *after]
