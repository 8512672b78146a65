"""What the budgets cost: rendering as it is, against rendering with every charge taken out.

The second side is the same program with its charging lines removed and a `Run` whose `step` and `take` do nothing. The
`walk` of a loop keeps its one subtraction. Also prints, for every template of the corpus, the largest share of each
budget that any conversation of the corpus spends: none may be over a tenth.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from datetime import datetime
from typing import Any

from measure import FULL, geometric_mean, interleave, ratio
from workloads import TEMPLATES, WORKLOADS, corpus, subjects

import turnwise
import turnwise.engine.renderer as renderer_module
from turnwise.engine.program import NAMES, Program
from turnwise.engine.runtime.limits import DEFAULT_LIMITS, Runtime
from turnwise.messages import measure_input
from turnwise.template import compile_jinja

SHARE = 0.1
OVERHEAD = 1.10


class Free(Runtime):
    """A run that nothing is charged to."""

    __slots__ = ()

    def charge_steps(self, count: int) -> None:
        pass

    def charge_bytes(self, count: int) -> None:
        pass


def uncharged(program: Program) -> Any:
    """The program's function without the lines of macros that charge."""
    lines = [line for line in program.python.split("\n") if "check_call_budget(rt)" not in line]
    source = "\n".join(
        line.split("; rt.steps -=")[0] for line in lines if "rt.depth += 1" not in line
    )
    scope = dict(NAMES) | {
        name: value for name, value in program._run.__globals__.items() if name not in NAMES
    }
    exec(compile(source, "<uncharged>", "exec"), scope)
    return scope["run"]


def overheads(names: list[str]) -> dict[str, float]:
    found = {}
    for subject in subjects(names):
        template = turnwise.compile(subject.text)
        free = uncharged(template.program)
        for workload in subject.workloads:
            conversation = WORKLOADS[workload](0)
            context = {
                "messages": conversation.messages,
                "tools": conversation.tools,
                "documents": None,
                "add_generation_prompt": True,
                **subject.options,
            }
            sides = {
                "charged": [
                    lambda c=context, t=template: t.program.run(
                        Runtime(DEFAULT_LIMITS, c, datetime.now), c
                    )
                ],
                "free": [lambda c=context, f=free: f(Free(DEFAULT_LIMITS, c, datetime.now), c)],
            }
            samples = interleave(sides, FULL)
            found[f"{subject.name} ({workload})"] = ratio(samples["charged"], samples["free"])
    return found


def shares() -> dict[str, tuple[float, str]]:
    """The largest share of each budget, and who spends it."""
    folder = corpus().parent
    lines = (folder / "conversations.jsonl").read_text(encoding="utf-8").strip().split("\n")
    chats = [json.loads(line) for line in lines]
    most = {budget: (0.0, "") for budget in ("steps", "bytes", "output")}
    runs: list[Runtime] = []

    class Watched(Runtime):
        def __init__(self, limits: Any, context: Any, now: Any, allowance: Any = None) -> None:
            super().__init__(limits, context, now, allowance)
            self.inputs = context
            runs.append(self)

    renderer_module.Runtime = Watched  # type: ignore[misc]  # watches every rendering from here on
    shallow = replace(
        DEFAULT_LIMITS, depth=int(DEFAULT_LIMITS.depth * SHARE)
    )  # a template that needs more is caught by the budget
    for entry in json.loads((folder / "jinja" / "index.json").read_text(encoding="utf-8")):
        template = compile_jinja(
            (folder / "jinja" / entry["file"]).read_text(encoding="utf-8"), limits=shallow
        )
        for chat in chats:
            try:
                rendering: Any = template.render(
                    chat["messages"], tools=chat.get("tools"), documents=chat.get("documents")
                )
            except turnwise.TemplateLimitError as error:
                raise SystemExit(
                    f"{entry['name']}, {chat['id']}: over a tenth of {error.budget}"
                ) from error
            except turnwise.TurnwiseError:
                rendering = ""
            if runs:
                note(most, runs.pop(), len(str(rendering)), f"{entry['name']}, {chat['id']}")
    renderer_module.Runtime = Runtime  # type: ignore[misc]  # and no more
    return most


def note(most: dict[str, tuple[float, str]], run: Any, length: int, who: str) -> None:
    values, characters = measure_input(run.inputs)
    limits = run.limits
    extended = run._context is None
    shares = limits.share_of(values, characters)
    steps, size, output = (getattr(limits, name) + share for name, share in shares.items())
    spent = {
        "steps": ((steps if extended else limits.steps) - run.steps) / steps,
        "bytes": ((size if extended else limits.bytes) - run.bytes) / size,
        "output": length / output,
    }
    for budget, share in spent.items():
        most[budget] = max(most[budget], (share, who))


def main() -> int:
    parser = argparse.ArgumentParser(
        description="What the budgets cost, and how much of them is used."
    )
    parser.add_argument("--templates", nargs="+", default=list(TEMPLATES))
    parser.add_argument("--check", action="store_true", help="fail when a goal is missed")
    arguments = parser.parse_args()
    found = overheads(arguments.templates)
    print("Time with budgets, as a multiple of the time without; less is better.\n")
    for name, value in found.items():
        print(f"{name:20} {value:.2f}")
    mean = geometric_mean(found.values()) or 1.0
    print(f"{'geometric mean':20} {mean:.2f}\n")
    print("The largest share of each budget that the corpus spends:\n")
    most = shares()
    for budget, (share, who) in most.items():
        print(f"{budget:8} {share:6.1%}  {who}")
    print(f"{'depth':8} no template needs a tenth of it")
    missed = mean > OVERHEAD or any(share > SHARE for share, _ in most.values())
    return int(arguments.check and missed)


if __name__ == "__main__":
    sys.exit(main())
