"""The C++ around the card: AXI ports on flat memory, its timing, its faults."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from hetero.core.errors import CardError, ConfigError
from sim.rtl.build import CHECKS, Source, build_library
from sim.rtl.model import Outcome, Reach, RtlModel
from sim.rtl.parameters import MemoryTiming, RtlBuild

pytestmark = pytest.mark.rtl

PORTS, PORT_BYTES = 2, 32
AREA = 64 * 1024
SIZE = PORTS * AREA
TARGET = AREA // 2
CTRL, FROM, TO, BURSTS, BEATS, STRIDE = 0x00, 0x10, 0x18, 0x20, 0x24, 0x28
CYCLES, READ_RESPONSE, WRITE_RESPONSE = 0x340, 0x344, 0x348
IDEAL = MemoryTiming(latency_cycles=50)


SOURCE = Source(
    files=(Path(__file__).with_name("copy_card.sv"),),
    top="copy_card",
    parameters={"PORTS": PORTS, "PORT_BYTES": PORT_BYTES},
)


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def library(cache_dir: Path) -> Path:
    return build_library(SOURCE, cache_dir, lambda _line: None)


@dataclass
class Copier:
    model: RtlModel
    memory: np.ndarray

    def copy(self, *, bursts: int = 8, beats: int = 8, source: int = 0) -> Outcome:
        for register, value in (
            *((FROM, source), (FROM + 4, 0), (TO, TARGET), (TO + 4, 0)),
            *((BURSTS, bursts), (BEATS, beats), (STRIDE, AREA)),
        ):
            self.model.write(register, value)
        self.model.write(CTRL, 1)
        return self.model.run(max_cycles=50_000, stall_cycles=2_000)

    @property
    def cycles(self) -> int:
        return self.model.read(CYCLES)


@contextmanager
def copier(library: Path, timing: MemoryTiming = IDEAL) -> Iterator[Copier]:
    memory = np.random.default_rng(1).integers(0, 256, SIZE, dtype=np.uint8)
    reach = [Reach(port * AREA, (port + 1) * AREA) for port in range(PORTS)]
    model = RtlModel(library, memory, reach, timing)
    yield Copier(model, memory)
    assert model.complaint == ""
    model.close()


def _expected(memory: np.ndarray, size: int) -> np.ndarray:
    """The copy leaves the first byte of each beat alone."""
    wanted = memory.copy()
    for port in range(PORTS):
        moved = memory[port * AREA :][:size].reshape(-1, PORT_BYTES)
        at = wanted[port * AREA + TARGET :][:size].reshape(-1, PORT_BYTES)
        at[:, 1:] = moved[:, 1:]
    return wanted


@pytest.mark.parametrize("throttle", [0, 300])
def test_bytes_are_copied_and_strobes_obeyed(library: Path, throttle: int):
    with copier(library, MemoryTiming(throttle_permille=throttle, skew_cycles=7)) as card:
        wanted = _expected(card.memory, 64 * PORT_BYTES)
        assert card.copy() is Outcome.DONE
        np.testing.assert_array_equal(card.memory, wanted)
        assert card.model.beats == (PORTS * 64, PORTS * 64)


def test_ideal_memory_answers_after_its_latency_and_then_every_cycle(library: Path):
    cycles = {}
    for latency in (20, 120):
        for bursts in (1, 16):
            with copier(library, MemoryTiming(latency_cycles=latency)) as card:
                card.copy(bursts=bursts)
                cycles[latency, bursts] = card.cycles
    assert cycles[120, 1] - cycles[20, 1] == 100
    assert cycles[20, 16] - cycles[20, 1] == 15 * 8


def test_a_run_repeats_cycle_for_cycle(library: Path):
    taken = set()
    for _ in range(2):
        with copier(library, MemoryTiming(throttle_permille=400)) as card:
            card.copy()
            taken.add(card.cycles)
    assert len(taken) == 1


def test_another_seed_holds_back_otherwise(library: Path):
    taken = set()
    for seed in (1, 2, 3):
        with copier(library, MemoryTiming(throttle_permille=400, seed=seed)) as card:
            card.copy()
            taken.add(card.cycles)
    assert len(taken) > 1


def _banked_cycles(library: Path, **changes: int) -> int:
    timing = MemoryTiming(is_banked=True, channels=PORTS, access_units=500, **changes)
    with copier(library, timing) as card:
        card.copy(bursts=16)
        return card.cycles


def test_a_banked_memory_is_slower_for_each_reason(library: Path):
    base = _banked_cycles(library)
    assert _banked_cycles(library, row_miss_units=40_000) > base
    assert _banked_cycles(library, refresh_interval_units=50_000, refresh_units=40_000) > base
    assert _banked_cycles(library, turnaround_units=30_000) >= base


def test_a_shared_channel_halves_what_each_port_gets(library: Path):
    slow = {"is_banked": True, "access_units": 4000, "latency_cycles": 10}
    cycles = {}
    for channels in (1, 2):
        with copier(library, MemoryTiming(channels=channels, **slow)) as card:
            card.copy(bursts=16)
            cycles[channels] = card.cycles
    assert cycles[1] == pytest.approx(2 * cycles[2], rel=0.1)


@pytest.mark.parametrize("source", [AREA, SIZE])
def test_addresses_outside_of_a_ports_memory_decode_to_nothing(library: Path, source: int):
    with copier(library) as card:
        assert card.copy(bursts=1, source=source)
        assert card.model.read(READ_RESPONSE) == 3


def test_a_slave_error_is_told_for_its_beat(library: Path):
    with copier(library) as card:
        card.model.fail_at(1, AREA + 3 * PORT_BYTES + 5)
        card.copy()
        assert card.model.read(READ_RESPONSE) == 2
        assert card.model.read(WRITE_RESPONSE) == 0
        card.model.fail_at(1, AREA + TARGET)
        card.copy()
        assert (card.model.read(READ_RESPONSE), card.model.read(WRITE_RESPONSE)) == (0, 2)


def test_a_hung_port_ends_as_a_stall(library: Path):
    with copier(library) as card:
        card.model.hang(0)
        assert card.copy() is Outcome.STALLED
        card.model.reset()
        card.model.hang(0, hung=False)
        assert card.copy() is Outcome.DONE


def test_a_run_can_be_limited(library: Path):
    with copier(library) as card:
        card.model.write(CTRL, 0)
        assert card.model.run(max_cycles=300, stall_cycles=10**6) is Outcome.LIMIT


def test_crossing_a_page_is_complained_of(library: Path):
    memory = np.zeros(SIZE, dtype=np.uint8)
    model = RtlModel(library, memory, [Reach(0, SIZE)] * PORTS, IDEAL)
    Copier(model, memory).copy(bursts=1, beats=8, source=4096 - PORT_BYTES)
    assert "crosses a 4 KiB boundary" in model.complaint
    model.close()


def test_the_trace_has_a_row_for_every_cycle(library: Path):
    with copier(library) as card:
        card.model.start_trace(1_000)
        card.copy()
        trace = card.model.end_trace()
        busy = trace[:, 0]
        assert len(trace) < 1_000
        assert 100 < busy.sum() < len(trace)
        assert trace[busy == 1, 1].max() == card.cycles


@pytest.mark.rtl_sweep
def test_a_debug_build_shows_signals_and_waves(cache_dir: Path, tmp_path: Path):
    debug = build_library(replace(SOURCE, debug=True), cache_dir, lambda _line: None)
    with copier(debug) as card:
        card.model.waves(tmp_path / "card.vcd")
        card.copy()
        card.model.waves(None)
        assert card.model.peek("copy_card.cycles") == card.cycles
        moved = card.memory[AREA + 5 * PORT_BYTES :][:PORT_BYTES].tobytes()
        held = card.model.peek("copy_card.g_port[1].mem", 5)
        assert held.to_bytes(PORT_BYTES, "little") == moved
        with pytest.raises(KeyError, match="nowhere"):
            card.model.peek("copy_card.nowhere")
    assert "$var" in (tmp_path / "card.vcd").read_text()


@pytest.mark.rtl_sweep
def test_checks_count_and_end_a_run(cache_dir: Path):
    checked = build_library(replace(SOURCE, defines=CHECKS), cache_dir, lambda _line: None)
    with copier(checked, MemoryTiming(max_bursts=1)) as card:
        card.copy()
        counts = card.model.coverage()
        assert set(counts) == {f"copy_card.g_port[{p}].cov_read_waits" for p in range(PORTS)}
        assert min(counts.values()) > 10
    model = RtlModel(checked, np.zeros(SIZE, dtype=np.uint8), [Reach(0, SIZE)] * PORTS, IDEAL)
    model.write(BURSTS, 600)
    model.write(CTRL, 1)
    assert model.run(max_cycles=1000, stall_cycles=1000) is Outcome.FINISHED
    assert "copy_card.sv:" in model.complaint
    model.close()


def test_the_number_of_memories_must_fit(library: Path):
    with pytest.raises(CardError, match="1 memories for 2 ports"):
        RtlModel(library, np.zeros(64, dtype=np.uint8), [Reach(0, 64)], IDEAL)


def test_a_library_is_built_once_and_nothing_else_is_kept(library: Path, cache_dir: Path):
    lines: list[str] = []
    assert build_library(SOURCE, cache_dir, lines.append) == library
    assert lines == []
    folders = [path for path in (cache_dir / "rtl").iterdir() if path.is_dir()]
    assert library.parent in folders
    assert all(len(list(folder.iterdir())) == 1 for folder in folders)
    assert list(library.parent.iterdir()) == [library]


def test_sources_that_do_not_build_are_told_with_the_tools_words(tmp_path: Path):
    broken = tmp_path / "broken.sv"
    broken.write_text("module broken; wire x = nothing_of_that_name; endmodule\n")
    lines: list[str] = []
    source = Source(files=(broken,), top="broken", parameters={"PORTS": 1, "PORT_BYTES": 16})
    with pytest.raises(CardError, match="nothing_of_that_name"):
        build_library(source, tmp_path / "cache", lines.append)
    assert len(lines) == 1
    assert "Verilator" in lines[0]
    assert not [path for path in (tmp_path / "cache/rtl").iterdir() if path.is_dir()]


def test_missing_tools_are_named_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    source = Source(files=(), top="x", parameters={"PORTS": 1, "PORT_BYTES": 16})
    with pytest.raises(ConfigError, match=r"verilator is not installed.*apt-get install"):
        build_library(source, tmp_path, lambda _line: None)


@pytest.mark.parametrize(
    "setting, value", [("ports", 3), ("port_bytes", 8), ("lanes", 5), ("slr_stages", 4)]
)
def test_parameters_out_of_range_are_refused(setting: str, value: int):
    with pytest.raises(ConfigError, match=rf"rtl {setting} = {value}"):
        RtlBuild(**{setting: value})


def test_timing_out_of_range_is_refused():
    with pytest.raises(ConfigError, match="throttle_permille = 1000"):
        MemoryTiming(throttle_permille=1000)
    with pytest.raises(ConfigError, match="channels = 0"):
        MemoryTiming(channels=0)
