"""How the name of a handler finds its code.

"package.module:function"   any importable module; the function or class carries @handler
"jobs/NAME"                 the handler of the folder NAME in the jobs directory (__init__.py, job.py or a file
                            that is named as its class is: MyJob/MyJobHandler.py)
"NAME"                      the handler registered as @handler(name="NAME"), in that directory or imported
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any
from zlib import crc32

from horae.errors import Invalid
from horae.handlers import NAME, Handler, every, handler, named, refused, registered

MODULE = re.compile(r"(?P<module>[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<function>[^\W\d]\w*(?:\.[^\W\d]\w*)*)")
_FOLDER = re.compile(r"jobs/(?P<folder>\w[\w-]*)")
_PROVIDERS = "providers"  # the module of the jobs directory that all its folders share


def loaded(text: str) -> Handler | None:
    """Return the handler of this name if its code is in this process already; imports nothing."""
    match = MODULE.fullmatch(text)
    if match is None:
        return named(text)
    module = sys.modules.get(match["module"])
    return None if module is None else registered(_attribute(module, match["function"]))


def resolve(text: str, jobs_directory: Path | None = None) -> Handler:
    """Return the handler of this name, importing what is needed. Runs the author's module: call it in a worker."""
    if match := MODULE.fullmatch(text):
        return _from_module(match["module"], match["function"])
    if match := _FOLDER.fullmatch(text):
        return _from_folder(match["folder"], jobs_directory)
    if NAME.fullmatch(text):
        return _from_name(text, jobs_directory)
    raise refused(
        f"a handler is named 'module:function', 'jobs/NAME' or 'NAME'; got {text!r}",
        hint="for example reports.daily:send",
    )


def folder_of(text: str, jobs_directory: Path | None) -> Path | None:
    """Return the folder of the jobs directory in which a handler is, as far as that can be told without running any."""
    if jobs_directory is None or MODULE.fullmatch(text):
        return None
    match = _FOLDER.fullmatch(text)
    folder = jobs_directory / (match["folder"] if match else text)
    if folder.is_dir() and folder.parent == jobs_directory:
        return folder
    return None if match else next(_folders_with(text, jobs_directory), None)


def _folders_with(name: str, jobs_directory: Path) -> Iterator[Path]:
    """Folders in which the name of a handler is written."""
    written = re.compile(rf"""(["']){re.escape(name)}\1""")
    for folder in folders(name, jobs_directory):
        files = [jobs_directory / folder / f"{module}.py" for module in modules_of(folder, jobs_directory)]
        if any(written.search(file.read_text(errors="replace")) for file in files):
            yield jobs_directory / folder


def _from_module(module_name: str, function_name: str) -> Handler:
    module = _load(module_name)
    function = _attribute(module, function_name)
    if function is None:
        raise refused(
            f"module {module_name!r} has no {function_name!r}",
            hint=f"it is loaded from {getattr(module, '__file__', None) or 'no file'}",
        )
    found = registered(function)
    if found is None:
        raise refused(f"{module_name}:{function_name} is not a handler", hint="put @handler above it")
    return found


def _from_folder(folder: str, jobs_directory: Path | None) -> Handler:
    if jobs_directory is None:
        raise refused(f"'jobs/{folder}' needs a jobs directory, and this agent has none")
    package = _load_folder(folder, jobs_directory)
    found = [each for each in every() if _lies_in(each.origin, package)]
    if not found:
        found = [made for cls in _unmarked(folder, package) if (made := registered(handler(cls))) is not None]
    named = [each for each in found if each.name == folder or _is_class_of(folder, each.origin)] or found
    if len(named) == 1:
        return named[0]
    if not found:
        raise refused(
            f"no function or class in jobs/{folder} carries @handler",
            hint=f"nor is there a class with execute(self, job_data, cancellation); it is {jobs_directory / folder}",
        )
    raise refused(
        f"jobs/{folder} has {len(found)} handlers: {', '.join(sorted(h.name for h in found))}",
        hint=f"name one of them {folder!r}, or use its own name",
    )


def _unmarked(folder: str, package: str) -> list[type[Any]]:
    """Classes of a folder that can be handlers without saying so: the one named as the folder is, else all."""
    modules = [module for name, module in list(sys.modules.items()) if _is_within(name, package)]
    found = [
        each
        for module in modules
        for each in vars(module).values()
        if inspect.isclass(each) and _lies_in(each, package) and inspect.isfunction(getattr(each, "execute", None))
    ]
    usable = list(dict.fromkeys(each for each in found if not inspect.isabstract(each)))
    return [each for each in usable if _is_class_of(folder, each)] or usable


def _is_class_of(folder: str, origin: Any) -> bool:
    return inspect.isclass(origin) and is_named_for(folder, origin.__name__)


def is_named_for(folder: str, name: str) -> bool:
    """MyJobHandler is the class, and the file, of the folders MyJob, my_job and my-job."""
    return name.replace("_", "").lower() == folder.replace("_", "").replace("-", "").lower() + "handler"


def _from_name(name: str, jobs_directory: Path | None) -> Handler:
    """Look among what is loaded, then in the folder of that name, then in every other folder."""
    broken = []
    for folder in [None, *folders(name, jobs_directory)]:
        try:
            if folder is not None and jobs_directory is not None:
                _load_folder(folder, jobs_directory)
        except Invalid as error:
            broken.append(error.message)
        if (found := named(name)) is not None:
            return found
    where = "and this agent has no jobs directory" if jobs_directory is None else "also not in the jobs directory"
    why = f" ({'; '.join(broken)})" if broken else ""
    raise refused(f"no handler is named {name!r}, {where}{why}", hint=f'write @handler(name="{name}")')


def folders(first: str, jobs_directory: Path | None) -> list[str]:
    """Return the names of the folders of jobs, that of this name first."""
    if jobs_directory is None or not jobs_directory.is_dir():
        return []
    names = [each.name for each in jobs_directory.iterdir() if each.is_dir()]
    fit = [name for name in names if _FOLDER.fullmatch(f"jobs/{name}") and not name.startswith("__")]
    return sorted(fit, key=lambda name: (name != first, name))


def _load_folder(folder: str, jobs_directory: Path) -> str:
    """Import a job's folder under a package of our own, so that jobs/email cannot shadow `email`."""
    modules = modules_of(folder, jobs_directory)
    if not modules:
        where = f"{folder}/__init__.py, {folder}/job.py nor {folder}/{folder}Handler.py"
        raise refused(f"the jobs directory has neither {where}", hint=f"it is {jobs_directory}")
    place = os.path.abspath(jobs_directory)  # not resolved: behind a link, another directory may stand tomorrow
    root = f"horae_jobs_{crc32(place.encode()):08x}"
    if root not in sys.modules:
        package = sys.modules[root] = ModuleType(root)
        package.__path__ = [place]
    if (jobs_directory / f"{_PROVIDERS}.py").is_file():
        _load(f"{root}.{_PROVIDERS}")
    _load(f"{root}.{folder}")
    for module in modules:
        if module != "__init__":
            _load(f"{root}.{folder}.{module}")
    return f"{root}.{folder}"


def modules_of(folder: str, jobs_directory: Path) -> list[str]:
    """Return the files of a job's folder in which its handler may be: the folder itself, job.py, MyJobHandler.py."""
    found = [each.stem for each in sorted((jobs_directory / folder).glob("*.py")) if each.is_file()]
    return [each for each in found if each in ("__init__", "job") or is_named_for(folder, each)]


def is_there(text: str, jobs_directory: Path | None) -> bool:
    """Return whether the code of a handler is here, as far as that can be told without running any."""
    if named(text) is not None:
        return True
    if match := MODULE.fullmatch(text):
        places = [str(jobs_directory or "."), os.getcwd(), *sys.path]
        return PathFinder.find_spec(match["module"].partition(".")[0], places) is not None
    if jobs_directory is None:
        return False
    if match := _FOLDER.fullmatch(text):
        return bool(modules_of(match["folder"], jobs_directory))
    word = re.compile(rf"\b{re.escape(text)}\b")
    return any(word.search(each.read_text(errors="replace")) for each in sorted(jobs_directory.glob("*/*.py")))


def _load(module_name: str) -> ModuleType:
    importlib.invalidate_caches()  # the file may be younger than the last look into its directory
    try:
        return importlib.import_module(module_name)
    except Invalid:
        raise
    except (Exception, SystemExit) as error:
        raise refused(f"module {module_name!r} cannot be imported: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """Return why a module cannot be imported, in one line; of a mistake in its text, where and what."""
    if isinstance(error, SyntaxError) and error.filename:
        line = f"line {error.lineno}: {(error.text or '').strip()}" if error.lineno else "unreadable"
        return f"{type(error).__name__}: {error.msg} in {error.filename}, {line}"
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _attribute(module: ModuleType, path: str) -> Any:
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _lies_in(origin: Any, package: str) -> bool:
    return _is_within(origin.__module__, package)


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")
