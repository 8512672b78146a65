"""Names for the values that a walk looks up, so that each is looked up once on its path.

    if not (kind(m['tool_calls']) == 'list'): return None    if not (kind(t1 := m['tool_calls']) == 'list'): return None
    if not (len(m['tool_calls']) == 1): return None          if not (len(t1) == 1): return None
    out += (m['tool_calls'][0]['name'],)                     out += (t1[0]['name'],)

A question looks its subject up whatever the answer is, so the name holds for all that follows on the path.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

TEXT = r"'(?:[^'\\]|\\.)*'"
LITERAL = r"""'(?:[^'\\]|\\.)*+'?|"(?:[^"\\]|\\.)*+"?"""
INDEX = r"(?:\(\d+ \+ )*(?:\d+|i|\(i [-+] 1\))\)*"
LOOKUP = rf"\b(?:[mw]|M\[{INDEX}\])(?:\[(?:{TEXT}|\d+)\])+"
LOOKUP_OR_LITERAL = re.compile(f"({LOOKUP})|{LITERAL}")
# What a question looks up first, after what it does with it.
SUBJECT = re.compile(rf"(\(c := |(?:kind|len|bool|tuple)\(|(?:{TEXT}|K\d+) in |)({LOOKUP})")


class PathNames(dict[str, str]):
    """The names of values on one path of a walk, by what was looked up.

    Attributes:
        first_keys: the fields of the first message that were written before a loop.
        is_in_round: whether a part of the same round was written before.
    """

    first_keys: Sequence[str] = ()
    is_in_round = False

    def fork(self) -> PathNames:
        """Return the names for a path that leaves this one."""
        names = PathNames(self)
        names.first_keys, names.is_in_round = self.first_keys, self.is_in_round
        return names

    def use(self, source: str) -> str:
        """Return a source with names for what it looks up."""
        return LOOKUP_OR_LITERAL.sub(self._replace, source) if self else source

    def _replace(self, found: re.Match[str]) -> str:
        if (lookup := found[1]) is None:
            return found[0]
        known = max(filter(lookup.startswith, self), key=len, default="")
        return self.get(known, "") + lookup[len(known) :]

    def name_subject(self, question: str) -> str:
        """Return a question with names for what it looks up, one of them for its subject."""
        found = SUBJECT.match(question)
        if found is None or found[2] in self:
            return self.use(question)
        start, lookup = found.groups()
        value = self.use(lookup)
        name = self[lookup] = f"t{len(self)}"
        return f"{start}({name} := {value}){self.use(question[found.end() :])}"
