"""Runs of workers outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from horae.core.model import Loan, Moment, Phase, Reason
from horae.core.runs.orders import Kept, Lend


class Loans(Protocol):
    """Runs that workers outside Horae work on."""

    async def lend(
        self, kinds: Sequence[str], lend: Lend, run_id: int | None = None, org: int | None = None
    ) -> Loan | None:
        """As claim of one run of any of these kinds (or of that very run, if it is queued, whatever its kind), for a
        worker outside Horae: running, phase preparing, on loan until then. Runs that need labels or are pinned are
        not lent, unless asked for by id. So is one that is blocked(limit), if its limits allow it, and it asks for no
        more of an agent than a slot. With `org`, only runs of its jobs. None when there is none."""

    async def lend_made_for(self, kinds: Sequence[str], lend: Lend, org: int, pin: str, limit: int) -> list[Loan]:
        """As lend, of up to `limit` runs at once: of jobs of one organisation that were made for somebody by the RPC
        contract, those with this pin too. Also of those that are blocked(limit), as far as the limits allow, as
        `claim_demanding` starts them; not those that ask for more of an agent than a slot."""

    async def load_made_for(self, kinds: Sequence[str], pin: str, org: int, limit: int) -> list[int]:
        """Queued runs that lend_made_for could give out, the most urgent first."""

    async def renew_loan(
        self,
        run_id: int,
        attempt: int | None,
        lend: Lend,
        phase: Phase | None = None,
        progress: str | None = None,
        *,
        holder: str | None = None,
    ) -> bool | None:
        """Prolong a loan, change its worker; note the phase and what the worker said, where given. Answers whether
        somebody wants the run cancelled; None when it is not lent, or not under that `attempt` or to that `holder`."""

    async def pass_loan(self, loan: Loan, lend: Lend) -> bool:
        """Give a loan of which nothing is begun from its worker to another one, with the pin of `lend`, also none.
        False when somebody was faster."""

    async def load_kept(self, pin: str, limit: int) -> list[Kept]:
        """Queued runs that only workers outside Horae with this pin may have, the most urgent first."""

    async def mark_kept(self, run_ids: Sequence[int], pin: str, reason: Reason) -> None:
        """Say why they wait."""

    async def free_kept(self, run_ids: Sequence[int], pin: str) -> int:
        """Let everybody have those of them that nobody ever began; return how many."""

    async def load_loans(self, run_ids: Sequence[int] | None = None) -> list[Loan]:
        """Loans under way, of these runs or all of them, oldest first."""

    async def load_overdue_loans(self) -> list[Loan]:
        """Loans that ran out by the store's clock and are still running, of very many the oldest; what is left of
        ended ones is dropped."""

    async def return_loan(
        self,
        run_id: int,
        fence: int,
        start_by: Moment | None = None,
        *,
        pin: str | None = None,
        holder: str | None = None,
    ) -> bool:
        """Back to the queue, unstarted, for `pin` alone if given: the attempt does not count, and a run that was never
        begun must begin by `start_by` again. False when it is not lent under this fence, or not to that `holder`."""
