"""The contracts of the five source documents: each parses its own dialect, asks one service, renders its own words.

No facade holds a rule about states or time, and none knows another: what they share is below them.
"""

from __future__ import annotations

from horae.service import Services
from horae.web import http
from horae.web.facades.admin import Admin
from horae.web.facades.ci import Ci
from horae.web.facades.cluster import Segments
from horae.web.facades.lake import Lake
from horae.web.facades.rpc import Rpc

FACADES = (Lake, Ci, Rpc, Admin, Segments)


def facade_operations(services: Services, streams: http.Streams) -> list[http.Operation]:
    return [operation for facade in FACADES for operation in facade(services, streams).operations()]
