"""The credentials of agents: how one joins, how its secret is replaced, and what the audit log has of it.

    horae_j_…   a token to join by: good once, for minutes
       │        the agent makes a secret and keeps it, then asks with its verifier
       ▼
    horae_a_…   its own credential: the same row for ever, whose secret is replaced now and then

What must stay true: the secret of an agent is made by the agent, and known to it before it is to anybody else, so
whichever side dies in between, asking again with the same verifier comes to the same. A join token makes one
credential. The old secret is good until the new one was used. Agents of the release before send hashes in the place of
verifiers; who has once sent a verifier never goes back.
"""

from __future__ import annotations

from horae import verifiers
from horae.core.audit import Deed
from horae.core.model import ANY, JOIN, SECOND, Bounds, Token
from horae.errors import Denied, Invalid
from horae.service.access import Access, AccessStore
from horae.service.audit import Audit
from horae.wire.nats.proofs import Proof


class AgentAccess:
    def __init__(self, access: Access, store: AccessStore, audit: Audit, *, renewed_after: float) -> None:
        """`renewed_after`: seconds that an agent has the same secret."""
        self._access, self._store, self._audit = access, store, audit
        self._renewed_after = renewed_after
        self.still_good = access.still_good

    async def admit(self, text: str | None, peer: str) -> Token:
        """Return the token of an agent: its own, or one to join by."""
        scope = JOIN if text is not None and text.startswith("horae_j_") else "agent"
        return await self._access.check(text, scope, peer)

    async def prove(self, proof: Proof, peer: str) -> Token:
        return await self._access.check_proof(proof, "agent", peer)

    async def redeem(self, token: Token, node: str, identity: str, hash: str, peer: str) -> Token:
        """Return the credential of an agent that joins; of its secret this is kept. By a join token of before, which
        may be proved by what the database has of it, nobody comes to a credential that has a verifier by now."""
        _check(hash)
        if verifiers.is_verifier(hash) and not verifiers.is_verifier(token.hash):
            raise Denied(
                f"the join token {token.id} is of before, and makes a credential of before alone",
                code="E_JOIN_TOKEN",
                hint="make another with `horae nodes join-token`",
            )
        bounds = token.bounds or Bounds(ANY)
        wanted = Token(
            id=0, name=node, scope="agent", owner=token.owner, hash=hash, created_at=0, parent_id=token.id,
            bounds=Bounds(node, bounds.kinds, bounds.labels, bounds.resources), org=token.org,
        )  # fmt: skip
        async with self._audit.watch(_deed(token, "join", node, peer)):
            credential = await self._store.redeem_token(wanted, await self._store.now(), identity)
        if credential is None:
            raise Denied(
                f"somebody has joined with the join token {token.id} already",
                code="E_JOIN_USED",
                hint="make another with `horae nodes join-token`; if it was not you who used it, evict who did",
            )
        if self._access.state_of(credential) != "good":
            raise Denied("the credential that this join token made was revoked", code="E_JOIN_TOKEN")
        self._access.doubt_agents()
        return credential

    async def renew(self, token: Token, node: str, hash: str, peer: str) -> None:
        """Take what is to be kept of the secret that an agent will have next."""
        _check(hash)
        if verifiers.is_verifier(token.hash) and not verifiers.is_verifier(hash):
            raise Invalid(
                "a credential of now is renewed by a verifier, ed25519:…, and not by a hash",
                code="E_PATTERN",
                hint="start the agent with the release that it joined with, or a newer one",
            )
        async with self._audit.watch(_deed(token, "renew", node, peer)):
            if not await self._store.renew_token(token.id, hash):
                raise Denied("only a credential that is good has a next secret", code="E_JOIN_TOKEN")
        self._access.doubt_agents()

    async def renewal_in(self, token: Token | None) -> float | None:
        """Return in how many seconds an agent shall have a new secret; None: never, it did not join by itself."""
        if token is None or token.renewed_at is None:
            return None
        age = (await self._store.now() - token.renewed_at) / SECOND
        return max(0.0, self._renewed_after - age)

    async def refuse(self, node: str, peer: str, code: str) -> None:
        """An agent may not come in."""
        await self._audit.refuse(
            Deed("", address=peer, operation="agent join", kind="node", subject=node, via=f"agent {node}"), code
        )


def _deed(token: Token, verb: str, node: str, peer: str) -> Deed:
    return Deed(token.owner, token.org, f"token {token.id}", peer, operation=f"agent {verb}", kind="node", subject=node)


def _check(hash: str) -> None:
    if not verifiers.is_kept(hash):
        raise Invalid(
            "of a secret is kept ed25519: and 64 hexadecimal digits, or, of an agent of before, the digits alone",
            code="E_PATTERN",
        )
