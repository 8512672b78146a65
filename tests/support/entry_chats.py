"""Conversations that ask a template everything an entry of the registry may differ in.

They need no corpus. Each is one form of input that published templates treat in ways of their own: system messages and
parts, tools with nested schemas, calls with arguments as data or as text, results, reasoning in several keys.
`option_chats` adds the template's own variables, with the constants that it compares them to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jinja2 import nodes

from turnwise.engine.compiler.syntax import parse

Message = dict[str, Any]
COMMON = {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"}
COMMON |= {"bos_token", "eos_token", "pad_token", "unk_token"}
FUNCTIONS = {"raise_exception", "strftime_now", "namespace", "range", "dict", "loop", "caller"}
FOUND = {"system_message"}
"""What many templates assign if there is a system message, and then ask for: not meant to come from outside."""
OPTION_VALUES = (True, False, None, "low", "high", 0, 512)


@dataclass(frozen=True, slots=True)
class EntryChat:
    """A conversation by name, as the arguments of `Template.render`."""

    name: str
    messages: list[Message]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def openings(self) -> tuple[bool, ...]:
        """The values of `add_generation_prompt` to ask for."""
        return (False,) if self.arguments.get("continue_final_message") else (False, True)


def user(content: Any = "Where do knots winter?", **more: Any) -> Message:
    return {"role": "user", "content": content, **more}


def system(content: Any = "You know birds.") -> Message:
    return {"role": "system", "content": content}


def answer(content: Any = "On mudflats.", **more: Any) -> Message:
    return {"role": "assistant", "content": content, **more}


def call(name: str, arguments: Any, number: int = 0) -> Message:
    """A call whose id is what Kimi asks for; others take any."""
    function = {"name": name, "arguments": arguments}
    return {"id": f"functions.{name}:{number}", "type": "function", "function": function}


def result(content: Any, name: str = "count_birds", number: int = 0) -> Message:
    return {
        "role": "tool",
        "name": name,
        "tool_call_id": f"functions.{name}:{number}",
        "content": content,
    }


def text_part(text: str) -> Message:
    return {"type": "text", "text": text}


def built_in_tool(kind: str) -> Message:
    """A tool that GLM-4 knows by its type."""
    return {"type": kind}


COUNT_BIRDS = {
    "type": "function",
    "function": {
        "name": "count_birds",
        "description": 'Counts birds.\nUse it <b>"often"</b> & well; für Vögel 鳥.',
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "Where: 'here' or <there>."},
                "kinds": {
                    "type": "array",
                    "items": {"type": "string", "enum": ["knot", "ruff"]},
                    "description": "Kinds.",
                    "default": [],
                },
                "area": {
                    "type": "object",
                    "description": "A box.",
                    "properties": {
                        "north": {"type": "number", "minimum": -90},
                        "corners": {
                            "type": "array",
                            "items": {"type": "object", "properties": {"x": {"type": "integer"}}},
                        },
                    },
                    "required": ["north"],
                },
                "limit": {"type": ["integer", "null"], "default": 10},
                "night": {"anyOf": [{"type": "boolean"}, {"type": "string"}], "title": "Night"},
            },
            "required": ["place", "kinds"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
TELL_TIME = {"type": "function", "function": {"name": "tell_time", "description": "The time."}}
PLAIN_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "find_nest",
        "description": "Finds a nest.",
        "parameters": {"type": "object", "properties": {"tree": {"type": "string"}}},
        "return": {"type": "object", "properties": {"height": {"type": "number"}}},
    },
}
DEFERRED = {**PLAIN_TOOL["function"], "defer_loading": True}
TOOLS = [COUNT_BIRDS, TELL_TIME]
PLAIN_TOOLS = [PLAIN_TOOL]

ARGUMENTS = {
    "place": 'the "Wash" <east>\nnorth 鳥',
    "kinds": ["knot", "ruff"],
    "area": {"north": 52.5, "corners": [{"x": 1}, {"x": -2}]},
    "limit": None,
    "night": False,
}
BUILT_IN = ("python", "simple_browser", "cogview")
TEXT_ARGUMENTS = '{"place": "the Wash", "kinds": []}'
COUNT = call("count_birds", ARGUMENTS)
COUNT_TEXT = call("count_birds", TEXT_ARGUMENTS)
FIND = call("find_nest", {"tree": "oak"})
TIME = call("tell_time", {}, 1)
TIME_TEXT = call("tell_time", "{}", 1)
TIME_RESULT = result("noon", "tell_time", 1)
THOUGHT = "Knots are waders.\nSo: mud."


def asked_with_tools(**more: Any) -> dict[str, Any]:
    return {"tools": TOOLS, **more}


PLAIN: dict[str, list[Message]] = {
    "question": [user()],
    "answered": [user(), answer()],
    "system": [system(), user()],
    "system alone": [system()],
    "empty system": [system(""), user()],
    "two rounds": [system(), user(), answer(), user("And ruffs?"), answer("In Africa.")],
    "open rounds": [user("a"), answer("b"), user("c"), answer("d"), user("e")],
    "white space": [system(" s \n"), user("\n u "), answer(" a\n\n"), user("v  ")],
    "two systems": [system(), system("Be brief."), user()],
    "later system": [user(), answer(), system("Be brief."), user("Why?")],
    "developer": [{"role": "developer", "content": "Be brief."}, user()],
    "answer first": [answer("Hello."), user()],
    "two questions": [user("a"), user("b"), answer()],
    "two answers": [user(), answer("a"), answer("b")],
    "unknown role": [user(), {"role": "critic", "content": "Hm."}, user("b")],
    "empty texts": [user(""), answer(""), user("b")],
    "no text": [user(), answer(None), user("b")],
    "absent text": [user(), {"role": "assistant"}, user("b")],
    "unicode": [user("Öland 鳥 👩‍🔬 \u2028 <b>&amp;"), answer("é\u0301 \\n {{ x }}")],
    "names": [user(name="ann"), answer(name="bob"), user("b", name="cy")],
    "spelled result": [user(), answer(), user("<tool_response>\n3\n</tool_response>"), answer()],
    "spelled switch": [user("Why? /no_think"), answer("<think>\n\n</think>\n\nSo."), user("b")],
}

PARTS: dict[str, list[Message]] = {
    "text parts": [system([text_part("s")]), user([text_part("a"), text_part("b")])],
    "answer of parts": [user("a"), answer([text_part("b"), text_part("c")]), user("d")],
    "image": [user([{"type": "image"}, text_part("What is it?")]), answer("A knot.")],
    "image address": [
        user([text_part("a"), {"type": "image_url", "image_url": {"url": "u"}}, text_part("b")])
    ],
    "image and video": [
        user([{"type": "image", "image": "i"}, {"type": "video", "video": "v"}, text_part("a")]),
        answer("b"),
        user([{"type": "video", "video": "v"}, {"type": "image", "image": "i"}]),
    ],
    "audio": [user([{"type": "audio", "audio": "s"}, text_part("Which bird?")])],
    "strings in a list": [user(["a", "b"])],
    "no parts": [user([]), answer("a")],
}

REASONING: dict[str, list[Message]] = {
    "reasoning": [user(), answer(reasoning_content=THOUGHT)],
    "reasoning before": [user(), answer(reasoning_content=THOUGHT), user("b"), answer("c")],
    "reasoning twice": [
        system(),
        user(),
        answer(reasoning_content=THOUGHT),
        user("b"),
        answer("c", reasoning_content="\n Hm. \n"),
    ],
    "reasoning, open": [user(), answer("\n\nx", reasoning_content=THOUGHT), user("b")],
    "empty reasoning": [user(), answer(reasoning_content=""), user("b"), answer("c")],
    "no reasoning": [user(), answer(reasoning_content=None), user("b")],
    "key reasoning": [user(), answer(reasoning=THOUGHT), user("b"), answer(reasoning=THOUGHT)],
    "key thinking": [user(), answer(thinking=THOUGHT), user("b"), answer(thinking=THOUGHT)],
    "inline thought": [user(), answer(f"<think>\n{THOUGHT}\n</think>\n\nMud.")],
    "inline thoughts": [
        user(),
        answer(f"<think>{THOUGHT}</think>Mud."),
        user("b"),
        answer("<think>\n\nHm\n\n</think>\n\n\nYes. "),
    ],
    "half a thought": [user(), answer("so</think>\nMud. </think> x"), user("b")],
    "open thought": [user(), answer("<think>so"), user("b")],
}

CALLS: dict[str, list[Message]] = {
    "tools": [user()],
    "tools, system": [system(), user()],
    "tools, empty system": [system(""), user()],
    "tools, system parts": [system([text_part("s")]), user([text_part("a")])],
    "tools, developer": [{"role": "developer", "content": "Be brief."}, user()],
    "tools, rounds": [system(), user(), answer(), user("b")],
    "call": [user(), answer("", tool_calls=[COUNT])],
    "call as text": [user(), answer("", tool_calls=[COUNT_TEXT])],
    "call, no content": [user(), answer(None, tool_calls=[COUNT])],
    "call as text, no content": [user(), answer(None, tool_calls=[COUNT_TEXT])],
    "call, content absent": [user(), {"role": "assistant", "tool_calls": [COUNT]}],
    "text and call": [user(), answer("I look. ", tool_calls=[COUNT])],
    "text and call as text": [user(), answer("I look.", tool_calls=[COUNT_TEXT])],
    "call without arguments": [user(), answer("", tool_calls=[TIME])],
    "two calls": [user(), answer("", tool_calls=[COUNT, TIME])],
    "two calls as text": [user(), answer("", tool_calls=[COUNT_TEXT, TIME_TEXT])],
    "bare call": [user(), answer("", tool_calls=[COUNT["function"]])],
    "no calls": [user(), answer(tool_calls=[]), user("b"), answer(tool_calls=None)],
    "call, result": [user(), answer("", tool_calls=[FIND]), result("high", "find_nest")],
    "call, result, answer": [
        system(),
        user(),
        answer("", tool_calls=[COUNT]),
        result('{"n": 3}'),
        answer("Three."),
    ],
    "as text, call, result, answer": [
        user(),
        answer(None, tool_calls=[COUNT_TEXT]),
        result('{"n": 3}'),
        answer("Three."),
        user("b"),
    ],
    "two calls, two results": [
        user(),
        answer("I look.", tool_calls=[COUNT, TIME]),
        result("3"),
        TIME_RESULT,
        answer("Three."),
        user("Thanks."),
    ],
    "as text, two calls, two results": [
        user(),
        answer("", tool_calls=[COUNT_TEXT, TIME_TEXT]),
        result("3"),
        TIME_RESULT,
    ],
    "result as data": [user(), answer("", tool_calls=[COUNT]), result({"n": [3, None]})],
    "result of parts": [user(), answer("", tool_calls=[COUNT]), result([text_part("3")])],
    "result without a name": [
        user(),
        answer("", tool_calls=[COUNT]),
        {"role": "tool", "content": "3"},
    ],
    "results in a list": [
        user(),
        answer("", tool_calls=[COUNT, TIME]),
        result([{"output": "3"}, {"output": "noon"}]),
    ],
    "call and result of GLM-4": [
        user(),
        answer('{"place": "here"}', metadata="count_birds"),
        {"role": "observation", "content": "3"},
        answer("Three.", metadata=""),
    ],
    "result first": [result("3"), user()],
    "steps": [
        system(),
        user(),
        answer("", reasoning_content="Count first.", tool_calls=[COUNT]),
        result("3"),
        answer("Now the time.", reasoning_content="Then time.", tool_calls=[TIME]),
        TIME_RESULT,
        answer("Three at noon.", reasoning_content="Done."),
        user("b"),
        answer("c", reasoning_content="Easy."),
    ],
    "steps as text": [
        user(),
        answer("", reasoning_content="Count first.", tool_calls=[COUNT_TEXT]),
        result("3"),
        answer("Now the time.", reasoning_content="Then time.", tool_calls=[TIME_TEXT]),
        TIME_RESULT,
    ],
    "steps, open": [
        user(),
        answer("Hm.", reasoning_content=THOUGHT, tool_calls=[FIND]),
        result("high", "find_nest"),
        answer("High.", reasoning_content="Done."),
        user("b"),
    ],
    "thought and call": [user(), answer("", reasoning_content=THOUGHT, tool_calls=[COUNT])],
    "inline thought and call": [user(), answer(f"<think>{THOUGHT}</think>", tool_calls=[COUNT])],
}

OTHER = (
    EntryChat("no tools", [system(), user()], {"tools": []}),
    EntryChat("calls without tools", CALLS["call, result, answer"]),
    EntryChat("steps without tools", CALLS["steps"]),
    EntryChat("plain tool", CALLS["steps, open"], {"tools": PLAIN_TOOLS}),
    EntryChat(
        "tools in a message",
        [{**system(""), "tools": [COUNT_BIRDS, *map(built_in_tool, BUILT_IN)]}, user(), answer()],
    ),
    EntryChat("bare tool", [user()], {"tools": [COUNT_BIRDS["function"]]}),
    EntryChat("tool with more keys", [user()], {"tools": [{**PLAIN_TOOL, "x": 1}, TELL_TIME]}),
    EntryChat(
        "deferred tool",
        [
            user(),
            answer("", tool_calls=[TIME]),
            result([{"type": "tool_reference", "name": "find_nest"}]),
        ],
        {"tools": [TELL_TIME, {"type": "function", "function": DEFERRED}]},
    ),
    EntryChat("documents", [user()], {"documents": [{"title": "T", "text": "Mud.", "id": 1}]}),
    EntryChat("continued", [user(), answer("On mud")], {"continue_final_message": True}),
    EntryChat(
        "continued later",
        [system(), user(), answer(), user("b"), answer(" In Afr ")],
        {"continue_final_message": True},
    ),
    EntryChat(
        "continued thought",
        [user(), answer("<think>\nKnots are")],
        {"continue_final_message": True},
    ),
    EntryChat(
        "continued with tools",
        [*CALLS["call, result"], answer("Three")],
        {"continue_final_message": True, "tools": TOOLS},
    ),
)

CHATS: tuple[EntryChat, ...] = (
    *(EntryChat(name, chat) for group in (PLAIN, PARTS, REASONING) for name, chat in group.items()),
    *(EntryChat(name, chat, asked_with_tools()) for name, chat in CALLS.items()),
    *OTHER,
)

ASKED_WITH_OPTIONS = ("system", "reasoning twice", "steps", "tools, system", "image and video")


def option_chats(source: str) -> Iterator[EntryChat]:
    """Yield a few of the conversations with each variable of a template, in the values that may matter to it."""
    chosen = [chat for chat in CHATS if chat.name in ASKED_WITH_OPTIONS]
    for option, constants in sorted(read_options(source).items()):
        for value in dict.fromkeys((*OPTION_VALUES, *constants)):
            for chat in chosen:
                arguments = {**chat.arguments, option: value}
                yield EntryChat(f"{chat.name}, {option}={value!r}", chat.messages, arguments)


def read_options(source: str) -> dict[str, list[Any]]:
    """Return the variables that a template takes, each with the constants that it is compared to.

    Names of macros, of their parameters and of what is assigned in loops are the template's own. What it assigns
    elsewhere, it takes too if it asks whether it is defined or gives it a default.
    """
    tree = parse(source, "published")
    asked_for = {
        question.node.name
        for question in tree.find_all((nodes.Test, nodes.Filter))
        if question.name in ("defined", "undefined", "default")
        and isinstance(question.node, nodes.Name)
    }
    own = {macro.name for macro in tree.find_all(nodes.Macro)}
    own |= {name.name for name in tree.find_all(nodes.Name) if name.ctx == "param"}
    for loop in tree.find_all(nodes.For):
        own |= _assigned_names(loop)
    taken = {name.name for name in tree.find_all(nodes.Name)} - COMMON - FUNCTIONS - FOUND
    taken -= own | (_assigned_names(tree) - asked_for)
    options: dict[str, list[Any]] = {name: [] for name in taken}
    for comparison in tree.find_all(nodes.Compare):
        if isinstance(comparison.expr, nodes.Name) and comparison.expr.name in options:
            constants = [constant.value for constant in comparison.find_all(nodes.Const)]
            options[comparison.expr.name] += constants
    return options


def _assigned_names(tree: nodes.Node) -> set[str]:
    return {name.name for name in tree.find_all(nodes.Name) if name.ctx == "store"}
