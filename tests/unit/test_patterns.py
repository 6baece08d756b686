"""S13: every regular expression of ours takes a time that grows with its text, whatever a stranger writes.

Each pattern in the source is held against texts that nearly match: what may stand before a repetition, then what is
repeated for tens of thousands of characters, then what fits nothing. It is tried in the way in which it is used.
"""

from __future__ import annotations

import ast
import re
import re._constants as kinds
import re._parser as reading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "horae"
WAYS = ("fullmatch", "match", "search", "sub", "subn", "split", "findall", "finditer")
FROM_ANYWHERE = frozenset(("sub", "subn", "split", "findall", "finditer"))  # these look as search does
LETTERS = "a0A_-. /:\"=;,\\\t\n[]{}()%@#<>'x9$"
REPEATS = (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT)
MANY = 50  # what may stand more often is tried
SIZE = 6_000  # characters
MOST = 0.05  # seconds of a processor: what is linear takes a thousandth


class Found(NamedTuple):
    text: str
    ways: frozenset[str]
    place: str


def sources() -> dict[str, str]:
    files = sorted(file for file in SOURCE.rglob("*.py") if "generated" not in file.parts)
    return {str(file.relative_to(SOURCE)): file.read_text() for file in files}


def patterns() -> list[Found]:
    """Return every pattern that stands in the source, with the ways in which it is used: of one with a name, by what is
    called of that name, in its own file or, where nothing is, in any."""
    files = sources()
    used = {file: uses(text) for file, text in files.items()}
    anywhere = defaultdict[str, set[str]](set)
    for its in used.values():
        for name, ways in its.items():
            anywhere[name] |= ways
    found = []
    for file, source in files.items():
        for text, way, name, line in written(source) if "\nimport re\n" in source else ():
            ways = used[file].get(name) or anywhere[name] if way == "compile" else {way} & {*WAYS}
            found.append(Found(text, frozenset(ways), f"{file}:{line}"))
    return [each for each in found if each.ways]


def uses(source: str) -> dict[str, set[str]]:
    """Return what is called of which name."""
    found = defaultdict[str, set[str]](set)
    for name, way in re.findall(rf"\b(\w+)\.({'|'.join(WAYS)})\b", source):
        found[name].add(way)
    return found


def written(source: str) -> Iterator[tuple[str, str, str, int]]:
    """Return the patterns of a file: each with the function of `re`, its own name if it has one, and its line."""
    names = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names[id(node.value)] = node.targets[0].id
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            text = text_of(node.args[0])
            if text is not None and isinstance(node.func.value, ast.Name) and node.func.value.id == "re":
                yield text, node.func.attr, names.get(id(node), ""), node.lineno


def text_of(node: ast.expr) -> str | None:
    """Return a pattern that is written as it is; None for one that is put together."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value.decode("latin-1") if isinstance(value, bytes) else value if isinstance(value, str) else None


def sample(parts: Any) -> str:
    """Return a text that fits, or nearly."""
    return "".join(map(piece, parts))


def piece(part: Any) -> str:
    kind, value = part
    if kind is kinds.LITERAL:
        return chr(value)
    if kind is kinds.NOT_LITERAL:
        return "b" if value == ord("a") else "a"
    if kind is kinds.ANY:
        return "a"
    if kind is kinds.IN:
        return letter(value)
    if kind in REPEATS:
        return sample(value[2]) * value[0]
    if kind is kinds.SUBPATTERN:
        return sample(value[3])
    return sample(value[1][0]) if kind is kinds.BRANCH else ""


def letter(inside: Any) -> str:
    """Return a character of a set."""
    is_not = inside[0][0] is kinds.NEGATE
    fits = [each for each in LETTERS if any(is_in(each, part) for part in inside) is not is_not]
    if fits or is_not:
        return fits[0] if fits else "\0"
    return chr(inside[0][1] if inside[0][0] is kinds.LITERAL else inside[0][1][0])


CATEGORIES = {
    kinds.CATEGORY_DIGIT: r"\d", kinds.CATEGORY_WORD: r"\w", kinds.CATEGORY_SPACE: r"\s",
    kinds.CATEGORY_NOT_DIGIT: r"\D", kinds.CATEGORY_NOT_WORD: r"\W", kinds.CATEGORY_NOT_SPACE: r"\S",
}  # fmt: skip


def is_in(each: str, part: Any) -> bool:
    kind, value = part
    if kind is kinds.LITERAL:
        return ord(each) == value
    if kind is kinds.RANGE:
        return value[0] <= ord(each) <= value[1]
    return kind is kinds.CATEGORY and re.match(CATEGORIES[value], each) is not None


def pumps(parts: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Return what may stand before each repetition, with what is repeated: what fits it, and what comes after it."""
    for number, part in enumerate(parts):
        kind, value = part
        if kind in REPEATS and value[1] > MANY:
            after = sample(parts[number + 1 : number + 2])
            yield from ((before, each) for each in (sample(value[2]), after, sample(value[2]) + after))
            yield from ((before, sample(each)) for each in branches(value[2]))
        if kind in REPEATS:
            yield from pumps(value[2], before)
        elif kind is kinds.SUBPATTERN:
            yield from pumps(value[3], before)
        elif kind is kinds.BRANCH:
            for each in value[1]:
                yield from pumps(each, before)
        before += piece(part)


def branches(parts: Any) -> Iterator[Any]:
    for kind, value in parts:
        if kind is kinds.BRANCH:
            yield from value[1]
        elif kind is kinds.SUBPATTERN:
            yield from branches(value[3])
        elif kind in REPEATS:
            yield value[2]


def texts(pattern: str) -> list[str]:
    tried = {*pumps(list(reading.parse(pattern))), *(("", each) for each in 'a0 ".')}
    return [before + each * (SIZE // len(each)) + "\0" for before, each in sorted(tried) if each]


def seconds(pattern: re.Pattern[str], way: str, text: str) -> float:
    began = time.process_time()
    getattr(pattern, "search" if way in FROM_ANYWHERE else way)(text)
    return time.process_time() - began


def slow_ways(one: Found) -> list[str]:
    """Return the ways in which a pattern takes long, for any of its texts."""
    pattern, tried = re.compile(one.text), texts(one.text)
    ways = sorted({"search" if way in FROM_ANYWHERE else way for way in one.ways})
    return [way for way in ways if any(seconds(pattern, way, each) > MOST for each in tried)]


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of sets that a later Python may read otherwise
def test_S13_no_pattern_takes_long_for_a_text_that_nearly_matches() -> None:
    found = patterns()
    assert len(found) > 200
    slow = [(one.place, way, one.text) for one in found for way in slow_ways(one)]
    assert slow == [], "\n".join(map(str, slow))


@pytest.mark.parametrize(
    ("text", "way"), [(r"\s+$", "search"), (r"\s+$", "sub"), (r"\d+-?\d+x", "match"), (r"\w+=\w+\w+", "fullmatch")]
)
def test_a_pattern_that_takes_long_is_found(text: str, way: str) -> None:
    assert slow_ways(Found(text, frozenset((way,)), "")) == ["search" if way == "sub" else way]
    assert slow_ways(Found(r"\s+x|[a-z]+:\d+", frozenset(("match", "fullmatch")), "")) == []
