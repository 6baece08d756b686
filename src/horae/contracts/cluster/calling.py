"""How agents that registered are called: the dispatch of the worker agent, at their own host and port.

The contract has no call to stop an agent, and none to ask how it is that must be sent: it beats, and hears of a
cancelled job when it reports.
"""

from __future__ import annotations

from horae.contracts.cluster.vocabulary import name_of, payload_of, retries_of, sent_with, stamp
from horae.core.members import plain_name
from horae.core.model import Json, Reason
from horae.ports.transport import Reply
from horae.service.external.dispatching import Call, Errand
from horae.service.external.transitions import EXECUTION_SECONDS, SEGMENTS_CONTRACT

PATH = "/api/worker-agent/dispatch"


class AgentDialect:
    """Implements service.external.dispatching.Dialect."""

    name = SEGMENTS_CONTRACT
    seconds = EXECUTION_SECONDS

    def dispatch(self, errand: Errand) -> Call:
        """With the names of the document and those of its services' code."""
        job, run = errand.job, errand.run
        at, retries = stamp(run.due_at), retries_of(run)
        document: Json = {
            "jobId": job.id,
            "jobName": name_of(job),
            "userId": sent_with(job).get("userId"),
            "payload": payload_of(job),
            "executionTime": at,
            "scheduledTime": at,
            "maxRetries": job.policy.retry.attempts - 1,
            "retryCount": retries,
            "currentRetryCount": retries,
            "executionId": run.id,
            "attempt": run.attempt,
        }
        return Call(PATH, {**document, **_resumed(errand)})

    def cancel(self, errand: Errand) -> Call | None:
        return None

    def health(self) -> Call | None:
        return None

    def accepts(self, reply: Reply) -> bool | None:
        """Return a good answer may still say `success: false`. What broke on the way may have been begun."""
        if reply.is_good:
            return not (isinstance(reply.document, dict) and reply.document.get("success") is False)
        return False if reply.status < 500 or reply.status == 503 else None


def _resumed(errand: Errand) -> Json:
    """Return what an agent needs to go on where another one stopped."""
    said: Json = {}
    if errand.progress is not None:
        said["checkpointData"] = errand.progress.get("checkpointData")
    if errand.previous is not None and errand.previous.reason == Reason.LOST:
        node = errand.previous.node
        said |= {"isReassignment": True, "previousWorkerId": None if node is None else plain_name(node)}
    return said
