"""Other engines that render chat templates, asked for real: minijinja, and `@huggingface/jinja` under Node.

Neither is a dependency. minijinja is asked if its Python package is installed; the other if there is a `node` whose
module path (`NODE_PATH`, or a `node_modules` folder) has the package. An engine that is missing is a reason, which the
report repeats, and no finding.
"""

from __future__ import annotations

import importlib
import json
import subprocess
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from shutil import which
from typing import Any, NamedTuple

from turnwise.analysis.conversations import Probe

PACKAGE = "@huggingface/jinja"
CLOCK = "strftime_now"
TIMEOUT = 20  # seconds for all conversations of one template
FUEL = 2_000_000  # steps that minijinja may take for one conversation
MAX_OUTPUT = 8 << 20

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
    """The engine is not installed; the text is the reason."""


class EngineAnswer(NamedTuple):
    """What an engine made of a conversation: a text, or an error."""

    text: str | None
    error: str = ""


def render_with_minijinja(
    text: str, probes: Sequence[Probe], constants: dict[str, Any]
) -> list[EngineAnswer]:
    """Render conversations with the Python package minijinja, with the methods of Python's own types.

    Raises:
        EngineMissing: the package is not installed.
    """
    try:
        minijinja = importlib.import_module("minijinja")
    except ImportError:
        raise EngineMissing("the Python package minijinja is not installed") from None
    environment = minijinja.Environment(
        pycompat=True, trim_blocks=True, lstrip_blocks=True, fuel=FUEL
    )
    environment.add_function("raise_exception", _raise_exception)
    environment.add_filter("tojson", _to_json)
    answers = []
    for probe in probes:
        environment.add_global("strftime_now", probe.now.strftime)
        context = _context_of(probe, constants)
        try:
            answers.append(EngineAnswer(environment.render_str(text, **context)))
        except Exception as error:  # whatever a foreign engine raises is its answer
            answers.append(EngineAnswer(None, str(error).split("\n", 1)[0]))
    return answers


def render_with_node(
    text: str, probes: Sequence[Probe], constants: dict[str, Any]
) -> list[EngineAnswer]:
    """Render conversations with the npm package @huggingface/jinja.

    Raises:
        EngineMissing: there is no Node, or the package is not installed, or it did not answer in time.
    """
    node = _find_node()
    if CLOCK in text:  # the package reads the clock itself
        raise EngineMissing(f"the template asks for the time, which {PACKAGE} does not let us set")
    contexts = [_context_of(probe, constants) for probe in probes]
    work = json.dumps({"text": text, "contexts": contexts}, default=_plain)
    try:
        done = subprocess.run(
            [node, "-e", NODE_SCRIPT], input=work, capture_output=True, text=True, timeout=TIMEOUT
        )
    except (OSError, subprocess.TimeoutExpired):
        raise EngineMissing(f"node did not answer in {TIMEOUT} seconds") from None
    if done.returncode or len(done.stdout) > MAX_OUTPUT:
        raise EngineMissing("node failed on this template")
    try:
        rows = json.loads(done.stdout)
    except ValueError:
        raise EngineMissing("node answered with something else than JSON") from None
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


def _raise_exception(text: Any) -> None:
    raise ValueError(str(text))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Sequence[str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON as transformers does."""
    marks = (str(separators[0]), str(separators[1])) if separators is not None else None
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=marks,
        sort_keys=sort_keys,
        default=_plain,
    )


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)
