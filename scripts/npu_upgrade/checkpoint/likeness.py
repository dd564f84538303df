"""Which known family a checkpoint computes, whatever its names: tensors and keys matched with the family's.

Names are taken apart into words, and shapes have to agree: each number of the family's tiny model stands for
one number of the checkpoint. What two places fit equally well is a question for a person, nothing is guessed.
"""

from __future__ import annotations

import copy
import functools
import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from npu_upgrade.checkpoint.config import Config, load
from npu_upgrade.checkpoint.name_map import is_dropped
from npu_upgrade.checkpoint.parts import numbers_of, pattern_of, with_numbers
from npu_upgrade.sources.tree import SourceTree

FAMILIES = Path(__file__).with_name("families.json")
# of families with the same tensors and keys, the one that others are made after
_FIRST = (
    *("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"),
    *("MixtralForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV2ForCausalLM", "Glm4MoeForCausalLM"),
    *("Qwen2MoeForCausalLM", "Qwen3NextForCausalLM", "JambaForCausalLM", "MambaForCausalLM"),
)
_WORDS = {
    **dict.fromkeys(("query", "queries", "wq"), "q"),
    **dict.fromkeys(("key", "keys", "wk"), "k"),
    **dict.fromkeys(("value", "values", "wv"), "v"),
    **dict.fromkeys(("out", "output", "wo", "dense"), "o"),
    **dict.fromkeys(("attn", "mixer", "selfattn", "attentions"), "attention"),
    **dict.fromkeys(("ffn", "ff", "feed", "feedforward", "fc", "moe"), "mlp"),
    **dict.fromkeys(("ln", "layernorm", "rmsnorm", "norms", "norm"), "norm"),
    **dict.fromkeys(("wte", "embedding", "embeddings", "tokens", "tok", "word", "words"), "embed"),
    **dict.fromkeys(("wpe", "pos", "positions", "positional"), "position"),
    **{"w1": "gate", "w2": "down", "w3": "up", "expert": "experts", "last": "final", "f": "final"},
    **{"shared": "shared_experts", "routing": "router", "previous": "pre", "before": "pre", "after": "post"},
    **{"lm_head": "head", "unembed": "head", "vision": "visual", "image": "visual"},
    **{"delta": "linear", "ssm": "mamba", "conv1d": "conv"},
    **dict.fromkeys(("n", "num", "number", "count"), "count"),
    **dict.fromkeys(("epsilon", "eps"), "eps"),
    **dict.fromkeys(("dim", "size", "width", "d"), "size"),
}
_KEY_WORDS = {**dict.fromkeys(("layer", "block", "blocks", "depth"), "layers"), "model": "hidden"}
_SILENT = frozenset(
    {
        *("", "weight", "bias", "proj", "projection", "model", "net", "self", "forward", "layer", "layers"),
        *("h", "block", "blocks", "lm", "transformer", "decoder", "backbone", "trunk"),
    }
)
_GLUED = re.compile(r"^([qkv]|qkv|kv|gate|up|down)(proj|norm)$")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
# keys that say nothing about what is computed, or that every configuration of Transformers takes
_COMMON = re.compile(
    r"^_|architectures|model_type|dtype|transformers_version|auto_map|quantization_config|use_cache|rope"
    r"|dropout|token_i|label|return_dict|chunk_size_feed|problem_type|is_(?:de|en)coder|cross_attention|initializer|pretraining|tie_word|output_|hidden_act|partial_rotary|aux_loss|name_or"
)
_CLOSE = 0.5  # two places whose scores differ by less fit a tensor equally well
_STEM = 4  # letters that two words have to begin with to be the same one
_TELLING = 10  # smaller numbers of a tiny model stand for several sizes


class Family(msgspec.Struct, frozen=True):
    """A tiny model of one architecture; ``config``: its class in Transformers.

    ``tensors``: pattern of names (numbers as ``*``) -> shape; ``optional``: those that some configurations
    leave out. ``sizes``: dotted key -> the number that stands for it in shapes. ``keys``: dotted keys of its
    own; ``types``: dotted key -> model type of a part.
    """

    model_type: str
    config: str
    sizes: dict[str, int]
    keys: list[str]
    types: dict[str, str]
    tensors: dict[str, tuple[int, ...]]
    optional: list[str] = []


@functools.cache
def families() -> dict[str, Family]:
    """The families by architecture, as shipped with the skill."""
    return msgspec.json.decode(FAMILIES.read_bytes(), type=dict[str, Family])


class Question(msgspec.Struct, frozen=True):
    """One decision: ``id`` to answer it by, what is known of it, and the ``options``."""

    id: str
    ask: str
    options: list[str]

    @property
    def said(self) -> str:
        return f"{self.id} ({self.ask}): {' | '.join(self.options)}"


_STACKED = 3  # dimensions of the matrices of all experts in one tensor
AS_NAMED = "as-named"  # the answer that what only names say is so
TRANSPOSED = "transposed"  # that its matrices lie [..., in, out]; an order of its parts may follow


def _part_name(place: str) -> str:
    return place.removesuffix(".weight").rpartition(".")[2]


class Likeness(msgspec.Struct):
    """A checkpoint as one of ``family``, an architecture; all empty for none.

    ``weights``: pattern of the checkpoint -> the family's, several for a tensor that is split by ``rows``,
    none for one that is left out. ``keys``: dotted keys of the configuration -> the family's; ``values``:
    keys of the family that config.json leaves out and shapes tell. ``open``: patterns without a place;
    ``missing``: the family's that nothing fills; ``square``: stacked matrices that may lie either way;
    ``turned``: those that lie [..., in, out]; ``sure``: patterns of which a person said how their parts lie.
    """

    family: str = ""
    model_type: str = ""
    weights: dict[str, list[str]] = {}
    rows: dict[str, list[int]] = {}
    keys: dict[str, str] = {}
    values: dict[str, Any] = {}
    open: list[str] = []
    missing: list[str] = []
    questions: list[Question] = []
    square: list[str] = []
    turned: list[str] = []
    sure: list[str] = []

    @property
    def assumed(self) -> list[str]:
        """What the names of tensors say and no shape shows, for a person who knows the model."""
        parts = {pattern: self._parts(pattern) for pattern in self.rows if pattern not in self.sure}
        found = [f"{pattern} holds {', then '.join(names)}" for pattern, names in parts.items() if names]
        square = [pattern for pattern in self.square if pattern not in self.sure]
        return found + [f"{pattern} is [..., out, in], and not transposed" for pattern in square]

    def _parts(self, pattern: str) -> list[str]:
        """The parts of a tensor in their order, where no shape shows it; else none."""
        rows = self.rows.get(pattern, [])
        return list(map(_part_name, self.weights[pattern])) if len(set(rows)) < len(rows) else []

    def orders(self, pattern: str) -> list[str]:
        """What a person may say of a pattern of which only names tell how its parts lie."""
        parts = self._parts(pattern)
        orders = [",".join(order) for order in itertools.permutations(parts)] if parts else []
        if pattern in self.square:
            orders += [TRANSPOSED, *(f"{TRANSPOSED},{order}" for order in orders)]
        return [AS_NAMED, *orders] if orders else []

    def heed(self, answers: Mapping[str, str]) -> None:
        """Take over what a person said of how the parts of a tensor lie."""
        for pattern, answer in answers.items():
            if answer not in self.orders(pattern):
                continue
            self.sure.append(pattern)
            if answer.startswith(TRANSPOSED):
                self.turned.append(pattern)
                answer = answer.removeprefix(TRANSPOSED).removeprefix(",") or AS_NAMED
            if answer != AS_NAMED:
                places = {_part_name(place): place for place in self.weights[pattern]}
                rows = dict(zip(places, self.rows[pattern], strict=True))
                names = answer.split(",")
                self.weights[pattern] = [places[name] for name in names]
                self.rows[pattern] = [rows[name] for name in names]

    @property
    def complete(self) -> bool:
        """Whether every tensor has its place, every place its tensor, and no question is open."""
        return bool(self.family) and not (self.open or self.missing or self.questions)

    def places_of(self, name: str, shape: Sequence[int]) -> list[tuple[str, tuple[int, ...]]]:
        """The family's names of a tensor, or of its parts in rows, each with its shape."""
        pattern = pattern_of(name)
        rows = self.rows.get(pattern) or [shape[0]]
        found = []
        for place, count in zip(self.weights.get(pattern, ()), rows, strict=False):
            found.append((with_numbers(place, numbers_of(name)), (count, *shape[1:])))
        return found

    def in_its_words(self, config: Config) -> Config:
        """The configuration of the family that says what the checkpoint's own one does."""
        raw = copy.deepcopy(config.raw)
        for ours, theirs in self.keys.items():
            holder, last = _holder(raw, ours)
            if last in holder:
                value = holder.pop(last)
                holder, last = _holder(raw, theirs)
                holder[last] = value
        for key, value in (self.values | families()[self.family].types).items():
            holder, last = _holder(raw, key)
            holder[last] = value
        return load(raw | {"model_type": self.model_type})


Shapes = Mapping[str, tuple[int, ...]]


def likest(
    config: Config,
    shapes: Shapes,
    own: str,
    answers: Mapping[str, str],
    vllm: SourceTree | None = None,
    known: Mapping[str, tuple[str, str]] = {},
) -> Likeness:
    """The family that most of the tensors fit. ``shapes``: pattern -> shape of one tensor.

    ``own``: the checkpoint's architecture, which comes first where it is a family. ``answers``: to questions
    by their id. ``vllm`` has the models ``known``: keys that their code reads are no questions.
    """
    names = {answers["family"]} & families().keys() if "family" in answers else set(families())
    if known:
        names &= known.keys()
    best: tuple[tuple[float, ...], Likeness] | None = None
    for name in sorted(names):
        family = families()[name]
        most = max(len(shapes), len(family.tensors))
        if len(names) > 1 and abs(len(shapes) - len(family.tensors)) > most / 2:
            continue
        path = f"{known[name][0].replace('.', '/')}.py" if name in known else ""
        code = vllm.read(path) if vllm and path and vllm.exists(path) else ""
        found, alike = _as_family(name, family, config, shapes, answers, code)
        order = _FIRST.index(name) if name in _FIRST else len(_FIRST)
        lacks = len(found.open) + len(found.missing)
        asked = sum(one.id in shapes for one in found.questions)
        strange = sum(key not in family.keys for key in flat(config.raw) if not _COMMON.search(key))
        rank = (-lacks, name == own, -asked, -strange, round(alike, 1), -order)
        if best is None or rank > best[0]:
            best = rank, found
    placed = len(best[1].weights) if best else 0
    return best[1] if best and placed * 2 > len(shapes) else Likeness()


def _holder(raw: dict[str, Any], key: str) -> tuple[dict[str, Any], str]:
    """The object that a dotted key is in, made where it is missing, and the key's last part."""
    *parts, last = key.split(".")
    for part in parts:
        inner = raw.get(part)
        raw[part] = raw = inner if isinstance(inner, dict) else {}
    return raw, last


def flat(raw: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """The values of nested objects by dotted keys; what is said of a rope stays together."""
    found: dict[str, Any] = {}
    for key, value in raw.items():
        nested = isinstance(value, dict) and not re.search(r"rope|quantization|auto_map", key)
        found |= flat(value, f"{before}{key}.") if nested else {f"{before}{key}": value}
    return found


def _as_family(
    name: str, family: Family, config: Config, shapes: Shapes, answers: Mapping[str, str], code: str
) -> tuple[Likeness, float]:
    match = _Match(shapes, family, config)
    match.place(answers)
    found = Likeness(name, family.model_type)
    found.weights = {one: [match.pairs[one]] for one in shapes if one in match.pairs}
    found.weights |= {one: [] for one in match.left_out}
    found.rows, found.turned = match.split(found.weights)
    found.square = sorted(
        pattern
        for pattern, shape in shapes.items()
        if len(shape) == _STACKED and shape[-1] == shape[-2] and found.weights.get(pattern)
    )
    taken = {target for targets in found.weights.values() for target in targets}
    found.open = [one for one in shapes if one not in found.weights]
    lacking = family.tensors.keys() - taken - set(family.optional)
    tied = config.text.get("tie_word_embeddings") is not False
    found.missing = sorted(one for one in lacking if not (tied and "head" in one))
    found.questions = match.questions(answers)
    found.keys, found.values, more = match.keys(answers, code)
    found.questions += more
    found.heed(answers)
    return found, match.alike


@dataclass
class _Match:
    """The tensors of one checkpoint against those of one family."""

    shapes: Shapes
    family: Family
    config: Config
    pairs: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    bound: dict[int, int] = field(default_factory=lambda: {1: 1, 2: 2, 3: 3})
    bound_by: dict[int, tuple[str, str]] = field(default_factory=dict)
    scores: dict[tuple[str, str], float] = field(default_factory=dict)
    alike: float = 0.0

    def place(self, answers: Mapping[str, str]) -> None:
        """Pair tensors with places, the surest first; then again with what the first time taught."""
        self.left_out = [one for one in self.shapes if is_dropped(one) or answers.get(one) == "drop"]
        ours, theirs = _roles(self.shapes), _roles(self.family.tensors)
        ours |= self._only_embedding()
        for one, shape in self.shapes.items():
            if one in self.left_out:
                continue
            for other, size in self.family.tensors.items():
                if len(shape) == len(size) and _kind(one) == _kind(other):
                    self.scores[one, other] = _alike(one, other, ours.get(one), theirs.get(other))
        self._assign(answers)
        prefixes = Counter((_parent(one), _parent(other)) for one, other in self.pairs.items())
        for pair in self.scores:
            parents = _parent(pair[0]), _parent(pair[1])
            if self.scores[pair] >= 0:
                self.scores[pair] += min(2.0, 0.5 * prefixes[parents])
        self._assign(answers)
        self._repair(answers)

    def _only_embedding(self) -> dict[str, str]:
        """What the one tensor of the vocabulary's size is: the head as well, where there is none."""
        tables = {one: shape[0] for one, shape in self.shapes.items() if "*" not in one and len(shape) == 2}
        rows = self.config.text.number("vocab_size") or max(tables.values(), default=0)
        found = [one for one in tables if tables[one] == rows]
        return {found[0]: "embed"} if len(found) == 1 else {}

    def _repair(self, answers: Mapping[str, str]) -> None:
        """Undo a pair whose shape keeps a tensor from its place, where that leaves fewer without one."""
        for one in [one for one in self.shapes if one not in self.pairs and one not in self.left_out]:
            places = [
                other for name, other in self.scores if name == one and other not in self.pairs.values()
            ]
            places.sort(key=lambda other: -self.scores[one, other])
            numbers = [number for other in places[:3] for number in self.family.tensors[other]]
            told = {self.bound_by[number] for number in numbers if number in self.bound_by}
            for pair in sorted(told, key=lambda pair: self.scores[pair]):
                before, self.scores[pair], count = self.scores[pair], -1.0, len(self.pairs)
                self._assign(answers)
                if one in self.pairs and len(self.pairs) > count:
                    break
                self.scores[pair] = before
                self._assign(answers)

    def _assign(self, answers: Mapping[str, str]) -> None:
        self.pairs, taken = {}, set()
        self.bound, self.bound_by = {1: 1, 2: 2, 3: 3} | self._sizes(), {}
        given = [(one, other) for one, other in answers.items() if (one, other) in self.scores]
        ordered = sorted(self.scores, key=lambda pair: -self.scores[pair])
        for one, other in [*given, *ordered]:
            if one in self.pairs or other in taken or self.scores[one, other] < 0:
                continue
            if self.fits(one, other):
                self.pairs[one] = other
                taken.add(other)
                for number, size in zip(self.family.tensors[other], self.shapes[one], strict=True):
                    if number not in self.bound:
                        self.bound[number], self.bound_by[number] = size, (one, other)
        self.alike = sum(self.scores[pair] for pair in self.pairs.items()) / (len(self.pairs) or 1)

    def fits(self, one: str, other: str) -> bool:
        """Whether the shape of ``one`` is what the family's ``other`` would have in this checkpoint."""
        sizes: dict[int, int] = {}
        for theirs, ours in zip(self.family.tensors[other], self.shapes[one], strict=True):
            if sizes.setdefault(theirs, self.bound.get(theirs, ours)) != ours:
                return False
        return one.count("*") == other.count("*")

    def _sizes(self) -> dict[int, int]:
        """What the numbers of the family stand for, by keys that both configurations have."""
        values, found = flat(self.config.raw), dict[int, set[int]]()
        for key, number in self.family.sizes.items():
            if number >= _TELLING and type(values.get(key)) is int and "position" not in key:
                found.setdefault(number, set()).add(values[key])
        return {number: min(told) for number, told in found.items() if len(told) == 1}

    def split(self, weights: dict[str, list[str]]) -> tuple[dict[str, list[int]], list[str]]:
        """Give a tensor that holds several of the family's, in rows or of all experts, all of them.

        Returns how many rows each of them has, and which lie in columns.
        """
        rows: dict[str, list[int]] = {}
        turned: list[str] = []
        taken = {target for targets in weights.values() for target in targets}
        free = [one for one in self.family.tensors if one not in taken]
        for one in (one for one in self.shapes if one not in weights):
            shape = self.shapes[one]
            stacked = len(shape) == _STACKED
            wanted = _fused(one) or ((_leaf(one),) if stacked else ())
            for ours in (shape, (shape[0], shape[2], shape[1])) if stacked else (shape,):
                group = [next((a for a in free if self._part(one, a, part, ours)), "") for part in wanted]
                sizes = [self._rows(a) for a in group if a]
                if group and all(group) and sum(sizes) == ours[-2]:
                    weights[one] = group
                    rows |= {one: sizes} if len(group) > 1 else {}
                    turned += [one] if ours != shape else []
                    free = [a for a in free if a not in group]
                    break
        return rows, turned

    def _rows(self, other: str) -> int:
        """How many rows the family's tensor has in this checkpoint, 0 when that is not known."""
        number, sizes = self.family.tensors[other][-2], self.family.sizes
        if number in self.bound:
            return self.bound[number]
        given = {key: self.config.text.number(key) for key in sizes}
        heads, kv = (
            self.config.text.number("num_attention_heads"),
            self.config.text.number("num_key_value_heads"),
        )
        given["num_key_value_heads"] = kv or heads
        if not given.get("head_dim") and heads:
            given["head_dim"] = self.config.text.number("hidden_size") // heads
            sizes = sizes | {
                "head_dim": sizes.get("head_dim") or sizes["hidden_size"] // sizes["num_attention_heads"]
            }
        pairs = ((a, b) for a in sizes for b in sizes if a < b and sizes[a] * sizes[b] == number)
        return next((given[a] * given[b] for a, b in pairs if given.get(a) and given.get(b)), 0)

    def _part(self, one: str, other: str, part: str, ours: tuple[int, ...]) -> bool:
        """Whether ``other`` may be a part of ``one``, whose shape is ``ours``, of each expert where ``one``
        holds all of them."""
        theirs = self.family.tensors[other]
        stacked = len(ours) - len(theirs)
        experts = not stacked or (".experts." in other and len(theirs) == 2)
        same = (
            other.count("*") - one.count("*") == stacked in (0, 1) and _kind(one) == _kind(other) and experts
        )
        columns = len(theirs) > 1 and self.bound.get(theirs[-1], ours[-1]) == ours[-1]
        return same and columns and _leaf(other) == part

    def questions(self, answers: Mapping[str, str]) -> list[Question]:
        """Tensors that another place fits as well, and that could change places."""
        found, holders = [], {other: one for one, other in self.pairs.items()}
        for one, other in self.pairs.items():
            if one in answers:
                continue
            own = self.scores[one, other]
            rivals = []
            for rival in self.family.tensors:
                score = self.scores.get((one, rival), -1.0)
                if rival == other or score < max(0.0, own - _CLOSE) or not self.fits(one, rival):
                    continue
                holder = holders.get(rival)
                if holder is None or (
                    self.scores.get((holder, other), -1.0) >= self.scores[holder, rival] - _CLOSE
                    and self.fits(holder, other)
                ):
                    rivals.append(rival)
            if rivals:
                shape = " x ".join(map(str, self.shapes[one]))
                found.append(Question(one, shape, [other, *sorted(rivals)]))
        return found

    def keys(
        self, answers: Mapping[str, str], code: str
    ) -> tuple[dict[str, str], dict[str, Any], list[Question]]:
        """The configuration's keys under the family's names, values that shapes tell, and what is open.

        ``code``: of the family's model, which may read keys that its configuration does not name.
        """
        given, wanted = flat(self.config.raw), {*self.family.keys, *self.family.sizes}
        strange = [key for key in given if key not in wanted and not _COMMON.search(key)]
        strange = [key for key in strange if not re.search(rf"\b{re.escape(key.rpartition('.')[2])}\b", code)]
        free = sorted(wanted - given.keys())
        renamed: dict[str, str] = {}
        questions = []
        for key in strange:
            if key in answers:
                if answers[key] != "ignore":
                    renamed[key] = answers[key]
                continue
            options = [
                one for one in free if one not in renamed.values() and self._same(key, given[key], one)
            ]
            options.sort(key=lambda one: -_key_shared(key, one))
            best = [one for one in options if _key_shared(key, one) == _key_shared(key, options[0])]
            if len(best) == 1 and _key_shared(key, best[0]) >= 0.5:
                renamed[key] = best[0]
            elif given[key] not in (None, False, [], {}, ""):
                said = f"here {str(given[key])[:40]}; a key of {self.family.model_type}"
                questions.append(Question(key, said, [*options[:3], "ignore"]))
        said = {renamed.get(key, key) for key in given}
        told = {number for key, number in self.family.sizes.items() if key in said}
        values = {
            key: self.bound[number]
            for key, number in self.family.sizes.items()
            if number not in told and number >= _TELLING and number in self.bound
        }
        return renamed, values, questions

    def _same(self, key: str, value: Any, other: str) -> bool:
        """Whether ``other``, a key of the family, can have the value; what shapes tell has to agree."""
        number = self.family.sizes.get(other)
        if number is None:
            return _key_shared(key, other) > 0
        if type(value) is not int:
            return False
        told = self.bound.get(number) if number >= _TELLING else None
        return told in (None, value) and (told is not None or _key_shared(key, other) > 0)


def _kind(pattern: str) -> str:
    return "bias" if pattern.endswith("bias") else "weight"


def _module(pattern: str) -> str:
    return pattern.removesuffix(".weight").removesuffix(".bias")


def _parent(pattern: str) -> str:
    """The module around the one that a tensor belongs to."""
    return _module(pattern).rpartition(".")[0]


@functools.lru_cache(maxsize=65536)
def _words(name: str, silent: frozenset[str] = _SILENT) -> tuple[str, ...]:
    found = []
    for part in re.split(r"[^a-z0-9]+", _CAMEL.sub("_", name).lower().replace("lm_head", "head")):
        if glued := _GLUED.match(part):
            found += [glued[1], glued[2]]
        elif numbered := re.fullmatch(r"([a-z]+)(\d)", part):
            found += [part] if part in _WORDS else [numbered[1], numbered[2]]
        else:
            found.append(part)
    words = [_WORDS.get(word, word) for word in found]
    return tuple(word for word in words if word not in silent)


def _fused(pattern: str) -> tuple[str, ...]:
    """The projections that a tensor holds together, by its name; empty for one alone."""
    words = set(_words(_module(pattern).rpartition(".")[2]))
    groups = (("q", "k", "v"), ("gate", "up"), ("k", "v"))
    return next((one for one in groups if words >= set(one) or "".join(one) in {"qkv"} & words), ())


def _leaf(pattern: str) -> str:
    """The last word that says what a tensor is."""
    return next(iter(reversed(_words(pattern))), "")


@functools.lru_cache(maxsize=262144)
def _shared(one: str, other: str) -> float:
    """The share of words that two names have in common."""
    ours, theirs = set(_words(one)), set(_words(other))
    return len(ours & theirs) / len(ours | theirs) if ours | theirs else 0.0


def _key_shared(one: str, other: str) -> float:
    """The same for keys of a configuration, where layers and what they are made of are told apart."""
    ours, theirs = (
        {_KEY_WORDS.get(word, word) for word in _words(name, frozenset())} for name in (one, other)
    )
    both = sum(any(_same_stem(word, their) for their in theirs) for word in ours)
    return both / (len(ours) + len(theirs) - both)


def _same_stem(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return one == other or (len(short) >= _STEM and long.startswith(short))


def _alike(one: str, other: str, role: str | None, place: str | None) -> float:
    """How much two patterns name the same tensor; negative when their roles exclude it."""
    if _fused(one) != _fused(other):
        return -1.0
    module, their = _module(one), _module(other)
    last, theirs = module.rpartition(".")[2], their.rpartition(".")[2]
    if (role or place) and role != place:
        return -1.0 if role and place else 0.2 + 2 * _shared(last, theirs)
    score = (
        3 * _shared(last, theirs) + _shared(module, their) + (last == theirs) + (_leaf(one) == _leaf(other))
    )
    return score + (4 if role and role == place else 0)


def _roles(shapes: Shapes) -> dict[str, str]:
    """What norms, routers, embedding and head are, by the names that stand beside them."""
    found: dict[str, str] = {}
    layers: dict[str, list[str]] = {}
    mixtures = {one.partition(".experts.")[0] for one in shapes if ".experts." in one}
    routers = {_module(one) for one in shapes if _module(one).endswith((".router", ".gate"))}
    routers = {one for one in routers if one.rpartition(".")[0] in mixtures}
    routers = {one for one in routers if one.endswith(".router")} or routers
    for one, shape in shapes.items():
        words = set(_words(one))
        if one.startswith(tuple(f"{router}." for router in routers)):
            found[one] = f"router {_kind(one)}"
        elif "*" not in one and "." in one:
            if "head" in words or {"o"} <= words <= {"o", "embed"}:
                found[one] = "head"
            elif words == {"embed"}:
                found[one] = "embed"
            elif words <= {"norm", "final"} and "norm" in words:
                found[one] = "final norm"
        elif len(shape) == 1 and "norm" in words and words & {"q", "k", "kv"}:
            found[one] = "norm of a projection"
        elif len(shape) == 1 and words & {"norm", "pre", "post"}:
            stem, _, tail = one.rpartition(".*.")
            if tail.count(".") == 1:
                layers.setdefault(f"{stem} {_kind(one)}", []).append(one)
    for norms in layers.values():
        found |= _norms({one: set(_words(one.rpartition(".*.")[2])) for one in norms})
    return found


def _norms(words: dict[str, set[str]]) -> dict[str, str]:
    """One layer's norms. That after attention is, where none stands before the rest, the one before it."""
    found = {}
    for one, said in words.items():
        rest = said - {"norm"}
        if rest & {"input", "1"} or rest in ({"pre", "attention"}, {"attention"}, {"pre"}):
            found[one] = "before attention"
        elif rest & {"2"} or rest in ({"pre", "mlp"}, {"mlp"}):
            found[one] = "before mlp"
        elif rest == {"post", "mlp"}:
            found[one] = "after mlp"
        elif rest == {"post", "attention"}:
            found[one] = "after attention"
    roles = set(found.values())
    if "before attention" in roles and "before mlp" not in roles:
        found = {one: "before mlp" if role == "after attention" else role for one, role in found.items()}
    return found
