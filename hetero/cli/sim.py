"""``hetero sim calibrate``: the cycle model against the accelerator's RTL."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hetero.cli.main import print_json
from hetero.core.errors import ConfigError, HeteroError

if TYPE_CHECKING:
    from sim.calib.errors import Subject
    from sim.calib.profile import Constants


@click.command("calibrate")
@click.option("--fit", is_flag=True, help="Fit the constants to the fitted starts first.")
@click.option(
    "--write",
    is_flag=True,
    help="Keep the measurements and errors in sim/calib, with --fit the constants too.",
)
@click.option(
    "--case",
    "names",
    multiple=True,
    metavar="TEXT",
    help="Only cases with TEXT in their names (square-4p4l-ideal); may be given several times.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def calibrate(fit: bool, write: bool, names: tuple[str, ...], as_json: bool) -> None:
    """Run small drafts in the RTL and say how far off the cycle model is.

    Without --fit the constants are those of sim/calib/engine.toml. Builds the RTL six times at
    first, a minute or two each; builds are kept. Exit status 1 when the model is further off than
    docs/simulated-card.md allows.
    """
    from hetero.models.registry import default_cache_dir
    from sim.calib import fit as fitting
    from sim.calib.profile import load_profile
    from sim.calib.record import rtl_sha256
    from sim.calib.summary import beyond_limits, errors_of, speed, summary

    if write and names:
        raise ConfigError("--write: needs every case. Leave --case out.")
    sha256 = rtl_sha256()
    subjects = _measure(default_cache_dir(), names)
    constants = load_profile("u55c").constants
    if fit:
        constants = fitting.fit(subjects, constants, _say)
    errors = errors_of(subjects, constants)
    beyond = beyond_limits(errors)
    document = {
        "rtl_sha256": sha256,
        "constants": "fitted now" if fit else "sim/calib/engine.toml",
        **summary(errors),
        "speed": speed(subjects, constants),
        "beyond_limits": beyond,
    }
    if write:
        _write(document, subjects, constants, fit=fit)
    if as_json:
        print_json(document)
    else:
        _print(document)
    if beyond:
        raise HeteroError(f"the cycle model is too far off: {'; '.join(beyond)}. Use --fit.")


def _measure(cache_dir: Path, names: tuple[str, ...]) -> "list[Subject]":
    from sim.calib.cases import CASES
    from sim.calib.errors import Subject
    from sim.calib.measure import measure

    cases = [case for case in CASES if not names or any(name in case.name for name in names)]
    if not cases:
        raise ConfigError(f"--case {' '.join(names)}: no such case. Try 4p4l or held_out.")
    subjects = []
    for number, case in enumerate(cases, start=1):
        _say(f"{number}/{len(cases)} {case.name}: {'fitted' if case.fitted else 'held out'}")
        subjects.append(Subject(case, measure(case, cache_dir, _say), cache_dir / "drafts"))
    return subjects


def _write(
    document: dict[str, Any], subjects: "list[Subject]", constants: "Constants", *, fit: bool
) -> None:
    from sim.calib.record import Record, save_constants, save_errors, save_record

    sha256 = document["rtl_sha256"]
    measured = {subject.case.name: subject.measured for subject in subjects}
    save_record(Record(rtl_sha256=sha256, measured=measured))
    save_errors(document)
    if fit:
        save_constants(constants, sha256)


def _say(line: str) -> None:
    click.echo(line, err=True)


def _print(document: dict[str, Any]) -> None:
    click.echo(f"RTL {document['rtl_sha256'][:12]}, constants: {document['constants']}")
    click.echo(
        "instruction     shapes fitted, held out   worst    mean error, of max(cycles, 800)  "
        "within 1 %"
    )
    for kernel in document["kernels"]:
        click.echo(
            f"{kernel['kernel']:<16}{kernel['shapes_fitted']:>13}{kernel['shapes_held_out']:>10}"
            f"{kernel['max_error']:>10.2%}{kernel['mean_error']:>8.2%}"
            f"{kernel['share_within_limit']:>35.1%}"
        )
    for name, title in (
        ("token", "a token, ideal memory, up to 4 ports"),
        ("token_8_ports", "a token, ideal memory, 8 ports"),
        ("token_card_memory", "a token, the card's memory"),
        ("token_shared_memory", "a token, ports that share a memory"),
    ):
        if token := document[name]:
            click.echo(
                f"{title:<40}worst {token['max_error']:.2%}, mean {token['mean_error']:.2%}, "
                f"of a start {token['max_error_of_a_start']:.2%}"
            )
    if speed := document["speed"]:
        click.echo(
            f"RTL {speed['rtl_cycles_per_s']:,.0f} cycles/s; timing model "
            f"{speed['timing_model_times_rtl']:,.0f} times, functional simulator "
            f"{speed['functional_times_rtl']:,.0f} times as fast"
        )
