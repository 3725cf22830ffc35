"""Alveo cards: a ``pynq`` Device over XRT's own Python binding, pyxrt.

pynq itself drives Alveo no more (since 3.1). pyxrt starts kernels but reads and writes no
registers, so registers are kept here as shadows: the start bit becomes ``run.start()``, reads of
the control register ask ``run.state()``, addresses become buffer arguments, and the read-only ones
are answered from the build's JSON file (fpga/driver/build_info.py).

Not run on hardware yet. Written against pyxrt.cpp and pyxrt.pyi of Xilinx/XRT, tested with a double
of that interface over the simulated card's kernel. Importing this module imports pynq.
"""

import warnings
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike

from fpga.driver.build_info import BuildInfo, argument_banks, argument_names
from fpga.regmap import registers

with warnings.catch_warnings():
    # Off a board pynq warns about what this machine is not, and setuptools about pynq.
    warnings.simplefilter("ignore")
    from pynq import Overlay
    from pynq.buffer import PynqBuffer
    from pynq.pl_server.device import Device

__all__ = ["AlveoDevice", "Overlay"]

KERNEL_NAME: Final = "draft_card"
INSTANCE_NAME: Final = "draft_card_1"
MIN_BUFFER_BYTES: Final = 8192
"""pynq 4.0.0 allocates no less either: XRT 2.17 maps smaller buffers elsewhere."""

_IDLE: Final = registers.CTRL_IDLE | registers.CTRL_READY
_RUNNING: Final = ("NEW", "QUEUED", "SUBMITTED")


class AlveoMemory:
    """One bank, as pynq's memories look."""

    def __init__(self, device: "AlveoDevice", index: int, size_bytes: int) -> None:
        self._device = device
        self.idx = index
        self.size = size_bytes

    def allocate(self, shape: Any, dtype: DTypeLike, **_options: Any) -> PynqBuffer:
        """A buffer in this bank; RuntimeError, from XRT, when it is full."""
        dimensions = (shape,) if isinstance(shape, int) else tuple(shape)
        size = prod(dimensions) * np.dtype(dtype).itemsize
        bo = self._device.allocate_bo(max(size, MIN_BUFFER_BYTES), self.idx)
        buffer = PynqBuffer(
            dimensions,
            dtype,
            buffer=bo.map()[:size],
            device=self._device,
            device_address=bo.address(),
            bo=bo,
            coherent=False,
        )
        buffer.memory = self
        buffer.pointer = (bo,)
        buffer.return_to = self
        buffer.freed = True  # else pynq would munmap what belongs to XRT
        return buffer

    def return_pointer(self, pointer: tuple[Any]) -> None:
        """pynq gives a freed buffer back; XRT frees it when nobody refers to it."""
        self._device.forget(pointer[0])


class AlveoDevice(Device):  # type: ignore[misc]
    """One card. ``xrt``: the module pyxrt, ``index``: the card's number in ``xbutil examine``.

    It defines no ``_probe_``: pynq's registry never lists it, ``Overlay`` must be given it.
    """

    def __init__(self, xrt: Any, index: int, tag: str) -> None:
        super().__init__(tag)
        self.capabilities = {"REGISTER_RW": True}
        self._xrt = xrt
        self.handle = xrt.device(index)
        self.name = self.handle.get_info(xrt.xrt_info_device.name)
        self._build: BuildInfo | None = None
        self._kernel: Any = None
        self._run: Any = None
        self._words: dict[int, int] = {}
        self._buffers: dict[int, Any] = {}

    # ---- bitstreams

    def get_bitfile_metadata(self, bitfile_name: str, partial: bool = False) -> "Metadata":  # noqa: ARG002
        """What the driver may know of a bitstream before it is loaded."""
        return Metadata(BuildInfo.beside(Path(bitfile_name)))

    def download(self, bitstream: Any, parser: Any = None) -> None:
        """Load an xclbin. RuntimeError when it is wired otherwise than its build file says."""
        path = Path(bitstream.bitfile_name)
        build = BuildInfo.beside(path)
        uuid = self.handle.load_xclbin(str(path))
        kernel = self._xrt.kernel(
            self.handle, uuid, KERNEL_NAME, self._xrt.kernel.cu_access_mode.exclusive
        )
        for position, (name, bank) in enumerate(argument_banks(build).items()):
            group = kernel.group_id(position)
            if group != bank:
                raise RuntimeError(
                    f"{path}: argument {name} is wired to memory {group}, its build file says "
                    f"{bank}. Copy the .json that was written with this .xclbin"
                )
        self._build, self._kernel, self._run = build, kernel, None
        self._words = {registers.CTRL: _IDLE, **build.register_words}
        super().post_download(bitstream, parser)

    def gen_cache(self, bitstream: Any, parser: Any = None) -> None:
        """pynq caches metadata of the bitstreams it parses; ours is read at once."""

    def open_context(self, description: Any, shared: bool = True) -> int:  # noqa: ARG002
        """pynq asks for use of a kernel; XRT's exclusive context was taken with the kernel."""
        return 0

    def release(self) -> None:
        """Give kernel and card back; XRT closes both when nobody refers to them."""
        self._run = self._kernel = self.handle = None
        self._buffers.clear()

    # ---- registers

    def read_registers(self, address: int, length: int) -> bytes:
        """Words of the shadow; the control word asks XRT."""
        words = [self._read(address + i) for i in range(0, length, 4)]
        return b"".join(word.to_bytes(4, "little") for word in words)

    def write_registers(self, address: int, data: bytes) -> None:
        """Words to the shadow; the start bit starts the kernel."""
        raw = bytes(data)
        for i in range(0, len(raw), 4):
            self._write(address + i, int.from_bytes(raw[i : i + 4], "little"))

    def _read(self, offset: int) -> int:
        if offset == registers.CTRL and self._run is not None:
            return self._control()
        return self._words.get(offset, 0)

    def _write(self, offset: int, value: int) -> None:
        if offset != registers.CTRL:
            if offset not in self._fixed:
                self._words[offset] = value
        elif value & registers.CTRL_CONTINUE:
            self._run = None
        elif value & registers.CTRL_START:
            self._start()

    @property
    def _fixed(self) -> dict[int, int]:
        return self._build.register_words if self._build is not None else {}

    def _control(self) -> int:
        state = self._run.state()
        name = str(getattr(state, "name", state)).removeprefix("ERT_CMD_STATE_")
        if name == "COMPLETED":
            return _IDLE | registers.CTRL_DONE
        if name in _RUNNING:
            return 0
        raise RuntimeError(f"XRT reports the kernel's run as {name}; see dmesg and xbutil examine")

    def _start(self) -> None:
        if self._kernel is None or self._build is None:
            raise RuntimeError("no bitstream is loaded")
        run = self._xrt.run(self._kernel)
        for position, name in enumerate(argument_names(len(self._build.port_banks))):
            offset = registers.REGISTERS[name][0]
            address = self._words.get(offset, 0) | self._words.get(offset + 4, 0) << 32
            if address not in self._buffers:
                raise RuntimeError(f"argument {name} = {address:#x}: no buffer of this card")
            run.set_arg(position, self._buffers[address])
        run.start()
        self._run = run

    # ---- memory

    def allocate_bo(self, size_bytes: int, bank: int) -> Any:
        """An XRT buffer object, remembered by its address."""
        bo = self._xrt.bo(self.handle, size_bytes, self._xrt.bo.flags.normal, bank)
        self._buffers[bo.address()] = bo
        return bo

    def forget(self, bo: Any) -> None:
        """The buffer is no argument any more."""
        self._buffers.pop(bo.address(), None)

    def get_memory(self, description: dict[str, Any]) -> AlveoMemory:
        """The memory of a ``mem_dict`` entry."""
        return AlveoMemory(self, description["idx"], description["size"])

    @property
    def default_memory(self) -> AlveoMemory:
        """There is none: every argument has its own bank."""
        raise RuntimeError("an Alveo buffer needs the memory of its argument")

    def flush(self, bo: Any, offset: int, ptr: int, size: int) -> None:  # noqa: ARG002
        """DMA to the card."""
        bo.sync(self._xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE, size, offset)

    def invalidate(self, bo: Any, offset: int, ptr: int, size: int) -> None:  # noqa: ARG002
        """DMA from the card."""
        bo.sync(self._xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE, size, offset)


class Metadata:
    """What pynq's parsers make of a bitstream's metadata, from the build's JSON file."""

    def __init__(self, build: BuildInfo) -> None:
        banks = argument_banks(build)
        self.ip_dict = {INSTANCE_NAME: _ip_entry(banks)}
        self.mem_dict = {f"HBM[{bank}]": _memory_entry(bank, build) for bank in set(banks.values())}
        self.gpio_dict: dict[str, Any] = {}
        self.interrupt_pins: dict[str, Any] = {}
        self.interrupt_controllers: dict[str, Any] = {}
        self.hierarchy_dict: dict[str, Any] = {}
        self.clock_dict: dict[str, Any] = {}
        self.systemgraph = None


def _ip_entry(banks: dict[str, int]) -> dict[str, Any]:
    return {
        "phys_addr": 0,
        "addr_range": registers.SIZE_BYTES,
        "type": registers.VLNV,
        "fullpath": INSTANCE_NAME,
        "registers": {
            name: {
                "address_offset": offset,
                "size": bits,
                "access": access,
                "description": name,
                "type": "void*" if name in banks else "uint",
                "id": None,
                "fields": {},
                "memory": f"HBM[{banks[name]}]" if name in banks else None,
            }
            for name, (offset, bits, access) in registers.REGISTERS.items()
        },
        "streams": {},
        "interrupts": {},
        "gpio": {},
        "parameters": {},
        "state": None,
        "mem_id": None,
    }


def _memory_entry(bank: int, build: BuildInfo) -> dict[str, Any]:
    return {
        "used": 1,
        "base_address": 0,
        "size": build.bank_bytes,
        "type": "MEM_HBM",
        "streaming": False,
        "idx": bank,
        "tag": f"HBM[{bank}]",
    }
