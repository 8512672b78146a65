"""Code for an interpreter, in a block of Markdown: parsed from a reply, and written as one.

    \\n```python\\nprint(1)\\n```

A model may leave out the fence, the language or a line break. What would be written otherwise than it was read is kept
as it is, under `verbatim`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

FENCE = "```"
DEFAULT_LANGUAGE = "python"
MAX_FIRST_LINE = 256  # a longer one is code


class CodeBlock(NamedTuple):
    """Code, its language, and the text that it was parsed from."""

    code: str
    language: str | None
    text: str

    def fields(self) -> dict[str, Any]:
        """Return the fields of a call: `code`, `lang`, and `verbatim` if the text is not the usual one."""
        found = {"code": self.code, "lang": self.language}
        if self.text != write_code_block(self.code, self.language):
            found["verbatim"] = self.text
        return found


def parse_code_block(text: str) -> CodeBlock:
    """Parse the text of a call; text without a fence is code in no language."""
    core = text.strip()
    first_line, _, rest = core.partition("\n")
    if not core.startswith(FENCE) or len(first_line) > MAX_FIRST_LINE:
        return CodeBlock(text.lstrip(), None, text)
    words = first_line.removeprefix(FENCE).split()
    code = rest.removesuffix(FENCE).removesuffix("\n")
    return CodeBlock(code, words[0] if words else None, text)


def write_code_block(code: str, language: str | None) -> str:
    """Return code in a fence, with the line break before it."""
    return f"\n{FENCE}{language or DEFAULT_LANGUAGE}\n{code}\n{FENCE}"
