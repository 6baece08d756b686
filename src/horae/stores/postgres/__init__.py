"""The store on PostgreSQL, made of its parts."""

from __future__ import annotations

from horae.stores.insight.explaining import ExplainingPart
from horae.stores.parts.alerts import AlertPart
from horae.stores.parts.attempts import AttemptPart
from horae.stores.parts.audit import AuditPart
from horae.stores.parts.glances import GlancePart
from horae.stores.parts.grants import GrantPart
from horae.stores.parts.limits import LimitPart
from horae.stores.parts.moments import MomentPart
from horae.stores.parts.queues import QueuePart
from horae.stores.parts.search import SearchPart
from horae.stores.parts.sessions import SessionPart
from horae.stores.parts.shares import SharePart
from horae.stores.parts.signals import CallPart
from horae.stores.parts.sources import SourcePart
from horae.stores.parts.tokens import TokenPart
from horae.stores.parts.users import UserPart
from horae.stores.parts.vault import VaultPart
from horae.stores.postgres.attempts import PostgresAttempts
from horae.stores.postgres.cluster import PostgresCluster
from horae.stores.postgres.dependencies import PostgresDependencies
from horae.stores.postgres.history import PostgresHistory
from horae.stores.postgres.inbox import PostgresInbox
from horae.stores.postgres.signals import PostgresSignals


class PostgresStore(
    PostgresInbox,
    PostgresDependencies,
    PostgresAttempts,
    PostgresHistory,
    PostgresCluster,
    PostgresSignals,
    AttemptPart,
    AlertPart,
    GlancePart,
    AuditPart,
    LimitPart,
    MomentPart,
    ExplainingPart,
    SearchPart,
    VaultPart,
    QueuePart,
    SharePart,
    CallPart,
    SourcePart,
    TokenPart,
    UserPart,
    GrantPart,
    SessionPart,
):
    """For many processes."""
