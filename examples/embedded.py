"""A program with a scheduler of its own: no server, no ports. Run it with `python examples/embedded.py`."""

import asyncio

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
        run = await app.wait(await app.run_now(job, {"who": "Ada"}))
        print(f"run {run.id} {run.state}: {run.result}; next at {job.next_at:%H:%M} UTC")  # noqa: T201


asyncio.run(main())
