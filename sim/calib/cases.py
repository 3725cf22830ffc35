"""What the cycle model is fitted to, and what it is only checked on."""

from dataclasses import dataclass, replace
from typing import Final

from hetero.core.types import LaneWork
from sim.rtl.parameters import RtlBuild
from sim.shapes import DraftSize

CONTEXT_TOKENS: Final = 320
TEMPERATURE: Final = 0.8

BASE: Final = RtlBuild(
    act_cols=1024,
    vector_words=8192,
    max_positions=1024,
    max_head_dim=64,
    program_instructions=256,
    max_read_tokens=64,
)
"""Holds the drafts below; everything that cycles depend on is as ``--card rtl`` builds it."""

BUILDS: Final = {
    "1p1l": replace(BASE, ports=1, lanes=1),
    "2p2l": replace(BASE, ports=2, lanes=2),
    "4p4l": replace(BASE, ports=4, lanes=4),
    "4p1l": replace(BASE, ports=4, lanes=1),
    "8p2l": replace(BASE, ports=8, lanes=2, arrays=4, fifo_beats=1024, slr_stages=2),
    "kv260": replace(
        BASE,
        ports=4,
        port_bytes=16,
        lanes=1,
        array_bytes=16,
        attn_heads=1,
        attn_bytes=16,
        fifo_beats=1024,
    ),
}
"""Two lanes on eight ports have two arrays each, shorter FIFOs and registers between dies."""

DRAFTS: Final = {
    "slim": DraftSize(
        hidden_size=128,
        intermediate_size=160,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=32,
        vocab_size=803,
        context_tokens=CONTEXT_TOKENS,
    ),
    "square": DraftSize(
        hidden_size=256,
        intermediate_size=512,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        vocab_size=1000,
        context_tokens=CONTEXT_TOKENS,
    ),
    "grouped": DraftSize(
        hidden_size=576,
        intermediate_size=960,
        num_layers=2,
        num_heads=9,
        num_kv_heads=3,
        vocab_size=2000,
        context_tokens=CONTEXT_TOKENS,
    ),
    "held_out": DraftSize(
        hidden_size=320,
        intermediate_size=768,
        num_layers=3,
        num_heads=10,
        num_kv_heads=5,
        head_dim=32,
        vocab_size=1500,
        context_tokens=CONTEXT_TOKENS,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A lane's share of a start. ``depth``: in a tree that is a chain, on a prefix in slot 0."""

    start: int
    tokens: int = 1
    drafts: int = 2
    depth: int | None = None

    def lane(self, slot: int) -> LaneWork:
        """As a driver takes it; tokens read in one pass lie on different ports."""
        lane = LaneWork(
            slot=slot,
            start=self.start,
            token_ids=tuple(4 * (slot + i) % 200 for i in range(self.tokens)),
            num_draft_tokens=self.drafts,
            output_index=self.start,
            seed=slot,
            choice_index=0,
            temperature=TEMPERATURE,
        )
        if self.depth is None:
            return lane
        prefix, mask = self.start - self.depth, (2 << self.depth) - 1
        return replace(lane, slot=0, tail_slot=1 + slot, prefix_len=prefix, ancestor_mask=mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of the card, a ``Work`` for each lane in use."""

    lanes: tuple[Work, ...]
    fitted: bool = True

    def work(self) -> list[LaneWork]:
        """As a driver takes it."""
        return [work.lane(slot) for slot, work in enumerate(self.lanes)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A draft on a build. ``fitted``: constants may be moved to please its fitted starts."""

    draft: str
    build: str
    memory: str = "ideal"
    fitted: bool = False

    @property
    def name(self) -> str:
        """For people and files."""
        return f"{self.draft}-{self.build}-{self.memory}"

    @property
    def rtl(self) -> RtlBuild:
        """What to build."""
        return BUILDS[self.build]

    @property
    def device(self) -> str:
        """The card whose clock and memory are around it."""
        return "kv260" if self.build == "kv260" else "u55c"

    @property
    def starts(self) -> tuple[Start, ...]:
        """What is run, in this order."""
        return starts(self.rtl.lanes)


FITTED_DRAFTS: Final = ("slim", "square", "grouped")
FITTED_BUILDS: Final = ("1p1l", "2p2l", "4p4l")
HELD_OUT_BUILDS: Final = ("4p1l", "8p2l")

CASES: Final = (
    *(Case(draft=d, build=b, fitted=d in FITTED_DRAFTS) for b in FITTED_BUILDS for d in DRAFTS),
    *(Case(draft=d, build=b) for b in HELD_OUT_BUILDS for d in ("slim", "square", "held_out")),
    *(Case(draft=d, build="4p4l", memory="card") for d in ("slim", "square", "held_out")),
    *(Case(draft=d, build="8p2l", memory="card") for d in ("square", "held_out")),
    *(Case(draft=d, build="kv260") for d in ("slim", "square")),
    *(Case(draft=d, build="kv260", memory="card") for d in ("square", "held_out")),
)


def starts(lanes: int) -> tuple[Start, ...]:
    """Prompts, drafting at several KV lengths, and passes with some or all lanes in use; then KV
    lengths, ragged lanes and trees that nothing is fitted to."""
    alone = [
        Work(start=0, tokens=2),
        Work(start=2, drafts=3),
        Work(start=100),
        Work(start=256),
        Work(start=0, tokens=6, drafts=1),
    ]
    together = [
        tuple(Work(start=20 + 10 * i) for i in range(lanes)),
        tuple(Work(start=250) for _ in range(lanes)),
        (Work(start=0, tokens=4 * lanes, drafts=1),),
        tuple(Work(start=3 * i, tokens=3) for i in range(lanes)),
        tuple(Work(start=5) for _ in range(lanes - 1)),
    ]
    unseen = [
        (Work(start=173, drafts=3),),
        (Work(start=37, tokens=5),),
        tuple(Work(start=(7 + 83 * i) % 290) for i in range(lanes)),
        tuple(Work(start=11 + 60 * i, tokens=1 + i % 3, drafts=1 + i % 2) for i in range(lanes)),
        tuple(Work(start=60 + i, drafts=1, depth=i) for i in range(lanes)),
    ]
    fitted = [(work,) for work in alone] + (together[: 5 if lanes > 2 else 4] if lanes > 1 else [])
    held_out = unseen if lanes > 1 else unseen[:2]
    return (
        *(Start(lanes=lanes, fitted=True) for lanes in fitted),
        *(Start(lanes=lanes, fitted=False) for lanes in held_out),
    )
