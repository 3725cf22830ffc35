"""The KV cache as it lies in card memory: fpga.program.layout.KvLayout, byte for byte."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fpga.golden.fixed import I64
from fpga.golden.quantise import Quantised
from fpga.program.layout import KvLayout

_KINDS: Final = 2  # keys, values


def joined(parts: Sequence[Quantised]) -> Quantised:
    """One after another along the positions, the second axis."""
    quant, mantissa, exponent = (
        np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True)
    )
    return Quantised(quant, mantissa, exponent)


class KvCache:
    """Memory of all slots; ``memory`` may be copied to or from a card."""

    def __init__(self, layout: KvLayout) -> None:
        self.layout = layout
        self.memory: NDArray[np.uint8] = np.zeros(layout.total_bytes, dtype=np.uint8)

    def append(self, slot: int, layer: int, start: int, kv: tuple[Quantised, Quantised]) -> None:
        """Write keys and values [n, kv_head, head_dim] of positions start, start + 1, ..."""
        for kind, values in enumerate(kv):
            data_hcd, scale_hc = self._views(slot, layer, kind)
            end = start + values.quant.shape[0]
            data_hcd[:, start:end] = values.quant.transpose(1, 0, 2)
            words = values.mantissa | ((values.exponent & 0xFFFF) << 16)
            scale_hc[:, start:end] = words.T.astype(np.uint32)

    def read(self, slot: int, layer: int, length: int) -> tuple[Quantised, Quantised]:
        """Keys and values [kv_head, length, head_dim] of the first positions."""
        keys, values = (self._read(slot, layer, kind, length) for kind in range(_KINDS))
        return keys, values

    def read_split(
        self, slots: tuple[int, int], layer: int, prefix_len: int, length: int
    ) -> tuple[Quantised, Quantised]:
        """The first positions below ``prefix_len`` from slots[0], the others from slots[1]."""
        if slots[0] == slots[1] or prefix_len >= length:
            return self.read(slots[0], layer, length)
        prefix = self.read(slots[0], layer, prefix_len)
        tail = (
            x.at(slice(None), slice(prefix_len, None)) for x in self.read(slots[1], layer, length)
        )
        keys, values = (joined(pair) for pair in zip(prefix, tail, strict=True))
        return keys, values

    def _read(self, slot: int, layer: int, kind: int, length: int) -> Quantised:
        data_hcd, scale_hc = self._views(slot, layer, kind)
        word: I64 = scale_hc[:, :length].astype(np.int64)
        exponent = ((word >> 16) ^ 0x8000) - 0x8000
        return Quantised(data_hcd[:, :length], word & 0xFFFF, exponent)

    def _views(
        self, slot: int, layer: int, kind: int
    ) -> tuple[NDArray[np.int8], NDArray[np.uint32]]:
        """Views of keys or values: data [head, context, dim], scales [head, context]."""
        kv = self.layout
        first = kv.head_offset(slot, layer, 0)
        size = kv.num_kv_heads * kv.head_bytes
        heads = self.memory[first : first + size].reshape(kv.num_kv_heads, kv.head_bytes)
        data = heads[:, kind * kv.data_bytes :][:, : kv.context_tokens * kv.head_dim]
        at = _KINDS * kv.data_bytes + kind * kv.scale_bytes
        scale = heads[:, at : at + 4 * kv.context_tokens]
        shape = (kv.num_kv_heads, kv.context_tokens, kv.head_dim)
        return data.view(np.int8).reshape(shape), scale.view("<u4")
