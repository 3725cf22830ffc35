"""Counts what a card's build takes, and writes it down.

    python -m fpga.synth.report kv260           # synthesise, write results/kv260.json and the page
    python -m fpga.synth.report kv260 --check   # synthesise, compare with results/kv260.json
    python -m fpga.synth.report --budget u55c   # other ports and lanes of the card (long)
    python -m fpga.synth.report --page [--check]  # docs/resources.md from what is committed

``--budget`` takes modules that it synthesised before from ``--cache``; a card is always counted
from the beginning. Exit status 1: something differs.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Final

from fpga.synth import budget, page, results
from fpga.synth.synthesis import synthesise_card
from fpga.vivado.builds import load_build
from hetero.core.errors import HeteroError

CACHE: Final = Path(__file__).parents[2] / "build/synth"


def main() -> None:
    """Command line."""
    arguments = _parser().parse_args()
    try:
        changed = _run(arguments)
    except HeteroError as error:
        sys.exit(f"fpga.synth.report: {error}")
    for line in changed:
        sys.stdout.write(f"{line}\n")
    sys.exit(1 if changed else 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fpga.synth.report", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("cards", nargs="*", metavar="CARD")
    parser.add_argument("--check", action="store_true", help="write nothing, tell what differs")
    parser.add_argument("--budget", action="store_true", help="count other ports and lanes too")
    parser.add_argument("--page", action="store_true", help="docs/resources.md only")
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="DIR")
    return parser


def _run(arguments: argparse.Namespace) -> list[str]:
    """Does what was asked; returns the differences that ``--check`` found."""
    if not arguments.cards and not arguments.page:
        sys.exit("fpga.synth.report: name a card, or --page.")
    changed = []
    for card in arguments.cards:
        if arguments.budget:
            budget.count(card, arguments.cache, progress=_say)
        else:
            changed += count_card(card, is_check=arguments.check)
    if arguments.check:
        if arguments.page and page.PLACE.read_text(encoding="utf-8") != page.text():
            changed.append(f"{page.PLACE}: stale; run `python -m fpga.synth.report --page`.")
    else:
        page.PLACE.write_text(page.text(), encoding="utf-8")
    return changed


def count_card(card: str, *, is_check: bool) -> list[str]:
    """Synthesises a card's build and writes the result, or compares it."""
    started = time.monotonic()
    found = synthesise_card(load_build(card), progress=_say)
    wall, busy = time.monotonic() - started, os.times().children_user
    _say(f"{card}: {found.resources}, {wall:.0f} s ({busy:.0f} s of processors)")
    if is_check:
        return [f"{card}: {line}" for line in results.compare(results.load(card), found)]
    results.store(found)
    return []


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    main()
