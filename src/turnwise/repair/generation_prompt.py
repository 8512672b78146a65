"""A template that ignores `add_generation_prompt`: what should it write?

The text with which it begins an assistant's turn. It is read off a finished turn, up to the first character of its
content, and added at the end of the template. The proof: without a generation prompt nothing changes; with one, the
text has the opening at its end, and a finished turn begins with exactly the prompt that was served before it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from turnwise.analysis.conversations import Probe, name_values
from turnwise.engine.renderer import Renderer
from turnwise.engine.runtime.limits import raise_if_call_ended
from turnwise.errors import TurnwiseError
from turnwise.repair.edits import Edit, apply_edits, close_tag
from turnwise.repair.output_split import quote
from turnwise.repair.proof import Workbench, WrittenSet, write
from turnwise.repair.trained_turns import name_tokens, to_parts
from turnwise.tokens.boundaries import find_message_spans

GENERATION_PROMPT = "generation-prompt"
FIRST, ONE, SECOND, TWO, RULES = name_values("first", "one", "second", "two", "rules")
CHATS = ([FIRST, ONE], [FIRST, ONE, SECOND, TWO], [RULES, FIRST, ONE])
FIELD = ("messages", 1, "content")
DIFFERENT = "a finished turn does not begin with the opening that a prompt would end with"


class PromptRepair:
    """Finds the generation prompt that a template does not write.

    Args:
        bench: Renders changed templates.
        written: The template as it is.
    """

    name = GENERATION_PROMPT
    what = "the opening of an assistant's turn is written"

    def __init__(self, bench: Workbench, written: WrittenSet) -> None:
        self.bench = bench
        self.written = written
        self.renderer = written.renderer
        self.tokens = name_tokens(written.renderer)
        self.unopened = ""  # what the template writes before a first reply
        self.opening = self._find_opening() if self._ignores_prompt() else ""

    def _is_missing(self) -> bool:
        """Return whether there is a prompt to write, and the template does not; a space before a reply is the model's.

        Some templates always write the opening, or its first markers.
        """
        lengths = range(len(self.opening), 0, -1)
        written = next((n for n in lengths if self.unopened.endswith(self.opening[:n])), 0)
        return bool(self.opening.strip()) and not self.opening[:written].strip()

    @property
    def count(self) -> int:
        """The number of conversations that ask for a prompt and do not get it."""
        asked = [
            text for probe, text in self.written.pairs() if text and probe.add_generation_prompt
        ]
        return len(asked) if self._is_missing() else 0

    def _ignores_prompt(self) -> bool:
        probe = Probe("a prompt", [FIRST], add_generation_prompt=True, options=self.tokens)
        for messages in ([FIRST], [to_parts(FIRST)]):
            probe = replace(probe, messages=messages)
            opened = write(self.renderer, probe)
            if opened is not None:
                self.unopened = opened
                return opened == write(self.renderer, replace(probe, add_generation_prompt=False))
        return False

    def _find_opening(self) -> str:
        """Return the text from the start of an assistant's message to its content."""
        options: dict[str, Any] = dict(self.tokens)
        for messages in ([FIRST, ONE], [to_parts(FIRST), to_parts(ONE)]):
            try:
                rendering = self.renderer.render(messages, **options)
            except TurnwiseError as error:
                raise_if_call_ended(error)
                continue
            span = find_message_spans(rendering.piece_table).get(1)
            places = [
                start
                for start, _ in rendering.spans(
                    where=lambda origin: origin.path is not None and origin.path[:3] == FIELD
                )
            ]
            if span is not None and places:
                return rendering.text[span.start : places[0]]
        return ""

    def find_edits(self) -> tuple[list[Edit], str]:
        """Return the edit that writes the prompt, if it is proved, or why there is none."""
        text = self.written.text
        end = len(text)
        opening = close_tag(text, end, "if add_generation_prompt").text
        edit = Edit(end, end, f"{opening}{{{{ {quote(self.opening)} }}}}{{% endif %}}")
        changed = self.bench.change(apply_edits(text, [edit]))
        if changed is None:
            return [], "the template cannot be continued at its end"
        for probe, before in self.written.pairs():
            wanted = before
            if before is not None and probe.add_generation_prompt:
                wanted = before + self.opening
            if write(changed, probe) != wanted:
                return [], "the end of the template is not where its text ends"
        return ([edit], "") if self._continues(changed) else ([], DIFFERENT)

    def _continues(self, changed: Renderer) -> bool:
        """Whether finished turns begin with the prompt before them."""
        checked = 0
        for chat in CHATS:
            for messages in (chat, [to_parts(message) for message in chat]):
                probe = Probe("a turn", messages, options=self.tokens)
                whole = write(changed, probe)
                before = replace(probe, messages=messages[:-1], add_generation_prompt=True)
                prompt = write(changed, before)
                if whole is None or prompt is None:
                    continue
                checked += 1
                if not whole.startswith(prompt):
                    return False
        return checked > 0
