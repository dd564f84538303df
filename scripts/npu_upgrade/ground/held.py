"""What a function gave, held by its first argument: it goes when that object goes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

First = TypeVar("First")
Rest = ParamSpec("Rest")
Given = TypeVar("Given")


def held(function: Callable[Concatenate[First, Rest], Given]) -> Callable[Concatenate[First, Rest], Given]:
    """Call ``function`` once for each object and other positional arguments.

    A cache of the function's own would hold the object, and the whole program that a class of it leads to.
    """
    key = repr(function)

    @functools.wraps(function)
    def found(first: First, *rest: Rest.args, **named: Rest.kwargs) -> Given:
        kept: dict[object, Given] = vars(first).setdefault(key, {})
        at = (rest, *named.items())
        if at not in kept:
            kept[at] = function(first, *rest, **named)
        return kept[at]

    return found
