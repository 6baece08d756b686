"""Colours of owners on the map of segments."""

from __future__ import annotations

from horae.web.pages.cluster import COLOURS, colours_of


def test_who_comes_later_changes_nobodys_colour() -> None:
    owners = {f"node-{number}": number for number in range(COLOURS)}
    for number in range(1, COLOURS + 1):
        fewer = dict(list(owners.items())[:number])
        before = colours_of(dict(list(fewer.items())[: number - 1]))
        assert {name: colour for name, colour in colours_of(fewer).items() if name in before} == before
    assert len(set(colours_of(owners).values())) == COLOURS


def test_more_owners_than_colours_share_them() -> None:
    found = colours_of({f"node-{number}": number for number in range(COLOURS + 3)})
    assert len(found) == COLOURS + 3
    assert set(found.values()) == set(range(COLOURS))
