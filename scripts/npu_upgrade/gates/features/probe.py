"""What each feature is called in the sources at hand, and by what it would be proven."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator

from npu_upgrade.gates.features.capability import (
    ANSWER,
    ARGUMENT,
    AUTOMATIC,
    DEFAULT,
    FEATURES,
    METRIC,
    PROCESS,
    RESOLVED,
    Capability,
    Proof,
    Way,
    logged,
)
from npu_upgrade.gates.features.settings import ENVIRONMENT, Setting, refuses_unknown_keys, settings
from npu_upgrade.gates.features.source import (
    LogCall,
    Package,
    Place,
    flags,
    listed,
    log_call,
    log_calls,
    strings,
)
from npu_upgrade.sources.installed import Installed
from npu_upgrade.sources.tree import open_source

_FLASHCOMM = r"(?:VLLM_ASCEND_)?ENABLE_FLASH_?COMM(?:_?V?1)?"
_FLASHCOMM_ON = re.compile(r"(?<!\w)flash ?comm ?1? is enabled", re.IGNORECASE)
_FLASHCOMM_OFF = re.compile(r"flash ?comm ?1? is (?:disabled|enabled, but)", re.IGNORECASE)
_NO_PLACES = "moe lora requires"
_DRAFTS = r"vllm:spec_decode_num_(?:drafts|accepted_tokens)"


def probe(ascend: Package | None, vllm: Package | None) -> dict[str, Capability]:
    """Feature -> capability, for a vllm-ascend on a vLLM, or for a vLLM alone."""
    found = {"graph": _graph(ascend, vllm), "flashcomm1": _flashcomm(ascend, vllm)}
    known = flags(vllm) if vllm else {}
    for name, (options, read) in _BY_OPTION.items():
        lacking = next((one for one in options if one not in known), None)
        if vllm is None:
            found[name] = Capability(name, known=False, why="the source of vLLM is not at hand")
        elif lacking:
            found[name] = Capability(name, known=True, why=f"no option {lacking} in {vllm.label}")
        else:
            found[name] = read(ascend, vllm, *(known[one] for one in options))
    return {name: found[name] for name in FEATURES}


def counters(capabilities: Iterable[Capability]) -> list[str]:
    """The metrics by which features are proven."""
    groups = [group for one in capabilities for group in one.proofs]
    return [proof.text for group in groups for proof in group if proof.kind == METRIC]


def packages_of(installed: Installed) -> dict[str, Package]:
    """The vllm and vllm_ascend of an interpreter, by name."""
    folders = {name: folder for name in ("vllm", "vllm_ascend") if (folder := installed.folder(name))}
    return {name: Package(name, open_source(f"dir:{folder.parent}")) for name, folder in folders.items()}


def _experts(ascend: Package | None, vllm: Package, place: Place) -> Capability:
    names = strings(vllm, "_ep{", "_EP", "v1/executor/")
    workers = tuple(
        Proof(PROCESS, rf"\bWorker\w*{text}\d+", f"a process Worker…{text}N", at) for text, at in names
    )
    said = re.compile(r"expert parallel\w* is enabled", re.IGNORECASE)
    lines = logged(call for call in log_calls(vllm, "expert parallel") if said.search(call.text))
    asked = Proof(RESOLVED, "enable_expert_parallel", "enable_expert_parallel=True", place)
    return Capability(
        "expert_parallel",
        True,
        (Way(ARGUMENT, "--enable-expert-parallel", place),),
        ((asked,), (*workers[:1], *lines)),
    )


def _flashcomm(ascend: Package | None, vllm: Package | None) -> Capability:
    if ascend is None:
        return Capability("flashcomm1", known=True, why="it is vllm-ascend's, which is not here")
    found = settings(ascend, "flashcomm", _FLASHCOMM)
    takes_config = vllm is None or "--additional-config" in flags(vllm)
    taken = [one for one in found if takes_config or one.kind == ENVIRONMENT]
    ways = tuple(_way(one, one.used) for one in taken if one.used)
    calls = [call for call in log_calls(ascend, "flashcomm") if call.level != "debug"]
    off = [call for call in calls if _FLASHCOMM_OFF.search(call.text)]
    on = [call for call in calls if _FLASHCOMM_ON.search(call.text) and call not in off]
    why = "" if ways else f"{ascend.label} has no setting for it"
    if not ways and found:
        why = f"{ascend.label} only warns about {found[0].name}: it is removed"
    elif ways and not on:
        why = f"{ascend.label} logs nothing when it is on"
    strict = refuses_unknown_keys(ascend)
    places = tuple(one for one in (strict, *(each.deprecated for each in found)) if one)
    names = ("unknown keys of additional_config are refused",) if strict else ()
    return Capability(
        "flashcomm1", True, ways, (logged(on),), logged(off), names=names, why=why, places=places
    )


def _way(setting: Setting, used: Place) -> Way:
    note = f"deprecated: {setting.deprecated}" if setting.deprecated else ""
    return Way(setting.kind, setting.name, used, "1" if setting.kind == ENVIRONMENT else True, note)


def _drafts(ascend: Package | None, vllm: Package, place: Place) -> Capability:
    methods = [at for _text, at in strings(vllm, '"mtp"', "mtp", "config/")]
    proposers = [at for _text, at in strings(ascend, '"mtp"', "mtp")] if ascend else methods
    lacking = vllm if not methods else ascend if not proposers else None
    if lacking:
        return Capability("mtp", known=True, why=f"{lacking.label} knows no speculative method mtp")
    names = sorted(set(strings(vllm, "spec_decode_num", _DRAFTS, "v1/")), reverse=True)
    counted = {name: Proof(METRIC, name, f"{name} > 0", at) for name, at in names}
    way = Way(ARGUMENT, "--speculative-config", place, {"method": "mtp", "num_speculative_tokens": 1})
    groups = tuple((one,) for one in counted.values())
    return Capability("mtp", True, (way,), groups, places=(methods[0], proposers[0]))


def _multimodal(ascend: Package | None, vllm: Package, place: Place) -> Capability:
    answer = Proof(ANSWER, "image", "a request with an image is answered", place)
    return Capability("multimodal", True, (Way(AUTOMATIC, "--limit-mm-per-prompt", place),), ((answer,),))


def _quantization(ascend: Package | None, vllm: Package, place: Place) -> Capability:
    names, at = listed(ascend, "supported_quantization") if ascend else ((), None)
    if not names:
        names, at = listed(vllm, "QuantizationMethods", "model_executor/layers/quantization/")
    asked = Proof(RESOLVED, "quantization", "quantization=METHOD", place)
    said = re.compile(r"using .*quantization", re.IGNORECASE)
    calls = log_calls(ascend, "quantization now", below="quantization/") if ascend else ()
    lines = logged(call for call in calls if call.level == "info" and said.search(call.text))
    return Capability(
        "quantization",
        True,
        (Way(AUTOMATIC, "--quantization", place),),
        ((asked,), *((lines,) if lines else ())),
        names=names,
        places=(at,) if at else (),
    )


def _lora(ascend: Package | None, vllm: Package, place: Place, modules: Place) -> Capability:
    nodes = ascend.nodes("def get_punica_wrapper") if ascend else ()
    methods = ((at, one) for at, one in nodes if isinstance(one, ast.FunctionDef))
    wrappers = [Place(at, one.lineno) for at, one in methods if one.name == "get_punica_wrapper"]
    if ascend and not wrappers:
        return Capability("lora", known=True, why="its platform names no get_punica_wrapper")
    answer = Proof(ANSWER, "lora", "a request to the adapter's name is answered in its own way", modules)
    ways = (Way(ARGUMENT, "--enable-lora", place),)
    # experts get adapters by the places of tokens, which the dispatch of the two others does not give
    text = rf"(?is).*{_NO_PLACES} (?:either )?expanded_row_idx.*"
    refused = [at for _, at in strings(ascend, _NO_PLACES, text, "ops/")] if ascend else []
    apart = ("expert_parallel", "flashcomm1") if refused else ()
    places = (*refused, *wrappers, place)[:1]
    return Capability("lora", True, ways, ((answer,),), apart=apart, places=places)


_SWITCH = "--enforce-eager"
_CAPTURED = re.compile(r"graph captur\w* finished", re.IGNORECASE)
_REPLAYED = re.compile(r"graph replay|replay\w* .{0,20}graph", re.IGNORECASE)
_DRAFT = re.compile(r"draft|eagle|speculat", re.IGNORECASE)


def _graph(ascend: Package | None, vllm: Package | None) -> Capability:
    """Graphs are on unless eager mode is asked for; a platform without a replay line has none to prove."""
    packages = [one for one in (ascend, vllm) if one]
    switch = flags(vllm).get(_SWITCH) if vllm else None
    if ascend is None:
        why = "only graphs of an NPU can be replayed, and no vllm-ascend is here"
        return Capability("graph", known=True, why=why)
    said = [call for call in log_calls(ascend, "replay") if call.level == "info"]
    replayed = [call for call in said if _REPLAYED.search(call.text) and not _DRAFT.search(call.text)]
    captured = [call for one in packages for call in log_calls(one, "captur") if _CAPTURED.search(call.text)]
    shown = (logged(captured), logged(replayed, after_ready=True))
    if not switch:
        why = f"no option {_SWITCH} in vLLM's source"
        return Capability("graph", known=vllm is not None, proofs=shown, why=why)
    eager = Proof(RESOLVED, "enforce_eager", "enforce_eager=False", switch)
    taken = [call for one in packages for call in _downgrades(one, "NONE")]
    lowered = [call for one in packages for call in _downgrades(one, "PIECEWISE")]
    return Capability(
        "graph",
        known=True,
        ways=(Way(DEFAULT, _SWITCH, switch),),
        proofs=((eager,), *shown),
        against=logged(taken),
        lowered=logged(lowered),
        names=_modes(vllm) if vllm else (),
        why="" if replayed else "this release logs nothing when it replays a graph",
    )


def _modes(vllm: Package) -> tuple[str, ...]:
    """The modes of graphs as ``NAME=VALUE``, the value as it stands in JSON."""
    nodes = (node for _, node in vllm.nodes("class CUDAGraphMode", below="config/"))
    classes = (node for node in nodes if isinstance(node, ast.ClassDef) and node.name == "CUDAGraphMode")
    values: dict[str, object] = {}
    for node in getattr(next(classes, None), "body", ()):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value
            if isinstance(value, ast.Constant):
                values[node.targets[0].id] = value.value
            elif isinstance(value, ast.Tuple):
                values[node.targets[0].id] = [values.get(ast.unparse(one)) for one in value.elts]
    return tuple(f"{name}={json.dumps(value)}" for name, value in values.items())


def _downgrades(package: Package, mode: str) -> Iterator[LogCall]:
    """What is logged beside the statement that gives the graphs a lesser ``mode``."""
    for path, node in package.nodes("cudagraph_mode ="):
        for block in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if isinstance(block, list) and any(_sets(one, mode) for one in block):
                calls = (log_call(one.value, path) for one in block if isinstance(one, ast.Expr))
                yield from (call for call in calls if call and call.is_telling)


def _sets(statement: ast.stmt, mode: str) -> bool:
    if not isinstance(statement, ast.Assign):
        return False
    targets = [ast.unparse(one) for one in statement.targets]
    value = ast.unparse(statement.value)
    return any(one.endswith(".cudagraph_mode") for one in targets) and value.endswith(f"CUDAGraphMode.{mode}")


_BY_OPTION: dict[str, tuple[tuple[str, ...], Callable[..., Capability]]] = {
    "expert_parallel": (("--enable-expert-parallel",), _experts),
    "mtp": (("--speculative-config",), _drafts),
    "multimodal": (("--limit-mm-per-prompt",), _multimodal),
    "quantization": (("--quantization",), _quantization),
    "lora": (("--enable-lora", "--lora-modules"), _lora),
}
