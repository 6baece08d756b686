"""Roles: each has what the one before it has."""

from __future__ import annotations

from itertools import pairwise

from horae.core.roles import PERMISSIONS, Permission, Role


def test_each_role_has_more_than_the_one_before_it() -> None:
    order = [Role.VIEWER, Role.OPERATOR, Role.EDITOR, Role.ADMIN]
    assert all(PERMISSIONS[less] < PERMISSIONS[more] for less, more in pairwise(order))
    assert PERMISSIONS[Role.ADMIN] == frozenset(Permission)


def test_a_viewer_may_only_look_logs_included() -> None:
    assert PERMISSIONS[Role.VIEWER] == {Permission.READ, Permission.LOGS}
