"""A database with three roles: who owns and migrates it, what servers work with, who looks."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import asyncpg

from horae.stores import migrate

from .conftest import with_database


class Roles(NamedTuple):
    """The names of the roles, and the address of the database as each of them."""

    names: tuple[str, str, str]
    superuser: str
    owner: str
    server: str
    reader: str

    async def tell(self, statement: str) -> None:
        """As the superuser."""
        await tell(self.superuser, statement)

    async def give_rights(self) -> None:
        await self.tell(migrate.roles_sql(*self.names))


async def tell(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def as_role(url: str, role: str) -> str:
    return url.replace("://postgres:", f"://{role}:").replace("://postgres@", f"://{role}:x@")


@asynccontextmanager
async def database_with_roles(server: str) -> AsyncIterator[Roles]:
    """Empty: nobody has migrated it."""
    number = uuid.uuid4().hex[:10]
    name, names = f"roles_{number}", (f"owner_{number}", f"server_{number}", f"reader_{number}")
    await tell(server, f"CREATE DATABASE {name}")
    url = with_database(server, name)
    roles = Roles(names, url, *(as_role(url, each) for each in names))
    await roles.give_rights()
    for each in names:
        await roles.tell(f"ALTER ROLE {each} PASSWORD 'x'")
    yield roles
    await tell(server, f"DROP DATABASE {name} WITH (FORCE)")
    for each in names:
        await tell(server, f"DROP OWNED BY {each}; DROP ROLE {each}")
