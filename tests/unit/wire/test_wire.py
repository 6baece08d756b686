"""The wire: generated code is that of the .proto files, nobody loads it who does not speak, urgent frames overtake."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from horae.wire.outbox import Outbox, Urgency

SOURCE = Path(__file__).parents[3] / "src"
PROTOS = [SOURCE / "horae" / "wire" / "horae" / "v1", SOURCE / "horae" / "wire" / "cis"]
GENERATED = SOURCE / "horae" / "wire" / "generated"


def test_the_generated_code_is_fresh(tmp_path: Path):
    names = [f"horae/wire/generated/{path.name}" for place in PROTOS for path in sorted(place.glob("*.proto"))]
    places = [f"-Ihorae/wire/generated={place}" for place in PROTOS]
    argv = [sys.executable, "-m", "grpc_tools.protoc", *places]
    subprocess.run([*argv, f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", *names], check=True)

    made = {path.name: path.read_text() for path in (tmp_path / "horae" / "wire" / "generated").iterdir()}
    kept = {path.name: path.read_text() for path in GENERATED.glob("*_pb2.py*")}
    assert kept == made, "run `make wire`"


@pytest.mark.parametrize("module", ["horae.cli", "horae.app.process"])
def test_nobody_loads_grpc_before_it_is_needed(module: str):
    """It takes a tenth of a second, which every command and every start would wait for."""
    code = f"import sys, {module}; sys.exit(any(name.split('.')[0] in ('grpc', 'google') for name in sys.modules))"

    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


async def test_what_is_urgent_overtakes_and_the_rest_stays_in_order():
    outbox = Outbox()
    for number in range(3):
        outbox.put(b"output %d" % number, Urgency.OUTPUT)
        outbox.put(b"request %d" % number)
    outbox.put(b"beat", Urgency.BEAT)

    assert [await outbox.get() for _ in range(7)] == [
        b"beat", b"request 0", b"request 1", b"request 2", b"output 0", b"output 1", b"output 2",
    ]  # fmt: skip


async def test_a_closed_outbox_gives_nothing_more():
    outbox = Outbox()
    waiting = asyncio.create_task(outbox.get())
    await asyncio.sleep(0)
    outbox.close()
    outbox.put(b"late")

    assert await waiting is None
    assert await outbox.get() is None
