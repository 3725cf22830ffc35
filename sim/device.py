"""The simulated card as a ``pynq`` Device. Everything above it is pynq itself and our driver.

Works with pynq 3.1.2 and 4.0.0, whose Device, PynqBuffer and MMIO are the same. It defines no
``_probe_``: pynq's registry never lists it, so that ``Overlay`` and ``allocate`` must be given it,
and several can live in one process. Importing this module imports pynq.
"""

import warnings
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from sim.bitstream import KERNEL_ADDRESS, Metadata, SimBitstream
from sim.calib.profile import CardProfile
from sim.kernel import DraftKernel
from sim.memory import Bank, Block, DeviceMemory, ddr_bank, hbm_banks

with warnings.catch_warnings():
    # Off a board pynq warns about what this machine is not, and setuptools about pynq.
    warnings.simplefilter("ignore")
    from pynq.buffer import PynqBuffer
    from pynq.pl_server.device import Device


class Kernel(Protocol):
    """What a bitstream puts behind the registers. A start runs inside the write that asks."""

    def read(self, offset: int) -> int:
        """A 32-bit register; what is not there reads 0."""

    def write(self, offset: int, value: int) -> None:
        """A 32-bit register; RuntimeError, as pynq raises it, when the hardware misbehaves."""


KernelFactory = Callable[[SimBitstream, CardProfile, DeviceMemory], Kernel]


class BufferObject:
    """Both sides of a buffer, as XRT's ``bo``. ``host``: uint8, what PynqBuffer shows."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.host: NDArray[np.uint8] = np.zeros(block.size_bytes, dtype=np.uint8)


class SimMemory:
    """One bank, as pynq's memories look: a target for ``pynq.allocate``."""

    def __init__(self, device: "SimulatedDevice", bank: Bank) -> None:
        self._device = device
        self._bank = bank
        self.idx = bank.index
        self.base_address = bank.base_address
        self.size = bank.size_bytes

    def allocate(self, shape: Any, dtype: DTypeLike, **_options: Any) -> PynqBuffer:
        """A buffer in this bank; RuntimeError when it is full."""
        dimensions = (shape,) if isinstance(shape, int) else tuple(shape)
        size = prod(dimensions) * np.dtype(dtype).itemsize
        buffer_object = BufferObject(self._device.card_memory.allocate(self._bank, size))
        buffer = PynqBuffer(
            dimensions,
            dtype,
            buffer=buffer_object.host,
            device=self._device,
            device_address=buffer_object.block.address,
            bo=buffer_object,
            coherent=False,
        )
        buffer.memory = self
        buffer.pointer = (buffer_object,)
        buffer.return_to = self
        buffer.freed = True  # else pynq would munmap memory that is Python's
        return buffer

    def return_pointer(self, pointer: tuple[BufferObject]) -> None:
        """pynq gives a freed buffer back."""
        self._device.card_memory.free(pointer[0].block)


class SimulatedDevice(Device):  # type: ignore[misc]
    """One card. ``tag`` must be unique among those alive, as pynq asks."""

    def __init__(
        self, profile: CardProfile, tag: str, *, kernel: KernelFactory = DraftKernel
    ) -> None:
        super().__init__(tag)
        self.capabilities = {"REGISTER_RW": True}
        self.name = profile.title
        self.profile = profile
        memory = profile.memory
        self.banks = (
            hbm_banks(memory.banks, memory.bank_bytes)
            if memory.kind == "hbm"
            else ddr_bank(memory.bank_bytes)
        )
        self.card_memory = DeviceMemory(self.banks)
        self._make_kernel = kernel
        self._kernel: Kernel | None = None

    # ---- bitstreams

    def get_bitfile_metadata(self, bitfile_name: str, partial: bool = False) -> Metadata:  # noqa: ARG002
        """What the driver may know of a bitstream before it is loaded."""
        return Metadata(SimBitstream.read(Path(bitfile_name)), self.banks)

    def download(self, bitstream: Any, parser: Any = None) -> None:
        """Load a bitstream; RuntimeError when it was built for another card."""
        loaded = SimBitstream.read(Path(bitstream.bitfile_name))
        if loaded.device != self.profile.name:
            raise RuntimeError(
                f"load axlf failed err=-95: Shell does not match (bitstream for {loaded.device}, "
                f"card is {self.profile.name})"
            )
        self._kernel = self._make_kernel(loaded, self.profile, self.card_memory)
        super().post_download(bitstream, parser)

    def gen_cache(self, bitstream: Any, parser: Any = None) -> None:
        """pynq caches metadata of real bitstreams; ours is read at once."""

    def open_context(self, description: Any, shared: bool = True) -> int:  # noqa: ARG002
        """pynq asks for exclusive use of a kernel; there is one."""
        return 0

    def release(self) -> None:
        """Forget the bitstream and with it what it unpacked from card memory."""
        self._kernel = None

    # ---- registers

    def read_registers(self, address: int, length: int) -> bytes:
        """Words at an absolute address."""
        kernel, offset = self._at(address)
        words = [kernel.read(offset + i) for i in range(0, length, 4)]
        return b"".join(word.to_bytes(4, "little") for word in words)

    def write_registers(self, address: int, data: bytes) -> None:
        """Words to an absolute address."""
        kernel, offset = self._at(address)
        raw = bytes(data)
        for i in range(0, len(raw), 4):
            kernel.write(offset + i, int.from_bytes(raw[i : i + 4], "little"))

    def _at(self, address: int) -> tuple[Kernel, int]:
        if self._kernel is None:
            raise RuntimeError("no bitstream is loaded")
        return self._kernel, address - KERNEL_ADDRESS

    # ---- memory

    def get_memory(self, description: dict[str, Any]) -> SimMemory:
        """The memory of a ``mem_dict`` entry."""
        return SimMemory(self, self.banks[description["idx"]])

    def get_memory_by_idx(self, idx: int) -> SimMemory:
        """The memory of that index."""
        return SimMemory(self, self.banks[idx])

    @property
    def default_memory(self) -> SimMemory:
        """Where ``allocate`` goes without a target; RuntimeError when that is ambiguous."""
        if len(self.banks) > 1:
            raise RuntimeError(
                "Multiple memories active in design: specify the memory using the `target` "
                "parameters"
            )
        return SimMemory(self, self.banks[0])

    def flush(self, bo: BufferObject, offset: int, ptr: int, size: int) -> None:  # noqa: ARG002
        """DMA to the card."""
        self.card_memory.host_write(bo.block, offset, bo.host[offset : offset + size])

    def invalidate(self, bo: BufferObject, offset: int, ptr: int, size: int) -> None:  # noqa: ARG002
        """DMA from the card."""
        bo.host[offset : offset + size] = self.card_memory.read(bo.block.address + offset, size)
