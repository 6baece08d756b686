"""The figures; importing this package registers all of them."""

from bench.figures import census, cluster, handover, latency, outputs, rates, resting, sandbox, submits

__all__ = ["census", "cluster", "handover", "latency", "outputs", "rates", "resting", "sandbox", "submits"]
