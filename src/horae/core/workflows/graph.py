"""What must come before what: the needs of the tasks of a workflow, as its canonical spec has them.

needs: [list, {task: convert, on: failure}]        success, unless it says otherwise
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from horae.core.model import Json

SUCCESS, FAILURE, END = "success", "failure", "end"
ENDINGS = (SUCCESS, FAILURE, END)


class Need(NamedTuple):
    task: str
    on: str = SUCCESS


def needs_of(task: Json) -> list[Need]:
    return [Need(each) if isinstance(each, str) else Need(each["task"], each["on"]) for each in task.get("needs", ())]


def in_order(needs: Mapping[str, list[str]]) -> list[str]:
    """Return all tasks, each behind what it needs, else in the order given. What is in a cycle, or behind one, is left
    out."""
    missing = {name: len(set(before) & needs.keys()) for name, before in needs.items()}
    after: dict[str, list[str]] = {name: [] for name in needs}
    for name, before in needs.items():
        for each in set(before) & needs.keys():
            after[each].append(name)
    found = [name for name, count in missing.items() if not count]
    for name in found:
        for follower in after[name]:
            missing[follower] -= 1
            if not missing[follower]:
                found.append(follower)
    return found


def cycle_in(needs: Mapping[str, list[str]]) -> list[str]:
    """Return a cycle as a path, `a, b, a`; empty where there is none."""
    left = needs.keys() - set(in_order(needs))
    name = next((each for each in needs if each in left), None)
    path: list[str] = []
    while name is not None and name not in path:
        path.append(name)
        name = next(each for each in needs[name] if each in left)  # whatever is left needs something that is left
    return [*path[path.index(name) :], name] if name is not None else []


def before(needs: Mapping[str, list[str]]) -> dict[str, frozenset[str]]:
    """Return for each task all that have ended when it begins; of tasks in a cycle, nothing."""
    found: dict[str, frozenset[str]] = {}
    for name in in_order(needs):
        found[name] = frozenset().union(*({each} | found.get(each, set()) for each in needs[name]))
    return found


def names_needed(tasks: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return what each task of a spec needs, by name."""
    return {name: [need.task for need in needs_of(task)] for name, task in tasks.items()}
