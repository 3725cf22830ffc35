"""The draft that a target gets when none is named: its own weights, re-quantised to int4."""

import fcntl
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fpga.program import isa, tables
from fpga.program.artefact import FORMAT_VERSION, load_artefact
from fpga.program.build import build_artefact
from fpga.quant.checkpoint import open_checkpoint
from hetero.core.errors import ArtefactError, ConfigError
from hetero.services.progress import Progress


def default_draft(
    model_dir: Path,
    drafts_dir: Path,
    *,
    tokenizer_sha256: str,
    vocab_size: int,
    progress: Progress,
) -> Path:
    """Path of the target's self-draft, built now if it isn't there yet. Takes its time: blocks.

    The name holds a hash of everything that decides the content, so a new checkpoint or a new
    arithmetic gets a new artefact. Two processes that want the same one build it once. One that
    got damaged is built again: it is ours, nobody else's work is lost. Raises ConfigError when
    the cache can't be written.
    """
    identity = "\n".join(
        [
            open_checkpoint(model_dir).sha256(),
            tokenizer_sha256,
            *map(str, (vocab_size, FORMAT_VERSION, isa.ISA_VERSION, tables.ARITHMETIC_VERSION)),
            tables.TABLES_SHA256,
        ]
    )
    key = hashlib.sha256(identity.encode()).hexdigest()[:12]
    path = drafts_dir / f"{model_dir.name}-int4-{key}"
    if _is_whole(path):
        return path
    with _locked(drafts_dir, path.name):
        if not _is_whole(path):
            progress(f"building the int4 draft of {model_dir.name} (once; kept in {drafts_dir})")
            build_artefact(
                model_dir,
                path,
                target_tokenizer_sha256=tokenizer_sha256,
                target_vocab_size=vocab_size,
            )
    return path


def _is_whole(path: Path) -> bool:
    """Read it all, as its card host will: a quarter of a second for 90 MB."""
    try:
        load_artefact(path)
    except ArtefactError:
        return False
    return True


@contextmanager
def _locked(drafts_dir: Path, name: str) -> Iterator[None]:
    try:
        drafts_dir.mkdir(parents=True, exist_ok=True)
        file = (drafts_dir / f".{name}.lock").open("w")
    except OSError as error:
        raise ConfigError(
            f"cache {drafts_dir}: {error.strerror}. Set HETERO_CACHE to a directory that can be "
            "written, or name a draft that is built already with --draft."
        ) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
