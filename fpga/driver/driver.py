"""``DraftCard``: one card with a draft loaded, behind ports.CardDriver.

It takes an overlay that somebody opened and uses PYNQ's public API only: the overlay's IP (read,
write), its memories (allocate), and the buffers' flush and invalidate. Whether a board or a
stand-in is below, it does not know.
"""

import contextlib
import itertools
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fpga.driver.buffers import (
    STATUS_OK,
    STATUS_TEXT,
    Command,
    KvGeometry,
    LaneCommand,
    ProgramHeader,
    Result,
    ResultHeader,
    decode_result,
    encode_command,
    encode_program,
)
from fpga.driver.card_memory import CardMemory, sync_from_card, sync_to_card
from fpga.driver.faults import card_errors
from fpga.driver.kernel_port import Build, KernelPort, WaitPolicy
from fpga.driver.lanes import check_lane, lane_command, lane_result
from fpga.program import isa, tables
from fpga.program.artefact import Artefact
from fpga.program.layout import BEAT_BYTES
from fpga.program.link import LinkedProgram, link_program
from fpga.program.sharing import check_sharing
from fpga.regmap import registers
from hetero.core.errors import CardError, ConfigError
from hetero.core.types import CardInfo, CardRun, CardUsage, LaneWork


@dataclass(frozen=True, slots=True, kw_only=True)
class CardIdentity:
    """What the opener knows of the card that the card itself can't tell.

    ``start_overhead_s``: modelled host time of one start where no real host spends it; 0 for a
    real board, whose wall time has it.
    """

    device: str
    backend: str
    simulated: bool
    start_overhead_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverConfig:
    """How the card is used. ``max_context_tokens`` None: what the draft was built for.

    ``window``: how many positions a token sees, its own included; 0: all.
    """

    num_slots: int = 8
    max_context_tokens: int | None = None
    window: int = 0
    wait: WaitPolicy = field(default_factory=WaitPolicy)

    def __post_init__(self) -> None:
        if self.num_slots < 1:
            raise ConfigError(f"slots = {self.num_slots}: use at least 1.")
        if self.window < 0:
            raise ConfigError(f"window = {self.window}: use 0 for none, or a number of positions.")


class DraftCard:
    """Owns the device buffers of one draft. Not thread-safe, as ports.CardDriver says.

    ``on_close`` is called once, after the buffers are free: the place for the opener to put its
    device away. Raises CardError when the overlay holds no such kernel, or another version of it,
    ConfigError when the draft does not fit the card.
    """

    def __init__(
        self,
        overlay: Any,
        artefact: Artefact,
        identity: CardIdentity,
        *,
        config: DriverConfig | None = None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        config = config or DriverConfig()
        context = config.max_context_tokens or artefact.shape.max_context_tokens
        kv = artefact.kv_layout(config.num_slots, context)
        name = find_kernel(overlay)
        self._port = KernelPort(_attribute(overlay, name), config.wait)
        self._build = self._port.identify()
        _check_fits(artefact, self._build)
        self._artefact = artefact
        self._identity = identity
        self._kv = KvGeometry.of(kv, self._build.limits.num_ports)
        self._window = config.window
        self._logit_frac = _logit_frac(artefact)
        # The card keeps a program as long as this stays the same, over all processes that use it.
        self._program_id = secrets.randbelow(0xFFFFFFFF) + 1
        self._sequence = itertools.count(1)
        with contextlib.ExitStack() as undo:
            memory = undo.enter_context(CardMemory(overlay, name))
            self._load(memory, link_program(artefact, self._build.limits.num_ports))
            self._info = self._card_info(config.num_slots, context)
            # A start without lanes: the card answers for itself and for the program it fetched.
            self._start(())
            undo.pop_all()
        self._memory: CardMemory | None = memory
        self._on_close = on_close

    @property
    def info(self) -> CardInfo:
        """What the card is and can take."""
        return self._info

    def run(self, work: Sequence[LaneWork]) -> CardRun:
        """One start; see ports.CardDriver."""
        if self._memory is None:
            raise CardError("card: closed. Open it again.")
        self._check(work)
        result = self._start(tuple(lane_command(lane) for lane in work))
        if len(result.lanes) != len(work):
            raise CardError(f"card: {len(result.lanes)} results for {len(work)} lanes. Reset it.")
        lanes = tuple(
            lane_result(*pair, logit_frac=self._logit_frac)
            for pair in zip(work, result.lanes, strict=True)
        )
        return CardRun(lanes, self._usage(result.header.cycles))

    def close(self) -> None:
        """Free buffers, then the opener's device. Idempotent."""
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.free()
            self._on_close()

    def _load(self, memory: CardMemory, linked: LinkedProgram) -> None:
        """Copy program and weights to the card and point its arguments at all buffers."""
        program = self._program_bytes(linked)
        program_buffer = memory.allocate("PROGRAM_ADDR", len(program))
        program_buffer[:] = np.frombuffer(program, dtype=np.uint8)
        sync_to_card(program_buffer, "the program")
        self._command = memory.allocate("COMMAND_ADDR", self._build.limits.command_bytes)
        self._result = memory.allocate("RESULT_ADDR", self._build.limits.result_bytes)
        self._command[:] = 0
        self._result[:] = 0
        for register, buffer in (
            (registers.PROGRAM_ADDR, program_buffer),
            (registers.COMMAND_ADDR, self._command),
            (registers.RESULT_ADDR, self._result),
        ):
            self._port.write_address(register, int(buffer.device_address))
        weights = memory.load_shares("WEIGHT_ADDR", linked.shares)
        kv = memory.reserve_shares("KV_ADDR", self._kv.port_bytes, len(linked.shares))
        for port, addresses in enumerate(zip(weights, kv, strict=True)):
            step = port * registers.WEIGHT_ADDR_STRIDE
            self._port.write_address(registers.WEIGHT_ADDR + step, addresses[0])
            self._port.write_address(registers.KV_ADDR + step, addresses[1])

    def _program_bytes(self, linked: LinkedProgram) -> bytes:
        header = ProgramHeader(
            isa_version=isa.ISA_VERSION,
            arithmetic_version=tables.ARITHMETIC_VERSION,
            num_instructions=len(linked.words) // isa.INSTRUCTION_BYTES,
            port_beats=linked.shares[0].size // BEAT_BYTES,
            vector_words=self._artefact.manifest.vector_words,
            num_ports=len(linked.shares),
            sha256=bytes.fromhex(self._artefact.sha256),
        )
        return encode_program(header, linked.words)

    def _card_info(self, num_slots: int, context_tokens: int) -> CardInfo:
        limits = self._build.limits
        return CardInfo(
            device=self._identity.device,
            backend=self._identity.backend,
            simulated=self._identity.simulated,
            num_slots=num_slots,
            max_lanes=min(limits.max_lanes, num_slots),
            max_context_tokens=context_tokens,
            max_draft_tokens=limits.max_draft_tokens,
            max_prefill_tokens=limits.max_read_tokens,
            vocab_size=self._artefact.manifest.target.vocab_size,
            clock_hz=self._build.clock_hz,
            artefact_sha256=self._artefact.sha256,
            target_tokenizer_sha256=self._artefact.manifest.target.tokenizer_sha256,
        )

    def _start(self, lanes: tuple[LaneCommand, ...]) -> Result:
        """One command buffer there, one result buffer back."""
        sequence = next(self._sequence) & 0xFFFFFFFF
        command = Command(
            sequence=sequence,
            program_id=self._program_id,
            kv=self._kv,
            lanes=lanes,
            window=self._window,
        )
        packed = encode_command(command, self._build.limits)
        self._command[: len(packed)] = np.frombuffer(packed, dtype=np.uint8)
        sync_to_card(self._command, "the command buffer")
        self._port.start_and_wait()
        sync_from_card(self._result, "the result buffer")
        result = decode_result(np.asarray(self._result), self._build.limits)
        self._check_result(result.header, sequence)
        return result

    def _check_result(self, header: ResultHeader, sequence: int) -> None:
        if header.sequence != sequence:
            raise CardError(
                f"card: answered start {header.sequence} instead of {sequence}. A synchronisation "
                "was lost; reopen the card."
            )
        if header.status != STATUS_OK:
            text = STATUS_TEXT.get(header.status, f"status {header.status}")
            raise CardError(f"card: {text.format(detail=header.detail)}. Reopen the card.")
        for what, got, want in (
            ("bitstream build", header.build_hash, self._build.build_hash),
            ("draft", header.artefact_sha256, bytes.fromhex(self._artefact.sha256)),
        ):
            if got != want:
                raise CardError(
                    f"card: runs {what} {got.hex()[:12]}, wanted {want.hex()[:12]}. Another "
                    "process loaded it; reopen the card."
                )

    def _check(self, work: Sequence[LaneWork]) -> None:
        info = self._info
        if not 1 <= len(work) <= info.max_lanes:
            raise CardError(f"{len(work)} lanes: this card takes 1..{info.max_lanes} a start.")
        check_sharing(work, info.num_slots)
        for lane in work:
            check_lane(lane, info)

    def _usage(self, cycles: int) -> CardUsage:
        on_card_s = cycles / self._build.clock_hz
        return CardUsage(cycles, on_card_s, self._identity.start_overhead_s)


def find_kernel(overlay: Any) -> str:
    """Name of our kernel in an overlay, by its VLNV; CardError when there is none."""
    with card_errors("reading the overlay's metadata"):
        kinds = {name: entry.get("type") for name, entry in overlay.ip_dict.items()}
    for name, kind in kinds.items():
        if kind == registers.VLNV:
            return str(name)
    present = ", ".join(sorted(str(kind) for kind in kinds.values())) or "nothing"
    raise CardError(
        f"bitstream: holds no {registers.VLNV} but {present}. Load the draft card's bitstream."
    )


def _attribute(overlay: Any, path: str) -> Any:
    """An IP by its path: ``a/b`` is attribute b of hierarchy a."""
    with card_errors(f"finding {path} in the overlay"):
        found = overlay
        for part in path.split("/"):
            found = getattr(found, part)
        return found


def _check_fits(artefact: Artefact, build: Build) -> None:
    words = artefact.manifest.vector_words
    if words > build.vector_words:
        raise ConfigError(
            f"draft {artefact.path}: needs {words} words of vector memory in each lane, this "
            f"bitstream has {build.vector_words}. Use a narrower draft or a larger build."
        )


def _logit_frac(artefact: Artefact) -> int:
    """Fraction bits of the logits that a draw sees."""
    return next(op.logit_frac for op in artefact.program if isinstance(op, isa.Draw))
