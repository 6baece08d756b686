"""Kinds `git_java` and `git_python`: projects of git repositories, which are built and run.

What must stay true: a reader collects problems and never raises; equal work has equal specs. Secrets may stand in
these specs as they were sent (core.secrets.fields).
"""

from __future__ import annotations

import re
import shlex

from horae.core.fields import Fields, fields_of, without_empty
from horae.core.model import Json
from horae.core.work import repositories
from horae.core.work.isolation import FIELDS as ISOLATION
from horae.core.work.isolation import read_isolation

BUILD_TOOLS = ("maven", "sbt")
MAX_SCRIPT = 64 * 1024  # characters of a command
_FIELDS = frozenset({"source", "build_cmd", "args"}) | ISOLATION
JAVA_FIELDS = _FIELDS | {"build_tool", "main_class", "maven_settings"}
PYTHON_FIELDS = _FIELDS | {"main_file", "module", "requirements"}
_DOTTED = re.compile(r"[^\W\d][\w$]*(?:\.[^\W\d][\w$]*)*")  # the name of a class or module


def read_git_java(fields: Fields) -> Json:
    spec: Json = {"source": _source(fields), "build_tool": fields.word("build_tool", BUILD_TOOLS)}
    main_class = fields.text("main_class", 512)
    if main_class is not None and not _DOTTED.fullmatch(main_class):
        fields.fault("main_class", "E_PATTERN", "the name of a class expected, such as org.example.Main")
    build_cmd = fields.lines("build_cmd", MAX_SCRIPT)
    if fields.flag("maven_settings"):
        spec["maven_settings"] = True
    return without_empty(spec, build_cmd=build_cmd, main_class=main_class, args=_args(fields), **read_isolation(fields))


def read_git_python(fields: Fields) -> Json:
    module = fields.text("module", 512)
    if module is not None and not _DOTTED.fullmatch(module):
        fields.fault("module", "E_PATTERN", "the name of a module expected, such as package.tool")
    if module is not None and "main_file" in fields.values:
        fields.fault("module", "E_FIELD_CONFLICT", "a Python project begins with a file or with a module", "keep one")
    if "module" not in fields.values:
        fields.require("main_file", "a Python project needs a main_file, or a module")
    return without_empty(
        {"source": _source(fields)},
        main_file=_file(fields, "main_file"),
        module=module,
        requirements=_file(fields, "requirements"),
        build_cmd=fields.lines("build_cmd", MAX_SCRIPT),
        args=_args(fields),
        **read_isolation(fields),
    )


def _args(fields: Fields) -> str | None:
    """Arguments in one text, taken apart as a shell would: it must be possible."""
    args = fields.lines("args", MAX_SCRIPT)
    try:
        shlex.split(args or "")
    except ValueError as error:
        fields.fault("args", "E_PATTERN", f"arguments as for a shell expected: {error}", "close the quotation mark")
    return args


def _file(fields: Fields, name: str) -> str | None:
    """Return the path of a file inside the project."""
    path = fields.text(name, 1024)
    if path is not None and (path[0] in "/-~" or ".." in path.split("/")):
        fields.fault(name, "E_PATTERN", "a path inside the project expected, without .. and not beginning with / or -")
        return None
    return path


_SOURCE_FIELDS = repositories.CREDENTIALS | {"url", "branch"}


def _source(fields: Fields) -> Json:
    fields.require("source", "a project needs the git repository it comes from")
    if "source" not in fields.values:
        return {}
    inner = fields_of(fields.values["source"], fields.at("source"), fields.problems, "must be a mapping with a url")
    if inner is None:
        return {}
    inner.refuse_others(_SOURCE_FIELDS)
    url, branch = repositories.read_url(inner, may_be_word=True), repositories.read_ref(inner, "branch")
    return without_empty({"url": url}, branch=branch, **repositories.read_credentials(inner))
