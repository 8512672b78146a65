"""PaddleNLP's own tests in our words: the calls, the errors and the files that its users rely on.

The last test runs the original file, `tests/transformers/test_chat_template.py`, where there is a copy of PaddleNLP
(`TURNWISE_PADDLENLP` names the folder); its `llm/utils/data.py` is then the one that encodes.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest

import corpus
import turnwise
from corpus import needs_corpus
from turnwise.compat import paddlenlp as compat

BASIC = {
    "system": "You are an assistant\n",
    "conversation": ["Human: {{user}}<sep> Bot:", "{{bot}}\n"],
    "query": "Human: {{query}}<sep> Bot:",
}
CONTEXT = {**BASIC, "system": "You are an assistant{{system}}-{{instruction}}\n"}
CHATML = {
    "system": "<|im_start|>system\nYou are a helpful assistant.<|im_end|>",
    "conversation": [
        "\n<|im_start|>user\n{{user}}<|im_end|>\n<|im_start|>assistant\n",
        "{{bot}}<|im_end|>",
    ],
    "query": "\n<|im_start|>user\n{{query}}<|im_end|>\n<|im_start|>assistant\n",
}
# The configurations of four models, as their folders have them.
LINLY = {
    "conversation": [
        "{{'<s>' if index == 0}}### Instruction: {{user}}  ### Response:",
        "{{bot}} </s>",
    ],
    "query": "{{'<s>' if index == 0}}### Instruction:{{query}}  ### Response:",
}
CHATGLM = {
    "conversation": ["[Round {{index}}]\n问：{{user}}\n", "答：{{bot}}\n"],
    "query": "[Round {{index}}]\n问：{{query}}\n答：[gMASK]<sop>",
}
BELLE = {
    "conversation": ["Human: {{user}}\n\nAssistant:", "{{bot}}\n\n"],
    "query": "Human: {{query}}\n\nAssistant:",
}
JINJA = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful assistant<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
JINJA_SYSTEM = "<|im_start|>system\nYou are a helpful assistant<|im_end|>\n"
ROUNDS = [["hello", "I am an assistant"], ["what to eat?"]]
HARNESS = Path(os.environ.get("TURNWISE_PADDLENLP", "/nonexistent"))


def write_question(text: str) -> str:
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


def limits(max_length: int, src_length: int | None = None) -> SimpleNamespace:
    if src_length is None:
        src_length = max_length - 8
    return SimpleNamespace(max_length=max_length, src_length=src_length)


# --- ChatTemplate


@pytest.mark.parametrize(
    ("config", "conversation", "text"),
    [
        (BASIC, "hi", "You are an assistant\nHuman: hi<sep> Bot:"),
        (
            BASIC,
            ROUNDS,
            "You are an assistant\nHuman: hello<sep> Bot:I am an assistant\nHuman: what to eat?<sep> Bot:",
        ),
        ({}, "what to eat?", "what to eat?"),
        ({"system": "S:", "query": "Human: {{query}}"}, "q", "S:Human: q"),
        ({"conversation": ["Human: {{user}}<sep>", "Bot: {{bot}}\n\n"]}, "q", "q"),
        (
            {"conversation": ["Human: {{user}}<sep>", "Bot: {{bot}}\n\n"]},
            [["a", "b"], ["q"]],
            "Human: a<sep>Bot: b\n\nq",
        ),
        (LINLY, "hi", "<s>### Instruction:hi  ### Response:"),
        (
            LINLY,
            [["hi", "yes"], ["q"]],
            "<s>### Instruction: hi  ### Response:yes </s>### Instruction:q  ### Response:",
        ),
        (
            CHATGLM,
            [["hi", "yes"], ["q"]],
            "[Round 0]\n问：hi\n答：yes\n[Round 1]\n问：q\n答：[gMASK]<sop>",
        ),
        (BELLE, "hi", "Human: hi\n\nAssistant:"),
        (CHATML, "hi", CHATML["system"] + "\n" + write_question("hi")),
        (
            CHATML,
            [["hi", "yes"], ["q"]],
            f"{CHATML['system']}\n{write_question('hi')}yes<|im_end|>\n{write_question('q')}",
        ),
        (JINJA, "hi", JINJA_SYSTEM + write_question("hi")),
        (
            JINJA,
            [["hi", "yes"], ["q"]],
            f"{JINJA_SYSTEM}{write_question('hi')}yes<|im_end|>\n{write_question('q')}",
        ),
    ],
)
@pytest.mark.parametrize("exact", [False, True])
def test_prompts(config: Any, conversation: Any, text: str, exact: bool) -> None:
    chat = compat.Chat(config, exact=exact)
    assert chat.apply_chat_template(conversation, tokenize=False) == text
    if isinstance(config, dict):
        assert compat.ChatTemplate(**config)(conversation) == text


def test_context_of_a_call() -> None:
    context = {"system": "<<S>>", "instruction": "<<I>>"}
    text = "You are an assistant<<S>>-<<I>>\nHuman: hi<sep> Bot:"
    for conversation in ("hi", [["hi"]]):
        assert compat.ChatTemplate(**CONTEXT)(conversation, context_data=context) == text
        chat = compat.Chat(CONTEXT)
        assert chat.apply_chat_template(conversation, False, context) == text


def test_a_round_without_an_answer_is_refused() -> None:
    """AssertionError from fields, ValueError from Jinja; ours is both, and one of our own."""
    for config in (BASIC, JINJA):
        for rounds in ([["a"], ["b"]], [["a", "b"], ["c"], ["d", "e"]]):
            for error in (AssertionError, ValueError, turnwise.MessageError):
                with pytest.raises(error, match=r"rounds\[[012]\]: (a finished|the last) round is"):
                    compat.Chat(config).apply_chat_template(rounds, tokenize=False)
    with pytest.raises(AssertionError):
        compat.ChatTemplate(**BASIC).render_conversation(["a"])
    for broken in (["a", "b"], [], [["a", 1]]):
        with pytest.raises(ValueError):
            compat.Chat(JINJA).apply_chat_template(broken, tokenize=False)
    with pytest.raises(ValueError, match="no `conversation`"):
        compat.ChatTemplate()(ROUNDS)
    with pytest.raises(ValueError, match="no chat template"):
        compat.Chat().apply_chat_template("hi")


# --- errors of jinja2


def test_errors_are_those_of_jinja2_too() -> None:
    """They are caught by either name, pickle, and have our message."""
    chat = compat.Chat()
    refusing = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('No system') }}{% endif %}"
    )
    chat.init_chat_template(refusing)
    with pytest.raises(jinja2.TemplateError, match="No system") as caught:
        chat.apply_chat_template([{"role": "system", "content": ""}])
    assert isinstance(caught.value, turnwise.TemplateError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value) and str(again) == str(caught.value)
    with pytest.raises(jinja2.TemplateSyntaxError) as caught:
        chat.init_chat_template("\n{ bos_token }{% if messages %}{ raise_exception('x')}")
    assert isinstance(caught.value, turnwise.TurnwiseError)
    assert caught.value.lineno == 2 and "Unexpected end of template" in str(caught.value)
    chat.init_chat_template("{{ messages[0].content.x.y }}")
    with pytest.raises(jinja2.TemplateRuntimeError):
        chat.apply_chat_template("hi", tokenize=False)
    chat.init_chat_template("{{ messages.__class__.mro() }}")
    with pytest.raises((jinja2.exceptions.SecurityError, jinja2.UndefinedError)):
        chat.apply_chat_template("hi", tokenize=False)
    with pytest.raises(jinja2.TemplateSyntaxError, match="query is not Jinja"):
        compat.ChatTemplate(query="{{ query ")("hi")
    with pytest.raises(jinja2.TemplateError, match="mine"):
        compat.ChatTemplate(query="{{ query }}{{ raise_exception('mine') }}")("hi")


# --- Jinja text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("{{ messages[0].content }}\n", "hi\n"),
        ("{{ messages[0].content }}\n\n", "hi\n\n"),
        ("{{ messages[0].content }}\r\n", "hi\n"),
        ("{{ messages[0].content }}\r", "hi\n"),
        ("{{ messages[0].content }}{% if true %}\n{% endif %}\n", "hi"),
        ("{{ messages[0].content }}{# end #}\n", "hi"),
        ("{{ messages[0].content -}}\n", "hi"),
    ],
)
def test_a_line_break_at_the_end_is_kept(text: str, written: str, tmp_path: Path) -> None:
    """PaddleNLP's Jinja keeps it; that of transformers does not. Saved and loaded, it is the same."""
    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    messages = [{"role": "user", "content": "hi"}]
    assert environment.from_string(text).render(messages=messages) == written
    chat = compat.Chat(text, PaddleCallLetters())
    assert chat.apply_chat_template("hi", tokenize=False) == written
    chat.save_pretrained(tmp_path)
    again = compat.Chat.from_pretrained(tmp_path, PaddleCallLetters())
    assert again.apply_chat_template("hi", tokenize=False) == written


def test_text_between_the_answers() -> None:
    chat = compat.Chat(JINJA)
    messages = compat.as_messages([["Round 1", "|Answer 1|"], ["Round 2", "_Answer 2?"]])
    answers = ["|Answer 1|<|im_end|>\n", "_Answer 2?<|im_end|>\n"]
    parts = chat._extract_non_learnable_parts(messages, answers)
    assert parts == [JINJA_SYSTEM + write_question("Round 1"), write_question("Round 2")]
    for exact in (False, True):
        chat.exact = exact
        rounds = [["Round 1", "|Answer 1|"], ["Round 2", "_Answer 2?"]]
        found = chat.encode_chat_inputs(rounds, tokenize=False)["conversations"]
        assert found == [list(pair) for pair in zip(parts, answers, strict=True)]


def test_answers_are_found_by_place() -> None:
    """A question that ends as the answer does: PaddleNLP finds the wrong place and fails."""
    rounds = [["say yes", "yes"], ["again", "no"]]
    for exact in (False, True):
        chat = compat.Chat(JINJA, exact=exact)
        found = chat.encode_chat_inputs(rounds, tokenize=False)["conversations"]
        assert found[0] == [JINJA_SYSTEM + write_question("say yes"), "yes<|im_end|>\n"]


# --- a misspelt variable


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ({"query": "{{query}} {{qurey}}"}, "query writes {{qurey}}.*'query'"),
        ({"system": "{{sytem}}"}, "system writes {{sytem}}"),
        ({"conversation": ["{{user}}{{idnex}}", "{{bot}}"]}, "conversation.0. writes {{idnex}}"),
    ],
)
def test_a_misspelt_variable_is_told(field: dict[str, Any], name: str) -> None:
    """On the path of a call too."""
    chat = compat.Chat({**BASIC, **field})
    with pytest.warns(turnwise.TurnwiseWarning, match=name):
        chat.apply_chat_template([["q", "a"], ["r"]], tokenize=False)
    with pytest.raises(turnwise.SourceError, match=r"Did you mean {{query}} for {{qurey}}"):
        compat.Chat({"query": "Q: {{qurey}}"}).apply_chat_template("hi", tokenize=False)


def test_a_variable_with_a_default_is_not_reported() -> None:
    """None of these is a mistake; warnings are errors in these tests."""
    system = (
        "{% if mood %}{{mood}}{% endif %}{{tone | default('dry')}}{% set x = 1 %}{{x}}{{is_first}}"
    )
    chat = compat.Chat({**BASIC, "system": system})
    assert chat.apply_chat_template("hi", tokenize=False).startswith("dry1Human")


# --- with a tokenizer


class PaddleCallLetters:
    """One id for each character, with the attributes of a tokenizer."""

    model_input_names = ("input_ids", "position_ids")
    pad_token_id = 0
    eos_token_id = 1
    padding_side = "right"
    special_tokens_map = {"bos_token": "<s>"}

    def __call__(self, text: str, add_special_tokens: bool = True, **_: Any) -> dict[str, Any]:
        return {"input_ids": [1, *map(ord, text)] if add_special_tokens else [*map(ord, text)]}

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return self(text, add_special_tokens)["input_ids"]

    def decode(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))

    def save_pretrained(self, folder: str) -> str:
        (Path(folder) / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
        return folder


def test_the_tokenizer_is_passed_on() -> None:
    tokenizer = PaddleCallLetters()
    chat = compat.Chat(BASIC, tokenizer)
    assert (chat.model_input_names, chat.pad_token_id) == (tokenizer.model_input_names, 0)
    assert chat.decode(chat("hi", add_special_tokens=False)["input_ids"]) == "hi"
    assert chat.encode("hi", add_special_tokens=False)["input_ids"] == [104, 105]
    chat.padding_side = "left"
    assert tokenizer.padding_side == "left" and "padding_side" not in vars(chat)
    chat.chat_template = None
    assert not hasattr(tokenizer, "chat_template")
    with pytest.raises(AttributeError, match="vocab_size"):
        _ = chat.vocab_size
    with pytest.raises(AttributeError, match="no tokenizer"):
        _ = compat.Chat(BASIC).eos_token_id
    with pytest.raises(turnwise.MessageError, match="needs a tokenizer"):
        compat.Chat(BASIC)("hi")
    assert copy.deepcopy(compat.Chat(BASIC, tokenizer)).eos_token_id == 1


def test_training_rows() -> None:
    """`add_generation_prompt` is taken, position_ids are given where the model has them, labels are the answers."""
    chat = compat.Chat(JINJA, PaddleCallLetters())
    example = {"src": ["Round 1", "Round 2"], "tgt": ["Answer 1", "Answer 2"]}
    inputs, labels = compat.tokenize_rounds_example(
        chat, example, limits(1000, 1000), add_generation_prompt=True
    )
    first, second = (
        f"{JINJA_SYSTEM}{write_question('Round 1')}",
        f"Answer 1<|im_end|>\n{write_question('Round 2')}",
    )
    assert chat.decode(inputs["input_ids"]) == f"{first}{second}Answer 2<|im_end|>\n"
    assert inputs["position_ids"] == list(range(len(labels)))
    for place in (len(first), len(first + second)):
        assert labels[place - 1] == -100 and labels[place] == ord("A")
    chat = compat.Chat(CHATML, PaddleCallLetters())
    system = chat.encode(chat.chat_template.render_system(), add_special_tokens=False)["input_ids"]
    length = len(system) + 23
    inputs, labels = compat.tokenize_rounds_example(
        chat, {"src": ["hello"], "tgt": ["yes"]}, limits(length, length)
    )
    assert chat.decode(inputs["input_ids"]) == CHATML["system"] + "\n<|im_start|>user\nhello"
    assert set(labels) == {-100}
    rounds = {"src": ["hello", "what?"], "tgt": ["yes", "rice"]}
    whole, _ = compat.tokenize_rounds_example(
        compat.Chat(LINLY, PaddleCallLetters()), rounds, limits(1024)
    )
    template = compat.ChatTemplate(**LINLY)
    text = "".join(
        "".join(template.render_conversation(turn, index=index))
        for index, turn in enumerate(zip(rounds["src"], rounds["tgt"], strict=True))
    )
    assert chat.decode(whole["input_ids"]) == text
    with pytest.raises(AssertionError, match="system part"):
        compat.tokenize_rounds_example(chat, rounds, limits(9))


def test_files_of_a_model(tmp_path: Path) -> None:
    """`chat_template.json` counts before the template of the tokenizer, with a warning; saving writes it."""
    chat = compat.Chat(BASIC, PaddleCallLetters())
    chat.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "chat_template.json").read_text(encoding="utf-8")) == BASIC
    assert compat.AutoTokenizer.from_pretrained(tmp_path, PaddleCallLetters()).chat_template == (
        compat.ChatTemplate(**BASIC)
    )
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": "{{ messages }}"}), encoding="utf-8")
    with pytest.warns(turnwise.TurnwiseWarning, match="is used, not the chat_template of"):
        found = compat.Chat.from_pretrained(tmp_path, PaddleCallLetters())
    assert found.apply_chat_template("hi", tokenize=False).startswith("You are an assistant")
    (tmp_path / "chat_template.json").unlink()
    found = compat.Chat.from_pretrained(tmp_path, PaddleCallLetters())
    assert isinstance(found.chat_template, turnwise.Template)
    chat.chat_template = None
    other = tmp_path / "other"
    chat.save_pretrained(other)
    assert not (other / "chat_template.json").exists()
    assert compat.Chat.from_pretrained(other, PaddleCallLetters()).chat_template is None
    for place in (tmp_path / "nothing", "no/such/folder", None, 5):
        with pytest.raises(turnwise.TurnwiseError, match="there is no|a model is a folder"):
            compat.Chat.from_pretrained(place)  # type: ignore[arg-type]
    config.write_text("[1]", encoding="utf-8")
    with pytest.raises(turnwise.SourceError, match="is not a JSON object"):
        compat.Chat.from_pretrained(tmp_path, PaddleCallLetters())


@pytest.mark.parametrize(("kind", "library"), [("np", "numpy"), ("pt", "torch"), ("pd", "paddle")])
def test_real_tensors(kind: str, library: str) -> None:
    """The arrays of the library itself, where it is installed."""
    module = pytest.importorskip(library)
    chat = compat.Chat(BASIC, "turnwise")
    ids = chat.apply_chat_template(ROUNDS)["input_ids"]
    found = chat.apply_chat_template(ROUNDS, return_tensors=kind)
    tensor = found["input_ids"]
    assert isinstance(tensor, getattr(module, "ndarray", None) or module.Tensor)
    assert tuple(tensor.shape) == (1, len(ids)) and tensor.tolist() == [ids]
    assert "int64" in str(tensor.dtype)
    assert found["attention_mask"].tolist() == [[1] * len(ids)]
    assert chat.decode(ids) == chat.apply_chat_template(ROUNDS, tokenize=False)


def test_special_tokens_of_a_file(tmp_path: Path) -> None:
    """A tokenizer that turnwise reads adds special tokens when it is asked to, and does not truncate them."""
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.WordLevel({"<s>": 0, "a": 1, "b": 2, "</s>": 3}, unk_token="a")
    library = tokenizers.Tokenizer(model)
    library.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    library.add_special_tokens(["<s>", "</s>"])
    library.post_processor = tokenizers.processors.TemplateProcessing(
        "<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 3)]
    )
    library.save(str(tmp_path / "tokenizer.json"))
    config = {"eos_token": "</s>", "bos_token": "<s>", "pad_token": "</s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    chat = compat.Chat.from_pretrained(tmp_path)
    assert chat("a b a")["input_ids"] == [1, 2, 1]
    assert chat("a b a", add_special_tokens=True)["input_ids"] == [0, 1, 2, 1, 3]
    cut = {"add_special_tokens": True, "truncation": True, "max_length": 4}
    assert chat("a b b", truncation_side="left", **cut)["input_ids"] == [0, 2, 2, 3]
    assert chat("b a a", **cut)["input_ids"] == [0, 2, 1, 3]
    assert chat("a", padding="max_length", max_length=4)["input_ids"] == [1, 3, 3, 3]
    assert (chat.bos_token, chat.pad_token_id, chat.eos_token_id) == ("<s>", 3, 3)
    tokens = chat.convert_ids_to_tokens([1, 2])
    assert tokens == ["a", "b"] and chat.convert_tokens_to_ids(tokens) == [1, 2]
    assert chat.decode([0, 1, 3], skip_special_tokens=True) == "a"
    for wrong in (None, 5, [1], "a"):
        with pytest.raises(turnwise.TokenizerError, match="tokens are a list of texts"):
            chat.convert_tokens_to_string(wrong)
    chat.save_pretrained(tmp_path / "saved")
    assert compat.Chat.from_pretrained(tmp_path / "saved")("a b")["input_ids"] == [1, 2]
    with pytest.raises(turnwise.TokenizerError, match="which special tokens"):
        compat.Chat(BASIC, "turnwise")("hi", add_special_tokens=True)


def test_a_model_by_its_id() -> None:
    """The template is known without any file; ids need a tokenizer, and the error tells where from."""
    chat = compat.AutoTokenizer.from_pretrained("THUDM/chatglm-6b-v1.1")
    assert chat.apply_chat_template("hi", tokenize=False) == "[Round 0]\n问：hi\n答："
    with pytest.raises(turnwise.MessageError, match="needs a tokenizer.*\n.*Hugging Face cache"):
        chat.apply_chat_template("hi", return_tensors="np")
    chat = compat.AutoTokenizer.from_pretrained("THUDM/chatglm-6b-v1.1", tokenizer="turnwise")
    assert chat.decode(chat.apply_chat_template("hi")["input_ids"]) == "[Round 0]\n问：hi\n答："


# --- the original


ORIGINAL = """
import sys, types, unittest
from turnwise.compat.paddlenlp import Chat, ChatTemplate

CONFIGS = {configs}


class AutoTokenizer:
    @staticmethod
    def from_pretrained(name):
        return Chat(CONFIGS.get(name), "{llama}" if "llama" in name else "{qwen}")


def parameterized_class(names, rows):
    def decorate(kind):
        for number, row in enumerate(rows):
            made = type(f"{{kind.__name__}}_{{number}}", (kind,), dict(zip(names, row)))
            sys.modules[kind.__module__].__dict__[made.__name__] = made
        for name in [name for name in vars(kind) if name.startswith("test")]:
            delattr(kind, name)
        return kind
    return decorate


def module(name, **values):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(values)


module("parameterized", parameterized_class=parameterized_class)
module("paddlenlp")
module("paddlenlp.peft", LoRAModel=object, PrefixModelForCausalLM=object)
module("paddlenlp.transformers", AutoTokenizer=AutoTokenizer)
module("paddlenlp.transformers.tokenizer_utils", ChatTemplate=ChatTemplate)
sys.path.insert(0, "tests/transformers")
unittest.main("test_chat_template", argv=["test"])
"""


@needs_corpus
@pytest.mark.skipif(not HARNESS.is_dir(), reason="there is no copy of PaddleNLP")
def test_the_original() -> None:
    """All 22 of its tests, with the import changed."""
    names = {
        "linly-ai/chinese-llama-2-7b": LINLY,
        "THUDM/chatglm-6b-v1.1": CHATGLM,
        "bellegroup/belle-7b-2m": BELLE,
        "qwen/qwen-14b-chat": CHATML,
    }
    folders = {
        "llama": corpus.tokenizer_folder("mistral_v0_1"),
        "qwen": corpus.tokenizer_folder("qwen2_5"),
    }
    program = ORIGINAL.format(configs=names, **folders)
    command = [sys.executable, "-c", program]
    environment = {**os.environ, "PYTHONPATH": str(Path(turnwise.__file__).parents[1])}
    run = subprocess.run(
        command, cwd=HARNESS, env=environment, capture_output=True, text=True, check=False
    )
    assert "Ran 22 tests" in run.stderr and run.stderr.rstrip().endswith("OK"), run.stderr[-3000:]


def test_a_field_that_writes_no_message_is_paddlenlps_own_matter_with_exact() -> None:
    fields = {"conversation": ["a", "b"], "query": "{{query}}"}
    rounds = [["q", "r"], ["z"]]
    with pytest.raises(turnwise.SourceError, match="never writes {{user}}"):
        compat.Chat(fields).apply_chat_template(rounds, tokenize=False)
    text = compat.Chat(fields, exact=True).apply_chat_template(rounds, tokenize=False)
    assert text == "abz"
