"""The files of the playground: nothing inline, nothing from elsewhere, content as text, every word in two languages.

What the page does is tested in a browser (`make browser`); here is what can be read off the files, the headers with
which the server sends them, and the static site with its archive of the engine.
"""

from __future__ import annotations

import fnmatch
import json
import re
import subprocess
import sys
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import build_site
import pytest
import site_vocabularies

from served import client_of, make_service
from turnwise.dialects import DIALECTS
from turnwise.registry import entries
from turnwise.serve.playground_api import VERBS
from turnwise.tokens.loss import POLICIES

STATIC = build_site.STATIC
SITE_SCRIPTS = build_site.SCRIPTS  # of the static site alone
SCRIPTS = {
    file.name: file.read_text(encoding="utf-8")
    for folder in (STATIC, SITE_SCRIPTS)
    for file in sorted(folder.glob("*js"))
}
CODE = "\n".join(SCRIPTS.values())
TEXT_FILES = [file for file in sorted(STATIC.iterdir()) if file.is_file()]
# Ways to make markup or code of a text. `document.createElement` with `textContent` is the only way here.
SINKS = (
    *("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "createContextualFragment"),
    *("eval(", "new Function", "srcdoc", "javascript:", "DOMParser", "setHTML", 'setTimeout("'),
)


class PlaygroundPage(HTMLParser):
    """Collects tags and attributes, and the text inside of scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inline: list[str] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside and data.strip():
            self.inline.append(data)


@pytest.fixture(scope="module")
def page() -> PlaygroundPage:
    made = PlaygroundPage()
    made.feed((STATIC / "index.html").read_text(encoding="utf-8"))
    return made


def test_nothing_is_inline_and_nothing_comes_from_elsewhere(page: PlaygroundPage) -> None:
    assert not page.inline
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") or name == "style" for name in attributes), tag
        for name in ("src", "href"):
            if name in attributes:
                assert (STATIC / str(attributes[name])).is_file(), f"{tag} {name}"
    for file in TEXT_FILES:
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//[a-z]+\.", text), file.name


@pytest.mark.parametrize("name", SCRIPTS)
def test_content_becomes_text_only(name: str) -> None:
    found = [sink for sink in SINKS if sink in SCRIPTS[name]]
    assert not found
    for module in re.findall(r'from "(\./[^"]+)"', SCRIPTS[name]):
        fetched = module.startswith(("./pyodide/", "./tokenizers/"))
        assert fetched or any((folder / module).is_file() for folder in (STATIC, SITE_SCRIPTS))


def read_words(language: str) -> dict[str, str]:
    block = re.search(
        rf"^  {language}: {{(.*?)^  }},", SCRIPTS["i18n.js"], re.DOTALL | re.MULTILINE
    )
    assert block is not None
    return dict(re.findall(r'(\w+): "((?:[^"\\]|\\.)*)"', block[1]))


def test_every_word_is_there_in_both_languages(page: PlaygroundPage) -> None:
    english, chinese = read_words("en"), read_words("zh")
    assert english.keys() == chinese.keys() and len(english) > 80
    names = re.findall(r"^  (\w+): \(w\) => ", SCRIPTS["examples.js"], re.MULTILINE)
    assert names and {f"example_{name}" for name in names} <= english.keys()
    used = set(re.findall(r'\bt\("(\w+)"', CODE))
    used |= set(re.findall(r'\["(tab\w+)", \w+Tab\]', SCRIPTS["app.js"]))
    for _, attributes in page.tags:
        used |= {str(value) for name, value in attributes.items() if name.startswith("data-i18n")}
    assert used and used <= english.keys(), used - english.keys()
    # what the page does not say in words of its own is the same in both
    same = {key for key in english if english[key] == chinese[key]}
    assert same == {"json"}


def test_the_page_knows_what_the_engine_knows() -> None:
    """Verbs, dialects and loss policies are named in the page; a new one must be named there too."""
    verbs = set(re.findall(r'verb: "(\w+)"', CODE)) | set(re.findall(r'\bapi\("(\w+)"', CODE))
    assert verbs - {"add_tokenizer"} == set(VERBS)
    listed = re.search(r"DIALECTS = (\[.*?\]);", SCRIPTS["left.js"])
    assert listed is not None and set(json.loads(listed[1])) == set(DIALECTS)
    targets = re.search(r"TARGETS = (\[.*?\]);", SCRIPTS["views_template.js"])
    written = {name for name, dialect in DIALECTS.items() if dialect.write is not None} | {"jinja"}
    assert targets is not None and set(json.loads(targets[1])) == written
    policies = re.search(r"POLICIES = (\[.*?\]);", SCRIPTS["views_text.js"])
    assert policies is not None and json.loads(policies[1]) == list(POLICIES)


def test_the_server_sends_it_with_a_strict_policy() -> None:
    with client_of(make_service(playground=True, workers=1)) as client:
        for path in ("/", *(f"/{file.name}" for file in TEXT_FILES)):
            answer = client.get(path)
            assert answer.status_code == 200, path
            policy = answer.headers["content-security-policy"]
            assert "script-src 'self';" in policy and "default-src 'none'" in policy
            assert "unsafe" not in policy and answer.headers["x-content-type-options"] == "nosniff"
            if path.endswith(".js"):
                assert "javascript" in answer.headers["content-type"]
        assert client.get("/../app.py").status_code == 404


# -- the static site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, with empty files in the place of those that npm has."""
    folder = tmp_path_factory.mktemp("site")
    for name in (*build_site.PYODIDE_FILES, build_site.TOKENIZERS_FILE):
        file = folder / "packages" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"")
    vocabularies = folder / "vocabularies"
    vocabularies.mkdir()
    (vocabularies / "tiny.json.gz").write_bytes(b"")
    row = {"name": "tiny", "licence": "MIT", "bytes": 0, "entries": ["chatml"]}
    (vocabularies / "index.json").write_text(json.dumps([row]), encoding="utf-8")
    packages = folder / "packages"
    parts = build_site.SiteParts(packages, packages, vocabularies)
    build_site.build_site(folder / "built", parts)
    return folder / "built"


def test_the_site_runs_the_engine_by_itself(site: Path) -> None:
    policies = {}
    for name in ("index.html", "hub.html"):
        page = (site / name).read_text(encoding="utf-8")
        policy = re.search(r'http-equiv="content-security-policy" content="([^"]*)"', page)
        assert policy is not None
        assert "unsafe-inline" not in policy[1] and "'unsafe-eval'" not in policy[1]
        policies[name] = policy[1]
    # only the page of those who allowed it may reach the hub, and it may reach nothing else
    assert "connect-src 'self';" in policies["index.html"]
    hosts = f"'self' {build_site.HUB} {' '.join(build_site.HUB_FILES)}"
    assert policies["hub.html"] == policies["index.html"].replace(
        "connect-src 'self'", f"connect-src {hosts}"
    )
    assert '"static"' in (site / "mode.js").read_text(encoding="utf-8")


def test_a_site_without_a_hub_has_no_page_for_it(site: Path, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<meta charset="utf-8">', encoding="utf-8")
    build_site.write_pages(tmp_path, "")
    assert [file.name for file in tmp_path.iterdir()] == ["index.html"]


def test_the_list_of_entries_is_there_before_the_engine(site: Path) -> None:
    listed = json.loads((site / "entries.json").read_text(encoding="utf-8"))
    assert [row["name"] for row in listed["vocabularies"]] == ["tiny"]
    assert listed["served"] == [] and {"qwen3", "chatml"} <= {
        row["name"] for row in listed["entries"]
    }


def test_every_file_is_kept_for_a_time_without_network(site: Path) -> None:
    """And another build has another version, so that its files are kept in the place of these."""
    text = (site / "files.js").read_text(encoding="utf-8")
    kept = re.search(r"FILES = (\[.*\]);", text)
    assert kept is not None
    there = {file.relative_to(site).as_posix() for file in site.rglob("*") if file.is_file()}
    vocabularies = {"vocabularies/tiny.json.gz", "vocabularies/turnwise.json.gz"}  # kept when used
    assert set(json.loads(kept[1])) == there - vocabularies - {"files.js"} | {"./"}
    (site / "mode.js").write_text("changed", encoding="utf-8")
    build_site.write_file_list(site)
    assert (site / "files.js").read_text(encoding="utf-8") != text


CALLS = """
import json, sys
from turnwise.serve.playground_api import call
import turnwise, jinja2
assert turnwise.__file__.startswith(sys.argv[1]) and jinja2.__file__.startswith(sys.argv[1])
body = {"template": "qwen3", "messages": [{"role": "user", "content": "hi <|im_end|>"}]}
count = len(call("entries", {})["entries"])
import browser_tokenizer
print(json.dumps([call("render", body)["text"], call("encode", body)["error"]["message"], count]))
"""


def test_the_archive_of_the_engine_is_all_that_it_needs(site: Path, tmp_path: Path) -> None:
    """In a Python without any other package (-S), as in the browser."""
    with zipfile.ZipFile(site / "engine.zip") as archive:
        archive.extractall(tmp_path)
        assert not [name for name in archive.namelist() if name.endswith((".so", ".pyd"))]
    command = [sys.executable, "-S", "-c", CALLS, str(tmp_path)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert not done.returncode, done.stderr
    from turnwise.registry.store import built_in_store
    from turnwise.serve.playground_api import call

    body = {"template": "qwen3", "messages": [{"role": "user", "content": "hi <|im_end|>"}]}
    text, refusal, count = json.loads(done.stdout)
    assert text == call("render", body)["text"]
    assert "tokenizer" in refusal  # vocabularies are JavaScript's: tests/site/test_vocabularies.py
    # Other tests register entries of their own in this process.
    assert count == sum(not entry.unusable for entry in built_in_store().entries.values())


def test_the_same_sources_make_the_same_archive(site: Path, tmp_path: Path) -> None:
    build_site.write_engine(tmp_path / "engine.zip")
    assert (tmp_path / "engine.zip").read_bytes() == (site / "engine.zip").read_bytes()


def test_a_folder_without_pyodide_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"has no pyodide\.mjs.*unpack the npm package there"):
        build_site.build_site(tmp_path / "site", build_site.SiteParts(tmp_path, tmp_path))


def test_the_table_of_vocabularies_fits_the_entries() -> None:
    """Its patterns name entries that are there, and no entry has two vocabularies."""
    table = site_vocabularies.choose_vocabularies(["all"])
    patterns = [pattern for row in table.values() for pattern in row["entries"]]
    found = [fnmatch.filter(entries(), pattern) for pattern in patterns]
    assert all(found), [one for one, names in zip(patterns, found, strict=True) if not names]
    names = [name for some in found for name in some]
    assert len(names) == len(set(names))
    # without a word of whoever builds the site, only what may be passed on as it is
    shipped = site_vocabularies.choose_vocabularies([]).values()
    assert {row["licence"] for row in shipped} == {"Apache-2.0", "MIT"}
