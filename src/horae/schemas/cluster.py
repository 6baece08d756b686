"""Nodes, what they offer, and how the whole is."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from horae.schemas.basics import Count, Id, When
from horae.schemas.jobs import Resources, Trigger
from horae.schemas.runs import Run


class Node(Struct):
    name: str
    state: str
    roles: list[str]
    kinds: list[str]
    labels: list[str]
    slots: int
    busy: int
    version: str
    address: Annotated[str, Meta(description="Of its API; empty for a remote agent.")]
    started_at: When
    heartbeat_at: When
    via: Annotated[str, Meta(description="The node through which a remote agent comes in.")]
    wanted: Annotated[str, Meta(extra_json_schema={"enum": ["live", "cordoned", "drained"]})]
    segments: Annotated[int, Meta(ge=0, le=100, description="How many of the 100 segments it schedules.")]
    ailment: Annotated[
        str,
        Meta(description="What its machine is short of: it takes nothing new until it has some. Empty: it is well."),
    ]
    resources: Annotated[Resources, Meta(description="What runs may have of it beside slots.")] = {}
    free: Annotated[Resources, Meta(description="What of that was free when it last said so.")] = {}
    capacity: Annotated[dict[str, int], Meta(description="Slots of the kinds of work that it does.")] = {}
    evicted_at: Annotated[When | None, Meta(description="When an operator sent it off for good.")] = None


class Handler(Struct):
    """A Python handler of an agent."""

    name: Annotated[str, Meta(description="As a job names it.")]
    node: str
    kind: Annotated[str, Meta(description="async, plain or inline; empty where that cannot be told.")]
    version: Annotated[str, Meta(description="Of its code: the same on every node where that says the same.")]
    file: str
    loaded_at: Annotated[When | None, Meta(description="When a worker loaded this version, if one has.")]
    error: Annotated[str, Meta(description="Why it cannot be used; empty if it can.")]


class HandlerNode(Struct):
    """What a node with an agent told of its handlers."""

    name: str
    state: Annotated[
        str,
        Meta(
            description="silent: it did not answer in time. unknown: it cannot be asked.",
            extra_json_schema={"enum": ["listed", "silent", "unknown"]},
        ),
    ]
    note: Annotated[str, Meta(description="Why its handlers are not in the list, or not all; empty if they are.")]


class HandlerPage(Struct):
    items: list[Handler]
    nodes: Annotated[list[HandlerNode], Meta(description="Those that were asked, by name.")]
    cursor: None = None


class Segment(Struct):
    segment: Annotated[int, Meta(ge=0, le=99)]
    owner: str
    term: Count
    triggers: Annotated[Count, Meta(description="That have a moment ahead, as counted some seconds ago.")] = 0
    due_within_hour: Annotated[Count, Meta(description="Of these, those whose next moment comes within the hour.")] = 0


class Census(Struct):
    """How much of everything there is."""

    jobs: Count
    triggers: Count
    live: dict[str, int]
    oldest_due_at: When | None
    oldest_queued_at: When | None


class CatchUp(Struct):
    """What the node that answers has still to record of moments that were missed."""

    triggers: Count
    moments: Annotated[Count, Meta(description="About how many.")]


class Overview(Struct):
    """What the front page shows. `names` maps ids of jobs to their names; `unreadable` maps ids of triggers that the
    node that answers cannot fire to the reason."""

    at: When
    node: str
    census: Census
    nodes: list[Node]
    live: list[Run]
    recent: list[Run]
    due: list[Trigger]
    names: dict[str, str]
    catch_up: CatchUp
    unreadable: dict[str, str]


class NodePage(Struct):
    items: list[Node]
    cursor: None = None


class SegmentPage(Struct):
    items: list[Segment]
    cursor: None = None


class QueueFigures(Struct):
    """How a queue stands. Counts stop at some limit: then they say at least how much there is."""

    waiting: Annotated[Count, Meta(description="Runs that wait for an agent.")]
    waiting_is_cut: Annotated[bool, Meta(description="There are more.")]
    blocked: Annotated[dict[str, int], Meta(description="Runs that wait for something else, by reason.")]
    blocked_is_cut: Annotated[bool, Meta(description="There are more, of this queue or of others.")]
    running: Count
    oldest_due_at: Annotated[When | None, Meta(description="Due moment of what waits longest for an agent.")]
    oldest_wait_seconds: float | None
    in_last_minute: Annotated[Count, Meta(description="Runs that came.")]
    out_last_minute: Annotated[Count, Meta(description="Runs that ended.")]


class Queue(Struct):
    """Where runs wait for an agent."""

    name: str
    state: Annotated[str, Meta(extra_json_schema={"enum": ["open", "paused", "draining"]})]
    priority_offset: int
    labels: list[str]
    kinds: list[str]
    concurrency: int | None
    rate: str | None
    burst: int
    weights: dict[str, int]
    most_waiting: int | None
    org: Annotated[int | None, Meta(description="The organisation that it belongs to; null: it is for all.")]
    version: Count
    created_at: Annotated[When | None, Meta(description="Null for the default queue, which was always there.")]
    updated_at: When | None
    figures: QueueFigures | UnsetType = UNSET


class QueuePage(Struct):
    items: list[Queue]
    cursor: None = None


class Limit(Struct):
    """What holds for all runs that are counted together, and how it stands."""

    key: Annotated[str, Meta(description="Under which they are counted.")]
    name: Annotated[str, Meta(description="The same for people, such as: owner ann.")]
    per: Annotated[str, Meta(description="job, owner, queue, data.<path>; resource for what the cluster has.")]
    capacity: Annotated[int | None, Meta(description="Units that may be in use at once; null: any number.")]
    rate: Annotated[str | None, Meta(description="Starts, such as 100/min; null: as many as come.")]
    burst: Count
    used: Annotated[Count, Meta(description="Units in use.")]
    waiting: Annotated[Count, Meta(description="Runs that wait with it, for this or another limit.")]
    next_at: Annotated[When | None, Meta(description="When its rate allows the next start; null without a rate.")]
    runs: Annotated[list[Id], Meta(description="Some of those that use it.")]


class LimitPage(Struct):
    items: list[Limit]
    cursor: None = None


class Resource(Struct):
    """Something that the whole cluster has, counted."""

    name: str
    capacity: Count
    used: Count
    waiting: Annotated[Count, Meta(description="Runs that wait and want some of it.")]


class ResourcePage(Struct):
    items: list[Resource]
    cursor: None = None
