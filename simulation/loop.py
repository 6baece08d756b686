"""An event loop without a real clock: time passes only when nobody has anything to do, and a seed decides who is next.

Every callback belongs to a process (`Process`), known by a context variable that tasks inherit. So a process can be

    paused    its callbacks wait, and those of its timers too, while time goes on for everybody else
    killed    its callbacks are dropped; its coroutines are kept, so that no `finally` of theirs ever runs

Within a process callbacks run in the order in which they were made, as asyncio promises; between processes, in any.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import random
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, TypeVar

T = TypeVar("T")

STEP = 0.000_005  # seconds that a callback takes
LONGEST_JOB = 0.002  # seconds that a thread takes for what it is given


class Stuck(Exception):
    """Nobody has anything to do, ever again."""


class Livelock(Exception):
    """So many steps that somebody must be running in circles."""


class Process:
    """One life of a simulated process."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number  # for the digest
        self.ready: deque[asyncio.Handle] = deque()
        self.is_paused = False
        self.is_dead = False
        self.context = contextvars.Context()
        self.fuse: tuple[int, Callable[[], None]] | None = None  # steps left until something happens to it

    def __repr__(self) -> str:
        return self.name


WORLD = Process("world", 0)  # the network, the database, the clients and whoever breaks things: it never fails
CURRENT: contextvars.ContextVar[Process] = contextvars.ContextVar("process", default=WORLD)
WORLD.context.run(CURRENT.set, WORLD)


class Task(asyncio.Task[T]):
    """Sets of tasks are walked through in the order of their hash: by address, it would be another every time."""

    _numbers = count()

    def __init__(self, *args: Any, **named: Any) -> None:
        self._number = next(Task._numbers)
        super().__init__(*args, **named)
        self.process: Process = CURRENT.get()

    def __hash__(self) -> int:
        return self._number


class Loop(asyncio.BaseEventLoop):
    def __init__(self, chance: random.Random, *, most_steps: int) -> None:
        super().__init__()
        self._chance = chance
        self._most_steps = most_steps
        self._now = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = count()
        self._lively: list[Process] = []  # with something to do
        self._numbers = count(1)
        self._graveyard: list[Any] = []
        self.steps = 0
        self.digest = 0  # of every step: who, when
        self.errors: list[str] = []  # exceptions that nobody caught
        Task._numbers = count()
        WORLD.ready.clear()  # of an earlier loop
        self.set_task_factory(_make_task)
        self.set_exception_handler(self._note_error)

    # ── processes ──
    def new_process(self, name: str) -> Process:
        process = Process(name, next(self._numbers))
        process.context.run(CURRENT.set, process)
        return process

    def spawn(self, process: Process, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Return a task of a process."""
        return self.create_task(coroutine, context=process.context.copy())

    def tell(self, process: Process, callback: Callable[..., object], *args: Any, after: float = 0.0) -> None:
        """A callback of a process, after so many seconds."""
        if after:
            self.call_at(self._now + after, callback, *args, context=process.context)
        else:
            self.call_soon(callback, *args, context=process.context)

    def pause(self, process: Process) -> None:
        process.is_paused = True
        if process in self._lively:
            self._lively.remove(process)

    def resume(self, process: Process) -> None:
        if process.is_paused and not process.is_dead:
            process.is_paused = False
            if process.ready:
                self._lively.append(process)

    def kill(self, process: Process) -> None:
        self.pause(process)
        process.is_dead = True
        process.fuse = None
        self._graveyard += [
            task for task in asyncio.all_tasks(self) if isinstance(task, Task) and task.process is process
        ]
        process.ready.clear()

    # ── the loop ──
    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._put(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is left out when its time comes."""

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """There are no threads: what one would do is done in one step, a moment later."""
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except Exception as error:
                future.set_exception(error) if not future.done() else None
            else:
                future.set_result(result) if not future.done() else None

        self.call_at(self._now + self._chance.random() * LONGEST_JOB, work)
        return future

    def _put(self, handle: asyncio.Handle) -> None:
        context: contextvars.Context = handle._context  # type: ignore[attr-defined]
        process = context.get(CURRENT, WORLD)
        if process.is_dead:
            return
        process.ready.append(handle)
        if len(process.ready) == 1 and not process.is_paused:
            self._lively.append(process)

    def _run_once(self) -> None:
        timers, lively, chance = self._timers, self._lively, self._chance
        while not self._stopping:  # type: ignore[attr-defined]
            while timers and timers[0][0] <= self._now:
                handle = heapq.heappop(timers)[2]
                if not handle.cancelled():
                    self._put(handle)
            if not lively:
                if not timers:
                    raise Stuck
                self._now = max(self._now, timers[0][0])
                continue
            index = int(chance.random() * len(lively)) if len(lively) > 1 else 0
            process = lively[index]
            ready = process.ready.popleft()
            if not process.ready:
                lively[index] = lively[-1]
                lively.pop()
            if not ready.cancelled():
                self._step(process, ready)

    def _step(self, process: Process, handle: asyncio.Handle) -> None:
        self.steps += 1
        self._now += STEP
        self.digest = hash((self.digest, process.number, self._now))
        handle._run()
        if process.fuse is not None:
            left, burn = process.fuse
            process.fuse = (left - 1, burn) if left > 0 else None
            if left <= 0:
                self.tell(WORLD, burn)
                self.pause(process)  # nothing more happens in it before
        if self.steps > self._most_steps:
            raise Livelock(f"more than {self._most_steps} steps; {process.name} was last")

    def _note_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        told = f"{type(error).__name__}: {error}" if error is not None else ""
        self.errors.append(f"{CURRENT.get().name}: {context.get('message')} {told}")

    def _process_events(self, event_list: Any) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps."""

    # ── the end ──
    def bury(self) -> None:
        """Let go of everybody, dead or alive. What their `finally` does then is nobody's concern."""
        every = [*self._graveyard, *asyncio.all_tasks(self)]
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            for task in every:
                task._log_destroy_pending = False
                try:
                    task.get_coro().close()
                except BaseException:  # whatever it is
                    continue
            self._graveyard.clear()
            self._timers.clear()
            every.clear()
            self.close()
            gc.collect()
        finally:
            sys.unraisablehook = hook


def _make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, context: Any = None) -> Task[Any]:
    if context is None:
        return Task(coroutine, loop=loop)
    task: Task[Any] = Task(coroutine, loop=loop, context=context)
    task.process = context[CURRENT]
    return task
