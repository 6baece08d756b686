"""Kinds `shell` and `python`: steps, scripts and handlers, which their users write themselves.

What must stay true: a reader collects problems and never raises; equal work has equal specs.
"""

from __future__ import annotations

import re
from typing import Any

from horae.core.fields import (
    ABSENT,
    CONTROL,
    Fields,
    Problems,
    control_words,
    fields_of,
    refuse_twins,
    type_words,
)
from horae.core.jobdata import MAX_DATA
from horae.core.model import Json
from horae.core.secrets import references
from horae.core.work import builds, isolation, repositories

MAX_STEPS = 200
MAX_RUN = MAX_ENV = 64 * 1024  # bytes
MAX_PATH = 4096  # characters of a working directory, or of a script
MAX_ARGS = 200
SHELL_FIELDS = (
    frozenset({"steps", "script", "args", "checkout", "env", "working_directory", "files"})
    | builds.FIELDS
    | isolation.FIELDS
)
PYTHON_FIELDS = frozenset({"handler", "data", "env", "previous_result"})


def read_shell(fields: Fields) -> Json:
    spec: Json = _read_script(fields) if "script" in fields.values else {"steps": _read_steps(fields)}
    if "args" in fields.values and "script" not in fields.values:
        fields.fault("args", "E_FIELD_CONFLICT", "args belong to a script", "write them into the step")
    if checkout := _read_checkout(fields):
        spec["checkout"] = checkout
    if env := _read_env(fields):
        spec["env"] = env
    if files := references.read_files(fields):
        spec["files"] = files
    if directory := fields.text("working_directory", MAX_PATH):
        spec["working_directory"] = directory
    return {**spec, **builds.read_build(fields), **isolation.read_isolation(fields)}


def _read_script(fields: Fields) -> Json:
    """Return a file that is executed as it is. Whether it may be is for the agent to say, which sees the file."""
    if "steps" in fields.values:
        fields.fault("script", "E_FIELD_CONFLICT", "steps and script are two ways to say what to do", "keep one")
    path = fields.text("script", MAX_PATH) or ""
    if path.startswith("-") or ".." in path.split("/"):
        fields.fault("script", "E_PATTERN", "a path without '..' that does not begin with a dash expected")
    elif path and not path.startswith("/") and "checkout" not in fields.values:
        hint = "give checkout, or an absolute path below one of the agent's script_roots"
        fields.fault("script", "E_PATTERN", "a relative path lies in the checkout, and there is none", hint)
    args = _read_args(fields)
    return {"script": path, "args": args} if args else {"script": path}


def _read_args(fields: Fields) -> list[str]:
    path = fields.at("args")
    args: list[str] = []
    for index, value in enumerate(fields.items("args", MAX_ARGS, "args")):
        if type(value) is not str:
            fields.problems.add(f"{path}[{index}]", "E_TYPE", *type_words("must be text", value))
        elif not value.isprintable() and (odd := CONTROL.search(value)):
            fields.problems.add(f"{path}[{index}]", "E_CHAR", *control_words(odd[0]))
        else:
            args.append(value)
    if sum(len(value.encode(errors="replace")) for value in args) > MAX_RUN:
        fields.fault("args", "E_LEN", f"at most {MAX_RUN // 1024} KiB in all", "put them into a file")
    return args


_CHECKOUT_FIELDS = repositories.CREDENTIALS | {"url", "ref"}


def _read_checkout(fields: Fields) -> Json:
    if "checkout" not in fields.values:
        return {}
    inner = fields_of(fields.values["checkout"], fields.at("checkout"), fields.problems, "must be a mapping with a url")
    if inner is None:
        return {}
    inner.refuse_others(_CHECKOUT_FIELDS)
    url, ref = repositories.read_url(inner), repositories.read_ref(inner, "ref")
    return {"url": url, **({} if ref is None else {"ref": ref}), **repositories.read_credentials(inner)}


def _read_steps(fields: Fields) -> list[Json]:
    if "steps" not in fields.values:
        fields.fault("steps", "E_REQUIRED", "a shell job needs steps or a script", "write steps: [{run: make test}]")
    path = fields.at("steps")
    items = fields.items("steps", MAX_STEPS, "steps", least=1)
    steps = [_read_step(item, path, index, fields.problems) for index, item in enumerate(items)]
    refuse_twins([step["name"] for step in steps], path + "[{}].name", "step name", fields.problems)
    return steps


def _read_step(item: Any, path: str, index: int, problems: Problems) -> Json:
    what = "a step must be a mapping such as {run: make test}"
    fields = fields_of(item, f"{path}[{index}]", problems, what)
    if fields is None:
        return {"name": "", "run": ""}
    fields.refuse_others(_STEP_FIELDS)
    return {"name": fields.text("name") or f"step {index + 1}", "run": _read_run(fields)}


_STEP_FIELDS = frozenset({"name", "run"})


def _read_run(fields: Fields) -> str:
    run = fields.values.get("run", ABSENT)
    if run is ABSENT:
        fields.fault("run", "E_REQUIRED", "a step needs a command to run")
    elif type(run) is not str:
        fields.wrong_type("run", "must be text")
    elif not run or run.isspace():
        fields.fault("run", "E_EMPTY", "must not be empty", "write the command to run")
    elif len(run) > MAX_RUN or len(run.encode(errors="replace")) > MAX_RUN:
        fields.fault("run", "E_LEN", f"at most {MAX_RUN // 1024} KiB", "put the script into a file")
    elif not run.isprintable() and (odd := CONTROL.search(run)):
        fields.fault("run", "E_CHAR", *control_words(odd[0]))
    else:
        return run
    return ""


_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _read_env(fields: Fields) -> Json:
    """Each value is text, or names a secret."""
    if "env" not in fields.values:
        return {}
    inner = fields_of(fields.values["env"], fields.at("env"), fields.problems, "must be a mapping")
    if inner is None:
        return {}
    env = {}
    if 3 * len(inner.values) <= MAX_ENV:  # a variable takes three bytes at least
        env = {name: value for name, value in inner.values.items() if _is_variable(inner, name, value)}
    if 3 * len(inner.values) > MAX_ENV or _size_of(env) > MAX_ENV:
        message = f"environment larger than {MAX_ENV // 1024} KiB"
        fields.fault("env", "E_LIMIT", message, "put large values into files")
    return dict(sorted(env.items()))


def _size_of(env: Json) -> int:
    """Bytes as the system counts them, NAME=value and an end mark each; of a secret, as much as its reference."""
    return sum(len(f"{name}={value}\0".encode()) for name, value in env.items())


def _is_variable(env: Fields, name: Any, value: Any) -> bool:
    if type(name) is not str or not _ENV_NAME.fullmatch(name):
        env.fault(str(name), "E_PATTERN", "a name is letters, digits and _, and does not begin with a digit")
    elif isinstance(value, dict):
        return references.read_reference(env, name) is not None
    elif type(value) is not str:
        env.wrong_type(name, "must be text")
    elif not value.isprintable() and (odd := CONTROL.search(value)):
        env.fault(name, "E_CHAR", *control_words(odd[0]))
    else:
        return True
    return False


_HANDLER = re.compile(
    r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"  # module:function
    r"|(?:jobs/)?[A-Za-z0-9_][\w.-]*"  # jobs/name, or a registered name
)


def read_python(fields: Fields) -> Json:
    if "handler" not in fields.values:
        fields.fault("handler", "E_REQUIRED", "a python job needs a handler", "write handler: module:function")
    handler = fields.text("handler", 256)
    if handler is not None and not _HANDLER.fullmatch(handler):
        fields.fault("handler", "E_PATTERN", "module:function, jobs/name or a registered name expected")
    spec: Json = {"handler": handler}
    if data := fields.json("data", MAX_DATA):
        spec["data"] = data
    if env := _read_env(fields):
        spec["env"] = env
    if fields.flag("previous_result"):
        spec["previous_result"] = True
    return spec
