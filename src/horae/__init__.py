"""Horae: a distributed job scheduler."""

from horae.handlers import Cancel, Context, Retry, handler

__version__ = "0.1.0"

__all__ = ["Cancel", "Context", "Retry", "__version__", "handler"]
