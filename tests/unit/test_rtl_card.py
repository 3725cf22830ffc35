"""What is decided about an RTL card before any simulator runs."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from fpga.program import isa
from fpga.regmap import registers
from hetero.core.errors import ConfigError
from hetero.services.draft_child import BUILD_TIMEOUT_S, START_TIMEOUT_S, DraftChildConfig
from hetero.services.draft_host import DraftHostConfig, open_alveo
from sim.bitstream import SimBitstream
from sim.calib.profile import load_profile
from sim.open_card import built_with
from sim.rtl.build import card_source
from sim.rtl.fit import check_fits
from sim.rtl.kernel import RtlKernel
from sim.rtl.model import Outcome
from sim.rtl.open_card import RtlCardConfig, bitstream_for, build_for
from sim.rtl.parameters import RtlBuild
from sim.rtl.timing import dram_timing

PROFILE = load_profile("u55c")


def config(**changes) -> RtlCardConfig:
    return RtlCardConfig(
        artefact_path=Path("x"), cache_dir=Path("y"), progress=lambda _line: None, **changes
    )


def draft(*, width=64, heads=4, instructions=2, vector_words=512, head_dim=64):
    attention = isa.Attention(
        layer=0, num_heads=heads, num_kv_heads=2, head_dim=head_dim, out_vec=0, out_frac=16
    )
    quant = isa.Quant(in_vec=0, width=width, in_frac=16)
    return SimpleNamespace(
        path="drafts/big",
        program=(attention, *[quant] * (instructions - 1)),
        manifest=SimpleNamespace(vector_words=vector_words),
    )


@pytest.mark.parametrize(
    "draft_fields, context, words",
    [
        ({"width": 4096}, 100, "the width of a matrix is 4096.*takes 2048.*ACT_COLS"),
        ({"heads": 32}, 100, "number of heads is 32.*takes 16.*MAX_HEADS"),
        ({"instructions": 600}, 100, "number of instructions is 600.*takes 512"),
        ({"vector_words": 99_999}, 100, "VECTOR_WORDS"),
        ({}, 10_000, "context in tokens is 10000.*MAX_POSITIONS"),
    ],
)
def test_a_draft_that_does_not_fit_is_refused_by_name(draft_fields, context, words):
    with pytest.raises(ConfigError, match=f"drafts/big: .*{words}"):
        check_fits(draft(**draft_fields), RtlBuild(), context_tokens=context)


@pytest.mark.parametrize("head_dim", [16, 48, 96])
def test_a_head_dimension_that_no_unit_takes_is_refused(head_dim):
    with pytest.raises(ConfigError, match=f"dimension is {head_dim}, the RTL takes 32, 64, 128"):
        check_fits(draft(head_dim=head_dim), RtlBuild(), context_tokens=64)


def test_more_scales_than_a_port_counts_are_refused():
    build = RtlBuild(ports=1, max_positions=1 << 20)
    check_fits(draft(), build, context_tokens=(1 << 19) - 1)
    with pytest.raises(ConfigError, match="1048576 scales a port, the RTL counts to 1048575"):
        check_fits(draft(), build, context_tokens=1 << 19)


def test_a_draft_that_fits_is_taken():
    check_fits(draft(), RtlBuild(), context_tokens=8192)


def test_ports_and_lanes_are_the_cards_unless_told():
    kernel = PROFILE.kernel
    build = build_for(PROFILE, config())
    assert (build.ports, build.lanes) == (kernel.ports, kernel.max_lanes)
    assert (build.fifo_beats, build.slr_stages) == (kernel.fifo_beats, kernel.slr_stages)
    assert build_for(PROFILE, config(ports=1, lanes=1)).ports == 1
    small = build_for(load_profile("kv260"), config())
    assert (small.port_bytes, small.array_bytes, small.attn_bytes) == (16, 16, 16)


def test_a_build_of_ones_own_keeps_what_was_chosen():
    build = build_for(PROFILE, config(build=RtlBuild(ports=2, fifo_beats=256), lanes=4))
    assert (build.ports, build.lanes, build.fifo_beats) == (2, 4, 256)


def test_nothing_is_built_for_a_card_that_is_a_cost_model():
    with pytest.raises(ConfigError, match=r"card_device = v80: a cost model only.*Versal"):
        build_for(load_profile("v80"), config())


def test_arrays_are_as_few_as_there_may_be_unless_told():
    assert RtlBuild(lanes=1).verilog()["ARRAYS"] == 2
    assert RtlBuild(lanes=8).verilog()["ARRAYS"] == 8
    assert RtlBuild(lanes=2, arrays=4).verilog()["ARRAYS"] == 4


@pytest.mark.parametrize("arrays", [1, 3, 5, 2])
def test_arrays_that_the_lanes_cannot_share_are_refused(arrays):
    with pytest.raises(ConfigError, match=f"rtl arrays = {arrays}: use an even number from 4 on"):
        RtlBuild(lanes=4, arrays=arrays)


def test_more_ports_than_the_card_has_are_refused():
    with pytest.raises(ConfigError, match="ports = 8: the kv260 has 4"):
        build_for(load_profile("kv260"), config(ports=8))


def test_any_simulated_card_can_have_fewer_ports():
    profile = built_with(PROFILE, ports=4, lanes=2)
    assert (profile.kernel.ports, profile.kernel.max_lanes) == (4, 2)
    assert SimBitstream.for_card(profile).limits.num_ports == 4
    assert built_with(PROFILE, ports=None, lanes=None) == PROFILE
    for name, size in (("card_ports", {"ports": 3}), ("card_lanes", {"lanes": 3})):
        with pytest.raises(ConfigError, match=f"{name} = 3: use a power of two"):
            built_with(PROFILE, **{"ports": None, "lanes": None, **size})


def test_the_bitstream_says_what_was_built():
    build = RtlBuild(ports=2, lanes=1, max_read_tokens=64)
    source = card_source(build)
    bitstream = bitstream_for(PROFILE, build, source)
    assert bitstream.limits.num_ports == 2
    assert (bitstream.max_lanes, bitstream.max_read_tokens) == (1, 64)
    assert bitstream.port_banks == (0, 1)
    other = bitstream_for(PROFILE, build, card_source(replace(build, fifo_beats=256)))
    assert other.build_hash != bitstream.build_hash


@pytest.mark.parametrize("card, channels", [("u55c", 4), ("kv260", 1), ("u250", 4)])
def test_dram_sustains_the_cards_ceiling_and_no_more(card, channels):
    profile = load_profile(card)
    timing = dram_timing(profile, ports=4)
    assert timing.channels == channels
    open_share = 1 - timing.refresh_units / timing.refresh_interval_units
    bytes_per_cycle = 64 * timing.units_per_cycle / timing.access_units * open_share
    sustained = bytes_per_cycle * profile.kernel.clock_hz * profile.memory.banks
    reachable = profile.memory.peak_bytes_per_s * profile.memory.ceiling
    assert sustained == pytest.approx(reachable, rel=0.003)
    assert 0 < timing.refresh_units < timing.refresh_interval_units


class StubModel:
    """A control register; ``run`` ends as told."""

    def __init__(self, outcome=Outcome.DONE, complaint=""):
        self.outcome, self.complaint, self.cycle = outcome, complaint, 7
        self.control, self.runs = registers.CTRL_IDLE, 0

    def read(self, offset):
        return self.control if offset == registers.CTRL else offset + 1

    def write(self, offset, value):
        if offset == registers.CTRL and value & registers.CTRL_START:
            self.control = registers.CTRL_START

    def run(self, *, max_cycles, stall_cycles):
        self.runs += 1
        self.control = registers.CTRL_IDLE | registers.CTRL_DONE
        return self.outcome


def test_the_kernel_runs_when_it_is_started_and_only_then():
    model = StubModel()
    kernel = RtlKernel(model)
    kernel.write(registers.RESULT_ADDR, 1)
    kernel.write(registers.CTRL, registers.CTRL_CONTINUE)
    assert model.runs == 0
    kernel.write(registers.CTRL, registers.CTRL_START)
    assert model.runs == 1
    assert kernel.read(8) == 9


def test_a_card_that_stands_still_is_told(caplog: pytest.LogCaptureFixture):
    RtlKernel(StubModel(Outcome.STALLED)).write(registers.CTRL, registers.CTRL_START)
    assert "stands still since cycle 7" in caplog.text


def test_a_broken_protocol_is_an_error_of_the_hardware():
    with pytest.raises(RuntimeError, match="rtl: port 0: wlast"):
        RtlKernel(StubModel(complaint="port 0: wlast in the wrong beat")).write(0x10, 1)


def test_the_child_process_gets_the_cards_options():
    config = DraftChildConfig(draft=Path("d"), card="rtl", card_ports=2, card_lanes=1)
    command = config.command(0)
    assert command[command.index("--card") + 1] == "rtl"
    assert command[command.index("--card-ports") + 1] == "2"
    assert command[command.index("--card-lanes") + 1] == "1"
    assert config.start_timeout_s == BUILD_TIMEOUT_S
    assert "--card-ports" not in DraftChildConfig(draft=Path("d")).command(0)
    assert DraftChildConfig(draft=Path("d")).start_timeout_s == START_TIMEOUT_S


def test_an_alveo_card_needs_its_bitstream():
    with pytest.raises(ConfigError, match=r"--card xrt needs --bitfile X.xclbin"):
        open_alveo(DraftHostConfig(draft=Path("d"), card="xrt"))
