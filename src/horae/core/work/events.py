"""The documents of triggers on events (core.time.outside): how they are read.

    {on: {job: extract, states: [failed, timed_out]}}

What must stay true: `canonical` is idempotent but for the id of the job, which is found anew whenever a document is
submitted.
"""

from __future__ import annotations

from horae.core.fields import Fields, Problems, fields_of, shown, type_words
from horae.core.model import Json
from horae.core.policy.dependencies import read_job_name
from horae.core.spelling import suggest
from horae.core.time.outside import ON, STATES

_FIELDS = frozenset({"job", "states", "id"})
_EXAMPLE = "{job: extract, states: [failed]}"


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
    if "node" in fields.values:
        hint = f"write for example {_EXAMPLE}; `horae nodes` shows which nodes are gone"
        fields.fault("node", "E_UNKNOWN_FIELD", "what becomes of nodes fires no trigger, only ends of runs do", hint)
        return {}
    fields.refuse_others(_FIELDS)
    fields.require("job", f"is missing; write for example {_EXAMPLE}")
    fields.require("states", f"is missing: some of {', '.join(STATES)}")
    return {"job": read_job_name(fields, "job"), "states": _read_states(fields)}


def _read_states(fields: Fields) -> list[str]:
    """Each once, in the order of STATES."""
    found = set()
    for index, value in enumerate(fields.items("states", len(STATES), "states", least=1)):
        path = f"{fields.at('states')}[{index}]"
        if type(value) is not str:
            fields.problems.add(path, "E_TYPE", *type_words("must be the word of a state", value))
        elif value not in STATES:
            message = f"one of {', '.join(STATES)}, got {shown(value)}"
            fields.problems.add(path, "E_ENUM", message, suggest(value, STATES))
        found.add(value if type(value) is str else "")
    return [state for state in STATES if state in found]
