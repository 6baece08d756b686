"""What no module of ours may call: it would make code, or a shell, of somebody's text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src"
CALLS = {"eval", "exec", "os.system", "os.popen", "yaml.load", "yaml.unsafe_load", "yaml.full_load"}
MODULES = {"pickle", "marshal", "shelve", "dill"}
METHODS = {"extractall"}  # of archives: writes where they say


def found_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
            yield from ((node.lineno, name) for name in names if name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in CALLS or called.rpartition(".")[2] in METHODS:
                yield node.lineno, called
            if any(each.arg == "shell" and ast.unparse(each.value) != "False" for each in node.keywords):
                yield node.lineno, "shell="


def test_they_are_found_where_they_stand():
    code = "import pickle\neval('1')\nsubprocess.run('x', shell=True)\ntar.extractall()\nyaml.load(x)\nos.system('x')"
    assert [line for line, _ in sorted(found_in(ast.parse(code)))] == [1, 2, 3, 4, 5, 6]


def test_S10_no_module_makes_code_or_a_shell_of_text():
    files = [path for path in ROOT.rglob("*.py") if "generated" not in path.parts]
    assert len(files) > 200
    found = [(str(path.relative_to(ROOT)), *each) for path in files for each in found_in(ast.parse(path.read_text()))]
    assert found == []
