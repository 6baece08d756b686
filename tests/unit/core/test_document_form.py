"""One form of the document: what the API shows is read again as the same job, and so is what people would write."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from horae.cli.jobs.yamltext import yaml_text
from horae.core.model import Job
from horae.core.runs.segments import segment_of
from horae.core.work import specs
from horae.core.work.specs import Draft
from horae.core.written import written
from horae.errors import Invalid
from horae.service.jobs.drafts import Request, job_from_draft
from horae.testing import START
from horae.web import render
from horae.web.documents import read_yaml
from tests.unit.core.job_documents import documents

many = settings(max_examples=300, deadline=None)


def made_from(document: dict[str, Any]) -> Job:
    draft = specs.parse_job(document)
    return job_from_draft(draft, 7, iter(range(100, 200)), Request([draft], "local", 1, None), START)


def shown(job: Job) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(msgspec.json.encode(render.job(job)))
    return answer


def meaning(draft: Draft) -> Draft:
    """Return a draft without what is Horae's own."""
    triggers = tuple(replace(trigger, id=None, made=None) for trigger in draft.triggers)
    return replace(draft, made=None, triggers=triggers, segment=None)


@given(documents)
@many
def test_what_the_api_shows_is_read_as_the_same_job(document: dict[str, Any]) -> None:
    job = made_from(document)
    again = specs.parse_job(shown(job))
    assert job_from_draft(again, 7, iter(range(100, 200)), Request([again], "local", 1, None), START) == job


@given(documents)
@many
def test_what_is_written_for_people_is_read_as_the_same_job(document: dict[str, Any]) -> None:
    answer = shown(made_from(document))
    text = yaml_text(written(answer))
    again = specs.parse_job(read_yaml(text.encode()))
    assert meaning(again) == meaning(specs.parse_job(answer))
    assert again.made is None
    assert again.segment == (None if answer["segment"] == segment_of(7) else answer["segment"])


def test_a_short_job_stays_short() -> None:
    document = {
        "name": "nightly", "key": "k", "schedule": "0 2 * * *", "timezone": "Europe/Berlin", "timeout": "10m",
        "retry": {"attempts": 3, "backoff": "30s"}, "env": {"A": "yes"}, "steps": [{"run": "a\nb\n"}, {"run": "c"}],
    }  # fmt: skip
    assert written(shown(made_from(document))) == document
    assert list(written(shown(made_from(document)))) == list(document)
    assert yaml_text(document).splitlines()[3:] == [
        "timezone: Europe/Berlin", "timeout: 10m", "retry:", "  attempts: 3", "  backoff: 30s", "env:", "  A: 'yes'",
        "steps:", "- run: |", "    a", "    b", "- run: c",
    ]  # fmt: skip


def test_where_runs_wait_and_what_limits_them_stands_as_people_write_it() -> None:
    document = {
        "name": "report", "overlap": "allow", "priority": 7, "queue": "reports", "share": "data.tenant",
        "pause_after_failures": 5, "rate_limits": [{"rate": "100/min", "burst": 10, "per": "owner"}],
        "concurrency_limits": [{"limit": 5, "per": "data.tenant"}], "steps": [{"run": "a"}],
    }  # fmt: skip
    assert written(shown(made_from(document))) == document


@pytest.mark.parametrize("field", ["policy.colour", "policy.retry.often", "policy.overlap", "policy.timeout_seconds"])
def test_a_policy_in_the_form_of_the_api_is_read_strictly(field: str) -> None:
    policy: dict[str, Any] = {"overlap": "queue", "retry": {"attempts": 2}}
    *outer, name = field.split(".")[1:]
    (policy[outer[0]] if outer else policy)[name] = "blue"
    with pytest.raises(Invalid) as caught:
        specs.parse_job({"name": "a", "steps": [{"run": "a"}], "policy": policy})
    assert [problem.path for problem in caught.value.listed()] == [field]


def test_a_policy_stands_in_one_place() -> None:
    with pytest.raises(Invalid) as caught:
        specs.parse_job({"name": "a", "steps": [{"run": "a"}], "policy": {}, "timeout": "1m"})
    assert [(problem.path, problem.code) for problem in caught.value.listed()] == [("timeout", "E_FIELD_CONFLICT")]
