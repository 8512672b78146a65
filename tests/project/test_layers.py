"""The arrows between rooms point one way, the core does no I/O, and importing is cheap.

The order is that of `scripts/architecture.py`, from which the table of the architecture page is written. Imports are
read from the syntax trees, those under `if TYPE_CHECKING` included: a type is knowledge too. Not seen: a module
imported by a computed name, or a clock reached through `getattr`.
"""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import architecture
import pytest
from architecture import LAYERS

import sources
from sources import Function, Source

LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}

EDGES = {"cli", "serve"}
"""Rooms that may print, read the clock and touch the network."""
FILE_READERS = EDGES | {
    "oracles",
    "registry",
    "compat",
    "integrations",
    "local_files",
    "hub_cache",
    "isolation",
    "publishing",
    "data",
}
"""Rooms that may open files; a worker process has streams and an environment of its own."""
FILE_ADAPTERS = "turnwise.tokens.tokenizers"
"""And this part of a room: a tokenizer is a file."""

PRINTS = {"print", "input", "sys.stdout", "sys.stderr", "sys.stdin", "rich.print"}
CLOCK = {
    *(
        f"datetime.{name}"
        for name in ("datetime.now", "datetime.today", "datetime.utcnow", "date.today")
    ),
    *(
        f"time.{name}"
        for name in (
            "time",
            "time_ns",
            "monotonic",
            "perf_counter",
            "localtime",
            "gmtime",
            "strftime",
        )
    ),
    *(
        f"time.{name}"
        for name in (
            "ctime",
            "monotonic_ns",
            "perf_counter_ns",
            "process_time",
            "sleep",
            "thread_time",
        )
    ),
}
NETWORK = {
    "socket",
    "ssl",
    "http",
    "urllib.request",
    "ftplib",
    "smtplib",
    "requests",
    "httpx",
    "aiohttp",
    "urllib3",
}
FILES = {"open", "io.open", "os.open", "os.environ", "os.getenv", "pathlib.Path", "tempfile"}

ALLOWED = {
    (
        "turnwise.engine.renderer",
        "datetime.datetime.now",
    ): "render without `now` is where the time comes in",
    (
        "turnwise.tokens.request_builder",
        "datetime.datetime.now",
    ): "encode: one time for all prompts of a call",
    (
        "turnwise.engine.runtime.limits",
        "time.thread_time",
    ): "a deadline, where the caller asks for one",
    ("turnwise.processes", "time.monotonic"): "how long to wait for a worker",
    ("turnwise.processes", "os.environ"): "a worker gets the variables of its caller",
    ("turnwise.isolation.pool", "time.monotonic"): "how long to wait for a worker",
}

SEAMS = {
    (
        "turnwise.integrations.sglang",
        "turnwise.integrations.sglang_detectors",
    ): "its classes extend SGLang's, which is imported only by SGLang itself",
}
"""Imports that look down, with the reason."""

LATE = {
    "turnwise.analysis.conversations": "probes, for questions about a template",
    "turnwise.analysis.facts": "what probes show of a template",
    "turnwise.analysis.request_facts": "for requests that ask for reasoning or a choice of tools",
    "turnwise.batch": "for ids",
    "turnwise.conversion": "for `convert`",
    "turnwise.engine.segments": "a call is recorded when it comes again",
    "turnwise.normalisation.content": "for contents that the template does not take",
    "turnwise.normalisation.normaliser": "for conversations that are not plain, or not written whole",
    "turnwise.normalisation.session_reader": "for sessions",
    "turnwise.normalisation.tools": "for tools",
    "turnwise.registry.reference": "for models whose files are in the cache",
    "turnwise.replies.call_ids": "for replies with calls",
    "turnwise.replies.declared": "for the grammar of replies",
    "turnwise.replies.derive": "a grammar is derived when a reply is read, or calls are normalised",
    "turnwise.replies.events": "for replies",
    "turnwise.replies.export": "the largest part of its room, for constrained decoding only",
    "turnwise.replies.input_format": "for messages that were parsed from replies",
    "turnwise.replies.parser": "for replies",
    "turnwise.replies.write": "for sessions that write replies",
    "turnwise.shapes": "for conversations that are not OpenAI's messages",
    "turnwise.tokens": "for ids",
    "turnwise.training": "for samples",
}
"""Modules and packages that functions import, so that who renders does not wait for them; with the reason.

A room that looks down on one of them imports it at the top, if rendering does not need that room either.
"""

CHEAP_SECONDS = 0.2
CHEAP_RATIO = 6.0  # of jinja2's import; 3.9 was seen, with 221 modules
"""On a machine too slow for that: at most so many times the cost of importing jinja2, which we cannot avoid."""
HEAVY = ("transformers", "torch", "numpy", "gguf", "tokenizers", "minijinja")


def test_every_room_has_a_level() -> None:
    unknown = {source.room for source in sources.package()} - set(LEVEL)
    assert not unknown, f"rooms that the architecture does not draw: {sorted(unknown)}"


def test_the_architecture_page_is_up_to_date() -> None:
    page = architecture.PAGE.read_text(encoding="utf-8")
    assert page == architecture.write_page(), "run python scripts/architecture.py"


def test_imports_only_look_up() -> None:
    wrong = [
        f"{source.place}: {source.room} must not import {target}"
        for source in sources.package()
        for target, _ in own_imports(source)
        if room(target) != source.room and LEVEL[room(target)] >= LEVEL[source.room]
    ]
    assert not wrong, "\n".join(wrong)


def test_no_cycles() -> None:
    graph = {
        source.module: {target for target, _ in own_imports(source)} for source in sources.package()
    }
    cycle = find_cycle(graph)
    assert not cycle, " -> ".join(cycle)


def test_own_imports_stand_at_the_top() -> None:
    hidden = [
        f"{source.place}:{line}: {target} is imported inside of a function"
        for source in sources.package()
        for functions in [list_lines_of_functions(source)]
        for target, line in own_imports(source)
        if line in functions and not is_late(target)
    ]
    assert not hidden, "\n".join(hidden)


def test_rendering_imports_nothing_late() -> None:
    chat = '[{"role": "user", "content": "Hi"}]'
    loaded = run(
        f"import sys, turnwise; turnwise.load('qwen3').render({chat}); print(*sys.modules)"
    ).split()
    assert "turnwise.template" in loaded
    assert not list(filter(is_late, loaded))


def is_late(module: str) -> bool:
    return any(module == late or module.startswith(f"{late}.") for late in LATE)


@pytest.mark.parametrize(
    ("what", "names", "rooms"),
    [
        ("prints", PRINTS, EDGES),
        ("reads the clock", CLOCK, EDGES),
        ("touches the network", NETWORK, EDGES),
        ("reads files", FILES, FILE_READERS),
    ],
)
def test_the_core_does_no_io(what: str, names: set[str], rooms: set[str]) -> None:
    wrong = [
        f"{source.place}:{line}: {what} ({name})"
        for source in sources.package()
        if source.room not in rooms
        and not (names is FILES and source.module.startswith(FILE_ADAPTERS))
        for name, line in mentions(source, names)
        if (source.module, name) not in ALLOWED
    ]
    assert not wrong, "\n".join(wrong)


def test_import_is_light() -> None:
    code = f"import sys, turnwise; turnwise.load; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    assert run(code).split() == []


def test_import_is_quick() -> None:
    ours, floor = [], []
    for _ in range(8):
        ours.append(import_seconds("turnwise.registry"))  # `turnwise` itself loads what is used
        floor.append(import_seconds("jinja2"))
        if min(ours) < CHEAP_SECONDS:
            return
    assert min(ours) < CHEAP_RATIO * min(floor), (
        f"what turnwise.load needs takes {min(ours):.3f} s, import jinja2 {min(floor):.3f} s"
    )


# How the facts are found


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def list_lines_of_functions(source: Source) -> set[int]:
    lines: set[int] = set()
    for function in source.functions():
        lines.update(range(function.lineno, (function.end_lineno or 0) + 1))
    return lines


@functools.cache
def list_modules() -> frozenset[str]:
    return frozenset(source.module for source in sources.package())


def own_imports(source: Source) -> Iterator[tuple[str, int]]:
    """Pairs of a module of this package and the line that imports it."""
    modules = list_modules()
    for node in source.nodes:
        for name in list_imports(source, node):
            # `from turnwise.engine import limits` means the module, `from turnwise.engine import run` the package.
            target = name if name in modules else name.rpartition(".")[0]
            is_seam = (source.module, target) in SEAMS
            if target in modules and target != source.module and not is_seam:
                yield target, node.lineno  # type: ignore[attr-defined]


def list_imports(source: Source, node: ast.AST) -> list[str]:
    """Full dotted names that the statement brings in."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = ".".join(filter(None, [parent(source, node.level), node.module]))
        return [f"{base}.{alias.name}" for alias in node.names]
    return []


def parent(source: Source, level: int) -> str | None:
    if not level:
        return None
    parts = source.module.split(".")
    above = level - (source.path.name == "__init__.py")
    return ".".join(parts[: len(parts) - above])


def find_cycle(graph: dict[str, set[str]]) -> list[str]:
    done: set[str] = set()

    def visit(module: str, trail: list[str]) -> list[str]:
        if module in trail:
            return [*trail[trail.index(module) :], module]
        if module in done:
            return []
        for target in sorted(graph[module]):
            if found := visit(target, [*trail, module]):
                return found
        done.add(module)
        return []

    return next((found for module in sorted(graph) if (found := visit(module, []))), [])


def mentions(source: Source, names: set[str]) -> Iterator[tuple[str, int]]:
    """Uses of forbidden dotted names, whatever they were called on import; importing one is a use."""
    for name, line in imports_of_others(source):
        if forbidden(name, names):
            yield name, line
    yield from (use for use in list_uses(source) if use[0] in names)


@functools.cache
def list_uses(source: Source) -> list[tuple[str, int]]:
    """Return the dotted names that a file reads and does not define, with their lines."""
    called = import_names(source)
    own = bound_names(source) - set(called)
    uses = []
    for node in source.nodes:
        first, _, rest = to_dotted(node).partition(".")
        if first and first not in own:
            full = called.get(first, first) + (f".{rest}" if rest else "")
            uses.append((full, node.lineno))  # type: ignore[attr-defined]
    return uses


def imports_of_others(source: Source) -> Iterator[tuple[str, int]]:
    for node in source.nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def import_names(source: Source) -> dict[str, str]:
    """What a name in this file stands for: `{"np": "numpy", "datetime": "datetime.datetime"}`."""
    called: dict[str, str] = {}
    for node in source.nodes:
        if isinstance(node, ast.Import):
            called.update({alias.asname: alias.name for alias in node.names if alias.asname})
        elif isinstance(node, ast.ImportFrom) and not node.level:
            called.update(
                {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            )
    return called


def bound_names(source: Source) -> set[str]:
    """Names that the file gives to something of its own: a local called `input` is not the builtin."""
    nodes = source.nodes
    defined = {node.name for node in nodes if isinstance(node, Function | ast.ClassDef)}
    assigned = {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return defined | assigned | {node.arg for node in nodes if isinstance(node, ast.arg)}


def forbidden(name: str, names: set[str]) -> bool:
    """Whether the name or a package above it is."""
    parts = name.split(".")
    return any(".".join(parts[:length]) in names for length in range(1, len(parts) + 1))


def to_dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (front := to_dotted(node.value)):
        return f"{front}.{node.attr}"
    return ""


@functools.cache
def bytecode() -> str:
    """A folder for bytecode: an installed package has it, and this environment may forbid to write it."""
    return tempfile.mkdtemp(prefix="turnwise-bytecode-")


def import_seconds(module: str) -> float:
    """Return the processor time of an import in a process of its own; others may use the machine."""
    code = f"import time; start = time.process_time(); import {module}; print(time.process_time() - start)"
    return float(run(code))


def run(code: str) -> str:
    command = [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {str(sources.PACKAGE.parent)!r}); {code}",
    ]
    environment = {
        key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"
    }
    environment["PYTHONPYCACHEPREFIX"] = bytecode()
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    ).stdout
