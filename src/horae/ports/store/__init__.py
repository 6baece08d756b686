"""State: small protocols by capability, and the store that has them all (stores/)."""

from __future__ import annotations

from typing import Protocol

from horae.ports.store.alerts import AlertMessages, AlertRules, Alerts
from horae.ports.store.attempts import Attempts, Writes
from horae.ports.store.audit import AuditLog
from horae.ports.store.cluster import Leases, Nodes, Segments
from horae.ports.store.definitions import Definitions
from horae.ports.store.dependencies import Dependencies
from horae.ports.store.endings import Endings
from horae.ports.store.events import Events
from horae.ports.store.explaining import Explained
from horae.ports.store.flows import Flows
from horae.ports.store.glances import Glances
from horae.ports.store.grants import Grants, Owners
from horae.ports.store.history import Durations, History, Plans
from horae.ports.store.limits import Limits
from horae.ports.store.loans import Loans
from horae.ports.store.moments import Moments
from horae.ports.store.queues import PolicyCounts, Queues
from horae.ports.store.runs import Runs, WaitingRuns
from horae.ports.store.signals import Signals
from horae.ports.store.sources import Sources
from horae.ports.store.tokens import Tokens
from horae.ports.store.users import Devices, Organisations, Sessions, Users
from horae.ports.store.vault import Settings, Vault


class Store(
    Definitions,
    Moments,
    Runs,
    WaitingRuns,
    Attempts,
    Writes,
    Signals,
    Limits,
    Loans,
    Endings,
    Flows,
    Glances,
    History,
    Events,
    AlertRules,
    Alerts,
    AlertMessages,
    AuditLog,
    Durations,
    Plans,
    Nodes,
    Leases,
    Segments,
    Vault,
    Settings,
    Sources,
    Tokens,
    Users,
    Organisations,
    Sessions,
    Devices,
    Grants,
    Owners,
    Queues,
    PolicyCounts,
    Dependencies,
    Explained,
    Protocol,
):
    """State. Every write is one transaction: all of it or nothing, durable when the call returns.

    A call that cannot reach the database raises Unavailable; it may or may not have happened.
    Dueness is judged by the store's own clock. Lists are ordered newest first unless said otherwise.
    As made, it serves users: what they read has a time limit, and waits behind what other users read.
    """

    def for_roles(self) -> Store:
        """Return the same store for schedulers, agents and coordinators: what is urgent waits neither for users nor for
        upkeep. To be asked for once it is open."""

    async def close(self) -> None: ...
