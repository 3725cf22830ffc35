"""``hetero``: the command table, configuration files, and how an error becomes one line.

Commands are loaded when they are called: a card host has no torch, a GPU host no pynq.
"""

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import click

import hetero
from hetero.core.errors import ConfigError, HeteroError

COMMANDS = {
    "models pull": "hetero.cli.models:pull",
    "models list": "hetero.cli.models:list_models",
    "draft build": "hetero.cli.draft_build:command",
    "draft serve": "hetero.cli.draft_serve:command",
    "generate": "hetero.cli.generate:command",
    "serve": "hetero.cli.serve:command",
    "bench": "hetero.cli.bench:command",
    "card report": "hetero.cli.card:report",
    "card figures": "hetero.cli.card_figures:figures",
    "sim calibrate": "hetero.cli.sim:calibrate",
    "doctor": "hetero.cli.doctor:command",
    "demo": "hetero.cli.demo:command",
}
"""Command words -> module:attribute of the click command."""

GROUPS = {
    "sim": "Check the simulated card against the RTL.",
    "card": "What the accelerator costs and reaches.",
    "models": "Fetch and list target models.",
    "draft": "Build and serve the draft model.",
}


class LazyGroup(click.Group):
    """A group whose commands are imported on use, from COMMANDS."""

    def __init__(self, *args: Any, prefix: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.prefix = prefix

    def list_commands(self, ctx: click.Context) -> list[str]:
        """First word after this group's own, of every command."""
        del ctx
        own = (key[len(self.prefix) :] for key in COMMANDS if key.startswith(self.prefix))
        return sorted({key.split()[0] for key in own})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command, or open the sub-group."""
        del ctx
        if not self.prefix and cmd_name in GROUPS:
            return LazyGroup(cmd_name, prefix=f"{cmd_name} ", help=GROUPS[cmd_name])
        target = COMMANDS.get(self.prefix + cmd_name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


@click.command(cls=LazyGroup, context_settings={"auto_envvar_prefix": "HETERO"})
@click.version_option(hetero.__version__, prog_name="hetero")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="TOML file with defaults: one table a command, keys as the flags are spelt.",
)
@click.pass_context
def cli(ctx: click.Context, config_file: Path | None) -> None:
    """Faster answers from large language models, not one token changed."""
    if config_file is not None:
        group = ctx.command
        assert isinstance(group, click.Group)
        ctx.default_map = _defaults(ctx, group, _read_toml(config_file), f"--config {config_file}")


def _read_toml(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path}: {error}. Name a readable file.") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"--config {path}: not TOML: {error}.") from error
    return tables


def _defaults(
    ctx: click.Context, group: click.Group, tables: dict[str, Any], where: str
) -> dict[str, Any]:
    """Tables of a configuration file as click wants them; ConfigError for what means nothing."""
    defaults: dict[str, Any] = {}
    for name, table in tables.items():
        command = group.get_command(ctx, name)
        if command is None or not isinstance(table, dict):
            known = ", ".join(group.list_commands(ctx))
            raise ConfigError(f"{where}: {name} is no table of a command. Use one of {known}.")
        if isinstance(command, click.Group):
            defaults[name] = _defaults(ctx, command, table, f"{where}: {name}")
        else:
            defaults[name] = _parameters(command, table, f"{where}: {name}")
    return defaults


def _parameters(command: click.Command, table: dict[str, Any], where: str) -> dict[str, Any]:
    """Keys are spelt as flags; click's parameters may have other names."""
    names = {flag.lstrip("-"): param.name for param in command.params for flag in param.opts}
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = names.get(key.replace("_", "-"))
        if name is None:
            known = ", ".join(sorted(flag for flag in names if len(flag) > 1))
            raise ConfigError(f"{where}.{key}: no such option. Use one of {known}.")
        values[name] = value
    return values


def main() -> None:
    """Console entry point: exit 0 done, 1 failed, 2 usage or configuration."""
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except HeteroError as error:
        click.echo(f"hetero: {error}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader (head, less) has seen enough; leave nothing for the interpreter to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def print_json(value: dict[str, Any]) -> None:
    """Print the one JSON object of a ``--json`` run. NaN is our own bug, not a value."""
    click.echo(json.dumps(value, allow_nan=False))


if __name__ == "__main__":
    main()
