"""All functions that an audit looks at."""

from __future__ import annotations

from collections.abc import Iterator

from npu_upgrade.audit.calls.overrides import audited_classes
from npu_upgrade.audit.world import World
from npu_upgrade.program.callees import Resolver
from npu_upgrade.program.running import running_methods, scope_of
from npu_upgrade.program.scope import Scope


def audited_scopes(world: World, resolver: Resolver) -> Iterator[Scope]:
    """Every function of the audited files; methods once per class on whose objects they run."""
    for file in world.files:
        yield Scope(file, file.tree)
        yield from (Scope(file, function.node) for function in file.functions.values())
    yield from _methods(world, resolver, True)


def inherited_scopes(world: World, resolver: Resolver) -> Iterator[Scope]:
    """The methods of other files that run on objects of audited classes, once per class."""
    yield from _methods(world, resolver, False)


def _methods(world: World, resolver: Resolver, own: bool) -> Iterator[Scope]:
    audited = {id(file) for file in world.files}
    for cls in audited_classes(world):
        for method in running_methods(cls, resolver):
            if (id(method.owner.file) in audited) is own:
                yield scope_of(cls, method)
