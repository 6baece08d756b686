"""Names of machines, as far as they say something themselves."""

from __future__ import annotations

import ipaddress
from functools import lru_cache


def is_address(host: str) -> bool:
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


@lru_cache(256)
def is_loopback(host: str) -> bool:
    """Return whether this names the machine itself: an address, or `localhost`."""
    return ipaddress.ip_address(host).is_loopback if is_address(host) else host.lower() == "localhost"
