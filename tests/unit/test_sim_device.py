"""The simulated card behind pynq's own Overlay, allocate and MMIO."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga.regmap import registers
from sim.bitstream import SimBitstream
from sim.calib.profile import load_profile
from sim.memory import DeviceMemory, hbm_banks

KIB = 1024


@pytest.fixture
def device():
    from sim.device import SimulatedDevice

    return SimulatedDevice(load_profile("u55c"), "test-device")


@pytest.fixture
def overlay(device):
    from sim.open_card import load_overlay

    return load_overlay(device, SimBitstream.for_card(device.profile))


def test_copies_stay_stale_until_synchronised(overlay, device):
    from pynq import allocate

    buffer = allocate((4,), "u4", target=overlay.HBM3)
    assert device.card_memory.block_at(buffer.device_address).bank.name == "HBM[3]"
    buffer[:] = [1, 2, 3, 4]
    card_side = device.card_memory.read(buffer.device_address, 16).view("u4")
    assert list(card_side) == [0, 0, 0, 0]
    buffer.sync_to_device()
    assert list(card_side) == [1, 2, 3, 4]
    card_side[:] = 9
    assert list(buffer) == [1, 2, 3, 4]
    buffer.sync_from_device()
    assert list(buffer) == [9, 9, 9, 9]
    buffer.freebuffer()


def test_a_slice_synchronises_its_own_bytes_only(overlay, device):
    from pynq import allocate

    with allocate((8,), "u4", target=overlay.HBM0) as buffer:
        buffer[:] = 7
        buffer[2:4].flush()
        card_side = device.card_memory.read(buffer.device_address, 32).view("u4")
        assert list(card_side) == [0, 0, 7, 7, 0, 0, 0, 0]
    assert device.card_memory.num_blocks == 0


def test_a_buffer_that_goes_out_of_scope_is_freed(overlay, device):
    from pynq import allocate

    buffer = allocate((8,), "u4", target=overlay.HBM0)
    view = buffer[2:]
    assert device.card_memory.num_blocks == 1
    del view, buffer
    assert device.card_memory.num_blocks == 0


def test_register_map_and_mmio_see_the_same_kernel(overlay):
    ip = overlay.draft_card_1
    assert int(ip.register_map.TYPE) == registers.TYPE_ID
    assert ip.mmio.read(registers.TYPE) == registers.TYPE_ID
    ip.mmio.write(registers.RESULT_ADDR, 0x1234)
    ip.write(registers.RESULT_ADDR + 4, 0x5)
    assert int(ip.register_map.RESULT_ADDR) == 0x5_0000_1234
    ip.write(registers.TYPE, 1)  # read-only: ignored, as on the bus
    assert ip.read(registers.TYPE) == registers.TYPE_ID


def test_control_follows_ap_ctrl_chain(overlay):
    ip = overlay.draft_card_1
    assert ip.read(registers.CTRL) == registers.CTRL_IDLE | registers.CTRL_READY
    ip.write(registers.IER, registers.IER_DONE)
    ip.write(registers.CTRL, registers.CTRL_START)
    for _ in range(2):  # DONE stays until it is acknowledged
        assert ip.read(registers.CTRL) & registers.CTRL_DONE
    assert ip.read(registers.ISR) == registers.ISR_DONE
    ip.write(registers.ISR, registers.ISR_DONE)
    assert ip.read(registers.ISR) == 0
    ip.write(registers.CTRL, registers.CTRL_START)  # kept until DONE is acknowledged
    assert ip.read(registers.CTRL) == registers.CTRL_START | registers.CTRL_DONE
    assert ip.read(registers.ISR) == 0
    ip.write(registers.CTRL, registers.CTRL_CONTINUE)
    assert ip.read(registers.ISR) == registers.ISR_DONE
    ip.write(registers.CTRL, registers.CTRL_CONTINUE)
    assert not ip.read(registers.CTRL) & registers.CTRL_DONE


def test_a_soft_reset_forgets_starts_and_says_so(overlay):
    ip = overlay.draft_card_1
    ip.write(registers.CTRL, registers.CTRL_START)
    ip.write(registers.CTRL, registers.CTRL_START)
    ip.write(registers.RESET, registers.RESET_DRAIN)
    assert ip.read(registers.RESET) == registers.RESET_DRAINED
    assert ip.read(registers.CTRL) == registers.CTRL_IDLE | registers.CTRL_READY
    ip.write(registers.CTRL, registers.CTRL_START)
    assert ip.read(registers.RESET) == 0


def test_a_card_with_several_banks_wants_a_target(overlay, device):
    with pytest.raises(RuntimeError, match="Multiple memories"):
        device.allocate((4,), "u4")


def test_registers_without_a_bitstream_are_an_error(device):
    with pytest.raises(RuntimeError, match="no bitstream"):
        device.read_registers(0xA000_0000, 4)


# ---- memory

BANK = 64 * KIB
SIZES = st.lists(st.tuples(st.integers(1, 3 * 4 * KIB), st.booleans()), max_size=40)


@given(SIZES)
def test_blocks_never_overlap_and_freed_room_is_used_again(steps):
    memory = DeviceMemory(hbm_banks(2, BANK))
    bank, blocks = memory.banks[1], []
    for size, free_first in steps:
        if free_first and blocks:
            memory.free(blocks.pop(size % len(blocks)))
        try:
            blocks.append(memory.allocate(bank, size))
        except RuntimeError:
            assert memory.used_bytes > 0
        spans = sorted((b.address, b.address + b.size_bytes) for b in blocks)
        assert all(bank.base_address <= low < high <= bank.end for low, high in spans)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
        assert memory.num_blocks == len(blocks)
    for block in blocks:
        memory.free(block)
    assert memory.allocate(bank, BANK).address == bank.base_address


def test_freed_memory_loses_its_content():
    memory = DeviceMemory(hbm_banks(1, BANK))
    block = memory.allocate(memory.banks[0], 5000)
    memory.write(block.address, np.full(5000, 3, dtype=np.uint8))
    memory.free(block)
    assert not memory.data.any()


def test_every_host_write_gets_its_own_generation():
    memory = DeviceMemory(hbm_banks(1, BANK))
    seen = set()
    for _ in range(3):
        block = memory.allocate(memory.banks[0], 64)
        memory.host_write(block, 0, np.zeros(64, dtype=np.uint8))
        seen.add((block.address, block.generation))
        memory.free(block)
    assert len(seen) == 3
