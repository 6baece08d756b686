"""What many answers have in them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from horae.core import model

Id = Annotated[int, Meta(ge=1, le=model.LARGEST_ID)]
Count = Annotated[int, Meta(ge=0)]
When = Annotated[str, Meta(extra_json_schema={"format": "date-time"}, examples=["2027-03-28T02:30:00Z"])]
StateWord = Annotated[str, Meta(extra_json_schema={"enum": [state.word for state in model.State]})]
Object = dict[str, Any]
JobName = Annotated[str | UnsetType, Meta(description="Name of its job, in lists and where one is read.")]


class Health(Struct):
    status: str
    version: str | UnsetType = UNSET
    node: str | UnsetType = UNSET


class Readiness(Struct):
    ready: bool
    checks: dict[str, str]


class FieldError(Struct):
    path: str
    code: str
    message: str
    hint: str | UnsetType = UNSET


class Problem(Struct):
    """Why a request was not done (RFC 9457). `code` is stable; every code is explained on /docs."""

    type: str
    title: str
    status: Annotated[int, Meta(ge=400, le=599)]
    code: Annotated[str, Meta(pattern="^E_[A-Z_]+$")]
    detail: str
    request_id: str
    errors: list[FieldError]
    hint: str | UnsetType = UNSET
