"""The static playground alone: real vocabularies, the hub, no network, and how soon it starts."""

from __future__ import annotations

import gzip
import json
import shutil
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import build_site
import pytest

import turnwise
from playground_page import (
    CHAT,
    PLAIN,
    ROOT,
    SITE,
    TABS,
    Playground,
    QuietHandler,
    serving,
    start_browser,
    write_messages,
)
from turnwise.tokens.tokenizers import files

pytestmark = pytest.mark.slow

PYODIDE = ROOT / "build" / "pyodide" / "package"
TOKENIZER_FILES = [files.SHIPPED / name for name in ("tokenizer.json", "tokenizer_config.json")]


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


@pytest.mark.filterwarnings("ignore:.*writes no stop token:turnwise.errors.TurnwiseWarning")
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
