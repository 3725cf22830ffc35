"""A command that shows the values it was given."""

import click

from hetero.cli.main import print_json


@click.command()
@click.option("--max-words", "limit", type=int, default=1)
@click.option("--stop", multiple=True)
@click.option("--json", "as_json", is_flag=True)
def command(limit, stop, as_json):
    print_json({"limit": limit, "stop": list(stop), "as_json": as_json})
