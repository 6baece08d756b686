"""Rights: what somebody lacks is refused, and the refusal says who would be let."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from horae.core.model import DEFAULT_ORG
from horae.core.rights import refuse_without
from horae.core.roles import PERMISSIONS, Permission, Role, is_within, least_role
from horae.errors import Denied


class Who(NamedTuple):
    role: Role
    org: int = DEFAULT_ORG


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("needed", Permission)
def test_what_a_role_lacks_is_refused_with_the_least_that_has_it(role: Role, needed: Permission) -> None:
    if needed in PERMISSIONS[role]:
        refuse_without(Who(role), needed)
        return
    with pytest.raises(Denied) as refused:
        refuse_without(Who(role), needed)
    assert refused.value.code == "E_ROLE"
    assert f"--role {least_role(needed)}" in refused.value.hint
    assert needed in PERMISSIONS[least_role(needed)]
    assert not is_within(least_role(needed), role)


@pytest.mark.parametrize("needed", Permission)
def test_admins_of_other_organisations_have_all_but_the_installation(needed: Permission) -> None:
    stranger = Who(Role.ADMIN, 7)
    if needed is not Permission.CLUSTER:
        refuse_without(stranger, needed)
        return
    with pytest.raises(Denied) as refused:
        refuse_without(stranger, needed)
    assert refused.value.code == "E_INSTALLATION"
