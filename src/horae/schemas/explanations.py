"""What the API shows of an explanation."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from horae.core.insight.why.codes import CODES
from horae.schemas.basics import Id, Object, When


class Sentence(Struct):
    """One thing that is so."""

    code: Annotated[str, Meta(description="What it says, stable.", extra_json_schema={"enum": list(CODES)})]
    text: Annotated[str, Meta(description="The same in words, with what is known.")]
    data: Annotated[Object, Meta(description="Ids, numbers and moments that the words name.")]
    policy: Annotated[str | None, Meta(description="The line of a document that decided, if one did.")]
    unblock: Annotated[str | None, Meta(description="What would change it: a command, or a line of a document.")]
    page: Annotated[str, Meta(description="Where this server says what the code means, and what to do.")]


class Explanation(Struct):
    """Why something is as it is: the sentence that matters most comes first."""

    about: Annotated[str, Meta(extra_json_schema={"enum": ["job", "trigger", "run"]})]
    id: Id
    job_id: Id
    job_name: str
    run_id: Annotated[Id | None, Meta(description="The run that the first sentences are about, if they are.")]
    at: Annotated[str | None, Meta(description="The moment that was asked for, as it was written.")]
    now: Annotated[When, Meta(description="When this was so.")]
    next_at: Annotated[When | None, Meta(description="When the job, or the trigger, goes next.")]
    sentences: list[Sentence]


SHOWN = (Explanation, Sentence)
