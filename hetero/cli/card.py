"""``hetero card report``: what the accelerator reaches, from its RTL and for whole cards."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hetero.cli.main import print_json
from hetero.core.errors import ConfigError

if TYPE_CHECKING:
    from sim.report.measure import RtlFigures, RunConfig
    from sim.report.scaling import CardFigures

RANDOM_DRAFTS = ("5m", "10m", "15m")


@click.command("report")
@click.option(
    "--card-device",
    default="u55c",
    show_default=True,
    metavar="NAME",
    help="Which card: u55c, kv260, ...",
)
@click.option(
    "--draft",
    default="10m",
    show_default=True,
    metavar="PATH_OR_NAME",
    help="A built draft; or 5m, 10m, 15m: a random one of so many parameters.",
)
@click.option(
    "--rtl-ports",
    type=click.IntRange(min=1),
    metavar="N",
    help="Memory ports of the RTL that is run. Default: 4, or what the card has.",
)
@click.option(
    "--rtl-lanes", default=1, show_default=True, metavar="N", help="Lanes of it, all in use."
)
@click.option(
    "--memory",
    default="ideal",
    show_default=True,
    metavar="ideal/card",
    help="Around the RTL: a beat a cycle and port, or the card's banks, refresh and peak rate.",
)
@click.option(
    "--position",
    default=250,
    show_default=True,
    metavar="N",
    help="Where in the context the token stands.",
)
@click.option(
    "--accepted",
    default=2.41,
    show_default=True,
    metavar="A",
    help="Drafts of four that stand, to say when a card pays. The default was measured with the "
    "default draft (docs/draft-program.md).",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.svg",
    help="Draw which unit is busy when, over one token.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def report(
    card_device: str,
    draft: str,
    rtl_ports: int | None,
    rtl_lanes: int,
    memory: str,
    position: int,
    accepted: float,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Run a decoded token in the accelerator's RTL, and model whole cards.

    The first run builds the RTL with Verilator, a minute or two.
    """
    from hetero.models.registry import default_cache_dir
    from sim.report.measure import RunConfig, measure_rtl, model_cycles
    from sim.report.scaling import model_card

    if not accepted > 0:
        raise ConfigError(f"--accepted {accepted}: use a number above 0.")
    cfg = RunConfig(
        device=card_device,
        draft=_draft(draft),
        cache_dir=default_cache_dir(),
        progress=_say,
        ports=rtl_ports,
        lanes=rtl_lanes,
        position=position,
        memory=memory,
    )
    modelled = model_card(cfg, accepted=accepted)
    sim_cycles = model_cycles(cfg)
    measured = measure_rtl(cfg)
    if plot is not None:
        _write_plot(plot, cfg, measured)
    document = _document(cfg, measured, sim_cycles, modelled)
    if as_json:
        print_json(document)
    else:
        _print(document)


def _say(line: str) -> None:
    click.echo(line, err=True)


def _draft(name: str) -> Path:
    from hetero.models.registry import default_cache_dir, resolve_draft
    from sim.shapes import cached_draft

    if name in RANDOM_DRAFTS:
        return cached_draft(name, default_cache_dir() / "drafts", _say)
    return resolve_draft(name)


def _write_plot(path: Path, cfg: "RunConfig", measured: "RtlFigures") -> None:
    from sim.report.picture import utilisation_svg

    title = (
        f"One decoded token in RTL simulation: {cfg.draft.name}, {cfg.num_ports} ports, "
        f"{cfg.lanes} lanes, {cfg.memory} memory, position {cfg.position}"
    )
    try:
        path.write_text(utilisation_svg(measured.trace, title), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--plot {path}: {error.strerror}. Name a file to write.") from error


def _document(
    cfg: "RunConfig", measured: "RtlFigures", sim_cycles: float, modelled: "CardFigures"
) -> dict[str, Any]:
    """The command's JSON object; ``rtl`` is measured in simulation, ``modelled`` is not."""
    from sim.report.units import busy_share, cycles_by_instruction

    return {
        "card_device": cfg.device,
        "rtl": {
            "source": "measured in RTL simulation (Verilator)",
            "cycles_per_token": measured.cycles_per_token,
            "ideal_cycles_per_token": measured.ideal_cycles_per_token,
            "information_bytes_per_token": measured.information_bytes,
            "bandwidth_utilisation": measured.utilisation,
            "channels": cfg.num_ports,
            "lanes": cfg.lanes,
            "bytes_per_cycle": measured.bytes_per_cycle,
            "memory": cfg.memory,
            "position": cfg.position,
            "busy": busy_share(measured.trace),
            "cycles_by_instruction": cycles_by_instruction(measured.trace),
        },
        "sim": {
            "source": "cycle model, the same ports and lanes",
            "cycles_per_token": sim_cycles,
            "error_vs_rtl": sim_cycles / measured.cycles_per_token - 1,
        },
        "resources": _resources(cfg.device),
        "modelled": _modelled(modelled),
    }


def _resources(device: str) -> dict[str, Any]:
    """What yosys counted for the whole card's build; null where it was never counted."""
    from fpga.synth.results import load

    kinds = ("lut", "ff", "dsp", "bram", "uram")
    try:
        return load(device).summary()
    except ConfigError as error:
        nothing = dict.fromkeys(kinds)
        return {"source": str(error), **nothing, "device_fraction": dict.fromkeys(kinds)}


def _modelled(card: "CardFigures") -> dict[str, Any]:
    return {
        "source": "cycle model of the whole card; clock and memory from sim/calib, never run",
        "tokens_per_s": card.tokens_per_s,
        "cycles_per_token": card.cycles_per_token,
        "clock_hz": card.clock_hz,
        "channels": card.ports,
        "lanes": card.lanes,
        "bandwidth_utilisation": card.bandwidth_utilisation,
        "memory_efficiency": card.memory_efficiency,
        "host_us_per_start": card.host_s_per_start * 1e6,
        "rounds": [
            {
                "sequences": point.sequences,
                "starts": point.starts,
                "card_us": point.card_s * 1e6,
                "host_us": point.host_s * 1e6,
                "tokens_per_s": point.tokens_per_s,
                "pays_above_step_us": point.pays_above_step_s * 1e6,
            }
            for point in card.points
        ],
    }


def _print(document: dict[str, Any]) -> None:
    rtl, sim, card = document["rtl"], document["sim"], document["modelled"]
    click.echo(f"{document['card_device']}, {rtl['source']}:")
    click.echo(
        f"  {rtl['channels']} ports, {rtl['lanes']} lanes, {rtl['memory']} memory, position "
        f"{rtl['position']}: {rtl['cycles_per_token']:,.0f} cycles for a token in every lane, "
        f"ideal {rtl['ideal_cycles_per_token']:,.0f}: {rtl['bandwidth_utilisation']:.1%} of the "
        "ports' bytes are information"
    )
    for name, share in rtl["busy"].items():
        click.echo(f"    {name:<32}{share:7.1%}")
    click.echo(
        f"  {sim['source']}: {sim['cycles_per_token']:,.0f} cycles ({sim['error_vs_rtl']:+.1%})"
    )
    _print_resources(document["resources"])
    click.echo(f"{document['card_device']}, {card['source']}:")
    click.echo(
        f"  {card['channels']} ports at {card['clock_hz'] / 1e6:.0f} MHz: "
        f"{card['tokens_per_s']:,.0f} tokens/s of one sequence while the card works, "
        f"{card['memory_efficiency']:.1%} of the memory's peak"
    )
    click.echo(f"  host time of each start, on top: {card['host_us_per_start']:.0f} us")
    click.echo(
        "  sequences  starts   card us   host us  tokens/s  pays if a target step is over us"
    )
    for row in card["rounds"]:
        click.echo(
            f"  {row['sequences']:9}{row['starts']:8}{row['card_us']:10.0f}{row['host_us']:10.0f}"
            f"{row['tokens_per_s']:10,.0f}{row['pays_above_step_us']:26,.0f}"
        )


def _print_resources(resources: dict[str, Any]) -> None:
    click.echo(f"resources, {resources['source']}:")
    if resources["lut"] is not None:
        shares = resources["device_fraction"]
        used = ", ".join(
            f"{kind.upper()} {resources[kind]:,} ({shares[kind]:.0%})"
            for kind in ("lut", "ff", "dsp", "bram", "uram")
        )
        click.echo(f"  {used}" + ("" if resources["fits"] else ": more than the device has"))
