"""The documents of triggers on events (core.time.outside): how they are read.

    {on: {job: extract, states: [failed, timed_out]}}
    {on: {node: any, states: [gone]}}

What must stay true: `canonical` is idempotent but for the id of the job, which is found anew whenever a document is
submitted.
"""

from __future__ import annotations

from collections.abc import Sequence

from horae.core.fields import Fields, Problems, fields_of, shown, type_words
from horae.core.model import Json
from horae.core.policy.dependencies import read_job_name
from horae.core.spelling import suggest
from horae.core.time.outside import JOB, NODE, NODE_STATES, ON, STATES

MAX_NODE_NAME = 128  # characters
_FIELDS = frozenset({JOB, "states", "id"})
_NODE_FIELDS = frozenset({NODE, "states"})
_EXAMPLE = "{job: extract, states: [failed]}"
_NODE_EXAMPLE = "{node: any, states: [gone]}"


def canonical(document: Json) -> Json:
    """Return the document in its one normal form, without the id of the job; raises Invalid with every problem."""
    problems = Problems()
    fields = Fields(document, "", problems)
    fields.refuse_others(frozenset({ON}))
    inner = fields_of(document[ON], ON, problems, f"must be a mapping such as {_EXAMPLE}")
    found = _read(inner) if inner is not None else {}
    problems.raise_any()
    return {ON: found}


def _read(fields: Fields) -> Json:
    if JOB in fields.values and NODE in fields.values:
        fields.fault(NODE, "E_FIELD_CONFLICT", "a trigger listens to a job or to nodes, not to both", "make two of it")
        return {}
    return _read_node(fields) if NODE in fields.values else _read_job(fields)


def _read_job(fields: Fields) -> Json:
    fields.refuse_others(_FIELDS)
    fields.require(JOB, f"is missing; write for example {_EXAMPLE}, or {_NODE_EXAMPLE}")
    fields.require("states", f"is missing: some of {', '.join(STATES)}")
    return {JOB: read_job_name(fields, JOB), "states": _read_states(fields, STATES)}


def _read_node(fields: Fields) -> Json:
    """Whether there is such a node is not asked: it may be still to come."""
    fields.refuse_others(_NODE_FIELDS)
    fields.require("states", f"is missing: some of {', '.join(NODE_STATES)}")
    return {NODE: fields.text(NODE, MAX_NODE_NAME), "states": _read_states(fields, NODE_STATES)}


def _read_states(fields: Fields, known: Sequence[str]) -> list[str]:
    """Each once, in the order of those that are known."""
    found = set()
    for index, value in enumerate(fields.items("states", len(known), "states", least=1)):
        path = f"{fields.at('states')}[{index}]"
        if type(value) is not str:
            fields.problems.add(path, "E_TYPE", *type_words("must be the word of a state", value))
        elif value not in known:
            message = f"one of {', '.join(known)}, got {shown(value)}"
            fields.problems.add(path, "E_ENUM", message, suggest(value, known))
        found.add(value if type(value) is str else "")
    return [state for state in known if state in found]
