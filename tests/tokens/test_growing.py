"""A conversation that grows is encoded from a checkpoint on: the result is that of `encode` in every respect."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

import turnwise
from loaded import load_entry
from turnwise.registry import entries
from turnwise.tokens import growing as growing_module
from turnwise.tokens.growing import GrowingPrompt
from turnwise.tokens.loss import train_nothing

pytestmark = pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")

# Templates that append, that take reasoning out of history, that write the stop at the next turn, and that move things.
TEMPLATES = (
    "chatml", "qwen3", "qwen3-thinking", "deepseek-r1", "deepseek-v3.1", "glm-4.5", "llama-3.1",
    "mistral-v3", "gpt-oss", "kimi-k2",
)  # fmt: skip
FIELDS = (
    "input_ids", "text", "turns", "untrained", "labels", "offsets", "owners", "kept",
    "media", "added_stop", "warnings", "incomplete", "rewritten",
)  # fmt: skip
TAME = ["the", "tide", "is", "low", "at", "noon", "and", "high", "ships", "wait", "outside"]
WILD = [*TAME, "<think>", "</think>", "<|im_end|>", "<|im_start|>", "<s>", "\n\n", "[INST]", "潮"]
KINDS = ["", "wild", "calls", "reasoning", "wild calls reasoning"]
TOOL = {
    "type": "function",
    "function": {
        "name": "tide",
        "description": "Says when it is low.",
        "parameters": {"type": "object", "properties": {"port": {"type": "string"}}},
    },
}


@pytest.fixture
def resumed_calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was encoded from a checkpoint on."""
    results: list[Any] = []
    encode_from = growing_module._encode_from

    def note(*arguments: Any) -> Any:
        encoded = encode_from(*arguments)
        if encoded is not None:
            results.append(encoded)
        return encoded

    monkeypatch.setattr(growing_module, "_encode_from", note)
    return results


def make_text(chance: random.Random, words: list[str], count: int) -> str:
    return " ".join(chance.choice(words) for _ in range(count))


def make_conversation(chance: random.Random, kind: str) -> list[dict[str, Any]]:
    """Return a conversation; `kind` names what it has: "calls", "reasoning", "wild" text."""
    words = WILD if "wild" in kind else TAME
    chat: list[dict[str, Any]] = []
    if chance.random() < 0.7:
        chat.append({"role": "system", "content": make_text(chance, words, 8)})
    for number in range(chance.randint(3, 7)):
        chat.append({"role": "user", "content": make_text(chance, words, 5)})
        for call in range(chance.randint(0, 3) if "calls" in kind else 0):
            name = f"call{number}{call:04}"
            function: dict[str, Any] = {"name": "tide", "arguments": '{"port": "Oslo"}'}
            if chance.random() < 0.3:
                function["arguments"] = {"port": "Oslo", "days": chance.choice([1, True, 1.0])}
            content = make_text(chance, words, 3) if chance.random() < 0.5 else None
            calls = [{"id": name, "type": "function", "function": function}]
            message = {"role": "assistant", "content": content, "tool_calls": calls}
            if "reasoning" in kind:
                message["reasoning_content"] = make_text(chance, words, 4)
            result = {"role": "tool", "tool_call_id": name, "content": make_text(chance, words, 3)}
            chat += [message, result]
        reply = {"role": "assistant", "content": make_text(chance, words, 6)}
        if "reasoning" in kind:
            reply["reasoning_content"] = make_text(chance, words, 5)
        chat.append(reply)
    return [*chat, {"role": "user", "content": make_text(chance, words, 5)}]


def find_prompts(
    chance: random.Random, chat: list[dict[str, Any]], is_ordered: bool
) -> Iterator[list[dict[str, Any]]]:
    """Yield the conversation before each reply; in any order, if it is not to grow only."""
    ends = [index + 1 for index, message in enumerate(chat) if message["role"] in ("user", "tool")]
    if not is_ordered:
        chance.shuffle(ends)
    for end in ends:
        yield [dict(message) for message in chat[:end]]


def change_number(chance: random.Random, prompt: list[dict[str, Any]]) -> None:
    """Put a number in the place of another that is equal, and written in another way."""
    for message in prompt:
        for call in message.get("tool_calls", ()):
            arguments = call["function"]["arguments"]
            if isinstance(arguments, dict):
                other = {**arguments, "days": chance.choice([1, True, 1.0])}
                message["tool_calls"] = [{**call, "function": {"name": "tide", "arguments": other}}]


def encode(template: Any, chat: Any, policy: Any, **arguments: Any) -> Any:
    try:
        return template.encode(chat, "turnwise", policy, **arguments)
    except turnwise.TurnwiseError as error:
        return error


def check_growth(name: str, seed: int, kind: str) -> int:
    """Compare the prompts of one conversation; return how many these are."""
    chance = random.Random(f"{name} {seed} {kind}")
    template, growing = load_entry(name), GrowingPrompt()
    chat = make_conversation(chance, kind)
    options: dict[str, Any] = {"tools": [TOOL]} if "calls" in kind else {}
    prompts = list(find_prompts(chance, chat, seed % 2 == 0))
    for prompt in prompts:
        if chance.random() < 0.1:
            options["enable_thinking"] = chance.random() < 0.5
        if chance.random() < 0.1:
            prompt[chance.randrange(len(prompt))]["content"] = "Another text"
        if chance.random() < 0.1:
            change_number(chance, prompt)
        options["add_generation_prompt"] = chance.random() < 0.9
        options["add_stop"] = chance.random() < 0.2
        policy: Any = train_nothing if chance.random() < 0.7 else "assistant"
        wanted = encode(template, prompt, policy, **options)
        found = encode(template, prompt, policy, growing=growing, **options)
        if isinstance(wanted, turnwise.TurnwiseError):
            assert (type(found), str(found)) == (type(wanted), str(wanted))
            continue
        for field in FIELDS:
            assert getattr(found, field) == getattr(wanted, field), (field, prompt, options)
        assert found.rendering.changes == wanted.rendering.changes
    return len(prompts)


@pytest.mark.slow
def test_many_prompts_are_as_without_growth() -> None:
    """PROMPTS says how many of them: they grow, are edited, and go back to earlier turns."""
    wanted, done = int(os.environ.get("PROMPTS", "50_000")), 0
    for seed in count(2):
        for name in TEMPLATES:
            for kind in KINDS:
                done += check_growth(name, seed, kind)
                if done >= wanted:
                    return


@pytest.mark.law(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_everything_is_as_without_growth(name: str, kind: str) -> None:
    for seed in range(2):
        check_growth(name, seed, kind)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in entries() if ":" not in name])
def test_everything_is_as_without_growth_for_all_entries(name: str) -> None:
    for seed, kind in enumerate(["", "wild", "calls", "calls reasoning", "reasoning", "wild"]):
        check_growth(name, seed, kind)


@pytest.mark.parametrize("name", ["chatml", "qwen3", "deepseek-r1", "glm-4.5", "llama-3.1"])
def test_only_new_turns_are_analysed(name: str, resumed_calls: list[Any]) -> None:
    template = turnwise.load(name)
    # Segments have other trails than the program: the first growth learns them, the second finds them learned.
    for _ in range(2):
        resumed_calls.clear()
        growing = GrowingPrompt()
        chat: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
        for number in range(12):
            chat.append({"role": "user", "content": f"Question {number}"})
            template.encode(chat, "turnwise", growing=growing, add_generation_prompt=True)
            chat.append(
                {
                    "role": "assistant",
                    "content": f"Reply {number}",
                    "reasoning_content": f"Thought {number}",
                }
            )
    assert len(resumed_calls) >= 10
    assert growing.prefix is not None
    last = growing.prefix.checkpoints[-1]
    assert last.message >= len(chat) - 4


def test_forks_do_not_disturb_one_another() -> None:
    template, growing = turnwise.load("qwen3"), GrowingPrompt()
    chat = [{"role": "user", "content": f"Question {number}"} for number in range(4)]
    template.encode(chat, "turnwise", growing=growing)
    prefix = growing.prefix
    assert prefix is not None
    kept = (list(prefix.ids), list(prefix.rows), list(prefix.checkpoints), prefix.size)
    for text in ("left", "right"):
        longer = [*chat, {"role": "user", "content": text}]
        found = template.encode(longer, "turnwise", growing=GrowingPrompt(prefix))
        assert found.input_ids == template.encode(longer, "turnwise").input_ids
    assert kept == (list(prefix.ids), list(prefix.rows), list(prefix.checkpoints), prefix.size)


def test_two_conversations_may_be_encoded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is encoded while another, of as many messages, is about to be: threads do so."""
    template, shared = load_entry("qwen3"), GrowingPrompt()
    ours, theirs = (
        [*make_conversation(random.Random(1), "calls"), {"role": "user", "content": name}]
        for name in ("ours", "theirs")
    )
    encode = GrowingPrompt.encode

    def encode_theirs_first(self: GrowingPrompt, *arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(GrowingPrompt, "encode", encode)
        template.encode(theirs, "turnwise", growing=shared)
        return encode(self, *arguments, **named)

    monkeypatch.setattr(GrowingPrompt, "encode", encode_theirs_first)
    for chat in (ours, theirs, ours):
        encoded = template.encode(chat, "turnwise", growing=shared)
        assert encoded.input_ids == template.encode(chat, "turnwise").input_ids


@pytest.mark.parametrize("days", [1, 1.0, True])
def test_prompts_of_equal_numbers_are_others(days: object) -> None:
    """A generation prompt in the loop over messages is found by comparing the whole prompt."""
    in_loop = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for call in m.tool_calls or [] %}"
        "{{ call.function.name }}{{ call.function.arguments.days }}{% endfor %}<|im_end|>\n"
        "{% if loop.last and add_generation_prompt %}<|im_start|>assistant\n{% endif %}{% endfor %}"
    )
    template, growing = turnwise.compile(in_loop), GrowingPrompt()
    chat: list[Any] = [{"role": "user", "content": "Tides?"}]
    for number in (1, days):
        call = {"type": "function", "function": {"name": "tide", "arguments": {"days": number}}}
        called = {"role": "assistant", "content": "", "tool_calls": [call]}
        chat = [*chat[:1], called, {"role": "tool", "content": "High"}, *chat[3:]]
        chat += [{"role": "assistant", "content": "High."}, {"role": "user", "content": "Bye"}]
        found = template.encode(chat[:-2], "turnwise", add_generation_prompt=True, growing=growing)
        assert (
            found.turns == template.encode(chat[:-2], "turnwise", add_generation_prompt=True).turns
        )


def test_losses_before_the_first_written_message_are_told() -> None:
    only_replies = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% if m.role == 'assistant' %}{{ m.content }}{% endif %}<|im_end|>{% endfor %}"
    )
    template, growing = turnwise.compile(only_replies), GrowingPrompt()
    chat: list[Any] = [{"role": "user", "content": f"lost {number}"} for number in range(2)]
    for _ in range(4):
        template.encode(chat, "turnwise", growing=growing)
    for number in range(3):
        chat.append({"role": "assistant", "content": f"reply {number}"})
        told = template.encode(chat, "turnwise", growing=growing).warnings
        assert told == template.encode(chat, "turnwise").warnings and "messages[1]" in told[0]


def test_a_template_that_writes_old_messages_anew_is_not_taken_at_its_word() -> None:
    text = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% if loop.index0 == messages | length - 3 %}(soon over) {% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    template, growing = turnwise.compile(text), GrowingPrompt()
    chat: list[dict[str, str]] = []
    for number in range(8):
        chat.append({"role": "user", "content": f"Question {number}"})
        found = template.encode(chat, "turnwise", growing=growing, add_generation_prompt=True)
        wanted = template.encode(chat, "turnwise", add_generation_prompt=True)
        assert found.input_ids == wanted.input_ids
        chat.append({"role": "assistant", "content": f"Reply {number}"})


def test_a_text_that_is_the_same_by_another_author_is_another() -> None:
    """Both prompts begin with the same text; in the second, messages spell what the template wrote in the first."""
    text = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if messages | length < 5 %}<|im_end|>"
        "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    )
    template, growing = turnwise.compile(text), GrowingPrompt()
    chat = [{"role": "user", "content": "<|im_end|>"}] * 5
    first = template.encode(chat[:4], "turnwise", growing=growing)
    second = template.encode(chat, "turnwise", growing=growing)
    assert second.text.startswith(first.text)
    assert second.input_ids == template.encode(chat, "turnwise").input_ids
    assert second.input_ids[: len(first)] != first.input_ids


def test_what_is_kept_does_not_grow_with_the_values_of_an_option() -> None:
    template, growing = (
        turnwise.compile("{{ stamp }}" + turnwise.load("qwen3").text),
        GrowingPrompt(),
    )
    kept = []
    for stamp in range(40):
        for _ in range(3):
            template.encode(
                [{"role": "user", "content": "Hi"}], "turnwise", growing=growing, stamp=str(stamp)
            )
        prefix = growing.prefix
        assert prefix is not None and prefix.chat.read is not None
        kept.append(len(prefix.chat.read.memory or {}))
    assert 0 < kept[0] < max(kept) <= growing_module.MAX_CHECKPOINTS + kept[0]


SOME = "messages[:4]"
MESSAGE = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
WRITTEN_BEFORE = {
    "a block": f"{{% set all %}}{{% for m in {SOME} %}}{MESSAGE}{{% endfor %}}{{% endset %}}{{{{ all }}}}",
    "a filter": f"{{% filter trim %}}{{% for m in {SOME} %}}{MESSAGE}{{% endfor %}}{{% endfilter %}}",
    "a caller": f"{{% macro each() %}}{{% for m in {SOME} %}}{{{{ caller(m) }}}}{{% endfor %}}{{% endmacro %}}"
    f"{{% call(m) each() %}}{MESSAGE}{{% endcall %}}",
    "a list": "{% set ns = namespace(all=[]) %}"
    f"{{% for m in {SOME} %}}{{% set ns.all = ns.all + [m] %}}{{% endfor %}}"
    f"{{% for m in ns.all %}}{MESSAGE}{{% endfor %}}",
    "copies": "{% set ns = namespace(all=[]) %}"
    f"{{% for m in {SOME} %}}{{% set ns.all = ns.all + [{{'role': m.role, 'content': m.content}}] %}}{{% endfor %}}"
    f"{{% for m in ns.all %}}{MESSAGE}{{% endfor %}}",
    "batches": f"{{% for some in {SOME}|batch(2) %}}{{% for m in some %}}{MESSAGE}{{% endfor %}}{{% endfor %}}",
    "groups": f"{{% for _, some in {SOME}|groupby('role') %}}{{% for m in some %}}{MESSAGE}"
    "{% endfor %}{% endfor %}",
    "one of a list": "{% for m in [messages[3] or messages[0]] %}" + MESSAGE + "{% endfor %}",
    "the same loop": "{% for m in messages %}" + MESSAGE + "{% endfor %}",
}


@pytest.mark.parametrize("late", [2, 4])
@pytest.mark.parametrize("way", WRITTEN_BEFORE)
def test_a_message_that_is_written_twice_has_its_first_place(way: str, late: int) -> None:
    """The last replies are written in another way, so history changes, and growth goes back."""
    opening = f"{{% if m.role == 'assistant' and loop.revindex0 < {late} %}}<t>{{% endif %}}"
    text = (
        WRITTEN_BEFORE[way]
        + "{% for m in messages %}"
        + MESSAGE.replace("{{ m.content", opening + "{{ m.content")
        + "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    template = turnwise.compile(text)
    roles = ["user", "assistant"] * 5
    for chat in (
        [{"role": role, "content": f"Text {number}"} for number, role in enumerate(roles)],
        [{"role": "system", "content": "Be brief."}]
        + [{"role": role, "content": f"Text {number}"} for number, role in enumerate(roles)],
    ):
        for asks in (False, True):
            growing = GrowingPrompt()
            for end in [*range(1, len(chat)), 6, 9, 5]:
                options = {"add_generation_prompt": asks}
                found = template.encode(chat[:end], "turnwise", growing=growing, **options)
                wanted = template.encode(chat[:end], "turnwise", **options)
                for field in ("input_ids", "labels", "turns", "owners"):
                    assert getattr(found, field) == getattr(wanted, field), (field, end, asks)


USERS = [{"role": "user", "content": f"Question {number}"} for number in range(6)]
GROWN = [one for user in USERS for one in (user, {"role": "assistant", "content": "Reply"})]
REWRITTEN = f"{{% for m in messages %}}{MESSAGE}{{% endfor %}}"
START = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


def check_same_turns(text: str, *chats: list[dict[str, str]]) -> None:
    template, growing = turnwise.compile(text), GrowingPrompt()
    for chat in chats:
        for asks in (True, False):
            wanted = template.encode(chat, "turnwise", add_generation_prompt=asks)
            for _ in range(2):
                found = template.encode(
                    chat, "turnwise", add_generation_prompt=asks, growing=growing
                )
                assert (found.turns, found.labels) == (wanted.turns, wanted.labels), len(chat)


def test_a_message_that_is_written_again_at_the_end_does_not_end_a_prompt() -> None:
    """What the last message gets is in no conversation that goes on, so the ends of prompts are compared."""
    last = MESSAGE.replace("<|im_end|>", "{% if loop.last %}!{% endif %}<|im_end|>")
    again = "{% for m in messages[:1] %}{{ m.content }}<|im_end|>\n{% endfor %}"
    text = f"{{% for m in messages %}}{last}{{% endfor %}}{again}{START}"
    check_same_turns(text, *[GROWN[:end] for end in range(1, len(GROWN), 2)])


@pytest.mark.parametrize("condition", ["", " if m.role != 'system'", " if messages | length > 4"])
def test_users_that_are_written_before_all(condition: str) -> None:
    """A checkpoint among the users comes before the replies that come before it in the conversation."""
    users = (
        f"{{% for m in messages | selectattr('role', 'equalto', 'user') %}}{MESSAGE}{{% endfor %}}"
    )
    text = f"{users}{{% for m in messages{condition} %}}{MESSAGE}{{% endfor %}}{START}"
    chat = [{"role": "system", "content": "Be brief."}, *GROWN]
    check_same_turns(text, chat[:9], chat[:4], chat[:2], chat[:5], chat[:7], chat)


def test_a_changed_message_has_another_prompt_though_its_text_is_the_same() -> None:
    thinks = START.replace(
        "{% endif %}", "{% if '/think' in messages[-1].content %}<think>{% endif %}{% endif %}"
    )
    text = REWRITTEN.replace("m.content", "m.content | replace('/think', '')") + thinks
    for changed in (2, 4):
        chat = [*GROWN[:changed], {"role": "user", "content": f"Question {changed // 2}/think"}]
        check_same_turns(text, GROWN[:9], [*chat, *GROWN[changed + 1 : 9]], GROWN[:9])


def test_a_round_that_begins_with_the_message_before_it() -> None:
    filler = "filler that is long, and goes on for more than any token or stop may reach; "
    again = (
        "{% if loop.index0 > 1 %}{% for n in messages[loop.index0 - 1:loop.index0] %}"
        f"<|im_start|>again {{{{ n.content }}}}{filler}{{{{ messages | length }}}}<|im_end|>"
        "{% endfor %}{% endif %}"
    )
    text = f"{{% for m in messages %}}{again}{MESSAGE}{{% endfor %}}{START}"
    check_same_turns(text, *[GROWN[:end] for end in range(1, len(GROWN) + 1)])
