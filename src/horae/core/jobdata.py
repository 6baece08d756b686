"""Data of a run as one text: what clients of the administration contract send, and what class handlers are given.

The core keeps data as a JSON object. A text that is one is kept as it reads, so that every handler finds its fields;
any other text is kept whole under a name of its own (specs.parse_data). What must stay true: what comes back says the
same as what was given, and is the text itself unless that is a JSON object.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from horae.core.model import Json

MAX_DATA = 256 * 1024  # bytes of JSON
WHOLE = "job_data"  # the field that holds a text which is no object


def text_of(data: Json) -> str | None:
    if not data:
        return None
    if data.keys() == {WHOLE} and isinstance(data[WHOLE], str):
        return str(data[WHOLE])
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def object_in(text: str) -> Json | None:
    """Return the object that a text is; None for one that must be kept as text, or could not be told from such."""
    try:
        value: Any = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and value and value.keys() != {WHOLE} else None


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)
