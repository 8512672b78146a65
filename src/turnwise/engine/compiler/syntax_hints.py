"""What usually causes a syntax error: a hint for each kind of message of the scanner and of jinja2's parser."""

from __future__ import annotations

import re
from collections.abc import Mapping

# The first pattern that is found in a message decides.
SYNTAX_HINTS: Mapping[str, str] = {
    r"unexpected '.', expected '.'": "a bracket that is opened in this tag is not closed before the tag ends",
    r"unexpected '}'": "an expression ends with }} and a statement with %}; "
    "this tag is closed with the other one, or with one character less",
    r"unexpected '[)\]]'": "this bracket was not opened in the same tag",
    r"unexpected character [\"'][\"']": "a text in quotes is not closed, or has its own quote in it; write \\' there",
    r"unexpected character '[\u2018-\u201f]'": "texts take the quotes ' and \"; word processors replace them",
    r"unexpected character '[&!?]'": "operators are words: `and`, `or`, `not`, and `a if condition else b`",
    r"expected token 'name', got '\|'": "operators are words: `or` instead of `||`",
    r"got '='$": "`==` compares; `=` assigns, in {% set %} and in arguments",
    r"expected token 'end of statement block', got 'if'": "a second condition is {% elif condition %}",
    r"unknown tag 'else ?if'": "a second condition is {% elif condition %}",
    r"unknown tag 'end\w*'.{0,400}innermost block": "blocks are closed in the reverse order of their opening",
    r"unknown tag 'end\w*'": "no block is open here: its opening tag is missing, or it is closed twice",
    r"unknown tag": "chat templates have for, if, set, macro, call, filter, with, raw, break, continue and generation; "
    "a value is assigned with {% set name = value %}",
    r"end of template\. .{0,400}innermost block": "add the missing {% end... %} tag, "
    "or remove the one that opens the block",
    r"end of template": "the last tag is not closed: add }} or %}",
    r"(an expression|token 'name'), got 'end of|^unexpected 'end of": "a value or a name is missing "
    "before the end of this tag",
    r"expected token 'end of \w+ \w+', got": "one expression per tag: "
    "an operator, a comma or the end of the tag is missing before this place",
    r"got 'for'": "there are no comprehensions: use a {% for %} loop, or the filters `map` and `select`",
    r"can't assign to": "none, true and false are constants: use another name",
}


def find_syntax_hint(message: str) -> str | None:
    """Return what to do about a syntax error, if that is known for its kind."""
    for pattern, hint in SYNTAX_HINTS.items():
        if re.search(pattern, message):
            return hint
    return None
