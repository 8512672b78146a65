"""Time grows with messages as they do, whatever they hold: a law over shapes, verbs, templates and tokenizers.

The shapes are in `tests/support/hostile_messages.py`. In the sample that every run tests, each shape meets some verbs,
and each verb, template and tokenizer comes often; the whole matrix is slow. For figures:
`benchmarks/message_scaling.py`.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache, partial
from itertools import product

import pytest

import corpus
import hostile_messages as hostile
import turnwise
import vocabularies
from timing import FACTOR, ROOM, ROUNDS, assert_linear, assert_quick, processor_seconds
from turnwise import Template, TurnwiseError
from turnwise.tokens.tokenizers import Tokenizer

pytestmark = [corpus.needs_corpus, pytest.mark.filterwarnings("ignore")]

SIZE = 6_000
TEMPLATES = (
    "npm-qwen3",
    "llamacpp-meta-llama-Llama-3.1-8B-Instruct",
    "llamacpp-deepseek-ai-DeepSeek-V3.1",
    "llamacpp-GLM-4.6",
    "npm-qwen2_5",
    "llamacpp-google-gemma-4-31B-it",
    "llamacpp-openai-gpt-oss-120b",
    "llamacpp-mistralai-Mistral-Nemo-Instruct-2407",
)
TOKENIZERS = ("qwen3", "internlm2", "llama3")
JSON_TEMPLATES = ("npm-qwen3", "npm-qwen2_5", "llamacpp-meta-llama-Llama-3.1-8B-Instruct")
ARGUMENTS = ("arguments as list", "arguments as keys", "arguments nested", "arguments as text")
# Templates that walk through all messages for each message, as `benchmarks/scaling.py` says.
WALKING = ("llamacpp-google-gemma-4-31B-it", "llamacpp-openai-gpt-oss-120b")
# Templates of which the source does not prove what a prompt is: the prompt before every turn is rendered.
UNPROVEN = (
    "npm-qwen3",
    "llamacpp-deepseek-ai-DeepSeek-V3.1",
    "llamacpp-GLM-4.6",
    "llamacpp-mistralai-Mistral-Nemo-Instruct-2407",
)
CELLS = list(product(hostile.SHAPES, hostile.VERBS))
SAMPLE = [
    (shape, verb, TEMPLATES[number % len(TEMPLATES)], TOKENIZERS[number % len(TOKENIZERS)])
    for number, (shape, verb) in enumerate(CELLS)
    if number % 7 == 0
]


@cache
def template(name: str) -> Template:
    found = corpus.load_published()[name]
    return turnwise.compile(found.text, options=dict(found.options))


@cache
def vocabulary(name: str) -> Tokenizer:
    return vocabularies.load(name)


def check_cell(shape: str, verb: str, name: str, tokenizer: str) -> None:
    if name in WALKING and shape in hostile.MANY_MESSAGES:
        pytest.skip("the template itself walks through all messages for each message")
    renders_prompts = verb not in ("parse", "stream", "session")
    if name in UNPROVEN and shape in hostile.MANY_MESSAGES and renders_prompts:
        pytest.skip("the prompt before every turn is rendered")
    size = SIZE // 4 if verb == "examples" and shape in hostile.MANY_MESSAGES else SIZE
    own = vocabulary(tokenizer)
    try:
        cases = {n: hostile.make_case(template(name), own, shape, n) for n in (size, FACTOR * size)}
    except TurnwiseError:
        pytest.skip("the template does not take such messages")
    call = hostile.VERBS[verb]
    if verb != "examples":
        assert_linear(lambda n: call(cases[n]), size)
        return
    # A template that rewrites history makes a sample of each turn: linear in what is given and returned.
    best = min(_growth_by_output(cases[size], cases[FACTOR * size]) for _ in range(ROUNDS))
    assert best < ROOM


def _growth_by_output(small: hostile.Case, large: hostile.Case) -> float:
    """Return how much longer a character takes in a longer conversation."""
    seconds = []
    for case in (small, small, large):
        start = time.process_time()
        returned = hostile.make_examples(case)
        spent = time.process_time() - start
        # Some templates leave out most of what they are given.
        characters = max(case.size, hostile.count_characters(case, "examples", returned))
        seconds.append(spent / characters)
    return seconds[-1] / min(seconds[:-1])


@pytest.mark.law(3)
@pytest.mark.parametrize(("shape", "verb", "name", "tokenizer"), SAMPLE)
def test_time_grows_with_messages(shape: str, verb: str, name: str, tokenizer: str) -> None:
    check_cell(shape, verb, name, tokenizer)


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("verb", hostile.VERBS)
def test_time_grows_with_messages_everywhere(verb: str, name: str, tokenizer: str) -> None:
    failed: dict[str, str] = {}
    for shape in hostile.SHAPES:
        try:
            check_cell(shape, verb, name, tokenizer)
        except AssertionError as error:
            failed[shape] = str(error)
        except pytest.skip.Exception:
            continue
    assert not failed


def test_the_sample_has_everything() -> None:
    columns = [set(column) for column in zip(*SAMPLE, strict=True)]
    assert columns == [set(hostile.SHAPES), set(hostile.VERBS), set(TEMPLATES), set(TOKENIZERS)]


@pytest.mark.law
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("name", JSON_TEMPLATES)
@pytest.mark.parametrize("shape", ARGUMENTS)
def test_lookalikes_in_arguments_cost_little_more_than_words(
    shape: str, name: str, tokenizer: str
) -> None:
    """56 kB of arguments that spell control tokens take at most 3 times as long as such of words."""
    lookalikes = hostile.Case(template(name), vocabulary(tokenizer), shape, 56_000)
    words = replace(lookalikes, is_harmless=True)
    hostile.encode(words)  # what is learned once is learned here
    assert_quick(
        partial(hostile.encode, lookalikes),
        3 * min(processor_seconds(partial(hostile.encode, words)) for _ in range(2)),
    )
