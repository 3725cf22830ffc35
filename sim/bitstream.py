"""The simulated card's bitstream: a small file with the build parameters, loaded like a real one.

What a bitstream fixes on a card (ports, lanes, clock, versions) is fixed here by the file that is
given to ``pynq.Overlay``, and identified by its hash. A file for another card is refused as a
shell refuses an xclbin that was not built for it.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from fpga.driver.buffers import CardLimits
from fpga.program import isa, tables
from fpga.regmap import registers
from hetero.core.types import MAX_SPECULATIVE_TOKENS
from sim.calib.profile import CardProfile
from sim.memory import Bank

FORMAT: Final = "hetero-simulated-bitstream"
KERNEL_NAME: Final = "draft_card_1"
KERNEL_ADDRESS: Final = 0xA000_0000
MAX_READ_TOKENS: Final = 512
VECTOR_WORDS: Final = 32_768


@dataclass(frozen=True, slots=True, kw_only=True)
class SimBitstream:
    """Build parameters. ``port_banks``: index of the memory that each port is wired to.

    ``rtl_sha256``: of sources and parameters, where RTL stands behind it.
    """

    device: str
    clock_hz: int
    port_banks: tuple[int, ...]
    max_lanes: int
    max_read_tokens: int = MAX_READ_TOKENS
    max_draft_tokens: int = MAX_SPECULATIVE_TOKENS
    vector_words: int = VECTOR_WORDS
    isa_version: int = isa.ISA_VERSION
    arithmetic_version: int = tables.ARITHMETIC_VERSION
    rtl_sha256: str = ""

    @classmethod
    def for_card(cls, profile: CardProfile) -> "SimBitstream":
        """The build that a profile describes: port i at memory i, as far as there are memories."""
        banks = profile.memory.banks
        return cls(
            device=profile.name,
            clock_hz=profile.kernel.clock_hz,
            port_banks=tuple(port % banks for port in range(profile.kernel.ports)),
            max_lanes=profile.kernel.max_lanes,
        )

    @property
    def limits(self) -> CardLimits:
        """What fixes the sizes of command and result buffer."""
        return CardLimits(
            num_ports=len(self.port_banks),
            max_lanes=self.max_lanes,
            max_read_tokens=self.max_read_tokens,
            max_draft_tokens=self.max_draft_tokens,
        )

    @property
    def build_hash(self) -> bytes:
        """128 bits that identify this build."""
        return hashlib.sha256(self.to_json().encode()).digest()[:16]

    def to_json(self) -> str:
        """The file's content."""
        return json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True) + "\n"

    @classmethod
    def read(cls, path: Path) -> "SimBitstream":
        """RuntimeError, as a loader raises it, for a file that is none."""
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            kind = document.pop("format", None)
        except (OSError, ValueError, AttributeError) as error:
            raise RuntimeError(f"{path}: not a simulated bitstream ({error})") from error
        if kind != FORMAT:
            raise RuntimeError(f"{path}: not a simulated bitstream")
        document["port_banks"] = tuple(document["port_banks"])
        return cls(**document)


class Metadata:
    """What pynq's parsers make of a bitstream's metadata, for ours."""

    def __init__(self, bitstream: SimBitstream, banks: tuple[Bank, ...]) -> None:
        self.ip_dict = {KERNEL_NAME: _ip_entry(bitstream, banks)}
        self.mem_dict = {bank.name: _memory_entry(bank) for bank in banks}
        self.gpio_dict: dict[str, Any] = {}
        self.interrupt_pins: dict[str, Any] = {}
        self.interrupt_controllers: dict[str, Any] = {}
        self.hierarchy_dict: dict[str, Any] = {}
        self.clock_dict: dict[str, Any] = {}
        self.systemgraph = None


def _ip_entry(bitstream: SimBitstream, banks: tuple[Bank, ...]) -> dict[str, Any]:
    return {
        "phys_addr": KERNEL_ADDRESS,
        "addr_range": registers.SIZE_BYTES,
        "type": registers.VLNV,
        "fullpath": KERNEL_NAME,
        "registers": {
            name: _register_entry(name, offset, bits, access, _memory_of(name, bitstream, banks))
            for name, (offset, bits, access) in registers.REGISTERS.items()
        },
        "streams": {},
        "interrupts": {},
        "gpio": {},
        "parameters": {},
        "state": None,
        "mem_id": None,
    }


def _memory_of(name: str, bitstream: SimBitstream, banks: tuple[Bank, ...]) -> str | None:
    """The memory that an argument's port is wired to; a lone DDR goes without saying."""
    if "_ADDR" not in name or len(banks) == 1:
        return None
    port = int(name.rpartition("_")[2]) if name[-1].isdigit() else 0
    if port >= len(bitstream.port_banks):
        return None
    return banks[bitstream.port_banks[port]].name


def _register_entry(
    name: str, offset: int, bits: int, access: str, memory: str | None
) -> dict[str, Any]:
    return {
        "address_offset": offset,
        "size": bits,
        "access": access,
        "description": name,
        "type": "void*" if memory else "uint",
        "id": None,
        "fields": {},
        "memory": memory,
    }


def _memory_entry(bank: Bank) -> dict[str, Any]:
    return {
        "used": 1,
        "base_address": bank.base_address,
        "size": bank.size_bytes,
        "type": "MEM_HBM" if bank.name.startswith("HBM") else "DDR4",
        "streaming": False,
        "idx": bank.index,
        "tag": bank.name,
    }
