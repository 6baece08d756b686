"""Declarations: job documents and the attributes of the administration contract become the same drafts."""

from __future__ import annotations

from typing import Any

import pytest

from horae.contracts.admin.declarations import handler_of, read_declaration
from horae.core.work.specs import parse_job
from horae.errors import Invalid

JOB = {
    "ScheduleJobId": "codebooks",
    "JobName": "DownloadRdmCodebooks",
    "JobType": "CIS.Api.Jobs.DownloadRdmCodebooks.DownloadRdmCodebooksHandler",
    "Description": "all of them",
    "IsDisabled": True,
    "Triggers": [
        {"TriggerName": "night", "Cron": "0 3 * * *", "JobData": '["CB_A"]', "IsDisabled": True},
        {"cron": "0 4 * * *", "timezone": "Europe/Prague", "JobData": None},
    ],
}


def test_the_attributes_of_the_contract_become_a_draft() -> None:
    [draft] = read_declaration({"jobs": [JOB]}).drafts
    night, early = draft.triggers
    assert (draft.key, draft.name, draft.kind, draft.paused) == ("codebooks", "DownloadRdmCodebooks", "python", True)
    assert draft.spec == {"handler": "jobs/DownloadRdmCodebooks"}
    assert (night.schedule, night.data, night.enabled) == ({"cron": "0 3 * * *"}, {"job_data": '["CB_A"]'}, False)
    assert (early.data, early.enabled) == (None, True)
    assert (night.name, early.name) == ("night", None)
    assert draft.annotations == {"admin": {"description": "all of them", "job_type": JOB["JobType"]}}


def test_a_job_document_is_read_as_everywhere_else() -> None:
    document = {"key": "tidy", "name": "tidy", "schedule": "1h", "steps": [{"run": "true"}], "annotations": {"a": {}}}
    assert read_declaration({"jobs": [document]}).drafts == (parse_job(document),)


def test_a_file_may_only_delete() -> None:
    read = read_declaration({"delete": ["old"]})
    assert (read.drafts, read.deleted) == ((), ("old",))


@pytest.mark.parametrize(
    ("job_type", "handler"),
    [
        ("Some.Jobs.MyJob.MyJobHandler", "jobs/MyJob"),
        ("jobs/MyJob", "jobs/MyJob"),
        ("reports.daily:send", "reports.daily:send"),
        ("refresh_codebooks", "refresh_codebooks"),
    ],
)
def test_a_job_type_names_a_handler(job_type: str, handler: str) -> None:
    assert handler_of(job_type) == handler


WORK = {"name": "a", "handler": "b"}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (None, "a declaration must be a mapping"),
        ({"jbos": []}, "there is no field 'jbos' here"),
        ({"jobs": {}}, "jobs: must be a list"),
        ({"jobs": ["x"]}, "jobs[0]: a job must be a mapping"),
        ({"jobs": [WORK]}, "jobs[0].key: a declared job needs a key"),
        ({"jobs": [{**WORK, "key": "a", "JobName": "b"}]}, "jobs[0].JobName: another name for name"),
        ({"jobs": [{**WORK, "key": "a", "IsDisabled": "yes"}]}, "jobs[0].paused: must be true or false"),
        ({"jobs": [{**WORK, "key": "a", "Description": 1}]}, "jobs[0].Description: must be text"),
        ({"jobs": [{**WORK, "key": "a"}], "delete": ["a"]}, "deleted by the same file"),
        ({"jobs": [{**WORK, "key": "a"}, {**WORK, "key": "a"}]}, "jobs[1].key"),
        ({"jobs": [{**WORK, "key": "a", "Triggers": ["x"]}]}, "jobs[0].triggers[0]: a trigger must be a mapping"),
        ({"jobs": [{**WORK, "key": "a", "Triggers": [{"Cron": "61 * * * *"}]}]}, "jobs[0].triggers[0].cron"),
        ({"jobs": [{**WORK, "key": "a", "Triggers": [{"Cron": "* * * * *", "JobData": {}}]}]}, "JobData: must be text"),
        ({"jobs": [{**WORK, "key": "a", "Triggers": [{"ScheduleTriggerId": "x"}]}]}, "must be a GUID"),
        ({"jobs": [{**WORK, "key": "a", "Triggers": [{"Cron": "@daily", "IsDisabled": 1}]}]}, "must be true or false"),
        ({"delete": [1]}, "delete[0].key: must be text"),
        ({"delete": ["a", "a"]}, "delete[1]"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_with_its_place(document: Any, expected: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_declaration(document)
    assert expected in refused.value.message
