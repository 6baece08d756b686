"""The contracts of the five source documents: each parses its own dialect, asks one service, renders its own words.

Each is a package with its words, its calls and its faces (HTTP, and gRPC where it has that). No contract holds a rule
about states or time, and none knows another: what they share is below them.
"""

from __future__ import annotations

from horae.contracts.admin import Admin
from horae.contracts.ci import Ci
from horae.contracts.cluster import Segments
from horae.contracts.cluster.calling import AgentDialect
from horae.contracts.lake import Lake
from horae.contracts.rpc import Rpc
from horae.contracts.rpc.workers import RpcDialect
from horae.service.external.dispatching import Dialect

CONTRACTS = (Lake, Ci, Rpc, Admin, Segments)
DIALECTS: tuple[Dialect, ...] = (AgentDialect(), RpcDialect())  # how those of them that call workers speak to these
