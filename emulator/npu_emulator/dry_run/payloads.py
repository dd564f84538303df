"""What leaves the engine core for each request: read on the driver's side, nothing in the engine is changed.

vLLM's LLMEngine knows nothing of multimodal payloads, so they are read from the engine core's outputs before
it processes them.
"""

from __future__ import annotations

from typing import Any


class Observed:
    """The payloads of an engine's requests, and how often each request was preempted.

    ``payloads`` is request -> key -> the values of all steps; ``preemptions`` is request -> times.
    """

    def __init__(self, engine) -> None:
        self.payloads: dict[str, dict[str, list[Any]]] = {}
        self.preemptions: dict[str, int] = {}
        self._states = engine.output_processor.request_states
        self._core = engine.engine_core
        self._get = engine.engine_core.get_output

    def output(self):
        """The engine core's next outputs, as the engine itself gets them."""
        outputs = self._get()
        for output in outputs.outputs:
            self._take(output)
        for request in self._core.engine_core.scheduler.requests.values():
            self.preemptions[self._name(request.request_id)] = getattr(request, "num_preemptions", 0)
        return outputs

    def _take(self, output) -> None:
        found = getattr(output, "multimodal_output", None)
        if found is None and isinstance(output.pooling_output, dict):  # where releases before 0.24 put it
            found, output.pooling_output = output.pooling_output, None
        steps = self.payloads.setdefault(self._name(output.request_id), {})
        for key, value in (found or {}).items():
            steps.setdefault(key, []).append(value)

    def _name(self, request: str) -> str:
        """The name the request was added with; newer vLLM gives it another one inside."""
        return getattr(self._states.get(request), "external_req_id", None) or request


def observe(engine) -> Observed:
    """Read all outputs of ``engine`` from now on; the same object when called again."""
    if not isinstance(getattr(engine.engine_core.get_output, "__self__", None), Observed):
        engine.engine_core.get_output = Observed(engine).output
    return engine.engine_core.get_output.__self__
