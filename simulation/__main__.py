"""`python -m simulation`: live through many seeds; the first that fails is lived through again, and told.

    python -m simulation --seeds 1000             seeds 1 to 1000
    python -m simulation --seed 4711 --replay     that one, with everything that happens in it
    python -m simulation --planted all            at which seed each planted bug is found

Exit code 0: all that was promised held. 1: a seed failed, or a planted bug was not found. 2: a seed that was lived
through twice did not come out the same.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from simulation.faults import FAULTS
from simulation.planted import PLANTED, plant
from simulation.seed import Outcome, live_through

TWICE = 50  # one of so many seeds is lived through twice
TOLD = 60  # last lines of what happened that are shown
SHOWN = 10  # violations
EVERY = 20.0  # seconds between two words on how far it is


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=_count, help="how many (1, with --replay; else 1000)")
    parser.add_argument("--seed", type=int, default=1, help="the first of them")
    parser.add_argument("--seconds", type=float, help="of faults in each; else the seed decides")
    parser.add_argument(
        "--faults", type=_faults, help="these alone, by commas; else the seed decides: " + ", ".join(FAULTS)
    )
    parser.add_argument("--minutes", type=float, help="stop after so long, however many seeds are left")
    parser.add_argument("--replay", action="store_true", help="tell everything that happens")
    parser.add_argument("--planted", choices=("all", *PLANTED), metavar="NAME", help="plant a bug: all, or one of "
                        + ", ".join(PLANTED))  # fmt: skip
    arguments = parser.parse_args(argv)
    if arguments.seeds is None:
        arguments.seeds = 1 if arguments.replay else 1000
    return arguments


def _count(text: str) -> int:
    """None at all would be a search that cannot fail."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1 on expected, got {text!r}")
    return int(text)


def _faults(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in FAULTS]:
        raise argparse.ArgumentTypeError(f"there is no fault {', '.join(unknown)}; there are {', '.join(FAULTS)}")
    return names


class Report:
    """How far it is, and what was lived through."""

    def __init__(self) -> None:
        self._began = self._told = time.monotonic()
        self._worked = time.process_time()
        self.seeds = 0
        self._virtual = 0.0
        self._steps = 0
        self._counts: Counter[str] = Counter()

    @property
    def minutes(self) -> float:
        return (time.monotonic() - self._began) / 60

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self._virtual += outcome.seconds
        self._steps += outcome.steps
        self._counts.update({name: n for name, n in outcome.verdict.counts.items() if not name.startswith("log ")})
        if time.monotonic() - self._told > EVERY:
            self._told = time.monotonic()
            print(f"seed {outcome.seed}: {self}", file=sys.stderr, flush=True)

    def __str__(self) -> str:
        worked = max(time.process_time() - self._worked, 1e-9)
        passed = max(time.monotonic() - self._began, 1e-9)
        return (
            f"{self.seeds} seeds, {self._virtual / 3600:.1f} hours, {self._steps:,} steps; "
            f"{self.seeds / worked:.1f} seeds per second of work, {self.seeds / passed:.1f} of waiting"
        )

    def told(self) -> str:
        return "\n".join(f"  {number:>10,}  {name}" for name, number in sorted(self._counts.items()))


def search(arguments: argparse.Namespace, report: Report, *, twice: bool) -> Outcome | None:
    """Return the first seed that fails."""
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        outcome = live_through(seed, seconds=arguments.seconds, faults=arguments.faults)
        report.add(outcome)
        if not outcome.is_good:
            return outcome
        if (
            twice
            and seed % TWICE == 0
            and live_through(seed, seconds=arguments.seconds, faults=arguments.faults).digest != outcome.digest
        ):
            print(f"simulation: seed {seed} came out differently when it was lived through again")
            sys.exit(2)
        if arguments.minutes is not None and report.minutes >= arguments.minutes:
            return None
    return None


def simulate(arguments: argparse.Namespace) -> int:
    report = Report()
    failed = search(arguments, report, twice=True)
    print(report)
    print(report.told())
    if failed is None:
        print(f"no seed from {arguments.seed} to {arguments.seed + report.seeds - 1} failed")
        return 0
    print(f"seed {failed.seed} failed: {failed.shape}")
    tell(failed)
    lines: list[str] = []
    live_through(failed.seed, seconds=arguments.seconds, faults=arguments.faults, told=lines.append)
    file = Path(tempfile.gettempdir()) / f"horae-seed-{failed.seed}.txt"
    file.write_text("\n".join(lines) + "\n")
    print(f"what happened is in {file}; it ends so:")
    print("\n".join(lines[-TOLD:]))
    print(f"again: python -m simulation --seed {failed.seed} --replay")
    return 1


def replay(arguments: argparse.Namespace) -> int:
    is_good = True
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        outcome = live_through(seed, seconds=arguments.seconds, faults=arguments.faults, told=print)
        print(f"seed {seed} {'is good' if outcome.is_good else 'failed'}: digest {outcome.digest:#x}, {outcome.shape}")
        tell(outcome)
        is_good = is_good and outcome.is_good
    return 0 if is_good else 1


def tell(outcome: Outcome) -> None:
    for violation in outcome.verdict.violations[:SHOWN]:
        print(f"  {violation.text()}")


def find_planted(arguments: argparse.Namespace) -> int:
    """At which seed each planted bug is found."""
    missed = 0
    for name in PLANTED if arguments.planted == "all" else [arguments.planted]:
        with plant(name):
            if arguments.replay:
                return replay(arguments)
            found = search(arguments, Report(), twice=False)
        missed += found is None
        where = "not found" if found is None else f"seed {found.seed}: {found.verdict.violations[0].text()}"
        print(f"{name:<16} {where}", flush=True)
    return 1 if missed else 0


def main() -> int:
    arguments = parse(sys.argv[1:])
    if arguments.planted is not None:
        return find_planted(arguments)
    return replay(arguments) if arguments.replay else simulate(arguments)


if __name__ == "__main__":
    sys.exit(main())
