"""Webhooks: calls from outside that fire a trigger.

    token ─► trigger ─► signature ─► what it is about ─► an order with the delivery as its idempotency key

What must stay true:
- A wrong token, a trigger that is none of these and one that is not there are refused in the same words.
- Nothing is read of a body before its signature was checked.
- The same delivery makes one run, however often it comes, and whatever dies between.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple, Protocol

from horae.core.definitions import Idempotency
from horae.core.hooks import Call, Ignored, check_signature, delivery_key, is_token, read_call
from horae.core.model import SECOND, Json, Run, Trigger
from horae.core.secrets.references import is_reference, missing_words
from horae.core.time.outside import WEBHOOK
from horae.errors import ConfigError, Conflict, NotFound
from horae.ports.store.definitions import Definitions
from horae.ports.store.moments import StoreClock
from horae.service.jobs.orders import Orders, RunRequest
from horae.service.secrets.named import Secrets
from horae.service.secrets.sealing import Sealing


class HookStore(Definitions, StoreClock, Protocol):
    """Triggers, and the clock that judges how old a signature is."""


class Admitted(NamedTuple):
    """A call that is genuine."""

    trigger: Trigger
    call: Call
    is_signed: bool

    @property
    def hook(self) -> Json:
        found: Json = self.trigger.schedule[WEBHOOK]
        return found


class Hooks:
    def __init__(self, store: HookStore, orders: Orders, sealing: Sealing, secrets: Secrets) -> None:
        self._store = store
        self._orders = orders
        self._sealing = sealing
        self._secrets = secrets

    async def admit(self, trigger_id: int | None, token: str, call: Call) -> Admitted:
        """Return a call that may fire its trigger. NotFound where the address is none; Unauthenticated(E_SIGNATURE)
        where the trigger has a secret with which the call is not signed."""
        trigger = None if trigger_id is None else await self._store.get_trigger(trigger_id)
        if not is_token(token, trigger.hook if trigger else None) or trigger is None:
            raise NotFound("there is nothing at this address", hint="see /docs for what there is")
        if not trigger.enabled:
            raise Conflict(f"trigger {trigger.id} is not enabled; enable it first", code="E_PAUSED")
        secret = await self._secret_of(trigger)
        if secret is not None:
            now = await self._store.now() / SECOND
            check_signature(trigger.schedule[WEBHOOK]["format"], secret, call, now)
        return Admitted(trigger, call, secret is not None)

    async def _secret_of(self, trigger: Trigger) -> str | None:
        """Return the secret of a webhook that has one. Without it nobody is let in."""
        if "secret" not in trigger.schedule[WEBHOOK]:
            return None
        try:
            secret = self._sealing.open_trigger(trigger).schedule[WEBHOOK]["secret"]
        except ConfigError as error:
            raise Conflict(error.message, code=error.code, hint=error.hint) from error
        if not is_reference(secret):
            return str(secret)
        [job] = await self._store.load_jobs([trigger.job_id])
        name: str = secret["secret"]
        values = await self._secrets.resolve(job.org, [name])
        if (value := values.get(name)) is None:
            raise Conflict(missing_words(name, values))
        return value

    async def deliver(self, admitted: Admitted, said: object) -> Run | Ignored:
        """Make the run that a call asks for, or return why it asks for none. `said` is its body, read."""
        trigger, call, is_signed = admitted
        form = admitted.hook["format"]
        key = delivery_key(form, call, is_signed=is_signed)
        data = read_call(admitted.hook, call, said, trigger.data)
        if isinstance(data, Ignored):
            return data
        digest = hashlib.sha256(call.body).hexdigest()
        once = None if key is None else Idempotency(f"hook {trigger.id}", key, digest)
        return await self._orders.place(RunRequest(trigger.job_id, data, idempotency=once, trigger_id=trigger.id))
