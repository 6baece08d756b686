"""Services by their descriptions: what is asked of each, and what is refused."""

from __future__ import annotations

import pytest

from horae.core.model import Json
from horae.core.work import services
from horae.core.work.services import Indescribable, completed, request_of

SHOPIFY: Json = {"api_url": "shop.example.org/", "access_token": "t", "table_name": "orders"}


def test_a_description_is_filled_with_the_fields_of_job_and_source() -> None:
    assert request_of("shopify", SHOPIFY, "2026-01-01") == {
        "url": "https://shop.example.org", "path": "admin/api/2025-01/orders.json", "items": "orders",
        "params": {"limit": "250", "updated_at_min": "2026-01-01"}, "key": "t",
    }  # fmt: skip
    first = request_of("shopify", {**SHOPIFY, "api_version": "2024-07"}, None)
    assert (first["path"], first["params"]) == ("admin/api/2024-07/orders.json", {"limit": "250"})
    deals = request_of("hubspot", {"api_key": "k", "sub_type": "deal", "api_url": "http://127.0.0.1:1"}, None)
    assert (deals["url"], deals["path"]) == ("http://127.0.0.1:1", "crm/v3/objects/deals")


@pytest.mark.parametrize(
    ("name", "said", "words"),
    [
        ("shopify", {**SHOPIFY, "table_name": "../../oauth"}, "table_name: a name expected"),
        ("shopify", {**SHOPIFY, "table_name": "a?b"}, "table_name: a name expected"),
        ("shopify", {**SHOPIFY, "access_token": ""}, "access_token: the source of shopify needs it"),
        ("shopify", {"access_token": "t"}, "api_url: the source of shopify needs it"),
        ("facebook_ads", {"access_token": "t", "table_name": "ads"}, "account_id: a sync from facebook_ads needs it"),
        (
            "hubspot",
            {"api_key": "k", "sub_type": "engagement"},
            "one of contact, company, deal expected, got engagement",
        ),
    ],
)
def test_what_a_description_cannot_say_is_refused_with_the_field(name: str, said: Json, words: str) -> None:
    with pytest.raises(Indescribable, match=words.replace(".", r"\.")):
        request_of(name, said, None)


def test_a_sync_is_completed_with_the_cursor_and_the_key_of_the_service() -> None:
    spec = {"source": {"type": "service", "service": "shopify"}, "mode": "incremental"}
    assert completed(spec) == {**spec, "cursor": "updated_at", "primary_key": ["id"]}
    assert completed({**spec, "mode": "full"}) == {**spec, "mode": "full", "primary_key": ["id"]}
    other = {"source": {"type": "service", "name": "mongo_db"}, "mode": "full"}
    assert completed(other) == other


@pytest.mark.parametrize("name", services.SERVICES)
def test_every_description_is_whole(name: str) -> None:
    service = services.SERVICES[name]
    assert service.sent_as[0] in ("bearer", "header", "query")
    assert service.paging["type"] in ("cursor", "header_link", "offset", "json_link", "page_number")
    assert service.path
    assert service.items
