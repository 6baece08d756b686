"""Sessions, and programs that wait for a user to let them in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from horae.core.identity import Device, Session
from horae.core.model import Moment
from horae.stores.database import Database
from horae.stores.rows import Row


class SessionPart(Database):
    """Who has logged in."""

    async def add_session(self, session: Session) -> int:
        it = session
        await self._put("drop_sessions", it.created_at)
        rows = await self._put(
            "add_session", it.token_id or 0, it.hash, it.created_at, it.expires_at, it.user_id, it.org, it.seen_at,
            it.proven_at, it.address, it.agent, it.issuer, it.refresh, it.refresh_at,
        )  # fmt: skip
        return int(rows[0][0])

    async def get_session(self, session_id: int) -> Session | None:
        rows = await self._get("get_session", session_id)
        return _session(rows[0]) if rows else None

    async def list_sessions(self, user_id: int) -> list[Session]:
        return [_session(row) for row in await self._get("list_sessions", user_id)]

    async def end_session(self, session_id: int) -> None:
        await self._put("end_session", session_id)

    async def end_sessions(self, user_id: int) -> None:
        await self._put("end_sessions", user_id)

    async def move_session(self, session_id: int, org: int) -> None:
        await self._put("move_session", session_id, org)

    async def touch_session(self, session_id: int, seen_at: Moment) -> None:
        await self._put("touch_session", session_id, seen_at)

    async def claim_refresh(self, session_id: int, due: Moment, next_try: Moment) -> bool:
        return bool(await self._put("claim_refresh", session_id, due, next_try))

    async def renew_session(self, session_id: int, refresh: str | None, refresh_at: Moment | None) -> None:
        await self._put("renew_session", session_id, refresh, refresh_at)

    # ── devices ──

    async def add_device(self, device: Device) -> Device | None:
        it = device
        await self._put("drop_devices", it.created_at)
        given = (it.code, it.hash, it.created_at, it.expires_at, it.address, it.org, it.state)
        return _device(await self._put("add_device", *given))

    async def get_device(self, device_id: int) -> Device | None:
        return _device(await self._get("get_device", device_id))

    async def find_device(self, code: str) -> Device | None:
        return _device(await self._get("find_device", code))

    async def decide_device(self, device_id: int, user_id: int, org: int, state: str) -> bool:
        return bool(await self._put("decide_device", device_id, user_id, org, state))

    async def use_device(self, device_id: int) -> bool:
        return bool(await self._put("use_device", device_id))


def _session(row: Row) -> Session:
    made = Session(*row)
    return replace(made, token_id=made.token_id or None)


def _device(rows: Sequence[Row]) -> Device | None:
    return Device(*rows[0]) if rows else None
