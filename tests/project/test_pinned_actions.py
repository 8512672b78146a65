"""What CI and the GitHub action run is named exactly: actions by commit, turnwise by version."""

from __future__ import annotations

import re

from named_tests import ROOT
from turnwise import __version__

FILES = [*sorted((ROOT / ".github" / "workflows").glob("*.y*ml")), ROOT / "action.yml"]


def test_actions_are_pinned_by_commit() -> None:
    used = [line for path in FILES for line in path.read_text().splitlines() if "uses:" in line]
    assert len(used) >= 3
    loose = [line for line in used if not re.search(r"@[0-9a-f]{40} # v\d", line)]
    assert not loose


def test_the_action_installs_the_version_that_it_belongs_to() -> None:
    text = (ROOT / "action.yml").read_text()
    assert f'default: "=={__version__}"' in text
