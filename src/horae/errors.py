"""Every error a user can meet, as one drawn tree with stable codes.

    Error
    ├─ Malformed      400  the bytes cannot be read             E_JSON_SYNTAX, E_YAML_SYNTAX, …
    ├─ Denied         403  not allowed here                     E_POLICY, E_ORIGIN
    │  └─ Unauthenticated 401  nobody knows who asks            E_TOKEN, E_SIGNATURE
    ├─ NotFound       404  no such job, trigger, run, node      E_NOT_FOUND
    ├─ Conflict       409  the state forbids it                 E_TERMINAL, E_PAUSED, …
    │  └─ Superseded       a newer line of the node counts      E_SUPERSEDED
    ├─ Stale          412  the version has moved on             E_VERSION_CONFLICT
    ├─ TooLarge       413  more than the limit                  E_TOO_LARGE
    ├─ MediaType      415  a content type we do not read        E_MEDIA_TYPE
    ├─ Invalid        422  readable, but makes no sense         E_TYPE, E_CRON_RANGE, …
    ├─ Limited        429  too many at once                     E_STREAM_LIMIT
    ├─ Unavailable    503  store, queue or files out of reach   E_UNAVAILABLE
    │  └─ MachineFault     this machine is short of something   E_MACHINE
    └─ ConfigError         refused at start                     E_CONFIG, E_SCHEMA_NEWER, …

A message says what was expected, what was got, and what to do.
`CODES` is the whole list, with one sentence each: the reference page is made from it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass

# What the system says when a machine is short of something: whoever asked is not to blame.
MACHINE_FAULTS = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM,
})  # fmt: skip
MAX_PROBLEMS = 50  # field errors named in one answer; the rest are counted


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong at one place of a document."""

    path: str
    code: str
    message: str
    hint: str = ""

    def as_dict(self) -> dict[str, str]:
        shown = {"path": self.path, "code": self.code, "message": self.message}
        return {**shown, "hint": self.hint} if self.hint else shown


class Error(Exception):
    """Something went wrong inside Horae."""

    code = "E_INTERNAL"
    status = 500

    def __init__(
        self,
        message: str = "",
        *,
        code: str = "",
        hint: str = "",
        path: str = "",
        problems: Iterable[Problem] = (),
    ) -> None:
        self.code = code or type(self).code
        self.message = message or (type(self).__doc__ or "")
        self.hint = hint
        self.path = path
        self.problems = list(problems)
        super().__init__(self.message)

    @classmethod
    def of(cls, problems: list[Problem]) -> Error:
        """Make one error of many problems: the first gives code and message, all are listed."""
        first = problems[0]
        where = f"{first.path}: " if first.path else ""
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return cls(
            f"{where}{first.message}{more}",
            code=first.code,
            hint=first.hint,
            path=first.path,
            problems=problems,
        )

    def listed(self) -> list[Problem]:
        """Return the problems to show: those given, else this error as one; at most MAX_PROBLEMS."""
        every = self.problems or [Problem(self.path, self.code, self.message, self.hint)]
        if len(every) <= MAX_PROBLEMS:
            return every
        rest = len(every) - MAX_PROBLEMS
        return [*every[:MAX_PROBLEMS], Problem("", every[0].code, f"…and {rest} more")]


class Malformed(Error):
    """The body cannot be read."""

    code, status = "E_SYNTAX", 400


class Denied(Error):
    """This is not allowed here."""

    code, status = "E_POLICY", 403


class Evicted(Denied):
    """This node was evicted: it may not come back by itself."""

    code = "E_EVICTED"


def evicted(name: str) -> Evicted:
    return Evicted(
        f"the node {name} was evicted by an operator",
        hint=f"an agent comes back with a new join token: `horae nodes join-token {name}`",
    )


class Unauthenticated(Denied):
    """Who asks must be known here."""

    code, status = "E_TOKEN", 401


class GrantOver(Unauthenticated):
    """The identity provider takes back what it granted: the user is locked out there, or its session there is over."""

    code = "E_IDP_REFUSED"


class NotFound(Error):
    """There is no such thing."""

    code, status = "E_NOT_FOUND", 404


class Conflict(Error):
    """The present state does not allow this."""

    code, status = "E_CONFLICT", 409


class Superseded(Conflict):
    """This node has a newer line, or another process has taken its name: nothing that is asked here is done."""

    code = "E_SUPERSEDED"


class Stale(Error):
    """The version you changed is not the current one: read it again, then repeat the change."""

    code, status = "E_VERSION_CONFLICT", 412


class TooLarge(Error):
    """The body is larger than the limit."""

    code, status = "E_TOO_LARGE", 413


class MediaType(Error):
    """This content type is not read here."""

    code, status = "E_MEDIA_TYPE", 415


class Invalid(Error):
    """The request can be read but makes no sense."""

    code, status = "E_INVALID", 422


class Limited(Error):
    """Too many at once: try again later."""

    code, status = "E_LIMITED", 429


class TooOften(Limited):
    """Whoever asks does so more often than they may."""

    code = "E_REQUEST_RATE"
    seconds = 1.0  # until the next request is taken


class Unavailable(Error):
    """A part this needs is out of reach just now: try again."""

    code, status = "E_UNAVAILABLE", 503


class MachineFault(Unavailable):
    """This machine is short of disk, memory, processes or open files."""

    code = "E_MACHINE"


def machine_fault(error: BaseException) -> str:
    """Return what the machine is short of, if that is why; empty for any other error."""
    if isinstance(error, MachineFault):
        return error.message
    if isinstance(error, MemoryError):
        return "no memory is left"
    if isinstance(error, OSError) and error.errno in MACHINE_FAULTS:
        return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    return ""


class ConfigError(Error):
    """The start is refused."""

    code = "E_CONFIG"


CODES: dict[str, str] = {
    # reading a body
    "E_BODY_EMPTY": "The body or file is empty where a document was expected.",
    "E_SYNTAX": "The body cannot be read.",
    "E_JSON_SYNTAX": "The body is not JSON; the message has the line and column.",
    "E_YAML_SYNTAX": "The body is not YAML; the message has the line and column.",
    "E_YAML_TAG": "YAML tags that would make objects of the server's language are not read.",
    "E_YAML_ALIAS": "The YAML document refers to itself, or repeats an alias too often.",
    "E_MULTI_DOC": "One YAML document is expected, not several.",
    "E_DUP_KEY": "A key stands twice in one mapping.",
    "E_DEPTH": "The document is nested too deeply.",
    "E_ENCODING": "The bytes are not UTF-8.",
    "E_TOO_LARGE": "The body or file is larger than the limit named in the message.",
    "E_MEDIA_TYPE": "The content type is not one this address reads.",
    "E_HEADER": "A request header cannot be read or is too large.",
    "E_HOST": "The Host header names another server.",
    "E_ORIGIN": "The request comes from a page of another site.",
    "E_TOKEN": "A token is needed: none came, or one that is wrong, revoked or expired.",
    "E_JOIN_TOKEN": "An agent needs a token: none came, or one that is wrong, revoked or expired.",
    "E_JOIN_USED": "A join token is good once, and somebody has joined with this one.",
    "E_EVICTED": "This node was evicted by an operator: it does not come back by itself.",
    "E_EVICT_SELF": "A node does not evict itself: another one has to be asked.",
    "E_SIGNATURE": "A webhook has a secret, and the call is not signed with it, or not within five minutes.",
    "E_TOKEN_SCOPE": "The token is good, but not for this.",
    "E_NOT_OWNER": "The job belongs to another user.",
    "E_TOKEN_OWNER": "A token that is made by a token has its owner.",
    "E_AMBIGUOUS_AUTH": "A token and a session of different users came together.",
    "E_TOKEN_ROLE": "A token that is made by a token may do no more than it.",
    "E_ROLE": "The role of the token does not allow this.",
    "E_INSTALLATION": "What belongs to the whole installation is changed by admins of organisation 1 only.",
    "E_TOKEN_ORG": "A token is of one organisation, and so is what is made with it: another was named.",
    "E_TOKEN_BOUNDS": "The token is good, but for another agent, or not for all that this one says to be.",
    "E_PASSWORD_WRONG": "The name or the password is wrong.",
    "E_PASSWORD": "The password is too short, too long, or too easy to guess.",
    "E_INVITATION": "The link to set a password is used up, too old, or none of ours.",
    "E_LOGIN_LIMIT": "Too many wrong passwords came for this account, or from this address.",
    "E_REAUTH": "What was asked for needs a login of the last ten minutes.",
    "E_NO_MEMBER": "The user is a member of no organisation, or not of the one that was named.",
    "E_DISABLED": "The user is disabled.",
    "E_NO_ACCOUNT": "This needs a user with an account, and who asks has none.",
    "E_SERVICE_ACCOUNT": "A service account cannot log in: it only owns tokens.",
    "E_NAME_TAKEN": "Somebody has this name already.",
    "E_LAST_OWNER": "The last admin of an organisation stays.",
    "E_ORG_NOT_EMPTY": "The organisation cannot be deleted: there are jobs, runs, queues, agents or sources in it.",
    "E_ORG_KEPT": "The first organisation, and that of all, cannot be changed so.",
    "E_NO_IDP": "This server has no identity provider.",
    "E_IDP": "The identity provider is out of reach, or answers what cannot be used.",
    "E_IDP_DENIED": "The identity provider did not let the user in.",
    "E_IDP_REFUSED": "The identity provider refuses what this server asks for.",
    "E_ID_TOKEN": "What the identity provider says of the user is not accepted.",
    "E_CALLBACK": "The answer of the identity provider belongs to no login of this browser, or has no code.",
    "E_DEVICE_PENDING": "Nobody has let the program in yet.",
    "E_DEVICE_SLOW_DOWN": "The program asks more often than it was told to.",
    "E_DEVICE_EXPIRED": "The code of the program is over.",
    "E_DEVICE_DENIED": "The user did not let the program in.",
    "E_DEVICE_CODE": "No program waits with this code.",
    "E_RANGE_HEADER": "Only one simple byte range can be asked for.",
    # fields
    "E_INVALID": "The request can be read but makes no sense.",
    "E_TYPE": "A value is of the wrong type.",
    "E_REQUIRED": "A field that must be there is missing.",
    "E_UNKNOWN_FIELD": "A field is not known here; the nearest known name is suggested.",
    "E_UNKNOWN_PARAM": "A query parameter is not known here; the nearest known name is suggested.",
    "E_READ_ONLY": "A field is set by Horae and cannot be sent.",
    "E_EMPTY": "A value is empty where text was expected.",
    "E_LEN": "A text is too long.",
    "E_CHAR": "A text holds a character that is not allowed, such as a control character.",
    "E_PATTERN": "A text does not have the expected form.",
    "E_ENUM": "A value is not one of those allowed.",
    "E_RANGE": "A number or duration is outside its range.",
    "E_LIMIT": "There are more items than allowed.",
    "E_DUP_NAME": "Two things that need different names have the same one.",
    "E_FIELD_CONFLICT": "Two fields contradict each other.",
    "E_SECRET_AGAIN": "A hidden secret is not kept where host, address or user change: send it again.",
    "E_DISCRIMINATOR": "The kind of work is missing or not known.",
    "E_SEGMENT": "A segment is a whole number from 0 to 99.",
    "E_HANDLER": "No handler of this name can be loaded.",
    "E_CYCLE": "Things wait for each other in a circle; the message has its path.",
    "E_EXPRESSION": "A condition or a ${reference} of a workflow cannot be read, or names what is not there.",
    "E_DATA": "The data of a job, trigger or run does not fit the parameters of its Python handler.",
    "E_RESULT": "What a Python handler returned, or a run gave, is not of the type that was said.",
    # schedules
    "E_CRON_EMPTY": "The cron expression is empty.",
    "E_CRON_FIELDS": "The cron expression has the wrong number of fields.",
    "E_CRON_RANGE": "A number in the cron expression is outside its field.",
    "E_CRON_STEP": "A step in the cron expression is not usable.",
    "E_CRON_SYNTAX": "The cron expression cannot be read at the column named.",
    "E_CRON_NEVER": "The expression can be read, but no moment will ever match it.",
    "E_CRON_UNSUPPORTED": "The expression uses something Horae does not offer.",
    "E_INTERVAL_SYNTAX": "The interval cannot be read.",
    "E_INTERVAL_RANGE": "The interval is too short or too long.",
    "E_RRULE_SYNTAX": "The recurrence rule cannot be read.",
    "E_TZ_UNKNOWN": "No such time zone; the closest names are suggested.",
    "E_TZ_AMBIGUOUS": "The abbreviation stands for several time zones.",
    "E_TIME_SYNTAX": "The moment cannot be read.",
    "E_TIME_NO_OFFSET": "The moment has no offset: add Z or +02:00.",
    "E_TIME_RANGE": "The moment lies outside the years 1970 to 2200.",
    "E_TIME_GAP": "The local time does not exist on that day.",
    # state
    "E_NOT_FOUND": "There is no such thing, or it is not yours.",
    "E_METHOD": "This address does not take that method.",
    "E_CONFLICT": "The present state does not allow this.",
    "E_AUDIT_BROKEN": "The audit log is not as it was sealed.",
    "E_KEY_TAKEN": "Another job of this owner already has this key.",
    "E_NOT_ENDED": "The run goes on; only one that has ended can be run again.",
    "E_NO_TASKS": "The run has no tasks of which some could be taken over; it can be run again.",
    "E_TERMINAL": "The run has ended; its state never changes again.",
    "E_NOT_ASKED": "The run waits for nobody's approval, or for that of somebody else.",
    "E_NOT_WATCHED": "The job is not one that others run (`watched`), or the run that a ping names is none of it.",
    "E_ANSWERED": "The run was told something under this name already, or waited for it in vain: it is told once.",
    "E_ANSWERS_FULL": "The run was told so much that no more fits.",
    "E_QUEUE_UNKNOWN": "A job names a queue that does not exist; the nearest name is suggested.",
    "E_QUEUE_KIND": "A job names a queue that does not take its kind of work.",
    "E_OWNER": "The owner of the job was disabled, or may not run it any more.",
    "E_QUEUE_DRAINING": "The queue of the job takes nothing new.",
    "E_QUEUE_IN_USE": "The queue cannot be deleted: something needs it, or might still come.",
    "E_TOO_MUCH_WAITING": "As much of this owner is waiting as may: try again when some of it has started.",
    "E_ORG_WAITING": "As much of this organisation is waiting as may: try again when some of it has started.",
    "E_ORG_JOBS": "The organisation has as many jobs as it may have.",
    "E_PAUSED": "The job is paused: resume it first.",
    "E_NOT_DUE": "Nothing of the job is due, or somebody else has fired it.",
    "E_AT_CAPACITY": "The agent that was asked has no free slot, or there is none here.",
    "E_NO_WORKER": "No worker of this name has registered.",
    "E_OWN_PORT": "The address of a worker outside Horae is one of Horae's own.",
    "E_NOT_SENT": "A worker outside Horae could not be reached, so it was asked for nothing.",
    "E_CHANNEL_UNKNOWN": "An alert rule names a channel that does not exist; the nearest name is suggested.",
    "E_CHANNEL_IN_USE": "The channel cannot be deleted: an alert rule names it.",
    "E_UNDELIVERED": "A channel did not take a message; the text says why.",
    "E_NO_LEADER": "No coordinator leads just now.",
    "E_UNREADABLE": "A stored trigger cannot be read by this node: a newer one wrote it, or knows more time zones.",
    "E_SUPERSEDED": "Another process has taken over the name of this node, or it goes on over a newer line.",
    "E_EVENTS_GONE": "Events after this cursor were dropped meanwhile: begin anew.",
    "E_VERSION_CONFLICT": "The version you changed is not the current one.",
    "E_IDEMPOTENCY_MISMATCH": "This Idempotency-Key was used with a different request.",
    "E_STREAM_LIMIT": "Too many followers at once.",
    "E_CONNECTION_LIMIT": "Too many connections at once, in all or from one address.",
    "E_LIMITED": "Too many at once: try again later.",
    "E_REQUEST_RATE": "Whoever asks does so more often than they may: try again after the seconds of Retry-After.",
    "E_NETWORK": "The network that work asks for cannot be given on this agent; the message says what to install.",
    "E_SANDBOX": "A wall around work is weaker here than it should be; the message says which, and why.",
    "E_POLICY": "A policy of this installation forbids it.",
    "E_UNAVAILABLE": "A part this needs is out of reach just now: try again.",
    "E_MACHINE": "A machine of Horae is short of disk, memory, processes or open files; it goes on when it has some.",
    "E_OVERLOADED": "More requests wait than can be served soon: try again.",
    "E_READ_TIME": "Reading took too long and was given up: narrow the filter.",
    "E_DB_CONNECTIONS": "The database takes no more connections: raise its max_connections.",
    "E_INTERNAL": "A fault of Horae itself; the log has the details under the request id.",
    # starting and the command line
    "E_CONFIG": "A setting is missing, unknown or has a value that cannot be used.",
    "E_USAGE": "The command line cannot be understood.",
    "E_FILE": "A file cannot be read.",
    "E_LISTEN": "The address to listen on cannot be used.",
    "E_LOGIN_REQUIRED": "Listening beyond loopback, and require_token, need a login: a user token.",
    "E_TLS_REQUIRED": "Listening beyond loopback needs a certificate.",
    "E_TLS": "The certificate or its key cannot be used.",
    "E_CLIENT": "The client is closed, or belongs to another process or event loop.",
    "E_URL": "An address cannot be used.",
    "E_SECRET_KEY": "The key file cannot be used, or does not have the key that a secret was sealed with.",
    "E_SINGLE_NODE_LOCK": "Another process holds this data directory.",
    "E_TIMERS": "Another node of this cluster has other timers.",
    "E_NODE_TAKEN": "Another living process of this cluster has the name of this node.",
    "E_DB_UNREACHABLE": "The database did not answer in time.",
    "E_DB_READ_ONLY": "The database is a standby and takes no writes.",
    "E_DB_FOREIGN": "The database belongs to another program; nothing was changed in it.",
    "E_DB_ENCODING": "The encoding of the database is not UTF8.",
    "E_DB_RIGHTS": "The role of the database address lacks a right that the schema needs.",
    "E_DB_VERSION": "The database server's version is not supported.",
    "E_SCHEMA_NEWER": "The schema was made by a newer Horae: upgrade this one.",
    "E_SCHEMA_DRIFT": "The schema is not the one the migrations make.",
}
