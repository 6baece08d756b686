"""How much is done at once, and for how long."""

from __future__ import annotations

READ_TIME = 10.0  # seconds that what a user asks may take
ROWS_AT_ONCE = (
    1000  # rows that one statement of upkeep changes at most: many are changed in many, and others come in between
)
