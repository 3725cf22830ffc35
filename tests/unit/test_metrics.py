"""What /metrics says, read with Prometheus' own parser."""

import math

import httpx
from prometheus_client.parser import text_string_to_metric_families
from support.fake_engine import INFO, ready_service

from hetero.api.http_api import create_app
from hetero.api.service import InferenceService
from hetero.telemetry.window import LatencyWindow

CHAT = {"model": INFO.model_name, "messages": [{"role": "user", "content": "hi"}]}
PROMPT_TOKENS = len("<user>hi\n<assistant>")


async def scrape(service, **options):
    transport = httpx.ASGITransport(app=create_app(service, **options))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {}
    for family in text_string_to_metric_families(response.text):
        assert family.documentation
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k not in ("model_name", "engine")}
            assert sample.labels["model_name"] == INFO.model_name
            key = (sample.name, *sorted(labels.items()))
            assert key not in samples
            samples[key] = sample.value
    return samples


async def ask(service, **changes):
    transport = httpx.ASGITransport(app=create_app(service), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.post("/v1/chat/completions", json={**CHAT, **changes})


async def test_scrape_before_the_first_request_has_zeros_and_no_nan():
    """vLLM's speculation log printed NaN without drafts, see vllm-project/vllm#24322's review."""
    service, _ = ready_service()
    samples = await scrape(service)
    assert not [key for key, value in samples.items() if math.isnan(value)]
    for prefix in ("vllm:", "hetero_"):
        for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens"):
            assert samples[(f"{prefix}spec_decode_{name}_total",)] == 0
        for position in "0123":
            name = f"{prefix}spec_decode_num_accepted_tokens_per_pos_total"
            assert samples[name, ("position", position)] == 0
        for reason in ("stop", "length", "abort", "error"):
            assert samples[f"{prefix}request_success_total", ("finished_reason", reason)] == 0
        assert samples[(f"{prefix}kv_cache_usage_perc",)] == 0
        assert samples[(f"{prefix}time_to_first_token_seconds_count",)] == 0


async def test_a_request_moves_the_counters():
    service, _ = ready_service()
    await ask(service)
    samples = await scrape(service)
    tokens = PROMPT_TOKENS + 3
    for prefix in ("vllm:", "hetero_"):
        assert samples[(f"{prefix}spec_decode_num_drafts_total",)] == 3
        assert samples[(f"{prefix}spec_decode_num_draft_tokens_total",)] == 9
        assert samples[(f"{prefix}spec_decode_num_accepted_tokens_total",)] == 6
        name = f"{prefix}spec_decode_num_accepted_tokens_per_pos_total"
        per_position = [samples[name, ("position", p)] for p in "0123"]
        assert per_position == [3, 2, 1, 0]
        assert samples[(f"{prefix}prompt_tokens_total",)] == PROMPT_TOKENS
        assert samples[(f"{prefix}generation_tokens_total",)] == tokens - 1
        assert samples[f"{prefix}request_success_total", ("finished_reason", "stop")] == 1
        assert samples[(f"{prefix}time_to_first_token_seconds_count",)] == 1
        assert samples[(f"{prefix}time_to_first_token_seconds_sum",)] == 0.25
        assert samples[(f"{prefix}inter_token_latency_seconds_count",)] > 0
        assert samples[(f"{prefix}e2e_request_latency_seconds_sum",)] == 1.0
        per_token = samples[(f"{prefix}request_time_per_output_token_seconds_sum",)]
        assert math.isclose(per_token, 0.75 / (tokens - 1))
        assert samples[(f"{prefix}request_generation_tokens_sum",)] == tokens
    assert samples["hetero_fallback_total", ("reason", "timeout")] == 1
    stale = ("hetero_drafts_discarded_total", ("drafter", "card"), ("reason", "stale"))
    assert samples[stale] == 2
    assert samples["hetero_draft_workers", ("drafter", "card"), ("state", "ready")] == 1


async def test_refusals_are_counted_by_status():
    service, _ = ready_service()
    await ask(service, temperature="hot")
    await ask(service, model="other")
    samples = await scrape(service)
    name = "hetero_requests_refused_total"
    assert samples[name, ("status", "INVALID_ARGUMENT")] == 1
    assert samples[name, ("status", "NOT_FOUND")] == 1


async def test_vllm_names_can_be_left_out():
    service, _ = ready_service()
    names = {key[0] for key in await scrape(service, vllm_metric_names=False)}
    assert not [name for name in names if name.startswith("vllm:")]
    assert "hetero_spec_decode_num_drafts_total" in names


async def test_a_service_that_loads_exposes_empty_histograms():
    samples = await scrape(InferenceService(INFO.model_name))
    assert samples[("hetero_time_to_first_token_seconds_count",)] == 0
    assert ("hetero_num_requests_running",) not in samples


def test_percentiles_are_nearest_rank_over_the_newest():
    window = LatencyWindow(size=100)
    assert window.percentiles_s() == {"p50": None, "p90": None, "p99": None}
    for value in range(1000):
        window.add(float(value))
    assert window.percentiles_s() == {"p50": 949.0, "p90": 989.0, "p99": 998.0}
