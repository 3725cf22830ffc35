"""Prometheus metrics of the inference service, in a registry of their own.

Raw counters only; ratios belong to queries, for example

    rate(hetero_spec_decode_num_accepted_tokens_total[5m])
        / rate(hetero_spec_decode_num_draft_tokens_total[5m])          acceptance rate
    1 + rate(hetero_spec_decode_num_accepted_tokens_total[5m])
        / rate(hetero_spec_decode_num_drafts_total[5m])                mean acceptance length
"""

from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram

from hetero.core.types import Finish, GenerationRequest
from hetero.telemetry.exposition import OWN_PREFIX, render
from hetero.telemetry.gauges import EngineCollector
from hetero.telemetry.snapshot import DrafterProbe, EngineProbe
from hetero.telemetry.window import LatencyWindow

FAST_BUCKETS_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5),
    *(0.75, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0),
)
SLOW_BUCKETS_S = (
    *(0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0),
)
TOKEN_BUCKETS = tuple(float(m * 10**e) for e in range(6) for m in (1, 2, 5))


class StepTimes(Protocol):
    """What of a round is observed. Wall-clock seconds."""

    @property
    def num_draft_tokens(self) -> int:
        """Drafts in the verify step."""
        ...

    @property
    def draft_s(self) -> float:
        """Waited for drafters, wire included."""
        ...

    @property
    def verify_s(self) -> float:
        """Waited for the target."""
        ...


class ServingMetrics:
    """Watches an engine (it implements the scheduler's observer) and renders what it saw.

    Call ``attach`` once the engine exists; before that only the histograms are there, empty.
    ``ttft_window`` and ``itl_window`` hold the newest latencies for ``/ready``. One event loop.
    """

    def __init__(self, model_name: str) -> None:
        self._registry = CollectorRegistry()
        self._labels = {"model_name": model_name, "engine": "0"}
        self._requests()
        self._rounds()
        self.ttft_window = LatencyWindow()
        self.itl_window = LatencyWindow()

    def attach(
        self, engine: EngineProbe, drafters: DrafterProbe, *, num_speculative_tokens: int
    ) -> None:
        """Read counters and gauges of this engine from the next scrape on. Call once."""
        self._registry.register(
            EngineCollector(
                engine, drafters, self._labels, num_speculative_tokens=num_speculative_tokens
            )
        )

    def render(self, *, vllm_names: bool = True) -> bytes:
        """All families as text, see hetero.telemetry.exposition."""
        return render(self._registry, vllm_names=vllm_names)

    # ---- the scheduler's observer -------------------------------------------------------------

    def request_started(self, request: GenerationRequest, *, queued_s: float) -> None:
        """A request left the queue."""
        self._queue_time.observe(queued_s)
        self._prompt_tokens.observe(len(request.prompt_token_ids))

    def tokens_committed(
        self, request: GenerationRequest, *, num_tokens: int, gap_s: float, first: bool
    ) -> None:
        """Output grew; a request's first growth is its time to first token."""
        del request, num_tokens
        if first:
            self._time_to_first_token.observe(gap_s)
            self.ttft_window.add(gap_s)
        else:
            self._inter_token_latency.observe(gap_s)
            self.itl_window.add(gap_s)

    def request_finished(self, request: GenerationRequest, finish: Finish) -> None:
        """A request ended, whatever the reason."""
        del request
        latency = finish.latency
        self._e2e_latency.observe(latency.total_s)
        self._generation_tokens.observe(finish.num_completion_tokens)
        self._draft_wait.observe(latency.draft_s)
        self._verify_wait.observe(latency.verify_s)
        if latency.ttft_s is not None and finish.num_completion_tokens > 1:
            spent_s = latency.total_s - latency.ttft_s
            self._time_per_output_token.observe(spent_s / (finish.num_completion_tokens - 1))

    def step_finished(self, report: StepTimes) -> None:
        """A round ended."""
        self._step_verify.observe(report.verify_s)
        if report.num_draft_tokens:
            self._step_draft.observe(report.draft_s)

    # ---- the front doors ----------------------------------------------------------------------

    def request_refused(self, grpc_status: str) -> None:
        """A request that never ran."""
        self._refused.labels(*self._labels.values(), grpc_status).inc()

    # ---- families -----------------------------------------------------------------------------

    def _requests(self) -> None:
        fast, slow = FAST_BUCKETS_S, SLOW_BUCKETS_S
        self._time_to_first_token = self._histogram(
            "time_to_first_token_seconds", "Arrival to first token.", fast
        )
        text = "Between successive growths of an answer; one may hold several tokens."
        self._inter_token_latency = self._histogram("inter_token_latency_seconds", text, fast)
        text = "Per request: first token to end / (tokens - 1)."
        name = "request_time_per_output_token_seconds"
        self._time_per_output_token = self._histogram(name, text, fast)
        self._e2e_latency = self._histogram("e2e_request_latency_seconds", "Arrival to end.", slow)
        self._queue_time = self._histogram("request_queue_time_seconds", "In the queue.", slow)
        text = "Per request: waited for drafts."
        self._draft_wait = self._histogram("request_draft_wait_seconds", text, slow)
        text = "Per request: waited for the target."
        self._verify_wait = self._histogram("request_verify_wait_seconds", text, slow)
        text = "Prompt length in tokens."
        self._prompt_tokens = self._histogram("request_prompt_tokens", text, TOKEN_BUCKETS)
        text = "Answer length in tokens."
        self._generation_tokens = self._histogram("request_generation_tokens", text, TOKEN_BUCKETS)

    def _rounds(self) -> None:
        text = "Per round with drafts: waited for the drafters, wire included."
        self._step_draft = self._histogram("draft_step_seconds", text, FAST_BUCKETS_S)
        text = "Per round: waited for the target."
        self._step_verify = self._histogram("verify_step_seconds", text, FAST_BUCKETS_S)
        self._refused = Counter(
            OWN_PREFIX + "requests_refused",
            "Requests refused before they ran, by gRPC status.",
            [*self._labels, "status"],
            registry=self._registry,
        )

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        parent = Histogram(
            OWN_PREFIX + name, text, [*self._labels], registry=self._registry, buckets=buckets
        )
        return parent.labels(**self._labels)
