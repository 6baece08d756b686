"""What the system can do. The only callers of ports."""

from __future__ import annotations

from dataclasses import dataclass

from horae.ports.transport import OutsideWorkers
from horae.service.access import Access
from horae.service.alerts.definitions import AlertDefinitions
from horae.service.cluster.activity import Activity
from horae.service.cluster.catalogues import Catalogues
from horae.service.cluster.operators import Nodes
from horae.service.events.feed import EventFeed
from horae.service.external.dispatching import Dispatching
from horae.service.external.loans import Lending
from horae.service.external.logs import OutsideLogs
from horae.service.external.members import ExternalMembers
from horae.service.external.pushing import Pushing
from horae.service.external.watching import Watching
from horae.service.insight.explaining import Explaining
from horae.service.insight.forecasting import Forecasting
from horae.service.insight.views import Insight
from horae.service.jobs import Jobs
from horae.service.jobs.hooks import Hooks
from horae.service.local_node import LocalNode
from horae.service.secrets.named import Secrets
from horae.service.secrets.rotation import Rotation
from horae.service.sources import Sources


@dataclass(frozen=True, slots=True)
class Services:
    """The bundle that is handed to web and rpc."""

    jobs: Jobs
    insight: Insight
    access: Access
    nodes: Nodes
    lending: Lending
    outside_logs: OutsideLogs
    external_members: ExternalMembers
    dispatching: Dispatching
    pushing: Pushing
    outside_workers: OutsideWorkers
    sources: Sources
    secrets: Secrets
    rotation: Rotation
    local_node: LocalNode
    activity: Activity
    catalogues: Catalogues
    hooks: Hooks
    watching: Watching
    forecasting: Forecasting
    events: EventFeed
    explaining: Explaining
    alerts: AlertDefinitions
    lends_lake_work: bool = False  # to workers that pull lake and sync runs over HTTP; else agents of Horae do them
    runs_in_place: bool = False  # steps of its one user run as that user, where they were submitted from
    lake_lease: float = 600.0  # seconds for which a worker that pulled a lake or sync run may be silent
