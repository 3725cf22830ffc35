"""Random linked programs, passes and commands for the benches of the memory side."""

import random

from support import stream_model as model
from support.stream_model import Command, Geometry, PassRow


def instruction(op: int, *operands: int, sampled: bool = False) -> list[int]:
    """Sixteen words."""
    words = [op | (model.SAMPLED_FLAG if sampled else 0), *operands]
    return words + [0] * (16 - len(words))


def llama_program(layers: int, head_dim: int, num_kv_heads: int) -> list[list[int]]:
    """The order of a Llama's instructions with made-up sizes; the tail is for sampled rows only."""
    at = iter(range(100, 100000, 100))
    program = [
        instruction(model.EMBED, next(at), 5, 6, 7),
        instruction(model.ROPE_ROW_OP, next(at), -(-2 * head_dim // 64)),
    ]
    heads = (2 * num_kv_heads, num_kv_heads, head_dim)
    for layer in range(layers):
        tail = layer == layers - 1
        program += [
            instruction(model.NORM_QUANT, 0, 3, 64, next(at), 2),
            instruction(model.MATMUL, next(at), 37),
            instruction(model.ROPE_KV, 1, 2, 16, layer, *heads),
            instruction(model.ATTENTION, layer, *heads, sampled=tail),
            instruction(model.QUANT, 1, 2, 3, sampled=tail),
            instruction(model.MATMUL, next(at), 12, sampled=tail),
            instruction(model.SILU_GATE, 1, 2, 3, sampled=tail),
        ]
    return [
        *program,
        instruction(model.NORM_QUANT, 0, 3, 64, next(at), 2, sampled=True),
        instruction(model.HEAD, next(at), 61, sampled=True),
        instruction(model.DRAW, 16, sampled=True),
        instruction(model.END),
    ]


def random_pass(rng: random.Random, lanes: int) -> list[PassRow]:
    """Rows in the low lanes, those of a command lane next to each other, its last one sampled."""
    rows: list[PassRow] = []
    count = rng.randint(1, lanes)
    while len(rows) < count:
        size = rng.randint(1, count - len(rows))
        rows += _command_lane(rng, len(rows), size)
    return rows


def _command_lane(rng: random.Random, first_row: int, size: int) -> list[PassRow]:
    mem_len = rng.choice([0, 1, rng.randint(0, 70), rng.randint(0, 70)])
    prefix_len = rng.choice([0, mem_len, mem_len + 9, *(rng.randint(0, mem_len) for _ in range(3))])
    slot = rng.randrange(40)
    tail_slot = rng.choice([slot, rng.randrange(40)])
    window = rng.choice([0, 5, 30])
    group = (1 << size) - 1 << first_row
    sampled = rng.random() < 0.6
    return [
        PassRow(
            position=mem_len + i,
            slot=slot,
            tail_slot=tail_slot,
            prefix_len=prefix_len,
            mem_len=mem_len,
            lo=max(0, mem_len + i + 1 - window) if window else 0,
            group=group,
            leader=i == 0,
            sampled=sampled and i == size - 1,
        )
        for i in range(size)
    ]


GEOMETRY = Geometry(slot_beats=100_000, layer_beats=5_000, k_beats=300, v_beats=2_600)


def random_commands(rng: random.Random, count: int, lanes: int) -> list[Command]:
    """Commands in any order: what a planner could say, and emptier."""
    return [_random_command(rng, lanes) for _ in range(count)]


def _random_command(rng: random.Random, lanes: int) -> Command:
    kind = rng.randrange(6)
    mask = rng.randrange(1, 1 << lanes)
    offset = rng.randrange(1 << 26)
    if kind < model.KV_SCALE:
        return Command(kind, mask, True, offset, rng.choice([1, 2, 3, 18, 19]))
    lo = rng.randrange(200)
    hi = lo + rng.choice([0, 0, 1, 2, rng.randrange(60)])
    heads, dim = rng.choice([1, 2, 3, 5, 8]), rng.choice([32, 64, 128])
    granule = model.SCALE_GRANULE if kind == model.KV_SCALE else dim
    return Command(
        kind,
        mask,
        rng.random() < 0.5,
        offset,
        lo=lo,
        hi=hi,
        record_bytes=granule * heads,
        num_kv_heads=heads,
        half=dim == 32,
    )
