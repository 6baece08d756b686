"""Job documents for tests that invent them: whatever people may write."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]

words = st.sampled_from(
    ["a", "x y", "yes", "10:30", "0o17", "1e5", "2027-01-01", "ä✓", "#no", "a: b", "-", "null", "~"]
)
lines = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp", "Cf")), min_size=1, max_size=20
)
scripts = st.lists(words | lines, min_size=1, max_size=3).map("\n".join).filter(lambda text: not text.isspace())
names = lines.filter(lambda text: not text.isspace() and text[0] != "-")
texts = words | lines
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e6, 1e6) | texts | scripts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, anything, max_size=3)
env = st.dictionaries(st.sampled_from(["A", "B_2", "PATH"]), texts | st.just({"secret": "TOKEN"}), max_size=2)

schedules = st.sampled_from([
    {"cron": "0 2 * * *"},
    {"cron": "H 2 * * MON-FRI", "timezone": "Europe/Berlin", "dst": {"gap": "skip"}},
    {"cron": "0 0 12 ? * MON", "dialect": "quartz6", "jitter": "10s"},
    {"every": "90s"},
    {"every": "1h", "mode": "delay"},
    {"every": "1d", "start_at": "2030-01-01T00:00:00Z", "timezone": "UTC"},
    {"at": "2031-05-06T07:08:09.5Z"},
    {"at": "1999-01-01T00:00:00Z"},
    {"period": {"unit": "month", "month_days": [1, -1], "at": "02:30"}, "timezone": "America/New_York"},
    {"rrule": "FREQ=WEEKLY;BYDAY=MO,WE"},
])  # fmt: skip
triggers = st.builds(
    lambda schedule, more: {**schedule, **more},
    schedules,
    st.fixed_dictionaries({}, optional={"data": objects, "enabled": st.booleans(), "name": names}),
)
whens = st.one_of(
    st.just({}),
    st.sampled_from([
        {"schedule": "0 2 * * *"}, {"schedule": "10m"}, {"schedule": "@daily", "timezone": "Asia/Tokyo"},
        {"run_once": True}, {"run_at": "2030-01-01T00:00:00Z"},
    ]),
    schedules.map(lambda schedule: {"schedule": schedule}),
    st.lists(triggers, max_size=3).map(lambda listed: {"triggers": listed}),
)  # fmt: skip
policies = st.fixed_dictionaries(
    {},
    optional={
        "timeout": st.sampled_from([1, 90, "10m", 1.5, "1h30m", 123456.789]),
        "retry": st.sampled_from([3, {"attempts": 5, "backoff": "30s", "factor": 3, "cap": "1h", "jitter": 0}]),
        "overlap": st.sampled_from(["allow", "queue", "replace", "forbid", {"policy": "queue", "limit": 7}]),
        "misfire": st.sampled_from(["skip", "run_all", {"policy": "run_all", "limit": 3}]),
        "start_deadline": st.sampled_from(["5m", 2.25]),
        "priority": st.integers(0, 9),
        "labels": st.lists(st.sampled_from(["gpu", "eu:1", "big"]), unique=True),
        "tags": st.lists(st.sampled_from(["nightly", "team:blue"]), unique=True),
        "queue": st.sampled_from(["default", "reports"]),
        "share": st.sampled_from(["owner", "data.tenant.id"]),
        "pause_after_failures": st.integers(1, 1000),
        "resources": st.sampled_from([{}, {"slots": 2, "cpus": 1.501}, {"memory": "512MiB", "gpu": 1}, {"slots": 1}]),
        "rate_limits": st.just([{"rate": "100/min", "burst": 10, "per": "owner"}, {"rate": "1/s"}]),
        "concurrency_limits": st.just([{"limit": 5, "per": "data.tenant"}]),
        "after": st.just(["extract", {"job": 7, "on": "end", "moment": "latest"}]),
    },
)
steps = st.lists(scripts, min_size=1, max_size=3).map(
    lambda listed: [{"run": run, **({"name": f"n{number}"} if number % 2 else {})} for number, run in enumerate(listed)]
)
shell = st.fixed_dictionaries(
    {"steps": steps},
    optional={
        "env": env,
        "working_directory": st.sampled_from(["/srv", "sub"]),
        "network": st.sampled_from([True, "off", ["db:5432"]]),
        "limits": st.just({"memory": "512MiB", "cpus": 1.5}),
        "artifacts": st.just(["out/*.txt"]),
        "files": st.just({"key.pem": {"secret": "TOKEN"}}),
        "checkout": st.just({"url": "https://example.org/a.git", "ref": "main", "password": {"secret": "P"}}),
        "walled": st.just(True),
    },
)
python = st.fixed_dictionaries(
    {"handler": st.sampled_from(["a.b:c", "jobs/hello"])},
    optional={"data": objects, "env": env, "previous_result": st.booleans()},
)
others = st.sampled_from([
    {"kind": "git_java", "source": {"url": "https://example.org/a.git"}, "build_tool": "maven", "args": "-a 'b c'"},
    {"kind": "git_python", "source": {"url": "https://e.org/a.git", "branch": "x"}, "main_file": "a.py"},
    {"query": "SELECT 1", "outputs": [{"to": "files", "path": "/data/a"}]},
    {"kind": "sync", "source": {"type": "database", "url": "postgresql://db/x"}, "read": {"table": "t"},
     "mode": "incremental", "cursor": "updated", "destinations": [{"type": "files", "path": "b"}]},
])  # fmt: skip
task_policies = policies.map(
    lambda policy: {
        name: policy[name] for name in policy if name not in ("overlap", "misfire", "pause_after_failures", "tags")
    }
)
inside = st.builds(
    lambda own, policy, work: {**work, **policy, **own},
    st.fixed_dictionaries({}, optional={"may_fail": st.booleans(), "data": st.just({"a": "${data.x}", "b": 1})}),
    task_policies,
    shell | python.map(lambda work: {**work, "data": {}}) | others,
)
nested = inside | inside.map(lambda task: {"tasks": {"inner": task}, "returns": "${inner.result}"})
workflows = st.builds(
    lambda first, each, last: {
        "tasks": {
            "last": {**last, "needs": [{"task": "each", "on": "end"}], "if": "each.state == 'failed'"},
            "first": first,
            "each": {
                **each, "needs": ["first"], "for_each": "${first.result}", "at_once": 5, "data": {"x": "${item}"},
            },
            "own": {"job": "k", "needs": [{"task": "first", "on": "failure"}]},
        },
        "returns": {"all": ["${each.results}", "${own.state}"]},
    },
    inside, inside, nested,
)  # fmt: skip
heads = st.fixed_dictionaries(
    {"name": names},
    optional={"paused": st.booleans(), "segment": st.integers(0, 99), "annotations": objects, "key": names},
)
documents = st.builds(
    lambda head, when, policy, work: {**head, **when, **policy, **work},
    heads,
    whens,
    policies,
    shell | python | others | workflows,
)
