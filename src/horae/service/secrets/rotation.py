"""A new key for everything that is sealed.

    one key ─► a new one before it ─► everything sealed anew, in batches ─► nothing needs the old one ─► it goes

Every step can be repeated, and whatever kills it, the next call goes on from there: while there are several keys, none
is added, and what the newest has sealed is passed over.

What must stay true: an old key goes only after a look at every row found nothing that it sealed, and nothing sealed by
it can still be on its way to the store. Of other servers that cannot be known, nor are their key files ours: where
there are any, their operator puts keys in and takes them away.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol, get_args

import structlog

from horae.core.model import NodeState
from horae.core.secrets.sealing import Sealed, SealedPlace
from horae.errors import ConfigError, Conflict
from horae.ports.keys import Keys
from horae.ports.store.cluster import Nodes
from horae.ports.store.vault import Vault
from horae.service.secrets.named import Secrets
from horae.service.secrets.sealing import Sealing

log = structlog.get_logger(__name__)
ROWS_TOGETHER = 500  # rows looked at before anybody else has a turn
ROUNDS = 20  # through everything, while others go on writing with an old key


class RotationStore(Vault, Nodes, Protocol):
    """What is sealed, and who must know the key."""


class Rotated(NamedTuple):
    key: str  # the name of the newest
    resealed: int  # rows
    unopened: int  # rows that no key opens: they stay as they are
    old: list[str]  # names of keys that are still there


class Rotation:
    def __init__(self, store: RotationStore, keys: Keys, secrets: Secrets, sealing: Sealing, *, node: str) -> None:
        self._store = store
        self._keys = keys
        self._secrets = secrets
        self._sealing = sealing
        self._node = node
        self._turn = asyncio.Lock()

    async def rotate(self) -> Rotated:
        """Conflict(E_SECRET_KEY) where the key file cannot be used, and on a cluster that has got no new key."""
        async with self._turn:
            try:
                return await self._rotate()
            except ConfigError as error:
                raise Conflict(error.message, code=error.code, hint=error.hint) from error

    async def _rotate(self) -> Rotated:
        others = await self._other_servers()
        if len(self._keys.names) < 2:
            if others:
                raise _no_new_key(others)
            self._keys.add()
            log.info("secret.key_added", key=self._keys.names[0])
        await self._secrets.writing.wait()
        await self._sealing.writing.wait()
        resealed, unopened = await self._reseal_all()
        if not others and not unopened:
            self._keys.drop_old()
        rotated = Rotated(self._keys.names[0], resealed, unopened, list(self._keys.names[1:]))
        log.info("secret.rotated", **rotated._asdict())
        return rotated

    async def _other_servers(self) -> list[str]:
        """Return those who reach the store themselves, and so have a key file of their own."""
        nodes = await self._store.list_nodes()
        return [
            node.name for node in nodes if not node.via and node.state != NodeState.GONE and node.name != self._node
        ]

    async def _reseal_all(self) -> tuple[int, int]:
        """(rows sealed anew, rows that do not open), when a whole round found nothing more to do."""
        resealed = 0
        for _ in range(ROUNDS):
            found, unopened = await self._reseal_round()
            resealed += found
            if not found:
                return resealed, unopened
        raise Conflict("secrets are still being sealed with the old key; try again", code="E_SECRET_KEY")

    async def _reseal_round(self) -> tuple[int, int]:
        found = unopened = 0
        async for row in self._rows():
            try:
                text = self._secrets.resealed(row) if row.place == "secret" else self._sealing.resealed(row)
            except ConfigError as error:
                log.error("secret.unopened", place=row.place, id=row.id, name=row.name, error=error.message)
                unopened += 1
                continue
            if text is not None:
                found += 1  # also where somebody was faster: then the next round looks at what they wrote
                await self._store.reseal(row, text)
        return found, unopened

    async def _rows(self) -> AsyncIterator[Sealed]:
        for place in get_args(SealedPlace):
            after = 0
            while rows := await self._store.load_sealable(place, after, ROWS_TOGETHER):
                for row in rows:
                    yield row
                after = rows[-1].id or 1
                if place not in ("job", "trigger", "source"):
                    break


def _no_new_key(others: list[str]) -> Conflict:
    message = f"other servers have key files of their own ({', '.join(others)}), and there is no new key in this one"
    hint = "append a new key to secret_key_file on every server, then move it to the first line on each, and try again"
    return Conflict(message, code="E_SECRET_KEY", hint=hint)
