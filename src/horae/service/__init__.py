"""What the system can do. The only callers of ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from horae.ports.transport import OutsideWorkers
from horae.service.access import Access
from horae.service.access.devices import Devices
from horae.service.access.grants import Grants
from horae.service.access.logins import Logins
from horae.service.access.users import Users
from horae.service.alerts.definitions import AlertDefinitions
from horae.service.audit import Audit
from horae.service.cluster.activity import Activity
from horae.service.cluster.catalogues import Catalogues
from horae.service.cluster.operators import Nodes
from horae.service.events.feed import EventFeed
from horae.service.events.pulse import Pulse
from horae.service.events.run_watch import RunWatch
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


class ShownSetting(NamedTuple):
    """A setting of this process, as text without passwords, and where its value comes from."""

    name: str
    value: str
    source: str
    help: str


@dataclass(frozen=True, slots=True)
class Services:
    """The bundle that is handed to web and rpc."""

    jobs: Jobs
    insight: Insight
    access: Access
    grants: Grants
    nodes: Nodes
    users: Users
    logins: Logins
    devices: Devices
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
    pulse: Pulse
    run_watch: RunWatch
    explaining: Explaining
    alerts: AlertDefinitions
    audit: Audit
    public_url: str = ""  # at which browsers reach this server; empty: nobody said
    lends_lake_work: bool = False  # to workers that pull lake and sync runs over HTTP; else agents of Horae do them
    runs_in_place: bool = False  # steps of its one user run as that user, where they were submitted from
    settings: Sequence[ShownSetting] = ()
    lake_lease: float = 600.0  # seconds for which a worker that pulled a lake or sync run may be silent
