"""Rows of the audit log in a bucket: objects of JSON lines, named by the numbers of their first and last row.

    audit/00000000000000000001-00000000000000010000.jsonl

An object is written whole or not at all, and never again. So whoever goes on after the last one loses nothing and
doubles nothing, whenever the one before was killed.
"""

from __future__ import annotations

import re

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore

from horae.errors import Unavailable

PLACE = "audit/"
_NAME = re.compile(r"audit/([0-9]{20})-([0-9]{20})\.jsonl")


class Archive:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def last(self) -> int:
        """Return the number of the last row that is there; 0: there is none."""
        try:
            names = [each["path"] for page in obstore.list(self._store, prefix=PLACE) for each in page]
        except BaseError as error:
            raise _away(error) from error
        return max((int(found[2]) for name in names if (found := _NAME.fullmatch(name))), default=0)

    def put(self, first: int, last: int, lines: bytes) -> None:
        """Keep the rows of these numbers; those that are there already stay."""
        try:
            obstore.put(self._store, f"{PLACE}{first:020}-{last:020}.jsonl", lines, mode="create")
        except AlreadyExistsError:
            return
        except BaseError as error:
            raise _away(error) from error


def _away(error: BaseError) -> Unavailable:
    return Unavailable(f"the bucket cannot be used: {str(error).partition(chr(10))[0]}")
