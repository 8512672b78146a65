"""Fixtures of the playground in a browser. `make browser` sets up selenium and builds the static site."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from playground_page import SITE, Playground, serving, start_browser
from served import listening, make_service


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


@pytest.fixture
def way(request: pytest.FixtureRequest) -> str:
    """Whether a test has the served page or the static one."""
    return str(request.node.callspec.params["address"])


@pytest.fixture
def page(driver: Any, address: str) -> Playground:
    made = Playground(driver, address)
    made.open()
    return made


@pytest.fixture
def static_page(page: Playground, way: str) -> Playground:
    if way != "static":
        pytest.skip("the static page only")
    return page
