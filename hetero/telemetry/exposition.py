"""Metrics as text, under our names and, where vLLM has the same family, under its name too.

So dashboards made for vLLM and ``vllm bench serve`` work unchanged. The names are those of vLLM
0.33 (vllm/v1/metrics/loggers.py, vllm/v1/spec_decode/metrics.py).
"""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OWN_PREFIX = "hetero_"
VLLM_PREFIX = "vllm:"

SHARED_WITH_VLLM = frozenset(
    {
        "prompt_tokens",
        "generation_tokens",
        "request_success",
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_perc",
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "request_time_per_output_token_seconds",
        "request_queue_time_seconds",
        "e2e_request_latency_seconds",
        "request_prompt_tokens",
        "request_generation_tokens",
        "spec_decode_num_drafts",
        "spec_decode_num_draft_tokens",
        "spec_decode_num_accepted_tokens",
        "spec_decode_num_accepted_tokens_per_pos",
    }
)
"""Family names, without prefix and ``_total``, that mean the same in vLLM."""


def render(registry: CollectorRegistry, *, vllm_names: bool = True) -> bytes:
    """The text exposition format, version 0.0.4."""
    return generate_latest(_Families(registry, vllm_names))


class _Families(Collector):
    def __init__(self, registry: CollectorRegistry, vllm_names: bool) -> None:
        self._registry = registry
        self._vllm_names = vllm_names

    def collect(self) -> Iterable[Metric]:
        for family in self._registry.collect():
            yield _copy(family, family.name)
            short = family.name.removeprefix(OWN_PREFIX)
            if self._vllm_names and short in SHARED_WITH_VLLM:
                yield _copy(family, VLLM_PREFIX + short)


def _copy(family: Metric, name: str) -> Metric:
    """The family under ``name``, without the creation times, which nobody graphs."""
    copy = Metric(name, family.documentation, family.type)
    for sample in family.samples:
        suffix = sample.name.removeprefix(family.name)
        if suffix != "_created":
            copy.add_sample(name + suffix, sample.labels, sample.value)
    return copy
