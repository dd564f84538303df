"""Types of command-line options; argparse reports what does not fit."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from typing import TypeVar

N = TypeVar("N", int, float)


def positive(kind: Callable[[str], N]) -> Callable[[str], N]:
    """The type of an option that is a number above zero."""

    def number(text: str) -> N:
        value = kind(text)
        if not value > 0:
            raise ArgumentTypeError(f"{text} is not above 0")
        return value

    return number


def pair(text: str) -> tuple[str, str]:
    """The type of an option NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ArgumentTypeError(f"{text} is not NAME=VALUE")
    return name, value


def listed(text: str) -> list[str]:
    """The type of an option that is a list, separated by commas or spaces."""
    return [name for name in text.replace(" ", ",").split(",") if name]


def some_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """The type of an option that lists some of the ``known`` names."""

    def names(text: str) -> list[str]:
        found = listed(text)
        if unknown := [name for name in found if name not in known]:
            raise ArgumentTypeError(f"no {', '.join(unknown)} among {', '.join(known)}")
        return found

    return names
