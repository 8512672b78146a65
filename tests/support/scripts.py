"""The same conversations in eight scripts, and what every guard of data says of them.

Which text a template drops does not depend on the script that it is written in, so neither may what is said of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import turnwise
from corpus import NOW
from data_batches import make_batch, make_recipe
from label_law import full_tokenizer
from turnwise.analysis.conversations import Probe
from turnwise.data.kernel import Kernel
from turnwise.errors import WarningLog
from turnwise.evidence.checks.subject import Subject
from turnwise.evidence.scan import RowScanner


class Words(NamedTuple):
    """Texts of one script; no one contains another."""

    system: str
    question: str
    thought: str
    answer: str
    beside: str
    value: str
    found: str
    described: str


SCRIPTS = {
    "latin": Words(
        "Answer in brief.",
        "When is high water?",
        "I must look that up in the tables first.",
        "At noon, and again past midnight.",
        "Let me have a look.",
        "Brest",
        "07:41 and 20:03",
        "Tides of a harbour",
    ),
    "han": Words(
        "请简短地回答。",
        "什么时候涨潮？",
        "我需要先查一下今天的潮汐表再说。",
        "中午一次，午夜之后还有一次。",
        "让我查一下。",
        "布雷斯特",
        "早上七点四十一分",
        "港口的潮汐",
    ),
    "kana": Words(
        "みじかくこたえて。",
        "まんちょうはいつですか？",
        "まずしおのひょうをしらべなければならない。",
        "おひるです、そしてまよなかのあと。",
        "しらべてみます。",
        "ブレスト",
        "しちじよんじゅういっぷん",
        "みなとのしおのこと",
    ),
    "cyrillic": Words(
        "Отвечай кратко.",
        "Когда прилив?",
        "Мне нужно сначала посмотреть таблицу.",
        "В полдень, и ещё раз после полуночи.",
        "Сейчас посмотрю.",
        "Брест",
        "утром и вечером",
        "Приливы в гавани",
    ),
    "arabic": Words(
        "أجب باختصار.",
        "متى يكون المد؟",
        "يجب أن أبحث عن ذلك في الجداول أولا.",
        "عند الظهر ومرة أخرى بعد منتصف الليل.",
        "دعني ألقي نظرة.",
        "بريست",
        "صباحا ومساء",
        "المد والجزر في الميناء",
    ),
    "devanagari": Words(
        "संक्षेप में उत्तर दो।",
        "ज्वार कब आता है?",
        "मुझे पहले तालिका में देखना होगा कि क्या लिखा है।",
        "दोपहर को, और फिर आधी रात के बाद।",
        "मैं देखता हूँ।",
        "ब्रेस्ट",
        "सुबह और शाम",
        "बंदरगाह के ज्वार",
    ),
    "greek": Words(
        "Απάντησε σύντομα.",
        "Πότε είναι η πλημμυρίδα;",
        "Πρέπει πρώτα να το ψάξω στους πίνακες.",
        "Το μεσημέρι, και πάλι μετά τα μεσάνυχτα.",
        "Θα κοιτάξω τώρα.",
        "Βρέστη",
        "πρωί και βράδυ",
        "Παλίρροιες στο λιμάνι",
    ),
    "emoji": Words(
        "🤏🗨️✅",
        "🌊⬆️🕰️❓",
        "🤔🔍📚🌊🧭⚓🛟🔭🗺️📈📉🗓️🌙🌞🌒🌓🌔🌕🌖🌗",
        "🕛☀️➕🕧🌑🐚🦀🐟🐬🐳🦑🦐🐙🦞🐡",
        "👀🔎⏳",
        "🏰🇫🇷",
        "🕢➕🕗🌅🌇",
        "⚓🌊📖🧮",
    ),
}


class ScriptChat(NamedTuple):
    """A conversation, with its tools."""

    name: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None


def make_chats(words: Words) -> Iterator[ScriptChat]:
    """Yield conversations of which templates lose different parts."""
    user = {"role": "user", "content": words.question}
    reply = {"role": "assistant", "content": words.answer}
    thinking = {**reply, "reasoning_content": words.thought}
    yield ScriptChat("plain", [{"role": "system", "content": words.system}, user, reply])
    yield ScriptChat("reasoning", [user, thinking, user, thinking])
    equal = {**thinking, "reasoning_content": words.answer}
    yield ScriptChat("equal reasoning", [user, equal, user, reply])
    inside = {**reply, "content": f"<think>\n{words.thought}\n</think>\n\n{words.answer}"}
    yield ScriptChat("reasoning in the content", [user, inside, user, inside])
    parts = [{"type": "text", "text": words.question}, {"type": "text", "text": words.value}]
    yield ScriptChat("parts", [{**user, "content": parts}, reply])
    function = {"name": "tide", "arguments": {"harbour": words.value, "days": [words.beside]}}
    call = {"id": "abcdefghi", "type": "function", "function": function}
    calling = {"role": "assistant", "content": words.beside, "tool_calls": [call]}
    result = {"role": "tool", "content": words.found, "tool_call_id": "abcdefghi", "name": "tide"}
    properties = {"harbour": {"type": "string", "description": words.system}}
    schema = {"type": "object", "properties": properties}
    tool = {"name": "tide", "description": words.described, "parameters": schema}
    tools = [{"type": "function", "function": tool}]
    yield ScriptChat("calls", [user, calling, result, reply], tools)
    named = {**call, "function": {**function, "name": words.value}}
    two = [call, {**named, "id": "jklmnopqr"}]
    silent = {**calling, "content": "", "tool_calls": two, "reasoning_content": words.thought}
    second = {**result, "tool_call_id": "jklmnopqr", "name": words.value}
    yield ScriptChat("two calls", [user, silent, result, second, reply, user, reply], tools)


class Guards:
    """All that guards data for one template."""

    def __init__(self, template: turnwise.Template) -> None:
        self._template = template
        recipe = make_recipe(template=template, tokenizer=full_tokenizer(), now=NOW, on_flaw="keep")
        self._kernel = Kernel(recipe)
        self._scanner = RowScanner(None, template, repeats="none")
        self._subject = Subject(template)

    def judge(self, chat: ScriptChat) -> dict[str, Any]:
        """Return what each guard says of a conversation, without any of its texts."""
        template, chat_options = self._template, {"now": NOW}
        more = {**chat_options, "tools": chat.tools} if chat.tools else chat_options
        verdicts: dict[str, Any] = {}
        with WarningLog(is_quiet=True):
            for strict in (False, True):
                given = {**more, "strict": strict}
                verdicts[f"render {strict}"] = _try(template.render, chat.messages, **given)
                encoded = _try(template.encode, chat.messages, full_tokenizer(), **given)
                verdicts[f"encode {strict}"] = encoded
            row = {"messages": chat.messages, **({"tools": chat.tools} if chat.tools else {})}
            (scanned,) = self._scanner.scan([(1, row)])
            verdicts["scan"] = [(problem.kind, problem.field) for problem in scanned.problems]
            (record,) = self._kernel(make_batch([row])).to_pylist()
            verdicts["prepare"] = (record["status"], record["kind"])
            probe = Probe("", chat.messages, tools=chat.tools, options=dict(template.options))
            verdicts["check"] = self._subject.lost(probe)
        return verdicts


def _try(verb: Any, *arguments: Any, **named: Any) -> Any:
    """Return what a result says of turns and losses, or the error."""
    try:
        result = verb(*arguments, **named)
    except turnwise.TurnwiseError as error:
        return type(error).__name__, getattr(error, "path", "")
    if isinstance(result, turnwise.Rendering):
        return result.warnings
    turns = [(turn.message, turn.missing) for turn in result.turns]
    return turns, [turn.message for turn in result.untrained]


def find_differences(template: turnwise.Template, names: Sequence[str] = ()) -> list[Any]:
    """Return the guards that say something else of a conversation in another script than of the Latin one."""
    guards = Guards(template)
    expected = {chat.name: guards.judge(chat) for chat in make_chats(SCRIPTS["latin"])}
    found = []
    for script, words in SCRIPTS.items():
        for chat in make_chats(words):
            if names and chat.name not in names:
                continue
            for guard, verdict in guards.judge(chat).items():
                if verdict != expected[chat.name][guard]:
                    latin = expected[chat.name][guard]
                    found.append((template.name, script, chat.name, guard, verdict, latin))
    return found
