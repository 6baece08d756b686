"""The walls a job asks for: its sandbox, its network, and the most it may use.

    sandbox: plain | bubblewrap | docker        image: golang:1.22
    network: on | off                           limits: {memory: 512MiB, cpus: 1.5, pids: 200}

What must stay true: a job never runs behind weaker walls than it asks for. What it asks for is a label that an agent
must have, and an agent refuses what it cannot do.
"""

from __future__ import annotations

import re

from horae.core.fields import ABSENT, Fields, fields_of, kind_of, nearest, shown
from horae.core.model import Json

SANDBOXES = ("plain", "bubblewrap", "docker")
FIELDS = frozenset({"sandbox", "image", "network", "limits"})
_LIMITS = frozenset({"memory", "cpus", "pids"})
LEAST_MEMORY, MOST_MEMORY = 16 * 2**20, 2**50  # bytes; a shell in a sandbox needs some
LEAST_PIDS, MOST_PIDS = 8, 4_000_000
MOST_CPUS = 4096
MAX_IMAGE = 255
_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._/:@-]*", re.ASCII)
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s?(B|KiB|MiB|GiB|TiB)?")
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def labels_of(spec: Json) -> tuple[str, ...]:
    """What an agent must have for this work, whatever the job says."""
    wanted = "docker" if "image" in spec else spec.get("sandbox")
    return (f"sandbox:{wanted}",) if wanted else ()


def read_isolation(fields: Fields) -> Json:
    """What stands there of sandbox, image, network and limits, canonical."""
    sandbox, network, limits = _read_sandbox(fields), _read_network(fields), _read_limits(fields)
    if "image" in fields.values and sandbox not in (None, "docker"):
        fields.fault("sandbox", "E_FIELD_CONFLICT", f"an image needs the sandbox docker, got {sandbox}", "leave it out")
    if network == "off" and sandbox == "plain":
        hint = "leave one out: bubblewrap can"
        fields.fault("network", "E_FIELD_CONFLICT", "the sandbox plain cannot take the network away", hint)
    if network == "off" and sandbox is None and "image" not in fields.values:
        sandbox = "bubblewrap"
    found = {"sandbox": sandbox, "image": _read_image(fields), "network": network, "limits": limits}
    return {name: value for name, value in found.items() if value}


def _read_sandbox(fields: Fields) -> str | None:
    value = fields.values.get("sandbox", ABSENT)
    if value is ABSENT or (type(value) is str and value in SANDBOXES):
        return None if value is ABSENT else value
    got = shown(value) if isinstance(value, str) else kind_of(value)
    fields.fault("sandbox", "E_ENUM", f"one of {', '.join(SANDBOXES)}, got {got}", nearest(got, SANDBOXES))
    return None


def _read_image(fields: Fields) -> str | None:
    image = fields.text("image", MAX_IMAGE)
    if image is not None and not _IMAGE.fullmatch(image):
        fields.fault("image", "E_PATTERN", "the name of an image expected, such as golang:1.22")
    return image


def _read_network(fields: Fields) -> str | None:
    """Plain `on` and `off` are booleans in YAML."""
    value = fields.values.get("network", ABSENT)
    if value is ABSENT:
        return None
    if type(value) is bool:
        return "on" if value else "off"
    if type(value) is str and value in ("on", "off"):
        return value
    if value == "host":
        message = "this would take away the isolation of jobs, which is not allowed here"
        fields.problems.deny(fields.at("network"), message, "remove the field")
    else:
        got = shown(value) if isinstance(value, str) else kind_of(value)
        fields.fault("network", "E_ENUM", f"on or off expected, got {got}")
    return None


def _read_limits(fields: Fields) -> Json:
    if "limits" not in fields.values:
        return {}
    what = "must be a mapping such as {memory: 512MiB, cpus: 1.5, pids: 200}"
    inner = fields_of(fields.values["limits"], fields.at("limits"), fields.problems, what)
    if inner is None:
        return {}
    inner.refuse_others(_LIMITS)
    found = {
        "memory": _read_memory(inner),
        "cpus": inner.number("cpus", None, 0.01, MOST_CPUS),
        "pids": inner.number("pids", None, LEAST_PIDS, MOST_PIDS, whole=True),
    }
    return {name: value for name, value in found.items() if value is not None}


def _read_memory(fields: Fields) -> int | None:
    value = fields.values.get("memory", ABSENT)
    if value is ABSENT:
        return None
    if type(value) is int:
        size = value
    elif type(value) is str and (parts := _SIZE.fullmatch(value)):
        size = int(float(parts[1]) * _UNITS[parts[2] or "B"])
    else:
        fields.fault("memory", "E_TYPE", "a size expected, such as 512MiB or 2GiB")
        return None
    if LEAST_MEMORY <= size <= MOST_MEMORY:
        return size
    fields.fault("memory", "E_RANGE", f"must be from {LEAST_MEMORY // 2**20}MiB to {MOST_MEMORY // 2**40}TiB")
    return None
