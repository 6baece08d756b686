"""What a server does itself under the name of its node, beside an agent that may live there too.

The books of a node have both. So whoever compares what an agent holds with them counts this in, and whoever takes back
what is not held leaves it alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from horae.core.runs.holdings import Fenced, Holding, holding_of


class Beside:
    def __init__(self) -> None:
        self.attempts: Collection[Fenced] = ()  # that were claimed and not begun
        self.claiming = asyncio.Lock()  # held while a claim is under way: what it brings is nobody's yet

    def added_to(self, held: Holding) -> Holding:
        ours = holding_of(self.attempts)
        return Holding(held.size + ours.size, held.digest + ours.digest)
