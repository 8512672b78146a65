"""The container image: built with buildah, its size, and the soak of the service in it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import check_image
import pytest
from test_api_soak import soak
from test_soak import running_server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("buildah") is None or os.geteuid() != 0, reason="needs buildah, and root"
    ),
]
IN_IMAGE = "/app/turnwise/tokens/data"


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[check_image.ImageBuilder]:
    made = check_image.ImageBuilder(tmp_path_factory.mktemp("image"))
    made.build()
    yield made
    made.run("rm", "--all")


@pytest.fixture(scope="module")
def image(builder: check_image.ImageBuilder) -> tuple[Path, dict[str, Any]]:
    return builder.mount("localhost/turnwise")


def start(image: tuple[Path, dict[str, Any]], *words: str) -> subprocess.Popen[str]:
    root, settings = image
    command = check_image.run_in(root, settings, *settings["Entrypoint"], *words, "--port", "0")
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def test_the_image_is_small(
    builder: check_image.ImageBuilder, image: tuple[Path, dict[str, Any]]
) -> None:
    layers = builder.list_layers("localhost/turnwise")
    print(f"\n{[round(size / 1e6, 1) for size in layers]} MB, together {sum(layers) / 1e6:.1f} MB")
    assert sum(layers) < check_image.MAX_BYTES
    _, settings = image
    assert settings["User"] == "65532:65532" and settings["Healthcheck"]["Test"][0] == "CMD"


def test_the_health_check_of_the_image(image: tuple[Path, dict[str, Any]]) -> None:
    root, settings = image
    with running_server("qwen3", start=partial(start, image)) as (port, pid):
        check = [word.replace("8400", str(port)) for word in settings["Healthcheck"]["Test"][1:]]
        words = check_image.run_in(root, settings, *check)
        assert subprocess.run(words, check=False).returncode == 0
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        assert "Uid:\t65532\t65532" in status
    assert subprocess.run(words, check=False, capture_output=True).returncode == 1  # it has ended


def test_the_file_system_is_read_only(image: tuple[Path, dict[str, Any]]) -> None:
    code = "open('/written', 'w')"
    words = check_image.run_in(*image, "/usr/bin/python3", "-c", code)
    found = subprocess.run(words, check=False, capture_output=True, text=True)
    assert found.returncode == 1 and "Read-only file system" in found.stderr


def test_the_soak_of_the_service_in_the_image(image: tuple[Path, dict[str, Any]]) -> None:
    serve = partial(running_server, start=partial(start, image))
    counts, health, sizes = soak(20.0, 32, IN_IMAGE, serve)
    print(
        f"\n{dict(counts)}; memory {sizes[-1] >> 20} MB; health {max(health) * 1e3:.0f} ms at most"
    )
    assert counts["right"] > 100 and not counts["wrong"] and not counts["foreign"], counts
