"""What a real bitstream was built with: a JSON file beside it, written by the build scripts.

XRT gives no access to a kernel's registers from Python, so on Alveo this file answers for the
read-only ones. It is not trusted: the card reports the hash of its build in every result buffer,
and the driver compares.
"""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from fpga.regmap import registers

FORMAT: Final = "hetero-draft-card-build"
_SHARED: Final = ("COMMAND_ADDR", "RESULT_ADDR", "PROGRAM_ADDR")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildInfo:
    """Build parameters. ``port_banks``: memory index (v++ connectivity) of each memory port.

    ``build_hash``: 32 hex digits, as the BUILD_HASH registers hold it.
    """

    device: str
    clock_hz: int
    port_banks: tuple[int, ...]
    bank_bytes: int
    max_lanes: int
    max_read_tokens: int
    max_draft_tokens: int
    vector_words: int
    interface_version: int
    isa_version: int
    arithmetic_version: int
    build_hash: str

    @classmethod
    def beside(cls, bitstream: Path) -> "BuildInfo":
        """Of X.xclbin from X.json. RuntimeError, as loaders raise it, when that is none."""
        path = bitstream.with_suffix(".json")
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document.pop("format", None) != FORMAT:
                raise ValueError(f"format is not {FORMAT}")
            return cls(**_checked(document))
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise RuntimeError(
                f"{path}: not the build information of a draft card ({error}). It is written "
                "beside the bitstream by fpga/vivado; copy both."
            ) from error

    def to_json(self) -> str:
        """The file's content."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1, sort_keys=True) + "\n"

    @property
    def register_words(self) -> dict[int, int]:
        """What the read-only registers hold, by offset."""
        words = {
            registers.TYPE: registers.TYPE_ID,
            registers.VERSION: self.interface_version,
            registers.ISA_VERSION: self.isa_version,
            registers.ARITHMETIC_VERSION: self.arithmetic_version,
            registers.NUM_PORTS: len(self.port_banks),
            registers.MAX_LANES: self.max_lanes,
            registers.MAX_READ_TOKENS: self.max_read_tokens,
            registers.MAX_DRAFT_TOKENS: self.max_draft_tokens,
            registers.VECTOR_WORDS: self.vector_words,
            registers.CLOCK_HZ: self.clock_hz,
        }
        digest = bytes.fromhex(self.build_hash)
        for i in range(registers.BUILD_HASH_COUNT):
            word = int.from_bytes(digest[4 * i : 4 * i + 4], "little")
            words[registers.BUILD_HASH + i * registers.BUILD_HASH_STRIDE] = word
        return words


def _checked(document: dict[str, Any]) -> dict[str, Any]:
    names = {f.name for f in fields(BuildInfo)}
    if set(document) != names:
        raise ValueError(f"fields {sorted(names ^ set(document))} are missing or unknown")
    banks = tuple(document["port_banks"])
    if not 1 <= len(banks) <= registers.WEIGHT_ADDR_COUNT or not all(
        isinstance(bank, int) for bank in banks
    ):
        raise ValueError(f"port_banks = {banks}: use 1..{registers.WEIGHT_ADDR_COUNT} numbers")
    if len(bytes.fromhex(document["build_hash"])) != 4 * registers.BUILD_HASH_COUNT:
        raise ValueError("build_hash: use 32 hex digits")
    return {**document, "port_banks": banks}


def argument_names(num_ports: int) -> list[str]:
    """The kernel's buffer arguments in order, as fpga/vivado packages them."""
    return [
        *_SHARED,
        *(f"WEIGHT_ADDR_{port}" for port in range(num_ports)),
        *(f"KV_ADDR_{port}" for port in range(num_ports)),
    ]


def argument_banks(build: BuildInfo) -> dict[str, int]:
    """Memory index of each argument: shared ones go through port 0."""
    shared = dict.fromkeys(_SHARED, build.port_banks[0])
    weights = {f"WEIGHT_ADDR_{port}": bank for port, bank in enumerate(build.port_banks)}
    kv = {f"KV_ADDR_{port}": bank for port, bank in enumerate(build.port_banks)}
    return {**shared, **weights, **kv}
