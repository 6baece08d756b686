"""The figures; importing this package registers all of them."""

from bench.figures import (
    agents,
    catchup,
    census,
    cluster,
    handover,
    latency,
    lists,
    outputs,
    peers,
    purge,
    rates,
    resting,
    sandbox,
    snapshot,
    submits,
    sync,
)

__all__ = [
    "agents",
    "catchup",
    "census",
    "cluster",
    "handover",
    "latency",
    "lists",
    "outputs",
    "peers",
    "purge",
    "rates",
    "resting",
    "sandbox",
    "snapshot",
    "submits",
    "sync",
]
