"""The directory of declarations: NNNN_name.yaml, found and read before anything of it is applied."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from horae.core.declarations import read_declaration
from horae.errors import ConfigError, Error
from horae.service.declarations import DeclarationFile
from horae.web import documents

_NAME = re.compile(r"([0-9]{4,8})_[A-Za-z0-9_-]+")
_ENDINGS = (".yaml", ".yml")


def read_declarations(directory: Path | None) -> list[DeclarationFile]:
    """The files in the order of their numbers; ConfigError names the first that cannot be used."""
    if directory is None:
        return []
    try:
        paths = sorted(path for path in directory.iterdir() if path.suffix in _ENDINGS and path.is_file())
    except OSError as error:
        raise ConfigError(f"the declarations in {directory} cannot be read: {error.strerror}") from None
    numbers: dict[int, Path] = {}
    for path in paths:
        match = _NAME.fullmatch(path.stem)
        if match is None:
            raise _refused(path, "a declaration is named as 0001_first_jobs.yaml")
        if (other := numbers.setdefault(int(match[1]), path)) is not path:
            raise _refused(path, f"{other.name} has the same number", hint="give each its own")
    return [_read(numbers[number]) for number in sorted(numbers)]


def _read(path: Path) -> DeclarationFile:
    try:
        content = path.read_bytes()
        return DeclarationFile(
            path.stem, hashlib.sha256(content).hexdigest(), read_declaration(documents.read_yaml(content))
        )
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror}") from None
    except Error as error:
        raise _refused(path, error.message, error.hint, error) from None


def _refused(path: Path, message: str, hint: str = "", cause: Error | None = None) -> ConfigError:
    problems = cause.problems if cause is not None else ()
    return ConfigError(f"{path}: {message}", hint=hint, path="declarations", problems=problems)
