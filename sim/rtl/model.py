"""The built library through ctypes: one card's registers and clock."""

import ctypes
from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetero.core.errors import CardError
from sim.rtl.parameters import MemoryTiming

_U32, _U64, _PTR, _INT = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int


class Outcome(IntEnum):
    """How a run ended."""

    LIMIT = 0
    DONE = 1
    STALLED = 2
    FINISHED = 3


class Reach(NamedTuple):
    """The addresses [low, high) that a port's memory has; others answer DECERR."""

    low: int
    high: int


class RtlModel:
    """One card. ``memory``: what all ports see, uint8, shared and not copied. Not thread-safe.

    Two models of one library are independent. CardError when a port gets no memory.
    """

    def __init__(
        self,
        library: Path,
        memory: NDArray[np.uint8],
        reach: Sequence[Reach],
        timing: MemoryTiming,
    ) -> None:
        self._library = _load(library)
        ports = int(self._library.card_ports())
        if len(reach) != ports:
            raise CardError(f"rtl card: {len(reach)} memories for {ports} ports. Name one a port.")
        self._memory = memory
        low = (_U64 * ports)(*(r.low for r in reach))
        high = (_U64 * ports)(*(r.high for r in reach))
        parameters = timing.to_c()
        self._card = _PTR(
            self._library.card_open(
                memory.ctypes.data_as(_PTR), low, high, ctypes.byref(parameters)
            )
        )
        self._trace: NDArray[np.uint32] | None = None

    def close(self) -> None:
        """Free it. Idempotent; nothing else may be called afterwards."""
        if self._card:
            self._library.card_close(self._card)
            self._card = _PTR()

    def read(self, offset: int) -> int:
        """A register, over AXI-Lite."""
        value = _U32()
        if not self._library.card_read(self._card, offset, ctypes.byref(value)):
            raise CardError(f"rtl card: no answer to a read of register {offset:#x}.")
        return value.value

    def write(self, offset: int, value: int) -> None:
        """A register, over AXI-Lite."""
        if not self._library.card_write(self._card, offset, value):
            raise CardError(f"rtl card: no answer to a write of register {offset:#x}.")

    def run(self, *, max_cycles: int, stall_cycles: int) -> Outcome:
        """Clock it until DONE is set. STALLED: no transfer on any port for ``stall_cycles``."""
        return Outcome(self._library.card_run(self._card, max_cycles, stall_cycles))

    def reset(self) -> None:
        """Pull ap_rst_n."""
        self._library.card_reset(self._card)

    @property
    def cycle(self) -> int:
        """Clock cycles so far, resets and register accesses included."""
        return int(self._library.card_cycle(self._card))

    @property
    def beats(self) -> tuple[int, int]:
        """Beats of a port's width read and written so far, all ports together."""
        library = self._library
        return int(library.card_read_beats(self._card)), int(library.card_written_beats(self._card))

    @property
    def complaint(self) -> str:
        """First violation of AXI by the card, or empty."""
        text: bytes = self._library.card_complaint(self._card)
        return text.decode()

    def start_trace(self, max_cycles: int) -> None:
        """Keep trace_busy and trace_op of the next cycles."""
        self._trace = np.zeros((max_cycles, 2), dtype=np.uint32)
        self._library.card_trace(self._card, self._trace.ctypes.data_as(_PTR), max_cycles)

    def end_trace(self) -> NDArray[np.uint32]:
        """uint32 [cycles, (busy, op)] since ``start_trace``."""
        assert self._trace is not None
        trace = self._trace[: self._library.card_traced(self._card)]
        self._library.card_trace(self._card, None, 0)
        self._trace = None
        return trace

    def coverage(self) -> dict[str, int]:
        """Counters of a build with checks: how often what is worth testing has happened."""
        text: bytes = self._library.card_coverage(self._card)
        pairs = (line.rsplit(" ", 1) for line in text.decode().splitlines())
        names = {"TOP.": "", "__BRA__": "[", "__KET__": "]"}
        return {_replaced(name, names): int(count) for name, count in pairs}

    def peek(self, name: str, index: int | None = None, *, max_words: int = 64) -> int:
        """A signal, or a word of a memory, of a debug build: ``draft_card.g_lane[0].signal``.

        KeyError for a name that is not there.
        """
        mangled = name.replace("[", "__BRA__").replace("]", "__KET__")
        words = (_U32 * max_words)()
        where = -1 if index is None else index
        count = self._library.card_peek(
            self._card, f"TOP.{mangled}".encode(), where, words, max_words
        )
        if count < 0:
            raise KeyError(name)
        return int.from_bytes(bytes(words)[: 4 * count], "little")

    def waves(self, path: Path | None) -> None:
        """Write a VCD of all signals from now on (debug build); None ends it."""
        self._library.card_waves(self._card, None if path is None else str(path).encode())

    def hang(self, port: int, *, hung: bool = True) -> None:
        """Let a port answer nothing any more."""
        self._library.card_hang(self._card, port, int(hung))

    def fail_at(self, port: int, address: int) -> None:
        """Let accesses of a port to the beat of this byte end with SLVERR."""
        self._library.card_slave_error(self._card, port, address)


def _replaced(text: str, words: Mapping[str, str]) -> str:
    for old, new in words.items():
        text = text.replace(old, new)
    return text


def _load(path: Path) -> Any:
    library = ctypes.CDLL(str(path))
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "card_ports": (_U32, []),
        "card_port_bytes": (_U32, []),
        "card_open": (_PTR, [_PTR, _PTR, _PTR, _PTR]),
        "card_close": (None, [_PTR]),
        "card_read": (_INT, [_PTR, _U32, _PTR]),
        "card_write": (_INT, [_PTR, _U32, _U32]),
        "card_run": (_INT, [_PTR, _U64, _U64]),
        "card_reset": (None, [_PTR]),
        "card_cycle": (_U64, [_PTR]),
        "card_complaint": (ctypes.c_char_p, [_PTR]),
        "card_read_beats": (_U64, [_PTR]),
        "card_written_beats": (_U64, [_PTR]),
        "card_trace": (None, [_PTR, _PTR, _U64]),
        "card_traced": (_U64, [_PTR]),
        "card_hang": (None, [_PTR, _U32, _INT]),
        "card_slave_error": (None, [_PTR, _U32, _U64]),
    }
    if hasattr(library, "card_coverage"):
        signatures["card_coverage"] = (ctypes.c_char_p, [_PTR])
    debug_signatures: dict[str, tuple[Any, list[Any]]] = {
        "card_peek": (_INT, [_PTR, ctypes.c_char_p, ctypes.c_int64, _PTR, _INT]),
        "card_waves": (None, [_PTR, ctypes.c_char_p]),
    }
    if hasattr(library, "card_peek"):
        signatures |= debug_signatures
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
