"""Where a name that a runner file needs can be imported from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from npu_upgrade.code.conflict_text import answers
from npu_upgrade.code.definitions import absolute, importable, module_of, type_aliases
from npu_upgrade.code.names import Import, imports_of, names_of
from npu_upgrade.lineage.dialect import neutral
from npu_upgrade.program.places import definitions, imports_binding, works
from npu_upgrade.program.program import Program
from npu_upgrade.sources.tree import SourceTree, overlay

Offer = tuple[Import, str]
"""An import, and where it was found."""


@dataclass(frozen=True)
class UpstreamFile:
    """The vllm-ascend runner module of the target: its path in the tree and its text."""

    path: str
    source: str


class _File:
    """What one file imports and defines; ``texts`` are its two answers when it has conflicts."""

    def __init__(self, path: str, *texts: str) -> None:
        self.path, self.module = path, module_of(path)
        self.imports: dict[str, Import] = {}
        self.defined: set[str] = set()
        self.aliases: set[str] = set()
        self.texts = tuple(dict.fromkeys(texts))
        for text in self.texts:
            for name, item in imports_of(text).items():
                self.imports.setdefault(name, absolute(item, path))
            self.aliases |= type_aliases(text)
            self.defined |= importable(text) - self.aliases

    @cached_property
    def local(self) -> set[str]:
        """The names that some function of the file assigns."""
        return {name for text in self.texts for name in names_of(text).local}

    def imported(self, name: str, what: str) -> Iterator[Offer]:
        if name in self.imports:
            yield self.imports[name], f"imported by {what} {self.path}"

    def defines(self, name: str, what: str) -> Iterator[Offer]:
        if name in self.defined:
            yield Import(self.module, name), f"defined in {what} {self.path}"

    def both(self, name: str, what: str) -> Iterator[Offer]:
        yield from self.imported(name, what)
        yield from self.defines(name, what)


def _file_name(path: str) -> str:
    """The name of a file without the words of devices."""
    return neutral(path.rpartition("/")[2])


class Sources:
    """The files and trees that names are looked up in, in the order of trust."""

    def __init__(
        self,
        merged: Mapping[str, str],
        ours: Mapping[str, str],
        upstream: UpstreamFile,
        gpu: Mapping[str, str],
        target: SourceTree | None,
        omni: SourceTree | None,
        program: Program | None = None,
    ) -> None:
        texts = {path: [side.text for side in answers(text, path)] for path, text in merged.items()}
        self.npu = {path: _File(path, *sides) for path, sides in texts.items()}
        self.ours = [_File(path, *(side.text for side in answers(t, path))) for path, t in ours.items()]
        self.upstream = _File(upstream.path, upstream.source)
        self.gpu = {path: _File(path, text) for path, text in gpu.items()}
        # Of a file with conflicts, the names of both answers count.
        self.edited = dict(gpu) | {path: "\n".join(dict.fromkeys(sides)) for path, sides in texts.items()}
        package = next(iter(merged), "").partition("/")[0]
        trees = {upstream.path.partition("/")[0]: target} if target else {}
        self.program = program or Program(trees | ({package: overlay(omni, self.edited)} if omni else {}))

    def works(self, item: Import) -> bool:
        """Whether an import works in the trees at hand; True for packages they do not hold."""
        return works(self.program, item, self.edited)

    def find(self, name: str, path: str) -> Offer | None:
        """The import that gives the file ``path`` the name ``name``; None when nothing is certain."""
        usable = (offer for offer in self._offers(name, path) if self._usable(offer[0], path))
        if found := next(usable, None):
            return found
        if name == "TYPE_CHECKING":
            return Import("typing", name), "the standard library"
        if self._is_local(name):
            return None
        modules = self.defining(name, path)
        if len(modules) == 1:
            return Import(modules[0], name), f"the only definition in the trees: {modules[0]}"
        return self._everywhere(name, path) if not modules else None

    def replacement(self, item: Import, path: str) -> Offer | None:
        """Where the target has what the stale ``item`` imported, bound to the same name."""
        original = item.name or item.module
        for name in dict.fromkeys((item.bound, original)):
            offer = self.find(name, path)
            if offer and (name == item.bound or offer[0].name == original):
                found = offer[0] if name == item.bound else replace(offer[0], asname=item.asname)
                return replace(found, typing_only=item.typing_only), offer[1]
        return None

    def defining(self, name: str, path: str) -> list[str]:
        """Modules of the trees that define ``name`` and that ``path`` can import from."""
        found = [
            module for package in self.program.trees for module in definitions(self.program, package, name)
        ]
        return [module for module in found if self._usable(Import(module, name), path)]

    def missing(self, name: str, path: str) -> str:
        """Why :meth:`find` has no answer."""
        modules = self.defining(name, path)
        if self._is_local(name):
            return "a local variable elsewhere in the runners; nothing imports or defines it"
        if modules:
            return "defined in several modules: " + ", ".join(modules)
        trees = " and ".join(self.program.trees) or "no tree"
        return (
            f"not in the upstream runner, the GPU or the other NPU runners; no single definition in {trees}"
        )

    def _offers(self, name: str, path: str) -> Iterator[Offer]:
        others = [file for file in self.npu.values() if file.path != path]
        counterpart = [file for twin, file in self.gpu.items() if _file_name(twin) == _file_name(path)]
        yield from self.upstream.imported(name, "upstream")
        # What another NPU runner defines stands for what upstream defines under this name.
        for file in others:
            yield from file.defines(name, "the NPU runner")
        yield from self.upstream.defines(name, "upstream")
        for file in counterpart:
            yield from file.both(name, "the GPU counterpart")
        for file in others:
            yield from file.imported(name, "the NPU runner")
        for file in self.gpu.values():
            yield from file.both(name, "the GPU runner")
        # vllm-ascend repeats type aliases of vllm; the original, where it is known, came before.
        if name in self.upstream.aliases:
            yield Import(self.upstream.module, name), f"a type alias of upstream {self.upstream.path}"

    def _everywhere(self, name: str, path: str) -> Offer | None:
        """The import that all files of the trees which import ``name`` agree on."""
        found = [i for package in self.program.trees for i in imports_binding(self.program, package, name)]
        if len(found) < 2 or len({replace(item, typing_only=False) for item in found}) > 1:
            return None
        item = replace(found[0], typing_only=all(item.typing_only for item in found))
        return (item, f"all {len(found)} files that import it agree") if self._usable(item, path) else None

    def _usable(self, item: Import, path: str) -> bool:
        return not self._needs(item.module, module_of(path)) and self.works(item)

    def _needs(self, module: str, other: str) -> bool:
        """Whether importing ``module`` imports ``other``, as far as the NPU runners tell."""
        by_module = {file.module: file for file in self.npu.values()}
        seen: set[str] = set()
        queue = [module]
        while queue:
            current = queue.pop()
            if current == other:
                return True
            if current in by_module and current not in seen:
                seen.add(current)
                queue += [i.module for i in by_module[current].imports.values() if not i.typing_only]
        return False

    def _is_local(self, name: str) -> bool:
        files = [self.upstream, *self.ours, *self.npu.values(), *self.gpu.values()]
        return any(name in file.local for file in files)
