"""`make serve`: the browser is opened when the server answers, and not if there is none."""

from __future__ import annotations

import os
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest
import serve_playground

import turnwise


@pytest.fixture(autouse=True)
def source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(turnwise.__file__).parents[1]))


@pytest.mark.law
def test_the_page_is_opened_when_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class PlaygroundServer(subprocess.Popen[bytes]):
        def __init__(self, *words: object, **settings: object) -> None:
            super().__init__(*words, **settings)  # type: ignore[call-overload]
            started.append(self)

    def open_page(url: str) -> None:
        with urllib.request.urlopen(url, timeout=30) as answer:
            opened.append((url, answer.status))
        os.kill(started[0].pid, signal.SIGTERM)

    opened: list[tuple[str, int]] = []
    monkeypatch.setattr("serve_playground.subprocess.Popen", PlaygroundServer)
    serve_playground.run(["chatml", "--port", "0"], open_page)
    assert len(opened) == 1 and opened[0][1] == 200


def test_no_page_without_a_server(capfd: pytest.CaptureFixture[str]) -> None:
    opened: list[str] = []
    assert serve_playground.run(["no-such-model-anywhere"], opened.append) == 2
    assert not opened and "no-such-model-anywhere" in capfd.readouterr().err
