"""A Docker daemon of our own, with one image made of this machine's static busybox; no bridge, no iptables."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.leash import MARK

IMAGE = "horae-test:slim"
DEADLINE = 180.0


def _libraries(programs: Sequence[str]) -> set[str]:
    said = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    found = [Path(word) for word in re.findall(r"/\S+\.so[.\d]*", said)]
    return {str(one) for path in found for one in (path.parent.resolve() / path.name, path.resolve())}


class Daemon:
    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="dk"))  # short: the path of a socket has 108 bytes
        run = os.environ.get(MARK, "bench").rpartition(":")[2]
        self._group = f"{run}-{self._home.name}"  # so that its containers end with us
        self.url = f"unix://{self._home}/docker.sock"
        flags = (
            "--data-root",
            self._home / "data",
            "--exec-root",
            self._home / "exec",
            "--pidfile",
            self._home / "pid",
            "--cgroup-parent",
            f"/{self._group}",
        )
        argv = ["dockerd", "-H", self.url, *map(str, flags), "--bridge=none", "--iptables=false"]
        self._log = (self._home / "log").open("wb")
        self._process = subprocess.Popen(argv, stdout=self._log, stderr=self._log)
        self._wait()
        self._import()

    def docker(self, *args: str, data: bytes | None = None) -> str:
        done = subprocess.run(
            ["docker", "-H", self.url, *args], input=data, capture_output=True, check=True, timeout=DEADLINE
        )
        return done.stdout.decode()

    def _wait(self) -> None:
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            try:
                self.docker("version")
            except subprocess.CalledProcessError:
                time.sleep(0.1)
            else:
                return
        raise AssertionError((self._home / "log").read_text()[-2000:])

    def _import(self) -> None:
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w") as tar:
            for name in (".", "bin"):  # said, for else the daemon chooses who may look into them
                directory = tarfile.TarInfo(name)
                directory.type, directory.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(directory)
            tar.add("/bin/busybox", "bin/busybox")
            listed = subprocess.run(("busybox", "--list"), capture_output=True, text=True, check=True).stdout
            for name in sorted({*listed.split()} - {"busybox"}):
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
        self.docker("import", "-", IMAGE, data=file.getvalue())

    def import_host(self, image: str, trees: Sequence[str], programs: Sequence[str], tools: Sequence[str]) -> None:
        """An image of directories and programs of this machine, with the libraries that these need. Those that a
        program of the tree wants at run time are programs too. Debian's layout: /bin and /lib are links."""
        with tempfile.TemporaryDirectory() as directory:
            stage = Path(directory)
            (stage / "usr/bin").mkdir(parents=True)
            shutil.copy(shutil.which("busybox") or "", stage / "usr/bin/busybox")
            for name in ("bin", "lib", "lib64"):
                (stage / name).symlink_to(f"usr/{name}")
            for tool in tools:
                (stage / "usr/bin" / tool).symlink_to("busybox")
            (stage / "tmp").mkdir()
            (stage / "tmp").chmod(0o1777)  # work is not root
            (stage / "image").write_text(image)
            needed = (*programs, *_libraries(programs))
            single = [path for path in needed if not any(Path(path).is_relative_to(tree) for tree in trees)]
            paths = [path.lstrip("/") for path in dict.fromkeys((*trees, *single))]
            argv = ["tar", "--exclude=__pycache__", "-c", "-C", directory, ".", "-C", "/", *paths]
            with subprocess.Popen(argv, stdout=subprocess.PIPE) as tar:
                load = ["docker", "-H", self.url, "import", "-", image]
                subprocess.run(load, stdin=tar.stdout, check=True, stdout=subprocess.DEVNULL, timeout=5 * DEADLINE)
            assert tar.returncode == 0

    def containers(self, *filters: str) -> list[str]:
        wanted = [word for each in filters for word in ("--filter", each)]
        return self.docker("ps", "-a", "-q", *wanted).split()

    def groups(self) -> list[Path]:
        """Control groups of containers."""
        return [entry for top in self._tops() for entry in top.iterdir() if entry.is_dir()]

    def _tops(self) -> list[Path]:
        return list(Path("/sys/fs/cgroup").glob(f"*/{self._group}"))

    def mounts(self) -> list[str]:
        """File systems of containers."""
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        return [line for line in lines if str(self._home) in line and line.split()[4].endswith("/merged")]

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(DEADLINE)
        self._log.close()
        for top in self._tops():
            top.rmdir()
        shutil.rmtree(self._home, ignore_errors=True)
