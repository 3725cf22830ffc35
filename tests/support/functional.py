"""The functional executor on a bare piece of memory, without device or driver."""

import numpy as np

from fpga.driver.buffers import KvGeometry
from fpga.driver.lanes import lane_command
from fpga.program import isa
from fpga.program.link import link_program, unlink_program
from fpga.program.port_kv import deal_cache
from sim.functional.executor import FunctionalExecutor
from sim.functional.state import KvCacheView
from sim.functional.weights import PortImage

GARBAGE = 0xA5
"""What dead KV is filled with: no zeros."""


def functional_executor(artefact, num_slots, context_tokens, *, num_ports=4):
    """Runs the linked draft, as a card does."""
    linked = link_program(artefact, num_ports)
    geometry = KvGeometry.of(artefact.kv_layout(num_slots, context_tokens), num_ports)
    share = geometry.port_bytes
    kv = KvCacheView(
        memory=np.full(num_ports * share, GARBAGE, dtype=np.uint8),
        base_p=np.arange(num_ports, dtype=np.int64) * share,
        geometry=geometry,
    )
    return FunctionalExecutor(
        tuple(unlink_program(linked.words, num_ports)),
        PortImage(linked.shares),
        kv,
        vector_words=artefact.manifest.vector_words,
    )


def run(executor, lanes, observe=None, *, window=0):
    """[(slot, for each drafted token its best (id, confidence in 1/255, raw logit))] of a start."""
    outcomes = executor.run([lane_command(work) for work in lanes], observe, window=window)
    return [(o.slot, [list(token.top) for token in o.tokens]) for o in outcomes]


def in_card_form(results, artefact):
    """Golden LaneResults as ``run`` gives them."""
    (frac,) = (op.logit_frac for op in artefact.program if isinstance(op, isa.Draw))
    return [
        (
            result.slot,
            [
                [(c.token_id, round(255 * c.confidence), int(c.logit * (1 << frac))) for c in token]
                for token in result.top
            ],
        )
        for result in results
    ]


def named(artefact, observe):
    """An observer that is also told the label and the artefact's own instruction."""
    index = 0

    def numbered(op, rows, row_index):
        nonlocal index
        index = 0 if isinstance(op, isa.Embed) else index + 1
        observe(artefact.manifest.labels[index], artefact.program[index], rows, row_index)

    return numbered


def assert_same_cache(functional, golden):
    """Every byte on the ports: the golden cache's, and garbage where nothing belongs."""
    layout, num_ports = golden.kv.layout, functional.kv.base_p.size
    shares = np.split(functional.kv.memory, num_ports)
    wanted = deal_cache(golden.kv.memory, layout, num_ports)
    used = deal_cache(np.ones(layout.total_bytes, dtype=np.uint8), layout, num_ports)
    for share, want, is_used in zip(shares, wanted, used, strict=True):
        np.testing.assert_array_equal(share, np.where(is_used, want, GARBAGE))
