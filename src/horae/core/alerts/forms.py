"""Messages in the form that each channel takes.

What must stay true: what users write (names of jobs, messages of runs) stays text: it makes no link, mentions nobody,
and ends no line of a header.
"""

from __future__ import annotations

import re

from horae.core.model import Json

MAX_SUBJECT = 200  # characters
MAX_TEXT = 3000  # characters that chat programs show
_LINE = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]+")
_MARKUP = re.compile(r"([\\`*_{}\[\]()#+!|<>~-])")


def subject_of(message: Json) -> str:
    """Return one line that says it all, for the head of a mail."""
    return _LINE.sub(" ", f"[Horae] {message['title']}")[:MAX_SUBJECT]


def mail_text(message: Json) -> str:
    return f"{message['title']}\n\n{message['text']}\n\nrule: {message['rule']}\nat: {message['at']}\n"


def slack_form(message: Json) -> Json:
    """As Slack's incoming webhooks take it."""
    text = f"{message['title']}\n{message['text']}"[:MAX_TEXT]
    return {"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}


def teams_form(message: Json) -> Json:
    """As the webhooks of Microsoft Teams take it: a card."""
    lines = [line for line in message["text"][:MAX_TEXT].split("\n") if line]
    blocks: list[Json] = [{"type": "TextBlock", "text": _escaped(message["title"]), "weight": "bolder", "wrap": True}]
    blocks += [{"type": "TextBlock", "text": _escaped(line), "wrap": True} for line in lines]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4",
        "body": blocks,
    }  # fmt: skip
    content = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [content]}


def _escaped(text: str) -> str:
    return _MARKUP.sub(r"\\\1", text)
