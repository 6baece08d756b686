"""Jobs as files: export writes them as people would, and edit opens one of them in an editor.

What must stay true: a file that was exported is submitted again without a difference, nothing is overwritten unless
asked for, and what somebody wrote in an editor is never lost.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated

import click

from horae.cli.jobfiles import naming, read_file
from horae.cli.options import Argument, JobArgument, Option
from horae.cli.progress import progress
from horae.cli.screen import Json, clean
from horae.cli.session import Session, command
from horae.errors import Error, Invalid, Stale

if TYPE_CHECKING:
    from horae.client import SyncClient

PAGE = 1000  # jobs that are read at once
MARK = "#! "  # begins the lines that say what is wrong with a file
_PLAIN_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


# ── export ──


def export(
    session: Session,
    jobs: Annotated[list[str], Argument(metavar="[JOB]...", help="Ids, keys or unique names of jobs.")] = [],  # noqa: B006
    every: Annotated[bool, Option("--all", help="All jobs.")] = False,
    out: Annotated[
        str, Option("--out", metavar="DIR", help="Directory to write into, a file for each job; - is stdout.")
    ] = "-",
    force: Annotated[bool, Option("--force", help="Overwrite files that exist.")] = False,
) -> None:
    """Write jobs as files that `horae submit` takes again.

    What Horae makes itself and what has its default is left out; secrets stay references. A job with a key stays the
    same job when it is submitted again.
    """
    if bool(jobs) == every:
        raise Invalid("give jobs, or --all for all of them", code="E_USAGE")
    with session.client() as client:
        found = _all_jobs(session, client) if every else [client.json.find_job(name) for name in jobs]
    documents = _written(found)
    if out == "-":
        _print(session, documents)
    else:
        _write(session, _named(found, documents), out, is_forced=force)
    _note_limits(session, found)


def _all_jobs(session: Session, client: SyncClient) -> list[Json]:
    """Oldest first, so that the same jobs always come in the same order."""
    found: list[Json] = []
    total = client.json.overview()["census"]["jobs"] if session.screen.is_terminal else None
    with progress(session.screen, "reading jobs", total) as advance:
        page: Json = {"cursor": None}
        while True:
            page = client.json.jobs(limit=PAGE, cursor=page["cursor"])
            found += page["items"]
            advance(len(page["items"]))
            if page["cursor"] is None:
                return sorted(found, key=lambda job: int(job["id"]))


def _written(jobs: list[Json]) -> list[Json]:
    from horae.core.written import written  # with cron and time zones

    return [written(job) for job in jobs]


def _print(session: Session, documents: list[Json]) -> None:
    if session.as_json:
        session.screen.json({"jobs": documents})
        return
    from horae.cli.jobs.yamltext import yaml_text

    for number, document in enumerate(documents):
        session.screen.line(("---\n" if number else "") + yaml_text(document).rstrip("\n"))


def _named(jobs: list[Json], documents: list[Json]) -> dict[str, Json]:
    """Return the documents by the name of their file: the key of the job, if it is fit for that, else name and id."""
    named: dict[str, Json] = {}
    for job, document in zip(jobs, documents, strict=True):
        name = job["key"] if job["key"] and _PLAIN_NAME.fullmatch(job["key"]) else None
        if name is None or f"{name}.yaml" in named:
            slug = re.sub(r"[^a-z0-9]+", "-", (job["key"] or job["name"]).lower()).strip("-")[:60]
            name = f"{slug}-{job['id']}".lstrip("-")
        named[f"{name}.yaml"] = document
    return named


def _write(session: Session, files: dict[str, Json], directory: str, *, is_forced: bool) -> None:
    from horae.cli.jobs.yamltext import yaml_text

    try:
        os.makedirs(directory, exist_ok=True)
        there = [name for name in files if os.path.lexists(os.path.join(directory, name))]
        if there and not is_forced:
            more = f" and {len(there) - 1} more exist" if len(there) > 1 else " exists"
            raise Error(f"{os.path.join(directory, there[0])}{more} already; nothing was written", code="E_FILE",
                        hint="give another directory, or --force")  # fmt: skip
        with progress(session.screen, "writing files", len(files)) as advance:
            for name, document in files.items():
                _put(os.path.join(directory, name), yaml_text(document))
                advance(1)
    except OSError as error:
        raise Error(f"{directory}: cannot be written: {error.strerror}", code="E_FILE") from None
    if session.as_json:
        session.screen.json({"directory": directory, "files": list(files)})
    else:
        session.screen.line(f"{len(files)} job{'' if len(files) == 1 else 's'} written to {clean(directory)}")


def _put(path: str, text: str) -> None:
    """Whole or not at all, whatever happens meanwhile."""
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}.new", path)


def _note_limits(session: Session, jobs: list[Json]) -> None:
    if keyless := sum(job["key"] is None for job in jobs):
        session.screen.note(f"{keyless} of {len(jobs)} have no key: to submit them again makes new jobs")
    if hidden := [job for job in jobs if "******" in str(job["spec"])]:
        session.screen.note(
            f"{len(hidden)} hold secrets, shown as ******: they are kept where the job is known, "
            "and must be filled in where it is not"
        )


# ── edit ──


def edit_job(session: Session, job: JobArgument) -> None:
    """Change a job in your editor: $VISUAL, else $EDITOR, else vi.

    The file is checked when you leave the editor, and opened again if something is wrong. Saved unchanged, nothing
    happens.
    """
    from horae.cli.jobs.yamltext import yaml_text

    with session.client() as client:
        found = client.json.find_job(job)
        before = yaml_text(_written([found])[0])
        path = _new_file(before, found)
        try:
            changed = _edited(session, client, found, path, before)
        except BaseException:
            session.screen.note(f"your text is kept in {path}")
            raise
    os.unlink(path)
    if session.as_json:
        session.screen.json(changed or found)
    elif changed is None:
        session.screen.line("nothing changed")
    else:
        session.screen.line(f"changed job {changed['id']} {clean(changed['name'])}: now version {changed['version']}")


def _new_file(text: str, job: Json) -> str:
    import tempfile  # only this command needs it

    handle, path = tempfile.mkstemp(prefix=f"horae-job-{job['id']}-", suffix=".yaml")
    with open(handle, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _edited(session: Session, client: SyncClient, job: Json, path: str, before: str) -> Json | None:
    """Let somebody edit until it is right; None where nothing was changed."""
    wrong = ""  # the text that could not be taken
    while True:
        _open_editor(path)
        text = _without_marks(path)
        if text == before:
            return None
        try:
            document = _checked(text)
            if not session.as_json:
                _show_difference(session, before, document)
            changed: Json = client.json.replace_job(job["id"], document, version=job["version"])
            return changed if changed["version"] != job["version"] else None
        except Stale as error:
            error.hint = f"somebody changed it meanwhile: `horae jobs edit {job['id']}` again, and take over your text"
            raise
        except Invalid as error:
            if text == wrong:  # left as it was: whoever cannot mend it wants to get out
                raise
            wrong = text
            _put(path, "".join(f"{MARK}{line}\n" for line in _words(error)) + text)


def _checked(text: str) -> Json:
    from horae.core.work import specs
    from horae.web import documents

    document: Json = documents.read_yaml(text.encode())
    specs.parse_job(document)
    return document


def _words(error: Error) -> list[str]:
    listed = error.listed()
    if len(listed) > 1:
        return [f"{one.path}: {one.message}{f' ({one.hint})' if one.hint else ''}" for one in listed]
    return [error.message, *([error.hint] if error.hint else [])]


def _without_marks(path: str) -> str:
    with naming(path):
        lines = read_file(path).decode("utf-8", "replace").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(MARK))


def _open_editor(path: str) -> None:
    import shlex
    import subprocess

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        code = subprocess.call([*shlex.split(editor), path])  # the user's own choice
    except (OSError, ValueError) as error:
        raise Error(f"the editor {editor!r} cannot be started: {error}", code="E_FILE", hint="set EDITOR") from None
    if code != 0:
        raise Error(f"the editor {editor!r} ended with {code}; nothing was changed", code="E_FILE")


def _show_difference(session: Session, before: str, document: Json) -> None:
    import difflib

    from horae.cli.jobs.yamltext import yaml_text

    lines = difflib.unified_diff(
        before.splitlines(), yaml_text(document).splitlines(), "before", "after", lineterm="", n=2
    )
    for line in lines:
        session.screen.line(clean(line))


def register(app: click.Group) -> None:
    command(app, "export", "horae export --all --out jobs")(export)
