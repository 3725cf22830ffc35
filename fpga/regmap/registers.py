"""Control registers of the draft accelerator.

Generated from fpga/regmap/regs.toml by `python -m fpga.regmap.generate`.
"""

from typing import Final

VLNV: Final = "hetero:kernel:draft_card:1.0"
SIZE_BYTES: Final = 4096
MAX_PORTS: Final = 32
TYPE_ID: Final = 0x48445246
"""what TYPE reads: the bytes 'HDRF'."""
INTERFACE_VERSION: Final = 0x2
"""what VERSION reads: registers and buffer layouts."""

CTRL: Final = 0x000
CTRL_START: Final = 1 << 0
CTRL_DONE: Final = 1 << 1
CTRL_IDLE: Final = 1 << 2
CTRL_READY: Final = 1 << 3
CTRL_CONTINUE: Final = 1 << 4
CTRL_AUTO_RESTART: Final = 1 << 7
GIE: Final = 0x004
GIE_ENABLE: Final = 1 << 0
IER: Final = 0x008
IER_DONE: Final = 1 << 0
IER_READY: Final = 1 << 1
ISR: Final = 0x00C
ISR_DONE: Final = 1 << 0
ISR_READY: Final = 1 << 1
COMMAND_ADDR: Final = 0x010
RESULT_ADDR: Final = 0x018
PROGRAM_ADDR: Final = 0x020
WEIGHT_ADDR: Final = 0x100
WEIGHT_ADDR_STRIDE: Final = 8
WEIGHT_ADDR_COUNT: Final = 32
KV_ADDR: Final = 0x200
KV_ADDR_STRIDE: Final = 8
KV_ADDR_COUNT: Final = 32
TYPE: Final = 0x300
VERSION: Final = 0x304
ISA_VERSION: Final = 0x308
ARITHMETIC_VERSION: Final = 0x30C
BUILD_HASH: Final = 0x310
BUILD_HASH_STRIDE: Final = 4
BUILD_HASH_COUNT: Final = 4
NUM_PORTS: Final = 0x320
MAX_LANES: Final = 0x324
MAX_READ_TOKENS: Final = 0x328
MAX_DRAFT_TOKENS: Final = 0x32C
VECTOR_WORDS: Final = 0x330
CLOCK_HZ: Final = 0x334
CYCLES: Final = 0x340
RESET: Final = 0x350
RESET_DRAIN: Final = 1 << 0
RESET_DRAINED: Final = 1 << 1

REGISTERS: Final[dict[str, tuple[int, int, str]]] = {
    "CTRL": (0x000, 32, "read-write"),
    "GIE": (0x004, 32, "read-write"),
    "IER": (0x008, 32, "read-write"),
    "ISR": (0x00C, 32, "read-write"),
    "COMMAND_ADDR": (0x010, 64, "read-write"),
    "RESULT_ADDR": (0x018, 64, "read-write"),
    "PROGRAM_ADDR": (0x020, 64, "read-write"),
    "WEIGHT_ADDR_0": (0x100, 64, "read-write"),
    "WEIGHT_ADDR_1": (0x108, 64, "read-write"),
    "WEIGHT_ADDR_2": (0x110, 64, "read-write"),
    "WEIGHT_ADDR_3": (0x118, 64, "read-write"),
    "WEIGHT_ADDR_4": (0x120, 64, "read-write"),
    "WEIGHT_ADDR_5": (0x128, 64, "read-write"),
    "WEIGHT_ADDR_6": (0x130, 64, "read-write"),
    "WEIGHT_ADDR_7": (0x138, 64, "read-write"),
    "WEIGHT_ADDR_8": (0x140, 64, "read-write"),
    "WEIGHT_ADDR_9": (0x148, 64, "read-write"),
    "WEIGHT_ADDR_10": (0x150, 64, "read-write"),
    "WEIGHT_ADDR_11": (0x158, 64, "read-write"),
    "WEIGHT_ADDR_12": (0x160, 64, "read-write"),
    "WEIGHT_ADDR_13": (0x168, 64, "read-write"),
    "WEIGHT_ADDR_14": (0x170, 64, "read-write"),
    "WEIGHT_ADDR_15": (0x178, 64, "read-write"),
    "WEIGHT_ADDR_16": (0x180, 64, "read-write"),
    "WEIGHT_ADDR_17": (0x188, 64, "read-write"),
    "WEIGHT_ADDR_18": (0x190, 64, "read-write"),
    "WEIGHT_ADDR_19": (0x198, 64, "read-write"),
    "WEIGHT_ADDR_20": (0x1A0, 64, "read-write"),
    "WEIGHT_ADDR_21": (0x1A8, 64, "read-write"),
    "WEIGHT_ADDR_22": (0x1B0, 64, "read-write"),
    "WEIGHT_ADDR_23": (0x1B8, 64, "read-write"),
    "WEIGHT_ADDR_24": (0x1C0, 64, "read-write"),
    "WEIGHT_ADDR_25": (0x1C8, 64, "read-write"),
    "WEIGHT_ADDR_26": (0x1D0, 64, "read-write"),
    "WEIGHT_ADDR_27": (0x1D8, 64, "read-write"),
    "WEIGHT_ADDR_28": (0x1E0, 64, "read-write"),
    "WEIGHT_ADDR_29": (0x1E8, 64, "read-write"),
    "WEIGHT_ADDR_30": (0x1F0, 64, "read-write"),
    "WEIGHT_ADDR_31": (0x1F8, 64, "read-write"),
    "KV_ADDR_0": (0x200, 64, "read-write"),
    "KV_ADDR_1": (0x208, 64, "read-write"),
    "KV_ADDR_2": (0x210, 64, "read-write"),
    "KV_ADDR_3": (0x218, 64, "read-write"),
    "KV_ADDR_4": (0x220, 64, "read-write"),
    "KV_ADDR_5": (0x228, 64, "read-write"),
    "KV_ADDR_6": (0x230, 64, "read-write"),
    "KV_ADDR_7": (0x238, 64, "read-write"),
    "KV_ADDR_8": (0x240, 64, "read-write"),
    "KV_ADDR_9": (0x248, 64, "read-write"),
    "KV_ADDR_10": (0x250, 64, "read-write"),
    "KV_ADDR_11": (0x258, 64, "read-write"),
    "KV_ADDR_12": (0x260, 64, "read-write"),
    "KV_ADDR_13": (0x268, 64, "read-write"),
    "KV_ADDR_14": (0x270, 64, "read-write"),
    "KV_ADDR_15": (0x278, 64, "read-write"),
    "KV_ADDR_16": (0x280, 64, "read-write"),
    "KV_ADDR_17": (0x288, 64, "read-write"),
    "KV_ADDR_18": (0x290, 64, "read-write"),
    "KV_ADDR_19": (0x298, 64, "read-write"),
    "KV_ADDR_20": (0x2A0, 64, "read-write"),
    "KV_ADDR_21": (0x2A8, 64, "read-write"),
    "KV_ADDR_22": (0x2B0, 64, "read-write"),
    "KV_ADDR_23": (0x2B8, 64, "read-write"),
    "KV_ADDR_24": (0x2C0, 64, "read-write"),
    "KV_ADDR_25": (0x2C8, 64, "read-write"),
    "KV_ADDR_26": (0x2D0, 64, "read-write"),
    "KV_ADDR_27": (0x2D8, 64, "read-write"),
    "KV_ADDR_28": (0x2E0, 64, "read-write"),
    "KV_ADDR_29": (0x2E8, 64, "read-write"),
    "KV_ADDR_30": (0x2F0, 64, "read-write"),
    "KV_ADDR_31": (0x2F8, 64, "read-write"),
    "TYPE": (0x300, 32, "read-only"),
    "VERSION": (0x304, 32, "read-only"),
    "ISA_VERSION": (0x308, 32, "read-only"),
    "ARITHMETIC_VERSION": (0x30C, 32, "read-only"),
    "BUILD_HASH_0": (0x310, 32, "read-only"),
    "BUILD_HASH_1": (0x314, 32, "read-only"),
    "BUILD_HASH_2": (0x318, 32, "read-only"),
    "BUILD_HASH_3": (0x31C, 32, "read-only"),
    "NUM_PORTS": (0x320, 32, "read-only"),
    "MAX_LANES": (0x324, 32, "read-only"),
    "MAX_READ_TOKENS": (0x328, 32, "read-only"),
    "MAX_DRAFT_TOKENS": (0x32C, 32, "read-only"),
    "VECTOR_WORDS": (0x330, 32, "read-only"),
    "CLOCK_HZ": (0x334, 32, "read-only"),
    "CYCLES": (0x340, 64, "read-only"),
    "RESET": (0x350, 32, "read-write"),
}
"""Name: (offset, bits, access). A row of registers is numbered from _0."""
