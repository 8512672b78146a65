"""A small reader of GBNF: decides whether a text is accepted, and makes up texts that are.

It is written from llama.cpp's description of the language and knows nothing of turnwise: rules, texts, classes of
characters, groups, `|`, `* + ?` and `{m,n}`. Texts are decided by Earley's algorithm, character by character.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "[": "[", "]": "]"}
HEX = {"x": 2, "u": 4, "U": 8}
SAMPLES = "aZ09 _.é漢-:/,'(=<\n"  # characters that are tried for a class that leaves some out


@dataclass(frozen=True)
class Chars:
    ranges: tuple[tuple[str, str], ...]
    negated: bool = False

    def accepts(self, sign: str) -> bool:
        return any(low <= sign <= high for low, high in self.ranges) != self.negated

    def pick(self, rng: random.Random) -> str:
        if self.negated:
            return rng.choice([sign for sign in SAMPLES if self.accepts(sign)] or ["~"])
        low, high = rng.choice(self.ranges)
        return chr(rng.randint(ord(low), ord(high)))


@dataclass
class Gbnf:
    """Alternatives of each rule; a symbol is the name of a rule, or a set of characters."""

    rules: dict[str, list[tuple[str | Chars, ...]]] = field(default_factory=dict)
    depths: dict[str, int] = field(default_factory=dict)

    def accepts(self, text: str) -> bool:
        """Whether the whole text is a text of the grammar."""
        nullable = self._nullable()
        chart: list[dict[tuple[str, int, int, int], None]] = [{} for _ in range(len(text) + 1)]
        waiting: list[dict[str, list[tuple[str, int, int, int]]]] = [{} for _ in chart]
        chart[0] = {("root", index, 0, 0): None for index in range(len(self.rules["root"]))}
        for position in range(len(text) + 1):
            items = list(chart[position])
            seen = chart[position]
            while items:
                item = items.pop()
                name, index, dot, start = item
                symbols = self.rules[name][index]
                added: list[tuple[str, int, int, int]] = []
                if dot == len(symbols):
                    for rule, number, place, begun in waiting[start].get(name, ()):
                        added.append((rule, number, place + 1, begun))
                elif isinstance(symbols[dot], str):
                    target = symbols[dot]
                    assert isinstance(target, str)
                    waiting[position].setdefault(target, []).append(item)
                    added += [(target, one, 0, position) for one in range(len(self.rules[target]))]
                    if target in nullable:
                        added.append((name, index, dot + 1, start))
                elif position < len(text) and symbols[dot].accepts(text[position]):  # type: ignore[union-attr]
                    chart[position + 1][(name, index, dot + 1, start)] = None
                for one in added:
                    if one not in seen:
                        seen[one] = None
                        items.append(one)
        return any(
            name == "root" and start == 0 and dot == len(self.rules["root"][index])
            for name, index, dot, start in chart[-1]
        )

    def _nullable(self) -> set[str]:
        found: set[str] = set()
        while True:
            more = {
                name
                for name, options in self.rules.items()
                if name not in found and any(all(one in found for one in row) for row in options)
            }
            if not more:
                return found
            found |= more

    def sample(self, rng: random.Random, budget: int = 60) -> str:
        """A text of the grammar; beyond the budget, the shortest way out is taken."""
        if not self.depths:
            self._measure()
        out: list[str] = []
        stack: list[str | Chars] = ["root"]
        steps = 0
        while stack:
            symbol = stack.pop()
            if isinstance(symbol, Chars):
                out.append(symbol.pick(rng))
                continue
            steps += 1
            options = self.rules[symbol]
            if steps > budget:
                options = [min(options, key=self._depth)]
            stack += reversed(rng.choice(options))
        return "".join(out)

    def _depth(self, row: tuple[str | Chars, ...]) -> int:
        names = [one for one in row if isinstance(one, str)]
        return sum(self.depths.get(one, 10**6) for one in names) + len(row) - len(names)

    def _measure(self) -> None:
        """Find how long the shortest text of each rule is, about; each change is passed on to the users of a rule."""
        users: dict[str, set[str]] = {}
        for name, options in self.rules.items():
            for row in options:
                for one in row:
                    if isinstance(one, str):
                        users.setdefault(one, set()).add(name)
        waiting = list(self.rules)
        while waiting:
            name = waiting.pop()
            best = min(map(self._depth, self.rules[name])) + 1
            if best < 10**6 and best < self.depths.get(name, 10**6):
                self.depths[name] = best
                waiting += users.get(name, ())


class GbnfReader:
    """Reads the text of a grammar."""

    TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|[\w-]+|[()|*+?]|\{\d+,?\d*\})')

    def __init__(self, text: str) -> None:
        self.gbnf = Gbnf()
        for line in text.splitlines():
            name, _, body = line.partition(" ::= ")
            self.tokens = self.TOKEN.findall(body)
            assert "".join(self.tokens) == re.sub(
                r'("(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\])|\s+', lambda m: m.group(1) or "", body
            ), f"cannot read {body!r}"
            self.gbnf.rules[name.strip()] = self.alternatives(name.strip())
            assert not self.tokens, f"cannot read {body!r}"

    def alternatives(self, name: str) -> list[tuple[str | Chars, ...]]:
        rows = [self.sequence(name)]
        while self.tokens[:1] == ["|"]:
            self.tokens.pop(0)
            rows.append(self.sequence(name))
        return rows

    def sequence(self, name: str) -> tuple[str | Chars, ...]:
        row: list[str | Chars] = []
        while self.tokens and self.tokens[0] not in ("|", ")"):
            row += self.repeat_symbols(self.atom(name), name)
        return tuple(row)

    def atom(self, name: str) -> list[str | Chars]:
        token = self.tokens.pop(0)
        if token == "(":
            rows = self.alternatives(name)
            assert self.tokens.pop(0) == ")"
            return [self.new_rule(name, rows)]
        if token[0] == '"':
            return [Chars(((sign, sign),)) for sign in unescape(token[1:-1])]
        if token[0] == "[":
            return [read_class(token[1:-1])]
        return [token]

    def repeat_symbols(self, symbols: list[str | Chars], name: str) -> list[str | Chars]:
        sign = self.tokens[0] if self.tokens else ""
        counts = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if sign in counts:
            least, most = counts[sign]
        elif sign.startswith("{"):
            low, comma, high = sign[1:-1].partition(",")
            least, most = int(low), int(high) if high else None if comma else int(low)
        else:
            return symbols
        self.tokens.pop(0)
        item = self.new_rule(name, [tuple(symbols)])
        row: list[str | Chars] = [item] * least
        if most is None:
            more = self.new_rule(name, [()])
            self.gbnf.rules[more].append((item, more))
            return [*row, more]
        rest = ""
        for _ in range(most - least):
            rows: list[tuple[str | Chars, ...]] = [(), (item, rest) if rest else (item,)]
            rest = self.new_rule(name, rows)
        return [*row, rest] if rest else row

    def new_rule(self, name: str, rows: list[tuple[str | Chars, ...]]) -> str:
        unique = f"{name}/{len(self.gbnf.rules)}"
        self.gbnf.rules[unique] = rows
        return unique


def split_signs(text: str) -> list[tuple[str, bool]]:
    """Characters, and whether each was escaped."""
    found, position = [], 0
    while position < len(text):
        if text[position] != "\\":
            found.append((text[position], False))
            position += 1
            continue
        sign = text[position + 1]
        size = HEX.get(sign, 0)
        if size:
            digits = text[position + 2 : position + 2 + size]
            found.append((chr(int(digits, 16)), True))
        else:
            found.append((ESCAPES[sign], True))
        position += 2 + size
    return found


def unescape(text: str) -> str:
    return "".join(sign for sign, _ in split_signs(text))


def read_class(text: str) -> Chars:
    negated = text.startswith("^")
    signs = split_signs(text[negated:])
    ranges, position = [], 0
    while position < len(signs):
        is_range = position + 2 < len(signs) and signs[position + 1] == ("-", False)
        ranges.append((signs[position][0], signs[position + 2 * is_range][0]))
        position += 3 if is_range else 1
    return Chars(tuple(ranges), negated)


def read_gbnf(text: str) -> Gbnf:
    return GbnfReader(text).gbnf
