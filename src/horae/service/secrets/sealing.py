"""Secrets that jobs and sources hold themselves: sealed before the store sees them, opened for whoever does the work.

    submit, change ─► sealed ─► store ─► shown as ******
                                  └────► claimed, or lent to a worker ─► opened

What must stay true:
- Every job and source that is written has passed `seal_job` or `seal_source`: what the store holds opens with a key
  that it has not, and as a part of that job, or of a source of that organisation, only.
- Nothing is opened but for one attempt, and to see whether a secret that was sent is the one that is there.
- Whoever seals can open what others sealed (`check`): else two nodes with different keys would lock each other out.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import structlog

from horae.core.model import Job, Json, Moment, Reason, Source, State, Trigger
from horae.core.runs.orders import Assignment, Result
from horae.core.secrets import sealing
from horae.core.secrets.sealing import Sealed
from horae.core.work import kinds, webhooks
from horae.errors import ConfigError, Conflict
from horae.ports import deeds
from horae.ports.keys import Keys
from horae.ports.store.vault import Settings

log = structlog.get_logger(__name__)
WITNESS = "sealed"  # the setting that opens for everybody who has the keys of this cluster
CALLBACKS = "callbacks"  # the setting with the key of callback addresses (service.jobs.callbacks)
_TO_TEXT = str.maketrans("+/", "-_")  # a sealed text must be able to stand within an address
_FROM_TEXT = str.maketrans("-_", "+/")


def may_be_sealed(spec: str) -> bool:
    """Return whether the text of a spec may hold something sealed: cheap, for every run that is claimed."""
    return "sealed.v" in spec


class Sealing:
    def __init__(self, store: Settings, keys: Keys | None = None) -> None:
        """Without keys nothing can be sealed, and nothing opened."""
        self._store = store
        self._keys = keys or _NoKeys()
        self.writing = Writing()

    async def verify(self) -> None:
        """ConfigError(E_SECRET_KEY) when our keys are not those that jobs and sources were sealed with, if any were."""
        if (witness := await self._store.get_setting(WITNESS)) is not None:
            self._keys.open(witness, WITNESS)

    async def check(self) -> None:
        """Before something is sealed: Conflict(E_SECRET_KEY) when our keys are not those that others seal with."""
        try:
            await self.verify()
            with deeds.apart():
                witness = await self._store.keep_setting(WITNESS, self._keys.seal("", WITNESS))
            self._keys.open(witness, WITNESS)
        except ConfigError as error:
            raise Conflict(error.message, code=error.code, hint=error.hint) from error

    # ── keys of the installation ──
    async def make_key(self, name: str) -> str:
        """Return the random key that is kept sealed as this setting; whoever asks first makes it. Conflict as check."""
        await self.check()
        with self.writing():
            fresh = self._keys.seal(secrets.token_urlsafe(32), name)
            return self._opened(name, await self._store.keep_setting(name, fresh))

    async def load_key(self, name: str) -> str | None:
        """Return it if it was made. Conflict as check."""
        kept = await self._store.get_setting(name)
        return None if kept is None else self._opened(name, kept)

    def _opened(self, name: str, kept: str) -> str:
        try:
            return self._keys.open(kept, name)
        except ConfigError as error:
            raise Conflict(error.message, code=error.code, hint=error.hint) from error

    # ── jobs ──
    def seal_job(self, job: Job, before: Job | None = None) -> Job:
        """What did not change since `before` stays sealed as it is."""
        spec = kinds.sealed_spec(job.kind, job.spec, before.spec if before is not None else {}, self._of_job(job.id))
        sealed = job if spec == job.spec else replace(job, spec=spec)
        return (
            self._seal_triggers(sealed, before)
            if any(webhooks.has_secret(t.schedule) for t in job.triggers)
            else sealed
        )

    def _seal_triggers(self, job: Job, before: Job | None) -> Job:
        old = {t.id: t.schedule for t in before.triggers} if before is not None else {}
        seal = self._of_job(job.id)
        triggers = (replace(t, schedule=webhooks.sealed(t.schedule, old.get(t.id, {}), seal)) for t in job.triggers)
        return replace(job, triggers=tuple(triggers))

    def open_trigger(self, trigger: Trigger) -> Trigger:
        """As open_job, of a webhook."""
        return replace(trigger, schedule=webhooks.opened(trigger.schedule, self._of_job(trigger.job_id)))

    def open_job(self, job: Job) -> Job:
        """ConfigError(E_SECRET_KEY) when something does not open."""
        return replace(job, spec=kinds.opened_spec(job.kind, job.spec, self._of_job(job.id)))

    def open_claimed(self, claimed: Sequence[Assignment], now: Moment) -> tuple[list[Assignment], list[Result]]:
        """Return those that open, open; and the ends of those that do not."""
        opened, failed = [], []
        for a in claimed:
            try:
                opened.append(self._open_one(a) if may_be_sealed(a.spec) else a)
            except ConfigError as error:
                failed.append(unopened(a.run_id, a.fence, error, now))
        return opened, failed

    def _open_one(self, a: Assignment) -> Assignment:
        spec: Json = msgspec.json.decode(a.spec)
        return a._replace(spec=msgspec.json.encode(kinds.opened_spec(a.kind, spec, self._of_job(a.job_id))).decode())

    # ── sources ──
    def seal_source(self, source: Source, before: Source | None = None) -> Source:
        """As seal_job."""
        old = before.config if before is not None else {}
        return replace(source, config=sealing.sealed(source.config, old, self._of_source(source.org)))

    def open_source(self, source: Source) -> Source:
        """As open_job."""
        return replace(source, config=sealing.opened(source.config, self._of_source(source.org)))

    # ── anew ──
    def resealed(self, row: Sealed) -> str | None:
        """Return the text of a row, sealed by the newest key as a whole; None where it is. ConfigError as open_job."""
        if row.place == "setting":
            is_newest = self._keys.is_newest(row.text)
            return None if is_newest else self._keys.seal(self._keys.open(row.text, row.name), row.name)
        value: Any = msgspec.json.decode(row.text)
        again: Any
        if row.place == "trigger":
            again = self._triggers_anew(row, value)
        else:
            again = self._job_anew(row, value) if row.place == "job" else self._source_anew(row, value)
        return None if again == value else msgspec.json.encode(again).decode()

    def _job_anew(self, row: Sealed, spec: Json) -> Json:
        seal, seen = self._watched(self._of_job(row.id))
        whole = kinds.opened_spec(row.name, spec, seal)
        return kinds.sealed_spec(row.name, whole, spec if all(seen) else {}, seal)

    def _triggers_anew(self, row: Sealed, triggers: list[Json]) -> list[Json]:
        seal, seen = self._watched(self._of_job(row.id))
        whole = [webhooks.opened(t["schedule"], seal) for t in triggers]
        return [
            {**t, "schedule": webhooks.sealed(schedule, t["schedule"] if all(seen) else {}, seal)}
            for t, schedule in zip(triggers, whole, strict=True)
        ]

    def _source_anew(self, row: Sealed, config: Json) -> Json:
        seal, seen = self._watched(self._of_source(int(row.name)))
        whole = sealing.opened(config, seal)
        return sealing.sealed(whole, config if all(seen) else {}, seal)

    def _watched(self, seal: sealing.Seal) -> tuple[sealing.Seal, list[bool]]:
        """Return a seal that notes of everything it opens whether the newest key sealed it."""
        seen: list[bool] = []

        def open_(text: str) -> str:
            seen.append(self._keys.is_newest(text))
            return seal.open(text)

        return sealing.Seal(seal.close, open_), seen

    def _of_job(self, job_id: int) -> sealing.Seal:
        return self._seal(f"job {job_id}")

    def _of_source(self, org: int) -> sealing.Seal:
        return self._seal(f"source {org}")  # it is sealed before it has an id

    def _seal(self, context: str) -> sealing.Seal:
        return sealing.Seal(partial(self._close, context), partial(self._open, context))

    def _close(self, context: str, text: str) -> str:
        try:
            return self._keys.seal(text, context).translate(_TO_TEXT)
        except ConfigError as error:
            raise Conflict(error.message, code=error.code, hint=error.hint) from error

    def _open(self, context: str, text: str) -> str:
        return self._keys.open(text.translate(_FROM_TEXT), context)


def unopened(run_id: int, fence: int, error: ConfigError, now: Moment) -> Result:
    """Return the end of an attempt whose secrets do not open: a server that has the key may do better with the next."""
    log.error("secret.unopened", run_id=run_id, error=error.message)
    message = f"a secret of this job cannot be given: {error.message}"
    return Result(run_id, fence, State.FAILED, Reason.ERROR, now, now, message=message)


class Writing:
    """Knows what is being sealed and written, so that a rotation can wait until nothing sealed by an old key is on its
    way to the store."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Future[None]] = set()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Around sealing something and writing it."""
        mark = asyncio.get_running_loop().create_future()
        self._under_way.add(mark)
        try:
            yield
        finally:
            self._under_way.discard(mark)
            mark.set_result(None)

    async def wait(self) -> None:
        """Return when everything that is under way now is done."""
        if begun := set(self._under_way):
            await asyncio.wait(begun)


class _NoKeys:
    names: Sequence[str] = ()

    def is_newest(self, sealed: str) -> bool:
        raise _missing()

    def add(self) -> None:
        raise _missing()

    def drop_old(self) -> None:
        raise _missing()

    def seal(self, text: str, context: str) -> str:
        raise _missing()

    def open(self, sealed: str, context: str) -> str:
        raise _missing()


def _missing() -> ConfigError:
    return ConfigError("there are no keys to seal secrets with", code="E_SECRET_KEY", path="secret_key_file")
