"""Services that syncs read over HTTP, each described by data: where it answers, how one logs in, how its pages follow
each other, which column tells what is new. The executor of syncs has one program for all of them.

`{name}` in an address, a path or a parameter is a field of the job or of its source; `{since}` is the value from which
on rows are new, and a parameter with one that is not known is left out. A source may name another `api_url`, such as
that of a proxy.

What must stay true: a service stands here only where its rows come by GET, in JSON, with a key or token: one that
wants a signature, a query of its own language, or a login that runs out cannot be described, and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from horae.core.model import Json

SECRETS = frozenset({"api_key", "refresh_token"})  # fields of jobs and sources, beyond those of syncs


@dataclass(frozen=True, slots=True)
class Service:
    url: str
    path: str
    items: str  # where the rows are in an answer
    key: str  # the field of job or source that holds the key or token
    sent_as: tuple[str, str]  # how it is sent: ("bearer", ""), ("header", name) or ("query", name)
    paging: Json  # in the words of dlt's paginators
    params: Mapping[str, str | int] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)  # of fields that neither job nor source has
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # field → its words → those of the service
    cursor: str = ""  # none: it is only copied whole
    primary_key: tuple[str, ...] = ("id",)


SERVICES: Mapping[str, Service] = {
    "hubspot": Service(
        "https://api.hubapi.com", "crm/v3/objects/{sub_type}", "results", "api_key", ("bearer", ""),
        {"type": "cursor", "cursor_path": "paging.next.after", "cursor_param": "after"}, {"limit": 100},
        words={"sub_type": {"contact": "contacts", "company": "companies", "deal": "deals"}},
    ),
    "shopify": Service(
        "", "admin/api/{api_version}/{table_name}.json", "{table_name}", "access_token",
        ("header", "X-Shopify-Access-Token"), {"type": "header_link"}, {"limit": 250, "updated_at_min": "{since}"},
        values={"api_version": "2025-01"}, cursor="updated_at",
    ),
    "coin_market_cap": Service(
        "https://pro-api.coinmarketcap.com", "v1/cryptocurrency/listings/latest", "data", "api_key",
        ("header", "X-CMC_PRO_API_KEY"),
        {"type": "offset", "limit": 1000, "offset": 1, "offset_param": "start", "total_path": "status.total_count"},
    ),
    "facebook_ads": Service(
        "https://graph.facebook.com", "{api_version}/act_{account_id}/{table_name}", "data", "access_token",
        ("query", "access_token"), {"type": "json_link", "next_url_path": "paging.next"},
        {"limit": 500, "date_preset": "{date_preset}"}, values={"api_version": "v21.0"},
    ),
    "tik_tok_ads": Service(
        "https://business-api.tiktok.com", "open_api/v1.3/{tik_tok_end_point}/", "data.list", "access_token",
        ("header", "Access-Token"),
        {"type": "page_number", "base_page": 1, "page_param": "page", "total_path": "data.page_info.total_page"},
        {"advertiser_id": "{advertiser_id}", "page_size": 100}, primary_key=(),
    ),
}  # fmt: skip
_SAFE = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)*")


class Indescribable(ValueError):
    """What is asked of a service is not in its description; the text says what is."""


def name_of(source: Json) -> str:
    return str(source.get("service") or source.get("name") or "")


def completed(spec: Json) -> Json:
    """Return a sync from a service with what its description knows: the column that tells what is new, and the key."""
    service = SERVICES.get(name_of(spec.get("source") or {}))
    if service is None or spec.get("source", {}).get("type") != "service":
        return spec
    more: Json = {"primary_key": list(service.primary_key)} if service.primary_key else {}
    if spec["mode"] == "incremental" and service.cursor:
        more["cursor"] = service.cursor
    return {**more, **spec}


def request_of(name: str, said: Json, since: str | None) -> Json:
    """Return the first request: {"url", "path", "items", "params", "key"}. `said` are the fields of the job and its
    source."""
    service = SERVICES[name]
    values = {**service.values, **{key: str(value) for key, value in said.items() if _is_word(value)}}
    for key, words in service.words.items():
        if values.get(key) not in words:
            raise Indescribable(f"{key}: one of {', '.join(words)} expected, got {values.get(key, 'none')}")
        values[key] = words[values[key]]
    url = str(said.get("api_url") or service.url)
    if not url.startswith(("http://", "https://")):
        url = f"https://{url}" if url else ""
    if not url or not said.get(service.key):
        raise Indescribable(f"{'api_url' if not url else service.key}: the source of {name} needs it")
    values |= {} if since is None else {"since": since}
    params = {key: _filled(str(value), values) for key, value in service.params.items()}
    return {
        "url": url.rstrip("/"), "path": _safe(name, service.path, values), "items": _safe(name, service.items, values),
        "params": {key: value for key, value in params.items() if value is not None}, "key": str(said[service.key]),
    }  # fmt: skip


def _is_word(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool) and value != ""


def _filled(text: str, values: Mapping[str, str]) -> str | None:
    """None: a field of it is not known."""
    missing = [key for key in re.findall(r"\{(\w+)\}", text) if key not in values]
    return None if missing else re.sub(r"\{(\w+)\}", lambda match: values[match[1]], text)


def _safe(name: str, text: str, values: Mapping[str, str]) -> str:
    """Return a path whose fields lead nowhere else."""
    for key in re.findall(r"\{(\w+)\}", text):
        if key not in values:
            raise Indescribable(f"{key}: a sync from {name} needs it")
        if not _SAFE.fullmatch(values[key]):
            raise Indescribable(f"{key}: a name expected, got {values[key][:100]!r}")
    return _filled(text, values) or ""
