"""lm-eval's own evaluation with our models: tiny random ones, and scripted answers of a completions server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module, metadata
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import turnwise
from completions_server import CompletionsServer
from served import listening, make_service
from tiny_model import save_model, save_tokenizer, script_replies
from turnwise.evidence.eval_card import hash_values
from turnwise.integrations import lm_eval as ours
from turnwise.integrations.evaluation import EvalPrompt
from turnwise.tokens.tokenizers import tokenizer as adapt

host = pytest.importorskip("lm_eval")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SYSTEM = "Be brief."
QUESTIONS = ("How many legs has a crab?", "How many arms has a squid, <|im_end|> or so?")
ROWS = [
    {"question": question, "answer": answer, "choices": ["ten", "six"], "label": 0}
    for question, answer in zip(QUESTIONS, ("ten", "ten"), strict=True)
]
GENERATE = {
    "task": "legs",
    "output_type": "generate_until",
    "doc_to_text": "{{question}}",
    "doc_to_target": "{{answer}}",
    "generation_kwargs": {"until": ["\n\n"], "max_gen_toks": 24, "do_sample": False},
    "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
}
CHOOSE = {
    "task": "legs_choice",
    "output_type": "multiple_choice",
    "doc_to_text": "{{question}}",
    "doc_to_choice": "choices",
    "doc_to_target": "label",
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
}
# Refuses the role system, as Gemma's does, and has reasoning.
STRICT = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
REPLY = "<think>\nA crab:\n\nfour pairs, and claws.\n</think>\n\nten\n\nAnd so on.<|im_end|>"


@pytest.fixture(scope="module", autouse=True)
def models() -> None:
    ours.register()
    ours.register()  # a second call changes nothing


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return file


def make_task(kind: dict[str, Any], data: Path, **more: Any) -> dict[str, Any]:
    files = {"data_files": {"test": str(data)}}
    return {**kind, "dataset_path": "json", "dataset_kwargs": files, "test_split": "test", **more}


def evaluate(model: Any, arguments: dict[str, Any], task: dict[str, Any], **more: Any) -> Any:
    more.setdefault("apply_chat_template", True)
    more.setdefault("system_instruction", SYSTEM)
    # Its own tasks are thousands of files.
    more["task_manager"] = import_module("lm_eval.tasks").TaskManager(include_defaults=False)
    return host.simple_evaluate(
        model=model, model_args=arguments, tasks=[task], bootstrap_iters=0, device="cpu", **more
    )


def find_answers(results: Any) -> list[str]:
    (samples,) = results["samples"].values()
    return [sample["resps"][0][0] for sample in samples]


def prompts_of(results: Any) -> list[str]:
    (samples,) = results["samples"].values()
    return [sample["arguments"][0][0] for sample in samples]


def server_arguments(server: CompletionsServer, folder: Path, **more: Any) -> dict[str, Any]:
    place = {"base_url": f"{server.url}/completions", "tokenizer": str(folder)}
    return {"model": "tiny", "tokenizer_backend": "huggingface", "max_retries": 1, **place, **more}


@pytest.fixture(scope="module")
def reasoner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer with qwen3's template, for servers."""
    folder = tmp_path_factory.mktemp("reasoner")
    save_tokenizer(folder, turnwise.load("qwen3").text)
    return folder


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose template refuses system messages."""
    return save_model(tmp_path_factory.mktemp("strict"), STRICT, adds_bos=True)


def test_a_dropped_system_message_is_kept(strict: Path, data: Path) -> None:
    task = make_task(GENERATE, data)
    theirs = evaluate("hf", {"pretrained": str(strict)}, task)
    mine = evaluate("turnwise-hf", {"pretrained": str(strict)}, task)
    assert all(SYSTEM not in prompt for prompt in prompts_of(theirs))
    assert all(SYSTEM in prompt for prompt in prompts_of(mine))
    report = mine["config"]["turnwise"]
    assert report["prompts"] == 2
    assert sum(report["changes"].values()) >= 2
    prompts = [
        turnwise.compile(STRICT, options={"bos_token": "<s>"}).encode(
            [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}],
            "turnwise",
            add_generation_prompt=True,
            add_stop=False,
        )
        for question in QUESTIONS
    ]
    hashes = [hash_values(prompt.input_ids) for prompt in prompts]
    assert report["prompt_ids_sha256"] == hash_values(sorted(hashes))
    # A control token of a document is text.
    end = adapt("turnwise").added["<|im_end|>"].id
    assert prompts[1].input_ids.count(end) == 1


def test_there_is_one_bos(strict: Path, data: Path) -> None:
    bos = adapt("turnwise").added["<s>"].id
    task = make_task(GENERATE, data)
    counts = []
    for model in ("local-completions", "turnwise-completions"):
        with CompletionsServer(lambda body: "ten") as server:
            arguments = server_arguments(server, strict, add_bos_token=True)
            evaluate(model, arguments, task, system_instruction=None)
            counts.append([ids.count(bos) for body in server.bodies for ids in body["prompt"]])
    assert counts == [[2, 2], [1, 1]]  # the tokenizer's post-processor adds one


def test_the_reasoning_is_no_answer(reasoner: Path, data: Path) -> None:
    task = make_task(GENERATE, data)
    answers, stops = {}, {}
    for model in ("local-completions", "turnwise-completions"):
        with CompletionsServer(lambda body: REPLY) as server:
            results = evaluate(model, server_arguments(server, reasoner), task)
            answers[model] = find_answers(results)
            stops[model] = server.bodies[0]["stop"]
            fields = server.bodies[0]
        score = results["results"]["legs"]["exact_match,none"]
        assert score == (1.0 if model == "turnwise-completions" else 0.0)
    assert answers["local-completions"] == [REPLY, REPLY]
    assert answers["turnwise-completions"] == ["ten", "ten"]
    assert "\n\n" in stops["local-completions"]  # ends the reasoning at its first blank line
    assert "\n\n" not in stops["turnwise-completions"]
    assert "<|im_end|>" in stops["turnwise-completions"]
    assert fields["skip_special_tokens"] is False
    report = results["config"]["turnwise"]
    assert report["prompts"] == 2


def test_the_reasoning_of_transformers_is_no_answer(tmp_path: Path, data: Path) -> None:
    """lm-eval drops special tokens before it looks for the end of the reasoning."""
    folder = save_model(tmp_path / "tiny", turnwise.load("qwen3").text)
    answers = []
    for name in ("hf", "turnwise-hf"):
        kind = import_module("lm_eval.api.registry").get_model(name)
        model = kind(pretrained=str(folder), device="cpu", batch_size=2)
        script_replies(model.model, REPLY, REPLY)
        results = evaluate(model, {}, make_task(GENERATE, data))
        answers.append(find_answers(results))
    assert answers[0][0].startswith("<think>\nA crab") or answers[0][0].startswith("\nA crab")
    assert answers[1] == ["ten", "ten"]


def put_vllm(monkeypatch: pytest.MonkeyPatch, sent: list[Any]) -> None:
    """Put modules in the place of vLLM's whose engine answers with REPLY; lm-eval's code for vLLM is its own."""

    class ScriptedEngine:
        def __init__(self, **arguments: Any) -> None:
            config = SimpleNamespace(max_model_len=arguments["max_model_len"])
            self.llm_engine = SimpleNamespace(model_config=config)

        def generate(self, prompts: Any, sampling_params: Any, **_: Any) -> list[Any]:
            sent.extend(zip(prompts, sampling_params, strict=True))
            return [SimpleNamespace(outputs=[SimpleNamespace(text=REPLY)]) for _ in prompts]

    def load_tokenizer(place: str, **_: Any) -> Any:
        return import_module("transformers").AutoTokenizer.from_pretrained(place)

    modules = {
        "vllm": {"LLM": ScriptedEngine, "SamplingParams": dict, "TokensPrompt": dict},
        "vllm.lora": {},
        "vllm.lora.request": {"LoRARequest": None},
        "vllm.renderers": {},
        "vllm.renderers.hf": {"resolve_chat_template": lambda **_: None},
        "vllm.tokenizers": {"get_tokenizer": load_tokenizer},
    }
    for name, names in modules.items():
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, name, module)
    own = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "0.32.0" if name == "vllm" else own(name))


def test_vllm_model_with_a_scripted_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: Path
) -> None:
    sent: list[Any] = []
    put_vllm(monkeypatch, sent)
    folder = save_model(tmp_path / "tiny", turnwise.load("qwen3").text)
    arguments = {"pretrained": str(folder), "max_model_len": 512}
    theirs = evaluate("vllm", {**arguments}, make_task(GENERATE, data))
    count = len(sent)
    ours = evaluate("turnwise-vllm", {**arguments}, make_task(GENERATE, data))
    assert find_answers(theirs)[0].startswith("<think>\nA crab")
    assert find_answers(ours) == ["ten", "ten"]
    assert ["\n\n" in settings["stop"] for _, settings in sent] == [True, True, False, False]
    hashes = {hash_values(prompt["prompt_token_ids"]) for prompt, _ in sent[count:]}
    assert ours["config"]["turnwise"]["prompt_ids_sha256"] == hash_values(sorted(hashes))


def test_vllm_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: Path) -> None:
    """In the environment of `make integrations-vllm`."""
    pytest.importorskip("vllm")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    folder = save_model(tmp_path / "tiny", turnwise.load("gemma-2").text, width=64)
    arguments = {"pretrained": str(folder), "max_model_len": 256, "enforce_eager": True}
    results = evaluate(
        "turnwise-vllm", {**arguments, "dtype": "float32"}, make_task(GENERATE, data)
    )
    assert all(SYSTEM in prompt for prompt in prompts_of(results))
    assert results["config"]["turnwise"]["prompts"] == 2


def test_a_reply_that_ends_in_its_reasoning_has_no_answer(reasoner: Path, data: Path) -> None:
    with CompletionsServer(lambda body: "<think>\nten? ten, ten") as server:
        results = evaluate(
            "turnwise-completions", server_arguments(server, reasoner), make_task(GENERATE, data)
        )
    assert find_answers(results) == ["", ""]


def test_many_at_once_and_cached(reasoner: Path, data: Path, tmp_path: Path) -> None:
    task, cache = make_task(GENERATE, data), str(tmp_path / "answers")
    with CompletionsServer(lambda body: REPLY) as server:
        arguments = server_arguments(server, reasoner, num_concurrent=4)
        first = evaluate("turnwise-completions", arguments, task, use_cache=cache)
        asked = len(server.bodies)
        again = evaluate("turnwise-completions", arguments, task, use_cache=cache)
        assert len(server.bodies) == asked == 2
    assert find_answers(first) == find_answers(again) == ["ten", "ten"]


@pytest.mark.parametrize("thinking", [True, False])
def test_prefix_of_an_answer_is_continued(reasoner: Path, data: Path, thinking: bool) -> None:
    task = make_task(GENERATE, data, gen_prefix="The number is")
    with CompletionsServer(lambda body: " ten<|im_end|>") as server:
        arguments = server_arguments(server, reasoner, enable_thinking=thinking)
        results = evaluate("turnwise-completions", arguments, task)
        known = adapt("turnwise")
        for body in server.bodies:
            assert known.decode(body["prompt"][0]).endswith("The number is")
    assert find_answers(results) == [" ten", " ten"]


def test_choices_are_scored_after_the_exact_prompt(reasoner: Path, data: Path) -> None:
    with CompletionsServer(lambda body: "") as server:
        arguments = server_arguments(server, reasoner, enable_thinking=False)
        results = evaluate("turnwise-completions", arguments, make_task(CHOOSE, data))
        sent = [body["prompt"][0] for body in server.bodies]
    template, known = turnwise.load("qwen3"), adapt("turnwise")
    expected = [
        template.encode(
            [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}],
            "turnwise",
            add_generation_prompt=True,
            add_stop=False,
            enable_thinking=False,
        ).input_ids
        + known.encode(choice, 2)
        for question in QUESTIONS
        for choice in ("ten", "six")
    ]
    assert sorted(sent) == sorted(expected)
    assert results["config"]["turnwise"]["prompts"] == 2


def test_an_answer_is_not_scored_in_open_reasoning(data: Path, tmp_path: Path) -> None:
    save_tokenizer(tmp_path / "open", turnwise.load("qwen3.5").text)
    with CompletionsServer(lambda body: "") as server:
        arguments = server_arguments(server, tmp_path / "open")
        with pytest.raises(turnwise.MessageError, match="opens reasoning"):
            evaluate("turnwise-completions", arguments, make_task(CHOOSE, data))


def test_a_tiny_model_answers_and_scores(tmp_path: Path, data: Path) -> None:
    folder = save_model(tmp_path / "tiny", turnwise.load("qwen3").text)
    arguments = {"pretrained": str(folder), "enable_thinking": False}
    made = evaluate("turnwise-hf", {**arguments}, make_task(GENERATE, data), batch_size=2)
    alone = evaluate("turnwise-hf", {**arguments}, make_task(GENERATE, data), batch_size=1)
    assert made["config"]["turnwise"] == alone["config"]["turnwise"]
    assert made["config"]["model_num_parameters"] < 100_000
    assert find_answers(alone) == find_answers(made)
    chosen = evaluate("turnwise-hf", {**arguments}, make_task(CHOOSE, data))
    assert chosen["config"]["turnwise"]["prompts"] == 2
    # The same prompts are sent to a server, so the hash is the same.
    with CompletionsServer(lambda body: REPLY) as server:
        served = server_arguments(server, folder, enable_thinking=False)
        other = evaluate("turnwise-completions", served, make_task(GENERATE, data))
    hashes = [one["config"]["turnwise"]["prompt_ids_sha256"] for one in (made, chosen, other)]
    assert len(set(hashes)) == 1


def test_prompts_without_a_template_are_left_alone(strict: Path, data: Path) -> None:
    task, plain = make_task(GENERATE, data), {"apply_chat_template": False}
    theirs = evaluate("hf", {"pretrained": str(strict)}, task, **plain)
    mine = evaluate("turnwise-hf", {"pretrained": str(strict)}, task, **plain)
    assert find_answers(theirs) == find_answers(mine)
    assert mine["config"]["turnwise"]["prompts"] == 0


def test_its_command(strict: Path, data: Path, tmp_path: Path) -> None:
    tasks, out = tmp_path / "tasks", tmp_path / "out"
    tasks.mkdir()
    (tasks / "legs.yaml").write_text(json.dumps(make_task(GENERATE, data)))  # YAML is a superset
    command = [sys.executable, "-m", "turnwise.integrations.lm_eval", "run"]
    command += ["--model", "turnwise-hf", "--model_args", f"pretrained={strict}"]
    command += ["--tasks", "legs", "--include_path", str(tasks), "--apply_chat_template"]
    command += ["--system_instruction", SYSTEM, "--device", "cpu", "--output_path", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    (file,) = out.rglob("results_*.json")
    results = json.loads(file.read_text())
    assert results["config"]["turnwise"]["prompts"] == 2
    assert results["chat_template"] == STRICT


# -- bad input


def test_a_model_without_a_template_is_named(tmp_path: Path, data: Path) -> None:
    save_tokenizer(tmp_path / "base", None)
    with CompletionsServer(lambda body: "") as server:
        arguments = server_arguments(server, tmp_path / "base")
        with pytest.raises(turnwise.SourceError, match="no chat template"):
            evaluate("turnwise-completions", arguments, make_task(GENERATE, data))
        arguments["template"] = "chatml"
        results = evaluate("turnwise-completions", arguments, make_task(GENERATE, data))
    assert prompts_of(results)[0].startswith("<|im_start|>system\nBe brief.<|im_end|>")


def test_a_role_that_the_template_refuses_is_an_error(tmp_path: Path, data: Path) -> None:
    text = "{% for m in messages %}{{ raise_exception('only tools may speak') }}{% endfor %}"
    save_tokenizer(tmp_path / "odd", text)
    with CompletionsServer(lambda body: "") as server:
        arguments = server_arguments(server, tmp_path / "odd")
        with pytest.raises(turnwise.TemplateRaised, match="only tools may speak"):
            evaluate("turnwise-completions", arguments, make_task(GENERATE, data))


@pytest.mark.parametrize("kind", [GENERATE, CHOOSE], ids=["generate", "choose"])
def test_a_server_that_dies_is_named(reasoner: Path, data: Path, kind: dict[str, Any]) -> None:
    with CompletionsServer(lambda body: REPLY, dies_after=1) as server:
        arguments = server_arguments(server, reasoner, enable_thinking=False)
        with pytest.raises(turnwise.TurnwiseError, match="does not answer"):
            evaluate("turnwise-completions", arguments, make_task(kind, data))


def test_a_tokenizer_of_the_server_is_refused(reasoner: Path, data: Path) -> None:
    with CompletionsServer(lambda body: REPLY) as server:
        arguments = {"model": "tiny", "base_url": f"{server.url}/completions"}
        with pytest.raises(turnwise.TokenizerError, match="tokenizer"):
            evaluate(
                "turnwise-completions",
                {**arguments, "tokenizer_backend": "none"},
                make_task(GENERATE, data),
            )


# -- what lm-eval's own API models ask of `turnwise serve`


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with listening(make_service()) as url:
        yield url


def test_serve_is_a_remote_tokenizer(address: str) -> None:
    utils = __import__("lm_eval.utils", fromlist=["RemoteTokenizer"])
    assert utils.check_remote_tokenizer_support(f"{address}/v1/completions")
    remote = utils.RemoteTokenizer(f"{address}/v1/completions")
    known = adapt("turnwise")
    assert remote.eos_token == "<|im_end|>"
    assert remote.eos_token_id == known.added["<|im_end|>"].id
    text = "Größe <|im_end|> 漢"
    ids = remote.encode(text)
    assert ids == known.whole(text)
    assert remote.decode(ids) == text
    assert remote.batch_decode([ids, ids[:1]]) == [text, known.decode(ids[:1])]
    chat = [{"role": "user", "content": "hi"}]
    expected = turnwise.load("qwen3").render(chat, add_generation_prompt=True).text
    assert "<|im_start|>user\nhi<|im_end|>" in expected
    assert remote.tokenizer_info["chat_template"] == turnwise.load("qwen3").text


def test_prompts_survive_pickling() -> None:
    dill = pytest.importorskip("dill")
    prompt = EvalPrompt("<s>hi")
    prompt.ids = [1, 2]
    copy = dill.loads(dill.dumps(prompt))
    assert copy == prompt and copy.ids == [1, 2]
