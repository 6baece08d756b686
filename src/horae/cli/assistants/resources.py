"""Job documents and logs of runs by address, for assistants that attach them to a conversation.

horae://jobs/{id}        the document of a job, JSON
horae://runs/{id}/log    the end of what a run wrote
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from horae.cli.assistants.answers import NOTE, cut
from horae.cli.assistants.protocol import INVALID_PARAMS, Refused
from horae.cli.assistants.tools import MOST_OF_PAGE, read_log
from horae.cli.screen import clean

if TYPE_CHECKING:
    from horae.client import SyncClient

Json = dict[str, Any]

MOST_LOG, MOST_LINES = 100_000, 10_000  # characters and lines of a log
_ADDRESS = re.compile(r"horae://(?:jobs/([0-9]{1,19})|runs/([0-9]{1,19})/log)", re.ASCII)
_TEMPLATES = [
    {"uriTemplate": "horae://jobs/{id}", "name": "job", "title": "Document of a job",
     "description": "What a job does, its policies and its triggers.", "mimeType": "application/json"},
    {"uriTemplate": "horae://runs/{id}/log", "name": "log", "title": "Log of a run",
     "description": f"What a run wrote: its last {MOST_LOG} characters.", "mimeType": "text/plain"},
]  # fmt: skip


class Resources:
    def __init__(self, client: SyncClient) -> None:
        self._client = client

    def list(self, params: Json) -> Json:
        """The documents of jobs, the newest first. Logs have a template: there are too many."""
        cursor = params.get("cursor")
        if not isinstance(cursor, str | None):
            raise Refused(INVALID_PARAMS, "cursor must be a text that another page gave")
        page = self._client.json.jobs(limit=MOST_OF_PAGE, cursor=cursor)
        listed = {"resources": [_resource(job) for job in page["items"]]}
        return {**listed, "nextCursor": page["cursor"]} if page["cursor"] else listed

    def templates(self, _: Json) -> Json:
        return {"resourceTemplates": _TEMPLATES}

    def read(self, params: Json) -> Json:
        address = params.get("uri")
        found = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
        if found is None:
            raise Refused(INVALID_PARAMS, "horae://jobs/ID or horae://runs/ID/log expected as uri")
        job, run = found.groups()
        if job:
            kind, words = "application/json", json.dumps(self._client.json.job(int(job)), ensure_ascii=False, indent=2)
        else:
            kind, words = "text/plain", read_log(self._client.log(int(run), tail=MOST_LINES), MOST_LOG)
        return {"contents": [{"uri": address, "mimeType": kind, "text": words, "_meta": {"horae/note": NOTE}}]}


def _resource(job: Json) -> Json:
    return {
        "uri": f"horae://jobs/{job['id']}", "name": f"job-{job['id']}", "title": cut(clean(job["name"]), 80),
        "mimeType": "application/json",
    }  # fmt: skip
