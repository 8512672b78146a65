"""The largest share of its allowance that each verb spends on the templates of the corpus and the registry.

A call that renders often has one budget for all its renderings. Real templates must not come near it.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from workloads import corpus

import turnwise
from turnwise.engine.runtime import limits
from turnwise.template import Template, compile_jinja

CHAT = [
    {"role": "user", "content": "What is the weather?"},
    {"role": "assistant", "content": "It rains."},
    {"role": "user", "content": "And tomorrow?"},
    {"role": "assistant", "content": "It rains again."},
]
TOKENIZER = "turnwise"
DIALECTS = ("fastchat", "xtuner", "llamafactory", "paddlenlp", "ollama")
VERBS: dict[str, Callable[[Template], object]] = {
    "stops": lambda t: t.stops(),
    "grammar, facts": lambda t: (t.grammar, str(t.facts)),
    "encode": lambda t: t.encode(CHAT, TOKENIZER),
    "examples": lambda t: t.examples(CHAT, TOKENIZER),
    "session": lambda t: t.session(TOKENIZER).prompt(CHAT[:3]),
    **{f"convert {name}": lambda t, name=name: t.convert(name) for name in DIALECTS},
    "diff": lambda t: turnwise.diff(t, t),
}


def templates(every: int) -> Iterator[tuple[str, Callable[[], Template]]]:
    folder = corpus().parent / "jinja"
    for row in json.loads((folder / "index.json").read_text(encoding="utf-8"))[::every]:
        text = (folder / row["file"]).read_bytes().decode("utf-8")
        options = {key: row[key] for key in ("bos_token", "eos_token") if row[key] is not None}
        yield row["name"], lambda text=text, options=options: compile_jinja(text, options=options)
    for name in list(turnwise.entries())[::every]:
        yield name, lambda name=name: turnwise.load(name)


def largest_shares(verb: Callable[[Template], object], every: int) -> dict[str, tuple[float, str]]:
    seen: list[Any] = []
    most = dict.fromkeys(limits.BUDGETS, (0.0, ""))
    make = limits.Allowance.__init__

    def watch(self: Any, *arguments: Any) -> None:
        make(self, *arguments)
        seen.append(self)

    limits.Allowance.__init__ = watch  # type: ignore[method-assign]  # watches every call from here on
    for name, compiled in templates(every):
        seen.clear()
        try:
            verb(compiled())
        except turnwise.TemplateLimitError as error:
            print(f"{name}: {error.message}")
        except turnwise.TurnwiseError:
            pass
        for allowance in seen:
            for budget in limits.BUDGETS:
                spent = allowance._spent[budget]
                share = spent / (spent + allowance.left(budget))
                most[budget] = max(most[budget], (share, name))
    limits.Allowance.__init__ = make  # type: ignore[method-assign]  # and no more
    return most


def main() -> int:
    parser = argparse.ArgumentParser(description="What verbs spend of their allowances.")
    parser.add_argument("--every", type=int, default=1, help="take every n-th template only")
    parser.add_argument("--verbs", nargs="+", default=list(VERBS))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for verb in arguments.verbs:
        most = largest_shares(VERBS[verb], arguments.every)
        shares = [f"{name} {share:6.1%} ({who})" for name, (share, who) in most.items()]
        print(f"{verb:20} {'  '.join(shares)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
