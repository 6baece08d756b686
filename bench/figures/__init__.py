"""The figures; importing this package registers all of them."""

from bench.figures import census, latency, rates, resting, submits

__all__ = ["census", "latency", "rates", "resting", "submits"]
