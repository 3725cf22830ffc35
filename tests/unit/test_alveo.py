"""The Alveo device over a double of XRT, with the simulated kernel below: real pynq between."""

import gc
from dataclasses import replace

import pytest
from support.fake_xrt import FakeXrt, State

from fpga.driver.build_info import BuildInfo
from fpga.driver.driver import DriverConfig
from fpga.driver.kernel_port import WaitPolicy
from fpga.driver.open_alveo import AlveoConfig, open_alveo_card
from fpga.golden.executor import GoldenExecutor
from fpga.program.artefact import load_artefact
from fpga.program.build import build_artefact
from fpga.regmap import registers
from hetero.core.errors import CardError, CardTimeoutError
from hetero.core.types import LaneWork
from sim.calib.profile import load_profile

SLOTS, CONTEXT = 3, 64


@pytest.fixture(scope="module")
def artefact_path(tiny_checkpoint, tmp_path_factory):
    out = tmp_path_factory.mktemp("draft") / "tiny"
    build_artefact(tiny_checkpoint, out, target_tokenizer_sha256="cd" * 32)
    return out


def build_info(xrt, **changes):
    build = xrt.bitstream
    info = BuildInfo(
        device="u55c",
        clock_hz=build.clock_hz,
        port_banks=build.port_banks,
        bank_bytes=xrt.profile.memory.bank_bytes,
        max_lanes=build.max_lanes,
        max_read_tokens=build.max_read_tokens,
        max_draft_tokens=build.max_draft_tokens,
        vector_words=build.vector_words,
        interface_version=registers.INTERFACE_VERSION,
        isa_version=build.isa_version,
        arithmetic_version=build.arithmetic_version,
        build_hash=build.build_hash.hex(),
    )
    return replace(info, **changes)


@pytest.fixture
def open_card(artefact_path, tmp_path):
    def make(xrt, *, info=None, index=0, timeout_s=5.0):
        bitfile = tmp_path / "draft_card.xclbin"
        bitfile.write_bytes(b"xclbin2")
        bitfile.with_suffix(".json").write_text((info or build_info(xrt)).to_json())
        driver = DriverConfig(
            num_slots=SLOTS, max_context_tokens=CONTEXT, wait=WaitPolicy(timeout_s=timeout_s)
        )
        config = AlveoConfig(
            bitfile=bitfile, artefact_path=artefact_path, index=index, driver=driver
        )
        return open_alveo_card(config, xrt=xrt)

    return make


def work(slot, tokens, drafts=4, temperature=0.8):
    return LaneWork(
        slot=slot, start=0, token_ids=tuple(tokens), num_draft_tokens=drafts, output_index=0,
        seed=9, choice_index=0, temperature=temperature,
    )  # fmt: skip


def test_drafts_are_the_golden_models(open_card, artefact_path):
    golden = GoldenExecutor(load_artefact(artefact_path), SLOTS, CONTEXT)
    card = open_card(FakeXrt())
    assert (card.info.backend, card.info.simulated) == ("xrt", False)
    lanes = [work(0, range(9)), work(2, range(5, 25), temperature=0.0)]
    assert card.run(lanes).lanes == tuple(golden.run(lanes))
    card.close()


def test_buffers_are_given_back(open_card):
    xrt = FakeXrt()
    card = open_card(xrt)
    assert xrt.live_buffers == 3 + 2 * load_profile("u55c").kernel.ports
    card.close()
    del card
    gc.collect()
    assert xrt.live_buffers == 0


def test_a_build_file_of_another_xclbin(open_card):
    xrt = FakeXrt()
    xrt.group_offset = 1
    with pytest.raises(CardError, match="COMMAND_ADDR is wired to memory 1, its build"):
        open_card(xrt)


def test_another_builds_hash_is_refused(open_card):
    xrt = FakeXrt()
    with pytest.raises(CardError, match=r"runs bitstream build .* wanted 000000000000"):
        open_card(xrt, info=build_info(xrt, build_hash="00" * 16))


@pytest.mark.parametrize(
    "changes,match",
    [
        ({"isa_version": 99}, "instruction set is 0x63"),
        ({"interface_version": 99}, "interface version is 0x63"),
        ({"arithmetic_version": 99}, "arithmetic is 0x63"),
    ],
)
def test_other_versions_are_refused_by_name(open_card, changes, match):
    xrt = FakeXrt()
    with pytest.raises(CardError, match=match):
        open_card(xrt, info=build_info(xrt, **changes))


def test_a_failed_run_is_told(open_card):
    with pytest.raises(CardError, match="XRT reports the kernel's run as ERROR"):
        open_card(FakeXrt(final=State.ERT_CMD_STATE_ERROR))


def test_a_run_that_never_ends(open_card):
    with pytest.raises(CardTimeoutError, match=r"did not drain.*the card must be reset"):
        open_card(FakeXrt(polls=10**9), timeout_s=0.05)


def test_no_such_card(open_card):
    with pytest.raises(CardError, match="opening Alveo card 3 failed: No such device"):
        open_card(FakeXrt(), index=3)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "hetero-draft-card-build"}', "\x00"])
def test_damaged_build_file(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(RuntimeError, match="not the build information of a draft card"):
        BuildInfo.beside(tmp_path / "x.xclbin")


def test_without_xrt_the_error_names_it(artefact_path, tmp_path):
    config = AlveoConfig(bitfile=tmp_path / "x.xclbin", artefact_path=artefact_path)
    with pytest.raises(CardError, match="pyxrt is part of XRT"):
        open_alveo_card(config)
