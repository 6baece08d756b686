"""The client, both twins: against a small server that answers as told, and against bytes that no server should send."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from horae import schemas
from horae.client import (
    Client,
    SyncClient,
    access,
    accounts,
    alerting,
    auditing,
    cluster,
    definitions,
    happenings,
    insight,
    output,
    running,
)
from horae.errors import Conflict, Error, Invalid, NotFound, Unavailable
from tests.certificates import make_certificate
from tests.unit.fake_api import JOB, RUN, TRIGGER, Fake, events, page, problem, serving
from tests.unit.scripted import Scripted, answer

HEALTH = b'{"status": "ok", "version": "0.1.0", "node": "n1"}'
STREAMS = {"artifact", "events", "follow", "log"}
SUBJECTS = (access, accounts, alerting, auditing, cluster, definitions, happenings, insight, output, running)
CALLS = {
    name: make
    for module in SUBJECTS
    for name, make in vars(module).items()
    if inspect.isfunction(make) and make.__module__ == module.__name__ and name[0] != "_" and name != "is_terminal"
}


class Awaited:
    """Client as if it were SyncClient: what it gives is awaited, what it streams is collected."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._runner = asyncio.Runner()
        self._client = Client(*args, **options)

    def __enter__(self) -> Awaited:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._runner.close()

    def __getattr__(self, name: str) -> Any:
        if name == "json":
            return _Awaited(self._runner, self._client.json)
        return getattr(_Awaited(self._runner, self._client), name)


class _Awaited:
    def __init__(self, runner: asyncio.Runner, what: Any) -> None:
        self._runner, self._what = runner, what

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def perform(*args: Any, **given: Any) -> Any:
            made = getattr(self._what, name)(*args, **given)
            return [each async for each in made] if name in STREAMS else await made

        return lambda *args, **given: self._runner.run(perform(*args, **given))


Twin = type[SyncClient] | type[Awaited]


@pytest.fixture(params=[SyncClient, Awaited], ids=["sync", "async"])
def twin(request: pytest.FixtureRequest) -> Twin:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def api() -> Iterator[Fake]:
    with serving() as fake:
        yield fake


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.client.steps.PAUSES", (0.0, 0.0))


# ── twins of one source ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("client", [Client, SyncClient])
def test_both_twins_have_every_call_with_its_arguments_and_words(client: type) -> None:
    for name, make in CALLS.items():
        method = getattr(client, name)
        assert list(inspect.signature(method).parameters.values())[1:] == list(
            inspect.signature(make).parameters.values()
        )
        assert inspect.getdoc(method) == inspect.getdoc(make)
        assert inspect.getdoc(method), name


@pytest.mark.parametrize("name", sorted(CALLS))
def test_every_call_is_annotated_with_a_type_that_can_be_read(name: str) -> None:
    from horae.client.twins import _reader_of

    assert _reader_of(CALLS[name])[0] is not Any


# ── typed answers ──────────────────────────────────────────────────────────────────────────────────


def test_answers_have_attributes(twin: Twin, api: Fake) -> None:
    with twin(api.url) as client:
        run, jobs = client.run(42), client.jobs()
    assert (run.id, run.state, run.attempts) == (42, "succeeded", [])
    assert isinstance(run, schemas.RunDetail)
    assert [job.triggers[0].description for job in jobs.items] == ["at 02:00 every day"]


@dataclass
class Total:
    price: int


def test_the_result_of_a_run_that_is_waited_for_is_of_the_type_that_is_given(twin: Twin, api: Fake) -> None:
    api.get("/v1/runs/42", {**RUN, "attempts": [], "result": {"price": 3}})
    with twin(api.url) as client:
        assert client.wait(42, result=Total).result == Total(3)
        assert client.wait(42).result == {"price": 3}
        assert client.json.wait(42, result=Total)["result"] == {"price": 3}


def test_a_result_of_another_form_is_refused_and_that_of_a_failure_left_alone(twin: Twin, api: Fake) -> None:
    api.get("/v1/runs/42", {**RUN, "attempts": [], "result": {"price": "x"}})
    with twin(api.url) as client, pytest.raises(Invalid, match='expected int, got "x"') as caught:
        client.wait(42, result=Total)
    assert (caught.value.code, caught.value.path) == ("E_RESULT", "result.price")
    api.get("/v1/runs/42", {**RUN, "attempts": [], "state": "failed"})
    with twin(api.url) as client:
        assert client.wait(42, result=Total).result is None


def test_fields_of_a_newer_server_are_left_out_of_types_and_kept_in_json(twin: Twin, api: Fake) -> None:
    api.get("/v1/runs/42", {**RUN, "attempts": [], "mood": "good"})
    with twin(api.url) as client:
        assert client.run(42).id == 42
        assert client.json.run(42)["mood"] == "good"


def test_an_answer_of_another_version_is_told_with_the_field(twin: Twin, api: Fake) -> None:
    api.get("/v1/runs/42", {"id": 42, "state": "succeeded"})
    with twin(api.url) as client, pytest.raises(Unavailable, match=r"does not read: .*`job_id`") as caught:
        client.run(42)
    assert "upgrade" in caught.value.hint


def test_a_list_is_paged_until_its_limit(twin: Twin, api: Fake) -> None:
    pages = {None: {"items": [JOB, JOB], "cursor": "a"}, "a": {"items": [JOB], "cursor": "b"}}
    api.get("/v1/jobs", lambda request: (200, pages[request.query.get("cursor")]))
    with twin(api.url) as client:
        found = client.jobs(limit=3, paused=False)
    assert (len(found.items), found.cursor) == (3, "b")
    assert [one.query["limit"] for one in api.requests] == ["3", "1"]
    assert api.requests[0].query["paused"] == "false"


def test_a_job_is_found_by_key_before_name_and_a_common_name_is_refused(twin: Twin, api: Fake) -> None:
    found = {"key": page(), "named": page(JOB, {**JOB, "id": 8})}
    api.get("/v1/jobs", lambda request: (200, found["key" if "key" in request.query else "named"]))
    with twin(api.url) as client:
        with pytest.raises(Conflict, match=r"by its id \(7, 8\)"):
            client.find_job("backup")
        found["named"] = page()
        with pytest.raises(NotFound, match="'backup'"):
            client.find_job("backup")
        found["key"] = page(JOB)
        assert client.find_job("backup").id == client.find_job("7").id == 7


# ── many ───────────────────────────────────────────────────────────────────────────────────────────


def test_many_orders_go_in_parts_that_are_repeated_under_one_key_and_keep_their_order(
    twin: Twin, api: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horae.client.making.MANY", 2)
    refused = {**problem(404, "E_NOT_FOUND", "no job 9")[1], "request_id": "r"}  # type: ignore[index]
    replies = iter([{"runs": [{**RUN, "id": 1}, refused]}, None, {"runs": [{**RUN, "id": 3}]}])
    api.post("/v1/runs", lambda request: (200, reply) if (reply := next(replies)) else None)
    with twin(api.url) as client:
        made = client.run_many({"job": job, "data": {"n": job}} for job in (7, 9, 7))
    first, second, again = api.asked("POST", "/v1/runs")
    keys = [one.headers["idempotency-key"] for one in (first, second, again)]
    assert [one.run and one.run.id for one in made] == [1, None, 3]
    assert made[1].error.code == "E_NOT_FOUND"
    assert json.loads(first.body) == [{"job": 7, "data": {"n": 7}}, {"job": 9, "data": {"n": 9}}]
    assert second.body == again.body
    assert (keys[1] == keys[2], keys[0] == keys[1]) == (True, False)


def test_the_next_orders_are_written_while_the_last_are_on_their_way(
    twin: Twin, api: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horae.client.making.MANY", 1)
    is_written = threading.Event()

    def orders() -> Iterator[dict[str, Any]]:
        yield {"job": 1}
        is_written.set()
        yield {"job": 2}

    seen: list[bool] = []

    def reply(_: Any) -> tuple[int, Any]:
        seen.append(is_written.wait(30))
        return 200, {"runs": [RUN]}

    api.post("/v1/runs", reply)
    with twin(api.url) as client:
        assert len(client.run_many(orders())) == 2
    assert seen == [True, True]


def test_what_is_wrong_with_later_orders_is_told_after_the_earlier_ones_are_answered(
    twin: Twin, api: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horae.client.making.MANY", 1)
    answered: list[int] = []

    def reply(_: Any) -> tuple[int, Any]:
        answered.append(1)
        return 200, {"runs": [RUN]}

    api.post("/v1/runs", reply)
    with twin(api.url) as client:
        with pytest.raises(Invalid, match="cannot be sent as JSON"):
            client.run_many([{"job": 1}, {"job": 2}, {"job": {3}}])
        assert answered == [1]
        assert len(client.run_many([{"job": 1}])) == 1, "its connection is as good as new"


def test_many_jobs_go_in_parts_of_what_the_server_takes(twin: Twin, api: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.client.making.MANY", 2)
    api.post("/v1/jobs", lambda r: (201, {"jobs": [JOB] * len(json.loads(r.body)), "replayed": False}))
    with twin(api.url) as client:
        made = client.submit_many([{"name": "x"}] * 3)
        monkeypatch.setattr("horae.client.making.MANY_BYTES", 20)
        client.submit_many([{"name": "x" * 30}] * 2)
    assert [job.id for job in made] == [7, 7, 7]
    assert [len(json.loads(one.body)) for one in api.requests] == [2, 1, 1, 1]


# ── repetitions ────────────────────────────────────────────────────────────────────────────────────


def test_a_broken_submit_is_repeated_with_the_same_key(twin: Twin, api: Fake) -> None:
    replies = iter([None, (201, {"jobs": [JOB], "replayed": True})])
    api.post("/v1/jobs", lambda request: next(replies))
    with twin(api.url) as client:
        made = client.submit({"name": "x"})
    first, second = api.asked("POST", "/v1/jobs")
    assert made.replayed is True
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"] != ""
    assert first.body == second.body == b'{"name": "x"}'


def test_two_submits_have_different_keys_unless_one_is_given(twin: Twin, api: Fake) -> None:
    api.post("/v1/jobs", (201, {"jobs": [], "replayed": False}))
    with twin(api.url) as client:
        for key in ("", "", "mine"):
            client.submit(b"name: x", key=key)
    keys = [one.headers["idempotency-key"] for one in api.requests]
    assert (len(set(keys)), keys[2]) == (3, "mine")


@pytest.mark.parametrize("reply", [None, problem(503, "E_UNAVAILABLE", "not now")])
def test_a_call_that_could_act_twice_is_not_repeated(twin: Twin, api: Fake, reply: Any) -> None:
    api.post("/v1/runs/42/cancel", lambda request: reply)
    with twin(api.url) as client, pytest.raises(Unavailable, match=r"broke|not now"):
        client.cancel(42)
    assert len(api.requests) == 1


def test_a_busy_server_is_asked_again_after_as_long_as_it_says(
    twin: Twin, api: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("horae.client.sync.time", type("Time", (), {"sleep": slept.append}))
    monkeypatch.setattr("horae.client.aio.asyncio", type("Asyncio", (), {"sleep": sleep}))
    busy = (503, problem(503, "E_UNAVAILABLE", "")[1], {"Retry-After": "7"})  # type: ignore[index]
    replies = iter([busy, (200, {**RUN, "attempts": []})])
    api.get("/v1/runs/42", lambda request: next(replies))
    with twin(api.url) as client:
        assert client.run(42).id == 42
    assert slept == [7.0]


def test_a_server_that_stays_busy_or_asks_for_too_long_is_given_up(twin: Twin, api: Fake) -> None:
    busy = problem(503, "E_UNAVAILABLE", "the database is away")
    api.get("/v1/runs/42", busy)
    api.get("/v1/nodes", (*busy[:2], {"Retry-After": "3600"}))  # type: ignore[index]
    with twin(api.url) as client:
        with pytest.raises(Unavailable, match="the database is away"):
            client.run(42)
        with pytest.raises(Unavailable, match="the database is away"):
            client.nodes()
    assert (len(api.asked("GET", "/v1/runs/42")), len(api.asked("GET", "/v1/nodes"))) == (3, 1)


# ── what is sent, what is refused ──────────────────────────────────────────────────────────────────


def test_a_token_is_sent_with_every_call_and_stays_out_of_what_is_printed(twin: Twin, api: Fake) -> None:
    with twin(api.url, "hush") as client:
        client.nodes()
        inner = getattr(client, "_client", client)
        assert "hush" not in repr(getattr(inner, "_streams", None) or inner._sockets) + repr(vars(inner))
    assert api.requests[0].headers["authorization"] == "Bearer hush"
    with pytest.raises(Error) as caught:
        twin("http://127.0.0.1:1", "two words")
    assert caught.value.code == "E_TOKEN"


def test_errors_carry_their_problems(twin: Twin, api: Fake) -> None:
    wrong = {"path": "steps[0]", "code": "E_TYPE", "message": "text expected", "hint": "quote it"}
    api.get("/v1/runs/1", problem(404, "E_NOT_FOUND", "no run 1"))
    api.post("/v1/jobs/7/run", problem(409, "E_PAUSED", "it is paused", errors=[wrong]))
    with twin(api.url) as client:
        with pytest.raises(NotFound, match="no run 1"):
            client.run(1)
        with pytest.raises(Conflict) as caught:
            client.run_now(7)
    assert caught.value.code == "E_PAUSED"
    assert [one.as_dict() for one in caught.value.problems] == [wrong]


def test_a_job_is_replaced_only_at_its_version(twin: Twin, api: Fake) -> None:
    api.routes["PUT", "/v1/jobs/7"] = JOB
    with twin(api.url) as client:
        client.replace_job(7, {"name": "x"}, version=3)
        client.replace_job(7, {"name": "x"})
    assert [one.headers.get("if-match") for one in api.requests] == ['"3"', None]


def test_triggers_are_added_replaced_and_deleted(twin: Twin, api: Fake) -> None:
    api.post("/v1/jobs/7/triggers", (201, TRIGGER))
    api.routes["PUT", "/v1/triggers/9"] = TRIGGER
    api.routes["DELETE", "/v1/triggers/9"] = (204, b"")
    with twin(api.url) as client:
        assert client.add_trigger(7, {"cron": "@daily"}).id == 9
        assert client.json.replace_trigger(9, {"cron": "@daily"}) == TRIGGER
        assert client.delete_trigger(9) is None
    assert [json.loads(one.body or b"null") for one in api.requests] == [{"cron": "@daily"}, {"cron": "@daily"}, None]


def test_a_key_that_would_end_its_header_is_refused_and_nothing_is_sent(twin: Twin, api: Fake) -> None:
    with twin(api.url) as client:
        with pytest.raises(Invalid) as caught:
            client.run_now(7, key="a\r\nX-Evil: 1")
        with pytest.raises(Invalid, match="cannot be sent as JSON"):
            client.run_now(7, data={"when": object()})
    assert (caught.value.code, caught.value.path, api.requests) == ("E_CHAR", "Idempotency-Key", [])


# ── streams ────────────────────────────────────────────────────────────────────────────────────────


def test_a_followed_run_goes_on_where_its_stream_broke(twin: Twin, api: Fake) -> None:
    first = events(("log", {"offset": 0, "text": "a"}, 1))
    last = events(("log", {"offset": 1, "text": "b"}, 2), ("end", RUN, None))
    replies = iter([first, None, last])
    api.get("/v1/runs/42/log/follow", lambda request: next(replies))
    with twin(api.url) as client:
        seen = list(client.follow(42))
    assert [event.data.get("text") for event in seen] == ["a", "b", None]
    assert [one.headers.get("last-event-id") for one in api.requests] == [None, "1", "1"]


def test_giving_up_on_a_stream_that_never_ends_well(twin: Twin, api: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.client.output.PATIENCE", 2)
    api.get("/v1/runs/42/log/follow", events())
    with twin(api.url) as client, pytest.raises(Unavailable, match="keeps ending before the run has ended"):
        list(client.follow(42))
    assert len(api.requests) == 3


def test_a_log_is_read_in_pieces_and_an_artifact_as_it_comes(twin: Twin, api: Fake) -> None:
    text = b"0123456789"

    def log(request: Any) -> Any:
        start = int(request.query["offset"])
        return 200, text[start : start + 4], {"Horae-Log-Offset": str(min(len(text), start + 4))}

    api.get("/v1/runs/42/log", log)
    api.get("/v1/runs/42/artifacts/a b", problem(404, "E_NOT_FOUND", "no such file"))
    api.get("/v1/runs/42/artifacts/dist/a%20b", (200, text, {"Content-Length": "10"}))
    with twin(api.url) as client:
        assert b"".join(client.log(42)) == text
        assert b"".join(client.artifact(42, "dist/a b")) == text
        with pytest.raises(NotFound):
            list(client.artifact(42, "nothing"))


def test_lines_of_a_log_are_asked_for_and_a_search_goes_on_to_its_end(twin: Twin, api: Fake) -> None:
    def log(request: Any) -> Any:
        start = int(request.query.get("offset", 10))
        return 200, b"" if start == 20 else b"found\n", {"Horae-Log-Offset": "30" if start >= 20 else "20"}

    api.get("/v1/runs/42/log", log)
    with twin(api.url) as client:
        assert b"".join(client.log(42, tail=5, grep="a b", attempt=2)) == b"found\nfound\n"
    first, *later = [one.query for one in api.requests]
    assert first == {"tail": "5", "grep": "a b", "attempt": "2"}
    assert later == [{"offset": offset, "grep": "a b", "attempt": "2"} for offset in ("20", "30")]


def test_an_artifact_that_breaks_off_is_not_taken_for_whole(twin: Twin) -> None:
    said = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n1234"
    with Scripted([said]) as server, twin(server.url) as client, pytest.raises(Unavailable, match="broke"):
        list(client.artifact(42, "a"))


# ── connections ────────────────────────────────────────────────────────────────────────────────────


def test_calls_share_a_connection_that_is_kept(twin: Twin) -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n" + HEALTH[:16] + b"\r\n"
    chunked += b"%x\r\n" % len(HEALTH[16:]) + HEALTH[16:] + b"\r\n0\r\n\r\n"
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + answer(HEALTH)
    with Scripted([answer(HEALTH), chunked, early, answer(HEALTH)]) as server, twin(server.url) as client:
        assert [client.health().version for _ in range(4)] == ["0.1.0"] * 4
        client.close()
    assert [number for number, _ in server.requests] == [0, 0, 0, 0]


def test_a_connection_that_was_closed_meanwhile_is_not_used(twin: Twin) -> None:
    cancelled = answer(json.dumps(RUN).encode())
    with Scripted([cancelled], [cancelled]) as server, twin(server.url) as client:
        client.cancel(42)
        server.closed[0].wait(60)
        if twin is Awaited:
            client._runner.run(asyncio.sleep(0.01))  # the loop hears of it
        client.cancel(42)  # could act twice, so it would not be repeated
    assert [number for number, _ in server.requests] == [0, 1]


@pytest.mark.parametrize(
    "first", [answer(HEALTH, "200 OK", "Connection: close"), answer(HEALTH) + answer(b'{"evil": 1}')]
)
def test_a_connection_is_not_kept_after_its_last_or_a_surplus_answer(twin: Twin, first: bytes) -> None:
    with Scripted([first, answer(b'{"evil": 1}')], [answer(HEALTH)]) as server, twin(server.url) as client:
        assert [client.health().version for _ in range(2)] == ["0.1.0"] * 2
    assert [number for number, _ in server.requests] == [0, 1]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not as Horae does"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "not as Horae does"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, "not as Horae does"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "not as Horae does"),
        (answer(b"<html>"), "not as Horae does"),
        (answer(b"[1]"), "not as Horae does"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}", "broke"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}", "broke"),
        (b"", "broke"),
        (answer(b"moved", "302 Found", "Location: http://evil.example/"), "status 302"),
    ],
)
def test_what_no_horae_would_answer_is_told(twin: Twin, said: bytes, told: str) -> None:
    replies = [[said]] * 3
    with Scripted(*replies) as server, twin(server.url) as client, pytest.raises(Error, match=told) as caught:
        client.overview()
    assert caught.value.code in ("E_UNAVAILABLE", "E_INTERNAL")


def test_a_server_that_says_nothing_is_given_up(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.client.output.SILENCE", 0.05)
    monkeypatch.setattr("horae.client.output.PATIENCE", 0)
    told = "did not answer in time"
    replies = [[b""] * 2] * 3
    with Scripted(*replies) as server, twin(server.url) as client, pytest.raises(Unavailable, match=told):
        list(client.follow(42))


def test_tls_is_checked_and_a_proxy_of_the_environment_is_used(
    twin: Twin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = make_certificate(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    opened = b"HTTP/1.1 200 Connection established\r\n\r\n"
    with Scripted([opened, answer(HEALTH)], *[[opened]] * 3, tls=tls) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:pass%20word@127.0.0.1:{proxy.port}")
        with twin("https://horae.example", "hush", ca_file=str(certificate)) as client:
            assert client.health().version == "0.1.0"
        with twin("https://horae.example") as stranger, pytest.raises(Unavailable, match="is not trusted"):
            stranger.health()
    assert proxy.heads()[:2] == ["CONNECT horae.example:443 HTTP/1.1", "GET /healthz HTTP/1.1"]
    assert b"Proxy-Authorization: Basic bWU6cGFzcyB3b3Jk" in proxy.requests[0][1]
    assert (b"hush" in proxy.requests[0][1], b"Bearer hush" in proxy.requests[1][1]) == (False, True)


def test_a_plain_proxy_is_sent_the_whole_address_and_no_proxy_is_heard(
    twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Scripted([answer(HEALTH)]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with twin("http://horae.example:8080", insecure=True) as client:
            client.health()
    assert proxy.heads() == ["GET http://horae.example:8080/healthz HTTP/1.1"]
    monkeypatch.setenv("HTTP_PROXY", "socks5://127.0.0.1:1")
    with pytest.raises(Invalid, match="expected a proxy"):
        twin("http://horae.example:8080", insecure=True)
    monkeypatch.setenv("NO_PROXY", "horae.example")
    twin("http://horae.example:8080", insecure=True)


# ── misuse ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_closed_client_says_so(twin: Twin, api: Fake) -> None:
    with twin(api.url) as client:
        client.close()
        with pytest.raises(Conflict, match="closed") as caught:
            client.health()
    assert caught.value.code == "E_CLIENT"


def test_a_client_is_refused_after_a_fork(twin: Twin, api: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    with twin(api.url) as client:
        client.health()
        child = os.getpid() + 1
        monkeypatch.setattr("horae.client.pool.os.getpid", lambda: child)
        with pytest.raises(Conflict, match="before a fork") as caught:
            client.health()
    assert caught.value.code == "E_CLIENT"


def test_a_client_of_another_event_loop_is_refused(api: Fake) -> None:
    client = Client(api.url)
    asyncio.run(client.health())  # type: ignore[arg-type]
    with pytest.raises(Conflict, match="another event loop"):
        asyncio.run(client.health())  # type: ignore[arg-type]
    client._streams.close()


async def test_tasks_share_a_client_and_a_cancelled_call_leaves_no_answer_behind(api: Fake) -> None:
    for number in range(300):
        api.get(f"/v1/runs/{number}", {**RUN, "id": number + 1, "attempts": []})
    async with Client(api.url) as client:
        doomed = asyncio.create_task(client.run(0))
        await asyncio.sleep(0)
        doomed.cancel()
        found = await asyncio.gather(*(client.run(number) for number in range(300)))
    assert [run.id for run in found] == list(range(1, 301))
