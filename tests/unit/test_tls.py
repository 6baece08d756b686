"""The certificate that a server starts with: used, warned of, or refused in words."""

from __future__ import annotations

import json
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography import x509

from horae.cli import app
from horae.errors import ConfigError
from horae.tls import server_context
from tests.certificates import DAY, make_certificate

NOW = datetime.now(UTC)


def refused(certificate: Path, key: Path, now: datetime = NOW) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        server_context(certificate, key, now)
    assert caught.value.code == "E_TLS"
    return caught.value


def test_a_good_pair_speaks_nothing_older_than_tls_1_2(tmp_path: Path) -> None:
    context, warnings = server_context(*make_certificate(tmp_path), NOW)

    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert warnings == []


def test_a_key_that_everyone_can_read_and_a_certificate_near_its_end_are_warned_about(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, ends=5 * DAY)
    key.chmod(0o644)

    _, warnings = server_context(certificate, key, NOW)

    assert len(warnings) == 2
    assert "expires on" in warnings[0]
    assert f"chmod 600 {key}" in warnings[1]


def test_an_expired_certificate_is_refused_with_its_date(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, begins=-9 * DAY, ends=-2 * DAY)

    error = refused(certificate, key)

    ended = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    assert f"has expired on {ended:%Y-%m-%d}" in error.message  # today is another day by now, once a day
    assert error.path == "tls_cert"


def test_a_certificate_of_the_future_makes_one_doubt_the_clock(tmp_path: Path) -> None:
    error = refused(*make_certificate(tmp_path, begins=timedelta(hours=2)))

    assert "is not valid before" in error.message
    assert "clock" in error.hint


def test_the_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    certificate, _ = make_certificate(tmp_path)
    _, other = make_certificate(tmp_path, "other")

    error = refused(certificate, other)

    assert error.message == f"the key {other} is not that of the certificate {certificate}"


def test_an_encrypted_key_asks_nobody_for_a_password(tmp_path: Path) -> None:
    error = refused(*make_certificate(tmp_path, password="hush"))

    assert "encrypted" in error.message
    assert "openssl pkey" in error.hint


@pytest.mark.parametrize("content", [b"", b"hello", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_or_key_is_refused(tmp_path: Path, content: bytes) -> None:
    certificate, key = make_certificate(tmp_path)
    broken = tmp_path / "broken"
    broken.write_bytes(content)

    assert "holds no certificate" in refused(broken, key).message
    assert "cannot be used with the certificate" in refused(certificate, broken).message


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)

    assert f"the certificate {tmp_path} cannot be read" in refused(tmp_path, key).message
    assert (
        f"the key {tmp_path / 'gone'} cannot be read: No such file" in refused(certificate, tmp_path / "gone").message
    )
    if os.geteuid() != 0:
        key.chmod(0)
        assert "Permission denied" in refused(certificate, key).message


def test_the_check_of_the_settings_judges_the_certificate_too(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, ends=5 * DAY)
    flags = ["check", "--json", "--tls-cert", str(certificate), "--tls-key"]

    good = CliRunner().invoke(app, [*flags, str(key)])
    bad = CliRunner().invoke(app, [*flags, str(certificate)])

    assert "expires on" in json.loads(good.stdout)["warnings"][0]
    assert (bad.exit_code, json.loads(bad.stderr)["code"]) == (2, "E_TLS")
