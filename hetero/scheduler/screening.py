"""Drafts are guesses of strangers: what is let through to the verifier."""

from hetero.core.types import Draft, DraftQuery

MALFORMED = "malformed"
"""Too long, or with ids outside the vocabulary."""

STALE = "stale"
"""Made for another length of the sequence."""


def fault_of(draft: Draft, query: DraftQuery, vocab_size: int) -> str | None:
    """Why this draft must be dropped; None when it may be verified.

    In coupled verification a bad draft could only waste a step, but an id outside the vocabulary
    would also be an index out of the target's embedding.
    """
    if draft.base_len != len(query.token_ids):
        return STALE
    if len(draft.token_ids) > query.max_draft_tokens:
        return MALFORMED
    if any(not 0 <= token_id < vocab_size for token_id in draft.token_ids):
        return MALFORMED
    return None
