"""How news, runs and results get from one process to another.

Queue           wakes a waiting agent when a run is queued; a hint, never truth  (queues/)
WorkPublisher   tells agents behind a broker of queued runs                      (queues/publisher)
EventPublisher  keeps events for others to read                                  (queues/publisher)
Link            how an agent reaches the service: claim, finish, beat            (service/execution, links/)
Peers           other servers of the cluster                                     (links/peers)
OutsideWorkers  workers that registered by a contract and are called by HTTP     (links/outside)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from horae.core.model import Json, Node, Phase
from horae.core.runs.holdings import Fenced, Holding
from horae.core.runs.orders import Assignment, Queued, Result
from horae.core.signs import Beat, Terms
from horae.core.work.catalogues import HandlerList
from horae.ports.outputs import Written


class Watch(Protocol):
    """One listener's memory of a topic."""

    async def wait(self, seconds: float) -> bool:
        """True as soon as there was an announcement since the last True; False when the time is over."""

    @property
    def is_due(self) -> bool:
        """Whether there was an announcement since the last True."""


Topic = Literal[
    "runs",  # queued runs for agents
    "due",  # moments for schedulers
    "waiting",  # blocked runs for the sweep
    "cancel",  # running runs that shall stop, and nodes of which something is wanted
    "nodes",  # somebody came or went
    "queues",  # what queues there are, and what they are like
    "inbox",  # work that was handed over in a transaction of somebody's own
    "limits",  # runs that demand more than a slot
    "units",  # what such runs wait for: some of it may be free
    "endings",  # ends of runs for which others wait (ports.store.endings)
    "alerts",  # of what somebody is to be told
    "events",  # something happened; said within this process only, for it happens all the time
]
OWN_TOPICS: frozenset[Topic] = frozenset({"events"})  # which other processes are not told


class Queue(Protocol):
    """Wakes whoever waits for something to do. May lose, repeat and reorder."""

    def announce(self, topic: Topic) -> None:
        """Something of this topic has changed; cheap, never blocks, may be merged with others."""

    def watch(self, topic: Topic) -> Watch:
        """Listen from now on. Every announcement wakes every watch; one that is dropped is forgotten."""


class WorkPublisher(Protocol):
    """Tells agents that reach nothing but the broker of queued runs. Raises Unavailable when that is away, and then
    some may have been published: every message has an id, and a repeat is harmless."""

    @property
    def connections(self) -> int:
        """How many there were: what was published over an earlier one may be lost, because the broker may have been."""

    async def prepare(self, kinds: Sequence[str]) -> None:
        """Make places from which agents take the messages of these kinds of work."""

    async def publish_runs(self, runs: Sequence[Queued]) -> None:
        """One message per run and attempt, for one agent that can do its kind."""

    async def call_agents(self) -> None:
        """Ask every agent to look for runs."""


class Message(NamedTuple):
    """An event, for others to read of."""

    kind: str  # of core.events.KINDS
    name: str  # the same whenever it is published again
    document: Json  # a CloudEvent


class EventPublisher(Protocol):
    """Keeps events where others can read them."""

    async def publish_events(self, events: Sequence[Message]) -> None:
        """Return when they are kept. Unavailable: some may be; a repeat is harmless."""


class Link(Protocol):
    """What an agent may ask of the service. The same over a network or within one process."""

    async def hello(self, node: Node, held: Collection[Fenced] = ()) -> Terms | None:
        """Join. Everything this node held under an earlier life is given back, except attempts that it has taken up or
        of which it holds a result. Returns the terms; None within one process, where they are known."""

    async def take_up(self, node: Node) -> None:
        """Be a node that has joined in an earlier life: beats and questions may come before hello."""

    async def claim(self, room: Mapping[str, int], free: Mapping[str, int] | None = None) -> list[Assignment]:
        """Runs for free slots: at most so many of each kind. Those that ask for more get it of what else is `free`
        (core.policy.resources)."""

    async def finish(self, results: Sequence[Result]) -> set[int]:
        """Report attempts; returns the run ids that were accepted."""

    async def note_phases(self, phases: Sequence[tuple[int, int, Phase]]) -> None:
        """As Store.set_phases, of runs that this node holds."""

    async def note_progress(self, notes: Sequence[tuple[int, int, str]]) -> None:
        """As Store.note_progress, of runs that this node holds."""

    async def beat(self, busy: int, held: Holding | None = None, free: Mapping[str, int] | None = None) -> Beat | None:
        """As Store.beat, but in doubt when what is held was found to differ from the books beat after beat."""

    async def note_ailment(self, ailment: str) -> None:
        """As Store.note_ailment, of this node."""

    async def wait(self, topic: Topic, seconds: float) -> bool:
        """Until there may be runs to claim ("runs") or to kill ("cancel"); False when the time is over."""

    async def load_previous(self, job_ids: Sequence[int]) -> dict[int, str]:
        """As Store.load_previous."""

    async def disown(self, held: Collection[Fenced]) -> set[Fenced]:
        """Give back every attempt that is ours in the service's books but not among those we hold: a claim
        whose answer was lost. Returns those we hold that are not ours in the books."""

    async def goodbye(self) -> None: ...


class Peers(Protocol):
    """The other servers of the cluster."""

    async def read_output(self, node: Node, ref: str, offset: int, limit: int) -> bytes:
        """As OutputReader.read, of another node. Unavailable names it when it does not answer."""

    async def list_pieces(self, node: Node, ref: str, offset: int, limit: int) -> list[Written]:
        """As OutputReader.written, of another node; none of one that is older than the question."""

    async def list_handlers(self, server: Node, node: str) -> HandlerList | None:
        """Ask a server for its own handlers, or for those of an agent that comes in through it. None when it cannot
        tell, being older than the question; Unavailable when it does not answer soon."""

    async def close(self) -> None: ...


class Reply(NamedTuple):
    status: int
    document: Any  # what the body says as JSON; None where it says nothing, or something else

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300


NOT_SENT = "E_NOT_SENT"  # of Unavailable: the worker was not reached, so nothing was done

OWN_PORT = "E_OWN_PORT"  # of Denied: the address is one of ours


class OutsideWorkers(Protocol):
    """Calls workers outside Horae at the address that they registered."""

    async def post(self, address: str, path: str, document: Json, *, trusted: bool, seconds: float = 5.0) -> Reply:
        """Send a document to `path` at `address` (host:port). Denied where this worker may not be called: on a port of
        ours, or beyond loopback unless it is `trusted` (it registered with a token). Unavailable when no whole answer
        came in `seconds`: then what was asked for may have been done, unless its code is NOT_SENT."""
