"""Alerts: rules, channels, what is going on, and what is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from horae.core.alerts.channels import Channel
from horae.core.alerts.messages import Group, Spoken
from horae.core.alerts.rules import Rule
from horae.core.alerts.signs import Disk, JobFacts, Late
from horae.core.alerts.states import Alert, Key
from horae.core.events import Cursor
from horae.core.model import Json, Moment

READER = "alerts"  # of events; there is one while there are rules


class Delivery(NamedTuple):
    """A message on its way to a channel."""

    id: int
    org: int
    rule: str
    number: int  # of the messages of the rule
    channel: str
    message: Json
    state: str  # waiting, sent, failed
    tries: int
    next_at: Moment
    made_at: Moment
    sent_at: Moment | None
    error: str


class AlertRules(Protocol):
    """Rules and channels: few, and seldom changed."""

    async def list_alert_rules(self, org: int | None = None) -> list[Rule]:
        """Return those of an organisation, or of all, by name."""

    async def load_spoken(self) -> dict[tuple[int, str], Spoken]:
        """Return how often each rule has told something."""

    async def save_alert_rule(self, rule: Rule, expected: int | None, *, begins_anew: bool) -> Rule | None:
        """Keep a rule in the place of any of that name, if that has the version `expected` (0: there is none; None:
        whatever it has); it gets the next one. None: it has another. With the first rule, events are read from now on.
        `begins_anew`: what is going on under the old one is dropped."""

    async def delete_alert_rule(self, org: int, name: str) -> bool:
        """Delete it with all that is going on and waits to be told of it."""

    async def list_alert_channels(self, org: int) -> list[Channel]: ...

    async def save_alert_channel(self, channel: Channel, expected: int | None) -> Channel | None:
        """As save_alert_rule."""

    async def delete_alert_channel(self, org: int, name: str) -> bool: ...


class Alerts(Protocol):
    """What is going on."""

    async def load_job_facts(self, job_ids: Sequence[int]) -> dict[int, JobFacts]:
        """Return what rules ask of these jobs, deleted ones too."""

    async def find_tasks(self, run_ids: Sequence[int]) -> set[int]:
        """Return those of these ended runs that have a parent."""

    async def load_alerts(self, subjects: Sequence[str]) -> dict[Key, Alert]:
        """Return those of these subjects, of all rules."""

    async def load_alerts_of(self, rules: Sequence[str]) -> dict[Key, Alert]:
        """Return those of rules of these names, of all organisations."""

    async def save_alerts(
        self, changed: Mapping[Key, Alert | None], moved: tuple[Cursor, Cursor] | None = None
    ) -> bool:
        """Keep what has become of alerts, None: it is gone; and let the reader of events move, both or, where it is no
        longer at the first place, neither. What somebody acknowledged meanwhile stays so, unless it opens anew."""

    async def remind(self, now: Moment) -> int:
        """Mark those that are to be told again (core.alerts.states.is_to_remind); return how many."""

    async def list_alerts(self, org: int | None, after: int, limit: int) -> list[Alert]:
        """Return those that are open, by id."""

    async def acknowledge(self, org: int | None, alert_id: int, by: str, now: Moment) -> Alert | None:
        """Note that somebody knows of it: until it is over, it is told no more. None: it is not open."""

    async def list_late(self, before: Moment, limit: int) -> list[Late]:
        """Return jobs of which a run was due before a moment and waits for an agent, found among `limit` such runs."""

    async def list_unusual(self, limit: int) -> list[int]:
        """Return jobs that take unusually long (core.insight.baselines)."""

    async def save_disk(self, node: str, used: float, at: Moment) -> None:
        """Note how full the disk of a node is."""

    async def load_disks(self, since: Moment) -> list[Disk]: ...


class AlertMessages(Protocol):
    """What is told."""

    async def load_groups(self) -> list[Group]:
        """Return what is to be told, by rule."""

    async def load_pending(self, org: int, rule: str, limit: int) -> list[Alert]:
        """Return the first alerts of a rule of which something is to be told."""

    async def tell(self, group: Group, rule: Rule, spoken: Spoken, message: Json, now: Moment) -> bool:
        """Let all that is to be told of a rule be told by this message: a delivery for each channel. False, and nothing
        is done, where the rule has spoken meanwhile."""

    async def take_deliveries(self, now: Moment, until: Moment, limit: int) -> list[Delivery]:
        """Take those whose time has come; nobody else takes them until then, and each has been tried once more."""

    async def settle_delivery(self, settled: Delivery) -> None:
        """Write down what came of it, unless it was taken again meanwhile."""

    async def next_delivery(self) -> Moment | None:
        """Return when the next one is to be tried."""

    async def list_deliveries(self, org: int, limit: int) -> list[Delivery]:
        """Newest first."""

    async def drop_deliveries(self, before: Moment) -> None:
        """Drop those that were sent or given up, and made before."""
