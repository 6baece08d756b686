"""What a shell job may be beside its steps: a checkout, a script, an image."""

from __future__ import annotations

from typing import Any

import pytest

from horae.core.work.specs import parse_job
from horae.errors import Invalid

URL = "https://example.org/repo.git"


def parsed(**fields: Any) -> Any:
    return parse_job({"name": "a", **fields})


@pytest.mark.parametrize(
    "url",
    [
        URL, "http://127.0.0.1:8080/a/b", "https://ann:secret@example.org/repo", "ssh://git@example.org:22/repo.git",
        "ssh://[::1]/repo", "file:///srv/repo", "git@example.org:team/repo.git", "git@example.org:/srv/repo.git",
    ],
)  # fmt: skip
def test_an_address_of_git_is_taken(url: str) -> None:
    assert parsed(steps=[{"run": "x"}], checkout={"url": url}).spec["checkout"] == {"url": url}


@pytest.mark.parametrize(
    "url",
    [
        "-u", "--upload-pack=touch x", "ext::sh -c id", "fd::7", "ext::https://example.org/", "/srv/repo", "../repo",
        "repo", "file://repo", "file://host/../x", "ftp://example.org/x", "git://example.org/x", "https://",
        "https://example.org", "https://-oProxyCommand=id/x", "ssh://-oProxyCommand=id/x", "git@-oProxyCommand=id:x",
        "git@example.org:-x", "-oProxyCommand=id@example.org:x", "https://example.org/a b", "https://example.org/\u00a0",
        "example.org:x", "git@example.org::x", "https://exa mple.org/x", "javascript:alert(1)", "C:\\repo",
    ],
)  # fmt: skip
def test_what_git_could_take_for_more_than_an_address_is_refused(url: str) -> None:
    with pytest.raises(Invalid) as refused:
        parsed(steps=[{"run": "x"}], checkout={"url": url})
    assert refused.value.path == "checkout.url"
    assert refused.value.code == "E_PATTERN"


@pytest.mark.parametrize("url", ["", " ", "https://example.org/\x00", "https://example.org/\nx", 5, None, ["x"]])
def test_what_is_no_line_of_text_is_no_address(url: Any) -> None:
    with pytest.raises(Invalid) as refused:
        parsed(steps=[{"run": "x"}], checkout={"url": url})
    assert refused.value.path == "checkout.url"


@pytest.mark.parametrize("ref", ["-x", "--upload-pack=x", "a b", "a..b", "a:b", "a~1", "^a", "@{-1}", "a\\b", "a*"])
def test_what_is_no_name_of_a_branch_is_refused(ref: str) -> None:
    with pytest.raises(Invalid) as refused:
        parsed(steps=[{"run": "x"}], checkout={"url": URL, "ref": ref})
    assert (refused.value.path, refused.value.code) == ("checkout.ref", "E_PATTERN")


@pytest.mark.parametrize("ref", ["main", "v1.2.3", "feature/new-thing", "release_2027", "a@b"])
def test_branches_and_tags_are_taken(ref: str) -> None:
    assert parsed(steps=[{"run": "x"}], checkout={"url": URL, "ref": ref}).spec["checkout"]["ref"] == ref


def test_a_script_tells_the_kind_and_keeps_its_args() -> None:
    draft = parsed(script="/srv/scripts/a.sh", args=["-x", "$(id)"])
    assert (draft.kind, draft.spec) == ("shell", {"script": "/srv/scripts/a.sh", "args": ["-x", "$(id)"]})


@pytest.mark.parametrize(
    ("fields", "path", "code"),
    [
        ({"script": "a.sh"}, "script", "E_PATTERN"),
        ({"script": "../a.sh", "checkout": {"url": URL}}, "script", "E_PATTERN"),
        ({"script": "/srv/../etc/x"}, "script", "E_PATTERN"),
        ({"script": "-x"}, "script", "E_PATTERN"),
        ({"script": "/a\x00"}, "script", "E_CHAR"),
        ({"script": "/a", "args": [1]}, "args[0]", "E_TYPE"),
        ({"script": "/a", "args": ["\x00"]}, "args[0]", "E_CHAR"),
        ({"script": "/a", "args": ["x" * 70_000]}, "args", "E_LEN"),
        ({"script": "/a", "args": "x"}, "args", "E_TYPE"),
        ({"steps": [{"run": "x"}], "args": ["x"]}, "args", "E_FIELD_CONFLICT"),
        ({"steps": [{"run": "x"}], "script": "/a"}, "script", "E_FIELD_CONFLICT"),
        ({"handler": "a:b", "script": "/a"}, "script", "E_FIELD_CONFLICT"),
        ({"handler": "a:b", "checkout": {"url": URL}}, "checkout", "E_FIELD_CONFLICT"),
        ({"kind": "shell"}, "steps", "E_REQUIRED"),
        ({"steps": [{"run": "x"}], "checkout": URL}, "checkout", "E_TYPE"),
        ({"steps": [{"run": "x"}], "checkout": {}}, "checkout.url", "E_REQUIRED"),
        ({"steps": [{"run": "x"}], "checkout": {"url": URL, "rev": "x"}}, "checkout.rev", "E_UNKNOWN_FIELD"),
        ({"steps": [{"run": "x"}], "image": "-v /:/host"}, "image", "E_PATTERN"),
        ({"steps": [{"run": "x"}], "image": "a b"}, "image", "E_PATTERN"),
    ],
)
def test_work_that_makes_no_sense_says_where(fields: dict[str, Any], path: str, code: str) -> None:
    with pytest.raises(Invalid) as refused:
        parsed(**fields)
    assert (refused.value.path, refused.value.code) == (path, code)


def test_an_image_asks_for_an_agent_that_runs_containers() -> None:
    draft = parsed(steps=[{"run": "x"}], image="registry.example.org:5000/golang:1.22@sha256-x", labels=["gpu"])
    assert draft.policy.labels == ("gpu", "sandbox:docker")
    assert parsed(steps=[{"run": "x"}], image="golang").policy.labels == ("sandbox:docker",)
    assert parsed(steps=[{"run": "x"}]).policy.labels == ()
