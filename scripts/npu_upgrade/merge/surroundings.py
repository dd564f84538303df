"""What else of vllm-omni's NPU worker folder a new vllm-ascend touches, beyond the merged methods.

Imports that the target does not have, upstream classes and functions that changed below
their users, and methods that omni overrides. Everything is read from source; without a base
only the missing names can be told.
"""

from __future__ import annotations

from npu_upgrade.code.definitions import read_module
from npu_upgrade.code.exports import Exports
from npu_upgrade.code.names import Import
from npu_upgrade.lineage.downstream import Upstream, find_upstream, read_runner, runners_of
from npu_upgrade.lineage.inference import Lineage
from npu_upgrade.lineage.items import Item, item_id
from npu_upgrade.merge.call_changes import call_items
from npu_upgrade.merge.class_changes import class_items
from npu_upgrade.merge.override_changes import method_items
from npu_upgrade.merge.worker_files import WorkerFile, families, read_worker_file, worker_paths
from npu_upgrade.sources.tree import SourceTree

__all__ = ["method_items", "override_items", "surrounding_items", "worker_items"]


def surrounding_items(
    omni: SourceTree, base: SourceTree | None, target: SourceTree, upstream: Upstream, lineage: Lineage
) -> list[Item]:
    """The items of the worker folder, and of the methods that the runners override."""
    return worker_items(omni, base, target) + override_items(omni, base, target, upstream, lineage)


def override_items(
    omni: SourceTree, base: SourceTree | None, target: SourceTree, upstream: Upstream, lineage: Lineage
) -> list[Item]:
    """The items of the methods that the runners override and that are no copies."""
    before, after = (read_module(tree, upstream.path) if tree else None for tree in (base, target))
    if before is None or after is None:
        return []
    found: list[Item] = []
    for runner in runners_of(omni):
        copied = {entry.name for entry in lineage.copied if entry.path == runner.path}
        module = read_runner(omni, runner.path)
        found += method_items(
            module, runner.class_name, before, after, upstream.class_name, copied, runner.path
        )
    return found


def worker_items(omni: SourceTree, base: SourceTree | None, target: SourceTree) -> list[Item]:
    """The items of the NPU worker files of ``omni``.

    Of the three runner files only imports from elsewhere than the upstream runner module
    count. Raises as :func:`npu_upgrade.lineage.downstream.find_upstream`.
    """
    module = find_upstream(omni).module
    found: list[Item] = []
    files: list[WorkerFile] = []
    for path in worker_paths(omni):
        file = read_worker_file(omni, path, module)
        if file is None:
            title = f"{path} is not Python"
            found.append(Item(item_id("unreadable", path), "unreadable", title, "", path, True))
        else:
            files.append(file)
    exports = Exports(target, "vllm_ascend")
    found += [item for file in files for item in _missing(file, exports)]
    if base is not None:
        found += [item for family in families(files) for item in class_items(family, base, target)]
        found += call_items(files, base, target)
    return found


def _missing(file: WorkerFile, exports: Exports) -> list[Item]:
    """Imports of vllm_ascend that the target does not have."""
    found = {}
    for item, guarded in file.imports:
        if exports.judges(item.module) and not exports.has(item):
            text = item.statement()
            title = f"{file.path}: the target has no `{text}`"
            detail = _where(item, exports)
            if file.is_runner:
                detail += "; the merge changes imports of the runner files, see there first"
            key = item_id("missing-name", file.path, text)
            found[key] = Item(
                key, "missing-name", title, detail, file.path, not guarded and not file.is_runner
            )
    return list(found.values())


def _where(item: Import, exports: Exports) -> str:
    if item.name is None:
        return "the module is gone"
    places = exports.definitions(item.name)
    if len(places) == 1:
        return f"{item.name} is now in {places[0]}"
    gone = "" if exports.has_module(item.module) else f"{item.module} is gone; "
    return gone + (
        f"{item.name} is defined in {', '.join(places)}" if places else f"nothing defines {item.name}"
    )
