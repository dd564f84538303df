"""The scenarios: which stage, which tiny model, which engine options, which requests. Plain data, no imports.

A scenario starts one engine. Its probes are groups of requests, run one after another in that engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

TIERS = ("import", "eager", "graph", "serve", "pipelines")

_SHORT = (7, 9, 11)
_LONG = tuple(range(100, 180))
_BATCH = (tuple(range(3, 20)), _SHORT, _LONG, (5,) * 33)


@dataclass(frozen=True)
class Probe:
    """One group of requests that run together.

    ``prompts`` are token ids, a new request ``every`` so many steps (0: all at once); ``sampling`` are
    arguments of SamplingParams. ``check`` names how the result is judged, see ``checks.py``.
    """

    name: str
    prompts: tuple[tuple[int, ...], ...]
    sampling: dict[str, Any] = field(default_factory=dict)
    check: str = "tokens"
    every: int = 0


BATCH_1 = Probe("batch 1", (_SHORT,))
BATCH_4 = Probe("batch 4", _BATCH)
# its long prompt: in each step the second choice lies clearly before the third
_BATCH_4_SECOND = Probe("batch 4", (*_BATCH[:2], tuple(range(110, 190)), _BATCH[3]))
CHUNKED = Probe("chunked prefill", (tuple(range(20, 170)), tuple(range(200, 330)), _SHORT))
PENALTY = Probe("repetition penalty", _BATCH[:2], {"repetition_penalty": 1.7})
PAYLOADS = (Probe("batch 1", (_SHORT,), check="payload"), Probe("batch 4", _BATCH, check="payload"))
LONG_PAYLOADS = replace(CHUNKED, check="payload")
JOINING = Probe("joining and leaving", (*_BATCH, _SHORT, (9, 4)), check="payload", every=3)
_NEARLY_A_BLOCK = tuple(tuple(range(start, start + 122)) for start in (10, 140, 270))
PREEMPTED = Probe("preemption", _NEARLY_A_BLOCK, {"max_tokens": 16}, "preempted")
IDLE = Probe("between dummy batches", (tuple(range(50, 200)), _SHORT), check="idle")
SEEDED = Probe("seeded sampling", (_SHORT, _BATCH[0]), {"temperature": 0.8, "seed": 17}, "repeatable")


@dataclass(frozen=True)
class Scenario:
    """One engine start in each of its ``tiers``.

    ``stage`` picks the driver (plain, ar, generation, …), ``model`` the tiny checkpoint, ``options`` are
    engine arguments, ``omni`` tells whether it needs vllm-omni, ``core`` whether it runs when nothing is
    chosen, ``vllm_reference`` whether its tokens are compared with vLLM's own on a CPU instead of the
    stage's reference in torch, ``seconds`` is the longest it may take, ``tolerance`` how far a
    log-probability may lie from the reference (in float32 it is another order of summation). ``words`` are
    found in the names of functions that it is about, for functions that nobody knows yet.
    """

    name: str
    shows: str
    stage: str
    model: str
    probes: tuple[Probe, ...]
    tiers: tuple[str, ...] = ("eager", "graph")
    options: dict[str, Any] = field(default_factory=dict)
    omni: bool = True
    core: bool = False
    vllm_reference: bool = False
    seconds: int = 420
    tolerance: float = 2e-3
    words: tuple[str, ...] = ()


_LATENT = {"engine_output_type": "latent"}  # hidden states go to the next stage
_AR_PROBES = (BATCH_1, BATCH_4, CHUNKED, PENALTY, SEEDED)

SCENARIOS = (
    Scenario(
        "plain",
        "a text model on vllm-ascend alone",
        "plain",
        "dense",
        _AR_PROBES,
        omni=False,
        core=True,
        vllm_reference=True,
    ),
    Scenario(
        "ar",
        "an AR stage with preprocess, postprocess and make_omni_output",
        "ar",
        "omni_ar",
        (*PAYLOADS, LONG_PAYLOADS, PENALTY, SEEDED, Probe("synchronous", (_SHORT,), check="asynchronous")),
        options={"async_scheduling": False, **_LATENT},
        core=True,
    ),
    Scenario(
        "generation",
        "a one-shot stage with code2wav-like output",
        "generation",
        "omni_generation",
        PAYLOADS,
        core=True,
    ),
    Scenario(
        "ar-async",
        "an AR stage with asynchronous scheduling",
        "ar",
        "omni_ar",
        (*PAYLOADS, LONG_PAYLOADS, PENALTY, SEEDED, Probe("asynchronous", (_SHORT,), check="asynchronous")),
        options={"async_scheduling": True, **_LATENT},
    ),
    Scenario(
        "ar-embeddings",
        "an AR stage whose model takes the embeddings of its preprocess only",
        "ar",
        "omni_embeds",
        PAYLOADS,
        options=_LATENT,
    ),
    Scenario(
        "prefer-model-sampler",
        "an AR stage whose model samples for itself",
        "sampler",
        "omni_sampler",
        tuple(replace(probe, sampling={"logprobs": None}) for probe in (BATCH_1, _BATCH_4_SECOND)),
    ),
    Scenario(
        "talker",
        "an AR stage whose model makes codec codes with talker_mtp",
        "talker",
        "omni_talker",
        (*PAYLOADS, JOINING),
        options=_LATENT,
    ),
    Scenario(
        "ar-batches",
        "requests that join, leave, are split and are preempted",
        "ar",
        "omni_ar",
        (JOINING, PREEMPTED),
        options={"max_num_batched_tokens": 64, "num_gpu_blocks_override": 5, **_LATENT},
    ),
    Scenario(
        "async-chunk-in",
        "a generation stage that gets its codes in chunks",
        "chunks_in",
        "omni_generation",
        PAYLOADS,
    ),
    Scenario(
        "async-chunk-out",
        "a talking AR stage that hands its codes on in chunks",
        "chunks_out",
        "omni_talker",
        PAYLOADS,
        options=_LATENT,
    ),
    Scenario(
        "pooling",
        "an embedding model on the AR runner, its prompts split, cached and asked again",
        "pooling",
        "omni_ar",
        (*PAYLOADS, LONG_PAYLOADS, replace(LONG_PAYLOADS, name="cached")),
        options={"enable_prefix_caching": True},
    ),
    Scenario(
        "plain-idle-dp",
        "an idle data-parallel rank's dummy batch on vllm-ascend alone",
        "plain",
        "dense",
        (IDLE,),
        options={"enable_prefix_caching": True},
        omni=False,
    ),
    Scenario(
        "idle-dp",
        "an idle data-parallel rank's dummy batch in an AR stage",
        "ar",
        "omni_ar",
        (IDLE,),
        options={"enable_prefix_caching": True},
    ),
)

SCENARIOS += (
    Scenario(
        "ar-sparse",
        "an audio AR stage whose model is told its requests and answers for some of them only",
        "sparse",
        "omni_sparse",
        PAYLOADS,
        ("eager",),
        options={"engine_output_type": "audio"},
    ),
    Scenario(
        "ar-cached",
        "an AR stage whose prompts are split, cached and asked again, payloads whole",
        "ar",
        "omni_ar",
        (*PAYLOADS, LONG_PAYLOADS, replace(LONG_PAYLOADS, name="cached")),
        ("eager",),
        options={"enable_prefix_caching": True, **_LATENT},
    ),
    Scenario(
        "generation-single",
        "a one-shot stage whose model gives a list of one tensor, or a tensor of one row",
        "generation",
        "omni_single",
        (PAYLOADS[0], Probe("even", (_SHORT[:2],), check="payload")),
        ("eager",),
    ),
)

_PICTURES = (Probe("one picture", (_SHORT,)), Probe("four pictures", (_SHORT, _BATCH[0], _LONG, _SHORT)))

SCENARIOS += (
    Scenario(
        "moe", "a mixture of experts on vllm-ascend alone", "published", "mixture", _AR_PROBES, omni=False
    ),
    Scenario(
        "mla",
        "latent attention on vllm-ascend alone",
        "published",
        "latent",
        (BATCH_1, BATCH_4, PENALTY, SEEDED),
        omni=False,
        tolerance=0.05,  # vllm-ascend rounds a prompt's queries, keys and values to bfloat16
    ),
    Scenario(
        "mla-bfloat16",
        "latent attention with prompts in parts, which need bfloat16",
        "published",
        "latent",
        # few steps: sooner or later a rounded step sends a token to another expert
        tuple(replace(probe, check="likely", sampling={"max_tokens": 3}) for probe in (BATCH_4, CHUNKED)),
        omni=False,
        options={"dtype": "bfloat16"},
        tolerance=0.2,
    ),
    Scenario(
        "image", "a vision-language model on vllm-ascend alone", "image", "vision", _PICTURES, omni=False
    ),
)


_SPLIT = (BATCH_1, BATCH_4, CHUNKED)
_TP2, _PP2 = {"tensor_parallel_size": 2}, {"pipeline_parallel_size": 2}
_ASKED = (
    Probe("completion", (_SHORT,)),
    Probe("streamed", (_SHORT,)),
    Probe("chat", (tuple(range(65, 91)),)),
    Probe("three at once", _BATCH[:3]),
    Probe("stops", (), check="stops"),
)
SCENARIOS += (
    Scenario(
        "plain-tp2", "tensor parallel over two processes", "plain", "dense", _SPLIT, options=_TP2, omni=False
    ),
    Scenario(
        "plain-pp2",
        "pipeline parallel over two processes",
        "plain",
        "dense",
        _SPLIT,
        options=_PP2,
        omni=False,
    ),
    Scenario(
        "ar-tp2",
        "an AR stage, tensor parallel over two processes",
        "ar",
        "omni_ar",
        _SPLIT,
        options=_TP2 | _LATENT,
    ),
    Scenario(
        "ar-pp2",
        "an AR stage, pipeline parallel over two processes",
        "ar",
        "omni_ar",
        _SPLIT,
        options=_PP2 | _LATENT,
    ),
    Scenario(
        "serve-plain",
        "vllm serve on vllm-ascend alone",
        "serve",
        "dense",
        _ASKED,
        ("serve",),
        core=True,
        omni=False,
        seconds=600,
    ),
    Scenario(
        "serve-omni",
        "vllm serve --omni with an AR and a generation stage",
        "serve_omni",
        "omni_ar",
        (Probe("chat", (tuple(range(65, 91)),), check="payload"), Probe("stops", (), check="stops")),
        ("serve",),
        core=True,
        options={"enforce_eager": True},
        seconds=600,
    ),
)


def _said(text: str) -> tuple[int, ...]:
    return tuple(map(ord, text))


_LINES = (_said("Good morning, here is the weather."), _said("Seven."))
_SPOKEN = (
    Probe("speech", _LINES[:1], check="payload"),
    Probe("two at once", _LINES, check="payload"),
    Probe("streamed", _LINES[:1], {"stream": True}, "payload"),
    Probe("stops", (), check="stops"),
)
SCENARIOS += (
    Scenario(
        "qwen-image",
        "Qwen-Image, text to picture; two steps of 64 x 64, float32, against diffusers",
        "pipeline",
        "pipelines.qwen_image",
        (
            Probe("picture", (_said("a cat"),), check="payload"),
            Probe("two at once", (_said("a cat"), _said("a red house by the sea")), check="payload"),
            Probe("stops", (), check="stops"),
        ),
        ("pipelines",),
        seconds=600,
        tolerance=1.5 / 255,  # a step of a picture's eight bits
    ),
    Scenario(
        "wan-ti2v",
        "Wan2.2 TI2V, text to video; two steps of five frames of 64 x 64, float32, against diffusers",
        "pipeline",
        "pipelines.wan_ti2v",
        (Probe("video", (_said("a cat"),), check="payload"), Probe("stops", (), check="stops")),
        ("pipelines",),
        seconds=600,
        tolerance=8 / 255,  # brightness of a file: colours of neighbours are mixed in; 1 in the mean
    ),
    Scenario(
        "qwen3-tts",
        "Qwen3-TTS, text to speech; deploy file made greedy, fewer tokens; together, streamed, alone alike",
        "pipeline",
        "pipelines.qwen3_tts",
        _SPOKEN,
        ("pipelines",),
        seconds=900,
    ),
)

_ASKED_OMNI = (
    Probe("text", (_said("hi"),), check="payload"),
    Probe("again", (_said("hi"),), check="payload"),
    Probe("two at once", (_said("hi"), _said("tell me more"))),
    Probe("picture and sound", (_said("what?"),), {"seen": ("image", "audio")}, "payload"),
    Probe("stops", (), check="stops"),
)
_OMNI = "fewer tokens, no profiling of pictures and sounds; against transformers"


_FISH = "fewer tokens; against transformers and the release's codec"


def _and_eager(one: Scenario, reduced: str) -> tuple[Scenario, Scenario]:
    alike = {"shows": f"the same without graphs; {reduced}", "options": {"enforce_eager": True}}
    return one, replace(one, name=f"{one.name}-eager", **alike)


SCENARIOS += (
    *_and_eager(
        Scenario(
            "qwen3-omni",
            f"Qwen3-Omni, thinker, talker and decoder; deploy file greedy, on one device, {_OMNI}",
            "pipeline",
            "pipelines.qwen3_omni",
            _ASKED_OMNI,
            ("pipelines",),
            seconds=900,
            tolerance=0.3,  # of log-probabilities in bfloat16; samples are whole numbers
        ),
        _OMNI,
    ),
    *_and_eager(
        Scenario(
            "qwen2.5-omni",
            "Qwen2.5-Omni, thinker, talker and diffusion decoder, whose weights do not look at its noise; "
            f"deploy file greedy, on one device, {_OMNI}",
            "pipeline",
            "pipelines.qwen2_5_omni",
            _ASKED_OMNI,
            ("pipelines",),
            seconds=900,
            tolerance=0.3,
        ),
        _OMNI,
    ),
    *_and_eager(
        Scenario(
            "fish-speech",
            f"Fish Speech S2, talker and codec; deploy file greedy, on one device, {_FISH}",
            "pipeline",
            "pipelines.fish_speech",
            _SPOKEN,
            ("pipelines",),
            seconds=900,
            tolerance=2 / 32768,
        ),
        _FISH,
    ),
    Scenario(
        "minicpm-o",
        "MiniCPM-o 4.5, thinker, talker and vocoder; turn-based deploy file greedy, on one device, fewer "
        "tokens, no profiling of pictures and sounds; remote code, speaker network, reference sound and "
        "speech tokenizer's numbers are ours; against transformers behind vllm-omni's encoders",
        "pipeline",
        "pipelines.minicpm_o",
        _ASKED_OMNI,
        ("pipelines",),
        seconds=900,
        tolerance=0.3,
    ),
)

_ON_ONE = {one.name: one for one in SCENARIOS}


def _on_two(name: str, way: str, shows: str, probes: tuple[str, ...]) -> Scenario:
    """A pipeline split over two devices in a ``way``, with some of the probes; all else is as on one."""
    one = _ON_ONE[name]
    asked = tuple(probe for probe in one.probes if probe.name in probes)
    name, model = f"{name.removesuffix('-eager')}-{way}", f"{one.model}_{way}"
    return replace(one, name=name, model=model, shows=shows, probes=asked)


SCENARIOS += (
    _on_two(
        "qwen-image",
        "cfg2",
        "Qwen-Image on two devices, one for each prompt of its guidance; else as qwen-image",
        ("picture", "stops"),
    ),
    _on_two(
        "wan-ti2v",
        "sp2",
        "Wan2.2 TI2V on two devices, its sequence in parts (Ulysses); else as wan-ti2v",
        ("video", "stops"),
    ),
    _on_two(
        "qwen3-omni-eager",
        "tp2",
        f"Qwen3-Omni without graphs, its thinker on two devices; else as qwen3-omni; {_OMNI}",
        ("text", "picture and sound", "stops"),
    ),
)

_DESCRIBED = (_said("a cat"), _said("what is red?"), _said("a red house"))
SCENARIOS += (
    Scenario(
        "hunyuan-image3",
        "HunyuanImage3's AR stage, a description to a recaption and a picture's shape, a question to text "
        "(to a picture where no request says what it asks); deploy file on one device, two requests at a "
        "time, fewer tokens, no pictures in, so none profiled; "
        "the configuration's class is ours; against transformers' HunYuanMoEV1 with the stage's rules",
        "pipeline",
        "pipelines.hunyuan_image3",
        (
            Probe("picture", _DESCRIBED[:1], check="payload"),
            Probe("question", _DESCRIBED[1:2], check="payload"),
            Probe("three at once", _DESCRIBED, check="payload"),
            Probe("stops", (), check="stops"),
        ),
        ("pipelines",),
        seconds=900,
        tolerance=0.3,
    ),
)


SCENARIOS += (
    Scenario(
        "moss-tts",
        "MOSS-TTS Local, talker and codec with the NPU's graphs of its streams; deploy file with the "
        "talker's graph in pieces, four requests at a time, fewer tokens, 18 and 20 frames; the processor "
        "and its codes of the reference voice are ours; against transformers, a frame's layer of our own, "
        "and the release's codec, whole and in float32",
        "pipeline",
        "pipelines.moss_tts_local",
        (*_SPOKEN[:3], Probe("four at once", (*_LINES, *_LINES), check="payload"), _SPOKEN[3]),
        ("pipelines",),
        seconds=900,
        tolerance=0.02,  # of a sound that goes up to 0.8, and is 0.006 away: the codec has bfloat16
    ),
)


_COUNTED = tuple(range(48, 58)) * 15  # more than a block of the cache
IDLING = Probe("idle between steps", CHUNKED.prompts, check="payload")
SCENARIOS += (
    Scenario(
        "ar-hybrid",
        "an AR stage with a recurrent state, beside an idle data-parallel rank's dummy batches; the layer is "
        "ours, its place in the cache and its metadata are a GDN layer's",
        "hybrid",
        "omni_ar",
        (IDLING, *PAYLOADS, LONG_PAYLOADS),
        ("graph",),  # without, a dummy batch has no attention and no state
        options=_LATENT,
    ),
    Scenario(
        "generation-hybrid",
        "a one-shot stage with a recurrent state; the layer as in ar-hybrid",
        "hybrid_generation",
        "omni_generation",
        PAYLOADS,
        ("graph",),
    ),
    Scenario(
        "pooling-hybrid",
        "an embedding model with a recurrent state on the AR runner, its prompts split, cached and asked "
        "again; the layer as in ar-hybrid",
        "hybrid_pooling",
        "omni_ar",
        (*PAYLOADS, LONG_PAYLOADS, replace(LONG_PAYLOADS, name="cached")),
        ("graph",),
        options={"enable_prefix_caching": True},
    ),
    Scenario(
        "serve-omni-cached",
        "vllm serve --omni as serve-omni with a prefix cache, asked for text alone and for the same aloud",
        "serve_omni_cached",
        "omni_ar",
        (
            Probe("chat, text", (_COUNTED,), check="payload"),
            Probe("chat, aloud", (_COUNTED,), check="payload"),
            Probe("chat, text again", (_COUNTED,), check="payload"),
            Probe("stops", (), check="stops"),
        ),
        ("serve",),
        options={"enforce_eager": True},
        seconds=600,
    ),
    Scenario(
        "qwen3-tts-a5",
        "Qwen3-TTS on an A5 (Ascend 950): vllm-ascend as built for it, the operators as on an A2; deploy "
        "file as qwen3-tts, without graphs; against the same on an A2",
        "pipeline_a5",
        "pipelines.qwen3_tts_a5",
        _SPOKEN,
        ("pipelines",),
        options={"enforce_eager": True},
        seconds=900,
    ),
    Scenario(
        "moss-tts-uncaptured",
        "MOSS-TTS Local as moss-tts, with a deploy file that captures batches of one and no steady chunk",
        "pipeline",
        "pipelines.moss_tts_local_uncaptured",
        (_SPOKEN[0], Probe("four at once", (*_LINES, *_LINES), check="payload"), _SPOKEN[3]),
        ("pipelines",),
        seconds=900,
        tolerance=0.02,
    ),
    Scenario(
        "minicpm-o-without-graphs",
        "MiniCPM-o 4.5 as minicpm-o, the NPU's graphs of its vocoder turned off in the deploy file",
        "pipeline",
        "pipelines.minicpm_o_without_graphs",
        (*_ASKED_OMNI[:2], _ASKED_OMNI[4]),
        ("pipelines",),
        seconds=900,
        tolerance=0.3,
    ),
)


_WORDS = {
    "qwen3-tts-a5": ("a5",),
    "serve-omni-cached": ("prefix_cache",),
    "ar-hybrid": ("mamba", "gdn"),
    "generation-hybrid": ("mamba", "gdn"),
    "pooling-hybrid": ("mamba",),
    "moss-tts": ("moss",),
    "hunyuan-image3": ("hunyuan", "sampl"),
    "qwen-image": ("diffusion", "vae", "attn_backend"),
    "wan-ti2v": ("wan", "video"),
    "fish-speech": ("fish", "dac_"),
    "qwen3-tts": ("tts", "codec", "decoder"),
    "qwen3-omni": ("thinker", "mrope", "code2wav"),
    "qwen2.5-omni": ("qwen2_5_omni", "token2wav"),
    "ar-async": ("async",),
    "ar-embeddings": ("embed",),
    "prefer-model-sampler": ("sampl",),
    "talker": ("talker", "mtp", "codec"),
    "ar-batches": ("preempt", "resum"),
    "ar-sparse": ("sparse", "runner_inputs", "pending_metadata"),
    "ar-cached": ("prefix_cache", "cached"),
    "async-chunk-in": ("chunk", "connector", "receiv"),
    "async-chunk-out": ("chunk", "connector", "send"),
    "pooling": ("pool",),
    "moe": ("moe", "expert", "eplb"),
    "mla": ("mla", "latent"),
    "image": ("mm_", "multimodal", "encoder", "image"),
} | dict.fromkeys(("plain-idle-dp", "idle-dp"), ("dummy",))
_WORDS |= dict.fromkeys(("plain-tp2", "ar-tp2"), ("tensor_parallel", "_tp"))
_WORDS |= {
    "qwen3-omni-tp2": ("tensor_parallel", "_tp"),
    "qwen-image-cfg2": ("cfg_parallel",),
    "wan-ti2v-sp2": ("ulysses", "sequence_parallel"),
}
_WORDS |= dict.fromkeys(("plain-pp2", "ar-pp2"), ("intermediate", "pipeline", "_pp"))
SCENARIOS = tuple(replace(one, words=_WORDS.get(one.name, ())) for one in SCENARIOS)


def scenario(name: str) -> Scenario:
    """The scenario called ``name``; raises ``KeyError``."""
    return {one.name: one for one in SCENARIOS}[name]
