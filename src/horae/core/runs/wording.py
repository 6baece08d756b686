"""Reasons of runs as people say them, where the word that programs read says too little."""

from __future__ import annotations

from horae.core.model import Reason

_WORDS: dict[str, str] = {
    Reason.CHILDREN: "its tasks",
    Reason.DEBOUNCE: "more may come",
    Reason.ERROR: "it broke",
    Reason.EXIT: "exit code",
    Reason.LATER: "for later",
    Reason.LIMIT: "limits",
    Reason.LOST: "lost its agent",
    Reason.OOM: "out of memory",
    Reason.OWNER: "rights of its owner",
    Reason.PROCESSES: "too many processes",
    Reason.REQUESTED: "on request",
    Reason.SIGNAL: "waits to be told",
}


def say_reason(reason: str) -> str:
    return _WORDS.get(reason) or reason.replace("_", " ")
