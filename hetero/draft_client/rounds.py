"""Rounds that wait for their answers, and which answers count."""

import asyncio

from hetero.core.types import Draft, Drafts, SequenceId
from hetero.draft_protocol.messages import Ask, DraftReply


class PendingRound:
    """Asks of one round; done when each has a draft, a fallback reason, or no asker."""

    def __init__(self, asks: list[Ask], fallbacks: dict[SequenceId, str]) -> None:
        self._open = {SequenceId(ask.sequence_id): ask for ask in asks}
        self._drafts: dict[SequenceId, Draft] = {}
        self._fallbacks = dict(fallbacks)
        self._done = asyncio.Event()
        self._close_if_complete()

    async def wait(self, timeout_s: float) -> int:
        """Wait for the answers; returns how many asks are still open when the time is over."""
        try:
            await asyncio.wait_for(self._done.wait(), timeout_s)
        except asyncio.TimeoutError:
            return len(self._open)
        return 0

    def ask_of(self, sequence_id: SequenceId) -> Ask | None:
        """The open ask of a sequence."""
        return self._open.get(sequence_id)

    def take(self, draft: Draft) -> None:
        """Answer an open ask. An empty draft is an answer, but nothing to verify."""
        del self._open[draft.sequence_id]
        if draft.token_ids:
            self._drafts[draft.sequence_id] = draft
        self._close_if_complete()

    def fall_back(self, sequence_id: SequenceId, reason: str) -> bool:
        """Answer an open ask with a reason; False if there is none."""
        if self._open.pop(sequence_id, None) is None:
            return False
        self._fallbacks[sequence_id] = reason
        self._close_if_complete()
        return True

    def fall_back_all(self, reason: str) -> None:
        """Answer whatever is open."""
        for sequence_id in list(self._open):
            self.fall_back(sequence_id, reason)

    def release(self, sequence_id: SequenceId) -> None:
        """Nobody wants this answer any more."""
        self._open.pop(sequence_id, None)
        self._drafts.pop(sequence_id, None)
        self._fallbacks.pop(sequence_id, None)
        self._close_if_complete()

    def result(self) -> Drafts:
        """What there is by now."""
        return Drafts(dict(self._drafts), dict(self._fallbacks))

    def _close_if_complete(self) -> None:
        if not self._open:
            self._done.set()


def verdict_on(reply: DraftReply, ask: Ask) -> str:
    """Why a decoded draft is no answer to the ask: ``stale``, ``malformed``, or "" if it is one."""
    if (reply.epoch, reply.base_len) != (ask.epoch, ask.base_len):
        return "stale"
    # Trees, parts and pre-drafted nodes were not negotiated.
    plain_chain = reply.nodes.is_chain and not reply.more and not reply.predrafted_from
    if not plain_chain or len(reply.nodes.ids) > ask.max_draft_tokens:
        return "malformed"
    return ""


def to_draft(reply: DraftReply) -> Draft:
    """A chain reply as core type."""
    return Draft(
        SequenceId(reply.sequence_id),
        reply.base_len,
        reply.nodes.tokens,
        reply.nodes.confidence,
        reply.usage,
    )
