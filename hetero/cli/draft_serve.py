"""``hetero draft serve``: the card host's process."""

import logging
from pathlib import Path

import click

from hetero.cli.options import card_build_options


@click.command("serve")
@click.option(
    "--card",
    type=click.Choice(["sim", "rtl", "pynq", "xrt"]),
    default="sim",
    show_default=True,
    help="sim: the simulated card. rtl: the same with the accelerator's own RTL in it, slow. "
    "pynq: the Zynq or Kria board that this runs on. xrt: an Alveo card.",
)
@click.option(
    "--card-device",
    metavar="NAME",
    default="u55c",
    show_default=True,
    help="Which card to simulate, or what to call the board in reports.",
)
@click.option(
    "--bitfile",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The bitstream: a board's X.bit with X.hwh beside it, an Alveo card's X.xclbin with "
    "X.json.",
)
@click.option(
    "--card-index",
    metavar="N",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Which Alveo card, as xbutil examine counts.",
)
@card_build_options
@click.option(
    "--draft",
    metavar="PATH_OR_NAME",
    required=True,
    help="A built draft: its folder, or its name in the cache.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:50052",
    show_default=True,
    help="Where to listen; port 0 takes any free one.",
)
@click.option(
    "--slots",
    metavar="N",
    type=click.IntRange(1, 1024),
    default=8,
    show_default=True,
    help="Sequences that the card holds at once.",
)
@click.option(
    "--client-timeout-s",
    metavar="SECONDS",
    type=click.FloatRange(0.15, 3600),
    default=1.0,
    show_default=True,
    help="Silence after which a verifier is dead and its slots are free.",
)
@click.option(
    "--insecure-allow-remote",
    is_flag=True,
    help="Listen beyond loopback without encryption. Prompts travel in clear.",
)
@click.option(
    "--parent-pid", metavar="PID", type=int, help="End when this process ends.", hidden=True
)
def command(
    card: str,
    card_device: str,
    bitfile: Path | None,
    card_index: int,
    card_ports: int | None,
    card_lanes: int | None,
    draft: str,
    listen: str,
    slots: int,
    client_timeout_s: float,
    insecure_allow_remote: bool,
    parent_pid: int | None,
) -> None:
    """Serve a draft model on a card to verifiers.

    Prints one JSON line when ready: {"listening": "HOST:PORT", "pid": N}. SIGTERM ends it.
    """
    from hetero.draft_server.config import DraftServerConfig
    from hetero.models.registry import resolve_draft
    from hetero.services.draft_host import DraftHostConfig, run_draft_host

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    run_draft_host(
        DraftHostConfig(
            draft=resolve_draft(draft),
            card=card,
            card_device=card_device,
            bitfile=bitfile,
            card_index=card_index,
            card_ports=card_ports,
            card_lanes=card_lanes,
            listen=listen,
            num_slots=slots,
            parent_pid=parent_pid,
            server=DraftServerConfig(
                client_timeout_s=client_timeout_s, allow_insecure_remote=insecure_allow_remote
            ),
        )
    )
