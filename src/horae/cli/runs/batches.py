"""Many runs by one command: a run for each line of a file, and runs that are run again."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NamedTuple

from horae.cli.options import Argument, OfJob, Option
from horae.cli.progress import progress
from horae.cli.screen import Json, clean, local_time, name_of_job
from horae.cli.session import Session
from horae.cli.when import read_when
from horae.errors import Error, Invalid, TooLarge

if TYPE_CHECKING:
    from horae.client import SyncClient

BATCH = 1000  # orders in one request
BATCH_BYTES = 8 << 20  # of their data
MAX_LINE = 512 * 1024  # bytes: more than a run may have as its data
MAX_ARRAY = 256 << 20  # bytes of a JSON array, which is read whole
SHOWN = 20  # refusals that are told one by one


class Line(NamedTuple):
    """One run that is wanted: where it stands, and its data, or why it is none."""

    number: int
    data: Json | None
    size: int = 0
    error: str = ""


# ── a run for each line ──


def run_file(session: Session, client: SyncClient, job: Json, name: str) -> int:
    """Ask for a run with each of the data in a file; returns the exit code."""
    told: Counter[str] = Counter()
    refused: list[Json] = []
    with open_data(name) as file:
        size = _size_of(file)
        with progress(session.screen, f"running {job['name']}", size, of_bytes=size is not None) as advance:
            _run_lines(client, job, file, lambda lines, read: advance(lines if size is None else read), told, refused)
    refused.sort(key=lambda one: int(one["line"]))
    _say(session, told, refused)
    return 1 if refused else 0


def _run_lines(
    client: SyncClient, job: Json, file: BinaryIO, advance: Callable[[int, int], None], told: Counter[str],
    refused: list[Json],
) -> None:  # fmt: skip
    """Order a run for each line; `advance` is told of how many lines, and how many bytes were read for them."""
    read = 0
    for batch in batches(read_lines(file)):
        good = [line for line in batch if line.data is not None]
        refused += [{"line": line.number, "error": line.error} for line in batch if line.data is None]
        orders = [{"job": job["id"], "data": line.data} for line in good]
        for line, answer in zip(good, client.json.run_many(orders) if orders else [], strict=True):
            if "error" in answer:
                refused.append({"line": line.number, "error": answer["error"]["detail"]})
            else:
                told[_outcome(answer["run"])] += 1
        before, read = read, file.tell() if file.seekable() else 0
        advance(len(batch), read - before)


def _size_of(file: BinaryIO) -> int | None:
    """Return how many bytes a regular file has; nobody knows it of another."""
    found = os.fstat(file.fileno())
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def open_data(name: str) -> BinaryIO:
    if name == "-":
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    try:
        return open(name, "rb")
    except OSError as error:
        raise Error(f"{name}: cannot be read: {error.strerror}", code="E_FILE") from None


def read_lines(file: BinaryIO) -> Iterator[Line]:
    """A JSON object on each line, or one array of them; empty lines count, and are left out."""
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if not line.strip():
            continue
        if number == 1 and line.lstrip()[:1] == b"[":
            yield from _read_array(line + file.read(MAX_ARRAY + 1))
            return
        if len(line) > MAX_LINE:
            yield Line(number, None, error=f"longer than {MAX_LINE} bytes")
            while len(line) > MAX_LINE:
                line = file.readline(MAX_LINE + 1)
            continue
        yield _read_line(number, line)


def _read_line(number: int, text: bytes) -> Line:
    try:
        return _line(number, json.loads(text), len(text))
    except (ValueError, RecursionError) as error:
        return Line(number, None, error=f"not JSON: {error}")


def _read_array(text: bytes) -> Iterator[Line]:
    if len(text) > MAX_ARRAY:
        raise TooLarge(f"an array of more than {MAX_ARRAY} bytes", hint="write an object on each line instead")
    try:
        items = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"not a JSON array: {error}", code="E_JSON_SYNTAX") from None
    share = len(text) // max(1, len(items))
    for number, item in enumerate(items, 1):
        yield _line(number, item, share)


def _line(number: int, value: Any, size: int) -> Line:
    if isinstance(value, dict):
        return Line(number, value, size)
    return Line(number, None, error=f"data is a JSON object, got {json.dumps(value)[:60]}")


def batches(lines: Iterable[Line]) -> Iterator[list[Line]]:
    batch: list[Line] = []
    size = 0
    for line in lines:
        if batch and (len(batch) == BATCH or size + line.size > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += line.size
    if batch:
        yield batch


def _outcome(run: Json) -> str:
    return f"{run['state']} ({run['reason']})" if run["reason"] else str(run["state"])


def _say(session: Session, told: Counter[str], refused: list[Json], of: str = "line") -> None:
    """Counted by outcome; what was refused is named."""
    if session.as_json:
        session.screen.json({"runs": sum(told.values()), "outcomes": dict(told), "refused": refused})
        return
    counted = ", ".join(f"{count} {outcome}" for outcome, count in told.most_common())
    count = sum(told.values())
    session.screen.line(f"{count} run{'' if count == 1 else 's'}: {counted}" if counted else "no runs")
    for one in refused[:SHOWN]:
        session.screen.note(f"{of} {one[of]}: {one['error']}")
    if refused:
        more = f", the first {SHOWN} are shown" if len(refused) > SHOWN else ""
        session.screen.note(f"{len(refused)} refused{more}")


# ── runs that are run again ──


def rerun(
    session: Session,
    runs: Annotated[list[str], Argument(metavar="[RUN]...", help="Ids of runs.")] = [],  # noqa: B006
    job: OfJob = None,
    state: Annotated[
        str | None, Option("--state", metavar="LIST", help="Such as failed,timed_out, which is the default.")
    ] = None,
    since: Annotated[
        str | None, Option("--since", metavar="WHEN", help="Due since: 30m, 2h, 1d, a time or a date.")
    ] = None,
    until: Annotated[str | None, Option("--until", metavar="WHEN", help="Due before: as --since.")] = None,
    node: Annotated[str | None, Option("--node", metavar="NAME", help="Only what ran on this node.")] = None,
    attempted_by: Annotated[
        str | None,
        Option("--attempted-by", metavar="NODE", help="Only those of which any attempt was given to this node."),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show what would be run again.")] = False,
    yes: Annotated[bool, Option("--yes", help="Do not ask.")] = False,
) -> int:
    """Run runs again, each with the data and the priority that it had.

    Name them, or say which with --job, --state, --since, --until, --node and --attempted-by: there a task of a workflow
    stands for the whole of it. More than one is asked for first, on a
    terminal. The overlap policy of the job holds: under `forbid`, one runs and the others are skipped.
    """
    where = {
        "job": job, "state": state.split(",") if state else None, "node": node,
        "attempted_by": attempted_by,
        "due_from": read_when("--since", since) if since else None,
        "due_until": read_when("--until", until) if until else None,
    }  # fmt: skip
    given = {name: value for name, value in where.items() if value is not None}
    if bool(runs) == bool(given):
        raise Invalid(
            "name runs, or say which by --job, --state, --since, --until, --node or --attempted-by", code="E_USAGE"
        )
    with session.client() as client:
        if job is not None:
            given["job"] = client.json.find_job(job)["id"]
        planned = client.json.rerun(_ids(runs) or None, dry_run=True, **given)["items"]
        wanted = [item["run_id"] for item in planned if "run" in item]
        if dry_run:
            return _show_plan(session, planned)
        if not wanted or not _is_meant(session, planned, is_sure=yes):
            return _say_again(session, [item for item in planned if "error" in item])
        items = [item for item in planned if "error" in item]
        # What was shown is what is run: ids, and not the filter a second time.
        items += _run_again(session, client, wanted)
    return _say_again(session, items)


def _run_again(session: Session, client: SyncClient, wanted: list[int]) -> list[Json]:
    items: list[Json] = []
    with progress(session.screen, "running again", len(wanted)) as advance:
        for begin in range(0, len(wanted), BATCH):
            part = wanted[begin : begin + BATCH]
            try:
                items += client.json.rerun(part)["items"]
            except Error:
                session.screen.note(f"{len(items)} of {len(wanted)} runs were asked for before this")
                raise
            advance(len(part))
    return items


def _ids(runs: Iterable[str]) -> list[int]:
    wrong = next((run for run in runs if not (run.isascii() and run.isdecimal() and 0 < int(run[:19]) < 2**63)), None)
    if wrong is not None:
        raise Invalid(f"RUN must be the id of a run, a whole number; got {wrong!r}", code="E_USAGE")
    return [int(run) for run in runs]


def _show_plan(session: Session, planned: list[Json]) -> int:
    if session.as_json:
        session.screen.json({"items": planned, "dry_run": True})
    else:
        _show(session, planned, len(planned))
    return 1 if any("error" in item for item in planned) else 0


def _show(session: Session, planned: list[Json], most: int) -> None:
    good = [item["run"] for item in planned if "run" in item]
    rows = [
        [str(run["id"]), name_of_job(run), run["state"], local_time(run["due_at"]),
         json.dumps(run["data"], ensure_ascii=False) if run["data"] is not None else ""]
        for run in good[:most]
    ]  # fmt: skip
    session.screen.table([">run", "job", "state", "due", "data?"], rows, "no runs to run again")
    for item in islice((item for item in planned if "error" in item), SHOWN):
        session.screen.note(f"run {item['run_id']}: {item['error']['detail']}")


def _is_meant(session: Session, planned: list[Json], *, is_sure: bool) -> bool:
    count = sum("run" in item for item in planned)
    if is_sure or count == 1 or session.as_json or not sys.stdin.isatty():
        return True
    _show(session, planned, SHOWN)
    sys.stderr.write(f"run {count} runs again? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _say_again(session: Session, items: list[Json]) -> int:
    if session.as_json:
        session.screen.json({"items": items})
        return 1 if any("error" in item for item in items) else 0
    made = [item["run"] for item in items if "run" in item]
    if len(made) == 1:
        session.screen.line(f"run {made[0]['id']} {_outcome(made[0])}: run {_of(items, made[0])} again")
    refused = [{"run": item["run_id"], "error": item["error"]["detail"]} for item in items if "error" in item]
    if len(made) != 1 or refused:
        _say(session, Counter(map(_outcome, made)), refused, "run")
    return 1 if refused else 0


def _of(items: list[Json], run: Json) -> str:
    return clean(str(next(item["run_id"] for item in items if item.get("run") is run)))
