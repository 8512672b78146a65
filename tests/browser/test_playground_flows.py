"""The playground in a real browser, served and static: what users do with it.

Run by `make browser`; Debian's chromium and chromium-driver must be installed.
"""

from __future__ import annotations

import json
import time

import pytest

import turnwise
from playground_page import CHAT, PLAIN, TABS, Playground, write_messages

pytestmark = pytest.mark.slow

REPLY = "<think>\nLow?\n</think>\n\nYes.<|im_end|>"
BROKEN = "{% for m in messages %}\n{{ m.content | shout }}{% endfor %}"


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
