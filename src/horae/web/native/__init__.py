"""The native API under /v1, one module per resource: read the request, call one service, render the answer.

Nothing is decided here that another way in (command line, contract, gRPC) would have to decide again.
"""

from __future__ import annotations

from horae.service import Services
from horae.web import http
from horae.web.native.alerts import Alerts
from horae.web.native.audit import AuditLog
from horae.web.native.callbacks import Callbacks
from horae.web.native.changes import Changes
from horae.web.native.cluster import Cluster
from horae.web.native.events import Events
from horae.web.native.explaining import Explaining
from horae.web.native.forecasting import Forecasts
from horae.web.native.grants import Grants
from horae.web.native.hooks import Hooks, Pings
from horae.web.native.jobs import Jobs
from horae.web.native.limits import Limits
from horae.web.native.log_lines import LogLines
from horae.web.native.logins import Logins
from horae.web.native.many import Intake
from horae.web.native.organisations import Organisations
from horae.web.native.queues import Queues
from horae.web.native.reruns import Reruns
from horae.web.native.runs import Runs
from horae.web.native.secrets import Secrets
from horae.web.native.settings import Settings
from horae.web.native.signals import Signals
from horae.web.native.timeline import Timelines
from horae.web.native.tokens import Tokens
from horae.web.native.triggers import Triggers
from horae.web.native.users import Users
from horae.web.streams import Streams


class Native:
    """The endpoints, bound to the services. Pages show the `cluster` too."""

    def __init__(self, services: Services, streams: Streams) -> None:
        self.cluster = Cluster(services)
        self.organisations = Organisations(services)
        intake = Intake()
        self._resources = (
            Jobs(services, intake), Triggers(services, self.organisations), Runs(services, streams, intake),
            Reruns(services), Changes(services), Signals(services), self.cluster, Queues(services), Limits(services),
            Tokens(services),
            Secrets(services), Hooks(services), Pings(services), Callbacks(services), Forecasts(services),
            Explaining(services), Events(services, streams), Alerts(services), AuditLog(services), Grants(services),
            LogLines(services, streams), Settings(services), Timelines(services), Logins(services), Users(services),
        )  # fmt: skip

    def operations(self) -> list[http.Operation]:
        return [
            self.organisations.guarded(operation) for resource in self._resources for operation in resource.operations()
        ]
