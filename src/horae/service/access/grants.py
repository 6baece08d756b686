"""Grants: who may do more on some jobs than the role in the organisation says.

What the store says of somebody's grants is believed for as long as a token is: a grant that was taken back on one node
is gone on every other after that time at the latest, and here at once. Only who lacks a permission by role is looked
up, so whoever has it pays nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from horae.core.fields import Fields, Problems, fields_of, read_labels, shown
from horae.core.identity import Principal
from horae.core.model import LARGEST_ID, Job
from horae.core.rights import Grant, Granted, is_of_job, refuse_without
from horae.core.roles import Permission, Role, is_within
from horae.errors import Denied, NotFound
from horae.ports import deeds
from horae.ports.clock import Clock
from horae.ports.store.definitions import Definitions
from horae.ports.store.grants import Grants as GrantStore
from horae.ports.store.moments import StoreClock

CACHE_SECONDS = 5.0
CACHED = 16_384  # people whose grants are remembered
GRANTED = (Role.OPERATOR, Role.EDITOR)  # whoever is let in may look anyway, and admins of some jobs there are not
ON = ("job", "tag", "queue")


class GrantsStore(GrantStore, Definitions, StoreClock, Protocol):
    """Grants, and the jobs that they are about."""


class Grants:
    def __init__(self, store: GrantsStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[tuple[int, str], tuple[float, Granted]] = {}  # when asked, and what was said

    # ── asking ──
    async def refuse_ungranted(self, who: Principal, needed: Permission, job: Job | None) -> None:
        """Denied to whoever lacks a permission by role, and was not granted it on this job."""
        if job is None or not await self.may_on(who, needed, job):
            refuse_without(who, needed)

    async def may_on(self, who: Principal, needed: Permission, job: Job) -> bool:
        """Return whether somebody was granted a permission on a job."""
        if job.org != who.org or not is_of_job(needed):
            return False
        granted = self._remembered((who.org, who.name)) or await self.of(who.org, who.name)
        return granted.has(needed, job.id, job.policy)

    def _remembered(self, key: tuple[int, str]) -> Granted | None:
        known = self._known.get(key)
        return known[1] if known is not None and self._clock.elapsed() - known[0] < CACHE_SECONDS else None

    async def of(self, org: int, name: str) -> Granted:
        key, now = (org, name), self._clock.elapsed()
        if (granted := self._remembered(key)) is not None:
            return granted
        found = Granted(await self._store.load_grants(org, name))
        self._known.pop(key, None)  # the newest stands last
        self._known[key] = now, found
        while len(self._known) > CACHED:
            del self._known[next(iter(self._known))]
        return found

    # ── granting ──
    async def list(self, org: int, after: int, limit: int) -> Sequence[Grant]:
        return await self._store.page_grants(org, after, limit)

    async def add(self, wanted: Grant, by: Principal) -> Grant:
        """Grant something in the organisation of whoever asks, where what it is about must be."""
        if wanted.job_id is not None:
            jobs = await self._store.load_jobs([wanted.job_id])
            if not jobs or jobs[0].org != by.org or jobs[0].deleted_at is not None:
                raise NotFound(f"there is no job {wanted.job_id}", hint="`horae jobs` lists them")
        if not is_within(wanted.role, by.role):
            raise Denied(f"this gives {wanted.role}, and {by.name} is {by.role}", code="E_ROLE", hint="ask an admin")
        now = await self._store.now()
        deeds.note_change(None, _told(wanted))
        made = await self._store.put_grant(wanted._replace(org=by.org, created_at=now, created_by=by.name))
        self._known.pop((made.org, made.who), None)
        return made

    async def remove(self, org: int, grant_id: int) -> None:
        for found in await self._store.page_grants(org, grant_id - 1, 1):
            deeds.note_change(_told(found), None)
        gone = await self._store.drop_grant(org, grant_id)
        if gone is None:
            raise NotFound(f"there is no grant {grant_id}", hint="`horae grants` lists them")
        self._known.pop((gone.org, gone.who), None)


def _told(grant: Grant) -> dict[str, Any]:
    """Return what is granted to whom, for the audit log."""
    given = {"who": grant.who, "role": grant.role, "job": grant.job_id, "tag": grant.tag, "queue": grant.queue}
    return {name: value for name, value in given.items() if value is not None}


def parse_grant(document: Any) -> Grant:
    """{who, role, job | tag | queue}."""
    problems = Problems()
    fields = fields_of(document, "", problems, "an object expected")
    if fields is None:
        problems.raise_any()
        raise AssertionError("a problem was noted")
    fields.refuse_others(frozenset({"who", "role", *ON}))
    for name, why in (("who", "a grant needs the name of somebody"), ("role", "a grant needs a role")):
        fields.require(name, why)
    who, role = fields.handle("who") or "", fields.text("role") or Role.OPERATOR
    if role not in GRANTED:
        fields.fault("role", "E_ENUM", f"must be one of {', '.join(GRANTED)}, got {shown(role)}")
    given = [name for name in ON if name in fields.values]
    if len(given) != 1:
        code = "E_FIELD_CONFLICT" if given else "E_REQUIRED"
        fields.fault(given[1] if given else "job", code, "one of job, tag and queue says on which jobs")
    job_id = fields.number("job", None, 1, LARGEST_ID, whole=True)
    tag, queue = _read_word(fields, "tag"), _read_word(fields, "queue")
    problems.raise_any()
    return Grant(0, 0, who, Role(role), job_id, tag, queue)


def _read_word(fields: Fields, name: str) -> str | None:
    text = fields.text(name)
    if text is None:
        return None
    words = read_labels(Fields({name: [text]}, fields.path, fields.problems), name=name)
    return words[0] if words else None
