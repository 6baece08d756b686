"""`horae audit` against a server that answers as told, real listeners for syslog, and a real bucket."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from click.testing import CliRunner

from horae.cli import app
from horae.cli.cluster import audit
from tests.engines.s3_server import S3, running_s3
from tests.unit.fake_api import Answer, Fake, Request, serving

DEADLINE = 60.0  # seconds
HASH = hashlib.sha256(b"").hexdigest()


def row(seq: int, **fields: Any) -> dict[str, Any]:
    given = {
        "id": seq, "at": "2027-01-15T08:00:00Z", "org": 1, "who": "ann", "via": "token 1", "address": "127.0.0.1",
        "action": "jobs.write", "operation": "POST /v1/jobs", "kind": "job", "subject": "7", "made": "7", "count": 1,
        "change": {"name": [None, "nightly"]}, "request_id": "r", "nth": 0, "outcome": "done", "code": "", "seq": seq,
        "hash": HASH,
    }  # fmt: skip
    return {**given, **fields}


def sealed(*rows: dict[str, Any], size: int = 1000) -> Callable[[Request], Answer]:
    def answer(request: Request) -> Answer:
        left = [each for each in rows if each["seq"] > int(request.query["after"])]
        cursor = str(left[size - 1]["seq"]) if len(left) >= size else None
        return 200, {"items": left[:size], "cursor": cursor}

    return answer


@pytest.fixture
def api() -> Iterator[Fake]:
    with serving() as fake:
        fake.routes["GET", "/v1/audit/sealed"] = sealed(row(1), row(2, outcome="refused", code="E_ROLE"), row(3))
        yield fake


def invoke(api: Fake, *args: str) -> Any:
    return CliRunner().invoke(app, ["audit", *args, "--server", api.url])


# ── looking ──


def test_rows_are_shown_with_who_what_and_what_changed(api: Fake) -> None:
    api.routes["GET", "/v1/audit"] = {"items": [row(1, count=3, who="a\x1b[31mnn")], "cursor": None}
    shown = invoke(api, "--who", "ann", "--kind", "job").stdout
    assert "POST /v1/jobs" in shown
    assert "job 7 → 7 ×3" in shown
    assert '{"name": [null, "nightly"]}' in shown
    assert "\x1b" not in shown
    assert api.requests[-1].query == {"who": "ann", "kind": "job", "limit": "100"}


@pytest.mark.parametrize(
    ("checked", "words"), [(1, "1 row from 1 on"), (0, "0 rows from 1 on"), (7, "7 rows from 1 on")]
)
def test_a_chain_that_holds_is_told_with_its_head(api: Fake, checked: int, words: str) -> None:
    found = {"checked": checked, "faults": [], "first": 1, "head": f"{checked}:{HASH}", "cursor": None}
    api.routes["GET", "/v1/audit/verify"] = found
    result = invoke(api, "verify")
    assert (result.exit_code, result.stdout) == (0, f"{words}, head {checked}:{HASH}\n")


def test_a_chain_that_is_broken_is_named_and_ends_with_5(api: Fake) -> None:
    fault = {"seq": 2, "what": "changed", "id": 2, "message": "row 2 (id 2) is not what was sealed"}
    first = {"checked": 2, "faults": [], "first": 1, "head": f"3:{HASH}", "cursor": "2.x"}
    pages = [first, {**first, "checked": 1, "faults": [fault], "cursor": None}]
    api.routes["GET", "/v1/audit/verify"] = lambda _: (200, pages.pop(0))
    result = invoke(api, "verify")
    assert result.exit_code == 5
    assert "row 2 (id 2) is not what was sealed\n3 rows" in result.stdout
    assert "1 fault, the first at row 2" in result.stderr


# ── taking it elsewhere ──


def test_rows_go_to_standard_output_or_a_new_file_as_lines_of_json(api: Fake, tmp_path: Path) -> None:
    out = invoke(api, "export", "--after", "1")
    assert [json.loads(line)["seq"] for line in out.stdout.splitlines()] == [2, 3]
    assert "2 rows, the last is 3: go on with --after 3" in out.stderr
    place = tmp_path / "rows.jsonl"
    assert invoke(api, "export", "--file", str(place)).exit_code == 0
    assert [json.loads(line)["seq"] for line in place.read_text().splitlines()] == [1, 2, 3]
    assert place.stat().st_mode & 0o077 == 0
    again = invoke(api, "export", "--file", str(place))
    assert (again.exit_code, "E_FILE" in again.stderr) == (1, True)


def test_over_udp_each_row_is_a_datagram_of_syslog(api: Fake) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(DEADLINE)
        result = invoke(api, "export", "--syslog", f"udp://127.0.0.1:{listener.getsockname()[1]}")
        assert result.exit_code == 0, result.output
        heard = [listener.recv(65536).decode() for _ in range(3)]
    assert [read(message) for message in heard] == [(109, 1), (108, 2), (109, 3)]


def test_over_tcp_each_row_has_its_length_before_it(api: Fake) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(DEADLINE)
        heard: list[bytes] = []
        thread = threading.Thread(target=lambda: heard.append(all_of(server.accept()[0])))
        thread.start()
        result = invoke(api, "export", "--syslog", f"tcp://127.0.0.1:{server.getsockname()[1]}")
        thread.join(DEADLINE)
    assert result.exit_code == 0, result.output
    left, messages = heard[0], []
    while left:
        length, _, rest = left.partition(b" ")
        messages.append(rest[: int(length)].decode())
        left = rest[int(length) :]
    assert [read(message) for message in messages] == [(109, 1), (108, 2), (109, 3)]


def all_of(line: socket.socket) -> bytes:
    with line, line.makefile("rb") as stream:
        return stream.read()


def read(message: str) -> tuple[int, int]:
    """Return the priority of a message of RFC 5424, and the number of the row in it."""
    head, at, host, name, process, kind, data, text = message.split(" ", 7)
    assert (at, host, name, process, kind, data) == (
        "2027-01-15T08:00:00Z", socket.gethostname(), "horae", "-", "audit", "-"
    )  # fmt: skip
    priority, version = head.removeprefix("<").split(">")
    assert version == "1"
    return int(priority), json.loads(text)["seq"]


def test_a_receiver_that_is_not_there_is_told(api: Fake) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    result = invoke(api, "export", "--syslog", f"tcp://127.0.0.1:{port}")
    assert (result.exit_code, "is a syslog server there?" in result.stderr) == (1, True)


@pytest.mark.parametrize("place", ["logs.example.com", "http://x", "udp://", "tcp://h:99999", "tcp://h:1/x"])
def test_an_address_that_is_none_of_syslog_is_refused(api: Fake, place: str) -> None:
    result = invoke(api, "export", "--syslog", place)
    assert (result.exit_code, "E_USAGE" in result.stderr) == (2, True)


# ── to a bucket ──


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with running_s3() as service:
        yield service


@pytest.mark.xdist_group("s3_of_audit")
def test_a_bucket_gets_whole_objects_and_the_next_export_goes_on_after_them(
    api: Fake, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = s3.store("archive", "horae")
    monkeypatch.setattr(audit, "OBJECT", 2)
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    place = ("export", "--bucket", "s3://archive/horae")
    assert "3 rows, the last is 3" in invoke(api, *place).stderr
    assert kept(store) == {(1, 2): [1, 2], (3, 3): [3]}

    api.routes["GET", "/v1/audit/sealed"] = sealed(*(row(seq) for seq in range(1, 6)))
    assert "2 rows, the last is 5" in invoke(api, *place).stderr
    assert kept(store) == {(1, 2): [1, 2], (3, 3): [3], (4, 5): [4, 5]}
    assert "0 rows, the last is 5" in invoke(api, *place).stderr

    api.routes["GET", "/v1/audit/sealed"] = sealed(*(row(seq, who="other") for seq in range(1, 6)))
    assert invoke(api, *place, "--after", "0").exit_code == 0  # what is there stays as it was
    assert b"other" not in bytes(obstore.get(store, name_of(1, 2)).bytes())


def kept(store: Any) -> dict[tuple[int, int], list[int]]:
    """Return the numbers of the rows in each object, by those of its name."""
    names = [each["path"] for page in obstore.list(store) for each in page]
    found = {}
    for name in names:
        first, last = name.removeprefix("audit/").removesuffix(".jsonl").split("-")
        lines = bytes(obstore.get(store, name).bytes()).splitlines()
        found[int(first), int(last)] = [json.loads(line)["seq"] for line in lines]
    return found


def name_of(first: int, last: int) -> str:
    return f"audit/{first:020}-{last:020}.jsonl"


@pytest.mark.parametrize("place", ["archive", "https://x/y", "s3://", "file:///tmp/x"])
def test_what_is_no_bucket_is_refused(api: Fake, place: str) -> None:
    result = invoke(api, "export", "--bucket", place)
    assert (result.exit_code != 0, "E_URL" in result.stderr) == (True, True)


def test_one_place_is_named(api: Fake, tmp_path: Path) -> None:
    result = invoke(api, "export", "--bucket", "s3://x/y", "--file", str(tmp_path / "f"))
    assert (result.exit_code, "E_USAGE" in result.stderr) == (2, True)


def test_all_organisations_are_asked_for(api: Fake) -> None:
    asked: list[str] = []

    def answer(request: Request) -> Answer:
        asked.append(request.query.get("org", ""))
        return 200, {"items": [], "cursor": None}

    api.routes["GET", "/v1/audit"] = answer
    api.routes["GET", "/v1/audit/sealed"] = answer
    for args in ((), ("--all",), ("export",), ("export", "--all")):
        assert invoke(api, *args).exit_code == 0
    assert asked == ["", "*", "", "*"]
