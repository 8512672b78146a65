"""A template that ignores `add_generation_prompt`: what should it write?

The text with which it begins an assistant's turn. It is read off a finished turn, up to the first character of its
content, and added at the end of the template. The proof: without a generation prompt nothing changes; with one, the
text has the opening at its end, and a finished turn begins with exactly the prompt that was served before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from turnwise.analysis.conversations import Probe, name_tokens, name_values
from turnwise.analysis.counterexample import try_render
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.renderer import Renderer
from turnwise.repair.edits import Edit, apply_edits, close_tag
from turnwise.repair.output_split import quote
from turnwise.repair.proof import Workbench, WrittenSet, write
from turnwise.repair.source_tree import SourceTree
from turnwise.repair.trained_turns import to_parts
from turnwise.tokens.boundaries import find_message_spans

GENERATION_PROMPT = "generation-prompt"
WHAT = "the opening of an assistant's turn is written"
FIRST, ONE, SECOND, TWO, RULES = name_values("first", "one", "second", "two", "rules")
CHATS = ([FIRST, ONE], [FIRST, ONE, SECOND, TWO], [RULES, FIRST, ONE])
DIFFERENT = "a finished turn does not begin with the opening that a prompt would end with"
ELSEWHERE = "the end of the template is not where its text ends"
ASKS = "if add_generation_prompt"


class PromptRepair(NamedTuple):
    """The edit that writes a generation prompt, with the template that it makes, or the reason why that is wrong.

    `asked` is the number of conversations that ask for one and do not get it.
    """

    edit: Edit
    changed: Renderer | None
    reason: str
    asked: int


def find_prompt_repair(bench: Workbench, written: WrittenSet) -> PromptRepair | None:
    """Return how a template gets the generation prompt that it does not write; None if it writes one."""
    options = name_tokens(written.renderer)
    for form in (dict, to_parts):
        chats = [Probe("a turn", [form(one) for one in chat], options=options) for chat in CHATS]
        unopened, opened = (
            write(written.renderer, _ask_before(chats[0], is_open)) for is_open in (False, True)
        )
        if opened is not None:
            break
    if unopened is None or opened != unopened:
        return None
    opening = _find_opening(written.renderer, chats[0])
    # Some templates always write the opening, or its first markers; a space before a reply is the model's.
    lengths = range(len(opening), 0, -1)
    known = next((n for n in lengths if unopened.endswith(opening[:n])), 0)
    if not opening.strip() or opening[:known].strip():
        return None
    asked = sum(bool(text) and probe.add_generation_prompt for probe, text in written.pairs())
    edit = _make_edit(SourceTree(written.text), opening)
    changed = bench.change(apply_edits(written.text, [edit]))
    if changed is None:
        return PromptRepair(edit, None, "the template cannot be continued at its end", asked)
    reason = _find_problem(changed, written, opening, chats)
    return PromptRepair(edit, None if reason else changed, reason, asked)


def _ask_before(chat: Probe, is_open: bool = True) -> Probe:
    """Return a conversation without its reply, with or without a generation prompt."""
    return replace(chat, messages=chat.messages[:-1], add_generation_prompt=is_open)


def _find_opening(renderer: Renderer, chat: Probe) -> str:
    """Return the text from the start of an assistant's message to its content."""
    rendering = try_render(renderer, chat)
    if not isinstance(rendering, Rendering):
        return ""
    field = ("messages", 1, "content")
    span = find_message_spans(rendering.piece_table).get(1)
    places = rendering.spans(lambda origin: origin.path is not None and origin.path[:3] == field)
    return rendering.text[span.start : places[0][0]] if span is not None and places else ""


def _make_edit(tree: SourceTree, opening: str) -> Edit:
    """Return the insertion of a prompt at the end of a template, on lines of its own if it has such."""
    text, end, shown = tree.text, len(tree.text), quote(opening, tree.mark)
    if text.endswith("%}") and "\n{%-" in text:
        return Edit(end, end, "\n" + "\n".join(tree.lay_out([ASKS, shown, "endif"])))
    return Edit(end, end, f"{close_tag(text, end, ASKS).text}{{{{ {shown} }}}}{{% endif %}}")


def _find_problem(
    changed: Renderer, written: WrittenSet, opening: str, chats: Sequence[Probe]
) -> str:
    """Return what is wrong with a template that writes a prompt; empty if finished turns begin with it."""
    for probe, before in written.pairs():
        is_asked = before is not None and probe.add_generation_prompt
        if write(changed, probe) != (f"{before}{opening}" if is_asked else before):
            return ELSEWHERE
    pairs = [(write(changed, chat), write(changed, _ask_before(chat))) for chat in chats]
    whole = [(text, prompt) for text, prompt in pairs if text is not None and prompt is not None]
    return "" if whole and all(text.startswith(prompt) for text, prompt in whole) else DIFFERENT
