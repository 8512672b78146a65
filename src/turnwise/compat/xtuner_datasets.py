"""XTuner's dataset map functions: rows of well-known datasets become rounds of `{system, input, output}`.

Each function takes a row and returns `{"conversation": [...]}`, for `template_map_fn`; `DATASET_FORMAT_MAPPING` has
them by the names of XTuner's formats. A row is never changed. A null in a text that is put together from two fields is
refused; XTuner writes "None".

Not covered: `msagent_react_map_fn`, on whose rows XTuner calls `eval`, and the functions for preference data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from turnwise.compat.xtuner_rows import (
    InvalidRow,
    read_turns,
    require_text,
    require_value,
    unknown_role,
)
from turnwise.compat.xtuner_tables import DEFAULT_IMAGE_TOKEN, SYSTEM_TEMPLATE
from turnwise.errors import MessageError, short_repr
from turnwise.messages import JsonMapping, JsonObject

Row = JsonMapping
MappedRow = dict[str, list[JsonObject]]

# -- one round from the fields of a row ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FieldMap:
    """A dataset map function that makes one round of the fields of a row."""

    input: (
        str | tuple[str, str]
    )  # the key of the question, or two whose values are joined by a line break
    output: str  # the key of the answer
    system: str | None = None  # a name of SYSTEM_TEMPLATE

    def __call__(self, example: Row) -> MappedRow:
        """Convert a row."""
        turn: JsonObject = {}
        if self.system is not None:
            turn["system"] = SYSTEM_TEMPLATE[self.system]
        if isinstance(self.input, str):
            turn["input"] = require_value(example, self.input)
        else:
            turn["input"] = "\n".join(_written(example, key) for key in self.input)
        turn["output"] = require_value(example, self.output)
        return {"conversation": [turn]}


def _written(example: Row, key: str) -> str:
    """Return a value as text; a null would be written as "None"."""
    value = require_value(example, key)
    if value is None:
        raise MessageError("must be text, not null", path=key)
    return f"{value}"


alpaca_zh_map_fn = FieldMap(("instruction_zh", "input_zh"), "output_zh")
arxiv_map_fn = FieldMap("abstract", "title", "arxiv_gentile")
code_alpaca_map_fn = FieldMap("prompt", "completion", "coder")
crime_kg_assitant_map_fn = FieldMap("input", "output", "lawyer")  # spelt as in XTuner
default_map_fn = FieldMap("input", "output")
law_reference_map_fn = FieldMap("question", "answer", "lawyer")
medical_map_fn = FieldMap(("instruction", "input"), "output", "medical")
sql_map_fn = FieldMap(("context", "question"), "answer", "sql")
stack_exchange_map_fn = FieldMap("question", "response")
tiny_codes_map_fn = FieldMap("prompt", "response", "coder")


def alpaca_map_fn(example: Row) -> MappedRow:
    """Convert `{instruction, input, output}`; a row without an answer has no rounds.

    Example:
        >>> alpaca_map_fn({"instruction": "Add", "input": "1 2", "output": "3"})
        {'conversation': [{'input': 'Add\\n1 2', 'output': '3'}]}
    """
    if isinstance(example, Mapping) and example.get("output") == "<nooutput>":
        return {"conversation": []}
    return FieldMap(("instruction", "input"), "output")(example)


def colors_map_fn(example: Row) -> MappedRow:
    """Convert `{description, color}`; the description follows a colon."""
    text = require_text(example, "description").partition(":")[2].strip()
    return FieldMap("description", "color", "colorist")({**example, "description": text})


def openorca_map_fn(example: Row) -> MappedRow:
    """Convert `{system_prompt, question, response}`."""
    (turn,) = stack_exchange_map_fn(example)["conversation"]
    return {"conversation": [{"system": require_value(example, "system_prompt"), **turn}]}


def pretrain_map_fn(example: Row) -> MappedRow:
    """Convert `{text}` to an answer without a question and without an eos token.

    Example:
        >>> pretrain_map_fn({"text": " all of it "})
        {'conversation': [{'input': '', 'output': 'all of it', 'need_eos_token': False}]}
    """
    text = require_text(example, "text").strip()
    return {"conversation": [{"input": "", "output": text, "need_eos_token": False}]}


# -- conversations ---------------------------------------------------------------------------------------------------


def openai_map_fn(example: Row) -> MappedRow:
    """Convert OpenAI messages to XTuner's rounds.

    Assistant messages before any other message, and a last user message without an answer, are left out, as in XTuner.
    A message with `loss` is trained if that is written as "true", in any case: 1 is not.

    Raises:
        MessageError: If a message has no text content or a role that XTuner does not know.

    Example:
        >>> chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
        >>> openai_map_fn({"messages": chat})["conversation"][0]["output"]
        'yes'
    """
    system = text = ""
    rounds: list[JsonObject] = []
    for role, message, path in read_turns(example, "messages", "role", "assistant"):
        content = require_text(message, "content", path)
        if role == "system":
            system = content
        elif role == "user":
            text += content
        elif role == "assistant":
            is_trained = str(message.get("loss", True)).lower() == "true"
            turn = {"system": system, "input": text, "output": content}
            rounds.append({**turn, "output_with_loss": is_trained})
            system = text = ""
        else:
            raise unknown_role(role, f"{path}.role", "system, user, assistant")
    return {"conversation": rounds}


def _map_sharegpt(example: Row, read_question: Callable[[str, str], str]) -> MappedRow:
    """Return the rounds of `conversations` of `{from, value}`; questions in a row are joined."""
    text = ""
    rounds: list[JsonObject] = []
    for role, message, path in read_turns(example, "conversations", "from", "gpt"):
        value = require_text(message, "value", path)
        if role == "human":
            text += read_question(value, path)
        elif role == "gpt":
            rounds.append({"input": text, "output": value})
            text = ""
        else:
            raise unknown_role(role, f"{path}.from", "human, gpt")
    return {"conversation": rounds}


def wizardlm_map_fn(example: Row) -> MappedRow:
    """Convert ShareGPT's `conversations` of `{from, value}`.

    Example:
        >>> chat = [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yes"}]
        >>> wizardlm_map_fn({"conversations": chat})
        {'conversation': [{'input': 'hi', 'output': 'yes'}]}
    """
    return _map_sharegpt(example, lambda value, _: value)


def llava_map_fn(example: Row) -> MappedRow:
    """Convert LLaVA's `conversations`; an image is put before its question, on a line of its own."""
    return _map_sharegpt(example, _with_image_first)


def _with_image_first(value: str, path: str) -> str:
    if DEFAULT_IMAGE_TOKEN not in value:
        return value
    text = value.replace(DEFAULT_IMAGE_TOKEN, "").strip()
    return f"{DEFAULT_IMAGE_TOKEN}\n{text}".strip()


def llava_image_only_map_fn(example: Row) -> MappedRow:
    """Convert LLaVA's `conversations`; of a question only its image stays."""
    return _map_sharegpt(example, _image_alone)


def _image_alone(value: str, path: str) -> str:
    if DEFAULT_IMAGE_TOKEN not in value:
        raise InvalidRow(
            f"a question has {DEFAULT_IMAGE_TOKEN} here; found {short_repr(value)}",
            path=f"{path}.value",
        )
    return DEFAULT_IMAGE_TOKEN


def oasst1_map_fn(example: Row) -> MappedRow:
    """Convert `{text}` of `### Human: ...### Assistant: ...`; a last question without an answer is left out.

    Example:
        >>> oasst1_map_fn({"text": "### Human: hi### Assistant: yes"})
        {'conversation': [{'input': 'hi', 'output': 'yes'}]}
    """
    texts = []
    for part in require_text(example, "text").strip().split("###"):
        role, colon, text = part.strip().partition(":")
        if colon and role in ("Human", "Assistant"):
            texts.append(text.strip())
    pairs = zip(texts[::2], texts[1::2], strict=False)
    return {"conversation": [{"input": user, "output": bot} for user, bot in pairs]}


DATASET_FORMAT_MAPPING: dict[str, Callable[[Row], MappedRow]] = {
    "alpaca": alpaca_map_fn,
    "alpaca_zh": alpaca_zh_map_fn,
    "arxiv": arxiv_map_fn,
    "code_alpaca": code_alpaca_map_fn,
    "colors": colors_map_fn,
    "crime_kg_assitan": crime_kg_assitant_map_fn,  # spelt as in XTuner
    "default": default_map_fn,
    "law_reference": law_reference_map_fn,
    "llava_image_only": llava_image_only_map_fn,
    "llava": llava_map_fn,
    "medical": medical_map_fn,
    "oasst1": oasst1_map_fn,
    "openai": openai_map_fn,
    "openorca": openorca_map_fn,
    "pretrain": pretrain_map_fn,
    "sql": sql_map_fn,
    "stack_exchange": stack_exchange_map_fn,
    "tiny_codes": tiny_codes_map_fn,
    "wizardlm": wizardlm_map_fn,
}
"""XTuner's table: the names that a configuration may give to a dataset's format."""
