"""The figures; importing this package registers all of them."""

from bench.figures import census, cluster, latency, rates, resting, sandbox, submits

__all__ = ["census", "cluster", "latency", "rates", "resting", "sandbox", "submits"]
