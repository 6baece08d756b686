"""The figures; importing this package registers all of them."""

from bench.figures import (
    agents,
    catchup,
    census,
    cluster,
    handover,
    latency,
    outputs,
    rates,
    resting,
    sandbox,
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
    "outputs",
    "rates",
    "resting",
    "sandbox",
    "submits",
    "sync",
]
