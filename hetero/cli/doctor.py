"""``hetero doctor``: what this host has and lacks, each with the fix."""

import sys
from collections.abc import Sequence
from dataclasses import asdict

import click

from hetero.cli.doctor_check import Check
from hetero.cli.doctor_checks import run_checks
from hetero.cli.main import print_json

MARKS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command("doctor")
@click.option(
    "--http",
    default="127.0.0.1:8000",
    show_default=True,
    metavar="HOST:PORT",
    help="Where hetero serve would listen.",
)
@click.option(
    "--grpc",
    default="127.0.0.1:50051",
    show_default=True,
    metavar="HOST:PORT",
    help="Where hetero serve would listen.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def command(http: str, grpc: str, as_json: bool) -> None:
    """Check this host. Exit 1 if anything is broken; what is merely absent is a warning."""
    checks = run_checks(ports={"--http": http, "--grpc": grpc})
    if as_json:
        print_json({"checks": [asdict(check) for check in checks]})
    else:
        _print(checks)
    sys.exit(1 if any(check.status == "fail" for check in checks) else 0)


def _print(checks: Sequence[Check]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark = click.style(f"{check.status:<5}", fg=MARKS[check.status])
        click.echo(f"{mark}{check.name:<{width}}  {check.detail}")
        if check.fix:
            click.echo(f"{'':<{width + 5}}  -> {check.fix}")
