"""The link step: every byte of the artefact arrives at its port, for every number of ports."""

import numpy as np
import pytest

from fpga.program import isa
from fpga.program.artefact import load_artefact
from fpga.program.build import build_artefact
from fpga.program.deal import deal_gamma, deal_matrix
from fpga.program.layout import Int4Matrix, Int8Matrix
from fpga.program.link import LINKED_OPERANDS, decode_operands, link_program, unlink_program
from hetero.core.errors import ConfigError
from sim.functional.weights import PortImage

PORTS = [1, 2, 4, 8, 16, 32]


@pytest.fixture(scope="module")
def tiny_artefact(tiny_checkpoint, tmp_path_factory):
    out = tmp_path_factory.mktemp("draft") / "tiny"
    build_artefact(tiny_checkpoint, out, target_tokenizer_sha256="cd" * 32)
    return load_artefact(out)


def int4_matrix(rows, width, seed=0):
    rng = np.random.default_rng(seed)
    return Int4Matrix(
        rng.integers(-8, 8, (rows, width)).astype(np.int8),
        rng.integers(-127, 128, (rows, width // 32)).astype(np.int8),
        rng.integers(0, 1 << 16, rows).astype(np.uint16),
    )


def int8_matrix(rows, width, seed=0):
    rng = np.random.default_rng(seed)
    return Int8Matrix(
        rng.integers(-127, 128, (rows, width)).astype(np.int8),
        rng.integers(0, 1 << 16, rows).astype(np.uint16),
    )


def beats_of(stream_pb):
    return stream_pb.reshape(stream_pb.shape[0], -1, 64)


def test_a_tile_of_int4_by_hand():
    matrix = int4_matrix(8, 64)
    beats = beats_of(deal_matrix(matrix, 2))
    assert beats.shape == (2, 4, 64)  # mantissas, scales, beat A, beat B
    for port in (0, 1):
        rows = slice(4 * port, 4 * port + 4)
        mantissas, scales, lower, upper = beats[port]
        assert mantissas[:8].view("<u2").tolist() == matrix.mantissa_o[rows].tolist()
        assert not mantissas[8:].any()
        assert scales[:4].view(np.int8).tolist() == matrix.scale_og[rows, 0].tolist()
        assert scales[4:8].view(np.int8).tolist() == matrix.scale_og[rows, 1].tolist()
        for beat, columns in ((lower, range(32)), (upper, range(32, 64))):
            for row in range(4):
                for i, column in enumerate(columns):
                    nibble = (int(beat[16 * row + i // 2]) >> 4 * (i % 2)) & 15
                    assert nibble == int(matrix.quant_oi[4 * port + row, column]) & 15


def test_a_tile_of_int8_by_hand():
    matrix = int8_matrix(4, 64)
    mantissas, *beats = beats_of(deal_matrix(matrix, 1))[0]
    assert mantissas[:8].view("<u2").tolist() == matrix.mantissa_o.tolist()
    assert len(beats) == 4
    for pair in (0, 1):
        for half in (0, 1):
            for row in (0, 1):
                values = beats[2 * pair + half][32 * row : 32 * row + 32].view(np.int8)
                wanted = matrix.quant_oi[2 * half + row, 32 * pair : 32 * pair + 32]
                assert values.tolist() == wanted.tolist()


@pytest.mark.parametrize(
    "rows,width,beats",
    [(32, 64, 1 + 17), (64, 128, 2 * (1 + 2 * 17)), (36, 64, 18 + 4), (100, 96, 3 * 35 + 6)],
)
def test_blocks_have_whole_chunks(rows, width, beats):
    assert beats_of(deal_matrix(int4_matrix(rows, width), 1)).shape[1] == beats


@pytest.mark.parametrize("ports", PORTS)
@pytest.mark.parametrize("rows,width", [(4, 32), (100, 96), (576, 576), (1500, 64), (36, 160)])
def test_matrices_come_back(rows, width, ports):
    for bits, matrix in ((4, int4_matrix(rows, width)), (8, int8_matrix(rows, width))):
        image = PortImage(deal_matrix(matrix, ports))
        filled_rows, filled_width = -(-rows // (4 * ports)) * 4 * ports, -(-width // 64) * 64
        op = isa.MatMul(
            weight_beat=0, num_rows=filled_rows, width=filled_width, weight_bits=bits, row_shift=0,
            out_vec=0, out_frac=0, accumulate=0,
        )  # fmt: skip
        got = image.matrix(op)
        want = matrix.quant_oi.astype(np.int64)
        if bits == 4:
            want = want * np.repeat(matrix.scale_og.astype(np.int64), 32, axis=1)
        assert np.array_equal(got.weight_oi[:rows, :width], want)
        assert not got.weight_oi[rows:].any()
        assert not got.weight_oi[:, width:].any()
        assert np.array_equal(got.mantissa_o[:rows], matrix.mantissa_o)


@pytest.mark.parametrize("ports", PORTS)
def test_target_ids_and_gammas_come_back(ports):
    ids = np.arange(100, dtype=np.uint32) * 7 + 3
    image = PortImage(deal_matrix(int8_matrix(100, 64), ports, ids))
    head = isa.Head(
        weight_beat=0, num_rows=-(-100 // (4 * ports)) * 4 * ports, width=64, weight_bits=8,
        row_shift=0, out_frac=0, num_candidates=64, d2t_beat=0, valid_rows=97,
    )  # fmt: skip
    assert image.target_ids(head).tolist() == ids[:97].tolist()
    gamma = np.arange(-300, 276, dtype=np.int16)
    norm = isa.NormQuant(in_vec=0, width=576, gamma_beat=0, gamma_shift=0, eps_q=0)
    assert PortImage(deal_gamma(gamma, ports)).gamma(norm).tolist() == gamma.tolist()


@pytest.mark.parametrize("ports", PORTS)
def test_every_instruction_survives(tiny_artefact, ports):
    linked = link_program(tiny_artefact, ports)
    program = unlink_program(linked.words, ports)
    assert len({share.size for share in linked.shares}) == 1
    assert len(linked.shares) == ports
    for ours, theirs in zip(program, tiny_artefact.program, strict=True):
        assert type(ours) is type(theirs)
        assert ours.sampled_only == theirs.sampled_only
        for name in ("in_vec", "out_vec", "gate_vec", "up_vec", "layer", "eps_q", "valid_rows"):
            assert getattr(ours, name, None) == getattr(theirs, name, None)
        if hasattr(theirs, "row_shift"):
            assert ours.row_shift - ours.out_frac == theirs.row_shift - theirs.out_frac


def test_the_rope_table_lies_on_every_port(tiny_artefact):
    linked = link_program(tiny_artefact, 4)
    op = next(x for x in unlink_program(linked.words, 4) if isinstance(x, isa.RopeRow))
    original = next(x for x in tiny_artefact.program if isinstance(x, isa.RopeRow))
    raw = tiny_artefact.region_from(original.rope_beat)[: 2 * 100 * original.head_dim]
    want = raw.view("<i2").reshape(100, original.head_dim)
    for port in range(4):
        got = PortImage([linked.shares[port]]).rope(op, 100)
        assert np.array_equal(got[:, : original.head_dim], want)


@pytest.mark.parametrize("ports", [0, 3, 64])
def test_numbers_of_ports_that_no_card_has(tiny_artefact, ports):
    with pytest.raises(ConfigError, match=rf"ports = {ports}: a card has 1, 2, 4"):
        link_program(tiny_artefact, ports)


def test_operands_fit_an_instruction_and_are_named_once():
    for names in LINKED_OPERANDS.values():
        assert len(names) == len(set(names)) <= isa.INSTRUCTION_WORDS - 1
    assert set(LINKED_OPERANDS) == {kind.opcode for kind in isa.INSTRUCTION_TYPES}


def test_words_that_are_no_instruction():
    with pytest.raises(ConfigError, match="not of instruction set 2"):
        decode_operands(bytes([77]) + bytes(63))
    with pytest.raises(ConfigError, match="not of instruction set 2"):
        decode_operands(bytes([0]) + bytes(62) + b"\x01")
    with pytest.raises(ConfigError, match="does not finish with END"):
        unlink_program(bytes([9]) + bytes(63), 4)
    with pytest.raises(ConfigError, match="not whole instructions"):
        unlink_program(bytes(65), 4)
