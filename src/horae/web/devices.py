"""The page on which a user lets a program in that shows a code: `horae login` (service/access/devices.py)."""

from __future__ import annotations

from typing import Any, Protocol

from horae.core.roles import Permission
from horae.errors import Error
from horae.service import Services
from horae.web import auditing, http, params
from horae.web.sessions import FORM_BYTES, read_form


class Pages(Protocol):
    def device(self, request: http.Request, error: Error | None = None, **values: Any) -> http.Reply: ...


class DevicePages:
    def __init__(self, services: Services, pages: Pages) -> None:
        self._devices, self._audit, self._pages = services.devices, services.audit, pages

    def operations(self) -> list[http.Operation]:
        op, html = http.Operation, "text/html"
        code = params.text("code", "The code that the program shows.", 32)
        return [
            op("GET", "/device", self.show, "pages", "The page to let a program in", html, params=(code,),
               is_dangerous=True, needs=Permission.READ),
            op("POST", "/device", self.decide, "pages", "Let a program in, or not, by a form", html, errors=(403, 409),
               needs=Permission.READ, is_dangerous=True),
        ]  # fmt: skip

    async def show(self, request: http.Request) -> http.Answer:
        code = request.args["code"]
        if code is None:
            return self._pages.device(request)
        try:
            return self._pages.device(request, found=await self._devices.find(code, http.principal(request)), code=code)
        except Error as error:
            if not http.wants_page(request):
                raise
            return self._pages.device(request, error)

    async def decide(self, request: http.Request) -> http.Answer:
        """Takes a form with `code` and `decision`: approve or deny."""
        form = read_form(await request.read(FORM_BYTES))
        is_approved = form.get("decision") == "approve"
        try:
            await self._devices.decide(form.get("code", ""), http.principal(request), is_approved=is_approved)
        except Error as error:
            if not http.wants_page(request):
                raise
            await auditing.note_page(self._audit, error, request)
            return self._pages.device(request, error)
        return self._pages.device(request, decided="approved" if is_approved else "denied")
