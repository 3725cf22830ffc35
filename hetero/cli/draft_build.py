"""``hetero draft build``: a checkpoint to the packed artefact that cards execute."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fpga.program.build import ArtefactInfo


@click.command(short_help="Quantise and compile a draft checkpoint.")
@click.argument("checkpoint")
@click.option(
    "-o",
    "--output",
    "out_dir",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Directory to write; an older artefact there is replaced.",
)
@click.option(
    "--target",
    metavar="PATH_OR_NAME",
    help="Model whose tokens are to be drafted. Default: CHECKPOINT itself.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(checkpoint: str, out_dir: Path, target: str | None, as_json: bool) -> None:
    """Quantise CHECKPOINT (a model's name or directory) and compile it for the card."""
    from hetero.cli.main import print_json

    info = _build(checkpoint, out_dir, target or checkpoint)
    if as_json:
        print_json({"artefact": _report(info)})
        return
    click.echo(f"{info.path}  sha256 {info.sha256[:12]}")
    click.echo(
        f"{info.params:,} parameters in {info.weight_bytes:,} bytes, "
        f"{info.instructions} instructions, for tokenizer {info.target_tokenizer_sha256[:12]}"
    )


def _build(checkpoint: str, out_dir: Path, target: str) -> "ArtefactInfo":
    from fpga.program.build import build_artefact
    from fpga.quant.llama import tokenizer_vocab_size
    from hetero.models.registry import resolve_model
    from hetero.models.tokenizer import load_tokenizer

    source, target_dir = resolve_model(checkpoint), resolve_model(target)
    tokenizer_sha256 = load_tokenizer(target_dir).sha256
    with click.progressbar(length=1, label=f"Quantising {checkpoint}", file=sys.stderr) as bar:

        def progress(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        return build_artefact(
            source,
            out_dir,
            target_tokenizer_sha256=tokenizer_sha256,
            target_vocab_size=tokenizer_vocab_size(target_dir),
            progress=progress,
        )


def _report(info: "ArtefactInfo") -> dict[str, Any]:
    return {
        "path": str(info.path),
        "sha256": info.sha256,
        "params": info.params,
        "weight_bytes": info.weight_bytes,
        "instructions": info.instructions,
        "target_tokenizer_sha256": info.target_tokenizer_sha256,
    }
