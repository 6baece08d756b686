"""Whose a job is: its owner's, and that of whoever runs the server.

The user who runs it needs no token there, and is called `local`; a token in that name can be made by that user only
(`horae token create NAME --owner local`), and opens every job of its organisation too.
"""

from __future__ import annotations

from horae.core.identity import OPERATOR
from horae.core.model import Job
from horae.errors import Denied


def may_see(owner: str, asker: str) -> bool:
    return asker in (owner, OPERATOR)


def refuse_strangers(job: Job, asker: str) -> Job:
    """Return the job, to whoever may read, change or delete it; Denied to everybody else."""
    if may_see(job.owner, asker):
        return job
    raise Denied(
        f"job {job.id} belongs to another user",
        code="E_NOT_OWNER",
        hint="log in as its owner, or with a token of the operator's (`horae token create NAME --owner local`)",
    )
