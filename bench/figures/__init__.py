"""The figures; importing this package registers all of them."""

from bench.figures import agents, census, cluster, handover, latency, outputs, rates, resting, sandbox, submits, sync

__all__ = [
    "agents",
    "census",
    "cluster",
    "handover",
    "latency",
    "outputs",
    "rates",
    "resting",
    "sandbox",
    "submits",
    "sync",
]
