"""The KV cache as it lies on a card's memory ports, and how the golden model's gets there.

Position j lies on port j mod P, there at local index j div P. A port's share is slot after slot,
in it layer after layer, and in a layer three runs of addresses, all position-major with the KV
heads of a position together:

1. scales: 8 bytes a head, the key's word, then the value's (mantissa | exponent << 16),
2. keys: int8 [head_dim] a head,
3. values likewise.

So whatever the number of heads, a port reads any range of positions in three runs. Rolling back is
a length: nothing is ever erased.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fpga.program.layout import BEAT_BYTES, KvLayout, align

SCALE_BYTES: Final = 8

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class PortKvLayout:
    """Sizes and strides of one port's share, the same on every port."""

    num_ports: int
    num_slots: int
    context_tokens: int
    num_layers: int
    num_kv_heads: int
    head_dim: int

    @classmethod
    def of(cls, kv: KvLayout, num_ports: int) -> "PortKvLayout":
        """The same cache, dealt out."""
        return cls(
            num_ports=num_ports,
            num_slots=kv.num_slots,
            context_tokens=kv.context_tokens,
            num_layers=kv.num_layers,
            num_kv_heads=kv.num_kv_heads,
            head_dim=kv.head_dim,
        )

    @property
    def local_positions(self) -> int:
        """Positions of a slot on one port."""
        return -(-self.context_tokens // self.num_ports)

    @property
    def record_bytes(self) -> int:
        """Keys, or values, of one position."""
        return self.num_kv_heads * self.head_dim

    @property
    def k_beats(self) -> int:
        """Where the keys of a layer begin."""
        return _beats(self.local_positions * self.num_kv_heads * SCALE_BYTES)

    @property
    def v_beats(self) -> int:
        """Where the values of a layer begin."""
        return self.k_beats + _beats(self.local_positions * self.record_bytes)

    @property
    def layer_beats(self) -> int:
        """One layer of one slot."""
        return self.v_beats + _beats(self.local_positions * self.record_bytes)

    @property
    def slot_beats(self) -> int:
        """One slot, whole pages."""
        return align(self.num_layers * self.layer_beats * BEAT_BYTES) // BEAT_BYTES

    @property
    def share_bytes(self) -> int:
        """All slots on one port."""
        return self.num_slots * self.slot_beats * BEAT_BYTES


def _beats(size_bytes: int) -> int:
    return align(size_bytes, BEAT_BYTES) // BEAT_BYTES


def deal_cache(cache: Bytes, kv: KvLayout, num_ports: int) -> list[Bytes]:
    """The golden model's cache memory (``KvLayout``) as the ports' shares."""
    layout = PortKvLayout.of(kv, num_ports)
    shares = [np.zeros(layout.share_bytes, dtype=np.uint8) for _ in range(num_ports)]
    for slot in range(kv.num_slots):
        for layer in range(kv.num_layers):
            for ours, theirs in _regions(cache, kv, shares, layout, slot, layer):
                ours[:] = theirs
    return shares


def gather_cache(shares: Sequence[Bytes], kv: KvLayout) -> Bytes:
    """The inverse: what lies on the ports as the golden model's cache memory."""
    layout = PortKvLayout.of(kv, len(shares))
    cache = np.zeros(kv.total_bytes, dtype=np.uint8)
    for slot in range(kv.num_slots):
        for layer in range(kv.num_layers):
            for ours, theirs in _regions(cache, kv, shares, layout, slot, layer):
                theirs[:] = ours
    return cache


def _regions(
    cache: Bytes,
    kv: KvLayout,
    shares: Sequence[Bytes],
    layout: PortKvLayout,
    slot: int,
    layer: int,
) -> list[tuple[Bytes, Bytes]]:
    """Pairs of views [position, head, byte]: on a port, and the same in the golden cache."""
    heads, dim = kv.num_kv_heads, kv.head_dim
    places = {
        0: (0, 2 * kv.data_bytes, 4),
        1: (4, 2 * kv.data_bytes + kv.scale_bytes, 4),
        2: (0, 0, dim),
        3: (0, kv.data_bytes, dim),
    }
    begins = {0: 0, 1: 0, 2: layout.k_beats, 3: layout.v_beats}
    pairs = []
    first = kv.head_offset(slot, layer, 0)
    golden = cache[first : first + heads * kv.head_bytes].reshape(heads, kv.head_bytes)
    at_layer = (slot * layout.slot_beats + layer * layout.layer_beats) * BEAT_BYTES
    for port, share in enumerate(shares):
        count = len(range(port, kv.context_tokens, layout.num_ports))
        for kind, (inner, golden_at, size) in places.items():
            record = heads * (SCALE_BYTES if kind < 2 else dim)
            at = at_layer + begins[kind] * BEAT_BYTES
            run = share[at : at + count * record].reshape(count, heads, record // heads)
            theirs = golden[:, golden_at : golden_at + size * kv.context_tokens]
            positions = theirs.reshape(heads, kv.context_tokens, size)[:, port :: layout.num_ports]
            pairs.append((run[:, :, inner : inner + size], positions.swapaxes(0, 1)))
    return pairs
