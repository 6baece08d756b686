"""The Python client, both twins: submit a job, run it, follow what it writes, read how it ended.

python examples/python_client.py                        SyncClient, for programs without asyncio
python examples/python_client.py --asyncio              Client, for programs with it
python examples/python_client.py http://127.0.0.1:9000  another server
"""

from __future__ import annotations

import asyncio
import sys

from horae import Client, SyncClient
from horae.errors import Error

JOB = {"name": "greeting", "key": "greeting", "steps": [{"run": 'echo "hello from run $HORAE_RUN_ID"'}]}


def run_greeting(url: str) -> bool:
    with SyncClient(url) as client:
        job = client.submit(JOB).jobs[0]
        run = client.run_now(job.id)
        for event in client.follow(run.id):
            if event.name == "log":
                sys.stdout.write(event.data["text"])
        ended = client.run(run.id)
    sys.stdout.write(f"run {ended.id} of {job.name} has {ended.state}\n")
    return ended.state == "succeeded"


async def run_greeting_with_asyncio(url: str) -> bool:
    async with Client(url) as client:
        job = (await client.submit(JOB)).jobs[0]
        run = await client.run_now(job.id)
        async for event in client.follow(run.id):
            if event.name == "log":
                sys.stdout.write(event.data["text"])
        ended = await client.run(run.id)
    sys.stdout.write(f"run {ended.id} of {job.name} has {ended.state}\n")
    return ended.state == "succeeded"


def main(words: list[str]) -> int:
    url = next((word for word in words if not word.startswith("--")), "http://127.0.0.1:8080")
    try:
        went_well = asyncio.run(run_greeting_with_asyncio(url)) if "--asyncio" in words else run_greeting(url)
    except Error as error:
        sys.stderr.write(f"{error.code}: {error.message} {error.hint}\n")
        return 1
    return 0 if went_well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
