"""JUnit XML of a build, read into test counts.

What must stay true: a report is the work of a stranger. A document type, with which entities begin, ends the reading;
so do too many bytes. Nothing is held but the counts and the test at hand.
"""

from __future__ import annotations

from typing import BinaryIO
from xml.parsers import expat

from horae.core.model import Json
from horae.core.work.builds import MAX_WORDS, count_test
from horae.errors import Invalid

MAX_REPORT = 32 << 20  # bytes of one report
PIECE_BYTES = 1 << 16
_OUTCOMES = {"failure": "failed", "error": "failed", "skipped": "skipped"}


def read_junit(file: BinaryIO, tests: Json) -> None:
    """Add the tests of a report to the counts; Invalid says what is wrong with it. What came before that counts."""
    parser = expat.ParserCreate()
    reader = _Reader(tests)
    parser.StartElementHandler = reader.begin
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = _refuse
    parser.EntityDeclHandler = _refuse
    left = MAX_REPORT
    try:
        while piece := file.read(PIECE_BYTES):
            left -= len(piece)
            if left < 0:
                raise Invalid(f"longer than {MAX_REPORT >> 20} MiB")
            parser.Parse(piece, False)
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise Invalid(f"not XML: {error}") from None
    if not reader.is_report:
        raise Invalid("no JUnit report: the root is not testsuite or testsuites")


def _refuse(*_: object) -> None:
    raise Invalid("it has a document type or entities, which a test report needs not")


class _Reader:
    def __init__(self, tests: Json) -> None:
        self._tests = tests
        self._depth = 0
        self._case: dict[str, str] | None = None  # the attributes of the test at hand
        self._outcome = "passed"
        self._message = ""
        self._is_telling = False  # inside of what says why
        self.is_report = False

    def begin(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == 1:
            self.is_report = name in ("testsuite", "testsuites")
        if name == "testcase" and self.is_report:
            self._case, self._outcome, self._message = attributes, "passed", ""
        elif name in _OUTCOMES and self._case is not None and self._outcome != "failed":
            self._outcome = _OUTCOMES[name]
            self._message = attributes.get("message", "")
            self._is_telling = not self._message

    def text(self, data: str) -> None:
        if self._is_telling and len(self._message) < MAX_WORDS:
            self._message += data[:MAX_WORDS]

    def end(self, name: str) -> None:
        self._depth -= 1
        if name in _OUTCOMES:
            self._is_telling = False
        elif name == "testcase" and self._case is not None:
            case, self._case = self._case, None
            title = ".".join(filter(None, (case.get("classname", "")[:MAX_WORDS], case.get("name", "")[:MAX_WORDS])))
            count_test(self._tests, self._outcome, title, _seconds(case.get("time", "")), self._message)


def _seconds(text: str) -> float:
    try:
        return float(text[:40].replace(",", ""))
    except ValueError:
        return 0.0
