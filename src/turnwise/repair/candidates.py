"""The changes that may repair a defect, from the smallest to the largest. Which one is right, the proof decides.

1. A read of the field is wrapped where it stands: `(message.content or '')`.
2. The message is changed at the head of the loop over messages, for templates that read it in many ways.
3. The messages are changed before the template begins.

JSON text cannot be read in Jinja. So arguments that are text can be written as they are where the template would quote
them again; where it writes each argument by its name, there is nothing to be done, and `why_not` says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from turnwise.repair.edits import Edit, close_tag, open_tag
from turnwise.repair.source_tree import Block, Read, ReadFinder, SourceTree, walk_direct

ROOM = re.compile(r"\s*\n([ \t]*)(?:\{%-|\{\{-)")  # between two tags, and not written
CONTENT, ARGUMENTS, TO_JSON = "content", "arguments", "tojson"
OTHER_PARTS = "{0} | rejectattr('type', 'equalto', 'text') | list"
JOINED_TEXTS = "{0} | selectattr('text') | map(attribute='text') | join('\\n')"
ARE_TEXTS = f"{{0}} and {{0}} is iterable and {{0}} is not string and not ({OTHER_PARTS})"
NULL = "({0} or '')"
ONLY_NULL = "({0} if {0} is defined and {0} is not none else '')"
LIST = f"({JOINED_TEXTS} if {ARE_TEXTS} else {{0}})"
AS_TEXT = "({0} if {0} and {0} is string else {0} | {1})"
AS_JSON = f"({{0}} if {{0}} is string else {{0}} | {TO_JSON})"
IN_CALL = "({0} | {1} | replace({2} | {1}, {2}) if {2} and {2} is string else {0} | {1})"


class Candidate(NamedTuple):
    """Edits that may repair a defect together; each can be left out alone.

    `safer` has a longer edit for each, for a place where the short one would change what works.
    """

    what: str
    edits: tuple[Edit, ...]
    safer: tuple[Edit, ...] = ()


class ContentRewrite(NamedTuple):
    """How a message is changed whose content is in a form that the template does not take."""

    condition: str
    content: str


IS_NULL = "({0}.content is not defined or {0}.content is none)"
NULL_MESSAGE = ContentRewrite(IS_NULL, "''")
NULL_REPLY = ContentRewrite(f"{{0}}.role == 'assistant' and {IS_NULL}", "''")
LIST_MESSAGE = ContentRewrite(
    ARE_TEXTS.replace("{0}", "{0}.content"), JOINED_TEXTS.replace("{0}", "{0}.content")
)

Propose = Callable[[SourceTree], Iterator[Candidate]]


def _wrap(
    tree: SourceTree, reads: Sequence[Read], wrapper: str, path: str = ""
) -> tuple[Edit, ...]:
    """Return edits that wrap reads, with their filter if the wrapper has one.

    Args:
        tree: The template.
        reads: What is wrapped.
        wrapper: How, with `{0}` for the read, `{1}` for its filter and `{2}` for the read with `path` after it.
        path: What the wrapper looks at inside of a read.
    """
    edits = []
    for read in reads:
        text = tree.show(read.start, read.end)
        end = read.filter_end if "{1}" in wrapper else read.end
        wrapped = tree.with_own_quotes(wrapper).format(text, read.filter, f"{text}{path}")
        edits.append(Edit(read.start, end, wrapped))
    return tuple(edits)


def _propose_content(
    tree: SourceTree, wrappers: Sequence[str], *rewrites: ContentRewrite
) -> Iterator[Candidate]:
    """Yield changes of what is read as content; of two wrappers, the second is the safer one."""
    plain = [read for read in ReadFinder(tree).find_key(CONTENT) if not read.is_tested]
    first, last = wrappers[0], wrappers[-1]
    safer = _wrap(tree, plain, last)
    yield Candidate("the content is read with a default", _wrap(tree, plain, first), safer)
    for rewrite in rewrites:
        blocks = list(_find_loops(tree))
        heads = [_rewrite_in_loop(tree, block, rewrite) for block in blocks]
        outer = [one for one in plain if not any(b.start < one.start < b.end for b in blocks)]
        edits = (*heads, *_wrap(tree, outer, last))
        yield Candidate("the message gets its content in the loop", edits)
        yield Candidate("the messages get their content first", (_rewrite_first(tree, rewrite),))


def _propose_null(tree: SourceTree) -> Iterator[Candidate]:
    yield from _propose_content(tree, (NULL, ONLY_NULL), NULL_MESSAGE, NULL_REPLY)


def _propose_list(tree: SourceTree) -> Iterator[Candidate]:
    yield from _propose_content(tree, (LIST,), LIST_MESSAGE)


def _find_loops(tree: SourceTree) -> Iterator[Block]:
    """Yield the loops that read the content of their elements."""
    for block in walk_direct(tree.body):
        if isinstance(block, Block) and (name := block.loop_variable):
            text = tree.show(block.start, block.end)
            reads = (".content", "['content']", '["content"]')
            if any(f"{name}{read}" in text for read in reads):
                yield block


def _rewrite_in_loop(tree: SourceTree, block: Block, rewrite: ContentRewrite) -> Edit:
    """Return the change of the message at the head of a loop."""
    tags = _rewriting_tags(block.loop_variable, rewrite)
    return insert_tags(tree, block.sections[0].tag.end, tags)


def _rewriting_tags(name: str, rewrite: ContentRewrite) -> list[str]:
    content = rewrite.content.format(name)
    return [
        f"if {rewrite.condition.format(name)}",
        f"set {name} = dict({name}, content={content})",
        "endif",
    ]


def _rewrite_first(tree: SourceTree, rewrite: ContentRewrite) -> Edit:
    """Return a beginning that changes all messages."""
    return insert_first(
        tree,
        [
            "set changed = namespace(messages=[])",
            "for message in messages",
            *_rewriting_tags("message", rewrite),
            "set changed.messages = changed.messages + [message]",
            "endfor",
            "set messages = changed.messages",
        ],
    )


def insert_tags(tree: SourceTree, place: int, tags: Sequence[str]) -> Edit:
    """Return the insertion of tags after a tag that ends at `place`, on lines of their own if there is room."""
    own = [tree.with_own_quotes(tag) for tag in tags]
    room = ROOM.match(tree.text, place)
    if room is None:
        return close_tag(tree.text, place, " %}{% ".join(own))
    lines = tree.lay_out(own, room[1])
    return Edit(place, place, "".join(f"\n{line}" for line in lines))


def insert_first(tree: SourceTree, tags: Sequence[str]) -> Edit:
    """Return the insertion of tags at the beginning of a template, each on a line of its own."""
    own = [tree.with_own_quotes(tag) for tag in tags]
    head = "".join(f"{line}\n" for line in tree.lay_out(own)[:-1])
    last = open_tag(tree.text, 0, own[-1]).text
    return Edit(0, 0, head + "{%-" + last.removeprefix("{%").lstrip("-+"))


# Arguments


def _propose_text_arguments(tree: SourceTree) -> Iterator[Candidate]:
    """Yield changes that write arguments as they are if they are text."""
    filtered = ReadFinder(tree).find_filtered(TO_JSON)
    what = "arguments that are text are written as they are"
    yield Candidate(what, _wrap(tree, filtered, AS_TEXT))
    for path in (".arguments", ".function.arguments"):
        yield Candidate(what, _wrap(tree, filtered, IN_CALL, path))


def _propose_mapping_arguments(tree: SourceTree) -> Iterator[Candidate]:
    """Yield changes that write a mapping as JSON."""
    reads = ReadFinder(tree).find_key(ARGUMENTS)
    plain = [read for read in reads if not read.is_tested and not read.filter.startswith(TO_JSON)]
    yield Candidate("arguments that are a mapping are written as JSON", _wrap(tree, plain, AS_JSON))


# System texts

IS_SYSTEM = "selectattr('role', 'equalto', 'system')"
OTHERS = "rejectattr('role', 'equalto', 'system')"
JOIN_SYSTEMS = (
    "set joined = namespace(texts=[])",
    "for message in messages",
    "if message.role == 'system' and message.content",
    f"set joined.texts = joined.texts + [{LIST.format('message.content')}]",
    "endif",
    "endfor",
    "set messages = [{'role': 'system', 'content': joined.texts | join('\\n\\n')}]"
    f" + (messages | {OTHERS} | list)",
)
FIND_LATE = (
    "set order = namespace(others=false, late=false)",
    "for message in messages",
    "if message.role != 'system'",
    "set order.others = true",
    "elif order.others and message.content",
    "set order.late = true",
    "endif",
    "endfor",
    "if order.late",
)
FIND_INSTEAD_OF_USER = (  # templates that want users and others to alternate take a system text for a reply
    "set order = namespace(late=false)",
    "for message in messages[1:]",
    "if message.role == 'system' and message.content"
    " and (loop.index0 % 2 == 0) == (messages[0].role == 'system')",
    "set order.late = true",
    "endif",
    "endfor",
    "if order.late",
)
FIND_AFTER_REPLY = (
    *FIND_INSTEAD_OF_USER[:2],
    "if message.role == 'system' and message.content and messages[loop.index0].role == 'assistant'",
    *FIND_INSTEAD_OF_USER[3:],
)
SYSTEM_GUARDS: tuple[tuple[str, ...], ...] = (
    (f"if messages[1:] | {IS_SYSTEM} | selectattr('content') | list",),
    FIND_LATE,
    FIND_INSTEAD_OF_USER,
    FIND_AFTER_REPLY,
    (f"if messages[:1] | {IS_SYSTEM} | list and messages[1:2] | {IS_SYSTEM} | list",),
)


def _propose_systems(tree: SourceTree) -> Iterator[Candidate]:
    """Yield beginnings that join system texts to one at the front."""
    for guard in SYSTEM_GUARDS:
        edit = insert_first(tree, [*guard, *JOIN_SYSTEMS, "endif"])
        yield Candidate("system texts are joined to one at the front", (edit,))


PROPOSALS: Mapping[str, Propose] = {
    "null-content": _propose_null,
    "reasoning-without-content": _propose_null,
    "list-content": _propose_list,
    "string-arguments": _propose_text_arguments,
    "mapping-arguments": _propose_mapping_arguments,
    "late-system": _propose_systems,
}
"""By the name of the defect."""

ONE_BY_ONE = re.compile(r"\bitems\b|\bdictsort\b|in [\w.]*(?:arguments|args)\b")
BY_NAME = "the template writes the arguments one by one, and Jinja cannot read JSON text"
NOTHING_HELPS = "none of the known changes makes it right"
OTHERS_CHANGE = "no change makes it right without changing conversations that are written well now"


def why_not(name: str, text: str, obstacle: str) -> str:
    """Return why no change of a template repairs a defect; `obstacle` is a conversation that would change."""
    if name == "string-arguments" and ONE_BY_ONE.search(text):
        return BY_NAME
    return f"{OTHERS_CHANGE}: {obstacle}" if obstacle else NOTHING_HELPS
