"""The functional executor on a bare piece of memory, without device or driver."""

import numpy as np

from fpga.driver.buffers import KvGeometry, LaneCommand
from fpga.driver.driver import inverse_temperature
from fpga.driver.placement import share_bytes
from sim.functional.executor import FunctionalExecutor
from sim.functional.state import KvCacheView
from sim.functional.weights import WeightImage


def functional_executor(artefact, num_slots, context_tokens, *, num_ports=3):
    layout = artefact.kv_layout(num_slots, context_tokens)
    share = share_bytes(layout.total_bytes, num_ports)
    memory = np.full(num_ports * share, 0xA5, dtype=np.uint8)  # dead KV is garbage, not zeros
    kv = KvCacheView(
        memory=memory,
        base_p=np.arange(num_ports, dtype=np.int64) * share,
        geometry=KvGeometry.of(layout),
    )
    return FunctionalExecutor(
        artefact.program,
        WeightImage(artefact.image),
        kv,
        vector_words=artefact.manifest.vector_words,
    )


def lane_command(work):
    return LaneCommand(
        slot=work.slot,
        start=work.start,
        token_ids=work.token_ids,
        num_draft_tokens=work.num_draft_tokens,
        output_index=work.output_index,
        seed=work.seed,
        choice_index=work.choice_index,
        inv_temperature=inverse_temperature(work.temperature),
    )


def run(executor, lanes, observe=None):
    """[(slot, token ids, confidence in 1/255)] of a start."""
    outcomes = executor.run([lane_command(work) for work in lanes], observe)
    return [(o.slot, o.token_ids, o.confidence) for o in outcomes]
