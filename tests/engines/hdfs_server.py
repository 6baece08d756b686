"""A real HDFS, one NameNode and one DataNode: the jars come from the source distribution of pyspark 2.4.8, the last
one that carries the servers of Hadoop, and from Debian. They are fetched once and kept in the user's cache."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.engines.spark_server import free_ports

VERSION = "2.4.8"
DEADLINE = 120.0  # seconds
_WANTED = re.compile(
    r"(hadoop-(annotations|auth|common|hdfs)|jetty|javax\.servlet-api|netty|guava-1|htrace|slf4j|log4j|protobuf-java-2"
    r"|commons-(cli|codec|collections|configuration|io|lang-|logging|net|math3|beanutils|digester|httpclient|compress)"
    r"|leveldbjni|xerces|jackson-.*asl|jsp-api|avro-1|apacheds|api-util|api-asn1|gson|curator|zookeeper|jsr305|xz"
    r"|snappy|httpc|jaxb-api|activation)[^/]*\.jar"
)
_DEBIAN = [Path("/usr/share/java") / f"{name}.jar" for name in (
    "jersey1-core", "jersey1-server", "jersey1-servlet", "jsr311-api", "commons-daemon",
)]  # fmt: skip
_OPEN = ("lang", "lang.reflect", "io", "net", "nio", "util")
_JAVA = [
    "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true",
    *(word for name in _OPEN for word in ("--add-opens", f"java.base/java.{name}=ALL-UNNAMED")),
    "--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED", "--add-opens", "java.base/sun.security.util=ALL-UNNAMED",
    "--add-exports", "java.base/jdk.internal.ref=ALL-UNNAMED",
]  # fmt: skip
_SERVERS = "org.apache.hadoop.hdfs.server"


@dataclass(frozen=True, slots=True)
class Hdfs:
    """A running file system. `url` begins the addresses of its files."""

    port: int
    web_port: int

    @property
    def url(self) -> str:
        return f"hdfs://127.0.0.1:{self.port}"

    def names(self, directory: str) -> list[str]:
        """Return what lies in a directory."""
        try:
            listed = json.loads(self._get(directory, "LISTSTATUS"))
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return []
            raise
        return sorted(one["pathSuffix"] for one in listed["FileStatuses"]["FileStatus"])

    def read(self, path: str) -> str:
        return self._get(path, "OPEN").decode()

    def make_directory(self, path: str, owner: str) -> None:
        """One that nobody else may write to."""
        for asked in ({"op": "MKDIRS", "permission": "755"}, {"op": "SETOWNER", "owner": owner}):
            query = urllib.parse.urlencode({**asked, "user.name": "root"})
            url = f"http://127.0.0.1:{self.web_port}/webhdfs/v1{urllib.parse.quote(path)}?{query}"
            urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=60).close()

    def owner(self, path: str) -> str:
        return str(json.loads(self._get(path, "GETFILESTATUS"))["FileStatus"]["owner"])

    def _get(self, path: str, operation: str) -> bytes:
        asked = urllib.parse.urlencode({"op": operation, "user.name": "root"})
        url = f"http://127.0.0.1:{self.web_port}/webhdfs/v1{urllib.parse.quote(path)}?{asked}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return bytes(answer.read())


def lacking() -> str:
    """Return what is missing on this machine, in words; empty when nothing is."""
    missing = [str(jar) for jar in _DEBIAN if not jar.exists()]
    if shutil.which("java") is None:
        missing.append("java")
    return ", ".join(missing)


@contextmanager
def running_hdfs() -> Iterator[Hdfs]:
    jars = fetch_jars()
    directory = Path(tempfile.mkdtemp(prefix="horae-hdfs-"))
    ports = free_ports(6)
    _configure(directory, ports)
    classpath = ":".join(map(str, [directory / "conf", directory / "web", *sorted(jars.glob("*.jar")), *_DEBIAN]))
    command = [*_JAVA, f"-Dhadoop.log.dir={directory}", f"-Dhadoop.home.dir={directory}", "-cp", classpath]
    env = {**os.environ, "HADOOP_USER_NAME": "root"}
    namenode = f"{_SERVERS}.namenode.NameNode"
    format_ = [*command, namenode, "-format", "-force", "-nonInteractive"]
    subprocess.run(format_, env=env, cwd=directory, check=True, capture_output=True, timeout=DEADLINE)
    servers = []
    try:
        for name in (namenode, f"{_SERVERS}.datanode.DataNode"):
            with (directory / f"{name.rpartition('.')[2]}.log").open("wb") as log:
                servers.append(subprocess.Popen([*command, name], env=env, cwd=directory, stdout=log, stderr=log))
        _wait(ports[1], directory)
        yield Hdfs(ports[0], ports[1])
    finally:
        for server in servers:
            server.kill()
            server.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _configure(directory: Path, ports: list[int]) -> None:
    """Also an empty tree of web pages, which the servers want to find and the jars lack."""
    address = [f"127.0.0.1:{port}" for port in ports]
    settings = {
        "fs.defaultFS": f"hdfs://{address[0]}",
        "hadoop.tmp.dir": str(directory / "tmp"),
        "dfs.replication": "1",
        "dfs.namenode.name.dir": f"file://{directory}/name",
        "dfs.datanode.data.dir": f"file://{directory}/data",
        "dfs.namenode.http-address": address[1],
        "dfs.namenode.secondary.http-address": address[2],
        "dfs.datanode.address": address[3],
        "dfs.datanode.ipc.address": address[4],
        "dfs.datanode.http.address": address[5],
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.webhdfs.enabled": "true",
        "dfs.namenode.safemode.extension": "0",
        "dfs.heartbeat.interval": "1",
    }
    rows = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()
    )
    (directory / "conf").mkdir()
    for name in ("core-site.xml", "hdfs-site.xml"):
        (directory / "conf" / name).write_text(f"<configuration>{rows}</configuration>")
    for name in ("hdfs", "datanode"):
        page = directory / "web" / "webapps" / name / "WEB-INF" / "web.xml"
        page.parent.mkdir(parents=True)
        page.write_text("<web-app/>")
    (directory / "web" / "webapps" / "static").mkdir()


def _wait(web_port: int, directory: Path) -> None:
    """Until the DataNode has reported to the NameNode."""
    page = f"http://127.0.0.1:{web_port}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(page, timeout=5) as answer:
                if json.load(answer)["beans"][0]["NumLiveDataNodes"] == 1:
                    return
        except (OSError, LookupError, ValueError):
            pass
        time.sleep(0.1)
    logs = "".join(path.read_text(errors="replace")[-2000:] for path in directory.glob("*.log"))
    raise AssertionError(f"HDFS did not come up: {logs}")


def fetch_jars() -> Path:
    """Return the directory of the jars, filled on first use; a download that broke off leaves nothing behind."""
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "horae-tests" / f"hadoop-{VERSION}"
    if kept.is_dir():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=kept.parent))
    with (
        urllib.request.urlopen(_address(), timeout=300) as answer,
        tarfile.open(fileobj=answer, mode="r|gz") as archive,
    ):
        for member in archive:
            if "/jars/" in member.name and _WANTED.fullmatch(name := Path(member.name).name):
                content = archive.extractfile(member)
                assert content is not None
                (fresh / name).write_bytes(content.read())
    try:
        fresh.rename(kept)
    except OSError:  # another process was faster
        shutil.rmtree(fresh)
    return kept


def _address() -> str:
    """Return where the index that pip is configured with has the archive. (`pip download` would try to build it.)"""
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    set_ = subprocess.run(asked, capture_output=True, text=True, timeout=60).stdout.strip()
    if not (index := os.environ.get("PIP_INDEX_URL") or set_):
        from pip._internal.models.index import PyPI

        index = PyPI.simple_url
    page = f"{index.rstrip('/')}/pyspark/"
    with urllib.request.urlopen(page, timeout=60) as answer:
        links = re.findall(r'href="([^"]+)"', answer.read().decode())
    link = next(link for link in links if f"pyspark-{VERSION}.tar.gz" in link)
    return urllib.parse.urljoin(page, link.partition("#")[0])
