"""Handlers know the addresses of their own runs: what they are given makes those, and no others."""

from __future__ import annotations

import pytest

from horae import handler
from horae.context import Context
from horae.core.runs.orders import Assignment
from horae.errors import Conflict
from horae.links.frames import read_assignment
from horae.rpc.agents.frames import _assignment
from horae.service.jobs.callbacks import RunKeys
from horae.testing import run_handler, world


def claimed(run_id: int, kind: str = "python") -> Assignment:
    return Assignment(run_id, 1, 1, 1, None, 0, kind, "job", "{}", "{}", None)


def context(given: Assignment) -> Context:
    return Context(None, given.run_id, 1, 1, 1, "job", 0, {}, {}, callbacks=given.callbacks)  # type: ignore[arg-type]


async def key() -> str:
    return "the key of the installation"


async def test_each_run_has_addresses_of_its_own_that_stay():
    keys = RunKeys(key, "https://jobs.example.org")
    one, other, shell = await keys.provide([claimed(1), claimed(2), claimed(3, "shell")])
    again = (await RunKeys(key, "https://jobs.example.org").provide([claimed(1)]))[0]

    address = context(one).callback_url("paid")

    assert address.startswith("https://jobs.example.org/v1/callbacks/1/paid/")
    assert address == context(again).callback_url("paid")
    tokens = {url.rpartition("/")[2] for url in (address, context(one).callback_url("sent"))}
    assert context(other).callback_url("paid").rpartition("/")[2] not in tokens
    assert len(tokens) == 2
    assert shell.callbacks is None


async def test_a_remote_agent_is_given_the_same():
    [given] = await RunKeys(key, "http://a").provide([claimed(1)._replace(root=9)])
    assert given.root == 9
    assert read_assignment(_assignment(given)) == given
    assert read_assignment(_assignment(claimed(1))).callbacks is None


async def test_where_the_key_does_not_open_nobody_asks_again_and_the_handler_says_what_to_do():
    asked = []

    async def refused() -> str:
        asked.append(1)
        raise Conflict("another key is needed", code="E_SECRET_KEY")

    keys = RunKeys(refused, "http://a")
    for _ in range(3):
        [given] = await keys.provide([claimed(1)])
    assert len(asked) == 1
    with pytest.raises(RuntimeError, match="public_url"):
        context(given).callback_url("paid")


def test_a_name_that_is_none_is_refused():
    @handler
    def ask(context: Context) -> str:
        return context.callback_url("a/b")

    assert "letters, digits" in run_handler(ask).message


def test_tests_have_addresses_too():
    @handler
    def ask(context: Context) -> str:
        return context.callback_url("paid")

    assert run_handler(ask).result.startswith("http://horae.test/v1/callbacks/1/paid/")
    with world() as horae:
        run = horae.run_now(horae.submit({"name": "ask", "handler": ask}))
        assert run.result.startswith(f"http://horae.test/v1/callbacks/{run.id}/paid/")
