"""Kind `wait`: a run that does nothing but wait, without code. Servers do it themselves.

    wait: {for: 10m}                  wait: {signal: paid, within: 2d, otherwise: go_on}
    wait: {until: 2027-01-01T00:00Z}  wait: {approval: {by: [ann], message: "publish?"}, within: 2d}

What must stay true: a reader collects problems and never raises; how a wait ends follows from its spec and from what
its run was told, and from nothing else.
"""

from __future__ import annotations

from horae.core.fields import Fields, fields_of
from horae.core.model import Json, Moment, Reason, State
from horae.core.time.moments import format_moment, parse_moment
from horae.core.waits import DECISION, SIGNAL_NAME, Ended, Wait
from horae.errors import Invalid

WAIT = "wait"
FIELDS = frozenset({"wait"})
_OVER = "time:over"  # and that under which it is told that its time has come
_SORTS = ("for", "until", "signal", "approval")
_OTHERWISE = ("fail", "go_on", "skip")
MAX_DECIDERS = 100


# ── reading ──


def read_wait(fields: Fields) -> Json:
    what = "must say for what, such as {for: 10m} or {signal: paid, within: 2d}"
    fields.require("wait", "what does it wait for? write wait: {for: 10m}, {until: …}, {signal: …} or {approval: …}")
    inner = fields_of(fields.values.get("wait", {}), fields.at("wait"), fields.problems, what)
    if inner is None or "wait" not in fields.values:
        return {}
    inner.refuse_others(frozenset({*_SORTS, "within", "otherwise"}))
    sorts = [name for name in _SORTS if name in inner.values]
    if len(sorts) != 1:
        inner.fault(sorts[0] if sorts else "for", "E_FIELD_CONFLICT", f"one of {', '.join(_SORTS)} expected")
        return {}
    return {"wait": _read_one(inner, sorts[0])}


def _read_one(fields: Fields, sort: str) -> Json:
    if sort in ("for", "until"):
        for name in ("within", "otherwise"):
            if name in fields.values:
                fields.fault(name, "E_FIELD_CONFLICT", "belongs to waiting for a signal or an approval", "leave it out")
        return {"for": fields.seconds("for", 0.0, 0.0)} if sort == "for" else {"until": _read_until(fields)}
    spec: Json = {"signal": _read_name(fields)} if sort == "signal" else {"approval": _read_approval(fields)}
    if (within := fields.seconds("within", None, 0.0)) is not None:
        spec["within"] = within
    if (otherwise := fields.word("otherwise", _OTHERWISE, "fail")) != "fail":
        spec["otherwise"] = otherwise
    if "otherwise" in fields.values and "within" not in fields.values:
        fields.fault("otherwise", "E_FIELD_CONFLICT", "it waits for ever: nothing else can happen", "write within: 2d")
    return spec


def _read_until(fields: Fields) -> str:
    try:
        return format_moment(parse_moment(fields.values["until"]))
    except Invalid as error:
        fields.problems.adopt(fields.at("until"), error)
        return ""


def _read_name(fields: Fields) -> str:
    name = fields.text("signal") or ""
    if "signal" in fields.values and name and not SIGNAL_NAME.fullmatch(name):
        fields.fault("signal", "E_PATTERN", "the name of a signal is up to 128 letters, digits and . _ -")
    return name


def _read_approval(fields: Fields) -> Json:
    what = "must say who decides, such as {by: [ann], message: publish?}"
    inner = fields_of(fields.values["approval"], fields.at("approval"), fields.problems, what)
    if inner is None:
        return {}
    inner.refuse_others(frozenset({"by", "message"}))
    inner.require("by", "who decides? give the owners of their tokens, as by: [ann, bob]")
    by = inner.items("by", MAX_DECIDERS, "names", least=1)
    for number, name in enumerate(by):
        if type(name) is not str or not 0 < len(name) <= 200:
            inner.problems.add(f"{inner.at('by')}[{number}]", "E_TYPE", "must be a text, the owner of a token")
    spec: Json = {"by": by}
    if (message := inner.text("message")) is not None:
        spec["message"] = message
    return spec


# ── deciding ──


def begin(spec: Json) -> Wait:
    """Return for what a run of this spec waits."""
    wait = spec["wait"]
    if "for" in wait:
        return Wait(Reason.SNOOZED, _OVER, seconds=wait["for"])
    if "until" in wait:
        return Wait(Reason.SNOOZED, _OVER, until=parse_moment(wait["until"]))
    return Wait(Reason.SIGNAL, wait.get("signal", DECISION), seconds=wait.get("within"))


def is_past(spec: Json, now: Moment) -> bool:
    """Return whether it waits for a moment that has come."""
    return "until" in spec["wait"] and parse_moment(spec["wait"]["until"]) <= now


def end(spec: Json, answers: dict[str, Json]) -> Ended | None:
    """Return how it ended, by what the run was told; None: it goes on waiting."""
    wait = spec["wait"]
    said = answers.get(begin(spec).awaits or "")
    if said is None:
        return None
    if "for" in wait or "until" in wait:
        return Ended(State.SUCCEEDED)
    if "late" in said:
        return _in_vain(wait)
    if "signal" in wait:
        return Ended(State.SUCCEEDED, result=said["value"])
    return _decided(said)


def _in_vain(wait: Json) -> Ended:
    what = f"the signal {wait['signal']}" if "signal" in wait else "a decision"
    words = f"{what} did not come within {wait['within']:g} s"
    otherwise = wait.get("otherwise", "fail")
    if otherwise == "go_on":
        return Ended(State.SUCCEEDED, message=f"{words}; it goes on without")
    if otherwise == "skip":
        return Ended(State.SKIPPED, Reason.SIGNAL, words)
    return Ended(State.FAILED, Reason.TIMEOUT, words)


def _decided(said: Json) -> Ended:
    value, by = said["value"], said.get("by", "")
    comment = value.get("comment", "")
    result = {"approved": value["approved"], "by": by, "at": format_moment(said["at"]), "comment": comment}
    if value["approved"]:
        return Ended(State.SUCCEEDED, message=f"approved by {by}{f': {comment}' if comment else ''}", result=result)
    words = f"rejected by {by}{f': {comment}' if comment else ''}"
    return Ended(State.FAILED, Reason.REJECTED, words, result)
