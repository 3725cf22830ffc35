"""What can be chosen about an RTL build, and about the memory around it."""

import ctypes
import dataclasses
from dataclasses import dataclass
from typing import Final

from hetero.core.errors import ConfigError

PORT_COUNTS: Final = (1, 2, 4, 8, 16, 32)
PORT_BYTES: Final = (16, 32, 64)
ARRAY_BYTES: Final = (16, 32, 64)
LANE_COUNTS: Final = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class RtlBuild:
    """Parameters of ``draft_card``. The defaults hold SmolLM2-135M.

    ``arrays``: array slices of a port, even, at least ``lanes``; 0 takes as few as there may be,
    twice ``lanes`` lets full passes take two beats a cycle.
    ``checks``: with the immediate assertions and the coverage counters; slower. ``debug``: with
    waveforms and a look at any signal; slower still.
    """

    ports: int = 4
    port_bytes: int = 64
    lanes: int = 2
    arrays: int = 0
    array_bytes: int = 64
    attn_heads: int = 3
    attn_bytes: int = 64
    fifo_beats: int = 2048
    act_cols: int = 2048
    vector_words: int = 16_384
    max_positions: int = 8192
    max_heads: int = 16
    max_kv_heads: int = 8
    max_head_dim: int = 128
    program_instructions: int = 512
    max_read_tokens: int = 512
    max_draft_tokens: int = 16
    slr_stages: int = 0
    checks: bool = False
    debug: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (
            ("ports", PORT_COUNTS),
            ("port_bytes", PORT_BYTES),
            ("lanes", LANE_COUNTS),
            ("array_bytes", ARRAY_BYTES),
        ):
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"rtl {name} = {getattr(self, name)}: use one of "
                    f"{', '.join(map(str, allowed))}."
                )
        fewest = max(2, self.lanes)
        if self.arrays and (self.arrays < fewest or self.arrays % 2):
            raise ConfigError(
                f"rtl arrays = {self.arrays}: use an even number from {fewest} on, or 0."
            )
        if not 0 <= self.slr_stages <= 3:
            raise ConfigError(f"rtl slr_stages = {self.slr_stages}: use 0..3.")

    @property
    def num_arrays(self) -> int:
        """Array slices of a port."""
        return self.arrays or max(2, self.lanes)

    def verilog(self) -> dict[str, int]:
        """Module parameters by name."""
        values = dataclasses.asdict(self)
        del values["checks"], values["debug"]
        values["arrays"] = self.num_arrays
        return {name.upper(): value for name, value in values.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTiming:
    """When memory answers: sim/rtl/memory_model.hpp says what each number means.

    Times in units of ``1 / units_per_cycle`` of a kernel cycle, but where a name says cycles.
    """

    is_banked: bool = False
    channels: int = 1
    latency_cycles: int = 64
    units_per_cycle: int = 1000
    access_units: int = 1000
    banks: int = 16
    row_bytes: int = 1024
    row_miss_units: int = 0
    row_cycle_units: int = 0
    turnaround_units: int = 0
    refresh_interval_units: int = 0
    refresh_units: int = 0
    throttle_permille: int = 0
    skew_cycles: int = 0
    max_bursts: int = 64
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("channels", "units_per_cycle", "banks", "row_bytes", "max_bursts"):
            if getattr(self, name) < 1:
                raise ConfigError(f"memory {name} = {getattr(self, name)}: use at least 1.")
        if not 0 <= self.throttle_permille < 1000:
            raise ConfigError(f"memory throttle_permille = {self.throttle_permille}: use 0..999.")

    def to_c(self) -> "CMemoryParameters":
        """The same as the C++ side takes it."""
        return CMemoryParameters(**{k: int(v) for k, v in dataclasses.asdict(self).items()})


class CMemoryParameters(ctypes.Structure):
    """hetero::MemoryParameters."""

    _fields_ = [(field.name, ctypes.c_uint32) for field in dataclasses.fields(MemoryTiming)]
