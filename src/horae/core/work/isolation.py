"""The walls a job asks for: its sandbox, its network, and the most it may use.

    sandbox: plain | bubblewrap | docker        image: golang:1.22        limits: {memory: 512MiB, cpus: 1.5, pids: 200}
    network: on | off | [db.example.org:5432, 10.0.0.7:8080, pypi.org]         a list: these addresses and no others
    walled: true                                 never on the machine itself, even where its only user is trusted

What must stay true: a job never runs behind weaker walls than it asks for. What it asks for is a label that an agent
must have, and an agent refuses what it cannot do.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re

from horae.core.fields import ABSENT, Fields, fields_of, kind_of, shown
from horae.core.model import Json
from horae.core.policy.resources import CPUS, MEMORY, Asks, render_resources
from horae.core.sizes import MOST_CPUS, read_memory
from horae.core.spelling import suggest

SANDBOXES = ("plain", "bubblewrap", "docker")
FIELDS = frozenset({"sandbox", "image", "network", "limits", "walled"})
_LIMITS = frozenset({"memory", "cpus", "pids"})
LEAST_PIDS, MOST_PIDS = 8, 4_000_000
MOST_PORT = 65535
MAX_IMAGE = 255
_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._/:@-]*", re.ASCII)
MOST_LISTED = 50  # addresses
WEB_PORTS = (443, 80)  # of an entry that names none
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(
    rf"(?=.{{1,253}}$)(?:{_LABEL}\.)*(?![0-9]+$){_LABEL}"
)  # the last part is no number: that is an address
_ENTRY = re.compile(r"(?:\[([0-9a-f:.]{2,45})\]|([a-z0-9._-]{1,253}))(?::([0-9]{1,5}))?")


def labels_of(spec: Json) -> tuple[str, ...]:
    """Return what an agent must have for this work, whatever the job says."""
    wanted = "docker" if "image" in spec else spec.get("sandbox")
    return (f"sandbox:{wanted}",) if wanted else ()


def limits_of(spec: Json, resources: Asks) -> Json:
    """Return the most that a work may use: what its job has taken of its agent, unless it says otherwise."""
    taken = render_resources(one for one in resources if one[0] in (CPUS, MEMORY))
    return {**taken, **spec.get("limits", {})}


def is_own(spec: Json) -> bool:
    """Return whether nothing in this work comes from elsewhere, and it asks for no walls: steps that its user wrote."""
    return not spec.keys() & {"checkout", "image", "walled"} and spec.get("sandbox") in (None, "plain")


def is_in_place(spec: Json) -> bool:
    """Return whether such work is done in a directory of its user's: what keeps files of its own, as a build, gets a
    fresh one."""
    return is_own(spec) and not spec.keys() & {"artifacts", "reports", "cache"}


def put_in_place(spec: Json, directory: str) -> Json:
    """Work that was submitted from a directory, with that as its own; of a workflow, that of its tasks."""
    if "tasks" in spec:
        tasks = {
            name: {**task, "spec": put_in_place(task["spec"], directory)} if "spec" in task else task
            for name, task in spec["tasks"].items()
        }
        return {**spec, "tasks": tasks}
    if not is_in_place(spec) or not spec.keys() & {"steps", "script"}:
        return spec
    place = posixpath.join(directory, spec["working_directory"]) if "working_directory" in spec else directory
    return {**spec, "working_directory": place}


def read_isolation(fields: Fields) -> Json:
    """Return what stands there of sandbox, image, network and limits, canonical."""
    sandbox, network, limits = _read_sandbox(fields), _read_network(fields), _read_limits(fields)
    if "image" in fields.values and sandbox not in (None, "docker"):
        fields.fault("sandbox", "E_FIELD_CONFLICT", f"an image needs the sandbox docker, got {sandbox}", "leave it out")
    is_less = network not in (None, "on")
    if is_less and sandbox == "plain":
        hint = "leave one out: bubblewrap can"
        fields.fault("network", "E_FIELD_CONFLICT", "the sandbox plain cannot take the network away", hint)
    if is_less and sandbox is None and "image" not in fields.values:
        sandbox = "bubblewrap"
    is_walled = fields.flag("walled")
    if is_walled and sandbox == "plain":
        fields.fault("walled", "E_FIELD_CONFLICT", "the sandbox plain has no walls", "leave one out")
    found = {
        "sandbox": sandbox, "image": _read_image(fields), "network": network, "limits": limits, "walled": is_walled,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value}


def _read_sandbox(fields: Fields) -> str | None:
    value = fields.values.get("sandbox", ABSENT)
    if value is ABSENT or (type(value) is str and value in SANDBOXES):
        return None if value is ABSENT else value
    got = shown(value) if isinstance(value, str) else kind_of(value)
    fields.fault("sandbox", "E_ENUM", f"one of {', '.join(SANDBOXES)}, got {got}", suggest(got, SANDBOXES, repr))
    return None


def _read_image(fields: Fields) -> str | None:
    image = fields.text("image", MAX_IMAGE)
    if image is not None and not _IMAGE.fullmatch(image):
        fields.fault("image", "E_PATTERN", "the name of an image expected, such as golang:1.22")
    return image


def _read_network(fields: Fields) -> str | list[str] | None:
    """Plain `on` and `off` are booleans in YAML."""
    value = fields.values.get("network", ABSENT)
    if value is ABSENT:
        return None
    if isinstance(value, list):
        return _read_listed(fields, value)
    if type(value) is bool:
        return "on" if value else "off"
    if type(value) is str and value in ("on", "off"):
        return value
    if value == "host":
        message = "this would take away the isolation of jobs, which is not allowed here"
        fields.problems.deny(fields.at("network"), message, "remove the field")
    else:
        got = shown(value) if isinstance(value, str) else kind_of(value)
        fields.fault("network", "E_ENUM", f"on or off expected, or a list of addresses, got {got}")
    return None


def _read_listed(fields: Fields, entries: list[object]) -> list[str] | None:
    """host:port each, without doubles."""
    if not 1 <= len(entries) <= MOST_LISTED:
        hint = "write network: off for none" if not entries else ""
        fields.fault("network", "E_RANGE", f"1 to {MOST_LISTED} addresses expected, got {len(entries)}", hint)
        return None
    found: dict[str, None] = {}
    for number, entry in enumerate(entries):
        addresses = _addresses(entry.lower()) if isinstance(entry, str) else []
        if not addresses:
            got = shown(entry) if isinstance(entry, str) else kind_of(entry)
            hint = "patterns and whole networks cannot be listed" if "*" in got or "/" in got else ""
            path, message = f"{fields.at('network')}[{number}]", f"an address such as db.example.org:5432, got {got}"
            fields.problems.add(path, "E_TYPE", message, hint)
        found |= dict.fromkeys(addresses)
    return list(found)


def _addresses(entry: str) -> list[str]:
    """Return the canonical form of an entry, for each of its ports; empty when it is no address."""
    parts = _ENTRY.fullmatch(entry)
    if parts is None:
        return []
    host = _host(parts[1] or "", 6) if parts[1] else (_host(parts[2], 4) or _name(parts[2]))
    ports = WEB_PORTS if parts[3] is None else (int(parts[3]),)
    return [f"{host}:{port}" for port in ports if host and 0 < port <= MOST_PORT]


def _host(text: str, version: int) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    is_mapped = isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None
    if address.version != version or address.is_unspecified or address.is_multicast or is_mapped:
        return ""
    return f"[{address}]" if version == 6 else str(address)


def _name(text: str) -> str:
    name = text.removesuffix(".")
    return "127.0.0.1" if name == "localhost" else name if _NAME.fullmatch(name) else ""


def _read_limits(fields: Fields) -> Json:
    if "limits" not in fields.values:
        return {}
    what = "must be a mapping such as {memory: 512MiB, cpus: 1.5, pids: 200}"
    inner = fields_of(fields.values["limits"], fields.at("limits"), fields.problems, what)
    if inner is None:
        return {}
    inner.refuse_others(_LIMITS)
    found = {
        "memory": read_memory(inner),
        "cpus": inner.number("cpus", None, 0.01, MOST_CPUS),
        "pids": inner.number("pids", None, LEAST_PIDS, MOST_PIDS, whole=True),
    }
    return {name: value for name, value in found.items() if value is not None}
