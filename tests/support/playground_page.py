"""A page of the playground in a real browser, and what a user does with it; skips without selenium."""

from __future__ import annotations

import functools
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "site"
TABS = ("text", "tokens", "loss", "reply", "grammar", "checks", "stability", "diff", "convert")
PATIENCE = float(os.environ.get("TURNWISE_BROWSER_SECONDS", "120"))
PLAIN = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"


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
    webdriver = pytest.importorskip("selenium.webdriver")
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


CHAT = [
    {"role": "user", "content": "Is it low? <|im_end|> 中文 😀"},
    {"role": "assistant", "content": "Yes."},
]


def write_messages(page: Playground, messages: list[dict[str, Any]]) -> None:
    page.click("#view-json")
    page.type("#messages textarea", json.dumps(messages))
