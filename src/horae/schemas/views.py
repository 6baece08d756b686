"""What the API shows to whoever looks at things as a whole: logs by line, time as a picture, settings in force."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from horae.schemas.basics import Count, Id, Problem, When
from horae.schemas.runs import Run


class LogLine(Struct):
    """A line of a log, and where it begins."""

    line: Annotated[Count, Meta(description="Its number, counted from 1.")]
    offset: Annotated[Count, Meta(description="Its first byte.")]
    text: Annotated[str, Meta(description="Its first 500 characters.")]


class LogBlock(Struct):
    """Where a line begins, every 64 KiB or so."""

    line: Count
    offset: Count


class LogIndex(Struct):
    """Where lines lie in a part of a log."""

    attempt: Count
    state: Annotated[str, Meta(description="The state of the run.")]
    blocks: list[LogBlock]
    heads: Annotated[list[LogLine], Meta(description="Lines that begin or end a step, 1,000 at most.")]
    first_error: Annotated[LogLine | None, Meta(description="The first line here that speaks of an error.")]
    next_offset: Annotated[Count, Meta(description="Where to go on,")]
    next_line: Annotated[Count, Meta(description="and the number of the line that begins there.")]
    is_end: Annotated[bool, Meta(description="Whether this is all there is as yet.")]
    size: Annotated[Count | None, Meta(description="Bytes of the whole log, where its end was seen.")]


class LogTime(Struct):
    """A piece of a log that was stored at once."""

    offset: Annotated[Count, Meta(description="Its first byte.")]
    at: Annotated[
        When,
        Meta(
            description="When it was stored, by the clock of the store: within a quarter of a second after an agent of "
            "that machine wrote it; what comes from elsewhere, when it came in."
        ),
    ]


class LogTimes(Struct):
    """When pieces of a log were stored."""

    attempt: Count
    items: Annotated[list[LogTime], Meta(description="In order; fewer than the limit: this is all there is as yet.")]


class LogMatches(Struct):
    """Lines of a part of a log that hold a text."""

    attempt: Count
    items: list[LogLine]
    next_offset: Count
    next_line: Count
    is_end: bool


class Cancel(Struct):
    """What became of the wish to cancel a run."""

    run_id: Id
    run: Annotated[Run | UnsetType, Meta(description="As it is now.")] = UNSET
    error: Problem | UnsetType = UNSET


class CancelAnswers(Struct):
    items: list[Cancel]


class TimelineRun(Struct):
    """A run on its row; one that is only expected has no id."""

    start_at: Annotated[When, Meta(description="When it began, or is due.")]
    end_at: Annotated[When | None, Meta(description="When it ended, or is likely to; null: it goes on.")]
    state: Annotated[str, Meta(description="The state of the run, or `expected`.")]
    id: Id | UnsetType = UNSET


class TimelineRow(Struct):
    """A job."""

    job_id: Id
    name: str
    runs: Annotated[list[TimelineRun], Meta(description="The newest 300, then the next 300 that are expected.")]
    count: Annotated[Count, Meta(description="Runs that were found, or about as many, and moments that come.")]


class TimelineLoad(Struct):
    """How much is going on in a part of the time."""

    start_at: When
    running: Annotated[float, Meta(description="Runs at once: at most or, of very many, on average.")]
    is_expected: bool


class TimelineMark(Struct):
    """Something that is foreseen."""

    start_at: When
    end_at: When
    what: Annotated[str, Meta(extra_json_schema={"enum": ["shortage", "clash"]})]
    text: str


class Timeline(Struct):
    """Jobs as rows, time as the axis."""

    start_at: When
    end_at: When
    now: When
    slots: Annotated[Count, Meta(description="Slots of the nodes that live.")]
    rows: Annotated[list[TimelineRow], Meta(description="The busiest jobs first.")]
    jobs: Annotated[Count, Meta(description="Jobs that were found in this time.")]
    is_cut: Annotated[bool, Meta(description="Whether there is more than was looked at.")]
    load: list[TimelineLoad]
    marks: list[TimelineMark]


class Setting(Struct):
    """A setting of the node that answers."""

    name: str
    value: Annotated[str, Meta(description="As text; passwords are masked.")]
    source: Annotated[str, Meta(description="Where the value comes from: a flag, a variable, a file, the default.")]
    help: str


class SettingPage(Struct):
    node: str
    items: list[Setting]


class Leader(Struct):
    """Who leads the cluster."""

    node: Annotated[str | None, Meta(description="null while nobody does.")]
    term: Annotated[Count, Meta(description="How often somebody was elected.")]


SHOWN = (
    Cancel, CancelAnswers, Leader, LogBlock, LogIndex, LogLine, LogMatches, LogTime, LogTimes, Setting, SettingPage,
    Timeline, TimelineLoad, TimelineMark, TimelineRow, TimelineRun,
)  # fmt: skip
