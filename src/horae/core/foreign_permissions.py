"""The permissions of the lake contract, as roles are read: `lake_job:view`, with the organisation before it and the id
behind where those are all (`*:lake_job:view:*`).

Whoever moves from there gives a token or a member the words that they have. Those that name one organisation or one id
mean something else here: the organisation of the token, a grant on the job.
"""

from __future__ import annotations

import re

from horae.core.roles import SEPARATOR, Permission, Role, read_role

_JOBS = {
    "view": Permission.READ, "create": Permission.WRITE, "edit": Permission.WRITE, "delete": Permission.WRITE,
    "force_run": Permission.RUN, "kill": Permission.CANCEL,
}  # fmt: skip
_SOURCES = {verb: _JOBS[verb] for verb in ("view", "create", "edit", "delete")}
LAKE: dict[str, Permission] = {
    f"{thing}:{verb}": permission
    for thing, verbs in (
        ("lake_job", _JOBS), ("ingestion_job", _JOBS), ("ingestion_source", _SOURCES),
        ("lake_history", {"view": Permission.READ}), ("ingestion_history", {"view": Permission.READ}),
    )
    for verb, permission in verbs.items()
}  # fmt: skip
EVERYTHING = "*:*:*:*"
LONGEST = 2 * len(SEPARATOR.join((*Permission, *(f"*:{word}:*" for word in LAKE))))  # characters of all of them
_WORD = re.compile(r"(?:\*:)?(\w+:\w+?)(?::\*)?")


def read_any_role(text: str) -> Role | None:
    """Return the role of a text, which may have permissions of the lake contract among its own; None: it is none."""
    if ":" not in text or len(text) > LONGEST:
        return read_role(text)
    if text == EVERYTHING:
        return Role.ADMIN
    return read_role(SEPARATOR.join(sorted({_own(word) for word in text.split(SEPARATOR)})))


def _own(word: str) -> str:
    found = _WORD.fullmatch(word)
    return LAKE.get(found[1], word) if found else word
