"""What a template loses is found by provenance, in every script, whatever other text is equal to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest

import corpus
import turnwise
from chatml import CHATML
from corpus import NOW
from data_batches import encode_rows, make_batch, make_recipe
from label_law import full_tokenizer
from loaded import load_entry
from timing import processor_seconds
from turnwise.analysis.conversations import Probe
from turnwise.analysis.text_coverage import ComputedText, is_covered
from turnwise.data.kernel import Kernel
from turnwise.errors import WarningLog
from turnwise.evidence.checks.subject import Subject
from turnwise.evidence.scan import RowScanner

# The same conversations in eight scripts, and what every guard of data says of them.
#
# Which text a template drops does not depend on the script that it is written in, so neither may what is said of it.


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

    def choose(words: Words) -> list[ScriptChat]:
        return [chat for chat in make_chats(words) if not names or chat.name in names]

    expected = {chat.name: guards.judge(chat) for chat in choose(SCRIPTS["latin"])}
    found = []
    for script, words in SCRIPTS.items():
        for chat in choose(words):
            for guard, verdict in guards.judge(chat).items():
                if verdict != expected[chat.name][guard]:
                    latin = expected[chat.name][guard]
                    found.append((template.name, script, chat.name, guard, verdict, latin))
    return found


# The tests

USER = {"role": "user", "content": "When?"}
OPENING, END = "<|im_start|>{{ m.role }}\n", "<|im_end|>\n"


def find_missing(template: turnwise.Template, *messages: Any, **options: Any) -> list[Any]:
    with WarningLog(is_quiet=True):
        encoded = template.encode(list(messages), "turnwise", **options)
    return [turn.missing for turn in encoded.turns]


def compile_content(expression: str) -> turnwise.Template:
    loop = "{% for m in messages %}" + OPENING + expression + END + "{% endfor %}"
    return turnwise.compile(loop)


@pytest.mark.parametrize("script", SCRIPTS)
def test_reasoning_that_is_dropped_from_history(script: str) -> None:
    words = SCRIPTS[script]
    reply = {"role": "assistant", "content": words.answer, "reasoning_content": words.thought}
    found = find_missing(load_entry("qwen3"), USER, reply, USER, reply)
    assert found == [("reasoning",), ()]


@pytest.mark.parametrize("script", SCRIPTS)
def test_rows_that_lose_reasoning_are_not_written(script: str) -> None:
    words = SCRIPTS[script]
    reply = {"role": "assistant", "content": words.answer, "reasoning_content": words.thought}
    (record,) = encode_rows([{"messages": [USER, reply, USER, reply]}], template="qwen3")
    assert (record["status"], record["kind"]) == ("rejected", "loses-text")


@pytest.mark.parametrize("script", SCRIPTS)
def test_content_that_is_dropped_beside_a_call(script: str) -> None:
    words = SCRIPTS[script]
    function = {"name": "tide", "arguments": {"harbour": words.value}}
    call = {"id": "abcdefghi", "type": "function", "function": function}
    calling = {"role": "assistant", "content": words.beside, "tool_calls": [call]}
    result = {"role": "tool", "content": words.found, "tool_call_id": "abcdefghi"}
    reply = {"role": "assistant", "content": words.answer}
    found = find_missing(load_entry("llama-3.1"), USER, calling, result, reply)
    assert found == [("content",), ()]


@pytest.mark.parametrize("key", ["harbour", "港", "λιμάνι"])
@pytest.mark.parametrize(
    ("written", "is_lost"),
    [
        ("{% for k, v in a.items() %}{{ k }}={{ v }};{% endfor %}", False),
        ("{{ a | string | upper }}", False),
        ("harbour 港 λιμάνι: {{ a.values() | first }}{% if a.dry %}dry{% endif %}", False),
        ("{% for v in a.values() %}{{ v }};{% endfor %}", True),
        ("{% for k, v in a.items() if v is string %}{{ k }}={{ v }};{% endfor %}", True),
    ],
)
def test_arguments_are_written_with_their_names(written: str, is_lost: bool, key: str) -> None:
    function = "{% set f = m.tool_calls[0].function %}{% set a = f.arguments %}{{ f.name }} "
    call = {"function": {"name": "tide", "arguments": {key: "Brest", "dry": True}}}
    calling = {"role": "assistant", "content": "", "tool_calls": [call]}
    template = compile_content(
        "{{ m.content }}{% if m.tool_calls %}" + function + written + "{% endif %}"
    )
    with WarningLog(is_quiet=True):
        found = template.render([USER, calling]).warnings
    assert ["arguments.dry" in one for one in found] == [True] * is_lost


@pytest.mark.parametrize(
    ("reasoning", "content"),
    [("Noon it is.", "It is noon."), ("Yes.", "Yes."), ("Yes", "Yes, it is."), ("🌊", "🌊")],
)
def test_equal_text_hides_no_loss(reasoning: str, content: str) -> None:
    reply = {"role": "assistant", "content": content, "reasoning_content": reasoning}
    assert find_missing(load_entry("qwen3"), USER, reply, USER, reply)[0] == ("reasoning",)
    with WarningLog(is_quiet=True):
        rendering = load_entry("chatml").render([USER, reply])
    assert "messages[1].reasoning_content" in rendering.warnings[0]


def test_a_tool_that_is_only_named_by_the_user_is_lost() -> None:
    tool = {"name": "tide", "description": "Tides", "parameters": {"type": "object"}}
    chat = [{"role": "user", "content": "What does tide do?"}]
    with pytest.warns(turnwise.TurnwiseWarning, match="nothing of tools"):
        turnwise.compile(CHATML).render(chat, tools=[{"type": "function", "function": tool}])


@pytest.mark.parametrize(
    "expression",
    [
        "{{ m.content | trim }}",
        "{{ m.content | upper }}",
        "{{ m.content | tojson }}",
        "{{ m.content | tojson(ensure_ascii=True) }}",
        "{{ {'text': m.content} | tojson | tojson(ensure_ascii=True) }}",
        "{{ m.content | e }}",
        "{{ m.content | replace(' ', '_') }}",
        "{{ m.content | replace('<x>', '(x)') | trim }}",
        "{{ [m.content] }}",
        "{{ m.content | wordwrap(5) }}",
        "{% for line in m.content.split(' ') %}{{ line }}|{% endfor %}",
        "{{ m.content[5:] }}{{ m.content[:5] }}",
        "{{ '%s %s' | format(m.role, m.content) }}",
        "{% set text %}<b>{{ m.content }}</b>{% endset %}{{ text }}",
    ],
)
@pytest.mark.parametrize("script", SCRIPTS)
def test_text_that_is_written_in_another_form_is_no_loss(expression: str, script: str) -> None:
    words = SCRIPTS[script]
    template = compile_content(expression)
    reply = {"role": "assistant", "content": f'  {words.thought}\n"{words.answer}" ß\\n <x>'}
    assert template.render([USER, reply], strict=True, normalise=False)
    assert find_missing(template, USER, reply, normalise=False) == [()]


@pytest.mark.parametrize(
    "expression",
    [
        "{{ m.content[:12] }}",
        "{{ m.content | truncate(13, True) }}",
        "{{ m.content.split('</think>')[-1] }}",
        "{{ m.content.split('</think>')[0] }}",
        "{{ (m.content | tojson)[:14] }}",
        "{{ m.content[:12] | upper }}",
        "{{ m.content | first }}",
        "{{ m.content[:12] }}{{ m.content[:12] }}",
    ],
)
@pytest.mark.parametrize("script", SCRIPTS)
def test_text_of_which_a_part_is_written_is_reported(expression: str, script: str) -> None:
    words = SCRIPTS[script]
    template = compile_content(
        "{% if m.role == 'user' %}{{ m.content }}{% else %}" + expression + "{% endif %}"
    )
    reply = {"role": "assistant", "content": f"{words.thought}</think>{words.answer}"}
    with WarningLog(is_quiet=True):
        rendering = template.render([USER, reply])
        encoded = template.encode([USER, reply], "turnwise")
    assert rendering.warnings == (
        "template: the template writes only a part of messages[1].content",
    )
    assert [turn.message for turn in encoded.untrained] == [1]
    with pytest.raises(turnwise.MessageError, match=r"messages\[1\].content"):
        template.render([USER, reply], strict=True)


def test_letters_whose_case_is_not_that_of_others() -> None:
    assert is_covered(
        "Iğdır ıssız", ["IĞDIR ISSIZ"]
    )  # Turkish: an upper case that has another lower case


def test_text_without_a_letter_counts() -> None:
    template = compile_content("{% if m.role == 'user' %}{{ m.content }}{% endif %}")
    for text in ("🙂", "→", "?!", "…", "¿", "42", "—"):
        with WarningLog(is_quiet=True):
            rendering = template.render([USER, {"role": "assistant", "content": text}])
        assert rendering.warnings, text


def test_computed_text_is_searched_in_order() -> None:
    assert ComputedText("it is noon.").claim("It is Noon!")
    assert not ComputedText("It is noon.").claim("Noon it is.")
    both = ComputedText("Yes.")
    assert both.claim("Yes.")
    assert not both.claim("Yes.")
    assert is_covered("a b c", ["c", "a b"])
    assert not is_covered("a b c", ["c", "b"])
    assert is_covered("naïve ß ΟΔΟΣ", ["NAÏVE SS οδος"])


def test_large_texts_take_time_in_proportion() -> None:
    template = compile_content("{{ m.content | upper }}{{ m.content[7:] }}")

    def measure(size: int) -> float:
        text = "".join(map(chr, range(0x4E00, 0x4E00 + 2000))) * (size // 2000)
        chat = [USER, {"role": "assistant", "content": text}]
        times = [processor_seconds(lambda: template.render(chat)) for _ in range(3)]
        return min(times)

    measure(2_000)
    assert measure(800_000) < 12 * max(measure(100_000), 0.002)


@corpus.needs_corpus
@pytest.mark.law(1)
@pytest.mark.parametrize("name", sorted(corpus.load_published())[5::90])
def test_every_guard_says_the_same_in_every_script(name: str, sample: Any) -> None:
    row = corpus.load_published()[name]
    template = turnwise.compile(row.text, name=name, options=row.options)
    assert find_differences(template, sample(("reasoning", "calls"), 1)) == []


@corpus.needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(corpus.load_published()))
def test_every_guard_of_every_template_in_every_script(name: str) -> None:
    row = corpus.load_published()[name]
    template = turnwise.compile(row.text, name=name, options=row.options)
    assert find_differences(template) == []


@pytest.mark.parametrize(
    "text", ["It is noon.", "正午。", "Полдень!", "दोपहर।", "ظهر؟", "Μεσημέρι;"]
)
def test_a_lost_full_stop_counts_alike_in_every_script(text: str) -> None:
    template = turnwise.compile("{% for m in messages %}<{{ m.content[:-1] }}>{% endfor %}")
    assert template.render([{"role": "user", "content": text}]).warnings == ()
    words = text[:-1] + " 7" + text[-1]
    assert template.render([{"role": "user", "content": words + "8"}]).warnings
