"""From bytes to plain data: JSON and YAML, read the same way by the API and the command line.

What must stay true:
- Every input, however hostile, is answered or refused within a fraction of a second: size, depth and
  the number of YAML values are bounded, and aliases cannot blow a small file up.
- What comes out is text, numbers, booleans, null, lists and mappings with text keys. No NUL, other
  control character or half of a surrogate pair gets past here. The one exception is a bare YAML date,
  which stays a `date` so that the field that wanted text can say "got date; quote it".
- No key was silently dropped: a key that stands twice is an error.

YAML is read event by event, without recursion and without a constructor, so no tag can make an object.
Plain words mean what YAML 1.1 says (`yes` is a boolean), except that a moment with a time of day and
`10:30` are text. Keys are always the text as written.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import accumulate, islice
from typing import Any, NamedTuple, NoReturn

import msgspec
import yaml

from horae.core import fields
from horae.errors import MAX_PROBLEMS, Invalid, Malformed, MediaType, TooLarge

MAX_BYTES = 1024 * 1024
MAX_DEPTH = fields.MAX_DEPTH
MAX_YAML_VALUES = 20_000  # keys and values; what can be read in less than a tenth of a second
MAX_BORROWED = 16_384  # values that aliases may repeat; 64 characters of text count as one more


def read_document(data: bytes, content_type: str | None) -> Any:
    """Read a body by its media type."""
    media, _, parameters = (content_type or "").lower().partition(";")
    reader = _READERS.get(media.strip())
    if reader is None:
        got = f"got {media.strip()[:60]!r}" if media.strip() else "got none"
        raise MediaType(f"content type {' or '.join(_READERS)} expected, {got}", hint="set the Content-Type header")
    charset = re.search(r'charset\s*=\s*"?([^";\s]*)', parameters)
    if charset and charset[1] not in ("utf-8", "utf8"):
        raise MediaType(f"charset utf-8 expected, got {charset[1][:60]!r}", hint="send the body as UTF-8")
    return reader(data)


def _decode(data: bytes, form: str) -> str:
    if len(data) > MAX_BYTES:
        raise TooLarge(f"the body has {len(data)} bytes; the limit is {MAX_BYTES} (1 MiB)", hint="split it")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise Malformed(
            f"byte 0x{data[error.start]:02x} at offset {error.start} is not UTF-8",
            code="E_ENCODING",
            hint="save or send the document as UTF-8",
        ) from None
    if text[:1] == "\ufeff":
        text = text[1:]
    if not text or text.isspace():
        raise _empty(form)
    return text


def _empty(form: str) -> Malformed:
    return Malformed(f"body is empty; expected a {form} document", code="E_BODY_EMPTY")


def _too_deep() -> Malformed:
    return Malformed(f"nested deeper than {MAX_DEPTH} levels", code="E_DEPTH", hint="flatten the document")


def _position(text: str, index: int) -> str:
    return f"line {text.count(chr(10), 0, index) + 1}, column {index - text.rfind(chr(10), 0, index)}"


# ------------------------------------------------------------------------------------------- JSON


class _Suspect(Exception):
    """The fast decoder met something that only the thorough one can name the place of."""


class _Pairs(list[tuple[str, Any]]):
    """An object with its keys as written, double ones included."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Suspect
    return members


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _Suspect
    return number


def _bounded(text: str) -> int:
    return int(text[:40])  # enough to be out of range; int() is slow on millions of digits


def _constant(name: str) -> NoReturn:
    raise _Constant(name)


class _Constant(Exception):
    pass


_FAST = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_constant)
_LOOSE = json.JSONDecoder(parse_int=_bounded)
_PAIRED = json.JSONDecoder(object_pairs_hook=_Pairs, parse_int=len, parse_float=len)  # only keys matter

_CONSTANTS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|(-?Infinity|NaN)', re.DOTALL)
# Escapes that may stand for a control character or half a surrogate pair, and raw C1 controls.
_ODD_ESCAPE = re.compile(r"\\[bf]|\\u(?:00[01789]|[dD][89a-fA-F])|[\x7f-\x9f]")
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # one level down, one level up
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
# What plain text has none of: escapes that may stand for anything, controls, numbers that may not fit 64 bits.
_VEILED = re.compile(rb"\\[bfu]").search
_C1 = re.compile(rb"\xc2[\x80-\x9f]").search
_LONG_NUMBER = re.compile(rb"[0-9]{19}").search
_decode_plain = msgspec.json.Decoder().decode
_encode_plain = msgspec.json.Encoder(order="deterministic").encode


class Plain(NamedTuple):
    """A JSON value with nothing odd in it, and its canonical text."""

    value: Any
    text: bytes


def read_plain(texts: Sequence[bytes]) -> list[Plain] | None:
    """Read JSON values of the usual kind, several times faster than `read_json`; None where any needs a closer look.
    A key that stands twice would be dropped, and a colon with it."""
    whole = b"\n".join(texts)
    if not is_plain(texts, whole):
        return None
    try:
        values = [_decode_plain(text) for text in texts]
        canonical = [_encode_plain(value) for value in values]
    except (ValueError, RecursionError):  # also what is not UTF-8
        return None
    is_whole = b"".join(canonical).count(b":") == whole.count(b":")
    return list(map(Plain, values, canonical)) if is_whole else None


def is_plain(texts: Sequence[bytes], whole: bytes) -> bool:
    """Return whether JSON values, which are `whole` together, have nothing that only `read_json` may judge, as far as
    that can be told without reading them."""
    return not _is_odd(whole) and max((text.count(b"[") + text.count(b"{") for text in texts), default=0) <= MAX_DEPTH


def _is_odd(text: bytes) -> bool:
    is_hidden = b"\\" in text and _VEILED(text) is not None
    is_control = b"\x7f" in text or (not text.isascii() and _C1(text) is not None)
    return is_hidden or is_control or _LONG_NUMBER(text) is not None


def read_json(data: bytes) -> Any:
    """One JSON value."""
    text = _decode(data, "JSON")
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_deep(data):
        raise _too_deep()
    try:
        value = _FAST.decode(text)
    except _Suspect:
        return _inspected(text)
    except _Constant as error:
        raise _constant_error(text, str(error)) from None
    except json.JSONDecodeError as error:
        raise _json_error(text, error) from None
    except ValueError:  # Python reads no number of thousands of digits
        return _inspected(text)
    if ("\\" in text or "\x7f" in text or not text.isascii()) and _ODD_ESCAPE.search(text):
        return _inspected(text)
    return value


def _is_deep(data: bytes) -> bool:
    """Return whether brackets nest deeper than allowed, found without parsing."""
    without_escapes = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside_strings = b"".join(without_escapes.split(b'"')[::2])
    steps = memoryview(outside_strings.translate(_STEPS, _NO_BRACKETS)).cast("b")
    return max(accumulate(steps), default=0) > MAX_DEPTH


def _inspected(text: str) -> Any:
    """Read again, thoroughly: either everything is fine after all, or the error says where."""
    try:
        _refuse_duplicates(_PAIRED.decode(text), "")
        value = _LOOSE.decode(text)
    except json.JSONDecodeError as error:
        raise _json_error(text, error) from None
    if problems := list(islice(fields.json_problems(value, ""), MAX_PROBLEMS)):
        raise Invalid.of(problems)
    return value


def _refuse_duplicates(value: Any, path: str) -> None:
    if isinstance(value, _Pairs):
        seen = set()
        for key, member in value:
            if key in seen:
                raise Invalid(
                    f"duplicate key {fields.shown(key)}",
                    code="E_DUP_KEY",
                    path=fields.join(path, key),
                    hint="keep one of them",
                )
            seen.add(key)
            _refuse_duplicates(member, fields.join(path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_duplicates(item, f"{path}[{index}]")


def _json_error(text: str, error: json.JSONDecodeError) -> Malformed:
    where = f"line {error.lineno}, column {error.colno}"
    return Malformed(f"not JSON at {where}: {error.msg.lower()}", code="E_JSON_SYNTAX")


def _read_json_or_hint(data: bytes) -> Any:
    """JSON where YAML is read too: who sent that may only have said the wrong type."""
    try:
        return read_json(data)
    except Malformed as error:
        if error.code == "E_JSON_SYNTAX" and data.lstrip()[:1] not in (b"{", b"["):
            error.hint = "for YAML, send Content-Type: application/yaml"
        raise


def _constant_error(text: str, name: str) -> Malformed:
    found = (match.start() for match in _CONSTANTS.finditer(text) if match[1])
    where = _position(text, next(found, 0))
    return Malformed(f"not JSON at {where}: {name} is not a number in JSON", code="E_JSON_SYNTAX", hint="use null")


# ------------------------------------------------------------------------------------------- YAML

_PLAIN = re.compile(
    r"(?P<null>~|null|Null|NULL|)"
    r"|(?P<true>yes|Yes|YES|true|True|TRUE|on|On|ON)"
    r"|(?P<false>no|No|NO|false|False|FALSE|off|Off|OFF)"
    r"|(?P<decimal>[-+]?(?:0|[1-9][0-9_]*))"
    r"|(?P<octal>[-+]?0o?[0-7_]+)"
    r"|(?P<hex>[-+]?0x[0-9a-fA-F_]+)"
    r"|(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"|(?P<float>[-+]?(?:\.[0-9]+|[0-9][0-9_]*\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<special>[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))"
)
_TAG_DIRECTIVE = re.compile(r"^%TAG", re.MULTILINE)
_SPECIAL_BEGINNINGS = frozenset("~nNyYtTfFoO-+.0123456789")
_MEANINGS: dict[str, Callable[[str], Any]] = {
    "null": lambda text: None,
    "true": lambda text: True,
    "false": lambda text: False,
    "decimal": lambda text: _bounded(text.replace("_", "")),
    "octal": lambda text: int(text.replace("_", "").replace("o", "")[:40], 8),
    "hex": lambda text: int(text.replace("_", "")[:40], 16),
    "date": lambda text: _day(text),
    "float": lambda text: float(text.replace("_", "")),
    "special": lambda text: float(text.replace(".", "")),
}


def _plain(text: str) -> Any:
    """Return what an unquoted word means."""
    if text and text[0] not in _SPECIAL_BEGINNINGS:
        return text
    match = _PLAIN.fullmatch(text)
    return text if match is None else _MEANINGS[match.lastgroup or "null"](text)


def is_text(word: str) -> bool:
    """Return whether an unquoted word is read as that text."""
    return type(_plain(word)) is str


def _day(text: str) -> date | str:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return text


_MERGE = object()  # the key `<<`
_NO_KEY = object()


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not come yet."""

    value: Any
    anchor: str | None
    cost: int = 1
    key: Any = _NO_KEY  # of a mapping, while its value is awaited
    lines: dict[str, int] = field(default_factory=dict)  # key → where it was written
    merged: list[dict[str, Any]] = field(default_factory=list)


def read_yaml(data: bytes) -> Any:
    """One YAML document."""
    text = _decode(data, "YAML")
    if control := fields.CONTROL.search(text):
        raise Invalid(
            f"control character U+{ord(control[0]):04X} at {_position(text, control.start())}",
            code="E_CHAR",
            hint="remove it",
        )
    if directive := _TAG_DIRECTIVE.search(text):  # thousands of them take libyaml seconds
        where = _position(text, directive.start())
        raise Invalid(f"the directive %TAG at {where} is not read here", code="E_YAML_TAG", hint="remove it")
    try:
        return _Builder().build(text)
    except yaml.YAMLError as error:
        raise _yaml_error(error) from None


class _Builder:
    """Turns the events of one YAML document into plain data."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}  # name → value, cost
        self._values = 0
        self._borrowed = 0
        self._documents = 0
        self._root: Any = None

    def build(self, text: str) -> Any:
        handlers: dict[type[yaml.Event], Callable[[Any], None]] = {
            yaml.ScalarEvent: self._scalar,
            yaml.MappingStartEvent: self._start,
            yaml.SequenceStartEvent: self._start,
            yaml.MappingEndEvent: self._end,
            yaml.SequenceEndEvent: self._end,
            yaml.AliasEvent: self._alias,
            yaml.DocumentStartEvent: self._document,
        }
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            if handler := handlers.get(type(event)):
                handler(event)
        if not self._documents:
            raise _empty("YAML")
        return self._root

    def _document(self, event: yaml.Event) -> None:
        self._documents += 1
        if self._documents > 1:
            where = f"a second one begins at line {_line(event)}"
            raise Invalid(f"one YAML document expected, {where}", code="E_MULTI_DOC", hint="put jobs under 'jobs:'")

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        text = event.value
        is_plain = event.implicit[0]
        self._count(event)
        if event.style == '"' and (control := fields.CONTROL.search(text)):
            self._refuse("E_CHAR", f"control character U+{ord(control[0]):04X} is not allowed", event, "remove it")
        is_key = self._awaits_key()
        value = _plain(text) if is_plain and not is_key else text
        if type(value) is int and not -(2**63) <= value < 2**63:
            self._refuse("E_RANGE", "a whole number must fit 64 bits", event, "quote it to send it as text")
        cost = 1 + len(text) // 64
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, cost)
        if is_key:
            self._begin_member(_MERGE if text == "<<" and is_plain else text, event)
        else:
            self._put(value, cost, event)

    def _start(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        self._count(event)
        if self._awaits_key():
            self._refuse("E_TYPE", "a key must be text, got a list or mapping", event)
        if len(self._open) >= MAX_DEPTH:
            raise _too_deep()
        empty: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._open.append(_Open(empty, event.anchor))

    def _end(self, event: yaml.Event) -> None:
        done = self._open.pop()
        value = done.value
        if done.merged:  # what is written here, or merged first, wins
            value = {}
            for members in [*reversed(done.merged), done.value]:
                value.update(members)
        if done.anchor is not None:
            self._anchors[done.anchor] = (value, done.cost)
        self._put(value, done.cost, event)

    def _alias(self, event: yaml.AliasEvent) -> None:
        name = event.anchor
        if any(outer.anchor == name for outer in self._open):
            self._refuse("E_YAML_ALIAS", f"*{name} refers to something it is itself a part of", event)
        if name not in self._anchors:
            self._refuse("E_YAML_ALIAS", f"*{name} has no &{name} before it", event)
        value, cost = self._anchors[name]
        self._borrowed += cost
        if self._borrowed > MAX_BORROWED:
            hint = f"aliases may repeat {MAX_BORROWED} values in all"
            self._refuse("E_YAML_ALIAS", "aliases make this document too large", event, hint)
        if not self._awaits_key():
            self._put(value, cost, event)
        elif isinstance(value, str):
            self._begin_member(value, event)
        else:
            self._refuse("E_TYPE", f"a key must be text, got {fields.kind_of(value)}", event)

    def _awaits_key(self) -> bool:
        return bool(self._open) and type(self._open[-1].value) is dict and self._open[-1].key is _NO_KEY

    def _begin_member(self, key: Any, event: yaml.Event) -> None:
        outer = self._open[-1]
        if key is not _MERGE:
            line = _line(event)
            if key in outer.value:
                self._refuse_duplicate(key, outer.lines[key], line)
            outer.lines[key] = line
        outer.key = key

    def _refuse_duplicate(self, key: str, first: int, line: int) -> NoReturn:
        raise Invalid(
            f"duplicate key {fields.shown(key)} (lines {first} and {line})",
            code="E_DUP_KEY",
            path=fields.join(self._path(), key),
            hint="keep one of them",
        )

    def _put(self, value: Any, cost: int, event: yaml.Event) -> None:
        if not self._open:
            self._root = value
            return
        outer = self._open[-1]
        outer.cost += cost
        if type(outer.value) is list:
            outer.value.append(value)
            return
        if outer.key is _MERGE:
            outer.merged += self._mappings(value, event)
        else:
            outer.value[outer.key] = value
        outer.key = _NO_KEY

    def _mappings(self, value: Any, event: yaml.Event) -> list[dict[str, Any]]:
        listed = value if isinstance(value, list) else [value]
        for item in listed:
            if not isinstance(item, dict):
                self._refuse("E_TYPE", f"<< takes mappings, got {fields.kind_of(item)}", event)
        return listed

    def _count(self, event: Any) -> None:
        if event.tag is not None:
            tag = fields.shown(event.tag.replace("tag:yaml.org,2002:", "!!"))
            self._refuse(
                "E_YAML_TAG",
                f"the tag {tag} is not read here",
                event,
                "write the plain value, quoted if text",
            )
        self._values += 1
        if self._values > MAX_YAML_VALUES:
            self._refuse(
                "E_LIMIT",
                f"more than {MAX_YAML_VALUES} values in one YAML document",
                event,
                "split it, or send JSON",
            )

    def _refuse(self, code: str, message: str, event: yaml.Event, hint: str = "") -> NoReturn:
        assert event.start_mark is not None
        where = f"line {_line(event)}, column {event.start_mark.column + 1}"
        raise Invalid(f"{message} ({where})", code=code, path=self._path(), hint=hint)

    def _path(self) -> str:
        path = ""
        for outer in self._open:
            if type(outer.value) is list:
                path += f"[{len(outer.value)}]"
            elif outer.key is not _NO_KEY:
                path = fields.join(path, "<<" if outer.key is _MERGE else outer.key)
        return path


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None
    return event.start_mark.line + 1


def _yaml_error(error: yaml.YAMLError) -> Malformed:
    mark, begun = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    what = ", ".join(part for part in (getattr(error, "context", None), getattr(error, "problem", None)) if part)
    where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    since = f" (begun at line {begun.line + 1}, column {begun.column + 1})" if begun else ""
    hint = "indent with spaces, not tabs" if "cannot start any token" in what else ""
    return Malformed(f"not YAML{where}: {what or 'cannot be read'}{since}", code="E_YAML_SYNTAX", hint=hint)


_READERS: dict[str, Callable[[bytes], Any]] = {
    "application/json": _read_json_or_hint,
    "application/yaml": read_yaml,
    "application/x-yaml": read_yaml,
    "text/yaml": read_yaml,
}
