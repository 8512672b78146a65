"""A table from ids and patterns of models to templates.

An id is looked up

1. as it is;
2. among patterns that include the organisation (`me/*`), which only users' entries have;
3. in its normal form (the part after the last slash, in lower case, `-` for `_`, without suffixes of quantisations),
   so that copies by other people and local folders are found;
4. among patterns of that form, the more specific ones first.

In a pattern of a built-in entry `*` stands for sizes, versions, dates and the like (`PLAIN_WORD`), and not for any
text: `llama-3.1-*instruct*` fits `Llama-3.1-70B-Instruct`, not `Llama-3.1-Swallow-8B-Instruct`, whose makers trained it
again, perhaps with another template. `**` stands for any text, and so does each `*` in a pattern that a user wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from typing import Literal, NamedTuple

Kind = Literal["base", "chat"]
MatchedBy = Literal["id", "normal form", "pattern", "text", "rule"]

WILDCARDS = "*?["
ANY_TEXT = "**"
CHARACTER_SET = r"\[[^]]*+(?:\]|\Z)"
# Texts, not compiled patterns, to keep `import turnwise` cheap; `re` caches what it compiled.
QUANTISATION_SUFFIX = (
    r"(?:[-.](?:gguf|gptq|awq|autoawq|autoround|marlin|exl[23]|mlx|onnx|ov|openvino|hqq|aqlm|torchao|hf|unsloth|ud|dynamic"
    r"|imatrix|i1|bnb|nf4|nvfp4(?:a16)?|mxfp4|mxfp8|fp4|fp8|fp16|bf16|f16|f32|w[48]a(?:8|16|fp8)|g128|128g"
    r"|quantized|unquantized|qat|block|static|kv|int[48]|[2-8](?:\.\d+)?-?(?:bits?|bpw)"
    r"|i?q[1-8](?:-[01kx](?:[slxm]|-?[slxm]+)?)?(?:-[sml])?|iq[1-4]-[xsmnl]+))+$"
)
PLAIN_WORD = (
    r"\d+(?:\.\d+)*[bmkt]?"  # 8, 2.5, 70b, 128k, 1m, 2507
    r"|\d+x\d+(?:\.\d+)?b|[ae]\d+(?:\.\d+)?[bm]"  # 8x7b, a3b, e4b
    r"|[vr]\d+(?:\.\d+)*"  # v0.1
    r"|instruct|chat|it|hf|ms|preview|latest"
)

# Of a name that a rule of other software fits by one word: a bare number is often another generation of models.
RULE_WORD = r"\d+(?:\.\d+)*[bmk]|\d+x\d+b|v\d+(?:\.\d+)*|instruct|chat|it|hf|"

NOT_CHAT = (
    r"(?:^|[-.])(?:embed(?:ding|der)?s?|re-?rank(?:er|ing)?|reward|rm|cls|classifier|bge|gte|e5|colbert|siglip\d?|clip|vit"
    r"|dinov?\d?|whisper|wav2vec\d?|t5|bart|\w*bert(?:a|v\d)?|retriever|tokenizer)(?:$|[-.])"
)
"""Names of models that do not chat: what they have of a template is an inheritance."""


class ModelRow(NamedTuple):
    """One row of a table: an id or a pattern of models, and their template."""

    pattern: str
    entry: str
    kind: Kind
    reason: str
    star: bool = False
    any_words: bool = True  # False if `*` stands for plain words only

    def allows(self, name: str) -> bool:
        """Return whether the words of a name that fits the pattern are those of the pattern, or plain ones."""
        if self.any_words or ANY_TEXT in self.pattern:
            return True
        fixed = re.split(r"[-*?]", re.sub(CHARACTER_SET, "*", self.pattern.lower()))
        return all(
            word in fixed or re.fullmatch(PLAIN_WORD, word) or not word for word in name.split("-")
        )


class ModelTable:
    """Rows with indexes by id and by normal form, and the patterns in the order in which they are tried."""

    def __init__(self, rows: Iterable[ModelRow]) -> None:
        self.by_id: dict[str, ModelRow] = {}
        self.by_normal_form: dict[str, ModelRow] = {}
        patterns = []
        for row in rows:
            if any(wildcard in row.pattern for wildcard in WILDCARDS):
                patterns.append(row)
                continue
            self.by_id.setdefault(row.pattern, row)
            self.by_normal_form.setdefault(normal_form(row.pattern), row)
        patterns.sort(key=lambda row: specificity(row.pattern), reverse=True)
        self.name_patterns = [row for row in patterns if "/" not in row.pattern]
        self.owner_patterns = [row for row in patterns if "/" in row.pattern]
        self.first_letters = {row.pattern[0].lower() for row in self.name_patterns} - {*WILDCARDS}
        self.compiled: dict[str, tuple[re.Pattern[str], list[ModelRow]]] = {}

    def find(self, model: str) -> tuple[ModelRow, MatchedBy] | None:
        """Return the row of a model, and how it was found."""
        if row := self.by_id.get(model):
            return row, "id"
        name = normal_form(model)
        if self.owner_patterns and (row := self._match_owner(model, name)):
            return row, "pattern"
        if row := self.by_normal_form.get(name):
            return row, "normal form"
        pattern, rows = self._patterns_for(name[:1])
        found = pattern.fullmatch(name)
        if found is None or found.lastindex is None:
            return None
        for row in rows[found.lastindex - 1 :]:  # the first of them fits
            if row.allows(name) and fnmatchcase(name, row.pattern.lower()):
                return row, "pattern"
        return None

    def _match_owner(self, model: str, name: str) -> ModelRow | None:
        """Return the row whose pattern with an organisation fits the id, or the id with the normal form of its name."""
        owner, slash, own_name = model.strip().lower().rpartition("/")
        if not slash:
            return None
        for row in self.owner_patterns:
            pattern = row.pattern.lower()
            if fnmatchcase(f"{owner}/{own_name}", pattern) or fnmatchcase(
                f"{owner}/{name}", pattern
            ):
                return row
        return None

    def _patterns_for(self, letter: str) -> tuple[re.Pattern[str], list[ModelRow]]:
        """Return the patterns that can fit a first letter as one expression, in which group n is the n-th row."""
        if letter not in self.first_letters:
            letter = ""
        if letter not in self.compiled:
            first = letter + WILDCARDS
            rows = [row for row in self.name_patterns if row.pattern[0].lower() in first]
            groups = [f"({translate(row.pattern.lower())})" for row in rows]
            self.compiled[letter] = re.compile("|".join(groups) or "(?!)"), rows
        return self.compiled[letter]


@lru_cache(maxsize=8)  # each source asks for the form of the same id
def normal_form(model: str) -> str:
    """Return an id as patterns see it: its last part in lower case, `-` for `_`, without suffixes of quantisations."""
    path = model.strip().rstrip("/").replace("\\", "/")
    name = path.rpartition("/")[2].lower().replace("_", "-").replace(" ", "-")
    return re.sub(QUANTISATION_SUFFIX, "", name) or name


def chats(model: str) -> bool:
    """Return False if the name of a model says that it embeds, ranks or judges texts, or is no language model."""
    return re.search(NOT_CHAT, normal_form(model)) is None


def rest_is_plain(model: str, words: Iterable[str]) -> bool:
    """Return whether a name has no word beside some words but sizes, versions and the like."""
    rest = set(normal_form(model).split("-")).difference(words)
    return all(re.fullmatch(RULE_WORD, word) for word in rest)


def specificity(pattern: str) -> tuple[int, int]:
    """Return a sort key: the number of fixed characters of a pattern, then of its character sets."""
    rest, sets = re.subn(CHARACTER_SET, "", pattern)
    return len(rest) - rest.count("*") - rest.count("?"), sets
