"""The simulated card's memory: banks in one address space, and host copies that go stale.

A buffer has two sides, as with XRT: the host's array and the card's bytes. Only ``to_card`` and
``to_host`` copy between them; forgetting to is a bug that shows here as it does on a card.
"""

import mmap
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

PAGE_BYTES: Final = 4096
_NORESERVE: Final = 0x4000  # Linux MAP_NORESERVE; the mmap module names it from Python 3.13 on


@dataclass(frozen=True, slots=True, kw_only=True)
class Bank:
    """One memory that pynq can allocate in: a pseudo-channel of HBM, or a DDR."""

    name: str
    index: int
    base_address: int
    size_bytes: int

    @property
    def end(self) -> int:
        """First address behind it."""
        return self.base_address + self.size_bytes


@dataclass(slots=True, eq=False)
class Block:
    """An allocated range. ``generation`` changes whenever the host writes the card's side.

    No two blocks of a card's life ever share a generation, so that what the card keeps of a
    block's content can be known to be stale.
    """

    bank: Bank
    address: int
    size_bytes: int
    generation: int = 0


@dataclass(slots=True)
class _Used:
    blocks: list[Block] = field(default_factory=list)


class DeviceMemory:
    """All banks of a card, one after the other from address 0. Untouched memory costs nothing."""

    def __init__(self, banks: tuple[Bank, ...]) -> None:
        self.banks = banks
        self._used = {bank.name: _Used() for bank in banks}
        self._host_writes = 0
        size = banks[-1].end
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
        self.data: NDArray[np.uint8] = np.frombuffer(self._map, dtype=np.uint8)

    def allocate(self, bank: Bank, size_bytes: int) -> Block:
        """First fit, on pages. RuntimeError, as XRT's allocator says it, when there is no room."""
        used = self._used[bank.name].blocks
        address, position = bank.base_address, 0
        while position < len(used) and used[position].address - address < size_bytes:
            address = _page_up(used[position].address + used[position].size_bytes)
            position += 1
        if address + size_bytes > bank.end:
            raise RuntimeError(
                f"BO allocation failed: std::bad_alloc ({size_bytes} bytes in {bank.name} of "
                f"{bank.size_bytes >> 20} MiB)"
            )
        block = Block(bank, address, size_bytes)
        used.insert(position, block)
        return block

    def free(self, block: Block) -> None:
        """Give a block back; its content is gone."""
        self._used[block.bank.name].blocks.remove(block)
        length = _page_up(block.size_bytes)
        self._map.madvise(mmap.MADV_DONTNEED, block.address, length)

    @property
    def num_blocks(self) -> int:
        """Allocated blocks in all banks."""
        return sum(len(used.blocks) for used in self._used.values())

    @property
    def used_bytes(self) -> int:
        """Allocated bytes in all banks."""
        return sum(b.size_bytes for used in self._used.values() for b in used.blocks)

    def block_at(self, address: int) -> Block | None:
        """The allocated block that holds an address."""
        for used in self._used.values():
            for block in used.blocks:
                if block.address <= address < block.address + block.size_bytes:
                    return block
        return None

    def read(self, address: int, size_bytes: int) -> NDArray[np.uint8]:
        """A view of the card's side."""
        return self.data[address : address + size_bytes]

    def host_write(self, block: Block, offset: int, content: NDArray[np.uint8]) -> None:
        """DMA from the host into a block."""
        self._host_writes += 1
        block.generation = self._host_writes
        self.write(block.address + offset, content)

    def write(self, address: int, content: bytes | NDArray[np.uint8]) -> None:
        """The card's own write: no generation is counted."""
        raw = np.frombuffer(content, dtype=np.uint8) if isinstance(content, bytes) else content
        self.data[address : address + raw.size] = raw


def _page_up(value: int) -> int:
    return -(-value // PAGE_BYTES) * PAGE_BYTES


def hbm_banks(count: int, bank_bytes: int) -> tuple[Bank, ...]:
    """Pseudo-channels as an xclbin names them."""
    return tuple(
        Bank(name=f"HBM[{i}]", index=i, base_address=i * bank_bytes, size_bytes=bank_bytes)
        for i in range(count)
    )


def ddr_bank(size_bytes: int) -> tuple[Bank, ...]:
    """The one memory of a Zynq board, by the name that pynq gives it."""
    return (Bank(name="PSDDR", index=0, base_address=0, size_bytes=size_bytes),)
