"""Pages that explain: the API from its own document, and what sentences of explanations mean."""

from __future__ import annotations

import json
import re
from typing import Any

from horae.core import model
from horae.core.insight.why.codes import CODES as EXPLAINED
from horae.core.insight.why.codes import PAGE
from horae.core.roles import Permission
from horae.errors import CODES
from horae.web import http, openapi
from horae.web.pages.shell import HTML, Drawn, Shell


class Documentation:
    def __init__(self, shell: Shell, api: openapi.Api) -> None:
        self._shell = shell
        self._api = api
        self._drawn = Drawn()
        self._shown: dict[str, Any] | None = None
        shell.add_filter("kind", _schema_words)

    def operations(self) -> list[http.Operation]:
        op = http.Operation
        return [
            op("GET", "/docs", self.docs, "pages", "This documentation", HTML, needs=Permission.READ),
            op("GET", PAGE, self.explain, "pages", "What explanations mean", HTML, needs=Permission.READ),
            op(
                "GET",
                "/openapi.json",
                self.openapi,
                "pages",
                "The OpenAPI document",
                "application/json",
                needs=Permission.READ,
            ),
        ]

    async def docs(self, request: http.Request) -> http.Answer:
        """It is the same for all, and long: it is drawn once."""
        if self._shown is None:
            document = self._api.document
            self._shown = {"document": document, "groups": _grouped(document), "codes": CODES}
        return self._shell.shared_page(request, "docs.html", self._drawn, self._shown)

    async def explain(self, request: http.Request) -> http.Answer:
        return self._shell.page(request, "explain.html", codes=EXPLAINED.values())

    async def openapi(self, request: http.Request) -> http.Answer:
        return http.reply(200, self._api.document)


def _grouped(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Operations by tag, each with its method, path and an example call."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            shown = {**operation, "method": method.upper(), "path": path, "curl": _curl(method, path, operation)}
            groups.setdefault(operation["tags"][0], []).append(shown)
    return groups


def _curl(method: str, path: str, operation: dict[str, Any]) -> str:
    address = re.sub(r"{\w+_id}", "1", path).replace("{path}", "page.css")
    parts = ["curl -sS"] if method == "get" else [f"curl -sS -X {method.upper()}"]
    parts.append(f'"$HORAE{address}"')
    if "requestBody" in operation:
        example = operation["requestBody"]["content"]["application/json"]["example"]
        parts += ["-H 'Content-Type: application/json'", f"-d '{json.dumps(example)}'"]
    return " ".join(parts)


def _schema_words(schema: dict[str, Any]) -> str:
    """Return the type of a schema in a word or two."""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "enum" in schema:
        return " | ".join("null" if word is None else str(word) for word in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_schema_words(each) for each in schema["anyOf"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_schema_words(schema.get('items', {}))}"
    words = " or ".join(kind) if isinstance(kind, list) else str(kind)
    limits = _limits(schema)
    return f"{words} {limits}" if limits else words


def _limits(schema: dict[str, Any]) -> str:
    if "minimum" in schema and "maximum" in schema:
        most = "2⁶³−1" if schema["maximum"] == model.LARGEST_ID else schema["maximum"]
        return f"{schema['minimum']}…{most}"
    if "maxLength" in schema:
        return f"≤ {schema['maxLength']} characters"
    return f"({schema['format']})" if "format" in schema else ""
