"""Services of the shape of those that syncs know, on this machine: each with its own paging, key and place of rows."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

KEY = "t0p-secret-key"
ROWS = 250


class Services:
    """`orders` are those of the shop; `asked` are the requests that came with the right key."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []
        self.orders = [{"id": n, "name": f"order {n}", "updated_at": moment(n)} for n in range(1, ROWS + 1)]

    def answer(self, path: str, headers: Any) -> tuple[Any, str]:
        """(body, the next page, as a header says it)."""
        url = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        service, rows = self._service(url.path, query, headers)
        if service is None:
            return None, ""
        self.asked.append(path)
        begin = int(query.get("after") or query.get("start") or query.get("from") or 0)
        size = 100
        if service == "cmc":  # counts from one
            size, begin = int(query["limit"]), begin - 1
        if service == "tiktok":
            begin = (int(query.get("page", 1)) - 1) * size
        page, more = rows[begin : begin + size], begin + size < len(rows)
        bare = f"{self.url}{url.path}?from={begin + size}"
        bodies = {
            "hubspot": {"results": page, **({"paging": {"next": {"after": str(begin + size)}}} if more else {})},
            "shopify": {"orders": page},
            "cmc": {"data": page, "status": {"total_count": len(rows)}},
            "facebook": {"data": page, "paging": {"next": f"{bare}&access_token={KEY}"} if more else {}},
            "tiktok": {"data": {"list": page, "page_info": {"total_page": -(-len(rows) // size)}}},
        }
        return bodies[service], f'<{bare}>; rel="next"' if service == "shopify" and more else ""

    def _service(self, path: str, query: dict[str, str], headers: Any) -> tuple[str | None, list[Any]]:
        since = query.get("updated_at_min", "")
        new = [order for order in self.orders if str(order["updated_at"]) >= since]
        known = {
            "/crm/v3/objects/contacts": ("hubspot", headers.get("Authorization") == f"Bearer {KEY}", many()),
            "/admin/api/2025-01/orders.json": ("shopify", headers.get("X-Shopify-Access-Token") == KEY, new),
            "/v1/cryptocurrency/listings/latest": ("cmc", headers.get("X-CMC_PRO_API_KEY") == KEY, many(1500)),
            "/v21.0/act_7/campaigns": ("facebook", query.get("access_token") == KEY, many()),
            "/open_api/v1.3/campaign/get/": (
                "tiktok", headers.get("Access-Token") == KEY and query.get("advertiser_id") == "9", many(),
            ),
        }  # fmt: skip
        name, may, rows = known.get(path, ("", False, []))
        return (name, rows) if may else (None, [])


def many(count: int = ROWS) -> list[Any]:
    return [{"id": str(number), "name": f"row {number}"} for number in range(count)]


def moment(number: int) -> str:
    return f"2026-01-{1 + number // 24:02}T{number % 24:02}:00:00+00:00"


@contextmanager
def running_services() -> Iterator[Services]:
    services = Services()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            found, link = services.answer(self.path, self.headers)
            body = json.dumps(found).encode()
            self.send_response(401 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if link:
                self.send_header("Link", link)
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    services.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield services
    finally:
        server.shutdown()
        server.server_close()
