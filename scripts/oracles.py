"""Write docs/oracles.md: each entry that has an oracle against its maker's encoder, on random conversations.

    python scripts/oracles.py                        all whose encoder can be run here
    python scripts/oracles.py --count 2000           so many random conversations each
    python scripts/oracles.py --encoders FOLDER      with makers' files (encoding_dsv32.py), which are run locked

The packages are those of the extra `test`; openai-harmony reads its vocabulary from TIKTOKEN_ENCODINGS_BASE. Where
TURNWISE_VLLM and TURNWISE_SGLANG name checkouts of these engines, their copies of the encoders are asked too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import turnwise
from turnwise.analysis.conversations import Probe
from turnwise.errors import SourceError
from turnwise.evidence.conform import DECLINED, EngineComparison, is_wire_probe, wire_request
from turnwise.oracles import EncoderFile, Oracle, find_oracle

PAGE = Path(__file__).resolve().parent.parent / "docs" / "oracles.md"
HEAD = """# Entries and their makers' encoders

Written by `make oracles` on {day}: what each entry writes against what the encoder of the model's maker writes, on the
fixed conversations of `conform` and {count} random ones. *Compared* are those that both write. What the encoder refuses
by rules about requests (a call without its result, an effort that the model has not) is counted apart. The last columns
are the encoders of {engines}, held to the maker's on the same conversations.

| entry | encoder | version | compared | equal | share | both refuse | the encoder alone | vLLM | SGLang |
|---|---|---|---:|---:|---:|---:|---:|---:|---:|
"""
REASONS = """
## Differences, and why

{rows}

* Late system texts are given to template and encoder where they stand (`late_system="in_place"`).
* Numbers such as 1e+30 in the arguments of calls are left out: libraries in Rust spell them 1e30.
* Texts of the developer go to DeepSeek V4, Mistral and Kimi K3 as system texts.
* The file of DeepSeek V3.2 writes results in the order that they have; `render` puts them into the order of their
  calls, as the maker's later encoders do. Only conversations in which they are in order are compared.
* The files of DeepSeek V3.2 and Kimi K3 themselves could not be read here. The first is vLLM's copy, with the blank
  lines of the maker's fixtures put back; the second a transcript, without images, of a copy that derives from the
  maker's. The hash is that of the file that was run.
* Kimi K3's encoder orders results by their calls also where other messages stand between or among them; `render` where
  a system text stands between calls and results, and not where it stands among the results.
* A reasoning under another name than `reasoning_content` is renamed by `render`, and is not asked for.
* vLLM and SGLang have copies of the encoders of DeepSeek V3.2 and V4, which are called as their servers call them, with
  thinking and effort named. For gpt-oss, Mistral and Command they call the maker's package, and for Kimi K3 the file of
  the model, so there is nothing to compare. Where they differ: {engine_reasons}
"""


@dataclass(frozen=True)
class EngineCopy:
    """An engine's copy of a maker's encoder.

    Attributes:
        engine: Its name.
        checkout: The variable that names the checkout.
        file: The encoder in it.
        prepare: Makes of messages and tools what the engine's server gives to the encoder.
        options: Further arguments that it gives.
    """

    engine: str
    checkout: str
    file: str
    prepare: Callable[[list[Any], list[Any] | None], list[Any]]
    options: dict[str, Any] = field(default_factory=dict)

    def open(self) -> EncoderFile | None:
        folder = os.environ.get(self.checkout)
        if not folder:
            return None
        return EncoderFile(Path(folder) / self.file, trust_encoder=True)

    def read_commit(self) -> str:
        command = ["git", "-C", os.environ[self.checkout], "log", "-1", "--format=%h of %cs"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def prepare_for_vllm(messages: list[Any], tools: list[Any] | None) -> list[Any]:
    named = [{**message, "reasoning": message.get("reasoning_content")} for message in messages]
    return [{"role": "system", "tools": tools}, *named] if tools else named


def prepare_for_sglang(messages: list[Any], tools: list[Any] | None) -> list[Any]:
    if messages[0]["role"] != "system":
        messages = [{"role": "system", "content": ""}, *messages]
    return [{**messages[0], "tools": tools}, *messages[1:]] if tools else messages


RECONSTRUCTIONS = {"kimi-k3": "encoding_k3.py"}
"""Entries that no file of the maker verifies: what stood for it."""
VLLM, SGLANG = "vllm/tokenizers/", "python/sglang/srt/entrypoints/openai/"
COPIES = {
    "deepseek-v3.2": (
        EngineCopy("vLLM", "TURNWISE_VLLM", f"{VLLM}deepseek_v32_encoding.py", prepare_for_vllm),
        EngineCopy("SGLang", "TURNWISE_SGLANG", f"{SGLANG}encoding_dsv32.py", prepare_for_sglang),
    ),
    "deepseek-v4": (
        EngineCopy("vLLM", "TURNWISE_VLLM", f"{VLLM}deepseek_v4_encoding.py", prepare_for_vllm),
        EngineCopy(
            "SGLang",
            "TURNWISE_SGLANG",
            f"{SGLANG}encoding_dsv4.py",
            prepare_for_sglang,
            {"reasoning_effort_profile": "official"},
        ),
    ),
}


def measure_copies(name: str, oracle: Oracle, probes: list[Probe]) -> tuple[list[str], list[str]]:
    """Return a cell for each engine: how many of the maker's prompts its copy writes; and where it does not."""
    cells, reasons = [], []
    for copy in COPIES.get(name, ()):
        encoder = copy.open()
        if encoder is None:
            cells.append("-")
            continue
        equal: Counter[bool] = Counter()
        about: Counter[str] = Counter()
        for probe in probes:
            request = wire_request(probe)
            asked = request.get("chat_template_kwargs") or {}
            if name == "deepseek-v4":
                asked = {"thinking": asked.get("reasoning_effort") != "none", **asked}
                asked.setdefault("reasoning_effort", "high")
            if copy.engine == "vLLM" and name == "deepseek-v3.2":
                asked = {**asked, "drop_thinking": request["messages"][-1]["role"] == "user"}
            theirs = oracle.render({**request, "chat_template_kwargs": asked})
            given = {**asked, **copy.options}
            if given.get("reasoning_effort") == "none":
                given["reasoning_effort"] = None
            named = [
                {**m, "role": oracle.roles.get(m["role"], m["role"])} for m in request["messages"]
            ]
            messages = copy.prepare(named, request.get("tools"))
            prepared = {"messages": messages, "chat_template_kwargs": given}
            found = encoder.render(prepared)
            if theirs.refusal is not None or found.refusal is not None:
                continue
            equal[found.text == theirs.text] += 1
            if found.text != theirs.text:
                about[describe_request(request, asked)] += 1
        encoder.close()
        compared = sum(equal.values())
        cells.append(f"{equal[True]:,} of {compared:,}")
        shown = ", ".join(f"{what} ({count})" for what, count in about.most_common(4))
        reasons.append(f"{copy.engine} {copy.read_commit()}, `{name}`: {shown}")
    return (cells + ["-", "-"])[:2], reasons


def describe_request(request: dict[str, Any], asked: dict[str, Any]) -> str:
    """Return what is unusual about a request, as a phrase."""
    roles = [message["role"] for message in request["messages"]]
    unusual = {
        "response_format": asked.get("response_format"),
        "tool_choice": asked.get("tool_choice") and request.get("tools"),
        "developer": "developer" in roles,
        "late system texts": "system" in roles[1:],
        "tools": request.get("tools"),
        "results": "tool" in roles,
        "reasoning": any(message.get("reasoning_content") for message in request["messages"]),
    }
    return next((name for name, is_there in unusual.items() if is_there), "other conversations")


def measure(name: str, oracle: Oracle, count: int) -> tuple[str, list[str], list[str]]:
    """Return the row of an entry, the rows of its differences, and those of engines' copies."""
    comparison = EngineComparison(oracle, turnwise.load(name))
    outcomes: Counter[str | None] = Counter()
    differences, probes = [], []
    for probe in comparison.list_probes(seed=1, count=count):
        if oracle.name.endswith(".py"):
            probe = fit_to_file(probe, oracle.name)
            if probe is None or not is_wire_probe(probe, False):
                continue
        probes.append(probe)
        outcome = comparison.compare(probe)
        outcomes[outcome] += 1
        if outcome in ("text", "ids", "refusal"):
            found = comparison.describe(comparison.shrink(probe, outcome), outcome)
            roles = ", ".join(message["role"] for message in wire_request(found.probe)["messages"])
            ours, theirs = (text[found.at :][:40] for text in (found.expected, found.got))
            differences.append(f"* `{name}` on {roles}: `{ours!r}`, the encoder `{theirs!r}`")
    equal, refused, declined = outcomes[""], outcomes[None], outcomes[DECLINED]
    compared = sum(outcomes.values()) - refused - declined
    share = f"{equal / compared:.2%}" if compared else "-"
    source = oracle.package or oracle.name
    cells = (
        f"`{name}`",
        source,
        oracle.version,
        f"{compared:,}",
        f"{equal:,}",
        share,
        f"{refused:,}",
        f"{declined:,}",
    )
    copies, reasons = measure_copies(name, oracle, probes)
    return f"| {' | '.join((*cells, *copies))} |\n", differences, reasons


def fit_to_file(probe: Probe, name: str) -> Probe | None:
    """Return a conversation as a maker's file expects it from its caller; None if it is not for it."""
    results = [m["tool_call_id"] for m in probe.messages if m["role"] == "tool"]
    if name == "encoding_dsv32.py":
        return probe if results == sorted(results) else None
    messages = [{**m, "role": "system"} if m["role"] == "developer" else m for m in probe.messages]
    return replace(probe, messages=messages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=3600)
    parser.add_argument("--entries", nargs="*", help="only these")
    parser.add_argument("--encoders", type=Path, help="a folder with makers' files")
    wanted = parser.parse_args()
    rows, differences, engine_reasons = [], [], []
    for name, entry in turnwise.entries().items():
        place = entry.oracle or RECONSTRUCTIONS.get(name)
        if not place or (wanted.entries and name not in wanted.entries):
            continue
        if place.endswith(".py"):
            if wanted.encoders is None or not (wanted.encoders / place).exists():
                continue
            place = wanted.encoders / place
        try:
            oracle = find_oracle(place, trust_encoder=True)
        except SourceError as error:
            print(f"{name}: {error.message}")
            continue
        row, found, reasons = measure(name, oracle, wanted.count)
        print(row, end="", flush=True)
        rows.append(row)
        differences += found
        engine_reasons += reasons
    copies = {copy.engine: copy for copies in COPIES.values() for copy in copies}
    engines = [f"{n} {c.read_commit()}" for n, c in copies.items() if os.environ.get(c.checkout)]
    head = HEAD.format(
        day=date.today(), count=f"{wanted.count:,}", engines=" and ".join(engines) or "engines"
    )
    reasons_text = REASONS.format(
        rows="\n".join(differences) or "There are none.",
        engine_reasons="; ".join(engine_reasons) or "they were not asked",
    )
    PAGE.write_text(f"{head}{''.join(rows)}{reasons_text}", encoding="utf-8")


if __name__ == "__main__":
    main()
