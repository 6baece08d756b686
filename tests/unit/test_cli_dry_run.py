"""`--dry-run`: what a command would do is said, and nothing is asked of the server but to look."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from horae.cli import app
from tests.unit.fake_api import JOB, RUN, Fake, page, serving

# What changes something, and says nothing beforehand: why.
WITHOUT = {
    **dict.fromkeys(("up", "agent", "exec", "mcp"), "runs until it is ended"),
    **dict.fromkeys(("login", "logout", "sessions end"), "concerns who types it"),
    **dict.fromkeys(
        ("token create", "nodes join-token", "admin create", "admin invite", "users create", "users link",
         "orgs create"), "only makes something new",
    ),
    **dict.fromkeys(("triggers hook", "ping-url"), "only shows an address, unless --rotate is given"),
    **dict.fromkeys(("alerts ack", "alerts test"), "changes nothing that lasts"),
    "jobs edit": "an editor opens, and nothing happens to what is saved unchanged",
    "migrate": "--check",
    **dict.fromkeys(("export", "artifacts"), "writes files here, and overwrites none"),
}  # fmt: skip
LOOKS = {
    "jobs", "jobs show", "triggers", "triggers show", "runs", "runs show", "logs", "events", "callback", "approvals",
    "preview", "forecast", "explain", "nodes", "handlers", "alerts", "alerts rules", "alerts channels", "alerts sent",
    "queues", "limits", "resources", "secret", "secret list", "whoami", "sessions", "admin", "users", "orgs",
    "orgs members", "token", "token list", "grants", "audit", "audit verify", "audit export", "inbox", "inbox grants",
    "inbox refused", "check", "completion",
}  # fmt: skip
QUEUE = {"name": "reports", "state": "open", "concurrency": 5, "rate": None, "burst": 1, "version": 3, "weights": {},
         "figures": {"waiting": 4}}  # fmt: skip
RESOURCE = {"name": "gpu", "capacity": 2, "used": 1, "waiting": 3}
GRANT = {"id": 7, "who": "bob", "role": "operator", "job": None, "tag": "nightly", "queue": None}
ORG = {"id": 2, "name": "data", "most_waiting": None, "most_jobs": None}
MEMBER = {"name": "bob", "role": "viewer", "source": "local"}
USER = {"name": "bob", "kind": "local", "email": "", "roles": {}, "state": "good", "created_at": JOB["created_at"]}
TOKEN = {"id": 3, "name": "laptop", "owner": "ann", "state": "good"}
APPROVAL = {"run_id": 42, "job_id": 7, "job_name": "backup", "by": [], "message": "", "created_at": JOB["created_at"],
            "until": None}  # fmt: skip


@pytest.fixture
def api() -> Iterator[Fake]:
    with serving() as fake:
        fake.get("/v1/jobs/7/data-schema", {"schema": None, "data": {}, "result": None})
        fake.get("/v1/runs/43", {**RUN, "id": 43, "state": "running", "attempts": []})
        fake.get("/v1/approvals", page(APPROVAL))
        fake.get("/v1/queues/reports", QUEUE)
        fake.get("/v1/resources", page(RESOURCE))
        fake.get("/v1/secrets", page({"name": "KEY", "version": 2}))
        fake.get("/v1/grants", page(GRANT))
        fake.get("/v1/orgs", page(ORG))
        fake.get("/v1/orgs/data/members", page(MEMBER))
        fake.get("/v1/users", page(USER))
        fake.get("/v1/tokens", page(TOKEN))
        fake.get("/v1/alerts/rules", page({"name": "night"}))
        fake.get("/v1/alerts/channels", page())
        fake.get("/v1/runs", page())
        yield fake


def invoke(api: Fake, *args: str) -> Any:
    return CliRunner().invoke(app, [*args, "--server", api.url])


def commands(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    if name:
        yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from commands(found, f"{name} {below}".strip())


def test_what_changes_something_has_a_dry_run() -> None:
    have = {name for name, command in commands(app) if any(one.name == "dry_run" for one in command.params)}
    every = {name for name, _ in commands(app)}
    assert sorted(every - have) == sorted({*WITHOUT, *LOOKS})
    assert not have & {*WITHOUT, *LOOKS}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("run", "backup"), "would run job 7 backup"),
        (("run", "7", "--data", '{"a": "é"}'), 'would run job 7 backup with {"a": "é"}'),
        (("signal", "43", "paid"), "would tell run 43 of backup, running, paid"),
        (("approve", "42"), "would approve run 42 of backup"),
        (("reject", "42"), "would reject run 42 of backup"),
        (("jobs", "reset-cursor", "7"), "would forget how far job 7 backup is: nowhere yet"),
        (("triggers", "move", "9", "--to", "2027-03-28T02:30:00Z"),
         "would move trigger 9 of backup to 2027-03-28 02:30:00, instead of 2027-01-16 02:00:00"),
        (("triggers", "enable", "9"), "would enable trigger 9 of backup"),
        (("triggers", "disable", "9"), "would disable trigger 9 of backup"),
        (("nodes", "drain", "n1"), "would drain n1, live, which runs 2"),
        (("nodes", "evict", "n1"), "would evict n1, live, which runs 2"),
        (("queues", "pause", "reports"), "would pause queue reports, open, in which 4 wait"),
        (("queues", "delete", "reports"), "would delete queue reports, open, in which 4 wait"),
        (("queues", "set", "reports", "--concurrency", "9"), "would change queue reports: concurrency 9"),
        (("queues", "set", "new", "--label", "gpu"), 'would make queue new: labels ["gpu"]'),
        (("resources", "set", "gpu", "4"), "would count 4 of gpu instead of 2"),
        (("resources", "delete", "gpu"), "would count gpu no longer, of which 1 is in use and 3 wait"),
        (("secret", "delete", "KEY"), "would delete the secret KEY, version 2"),
        (("secret", "rotate"), "would seal everything anew with a new key, 1 secrets with it"),
        (("grants", "add", "bob", "editor", "--tag", "nightly"), "would let bob be editor on tag nightly"),
        (("grants", "remove", "7"), "would take grant 7 back: bob is operator on tag nightly"),
        (("users", "disable", "bob"), "would disable bob"),
        (("users", "enable", "bob"), "would enable bob"),
        (("orgs", "rename", "data", "science"), "would call data science from now on"),
        (("orgs", "limit", "2", "--most-jobs", "0"), "would let 2 have any number of jobs"),
        (("orgs", "delete", "data"), "would delete the organisation data, which has 1 members, if nothing is in it"),
        (("orgs", "add", "data", "bob", "--role", "editor"), "would make bob editor in data, who is viewer now"),
        (("orgs", "remove", "data", "bob"), "would take bob, viewer, out of data"),
        (("token", "revoke", "3"), "would revoke token 3 laptop of ann, good"),
        (("alerts", "delete", "rule", "night"), "would delete rule night"),
    ],
    ids=lambda it: " ".join(it) if isinstance(it, tuple) else "",
)  # fmt: skip
def test_it_is_said_and_not_done(api: Fake, args: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    result = invoke(api, *args, "--dry-run")
    assert (result.exit_code, result.stdout) == (0, f"{said}\n")
    answer = json.loads(invoke(api, *args, "--dry-run", "--json").stdout)
    assert answer["dry_run"] is True
    assert {one.method for one in api.requests} <= {"GET"}


@pytest.mark.parametrize("is_new", [True, False])
def test_a_secret_that_would_be_set_is_not_sent(api: Fake, is_new: bool, tmp_path: Path) -> None:
    (tmp_path / "value").write_text("hidden")
    name = "OTHER" if is_new else "KEY"
    result = invoke(api, "secret", "set", name, "--from-file", str(tmp_path / "value"), "--dry-run")
    assert result.stdout == f"would {'set' if is_new else 'replace'} the secret {name}\n"
    assert not any(b"hidden" in one.body for one in api.requests)


def test_alerts_that_would_be_applied_are_named(api: Fake, tmp_path: Path) -> None:
    file = tmp_path / "alerts.yaml"
    file.write_text("channels: {ops: {kind: webhook}}\nrules: {night: {when: failed}, day: {when: failed}}")
    result = invoke(api, "alerts", "apply", str(file), "--dry-run")
    assert result.stdout.splitlines() == [
        "channel ops would be created", "rule night would be changed", "rule day would be created"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("args", "code", "exit_code"),
    [(("signal", "42", "paid"), "E_TERMINAL", 5), (("approve", "41"), "E_NOT_ASKED", 5),
     (("nodes", "evict", "n2"), "E_NOT_FOUND", 4), (("token", "revoke", "9"), "E_NOT_FOUND", 4),
     (("orgs", "delete", "none"), "E_NOT_FOUND", 4), (("secret", "delete", "NONE"), "E_NOT_FOUND", 4),
     (("runs", "retry", "42"), "E_NO_TASKS", 5)],
)  # fmt: skip
def test_what_would_be_refused_is_refused(api: Fake, args: tuple[str, ...], code: str, exit_code: int) -> None:
    result = invoke(api, *args, "--dry-run", "--json")
    assert result.exit_code == exit_code
    assert json.loads(result.stderr.splitlines()[-1])["code"] == code


# ── what a run would be ────────────────────────────────────────────────────────────────────────────


def test_data_that_the_handler_does_not_take_is_refused(api: Fake) -> None:
    schema = {"type": "object", "properties": {"files": {"type": "integer"}}, "required": ["files"]}
    api.get("/v1/jobs/7/data-schema", {"schema": schema, "data": {}, "result": None})
    assert invoke(api, "run", "backup", "--data", '{"files": 3}', "--dry-run").exit_code == 0
    wrong = invoke(api, "run", "backup", "--data", '{"files": "many"}', "--dry-run")
    assert wrong.exit_code == 2
    assert "data.files: expected int" in wrong.stderr


def test_a_paused_job_would_not_run(api: Fake) -> None:
    api.get("/v1/jobs/7", {**JOB, "paused": True})
    result = invoke(api, "run", "7", "--dry-run")
    assert (result.exit_code, result.stderr) == (5, "error[E_PAUSED]: job 7 is paused; resume it first\n")


@pytest.mark.parametrize(
    ("overlap", "said"),
    [("forbid", "; it would be skipped, because of run 43, running"), ("queue", "; it would wait for run 43, running"),
     ("replace", "; it would replace run 43, running"), ("allow", "")],
)  # fmt: skip
def test_what_overlap_does_with_it_is_told(api: Fake, overlap: str, said: str) -> None:
    api.get("/v1/jobs/7", {**JOB, "policy": {**JOB["policy"], "overlap": overlap}})  # type: ignore[dict-item]
    api.get("/v1/runs", page({**RUN, "id": 43, "state": "running"}))
    assert invoke(api, "run", "7", "--dry-run").stdout == f"would run job 7 backup{said}\n"


def test_lines_of_a_file_are_counted(api: Fake, tmp_path: Path) -> None:
    (tmp_path / "many").write_text('{"a": 1}\n{"a": 2}\nnope\n')
    result = invoke(api, "run", "7", "--data-file", str(tmp_path / "many"), "--dry-run")
    assert (result.exit_code, result.stdout) == (1, "would run job 7 backup 2 times\n")
    assert result.stderr.startswith("line 3: not JSON")


def test_what_a_retry_takes_over_is_told(api: Fake) -> None:
    states = {"a": {"succeeded": 1}, "b": {"failed": 1}, "c": {"succeeded": 2, "failed": 1}, "d": {}}
    tasks = [{"name": name, "needs": [], "runs": runs} for name, runs in states.items()]
    api.get("/v1/runs/42", {**RUN, "state": "failed", "attempts": [], "tasks": tasks})
    result = invoke(api, "runs", "retry", "42", "--dry-run")
    assert result.stdout == "would go on with run 42 of backup: a is taken over, b, c, d done again\n"
