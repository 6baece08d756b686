"""What every store must do for users, organisations, sessions and devices: on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from horae.core.identity import EVERYWHERE, Device, Session, User, UserKind
from horae.core.model import SECOND, Token
from horae.core.roles import Role
from horae.ports.store import Store
from horae.testing import START

ISSUER = "https://id.example.org"


async def add(store: Store, name: str = "ann", identity: tuple[str, str] | None = None, **fields: object) -> User:
    made = await store.add_user(User(0, name, created_at=START, **fields), identity)  # type: ignore[arg-type]
    assert made is not None
    return made


async def test_a_user_is_found_by_id_name_and_identity_with_its_roles(store: Store) -> None:
    ann = await add(store, identity=(ISSUER, "s1"), email="a@x", roles={1: Role.EDITOR, EVERYWHERE: Role.VIEWER})
    assert (ann.name, ann.kind, ann.email, ann.created_at) == ("ann", UserKind.PERSON, "a@x", START)
    assert ann.roles == {1: Role.EDITOR, EVERYWHERE: Role.VIEWER}
    assert await store.get_user(ann.id) == await store.find_user("ann") == ann
    assert await store.find_identity(ISSUER, "s1") == ann
    assert await store.find_identity("https://other.example.org", "s1") is None
    assert await store.find_user("ANN") is None


async def test_a_name_and_an_identity_are_given_once(store: Store) -> None:
    ann = await add(store, identity=(ISSUER, "s1"))
    assert await store.add_user(User(0, "ann", created_at=START)) is None
    assert await store.add_user(User(0, "bob", created_at=START), (ISSUER, "s1")) is None
    assert await store.find_user("bob") is None
    bob = await add(store, "bob")
    assert not await store.link_identity(bob.id, ISSUER, "s1")
    assert await store.link_identity(ann.id, ISSUER, "s1")
    assert await store.link_identity(bob.id, ISSUER, "s2")
    assert await store.find_identity(ISSUER, "s2") == bob


async def test_of_many_who_take_a_name_at_once_one_gets_it(store: Store) -> None:
    made = await asyncio.gather(*(store.add_user(User(0, "ann", created_at=START)) for _ in range(8)))
    assert len([user for user in made if user]) == 1


async def test_users_are_listed_by_name_page_by_page(store: Store) -> None:
    for name in ("cid", "ann", "bob"):
        await add(store, name, roles={1: Role.VIEWER, 2: Role.ADMIN})
    assert [user.name for user in await store.list_users("", 2)] == ["ann", "bob"]
    [last] = await store.list_users("bob", 2)
    assert (last.name, last.roles) == ("cid", {1: Role.VIEWER, 2: Role.ADMIN})


async def test_who_is_disabled_stays_so_since_the_first_time_until_enabled(store: Store) -> None:
    ann = await add(store)
    await store.set_disabled(ann.id, START)
    await store.set_disabled(ann.id, START + SECOND)
    assert (await store.get_user(ann.id)).disabled_at == START  # type: ignore[union-attr]
    await store.set_disabled(ann.id, None)
    assert (await store.get_user(ann.id)).disabled_at is None  # type: ignore[union-attr]


async def test_an_invitation_sets_a_password_once_and_in_time(store: Store) -> None:
    ann = await add(store)
    assert await store.get_invite(ann.id) is None
    await store.set_invite(ann.id, "h1", START + SECOND)
    await store.set_invite(ann.id, "h2", START + SECOND)
    assert await store.get_invite(ann.id) == ("h2", START + SECOND)
    assert not await store.use_invite(ann.id, "h1", "pw", START)
    assert not await store.use_invite(ann.id, "h2", "pw", START + SECOND)
    done = await asyncio.gather(*(store.use_invite(ann.id, "h2", f"pw{n}", START) for n in range(4)))
    assert sum(done) == 1
    assert (await store.get_user(ann.id)).password == f"pw{done.index(True)}"  # type: ignore[union-attr]


async def test_a_password_is_changed_by_who_knows_the_last_one(store: Store) -> None:
    ann = await add(store)
    assert await store.set_password(ann.id, None, "one")
    assert not await store.set_password(ann.id, "other", "two")
    assert await store.set_password(ann.id, "one", "two")


async def test_there_is_a_person_once_one_is_a_member_and_not_disabled(store: Store) -> None:
    await add(store, "bot", kind=UserKind.SERVICE, roles={1: Role.ADMIN})
    ann = await add(store)
    assert not await store.has_person()
    await store.put_member(1, ann.id, Role.VIEWER, 0)
    assert await store.has_person()
    await store.set_disabled(ann.id, START)
    assert not await store.has_person()


# ── organisations ──


async def test_an_organisation_gets_a_number_that_nothing_has(store: Store) -> None:
    assert [org.id for org in await store.list_organisations()] == [1]
    await store.add_token(Token(0, "t", "user", "ann", "h", START, org=7))
    made = await store.add_organisation("data", START)
    assert made is not None
    assert (made.id, made.name) == (8, "data")
    assert await store.add_organisation("data", START) is None
    assert [(org.id, org.name) for org in await store.list_organisations()] == [
        (1, "default"), (7, "org-7"), (8, "data"),
    ]  # fmt: skip


async def test_of_what_is_said_by_hand_and_by_a_provider_the_greater_role_counts(store: Store) -> None:
    ann = await add(store)
    await store.put_member(1, ann.id, Role.VIEWER, 0)
    await store.sync_members(ann.id, ISSUER, {1: Role.ADMIN, 2: Role.EDITOR}, 0)
    assert (await store.get_user(ann.id)).roles == {1: Role.ADMIN, 2: Role.EDITOR}  # type: ignore[union-attr]
    await store.sync_members(ann.id, ISSUER, {2: Role.VIEWER}, 0)
    assert (await store.get_user(ann.id)).roles == {1: Role.VIEWER, 2: Role.VIEWER}  # type: ignore[union-attr]
    assert [(it.name, it.role, it.source) for it in await store.list_members(1)] == [("ann", Role.VIEWER, "manual")]
    await store.put_member(1, ann.id, Role.EDITOR, 0)
    assert (await store.get_user(ann.id)).roles[1] is Role.EDITOR  # type: ignore[union-attr]


async def test_a_user_comes_into_the_organisation_that_it_was_in_first(store: Store) -> None:
    ann = await add(store, roles={7: Role.VIEWER})
    await store.put_member(1, ann.id, Role.ADMIN, START + 1)
    await store.sync_members(ann.id, ISSUER, {2: Role.VIEWER}, START + 2)

    async def home() -> int | None:
        user = await store.get_user(ann.id)
        return user.home() if user else None

    assert await home() == 7
    await store.put_member(7, ann.id, Role.EDITOR, START + 3)  # stays one since then
    assert await home() == 7
    await store.drop_member(7, ann.id, unless_last=False)
    assert await home() == 1
    await store.sync_members(ann.id, ISSUER, {2: Role.EDITOR, 7: Role.EDITOR}, START + 4)
    await store.drop_member(1, ann.id, unless_last=False)
    assert await home() == 2  # said again by the provider, it is no newer
    [known] = await store.load_owners(["ann"])
    assert known.home() == 2


async def test_F49_the_last_admin_is_not_taken_out_even_by_two_at_once(store: Store) -> None:
    ann, bob = await add(store, roles={1: Role.ADMIN}), await add(store, "bob", roles={1: Role.ADMIN})
    out = await asyncio.gather(*(store.drop_member(1, user.id, unless_last=True) for user in (ann, bob)))
    assert sorted(out) == [False, True]
    [left] = await store.list_members(1)
    assert not await store.drop_member(1, left.user_id, unless_last=True)
    assert await store.drop_member(1, left.user_id, unless_last=False)
    assert await store.list_members(1) == []


async def test_an_admin_who_is_disabled_is_no_other_admin(store: Store) -> None:
    ann, bob = await add(store, roles={1: Role.ADMIN}), await add(store, "bob", roles={1: Role.ADMIN})
    await store.set_disabled(bob.id, START)
    assert not await store.drop_member(1, ann.id, unless_last=True)


# ── sessions ──


def session_of(user: User, **fields: object) -> Session:
    made = Session(0, "h", START, START + 60 * SECOND, user_id=user.id, org=2, seen_at=START, proven_at=START)
    return replace(made, **fields)  # type: ignore[arg-type]


async def test_a_session_is_kept_as_it_was_opened_and_those_that_expired_go(store: Store) -> None:
    ann = await add(store)
    wanted = session_of(ann, address="10.0.0.1", agent="Firefox", issuer=ISSUER, refresh="sealed", refresh_at=START)
    first = await store.add_session(wanted)
    assert await store.get_session(first) == replace(wanted, id=first)
    of_token = await store.add_session(Session(0, "t", START, START + 90 * SECOND, token_id=5))
    kept = await store.get_session(of_token)
    assert kept is not None
    assert (kept.token_id, kept.user_id) == (5, None)
    assert [it.id for it in await store.list_sessions(ann.id)] == [first]
    await store.add_session(session_of(ann, created_at=START + 60 * SECOND, expires_at=START + 99 * SECOND))
    assert first not in [it.id for it in await store.list_sessions(ann.id)]


async def test_a_session_is_seen_renewed_and_ended(store: Store) -> None:
    ann = await add(store)
    number = await store.add_session(session_of(ann, refresh_at=START))
    for at in (START + SECOND, START):
        await store.touch_session(number, at)
    claimed = await asyncio.gather(*(store.claim_refresh(number, START, START + 9 * SECOND) for _ in range(5)))
    assert sum(claimed) == 1
    await store.renew_session(number, "more", START + 30 * SECOND)
    found = await store.get_session(number)
    assert found is not None
    assert (found.seen_at, found.proven_at) == (START + SECOND, START)
    assert (found.refresh, found.refresh_at) == ("more", START + 30 * SECOND)
    await store.end_session(number)
    await store.end_session(number)
    assert await store.get_session(number) is None
    number = await store.add_session(session_of(ann))
    await store.end_sessions(ann.id)
    assert await store.list_sessions(ann.id) == []


# ── devices ──


async def test_a_device_is_decided_about_once_and_used_once(store: Store) -> None:
    ann = await add(store)
    wanted = Device(0, "BCDF-GHJK", "h", START, START + SECOND, address="10.0.0.1")
    device = await store.add_device(wanted)
    assert device is not None
    assert await store.add_device(wanted) is None
    assert await store.get_device(device.id) == await store.find_device("BCDF-GHJK") == replace(wanted, id=device.id)
    assert not await store.use_device(device.id)
    assert await store.decide_device(device.id, ann.id, 1, "approved")
    assert not await store.decide_device(device.id, ann.id, 1, "denied")
    used = await asyncio.gather(*(store.use_device(device.id) for _ in range(4)))
    assert sum(used) == 1
    assert await store.add_device(replace(wanted, code="X", created_at=START + SECOND, expires_at=START + 2 * SECOND))
    assert await store.find_device("BCDF-GHJK") is None
