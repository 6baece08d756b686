"""What somebody sees who asked for a page and does not get it: what is wrong, by which code, and what to do."""

from __future__ import annotations

from horae.errors import Error
from horae.web import http
from horae.web.pages.shell import Shell, refused

TITLES = {
    403: "You may not see this",
    404: "There is nothing here",
    405: "That is not done here",
    422: "This address cannot be read",
    429: "Too often",
    503: "Not now",
}


class Failures:
    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def show(self, error: Error, request: http.Request) -> http.Reply:
        """Whoever is not known sees no more than the words."""
        values = {
            "title": TITLES.get(error.status, "That did not work"), "error": error, "request_id": request.id,
            "wrong": [one for one in error.listed() if one.path],
        }  # fmt: skip
        if request.who is None:
            return refused(self._shell.bare(request, "failure_bare.html", **values), error)
        return refused(self._shell.page(request, "failure.html", **values), error)
