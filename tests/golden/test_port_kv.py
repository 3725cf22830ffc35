"""The KV cache over memory ports: by hand, and there and back."""

import numpy as np
import pytest

from fpga.golden.kv_cache import KvCache
from fpga.golden.quantise import quantise
from fpga.program.layout import KvLayout
from fpga.program.port_kv import PortKvLayout, deal_cache, gather_cache


def filled_cache(context=21, heads=3, dim=32, layers=2, slots=2, seed=0):
    kv = KvCache(
        KvLayout(
            num_slots=slots, context_tokens=context, num_layers=layers, num_kv_heads=heads,
            head_dim=dim,
        )
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    for slot in range(slots):
        for layer in range(layers):
            values = rng.integers(-(1 << 20), 1 << 20, (2, context, heads, dim))
            kv.append(slot, layer, 0, (quantise(values[0], 16), quantise(values[1], 16)))
    return kv


@pytest.mark.parametrize("ports", [1, 2, 4, 8, 32])
@pytest.mark.parametrize("heads,dim", [(3, 32), (1, 64), (2, 128), (5, 32)])
def test_there_and_back(ports, heads, dim):
    kv = filled_cache(heads=heads, dim=dim)
    shares = deal_cache(kv.memory, kv.layout, ports)
    assert len(shares) == ports
    back = KvCache(kv.layout)
    back.memory[:] = gather_cache(shares, kv.layout)
    for slot in range(2):
        for layer in range(2):
            for ours, theirs in zip(
                back.read(slot, layer, 21), kv.read(slot, layer, 21), strict=True
            ):
                for a, b in zip(ours, theirs, strict=True):
                    assert np.array_equal(a, b)


def test_one_position_by_hand():
    kv = filled_cache()
    layout = PortKvLayout.of(kv.layout, 4)
    assert layout.local_positions == 6
    assert layout.k_beats == 3  # 6 positions x 3 heads x 8 bytes
    assert layout.v_beats == 3 + 9
    assert layout.layer_beats == 3 + 9 + 9
    assert layout.slot_beats == 64
    shares = deal_cache(kv.memory, kv.layout, 4)
    keys, values = kv.read(1, 1, 21)
    # Slot 1, layer 1, position 14: port 2, local index 3; head 1.
    at = 64 * (64 + 21)
    share = shares[2]
    scale_at = at + (3 * 3 + 1) * 8
    words = share[scale_at : scale_at + 8].view("<u4").tolist()
    for word, part in zip(words, (keys, values), strict=True):
        assert word == int(part.mantissa[1, 14]) | (int(part.exponent[1, 14]) & 0xFFFF) << 16
    for begin, part in ((3, keys), (12, values)):
        data_at = at + 64 * begin + (3 * 3 + 1) * 32
        assert share[data_at : data_at + 32].view(np.int8).tolist() == part.quant[1, 14].tolist()
