"""Run by an interpreter that has vLLM: what vLLM itself makes of each configuration, without weights.

Reads a JSON list of folders on stdin and prints one JSON object per folder on the stream that stdout was.
Nothing of this project is imported here, and remote code is never trusted.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import types

OUT = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what vLLM prints is not for the reader of the answers
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_LOGGING_LEVEL="ERROR")
os.environ.setdefault("VLLM_USE_MODELSCOPE", "0")


def answer(folder):
    """The properties of one folder's model configuration."""
    EngineArgs = importlib.import_module("vllm.engine.arg_utils").EngineArgs

    config = EngineArgs(model=folder, load_format="dummy", trust_remote_code=False).create_model_config()
    shape = config.model_arch_config
    return {
        "architecture": config.architecture,
        "model_type": shape.model_type,
        "text_model_type": shape.text_model_type,
        "runner": config.runner_type,
        "hidden_size": shape.hidden_size,
        "layers": shape.total_num_hidden_layers,
        "heads": shape.total_num_attention_heads,
        "kv_heads": shape.total_num_kv_heads,
        "head_size": shape.head_size,
        "vocab_size": shape.vocab_size,
        "experts": shape.num_experts,
        "experts_per_token": shape.num_experts_per_token,
        "mla": bool(config.use_mla),
        "hybrid": bool(config.is_hybrid),
        "attention_free": bool(config.is_attention_free),
        "multimodal": bool(config.is_multimodal_model),
        "quantization": (shape.quantization_config or {}).get("quant_method") or "",
        "quantization_used": config.quantization or "",
        "max_len": config.max_model_len,
        "dtype": str(config.dtype).removeprefix("torch."),
    }


def inspect_here():
    """Look at model classes in this process: a process of its own for each costs ten seconds."""
    registry = importlib.import_module("vllm.model_executor.models.registry")

    if hasattr(registry, "_run_in_subprocess"):
        vars(registry)["_run_in_subprocess"] = lambda function: function()


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for packages that only preprocess images: classes are looked at here, never used."""

    NAMES = ("torchvision",)

    def find_spec(self, name, path=None, target=None):
        return (
            importlib.machinery.ModuleSpec(name, self, is_package=True)
            if name.partition(".")[0] in self.NAMES
            else None
        )

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []
        vars(module)["__version__"] = "0"
        module.__getattr__ = made
        return module

    def exec_module(self, module):
        return None


def made(name):
    """A class for every name that is asked for, but for Python's own."""
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})


def stand_in():
    """Make what is not installed importable, after the libraries decided what they do without it."""
    importlib.import_module("transformers.utils.import_utils")

    if importlib.util.find_spec("torchvision") is None:
        sys.meta_path.append(Absent())


def main():
    """Answer for each folder; an error of vLLM is an answer too."""
    stand_in()
    vllm = importlib.import_module("vllm")
    inspect_here()
    for folder in json.load(sys.stdin):
        try:
            found = answer(folder)
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"[:2000]}
        print(
            json.dumps({"folder": folder, "vllm": vllm.__version__, **found}, default=str),
            file=OUT,
            flush=True,
        )


if __name__ == "__main__":
    main()
