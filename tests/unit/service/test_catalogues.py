"""Handlers of all nodes: what each told, and which could not."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from horae.core.model import Node, NodeState
from horae.core.work.catalogues import HandlerFact, HandlerList, Told
from horae.errors import Invalid, Unavailable
from horae.ports.outputs import Written
from horae.queues.local import LocalQueue
from horae.service.cluster.catalogues import Catalogues
from horae.service.local_node import LocalNode
from horae.service.metrics import Metrics

OWN, OTHER = (HandlerFact(name, "job.py", "plain", "0123456789ab") for name in ("jobs/own", "jobs/other"))


class Cluster:
    """Nodes, and what each of them answers: a list, nothing because it is older, an error, or never."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes = list(nodes)
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, str]] = []  # (server, node)

    async def list_nodes(self) -> list[Node]:
        return self.nodes

    async def list_handlers(self, server: Node, node: str) -> HandlerList | None:
        self.asked.append((server.name, node))
        return await self._answer(node)

    async def ask_agent(self, node: str) -> HandlerList | None:
        self.asked.append(("here", node))
        return await self._answer(node)

    async def _answer(self, node: str) -> HandlerList | None:
        answer = self.answers[node]
        if answer == "never":
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        assert answer is None or isinstance(answer, HandlerList)
        return answer

    async def read_output(self, node: Node, ref: str, offset: int, limit: int) -> bytes:
        raise NotImplementedError

    async def list_pieces(self, node: Node, ref: str, offset: int, limit: int) -> list[Written]:
        raise NotImplementedError

    async def close(self) -> None: ...


async def own() -> list[HandlerFact]:
    return [OWN]


def catalogues(cluster: Cluster) -> Catalogues:
    local = LocalNode(
        "here", ("api", "agent"), 1, 60.0, True, LocalQueue(), Metrics(), scanned_at=lambda: None, busy=lambda: 0,
        is_leader=lambda: True, handlers=own,
    )  # fmt: skip
    found = Catalogues(cluster, local, cluster, seconds=0.2)
    found.ask_agent = cluster.ask_agent
    return found


def node(name: str, **fields: Any) -> Node:
    made = Node(name, ("agent",), ("python",), (), 1, "1", "", started_at=0, heartbeat_at=0, beat=0, grpc=f"{name}:1")
    return replace(made, **fields)


async def test_every_agent_is_asked_through_the_server_that_reaches_it() -> None:
    near, far = node("near", grpc="", via="here"), node("far", grpc="", via="there")
    cluster = Cluster(node("here"), node("there"), near, far, node("api", roles=("api",)))
    cluster.answers = dict.fromkeys(("there", "near", "far"), HandlerList([OTHER], left_out=3))

    told = await catalogues(cluster).list()

    assert [(each.node, each.told, list(each.handlers.items), each.note) for each in told] == [
        ("far", Told.LISTED, [OTHER], "3 more do not fit"),
        ("here", Told.LISTED, [OWN], ""),
        ("near", Told.LISTED, [OTHER], "3 more do not fit"),
        ("there", Told.LISTED, [OTHER], "3 more do not fit"),
    ]
    assert sorted(cluster.asked) == [("here", "near"), ("there", "far"), ("there", "there")]


async def test_who_is_silent_or_cannot_tell_is_named_and_the_rest_is_listed() -> None:
    names = ("here", "deaf", "broken", "older", "good")
    cluster = Cluster(*map(node, names), node("shut", grpc=""), node("lost", grpc="", via="nobody"))
    cluster.answers = {"deaf": "never", "broken": Unavailable("no route"), "older": None, "good": HandlerList([OTHER])}

    told = {each.node: (each.told, each.note) for each in await catalogues(cluster).list()}

    assert told == {
        "broken": (Told.SILENT, "did not answer: no route"),
        "deaf": (Told.SILENT, "did not answer within 0.2 s"),
        "good": (Told.LISTED, ""),
        "here": (Told.LISTED, ""),
        "lost": (Told.UNKNOWN, "no server can be reached through which it comes in"),
        "older": (Told.UNKNOWN, "it is older than this question: upgrade it"),
        "shut": (Told.UNKNOWN, "it listens for no gRPC"),
    }


async def test_one_node_is_asked_alone_and_a_stranger_is_refused() -> None:
    gone = node("gone", state=NodeState.GONE)
    cluster = Cluster(node("here"), node("there"), gone, node("api", roles=("api",)), node("sh", kinds=("shell",)))
    cluster.answers = {"there": HandlerList([OTHER])}
    all_of_them = catalogues(cluster)

    assert [each.node for each in await all_of_them.list("there")] == ["there"]
    assert [(each.told, each.note) for each in await all_of_them.list("gone")] == [(Told.UNKNOWN, "it is gone")]
    assert [(each.told, each.note) for each in await all_of_them.list("api")] == [(Told.UNKNOWN, "it has no agent")]
    assert [(each.told, each.note) for each in await all_of_them.list("sh")] == [(Told.LISTED, "")]
    assert cluster.asked == [("there", "there")]
    with pytest.raises(Invalid, match="there is no node nobody"):
        await all_of_them.list("nobody")
