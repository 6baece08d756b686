"""The fields of work as JSON Schema, as far as that can say it: what the API says of them.

One field has one schema, whatever kinds have it, since a job document has them side by side.
"""

from __future__ import annotations

from typing import Any

from horae.core import waits
from horae.core.model import Json
from horae.core.policy import resources
from horae.core.secrets.references import FILE_PATTERN, MAX_FILES, NAME_PATTERN
from horae.core.sizes import MOST_CPUS
from horae.core.work import builds, commands, isolation, projects, queries, repositories, requests, syncs, waiting
from horae.core.workflows import document, expressions, graph
from horae.core.workflows.progress import MAX_ITEMS


def an_object(properties: Json, *required: str, **more: Any) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
        **more,
    }


def whole(low: int, high: int) -> Json:
    return {"type": "integer", "minimum": low, "maximum": high}


TEXT: Json = {"type": "string", "minLength": 1, "maxLength": 128}
_LINE: Json = {"type": "string", "minLength": 1}
_SCRIPT: Json = {"type": "string", "minLength": 1, "maxLength": queries.MAX_QUERY}
_MODE: Json = {"enum": list(queries.WRITE_MODES)}
_GLOBS: Json = {
    "type": "array", "maxItems": builds.MAX_GLOBS, "items": {**_LINE, "maxLength": builds.MAX_GLOB},
}  # fmt: skip
SECRET_NAME: Json = {
    "type": "object",
    "properties": {"secret": {"type": "string", "pattern": f"^{NAME_PATTERN}$"}},
    "required": ["secret"],
    "additionalProperties": False,
    "description": "The secret of this name.",
}
_TEXT_OR_SECRET: Json = {"anyOf": [{"type": "string"}, SECRET_NAME]}
_CREDENTIAL: Json = {"anyOf": [{"type": "string", "minLength": 1}, SECRET_NAME]}
_ENV: Json = {
    "type": "object",
    "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
    "additionalProperties": _TEXT_OR_SECRET,
}
_CREDENTIALS: Json = {
    "username": {"type": "string", "minLength": 1},
    "password": _CREDENTIAL,
    "private_key": _CREDENTIAL,
}

_MEMORY: Json = {"type": ["string", "integer"], "examples": ["512MiB"]}
_CPUS: Json = {"type": "number", "minimum": resources.LEAST_CPUS, "maximum": MOST_CPUS}
RESOURCES: Json = {  # of the policy
    "type": "object",
    "maxProperties": resources.MAX_RESOURCES,
    "properties": {"slots": whole(1, resources.MOST_SLOTS), "cpus": _CPUS, "memory": _MEMORY},
    "propertyNames": {"pattern": f"^{resources.NAME}$"},
    "additionalProperties": whole(1, resources.MOST_PIECES),
    "description": "What it takes of its agent while it runs.",
    "examples": [{"slots": 2, "gpu": 1}],
}

_TASK: Json = {  # beside the fields of a job
    "needs": {
        "type": "array",
        "items": {"anyOf": [TEXT, an_object({"task": TEXT, "on": {"enum": list(graph.ENDINGS)}}, "task")]},
        "description": "What must have ended, and how: success, unless it says otherwise.",
    },
    "if": {**TEXT, "maxLength": expressions.MAX_CONDITION, "description": "A condition on results: else skipped."},
    "for_each": {"type": ["string", "array"], "description": "A list, or a reference to one: a run for each item."},
    "at_once": {**whole(1, MAX_ITEMS), "description": "Items of for_each that may go on at a time."},
    "may_fail": {"type": "boolean", "description": "Its failure holds nobody up."},
    "data": {"type": "object", "description": "Given to its run, with ${references}."},
    "job": {"type": ["string", "integer"], "description": "A job of its own, by key or id."},
}

_DURATION: Json = {"type": ["string", "number"], "description": "Such as 90s, 10m or 1h30m; a number is seconds."}
FIELDS: Json = {
    "steps": {
        "type": "array",
        "minItems": 1,
        "maxItems": commands.MAX_STEPS,
        "items": an_object(
            {"name": TEXT, "run": {"type": "string", "minLength": 1, "maxLength": commands.MAX_RUN}}, "run"
        ),
        "description": "Shell commands, one after the other.",
    },
    "script": {"type": "string", "minLength": 1, "description": "A file to execute, in place of steps."},
    "checkout": an_object({"url": {"type": "string", "minLength": 1}, "ref": TEXT, **_CREDENTIALS}, "url"),
    "image": {**TEXT, "description": "The image of the container to run in."},
    "working_directory": {"type": "string", "minLength": 1},
    "sandbox": {"enum": list(isolation.SANDBOXES), "description": "The walls to run behind."},
    "network": {
        "description": "Whether there is one; or the addresses that can be reached, as host:port.",
        "anyOf": [
            {"enum": ["on", "off"]},
            {"type": "boolean"},
            {"type": "array", "minItems": 1, "maxItems": isolation.MOST_LISTED, "items": _LINE},
        ],
    },
    "limits": {
        **an_object(
            {
                "memory": _MEMORY,
                "cpus": _CPUS,
                "pids": whole(isolation.LEAST_PIDS, isolation.MOST_PIDS),
            }
        ),
        "description": "The most that it may use.",
    },
    "artifacts": {**_GLOBS, "description": "Files to keep, as globs inside the workspace."},
    "reports": {**_GLOBS, "description": "Test reports in the form of JUnit, as globs inside the workspace."},
    "cache": {
        "type": "array",
        "maxItems": builds.MAX_CACHES,
        "items": an_object({"key": {"type": "string", "maxLength": builds.MAX_GLOB}, "paths": _GLOBS}, "key", "paths"),
        "description": "Directories that the next build finds again, by key.",
    },
    "walled": {"type": "boolean", "description": "Never on the machine itself, even where its one user is trusted."},
    "handler": {"type": "string", "minLength": 1, "description": "A Python function, as module:function."},
    "http": {
        **an_object(
            {
                "url": {**_LINE, "maxLength": requests.MAX_URL},
                "method": {"enum": list(requests.METHODS)},
                "headers": {
                    "type": "object",
                    "maxProperties": requests.MAX_HEADERS,
                    "propertyNames": {"pattern": f"^{requests.HEADER_NAME}$"},
                    "additionalProperties": _TEXT_OR_SECRET,
                },
                "json": {"description": "What is sent, as JSON."},
                "body": {**_TEXT_OR_SECRET, "description": "What is sent, as text, in place of json."},
                "expect": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": requests.MAX_EXPECTED,
                    "items": {"anyOf": [whole(200, 599), {"enum": ["2xx", "3xx", "4xx", "5xx"]}]},
                    "description": "The statuses of success.",
                },
                "follow_redirects": whole(0, requests.MOST_REDIRECTS),
                "max_body": {**_MEMORY, "description": "The most that the answer may bring.", "examples": ["1MiB"]},
                "secrets": {"type": "object", "description": "Set by Horae: the secrets that the texts name."},
            },
            "url",
        ),
        "description": "A request to make.",
    },
    "data": {"type": "object", "description": "Given to the handler, or sent by a request."},
    "previous_result": {"type": "boolean", "description": "Give the handler the result of the last success."},
    "env": _ENV,
    "files": {
        "type": "object",
        "maxProperties": MAX_FILES,
        "propertyNames": {"pattern": f"^(?:{FILE_PATTERN})$"},
        "additionalProperties": SECRET_NAME,
        "description": "Files below HORAE_SECRETS_DIR, each with a secret in it.",
    },
    "source": {
        "description": "The git repository of a project, or the source of a sync, and what opens it.",
        "anyOf": [
            an_object(
                {
                    "url": {"type": "string", "minLength": 1, "maxLength": repositories.MAX_URL},
                    "branch": {"type": "string", "minLength": 1},
                    **_CREDENTIALS,
                },
                "url",
            ),
            {"type": "object", "required": ["type"], "properties": {"type": {"enum": list(syncs.SOURCES)}}},
        ],
    },
    "build_tool": {"enum": list(projects.BUILD_TOOLS)},
    "maven_settings": {"type": "boolean", "description": "Whether the build gets the settings.xml of the agent."},
    "build_cmd": _SCRIPT,
    "main_class": {"type": "string", "minLength": 1},
    "main_file": {"type": "string", "minLength": 1, "description": "A path inside the project."},
    "module": {"type": "string", "minLength": 1, "description": "A module of the project, in place of main_file."},
    "requirements": {"type": "string", "minLength": 1, "description": "A path inside the project."},
    "args": {  # of a script one by one; of a project as one text
        "anyOf": [{"type": "array", "maxItems": commands.MAX_ARGS, "items": {"type": "string"}}, _SCRIPT]
    },
    "query": {**_SCRIPT, "description": "Spark SQL."},
    "outputs": {
        "type": "array",
        "maxItems": queries.MAX_OUTPUTS,
        "items": {
            "anyOf": [
                an_object({"to": {"const": "files"}, "uri": _LINE, "path": _LINE, "mode": _MODE}, "to", "path"),
                an_object(
                    {"to": {"const": "clickhouse"}, "database": _LINE, "table": _LINE, "mode": _MODE},
                    "to",
                    "database",
                    "table",
                ),
            ]
        },
    },
    "source_id": {**whole(0, syncs.LARGEST_ID), "description": "The kept source of a sync."},
    "read": {"type": "object", "description": "What a sync reads: table, query, path, or sheet and range."},
    "mode": {"enum": list(syncs.MODES)},
    "cursor": {**_LINE, "description": "The column that tells what is new."},
    "begin": {"type": ["string", "number"], "description": "The value of the cursor at which the first sync begins."},
    "primary_key": {"type": ["string", "array"], "items": _LINE},
    "destinations": {
        "type": "array",
        "minItems": 1,
        "items": {"type": "object", "required": ["type"], "properties": {"type": {"enum": list(syncs.DESTINATIONS)}}},
    },
    "watched": {
        **an_object({"grace": _DURATION}, "grace"),
        "description": "Others run it: how long after its moment they may tell of its end.",
    },
    "wait": {
        **an_object(
            {
                "for": _DURATION,
                "until": TEXT,
                "signal": {**TEXT, "pattern": f"^{waits.SIGNAL_NAME.pattern}$"},
                "approval": an_object(
                    {
                        "by": {"type": "array", "minItems": 1, "maxItems": waiting.MAX_DECIDERS, "items": TEXT},
                        "message": TEXT,
                    },
                    "by",
                ),
                "within": _DURATION,
                "otherwise": {"enum": ["fail", "go_on", "skip"]},
            }
        ),
        "description": "What to wait for: a time, a moment, a signal, or the decision of a person.",
    },
    "tasks": {
        "type": "object",
        "minProperties": 1,
        "maxProperties": document.MAX_TASKS,
        "propertyNames": {"pattern": f"^{expressions.NAME_PATTERN}$", "maxLength": document.MAX_NAME},
        "additionalProperties": {"type": "object", "properties": _TASK},
        "description": "The tasks of a workflow, by name: each a job of its own, or with the fields of one.",
    },
    "returns": {"description": "The result of a workflow: anything, with ${references} to those of its tasks."},
    "options": {"type": "object", "description": "What workers outside Horae need to know besides."},
}
