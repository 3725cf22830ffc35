"""hetero: lossless speculative decoding with the draft model on an FPGA card."""

__version__ = "0.1.0"
