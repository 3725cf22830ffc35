"""What happened, as tables on standard error. Every figure says where it comes from."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from hetero.cli.requests import Outcome
from hetero.core import figures
from hetero.core.types import CardInfo

NOTHING = "-"


def outcome_table(outcome: Outcome, *, card: CardInfo | None, num_drafts: int) -> None:
    """Print the account of one answer."""
    table = Table("", "", show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in outcome_rows(outcome, card=card, num_drafts=num_drafts):
        table.add_row(name, value)
    Console(stderr=True).print(table)


def outcome_rows(
    outcome: Outcome, *, card: CardInfo | None, num_drafts: int
) -> list[tuple[str, str]]:
    """(what, how much) of one answer."""
    finish = outcome.finish
    stats, latency = finish.speculation, finish.latency
    rows = [
        ("tokens", f"{finish.num_prompt_tokens} prompt, {finish.num_completion_tokens} answer"),
        ("finish", _finish(outcome)),
        ("seed", str(outcome.request.sampling.seed)),
        ("mean acceptance length", number(figures.mean_acceptance_length(stats))),
        ("acceptance rate", _rate(stats.num_accepted_draft_tokens, stats.num_draft_tokens)),
        (
            "acceptance per position",
            " ".join(map(number, figures.acceptance_per_position(stats, num_drafts))) or NOTHING,
        ),
        ("time to first token, measured", seconds(latency.ttft_s)),
        ("total, measured", seconds(latency.total_s)),
        ("waited for verify steps, measured", seconds(latency.verify_s)),
        ("waited for drafts, measured", seconds(latency.draft_s)),
    ]
    if card is not None:
        kind = "simulated: virtual time of the modelled card" if card.simulated else "measured"
        rows.append((f"card {card.device} ({kind})", seconds(finish.card.modelled_s)))
        if card.simulated:
            rows.append(
                ("its host's starts, syncs and waits (modelled)", seconds(finish.card.host_s))
            )
    if finish.fallbacks:
        reasons = ", ".join(f"{reason} {count}" for reason, count in finish.fallbacks.items())
        rows.append(("rounds without the drafts asked for", reasons))
    return rows


def number(value: float | None) -> str:
    """Two digits, or a dash."""
    return NOTHING if value is None else f"{value:.2f}"


def seconds(value: float | None) -> str:
    """A duration in the unit that suits it."""
    if value is None:
        return NOTHING
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.2f} ms"


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Nearest-rank percentile; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


def _finish(outcome: Outcome) -> str:
    finish = outcome.finish
    matched = "" if finish.matched_stop is None else f" at {finish.matched_stop!r}"
    return finish.reason + matched


def _rate(accepted: int, drafted: int) -> str:
    return f"{accepted / drafted:.1%} ({accepted} of {drafted})" if drafted else NOTHING
