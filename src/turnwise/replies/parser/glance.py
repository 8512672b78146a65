"""Whether a reply is nothing but content, seen at a glance.

Most replies of a conversation only say something, and to prepare a parser costs more than to look for a marker. So
whoever reads many short replies looks first. "Plain" is a promise: the parser would give the same text as content, and
nothing else. "Not plain" promises nothing: it is said of every reply with a marker in it, or with white space at its
ends, or that might begin with a call; of every reply whose prompt began it; and of all replies to a template that puts
content between markers.
"""

from __future__ import annotations

from typing import Any

from turnwise.engine.provenance.rendering import Rendering
from turnwise.replies.grammar import Grammar
from turnwise.replies.parser.compiled_grammar import Plan
from turnwise.replies.parser.prefill import begun, header


class Glance:
    """Looks at replies to one template."""

    __slots__ = ("bare", "grammar", "head", "headed", "markers", "wrapped")

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.head = header(grammar)
        self.headed = bool(self.head.strip())
        plan = Plan(grammar)
        self.markers = tuple({form.strip() or form for form in plan.text.tags})
        self.bare = "".join(
            char for layout in plan.layouts for char in layout.bare
        )  # with which a call may begin
        self.wrapped = bool(grammar.content.open or grammar.content.close)

    def plain(self, text: str, prompt: Any = None) -> bool:
        """Whether this text, without the stop at its end, is content."""
        if self.wrapped or not text or text[0].isspace() or text[-1].isspace():
            return False
        if text[0] in self.bare:
            return False
        for marker in self.markers:
            if marker in text:
                return False
        if self.headed and isinstance(prompt, Rendering) and prompt.text.endswith(self.head):
            return True
        return not begun(self.grammar, prompt)
