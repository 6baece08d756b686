"""One job, one folder: this file holds its logic, what belongs to it lies beside it.

Start Horae with this directory as its jobs directory and submit

    name: refresh codebooks
    handler: jobs/refresh_codebooks
    schedule: "0 4 * * *"
    data: {codebooks: [countries, currencies]}
"""

from horae.handlers import Context, Retry, handler

from .lines import finished, started


@handler(name="refresh_codebooks")
async def refresh(context: Context) -> dict[str, int]:
    """Take over the codebooks named in the data; without names there is nothing to do yet."""
    names = context.data.get("codebooks", [])
    if not names:
        raise Retry(after=60, message="no codebooks are published yet")
    for done, name in enumerate(names, start=1):
        context.log(started(name))
        context.progress(done, len(names), finished(name))
    return {"refreshed": len(names)}
