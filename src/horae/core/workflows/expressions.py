"""What a workflow says about results that are still to come: `${path}` in its data, and conditions.

    ${list.result.files[0]}        a whole text that is a reference becomes what stands there, with its type
    "page ${index} of ${data.n}"   within a text it is spelled out; $${ is a plain ${
    if: check.result.errors == 0 and not ("draft" in list.result.tags)

A condition knows comparisons, `and`, `or`, `not`, `in`, brackets, lists, texts, numbers, true, false, null and paths.
Before the grammar of Python sees it, all that stands for a value is taken out and a plain name put in its place: there
is nothing left in it that could be called, looked into or made.

What must stay true: whatever is read or decided, only Invalid is raised; a path goes through mappings and lists, never
through attributes; nothing is coerced.
"""

from __future__ import annotations

import ast
import json
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from horae.core.fields import encoded, kind_of, shown
from horae.errors import Invalid

MAX_CONDITION = 1000  # characters
MAX_NESTING = 20  # of a condition
MAX_STEPS = 20  # of a path
NAME_PATTERN = r"[A-Za-z_][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)*"
_STEP = rf"\.{NAME_PATTERN}|\[\d{{1,9}}\]|\['[^']*'\]|\[\"[^\"]*\"\]"
_PATH = re.compile(rf"{NAME_PATTERN}(?:{_STEP})*")
_STEPS = re.compile(_STEP)
_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_JOINTS = ("and", "or", "not", "in")
RESERVED = frozenset({*WORDS, *_JOINTS})  # no task can be called so

Path = tuple[str | int, ...]
Scope = Mapping[str, Any]  # the first name of a path → what it stands for


class Text(NamedTuple):
    """A text with references in it."""

    parts: tuple[str | Path, ...]
    is_whole: bool  # it is one reference, and nothing else


class Condition(NamedTuple):
    tree: ast.expr  # whose names are those of `values`
    values: Mapping[str, Any]  # literals, and paths as _Reference


class _Reference(NamedTuple):
    path: Path


def _fault(message: str, hint: str = "") -> Invalid:
    return Invalid(message, code="E_EXPRESSION", hint=hint)


# ── paths ──────────────────────────────────────────────────────────────────────────────────────────


def spelled(path: Path) -> str:
    """Return a path as people write it."""
    steps = (f"[{step}]" if isinstance(step, int) else _spelled_name(step) for step in path[1:])
    return f"{path[0]}{''.join(steps)}"


def _spelled_name(name: str) -> str:
    return f".{name}" if re.fullmatch(NAME_PATTERN, name) else f"[{name!r}]"


def parse_path(text: str) -> Path:
    if not _PATH.fullmatch(text):
        message = f"a path such as list.result.files[0] expected, got {shown(text)}"
        raise _fault(message, "names are letters, digits, _ and -; other keys are written ['odd key']")
    name = re.match(NAME_PATTERN, text)
    assert name is not None
    steps = [_step(found) for found in _STEPS.findall(text, name.end())]
    if len(steps) > MAX_STEPS:
        raise _fault(f"a path has at most {MAX_STEPS} steps, got {len(steps)}")
    return (name[0], *steps)


def _step(text: str) -> str | int:
    if text[0] == ".":
        return text[1:]
    return text[2:-2] if text[1] in "'\"" else int(text[1:-1])


def value_at(path: Path, scope: Scope) -> Any:
    """Return what stands at a path."""
    value: Any = scope.get(path[0], scope)  # type: ignore[arg-type]
    if value is scope:
        raise _fault(f"there is nothing called {path[0]} here")
    if len(path) == 1:
        return value
    for number, step in enumerate(path[1:], 1):
        if not _has(value, step):
            raise _fault(f"there is no {spelled(path[: number + 1])}: {spelled(path[:number])} is {_extent(value)}")
        value = value[step]
    return value


def _has(value: Any, step: str | int) -> bool:
    if isinstance(step, str):
        return isinstance(value, dict) and step in value
    return isinstance(value, list) and step < len(value)


def _extent(value: Any) -> str:
    """Say what a value is, without repeating it: it may hold secrets."""
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return "a mapping without it" if isinstance(value, dict) else kind_of(value)


# ── references in texts ────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=4096)
def parse_text(text: str) -> Text:
    """Return the parts of a text, plain ones and paths."""
    parts: list[str | Path] = []
    at = 0
    for found in _REFERENCE.finditer(text):
        parts.append(text[at : found.start()])
        at = found.end()
        if found[1] is None:
            parts.append("${")
        elif not found[2]:
            raise _fault("a reference begins with ${ and has no } behind it", "write $${ for a plain ${")
        else:
            parts.append(parse_path(found[1].strip()))
    parts.append(text[at:])
    kept = tuple(part for part in parts if part != "")
    return Text(kept, len(kept) == 1 and isinstance(kept[0], tuple))


def render(value: Any, scope: Scope) -> Any:
    """Return a value with all references in it replaced by what they stand for. Keys are left as they are."""
    return template(value)(scope)


Template = Callable[[Scope], Any]


def template(value: Any) -> Template:
    """Return what renders a value: made once, it is quick for each of thousands of items."""
    if isinstance(value, str) and "${" in value:
        return _text_template(parse_text(value))
    if next(_references(value), None) is None:
        return lambda _: value
    if isinstance(value, dict):
        members = [(name, template(member)) for name, member in value.items()]
        return lambda scope: {name: member(scope) for name, member in members}
    items = [template(item) for item in value]
    return lambda scope: [item(scope) for item in items]


def _references(value: Any) -> Iterator[str]:
    """The texts in a value that are more than they say."""
    if isinstance(value, str):
        if "${" in value:
            yield value
    elif isinstance(value, dict | list):
        for member in value.values() if isinstance(value, dict) else value:
            yield from _references(member)


def _text_template(text: Text) -> Template:
    parts = text.parts
    if text.is_whole and isinstance(path := parts[0], tuple):
        return lambda scope: value_at(path, scope)
    return lambda scope: "".join([part if isinstance(part, str) else _written(value_at(part, scope)) for part in parts])


def _written(value: Any) -> str:
    if isinstance(value, str):
        return value
    text = encoded(value)
    if text is None:
        raise _fault(f"{kind_of(value)} cannot be written into a text")
    return text


def paths_in(value: Any) -> Iterator[Path]:
    """Return every path that a value refers to. Invalid where one cannot be read."""
    for text in _references(value):
        yield from (part for part in parse_text(text).parts if isinstance(part, tuple))


# ── conditions: reading ────────────────────────────────────────────────────────────────────────────

_TOKEN = re.compile(
    r"(?P<text>'[^']*'|\"[^\"]*\")"
    rf"|(?P<word>(?:{'|'.join([*WORDS, *_JOINTS])})(?![\w.-]))"
    r"|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]))"
    rf"|(?P<path>{_PATH.pattern})"
    r"|(?P<sign>[=!<>]=|[<>()\[\],])"
)
_SPACE = re.compile(r"\s*", re.ASCII)
_MEANT = {"=": "write == to compare", "&": "write and", "|": "write or", "!": "write not", "$": "write the path alone"}
_NODES = (ast.BoolOp, ast.UnaryOp, ast.Compare, ast.List, ast.Name)


@lru_cache(maxsize=4096)
def parse_condition(text: str) -> Condition:
    if len(text) > MAX_CONDITION:
        raise _fault(f"a condition has at most {MAX_CONDITION} characters, got {len(text)}", "let a task decide it")
    values: dict[str, Any] = {}
    words = [_placed(token, values) for token in _tokens(text)]
    try:
        tree = ast.parse(" ".join(words), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        message = f"the condition {shown(text)} cannot be read"
        raise _fault(message, "write for example check.result.errors == 0 and list.result") from None
    _check(tree, 0)
    return Condition(tree, values)


def _tokens(text: str) -> Iterator[re.Match[str]]:
    at = len(_SPACE.match(text)[0])  # type: ignore[index]
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise _fault(f"a condition cannot have {shown(text[at])} (column {at + 1})", _MEANT.get(text[at], ""))
        yield found
        at = _SPACE.match(text, found.end()).end()  # type: ignore[union-attr]


def _placed(token: re.Match[str], values: dict[str, Any]) -> str:
    """Return the token for the grammar: what stands for a value is kept, and named."""
    text = token[0]
    if token.lastgroup == "sign" or text in _JOINTS:
        return text
    name = f"v{len(values)}"
    if token.lastgroup == "text":
        values[name] = text[1:-1]
    elif token.lastgroup == "word":
        values[name] = WORDS[text]
    elif token.lastgroup == "number":
        values[name] = _number(text)
    else:
        values[name] = _Reference(parse_path(text))
    return name


def _number(text: str) -> int | float:
    number = json.loads(text) if not re.match("-?0[0-9]", text) else math.nan
    if not math.isfinite(number):
        raise _fault(f"the number {shown(text)} cannot be read")
    return number


def _check(node: ast.AST, depth: int) -> None:
    if depth > MAX_NESTING:
        raise _fault(f"a condition is nested at most {MAX_NESTING} deep", "let a task decide it")
    if not isinstance(node, _NODES):
        what = _REFUSED.get(type(node).__name__, "this")
        raise _fault(f"{what} cannot stand in a condition", "comparisons, and, or, not, in, lists and paths can")
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            _check(child, depth + 1)


_REFUSED = {"Call": "a call", "Tuple": "a comma outside a list", "Subscript": "a space before ["}


def condition_paths(condition: Condition) -> list[Path]:
    return [value.path for value in condition.values.values() if isinstance(value, _Reference)]


# ── conditions: deciding ───────────────────────────────────────────────────────────────────────────


def holds(condition: Condition, scope: Scope) -> bool:
    """Return whether a condition is true: as in Python, what is empty, zero or null is not."""
    return bool(_value(condition.tree, condition.values, scope))


def _value(node: ast.expr, values: Mapping[str, Any], scope: Scope) -> Any:
    if isinstance(node, ast.Name):
        value = values[node.id]
        return value_at(value.path, scope) if isinstance(value, _Reference) else value
    if isinstance(node, ast.BoolOp):
        return _joined(node, values, scope)
    if isinstance(node, ast.UnaryOp):
        return not _value(node.operand, values, scope)
    if isinstance(node, ast.List):
        return [_value(item, values, scope) for item in node.elts]
    assert isinstance(node, ast.Compare)
    return _compared(node, values, scope)


def _joined(node: ast.BoolOp, values: Mapping[str, Any], scope: Scope) -> bool:
    """Decide from left to right, and no further than needed."""
    is_or = isinstance(node.op, ast.Or)
    return is_or is any(bool(_value(each, values, scope)) is is_or for each in node.values)


def _compared(node: ast.Compare, values: Mapping[str, Any], scope: Scope) -> bool:
    left = _value(node.left, values, scope)
    for sign, other in zip(node.ops, node.comparators, strict=True):
        right = _value(other, values, scope)
        if not _COMPARE[type(sign)](left, right):
            return False
        left = right
    return True


def _is_same(left: Any, right: Any) -> bool:
    """A boolean is no number."""
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)


def _is_in(left: Any, right: Any) -> bool:
    if isinstance(right, list):
        return any(_is_same(left, each) for each in right)
    if isinstance(right, dict | str) and isinstance(left, str):
        return left in right
    raise _fault(f"`in` looks for anything in a list, or for text in a text or mapping, not {_pair(left, right, 'in')}")


def _ordered(decide: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(left: Any, right: Any) -> bool:
        if not any(_is_a(kind, left) and _is_a(kind, right) for kind in (str, (int, float))):
            raise _fault(f"numbers are compared with numbers and texts with texts, not {_pair(left, right, 'with')}")
        return decide(left, right)

    return compare


def _is_a(kind: Any, value: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _pair(left: Any, right: Any, word: str) -> str:
    return f"{kind_of(left)} {word} {kind_of(right)}"


_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: _is_same,
    ast.NotEq: lambda left, right: not _is_same(left, right),
    ast.Lt: _ordered(operator.lt),
    ast.LtE: _ordered(operator.le),
    ast.Gt: _ordered(operator.gt),
    ast.GtE: _ordered(operator.ge),
    ast.In: _is_in,
    ast.NotIn: lambda left, right: not _is_in(left, right),
}
