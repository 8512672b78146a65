"""How the playground looks and whom it serves: contrast, names, keys, languages, widths, and hostile content.

Screenshots are written to `build/screenshots`, to be looked at.
"""

from __future__ import annotations

import json
import time

import pytest

from hostile_markup import PAYLOADS
from playground_page import PLAIN, ROOT, TABS, Playground, write_messages

pytestmark = pytest.mark.slow

SCREENSHOTS = ROOT / "build" / "screenshots"
MARK = "window.forged = (window.forged || 0) + 1"


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
def test_every_tab_fits(page: Playground, width: int, language: str, theme: str, way: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    look = f"{way}-{width}-{language}-{theme}"
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
        part = (payloads[start:] + payloads)[:20]
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
  .filter((node) => node.checkVisibility() && !node.disabled && node.tabIndex >= 0 && node.id !== "skip")
  .map((node) => node.id || node.textContent)"""
FOCUSED = """
const node = document.activeElement;
const frames = [node, node.closest(".editor") ?? node].map((one) => getComputedStyle(one));
const isFramed = frames[0].outlineStyle !== "none" || frames[1].borderColor !== frames[0].borderColor;
return [node.id || node.textContent, isFramed || node === document.body]"""


def test_an_audit_has_no_complaints(page: Playground) -> None:
    page.log()  # what other tests provoked
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
