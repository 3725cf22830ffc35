"""pass_scheduler against sim.schedule: which rows, in which passes, seeing what."""

import random
from types import SimpleNamespace

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from sim.schedule import card_passes

FIELDS = {"cmd_slot": 16, "cmd_tail_slot": 16, "cmd_prefix_len": 20, "cmd_start": 20}
FIELDS |= {"cmd_num_read": 20, "cmd_num_draft": 16, "cmd_token_word": 20, "cmd_ancestors": 32}
DEADLINE_CYCLES = 3000


def packed(values, bits):
    return sum(int(value) << bits * i for i, value in enumerate(values))


def unpacked(handle, bits, index):
    text = str(handle.value)  # fields of unused rows may be undefined
    end = len(text) - bits * index
    return int(text[end - bits : end], 2)


async def reset(dut):
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    dut.rst.value = 1
    for name in ("go", "stop", "pass_ready", "cmd_lanes", "cmd_window", *FIELDS):
        getattr(dut, name).value = 0
    for _ in range(3):
        await FallingEdge(dut.clk)
    dut.rst.value = 0


def random_lane(rng, index, *, tree):
    count = 1 if tree else rng.choice([1, 1, 2, rng.randint(1, 9)])
    start = rng.randint(0, 40)
    return SimpleNamespace(
        slot=rng.randrange(50),
        tail_slot=rng.randrange(50),
        prefix_len=rng.randint(0, start + 4),
        start=start,
        token_ids=tuple(range(count)),
        num_draft_tokens=rng.choice([0, 1, 2, 5]),
        token_word=100 * index,
        ancestor_mask=1 << index | rng.randrange(1 << index) if tree else 0,
    )


def expected(lanes, width, window):
    """Descriptors as lists of dicts, one for each row."""
    reads = sum(len(lane.token_ids) for lane in lanes)
    passes = []
    for number, rows in enumerate(card_passes(lanes, width)):
        firsts = {}
        for at, row in enumerate(rows):
            firsts.setdefault(row.lane, at)
        described = []
        for at, row in enumerate(rows):
            lane = lanes[row.lane]
            tree = number == 0 and lane.ancestor_mask != 0
            same = [m for m, other in enumerate(rows) if other.lane == row.lane]
            above = [m for m, x in enumerate(rows) if lane.ancestor_mask >> x.lane & 1]
            low = max(0, row.position + 1 - window) if window else 0
            seen = above if tree else [m for m in same if m < at]
            seen = [m for m in seen if m == at or rows[m].position >= low]
            first = rows[firsts[row.lane]].position
            drawn = row.position - lane.start - len(lane.token_ids) + 1
            feedback = reads <= sum(len(p) for p in passes)
            described.append(
                {
                    "pass_lane": row.lane,
                    "pass_position": row.position,
                    "pass_lo": low,
                    "pass_mem_len": min(first, lane.prefix_len) if tree else first,
                    "pass_prefix_len": lane.prefix_len,
                    "pass_slot": lane.slot,
                    "pass_tail_slot": lane.tail_slot,
                    "pass_group": packed([m in same for m in range(width)], 1),
                    "pass_visible": packed([m == at or m in seen for m in range(width)], 1),
                    "pass_leader": firsts[row.lane] == at,
                    "pass_sampled": row.sampled,
                    "pass_feedback": feedback,
                    "pass_step": drawn if feedback else 0,
                    "pass_token_word": None
                    if feedback
                    else lane.token_word + row.position - lane.start,
                }
            )
        passes.append(described)
    return passes


def read_rows(dut, width):
    bits = {"pass_lane": 8, "pass_slot": 16, "pass_tail_slot": 16, "pass_step": 16}
    bits |= dict.fromkeys(("pass_position", "pass_lo", "pass_mem_len", "pass_prefix_len"), 20)
    bits |= {"pass_token_word": 20, "pass_group": width, "pass_visible": width}
    bits |= {"pass_leader": 1, "pass_sampled": 1, "pass_feedback": 1}
    count = int(dut.pass_rows.value).bit_count()
    assert int(dut.pass_rows.value) == (1 << count) - 1, "rows are not in the low lanes"
    return [{n: unpacked(getattr(dut, n), b, r) for n, b in bits.items()} for r in range(count)]


async def start(dut, lanes, window):
    dut.cmd_lanes.value = len(lanes)
    dut.cmd_window.value = window
    names = {"cmd_num_read": lambda x: len(x.token_ids), "cmd_ancestors": lambda x: x.ancestor_mask}
    names["cmd_num_draft"] = lambda x: x.num_draft_tokens
    for name, bits in FIELDS.items():
        take = names.get(name, lambda x, key=name: getattr(x, key.removeprefix("cmd_")))
        getattr(dut, name).value = packed([take(lane) for lane in lanes], bits)
    dut.go.value = 1
    await FallingEdge(dut.clk)
    dut.go.value = 0


async def collect(dut, rng, width, *, stop_after=None):
    """Descriptors given out until `finished`; ready comes and goes."""
    given = []
    for _ in range(DEADLINE_CYCLES):
        if int(dut.finished.value) and not int(dut.pass_valid.value):
            return given
        ready = rng.random() < 0.4
        dut.pass_ready.value = ready
        if ready and int(dut.pass_valid.value):
            given.append(read_rows(dut, width))
            if stop_after is not None and len(given) >= stop_after:
                dut.stop.value = 1
        await FallingEdge(dut.clk)
        dut.pass_ready.value = 0
    raise AssertionError("the scheduler does not finish")


def same_rows(got, wanted):
    assert len(got) == len(wanted), f"{len(got)} rows instead of {len(wanted)}"
    for row, (mine, golden) in enumerate(zip(got, wanted, strict=True)):
        for name, value in golden.items():
            assert value is None or mine[name] == value, f"row {row}: {name} {mine[name]}, {value}"


@cocotb.test()
async def random_commands(dut):
    """Every descriptor of random commands: filling, drafting, ragged, trees, windows."""
    rng = random.Random(cocotb.RANDOM_SEED)
    width = len(dut.pass_rows)
    await reset(dut)
    for _ in range(25):
        tree = rng.random() < 0.3
        lanes = [random_lane(rng, i, tree=tree) for i in range(rng.randint(1, width))]
        window = rng.choice([0, 0, 1, 8, 30])
        wanted = expected(lanes, width, window)
        await start(dut, lanes, window)
        got = await collect(dut, rng, width)
        assert len(got) == len(wanted), f"{len(got)} passes instead of {len(wanted)}"
        assert int(dut.passes.value) == len(wanted)
        assert int(dut.tokens.value) == sum(len(lane.token_ids) for lane in lanes)
        for mine, golden in zip(got, wanted, strict=True):
            same_rows(mine, golden)


@cocotb.test()
async def stops_giving_out(dut):
    """After `stop` at most the descriptor already waiting is given out."""
    rng = random.Random(7)
    width = len(dut.pass_rows)
    await reset(dut)
    lanes = [random_lane(rng, 0, tree=False)]
    lanes[0].token_ids = tuple(range(9 * width))
    await start(dut, lanes, 0)
    got = await collect(dut, rng, width, stop_after=2)
    assert 2 <= len(got) <= 3
