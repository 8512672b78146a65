"""Targets that read what users and models wrote: templates, conversations, replies, rows of data, arguments."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from random import Random
from typing import Any

import laundering
import random_templates
import turnwise
from harness import Target
from mutations import mutate_bytes, mutate_tree, write_json
from readers import mutate_json, read_seeds, scratch
from turnwise import shapes
from turnwise.tokens.tokenizers import tokenizer

TEMPLATES = (
    "qwen3",
    "llama-3.1",
    "gemma-2",
    "deepseek-v3",
    "internlm2",
    "gpt-oss",
    "mistral-tekken",
    "chatml",
)
REPLY_PARTS = (
    *(
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<|im_end|>",
        "</s>",
        "\n",
        " ",
        "<|channel|>",
        "<|message|>",
    ),
    *(
        '{"name": "look", "arguments": {"a": 1}}',
        '{"name": "look", "arguments": ',
        "[TOOL_CALLS]",
        "<|python_tag|>",
    ),
    *(
        "<function=look>",
        "<parameter=a>",
        "</parameter>",
        "</function>",
        "<｜tool▁calls▁begin｜>",
        "<|action_start|>",
    ),
    *(
        '"',
        "\\",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "<",
        "\\u",
        "\\ud800",
        "1e999",
        "9" * 400,
        "null",
        "NaN",
        "a" * 300,
    ),
    *(
        "[" * 200,
        "{" * 200,
        '{"a":' * 200,
        "<" * 200,
        "\x00",
        "é",
        "😀",
        "look(a=1)",
        "[look(a='b')]",
        "<|eot_id|>",
    ),
)


@cache
def templates() -> tuple[turnwise.Template, ...]:
    """Return templates of several families, as many as there are."""
    found = []
    for name in TEMPLATES:
        with suppress(turnwise.SourceError):
            found.append(turnwise.load(name))
    return tuple(found)


# -- templates ---------------------------------------------------------------------------------------------------------


def make_template(chance: Random) -> bytes:
    number = chance.randrange(2**32)
    return f"{number} {random_templates.template(Random(number))}".encode("utf-8", "surrogatepass")


def run_template(data: bytes) -> None:
    """Render a random template here and with transformers."""
    import jinja_agreement

    number, _, text = data.decode("utf-8", "surrogatepass").partition(" ")
    jinja_agreement.same(text, Random(number).choice(jinja_agreement.CHATS))


def make_laundering(chance: Random) -> bytes:
    return laundering.make_template(chance.randrange(2**32)).encode()


def run_laundering(data: bytes) -> None:
    """No letter of the user's is the template's, and pieces join to the text."""
    template = turnwise.compile(data.decode())
    for content in laundering.USER_TEXTS:
        with suppress(turnwise.TemplateError):
            rendering = template.render([{"role": "user", "content": content}])
            assert "".join(piece.text for piece in rendering.pieces) == str(rendering)
            for piece in rendering.pieces:
                is_own = piece.origin.kind == "template"
                assert not (is_own and laundering.USER_LETTERS.search(piece.text)), piece


# -- conversations and replies -----------------------------------------------------------------------------------------


def run_messages(data: bytes) -> None:
    """Render and encode a request that somebody sent."""
    request = json.loads(data.decode("utf-8", "replace"))
    chance = Random(data)
    template = chance.choice(templates())
    arguments = request if isinstance(request, dict) else {"messages": request}
    messages = arguments.get("messages")
    others = {key: arguments[key] for key in ("tools", "documents") if key in arguments}
    if chance.random() < 0.5:
        template.render(messages, **others, add_generation_prompt=True)
    else:
        template.encode(messages, tokenizer("turnwise"), **others)


def make_messages(chance: Random) -> bytes:
    while True:
        data = mutate_json("messages-*.json", chance)
        with suppress(ValueError, RecursionError):
            json.loads(data.decode("utf-8", "replace"))
            return data


def make_reply(chance: Random) -> bytes:
    parts = [chance.choice(REPLY_PARTS) for _ in range(chance.choice((1, 3, 10, 60)))]
    if chance.random() < 0.6:
        reply = chance.choice(read_seeds("reply-*")).decode()
        at = chance.randrange(len(reply) + 1)
        parts = [reply[:at], *parts[: chance.choice((0, 1, 4))], reply[at:]]
    data = ("".join(parts) * chance.choice((1, 1, 1, 3, 40)))[:60_000].encode(
        "utf-8", "surrogatepass"
    )
    return mutate_bytes(data, chance) if chance.random() < 0.3 else data


def run_reply(data: bytes) -> None:
    """Read a reply at once and in chunks: the same message."""
    reply = data.decode("utf-8", "replace")
    chance = Random(data)
    template = chance.choice(templates())
    tools = json.loads(read_seeds("messages-tools.json")[0])["tools"]
    if chance.random() < 0.5:
        template.parse(reply, tools=tools)
        return
    parser = template.parser(tools=tools)
    at = 0
    while at < len(reply):
        size = chance.choice((1, 2, 7, 100, 5_000))
        list(parser.feed(reply[at : at + size]))
        at += size
    parser.close()


def run_shape(data: bytes) -> None:
    """Read a row of data, and write it again."""
    row = json.loads(data.decode("utf-8", "replace"))
    chance = Random(data)
    shape = chance.choice((None, None, *shapes.SHAPES))
    found = shapes.conversation(row, shape)
    with suppress(turnwise.MessageError):
        shapes.write(found, chance.choice(tuple(shapes.SHAPES)))
    templates()[-1].render(**found.arguments)


def make_shape(chance: Random) -> bytes:
    while True:
        data = mutate_json("shape-*.json", chance)
        with suppress(ValueError, RecursionError):
            json.loads(data.decode("utf-8", "replace"))
            return data


# -- the command line --------------------------------------------------------------------------------------------------

OPTIONS = (
    *(
        "--json",
        "--pieces",
        "--whitespace",
        "--user",
        "--system",
        "--tools",
        "--line",
        "--shape",
        "--option",
        "--now",
    ),
    *(
        "--tokenizer",
        "--to",
        "--pick",
        "--exact",
        "--stream",
        "--help",
        "-h",
        "--version",
        "-g",
        "--strict",
        "--declared",
    ),
    *(
        "--colour",
        "--no-colour",
        "--program",
        "--dialect",
        "--family",
        "--source",
        "--",
        "-",
        "--nope",
        "--us",
        "-x",
    ),
)
WORDS = (
    *(
        "qwen3",
        "chatml",
        "chat.json",
        "row.json",
        "t.jinja",
        "tokenizer.json",
        "e.toml",
        "turnwise",
        "hi",
        "@chat.json",
        ".",
    ),
    *(
        "jinja",
        "fastchat",
        "ollama",
        "openai",
        "2025-01-15",
        "a=1",
        "a=[",
        "1",
        "-1",
        "99999999999999999999",
        "",
        " ",
    ),
    *(
        "\x1b[2J",
        "\u202e",
        "\udc80",
        "²",
        "é",
        "/dev/null",
        "/",
        "nothing.jinja",
        "me/mine",
        "Qwen/Qwen3-8B",
        "a" * 3_000,
    ),
)


def make_arguments(chance: Random) -> bytes:
    from turnwise import cli

    words = [chance.choice((*cli.COMMANDS, *cli.COMMANDS, "nope", "--version"))]
    for _ in range(chance.randrange(8)):
        words.append(chance.choice(OPTIONS if chance.random() < 0.4 else WORDS))
    content = write_json(mutate_tree(CHAT, chance), chance) if chance.random() < 0.5 else b"[]"
    return json.dumps(words).encode() + b"\n" + content


CHAT: list[Any] = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]


def run_arguments(data: bytes) -> None:
    """Call a command: it ends with a code, and shows no traceback."""
    from click.testing import CliRunner

    from turnwise import cli

    first, _, content = data.partition(b"\n")
    words = json.loads(first)
    if words[0] == "demo":  # takes long, and reads nothing
        words[0] = "list"
    folder = scratch() / "cli"
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    for name in ("chat.json", "row.json", "e.toml"):
        (folder / name).write_bytes(content)
    (folder / "t.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    (folder / "tokenizer.json").write_bytes(read_seeds("tokenizer-small.json")[0])
    result = CliRunner().invoke(cli.app, words, input=content)
    assert result.exit_code in (0, 1, 2), result.exit_code
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert "turnwise itself failed" not in result.output, result.output[-500:]
    assert "Traceback" not in result.output


TARGETS: Sequence[Target] = (
    Target("templates", make_template, run_template, "random templates, here and in transformers"),
    # Twelve texts each.
    Target(
        "laundering", make_laundering, run_laundering, "expressions over a user's text", seconds=1.0
    ),
    # They are rendered, followed to their origins, searched for losses and encoded, not only read.
    Target(
        "messages", make_messages, run_messages, "hostile conversations and tools", seconds=0.25
    ),
    Target("replies", make_reply, run_reply, "hostile replies of a model", seconds=0.25),
    Target("shapes", make_shape, run_shape, "rows of data"),
    # Whole commands, which probe templates; `check` and `fix` render some thousand times.
    Target("cli", make_arguments, run_arguments, "arguments of the command line", seconds=2.0),
)
