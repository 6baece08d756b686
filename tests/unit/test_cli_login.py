"""`horae login` against a server that is slow, hostile or refuses: what is shown, and how often it asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from horae.cli import app, login
from tests.unit.fake_api import Answer, Fake, Request, problem, serving

BEGUN = {
    "device_code": "horae_d_1_" + "x" * 43, "user_code": "BCDF-GHJK", "verification_uri": "/device", "interval": 5,
    "expires_in": 600,
}  # fmt: skip
TOKEN = {"token": "horae_u_1_" + "y" * 43, "owner": "ann", "role": "editor", "expires_at": None}


@pytest.fixture
def api() -> Iterator[Fake]:
    with serving() as fake:
        fake.routes["POST", "/v1/device"] = BEGUN
        yield fake


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[float]:
    """How long it waited before each question."""
    waited: list[float] = []
    monkeypatch.setattr(login, "pause", waited.append)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return waited


def answers(*codes: str) -> Any:
    """Refuse with each of these codes, then give the token."""
    left = list(codes)

    def answer(_: Request) -> Answer:
        return problem(400, left.pop(0), "wait") if left else (200, TOKEN)

    return answer


def log_in(api: Fake) -> Any:
    return CliRunner().invoke(app, ["login", "--server", api.url])


def test_F41_a_server_that_asks_to_slow_down_is_asked_less_often_from_then_on(api: Fake, waits: list[float]) -> None:
    api.routes["POST", "/v1/device/token"] = answers(
        "E_DEVICE_PENDING", *["E_DEVICE_SLOW_DOWN"] * 2, "E_DEVICE_PENDING"
    )
    result = log_in(api)
    assert result.exit_code == 0, result.output
    assert waits == [5, 5, 10, 15, 15]


def test_F41_a_code_that_nobody_confirms_is_given_up_when_it_is_over(api: Fake, waits: list[float]) -> None:
    api.routes["POST", "/v1/device/token"] = answers(*["E_DEVICE_PENDING"] * 1000)
    result = log_in(api)
    assert "E_DEVICE_EXPIRED" in result.stderr
    assert sum(waits) == 600


@pytest.mark.parametrize("code", ["E_DEVICE_DENIED", "E_DEVICE_EXPIRED"])
def test_F41_a_refusal_ends_the_questions(api: Fake, waits: list[float], code: str) -> None:
    api.routes["POST", "/v1/device/token"] = answers(code)
    result = log_in(api)
    assert (result.exit_code != 0, len(waits)) == (True, 1)
    assert code in result.stderr


@pytest.mark.parametrize("place", ["https://evil.example/device", "//evil.example", "javascript:alert(1)"])
def test_F43_only_the_address_that_was_named_is_shown(api: Fake, tmp_path: Path, place: str) -> None:
    hostile = {"verification_uri": place, "verification_uri_complete": f"{place}?code=1"}
    api.routes["POST", "/v1/device"] = {**BEGUN, **hostile}
    api.routes["POST", "/v1/device/token"] = answers()
    result = log_in(api)
    assert f"open {api.url}/device and type the code BCDF-GHJK" in result.stderr
    assert place not in result.output
    [kept] = tmp_path.rglob("credentials.json")
    assert kept.stat().st_mode & 0o077 == 0
    assert list(json.loads(kept.read_text()).values()) == [TOKEN["token"]]
