"""Memory while garbage collection waits."""

from __future__ import annotations

import weakref

from npu_upgrade.ground.collector import collected, no_collector


class _Tree:
    def __init__(self) -> None:
        self.itself = self


def test_what_was_in_use_at_one_collection_is_freed_by_the_next() -> None:
    with no_collector():
        tree = _Tree()
        alive = weakref.ref(tree)
        collected()
        assert alive() is tree
        del tree
        collected()
        assert alive() is None


def test_what_was_said_to_stay_is_freed_too_once_nobody_has_it() -> None:
    with no_collector(last=True):
        tree = _Tree()
    alive = weakref.ref(tree)
    del tree
    with no_collector():
        collected()
    assert alive() is None
