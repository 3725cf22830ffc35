"""What ``hetero demo`` shows, once the engine is up."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import click
from rich.console import Console
from rich.table import Table

from hetero.cli.console import discard, write
from hetero.cli.requests import Outcome, encode_prompt, make_request, run_request
from hetero.cli.step_times import StepTimes
from hetero.cli.tables import number, outcome_rows, seconds
from hetero.core import figures
from hetero.core.types import SpeculativeParams
from hetero.core.validation import SamplingWishes
from hetero.scheduler.observer import StepReport
from hetero.services.engine_host import EngineHost


@dataclass(frozen=True, slots=True)
class Decoding:
    """One answer with the rounds that made it, the prompt's left out."""

    outcome: Outcome
    steps: list[StepReport]

    @property
    def verify_step_s(self) -> float | None:
        """Median wall time of a verify step."""
        return median(step.verify_s for step in self.steps) if self.steps else None


class Demo:
    """Answers a question with and without drafts, and accounts for both."""

    def __init__(
        self, host: EngineHost, steps: StepTimes, wishes: SamplingWishes, *, num_drafts: int
    ) -> None:
        self._host = host
        self._steps = steps
        self._wishes = wishes
        self._num_drafts = num_drafts
        self._console = Console()

    async def run(self, prompt: str) -> bool:
        """Stream the answer, decode it again without drafts, compare; True when equal."""
        show = self._console.print
        show(f"\n[bold]{prompt}[/bold]\n", highlight=False)
        drafting = SpeculativeParams(num_speculative_tokens=self._num_drafts)
        drafted = await self._decode(prompt, drafting, write)
        click.echo("\n")
        plain = await self._decode(prompt, SpeculativeParams(enabled=False), discard)
        equal = drafted.outcome.token_ids == plain.outcome.token_ids
        show(self._account(drafted))
        show(_comparison(drafted, plain, equal=equal))
        show(self._reading(drafted, plain), highlight=False)
        return equal

    async def _decode(
        self, prompt: str, speculative: SpeculativeParams, on_text: Callable[[str], None]
    ) -> Decoding:
        token_ids = encode_prompt(self._host, prompt, raw=False)
        request = make_request(self._host, token_ids, self._wishes, speculative)
        outcome = await run_request(self._host.engine.generate(request), request, on_text)
        return Decoding(outcome, self._steps.take())

    def _account(self, drafted: Decoding) -> Table:
        table = Table(title="Speculative decoding of this answer", title_justify="left")
        table.add_column("what")
        table.add_column("how much", justify="right")
        rows = outcome_rows(drafted.outcome, card=self._host.card, num_drafts=self._num_drafts)
        for name, value in rows:
            table.add_row(name, value)
        table.add_row("one verify step, measured (median)", seconds(drafted.verify_step_s))
        table.add_row("card time per drafted token, simulated", seconds(card_token_s(drafted)))
        return table

    def _reading(self, drafted: Decoding, plain: Decoding) -> str:
        """What these figures say and what they don't."""
        stats = drafted.outcome.finish.speculation
        card, length = self._host.card, figures.mean_acceptance_length(stats)
        step_s, plain_step_s = drafted.verify_step_s, plain.verify_step_s
        if card is None or length is None or step_s is None or plain_step_s is None:
            return "No token was drafted, so there is nothing to compare."
        card_s = drafted.outcome.finish.card.total_s / stats.num_spec_steps
        return (
            "The draft is the target's own weights in int4: real weights, there to prove the "
            "machinery. It is not there to be faster on a laptop, where the same processor "
            "simulates the card: that is most of the wait for drafts above.\n"
            f"By the card's model, a real {card.device} would add {seconds(card_s)} to each "
            f"verify step of {seconds(step_s)}, its host's part included, and bring "
            f"{number(length)} tokens a round: "
            f"{length / (step_s + card_s):.1f} tokens/s on this target, plain "
            f"{1 / plain_step_s:.1f}. (Derived: verify steps as measured here, card time as "
            "simulated, no time for the wire.)\n"
        )


def card_token_s(decoding: Decoding) -> float | None:
    """Virtual time of card and host per drafted token, reading the prompt included."""
    finish = decoding.outcome.finish
    drafted = finish.speculation.num_draft_tokens
    return finish.card.total_s / drafted if drafted else None


def _comparison(drafted: Decoding, plain: Decoding, *, equal: bool) -> Table:
    table = Table(title="The same request without drafts", title_justify="left")
    table.add_column("")
    rows = {"speculative": drafted, "plain": plain}
    for name in rows:
        table.add_column(name, justify="right")
    table.add_row("tokens", *(str(len(d.outcome.token_ids)) for d in rows.values()))
    table.add_row("rounds", *(str(len(d.steps)) for d in rows.values()))
    table.add_row(
        "wall time, measured",
        *(seconds(d.outcome.finish.latency.total_s) for d in rows.values()),
    )
    table.add_row("the same tokens", "yes" if equal else "NO", "")
    return table
