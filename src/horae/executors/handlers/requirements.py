"""The packages that a handler says it needs: `requirements.txt` in its folder, else the dependencies of a
`pyproject.toml` there, else a block of script metadata (PEP 723) in the handler's own file:

    # /// script
    # dependencies = ["pandas==2.2.3"]
    # ///

Read in a worker, before anything of the handler is imported.
"""

from __future__ import annotations

import hashlib
import re
import sys
import tomllib
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from horae.discovery import MODULE, folder_of, modules_of
from horae.errors import Invalid
from horae.executors.handlers.sources import is_local
from horae.handlers import refused

LIST, PROJECT = "requirements.txt", "pyproject.toml"
LARGEST_BYTES = 1 << 20  # of a file that says so

_SCRIPT = re.compile(r"(?m)^# /// script[ \t]*$\s(?P<content>(?:^#(?:| .*)$\s)+)^# ///[ \t]*$")
_CLAUSE = re.compile(r"\s*(>=|<=|==|!=|~=|>|<)\s*(\d+(?:\.\d+)*)(\.\*)?\s*")
_PACKAGES = {"bs4": "beautifulsoup4", "cv2": "opencv-python", "dateutil": "python-dateutil", "PIL": "pillow",
             "sklearn": "scikit-learn", "yaml": "PyYAML"}  # modules that are not named as their package is  # fmt: skip


class Requirements(msgspec.Struct, frozen=True):
    """What is to be installed for a handler."""

    text: str  # as of a requirements.txt
    file: str  # that says so
    directory: str  # from which relative paths in it count

    @property
    def digest(self) -> str:
        """The same wherever the same is asked for; a path in it is one of its directory."""
        return hashlib.sha256(f"{self.directory}\0{self.text}".encode()).hexdigest()[:32]


def places_of(text: str, jobs_directory: Path | None) -> list[Path]:
    """Return the files in which a handler may say what it needs, the first that does counts; they may be missing."""
    folder = folder_of(text, jobs_directory)
    if folder is not None and jobs_directory is not None:
        own = [folder / f"{name}.py" for name in modules_of(folder.name, jobs_directory)]
        return [folder / LIST, folder / PROJECT, *own]
    match = MODULE.fullmatch(text)
    file = _file_of(match["module"]) if match else None
    return [] if file is None else [file]


def read_requirements(places: list[Path]) -> Requirements | None:
    """Return what the first of them asks for that asks for anything. Invalid names the one that cannot be read."""
    for path in places:
        if not path.is_file():
            continue
        try:
            data = path.read_bytes()
            text = data.decode() if len(data) <= LARGEST_BYTES else None
            lines = None if text is None and path.suffix == ".py" else _lines(path, text)
        except (OSError, ValueError) as error:  # of TOML and of UTF-8 too
            raise refused(f"what {path} requires cannot be read: {error}") from error
        if lines is not None:
            return Requirements(lines, str(path), str(path.parent))
    return None


def _lines(path: Path, text: str | None) -> str | None:
    """Return the requirements of one file, a line each; None when it has none."""
    if text is None:
        raise ValueError(f"it is larger than {LARGEST_BYTES // 1024} KiB")
    if path.name == LIST:
        return text
    if path.name == PROJECT:
        return _dependencies(path, tomllib.loads(text).get("project"))
    found = _SCRIPT.search(text)
    if found is None:
        return None
    content = (line[2:] if line.startswith("# ") else line[1:] for line in found["content"].splitlines())
    return _dependencies(path, tomllib.loads("\n".join(content)))


def _dependencies(path: Path, table: Any) -> str | None:
    if not isinstance(table, dict):
        return None
    needed = table.get("requires-python")
    if isinstance(needed, str) and not _fits(needed, sys.version_info[:3]):
        have = ".".join(map(str, sys.version_info[:3]))
        raise ValueError(f"it wants Python {needed}, and workers here have {have}")
    lines = table.get("dependencies")
    if lines is None:
        return None
    if not isinstance(lines, list) or not all(isinstance(one, str) and "\n" not in one for one in lines):
        raise ValueError('dependencies are a list of texts, for example ["pandas==2.2.3"]')
    return "".join(f"{line}\n" for line in lines)


def _fits(wanted: str, version: tuple[int, ...]) -> bool:
    """Return whether a version of Python is among those wanted; what cannot be read is no reason to refuse."""
    for clause in wanted.split(","):
        match = _CLAUSE.fullmatch(clause)
        if match is None:
            continue
        parts = tuple(int(part) for part in match[2].split("."))
        length = len(parts) if match[3] or match[1] != "==" else len(version)
        have, asked = version[: max(length, len(parts))], parts
        is_fit = {
            ">=": version >= asked, "<=": have <= asked, ">": have > asked, "<": version < asked,
            "==": have == asked, "!=": have != asked,
            "~=": version >= asked and version[: len(parts) - 1] == parts[:-1],
        }[match[1]]  # fmt: skip
        if not is_fit:
            return False
    return True


def _file_of(module: str) -> Path | None:
    """Return the file of a module of an author, as far as that can be told without importing anything."""
    places: list[str] | None = sys.path
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = PathFinder.find_spec(name, places) if places is not None else None
        if spec is None:
            return None
        places = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
    file = Path(spec.origin) if spec is not None and spec.origin else None
    return file if file is not None and file.suffix == ".py" and is_local(str(file.parent)) else None


class Lacking(NamedTuple):
    """A package that a handler imports and has not."""

    package: str
    file: Path  # where it belongs
    where: str  # the same, as its author names it
    asked: Requirements | None  # what the handler says it needs


def lacking(error: BaseException | None, text: str, jobs_directory: Path | None) -> Lacking | None:
    """Return the package for want of which a handler could not be imported, if that is what is wrong."""
    while error is not None and not isinstance(error, ModuleNotFoundError):
        error = error.__cause__ or error.__context__
    if error is None or not error.name:
        return None
    module = error.name.partition(".")[0]
    places = places_of(text, jobs_directory)
    if not places or module.startswith("horae") or module in sys.stdlib_module_names:
        return None
    try:
        asked = read_requirements(places)
    except Invalid:
        asked = None
    file = Path(asked.file) if asked is not None else places[0]
    where = f"jobs/{file.parent.name}/{file.name}" if folder_of(text, jobs_directory) else str(file)
    return Lacking(_PACKAGES.get(module, module), file, where, asked)


def advice(error: BaseException | None, text: str, jobs_directory: Path | None) -> str:
    """Return where to put a package that a handler imports and has not; nothing if that is not what is missing."""
    found = lacking(error, text, jobs_directory)
    if found is None:
        return ""
    block = " (# /// script)" if found.file.suffix == ".py" else ""
    return f"add `{found.package}` to {found.where}{block}"
