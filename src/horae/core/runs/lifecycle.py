"""What a run may do next: one table, one drawing, and the decisions made from them.

                      ┌──────────── claim ────────────┐
    fire ──► queued ──┤                               ▼
      │        ▲  │   └─ start deadline ─► skipped   running ──► succeeded
      │        │  ├───── cancel ─► cancelled           │  │ ├──► failed
      │        │  └───── no agent ─► failed            │  │ │
      │        │                                       │  │ ├──► timed_out
      │        ├──────────── agent lost ◄──────────────┘  │ └──► cancelled
      │        │                                          │
      │        └── eligible ── blocked ◄──── retry ───────┘   (or its destination is busy: it did not begin;
                     or told                                     or it waits: for a moment, a signal, other runs)
      │                          ▲  ├─ start deadline ─► skipped
      ├── overlap queue/replace ─┤  ├─ cancel ─► cancelled
      ├── ordered for later ─────┘  └─ overlap, when its moment comes ─► skipped
      │
      └──► skipped (overlap, misfire) · coalesced     born terminal

A run of kind `wait` may end as skipped, if it waits in vain. What waits, queued or blocked, is skipped when its owner
may not run it any more; a task fails then, as one does that waits for limits and that no agent can run. Terminal states
have no way out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

from horae.core.model import LOST_LIMIT, SECOND, Json, Misfire, Moment, Phase, Policy, Reason, Retry, State
from horae.core.work.kinds import KINDS
from horae.core.work.progress import progress_words

BY_ITSELF = "by its handler: "  # with which the message of a run begins that its own work cancelled
MISFIRE_GRACE = 60 * SECOND  # under `skip`, a moment this late is missed

BIRTHS = frozenset({State.QUEUED, State.BLOCKED, State.SKIPPED, State.COALESCED})
TRANSITIONS: dict[State, frozenset[State]] = {
    State.QUEUED: frozenset({State.RUNNING, State.SKIPPED, State.CANCELLED, State.FAILED}),
    State.BLOCKED: frozenset({State.QUEUED, State.SKIPPED, State.CANCELLED, State.FAILED}),
    State.RUNNING: frozenset(
        {State.QUEUED, State.BLOCKED, State.SUCCEEDED, State.FAILED, State.TIMED_OUT, State.CANCELLED, State.SKIPPED}
    ),
    **{state: frozenset() for state in State if state.is_terminal},
}


def first_phase(kind: str) -> Phase:
    """Return the phase in which an attempt of this kind begins."""
    return KINDS[kind].first_phase if kind in KINDS else Phase.RUNNING


def may_prepare(kind: str) -> bool:
    """Return whether attempts of this kind may tell of a phase."""
    return kind in KINDS and (KINDS[kind].may_prepare or KINDS[kind].first_phase is Phase.PREPARING)


def may_become(before: State, after: State) -> bool:
    return after in TRANSITIONS[before]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do with a run after an attempt: end it, or try again."""

    state: State  # the run's new state: terminal, BLOCKED (wait) or QUEUED (at once)
    reason: str = ""
    wait_seconds: float = 0.0


def after_failure(
    policy: Policy,
    *,
    state: State,
    reason: str,
    attempt: int,
    lost: int,
    run_id: int,
    final: bool = False,
    retry_after: float | None = None,
) -> Verdict:
    """Decide about a run whose attempt failed or timed out. Lost attempts do not count."""
    if final or attempt - lost >= policy.retry.attempts:
        return Verdict(state, reason)
    wait = backoff(policy.retry, attempt - lost, run_id) if retry_after is None else retry_after
    return Verdict(State.BLOCKED, Reason.RETRY, wait)


def after_loss(*, lost: int, cancel_requested: bool) -> Verdict:
    """Decide about a run whose agent died; `lost` counts this loss."""
    if cancel_requested:
        return Verdict(State.CANCELLED, Reason.REQUESTED)
    if lost > LOST_LIMIT:
        return Verdict(State.FAILED, Reason.LOST)
    return Verdict(State.QUEUED, Reason.LOST)


def lost_words(why: str, progress: Json | None) -> str:
    """Return one sentence for people on an attempt that was lost: why, and how far it said to be."""
    far = "" if progress is None else progress_words(progress)
    return f"{why}; it was at: {far}" if far else why


def backoff(retry: Retry, attempt: int, run_id: int) -> float:
    """Seconds to wait after attempt number `attempt` (1 is the first).

    The jitter is a stable function of run and attempt: a herd of failures spreads out, and a
    repeated decision comes out the same.
    """
    steps = min(attempt - 1, 64)  # beyond this any factor above one has long met the cap
    wait = min(retry.backoff_seconds * retry.factor**steps, retry.cap_seconds)
    share = crc32(b"%d:%d" % (run_id, attempt)) / 0xFFFF_FFFF * 2 - 1
    return max(0.0, wait * (1 + retry.jitter * share))


def kept(policy: Policy) -> int:
    """Return how many of the newest pending moments may run whatever their age: the others can be passed over before
    all are known."""
    if policy.misfire is Misfire.SKIP:
        return 0
    return 1 if policy.misfire is Misfire.RUN_LATEST else policy.misfire_limit


def missed(policy: Policy, moments: Sequence[Moment], now: Moment) -> tuple[int, State]:
    """Return how many of the oldest pending moments do not run, and what becomes of them.

    `moments` are all that have come and were not fired, in order. `run_latest` runs the last one,
    `run_all` the last `misfire_limit`, `skip` those that are hardly late.
    """
    if policy.misfire is Misfire.SKIP:
        return sum(now - moment > MISFIRE_GRACE for moment in moments), State.SKIPPED
    limit = kept(policy)
    if not limit:
        return len(moments), State.SKIPPED
    return max(0, len(moments) - limit), State.COALESCED
