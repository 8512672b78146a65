"""Conversion: what a declarative dialect can say is said and holds; what it cannot say is named, with a conversation.

`convert` verifies what it wrote, with the probes. Here its results are rendered again on conversations of our own, by
the reader of the target dialect, so that a gap in the verification shows. White space at the very end is not compared,
nor is a conversation that the template itself refuses.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import pytest

import corpus
import oracle
import turnwise
from corpus import needs_corpus
from loaded import load_entry as load
from target_texts import TARGETS, Target, find_differences
from turnwise import dialects
from turnwise.analysis import counterexample
from turnwise.analysis.conversations import Probe, load_probes
from turnwise.analysis.counterexample import is_well_formed
from turnwise.conversion import verification
from turnwise.conversion.observed_turns import observe_turns
from turnwise.dialects import fastchat, fastchat_write, xtuner
from turnwise.dialects.fastchat_styles import SystemRule
from turnwise.dialects.turns import TOKEN_MARKS, Slot, Turns, replace_token_marks
from turnwise.engine.renderer import Renderer
from turnwise.registry import entries

pytestmark = pytest.mark.once

# To FastChat, an empty message is an open turn; XTuner and LMDeploy write a late system text where it is.
LOST = {
    "fastchat": ("empty messages",),
    "xtuner": ("late system text",),
    "lmdeploy": ("late system text",),
}
OFFICIAL = [name for name, entry in entries().items() if entry.dialect == "jinja"]
# Names, as a new entry must not change which ones are counted.
SOME_OFFICIAL = [
    "apertus",
    "command-r7b",
    "devstral",
    "gemma-2",
    "gpt-oss",
    "hunyuan-a13b",
    "internvl3.5",
    "lfm2.5",
    "llama-guard-3-1b",
    "minimax-m2",
    "mistral-small-4",
    "nemotron-nano-v2",
    "phi-3-small",
    "qwen2.5-vl",
    "ring-2.6",
    "tulu-3",
]
SAID = ("chatml", "yi", "zephyr", "mistral")
EMPTY = ("chatml", "zephyr")  # FastChat and LMDeploy have no way to leave a system turn out
PLAIN = [
    (name, dialect)
    for name in SAID
    for dialect in TARGETS
    if dialect not in ("fastchat", "lmdeploy") or name not in EMPTY
]
FASTCHAT = list(entries(dialect="fastchat"))
NAMED = re.compile(
    r"(?:this template cannot be expressed as turns|\w+ cannot express this template"
    r"|turnwise's writer for \w+ does not express this template): \w.*"
)
TEXTS = ("What is it?", "It's {input} {{ 1 + 1 }}\n", "a\n\nb", "说 <b>", "last")
XTUNER = {
    "SYSTEM": "<|im_start|>system\n{system}<|im_end|>\n",
    "INSTRUCTION": "<|im_start|>user\n{input}<|im_end|>\n<|im_start|>assistant\n",
    "SUFFIX": "<|im_end|>",
    "SUFFIX_AS_EOS": True,
    "SEP": "\n",
    "STOP_WORDS": ["<|im_end|>"],
}
PADDLENLP = {
    "system": "S",
    "conversation": ["[{{index}}] {{user}}\n", "{{bot}}</s>"],
    "query": "{{query}}\n",
}
INSIDE = (
    "{% for m in messages %}{{ m.role }}{{ eos_token }}{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}assistant{{ eos_token }}{% endif %}"
)


def chats() -> Iterator[list[dict[str, str]]]:
    """Rounds of one to five messages, with a system text and without."""
    for length in range(1, 6):
        turns = [
            {
                "role": ("user", "assistant")[at % 2],
                "content": text.strip() if at == length - 1 else text,
            }
            for at, text in enumerate(TEXTS[:length])
        ]
        yield turns
        yield [{"role": "system", "content": "Be kind: 'yes'."}, *turns]


def bos(template: turnwise.Template) -> dict[str, str]:
    return {} if template.options.get("bos_token") else {"bos_token": "<s>"}


def convert_or_error(template: turnwise.Template, dialect: str, **details: Any) -> Any:
    """The source, or the error; anything else that is raised is a failure."""
    try:
        return template.convert(dialect, **details)
    except turnwise.SourceError as error:
        return error


def disagreements(
    template: turnwise.Template, source: Any, dialect: str, lost: Collection[str] = ()
) -> list[Any]:
    """The conversations that the written source says otherwise."""
    target = Target(dialect, source, dict(template.options))
    return find_differences(template, target, list(chats()), lost)[1]


# What can be written


@pytest.mark.law(6)
@pytest.mark.parametrize(("name", "dialect"), PLAIN)
def test_plain_templates_are_written_in_every_dialect(name: str, dialect: str) -> None:
    lost = [*LOST.get(dialect, ()), *(["system text"] if name == "mistral" else [])]
    source = load(name).convert(dialect, **bos(load(name)), without=lost)
    assert dialects.guess_dialect(source) == dialect
    assert disagreements(load(name), source, dialect, lost) == []


@pytest.mark.parametrize("dialect", TARGETS)
def test_stops_are_written_too(dialect: str) -> None:
    source = load("yi").convert(dialect, without=LOST.get(dialect, ()))
    assert turnwise.compile(source, dialect).stops() == ("<|im_end|>",)


def test_what_is_written() -> None:
    """It is what a user would have written."""
    chatml = load("chatml")
    assert chatml.convert("xtuner") == XTUNER
    assert load("zephyr").convert("xtuner") == {
        "SYSTEM": "<|system|>\n{system}</s>\n",
        "INSTRUCTION": "<|user|>\n{input}</s>\n<|assistant|>\n",
        "SUFFIX": "</s>",
        "SUFFIX_AS_EOS": True,
        "SEP": "\n",
    }  # after an eos token of its own XTuner would insert bos_token again
    assert load("mistral").convert("xtuner", without=["system text"]) == {
        "INSTRUCTION": "[INST] {input} [/INST]",
        "SUFFIX": "</s>",
        "SUFFIX_AS_EOS": True,
        "SEP": " ",
    }
    assert load("yi").convert("llamafactory") == {
        "format_system": ["{{content}}"],
        "format_user": ["<|im_start|>user\n{{content}}<|im_end|>\n<|im_start|>assistant\n"],
        "format_assistant": ["{{content}}<|im_end|>\n"],
        "stop_words": ["<|im_end|>"],
    }
    assert load("deepseek").convert("llamafactory") == {
        "format_prefix": [["bos_token"]],
        "format_system": ["{{content}}\n\n"],
        "format_user": ["User: {{content}}\n\nAssistant:"],
        "format_assistant": [" {{content}}", ["eos_token"]],  # a prompt ends before the space
    }
    assert load("mistral-v1").convert("llamafactory")["template_class"] == "Llama2Template"
    trimming = load("gemma").convert("paddlenlp", without=["system text"])
    assert "{{query | trim}}" in trimming["query"]
    modelfile = chatml.convert("ollama")
    assert modelfile.startswith("FROM .\nTEMPLATE") and modelfile.endswith(
        'PARAMETER stop "<|im_end|>"\n'
    )


def read_turns(renderer: Renderer, eos_token: str = "") -> Turns:
    """The turns of a template to which the tokenizer adds a bos token."""
    marks = {**TOKEN_MARKS, "bos_token": ""}
    return replace_token_marks(observe_turns(renderer, marks), {"eos_token": eos_token})


def test_the_turns_are_read_off_the_pieces() -> None:
    found = read_turns(load("chatml").renderer)
    assert found.user == ("<|im_start|>user\n", Slot("text"), "<|im_end|>\n")
    assert found.system == ("<|im_start|>system\n", Slot("text"), "<|im_end|>\n")
    assert (found.generation_prompt, found.reply_suffix, found.separator) == (
        "<|im_start|>assistant\n",
        "<|im_end|>",
        "\n",
    )
    assert (found.prefix, found.default_system, found.eos) == ("", None, False)
    assert read_turns(load("qwen1.5").renderer).default_system == "You are a helpful assistant"
    assert (
        read_turns(load("mistral").renderer, "</s>").eos
        and read_turns(load("mistral").renderer, "</s>").system is None
    )


@pytest.mark.parametrize(
    ("name", "opening", "answer"),
    [
        ("vicuna", "ASSISTANT:", "ASSISTANT: "),
        ("deepseek", "Assistant:", "Assistant: "),
        ("falcon", "\n\nAssistant:", "\n\nAssistant: "),
        ("chatglm3", "<|assistant|>", "<|assistant|>\n "),
        ("glm-4", "<|assistant|>", "<|assistant|>\n"),
        ("deepseek-r1-distill", "<｜Assistant｜><think>\n", "<｜Assistant｜>"),
        ("chatml", "<|im_start|>assistant\n", None),
    ],
)
def test_what_a_prompt_ends_with_and_what_stands_before_a_reply(
    name: str, opening: str, answer: str | None
) -> None:
    found = read_turns(load(name).renderer)
    assert (found.generation_prompt, found.reply_prefix) == (opening, answer)


def test_rounds_are_counted() -> None:
    assert read_turns(load("chatglm").renderer).user[:2] == ("[Round ", Slot("index"))
    assert read_turns(load("chatglm2").renderer).user[:2] == ("[Round ", Slot("round"))
    counted = turnwise.compile(load("xtuner:chatglm2").text)
    for dialect in ("xtuner", "paddlenlp"):
        lost = ["system text"]
        source = counted.convert(dialect, eos_token="</s>", bos_token="<s>", without=lost)
        assert disagreements(counted, source, dialect, lost) == []


def test_a_token_whose_text_is_asked_for() -> None:
    """Replies of `default` end with the tokenizer's eos_token; a dialect of plain text must be given its text."""
    default = load("default")
    # XTuner has a name for it, but then inserts bos_token: that is right if there is none.
    assert "SUFFIX_AS_EOS" not in default.convert("xtuner", bos_token="")
    for dialect in ("xtuner", "paddlenlp", "ollama"):
        error = convert_or_error(default, dialect)
        assert isinstance(error, turnwise.SourceError) and "(pass eos_token=...)" in error.message
        assert "{'role': 'assistant', 'content': 'O'}" in str(error)
        source = default.convert(dialect, eos_token="</s>")
        assert "</s>" in str(source) and disagreements(default, source, dialect) == []


@pytest.mark.law(2)
@pytest.mark.parametrize("dialect", TARGETS)
def test_the_jinja_of_what_was_written_works_in_transformers(dialect: str) -> None:
    source = load("yi").convert(dialect, without=LOST.get(dialect, ()))
    written = turnwise.compile(source, dialect)
    for chat in chats():
        opening = chat[-1]["role"] == "user"
        expected = oracle.render(
            written.text, chat, add_generation_prompt=opening, eos_token="</s>", bos_token=""
        )
        assert (
            written.render(chat, add_generation_prompt=opening, eos_token="</s>", bos_token="").text
            == expected
        )


# What cannot be written


@pytest.mark.parametrize("dialect", [dialect for dialect in TARGETS if dialect != "xtuner"])
def test_tools_are_an_obstacle(dialect: str) -> None:
    lost = LOST.get(dialect, ())
    error = convert_or_error(load("qwen2.5"), dialect, without=lost)
    assert isinstance(error, turnwise.SourceError)
    unable = f"{dialect} cannot express"
    if dialect in ("llamafactory", "ollama", "lmdeploy"):  # which have words for tools
        unable = f"turnwise's writer for {dialect} does not express"
    assert error.message == f"{unable} this template: tools"
    shown = [line.strip() for line in str(error).splitlines()]
    at = shown.index("they differ on:")
    assert shown[at + 1 : at + 3] == [
        "{'role': 'user', 'content': 'F'}",
        "tools=[{'type': 'function', 'function': {'name': 'p'}}]",
    ]
    assert "# Tools" in str(error) and "without=['tools']" in str(error)
    source = load("qwen2.5").convert(dialect, without=["tools", *lost])
    assert disagreements(load("qwen2.5"), source, dialect) == []


@pytest.mark.law
def test_the_smallest_conversation_is_the_smallest(
    monkeypatch: pytest.MonkeyPatch, sample: Any
) -> None:
    """Whatever is taken away from one that is shown, the two no longer differ as they did, or it is not well-formed."""
    left, refused = [], 0

    def shrinking(probe: Probe, shows: Any) -> Probe:
        smallest = counterexample.shrink(probe, shows)
        assert is_well_formed(smallest) or not is_well_formed(probe)
        less = [
            found
            for found in counterexample.smaller_probes(smallest)
            if is_well_formed(found) or not is_well_formed(probe)
            if shows(found)
        ]
        left.extend(
            found
            for found in less
            if (found.messages, found.tools) != (smallest.messages, smallest.tools)
        )
        return smallest

    monkeypatch.setattr(verification, "shrink", shrinking)
    names = [
        *("qwen2.5", "internlm2-tools", "deepseek-r1", "llama-3.1", "chatglm2", "gpt-oss"),
        "mistral-v3",
    ]
    taken = sample(names, 2)
    for name in taken:
        for dialect in TARGETS:
            source = convert_or_error(load(name), dialect, eos_token="</s>")
            refused += isinstance(source, turnwise.SourceError)
    assert refused >= 30 * len(taken) // len(names) and left == []


def test_long_texts_are_no_trouble_for_fastchat() -> None:
    """Fields are not looked for at every place of a text."""
    long = "".join(f"w{number} " for number in range(5000))
    template = turnwise.compile(INSIDE.replace(";", long).replace("eos_token", repr(long)))
    started = time.process_time()
    assert isinstance(convert_or_error(template, "fastchat"), turnwise.SourceError)
    assert time.process_time() - started < 5


def test_what_may_be_lost_has_a_name() -> None:
    with pytest.raises(turnwise.SourceError, match="Did you mean 'tools'"):
        load("qwen2.5").convert("ollama", without=["tool"])


@pytest.mark.law(8)
@pytest.mark.parametrize(
    ("name", "dialect", "feature", "turns"),
    [
        (
            "qwen1.5",
            "xtuner",
            "a system turn where no system text is given: 'You are a helpful assistant'",
            "F",
        ),
        ("qwen2.5", "xtuner", "a system turn where no system text is given: 'You are Qwen", "F"),
        ("llama-3.1", "xtuner", "a system turn where no system text is given", "F"),
        ("llama-3.2", "llamafactory", "a system turn where no system text is given", "F"),
        ("glm-4", "xtuner", "a text that every conversation starts with: '[gMASK]<sop>'", "F"),
        ("chatglm", "xtuner", "the number of the round: '0, 1, 2'", "F"),
        ("chatglm2", "ollama", "the number of the round: '1, 2, 3'", "FOS"),
        ("mistral-v1", "xtuner", "the text before a reply in the history: ' [/INST] '", "FO"),
        ("gemma-3", "fastchat", "a system text in the first user turn", "RF"),
        ("phi-3-medium", "xtuner", "a system text in the first user turn", "RF"),
        (
            "deepseek",
            "xtuner",
            "the text before a reply in the history: '\\n\\nAssistant: '",
            "FO",
        ),
        (
            "qwen3",
            "xtuner",
            "a last reply that begins unlike earlier ones: '<|im_start|>assistant\\n<think>",
            "FO",
        ),
        ("phi-3", "llamafactory", "a last reply that ends unlike earlier ones: '</s>'", "FO"),
        ("chatml", "fastchat", "leaving out the system turn where no system text is given", "F"),
        (
            "falcon",
            "paddlenlp",
            "the text of a message, which the template changes: 'a\\n\\nb'",
            None,
        ),
        ("llama-3", "ollama", "white space around a message, which the template changes", None),
        ("deepseek-r1-0528", "xtuner", "tool calls", ("F", "")),
    ],
)
def test_the_obstacle_is_named(
    name: str, dialect: str, feature: str, turns: Iterable[str] | None
) -> None:
    """`turns` are the texts of the smallest conversation."""
    error = convert_or_error(load(name), dialect, eos_token="</s>", without=LOST.get(dialect, ()))
    assert isinstance(error, turnwise.SourceError)
    assert error.message.partition(": ")[2].startswith(feature), error.message
    assert turns is None or re.findall(r"'content': '(.*?)'", str(error)) == list(turns)


def test_an_empty_system_turn_is_one() -> None:
    bare = turnwise.compile(load("qwen1.5").text.replace("You are a helpful assistant", ""))
    error = convert_or_error(bare, "xtuner")
    assert isinstance(error, turnwise.SourceError)
    assert (
        error.message
        == "xtuner cannot express this template: a system turn where no system text is given"
    )
    assert disagreements(bare, bare.convert("ollama"), "ollama") == []


def test_a_template_that_takes_no_rounds() -> None:
    for text, what, then in (
        (
            "{{ raise_exception('never') }}",
            "it refuses alternating user and assistant messages",
            "its error: never",
        ),
        ("", "it does not write the text of every message once, in order", "it writes: ''"),
    ):
        error = convert_or_error(turnwise.compile(text), "xtuner")
        assert isinstance(error, turnwise.SourceError) and error.message.endswith(what)
        assert then in str(error) and "{'role': 'user', 'content': 'Xfirst'}" in str(error)
        assert "Xone" not in str(error)
    error = convert_or_error(turnwise.compile("{{ messages | tojson }}"), "xtuner")
    assert (
        isinstance(error, turnwise.SourceError)
        and "a text that every conversation starts with" in error.message
    )


def test_a_token_inside_a_turn() -> None:
    error = convert_or_error(turnwise.compile(INSIDE), "xtuner")
    assert isinstance(error, turnwise.SourceError) and "pass eos_token=..." in error.message
    assert "{'role': 'user', 'content': 'F'}" in str(error)
    source = turnwise.compile(INSIDE, options={"eos_token": "</s>"}).convert("xtuner")
    assert source["INSTRUCTION"] == "user</s>{input};assistant</s>"
    named = turnwise.compile(INSIDE).convert("llamafactory")  # which has a name for it
    assert named["format_user"] == ["user", ["eos_token"], "{{content}};assistant", ["eos_token"]]


@pytest.mark.parametrize(
    "dialect", [dialect for dialect in TARGETS if dialect not in ("fastchat", "llamafactory")]
)
def test_the_token_can_be_passed_as_the_error_says(dialect: str) -> None:
    lost = ["no system text"] if dialect == "lmdeploy" else []
    source = turnwise.compile(INSIDE).convert(dialect, eos_token="</s>", without=lost)
    assert "user</s>" in str(source)


def test_dialects_that_are_only_read() -> None:
    for dialect in ("internlm2", "xtuner_v1"):
        with pytest.raises(
            turnwise.SourceError, match=f"{dialect} sources can be read, not written"
        ):
            load("chatml").convert(dialect)
    with pytest.raises(turnwise.SourceError, match="unknown dialect 'xtunr'") as error:
        load("chatml").convert("xtunr")
    assert "Did you mean 'xtuner'" in str(error.value)


# The registry


def convert_or_name_obstacle(template: turnwise.Template, dialect: str, **details: Any) -> str:
    """Return "written", or the obstacle; what is written must render the same conversation."""
    eos = {} if template.options.get("eos_token") else {"eos_token": "</s>"}
    without = (*details.pop("without", ()), *LOST.get(dialect, ()))
    source = convert_or_error(template, dialect, **eos, **bos(template), without=without, **details)
    if not isinstance(source, turnwise.SourceError):
        assert disagreements(template, source, dialect, without) == [], (template.name, dialect)
        return "written"
    assert NAMED.fullmatch(source.message), source.message
    assert "{'role': 'user'" in str(source), (template.name, dialect)
    assert f"\nin {dialect}: " in str(source) or "\nit " in str(source), (template.name, dialect)
    return source.message.partition(": ")[2]


@pytest.mark.law
@pytest.mark.parametrize(
    ("names", "least"),
    [
        pytest.param(
            OFFICIAL,
            {"xtuner": 13, "llamafactory": 21, "paddlenlp": 25, "ollama": 22, "fastchat": 10},
            marks=pytest.mark.slow,
        ),
        (SOME_OFFICIAL, {"xtuner": 1, "llamafactory": 1, "paddlenlp": 4, "ollama": 4}),
    ],
    ids=["all", "some"],
)
def test_official_entries_are_written_or_the_obstacle_is_named(
    names: list[str], least: dict[str, int], sample: Any
) -> None:
    """A change of the numbers is worth a look: fewer is a loss; more is fine, since each result is rendered."""
    written: Counter[str] = Counter()
    taken = sample(names, 1)
    for name in taken:
        template = load(name)
        assert (
            template.convert("jinja").endswith(template.text) and template.text == template.source
        )
        written.update(
            dialect
            for dialect in TARGETS
            if convert_or_name_obstacle(template, dialect) == "written"
        )
    if len(taken) == len(names):
        assert all(written[dialect] >= count for dialect, count in least.items()), written


@pytest.mark.law
@pytest.mark.parametrize(
    ("every", "least"),
    [
        pytest.param(
            1,
            {"xtuner": 43, "paddlenlp": 99, "ollama": 99, "fastchat": 42},
            marks=pytest.mark.slow,
        ),
        (12, {"xtuner": 3, "paddlenlp": 9, "ollama": 9, "fastchat": 8}),
    ],
)
def test_entries_of_llamafactory_are_written_or_the_obstacle_is_named(
    every: int, least: dict[str, int], sample: Any
) -> None:
    """Each of them has tools, which no other dialect can express; without, many can be written."""
    written: Counter[str] = Counter()
    names = list(entries(dialect="llamafactory"))[::every]
    taken = sample(names, 1)
    for name in taken:
        for dialect in least:
            assert convert_or_name_obstacle(load(name), dialect) != "written", name
            written[dialect] += (
                convert_or_name_obstacle(load(name), dialect, without=["tools"]) == "written"
            )
    if len(taken) == len(names):
        assert all(written[dialect] >= count for dialect, count in least.items()), written


@pytest.mark.parametrize("dialect", TARGETS)
def test_what_a_template_does_with_messages_is_not_lost(dialect: str) -> None:
    """DeepSeek R1 leaves thoughts out of the history, and writes calls without ever reading `tools`."""
    assert isinstance(convert_or_error(load("deepseek-r1"), dialect), turnwise.SourceError)


@pytest.mark.law
@pytest.mark.parametrize(
    ("dialect", "count"),
    [
        ("xtuner", 27),
        ("xtuner_v1", 8),
        ("llamafactory", 124),
        ("fastchat", 102),
    ],
)
def test_an_imported_entry_comes_back(dialect: str, count: int, sample: Any) -> None:
    names = FASTCHAT if dialect == "fastchat" else list(entries(dialect=dialect))
    assert len(names) == count
    for name in sample(names):
        source = load(name).convert(dialect)
        assert source == entries()[name].source == load(name).source, name
        assert turnwise.compile(source, dialect).text == load(name).text, name


def test_the_seed_s_dict_comes_back() -> None:
    assert turnwise.load("internlm_chat").convert("xtuner") == {
        "SYSTEM": "<|System|>:{system}\n",
        "INSTRUCTION": "<|User|>:{input}<eoh>\n<|Bot|>:",
        "SUFFIX": "<eoa>",
        "SUFFIX_AS_EOS": True,
        "SEP": "\n",
        "STOP_WORDS": ["<eoa>"],
    }


def test_a_source_of_paddlenlp_comes_back() -> None:
    template = turnwise.compile(PADDLENLP, "paddlenlp")
    assert template.convert("paddlenlp") == PADDLENLP == template.source
    assert turnwise.compile(template.convert("paddlenlp")).text == template.text


@needs_corpus
def test_every_source_of_paddlenlp_comes_back() -> None:
    rows = [row for row in corpus.lines("golden/paddlenlp.jsonl") if row["kind"] == "template"]
    assert len(rows) >= 15
    for row in rows:
        try:
            template = turnwise.compile(row["config"], "paddlenlp")
        except turnwise.SourceError:
            assert row["t"] == "docs_custom_system"  # its Jinja is none
            continue
        assert template.convert("paddlenlp") == row["config"], row["t"]


@pytest.mark.parametrize(
    "source",
    [
        {"spelling": "current"},
        'FROM x\nTEMPLATE """{{ .Prompt }}{{ .Response }}"""\n',
    ],
    ids=["internlm2", "ollama"],
)
def test_a_source_of_another_dialect_comes_back(source: Any) -> None:
    dialect = dialects.guess_dialect(source)
    assert turnwise.compile(source, dialect).convert(dialect) == source


@pytest.mark.law(4)
@pytest.mark.parametrize("name", entries(dialect="xtuner"))
def test_xtuner_comes_back_from_its_jinja_alone(name: str) -> None:
    """Nothing but the Jinja of what XTuner does is known, with the bos token after each eos token."""
    reading = xtuner.read(load(name).source, exact=True)
    alone = turnwise.compile(reading.jinja, options=reading.options)
    lost = [] if load(name).source.get("SYSTEM") else ["system text"]
    source = alone.convert("xtuner", without=lost)
    assert turnwise.compile(source, "xtuner").text == load(name).text


@pytest.mark.law
def test_fastchat_comes_back_from_its_jinja_alone(sample: Any) -> None:
    """Nothing but the Jinja is known: what is written renders the same, and mostly has the fields that were read."""
    same, refused = 0, []
    taken = sample(FASTCHAT[::3], 5)
    for name in taken:
        first = fastchat.parse_spec(load(name).source)
        # A style that writes the bos token can be chosen only if its text is known.
        options = {"bos_token": first.style.bos} if first.style.bos else {}
        template = turnwise.compile(load(name).text, options=options)
        source = convert_or_error(template, "fastchat", without=["images", "empty messages"])
        if isinstance(source, turnwise.SourceError):
            refused.append(name)
            continue
        assert disagreements(template, source, "fastchat") == [], name
        second = fastchat.parse_spec(source)
        used = (
            "sep_style",
            "roles",
            "system_template",
            "system_message",
            "messages",
            *first.style.required,
        )
        same += all(getattr(first, key) == getattr(second, key) for key in used)
    # What the default translation of these does better, FastChat does not do.
    assert set(refused) <= {"fastchat:yuan2", "fastchat:gemma"}, refused
    assert same >= 28 or (len(taken) < len(FASTCHAT[::3]) and same), same


@pytest.mark.law
@pytest.mark.parametrize("name", FASTCHAT)
def test_rows_of_fastchat_write_what_their_jinja_writes(name: str) -> None:
    """What the writer fits to turns is what the reader makes of a row."""
    form, cut = fastchat.parse_spec(load(name).source), fastchat_write.MESSAGE
    if form.messages:
        return  # examples are not written
    # The default translation mends GEMMA, which drops a system text.
    for system in (False,) if form.style.system is SystemRule.NEVER else (False, True):
        for speakers in (["user"], ["user", "assistant"], ["user", "assistant", "user"]):
            chat = [
                {"role": role, "content": cut} for role in (["system"] if system else []) + speakers
            ]
            for opening in (False, True):
                written = fastchat_write.render_conversation(form, speakers, system, opening)
                text = load(name).render(chat, add_generation_prompt=opening, bos_token="").text
                assert written == text


def test_turns_that_no_row_of_fastchat_fits() -> None:
    """The writer always has something; it is for `convert` to find out that it is not enough."""
    odd = Turns(
        user=("<u>", Slot("text"), "</u>"),
        generation_prompt="<a>",
        reply_prefix="<b>",
        reply_suffix="</a>",
        prefix="<s>",
    )
    for source in fastchat_write.write(odd):
        assert turnwise.compile(source).render([{"role": "user", "content": "hi"}]).text


# The Jinja, in other engines


def list_probes() -> Iterator[tuple[Probe, bool]]:
    for probe in (*load_probes("turns"), *load_probes("contents")):
        for opening in (False, True):
            yield probe, opening


def without_generation(text: str) -> str:
    """minijinja has no such tag; llama.cpp passes over it."""
    text = re.sub(r"\{%(-?)\s*generation\s*(-?)%\}", r"{%\1 if true \2%}", text)
    return re.sub(r"\{%(-?)\s*endgeneration\s*(-?)%\}", r"{%\1 endif \2%}", text)


def raise_exception(text: str) -> None:
    raise ValueError(text)


@pytest.mark.law
@pytest.mark.parametrize("dialect", ["xtuner", "fastchat", "jinja"])
def test_the_jinja_works_in_minijinja(dialect: str, sample: Any) -> None:
    minijinja = pytest.importorskip("minijinja")
    given = {"raise_exception": raise_exception, "strftime_now": corpus.NOW.strftime}
    engine = minijinja.Environment(
        trim_blocks=True, lstrip_blocks=True, pycompat=True, globals=given
    )
    names = {"fastchat": FASTCHAT, "jinja": OFFICIAL[::8]}
    for name in sample(names.get(dialect, entries(dialect=dialect)), 3):
        template = load(name)
        tokens = {"bos_token": "<bos>", "eos_token": "<eos>", **template.options}
        engine.add_template(name, without_generation(template.convert("jinja")))
        for probe, opening in list_probes():
            try:
                ours = template.render(
                    probe.messages,
                    add_generation_prompt=opening,
                    normalise=False,
                    now=corpus.NOW,
                    **tokens,
                )
            except turnwise.TurnwiseError:
                continue
            if "None" in ours.text:
                continue  # minijinja writes nothing for it
            theirs = engine.render_template(
                name,
                messages=probe.messages,
                tools=None,
                documents=None,
                add_generation_prompt=opening,
                **tokens,
            )
            assert theirs == ours.text, (name, probe.covers, opening)


@pytest.mark.law
@pytest.mark.parametrize("dialect", ["xtuner", "fastchat", "llamafactory"])
def test_the_jinja_works_in_transformers(dialect: str, sample: Any) -> None:
    """`chats()` are what users send; the conformance of our engine is another test's."""
    for name in sample(FASTCHAT if dialect == "fastchat" else entries(dialect=dialect)):
        template = load(name)
        tokens = {"bos_token": "<bos>", "eos_token": "<eos>", **template.options}
        for chat in chats():
            opening = chat[-1]["role"] == "user"
            try:
                ours = template.render(
                    chat, add_generation_prompt=opening, normalise=False, **tokens
                ).text
            except turnwise.TurnwiseError:
                continue
            assert (
                oracle.render(template.text, chat, add_generation_prompt=opening, **tokens) == ours
            ), name
