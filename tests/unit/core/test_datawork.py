from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from horae.core.secrets import fields
from horae.core.work import kinds
from horae.core.work.specs import parse_job
from horae.errors import Invalid

SOURCE = {"url": "https://git.example/a.git"}
WORK: dict[str, dict[str, Any]] = {
    "git_java": {"source": SOURCE, "build_tool": "maven", "build_cmd": "mvn package"},
    "git_python": {"source": SOURCE, "main_file": "src/main.py"},
    "spark_sql": {"query": "select 1\nfrom a"},
    "sync": {
        "source_id": 3, "read": {"table": "orders"}, "mode": "full",
        "destinations": [{"type": "files", "database": "lake", "table": "orders"}],
    },
}  # fmt: skip


def spec_of(kind: str, **changes: Any) -> dict[str, Any]:
    fields = {name: value for name, value in {**WORK[kind], **changes}.items() if value is not ...}
    draft = parse_job({"name": "n", "kind": kind, **fields})
    assert draft.kind == kind
    return draft.spec


def problem(kind: str, **changes: Any) -> tuple[str, str]:
    """(path, code) of the first thing wrong."""
    with pytest.raises(Invalid) as caught:
        spec_of(kind, **changes)
    first = caught.value.listed()[0]
    return first.path, first.code


def test_every_kind_of_data_work_is_one_of_the_kinds() -> None:
    assert tuple(WORK) == kinds.LENDABLE
    assert set(kinds.LENDABLE) < set(kinds.KINDS)


@pytest.mark.parametrize("kind", kinds.LENDABLE)
def test_a_spec_is_canonical_and_reads_as_itself(kind: str) -> None:
    spec = spec_of(kind)
    assert spec == WORK[kind]
    assert parse_job({"name": "n", "kind": kind, "spec": spec}).spec == spec


def test_a_query_or_a_source_tells_the_kind_and_a_project_must_name_it() -> None:
    assert parse_job({"name": "n", "query": "select 1"}).kind == "spark_sql"
    assert parse_job({"name": "n", **WORK["sync"]}).kind == "sync"
    with pytest.raises(Invalid, match="steps"):
        parse_job({"name": "n", **WORK["git_java"]})
    with pytest.raises(Invalid, match="query and source_id are different kinds of work"):
        parse_job({"name": "n", "query": "select 1", **WORK["sync"]})


def test_what_has_its_default_goes_without_saying() -> None:
    outputs = [{"to": "clickhouse", "database": "d", "table": "t", "mode": "append"}]
    assert spec_of("spark_sql", outputs=outputs)["outputs"] == [{"to": "clickhouse", "database": "d", "table": "t"}]
    assert spec_of("sync", mode=...)["mode"] == "full"


@pytest.mark.parametrize(
    ("kind", "changes", "path", "code"),
    [
        ("git_java", {"source": ...}, "source", "E_REQUIRED"),
        ("git_java", {"source": "a"}, "source", "E_TYPE"),
        ("git_java", {"source": {}}, "source.url", "E_REQUIRED"),
        ("git_java", {"source": {"url": "-u"}}, "source.url", "E_PATTERN"),
        ("git_java", {"source": {"url": "ext::sh -c id"}}, "source.url", "E_PATTERN"),
        ("git_java", {"source": {**SOURCE, "branch": "--x"}}, "source.branch", "E_PATTERN"),
        ("git_java", {"source": {**SOURCE, "passwort": "x"}}, "source.passwort", "E_UNKNOWN_FIELD"),
        ("git_java", {"build_tool": "make"}, "build_tool", "E_ENUM"),
        ("git_java", {"build_tool": ...}, "build_tool", "E_REQUIRED"),
        ("git_java", {"build_cmd": " "}, "build_cmd", "E_EMPTY"),
        ("git_java", {"build_cmd": "a\x07"}, "build_cmd", "E_CHAR"),
        ("git_java", {"build_cmd": "x" * (64 * 1024 + 1)}, "build_cmd", "E_LEN"),
        ("git_java", {"main_file": "a.py"}, "main_file", "E_FIELD_CONFLICT"),
        ("git_python", {"main_file": "../a.py"}, "main_file", "E_PATTERN"),
        ("git_python", {"main_file": "/a.py"}, "main_file", "E_PATTERN"),
        ("git_python", {"main_file": ...}, "main_file", "E_REQUIRED"),
        ("spark_sql", {"query": 7}, "query", "E_TYPE"),
        ("spark_sql", {"outputs": [{"to": "paper"}]}, "outputs[0].to", "E_ENUM"),
        ("spark_sql", {"outputs": [{"to": "files"}]}, "outputs[0].path", "E_REQUIRED"),
        ("spark_sql", {"outputs": [7]}, "outputs[0]", "E_TYPE"),
        ("sync", {"source_id": -1}, "source_id", "E_RANGE"),
    ],
)
def test_what_is_wrong_is_said_at_its_place(kind: str, changes: dict[str, Any], path: str, code: str) -> None:
    assert problem(kind, **changes) == (path, code)


# ── secrets ──


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ({"password": "a"}, {"password": "******"}),
        ({"password": ""}, {"password": ""}),
        ({"a": [{"private_key": "x\ny"}]}, {"a": [{"private_key": "******"}]}),
        ({"credential": {"type": "x"}}, {"credential": "******"}),
        ({"url": "https://u:p@ss@h/a"}, {"url": "https://u:******@h/a"}),
        ({"url": "https://token@h/a"}, {"url": "https://******@h/a"}),
        ({"url": "ssh://git@h/a"}, {"url": "ssh://git@h/a"}),
        ({"url": "http://h:80/a@b"}, {"url": "http://h:80/a@b"}),
        ({"u": "jdbc:oracle:thin:scott/tiger@h:1521:x"}, {"u": "jdbc:oracle:thin:scott/******@h:1521:x"}),
        ({"u": "jdbc:sqlserver://h;user=a;password=b;x=y"}, {"u": "jdbc:sqlserver://h;user=a;password=******;x=y"}),
        ({"table_name": "passwords", "n": 3}, {"table_name": "passwords", "n": 3}),
    ],
)
def test_secrets_are_hidden_wherever_they_stand(sent: Any, shown: Any) -> None:
    assert fields.masked(sent) == shown


names = some.sampled_from(["password", "url", "token", "a", "b"])
leaves = some.one_of(
    some.none(), some.booleans(), some.integers(), some.text(), some.just("https://u:p@h"), some.just("******")
)
values = some.recursive(
    leaves, lambda inner: some.lists(inner, max_size=4) | some.dictionaries(names, inner, max_size=4)
)


@settings(deadline=None)
@given(values)
def test_who_sends_back_what_was_shown_changes_nothing(value: Any) -> None:
    shown = fields.masked(value)
    assert fields.unmasked(shown, value) == value
    assert fields.masked(shown) == shown


def test_a_new_secret_is_taken_and_a_hidden_one_of_another_address_is_not_mixed_in() -> None:
    old = {"url": "https://u:p@h/a", "password": "one"}
    assert fields.unmasked({"password": "two"}, old) == {"password": "two"}
    moved = {"url": "https://u:******@elsewhere/a"}
    assert fields.unmasked(moved, old) == moved


@pytest.mark.parametrize("spec", [{"a": [{"password": "******"}]}, {"url": "https://u:******@h"}])
def test_a_hidden_secret_that_stands_for_nothing_is_refused(spec: Any) -> None:
    with pytest.raises(Invalid, match="stands for a secret"):
        kinds.kept_spec("sync", spec, {"url": "https://u:p@elsewhere"})
    fields.refuse_hidden({"name": "******", "password": "x"})


def test_only_data_work_is_hidden() -> None:
    spec = {"env": {"password": "x"}}
    assert kinds.shown_spec("shell", spec) is spec
    assert kinds.kept_spec("shell", {"a": "******"}, {"a": "b"}) == {"a": "******"}


@pytest.mark.parametrize("kind", ["git_java", "git_python"])
@pytest.mark.parametrize(
    "url",
    [
        "ext::sh -c touch% /tmp/p", "fd::7", "--upload-pack=touch /tmp/p", "-u./x", "-oProxyCommand=x", "https:///e.com/x",
        "ssh://-oProxyCommand=x/y", "git@-host:x", "ftp://h/x", "git://h/x", "/srv/a", "../a", "file://a", "a b",
    ],
)  # fmt: skip
def test_what_git_could_take_for_more_than_an_address_is_refused(kind: str, url: str) -> None:
    assert problem(kind, source={"url": url}) == ("source.url", "E_PATTERN")


@pytest.mark.parametrize(
    "branch", ["--exec=x", "-h", "../..", "a..b", "@{-1}", "refs/heads/x y", "a.lock", "a/", "a.", "a//b", "a/.b", "@"]
)
def test_a_branch_follows_the_rules_of_git(branch: str) -> None:
    assert problem("git_java", source={**SOURCE, "branch": branch}) == ("source.branch", "E_PATTERN")


@pytest.mark.parametrize("branch", ["main", "v1.0", "release/2.x", "feature_a-b", "0" * 40])
def test_a_branch_a_tag_and_a_commit_are_taken(branch: str) -> None:
    assert spec_of("git_java", source={**SOURCE, "branch": branch})["source"]["branch"] == branch


@pytest.mark.parametrize(
    ("kind", "changes", "path"),
    [
        ("git_java", {"main_class": "-jar"}, "main_class"),
        ("git_java", {"main_class": "a b"}, "main_class"),
        ("git_java", {"args": "'open"}, "args"),
        ("git_python", {"main_file": ..., "module": "-c"}, "module"),
    ],
)
def test_no_option_of_an_interpreter_passes_for_a_name(kind: str, changes: dict[str, Any], path: str) -> None:
    assert problem(kind, **changes) == (path, "E_PATTERN")


def test_a_python_project_begins_with_a_file_or_with_a_module() -> None:
    assert spec_of("git_python", main_file=..., module="package.tool")["module"] == "package.tool"
    assert problem("git_python", module="package.tool") == ("module", "E_FIELD_CONFLICT")
