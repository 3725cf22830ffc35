"""Writes what regs.toml says as Python, SystemVerilog and documentation.

python -m fpga.regmap.generate           write
python -m fpga.regmap.generate --check   exit 1 when a file is stale
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fpga.regmap.source import Register, RegisterFile, load

ROOT: Final = Path(__file__).parents[2]
NOTE: Final = "Generated from fpga/regmap/regs.toml by `python -m fpga.regmap.generate`."


def python_module(block: RegisterFile) -> str:
    """Constants for the driver and the simulated card."""
    lines = [
        f'"""{block.description}.',
        "",
        NOTE,
        '"""',
        "",
        "from typing import Final",
        "",
        f'VLNV: Final = "{block.vlnv}"',
        f"SIZE_BYTES: Final = {block.size_bytes}",
        f"MAX_PORTS: Final = {block.max_ports}",
        *_python_constants(block),
        "",
        "REGISTERS: Final[dict[str, tuple[int, int, str]]] = {",
        *_python_table(block),
        "}",
        '"""Name: (offset, bits, access). A row of registers is numbered from _0."""',
    ]
    return "\n".join(lines) + "\n"


def _python_constants(block: RegisterFile) -> Iterator[str]:
    for constant in block.constants:
        yield f"{constant.name}: Final = 0x{constant.value:X}"
        yield f'"""{constant.description.strip()}."""'
    yield ""
    for register in block.registers:
        yield f"{register.name}: Final = 0x{register.offset:03X}"
        if register.count > 1:
            yield f"{register.name}_STRIDE: Final = {register.stride_bytes}"
            yield f"{register.name}_COUNT: Final = {register.count}"
        for field in register.fields:
            yield f"{register.name}_{field.name}: Final = 1 << {field.bit}"


def _python_table(block: RegisterFile) -> Iterator[str]:
    for register in block.registers:
        for name, offset in _single(register):
            yield f'    "{name}": (0x{offset:03X}, {register.bits}, "{register.access}"),'


def _single(register: Register) -> Iterator[tuple[str, int]]:
    """Name and offset of each register of a row."""
    for index in range(register.count):
        suffix = f"_{index}" if register.count > 1 else ""
        yield register.name + suffix, register.offset + index * register.stride_bytes


def verilog_header(block: RegisterFile) -> str:
    """The same numbers as macros: our tools want no packages."""
    guard = f"{block.name}_registers_svh".upper()
    width = (block.size_bytes - 1).bit_length()
    lines = [f"// {block.description}. {NOTE}", f"`ifndef {guard}", f"`define {guard}"]
    for constant in block.constants:
        lines.append(f"`define REG_{constant.name} 32'h{constant.value:08X}")
    for register in block.registers:
        lines.append(f"`define REG_{register.name} {width}'h{register.offset:03X}")
        if register.count > 1:
            lines.append(f"`define REG_{register.name}_COUNT {register.count}")
        for field in register.fields:
            lines.append(f"`define REG_{register.name}_{field.name}_BIT {field.bit}")
    return "\n".join([*lines, "`endif"]) + "\n"


def page(block: RegisterFile) -> str:
    """docs/registers.md."""
    lines = [
        "# Registers of the draft card",
        "",
        f"{NOTE}",
        "",
        f"VLNV `{block.vlnv}`, interface version {_constant(block, 'INTERFACE_VERSION')}.",
        "Little endian; a 64-bit register is two words, the low one first. Buffer layouts:",
        "`fpga/driver/buffers.py` and `fpga/program/link.py`.",
        "",
        "| offset | name | bits | access | meaning |",
        "|---|---|---|---|---|",
    ]
    for register in block.registers:
        row = f"[{register.count}], step {register.stride_bytes}" if register.count > 1 else ""
        lines.append(
            f"| `0x{register.offset:03X}` | `{register.name}`{row} | {register.bits} "
            f"| {register.access} | {register.description} |"
        )
        for field in register.fields:
            lines.append(f"| | bit {field.bit} `{field.name}` | | | {field.description} |")
    lines += ["", "| constant | value | meaning |", "|---|---|---|"]
    lines += [f"| `{c.name}` | `0x{c.value:X}` | {c.description} |" for c in block.constants]
    return "\n".join(lines) + "\n"


def _constant(block: RegisterFile, name: str) -> int:
    return next(c.value for c in block.constants if c.name == name)


def outputs(block: RegisterFile) -> dict[Path, str]:
    """Every generated file, relative to the repository, with its content."""
    return {
        Path("fpga/regmap/registers.py"): python_module(block),
        Path("fpga/regmap/registers.svh"): verilog_header(block),
        Path("docs/registers.md"): page(block),
    }


def main(arguments: list[str] | None = None) -> int:
    """Write, or check; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m fpga.regmap.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say what is stale")
    options = parser.parse_args(arguments)
    wanted = outputs(load())
    stale = [name for name, text in wanted.items() if _read(ROOT / name) != text]
    if options.check:
        for name in stale:
            sys.stderr.write(f"{name}: stale. Run `python -m fpga.regmap.generate`.\n")
        return 1 if stale else 0
    for name in stale:
        (ROOT / name).write_text(wanted[name], encoding="utf-8")
    return 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
