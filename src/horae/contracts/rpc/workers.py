"""How workers of the RPC contract are spoken to: JSON-RPC 2.0, posted to /rpc at the address that they registered.

dispatch   here is an execution, which is on loan to you   → any result, or an error if you do not take it
cancel     stop this execution, and report it              → any result
health     how are you                                     → {"load", "capacity", "held": [execution, …]}, none needed
"""

from __future__ import annotations

from typing import Any

from horae.contracts.rpc import rendering
from horae.core.model import Json
from horae.core.runs.stages import RPC
from horae.ports.transport import Reply
from horae.service.external.dispatching import Call, Errand
from horae.service.external.pushing import Health

PATH = "/rpc"
LEASE = 30.0  # seconds that a worker keeps a run without a word: three heartbeats
MOST = 1_000_000  # of load and capacity


class RpcDialect:
    """Implements service.external.dispatching.Dialect, and tells how a worker is from what it says."""

    name = RPC
    seconds = LEASE

    def dispatch(self, errand: Errand) -> Call:
        return _call("dispatch", {**rendering.order(errand.job, errand.run), "lease_seconds": LEASE})

    def cancel(self, errand: Errand) -> Call:
        run = errand.run
        return _call("cancel", {"execution_id": run.id, "attempt": run.attempt, "job_id": run.job_id})

    def health(self) -> Call:
        return _call("health", {})

    def accepts(self, reply: Reply) -> bool | None:
        """Return an error is a worker's no, and so is what shows that nothing there speaks JSON-RPC."""
        document = reply.document if isinstance(reply.document, dict) else {}
        if reply.is_good and "result" in document:
            return True
        return False if "error" in document or 400 <= reply.status < 500 else None

    def read_health(self, reply: Reply) -> Health | None:
        """None from a worker that is not well."""
        if not self.accepts(reply):
            return None
        said = reply.document["result"]
        told = said if isinstance(said, dict) else {}
        held = told.get("held")
        ids = frozenset(each for each in held if type(each) is int) if isinstance(held, list) else frozenset()
        return Health(_number(told.get("load"), 0), _number(told.get("capacity"), 1), ids)


def _call(method: str, params: Json) -> Call:
    return Call(PATH, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


def _number(value: Any, low: int) -> int | None:
    return value if type(value) is int and low <= value <= MOST else None
