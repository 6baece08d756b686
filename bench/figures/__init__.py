"""The figures; importing this package registers all of them."""

from bench.figures import catchup, census, cluster, handover, latency, outputs, rates, resting, sandbox, submits, sync

__all__ = [
    "catchup",
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
