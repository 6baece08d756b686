"""The pages, and what machines ask of a process: everything that is served outside /v1 and the contracts.

Pages are rendered here once and kept fresh by small scripts that read the native API. Each is a file of this room.
"""

from __future__ import annotations

from typing import Protocol

from horae.service import Services
from horae.web import http, openapi
from horae.web.native.cluster import Cluster
from horae.web.pages.alerts import AlertsPage
from horae.web.pages.audit import AuditPage
from horae.web.pages.cluster import ClusterPage
from horae.web.pages.documentation import Documentation
from horae.web.pages.entrance import Entrance
from horae.web.pages.failures import Failures
from horae.web.pages.forecast import ForecastPage
from horae.web.pages.job import JobPage
from horae.web.pages.jobs import JobsPage
from horae.web.pages.overview import OverviewPage
from horae.web.pages.process import Process
from horae.web.pages.queues import QueuesPage
from horae.web.pages.run import RunPage
from horae.web.pages.run_now import RunNowPage
from horae.web.pages.runs import RunsPage
from horae.web.pages.settings import SettingsPages
from horae.web.pages.shell import HTML as HTML
from horae.web.pages.shell import Shell
from horae.web.pages.style import StylePage
from horae.web.pages.timeline import TimelinePage
from horae.web.pages.workflows import WorkflowsPage
from horae.web.pages.writing import WritingPages


class _Page(Protocol):
    def operations(self) -> list[http.Operation]: ...


class Dashboard:
    """Everything outside /v1."""

    def __init__(self, services: Services, cluster: Cluster, api: openapi.Api, version: str) -> None:
        self._shell = shell = Shell(services, version)
        self.entrance = Entrance(services, shell)
        self.failures = Failures(shell)
        self._pages: tuple[_Page, ...] = (
            OverviewPage(services, cluster, shell),
            JobsPage(services, shell),
            JobPage(services, shell),
            RunNowPage(services, shell),
            RunsPage(services, shell),
            RunPage(services, shell),
            TimelinePage(services, shell),
            WorkflowsPage(services, shell),
            QueuesPage(services, shell),
            ForecastPage(services, shell),
            ClusterPage(services, shell),
            AlertsPage(services, shell),
            AuditPage(services, api, shell),
            SettingsPages(services, shell),
            WritingPages(services, shell),
            StylePage(shell),
            Documentation(shell, api),
            shell,
            Process(services, version),
        )

    def operations(self) -> list[http.Operation]:
        found = [operation for page in self._pages for operation in page.operations()]
        self._shell.offer(found)
        return found
