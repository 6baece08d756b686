"""Who did what: the rows of the audit log, and the chain of hashes that seals them.

    asked ─► a deed goes with the request ─► its row is written with the change ─► sealed later, by the leader

A row is sealed by a number without gaps and by the hash of what it says together with the hash of the row before it. So
a row that is changed, taken out, put in or moved does not fit those beside it. Whoever can rewrite all rows can also
rewrite all hashes: only the last hash, kept elsewhere, tells of that, and of rows cut off at the end.

Rows are written once. Numbers and hashes lie beside them, in seals of many rows each.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from horae.core.model import DEFAULT_ORG, LARGEST_ID, Moment
from horae.core.secrets.fields import MASK, masked
from horae.errors import Invalid

NO_HASH = "0" * 64  # before the first row
SEALED = 500  # rows of one seal
MAX_TEXT = 200  # characters of a name, an address or an operation
MAX_CHANGE = 8000  # of what changed
MAX_VALUE = 200  # of one value in it
MAX_FIELDS = 100
_UNKEPT = re.compile("[\x00\ud800-\udfff]")  # what a database does not keep
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Outcome(StrEnum):
    DONE = "done"
    FAILED = "failed"  # after some of it was done
    REFUSED = "refused"  # 401, 403, 429: who asks may not
    READ = "read"  # a secret was given out


@dataclass(slots=True)
class Deed:
    """What somebody is about to do. It goes from the gate to the store, which writes it beside the change itself."""

    who: str  # empty: a stranger
    org: int = DEFAULT_ORG
    via: str = ""  # by which token, session, or agent
    address: str = ""
    action: str = ""  # the permission that it needs
    operation: str = ""
    request_id: str = ""
    kind: str = ""  # of what it is done to
    subject: str = ""  # its id or name
    made: str = ""  # ids of what was made by it
    count: int = 1
    change: str = ""  # JSON
    outcome: str = Outcome.DONE
    code: str = ""  # of the error
    nth: int = 0  # row of the request
    is_bulk: bool = False  # it is done in several transactions, and each has a row
    is_void: bool = False  # nothing is done, only looked at
    is_sent: bool = False  # its row is part of the transaction that is open
    rows: int = 0  # that were written

    @property
    def is_pending(self) -> bool:
        return self.rows == 0 or self.is_bulk

    def confirm(self) -> None:
        """The transaction of its row has committed."""
        if self.is_sent:
            self.is_sent = False
            self.rows += 1
            self.nth += 1

    def note_made(self, ids: Sequence[int]) -> None:
        self.made, self.count = span(ids), len(ids)

    def row(self) -> tuple[Any, ...]:
        """Return the columns of COLUMNS."""
        return (
            self.org, kept(self.who), kept(self.via), kept(self.address), kept(self.action), kept(self.operation),
            kept(self.kind), kept(self.subject), kept(self.made), self.count, kept(self.change, MAX_CHANGE),
            kept(self.request_id), self.nth, str(self.outcome), kept(self.code),
        )  # fmt: skip


COLUMNS = (
    "org", "who", "via", "address", "action", "operation", "kind", "subject", "made", "count", "change", "request_id",
    "nth", "outcome", "code",
)  # fmt: skip


def kept(text: str, limit: int = MAX_TEXT) -> str:
    text = text[:limit]
    return text if text.isascii() and text.isprintable() else _UNKEPT.sub("?", text)


def span(ids: Sequence[int]) -> str:
    """Return ids in few letters: one, or the first and the last."""
    if not ids:
        return ""
    low, high = min(ids), max(ids)
    return str(low) if low == high else f"{low}-{high}"


class Row(NamedTuple):
    """A row as it is stored. `seq` and `hash` are None until it is sealed."""

    id: int
    at: Moment
    org: int
    who: str
    via: str
    address: str
    action: str
    operation: str
    kind: str
    subject: str
    made: str
    amount: int
    change: str
    request_id: str
    nth: int
    outcome: str
    code: str
    seq: int | None = None
    hash: str | None = None


class Gone(NamedTuple):
    """A row that is sealed, and is not there."""

    id: int
    seq: int
    hash: str


@dataclass(frozen=True, slots=True)
class AuditFilter:
    org: int | None = None  # None: all
    who: str | None = None
    action: str | None = None
    kind: str | None = None
    subject: str | None = None
    outcome: str | None = None
    since: Moment | None = None
    until: Moment | None = None


# ── the chain ──


# The hash of the row before, and all columns but seq and hash.
_SEALED_FORM = "\0".join(["%s"] * (len(Row._fields) - 1))


def seal(before: str, row: Row) -> str:
    """Return the hash of a row after the hash of the one before it: SHA-256 of that and the columns of the row, each
    after a NUL. Texts have none; a row in which somebody has put one is written as JSON, so that no text can pass for
    two columns."""
    columns = row[:-2]
    text = _SEALED_FORM % (before, *columns)  # half as dear as to join them
    if text.count("\0") != len(columns):
        text = _encode([before, *columns])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Seal(NamedTuple):
    """The ids of rows in the order in which they were sealed, and their hashes, one after the other."""

    seq: int  # of the last one
    ids: Sequence[int]
    hashes: str
    newest_at: Moment

    @classmethod
    def of(cls, rows: Sequence[Row], seq: int, before: str) -> Seal:
        """Seal rows after the one of this number and hash."""
        hashes, last = [], before
        for row in rows:
            last = seal(last, row)
            hashes.append(last)
        return cls(seq + len(rows), [row.id for row in rows], "".join(hashes), max(row.at for row in rows))

    @property
    def last_hash(self) -> str:
        return self.hashes[-len(NO_HASH) :]

    def entries(self) -> Iterator[tuple[int, int, str]]:
        """Return id, number and hash of each row."""
        size = len(NO_HASH)
        hashes = [self.hashes[at : at + size] for at in range(0, len(self.hashes), size)]
        return zip(self.ids, range(self.seq - len(self.ids) + 1, self.seq + 1), hashes, strict=True)


class Hole(NamedTuple):
    """Ids that were given out and were not there when higher ones were sealed: their transactions commit later, or
    never. Once all that began before `mark` have ended, nobody fills it any more."""

    first: int
    last: int
    mark: int


def holes_between(first: int, last: int, ids: Iterable[int], mark: int = 0) -> list[Hole]:
    """Return which numbers from the first to the last are not among the ids, which are sorted."""
    found = []
    for row_id in ids:
        if row_id > first:
            found.append(Hole(first, row_id - 1, mark))
        first = row_id + 1
    return [*found, Hole(first, last, mark)] if first <= last else found


class Head(NamedTuple):
    """Up to where the rows are sealed, and from where they are kept."""

    seq: int = 0
    hash: str = NO_HASH
    first_seq: int = 0  # of the last row that retention dropped
    first_hash: str = NO_HASH


class Place(NamedTuple):
    """How far a look at the chain has come."""

    seq: int
    hash: str
    before: str = NO_HASH  # hash of the row before that

    def __str__(self) -> str:
        return f"{self.seq}.{self.hash}.{self.before}"


_HASH = r"([0-9a-f]{64})"
_PLACE = re.compile(rf"([0-9]{{1,18}})\.{_HASH}\.{_HASH}", re.ASCII)
_HEAD = re.compile(rf"([0-9]{{1,18}}):{_HASH}", re.ASCII)


def read_place(text: str, path: str = "") -> Place:
    found = _PLACE.fullmatch(text)
    if found is None:
        raise Invalid("this is not a cursor of the audit log", code="E_PATTERN", path=path, hint="leave it out")
    return Place(int(found[1]), found[2], found[3])


def read_head(text: str, path: str = "") -> tuple[int, str]:
    """Return number and hash of a row that somebody has written down."""
    found = _HEAD.fullmatch(text.strip())
    if found is None or int(found[1]) > LARGEST_ID:
        raise Invalid(
            "a number and a hash expected, such as 1234:9f86d0…", code="E_PATTERN", path=path,
            hint="`horae audit verify` prints it as `head`",
        )  # fmt: skip
    return int(found[1]), found[2]


class Fault(NamedTuple):
    """Where the chain is broken."""

    seq: int
    what: str  # missing, changed, inserted, unsealed
    id: int | None
    message: str


@dataclass(slots=True)
class Check:
    """A walk along the chain."""

    place: Place
    head: tuple[int, str] | None = None  # as somebody has written it down
    checked: int = 0
    faults: list[Fault] = field(default_factory=list)

    def see(self, rows: Sequence[Row | Gone]) -> None:
        missing: int | None = None  # the first of those before this row
        for row in rows[self._pass_good(rows) :]:
            if isinstance(row, Row):
                if missing is not None:
                    self._miss(missing, self.place.seq)
                    missing = None
                self._see(row)
            else:
                missing = self.place.seq + 1 if missing is None else missing
                self.place = Place(row.seq, row.hash, self.place.hash)
        if missing is not None:
            self._miss(missing, self.place.seq)

    def _pass_good(self, rows: Sequence[Row | Gone]) -> int:
        """Go by the rows that are as they were sealed, up to the first that is not, or that somebody has written down;
        return how many. There may be millions of them."""
        seq, last, before = self.place
        noted = -1 if self.head is None else self.head[0]
        count = 0
        for row in rows:
            if row.__class__ is not Row or row.seq != seq + 1 or row.seq == noted or seal(last, row) != row.hash:
                break
            seq, before, last = row.seq, last, row.hash
            count += 1
        self.checked += count
        self.place = Place(seq, last, before)
        return count

    def see_strays(self, ids: Iterable[int], rows: Sequence[Row | Gone]) -> None:
        """Rows that no seal names, and that are older than some of these, which were sealed."""
        for row_id in ids:
            after = max((row.seq or 0 for row in rows if row.id < row_id), default=0)
            self._blame(after, "inserted", row_id, f"the row of id {row_id} was put in: no seal names it")

    def _see(self, row: Row) -> None:
        assert row.seq is not None
        last = self.place
        if row.seq > last.seq + 1:
            self._miss(last.seq + 1, row.seq - 1)
        elif seal(last.hash, row) != row.hash:
            if seal(last.before, row) == row.hash:
                self._blame(
                    last.seq, "inserted", None, f"row {last.seq} was put in: row {row.seq} was sealed without it"
                )
            else:
                message = f"row {row.seq} (id {row.id}) is not what was sealed: it was changed, or is out of its place"
                self._blame(row.seq, "changed", row.id, message)
        self.checked += 1
        self.place = Place(row.seq, row.hash or "", last.hash)
        if self.head is not None and row.seq == self.head[0] and row.hash != self.head[1]:
            message = f"row {row.seq} has another hash than was written down: the rows up to it were written anew"
            self._blame(row.seq, "changed", row.id, message)

    def end(self, head: Head) -> None:
        """There are no more rows."""
        if self.place.seq < head.seq:
            self._miss(self.place.seq + 1, head.seq)
        elif self.place.seq > head.seq or self.place.hash != head.hash:
            self._blame(self.place.seq, "inserted", None, f"row {self.place.seq} is not where the sealed rows end")
        if self.head is not None and self.head[0] > max(self.place.seq, head.seq):
            self._miss(max(self.place.seq, head.seq) + 1, self.head[0])

    def _miss(self, first: int, last: int) -> None:
        which = f"row {first} is" if first == last else f"rows {first} to {last} are"
        self._blame(first, "missing", None, f"{which} missing")

    def _blame(self, seq: int, what: str, row_id: int | None, message: str) -> None:
        if (fault := Fault(seq, what, row_id, message)) not in self.faults:
            self.faults.append(fault)


# ── what changed ──


def changes_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return as JSON which fields differ: path → [before, after]; secrets are left out."""
    found: dict[str, list[Any]] = {}
    _compare("", masked(dict(before)), masked(dict(after)), found)
    if not found and before != after:
        found["(secrets)"] = [MASK, MASK]
    text = _encode(found)
    return text if len(text) <= MAX_CHANGE else _encode(sorted(found))[:MAX_CHANGE]


def _compare(path: str, before: Any, after: Any, found: dict[str, list[Any]]) -> None:
    if before == after or len(found) >= MAX_FIELDS:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted({*before, *after}):
            _compare(f"{path}.{name}" if path else str(name), before.get(name), after.get(name), found)
        return
    found[path] = [_short(before), _short(after)]


def _short(value: Any) -> Any:
    """Return a value as it is shown, without the end of long texts."""
    if isinstance(value, Mapping):
        return {str(name): _short(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_short(each) for each in value[:MAX_FIELDS]]
    if isinstance(value, str) and len(value) > MAX_VALUE:
        return f"{value[:MAX_VALUE]}…"
    return value
