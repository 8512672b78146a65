"""`make fuzz`: try to break the readers, the engine and the command line with inputs that nobody wrote.

    python fuzz/run.py                          all targets, two minutes each
    python fuzz/run.py gguf --minutes 0.1       one target
    python fuzz/run.py gguf --count 20000       so many inputs
    python fuzz/run.py gguf --seed 4711         one input again, with what went wrong

Exit code 1 if anything failed; the inputs are in `fuzz/failures/`. An input that failed becomes a file in
`fuzz/seeds/`, from which later runs start, and a test.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The targets are no package: their folders must be on the path before they are imported (E402).
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "src"), str(ROOT / "tests" / "support")]

import inputs  # noqa: E402
import readers  # noqa: E402
from harness import FAILURES, Target, run_target  # noqa: E402

TARGETS: dict[str, Target] = {target.name: target for target in (*readers.TARGETS, *inputs.TARGETS)}
MINUTES = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz turnwise.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument(
        "--minutes", type=float, help=f"for each target; {MINUTES:g} if nothing is said"
    )
    parser.add_argument("--count", type=int, help="inputs for each target, instead of minutes")
    parser.add_argument(
        "--first", type=int, help="the first seed; by default the time, so that each run is new"
    )
    parser.add_argument("--seed", type=int, help="run this one again")
    arguments = parser.parse_args()
    unknown = set(arguments.targets) - set(TARGETS)
    if unknown:
        parser.error(
            f"there is no target {', '.join(sorted(unknown))}; known: {', '.join(TARGETS)}"
        )
    warnings.simplefilter("ignore")
    first, count, minutes = arguments.first, arguments.count, arguments.minutes
    if arguments.seed is not None:
        first, count = arguments.seed, 1
    elif count is None and minutes is None:
        minutes = MINUTES
    if first is None:
        first = 0 if count is not None else int(time.time()) * 1_000
    failures = 0
    for name in arguments.targets or TARGETS:
        report = run_target(TARGETS[name], first, count, minutes)
        print(report, flush=True)
        for failure in report.failures:
            print(f"  {failure.kind}: {failure.what}\n    repeat: {failure.command}")
            if arguments.seed is not None:
                print(failure.details)
        failures += len(report.failures)
    if failures:
        print(f"inputs that failed: {FAILURES}")
    shutil.rmtree(readers.scratch(), ignore_errors=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
