"""The accelerator as its bus sees it: registers, and a start that works on card memory.

Stands in for the whole kernel, so that another implementation (RTL under Verilator) can take its
place: ``read`` and ``write`` registers, memory shared. A start runs to its end inside the write of
START; reads then see DONE, as after a short wait on a card.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fpga.driver import buffers
from fpga.driver.buffers import Command, LaneCommand, LaneOutcome, Result, ResultHeader
from fpga.program import isa
from fpga.program.layout import BEAT_BYTES
from fpga.program.link import unlink_program
from fpga.regmap import registers
from hetero.core.errors import HeteroError
from sim.bitstream import SimBitstream
from sim.calib.profile import CardProfile
from sim.cycles.model import CycleModel
from sim.functional.executor import FunctionalExecutor
from sim.functional.state import KvCacheView
from sim.functional.weights import PortImage
from sim.memory import DeviceMemory

_IDLE: Final = registers.CTRL_IDLE | registers.CTRL_READY


class StartError(Exception):
    """A start ends with this status in the result buffer."""

    def __init__(self, status: int, detail: int = 0) -> None:
        super().__init__(buffers.STATUS_TEXT[status].format(detail=detail))
        self.status = status
        self.detail = detail


@dataclass(frozen=True, slots=True)
class LoadedProgram:
    """A decoded program buffer."""

    header: buffers.ProgramHeader
    instructions: tuple[isa.Instruction, ...]
    vocab_size: int


@dataclass(frozen=True, slots=True)
class BoundProgram:
    """A program with the memory that its arguments point to: what it computes, what it costs."""

    executor: FunctionalExecutor
    cycles: CycleModel


class DraftKernel:
    """One loaded bitstream on one card's memory."""

    def __init__(self, bitstream: SimBitstream, profile: CardProfile, memory: DeviceMemory) -> None:
        self._bitstream = bitstream
        self._profile = profile
        self._memory = memory
        self._words = self._fixed_words()
        self._loaded: tuple[object, LoadedProgram] | None = None
        self._bound: tuple[object, BoundProgram] | None = None

    def read(self, offset: int) -> int:
        """A 32-bit register; what is not there reads 0."""
        return self._words.get(offset, 0)

    def write(self, offset: int, value: int) -> None:
        """A 32-bit register; writes to what can't be written are ignored, as on the bus."""
        if offset == registers.CTRL:
            self._control(value)
        elif offset == registers.ISR:
            self._words[offset] = self.read(offset) ^ value
        elif offset == registers.RESET:
            self._reset(value)
        elif _writable(offset):
            self._words[offset] = value

    def _fixed_words(self) -> dict[int, int]:
        build = self._bitstream
        words = {
            registers.CTRL: _IDLE,
            registers.TYPE: registers.TYPE_ID,
            registers.VERSION: registers.INTERFACE_VERSION,
            registers.ISA_VERSION: build.isa_version,
            registers.ARITHMETIC_VERSION: build.arithmetic_version,
            registers.NUM_PORTS: len(build.port_banks),
            registers.MAX_LANES: build.max_lanes,
            registers.MAX_READ_TOKENS: build.max_read_tokens,
            registers.MAX_DRAFT_TOKENS: build.max_draft_tokens,
            registers.VECTOR_WORDS: build.vector_words,
            registers.CLOCK_HZ: build.clock_hz,
        }
        for i in range(registers.BUILD_HASH_COUNT):
            word = int.from_bytes(build.build_hash[4 * i : 4 * i + 4], "little")
            words[registers.BUILD_HASH + i * registers.BUILD_HASH_STRIDE] = word
        return words

    def _control(self, value: int) -> None:
        control = self._words[registers.CTRL]
        if value & registers.CTRL_CONTINUE:
            control &= ~registers.CTRL_DONE
        if (value | control) & registers.CTRL_START and control & registers.CTRL_DONE:
            # Kept until the last start is acknowledged.
            self._words[registers.CTRL] = registers.CTRL_START | registers.CTRL_DONE
            return
        self._words[registers.CTRL] = control
        if (value | control) & registers.CTRL_START:
            self._words[registers.RESET] = 0
            self._start()
            self._words[registers.CTRL] = _IDLE | registers.CTRL_DONE
            enabled = self.read(registers.IER)
            self._words[registers.ISR] = self.read(registers.ISR) | enabled

    def _reset(self, value: int) -> None:
        """A soft reset is over at once: between two writes there is never a start under way."""
        if value & registers.RESET_DRAIN:
            self._words[registers.CTRL] = _IDLE
            self._words[registers.RESET] = registers.RESET_DRAINED

    def _start(self) -> None:
        header = ResultHeader(
            sequence=0,
            isa_version=self._bitstream.isa_version,
            arithmetic_version=self._bitstream.arithmetic_version,
            build_hash=self._bitstream.build_hash,
        )
        lanes: tuple[LaneOutcome, ...] = ()
        try:
            command = self._command()
            header = replace(header, sequence=command.sequence)
            program = self._program(command.program_id)
            header = replace(header, artefact_sha256=program.header.sha256)
            header, lanes = self.execute(command, program, header)
        except StartError as error:
            header = replace(header, status=error.status, detail=error.detail)
        self._publish(Result(header=header, lanes=lanes))

    def execute(
        self, command: Command, program: LoadedProgram, header: ResultHeader
    ) -> tuple[ResultHeader, tuple[LaneOutcome, ...]]:
        """Run a decoded start; StartError ends it with a status."""
        for index, lane in enumerate(command.lanes):
            if not self._lane_is_valid(lane, command, program):
                raise StartError(buffers.STATUS_BAD_LANE, index)
        bound = self._bound_program(command, program)
        lanes = bound.executor.run(command.lanes, window=command.window)
        drafted = [lane.token_ids for lane in lanes]
        report = bound.cycles.start(command.lanes, drafted=drafted, window=command.window)
        self._words[registers.CYCLES] = report.cycles & 0xFFFFFFFF
        self._words[registers.CYCLES + 4] = report.cycles >> 32
        done = replace(
            header,
            num_lanes=len(lanes),
            cycles=report.cycles,
            beats_read=-(-report.bytes_read // BEAT_BYTES),
            passes=report.passes,
            tokens_read=sum(len(lane.token_ids) for lane in command.lanes),
        )
        return done, lanes

    def _lane_is_valid(self, lane: LaneCommand, command: Command, program: LoadedProgram) -> bool:
        limits = self._bitstream.limits
        end = lane.start + len(lane.token_ids) + max(lane.num_draft_tokens - 1, 0)
        return (
            max(lane.slot, lane.write_slot) < command.kv.num_slots
            and end <= command.kv.context_tokens
            and 0 < len(lane.token_ids) <= limits.max_read_tokens
            and lane.num_draft_tokens <= limits.max_draft_tokens
            and all(token < program.vocab_size for token in lane.token_ids)
        )

    # ---- what lies in card memory

    def _address(self, offset: int) -> int:
        return self.read(offset) | self.read(offset + 4) << 32

    def _fetch(self, offset: int, size_bytes: int) -> NDArray[np.uint8]:
        """Bytes at an argument's address, which port 0 must reach."""
        address = self._address(offset)
        self._check_reach(address, port=0)
        return self._memory.read(address, size_bytes)

    def _check_reach(self, address: int, *, port: int) -> None:
        block = self._memory.block_at(address)
        if block is None or block.bank.index != self._bitstream.port_banks[port]:
            raise StartError(buffers.STATUS_DECODE_ERROR, port)

    def _command(self) -> Command:
        limits = self._bitstream.limits
        raw = self._fetch(registers.COMMAND_ADDR, limits.command_bytes).tobytes()
        try:
            return buffers.decode_command(raw, limits)
        except HeteroError as error:
            raise StartError(buffers.STATUS_BAD_COMMAND) from error

    def _program(self, program_id: int) -> LoadedProgram:
        """Fetched again only when the command names another one than the card holds."""
        if self._loaded is None or self._loaded[0] != program_id:
            self._loaded = None
            address = self._address(registers.PROGRAM_ADDR)
            head = self._fetch(registers.PROGRAM_ADDR, BEAT_BYTES)
            self._loaded = (program_id, self._decode_program(head.tobytes(), address))
        return self._loaded[1]

    def _decode_program(self, head: bytes, address: int) -> LoadedProgram:
        try:
            header = buffers.decode_program_header(head)
            size = header.num_instructions * isa.INSTRUCTION_BYTES
            raw = self._memory.read(address + BEAT_BYTES, size).tobytes()
            instructions = tuple(unlink_program(raw, header.num_ports))
        except HeteroError as error:
            raise StartError(buffers.STATUS_BAD_PROGRAM) from error
        build = self._bitstream
        made_for = (header.isa_version, header.arithmetic_version, header.num_ports)
        if made_for != (build.isa_version, build.arithmetic_version, len(build.port_banks)):
            raise StartError(buffers.STATUS_BAD_PROGRAM)
        rows = [op.num_rows for op in instructions if isinstance(op, isa.Embed)]
        return LoadedProgram(header, instructions, min(rows, default=0))

    def _bound_program(self, command: Command, program: LoadedProgram) -> BoundProgram:
        """Weights are unpacked again only when the host wrote them, or pointed elsewhere, since."""
        weights = self._port_addresses(registers.WEIGHT_ADDR)
        kv = self._port_addresses(registers.KV_ADDR)
        generations = tuple(self._generation(address) for address in weights)
        assert self._loaded is not None
        key = (self._loaded[0], weights, kv, generations, command.kv)
        if self._bound is None or self._bound[0] != key:
            self._bound = (key, self._bind(command, program, weights, kv))
        return self._bound[1]

    def _bind(
        self,
        command: Command,
        program: LoadedProgram,
        weights: tuple[int, ...],
        kv: tuple[int, ...],
    ) -> BoundProgram:
        size = program.header.port_beats * BEAT_BYTES
        shares = tuple(self._memory.read(address, size) for address in weights)
        view = KvCacheView(
            memory=self._memory.data,
            base_p=np.array(kv, dtype=np.int64),
            geometry=command.kv,
        )
        executor = FunctionalExecutor(
            program.instructions,
            PortImage(shares),
            view,
            vector_words=program.header.vector_words,
        )
        cycles = CycleModel(
            program.instructions,
            self._profile,
            kv=command.kv,
            weight_addresses=weights,
            kv_addresses=kv,
        )
        return BoundProgram(executor, cycles)

    def _port_addresses(self, base: int) -> tuple[int, ...]:
        addresses = []
        for port in range(len(self._bitstream.port_banks)):
            address = self._address(base + port * registers.WEIGHT_ADDR_STRIDE)
            self._check_reach(address, port=port)
            addresses.append(address)
        return tuple(addresses)

    def _generation(self, address: int) -> int:
        block = self._memory.block_at(address)
        return block.generation if block is not None else -1

    def _publish(self, result: Result) -> None:
        """Write the result, if there is a place that port 0 reaches; else it is lost."""
        address = self._address(registers.RESULT_ADDR)
        try:
            self._check_reach(address, port=0)
        except StartError:
            return
        self._memory.write(address, buffers.encode_result(result, self._bitstream.limits))


def _writable(offset: int) -> bool:
    return any(
        begin <= offset < begin + bits // 8
        for begin, bits, access in registers.REGISTERS.values()
        if access == "read-write"
    )
