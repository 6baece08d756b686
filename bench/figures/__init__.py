"""The figures; importing this package registers all of them."""

from bench.figures import census, rates

__all__ = ["census", "rates"]
