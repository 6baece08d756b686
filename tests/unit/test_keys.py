"""The key file: what seals, what opens, and what is refused."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest

from horae.errors import ConfigError
from horae.keys import FileKeys

VALUE = "correct horse ♥\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "secrets.key"


def refused(keys: FileKeys, sealed: str, context: str = "here") -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        keys.open(sealed, context)
    assert caught.value.code == "E_SECRET_KEY"
    return caught.value


def new_key(number: int) -> str:
    return base64.b64encode(bytes([number]) * 32).decode()


def write(path: Path, *lines: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o600)


def test_the_first_seal_makes_a_key_that_only_its_owner_reads(path: Path):
    sealed = FileKeys(path).seal(VALUE, "here")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["secrets.key"]
    assert FileKeys(path).open(sealed, "here") == VALUE
    assert "horse" not in sealed


def test_the_same_text_is_sealed_differently_each_time(path: Path):
    keys = FileKeys(path)
    assert keys.seal(VALUE, "here") != keys.seal(VALUE, "here")


def test_what_is_moved_or_changed_does_not_open(path: Path):
    keys = FileKeys(path)
    sealed = keys.seal(VALUE, "here")
    head, _, body = sealed.rpartition(".")
    other = "B" if body[20] == "A" else "A"

    assert "changed there, or moved" in refused(keys, sealed, "elsewhere").message
    assert "changed there" in refused(keys, f"{head}.{body[:20]}{other}{body[21:]}").message
    assert "changed there" in refused(keys, f"{head}.").message


def test_a_new_key_before_the_others_seals_and_the_old_ones_still_open(path: Path):
    write(path, new_key(1))
    keys = FileKeys(path)
    old = keys.seal(VALUE, "here")

    write(path, "# since monday", new_key(2), f"{new_key(1)}  # until everything is set anew")
    new = keys.seal(VALUE, "here")

    assert keys.open(old, "here") == keys.open(new, "here") == VALUE
    assert old.split(".")[1] != new.split(".")[1]
    write(path, new_key(2), "", "")
    assert keys.open(new, "here") == VALUE
    assert old.split(".")[1] in refused(keys, old).message


def test_a_missing_key_is_named_together_with_those_that_are_there(path: Path):
    write(path, new_key(1))
    sealed = FileKeys(path).seal(VALUE, "here")
    write(path, new_key(3))

    error = refused(FileKeys(path), sealed)

    assert sealed.split(".")[1] in error.message
    assert str(path) in error.message
    assert "secret_key_file" in error.hint
    assert "does not exist" in refused(FileKeys(path.with_name("other")), sealed).message


@pytest.mark.parametrize("line", ["hunter2", base64.b64encode(b"short").decode(), "", "# nothing"])
def test_a_file_without_a_key_is_refused_and_not_overwritten(path: Path, line: str):
    write(path, line)
    with pytest.raises(ConfigError) as caught:
        FileKeys(path).seal(VALUE, "here")
    assert "hunter2" not in caught.value.message
    assert path.read_text() == f"{line}\n"


def test_a_file_that_others_can_read_is_refused(path: Path):
    write(path, new_key(1))
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="read by others"):
        FileKeys(path).seal(VALUE, "here")
