"""Which trigger of a changed job is which: by its id, its key, its name, its schedule, in this order."""

from __future__ import annotations

from typing import Any

import pytest

from horae.core.model import Job
from horae.core.work.specs import parse_job
from horae.errors import Invalid
from horae.service.jobs.drafts import Request, job_from_draft, merge_triggers
from horae.testing import START


def a_job(*triggers: dict[str, Any]) -> Job:
    draft = parse_job({"name": "a", "handler": "b", "triggers": list(triggers)})
    return job_from_draft(draft, 1, iter(range(1, 9)), Request([draft], "local", 1, None), START)


def merged(job: Job, *triggers: dict[str, Any]) -> list[tuple[int, str, str | None, str | None]]:
    drafts = parse_job({"name": "a", "handler": "b", "triggers": list(triggers)}).triggers
    found = merge_triggers(job, drafts, iter(range(100, 200)), START + 1)
    return [(t.id, t.schedule["cron"], t.key, t.name) for t in found]


ONE, TWO, THREE = "0 1 * * *", "0 2 * * *", "0 3 * * *"


def test_a_changed_schedule_keeps_the_trigger_of_its_key():
    job = a_job({"cron": ONE, "key": "k1"}, {"cron": TWO, "key": "k2"})
    assert merged(job, {"cron": TWO, "key": "k1"}, {"cron": ONE, "key": "k2"}) == [
        (1, TWO, "k1", None), (2, ONE, "k2", None)
    ]  # fmt: skip


def test_a_changed_schedule_keeps_the_trigger_of_its_name():
    job = a_job({"cron": ONE, "name": "early"}, {"cron": TWO, "name": "late"})
    assert merged(job, {"cron": THREE, "name": "late"}, {"cron": TWO, "name": "early"}) == [
        (2, THREE, None, "late"), (1, TWO, None, "early")
    ]  # fmt: skip


def test_a_trigger_without_key_or_name_is_known_by_its_schedule_and_may_get_both():
    job = a_job({"cron": ONE}, {"cron": TWO, "key": "k2", "name": "late"})
    assert merged(job, {"cron": ONE, "key": "k1", "name": "early"}, {"cron": TWO}) == [
        (1, ONE, "k1", "early"), (2, TWO, "k2", None)
    ]  # fmt: skip


def test_another_key_is_another_trigger_whatever_its_schedule():
    assert merged(a_job({"cron": ONE, "key": "k1"}), {"cron": ONE, "key": "k2"}) == [(100, ONE, "k2", None)]


def test_a_key_stands_once_in_a_job():
    with pytest.raises(Invalid, match=r"triggers\[1\]\.key: key 'k' is already that of triggers\[0\]\.key"):
        a_job({"cron": ONE, "key": "k"}, {"cron": TWO, "key": "k"})
