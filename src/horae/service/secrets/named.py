"""Secrets: named texts that jobs may use and nobody can read back.

    set ─► sealed by Keys ─► store                      claim ─► opened ─► with the assignment to one agent

What must stay true:
- A value leaves this module in two ways only: sealed to the store, and with a claim to the agent that claimed a run
  whose spec names it. It is in no answer, log or error.
- Whoever sets a secret can open those that are there: else two nodes with different keys would each lock the other out.
- A run whose job names no secret pays for one look into its spec, and equal specs share even that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Protocol

import msgspec
import structlog

from horae.core.audit import Deed
from horae.core.model import Secret
from horae.core.runs.orders import Assignment
from horae.core.secrets import references
from horae.core.secrets.fields import MASK
from horae.core.secrets.sealing import Sealed
from horae.errors import ConfigError, Conflict, NotFound
from horae.ports import deeds as carried
from horae.ports.keys import Keys
from horae.ports.store.definitions import Definitions
from horae.ports.store.moments import StoreClock
from horae.ports.store.vault import Vault
from horae.service.secrets.sealing import Writing

log = structlog.get_logger(__name__)


class SecretStore(Vault, Definitions, StoreClock, Protocol):
    """Secrets, and the jobs that name them."""


@lru_cache(maxsize=10_000)
def _names_in(spec: str) -> frozenset[str]:
    return references.names_in(msgspec.json.decode(spec)) if '"secret"' in spec else frozenset()


class Readings(Protocol):
    """Whoever is told that secrets are about to be given out."""

    async def read(self, deeds: Sequence[Deed]) -> None: ...


class Secrets:
    def __init__(self, store: SecretStore, keys: Keys, readings: Readings | None = None) -> None:
        self._store = store
        self._keys = keys
        self._readings = readings
        self.writing = Writing()

    async def set(self, org: int, name: str, value: object) -> bool:
        """Keep a value, which takes effect with the next attempt; return whether the secret is new."""
        text = references.check_value(value)
        references.check_name(name)
        with self.writing():
            try:
                await self.check()
                sealed = self._keys.seal(text, _context(org, name))
            except ConfigError as error:
                raise Conflict(error.message, code=error.code, hint=error.hint) from error
            known = await self._store.get_sealed(org, [name])
            carried.note_change({"value": MASK} if known else None, {"value": f"{MASK} anew" if known else MASK})
            version = await self._store.put_secret(org, name, sealed, await self._store.now())
        log.info("secret.set", org=org, name=name, version=version)
        return version == 1

    async def list(self, org: int) -> list[Secret]:
        return await self._store.list_secrets(org)

    async def delete(self, org: int, name: str) -> None:
        carried.note_change({"value": MASK}, None)
        if not await self._store.delete_secret(org, references.check_name(name)):
            raise NotFound(f"there is no secret {name}", hint="`horae secret list` lists them")
        log.info("secret.deleted", org=org, name=name)

    async def check(self) -> None:
        """ConfigError(E_SECRET_KEY) when there are secrets that our keys cannot open."""
        for org, name, sealed in await self._store.list_sealed():
            self._keys.open(sealed, _context(org, name))

    def resealed(self, row: Sealed) -> str | None:
        """Return a secret, sealed by the newest key; None where it is. ConfigError where it does not open."""
        if self._keys.is_newest(row.text):
            return None
        context = _context(row.id, row.name)
        return self._keys.seal(self._keys.open(row.text, context), context)

    async def resolve(self, org: int, names: Sequence[str], reader: str = "") -> dict[str, str | None]:
        """Name → value of those that exist; None for one that our keys cannot open. With a reader, to whom they are
        given, the audit log tells of it first."""
        if reader:
            await self.note_read([reading(reader, org, "secret", name) for name in names])
        found: dict[str, str | None] = {}
        for name, sealed in (await self._store.get_sealed(org, names)).items():
            try:
                found[name] = self._keys.open(sealed, _context(org, name))
            except ConfigError as error:
                log.error("secret.unopened", org=org, name=name, error=error.message)
                found[name] = None
        return found

    async def note_read(self, deeds: Sequence[Deed]) -> None:
        """Somebody is about to be given secrets."""
        if self._readings is not None and deeds:
            await self._readings.read(deeds)

    async def provide(self, claimed: Sequence[Assignment], node: str = "") -> Sequence[Assignment]:
        """Return what a node has claimed, each with the secrets it names."""
        naming = [a for a in claimed if '"secret"' in a.spec or a.source is not None]
        wanted = {a.run_id: names for a in naming if (names := _names_of(a))}
        if not wanted:
            return claimed
        jobs = sorted({a.job_id for a in claimed if a.run_id in wanted})
        orgs = {job.id: job.org for job in await self._store.load_jobs(jobs)}
        every = sorted(frozenset().union(*wanted.values()))
        values = {org: await self.resolve(org, every) for org in sorted({*orgs.values()})}
        runs: dict[tuple[int, str], list[int]] = {}
        for a in claimed:
            for name in wanted.get(a.run_id, ()):
                runs.setdefault((orgs[a.job_id], name), []).append(a.run_id)
        reader = f"agent {node}"
        await self.note_read([reading(reader, org, "secret", name, ids) for (org, name), ids in sorted(runs.items())])
        return [
            a._replace(secrets=_text(values[orgs[a.job_id]], wanted[a.run_id])) if a.run_id in wanted else a
            for a in claimed
        ]


def reading(reader: str, org: int, kind: str, subject: str, runs: Sequence[int] = ()) -> Deed:
    """Return a row of the audit log: a secret, or those within a job, are given to a reader, for these runs."""
    deed = Deed(reader, org, via=reader, action="secrets.read", kind=kind, subject=subject)
    if runs:
        deed.note_made(runs)
    return deed


def _names_of(a: Assignment) -> frozenset[str]:
    names = _names_in(a.spec)
    return names if a.source is None else names | _names_in(a.source)


def _text(values: Mapping[str, str | None], names: frozenset[str]) -> str:
    given = {name: values[name] for name in names if name in values}
    text = msgspec.json.encode(given)
    return (text if len(text) <= references.MAX_TOTAL else msgspec.json.encode(dict.fromkeys(given))).decode()


def _context(org: int, name: str) -> str:
    """Return what a sealed value belongs to, so that it opens nowhere else."""
    return f"secret {org} {name}"
