"""What the benchmarks render: conversations made up here, templates of the corpus or of the registry.

Conversations of three sizes, and longer versions of two of them:

    a   3 messages of about 100 characters together, the assistant invited to speak
    b   a system message and 6 turns, about 3 KB
    c   a system message, 10 tools and 40 messages with calls and results, about 60 KB
    scaled(kind, n)   the body of b or c, n times as long with fresh text, to see how time grows

Everything follows from a seed through a generator written out below, so two machines and two Python versions render
the same bytes. Conversations of different seeds share no object: their tools are equal but built anew, as they are
when each request or each row of a dataset is read from JSON.

Limits: the shape is what every template in TEMPLATES takes (one call per message, dict arguments, string content,
roles that alternate), so parallel calls, reasoning and content parts are not measured. The text is mostly ASCII.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORDS = """
    the a one some every this that its our your model table index query result server client window buffer token
    message answer reason station harbour garden morning evening weather traffic signal budget invoice ticket route
    checks returns holds moves keeps writes reads finds counts sorts follows explains covers needs gives takes
    small large early late quiet plain exact steady recent careful naïve common open local shared final
    and or but so because while before after under over between without across along
"""
VOCABULARY = tuple(WORDS.split())
ENDS = (
    ". ",
    ". ",
    ". ",
    ", ",
    ", ",
    "; ",
    "? ",
    ': "',
    '" ',
    ".\n",
    ".\n\n- ",
    " → ",
    " & ",
    " <b>",
    " `x = 1` ",
)
PLACES = ("Göteborg", "São Paulo", "Ürümqi", "Kraków", "Lyon", "Osaka", "Accra", "Bergen")
CHINESE = "请把上面的结果整理成一张表，并说明每一列的含义。"


class Dice:
    """A linear congruential generator: the same on every Python, unlike the sequences of `random`."""

    def __init__(self, seed: int) -> None:
        self.state = seed * 2654435761 + 12345

    def below(self, limit: int) -> int:
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % limit

    def pick(self, choices: tuple[str, ...]) -> str:
        return choices[self.below(len(choices))]


def prose(dice: Dice, length: int) -> str:
    """Text of exactly `length` characters that neither begins nor ends with white space."""
    words: list[str] = []
    size = 0
    while size < length:
        word = dice.pick(VOCABULARY)
        word += " " if dice.below(8) else dice.pick(ENDS)
        words.append(word)
        size += len(word)
    return "".join(words)[: length - 1].strip().ljust(length - 1, "x") + "."


@dataclass(frozen=True)
class Conversation:
    """One argument set of `render`; peers add the template's options."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = False


def exchange(dice: Dice, user: int, assistant: int) -> Iterator[dict[str, Any]]:
    yield {"role": "user", "content": prose(dice, user)}
    yield {"role": "assistant", "content": prose(dice, assistant)}


def tool(dice: Dice, number: int) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "place": {"type": "string", "description": prose(dice, 90)},
        "days": {"type": "integer", "description": prose(dice, 60), "minimum": 1, "maximum": 14},
        "unit": {
            "type": "string",
            "enum": ["metric", "imperial", "kelvin"],
            "description": prose(dice, 40),
        },
        "filters": {
            "type": "object",
            "description": prose(dice, 50),
            "properties": {
                "tags": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": prose(dice, 60),
                },
                "threshold": {"type": "number", "description": prose(dice, 40)},
            },
        },
    }
    parameters = {"type": "object", "properties": properties, "required": ["place", "days"]}
    name = f"{('find', 'count', 'list', 'compare', 'plan')[number % 5]}_{('weather', 'routes')[number % 2]}_{number}"
    return {
        "type": "function",
        "function": {"name": name, "description": prose(dice, 220), "parameters": parameters},
    }


def call(dice: Dice, number: int, name: str) -> dict[str, Any]:
    arguments = {
        "place": dice.pick(PLACES),
        "days": 1 + dice.below(14),
        "unit": "metric",
        "note": prose(dice, 160),
        "filters": {
            "tags": [prose(dice, 12), prose(dice, 12)],
            "threshold": 0.25,
            "exact": bool(dice.below(2)),
        },
    }
    # Nine letters and digits: Mistral's templates refuse any other identifier.
    identifier = f"call{number:05d}"
    return {
        "id": identifier,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def result(dice: Dice, length: int) -> str:
    """A tool's answer, a JSON text of about `length` characters."""
    rows: list[dict[str, Any]] = []
    size = 0
    while size < length:
        row = {"place": dice.pick(PLACES), "at": dice.below(100_000), "score": dice.below(1000) / 8}
        rows.append({**row, "text": prose(dice, 80)})
        size += 150
    return json.dumps({"status": "ok", "rows": rows}, ensure_ascii=False)


def errand(dice: Dice, number: int, tools: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Four messages: a request, a call, its result, the answer."""
    name = tools[dice.below(len(tools))]["function"]["name"]
    made = call(dice, number, name)
    yield {"role": "user", "content": (CHINESE if number % 5 == 4 else "") + prose(dice, 250)}
    yield {"role": "assistant", "content": "", "tool_calls": [made]}
    yield {"role": "tool", "name": name, "tool_call_id": made["id"], "content": result(dice, 3000)}
    yield {"role": "assistant", "content": prose(dice, 1000)}


def short(seed: int = 0) -> Conversation:
    dice = Dice(seed)
    messages = [*exchange(dice, 34, 38), {"role": "user", "content": prose(dice, 28)}]
    return Conversation(messages, add_generation_prompt=True)


def chat(seed: int = 0, times: int = 1) -> Conversation:
    dice = Dice(seed)
    messages = [{"role": "system", "content": prose(dice, 300)}]
    for _ in range(3 * times):
        messages += exchange(dice, 300, 600)
    return Conversation(messages)


def calls(seed: int = 0, times: int = 1) -> Conversation:
    tools = [tool(Dice(number), number) for number in range(10)]
    dice = Dice(seed)
    messages = [{"role": "system", "content": prose(dice, 600)}]
    for number in range(10 * times):
        messages += errand(dice, number, tools)
    return Conversation(messages, tools)


WORKLOADS: dict[str, Callable[[int], Conversation]] = {"a": short, "b": chat, "c": calls}
SCALED: dict[str, Callable[[int, int], Conversation]] = {"b": chat, "c": calls}


def scaled(kind: str, times: int, seed: int = 0) -> Conversation:
    """Workload `kind` with `times` as many turns; tools and system message stay as they are."""
    return SCALED[kind](seed, times)


@dataclass(frozen=True)
class Subject:
    """A template under measurement: its text, the options a tokenizer would pass, and the workloads it takes."""

    name: str
    text: str
    options: dict[str, Any]
    workloads: str


# Short name -> name in the corpus, workloads. DeepSeek-V3.1 prints no tools, so (c) would measure something else there.
TEMPLATES: dict[str, tuple[str, str]] = {
    "qwen2.5": ("npm-qwen2_5", "abc"),
    "qwen3": ("npm-qwen3", "abc"),
    "llama-3.1": ("llamacpp-meta-llama-Llama-3.1-8B-Instruct", "abc"),
    "gemma-4": ("llamacpp-google-gemma-4-31B-it", "abc"),  # macros that call themselves
    "gpt-oss": ("llamacpp-openai-gpt-oss-120b", "abc"),  # macros; writes today's date
    "glm-4.6": ("llamacpp-GLM-4.6", "abc"),  # a macro per message
    "mistral-nemo": ("llamacpp-mistralai-Mistral-Nemo-Instruct-2407", "abc"),
    "deepseek-v3.1": ("llamacpp-deepseek-ai-DeepSeek-V3.1", "ab"),
    "qwen3.5": ("llamacpp-Qwen3.5-4B", "abc"),
    "kimi-k2": ("llamacpp-moonshotai-Kimi-K2", "abc"),
    "minimax-m2": ("llamacpp-MiniMax-M2", "abc"),
    "nemotron-3": ("llamacpp-NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "abc"),
    "granite-4.1": ("llamacpp-ibm-granite-granite-4.1", "abc"),
    "seed-oss": ("llamacpp-ByteDance-Seed-OSS", "abc"),  # lists of parameters in rounds
    "lfm2.5": ("llamacpp-LFM2.5-8B-A1B", "abc"),
    "apertus": ("llamacpp-Apertus-8B-Instruct", "abc"),
    "deepseek-v3.2": ("llamacpp-deepseek-ai-DeepSeek-V3.2", "abc"),
    "mistral-v13": ("mistralcommon-v13", "abc"),  # joins messages before it writes them
    "gemma-3": ("npm-gemma3", "ab"),
    "chatml": ("axolotl-chatml", "ab"),  # the cheapest that there is
}
# The same without a corpus: entries of the registry.
BUILT_IN: dict[str, str] = {
    "qwen2.5": "abc",
    "qwen3": "abc",
    "llama-3.1": "abc",
    "gemma-3": "ab",
    "gpt-oss": "abc",
    "mistral-tekken": "abc",
    "deepseek-v3.1": "ab",
}
ENTRIES = {
    "npm-qwen3": "qwen3",
    "trl-qwen3_training": "qwen3",
}  # what stands in for a template of the corpus
CHOICE = f"of {', '.join(TEMPLATES)}; or any name in the corpus; without a corpus, any entry of the registry"
ROOT = Path(__file__).resolve().parents[1]
SHIPPED_TOKENIZER = ROOT / "src" / "turnwise" / "tokens" / "data"


def find_corpus() -> Path | None:
    """Return the corpus folder: TURNWISE_CORPUS, else `../shared/corpus` beside the project; None if there is none."""
    folder = Path(os.environ.get("TURNWISE_CORPUS") or ROOT / ".." / "shared" / "corpus")
    return folder if (folder / "jinja" / "index.json").is_file() else None


def corpus() -> Path:
    """Return the folder of templates, for benchmarks that are about the whole corpus."""
    folder = find_corpus()
    if folder is None:
        raise SystemExit(
            "this benchmark needs the corpus: set TURNWISE_CORPUS to its folder (one with jinja/index.json)"
        )
    return folder / "jinja"


def tokenizer_folder(name: str) -> Path:
    """Return the folder of a tokenizer of the corpus; without a corpus, of the tokenizer that ships with turnwise."""
    folder = find_corpus()
    return SHIPPED_TOKENIZER if folder is None else folder / "tokenizers" / name


def subjects(names: list[str] | None = None) -> list[Subject]:
    """Return the templates of TEMPLATES, or those named; without a corpus, entries of the registry."""
    folder = find_corpus()
    if folder is None:
        return [built_in_subject(name) for name in names or BUILT_IN]
    return [corpus_subject(folder / "jinja", name) for name in names or TEMPLATES]


def built_in_subject(name: str) -> Subject:
    import turnwise

    entry = ENTRIES.get(name, name)
    try:
        template = turnwise.load(entry)
    except turnwise.SourceError as error:
        raise SystemExit(f"no template {name!r} without the corpus: {error}") from None
    return Subject(name, template.text, dict(template.options), BUILT_IN.get(entry, "abc"))


def corpus_subject(folder: Path, name: str) -> Subject:
    """Read a template of the corpus; one that is not in TEMPLATES is tried on every workload."""
    index = {
        row["name"]: row for row in json.loads((folder / "index.json").read_text(encoding="utf-8"))
    }
    corpus_name, takes = TEMPLATES.get(name, (name, "abc"))
    if corpus_name not in index:
        raise SystemExit(
            f"no template {name!r}: one of {', '.join(TEMPLATES)}, or a name in the corpus"
        )
    row = index[corpus_name]
    options = {token: row[token] for token in ("bos_token", "eos_token") if row[token] is not None}
    text = (folder / row["file"]).read_bytes().decode("utf-8")
    return Subject(name, text, options, takes)
