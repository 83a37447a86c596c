"""Releases as people and boards write them, and which known one is the nearest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jetship.targets.releases import is_line, nearest, normal, of_line


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("5.1.2", "5.1.2"),
        (" JetPack 6.2 ", "6.2"),
        ("L4T R35.4.1", "r35.4.1"),
        ("35.4.1", "r35.4.1"),
        ("# R35 (release), REVISION: 4.1, GCID: 33958178, BOARD: t186ref", "r35.4.1"),
        ("# R32 (release), REVISION: 7.1, GCID: 29818004, BOARD: t210ref", "r32.7.1"),
        ("36.4.3-20250107174145", "r36.4.3"),
        ("6.2+b77", "6.2"),
        ("nvidia-jetpack 5.1.2-b104", "5.1.2"),
        ("6.0 DP", "6.0 dp"),
        ("zzz", "zzz"),
    ],
)
def test_a_release_is_read_as_it_is_written(text, release):
    assert normal(text) == release


@pytest.mark.parametrize(
    ("release", "known", "near"),
    [
        ("5.0", ["4.6.6", "5.0.2", "5.1"], "5.0.2"),
        ("5", ["4.6.6", "5.0.2", "5.1"], "5.0.2"),
        ("6.3", ["6.2", "6.2.2", "7.0"], "6.2.2"),
        ("r34.1.1", ["r32.7.6", "r35.1.0", "r35.2.1"], "r35.1.0"),
        ("r37", ["r36.5.0", "r38.2.0"], "r36.5.0"),
        ("6.0 dp", ["5.1", "6.0", "6.1"], "6.0"),
        ("1.0", ["4.2", "4.3"], "4.2"),
        ("9", ["4.2", "10.0", "7.2"], "10.0"),
        ("zzz", ["4.2"], ""),
        ("4.2", [], ""),
    ],
)
def test_the_nearest_release(release, known, near):
    assert nearest(release, known) == near


@given(st.lists(st.from_regex(r"[1-9]\.[0-9](\.[0-9])?", fullmatch=True), min_size=1))
def test_a_known_release_is_nearest_to_itself(known):
    assert all(nearest(one, known) == one for one in known)


def test_a_line_is_a_whole_number_or_any_part_of_an_l4t():
    assert all(map(is_line, ("5", "r36", "r32.2")))
    assert not any(map(is_line, ("5.0", "zzz", "r", "r32.", "6.0 dp")))
    assert of_line("r3", ["r3.1", "r32.1"]) == ["r3.1"]
