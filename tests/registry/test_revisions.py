"""A template is compared with itself as it was: in git, and in the cache of the hub."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import turnwise
from cli_runner import bad, good, run
from turnwise.registry.revisions import load_revision

OLD = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
NEW = OLD.replace("m.content", "m.content | trim")


def git(folder: Path, *arguments: str) -> None:
    names = ("-c", "user.name=n", "-c", "user.email=e@example.org")
    subprocess.run(["git", *names, "-C", folder, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    git(folder, "init", "-q")
    for text in (OLD, NEW):
        (folder / "chat_template.jinja").write_text(text, encoding="utf-8")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", "one")
    return folder


@pytest.mark.parametrize("name", ["", "chat_template.jinja"])
def test_git(repository: Path, name: str) -> None:
    place = str(repository / name)
    assert load_revision(place, "HEAD~1").text == OLD
    assert load_revision(place, "HEAD").text == NEW
    with pytest.raises(turnwise.SourceError, match="not in the revision nope"):
        load_revision(place, "nope")
    for odd in ("--output=x", "", "a b", "../x"):
        with pytest.raises(turnwise.SourceError, match="is no revision"):
            load_revision(place, odd)


def test_the_cache_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "models--org--tide"
    for commit, text in (("aaa111", OLD), ("bbb222", NEW)):
        snapshot = model / "snapshots" / commit
        snapshot.mkdir(parents=True)
        (snapshot / "chat_template.jinja").write_text(text, encoding="utf-8")
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("bbb222", encoding="ascii")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert load_revision("org/tide", "aaa111").text == OLD
    assert turnwise.load("org/tide").text == NEW


def test_the_command(repository: Path) -> None:
    found = run("diff", repository, "--against-revision", "HEAD~1", "--json")
    assert found.exit_code == 1 and not json.loads(found.stdout)["equal"]
    assert "no difference" in good("diff", repository, "--against-revision", "HEAD")
    assert "--against-revision" in bad("diff", repository)


def test_sides_are_named_by_the_revision_and_now(repository: Path, tmp_path: Path) -> None:
    found = run("diff", repository, "--against-revision", "HEAD~1").stdout.splitlines()
    assert any(line.startswith("HEAD~1: ") for line in found)
    assert any(line.startswith("now: ") for line in found)
    unknown = bad("diff", repository, "--against-revision", "nope")
    assert "git has no such revision of it" in unknown and "fatal" not in unknown
    outside = tmp_path / "outside.jinja"
    outside.write_text(NEW, encoding="utf-8")
    said = bad("diff", outside, "--against-revision", "HEAD")
    assert "it is in no git repository" in said and "fatal" not in said
