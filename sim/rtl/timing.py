"""The memory around the RTL: ideal, or with the timing of a card's own kind of memory."""

import sys
from pathlib import Path
from typing import Any, Final

from hetero.core.errors import ConfigError
from sim.calib.profile import CardProfile
from sim.rtl.parameters import MemoryTiming

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DRAM_FILE: Final = Path(__file__).with_name("dram.toml")
UNITS_PER_CYCLE: Final = 1000
ACCESS_BYTES: Final = 64


def ideal_timing(profile: CardProfile) -> MemoryTiming:
    """The card's latency, and a beat a cycle on every port."""
    return MemoryTiming(latency_cycles=profile.memory.latency_cycles)


def dram_timing(profile: CardProfile, *, ports: int) -> MemoryTiming:
    """Banks, rows, refresh and rate of the card's memory.

    Ports have a channel each as far as the card has memories, so HBM ports do not disturb each
    other and DDR ports share one. A transfer is as much slower than at peak rate as it takes for
    a long read to sustain the card's ``ceiling``, refresh included: what measurements of real
    memories lose beyond that. ConfigError for a constant without source.
    """
    dram = _dram(profile.memory.kind)

    def units(ns: float) -> int:
        return round(ns * 1e-9 * profile.kernel.clock_hz * UNITS_PER_CYCLE)

    channels = min(profile.memory.banks, ports)
    channel_bytes_per_s = profile.memory.peak_bytes_per_s / profile.memory.banks
    access_ns = ACCESS_BYTES / channel_bytes_per_s * 1e9
    # An access that has begun when refresh is due is let through.
    open_share = 1 - (dram["refresh_ns"] - access_ns) / dram["refresh_interval_ns"]
    return MemoryTiming(
        is_banked=True,
        channels=channels,
        latency_cycles=profile.memory.latency_cycles,
        units_per_cycle=UNITS_PER_CYCLE,
        access_units=units(access_ns * max(1.0, open_share / profile.memory.ceiling)),
        banks=int(dram["banks"]),
        row_bytes=int(dram["row_bytes"]),
        row_miss_units=units(dram["close_ns"] + dram["open_ns"]),
        row_cycle_units=units(dram["row_cycle_ns"]),
        turnaround_units=units(dram["turnaround_ns"]),
        refresh_interval_units=units(dram["refresh_interval_ns"]),
        refresh_units=units(dram["refresh_ns"]),
    )


def _dram(kind: str) -> dict[str, float]:
    document: dict[str, dict[str, Any]] = tomllib.loads(DRAM_FILE.read_text(encoding="utf-8"))
    for name, entry in document[kind].items():
        if not entry.get("source"):
            raise ConfigError(
                f"{DRAM_FILE.name}: {kind}.{name} has no source. Say where it is from."
            )
    return {name: entry["value"] for name, entry in document[kind].items()}
