"""Keys that seal secrets, and lie outside the store (keys)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Keys(Protocol):
    """Seals texts so that the store can keep them: whoever has the store alone cannot open them."""

    def seal(self, text: str, context: str) -> str:
        """With the newest key, which is made if there is none. What is sealed opens under the same context only."""

    def open(self, sealed: str, context: str) -> str:
        """ConfigError(E_SECRET_KEY) names the key that would be needed, or says that the text was tampered with."""

    @property
    def names(self) -> Sequence[str]:
        """Of the keys that there are, the newest first."""

    def is_newest(self, sealed: str) -> bool:
        """Return whether the newest key sealed this."""

    def add(self) -> None:
        """Make a new key, which seals from now on. Whole or not at all, and durable when it returns."""

    def drop_old(self) -> None:
        """Forget every key but the newest: what they sealed is lost."""
