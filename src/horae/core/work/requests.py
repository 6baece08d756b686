"""Kind `http`: one HTTP request.

    http:
      url: https://example.org/orders/${data.order}     scheme, host and port as they are; places behind them
      method: POST                                      GET, where nothing is sent
      headers: {Authorization: "Bearer ${secret.API}"}
      json: {order: "${data.order}"}                    or body: a text; without either, the run's data is sent
      expect: [200, 4xx]                                2xx
      follow_redirects: 5
      max_body: 16MiB                                   of the answer

The spec has the same fields, and `secrets`: those that its texts name, each as a reference, so that whoever fills
references need not know of texts with places (core.work.templates).

What must stay true: a reader collects problems and never raises; equal work has equal specs; nothing that is read here
can end a header or lead to a host that is not written in the url.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from horae.core.fields import (
    CONTROL,
    Fields,
    Problems,
    control_words,
    encoded,
    fields_of,
    join,
    json_problems,
    kind_of,
    shown,
)
from horae.core.jobdata import MAX_DATA
from horae.core.model import Json
from horae.core.secrets.references import check_name, is_reference, read_reference
from horae.core.sizes import read_size
from horae.core.work import templates
from horae.errors import MAX_PROBLEMS, Invalid

FIELDS = frozenset({"http", "data"})
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
BODILESS = ("GET", "HEAD")
EXPECTED = ("2xx",)
REDIRECTS, MOST_REDIRECTS = 5, 20
MAX_ANSWER, MOST_ANSWER = 16 * 2**20, 2**30  # bytes
MAX_URL = 4096  # characters
MAX_HEADERS = 50
MAX_HEADER = 8192  # characters of one
MAX_BODY = 256 * 1024  # bytes that are sent
MAX_EXPECTED = 50
_INNER = frozenset({
    "url", "method", "headers", "json", "body", "expect", "follow_redirects", "max_body", "secrets",
})  # fmt: skip
HEADER_NAME = r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}"
_HEADER = re.compile(HEADER_NAME)
_UNSEEN = re.compile(r"[^\x20-\x7e]")
_OWN_HEADERS = frozenset({  # what belongs to the connection, or follows from the rest
    "host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "expect", "trailer",
    "te",  # codespell:ignore te
    "proxy-authorization", "proxy-connection",
})  # fmt: skip
_AUTHORITY = re.compile(r"(?:[A-Za-z0-9_](?:[A-Za-z0-9_.-]*)|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")
_STATUS = re.compile(r"[2-5]xx")


def read_http(fields: Fields) -> Json:
    fields.require("http", "an http job needs the request to make")
    inner = None
    if "http" in fields.values:
        inner = fields_of(fields.values["http"], fields.at("http"), fields.problems, "must be a mapping with a url")
    spec: Json = {"http": {} if inner is None else _read_request(inner)}
    if data := fields.json("data", MAX_DATA):
        spec["data"] = data
    return spec


def _read_request(fields: Fields) -> Json:
    fields.refuse_others(_INNER)
    request: Json = {"url": _read_url(fields)}
    body = _read_body(fields)
    usual = "POST" if body else "GET"
    method = fields.word("method", METHODS, usual)
    if body and method in BODILESS:
        fields.fault(
            "method", "E_FIELD_CONFLICT", f"a {method} sends nothing, and {next(iter(body))} says what to send"
        )
    if method != usual:
        request["method"] = method
    if headers := _read_headers(fields):
        request["headers"] = headers
    request |= body
    if (expected := _read_expected(fields)) != list(EXPECTED):
        request["expect"] = expected
    redirects = fields.number("follow_redirects", REDIRECTS, 0, MOST_REDIRECTS, whole=True)
    if redirects != REDIRECTS:
        request["follow_redirects"] = redirects
    if (most := read_size(fields, "max_body", 1, MOST_ANSWER)) not in (None, MAX_ANSWER):
        request["max_body"] = most
    return request | _secrets_of(fields, request)


def _secrets_of(fields: Fields, request: Json) -> Json:
    """Return those that are named. A document that came from here has them written out already."""
    names = sorted({name for text in _texts(request) for name in templates.secrets_in(text)})
    found: Json = {name: {"secret": name} for name in names}
    if fields.values.get("secrets", found) != found:
        message = "this field is set by Horae, from what url, headers, json and body name"
        fields.fault("secrets", "E_READ_ONLY", message, "leave it out")
    return {"secrets": found} if found else {}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for member in value.values() if isinstance(value, dict) else value:
            yield from _texts(member)


def _has_fault(fields: Fields, name: str, text: str) -> bool:
    """Note what is wrong with the places of a text."""
    if why := templates.fault_of(text):
        fields.fault(name, "E_PATTERN", why, templates.HINT)
    return bool(why)


# ── where it goes ──────────────────────────────────────────────────────────────────────────────────


def split_url(url: str) -> tuple[str, str, str]:
    """Return scheme, host with port, and what is asked for there."""
    scheme, _, rest = url.partition("://")
    end = next((at for at, sign in enumerate(rest) if sign in "/?#"), len(rest))
    return scheme.lower(), rest[:end], rest[end:]


def url_fault(url: str) -> tuple[str, str]:
    """Return what is wrong with an address and what to do; empty when it can be asked."""
    scheme, authority, rest = split_url(url)
    if scheme not in ("http", "https") or "://" not in url:
        return "an address that begins with https:// or http:// expected", ""
    if "@" in authority:
        hint = 'send them in a header, such as Authorization: "Basic ${secret.NAME}"'
        return "a user or password in an address is shown to everybody who sees the job", hint
    if "$" in authority:
        return "host and port must be written out: places may stand behind them", "make a job for each host"
    host = _AUTHORITY.fullmatch(authority)
    if host is None or not 0 < int(host[1] or 1) < 2**16:
        return f"a host, and perhaps a port, expected after {scheme}://, got {shown(authority)}", ""
    if any(sign.isspace() or sign in '"<>\\^`' for sign in rest):
        return "a space or another sign that no address has", "write it in percents, such as %20"
    if "#" in rest:
        return "what stands behind # is never sent", "leave it out"
    return "", ""


def _read_url(fields: Fields) -> str | None:
    fields.require("url", "the address to ask is needed")
    url = fields.text("url", MAX_URL)
    if url is None or _has_fault(fields, "url", url):
        return None
    message, hint = url_fault(url)
    if message:
        fields.fault("url", "E_URL", message, hint)
    return url


# ── what is sent ───────────────────────────────────────────────────────────────────────────────────


def _read_headers(fields: Fields) -> Json:
    if "headers" not in fields.values:
        return {}
    inner = fields_of(fields.values["headers"], fields.at("headers"), fields.problems, "must be a mapping")
    if inner is None:
        return {}
    if len(inner.values) > MAX_HEADERS:
        fields.fault("headers", "E_LIMIT", f"at most {MAX_HEADERS} headers, got {len(inner.values)}")
        return {}
    headers: Json = {}
    for name in inner.values:
        if _is_header(inner, name, {each.lower() for each in headers}):
            headers[name] = _read_header(inner, name)
    return dict(sorted(headers.items(), key=lambda one: one[0].lower()))


def _is_header(headers: Fields, name: Any, known: set[str]) -> bool:
    if type(name) is not str or not _HEADER.fullmatch(name):
        headers.fault(str(name), "E_PATTERN", "the name of a header is letters, digits and -, such as X-Order")
    elif name.lower() in _OWN_HEADERS:
        headers.fault(name, "E_FIELD_CONFLICT", "this header is set by Horae", "leave it out")
    elif name.lower() in known:
        headers.fault(name, "E_DUP_NAME", "the same header stands here twice, for its name has no case", "keep one")
    else:
        return True
    return False


def _read_header(headers: Fields, name: str) -> str:
    value = headers.values[name]
    if isinstance(value, dict):
        return _place_of(read_reference(headers, name))
    if type(value) is not str:
        headers.wrong_type(name, "must be text")
    elif len(value) > MAX_HEADER:
        headers.fault(name, "E_LEN", f"at most {MAX_HEADER} characters, got {len(value)}")
    elif message := header_fault(value):
        headers.fault(name, "E_CHAR", message, "encode it, as base64 for example")
    elif not _has_fault(headers, name, value):
        return value
    return ""


def header_fault(value: str) -> str:
    """Return why a text cannot be sent as a header: nothing may end it."""
    odd = _UNSEEN.search(value)
    return f"a header is one line of visible ASCII, and U+{ord(odd[0]):04X} is not" if odd else ""


def _place_of(reference: Json | None) -> str:
    return "" if reference is None else f"${{secret.{reference['secret']}}}"


def _read_body(fields: Fields) -> Json:
    if "json" in fields.values and "body" in fields.values:
        fields.fault("body", "E_FIELD_CONFLICT", "json and body are two ways to say what to send", "keep one")
        return {}
    if "json" in fields.values:
        return _read_json(fields)
    if "body" not in fields.values:
        return {}
    value = fields.values["body"]
    if isinstance(value, dict):
        return {"body": _place_of(read_reference(fields, "body"))}
    if type(value) is not str:
        fields.wrong_type("body", "must be text")
    elif len(value.encode(errors="replace")) > MAX_BODY:
        fields.fault("body", "E_LEN", f"at most {MAX_BODY // 1024} KiB")
    elif odd := CONTROL.search(value):
        fields.fault("body", "E_CHAR", *control_words(odd[0]))
    elif not _has_fault(fields, "body", value):
        return {"body": value}
    return {"body": ""}


def _read_json(fields: Fields) -> Json:
    value = fields.values["json"]
    problems = list(islice(json_problems(value, fields.at("json")), MAX_PROBLEMS))
    fields.problems.listed += problems
    if problems:
        return {"json": None}
    if len((encoded({"": value}) or "").encode()) > MAX_BODY:
        fields.fault("json", "E_LEN", f"at most {MAX_BODY // 1024} KiB as JSON", "keep large data elsewhere")
        return {"json": None}
    return {"json": _with_places(value, fields.at("json"), fields.problems)}


def _with_places(value: Any, path: str, problems: Problems) -> Any:
    """Return a document whose references are places; what is wrong with places is noted at its path."""
    if is_reference(value):
        try:
            return _place_of({"secret": check_name(value["secret"])})
        except Invalid as error:
            problems.add(path, error.code, error.message, "to send such an object, write it as text under body")
    elif isinstance(value, dict):
        return {name: _with_places(member, join(path, name), problems) for name, member in value.items()}
    elif isinstance(value, list):
        return [_with_places(item, f"{path}[{index}]", problems) for index, item in enumerate(value)]
    elif isinstance(value, str) and (why := templates.fault_of(value)):
        problems.add(path, "E_PATTERN", why, templates.HINT)
    return value


# ── what comes back ────────────────────────────────────────────────────────────────────────────────


def _read_expected(fields: Fields) -> list[int | str]:
    if "expect" not in fields.values:
        return list(EXPECTED)
    found: dict[int | str, None] = {}
    for index, item in enumerate(fields.items("expect", MAX_EXPECTED, "statuses", least=1)):
        if (status := _status_of(item)) is None:
            got = shown(item) if isinstance(item, str) else str(item) if type(item) is int else kind_of(item)
            message = f"a status such as 200, or a class of them such as 2xx, expected, got {got}"
            fields.problems.add(f"{fields.at('expect')}[{index}]", "E_ENUM", message)
        else:
            found[status] = None
    return sorted(found, key=str)


def _status_of(item: Any) -> int | str | None:
    if type(item) is int and 200 <= item <= 599:
        return item
    return item if type(item) is str and _STATUS.fullmatch(item) else None


def is_expected(status: int, expected: list[int | str]) -> bool:
    return status in expected or f"{status // 100}xx" in expected


def default_method(request: Json) -> str:
    """Return the method of a spec."""
    return str(request.get("method") or ("POST" if "json" in request or "body" in request else "GET"))
