"""KV up to the context limit: RTL against golden."""

from dataclasses import replace

import numpy as np
import pytest
from support.rtl_card import SMALL, kv_shares, open_small, put_kv, write_draft
from test_whole_card import ROUGH, work

from fpga.golden.executor import GoldenExecutor
from fpga.program.artefact import load_artefact
from fpga.program.port_kv import deal_cache

pytestmark = [pytest.mark.rtl_sweep, pytest.mark.rtl, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("ports, lanes", [(2, 2), (4, 1)])
def test_kv_up_to_the_context_limit(tmp_path, ports, lanes):
    """The cache comes from a golden image, not from hours of reading on the RTL."""
    context, held = 2048, 2031
    draft = write_draft(tmp_path, max_position_embeddings=context)
    reference = GoldenExecutor(load_artefact(draft), lanes, context)
    rng = np.random.default_rng(4)
    for slot in range(lanes):
        prompt = [int(token) for token in rng.integers(0, 203, held)]
        reference.run([work(slot, 0, prompt, 0)])
    card = open_small(
        draft,
        build=replace(SMALL, max_positions=context),
        timing=ROUGH,
        ports=ports,
        lanes=lanes,
        num_slots=lanes,
        max_context_tokens=context,
    )
    try:
        image, layout = reference.kv.memory, reference.kv.layout
        put_kv(card, deal_cache(image, layout, ports))
        # The last token is read at position context - 1.
        start = [work(slot, held, [5 + slot], context - held - 1) for slot in range(lanes)]
        wanted = tuple(reference.run(start))
        assert card.run(start).lanes == wanted
        used = deal_cache(np.ones(layout.total_bytes, dtype=np.uint8), layout, ports)
        shares = zip(kv_shares(card, ports), deal_cache(image, layout, ports), used, strict=True)
        for share, want, is_used in shares:
            np.testing.assert_array_equal(np.where(is_used, share, 0), np.where(is_used, want, 0))
    finally:
        card.close()
