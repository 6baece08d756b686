"""Roles: each has what the one before it has, and refusals name the role that would do."""

from __future__ import annotations

from itertools import pairwise

import pytest

from horae.core.roles import PERMISSIONS, Permission, Role, is_within, least_role, refuse_without
from horae.errors import Denied


def test_each_role_has_more_than_the_one_before_it() -> None:
    order = [Role.VIEWER, Role.OPERATOR, Role.EDITOR, Role.ADMIN]
    assert all(PERMISSIONS[less] < PERMISSIONS[more] for less, more in pairwise(order))
    assert PERMISSIONS[Role.ADMIN] == frozenset(Permission)


def test_a_viewer_may_only_look() -> None:
    assert PERMISSIONS[Role.VIEWER] == {Permission.READ}


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("needed", Permission)
def test_what_a_role_lacks_is_refused_with_the_least_that_has_it(role: Role, needed: Permission) -> None:
    if needed in PERMISSIONS[role]:
        refuse_without(role, needed)
        return
    with pytest.raises(Denied) as refused:
        refuse_without(role, needed)
    assert refused.value.code == "E_ROLE"
    assert f"--role {least_role(needed)}" in refused.value.hint
    assert needed in PERMISSIONS[least_role(needed)]
    assert not is_within(least_role(needed), role)
