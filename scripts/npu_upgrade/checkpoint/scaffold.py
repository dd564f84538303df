"""A new model's files: a class of the family that the checkpoint computes, with its own names of tensors.

Without an open decision vLLM loads them as they are. What is open is named where it belongs, and raises
``NotImplementedError`` until somebody decides.
"""

from __future__ import annotations

import ast
import functools
import json
import keyword
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from npu_upgrade.checkpoint.analysis import Analysis
from npu_upgrade.checkpoint.config import facts
from npu_upgrade.checkpoint.likeness import Likeness, families, likest
from npu_upgrade.checkpoint.parts import by_pattern, numbers_of, with_numbers
from npu_upgrade.checkpoint.registry import Registry, read_registry
from npu_upgrade.checkpoint.serving import Sources
from npu_upgrade.code.formatting import formatted, project_of
from npu_upgrade.ground.errors import BadInput
from npu_upgrade.ground.files import sha256, write_together
from npu_upgrade.ground.tables import shortened

Form = Literal["plugin", "tree"]
_TEMPLATES = Path(__file__).with_name("templates")
_SCALE = re.compile(r"_scale(?:_inv)?$")
_HINTS = {
    "fused projections": r"(?:qkv|query_key_value|gate_up|c_attn|Wqkv|in_proj)",
    "norms of queries and keys (sharded with their heads)": r"[qk]_?norm|(?:query|key)_layernorm",
}


def likeness_of(found: Analysis, sources: Sources, answers: dict[str, str]) -> Likeness:
    """The family of a checkpoint that needs code of its own; nothing without tensor names."""
    shapes = {
        pattern: found.weights.tensors[names[0]].shape
        for pattern, names in by_pattern(found.weights.tensors).items()
        if not _SCALE.search(pattern)
    }
    known = read_registry(sources.vllm).models if sources.vllm else {}
    return likest(found.config, shapes, found.file.properties.architecture, answers, sources.vllm, known)


def decisions(found: Analysis, like: Likeness) -> list[str]:
    """What the author of the model's code has to decide, by what this checkpoint has."""
    if like.family:
        asked = [one.said for one in like.questions]
        asked += [f"what is {one}? {like.family} has no place for it" for one in like.open]
        asked += [f"where is {one} of {like.family}? no tensor fits" for one in like.missing]
        return [plain(one) for one in asked]
    shape, file = found.shape, found.file
    kinds = ", ".join(f"{count} {kind}" for kind, count in file.attention.layers.items())
    count = f"{shape.heads} heads, {shape.kv_heads} of keys"
    result = [f"attention: {file.attention.kind} ({kinds or 'unknown'}), {count}"]
    names = by_pattern(found.weights.names)
    for what, pattern in _HINTS.items():
        if hits := [key for key in names if re.search(pattern, key)]:
            result.append(f"{what}: {', '.join(hits[:3])}")
    rope = found.config.text.get("rope_scaling") or found.config.text.get("rope_parameters")
    theta = found.config.text.get("rope_theta")
    result.append(f"rope: {str(rope)[:90]}" if rope else f"rope: plain, theta {theta}")
    if shape.experts:
        each = f"{shape.experts_per_token} per token"
        result.append(f"experts: {shape.experts}, {each}; routing and shared experts")
    if file.mtp.state in ("ready", "not announced"):
        result.append(f"multi-token prediction: a draft model of its own ({file.mtp.example})")
    if file.modalities:
        result.append(f"modalities: {', '.join(file.modalities)}; towers and projector")
    return [plain(one) for one in result]


def plain(text: object) -> str:
    """Text of a checkpoint as it may stand in a comment or a docstring: one line, no quotes, no escapes."""
    return re.sub(r"[^\w .,:;?|()\[\]{}+*/=%-]", "_", str(text))


def patterns(found: Analysis, like: Likeness) -> list[dict[str, Any]]:
    """Each pattern of tensor names with how many there are, their shapes, and the names they get.

    These are None while a question about it is open.
    """
    result, asked = [], {one.id for one in like.questions}
    for pattern, names in by_pattern(found.weights.names).items():
        if _SCALE.search(pattern):  # goes with its weight
            continue
        known = [found.weights.tensors[name] for name in names if name in found.weights.tensors]
        shapes = sorted({f"{list(one.shape)} {one.dtype}" for one in known})
        shown = shortened(shapes, 2) or "unknown shape"
        targets = None if pattern in asked else like.weights.get(pattern)
        result.append({"pattern": pattern, "tensors": len(names), "shape": shown, "targets": targets})
    return result


def dequantizes(found: Analysis) -> bool:
    """Whether the scaffold makes fp8 weights what they stand for while it loads them."""
    fp8 = any(one.dtype.startswith("F8_E") for one in found.weights.tensors.values())
    return fp8 and found.file.quantization.method in ("fp8", "")


def scaffold(
    found: Analysis,
    out: Path,
    form: Form,
    like: Likeness,
    registry: Registry,
    delivery: Path | None = None,
    earlier: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write the files, all below ``out`` but the test, all or none; returns them.

    ``registry``: of the vLLM that has the family. They are in the style of the project that ``out`` lies in,
    else of the one that gets the commit, ``delivery``. Raises :class:`BadInput` for what exists; to write
    a scaffold anew, ``earlier`` has what it wrote (path -> SHA-256), and only what is otherwise is refused.
    """
    wanted = scaffolded(found, form, like, out)
    test = unit_test(found, form, out, delivery)
    there = [path for path in (*map(out.joinpath, wanted), test) if path.exists()]
    if earlier is None and there:
        raise BadInput(
            f"{there[0]} is there already",
            expected="a folder without these files",
            try_="another --scaffold OUT",
        )
    for path in there:
        if earlier is not None and earlier.get(str(path)) != sha256(path.read_bytes()):
            raise BadInput(
                f"{path} was edited since it was written",
                expected="the files of the plugin as the plan before wrote them",
                try_=f"move {path} away, the same again, and carry your edits over",
            )
    values = _values(found, like, form, out, registry)
    texts = {out / path: _render(template, values) for path, template in wanted.items()}
    plugin = os.path.relpath(out.resolve(), test.parent)
    texts[test] = _render("test.py", values | {"tensors": _tensors(found, like), "plugin": plugin})
    licence = _licence(test.parent)
    texts = {path: (licence if path.suffix == ".py" else "") + text for path, text in texts.items()}
    if form == "tree":
        texts |= _registered(found, out)
    code = [path for path in texts if path.suffix == ".py"]
    for path in code:
        ast.parse(texts[path])
    before = {path: path.read_text("utf-8") if path.exists() else "" for path in code}
    write_together(texts)
    inside = project_of(out.absolute())
    if style := inside or delivery:  # in their places: which imports are the project's own is seen there
        moves = {path for path in code if not inside and path.is_relative_to(out)}  # to that project, later
        places = {path: str(path.relative_to(out) if path in moves else path.absolute()) for path in code}
        write_together({path: formatted(style, places[path], before[path], texts[path]) for path in code})
    return sorted(texts)


def scaffolded(found: Analysis, form: Form, like: Likeness, out: Path | None = None) -> dict[str, str]:
    """The files of a scaffold: path -> template. ``out``: the tree, vLLM's or vllm-ascend's."""
    folder = _folder(found, form, out)
    files = {"pyproject.toml": "pyproject.toml"} if form == "plugin" else {}
    files |= {f"{folder}/__init__.py": "init.py", f"{folder}/model.py": "model.py"}
    return files | ({f"{folder}/configuration.py": "configuration.py"} if needs_config(found, like) else {})


def unit_test(found: Analysis, form: Form, out: Path, delivery: Path | None = None) -> Path:
    """Where the unit test of a scaffold goes: among those of its project, else beside a plugin; absolute."""
    is_plugin = form == "plugin"
    name = f"test_{package_name(found) if is_plugin else module_name(found)}.py"
    project = (delivery if is_plugin and delivery else out).resolve()
    out = out.resolve()
    if out.is_relative_to(project) and (project / "tests" / "ut").is_dir():
        return project / "tests" / "ut" / "models" / name
    return out / "tests" / name if is_plugin else out / "tests" / "models" / name


def _licence(folder: Path) -> str:
    """The line that names the licence at the head of most files of a folder, with its end; else nothing."""
    files, heads = sorted(folder.glob("*.py")), Counter()
    for path in files:
        with path.open(encoding="utf-8", errors="replace") as file:
            heads.update([line for line in islice(file, 2) if line.startswith("# SPDX-License-Identifier:")])
    line, often = next(iter(heads.most_common(1)), ("", 0))
    return line if 2 * often > len(files) else ""


def _tensors(found: Analysis, like: Likeness) -> list[dict[str, Any]]:
    """A tensor of each pattern that has a place: its name, a shape for a test, and the names of its parts.

    These are lists, one for each part, of one name, or of one for each of two experts.
    """
    result = []
    for pattern, names in by_pattern(found.weights.names).items():
        targets = like.weights.get(pattern)
        if not targets or _SCALE.search(pattern) or pattern in {one.id for one in like.questions}:
            continue
        numbers = numbers_of(names[-1])
        stacked = [target.count("*") > len(numbers) for target in targets]
        parts = [
            [with_numbers(target, [*numbers, *expert]) for expert in (["0", "1"] if more else [""])]
            for target, more in zip(targets, stacked, strict=True)
        ]
        shape = ([2] if any(stacked) else []) + [sum(like.rows.get(pattern, [2])), 2]
        turned = pattern in like.turned
        shape = [*shape[:-2], *reversed(shape[-2:])] if turned else shape
        result.append({"name": names[-1], "shape": shape, "parts": parts, "turned": turned})
    return result


_ASCEND = "vllm_ascend/models/__init__.py"  # where vllm-ascend registers its models


def _folder(found: Analysis, form: Form, out: Path | None) -> str:
    if form == "plugin":
        return package_name(found)
    ascend = out is not None and (out / _ASCEND).is_file()
    return f"{'vllm_ascend/models' if ascend else 'vllm/model_executor/models'}/{module_name(found)}"


def _registered(found: Analysis, out: Path) -> dict[Path, str]:
    """The function that registers vllm-ascend's models, with the new one at its end."""
    path = out / _ASCEND
    if not path.is_file():
        return {}
    text, name = path.read_text("utf-8"), module_name(found)
    last = next((one for one in ast.parse(text).body if getattr(one, "name", "") == "register_model"), None)
    if not isinstance(last, ast.FunctionDef) or last.end_lineno is None:
        raise BadInput(
            f"{path} has no function register_model",
            expected="the file in which vllm-ascend registers its models",
            try_="--form plugin, which needs no change in the tree",
        )
    lines = text.splitlines(keepends=True)
    package = _folder(found, "tree", out).replace("/", ".")
    added = f"\n    from {package} import register as register_{name}\n\n    register_{name}()\n"
    return {path: "".join([*lines[: last.end_lineno], added, *lines[last.end_lineno :]])}


def class_name(found: Analysis) -> str:
    """The class a scaffold has: the architecture's, as a name Python takes."""
    given = found.file.properties.architecture or f"{found.config.model_type or found.file.name}ForCausalLM"
    name = re.sub(r"\W+", "", given)
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"Model{name or 'New'}"


def module_name(found: Analysis) -> str:
    """The module a scaffold goes to, by the model type."""
    name = re.sub(r"\W+", "_", (found.config.model_type or class_name(found)).lower()).strip("_")
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"model_{name or 'new'}"


def package_name(found: Analysis) -> str:
    """The package of a scaffold that is a plugin."""
    return f"{module_name(found)}_plugin"


def needs_config(found: Analysis, like: Likeness) -> bool:
    """Whether config.json has to be read by a class of its own."""
    unknown = found.config.model_type not in facts().configs
    changed = bool(like.keys or like.values or dequantizes(found))
    return bool(found.config.model_type and like.family) and (unknown or changed)


def registry_entry(found: Analysis, form: Form) -> str:
    """How vLLM hears of the class: the call of a plugin, or the line of its registry."""
    name = json.dumps(found.file.properties.architecture)
    if form == "plugin":
        return f'ModelRegistry.register_model({name}, "{package_name(found)}.model:{class_name(found)}")'
    return f'{name}: ("{module_name(found)}.model", "{class_name(found)}"),'


def _values(found: Analysis, like: Likeness, form: Form, out: Path, registry: Registry) -> dict[str, Any]:
    cls, file = class_name(found), found.file
    known = families().get(like.family)
    place, family_class = registry.models.get(like.family, ("", ""))
    table = patterns(found, like)
    block = file.quantization.details.get("weight_block_size") or [1, 1]
    return {
        "cls": cls,
        "stem": re.sub(r"(?:For\w+|Model)$", "", cls) or cls,
        "package": _folder(found, form, out).replace("/", "."),
        "form": form,
        "architecture": file.properties.architecture or cls,
        "model_type": found.config.model_type,
        "own_config": needs_config(found, like),
        "name": file.name,
        "scheme": file.quantization.scheme,
        "fp8": dequantizes(found),
        "block": tuple(block),
        "tied": file.tied.tied,
        "decisions": decisions(found, like),
        "undecided": any(one["targets"] is None for one in table),
        "family": like.family if place else "",
        "family_type": known.model_type if known else "",
        "family_config": known.config if known else "",
        "family_class": family_class,
        "family_package": place.rpartition(".")[0],
        "family_module": place.rpartition(".")[2],
        "keys": sorted(like.keys.items()),
        "config_values": sorted(like.values.items()),
        "patterns": table,
        "stacked": any(
            target.count("*") > one.count("*") for one, targets in like.weights.items() for target in targets
        ),
        "splits": [(one, like.rows[one]) for one in like.weights if one in like.rows],
        "turned": like.turned,
    }


def templates(folder: Path, filters: Mapping[str, Callable[..., Any]], **given: Any) -> Environment:
    """The templates of a folder, ``given`` in each; a name that is not given is an error."""
    environment = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= filters
    environment.globals |= given
    return environment


@functools.cache  # it keeps the templates that it compiled
def _environment() -> Environment:
    return templates(_TEMPLATES, {"plain": plain})


def _render(template: str, values: dict[str, Any]) -> str:
    return _environment().get_template(f"{template}.j2").render(values)
