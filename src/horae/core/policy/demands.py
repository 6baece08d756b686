"""Demands: what a run must have beyond one slot of its kind, before it may start.

A demand says under which keys a run is counted, and what it asks of one agent. It is decided when the run is made, and
stays. How much a key allows is decided when the run would start, by what its job and its queue say then: whoever raises
a limit raises it for what waits too, and a limit that was taken away holds nobody.

Equal demands have equal text, so that very many runs share few of them. A key is what counts, what it counts per, and
which of those it is. By example:

    at_once:job:12    at_once:owner:ann    at_once:data.tenant:"acme":ann    at_once:data.tenant::ann   (it has none)
    rate/min:job:12   queue:3              queue_rate:3                      resource:license-x
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from horae.core.fields import encode
from horae.core.model import DEFAULT_ORG, OWNER_SHARE, Policy
from horae.core.policy.limits import Limit, parse_rate
from horae.core.policy.queues import Queue
from horae.core.policy.resources import Asks, slots_of

LONGEST = 120  # characters of a name or a value in a key; of a longer one, the end is replaced by a digest
RESOURCE = "resource:"
DATA = "data."


class Use(NamedTuple):
    """Of a limit."""

    key: str
    cost: int = 1


class Demand(NamedTuple):
    uses: tuple[Use, ...] = ()  # sorted
    asks: Asks = ()  # of one agent

    @property
    def slots(self) -> int:
        return slots_of(self.asks)

    @property
    def text(self) -> str:
        return json.dumps([self.uses, self.asks], separators=(",", ":"))

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


NOTHING = Demand()


class Offer(NamedTuple):
    """What a node could take on."""

    node: str
    session: int | None
    room: Mapping[str, int]  # slots by kind
    free: Mapping[str, int]  # of what can be asked of an agent; what is not named is not offered
    labels: tuple[str, ...] = ()


class Whose(NamedTuple):
    """To whom a run belongs: what keys are made of."""

    job_id: int
    owner: str
    queue: int
    org: int = DEFAULT_ORG

    @property
    def account(self) -> str:
        return self.owner if self.org == DEFAULT_ORG else f"{self.org}/{self.owner}"


@lru_cache(maxsize=4096)
def demand_from_text(text: str) -> Demand:
    uses, asks = json.loads(text)
    return Demand(tuple(Use(*use) for use in uses), tuple((name, amount) for name, amount in asks))


def demand_of(
    policy: Policy, queue: Queue, whose: Whose, data: Any = None, asks: Iterable[tuple[str, int]] = (),
    resources: Iterable[tuple[str, int]] = (),
) -> Demand | None:  # fmt: skip
    """Return what a run must have; None if nothing but a slot. `asks` are of its agent, `resources` of the cluster."""
    costs = dict.fromkeys((_key(what, per, whose, data) for what, per in terms_of(policy, queue)), 1)
    costs |= {f"{RESOURCE}{name}": amount for name, amount in resources}
    demand = Demand(tuple(Use(*use) for use in sorted(costs.items())), tuple(sorted(asks)))
    return None if demand == NOTHING else demand


def reads_data(policy: Policy) -> bool:
    """Return whether the policy looks at the data of a job's runs: what they demand may differ."""
    pers = [one.per for one in policy.rate_limits] + [one.per for one in policy.concurrency_limits]
    pers += [policy.debounce.per] if policy.debounce is not None else []
    return any(per.startswith(DATA) for per in pers)


def own_data(policy: Policy, spec: Mapping[str, Any]) -> str | None:
    """Return what a run is given where nothing else is said, JSON text, if the policy looks at data."""
    if policy.share == OWNER_SHARE and not reads_data(policy):
        return None
    return encode(spec.get("data"))


def limits_of(policy: Policy, queue: Queue, uses: Iterable[Use]) -> dict[str, Limit]:
    """Return what the keys of a demand allow, by what the job and its queue say now; one of which they say nothing any
    more allows everything."""
    terms = terms_of(policy, queue)
    return {use.key: terms.get(rule_of(use.key), ANYTHING)._replace(key=use.key) for use in uses}


Rule = tuple[str, str]  # what counts, and per what


def rule_of(key: str) -> Rule:
    what, _, rest = key.partition(":")
    return what, rest.partition(":")[0]


ANYTHING = Limit("")


@lru_cache(maxsize=4096)
def _terms_of_policy(policy: Policy) -> dict[Rule, Limit]:
    terms = {("at_once", one.per): Limit("", one.limit) for one in policy.concurrency_limits}
    for one in policy.rate_limits:
        rate = parse_rate(one.rate)
        terms[f"rate/{rate.unit}", one.per] = Limit("", None, rate.period, one.burst)
    return terms


def terms_of(policy: Policy, queue: Queue) -> dict[Rule, Limit]:
    """Return all that limits the runs of a job in a queue."""
    terms = dict(_terms_of_policy(policy))
    if queue.concurrency is not None:
        terms["queue", str(queue.id)] = Limit("", queue.concurrency)
    if queue.rate is not None:
        terms["queue_rate", str(queue.id)] = Limit("", None, parse_rate(queue.rate).period, queue.burst)
    return terms


def _key(what: str, per: str, whose: Whose, data: Any) -> str:
    if per.startswith(DATA):
        value = value_at(data, per.removeprefix(DATA))
        found = "" if value is None else bounded(json.dumps(value, sort_keys=True, separators=(",", ":")))
        return f"{what}:{per}:{found}:{bounded(whose.account)}"
    if what in ("queue", "queue_rate"):
        return f"{what}:{per}"
    which = {"job": str(whose.job_id), "owner": bounded(whose.account), "queue": str(whose.queue)}
    return f"{what}:{per}:{which[per]}"


def value_at(data: Any, path: str) -> Any:
    """Return what data has at a path of names; None where there is nothing."""
    for name in path.split("."):
        data = data.get(name) if isinstance(data, dict) else None
    return data


def bounded(text: str) -> str:
    """Return a text as a part of a key."""
    if len(text) <= LONGEST:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{text[: LONGEST - len(digest) - 1]}#{digest}"
