"""rope_kv: heads of a row against rotation and QUANT, with a slow taker; cycles with a quick one.

Environment: HETERO_ROPE, a JSON object with the fields of Shape, ``spread`` and ``gaps``.
"""

import json
import os

import cocotb
import numpy as np
from attention_model import IN_FRAC, Shape, random_rope_row, random_vector, rope_kv, seeded
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, Timer

MEM_LATENCY = 2
IN_WORD = 3
START_CYCLES = 50
"""From start to done besides the heads' own cycles and one head more; measured 48."""


class Run:
    """One ROPE_KV."""

    def __init__(self, dut, settings, seed):
        self.dut, self.rng = dut, seeded(seed)
        self.gaps = settings["gaps"]
        names = Shape.__dataclass_fields__
        self.shape = Shape(**{k: v for k, v in settings.items() if k in names})
        self.vector = random_vector(self.shape, self.rng, settings["spread"])
        self.table = random_rope_row(self.shape, self.rng)
        query, keys, values = rope_kv(self.shape, self.vector, self.table)
        self.expected = [
            (kind, index, part.quant[index].tobytes(), part.mantissa[index], part.exponent[index])
            for kind, part in enumerate((query, keys, values))
            for index in range(part.quant.shape[0])
        ]
        vec = 4 * self.shape.ports
        self.words = -(-self.vector.size // vec)
        memory = np.full((IN_WORD + self.words) * vec, 0x5A5A5A5A, dtype=np.int64)
        memory[IN_WORD * vec : IN_WORD * vec + self.vector.size] = self.vector
        self.memory = memory.reshape(-1, vec)
        self.reads = [None] * MEM_LATENCY
        self.got = []
        self.done = False
        self.cycle = 0

    async def tick(self):
        dut = self.dut
        due = self.reads.pop(0)
        if due is not None:
            raw = self.memory[due].astype("<i4").tobytes()
            dut.mem_data.value = int.from_bytes(raw, "little")
        dut.out_ready.value = ready = self.rng.random() >= self.gaps
        await Timer(2, "ns")
        self.reads.append(int(dut.mem_word.value) if int(dut.mem_re.value) else None)
        if int(dut.out_valid.value) and ready:
            raw = int(dut.out_data.value).to_bytes(len(dut.out_data) // 8, "little")
            size = self.shape.head_dim
            assert not any(raw[size:]), "bytes beyond the head"
            self.got.append(
                (
                    int(dut.out_kind.value),
                    int(dut.out_head.value),
                    raw[:size],
                    int(dut.out_mant.value),
                    dut.out_exp.value.to_signed(),
                )
            )
        self.done |= bool(int(dut.done.value))
        await FallingEdge(dut.clk)
        self.cycle += 1

    async def arm(self):
        self.dut.cfg_row_beats.value = self.table.nbytes // 64
        self.dut.arm_row.value = 1
        await self.tick()
        self.dut.arm_row.value = 0

    async def send_row(self):
        dut = self.dut
        raw = self.table.tobytes()
        for i in range(0, len(raw), 64):
            dut.row_data.value = int.from_bytes(raw[i : i + 64], "little")
            while self.rng.random() < self.gaps:
                await self.tick()
            dut.row_valid.value = 1
            assert int(dut.row_ready.value) == 1
            await self.tick()
            dut.row_valid.value = 0
        assert int(dut.row_ready.value) == 0, "takes a row that it was not armed for"

    async def run(self):
        dut, shape = self.dut, self.shape
        dut.cfg_in_word.value, dut.cfg_words.value = IN_WORD, self.words
        dut.cfg_in_frac.value = IN_FRAC
        dut.cfg_heads.value, dut.cfg_kv_heads.value = shape.heads, shape.kv_heads
        dut.cfg_size.value = shape.head_dim // 32
        late = self.gaps > 0
        await self.arm()
        if not late:
            await self.send_row()
        begin = self.cycle
        dut.start.value = 1
        await self.tick()
        dut.start.value = 0
        if late:
            await self.send_row()
        while not self.done:
            assert self.cycle < begin + 20000, "does not end"
            await self.tick()
        assert len(self.got) == len(self.expected)
        for got, want in zip(self.got, self.expected, strict=True):
            assert got == want, f"{got} for {want}"
        return self.cycle - begin


@cocotb.test()
async def rows(dut):
    settings = json.loads(os.environ["HETERO_ROPE"])
    cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
    for name in ("start", "arm_row", "row_valid", "out_ready", "mem_data"):
        getattr(dut, name).value = 0
    dut.rst.value = 1
    for _ in range(5):
        await FallingEdge(dut.clk)
    dut.rst.value = 0
    for seed in range(settings["rows"]):
        run = Run(dut, settings, seed)
        cycles = await run.run()
        if settings["gaps"] == 0:
            shape = run.shape
            width = min(16, 4 * shape.ports)
            heads = shape.heads + 2 * shape.kv_heads
            groups = shape.head_dim // width
            assert cycles <= (heads + 1) * groups + START_CYCLES, cycles
            dut._log.info("besides the heads' own: %d", cycles - (heads + 1) * groups)
