"""The store on SQLite, made of its parts."""

from __future__ import annotations

from horae.stores.insight.durations import DurationPart
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
from horae.stores.sqlite.attempts import SqliteAttempts
from horae.stores.sqlite.cluster import SqliteCluster
from horae.stores.sqlite.dependencies import SqliteDependencies
from horae.stores.sqlite.signals import SqliteSignals


class SqliteStore(
    SqliteDependencies,
    SqliteAttempts,
    SqliteCluster,
    SqliteSignals,
    AttemptPart,
    AlertPart,
    GlancePart,
    AuditPart,
    LimitPart,
    MomentPart,
    ExplainingPart,
    SearchPart,
    DurationPart,
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
    """For one process."""
