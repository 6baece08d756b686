"""Whether an exception is worth another attempt, by its class.

The class nearest to the exception decides: `never: [OSError], on: [TimeoutError]` tries again after a timeout, which is
an OSError too. With `on`, what is not named in it is not tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Choice:
    """Names of classes: `ValueError`, or `package.ValueError` for the one in that package or below it."""

    on: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.on or self.never)


@dataclass(frozen=True, slots=True)
class Judgement:
    may_retry: bool
    why: str = ""  # empty where nobody has said anything of such an exception


def judge(classes: Sequence[str], choice: Choice, on: str = "retry.on", never: str = "retry.never") -> Judgement:
    """`classes` are that of the exception and those it derives from, nearest first, with their modules. `on` and
    `never` are how whoever chose calls the two lists."""
    for name in classes:
        if named := next((each for each in choice.never if _is_named(name, each)), ""):
            return Judgement(False, f"{never} has {named}")
        if named := next((each for each in choice.on if _is_named(name, each)), ""):
            return Judgement(True, f"{on} has {named}")
    return Judgement(False, f"{on} has only {', '.join(choice.on)}") if choice.on else Judgement(True)


def _is_named(name: str, written: str) -> bool:
    package, _, last = written.rpartition(".")
    return name == written or (name.rpartition(".")[2] == last and name.startswith(f"{package}." if package else ""))
