"""Parts beside the text model's layers: multi-token prediction, towers of other modalities, tied weights."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from npu_upgrade.checkpoint.config import Config
from npu_upgrade.checkpoint.reading import Finding, error, note
from npu_upgrade.checkpoint.shape import layer_kinds, rope_parameters, rope_type
from npu_upgrade.checkpoint.weights import Tensor
from npu_upgrade.ground.tables import shortened

_MTP_KEYS = (
    *("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"),
    *("num_mtp_layers", "mtp_num_layers"),
)
_MTP_NAMES = re.compile(r"(?:^|\.)(?:mtp|nextn)(?:[._]|$)|\.(?:eh_proj|enorm|hnorm)\.")
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_TEXT_LAYER = re.compile(r"^(?:model\.|language_model\.)*layers\.\*\.")
_LAYER_NUMBER = re.compile(r"^(?:model\.|language_model\.)*layers\.(\d{1,6})\.")
# what a scaled rope cannot be computed without
_ROPE_KEYS = {
    **dict.fromkeys(("linear", "dynamic", "yarn"), ("factor",)),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "longrope": ("short_factor", "long_factor"),
}
_NOT_TEXT = re.compile(r"mtp|talker|vision|visual|audio|per_layer|encoder|draft")
Patterns = Mapping[str, list[str]]
_LAYER = re.compile(r"^(.*?\b(?:layers|h|blocks|layer))\.(\d+)\.(.+)$")
_MODALITIES = {
    "image": ("vision_config", "visual", "vision_tower", "vit_config", "image_config", "vision_n_layers"),
    "audio": ("audio_config", "speech_config", "audio_encoder", "audio_processor", "sound_config"),
    "speech output": ("talker_config", "code2wav_config", "token2wav_config", "tts_config", "audio_decoder"),
}
_VIDEO_KEYS = ("video_token_id", "video_token_index")
_TOWER_NAMES = {
    "image": re.compile(r"(?:^|\.)(?:visual|vision_tower|vision_model|vit|vision_encoder|image_encoder)\."),
    "audio": re.compile(r"(?:^|\.)(?:audio_tower|audio_encoder|speech_encoder|audio_model|whisper)\."),
    "speech output": re.compile(r"^(?:talker|code2wav|token2wav|tts)\."),
}


class Mtp(msgspec.Struct, frozen=True):
    """Multi-token prediction: ``layers`` announced, ``tensors`` of it and one as an ``example``.

    ``state``: ``none``; ``ready``; ``checkpoint missing`` (announced, no weights); ``not announced`` (weights
    only); ``config only`` when no weights were there to look at.
    """

    state: str
    layers: int
    tensors: int
    example: str


class Tower(msgspec.Struct, frozen=True):
    """What a checkpoint has for one modality: keys of its ``config``, and ``tensors``."""

    config: list[str]
    tensors: int


class Tied(msgspec.Struct, frozen=True):
    """Whether the output shares the input embedding, and its own ``head`` (a tensor), empty for none."""

    tied: bool
    head: str


def by_pattern(names: Iterable[str]) -> dict[str, list[str]]:
    """Tensor names by their pattern."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        found.setdefault(pattern_of(name), []).append(name)
    return found


def pattern_of(name: str) -> str:
    """A tensor's name with its numbers as ``*``."""
    return _NUMBER.sub("*", name)


def numbers_of(name: str) -> list[str]:
    """What the stars of a tensor's pattern stand for."""
    return _NUMBER.findall(name)


def with_numbers(pattern: str, numbers: Iterable[str]) -> str:
    """A pattern with ``numbers`` in place of its stars, as many as it has."""
    for number in numbers:
        pattern = pattern.replace("*", number, 1)
    return pattern


def mtp(config: Config, patterns: Patterns) -> Mtp:
    """What configuration and weights say of multi-token prediction."""
    places = (config.text, config)
    announced = max(
        (place.number(key) for place in places for key in _MTP_KEYS if key in place.given), default=0
    )
    count = config.text.number("num_hidden_layers")
    found = [name for key, names in patterns.items() if _MTP_NAMES.search(key) for name in names]
    numbered = [names for key, names in patterns.items() if _TEXT_LAYER.match(key)]
    found += [
        name
        for names in numbered
        for name in names
        if (layer := _LAYER_NUMBER.match(name)) and count and int(layer[1]) >= count and name not in found
    ]
    state = "none"
    if announced:
        state = "ready" if found else ("checkpoint missing" if patterns else "config only")
    elif found:
        state = "not announced"
    return Mtp(state, announced, len(found), min(found, default=""))


def modalities(config: Config, patterns: Patterns, of_processor: Iterable[str] = ()) -> dict[str, Tower]:
    """The towers, by what configuration and weights have of each.

    A tower for images takes videos too where the configuration has a key about them, or the processor has,
    whose keys are ``of_processor``.
    """
    found: dict[str, Tower] = {}
    places = [config, *filter(None, (config.part("thinker_config"),))]
    for kind, keys in _MODALITIES.items():
        has = [f"{place.path}{key}" for place in places for key in keys if place.raw.get(key)]
        tensors = sum(len(names) for key, names in patterns.items() if _TOWER_NAMES[kind].search(key))
        if has or tensors:
            found[kind] = Tower(has, tensors)
    about = [f"{place.path}{key}" for place in places for key in _about_video(place)]
    about += of_processor
    return found | ({"video": Tower(about, 0)} if about and "image" in found else {})


def _about_video(place: Config) -> list[str]:
    """The keys that are about videos, also those that the class fills in where the file leaves them out."""
    given = [
        key for key, value in place.raw.items() if "video" in key and value is not None and value is not False
    ]
    filled = (key for key in _VIDEO_KEYS if key not in place.raw and place.get(key) is not None)
    return given + [f"{key} (of its class)" for key in filled]


def ties(config: Config, names: Iterable[str]) -> Tied:
    """Whether the output shares the input embedding, by configuration, and whether a head is stored."""
    value = config.text.get("tie_word_embeddings")
    value = config.get("tie_word_embeddings") if value is None else value
    head = sorted(name for name in names if re.search(r"(?:^|\.)(?:lm_head|output|embed_out)\.weight$", name))
    return Tied(value is None or bool(value), head[0] if head else "")


def check_ties(tied: Tied, tensors: dict[str, Tensor], generates: bool) -> list[Finding]:
    """A model that generates text and does not tie needs a head of its own."""
    if tied.tied or tied.head or not tensors or not generates:
        return []
    what = "tie_word_embeddings is false and no tensor is an output head (lm_head.weight)"
    return [error("head-missing", what, "lm_head.weight")]


def check_layers(config: Config, tensors: dict[str, Tensor]) -> list[Finding]:
    """Layers that are not there, and layers that lack what others like them have."""
    groups: dict[str, dict[int, set[str]]] = {}
    flat: set[str] = set()
    for name, one in tensors.items():
        if match := _LAYER.match(name):
            number = int(match[2]) if len(match[2]) < 7 else -1
            groups.setdefault(match[1], {}).setdefault(number, set()).add(match[3])
            if len(one.shape) < 2:
                flat.add(f"{match[1]}.{match[3]}")
    found: list[Finding] = []
    for prefix, layers in sorted(groups.items()):
        if len(layers) > 1 or _is_text(prefix):
            kinds = layer_kinds(config) if _is_text(prefix) else []
            elsewhere = {other: names for other, names in groups.items() if other != prefix}
            found += _gaps(config, prefix, layers, elsewhere)
            found += _odd_layers(prefix, layers, kinds, flat)
    return found


def _is_text(prefix: str) -> bool:
    """Whether these are the text model's layers."""
    if "mtp" in prefix or any(pattern.search(f"{prefix}.") for pattern in _TOWER_NAMES.values()):
        return False
    return bool(re.search(r"(?:^|model\.|language_model\.|transformer\.|backbone\.)(?:layers|h)$", prefix))


def _gaps(
    config: Config, prefix: str, layers: dict[int, set[str]], others: dict[str, dict[int, set[str]]]
) -> list[Finding]:
    """Layers that are missing, and the prefix under which there are such, where they have another one."""
    count = config.text.number("num_hidden_layers")
    expected = count if _is_text(prefix) and 0 < count < 10_000 else max(layers) + 1
    missing = sorted(set(range(min(expected, 10_000))) - set(layers))
    if not missing:
        return []
    lacking = shortened(list(map(str, missing)))
    what = f"{prefix} has {len(layers)} layers, {expected} are expected; missing: {lacking}"
    same = (other for other, one in others.items() if set(missing) <= one.keys() & set(missing))
    if there := next((o for o in same if others[o][missing[0]] & next(iter(layers.values()))), ""):
        what += f"; such layers are below {there}"
    return [error("layer-missing", what, f"{prefix}.{missing[0]}")]


def _odd_layers(prefix: str, layers: dict[int, set[str]], kinds: list[str], flat: set[str]) -> list[Finding]:
    """A layer whose tensors are a part of what at least two others of its kind have, and no other is like it.

    The first and the last layer may do without what is ``flat`` (a norm, a bias).
    """
    groups: dict[str, dict[int, frozenset[str]]] = {}
    for number, names in sorted(layers.items()):
        kind = kinds[number] if 0 <= number < len(kinds) else ""
        groups.setdefault(kind, {})[number] = frozenset(names)
    ends, found = {min(layers), max(layers)}, []
    for group in groups.values():
        for number, lacks in _lacking(group):
            if not (number in ends and all(f"{prefix}.{name}" in flat for name in lacks)):
                what = f"{prefix}.{number} lacks what others like it have: {shortened(lacks, 3)}"
                found.append(error("tensor-missing", what, f"{prefix}.{number}.{lacks[0]}"))
    return found[:5]


def _lacking(group: dict[int, frozenset[str]]) -> Iterator[tuple[int, list[str]]]:
    """The layers that are alone with their set of names, and what the nearest fuller set has more."""
    counts = Counter(group.values())
    if len(counts) > 200:
        return
    for number, own in group.items():
        if counts[own] == 1:
            fuller = [one for one, times in counts.items() if own < one and times > 1]
            fuller = [one for one in fuller if len(one - own) <= len(own)]
            if fuller:
                yield number, sorted(min(fuller, key=len) - own)


def check_numbers(config: Config, tensors: dict[str, Tensor]) -> list[Finding]:
    """Shapes that contradict the configuration, for weights whose shape is plain."""
    text, found = config.text, []
    hidden, vocabulary = text.number("hidden_size"), text.number("vocab_size")
    for name, one in tensors.items():
        embeds = re.search(r"(?:^|\.)embed_tokens\.weight$", name) and not _NOT_TEXT.search(name)
        if embeds and len(one.shape) == 2:
            if hidden and one.shape[1] != hidden and one.dtype.startswith(("BF", "F")):
                what = f"{name} has {one.shape[1]} columns, hidden_size is {hidden}"
                found.append(error("shape-hidden", what, name))
            if vocabulary and one.shape[0] < vocabulary:
                what = f"{name} has {one.shape[0]} rows, vocab_size is {vocabulary}"
                found.append(error("shape-vocabulary", what, name))
    return found


def wrong_values(config: Config) -> list[Finding]:
    """Keys that have to be sensible whole numbers and are not."""
    found = []
    layers = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    for key in ("hidden_size", *layers, "vocab_size"):
        if config.text.has(key):
            value = config.text.get(key)
            per_layer = isinstance(value, list) or value is None
            if not per_layer and not (type(value) is int and 0 <= value < 10**9):
                shown = f"{type(value).__name__} {str(value)[:40]}"
                what = f"{config.text.path}{key} is {shown}, a whole number is expected"
                found.append(error("config-value", what, f"{config.text.path}{key}"))
    for rope in rope_parameters(config.text):
        if lacking := [key for key in _ROPE_KEYS.get(rope_type(rope), ()) if rope.get(key) is None]:
            what = f"the rope is {rope_type(rope)} and does not say {', '.join(lacking)}"
            found.append(error("rope-incomplete", what, f"{config.text.path}rope_scaling"))
    heads, kv = config.text.number("num_attention_heads"), config.text.number("num_key_value_heads")
    if heads and kv and not (heads % kv == 0 or kv > heads):
        what = f"{heads} attention heads are no multiple of {kv} heads of keys and values"
        found.append(note("config-heads", what, "num_key_value_heads"))
    return found
