"""`horae logs` of several runs: one after the other, or followed at once, each line with its run."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from horae.cli import app
from tests.unit.fake_api import RUN, Answer, Fake, Request, events, log_of, problem, serving

OTHER = {**RUN, "id": 43, "job_id": 8, "job_name": "報告"}


@pytest.fixture
def api() -> Iterator[Fake]:
    with serving() as fake:
        fake.get("/v1/runs/43", {**OTHER, "attempts": []})
        fake.get("/v1/runs/42/log", log_of(b"one\ntwo"))
        fake.get("/v1/runs/43/log", log_of(b"drei\n"))
        yield fake


def invoke(api: Fake, *args: str) -> Any:
    return CliRunner().invoke(app, ["logs", *args, "--server", api.url])


def test_each_line_begins_with_its_job_and_run(api: Fake) -> None:
    result = invoke(api, "42", "43")
    assert (result.exit_code, result.stdout) == (0, "backup 42 | one\nbackup 42 | two\n報告 43 | drei\n")


def test_a_job_among_them_is_its_newest_run(api: Fake) -> None:
    assert invoke(api, "43", "backup").stdout == "報告 43 | drei\nbackup 42 | one\nbackup 42 | two\n"
    assert api.asked("GET", "/v1/runs")[0].query["limit"] == "1"


def test_lines_are_picked_of_each(api: Fake) -> None:
    assert invoke(api, "42", "43", "--grep", "^.{4}$", "-E").stdout == "報告 43 | drei\n"


def test_in_json_there_is_an_object_for_each(api: Fake) -> None:
    found = json.loads(invoke(api, "42", "43", "--json").stdout)
    assert [(each["run_id"], each["job_name"], each["text"]) for each in found] == [
        (42, "backup", "one\ntwo"), (43, "報告", "drei\n")
    ]  # fmt: skip


@pytest.mark.parametrize("flags", [(), ("-f",), ("--json",)])
def test_one_that_is_not_there_keeps_no_other_from_it(api: Fake, flags: tuple[str, ...]) -> None:
    for run_id in (42, 43):
        log = ("log", {"offset": 0, "text": "x\n"}, 2)
        api.get(f"/v1/runs/{run_id}/log/follow", events(log, ("end", {**RUN, "id": run_id}, None)))
    result = invoke(api, "99", "43", *flags)
    assert result.exit_code == 4
    assert "99" in result.stderr
    if flags == ("--json",):
        assert [each.get("of") or each["run_id"] for each in json.loads(result.stdout)] == ["99", 43]
    else:
        assert result.stdout == f"報告 43 | {'x' if flags else 'drei'}\n"


def test_several_are_followed_at_once(api: Fake) -> None:
    """Each waits for the other to be followed too: one after the other would never end."""
    both = threading.Barrier(2, timeout=60)

    def answer(run: dict[str, Any]) -> Any:
        def reply(_: Request) -> Answer:
            both.wait()
            text = f"begun {run['id']}, "
            return events(
                ("log", {"offset": 0, "text": text}, len(text)), ("log", {"offset": len(text), "text": "ended"}, 99),
                ("end", run, None),
            )  # fmt: skip

        return reply

    for run in (RUN, OTHER):
        api.get(f"/v1/runs/{run['id']}/log/follow", answer(run))
    result = invoke(api, "-f", "42", "43")
    assert sorted(result.stdout.splitlines()) == ["backup 42 | begun 42, ended", "報告 43 | begun 43, ended"]
    assert sorted(result.stderr.splitlines()) == ["run 42 succeeded", "run 43 succeeded"]
    shown = [json.loads(line) for line in invoke(api, "-f", "42", "43", "--json").stdout.splitlines()]
    assert {(each["run_id"], each["job_name"], each["event"]) for each in shown} == {
        (42, "backup", "log"), (42, "backup", "end"), (43, "報告", "log"), (43, "報告", "end")
    }  # fmt: skip


@pytest.mark.parametrize("flags", [("--since", "1h"), ("--attempt", "2"), ("--job", "backup")])
def test_what_is_of_one_is_refused(api: Fake, flags: tuple[str, ...]) -> None:
    result = invoke(api, "42", "43", *flags)
    assert result.exit_code == 2
    assert "E_USAGE" in result.stderr


def test_a_server_that_is_gone_is_told_once(api: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.client.steps.PAUSES", (0.0,))
    for run_id in (42, 43):
        api.get(f"/v1/runs/{run_id}", problem(503, "E_UNAVAILABLE", "not now"))
    result = invoke(api, "42", "43", "-f")
    assert (result.exit_code, result.stderr) == (6, "error[E_UNAVAILABLE]: not now\n")
