"""The golden model as a card: what every other executor of an artefact must equal."""

from collections.abc import Sequence
from pathlib import Path

from support.cards import card_info

from fpga.golden.executor import GoldenExecutor
from fpga.program.artefact import load_artefact
from hetero.core.types import CardRun, CardUsage, LaneWork


class GoldenCard:
    """A ports.CardDriver around GoldenExecutor. Counts a thousand cycles a token."""

    def __init__(self, artefact_path: Path, *, num_slots: int = 8, max_context_tokens: int = 512):
        artefact = load_artefact(artefact_path)
        manifest = artefact.manifest
        self.info = card_info(
            num_slots=num_slots,
            max_lanes=num_slots,
            max_context_tokens=max_context_tokens,
            max_draft_tokens=64,
            max_prefill_tokens=512,
            vocab_size=manifest.target.vocab_size,
            target_tokenizer_sha256=manifest.target.tokenizer_sha256,
        )
        self._executor = GoldenExecutor(artefact, num_slots, max_context_tokens)

    def run(self, work: Sequence[LaneWork]) -> CardRun:
        lanes = tuple(self._executor.run(work))
        tokens = sum(len(w.token_ids) + len(r.token_ids) for w, r in zip(work, lanes, strict=True))
        return CardRun(lanes, CardUsage(1000 * tokens, 1e-5 * tokens))

    def close(self) -> None:
        pass
