"""Small request bodies, read field by field."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from horae.core import model
from horae.core.definitions import Idempotency
from horae.core.fields import Fields, kind_of, open_document
from horae.core.jobdata import MAX_DATA
from horae.core.time import moments
from horae.errors import Error, Invalid, TooLarge
from horae.service.jobs.orders import RunRequest
from horae.web import documents


def read_fields(document: Any, *known: str) -> Fields:
    return open_document(document, "an object expected", frozenset(known))


def read_moment(fields: Fields, name: str) -> model.Moment | None:
    if name not in fields.values:
        return None
    try:
        return moments.parse_moment(fields.values[name])
    except Invalid as error:
        fields.problems.adopt(fields.at(name), error)
        return None


# ── runs ──

MAX_ORDER = MAX_DATA + 4096  # bytes of one order as JSON: its data, and a little for the rest
SMALL_ORDER = MAX_DATA // 8  # bytes below which data cannot be too long, however its numbers are written
_ONE = ("data", "node", "priority", "run_at")
_ORDER = ("job", *_ONE, "idempotency_key")
_PLAIN = frozenset({"job", "data", "priority", "idempotency_key"})
_PLAIN_ONE = frozenset({"data", "priority"})
_VISIBLE = re.compile(r"[\x21-\x7e]{1,200}")
_NAME = re.compile(r"[\x21-\x7e]{1,128}")  # of a job: the usual ones
_PRIORITIES = frozenset(range(10))


def read_plain_run(body: bytes, job_id: int, idempotency: Idempotency | None) -> RunRequest | None:
    """Return what JSON means that has nothing unusual; None where `read_run` must look, and find the words for it."""
    plain = documents.read_plain((body,)) if len(body) <= SMALL_ORDER else None
    values = plain[0].value if plain is not None else None
    if type(values) is not dict or not values.keys() <= _PLAIN_ONE:
        return None
    data, priority = values.get("data", {}), values.get("priority", 0)
    if type(data) is not dict or type(priority) is not int or priority not in _PRIORITIES:
        return None
    return RunRequest(job_id, values.get("data"), None, values.get("priority"), None, idempotency)


def read_run(document: Any, job_id: int, idempotency: Idempotency | None) -> RunRequest:
    """Return what the body of a request for one run means."""
    fields = read_fields(document, *_ONE)
    request = _run_request(fields, job_id, idempotency)
    fields.problems.raise_any()
    return request


def read_orders(texts: Sequence[bytes], scope: str, keys: Sequence[str | None]) -> list[RunRequest | Error]:
    """Return what each of many orders means, or why it means nothing; `keys` are for those that have none of their
    own. Most orders are like those beside them, and are read together."""
    plain = documents.read_plain(texts) if max(map(len, texts)) <= SMALL_ORDER else None
    if plain is None:
        return [_read_alone(text, scope, key) for text, key in zip(texts, keys, strict=True)]
    return [
        _plain_order(each, scope, key) or _read_alone(text, scope, key)
        for each, text, key in zip(plain, texts, keys, strict=True)
    ]


class _Order(msgspec.Struct, forbid_unknown_fields=True):
    """An order as most are; those that lack nothing but a field are told from those that say null."""

    job: int | str
    data: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    priority: int | msgspec.UnsetType = msgspec.UNSET


_decode_array = msgspec.json.Decoder(list[_Order]).decode
_decode_lines = msgspec.json.Decoder(_Order).decode_lines
_encode_data = msgspec.json.Encoder(order="deterministic").encode


class OrdersAlike(NamedTuple):
    """Orders that differ in their data alone."""

    request: RunRequest
    data: list[str | None]  # canonical JSON


def read_alike(texts: Sequence[bytes], *, is_lines: bool) -> OrdersAlike | None:
    """Return what orders mean that have nothing unusual, no keys, and differ in their data alone; None where they must
    be read one by one. A key that stands twice would be dropped, and a colon with it (documents.read_plain)."""
    whole = (b"\n" if is_lines else b",").join(texts)
    if max(map(len, texts)) > SMALL_ORDER or not documents.is_plain(texts, whole):
        return None
    try:
        orders = _decode_lines(whole) if is_lines else _decode_array(b"[%b]" % whole)
        data = [None if one.data is msgspec.UNSET else _encode_data(one.data).decode() for one in orders]
    except (ValueError, RecursionError):  # also what is not UTF-8, or of another type
        return None
    job, priority = orders[0].job, orders[0].priority
    if len(orders) != len(texts) or len({(one.job, one.priority) for one in orders}) > 1:
        return None
    names = len(orders) * (1 + (priority is not msgspec.UNSET) + str(job).count(":")) + len(data) - data.count(None)
    is_whole = names + sum([text.count(":") for text in data if text is not None]) == whole.count(b":")
    if not (is_whole and _is_job(job) and (priority is msgspec.UNSET or priority in _PRIORITIES)):
        return None
    return OrdersAlike(RunRequest(job, priority=None if priority is msgspec.UNSET else priority), data)


def _is_job(job: Any) -> bool:
    is_id = type(job) is int and 1 <= job <= model.LARGEST_ID
    return is_id or (type(job) is str and _NAME.fullmatch(job) is not None)


def _read_alone(text: bytes, scope: str, otherwise: str | None) -> RunRequest | Error:
    try:
        if len(text) > MAX_ORDER:
            raise TooLarge(f"one of runs has at most {MAX_ORDER} bytes, got {len(text)}")
        return _order(documents.read_json(text), scope, otherwise)
    except Error as error:
        return error


def _plain_order(plain: documents.Plain, scope: str, otherwise: str | None) -> RunRequest | None:
    """Return what an order means that has nothing unusual; None where `_order` must look, and find the words for it."""
    values = plain.value
    if type(values) is not dict or not values.keys() <= _PLAIN:
        return None
    job: Any = values.get("job")
    data = values.get("data", {})
    key, priority = values.get("idempotency_key", otherwise), values.get("priority", 0)
    is_keyed = _VISIBLE.fullmatch(key) if type(key) is str else "idempotency_key" not in values
    if not (_is_job(job) and is_keyed and type(data) is dict and type(priority) is int and priority in _PRIORITIES):
        return None
    promise = Idempotency(scope, key, hashlib.sha256(plain.text).hexdigest()) if key is not None else None
    return RunRequest(job, values.get("data"), None, values.get("priority"), None, promise)


def _order(document: Any, scope: str, otherwise: str | None) -> RunRequest:
    """`otherwise` is the key of an order that has none of its own."""
    fields = read_fields(document, *_ORDER)
    fields.require("job", "an order needs a job: its id, or its key")
    key = fields.text("idempotency_key", 200) or otherwise
    if key is not None and not _VISIBLE.fullmatch(key):
        fields.fault("idempotency_key", "E_CHAR", "an idempotency key has visible ASCII characters only")
    name = read_job_name(fields) if "job" in fields.values else None
    digest = hashlib.sha256(msgspec.json.encode(fields.values, order="deterministic")).hexdigest() if key else ""
    request = _run_request(fields, name or 0, Idempotency(scope, key, digest) if key else None)
    fields.problems.raise_any()
    return request


def read_job_name(fields: Fields) -> int | str | None:
    """Return how `job` names one: by its id, or by its key."""
    name = fields.values["job"]
    if type(name) is int:
        fields.number("job", None, 1, model.LARGEST_ID, whole=True)
        return name
    if type(name) is str:
        return fields.text("job")
    message = f"a job is named by its id, a whole number, or by its key, a text; got {kind_of(name)}"
    fields.fault("job", "E_TYPE", message)
    return None


def _run_request(fields: Fields, job: int | str, idempotency: Idempotency | None) -> RunRequest:
    return RunRequest(
        job,
        data=fields.json("data", MAX_DATA) if "data" in fields.values else None,
        node=fields.text("node"),
        priority=fields.number("priority", None, 0, 9, whole=True),
        run_at=read_moment(fields, "run_at"),
        idempotency=idempotency,
    )
