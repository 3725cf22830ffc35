"""A simulated card on which things go wrong as they do on real ones.

``Faults`` may be changed while the card is open. Counts begin when it is made: the first start
of a DraftCard is the empty one with which it checks the card's identity.
"""

import errno
from dataclasses import dataclass, field
from typing import Any

from fpga.driver.buffers import STATUS_SLAVE_ERROR, Command, LaneOutcome, ResultHeader
from fpga.regmap import registers
from sim.bitstream import KERNEL_ADDRESS, KERNEL_NAME, Metadata, SimBitstream
from sim.calib.profile import CardProfile
from sim.device import BufferObject, SimulatedDevice
from sim.kernel import DraftKernel, LoadedProgram, StartError
from sim.memory import DeviceMemory


@dataclass(slots=True, kw_only=True)
class Faults:
    """What is wrong. None, 0, False and empty mean: nothing.

    ``hang_from_start``: this start and all later ones never get done; with ``drains``, a soft
    reset ends that, else the card must be reset.
    ``eio_from_sync``: this DMA and all later ones fail.
    ``lose_flushes``, ``lose_invalidates``: so many next DMAs to or from the card do not happen.
    ``vanished``: gone from the bus. ``busy``: another process has a start running.
    ``slave_error_port``: this memory port answers reads with errors.
    ``wrong_memory``: argument register -> memory that the metadata names instead of the true one.
    ``kernel_vlnv``: what the metadata says our kernel is.
    """

    hang_from_start: int | None = None
    drains: bool = False
    eio_from_sync: int | None = None
    lose_flushes: int = 0
    lose_invalidates: int = 0
    vanished: bool = False
    busy: bool = False
    slave_error_port: int | None = None
    wrong_memory: dict[str, str] = field(default_factory=dict)
    kernel_vlnv: str | None = None


class FaultyDevice(SimulatedDevice):
    """A SimulatedDevice that obeys ``faults``. Counts ``starts`` and ``syncs``."""

    def __init__(self, profile: CardProfile, tag: str, faults: Faults) -> None:
        super().__init__(profile, tag, kernel=self._faulty_kernel)
        self.faults = faults
        self.starts = 0
        self.syncs = 0

    def _faulty_kernel(
        self, bitstream: SimBitstream, profile: CardProfile, memory: DeviceMemory
    ) -> DraftKernel:
        return _FaultyKernel(bitstream, profile, memory, faults=self.faults)

    def get_bitfile_metadata(self, bitfile_name: str, partial: bool = False) -> Metadata:
        """Metadata that may name the wrong memory for an argument."""
        metadata = super().get_bitfile_metadata(bitfile_name, partial)
        if self.faults.kernel_vlnv is not None:
            metadata.ip_dict[KERNEL_NAME]["type"] = self.faults.kernel_vlnv
        for argument, memory in self.faults.wrong_memory.items():
            metadata.ip_dict[KERNEL_NAME]["registers"][argument]["memory"] = memory
        return metadata

    def read_registers(self, address: int, length: int) -> bytes:
        """All ones once the card is gone; never done while it hangs; not idle while busy."""
        if self.faults.vanished:
            return b"\xff" * length
        if address == KERNEL_ADDRESS + registers.CTRL and (self._hangs or self.faults.busy):
            return bytes(length)
        return super().read_registers(address, length)

    def write_registers(self, address: int, data: bytes) -> None:
        """Lost once the card is gone; a start is swallowed while it hangs."""
        is_control = address == KERNEL_ADDRESS + registers.CTRL
        if is_control and data[0] & registers.CTRL_START:
            self.starts += 1
        is_reset = address == KERNEL_ADDRESS + registers.RESET
        if is_reset and self._hangs and self.faults.drains:
            self.faults.hang_from_start = None
        if not self.faults.vanished and not ((is_control or is_reset) and self._hangs):
            super().write_registers(address, data)

    @property
    def _hangs(self) -> bool:
        limit = self.faults.hang_from_start
        return limit is not None and self.starts >= limit

    def flush(self, bo: BufferObject, offset: int, ptr: int, size: int) -> None:
        """DMA to the card, if it happens."""
        self._sync()
        if self.faults.lose_flushes:
            self.faults.lose_flushes -= 1
            return
        super().flush(bo, offset, ptr, size)

    def invalidate(self, bo: BufferObject, offset: int, ptr: int, size: int) -> None:
        """DMA from the card, if it happens."""
        self._sync()
        if self.faults.lose_invalidates:
            self.faults.lose_invalidates -= 1
            return
        super().invalidate(bo, offset, ptr, size)

    def _sync(self) -> None:
        self.syncs += 1
        if self.faults.vanished:
            raise OSError(errno.ENODEV, "No such device")
        limit = self.faults.eio_from_sync
        if limit is not None and self.syncs >= limit:
            raise OSError(errno.EIO, "unable to sync BO: Input/output error")


class _FaultyKernel(DraftKernel):
    def __init__(self, *args: Any, faults: Faults) -> None:
        super().__init__(*args)
        self._faults = faults

    def execute(
        self, command: Command, program: LoadedProgram, header: ResultHeader
    ) -> tuple[ResultHeader, tuple[LaneOutcome, ...]]:
        port = self._faults.slave_error_port
        if port is not None:
            raise StartError(STATUS_SLAVE_ERROR, port)
        return super().execute(command, program, header)
