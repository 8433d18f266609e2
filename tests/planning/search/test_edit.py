from __future__ import annotations

from gradtool.planning.search.edit import Edit


def test_an_edit_takes_entries_out_and_puts_places_in():
    assert Edit((3,), 1, (7, 8)).applied([0, 1, 2, 3, 4]) == [0, 7, 8, 1, 2, 4]


def test_what_goes_before_the_new_places_does_not_move_them():
    assert Edit((0,), 2, (0,)).applied([0, 1, 2]) == [1, 0, 2]
