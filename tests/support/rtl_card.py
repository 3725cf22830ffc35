"""The accelerator's RTL as a card, small, for tests; and drafts that fit it."""

import tempfile
from pathlib import Path

from support.llama_files import TINY, random_weights, write_checkpoint

from fpga.program.build import build_artefact
from fpga.regmap import registers
from sim.rtl.open_card import RtlCardConfig, open_rtl_card
from sim.rtl.parameters import RtlBuild

CACHE = Path(tempfile.gettempdir()) / "hetero-rtl-cards"
SMALL = RtlBuild(
    fifo_beats=128,
    act_cols=256,
    vector_words=4096,
    max_positions=512,
    max_heads=4,
    max_kv_heads=2,
    program_instructions=128,
    max_read_tokens=64,
)
"""What the tests build: every size as small as the drafts below allow."""

TINY_RTL = {
    **TINY,
    "hidden_size": 128,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 203,
    "max_position_embeddings": 256,
}


def write_draft(folder, **changes):
    """A random draft's artefact; ``changes`` of TINY_RTL."""
    config = {**TINY_RTL, **changes}
    checkpoint = write_checkpoint(folder / "checkpoint", config, random_weights(config))
    build_artefact(checkpoint, folder / "draft", target_tokenizer_sha256="ab" * 32)
    return folder / "draft"


def open_small(artefact_path, *, build=SMALL, timing=None, ports=1, lanes=1, **changes):
    """A DraftCard over the RTL; ``changes`` of RtlCardConfig."""
    sizes = dict(num_slots=6, max_context_tokens=160)
    return open_rtl_card(
        RtlCardConfig(
            artefact_path=artefact_path,
            cache_dir=CACHE,
            progress=lambda _line: None,
            ports=ports,
            lanes=lanes,
            build=build,
            timing=timing,
            **{**sizes, **changes},
        )
    )


def model_of(card):
    """The simulated hardware below an open card: sim.rtl.model.RtlModel."""
    return card._port._ip.device._kernel.model


def kv_shares(card, num_ports):
    """What lies in the KV cache of each port, uint8."""
    memory, size = card._port._ip.device.card_memory, card._kv.port_bytes
    return [memory.read(begin, size) for begin in _kv_begins(card, num_ports)]


def put_kv(card, shares):
    """Write the KV cache of each port, uint8."""
    memory = card._port._ip.device.card_memory
    for begin, share in zip(_kv_begins(card, len(shares)), shares, strict=True):
        memory.write(begin, share)


def _kv_begins(card, num_ports):
    words = [
        [model_of(card).read(registers.KV_ADDR + 8 * port + at) for at in (0, 4)]
        for port in range(num_ports)
    ]
    return [low | high << 32 for low, high in words]
