"""The page of styles has every component: whoever adds one shows it there."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from horae.contracts import CONTRACTS
from horae.web import app as web
from horae.web.pages.words import MARKS
from tests.facades.world import HERE, OWN, World, from_here

SHEETS = Path(web.__file__).parent / "pages" / "static" / "css"
_COMMENT, _BLOCK = re.compile(r"/\*.*?\*/", re.S), re.compile(r"\{[^{}]*\}")
_CLASS = re.compile(r"\.([A-Za-z][\w-]*)")


def classes_of(sheet: str) -> set[str]:
    """Return the classes that the selectors of a sheet name, also those inside @media."""
    bare = _BLOCK.sub(" ", _COMMENT.sub(" ", sheet))
    return set(_CLASS.findall(bare))


@pytest.fixture
async def style(world: World) -> AsyncIterator[str]:
    gate = web.create_app(world.services, CONTRACTS, version="1.2.3", free_pass=OWN)
    async with httpx.AsyncClient(transport=from_here(gate), base_url=HERE) as client:
        yield (await client.get("/style")).text


def test_classes_are_found_in_the_selectors_of_a_sheet_and_nowhere_else() -> None:
    found = classes_of("a.one { margin: 0.5rem } @media x { .two, .th-ree:is(.four) { b: url(f.png) } }")
    assert found == {"one", "two", "th-ree", "four"}


async def test_every_class_of_the_sheets_is_shown_on_the_page_of_styles(style: str) -> None:
    shown = {name for found in re.findall(r'class="([^"]*)"', style) for name in found.split()}
    missing = {path.name: sorted(classes_of(path.read_text()) - shown) for path in sorted(SHEETS.glob("*.css"))}
    assert {name: classes for name, classes in missing.items() if classes} == {}


async def test_every_state_of_a_run_is_shown_as_badge_bar_box_and_stretch(style: str) -> None:
    for state in MARKS:
        for look in (f"state {state}", f"bar {state}", f"task {state}", f"fall {state}", f"dot {state}"):
            assert f'class="{look}"' in style, look


async def test_ids_stand_once_on_the_page_of_styles(style: str) -> None:
    ids = re.findall(r'\sid="([^"]+)"', style)
    assert sorted(ids) == sorted(set(ids))
