"""A lane of work as the card takes it, and what it answers as a result."""

from typing import Final

from fpga.driver.buffers import CONFIDENCE_ONE, LaneCommand, LaneOutcome
from hetero.core.errors import CardError
from hetero.core.types import CardInfo, DraftCandidate, LaneResult, LaneWork

MAX_INVERSE_TEMPERATURE: Final = 1 << 24


def inverse_temperature(temperature: float) -> int:
    """1 / temperature with 16 fraction bits, 0 for greedy (docs/arithmetic.md, DRAW)."""
    if temperature <= 0:
        return 0
    return min(max(int(65536 / temperature + 0.5), 1), MAX_INVERSE_TEMPERATURE)


def check_lane(lane: LaneWork, info: CardInfo) -> None:
    """CardError for what one lane may not ask; how lanes share is checked apart."""
    read, drafts = len(lane.token_ids), lane.num_draft_tokens
    if not 1 <= read <= info.max_prefill_tokens or not 0 <= drafts <= info.max_draft_tokens:
        raise CardError(
            f"slot {lane.slot}: {read} tokens to read and {drafts} to draft; a start takes "
            f"1..{info.max_prefill_tokens} and 0..{info.max_draft_tokens}."
        )
    end = lane.start + read + max(drafts - 1, 0)
    if lane.start < 0 or end > info.max_context_tokens:
        raise CardError(
            f"slot {lane.slot}: positions {lane.start}..{end - 1}, a slot holds "
            f"{info.max_context_tokens}."
        )
    if not all(0 <= token < info.vocab_size for token in lane.token_ids):
        raise CardError(f"slot {lane.slot}: a token outside 0..{info.vocab_size - 1}.")
    fields = {
        "output_index": (lane.output_index, 32),
        "choice_index": (lane.choice_index, 32),
        "seed": (lane.seed, 64),
    }
    for name, (value, bits) in fields.items():
        if not 0 <= value < 1 << bits:
            raise CardError(f"slot {lane.slot}: {name} = {value} takes more than {bits} bits.")
    if not lane.temperature >= 0:  # NaN as well
        raise CardError(f"slot {lane.slot}: temperature = {lane.temperature}: 0 or above.")


def lane_command(lane: LaneWork) -> LaneCommand:
    """Work as it goes into the command buffer."""
    return LaneCommand(
        slot=lane.slot,
        start=lane.start,
        token_ids=tuple(lane.token_ids),
        num_draft_tokens=lane.num_draft_tokens,
        output_index=lane.output_index,
        seed=lane.seed,
        choice_index=lane.choice_index,
        inv_temperature=inverse_temperature(lane.temperature),
        tail_slot=lane.tail_slot,
        prefix_len=lane.prefix_len,
        ancestor_mask=lane.ancestor_mask,
    )


def lane_result(lane: LaneWork, outcome: LaneOutcome, *, logit_frac: int) -> LaneResult:
    """What the card answered, in numbers. CardError when it is not what was asked."""
    if outcome.slot != lane.slot or len(outcome.token_ids) != lane.num_draft_tokens:
        raise CardError(
            f"card: answered slot {outcome.slot} with {len(outcome.token_ids)} tokens, asked was "
            f"slot {lane.slot} with {lane.num_draft_tokens}. Reset it."
        )
    top = tuple(
        tuple(
            DraftCandidate(token_id, share / CONFIDENCE_ONE, logit / (1 << logit_frac))
            for token_id, share, logit in token.top
        )
        for token in outcome.tokens
    )
    confidence = tuple(share / CONFIDENCE_ONE for share in outcome.confidence)
    return LaneResult(lane.slot, outcome.token_ids, confidence, top)
