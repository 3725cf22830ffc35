"""``hetero card figures``: everything that the accelerator must reach, measured in one run."""

from typing import TYPE_CHECKING, Any

import click

from hetero.cli.main import print_json

if TYPE_CHECKING:
    from sim.report.figures import Figures


@click.command("figures")
@click.option(
    "--card-device",
    default="u55c",
    show_default=True,
    metavar="NAME",
    help="Whose build and memory: u55c, kv260, ...",
)
@click.option(
    "--rtl-ports",
    type=click.IntRange(min=1),
    metavar="N",
    help="Memory ports of the RTL that is run. Default: 4, or what the card has.",
)
@click.option(
    "--prefill-lanes",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    metavar="N",
    help="Lanes of the build that reads a prompt. 8 takes several minutes more to build.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def figures(card_device: str, rtl_ports: int | None, prefill_lanes: int, as_json: bool) -> None:
    """Measure utilisation, lanes, prefill and speed in the accelerator's RTL.

    Builds the RTL with Verilator for one lane and for several: about ten minutes the first time.
    """
    from pathlib import Path

    from hetero.models.registry import default_cache_dir
    from sim.report.figures import measure_figures
    from sim.report.measure import RunConfig

    cfg = RunConfig(
        device=card_device,
        draft=Path(),
        cache_dir=default_cache_dir(),
        progress=lambda line: click.echo(line, err=True),
        ports=rtl_ports,
    )
    measured = measure_figures(cfg, prefill_lanes=prefill_lanes)
    document = _document(card_device, measured)
    if as_json:
        print_json(document)
    else:
        _print(document)


def _document(card_device: str, measured: "Figures") -> dict[str, Any]:
    """The JSON object; cycles are of RTL simulation, ``speed`` alone is this computer's."""
    return {
        "card_device": card_device,
        "source": "measured in RTL simulation (Verilator)",
        "channels": measured.ports,
        "tokens": [
            {
                "draft": token.draft,
                "memory": token.memory,
                "cycles_per_token": token.cycles_per_token,
                "bandwidth_utilisation": token.utilisation,
                "deliverable": token.deliverable,
                "of_deliverable": token.of_deliverable,
            }
            for token in measured.tokens
        ],
        "lanes": [
            {
                "draft": lane.draft,
                "position": lane.position,
                "lanes": lane.lanes,
                "cycles_one": lane.cycles_one,
                "cycles_all": lane.cycles_all,
                "cycles_ratio": lane.ratio,
                "bytes_ratio": lane.bytes_ratio,
            }
            for lane in measured.lanes
        ],
        "prefill": {
            "draft": measured.prefill.draft,
            "tokens": measured.prefill.tokens,
            "lanes": measured.prefill.lanes,
            "cycles": measured.prefill.cycles,
            "share_of_decode_steps": measured.prefill.share,
        },
        "speed": {
            "source": "this computer's wall clock, one thread, no assertions",
            "draft": measured.speed.draft,
            "tokens_per_s": measured.speed.tokens_per_s,
            "cycles_per_s": measured.speed.cycles_per_s,
        },
    }


def _print(document: dict[str, Any]) -> None:
    click.echo(f"{document['card_device']}, {document['channels']} ports, {document['source']}")
    click.echo("  draft  memory  cycles/token  utilisation  memory could  of that")
    for token in document["tokens"]:
        click.echo(
            f"  {token['draft']:<7}{token['memory']:<8}{token['cycles_per_token']:12,.0f}"
            f"{token['bandwidth_utilisation']:13.1%}{token['deliverable']:14.1%}"
            f"{token['of_deliverable']:9.1%}"
        )
    click.echo("  draft  position  lanes  cycles, all over one  bytes, all over one")
    for lane in document["lanes"]:
        click.echo(
            f"  {lane['draft']:<7}{lane['position']:8}{lane['lanes']:7}"
            f"{lane['cycles_ratio']:22.3f}{lane['bytes_ratio']:21.3f}"
        )
    prefill, speed = document["prefill"], document["speed"]
    click.echo(
        f"  {prefill['tokens']} tokens of a prompt, {prefill['lanes']} a pass: "
        f"{prefill['share_of_decode_steps'] * prefill['lanes']:.2f}/{prefill['lanes']} of as many "
        "decode steps"
    )
    click.echo(
        f"  Verilator here: {speed['tokens_per_s']:.1f} tokens/s of {speed['draft']}, "
        f"{speed['cycles_per_s'] / 1e3:,.0f} thousand cycles/s ({speed['source']})"
    )
