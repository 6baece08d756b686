"""Triggers from outside: documents that say who may fire a trigger, in place of when.

    webhook  {"format": "github", "secret": {"secret": "hook-key"}, "branches": ["main"]}     a call over HTTP

They stand where a schedule stands, and have no moment of their own. How they are read is in core.work.webhooks; what a
call must be, and what it says, in core.hooks.
"""

from __future__ import annotations

from horae.core.model import Json
from horae.errors import Invalid

WEBHOOK = "webhook"
KINDS = (WEBHOOK,)
PLAIN, GITHUB, GITEA = "plain", "github", "gitea"
FORMATS = (PLAIN, GITHUB, GITEA)
PUSH = "push"
_SYSTEMS = {GITHUB: "GitHub", GITEA: "Gitea"}


def is_outside(document: Json) -> bool:
    """Return whether a trigger document is one of these."""
    return WEBHOOK in document


def is_webhook(document: Json) -> bool:
    return WEBHOOK in document


def checked(document: Json) -> Json:
    """Return a document that was read before, if this version knows what it is."""
    hook = document[WEBHOOK]
    if not isinstance(hook, dict) or hook.get("format") not in FORMATS:
        raise Invalid(f"a webhook has one of the formats {', '.join(FORMATS)}", code="E_ENUM", path="webhook.format")
    return document


def describe(document: Json) -> str:
    """Return it in English."""
    hook = document[WEBHOOK]
    if hook["format"] == PLAIN:
        words = "when its address is called"
    else:
        where = f" to {' or '.join(hook['branches'])}" if "branches" in hook else ""
        system = _SYSTEMS[hook["format"]]
        events = " or ".join(f"{event}{where}" if event == PUSH else event for event in hook.get("events", (PUSH,)))
        words = f"when {system} tells of a {events}"
    return f"{words}, signed" if "secret" in hook else words
