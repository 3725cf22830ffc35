"""The register map: one source, fresh outputs, offsets that hardware people expect."""

import itertools

import pytest

from fpga.regmap import generate, registers, source
from hetero.core.errors import ConfigError

BLOCK = source.load()


@pytest.mark.parametrize("name", list(generate.outputs(BLOCK)), ids=str)
def test_generated_file_is_fresh(name):
    assert (generate.ROOT / name).read_text() == generate.outputs(BLOCK)[name], (
        f"{name} is stale: run python -m fpga.regmap.generate"
    )


def test_check_tells_fresh_from_stale(tmp_path, monkeypatch, capsys):
    assert generate.main(["--check"]) == 0
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    assert generate.main(["--check"]) == 1
    assert "stale" in capsys.readouterr().err


def test_control_follows_ap_ctrl_chain():
    # UG1399: ap_start, ap_done, ap_idle, ap_ready, ap_continue are bits 0..4 of offset 0.
    control = [registers.CTRL_START, registers.CTRL_DONE, registers.CTRL_IDLE]
    control += [registers.CTRL_READY, registers.CTRL_CONTINUE]
    assert control == [1, 2, 4, 8, 16]
    assert (registers.CTRL, registers.GIE, registers.IER, registers.ISR) == (0, 4, 8, 12)
    arguments = [offset for offset, _, _ in registers.REGISTERS.values() if offset > 12]
    assert min(arguments) == 0x10


def test_registers_do_not_overlap_and_fit():
    spans = sorted((o, o + bits // 8) for o, bits, _ in registers.REGISTERS.values())
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
    assert spans[-1][1] <= registers.SIZE_BYTES


def test_only_buffer_addresses_have_64_bits_to_write():
    # pyxrt passes scalar arguments of 32 bits.
    wide = [n for n, (_, bits, access) in registers.REGISTERS.items() if bits == 64]
    written = [n for n in wide if registers.REGISTERS[n][2] == "read-write"]
    assert all("_ADDR" in name for name in written)


@pytest.mark.parametrize(
    "line, fault",
    [
        ('[[register]]\nname = "X"\noffset = 0x342', "not aligned"),
        ('[[register]]\nname = "X"\noffset = 0x344', "inside its predecessor"),
        ('[[register]]\nname = "X"\noffset = 0x1000', "beyond"),
    ],
)
def test_bad_source_is_refused_by_name(tmp_path, line, fault):
    broken = tmp_path / "regs.toml"
    extra = f'{line}\naccess = "read-only"\ndescription = "x"\n'
    broken.write_text(source.SOURCE.read_text() + extra)
    with pytest.raises(ConfigError, match=fault):
        source.load(broken)
