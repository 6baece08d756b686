"""What a section of an attempt finds around it: its boundary (what it sees and may use) and its environment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from horae.core.runs.orders import Assignment
from horae.core.time.moments import format_moment
from horae.core.work.isolation import limits_of
from horae.core.work.policies import resources_of
from horae.executors.attempts.sections import Section
from horae.ports.work import NO_LIMITS, Boundary, Limits, Trust, Work


def boundary_of(work: Work, section: Section, name: str, workspace: Path, secrets: Path | None) -> Boundary:
    """`secrets` is where the attempt has its secret files."""
    spec = work.spec
    network: str | Sequence[str] = spec.get("network", "off")
    if section.listed is not None:
        network = section.listed or "off"
    elif section.network:
        network = "machine" if section.is_ours else "on"
    return Boundary(
        str(workspace),
        name,
        network if isinstance(network, str) else "listed",
        Limits(**limits) if (limits := limits_of(spec, resources_of(work.assignment.policy))) else NO_LIMITS,
        tuple(map(str, section.sees)),
        tuple(map(str, section.keeps)),
        spec.get("image", ""),
        () if isinstance(network, str) else tuple(network),
        section.is_ours,
        "" if secrets is None else str(secrets),
    )


def environment_of(
    work: Work, section: Section, number: int, secrets: Path | None, trust: Trust | None
) -> dict[str, str]:
    """`number` is that of its step, from 0. `trust` is that in the work; a section of ours has none."""
    theirs = {} if section.is_ours else work.spec.get("env") or {}  # which could name another git
    trusted = trust.environment if trust and not section.is_ours else {}
    asked = {**trusted, **theirs, **section.env}
    written = {name: str(value) for name, value in asked.items()}
    told = describe_attempt(work.assignment, work.step_parent(number))
    if secrets is not None:
        told["HORAE_SECRETS_DIR"] = str(secrets)
    return {**written, **told, "HORAE_STEP": section.name}


def describe_attempt(assignment: Assignment, traceparent: str) -> dict[str, str]:
    """Return what every process of an attempt is told of itself, as environment."""
    told = {
        "HORAE_RUN_ID": str(assignment.run_id),
        "HORAE_JOB_ID": str(assignment.job_id),
        "HORAE_JOB_NAME": assignment.name,
        "HORAE_ATTEMPT": str(assignment.attempt),
        "HORAE_FENCE": str(assignment.fence),
        "HORAE_SCHEDULED_FOR": format_moment(assignment.due_at),
        "TRACEPARENT": traceparent,
    }
    return told if assignment.data is None else {**told, "HORAE_RUN_DATA": assignment.data}
