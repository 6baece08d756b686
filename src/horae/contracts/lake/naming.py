"""Errors in the contract's own words: which field of a request a field of Horae's job document came from.

A job is read into Horae's document first, and judged there. What is wrong with it is told under the name that the
client wrote.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from horae.core.fields import Fields, Problems
from horae.core.model import Json
from horae.errors import Denied, Error, Invalid

# Horae's path → the contract's, of which the first that was sent counts.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "name": ("display_name", "name"),
    "spec.source": ("source_id", "git_url", "git_clone_info"),
    "spec.source.url": ("git_url", "git_clone_info.url"),
    "spec.source.branch": ("branch",),
    "spec.source.username": ("git_clone_info.username",),
    "spec.source.password": ("git_clone_info.password",),
    "spec.source.private_key": ("git_clone_info.private_key",),
    "spec.query": ("query_info.query", "query"),
    "spec.outputs": ("query_info.outputs", "outputs"),
    "spec.mode": ("sync_mode",),
    "spec.cursor": ("incremental_column",),
    "spec.begin": ("last_synced_value",),
    "spec.read.database": ("database_name",),
    "spec.read.table": ("table_name",),
    "spec.read.query": ("query_statement",),
    "spec.read.path": ("bucket_name",),
    "spec.read.sheet": ("spread_sheet_id",),
    "spec.read.header": ("file_config.include_header", "include_header"),
    "spec.read.delimiter": ("file_config.delimiter",),
    "spec.read.skip_rows": ("file_config.skip_rows",),
}
_OUTPUT = re.compile(r"spec\.outputs\[(\d+)\](?:\.(\w+))?")
_OUTPUT_NAMES: Mapping[str, tuple[str, ...]] = {
    "to": ("type",),
    "uri": ("hdfs_uri",),
    "path": ("result_path",),
    "mode": ("write_mode",),
    "database": ("database", "database_name"),
    "table": ("table_name",),
}
_DESTINATION = re.compile(r"spec\.destinations\[\d+\]\.(database|table)")


def renamed(error: Invalid | Denied, sent: Fields) -> Error:
    """Return the same error, of the request as it was sent."""
    problems = Problems()
    for problem in error.listed():
        path, is_output = _path(problem.path, sent), bool(_OUTPUT.fullmatch(problem.path))
        lacks = is_output and problem.code == "E_REQUIRED"
        problems.add(path, problem.code, "an output of this type needs it" if lacks else problem.message, problem.hint)
    return type(error).of(problems.listed)


def _path(path: str, sent: Fields) -> str:
    if found := _OUTPUT.fullmatch(path):
        return _output_path(int(found[1]), found[2], sent)
    if found := _DESTINATION.fullmatch(path):
        return sent.at(f"dest_{found[1]}_name")
    names = _NAMES.get(path) or (re.sub(r"^spec\.(options\.)?", "", path),)
    return sent.at(next((name for name in names if _is_there(sent.values, name)), names[0]))


def _output_path(index: int, field: str | None, sent: Fields) -> str:
    outer = "query_info" if "query_info" in sent.values else ""
    items = (sent.values.get("query_info") or sent.values).get("outputs")
    item = items[index] if isinstance(items, list) and index < len(items) else {}
    place = f"{outer}{'.' if outer else ''}outputs[{index}]"
    if field is None or field == "to":
        return sent.at(f"{place}.type" if field else place)
    inner = isinstance(item, dict) and isinstance(item.get("config"), dict)
    values: Json = item["config"] if inner else item if isinstance(item, dict) else {}
    names = _OUTPUT_NAMES.get(field, (field,))
    name = next((name for name in names if name in values), names[0])
    return sent.at(f"{place}.config.{name}" if inner else f"{place}.{name}")


def _is_there(values: Any, path: str) -> bool:
    for name in path.split("."):
        if not isinstance(values, dict) or values.get(name) in (None, ""):
            return False
        values = values[name]
    return True
