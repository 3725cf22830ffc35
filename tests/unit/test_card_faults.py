"""What goes wrong on real cards ends as one CardError that says what to do.

Each fault was met by somebody; the docstrings say where.
"""

import re

import numpy as np
import pytest

from fpga.driver.driver import CardIdentity, DraftCard, DriverConfig
from fpga.driver.kernel_port import WaitPolicy
from fpga.program.artefact import load_artefact
from fpga.program.build import build_artefact
from fpga.program.link import link_program
from hetero.core.errors import CardError, CardTimeoutError, ConfigError
from hetero.core.types import LaneWork

SLOTS = 3


class Clock:
    """Ten seconds pass with each look."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 10.0
        return self.now


@pytest.fixture(scope="module")
def artefact_path(tiny_checkpoint, tmp_path_factory):
    out = tmp_path_factory.mktemp("draft") / "tiny"
    build_artefact(tiny_checkpoint, out, target_tokenizer_sha256="cd" * 32)
    return out


@pytest.fixture
def bench(artefact_path):
    """Makes (device, config) pairs; the device obeys the faults given."""
    from sim.calib.profile import load_profile
    from sim.faults import Faults, FaultyDevice
    from sim.open_card import SimCardConfig, open_on

    class Bench:
        def device(self, name="u55c", **faults):
            return FaultyDevice(load_profile(name), f"test-{name}", Faults(**faults))

        def open(self, device, **changes):
            wait = WaitPolicy(timeout_s=30.0, clock=Clock(), sleep=lambda _: None)
            values = dict(num_slots=SLOTS, max_context_tokens=64, warm_up=False, wait=wait)
            config = SimCardConfig(
                device=device.profile.name, artefact_path=artefact_path, **{**values, **changes}
            )
            return open_on(device, config)

    return Bench()


def work(slot=0, **changes):
    values = dict(
        slot=slot, start=0, token_ids=(1, 2, 3), num_draft_tokens=3, output_index=0, seed=4,
        choice_index=0, temperature=0.6,
    )  # fmt: skip
    return LaneWork(**{**values, **changes})


def test_a_start_that_never_ends_times_out(bench):
    """Xilinx/XRT#7863: kernel.wait() times out after many thousand good calls."""
    device = bench.device(hang_from_start=4)
    card = bench.open(device)
    card.run([work()])
    card.run([work()])
    with pytest.raises(CardTimeoutError, match=r"not done 30 s.*did not drain.*must be reset"):
        card.run([work()])
    with pytest.raises(CardError):
        card.run([work()])


def test_a_card_that_drains_can_be_used_again(bench):
    device = bench.device(hang_from_start=2, drains=True)
    card = bench.open(device)
    with pytest.raises(CardTimeoutError, match=r"not done 30 s.*can be used again"):
        card.run([work()])
    assert card.run([work()]).lanes == bench.open(bench.device()).run([work()]).lanes


def test_a_start_that_ends_late_is_forgotten(bench):
    """The next start acknowledges it and gets its own result."""
    device = bench.device()
    card = bench.open(device)
    expected = card.run([work()]).lanes
    device.faults.busy = True  # CTRL reads 0: the start runs, but nobody sees it end
    with pytest.raises(CardError):
        card.run([work(seed=99)])
    device.faults.busy = False
    assert card.run([work()]).lanes == expected


def test_dma_that_fails_is_named(bench):
    """Xilinx/XRT#6787, #6104 and spcl/gemm_hls#32: unable to sync BO: Input/output error."""
    device = bench.device()
    card = bench.open(device)
    device.faults.eio_from_sync = device.syncs + 1
    with pytest.raises(CardError, match=r"DMA of the command buffer to the card.*Input/output"):
        card.run([work()])
    device.faults.eio_from_sync = device.syncs + 2
    with pytest.raises(CardError, match="DMA of the result buffer from the card"):
        card.run([work()])


def test_dma_that_fails_while_loading_leaves_no_buffer(bench):
    device = bench.device(eio_from_sync=3)
    with pytest.raises(CardError, match="DMA of WEIGHT_ADDR_1"):
        bench.open(device)
    assert device.card_memory.num_blocks == 0


def test_a_card_that_vanishes_is_said_to_be_gone(bench):
    """Xilinx/XRT PR #2321 and PR #5497: offline after a firewall trip, until a warm reboot."""
    device = bench.device()
    card = bench.open(device)
    device.faults.vanished = True
    with pytest.raises(CardError, match="No such device"):
        card.run([work()])
    card.close()
    assert device.card_memory.num_blocks == 0


def test_registers_of_a_vanished_card_read_all_ones(bench):
    device = bench.device()
    card = bench.open(device)
    device.faults.vanished = True
    with pytest.raises(CardError, match="gone from the bus"):
        card._port.start_and_wait()
    with pytest.raises(CardError, match="type is 0xffffffff"):
        card._port.identify()


def test_a_lost_flush_never_gives_an_old_answer(bench):
    """Without the sync the card sees the command of the start before."""
    device = bench.device()
    card = bench.open(device)
    expected = card.run([work()]).lanes
    device.faults.lose_flushes = 1
    with pytest.raises(CardError, match="synchronisation was lost"):
        card.run([work(seed=99)])
    assert card.run([work()]).lanes == expected


def test_a_lost_invalidate_never_gives_an_old_answer(bench):
    device = bench.device()
    card = bench.open(device)
    card.run([work()])
    device.faults.lose_invalidates = 1
    with pytest.raises(CardError, match="synchronisation was lost"):
        card.run([work(seed=99)])


def test_a_lost_flush_of_the_program_is_noticed_at_once(bench):
    with pytest.raises(CardError, match="program it read is damaged"):
        bench.open(bench.device(lose_flushes=1))


def test_the_wrong_bank_is_an_address_error(bench):
    """Xilinx/PYNQ#1370: metadata shows HBM[5] where the port is wired to HBM[0:5]."""
    device = bench.device(wrong_memory={"WEIGHT_ADDR_3": "HBM[5]"})
    with pytest.raises(CardError, match=r"memory port 3 cannot reach .*DECERR"):
        bench.open(device)
    assert device.card_memory.num_blocks == 0


def test_a_memory_that_the_shell_lacks_is_named(bench):
    """Xilinx/PYNQ-HelloWorld PR #14: memory names differ from shell to shell."""
    device = bench.device(wrong_memory={"COMMAND_ADDR": "bank0"})
    with pytest.raises(CardError, match=r"COMMAND_ADDR in bank0.*Could not find"):
        bench.open(device)


def test_a_memory_error_names_the_port(bench):
    """AXI SLVERR, what an uncorrectable ECC error gives."""
    device = bench.device()
    card = bench.open(device)
    device.faults.slave_error_port = 7
    with pytest.raises(CardError, match=r"memory port 7 .*SLVERR"):
        card.run([work()])


def test_a_buffer_larger_than_a_bank_is_refused(bench):
    """Xtra-Computing/ThunderGP#12: std::bad_alloc beyond one bank of 256 MB."""
    device = bench.device("u280")
    with pytest.raises(CardError, match=r"KV_ADDR_0 in HBM\[0\].*holds 256 MiB.*fewer slots"):
        bench.open(device, num_slots=600_000)
    assert device.card_memory.num_blocks == 0


def test_a_full_bank_is_refused(bench):
    device = bench.device("u280")
    device.card_memory.allocate(device.banks[4], 255 << 20)
    with pytest.raises(CardError, match=r"KV_ADDR_4 in HBM\[4\].*bad_alloc"):
        bench.open(device, num_slots=10_000)


def test_a_busy_card_is_not_started(bench):
    """Xilinx/XRT#6829: two processes, unclear rules."""
    device = bench.device()
    card = bench.open(device)
    device.faults.busy = True
    starts = device.starts
    with pytest.raises(CardError, match="busy with a start that is not ours"):
        card.run([work()])
    assert device.starts == starts


def load(onto, **changes):
    from dataclasses import replace

    from sim.bitstream import SimBitstream
    from sim.open_card import load_overlay

    bitstream = replace(SimBitstream.for_card(onto.profile), **changes)
    return load_overlay(onto, bitstream)


def test_a_bitstream_for_another_shell_is_refused(bench):
    """Xilinx/Vitis-Tutorials#106, Xilinx/XRT#3818: the user sees err=-95 only."""
    with pytest.raises(CardError, match=r"Shell does not match \(bitstream for u50, card"):
        load(bench.device(), device="u50")


@pytest.mark.parametrize(
    "changes, what",
    [({"isa_version": 99}, "instruction set"), ({"arithmetic_version": 99}, "arithmetic")],
)
def test_a_bitstream_of_another_version_is_refused_by_name(bench, artefact_path, changes, what):
    overlay = load(bench.device(), **changes)
    with pytest.raises(CardError, match=f"{what} is 0x63.*Load the bitstream"):
        open_card(overlay, artefact_path)


def test_a_bitstream_of_another_interface_is_refused_by_name(bench, artefact_path):
    """Registers and buffers of version 1 look alike but mean something else."""
    from fpga.regmap import registers

    overlay = load(bench.device())
    overlay.device._kernel._words[registers.VERSION] = 1
    with pytest.raises(CardError, match=r"interface version is 0x1, this .*Load the bitstream"):
        open_card(overlay, artefact_path)


def test_a_draft_linked_for_another_number_of_ports_is_refused(bench, artefact_path, monkeypatch):
    from fpga.driver import driver

    monkeypatch.setattr(driver, "link_program", lambda draft, _: link_program(draft, 16))
    with pytest.raises(CardError, match="linked for another number of memory ports"):
        bench.open(bench.device("kv260"))


@pytest.mark.parametrize("num_ports", [3, 64])
def test_a_bitstream_with_an_odd_number_of_ports_is_refused(bench, artefact_path, num_ports):
    overlay = load(bench.device(), port_banks=tuple(i % 32 for i in range(num_ports)))
    with pytest.raises(ConfigError, match=f"{num_ports}"):
        open_card(overlay, artefact_path)


def open_card(overlay, artefact_path):
    identity = CardIdentity(device="u55c", backend="test", simulated=True)
    return DraftCard(
        overlay, load_artefact(artefact_path), identity, config=DriverConfig(num_slots=SLOTS)
    )


def test_a_bitstream_too_small_for_the_draft_is_refused(bench, artefact_path):
    overlay = load(bench.device(), vector_words=64)
    with pytest.raises(ConfigError, match="words of vector memory"):
        open_card(overlay, artefact_path)


def test_an_overlay_without_our_kernel_is_refused(bench, artefact_path):
    """fastmachinelearning/hls4ml#637: the default device is the other card."""
    overlay = load(bench.device(kernel_vlnv="xilinx.com:ip:axi_dma:7.1"))
    with pytest.raises(CardError, match=re.escape("hetero:kernel:draft_card:1.0 but xilinx.com")):
        open_card(overlay, artefact_path)


def test_another_process_loading_a_bitstream_is_noticed(bench):
    """Xilinx/XRT#6842, #8034: the xclbin on the card is not the one that was attached to."""
    device = bench.device()
    card = bench.open(device)
    registers = dict(device._kernel._words)
    load(device, max_draft_tokens=64, clock_hz=1)
    device._kernel._words |= {k: v for k, v in registers.items() if 0x10 <= k < 0x300}
    with pytest.raises(CardError, match="runs bitstream build"):
        card.run([work()])


def test_another_draft_in_card_memory_is_noticed(bench, artefact_path):
    device = bench.device()
    card = bench.open(device)
    program = next(b for b in card._memory._buffers if bytes(b[:4]) == b"HEDP")
    program[32:64] = 7
    program.flush()
    card._program_id ^= 1  # as after another process's start: the card has to fetch it again
    with pytest.raises(CardError, match="runs draft 0707"):
        card.run([work()])


def test_weights_that_the_host_changes_are_read_again(bench):
    """The simulated card caches what it unpacked, but not beyond the host's next write."""
    device = bench.device()
    card = bench.open(device)
    before = card.run([work(num_draft_tokens=8)]).lanes
    for buffer in card._memory._buffers:
        if buffer.size > 5000:
            buffer[64:] = np.random.default_rng(0).integers(0, 256, buffer.size - 64)
            buffer.flush()
    assert card.run([work(num_draft_tokens=8)]).lanes != before


def test_closing_frees_every_buffer(bench):
    device = bench.device()
    card = bench.open(device)
    assert device.card_memory.num_blocks == 3 + 2 * device.profile.kernel.ports
    card.close()
    assert device.card_memory.num_blocks == 0
    assert device.card_memory.used_bytes == 0


def test_errors_are_one_line(bench):
    device = bench.device()
    card = bench.open(device)
    for name, value in (("vanished", True), ("busy", True), ("slave_error_port", 1)):
        setattr(device.faults, name, value)
        with pytest.raises(CardError) as caught:
            card.run([work()])
        assert "\n" not in str(caught.value)
        setattr(device.faults, name, False if value is True else None)
