"""A client of another user of this machine: `python -m tests.acceptance.stranger UID WAY PORT [HEADER=VALUE…]`.

It becomes that user first and connects then, so that its sockets are that user's. WAY is http, grpc (the calls of the
RPC contract) or agent (joins as one); it prints what it was told.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401  # needed to connect, and that user may not be able to read it
import os
import queue
import sys
from collections.abc import Callable
from http.client import HTTPConnection

import grpc

from horae.wire import CONNECT, PROTOCOL
from horae.wire.generated import agents_pb2 as agents
from horae.wire.generated import scheduling_pb2 as pb


def ask_http(port: int, headers: dict[str, str]) -> str:
    line = HTTPConnection("127.0.0.1", port, timeout=60)
    line.request("GET", "/v1/jobs", headers=headers)
    return str(line.getresponse().status)


def ask_grpc(port: int, headers: dict[str, str]) -> str:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        request = pb.RetrieveAllJobsRequest(user_id="ann").SerializeToString()
        call = channel.unary_unary("/horae.v1.Scheduling/RetrieveAllJobs", None, pb.Jobs.FromString)
        return _told(lambda: call(request, metadata=list(headers.items()), timeout=60, wait_for_ready=True))


def ask_agent(port: int, headers: dict[str, str]) -> str:
    hello = agents.Hello(
        lowest_protocol=PROTOCOL, highest_protocol=PROTOCOL, node="stranger", identity="i" * 32, session="s" * 32,
        kinds=["shell"], slots=1, version="1",
    )  # fmt: skip
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.stream_stream(CONNECT, agents.AgentFrame.SerializeToString, agents.ServerFrame.FromString)
        frames: queue.Queue[agents.AgentFrame] = queue.Queue()  # the stream stays open until the answer is there
        frames.put(agents.AgentFrame(id=1, hello=hello))
        return _told(
            lambda: next(call(iter(frames.get, None), metadata=list(headers.items()), timeout=60, wait_for_ready=True))
        )


def _told(ask: Callable[[], object]) -> str:
    try:
        ask()
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


if __name__ == "__main__":
    uid, way, port, *pairs = sys.argv[1:]
    os.setgroups([])
    os.setgid(int(uid))
    os.setuid(int(uid))
    headers = dict(pair.split("=", 1) for pair in pairs)
    print({"http": ask_http, "grpc": ask_grpc, "agent": ask_agent}[way](int(port), headers), flush=True)
    os._exit(0)  # gRPC's own threads may still wait for a frame
