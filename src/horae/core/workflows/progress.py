"""What comes next in a workflow: one function of its spec, its data and where its tasks stand.

    step = advance(spec, data, tasks)      what to make, to skip, to fail, and whether the workflow ends

Who calls it writes the whole step in one transaction, and gives it back as tasks the next time. Nothing is remembered
between two calls: a step is decided from what was written, so that two who decide the same step decide alike, and one
who dies in the middle has decided nothing.

What must stay true:
- Called again with its own step written, it says nothing new. Steps only add: what was made, skipped or failed stays.
- In whatever order tasks end, the same are made, skipped and failed in the end, with the same words, and the workflow
  ends alike. So a task is judged only when all that it needs has ended.
- The work of a call grows with the number of tasks and items, never with their square.
- Results are looked at only where somebody refers to them: who calls need not load others (`results_needed`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from horae.core.fields import encoded, kind_of
from horae.core.jobdata import MAX_DATA
from horae.core.model import Json, Reason, State, record
from horae.core.workflows import expressions
from horae.core.workflows.expressions import Scope
from horae.core.workflows.graph import END, FAILURE, Need, in_order, names_needed, needs_of
from horae.core.workflows.weights import rendered_weight, weight_of
from horae.errors import Invalid

MAX_ITEMS = 10_000  # of one fan-out
CHILDREN = "children"  # why a workflow failed: one of its tasks did
MAX_RESULT = 2 << 20  # bytes of JSON of a list, and of what a workflow returns
MAX_SPREAD = 64 << 20  # bytes of JSON that the items of one fan-out have as data, all together
_OF_ITEMS = frozenset({"item", "index"})
_LOOKED_AT = 200  # items whose size is taken together
_NAMED = 3  # tasks that a message names
_UNSUCCESSFUL = frozenset({State.FAILED, State.TIMED_OUT, State.CANCELLED})


@record
class TaskState:
    """One task that was made, skipped or failed, as the store has it; of a fan-out one per item, unless the whole of it
    was skipped or failed before there were any."""

    name: str
    index: int | None  # of the item, from 0; None: the task itself
    run_id: int | None
    state: State
    result: Any = None


@record
class Make:
    """A task whose run is to be made."""

    task: str
    index: int | None
    data: Json | None  # what it gives its run; None: nothing is said of it, so that of its job counts


@record
class Skip:
    """A task that ends skipped(dependency), without having run; of a fan-out the whole."""

    task: str
    message: str


@record
class Fail:
    """A task that ends failed(error), without having run; with an index, that item only."""

    task: str
    index: int | None
    message: str


@record
class End:
    """How the workflow ends. Whether its result can be kept is for others to say."""

    state: State
    reason: str
    message: str
    result: Any = None


@record
class Step:
    """What is to be written, all of it or nothing. With an end there is nothing to make."""

    make: tuple[Make, ...] = ()
    skipped: tuple[Skip, ...] = ()
    failed: tuple[Fail, ...] = ()
    end: End | None = None


def label(name: str, index: int | None) -> str:
    """Return what a task is called among those of its parent: `convert`, or `convert[17]`."""
    return name if index is None else f"{name}[{index}]"


def split_label(text: str) -> tuple[str, int | None]:
    """Return name and index of what `label` made."""
    name, bracket, rest = text.partition("[")
    return (name, int(rest[:-1])) if bracket else (text, None)


def advance(spec: Json, data: Json | None, tasks: Iterable[TaskState], *, cancelled: bool = False) -> Step:
    """Return what comes next. `data` is that of the workflow's own run. With `cancelled` nothing new is made: it ends
    when the last of its tasks has."""
    standing = _standing(tasks)
    if cancelled:
        return Step() if _is_live(standing) else Step(end=_CANCELLED)
    judge = _Judge(spec, data or {}, standing)
    for name in in_order(names_needed(spec["tasks"])):
        judge.decide(name)
    return judge.step()


_CANCELLED = End(State.CANCELLED, Reason.REQUESTED, "somebody cancelled the workflow")
_Items = dict[int | None, TaskState]  # of one task, by index


def _standing(tasks: Iterable[TaskState]) -> dict[str, _Items]:
    found: dict[str, _Items] = {}
    for task in tasks:
        found.setdefault(task.name, {})[task.index] = task
    return found


def _is_live(standing: Mapping[str, _Items]) -> bool:
    return any(not each.state.is_terminal for items in standing.values() for each in items.values())


class _Judge:
    """One call: tasks are decided one by one, each behind what it needs."""

    def __init__(self, spec: Json, data: Json, standing: Mapping[str, _Items]) -> None:
        self._spec = spec
        self._data = data
        self._standing = standing
        self._outcomes: dict[str, State | None] = {}  # None: it goes on, or what it needs does
        self._lists: dict[str, list[Any]] = {}  # fan-out → its items
        self._make: list[Make] = []
        self._skipped: list[Skip] = []
        self._failed: list[Fail] = []

    def decide(self, name: str) -> None:
        task, items = self._spec["tasks"][name], self._standing.get(name, {})
        needs = needs_of(task)
        if None in items:
            state = items[None].state
            self._outcomes[name] = state if state.is_terminal else None
        elif any(self._outcomes[need.task] is None for need in needs):
            self._outcomes[name] = None
        elif not items and (words := self._why_not(name, task, needs)):
            self._skipped.append(Skip(name, words))
            self._outcomes[name] = State.SKIPPED
        elif name not in self._outcomes:
            self._outcomes[name] = self._spread(name, task, items) if "for_each" in task else self._begin(name, task)

    def _why_not(self, name: str, task: Json, needs: list[Need]) -> str:
        """Return why a task is skipped; nothing where it is not. Where its condition cannot be decided, it fails."""
        for need in needs:
            if not self._is_met(need):
                return self._unmet(need)
        if "if" not in task:
            return ""
        condition = expressions.parse_condition(task["if"])
        try:
            if expressions.holds(condition, self._scope(expressions.condition_paths(condition))):
                return ""
        except Invalid as error:
            self._fail(name, None, f"if: {error.message}")
            return ""
        return f"its condition does not hold: {task['if']}"

    def _is_met(self, need: Need) -> bool:
        state = self._outcomes[need.task]
        if need.on == END:
            return True
        if need.on == FAILURE:
            return state in _UNSUCCESSFUL
        return state is State.SUCCEEDED or (state in _UNSUCCESSFUL and self._may_fail(need.task))

    def _unmet(self, need: Need) -> str:
        state = self._outcomes[need.task]
        assert state is not None
        return f"it needs the {need.on} of {need.task}, which {_VERBS.get(state, 'was')} {state.word.replace('_', ' ')}"

    def _may_fail(self, name: str) -> bool:
        return bool(self._spec["tasks"][name].get("may_fail"))

    # ── making ──

    def _begin(self, name: str, task: Json) -> State | None:
        try:
            scope = self._scope(_data_paths(task))
            _refuse_heavy(task.get("data"), scope, MAX_DATA)
            data = expressions.render(task.get("data"), scope)
            _refuse_large([data])
        except Invalid as error:
            return self._fail(name, None, f"data: {error.message}")
        self._make.append(Make(name, None, data))
        return None

    def _spread(self, name: str, task: Json, made: _Items) -> State | None:
        """Make as many items as may be there at once, and return how the fan-out ended if it did."""
        try:
            self._lists[name] = items = self._items(task)
        except Invalid as error:
            return self._fail(name, None, f"for_each: {error.message}")
        states = Counter(each.state for each in made.values())
        live = sum(count for state, count in states.items() if not state.is_terminal)
        room = task.get("at_once", len(items)) - live
        missing = [index for index in range(len(items)) if index not in made]
        if missing and not made and (words := self._why_too_much(task, items)):
            return self._fail(name, None, words)
        makes, fails = self._filled(name, task, missing, room)
        self._make += makes
        self._failed += fails
        if makes or live or len(made) + len(fails) < len(items):
            return None
        return _together(states + Counter({State.FAILED: len(fails)}))

    def _items(self, task: Json) -> list[Any]:
        scope = self._scope(expressions.paths_in(task["for_each"]))
        _refuse_heavy(task["for_each"], scope, MAX_RESULT)
        items = expressions.render(task["for_each"], scope)
        if not isinstance(items, list):
            raise Invalid(f"a list expected, got {kind_of(items)}")
        if len(items) > MAX_ITEMS:
            raise Invalid(f"at most {MAX_ITEMS:,} items, got {len(items):,}")
        return items

    def _why_too_much(self, task: Json, items: list[Any]) -> str:
        """Return why the data of all items together are more than servers can handle; nothing where they are not."""
        paths = list(_data_paths(task))
        fixed = weight_of(task.get("data"), MAX_SPREAD)
        scope = self._scope(paths)
        for path in paths:
            with suppress(Invalid):  # what is not there fails its item, with words
                fixed += weight_of(expressions.value_at(path, scope), MAX_DATA) if path[0] not in _OF_ITEMS else 0
        own = sum(path[0] == "item" for path in paths) * weight_of(items, MAX_RESULT)
        if fixed * len(items) + own <= MAX_SPREAD:
            return ""
        return f"data: that of all items is more than {MAX_SPREAD >> 20} MiB; let each find what it needs elsewhere"

    def _filled(self, name: str, task: Json, missing: Iterable[int], room: int) -> tuple[list[Make], list[Fail]]:
        """Return the next items with their data, and those whose data cannot be."""
        makes: list[Make] = []
        fails: list[Fail] = []
        scope = dict(self._scope(_data_paths(task)))
        rendered = expressions.template(task.get("data"))
        for index in missing:
            if len(makes) >= room:
                break
            scope["item"], scope["index"] = self._lists[name][index], index
            try:
                makes.append(Make(name, index, rendered(scope)))
            except Invalid as error:
                fails.append(Fail(name, index, f"data: {error.message}"))
        return _of_size(makes, fails)

    def _fail(self, name: str, index: int | None, message: str) -> State:
        self._failed.append(Fail(name, index, message))
        self._outcomes[name] = State.FAILED
        return State.FAILED

    # ── what paths stand for ──

    def _scope(self, paths: Iterable[expressions.Path]) -> Scope:
        roots = {str(path[0]) for path in paths}
        return {name: self._data if name == "data" else self._view(name) for name in roots - {"item", "index"}}

    def _view(self, name: str) -> Json:
        state, items = self._outcomes.get(name), self._standing.get(name, {})
        word = state.word if state is not None else ""
        if "for_each" not in self._spec["tasks"][name]:
            return {"state": word, "result": items[None].result if None in items else None}
        count = len(self._lists.get(name, ()))
        return {"state": word, "results": [items[at].result if at in items else None for at in range(count)]}

    # ── the end ──

    def step(self) -> Step:
        is_over = not self._make and None not in self._outcomes.values()
        return Step(tuple(self._make), tuple(self._skipped), tuple(self._failed), self._end() if is_over else None)

    def _end(self) -> End:
        failed = [name for name, state in self._outcomes.items() if state in _UNSUCCESSFUL and not self._may_fail(name)]
        if failed:
            return End(State.FAILED, CHILDREN, _failed_words([self._failed_word(name) for name in failed]))
        returns = self._spec.get("returns")
        try:
            scope = self._scope(expressions.paths_in(returns))
            _refuse_heavy(returns, scope, MAX_RESULT)
            result = expressions.render(returns, scope)
        except Invalid as error:
            return End(State.FAILED, Reason.ERROR, f"returns: {error.message}")
        return End(State.SUCCEEDED, Reason.NONE, "", result)

    def _failed_word(self, name: str) -> str:
        if name not in self._lists:
            return name
        items = self._standing.get(name, {})
        good = sum(each.state is State.SUCCEEDED for each in items.values())
        return f"{name} ({len(self._lists[name]) - good:,} of {len(self._lists[name]):,})"


_VERBS = {State.SUCCEEDED: "has", State.FAILED: "has", State.TIMED_OUT: "has"}


def _data_paths(task: Json) -> Iterable[expressions.Path]:
    return expressions.paths_in(task.get("data"))


def _together(states: Mapping[State, int]) -> State:
    """Return how a fan-out ended whose items ended so."""
    if any(states.get(state) for state in _UNSUCCESSFUL):
        return State.FAILED
    return State.SUCCEEDED if states.get(State.SUCCEEDED, 0) == sum(states.values()) else State.SKIPPED


def _of_size(makes: list[Make], fails: list[Fail]) -> tuple[list[Make], list[Fail]]:
    """Take out what has more data than a run may have. Most often many together have less, and one look is enough."""
    kept: list[Make] = []
    for begin in range(0, len(makes), _LOOKED_AT):
        some = makes[begin : begin + _LOOKED_AT]
        try:
            _refuse_large([make.data for make in some])
            kept += some
        except Invalid:
            kept += [make for make in some if _is_of_size(make, fails)]
    return kept, fails


def _is_of_size(make: Make, fails: list[Fail]) -> bool:
    try:
        _refuse_large([make.data])
    except Invalid as error:
        fails.append(Fail(make.task, make.index, f"data: {error.message}"))
        return False
    return True


def _refuse_heavy(template: Any, scope: Scope, most: int) -> None:
    if rendered_weight(template, scope, most) > most:
        size = f"{most >> 20} MiB" if most >> 20 else f"{most >> 10} KiB"
        raise Invalid(f"it is more than {size} as JSON")


def _refuse_large(data: list[Json | None]) -> None:
    text = encoded(data)  # type: ignore[arg-type]
    if text is None:
        raise Invalid("it cannot be written as JSON")
    if len(text) > MAX_DATA or len(text.encode()) > MAX_DATA:
        raise Invalid(f"at most {MAX_DATA // 1024} KiB as JSON, got {len(text) // 1024} KiB")


def _failed_words(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{'a task' if len(names) == 1 else 'tasks'} failed: {', '.join(names[:_NAMED])}{more}"


# ── what somebody refers to ────────────────────────────────────────────────────────────────────────


def results_needed(spec: Json, tasks: Iterable[TaskState] | None = None) -> set[str]:
    """Return the tasks whose results somebody refers to: those of others may be left None. Given where the tasks stand,
    those that the next call of `advance` may look at."""
    standing = None if tasks is None else _standing(tasks)
    found: set[str] = set()
    for name in spec["tasks"] if standing is None else _undecided(spec, standing):
        found |= _names_in(_references(spec["tasks"][name]))
    if standing is None or not _is_live(standing):
        found |= _names_in(expressions.paths_in(spec.get("returns")))
    return found


def _undecided(spec: Json, standing: Mapping[str, _Items]) -> list[str]:
    """Return the tasks that the next call may decide: nothing that they need goes on."""
    waiting: set[str] = set()
    found = []
    needs = names_needed(spec["tasks"])
    for name in in_order(needs):
        items = standing.get(name, {})
        is_early = not waiting.isdisjoint(needs[name])
        if is_early or any(not each.state.is_terminal for each in items.values()):
            waiting.add(name)
        if not is_early and None not in items:
            found.append(name)
    return found


def _references(task: Json) -> Iterable[expressions.Path]:
    yield from expressions.paths_in(task.get("for_each"))
    yield from _data_paths(task)
    if "if" in task:
        yield from expressions.condition_paths(expressions.parse_condition(task["if"]))


def _names_in(paths: Iterable[expressions.Path]) -> set[str]:
    return {str(path[0]) for path in paths if len(path) > 1 and path[1] in ("result", "results") and path[0] != "data"}


# ── the retry from where it failed ─────────────────────────────────────────────────────────────────


def adopt(spec: Json, tasks: Iterable[TaskState]) -> list[TaskState]:
    """Return the tasks of an earlier run of the same spec and data that need not be done again: those that succeeded,
    and so did all that they need; of a fan-out, its items one by one. What was skipped is decided again, alike."""
    return [each for each in _given_the_same(spec, tasks) if each.state is State.SUCCEEDED]


def resumable(spec: Json, tasks: Iterable[TaskState]) -> dict[str, int]:
    """Return the runs of tasks that are to be done again and are given the same as before, by label: of those that are
    workflows, what succeeded within need not be done again either."""
    return {
        label(each.name, each.index): each.run_id
        for each in _given_the_same(spec, tasks)
        if each.run_id is not None and each.state not in (State.SUCCEEDED, State.SKIPPED)
    }


def _given_the_same(spec: Json, tasks: Iterable[TaskState]) -> list[TaskState]:
    """Return the tasks, and items, all of whose needs are taken over."""
    standing = _standing(tasks)
    kept: dict[str, bool] = {}
    found: list[TaskState] = []
    needs = names_needed(spec["tasks"])
    for name in in_order(needs):
        items = standing.get(name, {}).values()
        is_given_the_same = all(kept[need] for need in needs[name])
        found += items if is_given_the_same else ()
        kept[name] = is_given_the_same and all(each.state in (State.SUCCEEDED, State.SKIPPED) for each in items)
    return found
