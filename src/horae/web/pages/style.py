"""Every component of the pages, in every state: to look at while one changes them."""

from __future__ import annotations

from horae.core.roles import Permission
from horae.web import http
from horae.web.pages.samples import samples
from horae.web.pages.shell import HTML, Shell
from horae.web.pages.words import MARKS


class StylePage:
    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def operations(self) -> list[http.Operation]:
        return [
            http.Operation(
                "GET", "/style", self.show, "pages", "Every component of the pages", HTML, needs=Permission.READ
            )
        ]

    async def show(self, request: http.Request) -> http.Answer:
        return self._shell.page(request, "style.html", states=list(MARKS), **samples())
