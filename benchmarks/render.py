"""How fast a conversation becomes text, against everyone else who does it: `python benchmarks/render.py`.

For each workload and template all peers render the same conversations, taking turns in one run. Before anything is
timed each peer's text is compared with that of transformers for every conversation; a peer that differs or raises is
not timed and is named below the table, and if it is turnwise or a join of ours the run fails. Every figure is a
ratio: how many times faster than transformers (more is better). Means are geometric and count the templates that a
peer renders; the last column counts those that turnwise and minijinja both render.

The goals are in `goals.toml`.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from statistics import median

import measure
import peers
import workloads

VARIANTS = 4  # conversations that take turns within a sample, so that no peer renders the same objects twice in a row
WARM = 20  # calls before the first that counts: turnwise learns tools that come often
OURS = ("turnwise", "turnwise+pieces", "hand-written")
TITLES = {
    "a": "(a) 3 messages, about 100 characters",
    "b": "(b) system + 6 turns, about 3 KB",
    "c": "(c) system + 10 tools + 40 messages with calls and results, about 60 KB",
}
PAIR = "turnwise : minijinja"


@dataclass
class Report:
    """Ratios by workload, template and peer; what could not be timed; and what is wrong."""

    ratios: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    hand_written_us: dict[str, dict[str, float]] = field(default_factory=dict)

    def mean(self, kind: str, peer: str) -> float | None:
        return measure.geometric_mean(
            row[peer] for row in self.ratios[kind].values() if peer in row
        )

    def pair(self, kind: str) -> float | None:
        rows = [
            row for row in self.ratios[kind].values() if {"turnwise", "minijinja"} <= row.keys()
        ]
        return measure.geometric_mean(row["turnwise"] / row["minijinja"] for row in rows)


def prepared(
    peer: str, subject: workloads.Subject, chats: list[workloads.Conversation], texts: list[str]
) -> list[peers.Render] | str:
    """The peer's calls, one for each conversation; or why it cannot be timed."""
    try:
        calls = [peers.PEERS[peer](subject, chat) for chat in chats]
        same = [call() for call in calls] == texts
        for _ in range(WARM if peer in OURS else 0):
            for call in calls:
                call()
    except NotImplementedError:
        return ""
    except ModuleNotFoundError as missing:
        return f"not installed ({missing.name})"
    except Exception as error:  # a peer may raise anything, and that is a result
        return f"raises {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return calls if same else "its text differs from that of transformers"


def contest(
    report: Report, kind: str, subject: workloads.Subject, chosen: list[str], effort: measure.Effort
) -> None:
    chats = [workloads.WORKLOADS[kind](seed) for seed in range(VARIANTS)]
    reference = [peers.PEERS[peers.REFERENCE](subject, chat) for chat in chats]
    try:
        texts = [call() for call in reference]
    except Exception as error:  # templates refuse conversations with exceptions of all kinds
        report.notes.append(
            f"{subject.name} ({kind}): transformers raises {type(error).__name__}: {error}"
        )
        return
    contestants: dict[str, list[peers.Render]] = {peers.REFERENCE: reference}
    for peer in chosen:
        calls = prepared(peer, subject, chats, texts)
        if isinstance(calls, list):
            contestants[peer] = calls
        elif calls:
            notes = report.faults if peer in OURS else report.notes
            notes.append(f"{subject.name} ({kind}): {peer}: {calls}")
    taken = measure.interleave(contestants, effort)
    row = {peer: measure.ratio(taken[peers.REFERENCE], spent) for peer, spent in taken.items()}
    report.ratios[kind][subject.name] = row
    if "hand-written" in taken:
        report.hand_written_us.setdefault(kind, {})[subject.name] = round(
            median(taken["hand-written"]) / 1000, 2
        )


def painted(report: Report, chosen: list[str]) -> str:
    blocks = ["Times faster than transformers; more is better."]
    for kind, rows in report.ratios.items():
        lines = []
        for name, row in rows.items():
            pair = (
                row["turnwise"] / row["minijinja"]
                if "turnwise" in row and "minijinja" in row
                else None
            )
            lines.append(
                [name, *(measure.shown(row.get(peer)) for peer in chosen), measure.shown(pair)]
            )
        means = [measure.shown(report.mean(kind, peer)) for peer in chosen]
        lines.append(["geometric mean", *means, measure.shown(report.pair(kind))])
        blocks.append(TITLES[kind] + "\n" + measure.table(["template", *chosen, PAIR], lines))
    for kind, spent in report.hand_written_us.items():
        blocks.append(
            f"({kind}) hand-written, microseconds here: "
            + ", ".join(f"{n} {us}" for n, us in spent.items())
        )
    blocks += ["not timed: " + note for note in report.notes]
    blocks += ["WRONG: " + fault for fault in report.faults]
    return "\n\n".join(blocks)


def data(report: Report, chosen: list[str]) -> dict[str, object]:
    return {
        "versions": measure.versions(),
        "times_faster_than_transformers": report.ratios,
        "geometric_means": {
            kind: {peer: report.mean(kind, peer) for peer in chosen} for kind in report.ratios
        },
        "turnwise_to_minijinja": {kind: {"turnwise": report.pair(kind)} for kind in report.ratios},
        "hand_written_microseconds": report.hand_written_us,
        "not_timed": report.notes,
        "wrong": report.faults,
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Ratios of rendering time: all peers against transformers."
    )
    others = [peer for peer in peers.PEERS if peer != peers.REFERENCE]
    parser.add_argument("--templates", nargs="+", metavar="NAME", help=workloads.CHOICE)
    parser.add_argument(
        "--workloads", default="abc", metavar="abc", help="which workloads, as letters"
    )
    parser.add_argument(
        "--peers", nargs="+", choices=others, default=others, help="beside transformers"
    )
    parser.add_argument("--quick", action="store_true", help="shorter samples, noisier figures")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser.parse_args()


def main() -> int:
    asked = arguments()
    chosen = [peer for peer in peers.PEERS if peer in asked.peers]
    report = Report()
    for kind in workloads.WORKLOADS:
        if kind in asked.workloads:
            report.ratios[kind] = {}
            for subject in workloads.subjects(asked.templates):
                if kind in subject.workloads:
                    contest(
                        report,
                        kind,
                        subject,
                        chosen,
                        measure.QUICK if asked.quick else measure.FULL,
                    )
    print(json.dumps(data(report, chosen), indent=2) if asked.json else painted(report, chosen))
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
