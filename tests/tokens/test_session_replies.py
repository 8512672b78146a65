"""Sessions read replies: reasoning and calls stand in the history as such, and the sampled ids stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

import turnwise
from chatml import CHATML, user
from corpus import NOW, load_published, needs_corpus
from published_templates import template_of
from reply_cases import APART, HISTORY, OPEN, ReplyCase, case_of
from turnwise.errors import TurnwiseError
from turnwise.template import Template
from turnwise.tokens.session import Session
from turnwise.tokens.tokenizers import Tokenizer, tokenizer

pytestmark = pytest.mark.filterwarnings("ignore::turnwise.errors.TurnwiseWarning")

TOOLS = [
    {
        "type": "function",
        "function": {"name": "look", "parameters": {"properties": {"at": {"type": "string"}}}},
    }
]
LOOK = (
    "<think>\nHm.\n</think>\n\nI look.\n"
    '<tool_call>\n{"name": "look", "arguments": {"at": "it"}}\n</tool_call><|im_end|>'
)


@pytest.fixture(scope="module")
def small() -> Tokenizer:
    return tokenizer("turnwise")


def start_session(tok: Tokenizer) -> Session:
    session = template_of("npm-qwen3").session(tok, tools=TOOLS)
    session.prompt([user("what is there?")])
    return session


def render_prompt(session: Session) -> str:
    """The prompt as the template writes the messages now."""
    return session.request.render_prompt(session.messages).text


@needs_corpus
@pytest.mark.parametrize("as_ids", [False, True], ids=["text", "ids"])
def test_history_holds_what_was_meant(as_ids: bool, tokenizers: Callable[[str], Tokenizer]) -> None:
    tok = tokenizers("qwen3")
    session = start_session(tok)
    prompt = list(session.ids)
    reply = tok.whole(LOOK)
    session.add_reply(reply if as_ids else LOOK)
    last = session.messages[-1]
    assert (last["content"], last["reasoning_content"]) == ("I look.", "Hm.")
    assert last["tool_calls"][0]["function"] == {"name": "look", "arguments": {"at": "it"}}
    assert session.ids == prompt + reply
    longer = session.extend([{"role": "tool", "content": "a cat"}])
    assert session.messages[1] == last
    whole = template_of("npm-qwen3").encode(
        session.messages, tok, tools=TOOLS, add_generation_prompt=True
    )
    assert longer == whole.input_ids and longer[: len(prompt + reply)] == prompt + reply
    assert session.text == render_prompt(session)


@needs_corpus
@pytest.mark.parametrize(
    "reply",
    [
        '<tool_call>{"name":"look","arguments":{"at":"it"}}</tool_call><|im_end|>',
        '<tool_call>\n{"arguments": {}, "name": "look"}\n</tool_call><|im_end|>',
        '<tool_call>\n{"name": "look", "arguments": {"at": \n</tool_call><|im_end|>',
    ],
    ids=["no white space", "another order", "broken"],
)
def test_ids_stay_although_the_template_would_write_otherwise(
    reply: str, tokenizers: Callable[[str], Tokenizer]
) -> None:
    """What was read cannot be written as it was sampled: its words can, and stand in the history from then on."""
    session = start_session(tokenizers("qwen3"))
    session.add_reply(reply)
    before = list(session.ids)
    assert "tool_calls" in session.messages[-1]
    assert session.extend([{"role": "tool", "content": "a cat"}])[: len(before)] == before
    assert session.messages[1] == {"role": "assistant", "content": reply.removesuffix("<|im_end|>")}
    assert not session.diverged
    assert session.text == render_prompt(session)


@needs_corpus
@pytest.mark.parametrize(
    "arguments", ['"x"}\n</tool_call><|im_end|>', '{"at": "cut'], ids=["no object", "cut"]
)
def test_arguments_that_are_none_do_not_end_a_session(
    arguments: str, tokenizers: Callable[[str], Tokenizer]
) -> None:
    session = start_session(tokenizers("qwen3"))
    session.add_reply('<tool_call>\n{"name": "look", "arguments": ' + arguments)
    before = list(session.ids)
    assert session.messages[-1]["tool_calls"][0]["function"]["name"] == "look"
    assert session.extend([{"role": "tool", "content": "a cat"}])[: len(before)] == before
    assert session.text == render_prompt(session)


@pytest.mark.parametrize("history", ["same", "keep", "rewrite"])
def test_a_template_that_refuses_what_was_read(small: Tokenizer, history: str) -> None:
    """It takes mappings only, and the call was cut: its words go on as content."""
    refusing = (
        "{% for c in m.tool_calls or [] %}{% if c.function.arguments is string %}{{ raise_exception('no') }}{% endif %}"
        "<call>{{ c.function.name }} {{ c.function.arguments | tojson }}</call>{% endfor %}{{ m.content }}"
    )
    session = turnwise.compile(CHATML.replace("{{ m.content }}", refusing)).session(small)
    session.prompt([user("a")])
    session.add_reply('<call>look {"at": <|im_end|>')
    assert session.messages[-1]["tool_calls"][0]["function"]["arguments"].startswith('{"at":')
    before = list(session.ids)
    ids = session.extend([user("b")], history)
    assert session.messages[1] == {"role": "assistant", "content": '<call>look {"at": '}
    assert history == "rewrite" or ids[: len(before)] == before
    assert session.text == render_prompt(session)


@needs_corpus
def test_ids_that_only_look_like_a_call(tokenizers: Callable[[str], Tokenizer]) -> None:
    tok = tokenizers("qwen3")
    session = start_session(tok)
    words = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
    session.add_reply([*tok.encode(words), tok.id("<|im_end|>")])
    assert session.messages[-1] == {"role": "assistant", "content": words}


def test_messages_that_were_read_may_be_given(small: Tokenizer) -> None:
    """To a session, too, in the shape in which a parser gives them."""
    call = (
        "<|im_start|>{{ m.role }}\n"
        "{% for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}</call>{% endfor %}"
    )
    template = turnwise.compile(CHATML.replace("<|im_start|>{{ m.role }}\n", call))
    reply = '<call>{"name": "look", "arguments": {"at": "it"}}</call><|im_end|>'
    read = template.parse(reply)
    prompts = []
    for given in (None, read, read.as_turn()):
        session = template.session(small)
        session.prompt([user("a")])
        session.add_reply(reply, given)
        prompts.append(session.extend([user("b"), read, user("c")]))
        assert session.text == render_prompt(session)
        assert session.text.count(reply) == 2
    assert prompts[0] == prompts[1] == prompts[2]


@needs_corpus
@pytest.mark.law
def test_a_session_that_parses_goes_on_like_one_given_messages(
    small: Tokenizer, sample: Any
) -> None:
    cases = list(product(load_published(), ("call", "reasoning")))
    taken = sample(cases, 24)
    equal = 0
    for name, kind in taken:
        case = case_of(name, kind)
        if case is None or case.reply == APART or name in OPEN:
            continue
        given, read = (goes_on(template_of(name), case, small, known) for known in (True, False))
        assert given == read or type(given) is str, (name, kind)  # what was told may be refused
        equal += given == read
    print(equal)
    assert equal >= 135 or (len(taken) < len(cases) and equal > 0)


def goes_on(template: Template, case: ReplyCase, tok: Tokenizer, known: bool) -> list[int] | str:
    """The ids of the next prompt, or what was raised."""
    stop = max(template.grammar.stops, key=case.reply.rfind, default="")
    end = case.reply.rfind(stop) + len(stop) if stop in case.reply else len(case.reply)
    read = template.parse(case.reply, case.prompt, case.arguments.get("tools")).get(
        "tool_calls", []
    )
    message, following = case.message, [user("And?")]
    if read:  # ids that the reply does not tell are the parser's
        given = zip(case.message["tool_calls"], read, strict=True)
        message = {
            **case.message,
            "tool_calls": [{**one, "id": other["id"]} for one, other in given],
        }
        following = [
            {"role": "tool", "content": "sun", "name": "get_weather", "tool_call_id": read[0]["id"]}
        ]
    session = template.session(tok, now=NOW, **case.arguments)
    try:
        session.prompt(HISTORY)
        session.add_reply(case.reply[:end], message if known else None)
        return session.extend(following)
    except TurnwiseError as error:
        return type(error).__name__
