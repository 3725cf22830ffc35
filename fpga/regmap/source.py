"""Reads regs.toml into checked, frozen values."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from hetero.core.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SOURCE: Final = Path(__file__).with_name("regs.toml")

Access = Literal["read-only", "read-write"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One bit of a register."""

    name: str
    bit: int
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Register:
    """One register, or ``count`` equal ones in a row. ``bits`` is 32 or 64."""

    name: str
    offset: int
    access: Access
    description: str
    bits: int = 32
    count: int = 1
    fields: tuple[Field, ...] = ()

    @property
    def stride_bytes(self) -> int:
        """Distance of two registers of the row."""
        return self.bits // 8

    @property
    def end(self) -> int:
        """First offset behind the row."""
        return self.offset + self.count * self.stride_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A number that both sides of the bus know."""

    name: str
    value: int
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterFile:
    """The whole block, in rising order of offset, without overlap."""

    name: str
    vlnv: str
    description: str
    size_bytes: int
    max_ports: int
    constants: tuple[Constant, ...]
    registers: tuple[Register, ...]


def load(path: Path = SOURCE) -> RegisterFile:
    """Parse and check; ConfigError names the register that is wrong."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    constants = cast("Mapping[str, Mapping[str, Any]]", document["constants"])
    registers = tuple(_register(entry) for entry in document["register"])
    block = RegisterFile(
        constants=tuple(Constant(name=name, **entry) for name, entry in constants.items()),
        registers=registers,
        **document["block"],
    )
    for message in _faults(block):
        raise ConfigError(f"{path.name}: {message}")
    return block


def _register(entry: dict[str, Any]) -> Register:
    fields = tuple(Field(**field) for field in entry.pop("fields", ()))
    return Register(fields=fields, **entry)


def _faults(block: RegisterFile) -> Iterator[str]:
    end = 0
    for register in block.registers:
        if register.bits not in (32, 64) or register.offset % register.stride_bytes:
            yield f"{register.name}: {register.bits} bits at {register.offset:#x} is not aligned"
        if register.offset < end:
            yield f"{register.name}: begins at {register.offset:#x}, inside its predecessor"
        if register.access not in ("read-only", "read-write"):
            yield f"{register.name}: access {register.access!r} is neither read-only nor read-write"
        end = register.end
    if end > block.size_bytes:
        yield f"last register ends at {end:#x}, beyond {block.size_bytes:#x}"
