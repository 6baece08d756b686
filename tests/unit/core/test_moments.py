"""Moments, durations and zones: text in, microseconds inside, text out."""

from __future__ import annotations

import zoneinfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horae.core.time import moments
from horae.core.time.moments import HORIZON, LONGEST, format_duration, format_moment, parse_duration, parse_moment
from horae.errors import Invalid


def refused(call: object, value: object) -> Invalid:
    with pytest.raises(Invalid) as caught:
        call(value)  # type: ignore[operator]
    return caught.value


@settings(max_examples=200, deadline=None)
@given(st.integers(0, HORIZON))
def test_a_moment_survives_being_written_and_read(moment: int) -> None:
    assert parse_moment(format_moment(moment)) == moment


@settings(max_examples=200, deadline=None)
@given(st.integers(1000, LONGEST))
def test_a_duration_survives_being_written_and_read(duration: int) -> None:
    assert parse_duration(format_duration(duration)) == duration


def test_offsets_are_taken_off() -> None:
    assert format_moment(parse_moment("2024-01-01T00:00:00.123+05:45")) == "2023-12-31T18:15:00.123Z"
    assert format_moment(parse_moment("2024-01-01T00:00:00.000001-23:59")) == "2024-01-01T23:59:00.000001Z"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        pytest.param("2024-02-30T00:00:00Z", "E_TIME_SYNTAX", "no 30 February", id="B59"),
        pytest.param("2023-02-29T00:00:00Z", "E_TIME_SYNTAX", "no 29 February in 2023", id="no leap year"),
        pytest.param("2024-12-31T10:00:00", "E_TIME_NO_OFFSET", "no offset", id="B61"),
        pytest.param("2024-12-31T10:00:00+25:00", "E_TIME_SYNTAX", "+25:00", id="B63"),
        pytest.param("2024-12-31T24:00:00Z", "E_TIME_SYNTAX", "time of day", id="hour 24"),
        pytest.param("2024-12-31T10:00:60Z", "E_TIME_SYNTAX", "time of day", id="leap second"),
        pytest.param("1969-12-31T23:59:59Z", "E_TIME_RANGE", "1970 to 2200", id="before"),
        pytest.param("2201-01-01T00:00:00Z", "E_TIME_RANGE", "1970 to 2200", id="after"),
        pytest.param("0000-01-01T00:00:00Z", "E_TIME_RANGE", "1970 to 2200", id="year 0"),
        pytest.param("９999-01-01T00:00:00Z", "E_TIME_SYNTAX", "not a moment", id="full-width"),
        pytest.param("tomorrow", "E_TIME_SYNTAX", "not a moment", id="words"),
        pytest.param(9007199254740993, "E_TYPE", "a number", id="B57 number"),
        pytest.param(1.5, "E_TYPE", "a number", id="B57 fraction"),
        pytest.param(None, "E_TYPE", "null", id="null"),
    ],
)
def test_a_bad_moment_is_refused_with_its_code(text: object, code: str, words: str) -> None:
    error = refused(parse_moment, text)
    assert error.code == code
    assert words in error.message


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("1h30m", 5400), ("90s", 90), ("500ms", 0.5), ("2d", 172800), ("1w", 604800), ("PT1H30M", 5400), ("P1D", 86400),
     ("P1DT0.5S", 86400.5), ("1.5h", 5400), (90, 90), (0.25, 0.25), ("366d", 366 * 86400), ("1ms", 0.001)],
)  # fmt: skip
def test_durations_are_read_in_all_their_forms(written: object, seconds: float) -> None:
    assert parse_duration(written) == round(seconds * 1_000_000)


@pytest.mark.parametrize(
    ("written", "code"),
    [("-1m", "E_INTERVAL_SYNTAX"), ("+5s", "E_INTERVAL_SYNTAX"), ("1_0s", "E_INTERVAL_SYNTAX"),
     ("１h", "E_INTERVAL_SYNTAX"), ("30m1h", "E_INTERVAL_SYNTAX"), ("1h1h", "E_INTERVAL_SYNTAX"),
     ("90", "E_INTERVAL_SYNTAX"), ("", "E_INTERVAL_SYNTAX"), ("P", "E_INTERVAL_SYNTAX"), ("PT", "E_INTERVAL_SYNTAX"),
     ("P1Y", "E_INTERVAL_SYNTAX"), ("1h 30m", "E_INTERVAL_SYNTAX"), ("400000h", "E_INTERVAL_RANGE"),
     ("0s", "E_INTERVAL_RANGE"), ("1us", "E_INTERVAL_RANGE"), (0, "E_INTERVAL_RANGE"), (-5, "E_INTERVAL_RANGE"),
     (1e400, "E_INTERVAL_RANGE"), (float("nan"), "E_INTERVAL_RANGE"), (10**400, "E_INTERVAL_RANGE"),
     (True, "E_TYPE"), (None, "E_TYPE"), ([], "E_TYPE")],
)  # fmt: skip
def test_a_bad_duration_is_refused_with_its_code(written: object, code: str) -> None:
    assert refused(parse_duration, written).code == code


@pytest.mark.parametrize(
    "name", ["Mars/Phobos", "../../etc/passwd", "/etc/localtime", "localtime", "", "UTC\x00", "a" * 9999]
)
def test_an_unknown_zone_is_refused_before_any_file_is_opened(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    moments.zone_names()

    def opened(key: str) -> None:
        raise AssertionError(f"opened {key}")

    monkeypatch.setattr(moments, "ZoneInfo", opened)
    assert refused(moments.zone, name).code == "E_TZ_UNKNOWN"


def test_an_unknown_zone_gets_the_closest_names() -> None:
    assert "Europe/Berlin" in refused(moments.zone, "Berlin").hint
    assert "Europe/Berlin" in refused(moments.zone, "Europe/Belrin").hint
    assert "did you mean" in refused(moments.zone, "Mars/Phobos").hint


@pytest.mark.parametrize("name", ["PST", "IST", "CST", "EST", "MST", "pst"])
def test_an_abbreviation_is_refused_with_places(name: str) -> None:
    error = refused(moments.zone, name)
    assert error.code == "E_TZ_AMBIGUOUS"
    assert "/" in error.hint


def test_a_zone_is_text() -> None:
    assert refused(moments.zone, 2).code == "E_TYPE"
    assert moments.zone("Asia/Ho_Chi_Minh") == zoneinfo.ZoneInfo("Asia/Ho_Chi_Minh")


def test_every_suggested_place_exists() -> None:
    for places in moments._AMBIGUOUS.values():
        assert set(places) <= moments.zone_names()
