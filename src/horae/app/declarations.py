"""The directory of declarations: NNNN_name.yaml, found and read before anything of it is applied."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from horae import discovery
from horae.contracts.admin.declarations import read_declaration
from horae.core.work.specs import Draft
from horae.errors import ConfigError, Error, Problem
from horae.service.jobs.declarations import DeclarationFile
from horae.web import documents

_NAME = re.compile(r"([0-9]{4,8})_[A-Za-z0-9_-]+")
_ENDINGS = (".yaml", ".yml")


def read_declarations(directory: Path | None) -> list[DeclarationFile]:
    """Return the files in the order of their numbers; ConfigError names the first that cannot be used."""
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


def refuse_missing_handlers(files: Sequence[DeclarationFile], jobs_directory: Path | None) -> None:
    """ConfigError names every job that all files together come to whose handler is not here. An agent elsewhere may
    have it: so this stops nothing, it is for who checks."""
    declared: dict[str | None, Draft] = {}
    for file in files:
        declared |= {draft.key: draft for draft in file.declaration.drafts}
        declared = {key: draft for key, draft in declared.items() if key not in file.declaration.deleted}
    missing = [
        Problem(draft.name, "E_HANDLER", f"JobType {_job_type(draft)}: there is no handler {draft.spec['handler']}")
        for draft in declared.values()
        if draft.kind == "python" and not discovery.is_there(draft.spec["handler"], jobs_directory)
    ]
    if missing:
        where = f"the jobs directory is {jobs_directory}" if jobs_directory else "there is no jobs directory"
        count = f"{len(missing)} declared job{'' if len(missing) == 1 else 's'}"
        raise ConfigError(
            f"{count} without a handler: {', '.join(problem.path for problem in missing)}",
            hint=f"{where}; the handler of MyJob is MyJob/__init__.py, MyJob/job.py or MyJob/MyJobHandler.py in it",
            path="declarations",
            problems=missing,
        )


def _job_type(draft: Draft) -> str:
    return str((draft.annotations.get("admin") or {}).get("job_type") or draft.spec["handler"])


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
