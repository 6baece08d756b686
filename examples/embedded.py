"""A program with a scheduler of its own: no server, no ports. Run it with `python examples/embedded.py`."""

import asyncio
from datetime import datetime

import horae
from horae import Context, handler


@handler(inline=True)
async def greet(context: Context) -> str:
    """Runs in the loop of this program, and may use whatever it has."""
    context.log(f"hello {context.data['who']}")
    return f"greeted {context.data['who']}"


async def main() -> None:
    async with horae.embedded(data=".horae-embedded", handlers=[greet]) as app:
        job = await app.submit(
            {"name": "greet", "key": "greet", "handler": greet, "schedule": "0 2 * * *", "data": {"who": "the night"}}
        )
        run = await app.run_now(job, {"who": "Ada"})
        run = await app.wait(run)
        print(f"run {run.id} {run.state}: {run.result}")
        print(await app.log(run), end="")
        assert isinstance(job.next_at, datetime)
        print(f"the next one is due at {job.next_at:%H:%M}")


asyncio.run(main())
