"""The native HTTP API as Python calls: for the command line and for programs.

    async with Client("http://127.0.0.1:8080") as client:      with SyncClient("http://127.0.0.1:8080") as client:
        run = await client.run_now(7)                              run = client.run_now(7)
        run = await client.wait(run.id)                            run = client.wait(run.id)

    definitions, running, cluster, insight, access, accounts, alerting, auditing, happenings, output
               every call by its subject, as a value: what to send, and the type of what comes back
    steps      what a call does with answers and faults: refusals, repetitions, pauses
    aio, sync  the twins, which perform calls; twins has what they share
    wire       requests of HTTP/1.1               address   where a server is, certificates, proxies
    pool       connections that are kept open: of streams (asyncio) or of sockets

Answers are the structs of horae.schemas; fields that this version does not know are left out. What the server refuses
is raised as the same error of horae.errors that the server raised: both ends speak of a fault in the same words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horae.client.aio import Client
    from horae.client.output import Event
    from horae.client.sync import SyncClient

__all__ = ["Client", "Event", "SyncClient"]

_PLACES = {"Client": "aio", "SyncClient": "sync", "Event": "output"}


def __getattr__(name: str) -> Any:
    """Load what is asked for: one twin does without what the other needs."""
    if name not in _PLACES:
        raise AttributeError(f"module 'horae.client' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"horae.client.{_PLACES[name]}"), name)
