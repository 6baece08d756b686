from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from horae.contracts.lake import vocabulary
from horae.core.definitions import JOB_SORTS, RUN_SORTS, SOURCE_SORTS
from horae.core.model import Phase, Reason, Run, State

LAKE = {"Initialized", "Queued", "Compiling", "Running", "Finished", "Error", "Killed", "Unknown"}
SYNC = {"Initialized", "Queued", "Syncing", "Synced", "Error", "Terminated", "Canceled", "Unknown"}


def a_run(state: State, reason: str = "", phase: Phase = Phase.PREPARING) -> Run:
    return Run(1, 1, None, 0, state, reason, 1, 1, 5, "git_java", 0, phase=phase)


@pytest.mark.parametrize(("side", "known"), [("lake", LAKE), ("sync", SYNC)])
def test_every_state_reason_and_phase_has_a_word_of_the_contract(side: vocabulary.Side, known: set[str]) -> None:
    shown = {vocabulary.status(a_run(*each), side) for each in product(State, Reason, Phase)}
    assert shown <= known
    assert shown >= known - {"Initialized", "Unknown"}


@pytest.mark.parametrize(
    ("state", "phase", "lake", "sync"),
    [
        (State.QUEUED, Phase.PREPARING, "Queued", "Queued"),
        (State.BLOCKED, Phase.PREPARING, "Queued", "Queued"),
        (State.RUNNING, Phase.PREPARING, "Compiling", "Syncing"),
        (State.RUNNING, Phase.RUNNING, "Running", "Syncing"),
        (State.SUCCEEDED, Phase.RUNNING, "Finished", "Synced"),
        (State.FAILED, Phase.RUNNING, "Error", "Error"),
        (State.TIMED_OUT, Phase.RUNNING, "Error", "Error"),
        (State.CANCELLED, Phase.RUNNING, "Killed", "Terminated"),
    ],
)
def test_states_are_called_so(state: State, phase: Phase, lake: str, sync: str) -> None:
    run = a_run(state, phase=phase)
    assert (vocabulary.status(run, "lake"), vocabulary.status(run, "sync")) == (lake, sync)


def test_every_status_of_the_contract_can_be_reported_but_the_one_of_tables() -> None:
    assert set(vocabulary.REPORTS) == LAKE | SYNC == vocabulary.STATUSES - {"Init"}


@settings(deadline=None)
@given(some.integers(1, 2**53), some.integers(0, vocabulary.ATTEMPTS - 1))
def test_a_wire_id_names_one_run_and_one_attempt(run_id: int, attempt: int) -> None:
    wire = vocabulary.wire_id(run_id, attempt)
    assert vocabulary.split_wire_id(wire) == (run_id, attempt)
    assert vocabulary.wire_id(run_id, 0) <= wire < vocabulary.wire_id(run_id + 1, 0)


def test_sort_fields_lead_to_columns_that_exist() -> None:
    assert set(vocabulary.JOB_SORTS.values()) <= set(JOB_SORTS)
    assert set(vocabulary.RUN_SORTS.values()) <= set(RUN_SORTS)
    assert set(vocabulary.SOURCE_SORTS.values()) <= set(SOURCE_SORTS)
