"""Options as they are used, and their types; argparse reports what does not fit."""

from __future__ import annotations

from argparse import ArgumentTypeError, _ActionsContainer
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

N = TypeVar("N", int, float)
REPEATED: dict[str, Any] = {"action": "append", "default": []}  # for an option that is given several times


def option(parser: _ActionsContainer, words: str, about: str, **more: Any) -> None:
    """Add an option as it is used: ``--dry-run``, ``--out DIR``, ``--sequences N...`` for one or more."""
    name, _, value = words.partition(" ")
    if value:
        more["metavar"] = value.removesuffix("...")
        more |= {"nargs": "+"} if value.endswith("...") else {}
    elif not {"action", "choices"} & more.keys():
        more["action"] = "store_true"
    parser.add_argument(name, help=about, **more)


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
