"""How much of a machine: memory and cpus, as jobs and agents write them."""

from __future__ import annotations

import re

from horae.core.fields import ABSENT, Fields

LEAST_MEMORY, MOST_MEMORY = 16 * 2**20, 2**50  # bytes; a shell in a sandbox needs some
MOST_CPUS = 4096
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s?(B|KiB|MiB|GiB|TiB)?")
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def read_memory(fields: Fields) -> int | None:
    """Return the bytes of the field `memory`."""
    return read_size(fields, "memory", LEAST_MEMORY, MOST_MEMORY)


def read_size(fields: Fields, name: str, least: int, most: int) -> int | None:
    """Return the bytes of a field."""
    value = fields.values.get(name, ABSENT)
    if value is ABSENT:
        return None
    if type(value) is int:
        size = value
    elif type(value) is str and (parts := _SIZE.fullmatch(value)):
        size = int(float(parts[1]) * _UNITS[parts[2] or "B"])
    else:
        fields.fault(name, "E_TYPE", "a size expected, such as 512MiB or 2GiB")
        return None
    if least <= size <= most:
        return size
    fields.fault(name, "E_RANGE", f"must be from {show_size(least)} to {show_size(most)}")
    return None


def show_size(size: int) -> str:
    """As it can be read again: 512MiB; what has no round unit, in bytes."""
    unit, scale = next(one for one in reversed(_UNITS.items()) if size % one[1] == 0)
    return f"{size // scale}{unit}"
