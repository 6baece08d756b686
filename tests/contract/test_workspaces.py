"""Directories of attempts, on a real file system: always fresh, and spares are quick to have."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from horae.executors.attempts.workspaces import SPARE_WORKSPACES, Workspaces


@pytest.fixture
async def workspaces(tmp_path: Path) -> Workspaces:
    workspaces = Workspaces(tmp_path / "workspaces", "shell")
    await workspaces.open(())
    return workspaces


def spares(workspaces: Workspaces) -> list[Path]:
    return list(workspaces.directory.with_name("workspaces.spare").iterdir())


async def test_one_that_was_left_as_it_was_made_is_the_next_ones_under_its_name(workspaces: Workspaces) -> None:
    first, second = workspaces.directory / "1-1", workspaces.directory / "2-1"
    await workspaces.make(first)
    number = first.stat().st_ino
    await workspaces.take_back(first, has_succeeded=True)
    assert list(workspaces.directory.iterdir()) == []
    await workspaces.make(second)
    assert second.stat().st_ino == number
    assert spares(workspaces) == []


def fill_once(place: Path) -> None:
    for number in range(500):
        (place / f"{number:0200}").touch()
    for number in range(500):
        (place / f"{number:0200}").unlink()


def set_attribute(place: Path) -> None:
    try:
        os.setxattr(place, "user.note", b"mine")
    except OSError as error:
        pytest.skip(f"no attributes here: {error}")


@pytest.mark.parametrize(
    "change",
    [
        lambda place: (place / ".hidden").mkdir(),
        lambda place: (place / "gone").symlink_to("/nowhere"),
        lambda place: place.chmod(0o755),
        lambda place: place.chmod(0o1700),
        set_attribute,
        lambda place: (place.rmdir(), place.symlink_to("/tmp")),
    ],
    ids=["an entry", "a link", "its rights", "its sticky bit", "an attribute", "another thing"],
)
async def test_one_that_was_changed_is_never_used_again(
    workspaces: Workspaces, change: Callable[[Path], object]
) -> None:
    place = workspaces.directory / "1-1"
    await workspaces.make(place)
    change(place)
    await workspaces.take_back(place, has_succeeded=True)
    assert (spares(workspaces), os.path.lexists(place)) == ([], False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory to somebody else")
async def test_one_that_belongs_to_somebody_else_is_never_used_again(workspaces: Workspaces) -> None:
    for owner in ((1234, -1), (-1, 1234)):
        place = workspaces.directory / "1-1"
        await workspaces.make(place)
        os.chown(place, *owner)
        await workspaces.take_back(place, has_succeeded=True)
        assert (spares(workspaces), place.exists()) == ([], False)


async def test_one_that_grew_is_never_used_again(workspaces: Workspaces) -> None:
    place = workspaces.directory / "1-1"
    await workspaces.make(place)
    fill_once(place)
    if place.stat().st_size <= 4096:
        pytest.skip("directories shrink here")
    await workspaces.take_back(place, has_succeeded=True)
    assert (spares(workspaces), place.exists()) == ([], False)


async def test_that_of_an_attempt_that_did_not_succeed_is_never_used_again(workspaces: Workspaces) -> None:
    place = workspaces.directory / "1-1"
    await workspaces.make(place)
    await workspaces.take_back(place, has_succeeded=False)
    assert (spares(workspaces), place.exists()) == ([], False)


async def test_what_is_in_the_way_is_removed_and_no_spare_is_laid_over_it(workspaces: Workspaces) -> None:
    for number in (1, 2):
        await workspaces.make(workspaces.directory / f"{number}-1")
    await workspaces.take_back(workspaces.directory / "1-1", has_succeeded=True)
    place = workspaces.directory / "2-1"
    (place / "old").touch()
    await workspaces.make(place)
    assert list(place.iterdir()) == []


async def test_spares_are_few_and_end_with_the_agent_or_at_the_next_start(workspaces: Workspaces) -> None:
    places = [workspaces.directory / f"{number}-1" for number in range(SPARE_WORKSPACES + 4)]
    for place in places:
        await workspaces.make(place)
    for place in places:
        await workspaces.take_back(place, has_succeeded=True)
    assert len(spares(workspaces)) == SPARE_WORKSPACES
    other = Workspaces(workspaces.directory, "git_java")
    await other.open(())
    assert len(spares(workspaces)) == SPARE_WORKSPACES
    (workspaces.directory / "7-1").mkdir()
    await Workspaces(workspaces.directory, "shell").open({"7-1"})
    assert spares(workspaces) == []
    assert [place.name for place in workspaces.directory.iterdir()] == ["7-1"]
    await workspaces.close()
