"""`python -m bench NAME [options]`: one JSON line per figure on standard output, progress on standard error."""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
from typing import Any

import uvloop
from tests.leash import Leash, end_with_make

from bench import figures
from bench.figure import FIGURES, Bench, Figure
from bench.places import Places

__all__ = ["figures"]

NUMBERS = ("size", "rate", "registered", "agents", "schedulers", "nodes", "window", "seconds", "hours", "clients")
ONE_NUMBER = ("trials", "lead", "minutes")


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("name", choices=[*FIGURES, "all", "list"], help="the figure; `list` says what each one is")
    parser.add_argument("--store", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--quick", action="store_true", help="small sizes and one trial: does it still work?")
    for option in NUMBERS:
        parser.add_argument(f"--{option}", type=int, nargs="+", help=_users(option))
    for option in ONE_NUMBER:
        parser.add_argument(f"--{option}", type=int, help=_users(option))
    parser.add_argument("--victim", choices=("leader", "scheduler", "agent"), nargs="+", help=_users("victim"))
    parser.add_argument("--handler", choices=("inline", "worker"), nargs="+", help=_users("handler"))
    return parser.parse_args(argv)


def _users(option: str) -> str:
    return "of " + ", ".join(one.name for one in FIGURES.values() if option in one.options)


def _options(figure: Figure, arguments: argparse.Namespace) -> dict[str, Any]:
    given = {
        name: value[0] if isinstance(value, list) and not isinstance(default, list) else value  # some take one alone
        for name, default in figure.options.items()
        if (value := getattr(arguments, name)) is not None
    }
    return {**figure.options, **(figure.quick if arguments.quick else {}), **given}


async def run(arguments: argparse.Namespace) -> bool:
    wanted = list(FIGURES.values()) if arguments.name == "all" else [FIGURES[arguments.name]]
    stores = ("sqlite", "postgres") if arguments.store == "both" else (arguments.store,)
    sound = True
    places = Places()
    try:
        for figure in wanted:
            for store in (store for store in stores if store in figure.stores):
                print(f"bench: {figure.name} on {store}", file=sys.stderr)
                async for line in figure.run(Bench(places, store, _options(figure, arguments))):
                    print(line.text(), flush=True)
                    sound = sound and line.void is None
    finally:
        places.close()
    return sound


def main() -> int:
    """0 when every figure has a value, 1 when one is void; missing an aim is no error."""
    arguments = parse(sys.argv[1:])
    if arguments.name == "list":
        for figure in FIGURES.values():
            print(f"{figure.name:14}{figure.about} ({', '.join(figure.stores)})")
        return 0
    end_with_make()
    Leash(may_use_memory=False)  # a server that outlives a killed bench would slow the next
    gc.set_threshold(50_000, 20, 10)  # as in a Horae process, for what is measured within this one
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return 0 if runner.run(run(arguments)) else 1


if __name__ == "__main__":
    sys.exit(main())
