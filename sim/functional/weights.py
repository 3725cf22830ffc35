"""Matrices as the compiled kernels want them, unpacked once for each load of the card.

int4 weights get their group scales multiplied in: |q * scale| <= 8 * 127 fits int16, and the
products of a row add up in int32 because the draft's compiler proved that they do
(docs/arithmetic.md, section 4). That needs neither float BLAS nor a bound of 2^24: measured on one
Zen 3 core, the layer weights of SmolLM2-135M (104 M) take 11.5 ms a token so, 26 ms in float32
BLAS (four times the bytes), 44 ms with scales applied on the fly, 73 ms from packed nibbles.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fpga.program import isa
from fpga.program.layout import BEAT_BYTES, GROUP_COLUMNS, unpack_int4, unpack_int8


@dataclass(frozen=True, slots=True)
class Matrix:
    """``weight_oi``: int16 (folded int4) or int8. ``mantissa_o``: int64."""

    weight_oi: NDArray[np.int16] | NDArray[np.int8]
    mantissa_o: NDArray[np.int64]

    def first(self, num_rows: int) -> "Matrix":
        """Without filler rows."""
        return Matrix(self.weight_oi[:num_rows], self.mantissa_o[:num_rows])


class WeightImage:
    """Typed views of the weight image; a tied matrix is unpacked once."""

    def __init__(self, image: NDArray[np.uint8]) -> None:
        self._image = image
        self._matrices: dict[int, Matrix] = {}

    def matrix(self, op: isa.Embed | isa.MatMul | isa.Head) -> Matrix:
        """The matrix that an instruction names; embeddings are int8."""
        if op.weight_beat not in self._matrices:
            bits = 8 if isinstance(op, isa.Embed) else op.weight_bits
            region = self._from(op.weight_beat)
            self._matrices[op.weight_beat] = _unpack(region, op.num_rows, op.width, bits)
        return self._matrices[op.weight_beat]

    def gamma(self, op: isa.NormQuant) -> NDArray[np.int16]:
        """Norm weights, int16 [width]."""
        return self._from(op.gamma_beat)[: 2 * op.width].view("<i2").copy()

    def rope(self, op: isa.RopeKv, context_tokens: int) -> NDArray[np.int16]:
        """Cosine and sine pairs, int16 [position, head_dim]."""
        raw = self._from(op.rope_beat)[: 2 * context_tokens * op.head_dim]
        return raw.view("<i2").reshape(context_tokens, op.head_dim).copy()

    def target_ids(self, op: isa.Head) -> NDArray[np.int64]:
        """Target id of each head row."""
        if op.d2t_beat == isa.NO_BEAT:
            return np.arange(op.valid_rows, dtype=np.int64)
        return self._from(op.d2t_beat)[: 4 * op.valid_rows].view("<i4").astype(np.int64)

    def _from(self, beat: int) -> NDArray[np.uint8]:
        return self._image[beat * BEAT_BYTES :]


def _unpack(region: NDArray[np.uint8], num_rows: int, width: int, bits: int) -> Matrix:
    if bits == 8:
        rows = unpack_int8(region, num_rows, width)
        return Matrix(rows.quant_oi, rows.mantissa_o.astype(np.int64))
    groups = unpack_int4(region, num_rows, width)
    scale_oi = np.repeat(groups.scale_og.astype(np.int16), GROUP_COLUMNS, axis=1)
    folded: NDArray[np.int16] = groups.quant_oi * scale_oi
    return Matrix(folded, groups.mantissa_o.astype(np.int64))
