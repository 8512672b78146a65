"""The playground in a real browser, served and static: the main flows, hostile content, and two widths.

Run by `make browser`, which sets up selenium and builds the static site; Debian's chromium and chromium-driver must be
installed. Screenshots are written to `build/screenshots`, to be looked at.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
import shutil
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import build_site
import pytest

import turnwise
from hostile_markup import PAYLOADS
from served import listening, make_service
from turnwise.tokens.tokenizers import files

webdriver = pytest.importorskip("selenium.webdriver")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "site"
PYODIDE = ROOT / "build" / "pyodide" / "package"
SCREENSHOTS = ROOT / "build" / "screenshots"
TABS = ("text", "tokens", "loss", "reply", "grammar", "checks", "stability", "diff", "convert")
PATIENCE = float(os.environ.get("TURNWISE_BROWSER_SECONDS", "120"))
TOKENIZER_FILES = [files.SHIPPED / name for name in ("tokenizer.json", "tokenizer_config.json")]
REPLY = "<think>\nLow?\n</think>\n\nYes.<|im_end|>"
BROKEN = "{% for m in messages %}\n{{ m.content | shout }}{% endfor %}"
PLAIN = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
MARK = "window.forged = (window.forged || 0) + 1"


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving(folder: Path, kind: type[QuietHandler] = QuietHandler) -> Iterator[str]:
    """Serve the files of a folder; the address."""
    handler = functools.partial(kind, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def start_browser() -> Any:
    """Start a browser that has loaded nothing yet."""
    if shutil.which("chromedriver") is None:
        pytest.skip("no chromedriver: apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    made = webdriver.Chrome(options=options, service=service)
    made.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": "window.forged = 0;"})
    return made


@pytest.fixture(scope="session")
def driver() -> Iterator[Any]:
    made = start_browser()
    yield made
    made.quit()


@pytest.fixture(scope="module", params=["served", "static"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "served":
        with listening(make_service(playground=True)) as found:
            yield found
        return
    if not (SITE / "engine.zip").is_file():
        pytest.skip("no static site: make site")
    with serving(SITE) as found:
        yield found


def way_of(request: pytest.FixtureRequest) -> str:
    """Return whether a test has the served page or the static one."""
    return str(request.node.callspec.params["address"])


class Playground:
    """A page in the browser, and what a user does with it."""

    def __init__(self, driver: Any, address: str) -> None:
        self.driver = driver
        self.address = address

    def open(self, hash: str = "", width: int = 1280, height: int = 1000) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.get("about:blank")
        self.driver.get(f"{self.address}/{hash}")
        self.settle()

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, is_done: Callable[[], Any], what: str) -> Any:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = is_done()
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(f"{what} did not come; the page says: {self.text('body')[:2000]}")

    def settle(self) -> None:
        """Wait until nothing is asked of the engine any more."""
        script = """return document.documentElement.dataset.ready === "true"
            && document.getElementById("result").getAttribute("aria-busy") === "false" """
        time.sleep(0.3)  # the page waits for the last key before it asks
        self.wait(lambda: self.run(script), "the answer")

    def click(self, selector: str) -> None:
        self.run("document.querySelector(arguments[0]).click()", selector)
        self.settle()

    def type(self, selector: str, text: str, event: str = "input") -> None:
        """Put a text into a field, as typing it would."""
        self.run(
            """const field = document.querySelector(arguments[0]);
            field.value = arguments[1];
            field.dispatchEvent(new Event(arguments[2], {bubbles: true}));""",
            selector,
            text,
            event,
        )
        self.settle()

    def toggle(self, selector: str, on: bool) -> None:
        if self.run("return document.querySelector(arguments[0]).checked", selector) != on:
            self.click(selector)

    def pick(self, name: str) -> None:
        self.type("#entry", name, "change")

    def text(self, selector: str) -> str:
        return str(
            self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector)
        )

    def texts(self, selector: str) -> list[str]:
        script = "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)"
        found: list[str] = self.run(script, selector)
        return found

    def set_offline(self, offline: bool) -> None:
        self.driver.execute_cdp_cmd("Network.enable", {})
        unlimited = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self.driver.execute_cdp_cmd(
            "Network.emulateNetworkConditions", {"offline": offline, **unlimited}
        )

    def remember(self, **choices: str) -> None:
        """Choose a language and a theme, as an earlier visit would have."""
        for key, value in choices.items():
            self.run("localStorage.setItem(`turnwise-${arguments[0]}`, arguments[1])", key, value)

    def count_tokens(self) -> int:
        """Wait for the number of tokens beside the text."""
        script = 'return Boolean(document.getElementById("price"))'
        self.wait(lambda: self.run(script), "the number of tokens")
        return int(self.text("#tokens-there b").replace(",", ""))

    def tab(self, name: str) -> None:
        self.click(f"#tab-{name}")

    def log(self) -> list[str]:
        return [row["message"] for row in self.driver.get_log("browser")]


@pytest.fixture
def page(driver: Any, address: str) -> Playground:
    made = Playground(driver, address)
    made.open()
    return made


CHAT = [
    {"role": "user", "content": "Is it low? <|im_end|> 中文 😀"},
    {"role": "assistant", "content": "Yes."},
]


def write_messages(page: Playground, messages: list[dict[str, Any]]) -> None:
    page.click("#view-json")
    page.type("#messages textarea", json.dumps(messages))


def test_text_is_the_text_of_the_library(page: Playground) -> None:
    write_messages(page, CHAT)
    for name in ("qwen3", "chatml"):
        page.pick(name)
        for prompted in (False, True):
            page.toggle("#add_generation_prompt", prompted)
            expected = turnwise.load(name).render(CHAT, add_generation_prompt=prompted)
            assert page.text("#rendered") == expected.text


def test_a_click_shows_the_origin(page: Playground) -> None:
    index = page.run(
        """const pieces = [...document.querySelectorAll("#rendered [data-piece]")];
        const found = pieces.find((piece) => piece.textContent.includes("high tide"));
        found.click();
        return Number(found.dataset.piece);"""
    )
    assert "messages[1].content" in page.text("#origin")
    page.run(f'document.querySelector("[data-piece=\\"{index + 1}\\"]").click()')
    assert "template, line 4" in page.text("#origin")
    assert page.text(".gutter .shown") == "4" and not page.text(".gutter .bad")
    # and by keys alone
    before = page.text("#origin")
    page.run(
        """document.getElementById("rendered").dispatchEvent(
        new KeyboardEvent("keydown", {key: "ArrowLeft", bubbles: true}))"""
    )
    assert page.text("#origin") != before


def test_tokens_and_loss_are_those_of_the_library(page: Playground) -> None:
    write_messages(page, CHAT)
    page.toggle("#add_generation_prompt", False)
    page.type("#tokenizer", "turnwise", "change")
    page.tab("tokens")
    encoded = turnwise.load("qwen3").encode(CHAT, "turnwise")
    ids = [int(id) for id in page.texts(".chip .id")]
    assert ids == encoded.input_ids
    control = page.run('return document.querySelectorAll(".chip.control").length')
    assert control == len(encoded.control)
    defused = page.run(
        'return [...document.querySelectorAll(".chip.defused .t")].map((one) => one.textContent).join("")'
    )
    assert defused.strip("␣") == "<|im_end|>"
    page.tab("loss")
    trained = page.run('return document.querySelectorAll(".chip.trained").length')
    assert trained == sum(encoded.mask)
    page.type("#train-on", "all", "change")
    assert page.run('return document.querySelectorAll(".chip.masked").length') == 0


def test_a_reply_is_read_and_streamed(page: Playground) -> None:
    page.tab("reply")
    page.type("#reply", REPLY)
    message = json.loads(page.text("#reply-json"))
    assert (message["content"], message["reasoning_content"]) == ("Yes.", "Low?")
    page.run('document.getElementById("stream").click()')
    page.wait(lambda: "Yes." in page.text("#reply-message"), "the streamed reply")
    page.click("#sample-reply")
    assert json.loads(page.text("#reply-json"))["tool_calls"][0]["function"]["name"] == "tide"


def test_grammar_and_exports(page: Playground) -> None:
    page.click("#example-tool")
    page.tab("grammar")
    assert "<tool_call>" in page.text("#grammar")
    names = page.texts(".export summary")
    assert {"response_template", "structural_tag", "lark", "gbnf"} == set(names)


def test_checks_stability_diff_and_convert(page: Playground) -> None:
    page.tab("checks")
    assert "T401" in page.text("#findings") and "add_generation_prompt" in page.text(
        "#capabilities"
    )
    page.tab("stability")
    assert "stable" in page.text("#stability")
    page.tab("diff")
    assert "differ" in page.text("#verdict")
    page.type("#other", "qwen3")
    assert "No difference" in page.text("#verdict")
    page.tab("convert")
    assert "TEMPLATE" in page.text("#converted"), "it greets with what works"
    assert "tools" in page.text("#left-out")
    page.type("#to", "ollama", "change")
    while "leaves that out" in page.text("#error"):
        page.click("#leave-out")
    assert "tools" in page.run('return document.getElementById("without").value')
    assert "TEMPLATE" in page.text("#converted")
    page.pick("chatml")
    page.type("#without", "")
    page.type("#to", "xtuner", "change")
    assert "INSTRUCTION" in page.text("#converted")


def test_a_pasted_template_of_any_dialect(page: Playground) -> None:
    write_messages(page, CHAT[1:])
    page.type("#source", PLAIN)
    assert page.text("#rendered") == "[assistant] Yes.\n"
    page.toggle("#add_generation_prompt", False)
    fastchat = {"name": "mine", "roles": ["Q", "A"], "sep_style": "ADD_COLON_SINGLE", "sep": "\n"}
    expected = turnwise.compile(fastchat, "fastchat").render(CHAT[:1]).text
    write_messages(page, CHAT[:1])
    page.type("#dialect", "fastchat", "change")
    page.type("#source", json.dumps(fastchat))
    assert page.text("#rendered") == expected


def test_an_error_has_its_line_and_a_caret(page: Playground) -> None:
    page.type("#source", BROKEN)
    error = page.text("#template-error")
    assert "No filter named 'shout'" in error and "^" in error
    assert page.text(".gutter .bad") == "2"
    page.click("#reset")
    assert page.run('return document.getElementById("template-error").hidden')
    page.type("#tools", "[{")
    assert "not JSON" in page.text("#tools + .problem")


def test_the_state_is_in_the_address(page: Playground) -> None:
    write_messages(page, CHAT)
    page.pick("chatml")
    page.tab("tokens")
    time.sleep(0.5)
    hash = page.run("return location.hash")
    shown = page.text("#chips")
    assert hash.startswith("#s=") and shown
    page.open(hash)
    assert page.text("#chips") == shown
    assert page.run('return document.getElementById("entry").value') == "chatml"
    for odd in ("#s=AAAA", "#s=%%%", "#result", "#s=" + "A" * 5000):
        page.open(odd)
        assert page.text("#rendered").startswith("<|im_start|>system")


def test_bubbles_are_edited(page: Playground) -> None:
    page.click("#add-message")
    page.type(".bubbles li:last-child textarea", "And now?")
    assert page.text("#rendered").endswith("And now?<|im_end|>\n<|im_start|>assistant\n")
    page.click(".bubbles li:last-child button[aria-label='Remove']")
    assert "And now?" not in page.text("#rendered")


def test_keys_move_between_tabs(page: Playground) -> None:
    for name in TABS[1:]:
        page.run(
            """const tab = document.activeElement.role === "tab" ? document.activeElement
                : document.querySelector("[role=tab][aria-selected=true]");
            tab.focus();
            tab.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true}));"""
        )
        assert page.run("return document.activeElement.id") == f"tab-{name}"
    page.settle()


def test_dark_and_chinese(page: Playground) -> None:
    before = page.run("return getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.run("return getComputedStyle(document.body).backgroundColor") != before
    page.click("#language")
    assert page.text("#tab-text") == "文本"
    page.click("#language")
    page.click("#theme")
    assert page.text("#tab-text") == "Text"


# What the page says in words of its own: headings, labels, hints, buttons. The rest is data, or comes from the engine.
OWN_WORDS = """return [...document.querySelectorAll(
    "h2, h3, th, .hint, .count, .field > span, .check, button:not(.icon):not(#language), #input summary, dt, .verdict")]
    .map((one) => one.textContent.trim())
    .concat([...document.querySelectorAll("[aria-label]")].map((one) => one.ariaLabel))
    .concat([...document.querySelectorAll("[placeholder]")].map((one) => one.placeholder))
    .concat([...document.querySelectorAll("#example option, #tokenizer option:first-child")].map((one) => one.label))
    .filter((text) => text && !/[\\u4e00-\\u9fff]/.test(text))"""
SAME_WORDS = {
    "JSON",
    "Token",
    "◐",
    "qwen3",
    "chatml",
    "tool_calls",
    "Modelfile",
    "[]",
    "0.00",
    '{"enable_thinking": false}',
}


def test_no_english_word_is_left_in_chinese(page: Playground) -> None:
    page.click("#language")
    try:
        for name in TABS:
            page.tab(name)
            if name == "reply":
                page.click("#sample-reply")
            if name == "text":
                page.run('document.querySelector("[data-piece]").click()')
            assert set(page.run(OWN_WORDS)) <= SAME_WORDS, name
    finally:
        page.click("#language")


# Texts whose colour stands out less from their ground than the web's guideline for readable text asks (WCAG AA: 4.5).
PALE_TEXTS = """
const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
const share = (value) => value <= 10 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4;
const light = ([red, green, blue]) => 0.05 + 0.2126 * share(red) + 0.7152 * share(green) + 0.0722 * share(blue);
function ground(node) {
  const colour = numbers(getComputedStyle(node).backgroundColor);
  return colour.length < 4 || !node.parentElement ? colour : ground(node.parentElement);
}
return [...document.querySelectorAll("body *")].filter((node) => {
  const isField = node.matches("textarea, input, select");
  const inside = [...node.childNodes].filter((one) => one.nodeType === Node.TEXT_NODE);
  const own = isField ? node.value : inside.map((one) => one.data).join("");
  if (!own.trim() || !node.getClientRects().length || node.disabled) return false;
  const [dark, bright] = [light(numbers(getComputedStyle(node).color)), light(ground(node))].sort((a, b) => a - b);
  return bright / dark < 4.5;
}).map((node) => `${node.tagName} ${node.className}: ${node.textContent}`)"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [1440, 360])
def test_every_tab_fits(
    page: Playground, width: int, language: str, theme: str, request: pytest.FixtureRequest
) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    look = f"{way_of(request)}-{width}-{language}-{theme}"
    page.remember(language=language, theme=theme)
    page.open(width=width, height=900)
    for name in TABS:
        page.tab(name)
        if name == "reply":
            page.click("#sample-reply")
        if name == "text":
            page.count_tokens()
        assert page.run("return document.documentElement.scrollWidth") <= width, name
        left, right = page.run(
            "const place = document.getElementById(arguments[0]).getBoundingClientRect();"
            "return [place.left, place.right]",
            f"tab-{name}",
        )
        assert left >= 0 and right <= width, "the chosen tab is seen"
        assert page.run(PALE_TEXTS) == [], name
        if width < 860 and name != "text":
            page.run("document.getElementById('tabs').scrollIntoView()")
        page.driver.save_screenshot(str(SCREENSHOTS / f"{look}-{name}.png"))
    page.remember(language="en", theme="light")


def test_no_payload_is_executed(page: Playground) -> None:
    """Through content, role, tool name, template, options, error texts and the address, on every tab."""
    payloads = [payload.replace("MARK", MARK) for payload in PAYLOADS]
    assert len(payloads) >= 100
    for start in range(0, len(payloads), 20):
        part = payloads[start : start + 20]
        messages = [{"role": "user", "content": one} for one in part]
        messages += [{"role": part[0], "content": part[-1], "name": part[1], part[2]: part[3]}]
        tool = {"type": "function", "function": {"name": part[4], "description": part[5]}}
        write_messages(page, messages)
        page.type("#tools", json.dumps([tool]))
        page.type("#kwargs", json.dumps({"enable_thinking": part[6]}))
        page.type("#source", PLAIN + "".join(part))
        for name in TABS:
            page.tab(name)
            if name == "reply":
                page.type("#reply", "".join(part))
            if name == "diff":
                page.type("#other", "".join(part))
        page.tab("text")
        page.type("#source", "{{ raise_exception(" + json.dumps(part[7] + part[8]) + ") }}")
        assert part[7] in page.text("#error")
        page.click("#view-bubbles")
        time.sleep(0.6)
        page.open(page.run("return location.hash"))
        assert page.run("return window.forged") == 0
    assert (
        page.run(
            "return document.querySelectorAll('main script, main iframe, main object, main svg').length"
        )
        == 0
    )
    blocked = [
        row
        for row in page.log()
        if "Content Security Policy" in row or "Content-Security-Policy" in row
    ]
    assert not blocked, "nothing even reached the policy"


def test_examples_fill_the_page(page: Playground) -> None:
    names = page.run(
        'return [...document.getElementById("example").options].map((one) => one.value)'
    )
    assert set(names) == {"", "chat", "tools", "parallel", "thinking", "images", "attack"}
    for name in filter(None, names):
        page.type("#example", name, "change")
        assert not page.text("#error") and not page.text("#warnings"), name
        if name == "parallel":
            assert page.text("#rendered").count("<tool_response>") == 2
        if name == "thinking":
            assert "2 hours and 34 minutes" in page.text("#rendered")
        if name == "images":
            assert "image_pad" in page.text("#rendered")
    # the attack stays text: what it spells is struck, and every control token is the template's
    forged = page.run("return document.querySelectorAll('.chip.defused').length")
    assert (
        forged and page.run("return document.querySelectorAll('.chip.defused.control').length") == 0
    )


def test_switches_are_on_top(page: Playground) -> None:
    assert page.text("#rendered").endswith("<|im_start|>assistant\n")
    page.click("#thinking [data-value=false]")
    assert page.text("#rendered").endswith("<think>\n\n</think>\n\n")
    assert json.loads(page.run("return kwargs.value")) == {"enable_thinking": False}
    page.click("#thinking [data-value=undefined]")
    assert page.run("return kwargs.value") == ""
    page.pick("gpt-oss")
    page.wait(lambda: page.text("#thinking [data-value=high]"), "the levels of thinking")
    page.click("#thinking [data-value=high]")
    assert "Reasoning: high" in page.text("#rendered")
    page.pick("chatml")
    page.wait(lambda: not page.text("#thinking"), "a template that does not think")


def test_tokens_and_their_price_are_beside_the_text(page: Playground) -> None:
    count = page.count_tokens()
    page.type("#price", "2.5")
    assert page.text("#cost") == f"= ${count * 2.5 / 1e6:.3g}"
    page.tab("tokens")
    assert page.run("return document.querySelectorAll('.chip').length") == count


def test_entries_are_picked_by_maker_and_by_keys(page: Playground) -> None:
    field = page.driver.find_element("id", "entry")
    field.click()
    makers = page.texts("#entry-list .maker")
    assert "Mistral AI" in makers and makers[-1] == "XTuner"
    assert page.run("return document.querySelectorAll('#entry-list [role=option]').length") > 500
    field.send_keys("deepseek v3.")
    assert page.texts("#entry-list [role=option] span:first-child") == [
        "deepseek-v3.1",
        "deepseek-v3.2",
    ]
    field.send_keys("\ue015\ue015\ue006")  # down, down, enter
    page.settle()
    assert page.run("return entry.value") == "deepseek-v3.2"
    assert page.run("return entry.getAttribute('aria-expanded')") == "false"
    page.pick("Qwen/Qwen2.5-7B-Instruct")
    page.wait(lambda: page.run("return entry.value") == "qwen2.5", "the entry of the model")


def test_a_finding_is_tried_with_a_click(page: Playground) -> None:
    page.pick("llama-3.1")
    page.tab("checks")
    before = page.run(
        "return [...document.querySelectorAll('#messages textarea')].map((one) => one.value)"
    )
    page.click("#findings .load")
    assert (
        page.run("return document.querySelector('[role=tab][aria-selected=true]').id") == "tab-text"
    )
    after = page.run(
        "return [...document.querySelectorAll('#messages textarea')].map((one) => one.value)"
    )
    assert before != after and (page.text("#rendered") or page.text("#error"))


def test_templates_have_colours(page: Playground) -> None:
    shown = page.run(
        "return [document.querySelector('.paint').textContent, document.getElementById('source').value]"
    )
    assert shown[0] == shown[1] + "\n"
    assert "macro" in page.texts(".paint .j-key") and page.texts(".paint .j-string")
    page.type("#source", "{{ 'open")
    assert page.text(".paint") == "{{ 'open\n" and not page.texts(".paint .j-mark")
    page.type("#source", "{{" * 60_000)  # long and never closed: no time is lost over it


def test_the_panes_fill_a_wide_screen(page: Playground) -> None:
    page.open(width=1440, height=900)
    places = page.run(
        """return ["#input", "main > .pane:last-child"].map((one) => {
        const place = document.querySelector(one).getBoundingClientRect();
        return [place.left, place.right, place.bottom]; })"""
    )
    assert places[0][0] <= 20 and places[1][1] >= 1400 and places[1][2] >= 870
    assert places[1][0] - places[0][1] <= 20


def test_the_tabs_of_a_phone_hint_that_they_scroll(page: Playground) -> None:
    page.open(width=360)
    strip = "return document.querySelector('.strip').className"
    assert "more-right" in page.run(strip) and "more-left" not in page.run(strip)
    page.tab("convert")
    page.wait(lambda: "more-left" in page.run(strip), "the hint on the left")
    assert "more-right" not in page.run(strip)


# What an audit of the page would complain of: controls without a name or too small to hit, ids that are there twice or
# referred to and not there, pictures without a text, a page without a language, a title or a main part.
COMPLAINTS = """
const found = [];
const all = (selector) => [...document.querySelectorAll(selector)];
const show = (node) => node.outerHTML.slice(0, 120);
const isSeen = (node) => node.getClientRects().length && getComputedStyle(node).visibility !== "hidden";
const nameOf = (node) => (node.ariaLabel || node.labels?.[0]?.textContent || node.textContent || node.title).trim();
for (const node of all("button, input, select, textarea, a, summary, [role=tab], [role=option]").filter(isSeen)) {
  if (!nameOf(node)) found.push(`no name: ${show(node)}`);
}
for (const node of all("button, select, summary, input[type=checkbox]").filter(isSeen)) {
  const places = [node, node.closest("label") ?? node].map((one) => one.getBoundingClientRect().height);
  if (Math.max(...places) < 24) found.push(`small: ${show(node)}`);
}
const ids = all("[id]").map((node) => node.id);
for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.push(`twice: ${id}`);
for (const name of ["aria-controls", "aria-labelledby", "aria-activedescendant", "for"]) {
  const missing = all(`[${name}]`).filter((node) => !ids.includes(node.getAttribute(name)));
  found.push(...missing.map((node) => `${name}: ${show(node)}`));
}
if (all("img:not([alt])").length) found.push("a picture without a text");
if (all("h1").length !== 1) found.push("not one h1");
for (const selector of ["html[lang]", "title", "main", "meta[name=viewport]", "meta[name=description]"]) {
  if (!all(selector).length) found.push(`no ${selector}`);
}
return found"""
REACHABLE = """
return [...document.querySelectorAll("button, input, select, textarea, summary, [tabindex]")]
  .filter((node) => node.getClientRects().length && !node.disabled && node.tabIndex >= 0 && node.id !== "skip")
  .map((node) => node.id || node.textContent)"""
FOCUSED = """
const node = document.activeElement;
const frames = [node, node.closest(".editor") ?? node].map((one) => getComputedStyle(one));
const isFramed = frames[0].outlineStyle !== "none" || frames[1].borderColor !== frames[0].borderColor;
return [node.id || node.textContent, isFramed || node === document.body]"""


def test_an_audit_has_no_complaints(page: Playground) -> None:
    for width in (1440, 360):
        page.open(width=width)
        for name in TABS:
            page.tab(name)
            assert page.run(COMPLAINTS) == [], name
    assert [row for row in page.log() if "favicon" not in row] == [], "no errors in the console"


def test_every_control_is_reached_by_keys(page: Playground) -> None:
    """Tab goes through all of them, each with a frame that is seen, and comes to the end."""
    wanted = page.run(REACHABLE)
    page.run("document.activeElement.blur()")
    body = page.driver.find_element("tag name", "body")
    reached = []
    for _ in range(len(wanted) + 12):
        (page.driver.switch_to.active_element or body).send_keys("\ue004")
        node, is_framed = page.run(FOCUSED)
        assert is_framed, node
        reached.append(node)
    assert set(wanted) <= set(reached), set(wanted) - set(reached)


def test_nothing_is_asked_of_other_hosts(page: Playground) -> None:
    for name in TABS:
        page.tab(name)
    names = page.run("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert names and all(name.startswith(page.address) for name in names)


@pytest.fixture
def static_page(page: Playground, request: pytest.FixtureRequest) -> Playground:
    if way_of(request) != "static":
        pytest.skip("the static page only")
    return page


def test_the_static_page_reads_a_tokenizer_offline(static_page: Playground) -> None:
    page = static_page
    page.set_offline(True)
    try:
        write_messages(page, CHAT)
        page.driver.find_element("id", "file").send_keys("\n".join(map(str, TOKENIZER_FILES)))
        script = 'return document.getElementById("tokenizer").value.startsWith("file 1")'
        page.wait(lambda: page.run(script), "the tokenizer")
        page.tab("tokens")
        ids = [int(id) for id in page.texts(".chip .id")]
        expected = turnwise.load("qwen3").encode(CHAT, "turnwise", add_generation_prompt=True)
        assert ids == expected.input_ids
    finally:
        page.set_offline(False)


@pytest.mark.parametrize("name", ["qwen3", "qwen2.5", "deepseek-v3", "gpt-oss", "internlm2"])
def test_the_static_page_has_real_ids(static_page: Playground, name: str, tmp_path: Path) -> None:
    page = static_page
    packed = (SITE / "vocabularies" / f"{name}.json.gz").read_bytes()
    for file, data in json.loads(gzip.decompress(packed)).items():
        (tmp_path / file).write_text(json.dumps(data), encoding="utf-8")
    page.pick(name)
    page.tab("tokens")
    write_messages(page, CHAT)
    ids = [int(id) for id in page.texts(".chip .id")]
    expected = turnwise.load(name).encode(CHAT, tmp_path, add_generation_prompt=True)
    assert ids == expected.input_ids
    assert f"({name})" in page.text("#token-count")


def test_a_tokenizer_that_would_give_other_ids_is_refused(
    static_page: Playground, tmp_path: Path
) -> None:
    data = json.loads(TOKENIZER_FILES[0].read_text(encoding="utf-8"))
    data["normalizer"] = {"type": "Lowercase"}
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    static_page.driver.find_element("id", "file").send_keys(str(file))
    static_page.wait(lambda: static_page.text("#model-error"), "the refusal")
    assert "the normalizer Lowercase" in static_page.text("#model-error")
    file.write_text("{", encoding="utf-8")
    static_page.run("document.getElementById('model-error').textContent = ''")
    static_page.driver.find_element("id", "file").send_keys(str(file))
    static_page.wait(lambda: "not a tokenizer.json" in static_page.text("#model-error"), "it again")


class HubHandler(QuietHandler):
    """A stand-in for the hub: files of models, for pages of any address, large ones behind a redirect."""

    def do_GET(self) -> None:
        if self.path.endswith("/resolve/main/tokenizer.json"):
            self.send_response(302)
            self.send_header("location", self.path.replace("/resolve/main/", "/large/"))
            self.end_headers()
            return
        self.path = self.path.replace("/resolve/main/", "/").replace("/large/", "/")
        super().do_GET()

    def end_headers(self) -> None:
        self.send_header("access-control-allow-origin", "*")
        super().end_headers()


@pytest.fixture
def hub_site(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A copy of the site whose hub is a stand-in; its address, and the folder of the hub."""
    if not (SITE / "engine.zip").is_file():
        pytest.skip("no static site: make site")
    model = tmp_path / "hub" / "someone" / "Some-Model"
    model.mkdir(parents=True)
    for file in TOKENIZER_FILES:
        shutil.copyfile(file, model / file.name)
    (model / "chat_template.jinja").write_text(PLAIN, encoding="utf-8")
    site = tmp_path / "site"
    shutil.copytree(SITE, site)
    with serving(tmp_path / "hub", HubHandler) as hub, serving(site) as address:
        shutil.copyfile(build_site.STATIC / "index.html", site / "index.html")
        build_site.write_pages(site, hub)
        mode = json.dumps({"kind": "static", "hub": hub})
        (site / "mode.js").write_text(build_site.MODE.format(mode=mode), encoding="utf-8")
        yield address, model


def test_models_come_from_the_hub_if_that_is_allowed(
    driver: Any, hub_site: tuple[str, Path]
) -> None:
    address, model = hub_site
    page = Playground(driver, address)
    page.open()
    assert page.run("return document.getElementById('hub').checked") is False
    # not allowed: the policy of the page itself stops a fetch
    blocked = page.run(
        "return import('./mode.js').then(({MODE}) => fetch(MODE.hub)).then(() => 'fetched', () => 'blocked')"
    )
    assert blocked == "blocked"
    page.log()
    page.pick("someone/Some-Model")
    page.wait(lambda: "Allow fetching" in page.text("#model-error"), "the hint")
    write_messages(page, CHAT)
    time.sleep(0.5)
    page.run("document.getElementById('hub').click()")
    page.wait(lambda: page.run("return location.pathname") == "/hub.html", "the other page")
    page.settle()
    page.pick("someone/Some-Model")
    page.wait(lambda: "someone/Some-Model:" in page.text("#entry-note"), "the model")
    page.settle()
    assert page.text("#rendered") == "".join(f"[{one['role']}] {one['content']}\n" for one in CHAT)
    page.tab("tokens")
    ids = [int(id) for id in page.texts(".chip .id")]
    template = turnwise.compile(PLAIN, "jinja")
    assert ids == template.encode(CHAT, "turnwise", add_generation_prompt=True).input_ids
    assert "(someone/Some-Model)" in page.text("#token-count")
    page.pick("someone/No-Model")
    page.wait(lambda: "No-Model" in page.text("#model-error"), "the refusal")
    page.run("document.getElementById('hub').click()")
    page.wait(lambda: page.run("return location.pathname") == "/", "the first page")


def test_the_static_page_opens_without_its_server(driver: Any) -> None:
    """Once it was loaded: a new load has all files from the browser, and every tab works."""
    if not (SITE / "engine.zip").is_file():
        pytest.skip("no static site: make site")
    with serving(SITE) as address:
        page = Playground(driver, address)
        page.open()
        kept = (
            "return navigator.serviceWorker.getRegistration().then((one) => Boolean(one?.active))"
        )
        page.wait(lambda: page.run(kept), "the kept files")
    with pytest.raises(OSError):
        urllib.request.urlopen(address, timeout=5)
    page.open()
    page.pick("chatml")
    assert page.text("#rendered").startswith("<|im_start|>system")
    for name in TABS:
        page.tab(name)
        if name == "reply":
            page.click("#sample-reply")
        assert page.text("#answer") and not page.text("#error"), name


BARE_PAGE = """<script type="module">
import { loadPyodide } from "./pyodide.mjs";
const python = await loadPyodide();
window.seconds = performance.now() / 1000;
</script>"""
FIRST_TEXT = """new MutationObserver(() => {
    if (document.getElementById("entry")) window.editor ??= performance.now() / 1000;
    if (document.getElementById("rendered")) window.seconds ??= performance.now() / 1000;
}).observe(document, {childList: true, subtree: true})"""


def time_first_load(address: str) -> tuple[float, float]:
    """Return the seconds until the page set `window.seconds`, and until its editor was there."""
    browser = start_browser()
    try:
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": FIRST_TEXT})
        browser.get(address)
        page = Playground(browser, address)
        seconds = page.wait(lambda: page.run("return window.seconds"), "the end of the start")
        return seconds, page.run("return window.editor ?? 0")
    finally:
        browser.quit()


def test_the_static_page_starts_soon(tmp_path: Path) -> None:
    """In no more time than Pyodide alone takes as npm has it, on this machine and under its load."""
    if not (SITE / "engine.zip").is_file() or not PYODIDE.is_dir():
        pytest.skip("no static site: make site")
    bare = tmp_path / "bare"
    shutil.copytree(PYODIDE, bare)
    (bare / "index.html").write_text(BARE_PAGE, encoding="utf-8")
    with serving(SITE) as ours, serving(bare) as theirs:
        rounds = [(time_first_load(ours), time_first_load(theirs)) for _ in range(2)]
    text = min(mine[0] for mine, _ in rounds)
    editor = min(mine[1] for mine, _ in rounds)
    pyodide = min(other[0] for _, other in rounds)
    print(f"editor {editor:.1f} s, first text {text:.1f} s, bare Pyodide {pyodide:.1f} s")
    assert text < 1.15 * pyodide
    assert editor < 0.3 * pyodide
