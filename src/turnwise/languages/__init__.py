"""What users read, in their language: finished English sentences are translated where they are shown.

The package raises, warns and reports in English, and so do the API and `--json`. The command line and the playground
pass what they show through `translate`. A language is a file beside this one: `zh.json` has, by topic, a Chinese
sentence for each English pattern.

    "{path} cannot be read: {error}": "无法读取 {path}：{error!t}"

`{name}` stands for any text, `{name:d}` for a number, `{name!t}` for a text that is translated in turn. The first topic
is tried first; of the others, the pattern with the most text of its own. Several sentences are translated one by one.
What no pattern fits stays English, and so does a sentence of which a part would stay English.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping
from functools import cache, lru_cache
from string import Formatter
from typing import Any

LANGUAGES = ("en", "zh")
VARIABLES = ("TURNWISE_LANG", "LC_ALL", "LC_MESSAGES", "LANG")
"""Variables of the environment that name a language, as in `zh_CN.UTF-8`; the first that is set counts."""
MAX_LENGTH, MAX_PARTS = 1000, 12  # what is longer, or has more parts, is data
ATOMIC = "(?>"
FIELDS = {
    "capabilities",
    "changes",
    "fix",
    "hint",
    "message",
    "reason",
    "stability",
    "warning",
    "warnings",
}
"""Fields of answers that are sentences for the reader; of an error, `text` is one, too."""
SENTENCES = {r"(?<=[.?!]) (?=\S)": "", "; ": "；"}
LISTS = {", ": "、", " or ": "或"}
"""Patterns of what stands between sentences and between the items of a list, and what is written instead."""
PROSE = re.compile(r"""(?:'[^']*'|"[^"]*"|`[^`]*`|[^'"`])*?\b[a-z]+ [a-z]+ [a-z]+\b""")
"""Three words in a row that are not quoted: English, not a name or a value."""


def find_language(environment: Mapping[str, str]) -> str:
    """Return the language that the environment asks for; English, if it asks for none that is here."""
    asked = next(filter(None, map(environment.get, VARIABLES)), "")[:2]
    return asked if asked in LANGUAGES else "en"


def translate(text: str, language: str) -> str:
    """Return a text in a language, line by line; lines that no pattern fits stay as they are."""
    if language not in LANGUAGES[1:]:
        return text
    lines = text.split("\n")
    for number, line in enumerate(lines):
        sentence = line.strip()
        if len(sentence) <= MAX_LENGTH and (found := _translate_sentence(sentence, language)):
            lines[number] = line.replace(sentence, found, 1)
    return "\n".join(lines)


def translate_answer(answer: dict[str, Any], request: Any) -> dict[str, Any]:
    """Return an answer of the playground in the language that its request names."""
    language = request.get("language") if isinstance(request, dict) else None
    if language not in LANGUAGES[1:]:
        return answer
    names = FIELDS | {"text"} if "error" in answer else FIELDS
    translated: dict[str, Any] = _translate_fields(answer, names, language)
    return translated


def _translate_fields(
    data: Any, names: Container[str], language: str, is_sentence: bool = False
) -> Any:
    """Return JSON data whose texts in fields of some names, alone or in lists, are translated."""
    if isinstance(data, dict):
        return {
            name: _translate_fields(value, names, language, name in names)
            for name, value in data.items()
        }
    if isinstance(data, list):
        return [_translate_fields(one, names, language, is_sentence) for one in data]
    return translate(data, language) if is_sentence and isinstance(data, str) else data


@cache
def read_phrases(language: str) -> list[tuple[str, str, str]]:
    """Return the longest literal text of each pattern, the pattern and its translation, as they are tried."""
    from importlib.resources import files  # slow to import, and not needed for English

    file = files(__name__).joinpath(f"{language}.json")
    phrases = []
    for place, topic in enumerate(json.loads(file.read_text(encoding="utf-8")).values()):
        for english, translated in topic.items():
            literals = [literal for literal, *_ in Formatter().parse(english)]
            rank = place > 0, -sum(map(len, literals))
            phrases.append((rank, max(literals, key=len), english, translated))
    return [phrase[1:] for phrase in sorted(phrases)]


@lru_cache(MAX_LENGTH)
def _translate_sentence(text: str, language: str) -> str | None:
    """Return a sentence, or several, in a language; None if no pattern fits."""
    if found := _translate_parts(text, SENTENCES, language):
        return found
    for anchor, english, translated in read_phrases(language):
        if anchor in text and (values := _compile(english, translated).fullmatch(text)):
            known = values.groupdict()
            turned = {f"{name}_": translate(value, language) for name, value in known.items()}
            # A plain value that is not the subject may be the message of another program.
            left = [
                value
                for name, value in known.items()
                if value in turned.values()
                and (f"{{{name}!t}}" in translated or not values.start(name))
            ]
            if not any(map(PROSE.match, left)):
                return translated.replace("!t}", "_}").format_map(known | turned)
    head, colon, rest = text.partition(": ")
    after = (
        rest
        and rest.count(colon) < MAX_PARTS
        and not PROSE.match(head)
        and _translate_sentence(rest, language)
    )
    return f"{head}{colon}{after}" if after else _translate_parts(text, LISTS, language)


def _translate_parts(text: str, separators: Mapping[str, str], language: str) -> str | None:
    """Return a text whose parts are all known; None if one is not."""
    for separator, glue in separators.items():
        parts = re.split(separator, text)
        if 1 < len(parts) <= MAX_PARTS:
            found = [_translate_sentence(part, language) for part in parts]
            if all(found):
                return re.sub("(?<=或)(?=[a-z])", " ", glue.join(map(str, found)))
    return None


@cache
def _compile(english: str, translated: str) -> re.Pattern[str]:
    """Return what matches a pattern in linear time: a value ends where the text after it begins for the first time."""
    pattern = ""
    for literal, name, spec, _ in Formatter().parse(english):
        # An earlier colon ends another sentence: what stands first has none, unless it is a sentence itself.
        is_place = not (pattern or literal) and f"{{{name}!t}}" not in translated
        value = r"\d[\d,]*" if spec else "(?:(?!: ).)*?" if is_place else ".*?"
        end = ")" if name and ATOMIC in pattern else ""
        pattern += re.escape(literal) + (f"{end}{ATOMIC}(?P<{name}>{value})" if name else "")
    head, _, tail = pattern.rpartition(ATOMIC)
    return re.compile(rf"\A{head}(?:{tail})\Z")
