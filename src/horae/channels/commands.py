"""Messages to a command that whoever runs the server has named: JSON on its standard input."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

import msgspec

from horae.core.model import Json
from horae.ports.alerts import Undelivered

SECONDS = 60.0  # that it may take
SHOWN = 300  # characters of what it says


class Commands:
    async def run(self, program: str, message: Json, key: str) -> None:
        """Run it, without a shell; what it leaves behind in its group ends with it."""
        environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        environment |= {"HORAE_ALERT_ID": key, "HORAE_ALERT_RULE": str(message["rule"])}
        try:
            process = await asyncio.create_subprocess_exec(
                program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE, env=environment, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise Undelivered(f"the command cannot be run: {error.strerror}") from None
        try:
            async with asyncio.timeout(SECONDS):
                _, said = await process.communicate(msgspec.json.encode({**message, "id": key}))
        except TimeoutError:
            raise Undelivered(f"the command did not end in {SECONDS:g} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if process.returncode:
            words = " ".join(said.decode(errors="replace").split())[:SHOWN]
            raise Undelivered(f"the command ended with {process.returncode}{': ' * bool(words)}{words}")
