"""The walls a job asks for."""

from __future__ import annotations

from typing import Any

import pytest

from horae.core.model import Json
from horae.core.work import isolation, specs
from horae.errors import Denied, Invalid


def parsed(**fields: Any) -> specs.JobDraft:
    return specs.parse_job({"name": "n", "steps": [{"run": "true"}], **fields})


def walls(**fields: Any) -> dict[str, Any]:
    spec = parsed(**fields).spec
    return {name: spec[name] for name in ("sandbox", "network", "limits") if name in spec}


def test_a_job_that_asks_for_nothing_has_nothing_in_its_spec_and_needs_no_label() -> None:
    assert walls() == {}
    assert parsed().policy.labels == ()


@pytest.mark.parametrize("sandbox", ["plain", "bubblewrap", "docker"])
def test_a_sandbox_is_a_label_that_an_agent_must_have(sandbox: str) -> None:
    assert walls(sandbox=sandbox) == {"sandbox": sandbox}
    assert parsed(sandbox=sandbox, labels=["gpu"]).policy.labels == ("gpu", f"sandbox:{sandbox}")


@pytest.mark.parametrize(("written", "meant"), [("on", "on"), (True, "on"), ("off", "off"), (False, "off")])
def test_plain_on_and_off_of_yaml_mean_what_they_say(written: Any, meant: str) -> None:
    assert walls(sandbox="bubblewrap", network=written)["network"] == meant


def test_no_network_needs_a_sandbox_that_can_take_it_away() -> None:
    assert walls(network="off") == {"sandbox": "bubblewrap", "network": "off"}
    assert walls(network="off", image="golang") == {"network": "off"}


def test_a_list_of_addresses_is_canonical_and_needs_walls() -> None:
    listed = ["DB.example.org:5432", "10.0.0.7:80", "[FD00::7]:443", "localhost:1", "127.0.0.1:1", "pypi.org."]
    meant = ["db.example.org:5432", "10.0.0.7:80", "[fd00::7]:443", "127.0.0.1:1", "pypi.org:443", "pypi.org:80"]
    assert walls(network=listed) == {"sandbox": "bubblewrap", "network": meant}
    assert walls(network=["a:1"], image="golang") == {"network": ["a:1"]}
    assert walls(network=["a:1"], sandbox="docker", image="golang")["network"] == ["a:1"]


@pytest.mark.parametrize(
    "entry",
    [
        *["*.example.org:443", "10.0.0.0/8:80", "http://example.org", "a:0", "a:65536", "a:", ":80", "a b:1", ""],
        *["0.0.0.0:80", "[::]:80", "224.0.0.1:80", "[::ffff:127.0.0.1]:80", "::1", "127.1:80", "2130706433:80", "-a:1"],
        *["a..b:1", "[10.0.0.1]:80", "[fe80::1%eth0]:80", "a:1\n", 80, None, {"host": "a"}],
    ],
)
def test_what_is_no_address_is_refused_where_it_stands(entry: Any) -> None:
    with pytest.raises(Invalid) as refused:
        parsed(network=["fine:1", entry])
    assert (refused.value.path, refused.value.code) == ("network[1]", "E_TYPE")


def test_limits_become_plain_numbers() -> None:
    assert walls(limits={"memory": "512MiB", "cpus": 1.5, "pids": 200}) == {
        "limits": {"memory": 512 * 2**20, "cpus": 1.5, "pids": 200}
    }
    assert walls(limits={"memory": "1.5GiB"}) == walls(limits={"memory": 3 * 2**29})


def test_projects_from_git_have_the_same_fields() -> None:
    source = {"url": "https://example.org/a.git"}
    work = {"source": source, "main_file": "main.py", "limits": {"pids": 50}, "sandbox": "bubblewrap"}
    draft = specs.parse_job({"name": "n", "kind": "git_python", **work})
    assert (draft.spec["limits"], draft.policy.labels) == ({"pids": 50}, ("sandbox:bubblewrap",))


@pytest.mark.parametrize(
    ("fields", "path", "code"),
    [
        ({"sandbox": "chroot"}, "sandbox", "E_ENUM"),
        ({"sandbox": 1}, "sandbox", "E_ENUM"),
        ({"network": "some"}, "network", "E_ENUM"),
        ({"sandbox": "plain", "network": "off"}, "network", "E_FIELD_CONFLICT"),
        ({"sandbox": "plain", "network": ["a:1"]}, "network", "E_FIELD_CONFLICT"),
        ({"network": []}, "network", "E_RANGE"),
        ({"network": [f"a:{port}" for port in range(1, 52)]}, "network", "E_RANGE"),
        ({"sandbox": "bubblewrap", "image": "golang"}, "sandbox", "E_FIELD_CONFLICT"),
        ({"limits": 5}, "limits", "E_TYPE"),
        ({"limits": {"disk": "1GiB"}}, "limits.disk", "E_UNKNOWN_FIELD"),
        ({"limits": {"memory": "lots"}}, "limits.memory", "E_TYPE"),
        ({"limits": {"memory": "512 MB"}}, "limits.memory", "E_TYPE"),
        ({"limits": {"memory": True}}, "limits.memory", "E_TYPE"),
        ({"limits": {"memory": "1MiB"}}, "limits.memory", "E_RANGE"),
        ({"limits": {"memory": -1}}, "limits.memory", "E_RANGE"),
        ({"limits": {"cpus": 0}}, "limits.cpus", "E_RANGE"),
        ({"limits": {"cpus": float("nan")}}, "limits.cpus", "E_RANGE"),
        ({"limits": {"pids": 1}}, "limits.pids", "E_RANGE"),
        ({"limits": {"pids": 10.5}}, "limits.pids", "E_TYPE"),
    ],
)
def test_walls_that_make_no_sense_say_where(fields: dict[str, Any], path: str, code: str) -> None:
    with pytest.raises(Invalid) as refused:
        parsed(**fields)
    assert (refused.value.path, refused.value.code) == (path, code)


def test_the_network_of_the_machine_itself_is_not_to_be_had() -> None:
    with pytest.raises(Denied):
        parsed(network="host")


# ── work of one's own ──


OWN = {"steps": [{"run": "./backup.sh"}]}


@pytest.mark.parametrize("more", [{}, {"sandbox": "plain"}, {"limits": {"pids": 9}}, {"env": {"A": "b"}}])
def test_steps_that_ask_for_no_walls_are_ones_own(more: Json) -> None:
    assert isolation.is_own(OWN | more)
    assert isolation.put_in_place(OWN | more, "/home/ada") == OWN | more | {"working_directory": "/home/ada"}


@pytest.mark.parametrize(
    "more", [{"checkout": {"url": "x"}}, {"image": "i"}, {"sandbox": "bubblewrap"}, {"walled": True}]
)
def test_what_comes_from_elsewhere_or_asks_for_walls_is_not(more: Json) -> None:
    assert not isolation.is_own(OWN | more)
    assert isolation.put_in_place(OWN | more, "/home/ada") == OWN | more


def test_a_build_is_ones_own_and_gets_a_fresh_directory() -> None:
    build = OWN | {"artifacts": ["dist"]}
    assert isolation.is_own(build)
    assert not isolation.is_in_place(build)
    assert isolation.put_in_place(build, "/home/ada") == build


@pytest.mark.parametrize(("given", "place"), [("sub", "/home/ada/sub"), ("/srv", "/srv"), (".", "/home/ada/.")])
def test_a_directory_that_is_given_counts_from_where_it_was_submitted(given: str, place: str) -> None:
    spec = OWN | {"working_directory": given}
    assert isolation.put_in_place(spec, "/home/ada")["working_directory"] == place


def test_a_handler_has_no_directory() -> None:
    assert isolation.put_in_place({"handler": "h"}, "/home/ada") == {"handler": "h"}


def test_walls_and_plain_contradict_each_other() -> None:
    with pytest.raises(Invalid) as refused:
        parsed(walled=True, sandbox="plain")
    assert "the sandbox plain has no walls" in str(refused.value.problems)
    assert parsed(walled=True).spec["walled"] is True
    assert "walled" not in parsed(walled=False).spec


def test_what_a_job_takes_of_its_agent_is_the_most_that_it_may_use_unless_it_says_otherwise() -> None:
    taken = (("cpus", 1500), ("gpu", 1), ("memory", 2**29), ("slots", 2))
    assert isolation.limits_of({}, taken) == {"cpus": 1.5, "memory": 2**29}
    assert isolation.limits_of({"limits": {"memory": 2**30, "pids": 9}}, taken) == {
        "cpus": 1.5, "memory": 2**30, "pids": 9,
    }  # fmt: skip
    assert isolation.limits_of({}, ()) == {}
    assert isolation.limits_of({}, (("gpu", 1),)) == {}
