"""The secrets of one attempt, on the side of its agent: put into its spec, and hidden in all that comes out of it.

Executors see a spec without references and an output like any other, so no kind of work has to think of secrets.

What must stay true: what leaves the agent (output, message, result; not the files that a job hands over as artifacts)
has passed through here; values live as long as the attempt and are written nowhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import BinaryIO

import msgspec

from horae.core.runs.orders import Result
from horae.core.secrets import masking, references
from horae.ports.outputs import Output
from horae.ports.work import Work

MAKE_ASIDE_CHARACTERS = 8 << 10  # characters of secrets from which on their forms are made beside the event loop
SEARCH_ASIDE_BYTES = 4 << 10  # bytes of output from which on they are searched beside the event loop
SILENCE_SECONDS = 0.5  # seconds of silence after which the reader of a log sees what was held back


class Secrecy:
    def __init__(self, given: str | None, others: Iterable[str] = ()) -> None:
        """`given` is Assignment.secrets; `others` are texts that must be hidden as well."""
        self._values: dict[str, str | None] = msgspec.json.decode(given) if given else {}
        named = (value for value in self._values.values() if value is not None)
        texts = [*named, *others]
        self._hides = bool(texts)
        self._forms = _forms_of(texts)

    def cover(self, work: Work, ref: str) -> str:
        """Make the work ready; return why it cannot be, if a secret is missing. `ref` names its output."""
        missing = sorted(name for name in references.names_in(work.spec) if self._values.get(name) is None)
        if missing:
            return "; ".join(references.missing_words(name, self._values) for name in missing)
        known: Mapping[str, str] = {name: value for name, value in self._values.items() if value is not None}
        work.spec = references.filled(work.spec, known)
        work.assignment = work.assignment._replace(secrets=None, source=None)
        if self._hides:
            work.output = MaskedOutput(work.output, self._forms, ref)
        return ""

    def hide_json(self, text: str) -> str:
        return masking.mask_json(text, self._forms())

    def hide(self, result: Result) -> None:
        result.message = masking.mask(result.message, self._forms())
        if result.result is not None:
            result.result = self.hide_json(result.result)


def _forms_of(texts: list[str]) -> Callable[[], masking.Forms]:
    """Those of many lines take a while: they are made beside the event loop while the work gets ready. Whoever needs
    them sooner waits."""
    if sum(map(len, texts)) < MAKE_ASIDE_CHARACTERS:
        forms = masking.forms_of(texts)
        return lambda: forms
    maker = ThreadPoolExecutor(1, "forms")
    made = maker.submit(masking.forms_of, texts)
    maker.shutdown(wait=False)
    return made.result


class MaskedOutput:
    """An Output that hides secrets in what is written. Much of it is searched in a thread, one piece after the other;
    until that is done the writer should pause, and what it writes all the same waits its turn."""

    def __init__(self, output: Output, forms: Callable[[], masking.Forms], ref: str) -> None:
        self._output = output
        self._forms = forms
        self._ref = ref
        self._is_used = False
        self._timer: asyncio.TimerHandle | None = None
        self._waiting = bytearray()
        self._search: asyncio.Task[None] | None = None
        self._resume: Callable[[], None] | None = None  # a writer that pauses

    @cached_property
    def _masker(self) -> masking.Masker:
        return masking.Masker(self._forms())

    @property
    def is_full(self) -> bool:
        return self._output.is_full

    @property
    def has_gaps(self) -> bool:
        return self._output.has_gaps

    @property
    def ref(self) -> str | None:
        return self._ref if self._is_used else None  # also while all of it is held back

    def when_free(self, resume: Callable[[], None]) -> bool:
        if self._search is None:
            return self._output.when_free(resume)
        self._resume = resume
        return True

    def write(self, data: bytes) -> None:
        self._is_used = self._is_used or bool(data)
        self._forget_timer()
        if (
            self._search is None and len(data) < SEARCH_ASIDE_BYTES and "_masker" in vars(self)
        ):  # else its forms may not be ready
            self._put(self._masker.feed(data))
            return
        self._waiting += data
        if self._search is None:
            self._search = asyncio.create_task(self._search_waiting())

    async def _search_waiting(self) -> None:
        while self._waiting:
            data = bytes(self._waiting)
            self._waiting.clear()
            self._put(await asyncio.to_thread(self._feed, data))
        self._search = None
        if self._resume is not None:
            resume, self._resume = self._resume, None
            resume()

    def _feed(self, data: bytes) -> bytes:
        return self._masker.feed(data)

    def _put(self, hidden: bytes) -> None:
        self._output.write(hidden)
        if self._masker.is_holding and not self._waiting:
            self._forget_timer()
            self._timer = asyncio.get_running_loop().call_later(SILENCE_SECONDS, self._release)

    async def attach(self, number: int, file: BinaryIO, size: int, path: str) -> int:
        """As it is: whoever asks for a file as an artifact wants its bytes."""
        return await self._output.attach(number, file, size, path)

    def _release(self) -> None:
        self._timer = None
        self._output.write(self._masker.release())

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def close(self) -> None:
        if self._search is not None:
            await self._search
        self._forget_timer()
        self._output.write(self._masker.flush())
        await self._output.close()
