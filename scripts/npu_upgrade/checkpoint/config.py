"""A config.json as vLLM will see it: aliases and defaults applied, the text model's part found."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

FACTS = Path(__file__).with_name("facts.json")
# where configurations hold the text model's: what Transformers looks for, then what others are called
TEXT_NAMES = ("text_encoder", "decoder", "generator", "text_config")
MORE_TEXT_NAMES = (
    *("llm_config", "language_config", "thinker_config", "lm_config", "language_model_config"),
    *("llm", "text_model", "model_config"),
)


class ConfigFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """One configuration class: ``defaults``, ``aliases`` (another name -> the attribute it stands for),
    ``parts`` (attribute -> model type of the sub-configuration), ``copies`` (attribute -> the one it is set
    to) and ``text`` (the attribute that holds the text model's, where the class says so)."""

    defaults: dict[str, Any] = {}
    aliases: dict[str, str] = {}
    parts: dict[str, str] = {}
    copies: dict[str, str] = {}
    text: list[str] = []


class Architecture(msgspec.Struct, frozen=True):
    """One entry of vLLM's registry; ``traits`` are the abilities of the class, None when it was not found."""

    module: str
    cls: str = msgspec.field(name="class")
    kind: str
    traits: list[str] | None


class Facts(msgspec.Struct, frozen=True):
    """``facts.json``, which ships with the skill: what the releases in ``read_from`` have.

    ``base_models``: model type -> class of Transformers; ``transformers``: the classes that vLLM can wrap;
    ``latent_types``: model types with latent attention; ``removed`` and ``moved`` as in vLLM's registry.
    """

    read_from: list[str]
    configs: dict[str, ConfigFacts]
    architectures: dict[str, Architecture]
    base_models: dict[str, str]
    transformers: frozenset[str]
    latent_types: frozenset[str]
    removed: dict[str, str]
    moved: dict[str, str]


@functools.cache
def facts() -> Facts:
    """The facts that ship with the skill."""
    return msgspec.json.decode(FACTS.read_bytes(), type=Facts)


@dataclass
class Config:
    """One configuration or a part of one. ``given`` has the file's keys under the class's own names."""

    raw: dict[str, Any]
    model_type: str = ""
    path: str = ""
    known: ConfigFacts = field(default_factory=ConfigFacts)
    given: dict[str, Any] = field(default_factory=dict)

    def get(self, name: str, default: Any = None) -> Any:
        """The attribute the loaded configuration has: given, or the class's default."""
        name = self.known.aliases.get(name, name)
        if name in self.given:
            return self.given[name]
        value = self.known.defaults.get(name)
        return default if value is None else value

    def has(self, name: str) -> bool:
        """Whether the loaded configuration has the attribute, None or not."""
        name = self.known.aliases.get(name, name)
        return name in self.given or name in self.known.defaults

    def first(self, names: tuple[str, ...], default: Any = None) -> Any:
        """The first of several attributes that the configuration has."""
        return next((self.get(name) for name in names if self.has(name)), default)

    def number(self, name: str) -> int:
        """An attribute that is a whole number, 0 when it is none."""
        value = self.get(name)
        return value if type(value) is int else 0

    def part(self, name: str) -> Config | None:
        """The configuration under ``name``, also one that the class fills in; None when there is none."""
        raw = self.raw.get(name)
        kind = self.known.parts.get(name, "")
        if not isinstance(raw, dict) and not (raw is None and kind and name not in self.raw):
            return None
        if not isinstance(raw, dict):
            # older files hold the text model's keys at the top; the class takes them from there
            known = facts().configs.get(kind, ConfigFacts())
            names = {*known.defaults, *known.aliases, "rope_scaling", "rope_theta"}
            raw = {key: value for key, value in self.raw.items() if key in names}
        own = raw.get("model_type")
        return load(raw, own if isinstance(own, str) and own else kind, f"{self.path}{name}.")

    @functools.cached_property
    def text(self) -> Config:
        """The part of the text model, the configuration itself when it has none."""
        for name in (*self.known.text, *TEXT_NAMES):
            if part := self.part(name):
                return part.text
        if self.has("num_attention_heads") and self.has("num_hidden_layers"):
            return self
        parts = (self.part(name) for name in MORE_TEXT_NAMES)
        return next((part.text for part in parts if part), self)

    @property
    def is_nested(self) -> bool:
        return self.text is not self


def load(raw: dict[str, Any], model_type: str | None = None, path: str = "") -> Config:
    """A configuration from the object of its file; ``model_type`` where the object names none."""
    kind = raw.get("model_type") or model_type or ""
    kind = kind if isinstance(kind, str) else ""
    known = facts().configs.get(kind, ConfigFacts())
    aliases = known.aliases
    given = {aliases.get(key, key): value for key, value in raw.items() if key in aliases}
    return Config(raw, kind, path, known, given | {key: raw[key] for key in raw if key not in aliases})
