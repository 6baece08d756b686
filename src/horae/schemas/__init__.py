"""What the API shows: the form of every answer.

The structs are the contract: the server encodes them with msgspec, web/openapi.py takes their schemas from the types,
and the client reads them, so that what is sent is what is documented and what a program gets. Moments are RFC 3339 in
UTC; ids are whole numbers. A field that is added has a default, so that a newer client reads an older server.
"""

from __future__ import annotations

from msgspec import Struct

from horae.schemas.access import *  # noqa: F403
from horae.schemas.alerts import *  # noqa: F403
from horae.schemas.basics import *  # noqa: F403
from horae.schemas.cluster import *  # noqa: F403
from horae.schemas.jobs import *  # noqa: F403
from horae.schemas.runs import *  # noqa: F403

SHOWN = tuple(
    sorted(
        (it for it in [*vars().values()] if isinstance(it, type) and issubclass(it, Struct) and it is not Struct),
        key=lambda shown: shown.__name__,
    )
)
