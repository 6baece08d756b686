"""What the system can do. The only callers of ports."""

from __future__ import annotations

from dataclasses import dataclass

from horae.service.access import Access
from horae.service.insight import Insight
from horae.service.jobs import Jobs
from horae.service.lending import Lending
from horae.service.nodes import Nodes
from horae.service.outside import Outside
from horae.service.rotation import Rotation
from horae.service.secrets import Secrets
from horae.service.sources import Sources
from horae.service.station import Station


@dataclass(frozen=True, slots=True)
class Services:
    """The bundle that is handed to web and rpc."""

    jobs: Jobs
    insight: Insight
    access: Access
    nodes: Nodes
    lending: Lending
    outside: Outside
    sources: Sources
    secrets: Secrets
    rotation: Rotation
    station: Station
    lends_lake_work: bool = False  # to workers that pull lake and sync runs over HTTP; else agents of Horae do them
    runs_in_place: bool = False  # steps of its one user run as that user, where they were submitted from
    lake_lease: float = 600.0  # seconds for which a worker that pulled a lake or sync run may be silent
