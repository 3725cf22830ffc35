"""Families read from the engine at each scrape: one source of truth, and nothing ever stale."""

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from hetero.core.types import KvUsage
from hetero.telemetry.exposition import OWN_PREFIX
from hetero.telemetry.snapshot import DrafterProbe, DrafterStatus, EngineProbe, EngineView

FINISHED_REASONS = {"stop": "stop", "length": "length", "cancelled": "abort", "error": "error"}
"""Our finish reasons -> the label values that vLLM's users know."""


class EngineCollector(Collector):
    """Counters and gauges of one engine. Label values exist before their first event.

    So rates start from a real zero. ``num_speculative_tokens``: positions to show from the start.
    """

    def __init__(
        self,
        engine: EngineProbe,
        drafters: DrafterProbe,
        labels: Mapping[str, str],
        *,
        num_speculative_tokens: int,
    ) -> None:
        self._engine = engine
        self._drafters = drafters
        self._labels = dict(labels)
        self._num_positions = num_speculative_tokens

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape."""
        view = self._engine()
        yield from self._load(view)
        yield from self._kv(view.kv)
        yield from self._speculation(view)
        yield from self._drafting(self._drafters())

    def _load(self, view: EngineView) -> Iterator[Metric]:
        yield self._gauge("num_requests_running", "Requests in the batch.", view.num_running)
        yield self._gauge("num_requests_waiting", "Requests in the queue.", view.num_waiting)
        yield self._counter("prompt_tokens", "Prompt tokens read.", view.num_prompt_tokens)
        yield self._counter("generation_tokens", "Tokens committed.", view.num_generation_tokens)
        ended = {label: view.finished.get(ours, 0) for ours, label in FINISHED_REASONS.items()}
        yield self._counters("request_success", "Requests ended.", "finished_reason", ended)
        text = "1 while the engine's last step stands failed."
        yield self._gauge("engine_fault", text, int(view.fault is not None))

    def _kv(self, kv: KvUsage) -> Iterator[Metric]:
        share = 1 - kv.free_blocks / kv.total_blocks if kv.total_blocks else 0.0
        yield self._gauge("kv_cache_usage_perc", "Used share of KV blocks; 1 is full.", share)
        yield self._gauge("kv_sequences", "Sequences that hold KV blocks.", kv.num_sequences)
        blocks = self._family("kv_blocks", "KV blocks by state.", "gauge")
        states = (("free", kv.free_blocks), ("committed", kv.committed_blocks))
        for state, number in (*states, ("reserved", kv.reserved_blocks)):
            self._add(blocks, number, state=state)
        yield blocks

    def _speculation(self, view: EngineView) -> Iterator[Metric]:
        name = "spec_decode_num_drafts"
        yield self._counter(name, "Verifications with drafts.", view.num_spec_steps)
        name = "spec_decode_num_draft_tokens"
        yield self._counter(name, "Drafted tokens.", view.num_draft_tokens)
        yield self._by_position(f"{name}_per_pos", view.drafted_per_position)
        name = "spec_decode_num_accepted_tokens"
        yield self._counter(name, "Accepted drafted tokens.", view.num_accepted_draft_tokens)
        yield self._by_position(f"{name}_per_pos", view.accepted_per_position)
        text = "Rounds that went undrafted although a draft was wanted."
        yield self._counters("fallback", text, "reason", view.fallbacks)

    def _drafting(self, drafters: Sequence[DrafterStatus]) -> Iterator[Metric]:
        workers = self._family("draft_workers", "Drafters; 1 for the state each is in.", "gauge")
        dropped = self._family("drafts_discarded", "Drafts that came and were dropped.", "counter")
        for drafter in drafters:
            self._add(workers, 1, drafter=drafter.name, state=drafter.state)
            for reason, number in drafter.discarded.items():
                self._add(dropped, number, drafter=drafter.name, reason=reason)
        yield workers
        yield dropped

    def _by_position(self, name: str, per_position: Sequence[int]) -> Metric:
        padded = [*per_position, *[0] * (self._num_positions - len(per_position))]
        values = {str(position): number for position, number in enumerate(padded)}
        return self._counters(name, "By draft position, from 0.", "position", values)

    def _counters(self, name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
        family = self._family(name, text, "counter")
        for value, number in values.items():
            self._add(family, number, **{label: value})
        return family

    def _counter(self, name: str, text: str, number: int) -> Metric:
        family = self._family(name, text, "counter")
        self._add(family, number)
        return family

    def _gauge(self, name: str, text: str, number: float) -> Metric:
        family = self._family(name, text, "gauge")
        self._add(family, number)
        return family

    def _family(self, name: str, text: str, kind: str) -> Metric:
        return Metric(OWN_PREFIX + name, text, kind)

    def _add(self, family: Metric, number: float, **labels: str) -> None:
        suffix = "_total" if family.type == "counter" else ""
        family.add_sample(family.name + suffix, {**self._labels, **labels}, number)
