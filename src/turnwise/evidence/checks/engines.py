"""Other engines that render chat templates, asked for real: minijinja, and `@huggingface/jinja` under Node.

Neither is a dependency. minijinja is asked if its Python package is installed; the other if there is a `node` whose
module path (`NODE_PATH`, or a `node_modules` folder) has the package. An engine that is missing, or that does not end
within its limits, is a reason, which the report repeats, and no finding.

A template may come from anybody, and these engines count what they do less strictly than ours. So each runs in a child
process with limits of time, memory and output; JSON goes in, and JSON comes out.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from importlib.util import find_spec
from shutil import which
from threading import Timer
from typing import Any, NamedTuple

from turnwise.analysis.conversations import Probe

PACKAGE = "@huggingface/jinja"
CLOCK = "strftime_now"
TIMEOUT = 20  # seconds for all conversations of one template
SECONDS = 3  # of processor time, for all conversations of one template
MEGABYTES = 512
FUEL = 2_000_000  # steps that minijinja may take for one conversation
MAX_OUTPUT = 8 << 20

MINIJINJA_SCRIPT = f"""
import json, sys
from datetime import datetime
import minijinja
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS}, {SECONDS}))
    resource.setrlimit(resource.RLIMIT_AS, ({MEGABYTES << 20}, {MEGABYTES << 20}))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except (ImportError, ValueError, OSError):
    pass

def raise_exception(text):
    raise ValueError(str(text))

def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    marks = (str(separators[0]), str(separators[1])) if separators is not None else None
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=marks, sort_keys=sort_keys)

work = json.load(sys.stdin)
environment = minijinja.Environment(pycompat=True, trim_blocks=True, lstrip_blocks=True, fuel={FUEL})
environment.add_function("raise_exception", raise_exception)
environment.add_filter("tojson", to_json)
answers = []
for context, now in zip(work["contexts"], work["clocks"]):
    environment.add_global("{CLOCK}", datetime.fromisoformat(now).strftime)
    try:
        answers.append({{"text": environment.render_str(work["text"], **context)}})
    except Exception as error:  # another engine may raise anything
        answers.append({{"error": str(error).split("\\n", 1)[0]}})
sys.stdout.write(json.dumps(answers))
"""
NODE_SCRIPT = """
const read = require('fs').readFileSync(0, 'utf8');
const { Template } = require('@huggingface/jinja');
const work = JSON.parse(read);
let template;
try { template = new Template(work.text); }
catch (error) { console.log(JSON.stringify(work.contexts.map(() => ({ error: String(error) })))); process.exit(0); }
console.log(JSON.stringify(work.contexts.map((context) => {
  try {
    return { text: template.render(context) };
  } catch (error) { return { error: String(error) }; }
})));
"""


class EngineMissing(Exception):
    """The engine is not installed, or did not end; the text is the reason."""


class EngineAnswer(NamedTuple):
    """What an engine made of a conversation: a text, or an error."""

    text: str | None
    error: str = ""


def render_with_minijinja(
    text: str, probes: Sequence[Probe], constants: dict[str, Any]
) -> list[EngineAnswer]:
    """Render conversations with the Python package minijinja, with the methods of Python's own types.

    Raises:
        EngineMissing: the package is not installed, or went over its limits.
    """
    if find_spec("minijinja") is None:
        raise EngineMissing("the Python package minijinja is not installed")
    return _run_engine(
        "minijinja", [sys.executable, "-P", "-c", MINIJINJA_SCRIPT], text, probes, constants
    )


def render_with_node(
    text: str, probes: Sequence[Probe], constants: dict[str, Any]
) -> list[EngineAnswer]:
    """Render conversations with the npm package @huggingface/jinja.

    Raises:
        EngineMissing: there is no Node, or the package is not installed, or it went over its limits.
    """
    node = _find_node()
    if CLOCK in text:  # the package reads the clock itself
        raise EngineMissing(f"the template asks for the time, which {PACKAGE} does not let us set")
    command = [node, f"--max-old-space-size={MEGABYTES}", "-e", NODE_SCRIPT]
    return _run_engine("node", command, text, probes, constants)


def _run_engine(
    name: str, command: list[str], text: str, probes: Sequence[Probe], constants: dict[str, Any]
) -> list[EngineAnswer]:
    """Run a child that reads all of its input before it writes anything."""
    contexts = [_context_of(probe, constants) for probe in probes]
    clocks = [probe.now.isoformat() for probe in probes]
    work = {"text": text, "contexts": contexts, "clocks": clocks}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    try:
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, **pipes) as child:
            timer = Timer(TIMEOUT, child.kill)
            timer.start()
            try:
                assert child.stdin is not None and child.stdout is not None
                child.stdin.write(json.dumps(work, default=_plain).encode())
                child.stdin.close()
                output = child.stdout.read(MAX_OUTPUT + 1)
            finally:
                timer.cancel()
                child.kill()
        rows = json.loads(output)
    except (
        OSError,
        ValueError,
    ):  # it ended before it read or wrote all, was killed, or wrote too much
        limits = f"{SECONDS} seconds and {MEGABYTES} MB"
        raise EngineMissing(f"{name} did not end on this template within {limits}") from None
    return [EngineAnswer(row.get("text"), row.get("error", "")) for row in rows]


@cache
def _find_node() -> str:
    """Return the node that has the package; looked for once.

    Raises:
        EngineMissing: there is none.
    """
    node = which("node")
    if node is None:
        raise EngineMissing("there is no node")
    command = [node, "-e", f"require.resolve({PACKAGE!r})"]
    try:
        is_found = not subprocess.run(command, capture_output=True, timeout=TIMEOUT).returncode
    except (OSError, subprocess.TimeoutExpired):
        is_found = False
    if not is_found:
        raise EngineMissing(f"the npm package {PACKAGE} is not installed for node")
    return node


Engine = Callable[[str, Sequence[Probe], dict[str, Any]], list[EngineAnswer]]


def _context_of(probe: Probe, constants: dict[str, Any]) -> dict[str, Any]:
    context = {**constants, **probe.arguments(), "messages": probe.messages}
    del context["now"]
    return {name: value for name, value in context.items() if value is not None}


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)
