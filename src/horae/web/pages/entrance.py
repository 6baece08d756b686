"""The forms of logging in: who one is, the first password, and letting a program in."""

from __future__ import annotations

from typing import Any

from horae.errors import Error
from horae.service import Services
from horae.web import http
from horae.web.pages.shell import Shell, refused


class Entrance:
    def __init__(self, services: Services, shell: Shell) -> None:
        self._logins = services.logins
        self._shell = shell

    def login(
        self, request: http.Request, error: Error | None, following: str, *, was_tried: bool = True,
        is_anew: bool = False,
    ) -> http.Reply:  # fmt: skip
        """Return the form; who has tried to log in is told why that was refused."""
        is_anew = is_anew or (error is not None and error.code == "E_REAUTH")
        told = error if was_tried or is_anew else None
        answer = self._shell.bare(
            request, "login.html", told=told, following=following, is_anew=is_anew,
            has_provider=self._logins.provider is not None,
        )  # fmt: skip
        return _told(answer, error)

    def invitation(self, request: http.Request, error: Error | None, text: str) -> http.Reply:
        """Return the form that sets a password."""
        return _told(self._shell.bare(request, "invitation.html", told=error, invitation=text), error)

    def device(self, request: http.Request, error: Error | None = None, **values: Any) -> http.Reply:
        """Return the form that lets a program in."""
        shown = {"decided": "", "found": None, "code": "", **values}
        return _told(self._shell.page(request, "device.html", told=error, **shown), error)


def _told(answer: http.Reply, error: Error | None) -> http.Reply:
    """Return a form; whoever was refused by it gets the status of that, too."""
    return answer if error is None else refused(answer, error)
