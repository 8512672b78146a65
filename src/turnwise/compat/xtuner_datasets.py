"""XTuner's dataset map functions: rows of well-known datasets become rounds of `{system, input, output}`.

Each function takes a row and returns `{"conversation": [...]}`, for `template_map_fn`; `DATASET_FORMAT_MAPPING` has
them by the names of XTuner's formats. Two more, for preference data, return `prompt`, `chosen` and `rejected`.

A row is never changed, and nothing in it is evaluated: XTuner calls `eval` on the rows of `msagent_react_map_fn`, here
they are read as literals. A null in a text that is put together from two fields is refused; XTuner writes "None".
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from turnwise.compat.xtuner_rows import (
    InvalidRow,
    read_turns,
    require_list,
    require_text,
    require_value,
    unknown_role,
)
from turnwise.compat.xtuner_tables import DEFAULT_IMAGE_TOKEN, SYSTEM_TEMPLATE
from turnwise.errors import MessageError, short_repr

Row = Mapping[str, Any]
MappedRow = dict[str, list[dict[str, Any]]]

# -- one round from the fields of a row ------------------------------------------------------------------------------


def _map_fields(
    example: Row, input: str | tuple[str, str], output: str, system: str | None = None
) -> MappedRow:
    """Return one round.

    Args:
        example: The row.
        input: The key of the question, or two keys whose values are joined by a line break.
        output: The key of the answer.
        system: A name of SYSTEM_TEMPLATE.
    """
    turn: dict[str, Any] = {}
    if system is not None:
        turn["system"] = SYSTEM_TEMPLATE[system]
    if isinstance(input, str):
        turn["input"] = require_value(example, input)
    else:
        turn["input"] = "\n".join(_written(example, key) for key in input)
    turn["output"] = require_value(example, output)
    return {"conversation": [turn]}


def _written(example: Row, key: str) -> str:
    """Return a value as text; a null would be written as "None"."""
    value = require_value(example, key)
    if value is None:
        raise MessageError("must be text, not null", path=key)
    return f"{value}"


def alpaca_map_fn(example: Row) -> MappedRow:
    """Convert `{instruction, input, output}`; a row without an answer has no rounds.

    Example:
        >>> alpaca_map_fn({"instruction": "Add", "input": "1 2", "output": "3"})
        {'conversation': [{'input': 'Add\\n1 2', 'output': '3'}]}
    """
    if isinstance(example, Mapping) and example.get("output") == "<nooutput>":
        return {"conversation": []}
    return _map_fields(example, ("instruction", "input"), "output")


def alpaca_zh_map_fn(example: Row) -> MappedRow:
    """Convert `{instruction_zh, input_zh, output_zh}`."""
    return _map_fields(example, ("instruction_zh", "input_zh"), "output_zh")


def arxiv_map_fn(example: Row) -> MappedRow:
    """Convert `{abstract, title}`."""
    return _map_fields(example, "abstract", "title", "arxiv_gentile")


def code_alpaca_map_fn(example: Row) -> MappedRow:
    """Convert `{prompt, completion}`."""
    return _map_fields(example, "prompt", "completion", "coder")


def colors_map_fn(example: Row) -> MappedRow:
    """Convert `{description, color}`; the description follows a colon."""
    text = require_text(example, "description").partition(":")[2].strip()
    return _map_fields({**example, "description": text}, "description", "color", "colorist")


def crime_kg_assitant_map_fn(example: Row) -> MappedRow:
    """Convert `{input, output}` of the crime dataset; the name is spelt as in XTuner."""
    return _map_fields(example, "input", "output", "lawyer")


def default_map_fn(example: Row) -> MappedRow:
    """Convert `{input, output}`."""
    return _map_fields(example, "input", "output")


def law_reference_map_fn(example: Row) -> MappedRow:
    """Convert `{question, answer}`."""
    return _map_fields(example, "question", "answer", "lawyer")


def medical_map_fn(example: Row) -> MappedRow:
    """Convert `{instruction, input, output}` of the medical dataset."""
    return _map_fields(example, ("instruction", "input"), "output", "medical")


def openorca_map_fn(example: Row) -> MappedRow:
    """Convert `{system_prompt, question, response}`."""
    found = _map_fields(example, "question", "response")
    (turn,) = found["conversation"]
    return {"conversation": [{"system": require_value(example, "system_prompt"), **turn}]}


def pretrain_map_fn(example: Row) -> MappedRow:
    """Convert `{text}` to an answer without a question and without an eos token.

    Example:
        >>> pretrain_map_fn({"text": " all of it "})
        {'conversation': [{'input': '', 'output': 'all of it', 'need_eos_token': False}]}
    """
    text = require_text(example, "text").strip()
    return {"conversation": [{"input": "", "output": text, "need_eos_token": False}]}


def sql_map_fn(example: Row) -> MappedRow:
    """Convert `{context, question, answer}`."""
    return _map_fields(example, ("context", "question"), "answer", "sql")


def stack_exchange_map_fn(example: Row) -> MappedRow:
    """Convert `{question, response}`."""
    return _map_fields(example, "question", "response")


def tiny_codes_map_fn(example: Row) -> MappedRow:
    """Convert `{prompt, response}`."""
    return _map_fields(example, "prompt", "response", "coder")


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
    rounds: list[dict[str, Any]] = []
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
    rounds: list[dict[str, Any]] = []
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
        problem = f"a question has {DEFAULT_IMAGE_TOKEN} here; found {short_repr(value)}"
        raise InvalidRow(problem, path=f"{path}.value")
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


# -- ModelScope's agents ---------------------------------------------------------------------------------------------

THINK = ("<|startofthink|>", "<|endofthink|>")
EXECUTE = ("<|startofexec|>", "<|endofexec|>")
FINAL_ANSWER = "Final Answer:"
AGENT_TOOLS = "你是一个可以调用外部工具的助手，可以使用的工具包括：\n"
AGENT_FORMAT = (
    "如果使用工具请遵循以下格式回复：\n```\n"
    "Thought:思考你当前步骤需要解决什么问题，是否需要使用工具\n"
    "Action:工具名称，你的工具必须从 [{names}] 选择\n"
    "Action Input:工具输入参数\n```\n工具返回按照以下格式回复：\n```\n"
    "Response:调用工具后的结果\n```\n如果你已经知道了答案，或者你不需要工具，"
    "请遵循以下格式回复\n```\n"
    "Thought:给出最终答案的思考过程\n"
    "Final Answer:最终答案\n```\n开始!\n"
)
"""XTuner's text for agents; its `names` are a Python list."""
BROKEN_JSON = (ValueError, LookupError, TypeError, RecursionError)
"""What reading JSON of the wrong shape raises."""


def msagent_react_map_fn(example: Row) -> MappedRow:
    """Convert ModelScope-Agent's `conversations`, a list or its text as a Python literal, to ReAct.

    As in XTuner, a row with a broken call has no rounds, a broken result is left out, and messages of other roles than
    system, user and assistant too.
    """
    messages = _read_literal(require_value(example, "conversations"))
    if len(messages) < 2:
        return {"conversation": []}
    rounds: list[dict[str, Any]] = []
    system = text = ""
    for index, message in enumerate(messages):
        path = f"conversations[{index}]"
        role = require_value(message, "from", path)
        if role not in ("system", "user", "assistant"):
            continue
        value = require_text(message, "value", path)
        if role == "system":
            system += _describe_tools(value, path)
        elif role == "user":
            text += f"{value}\n"
        else:
            try:
                answers = list(_split_answer(value))
            except BROKEN_JSON:
                return {"conversation": []}
            rounds.append({"system": system, "input": text, **answers[0]})
            rounds += answers[1:]
            system = text = ""
    return {"conversation": rounds}


def _read_literal(value: Any) -> list[Any]:
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            problem = f"a text is a Python list of messages here, not {short_repr(value)}"
            raise MessageError(problem, path="conversations") from None
    if not isinstance(value, list | tuple):
        raise MessageError(f"must be a list, not {short_repr(value)}", path="conversations")
    return list(value)


def _describe_tools(text: str, path: str) -> str:
    """Return the system text of the tools that a text describes in JSON."""
    tools: dict[Any, Any] = {}
    for tool in _find_tools(text):
        name = tool["name"]
        if not isinstance(name, str | int | float | None):
            raise MessageError(f"a tool has a name, not {short_repr(name)}", path=f"{path}.value")
        tools[name] = tool["description"]
        try:
            parameters = {row["name"]: row["description"] for row in tool["paths"][0]["parameters"]}
            tools[name] += f"\n输入参数: {parameters}"
        except (LookupError, TypeError):
            pass  # a tool without parameters
    return f"{AGENT_TOOLS}{tools}\n" + AGENT_FORMAT.replace("{names}", str(list(tools)))


def _find_tools(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a text that have a name and a description."""
    decoder = json.JSONDecoder()
    start = text.find("{")
    while start >= 0:
        end = start + 1
        try:
            found, stop = decoder.raw_decode(text, start)
            if "name" in found and "description" in found:
                yield found
                end = stop
        except (ValueError, RecursionError):
            pass  # a brace that opens no JSON
        start = text.find("{", end)


def _split_answer(value: str) -> Iterator[dict[str, Any]]:
    """Yield the output of an answer, and, if it has a result with a final answer, that as a round of its own."""
    call, opener, result = value.partition(EXECUTE[0])
    if EXECUTE[0] in result:
        raise ValueError("an answer has one result")
    output = _write_calls(call)
    yield {"output": f"{FINAL_ANSWER}{call}\n" if output is None else f"{output}\n"}
    if not opener:
        return
    try:
        response, answer = _write_result(result).split(FINAL_ANSWER)
    except BROKEN_JSON:
        return
    yield {"system": response, "output": FINAL_ANSWER + answer}


def _write_calls(text: str) -> str | None:
    """Return the text with its calls as thoughts and actions; None if it has none."""
    parts = []
    done = 0
    while (start := text.find(THINK[0], done)) >= 0:
        content = start + len(THINK[0])
        end = text.find(THINK[1], content)
        if end < 0:
            break
        thought = text[done:start].strip()
        if thought:
            parts.append(f"Thought:{thought}\n")
        call = _load_fenced(text[content:end])
        parts.append(f"Action:{call['api_name']}\nAction Input:{call['parameters']}\n")
        done = end + len(THINK[1])
    return "".join(parts) + text[done:] if parts else None


def _write_result(text: str) -> str:
    """Return the text behind the opener of a result as a response and a final answer."""
    result, closer, answer = text.partition(EXECUTE[1])
    if not closer:
        return EXECUTE[0] + text
    response = f"Response:{_load_fenced(result)}\n"
    if answer.strip():
        response += f"{FINAL_ANSWER}{answer.strip()}\n"
    # XTuner's pattern ends before a last line break, which stays behind.
    return response + ("\n" if answer.endswith("\n") else "")


def _load_fenced(text: str) -> Any:
    """Return the JSON of a code block, whose line breaks XTuner removes."""
    return json.loads(text.replace("```JSON", "").replace("```", "").replace("\n", ""))


# -- preference data -------------------------------------------------------------------------------------------------


def intel_orca_dpo_map_fn(example: Row) -> MappedRow:
    """Convert `{system, question, chosen, rejected}` to messages of a prompt and of its two answers."""
    prompt = [
        {"role": "system", "content": require_value(example, "system")},
        {"role": "user", "content": require_value(example, "question")},
    ]
    answers = {
        key: [{"role": "assistant", "content": require_value(example, key)}]
        for key in ("chosen", "rejected")
    }
    return {"prompt": prompt, **answers}


def orpo_dpo_mix_40k_map_fn(example: Row) -> MappedRow:
    """Split the last message off `chosen` and `rejected`, two conversations of the same length."""
    chosen, rejected = require_list(example, "chosen"), require_list(example, "rejected")
    if len(chosen) != len(rejected):
        problem = f"chosen and rejected have the same length; found {len(chosen)}, {len(rejected)}"
        raise InvalidRow(problem, path="rejected")
    return {"prompt": chosen[:-1], "chosen": chosen[-1:], "rejected": rejected[-1:]}


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
    "msagent_react": msagent_react_map_fn,
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
