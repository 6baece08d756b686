"""A handler with typed data: it is called with a PriceList or not at all, and says how far it is while it runs.

It is submitted by examples/typed-handler.yaml.
"""

import logging
from dataclasses import dataclass, field
from datetime import date

from horae import Context, handler

log = logging.getLogger(__name__)


@dataclass
class Item:
    name: str
    price: int
    count: int = 1


@dataclass
class PriceList:
    items: list[Item]
    day: date | None = None


@dataclass
class Total:
    price: int = 0
    names: set[str] = field(default_factory=set)
    day: date | None = None


@handler(name="price_report", retry_on=(ConnectionError, TimeoutError))
def price_report(context: Context, data: PriceList) -> Total:
    """Add up the prices of a list."""
    total = Total(day=data.day)
    for done, item in enumerate(data.items, start=1):
        log.info("%d times %s", item.count, item.name)
        total.price += item.price * item.count
        total.names.add(item.name)
        context.progress(done, len(data.items), item.name)
    return total
