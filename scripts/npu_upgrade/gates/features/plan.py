"""Which starts show the features: all at once, and one by one only when that does not serve."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from npu_upgrade.gates.features.capability import ARGUMENT, Way
from npu_upgrade.gates.features.started import Start

_ADDITIONAL = "--additional-config"
_NEEDS = {"flashcomm1": "expert_parallel"}  # it has an effect only together with it


def start(
    name: str,
    ways: Mapping[str, Way],
    wanted: Iterable[str],
    asked: Sequence[str] = (),
    more: Mapping[str, Sequence[str]] | None = None,
) -> Start:
    """One start with the wanted features, and with those they have no effect without.

    ``asked`` are the user's own arguments: what is in them already is not said twice. ``more``: further
    arguments of a feature.
    """
    chosen = with_needs(wanted, ways)
    arguments: list[str] = []
    environment: dict[str, str] = {}
    additional = _given(asked)
    own = dict(additional)
    for feature in chosen:
        way = ways[feature]
        if way.kind == ARGUMENT and not _is_asked(way.name, asked):
            arguments += [way.name, *_value(way)]
        elif way.kind == "environment":
            environment[way.name] = str(way.value)
        elif way.kind == "additional_config":
            additional[way.name] = way.value
        arguments += (more or {}).get(feature, ())
    if additional != own:
        arguments += [_ADDITIONAL, json.dumps(additional, separators=(",", ":"))]
    return Start(name, chosen, tuple(arguments), environment)


def with_needs(wanted: Iterable[str], ways: Mapping[str, Way]) -> tuple[str, ...]:
    """The features in the order of ``ways``, completed."""
    names = set(wanted)
    names |= {_NEEDS[name] for name in names if name in _NEEDS}
    return tuple(name for name in ways if name in names)


def _given(asked: Sequence[str]) -> dict[str, object]:
    """The additional_config among the user's arguments, which ours would otherwise replace."""
    for at, word in enumerate(asked):
        name, equals, value = word.partition("=")
        text = value if equals else "".join(asked[at + 1 : at + 2])
        if name == _ADDITIONAL:
            try:
                found = json.loads(text)
            except ValueError:
                return {}  # vLLM says itself what is wrong with it
            return found if isinstance(found, dict) else {}
    return {}


def _is_asked(name: str, asked: Sequence[str]) -> bool:
    return any(word.partition("=")[0] == name for word in asked)


def _value(way: Way) -> list[str]:
    if way.value is None:
        return []
    return [
        json.dumps(way.value, separators=(",", ":")) if isinstance(way.value, Mapping) else str(way.value)
    ]
