"""What a step that failed behind walls is told about them: which wall it may have met, and the line that opens it.

    explain(127, "sh: 1: ./backup.sh: not found", sandbox="bubblewrap", network="off", offers_plain=True)

It is a guess, from how the step ended and what it wrote last.
"""

from __future__ import annotations

import re

from horae.core.model import Reason

SEEN = 4096  # bytes of output that are looked at: the last ones
NOT_EXECUTED = (126, 127)  # exit codes of a shell that could not start a command

_HIDDEN = re.compile(r"not found|no such file or directory|can't open|cannot open|permission denied", re.IGNORECASE)
_UNREACHED = re.compile(
    r"could not resolve|name resolution|name or service not known|no address associated|network is unreachable"
    r"|network unreachable|bad address|unknown host|unknownhostexception|getaddrinfo|eai_again"
    r"|failed to establish a new connection|could not connect|couldn't connect|can't connect|connection refused",
    re.IGNORECASE,
)
_SILENT = {"curl": (5, 6, 7, 28), "wget": (4,), "ssh": (255,), "git": (128,)}  # exit codes of who found no network
_MORE = {Reason.OOM: "limits: {memory: 2GiB}", Reason.PROCESSES: "limits: {pids: 4000}"}


def explain(code: int, said: str, *, script: str = "", sandbox: str, network: str, offers_plain: bool) -> str:
    """`said` is the end of its output; `network` is on, off, default (which is off) or listed. Empty where nothing
    points to a wall."""
    is_cut_off = network != "on" and (_UNREACHED.search(said) is not None or _ended_unheard(code, script))
    if is_cut_off and network in ("off", "default"):
        which = ", which is the default" if network == "default" else ""
        return (
            f"the sandbox {sandbox} gave it no network{which}: if it needs one, add to the job `network: on`, "
            "or the addresses alone, such as `network: [example.org:443]`"
        )
    if is_cut_off:
        return "its network reaches nothing but what the job lists: if it needs more, add the address under `network:`"
    if code in NOT_EXECUTED or _HIDDEN.search(said):
        line = "`sandbox: plain`" if offers_plain else "`checkout: {url: …}`, which brings files along"
        return (
            f"the sandbox {sandbox} shows it the programs of the system and an empty directory, and nothing else of "
            f"this machine: if it needs more, add to the job {line}"
        )
    return ""


def _ended_unheard(code: int, script: str) -> bool:
    """Return whether a program that says little of it (`curl -s`) ended as without a network."""
    return any(code in codes and re.search(rf"\b{name}\b", script) for name, codes in _SILENT.items())


def explain_limit(reason: str) -> str:
    """Of a step that was ended at a limit; empty when it was for another reason."""
    line = next((line for known, line in _MORE.items() if known == reason), None)
    return f"if it needs more, write in the job, for example, `{line}`" if line else ""
