"""Buffers on the card: allocated through pynq, each where its port can reach it."""

import re
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpga.driver.faults import card_errors


class CardMemory:
    """Allocates for one kernel of an overlay, and frees everything at once.

    Argument registers name the memory that their port is wired to (xclbin connectivity); where
    they name none (a Zynq's one DDR) the device's default memory is used.
    """

    def __init__(self, overlay: Any, ip_name: str) -> None:
        self._overlay = overlay
        self._registers = overlay.ip_dict[ip_name].get("registers") or {}
        self._buffers: list[Any] = []

    def allocate(self, argument: str, num_bytes: int) -> Any:
        """A pynq buffer, uint8 [num_bytes], for the argument register of that name.

        CardError when the memory is full or the buffer larger than a bank.
        """
        memory = self._memory_name(argument)
        where = f"{argument} in {memory or 'the default memory'}"
        with card_errors(f"allocating {num_bytes / 2**20:.1f} MiB for {where}"):
            target = self._target(memory)
            bank_bytes = getattr(target, "size", num_bytes)
            if num_bytes > bank_bytes:
                limit = f"the bank holds {bank_bytes >> 20} MiB"
                raise MemoryError(f"{limit}; use fewer slots or a shorter context")
            buffer = target.allocate((num_bytes,), np.uint8)
        self._buffers.append(buffer)
        return buffer

    def load_shares(self, argument: str, shares: Sequence[NDArray[np.uint8]]) -> list[int]:
        """Copy each port's share to the card; returns the address at each."""
        addresses = []
        for port, share in enumerate(shares):
            name = f"{argument}_{port}"
            buffer = self.allocate(name, share.size)
            buffer[:] = share
            sync_to_card(buffer, name)
            addresses.append(int(buffer.device_address))
        return addresses

    def reserve_shares(self, argument: str, num_bytes: int, num_ports: int) -> list[int]:
        """So much room at each port, not initialised; returns the addresses."""
        names = [f"{argument}_{port}" for port in range(num_ports)]
        return [int(self.allocate(name, num_bytes).device_address) for name in names]

    def free(self) -> None:
        """Give everything back. Idempotent."""
        while self._buffers:
            self._buffers.pop().freebuffer()

    def __enter__(self) -> "CardMemory":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.free()

    def _memory_name(self, argument: str) -> str | None:
        name: str | None = self._registers.get(argument, {}).get("memory")
        return name

    def _target(self, memory: str | None) -> Any:
        if memory is None:
            return self._overlay.device
        # An overlay's attributes are its memories' names without brackets: HBM[0] is HBM0.
        return getattr(self._overlay, re.sub("[^A-Za-z0-9_]", "", memory))


def sync_to_card(buffer: Any, what: str) -> None:
    """Copy a buffer's host side to the card."""
    with card_errors(f"DMA of {what} to the card"):
        buffer.flush()


def sync_from_card(buffer: Any, what: str) -> None:
    """Copy a buffer's card side to the host."""
    with card_errors(f"DMA of {what} from the card"):
        buffer.invalidate()
