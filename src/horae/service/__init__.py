"""What the system can do. The only callers of ports."""

from __future__ import annotations

from dataclasses import dataclass

from horae.service.access import Access
from horae.service.insight import Insight
from horae.service.jobs import Jobs
from horae.service.nodes import Nodes


@dataclass(frozen=True, slots=True)
class Services:
    """The bundle that is handed to web and rpc."""

    jobs: Jobs
    insight: Insight
    access: Access
    nodes: Nodes
