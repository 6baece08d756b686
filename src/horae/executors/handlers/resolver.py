"""Handlers as a worker loads them: from files that are still what they were, in the environment that they need."""

from __future__ import annotations

from pathlib import Path

import msgspec

from horae.core.model import State
from horae.discovery import folder_of, resolve
from horae.errors import Invalid
from horae.executors.handlers.catalogue import folder_version
from horae.executors.handlers.messages import ELSEWHERE, STALE, End, Load, Setup
from horae.executors.handlers.requirements import Requirements, advice, places_of, read_requirements
from horae.executors.handlers.sources import Sources, version_of
from horae.handlers import Handler


class Stale(Exception):
    """The code of this process is no longer what the files say."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class Elsewhere(Exception):
    """The handler needs another environment than this process has."""

    def __init__(self, wanted: Requirements | None) -> None:
        super().__init__()
        self.wanted = wanted


class Resolver:
    """Loads handlers on first use. Failures are not remembered: the author may mend the file."""

    def __init__(self, setup: Setup) -> None:
        self._jobs = None if setup.jobs_directory is None else Path(setup.jobs_directory)
        self._environment = setup.environment
        self._found: dict[str, Handler] = {}
        self._loads: list[Load] = []
        self._sources = Sources()
        self._sources.install()

    def __call__(self, text: str) -> Handler:
        """Raises Stale when the files changed while they were loaded: what is here may be a mixture."""
        found = self._found.get(text)
        if found is None:
            try:
                found = self._load(text)
            finally:
                if path := self._sources.settle():
                    raise Stale(path)
            self._found[text] = found
        return found

    def changed(self) -> str:
        """Return a file that is no longer what was loaded, if there is one."""
        return self._sources.changed()

    def take_loads(self) -> list[Load]:
        """Return what was loaded since the last call."""
        taken, self._loads = self._loads, []
        return taken

    def advice(self, error: BaseException, text: str) -> str:
        """Return what to do about an import that is missing."""
        return advice(error, text, self._jobs)

    def _load(self, text: str) -> Handler:
        self._check_environment(places_of(text, self._jobs))
        folder = folder_of(text, self._jobs)
        version = "" if folder is None else folder_version(folder)
        try:
            if folder is not None:
                self._sources.read_folder(folder)
            found = resolve(text, self._jobs)
        except OSError as error:
            raise Invalid(f"the code of {text} cannot be read: {error}", code="E_HANDLER") from error
        except Invalid as error:
            error.hint = self.advice(error, text) or error.hint
            self._loads.append(
                Load(text, version, error=f"{error.message} ({error.hint})" if error.hint else error.message)
            )
            raise
        file, function = found.source
        kind = "inline" if found.inline else "async" if found.is_async else "plain"
        self._loads.append(Load(text, version or version_of(Path(file).parent, [file]), function, file, kind))
        return found

    def _check_environment(self, places: list[Path]) -> None:
        """What other handlers need is none of our business: their files do not make us stale."""
        asked = Sources()
        for path in places:
            asked.note(path)
        wanted = read_requirements(places)
        if changed := asked.settle():
            raise Stale(changed)
        if (wanted.digest if wanted else "") != self._environment:
            raise Elsewhere(wanted)
        for path in places:
            self._sources.note(path)


def stale(run_id: int, path: str) -> End:
    """Return the end of a call that is to be made elsewhere, by newer code."""
    return End(run_id, State.QUEUED, STALE, path)


def elsewhere(run_id: int, wanted: Requirements | None) -> End:
    """Return the end of a call that is to be made in another environment."""
    return End(run_id, State.QUEUED, ELSEWHERE, msgspec.json.encode(wanted).decode())
