"""Data of a run as one text: what clients of the administration contract send, and what class handlers are given.

The core keeps data as a JSON object. A text that is one is kept as it reads, so that every handler finds its fields;
any other text is kept whole under a name of its own. What must stay true: `text_of(data_of(text))` says the same as
`text`, and is `text` itself unless that is a JSON object.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from horae.core.model import Json

WHOLE = "job_data"  # the field that holds a text which is no object


def data_of(text: str, name: str = "JobData") -> Json:
    """The data that stands for a text; Invalid, about `name`, when no store could keep it."""
    from horae.core.fields import Fields, Problems  # here, because every worker loads this file for `text_of` alone
    from horae.core.kinds import MAX_DATA

    value = _object(text)
    problems = Problems()
    data = Fields({name: {WHOLE: text} if value is None else value}, "", problems).json(name, MAX_DATA)
    problems.settle()
    return data


def text_of(data: Json) -> str | None:
    if not data:
        return None
    if data.keys() == {WHOLE} and isinstance(data[WHOLE], str):
        return str(data[WHOLE])
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _object(text: str) -> Json | None:
    """The object that a text is; None for one that must be kept as text, or could not be told from such."""
    try:
        value: Any = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not value or value.keys() == {WHOLE}:
        return None
    from horae.core.fields import encoded, json_problems  # as above

    return value if encoded(value) is not None and next(json_problems(value, ""), None) is None else None


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)
