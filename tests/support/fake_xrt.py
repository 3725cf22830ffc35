"""A double of XRT's Python binding, as far as pyxrt.pyi of Xilinx/XRT describes it.

Below it works the simulated card's kernel, so that a whole card can be driven through it. Like
XRT, a buffer has a host side and a card side that only ``sync`` brings together.
"""

from enum import Enum

import numpy as np

from fpga.regmap import registers
from sim.bitstream import SimBitstream
from sim.calib.profile import load_profile
from sim.kernel import DraftKernel
from sim.memory import DeviceMemory, hbm_banks

State = Enum(
    "ert_cmd_state",
    "ERT_CMD_STATE_NEW ERT_CMD_STATE_COMPLETED ERT_CMD_STATE_ERROR ERT_CMD_STATE_SUBMITTED",
)


class FakeXrt:
    """Stands for the module. ``group_offset``: what an xclbin of another wiring would report."""

    class xclBOSyncDirection(Enum):
        XCL_BO_SYNC_BO_TO_DEVICE = 0
        XCL_BO_SYNC_BO_FROM_DEVICE = 1

    class xrt_info_device(Enum):
        name = 0

    ert_cmd_state = State

    def __init__(self, card="u55c", *, polls=1, final=State.ERT_CMD_STATE_COMPLETED):
        self.profile = load_profile(card)
        self.bitstream = SimBitstream.for_card(self.profile)
        self.banks = hbm_banks(self.profile.memory.banks, self.profile.memory.bank_bytes)
        self.memory = DeviceMemory(self.banks)
        self.polls, self.final = polls, final
        self.group_offset = 0
        self.live_buffers = 0
        self.kernel = _kernel_type(self)
        self.bo = _bo_type(self)

    def device(self, index):
        if index != 0:
            raise RuntimeError(f"No such device with index '{index}'")
        return _Device(self)

    def run(self, kernel):
        return _Run(self)


class _Device:
    def __init__(self, xrt):
        self._xrt = xrt

    def get_info(self, key):
        return "xilinx_u55c_gen3x16_xdma_base_3"

    def load_xclbin(self, path):
        self._xrt.card = DraftKernel(self._xrt.bitstream, self._xrt.profile, self._xrt.memory)
        return "uuid"


def _kernel_type(xrt):
    class Kernel:
        cu_access_mode = Enum("cu_access_mode", "exclusive shared none")

        def __init__(self, device, uuid, name, mode):
            if name != "draft_card":
                raise RuntimeError(f"No such kernel '{name}'")

        def group_id(self, index):
            ports = xrt.bitstream.port_banks
            return (0 if index < 3 else ports[(index - 3) % len(ports)]) + xrt.group_offset

    return Kernel


def _bo_type(xrt):
    class Buffer:
        flags = Enum("flags", "normal cacheable device_only")

        def __init__(self, device, size, flags, group):
            self._block = xrt.memory.allocate(xrt.banks[group], size)
            self._host = np.zeros(size, dtype=np.uint8)
            xrt.live_buffers += 1

        def __del__(self):
            xrt.live_buffers -= 1

        def map(self):
            return memoryview(self._host)

        def address(self):
            return self._block.address

        def sync(self, direction, size, offset):
            if direction is FakeXrt.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE:
                xrt.memory.host_write(self._block, offset, self._host[offset : offset + size])
            else:
                self._host[offset : offset + size] = xrt.memory.read(
                    self._block.address + offset, size
                )

    return Buffer


class _Run:
    def __init__(self, xrt):
        self._xrt = xrt
        self._polls = xrt.polls
        self._arguments = {}

    def set_arg(self, index, bo):
        self._arguments[index] = bo.address()

    def start(self):
        ports = len(self._xrt.bitstream.port_banks)
        assert sorted(self._arguments) == list(range(3 + 2 * ports))
        for index, address in self._arguments.items():
            self._write(self._offset(index, ports), address)
        if self._xrt.final is State.ERT_CMD_STATE_COMPLETED:
            self._xrt.card.write(registers.CTRL, registers.CTRL_START)
            self._xrt.card.write(registers.CTRL, registers.CTRL_CONTINUE)

    def state(self):
        self._polls -= 1
        return State.ERT_CMD_STATE_SUBMITTED if self._polls >= 0 else self._xrt.final

    def _write(self, offset, address):
        self._xrt.card.write(offset, address & 0xFFFFFFFF)
        self._xrt.card.write(offset + 4, address >> 32)

    def _offset(self, index, ports):
        shared = (registers.COMMAND_ADDR, registers.RESULT_ADDR, registers.PROGRAM_ADDR)
        if index < 3:
            return shared[index]
        kind, port = divmod(index - 3, ports)
        return (registers.WEIGHT_ADDR, registers.KV_ADDR)[kind] + 8 * port
