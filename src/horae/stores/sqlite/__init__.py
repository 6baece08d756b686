"""The store on SQLite, made of its parts."""

from __future__ import annotations

from horae.stores.insight.durations import DurationPart
from horae.stores.insight.explaining import ExplainingPart
from horae.stores.parts.alerts import AlertPart
from horae.stores.parts.attempts import AttemptPart
from horae.stores.parts.limits import LimitPart
from horae.stores.parts.moments import MomentPart
from horae.stores.parts.queues import QueuePart
from horae.stores.parts.search import SearchPart
from horae.stores.parts.shares import SharePart
from horae.stores.parts.signals import CallPart
from horae.stores.parts.sources import SourcePart
from horae.stores.parts.tokens import TokenPart
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
):
    """For one process."""
