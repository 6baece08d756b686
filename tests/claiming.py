"""The shortest way to a claimed run."""

from __future__ import annotations

from collections.abc import Sequence

from horae.core.runs.orders import Assignment, Want
from horae.ports.store import Store
from horae.stores.parts.cluster import superseded


async def claim(
    store: Store, node: str, kind: str, labels: Sequence[str], limit: int, *, session: int | None = None
) -> list[Assignment]:
    """Return what one node gets of one kind."""
    (claimed,) = await store.claim([Want(node, kind, limit, session)], labels)
    if claimed is None:
        raise superseded(node)
    return claimed
