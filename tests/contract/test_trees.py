"""Whatever a job made of its directory, it is removed; what cannot be is left, told, and no obstacle."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from horae.executors.attempts.trees import remove_tree

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount, and become somebody else")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tree := tmp_path / "tree").mkdir()
    return tree


def nest(directory: Path, depth: int, name: str = "d") -> None:
    """Directories within each other, by descriptor: their path may be longer than any call takes."""
    here = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_directory_that_is_not_there_is_removed(tmp_path: Path) -> None:
    assert remove_tree(tmp_path / "nowhere" / "tree")
    assert remove_tree(tmp_path / "tree")


@pytest.mark.usefixtures("few_descriptors")
def test_neither_depth_nor_the_length_of_paths_is_bounded(tree: Path) -> None:
    nest(tree, 3000, "a" * 100)
    assert remove_tree(tree)
    assert not tree.exists()


def test_ten_thousand_files_are_removed(tree: Path) -> None:
    for name in range(10):
        (tree / str(name)).mkdir()
        here = os.open(tree / str(name), os.O_RDONLY | os.O_DIRECTORY)
        for number in range(1000):
            os.close(os.open(str(number), os.O_CREAT | os.O_WRONLY, dir_fd=here))
        os.close(here)
    assert remove_tree(tree)
    assert not tree.exists()


def test_names_of_any_bytes_are_removed(tree: Path) -> None:
    for name in (b"new\nline", b"\xff\xfe", b" ", b"-rf", b"\x1b[31m"):
        os.mkdir(os.path.join(os.fsencode(tree), name))
        Path(os.fsdecode(os.path.join(os.fsencode(tree), name, name))).touch()
    assert remove_tree(tree)


def test_links_are_removed_and_not_followed(tree: Path, tmp_path: Path) -> None:
    (other := tmp_path / "other").mkdir()
    (other / "precious").touch()
    (tree / "link").symlink_to(other)
    (tree / "loop").symlink_to(tree)
    (tree / "dangling").symlink_to("nowhere")
    assert remove_tree(tree)
    assert (other / "precious").exists()


def test_a_link_in_the_place_of_the_directory_itself_is_removed(tmp_path: Path) -> None:
    (other := tmp_path / "other").mkdir()
    (other / "precious").touch()
    (tmp_path / "tree").symlink_to(other)
    assert remove_tree(tmp_path / "tree")
    assert (other / "precious").exists()
    assert not (tmp_path / "tree").is_symlink()


def test_a_plain_file_in_the_place_of_the_directory_is_removed(tmp_path: Path) -> None:
    (tmp_path / "tree").touch()
    assert remove_tree(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()


def as_nobody(step: Callable[[], object]) -> bool:
    """Return whether a step went well as another user (who may not even start our Python)."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os._exit(0 if step() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@needs_root
def test_directories_without_permissions_are_removed_by_their_owner() -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        os.chmod(place, 0o777)
        tree = Path(place) / "tree"

        def make() -> bool:
            (tree / "a" / "b" / "c").mkdir(parents=True)
            (tree / "a" / "b" / "c" / "file").touch()
            for path, mode in ((tree / "a" / "b" / "c", 0), (tree / "a" / "b", 0), (tree / "a", 0o500)):
                path.chmod(mode)
            return True

        assert as_nobody(make)
        assert as_nobody(lambda: remove_tree(tree))
        assert not tree.exists()


@needs_root
def test_what_is_mounted_stays_and_is_told_and_the_rest_is_gone(tree: Path) -> None:
    mount = tree / "deep" / "mounted"
    mount.mkdir(parents=True)
    nest(tree, 10, "other")
    subprocess.run(["mount", "-t", "tmpfs", "none", mount], check=True)
    try:
        (mount / "precious").touch()
        with capture_logs() as told:
            assert not remove_tree(tree)
        assert (mount / "precious").exists()
        assert [path.name for path in tree.iterdir()] == ["deep"]
        (line,) = told
        assert (line["event"], line["path"], line["entries"]) == ("directory.left", str(tree), 1)
        assert "mounted" in line["error"]
    finally:
        subprocess.run(["umount", mount], check=True)
    assert remove_tree(tree)


def test_files_that_appear_meanwhile_are_removed_too(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rmdir, late = os.rmdir, iter(["late", "later"])

    def put_something_first(name: str, *, dir_fd: int) -> None:
        if (fresh := next(late, None)) is not None:
            (tree / fresh).touch()
        rmdir(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", put_something_first)
    assert remove_tree(tree)
    assert not tree.exists()


def test_a_machine_without_descriptors_is_told_and_nothing_raised(tree: Path) -> None:
    (tree / "file").touch()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        with capture_logs() as told:
            gone = remove_tree(tree)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert not gone
    assert "Too many open files" in told[0]["error"]
    assert remove_tree(tree)
