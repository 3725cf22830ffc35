"""Resource counts of the RTL, by yosys, against what the cards have. See docs/resources.md."""
