"""Times of the engine's rounds, for reports."""

from hetero.scheduler.observer import NullObserver, StepReport


class StepTimes(NullObserver):
    """Keeps the reports of rounds that decoded only; prompts being read would blur them."""

    def __init__(self) -> None:
        self._reports: list[StepReport] = []

    def step_finished(self, report: StepReport) -> None:
        """Keep a round in which every sequence had one committed token to read."""
        if report.num_rows == report.num_sequences + report.num_draft_tokens:
            self._reports.append(report)

    def take(self) -> list[StepReport]:
        """What was kept since the last call."""
        taken, self._reports = self._reports, []
        return taken
