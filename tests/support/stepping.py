"""Drives a Verifier without a scheduler: one sequence, or several in one batch."""

from dataclasses import dataclass, field

from hetero.core.types import SamplingParams, SequenceId, VerifyItem


@dataclass
class Run:
    """One sequence on its way: what it has, and what the cache holds of it."""

    sequence_id: int
    prompt: list
    sampling: SamplingParams
    room: int
    drafts_for: object = None  # (output so far) -> draft tokens
    chunks: list = field(default_factory=list)  # sizes of prefill chunks before the first verdict
    output: list = field(default_factory=list)
    start: int = 0
    accepted: int = 0

    def item(self):
        tokens = [*self.prompt, *self.output][self.start :]
        if self.chunks and not self.output and self.chunks[0] < len(tokens):
            return self._item(tokens[: self.chunks.pop(0)], (), sample=False)
        drafts = tuple(self.drafts_for(self.output)) if self.drafts_for else ()
        return self._item(tokens, drafts[: self.room - len(self.output) - 1], sample=True)

    def _item(self, tokens, drafts, *, sample):
        return VerifyItem(
            sequence_id=SequenceId(self.sequence_id),
            start=self.start,
            token_ids=tuple(tokens),
            draft_token_ids=drafts,
            sample=sample,
            num_prompt_tokens=len(self.prompt),
            sampling=self.sampling,
        )

    def take(self, verifier, item, verdict):
        if verdict is None:
            self.start += len(item.token_ids)
        else:
            stand = item.draft_token_ids[: verdict.num_accepted]
            self.start = len(self.prompt) + len(self.output) + len(stand)
            self.output += [*stand, verdict.next_token_id]
            self.accepted += len(stand)
        verifier.commit(item.sequence_id, self.start)

    @property
    def done(self):
        return len(self.output) >= self.room


async def finish(verifier, runs):
    """Run all of them to the end in shared steps; returns their outputs."""
    for run in runs:
        verifier.admit(SequenceId(run.sequence_id), len(run.prompt) + run.room)
    while alive := [run for run in runs if not run.done]:
        await step(verifier, alive)
        for run in alive:
            if run.done:
                verifier.release(SequenceId(run.sequence_id))
    return [run.output[: run.room] for run in runs]


async def step(verifier, runs):
    items = [run.item() for run in runs]
    verdicts = {v.sequence_id: v for v in await verifier.verify(items)}
    for run, item in zip(runs, items, strict=True):
        run.take(verifier, item, verdicts.get(item.sequence_id))
    verifier.check()
