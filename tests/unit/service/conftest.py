from __future__ import annotations

import pytest

from horae.service.execution import Execution
from horae.service.firing import Firing
from horae.service.jobs import Jobs
from horae.service.metrics import Metrics
from horae.testing import FakeClock

from .parts import Probe, Told, scheduler


@pytest.fixture
def queue() -> Told:
    return Told()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def probe(request: pytest.FixtureRequest) -> Probe:
    """A store, watched: SQLite, and for tests marked BOTH also PostgreSQL."""
    return Probe(request.getfixturevalue(f"{getattr(request, 'param', 'sqlite')}_store"))


@pytest.fixture
def jobs(probe: Probe, queue: Told) -> Jobs:
    return Jobs(probe, queue)


@pytest.fixture
def firing(probe: Probe, queue: Told, clock: FakeClock) -> Firing:
    """A scheduler of all segments."""
    return scheduler(probe, clock, queue)


@pytest.fixture
def execution(probe: Probe, queue: Told, clock: FakeClock, metrics: Metrics) -> Execution:
    return Execution(probe, queue, clock, metrics)
