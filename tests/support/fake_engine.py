"""An Engine that plays scripts, and a tokenizer of bytes, for tests of the front doors."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from hetero.api.service import ApiLimits, Backend, InferenceService
from hetero.core.types import (
    Delta,
    Finish,
    KvUsage,
    LatencyStats,
    SpeculationStats,
    VerifierInfo,
)
from hetero.telemetry.snapshot import DrafterStatus

INFO = VerifierInfo(
    model_name="fake-model",
    vocab_size=256,
    max_context_tokens=2048,
    eos_token_ids=(0,),
    tokenizer_sha256="ab" * 32,
    system_fingerprint="fp_test",
    device="cpu",
    dtype="float32",
)


class ByteTokenizer:
    """Token ids are UTF-8 bytes; the chat template is one line a turn."""

    sha256 = INFO.tokenizer_sha256

    def encode(self, text):
        return list(text.encode())

    def apply_chat_template(self, messages):
        turns = "".join(f"<{role}>{content}\n" for role, content in messages)
        return self.encode(turns + "<assistant>")

    def decode(self, token_ids, *, skip_special_tokens=True):
        return bytes(token_ids).decode(errors="replace")

    def token_bytes(self, token_id):
        return bytes([token_id])


@dataclass
class Totals:
    """What the engine tells of itself (hetero.telemetry.snapshot.EngineView)."""

    num_waiting: int = 0
    num_running: int = 0
    kv: KvUsage = field(default_factory=lambda: KvUsage(100, 100, 0, 0, 0))
    num_prompt_tokens: int = 0
    num_generation_tokens: int = 0
    num_spec_steps: int = 0
    num_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0
    drafted_per_position: Sequence[int] = ()
    accepted_per_position: Sequence[int] = ()
    finished: Counter = field(default_factory=Counter)
    fallbacks: Counter = field(default_factory=Counter)
    fault: str | None = None


def echo(request):
    """Script: answer with the request's own prompt and choice, in pieces of three characters."""
    prompt = bytes(request.prompt_token_ids).decode(errors="replace")
    text = f"{prompt}#{request.sampling.choice_index}"
    return [text[i : i + 3] for i in range(0, len(text), 3)]


class ScriptedEngine:
    """Implements ports.Engine. ``script(request)`` gives pieces: str, or an exception to raise.

    Each piece waits for ``gate``. ``active`` and ``cancelled`` tell what became of requests.
    """

    def __init__(self, script: Callable = echo, *, observer=None) -> None:
        self.info = INFO
        self.script = script
        self.observer = observer
        self.gate = asyncio.Event()
        self.gate.set()
        self.requests = []
        self.active = 0
        self.cancelled = 0
        self.totals = Totals()
        self.speculation = SpeculationStats(3, 9, 6, (3, 3, 3), (3, 2, 1))

    async def generate(self, request):
        self.requests.append(request)
        self.active += 1
        finished = False
        try:
            num_tokens = 0
            for piece in self.script(request):
                await self.gate.wait()
                if isinstance(piece, Exception):
                    raise piece
                if isinstance(piece, Finish):
                    finished = True
                    yield Delta(request.request_id, "", (), piece)
                    return
                token_ids = tuple(piece.encode())
                num_tokens += len(token_ids)
                self._grew(request, num_tokens, len(token_ids))
                yield Delta(request.request_id, piece, token_ids)
                await asyncio.sleep(0)
            finish = self.finish(request, num_tokens)
            finished = True
            self._ended(request, finish)
            yield Delta(request.request_id, "", (0,), finish)
        finally:
            self.active -= 1
            self.cancelled += not finished

    def finish(self, request, num_tokens):
        return Finish(
            reason="stop",
            num_prompt_tokens=len(request.prompt_token_ids),
            num_completion_tokens=num_tokens + 1,
            speculation=self.speculation if request.speculative.enabled else SpeculationStats(),
            latency=LatencyStats(ttft_s=0.25, total_s=1.0, draft_s=0.1, verify_s=0.5),
            fallbacks={"timeout": 1},
        )

    def _grew(self, request, num_tokens, by):
        self.totals.num_generation_tokens += by
        if self.observer:
            first = num_tokens == by
            self.observer.tokens_committed(request, num_tokens=by, gap_s=0.25, first=first)

    def _ended(self, request, finish):
        spec = finish.speculation
        self.totals.num_prompt_tokens += finish.num_prompt_tokens
        self.totals.finished[finish.reason] += 1
        self.totals.fallbacks.update(finish.fallbacks)
        self.totals.num_spec_steps += spec.num_spec_steps
        self.totals.num_draft_tokens += spec.num_draft_tokens
        self.totals.num_accepted_draft_tokens += spec.num_accepted_draft_tokens
        self.totals.drafted_per_position = spec.drafted_per_position
        self.totals.accepted_per_position = spec.accepted_per_position
        if self.observer:
            self.observer.request_started(request, queued_s=0.0)
            self.observer.request_finished(request, finish)


def backend_of(engine, **changes) -> Backend:
    backend = Backend(
        engine=engine,
        tokenizer=ByteTokenizer(),
        snapshot=lambda: engine.totals,
        drafters=lambda: (DrafterStatus("card", "ready", {"stale": 2}),),
        methods=("card", "ngram", "none"),
        default_method="card",
        num_speculative_tokens=4,
    )
    return replace(backend, **changes)


def ready_service(script: Callable = echo, *, limits: ApiLimits | None = None):
    """(service, engine): a service that takes requests, and the scripted engine behind it."""
    service = InferenceService(INFO.model_name, limits=limits)
    engine = ScriptedEngine(script, observer=service.metrics)
    service.open(backend_of(engine))
    return service, engine
