"""The card's control registers, from one source: regs.toml."""
