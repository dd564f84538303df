"""Work in a second process, and a list that two processes share."""

from __future__ import annotations

import json

from npu_upgrade.ground.beside import beside, from_both_ends


def test_two_processes_take_each_item_once():
    items = list(range(200))
    with from_both_ends(items) as (front, back):
        waiting = beside(lambda: json.dumps(list(back)).encode())
        here = list(front)
        there = json.loads(waiting())
    assert sorted(here + there) == items
    assert here == items[: len(here)]


def test_one_process_takes_all_of_them():
    with from_both_ends("abc") as (front, back):
        assert (list(front), list(back)) == (["a", "b", "c"], [])
