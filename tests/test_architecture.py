"""The rules of the house, as tests: layers, purity, and a few that only the syntax tree can tell."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("architecture")  # the syntax trees are made once

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "horae"
FILES = sorted(path for path in SOURCE.rglob("*.py") if "generated" not in path.parts)

# A command loads only what it needs: `horae runs` must not wait for what a server imports. Nor must every pytest.
LAZY = {"app", "cli", "client", "config", "keys", "links", "testing", "tls", "values", "verifiers", "__init__"}
FORBIDDEN_NAMES = {"utils", "helpers", "common", "base", "manager"}


@cache
def trees() -> list[tuple[Path, ast.Module]]:
    return [(path.relative_to(SOURCE), ast.parse(path.read_text())) for path in FILES]


def test_the_layer_contracts_hold():
    # A process of its own: called in ours, it switches off every logger that other tests listen to.
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--config", ".importlinter", "--no-cache"], cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr


def test_nobody_inside_imports_the_package_root():
    guilty = [
        f"{path}:{node.lineno}"
        for path, tree in trees()
        for node in ast.walk(tree)
        if (
            (isinstance(node, ast.ImportFrom) and node.module == "horae" and path.name != "__init__.py")
            and any(
                not (SOURCE / name.name).exists() and not (SOURCE / f"{name.name}.py").exists() for name in node.names
            )
        )
        or (isinstance(node, ast.Import) and any(name.name == "horae" for name in node.names))
    ]

    assert guilty == []


def test_imports_stand_at_the_top_of_their_file():
    guilty = [
        f"{path}:{inner.lineno}"
        for path, tree in trees()
        if path.parts[0].removesuffix(".py") not in LAZY
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    ]

    assert guilty == []


def test_the_core_never_asks_for_the_time():
    guilty = [
        f"{path}:{node.lineno}"
        for path, tree in trees()
        if path.parts[0] == "core"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in {"now", "utcnow", "today"}
    ]

    assert guilty == []


def test_no_module_is_a_drawer():
    guilty = [str(path) for path in FILES if path.stem in FORBIDDEN_NAMES]

    assert guilty == []


def test_S11_sql_lives_in_the_stores_and_the_queue_on_their_database_only():
    guilty = [
        f"{path}:{node.lineno}"
        for path, tree in trees()
        if path.parts[0] != "stores" and path.as_posix() not in ("queues/shared.py", "inbox.py")  # for their callers
        if path.parts[:2] not in (("executors", "destinations"), ("executors", "sync"))  # databases of users
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith(("SELECT ", "INSERT INTO", "UPDATE ", "DELETE FROM"))
    ]

    assert guilty == []


MOST_METHODS = 15  # of a protocol: whoever takes one can read it


def test_no_port_is_a_hall_of_doors():
    found = {
        node.name: sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body)
        for path, tree in trees()
        if path.parts[0] == "ports"
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(one) == "Protocol" for one in node.bases)
    }

    assert found
    assert {name: count for name, count in found.items() if count > MOST_METHODS} == {}
