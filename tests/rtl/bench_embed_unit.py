"""embed_unit against the golden rows: ports with their own memory, answers at any pace."""

import os
import random

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from fpga.golden.embed import embed

RUNS = int(os.environ.get("RUNS", "5"))
EMBED = 1
INPUTS = ["op_word", "active", "start", "token", "weight_addr", "g_ready"]
INPUTS += ["gr_valid", "gr_data", "gr_last"]


def packed(values, bits):
    mask = (1 << bits) - 1
    return sum((int(value) & mask) << bits * i for i, value in enumerate(values))


def field(handle, bits, index):
    """A part of a wide signal; the rest may be undefined."""
    text = str(handle.value)
    end = len(text) - bits * index
    return int(text[end - bits : end], 2)


def port_beats(quant_nd, mantissa_n, port, ports, *, ids):
    """A port's beats of an int8 matrix: blocks of 8 local tiles, 4 rows each.

    ``ids``: every block has two beats more behind its mantissas.
    """
    tiles = [t for t in range(len(quant_nd) // 4) if t % ports == port]
    beats = []
    for first in range(0, len(tiles), 8):
        block = tiles[first : first + 8]
        rows = [4 * tile + row for tile in block for row in range(4)]
        beats.append(packed([mantissa_n[row] for row in rows], 16))
        beats += [(1 << 512) - 1] * (2 if ids else 0)
        for tile in block:
            for column in range(0, quant_nd.shape[1], 32):
                pair = quant_nd[4 * tile : 4 * tile + 4, column : column + 32]
                beats += [packed(pair[:2].ravel(), 8), packed(pair[2:].ravel(), 8)]
    return beats


class Card:
    """Memory behind each port, and each lane's vector memory."""

    def __init__(self, dut, rng):
        self.dut, self.rng = dut, rng
        self.ports, self.lanes = int(dut.PORTS.value), int(dut.LANES.value)
        self.bases = [rng.randrange(1 << 40) << 6 for _ in range(self.ports)]
        self.beats = [[] for _ in range(self.ports)]
        self.requests = [[] for _ in range(self.ports)]
        self.written = [{} for _ in range(self.lanes)]
        self.asked_while_waiting = 0

    async def begin(self):
        dut = self.dut
        cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
        for name in INPUTS:
            getattr(dut, name).value = 0
        dut.rst.value = 1
        for _ in range(4):
            await FallingEdge(dut.clk)
        dut.rst.value = 0
        dut.weight_addr.value = packed(self.bases, 64)
        cocotb.start_soon(self._serve())
        cocotb.start_soon(self._watch_writes())

    async def _serve(self):
        """Takes requests when it likes; answers some cycles later, in order, with gaps."""
        dut, cycle = self.dut, 0
        pace = 1.0
        while True:
            await FallingEdge(dut.clk)
            cycle += 1
            pace = self.rng.choice([0.3, 0.8, 1.0]) if cycle % 64 == 0 else pace
            answers = [self._answer(port, cycle, pace) for port in range(self.ports)]
            dut.gr_valid.value = packed([a is not None for a in answers], 1)
            dut.gr_data.value = packed([a[0] if a else 0 for a in answers], 512)
            dut.gr_last.value = packed([bool(a and a[1]) for a in answers], 1)
            dut.g_ready.value = self.rng.getrandbits(self.ports)
            await RisingEdge(dut.clk)
            if not dut.g_valid.value.is_resolvable:
                continue
            taken = int(dut.g_valid.value) & int(dut.g_ready.value)
            for port in range(self.ports):
                if taken >> port & 1:
                    self._take(port, cycle)

    def _take(self, port, cycle):
        address, count = field(self.dut.g_addr, 64, port), field(self.dut.g_beats, 16, port)
        first = (address - self.bases[port]) // 64
        assert address % 64 == 0
        assert first >= 0
        assert count > 0
        assert first + count <= len(self.beats[port]), "a gather beyond the matrix"
        self.asked_while_waiting += any(self.requests)
        data = self.beats[port][first : first + count]
        self.requests[port].append([cycle + self.rng.choice([3, 40]), data])

    def _answer(self, port, cycle, pace):
        queue = self.requests[port]
        if not queue or cycle < queue[0][0] or self.rng.random() > pace:
            return None
        beat = queue[0][1].pop(0)
        last = not queue[0][1]
        if last:
            queue.pop(0)
        return beat, last

    async def _watch_writes(self):
        dut = self.dut
        while True:
            await FallingEdge(dut.clk)
            if not dut.w_en.value.is_resolvable:
                continue
            for lane in range(self.lanes):
                data = field(dut.w_data, self.ports * 128, lane)
                if not int(dut.w_en.value) >> lane & 1:
                    others = field(dut.w_word, 16, lane), field(dut.w_mask, self.ports, lane)
                    assert (data, *others) == (0, 0, 0)
                    continue
                word, mask = field(dut.w_word, 16, lane), field(dut.w_mask, self.ports, lane)
                for port in range(self.ports):
                    if mask >> port & 1:
                        at = (word, port)
                        assert at not in self.written[lane], "a word came twice"
                        self.written[lane][at] = data >> 128 * port & (1 << 128) - 1

    def vector(self, lane, word, words):
        """int32 of whole words, all of them written."""
        places = [(word + w, p) for w in range(words) for p in range(self.ports)]
        assert set(self.written[lane]) == set(places), "the vector's words, all and no others"
        bits = [self.written[lane].pop(place) for place in places]
        return np.frombuffer(b"".join(b.to_bytes(16, "little") for b in bits), dtype=np.int32)


@cocotb.test()
async def rows(dut):
    rng = random.Random(cocotb.RANDOM_SEED)
    card = Card(dut, rng)
    await card.begin()
    for run in range(RUNS):
        width = rng.choice([64, 128, 192])
        num_rows = 4 * card.ports * rng.randint(1, 20)
        quant = np.array([[rng.randint(-127, 127) for _ in range(width)] for _ in range(num_rows)])
        mantissa = np.array([rng.choice([0, 65535, rng.getrandbits(16)]) for _ in range(num_rows)])
        offset, ids = rng.randrange(5), run == 3
        for port in range(card.ports):
            beats = port_beats(quant, mantissa, port, card.ports, ids=ids)
            card.beats[port] = [(1 << 512) - 1] * offset + beats
        shift = rng.choice([-9, -7, 0, 1, 62, rng.randint(-3, 24), rng.randint(2, 14)])
        pairs, word = width // 32, rng.randrange(90)
        block = 1 + 2 * ids + 16 * pairs
        dut.op_word.value = packed([EMBED, offset, num_rows, width, shift, word, block, pairs], 32)
        same = rng.randrange(num_rows)
        tokens = [rng.choice([same, rng.randrange(num_rows)]) for _ in range(card.lanes)]
        active = rng.choice([(1 << card.lanes) - 1, rng.randrange(1, 1 << card.lanes)])
        dut.token.value, dut.active.value, dut.start.value = packed(tokens, 32), active, 1
        await FallingEdge(dut.clk)
        dut.start.value, cycles = 0, 0
        while not int(dut.done.value):
            await FallingEdge(dut.clk)
            cycles += 1
            assert cycles < 4000, "never done"
        await FallingEdge(dut.clk)
        words = -(-width // (4 * card.ports))
        for lane in range(card.lanes):
            if not active >> lane & 1:
                assert not card.written[lane]
                continue
            row = tokens[lane]
            want = embed(quant[[row]], mantissa[[row]].astype(np.uint16), shift=shift)[0]
            got = card.vector(lane, word, words)
            assert got[:width].tolist() == want.tolist()
            assert not got[width:].any()
    assert card.lanes == 1 or card.asked_while_waiting > RUNS, "gathers wait for answers"
